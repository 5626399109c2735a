//! E-code programs in the kernel: from a compiled [`Object`] to a program that the verifier has
//! accepted, either as a handler for a slot of the core ([`load_handler`]) or on trial with memory
//! of its own ([`Trial`]: tests, `ecalls ecode run --on kernel`).
//!
//! A program is loaded without a description first, which is faster. If the kernel refuses it, it
//! is loaded once more for the verifier's log, and the instruction that the log names is looked up
//! in the text ([`Refusal`]). The compiler rejects everything that the verifier should refuse, so a
//! refusal is a limit of the kernel or a fault of ours, and its message says so.

pub mod environment;
pub mod handwritten;

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::ecode::bpf::btf::{self, FUNC_INFO_BYTES, LINE_INFO_BYTES};
use ::ecode::bpf::{Map, Object};
use ::ecode::frame::at;
use ::ecode::limits;
use ::ecode::source::Source;
use libbpf_rs::libbpf_sys::{bpf_map_create_opts, size_t};
use libbpf_rs::{MapHandle, MapType};

use crate::error::{Error, Result};
use crate::kernel::segment::Segment;
use crate::kernel::sys;

/// The maps that a program of the core uses; the state is the subscription's own.
#[derive(Clone, Copy, Debug)]
pub struct Maps<'a> {
    /// See [`Map::Frame`], and so on.
    pub frame: BorrowedFd<'a>,
    /// Each element begins with the event.
    pub event: BorrowedFd<'a>,
    /// An array of one element.
    pub state: Option<BorrowedFd<'a>>,
    /// One element per channel.
    pub attributes: Option<BorrowedFd<'a>>,
    /// One element.
    pub sinks: Option<BorrowedFd<'a>>,
}

impl<'a> Maps<'a> {
    fn get(&self, map: Map) -> Option<BorrowedFd<'a>> {
        match map {
            Map::Frame => Some(self.frame),
            Map::Event => Some(self.event),
            Map::State => self.state,
            Map::Attributes => self.attributes,
            Map::Sinks => self.sinks,
        }
    }
}

/// The reason why the kernel refuses a program.
#[derive(Debug)]
pub struct Refusal {
    pub source: io::Error,
    /// The last message of the verifier; empty if there is no log.
    pub reason: String,
    /// The instruction at which it stopped.
    pub instruction: Option<u32>,
    /// The whole log.
    pub log: String,
}

impl Refusal {
    /// In one line, with the position in the text.
    pub fn render(&self, object: &Object, source: &Source) -> String {
        let reason = if self.reason.is_empty() {
            self.source.to_string()
        } else {
            self.reason.clone()
        };
        // A program without spans has no positions.
        let instruction = self.instruction.filter(|_| !object.spans.is_empty());
        let span = instruction.map(|instruction| object.span(instruction));
        let place = span.map(|span| source.position(span.start));
        let place = place.map_or(String::new(), |place| {
            format!(":{}:{}", place.line, place.column)
        });
        let hint = "the kernel's verifier does not see that this is safe, or finds it too long; \
                    this is a limit of the compiler, not an error in the text";
        format!(
            "{}{place}: refused by the kernel: {reason}\n    hint: {hint}",
            source.name
        )
    }
}

/// The purpose for which a program is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// For BPF_PROG_TEST_RUN.
    Trial,
    /// On the tracepoint of the program that calls it: nearly always `bpf_trigger_tp`.
    Handler { tracepoint: u32 },
    /// Called by a program on a tracepoint, with the tracepoint's record (provider/meeting.rs).
    Meeting,
    /// Called by a program that chooses a listener (guard/policy.rs).
    Policy,
    /// Called by a program on an interface, with a packet (answer.rs).
    Answer,
}

/// Loads a handler for a slot of the core. The outer error is the system's, the inner one the
/// verifier's.
pub fn load_handler(
    object: &Object,
    maps: &Maps<'_>,
) -> Result<std::result::Result<OwnedFd, Refusal>> {
    let tracepoint = DISPATCHER.id()?;
    load(object, maps, Kind::Handler { tracepoint })
}

/// Loads a filter that the socket service's own program calls. Errors as of [`load_handler`].
pub(crate) fn load_early(
    object: &Object,
    maps: &Maps<'_>,
) -> Result<std::result::Result<OwnedFd, Refusal>> {
    let tracepoint = SOCKET.id()?;
    load(object, maps, Kind::Handler { tracepoint })
}

