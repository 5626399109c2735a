//! Trials: tiny programs and maps that are loaded and removed at once. They need privileges.
//!
//! A kernel function is tried by a program that calls it with zeros. The verifier checks first
//! whether programs may call the function at all, and only then the arguments; so any error other
//! than the first one means that we may use the function.

use std::ffi::CStr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use libbpf_rs::{MapType, ProgramType};
use libbpf_sys::{BPF_MODIFY_RETURN, BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP};

use super::types::{Types, Witness};
use crate::kernel::sys;

/// Trials other than those of functions and tracepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// Loads a program of this type.
    Program(ProgramType),
    /// Creates a map of this type.
    Map(MapType),
    /// Loads a program onto this function and attaches it for a short time; it changes no result.
    Trampoline(Witness),
}

/// The result of a trial, or of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It works: the kind of evidence, and its subject.
    Works(&'static str, String),
    /// It does not work, with the evidence.
    Fails(String),
    /// In the kernel's type information, and not tried.
    Listed(&'static str),
    /// Nothing is known.
    Unknown(&'static str),
}

/// An instruction in the layout of the kernel's ABI on a little-endian machine: operation,
/// registers (destination, source), offset, immediate.
const fn instruction(operation: u8, destination: u8, source: u8, immediate: u32) -> u64 {
    operation as u64 | (destination as u64) << 8 | (source as u64) << 12 | (immediate as u64) << 32
}

const MOVE: u8 = 0xb7; // register = immediate
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const SOURCE_IS_KFUNC: u8 = 2;

/// Returns 0.
const RETURN_ZERO: [u64; 2] = [instruction(MOVE, 0, 0, 0), instruction(EXIT, 0, 0, 0)];

/// Room for the verifier's log of a program this small.
const LOG_BYTES: usize = 1 << 14;

/// The reason why a program was refused.
#[derive(Debug)]
struct Refusal {
    errno: i32,
    log: String,
}

/// Tries a function or tracepoint; `None` if this kind of witness cannot be tried.
pub(super) fn try_witness(witness: Witness, id: u32, types: &Types) -> Option<Finding> {
    match witness {
        Witness::Tracepoint(name) => Some(match load(BPF_TRACE_RAW_TP, id, &RETURN_ZERO) {
            Ok(_) => Finding::Works("programs load on", name.to_owned()),
            Err(refusal) => judge_refusal(name, refusal.errno),
        }),
        Witness::Kfunc(name) => {
            // Any tracepoint works; this one exists on every kernel with processes.
            let place = types.id(TRIAL_PLACE)?;
            Some(judge_call(
                name,
                &load(BPF_TRACE_RAW_TP, place, &call(id)).map(drop),
            ))
        }
        Witness::Function(_) | Witness::Struct(_) => None,
    }
}

/// The tracepoint for which programs that call functions are loaded; they are not attached.
pub(super) const TRIAL_PLACE: Witness = Witness::Tracepoint("sched_process_exit");

/// Executes any other trial.
pub(super) fn try_out(trial: Trial, types: &Types) -> Finding {
    match trial {
        Trial::Program(kind) => judge_support(kind.is_supported(), format!("program {kind:?}")),
        Trial::Map(kind) => judge_support(kind.is_supported(), format!("map {kind:?}")),
        Trial::Trampoline(witness) => match types.id(witness) {
            Some(id) => try_trampoline(witness.name(), id),
            None => Finding::Fails(format!("{} is not in the kernel's types", witness.name())),
        },
    }
}

fn try_trampoline(name: &str, id: u32) -> Finding {
    let program = match load(BPF_MODIFY_RETURN, id, &RETURN_ZERO) {
        Ok(program) => program,
        Err(refusal) => return judge_refusal(name, refusal.errno),
    };
    match sys::attach(program.as_fd(), BPF_MODIFY_RETURN) {
        Ok(_) => Finding::Works("a program attaches to", name.to_owned()),
        Err(error) => Finding::Fails(format!("a program loads on {name}, but: {error}")),
    }
}

fn call(function: u32) -> Vec<u64> {
    let mut program: Vec<u64> = (1..=5)
        .map(|register| instruction(MOVE, register, 0, 0))
        .collect();
    program.push(instruction(CALL, 0, SOURCE_IS_KFUNC, function));
    program.extend(RETURN_ZERO);
    program
}

/// Loads a tracing program with the kernel's type `id` as its target.
fn load(attach: u32, id: u32, instructions: &[u64]) -> Result<OwnedFd, Refusal> {
    let mut log = vec![0u8; LOG_BYTES];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: attach,
        attach_btf_id: id,
        log_level: 1,
        log_size: LOG_BYTES as u32,
        log_buf: log.as_mut_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: the strings end with 0, the instructions are `len` of 8 bytes each, and the options
    // name `log`, which is alive and LOG_BYTES long.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            BPF_PROG_TYPE_TRACING,
            c"ecalls_try".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    if fd < 0 {
        let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
        return Err(Refusal {
            errno: -fd,
            log: log.to_string_lossy().into_owned(),
        });
    }
    // SAFETY: the call above just returned `fd`, so it is open and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Judges the refusal of a program that is valid in itself.
fn judge_refusal(name: &str, errno: i32) -> Finding {
    match errno {
        libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::EINTR => {
            Finding::Unknown("the trial ran out of memory, descriptors or time")
        }
        _ => Finding::Fails(format!(
            "a program on {name} is refused: {}",
            message(errno)
        )),
    }
}

fn judge_call(name: &str, result: &Result<(), Refusal>) -> Finding {
    let works = || Finding::Works("programs may call", name.to_owned());
    let Err(refusal) = result else {
        return works();
    };
    // Other messages, too, contain in one line that something is not allowed: since 7.3, that a
    // program ends, or sleeps, where it may not.
    let forbidden = refusal.log.lines().any(|line| {
        line.contains("calling kernel function")
            && ["is not allowed", "does not support", "not supported"]
                .iter()
                .any(|words| line.contains(words))
    });
    match refusal.errno {
        libc::EINVAL | libc::EACCES if forbidden => Finding::Fails(format!(
            "programs may not call {name}: {}",
            refusal.log.trim()
        )),
        libc::EINVAL | libc::EACCES if !refusal.log.is_empty() => works(),
        errno => judge_refusal(name, errno),
    }
}

fn judge_support(result: libbpf_rs::Result<bool>, what: String) -> Finding {
    match result {
        Ok(true) => Finding::Works("accepted:", what),
        Ok(false) => Finding::Fails(format!("refused: {what}")),
        Err(_) => Finding::Unknown("the trial itself failed"),
    }
}

fn message(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::host::Host;
    use super::*;

    fn refused(errno: i32, log: &str) -> Finding {
        judge_call(
            "f",
            &Err(Refusal {
                errno,
                log: log.to_owned(),
            }),
        )
    }

    #[test]
    fn instructions_have_the_kernels_layout() {
        assert_eq!(
            instruction(MOVE, 1, 0, 0).to_le_bytes(),
            [0xb7, 1, 0, 0, 0, 0, 0, 0]
        );
        let call = instruction(CALL, 0, SOURCE_IS_KFUNC, 0x0102_0304);
        assert_eq!(call.to_le_bytes(), [0x85, 0x20, 0, 0, 4, 3, 2, 1]);
    }

    #[test]
    fn a_function_is_there_unless_the_verifier_forbids_calling_it() {
        let works = Finding::Works("programs may call", "f".to_owned());
        assert_eq!(judge_call("f", &Ok(())), works);
        assert_eq!(
            refused(libc::EINVAL, "arg#0 pointer type UNKNOWN must point to"),
            works
        );
        for log in [
            "BPF_EXIT instruction cannot be used inside bpf_preempt_disable-ed region\n\
             Reason: Operation is not allowed in this context\n",
            "program must be sleepable to call sleepable kfunc f\n\
             error: sleepable kfunc f is not allowed in non-sleepable program\n",
        ] {
            assert_eq!(refused(libc::EINVAL, log), works, "{log}");
        }
        for log in [
            "calling kernel function f is not allowed\n",
            "JIT does not support calling kernel function\n",
        ] {
            let forbidden = refused(libc::EACCES, log);
            assert!(matches!(forbidden, Finding::Fails(_)), "{log}");
        }
        assert!(matches!(refused(libc::EPERM, ""), Finding::Fails(_)));
        assert!(matches!(refused(libc::EINVAL, ""), Finding::Fails(_)));
        assert!(matches!(refused(libc::ENOMEM, ""), Finding::Unknown(_)));
    }

    /// It needs privileges, and checks nothing without them.
    #[test]
    fn this_kernel_tells_its_functions_from_those_that_programs_may_call() {
        if !Host::read().may_load() {
            return;
        }
        // The trial may not end after the second, and may not sleep, as the third one does.
        let callable = ["bpf_task_release", "bpf_preempt_disable", "css_rstat_flush"];
        let internal = Witness::Kfunc("vfs_read");
        let mut looked_up = HashSet::from([internal, TRIAL_PLACE]);
        looked_up.extend(callable.map(Witness::Kfunc));
        let types = Types::read(&looked_up);
        let tried = |witness| {
            let id = types.id(witness).expect("listed");
            try_witness(witness, id, &types).expect("something to try")
        };
        let is_listed = |name: &&'static str| types.id(Witness::Kfunc(name)).is_some();
        for name in callable.into_iter().filter(is_listed) {
            let found = tried(Witness::Kfunc(name));
            assert!(matches!(found, Finding::Works(..)), "{found:?}");
        }
        assert!(
            matches!(tried(internal), Finding::Fails(_)),
            "{:?}",
            tried(internal)
        );
        assert!(matches!(tried(TRIAL_PLACE), Finding::Works(..)));
    }
}