/// Loads the policy of a guarded port. Errors as of [`load_handler`].
pub(crate) fn load_policy(
    object: &Object,
    maps: &Maps<'_>,
) -> Result<std::result::Result<OwnedFd, Refusal>> {
    load(object, maps, Kind::Policy)
}

/// Loads the program of a service. Errors as of [`load_handler`].
pub(crate) fn load_meeting(
    object: &Object,
    maps: &Maps<'_>,
) -> Result<std::result::Result<OwnedFd, Refusal>> {
    load(object, maps, Kind::Meeting)
}

/// Loads the program that says how datagrams are answered. Errors as of [`load_handler`].
pub(crate) fn load_answer(
    object: &Object,
    maps: &Maps<'_>,
) -> Result<std::result::Result<OwnedFd, Refusal>> {
    load(object, maps, Kind::Answer)
}

/// A tracepoint on which handlers are. The kernel's id of it is cached, since a search of the
/// kernel's types takes milliseconds.
pub(crate) struct Tracepoint {
    name: &'static CStr,
    known: OnceLock<u32>,
}

pub(crate) static DISPATCHER: Tracepoint = Tracepoint::named(c"bpf_trigger_tp");
pub(crate) static SOCKET: Tracepoint = Tracepoint::named(c"sk_data_ready");

impl Tracepoint {
    const fn named(name: &'static CStr) -> Tracepoint {
        Tracepoint {
            name,
            known: OnceLock::new(),
        }
    }

    /// Takes the id from a program that is on the tracepoint.
    pub(crate) fn learn(&self, program: BorrowedFd<'_>) {
        if self.known.get().is_none()
            && let Ok(info) = sys::program_info(program)
            && info.attach_btf_id != 0
        {
            let _ = self.known.set(info.attach_btf_id);
        }
    }

    fn id(&self) -> Result<u32> {
        if let Some(known) = self.known.get() {
            return Ok(*known);
        }
        // SAFETY: the name is a C string; the function returns a number.
        let id = unsafe {
            libbpf_sys::libbpf_find_vmlinux_btf_id(self.name.as_ptr(), libbpf_sys::BPF_TRACE_RAW_TP)
        };
        match u32::try_from(id) {
            Ok(id) => Ok(*self.known.get_or_init(|| id)),
            Err(_) => Err(Error::from_errno(
                "finding the tracepoint of handlers",
                i64::from(id),
            )),
        }
    }
}

/// The instructions with the maps' descriptors inserted.
fn linked(object: &Object, maps: &Maps<'_>) -> Result<Vec<u64>> {
    let mut instructions = object.instructions.clone();
    for used in &object.maps {
        let fd = maps
            .get(used.map)
            .ok_or(Error::Closed("a map of the program"))?;
        if let Some(word) = instructions.get_mut(used.instruction as usize) {
            let fd = u64::from(fd.as_raw_fd().cast_unsigned());
            *word = *word & u64::from(u32::MAX) | fd << 32;
        }
    }
    Ok(instructions)
}

/// A program that took the verifier longer than this is not loaded again for the log, which would
/// take much longer.
const QUICK: Duration = Duration::from_millis(100);

fn load(
    object: &Object,
    maps: &Maps<'_>,
    kind: Kind,
) -> Result<std::result::Result<OwnedFd, Refusal>> {
    let instructions = linked(object, maps)?;
    let begin = Instant::now();
    match offer(&instructions, kind, None, None) {
        Ok(program) => Ok(Ok(program)),
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied && !sys::may_host() => {
            Err(Error::Denied {
                action: "loading an E-code program",
                privilege: "CAP_BPF and CAP_PERFMON (or root)",
            })
        }
        Err(source) if begin.elapsed() > QUICK => Ok(Err(Refusal {
            source,
            reason: "it takes the verifier too long".to_owned(),
            instruction: None,
            log: String::new(),
        })),
        Err(_) => Ok(explain(&instructions, kind)),
    }
}

/// Loads a program again to get the reason of its refusal.
fn explain(instructions: &[u64], kind: Kind) -> std::result::Result<OwnedFd, Refusal> {
    let mut log = vec![0u8; 256 * 1024];
    let source = match offer(instructions, kind, Some(&mut log), None) {
        Ok(program) => return Ok(program),
        Err(source) => source,
    };
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]).into_owned();
    let (instruction, reason) = last_words(&log);
    Err(Refusal {
        source,
        reason,
        instruction,
        log,
    })
}

/// The instruction at which the verifier stopped, and its message. The log shows an instruction as
/// `12: (61) r1 = ...`, and the error on the lines after the last one.
fn last_words(log: &str) -> (Option<u32>, String) {
    let mut instruction = None;
    let mut words = Vec::new();
    for line in log.lines() {
        let number = line
            .split_once(": (")
            .and_then(|(number, _)| number.parse().ok());
        if number.is_some() {
            instruction = number;
            words.clear();
        } else if !line.starts_with("processed ") && !line.is_empty() {
            words.push(line);
        }
    }
    (instruction, words.join("; "))
}

/// Name of a handler in the kernel.
pub(crate) const PROGRAM_NAME: &CStr = c"ecode";

/// BTF in the kernel, with the records that refer to it.
struct Described {
    btf: OwnedFd,
    description: btf::Description,
}

fn offer(
    instructions: &[u64],
    kind: Kind,
    log: Option<&mut [u8]>,
    described: Option<&Described>,
) -> io::Result<OwnedFd> {
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as size_t,
        attempts: 1,
        ..Default::default()
    };
    let (kind, name) = match kind {
        Kind::Trial => (libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT, c"ecode_trial"),
        Kind::Meeting => (libbpf_sys::BPF_PROG_TYPE_TRACEPOINT, PROGRAM_NAME),
        Kind::Policy => {
            options.expected_attach_type = libbpf_sys::BPF_SK_LOOKUP;
            (libbpf_sys::BPF_PROG_TYPE_SK_LOOKUP, PROGRAM_NAME)
        }
        Kind::Answer => {
            options.expected_attach_type = libbpf_sys::BPF_TCX_INGRESS;
            (libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, PROGRAM_NAME)
        }
        Kind::Handler { tracepoint } => {
            options.expected_attach_type = libbpf_sys::BPF_TRACE_RAW_TP;
            options.attach_btf_id = tracepoint;
            (libbpf_sys::BPF_PROG_TYPE_TRACING, PROGRAM_NAME)
        }
    };
    if let Some(log) = log {
        options.log_level = 1;
        options.log_size = u32::try_from(log.len()).expect("a small log");
        options.log_buf = log.as_mut_ptr().cast::<c_char>();
    }
    if let Some(Described { btf, description }) = described {
        options.prog_btf_fd = btf.as_raw_fd().cast_unsigned();
        options.func_info = description.func_info.as_ptr().cast::<c_void>();
        options.func_info_rec_size = FUNC_INFO_BYTES;
        options.func_info_cnt = description.func_info.len() as u32 / FUNC_INFO_BYTES;
        options.line_info = description.line_info.as_ptr().cast::<c_void>();
        options.line_info_rec_size = LINE_INFO_BYTES;
        options.line_info_cnt = description.line_info.len() as u32 / LINE_INFO_BYTES;
    }
    // SAFETY: the instructions are plain words of the size of bpf_insn, as many as is said; the
    // options name memory that is alive until the call returns.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            name.as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as size_t,
            &raw mut options,
        )
    };
    owned(fd)
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

// --- on trial ---

/// The memory of a program in a trial run: the same bytes as in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialMemory {
    /// The frame, [`at::BYTES`].
    pub frame: Vec<u8>,
    /// The event's header, followed by its data.
    pub event: Vec<u8>,
    pub state: Vec<u8>,
    /// The channel's attributes, s64 each.
    pub attributes: Vec<u8>,
    /// The table of sinks.
    pub sinks: Vec<u8>,
}

/// A program with memory of its own.
#[derive(Debug)]
pub struct Trial {
    program: OwnedFd,
    areas: [Area; 5],
}

/// A map, and its only element as mapped in this process.
#[derive(Debug)]
struct Area {
    map: MapHandle,
    memory: Segment,
    bytes: usize,
}

impl Area {
    fn new(bytes: u32) -> Result<Area> {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let bytes = bytes.next_multiple_of(8).max(8);
        let map = MapHandle::create(MapType::Array, Some("ecode_trial"), 4, bytes, 1, &options)
            .map_err(|error| Error::from_bpf("making memory for an E-code program", &error))?;
        let memory = Segment::map(&map, bytes as usize)?;
        Ok(Area {
            map,
            memory,
            bytes: bytes as usize,
        })
    }

    fn write(&self, bytes: &[u8]) {
        for (at, word) in self.memory.words().iter().take(self.bytes / 8).enumerate() {
            let mut value = [0; 8];
            for (to, from) in value.iter_mut().zip(bytes.iter().skip(at * 8)) {
                *to = *from;
            }
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
    }

    fn read(&self, bytes: &mut [u8]) {
        for (to, word) in bytes.chunks_mut(8).zip(self.memory.words()) {
            let value = word.load(Ordering::Relaxed).to_ne_bytes();
            to.copy_from_slice(&value[..to.len()]);
        }
    }
}

impl Trial {
    /// Loads a program with memory as large as it needs.
    pub fn load(object: &Object) -> Result<std::result::Result<Trial, Refusal>> {
        let areas = Trial::areas(object)?;
        let program = load(object, &Trial::maps(&areas), Kind::Trial)?;
        Ok(program.map(|program| Trial { program, areas }))
    }

    /// The same with the lines of its text, for bpftool and the verifier's own messages.
    pub fn load_described(
        object: &Object,
        source: &Source,
    ) -> Result<std::result::Result<Trial, Refusal>> {
        let areas = Trial::areas(object)?;
        let instructions = linked(object, &Trial::maps(&areas))?;
        let description = btf::describe(object, source);
        let options = std::ptr::null_mut();
        // SAFETY: the bytes are alive and as many as is said; there are no options.
        let fd = unsafe {
            let data = description.btf.as_ptr().cast::<c_void>();
            libbpf_sys::bpf_btf_load(data, description.btf.len() as size_t, options)
        };
        let btf = owned(fd).map_err(|error| Error::from_io("describing a program", error))?;
        let described = Described { btf, description };
        match offer(&instructions, Kind::Trial, None, Some(&described)) {
            Ok(program) => Ok(Ok(Trial { program, areas })),
            Err(_) => {
                Ok(explain(&instructions, Kind::Trial).map(|program| Trial { program, areas }))
            }
        }
    }

    fn areas(object: &Object) -> Result<[Area; 5]> {
        let attributes = limits::ATTRIBUTES * 8;
        let event = at::EVENT_DATA + object.input_bytes;
        Ok([
            Area::new(at::BYTES)?,
            Area::new(event)?,
            Area::new(object.state_bytes)?,
            Area::new(attributes)?,
            Area::new(at::SINK_TABLE_BYTES)?,
        ])
    }

    fn maps(areas: &[Area; 5]) -> Maps<'_> {
        let [frame, event, state, attributes, sinks] =
            areas.each_ref().map(|area| area.map.as_fd());
        let (state, attributes, sinks) = (Some(state), Some(attributes), Some(sinks));
        Maps {
            frame,
            event,
            state,
            attributes,
            sinks,
        }
    }

    /// Loads another program as a handler, with this one's memory: all steps of a handler except
    /// its insertion into a slot.
    pub fn load_handler(&self, object: &Object) -> Result<std::result::Result<OwnedFd, Refusal>> {
        load_handler(object, &Trial::maps(&self.areas))
    }

    /// Runs the program once on this memory.
    pub fn run(&self, memory: &mut TrialMemory) -> Result<()> {
        let [frame, event, state, attributes, sinks] = &self.areas;
        frame.write(&memory.frame);
        event.write(&memory.event);
        state.write(&memory.state);
        attributes.write(&memory.attributes);
        sinks.write(&memory.sinks);
        self.run_again()?;
        frame.read(&mut memory.frame);
        state.read(&mut memory.state);
        Ok(())
    }

    /// Runs the program on the memory in its present state.
    pub fn run_again(&self) -> Result<()> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as size_t,
            ..Default::default()
        };
        let program = self.program.as_raw_fd();
        // SAFETY: the options name no memory.
        let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) };
        match error {
            0.. => Ok(()),
            error => Err(Error::from_errno(
                "running an E-code program",
                i64::from(error),
            )),
        }
    }

    /// The number of runs so far and their time, ns, which the kernel counts while its statistics
    /// are enabled.
    pub fn counted(&self) -> Result<(u64, u64)> {
        let info = sys::program_info(self.program())?;
        Ok((info.run_cnt, info.run_time_ns))
    }

    /// The program, for statistics.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}
