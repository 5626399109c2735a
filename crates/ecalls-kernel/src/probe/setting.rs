//! The configuration of the machine as far as we depend on it: functions from [`Host`] to features.

use super::host::{Host, Limit};
use super::types::Types;
use super::{Feature, State};

/// Names to which the choices refer.
pub(super) const LOCKDOWN: &str = "no lockdown";
pub(super) const REAL_TIME: &str = "real-time preemption";
pub(super) const UNPRIVILEGED: &str = "BPF closed to users";
pub(super) const MEMORY_LOCK: &str = "BPF memory outside the lock limit";
pub(super) const SIGNALS: &str = "room for queued signals";
pub(super) const CONTROL_GROUPS: &str = "control groups, version 2";

/// With fewer queued signals than this, signals are lost too easily.
const SIGNALS_MIN: u64 = 1024;

/// The oldest kernel with all features that the core needs.
const OLDEST: (u32, u32) = (6, 12);
/// The first kernel that counts BPF memory by control group instead of by the lock limit.
const NO_LOCK_LIMIT: (u32, u32) = (5, 11);

const NOT_LOADED: &str = "the core is not loaded";

/// The features on which all others depend.
pub(super) fn basics(host: &Host, types: &Types) -> Vec<Feature> {
    vec![
        version(host),
        kernel_types(types),
        system_call(host),
        compiler(host),
        privileges(host),
    ]
}

/// Settings that make the other features better, safer or faster.
pub(super) fn surroundings(host: &Host) -> Vec<Feature> {
    vec![
        control_groups(host),
        barrier(host),
        lockdown(host),
        unprivileged(host),
        real_time(host),
        memory_lock(host),
        signals(host),
    ]
}

fn version(host: &Host) -> Feature {
    let state = match host.version() {
        Some(version) if version >= OLDEST => State::Present,
        // Not required by itself: a vendor's kernel may have the features under a lower version
        // number.
        Some(_) => State::Absent,
        None => State::Unknown("its release has no version number"),
    };
    Feature {
        name: "recent kernel",
        purpose: "having all of the below",
        state,
        since: "Linux 6.12",
        without: "the parts below decide; on most older kernels the core is not loaded",
        evidence: format!("Linux {} {}", host.release, host.build),
        required: false,
    }
}

fn kernel_types(types: &Types) -> Feature {
    let (state, evidence) = if types.are_known() {
        (State::Present, "/sys/kernel/btf/vmlinux can be read")
    } else {
        (
            State::Absent,
            "no type information of the kernel can be read",
        )
    };
    Feature {
        name: "type information (BTF)",
        purpose: "finding the kernel's fields and functions without its headers",
        state,
        since: "a kernel with CONFIG_DEBUG_INFO_BTF",
        without: NOT_LOADED,
        evidence: evidence.to_owned(),
        required: true,
    }
}

fn system_call(host: &Host) -> Feature {
    let (state, evidence) = match host.bpf_errno {
        libc::ENOSYS => (State::Absent, "bpf(2) does not exist"),
        libc::EPERM if host.may_load() => (State::Absent, "bpf(2) is forbidden, as by seccomp"),
        _ => (State::Present, "bpf(2) answers"),
    };
    Feature {
        name: "bpf system call",
        purpose: "everything in the kernel",
        state,
        since: "CONFIG_BPF_SYSCALL, outside of containers that forbid it",
        without: NOT_LOADED,
        evidence: evidence.to_owned(),
        required: true,
    }
}

fn compiler(host: &Host) -> Feature {
    let always = host.option("BPF_JIT_ALWAYS_ON") == Some("y");
    let (state, evidence) = match host.jit.as_deref() {
        Some("0") => (State::Absent, "net.core.bpf_jit_enable is 0".to_owned()),
        Some(value) => (
            State::Present,
            format!("net.core.bpf_jit_enable is {value}"),
        ),
        None if always => (State::Present, option_evidence(host, "BPF_JIT_ALWAYS_ON")),
        None => (
            State::Unknown("bpf_jit_enable cannot be read"),
            "nothing tells".to_owned(),
        ),
    };
    Feature {
        name: "BPF compiler (JIT)",
        purpose: "programs at machine speed, and calls of kernel functions at all",
        state,
        since: "CONFIG_BPF_JIT and sysctl net.core.bpf_jit_enable=1",
        without: NOT_LOADED,
        evidence,
        required: true,
    }
}

fn privileges(host: &Host) -> Feature {
    let (state, evidence) = match (host.is_root, host.may_load()) {
        (true, true) => (State::Present, "root with CAP_BPF and CAP_PERFMON"),
        (true, false) => (
            State::Absent,
            "root without CAP_BPF or CAP_PERFMON, as in a container",
        ),
        (false, true) => (State::Absent, "capabilities, but not root"),
        (false, false) => (State::Absent, "not root"),
    };
    Feature {
        name: "privileges",
        purpose: "hosting the core",
        state,
        since: "root with the capabilities CAP_BPF and CAP_PERFMON",
        without: "this program takes part through the daemon",
        evidence: evidence.to_owned(),
        required: true,
    }
}

fn control_groups(host: &Host) -> Feature {
    let (state, evidence) = match (host.control_groups(), &host.mounts) {
        (Some(path), _) => (State::Present, format!("mounted at {path}")),
        (None, Some(_)) => (State::Absent, "not among the mounts".to_owned()),
        (None, None) => (
            State::Unknown("/proc/mounts cannot be read"),
            "none".to_owned(),
        ),
    };
    Feature {
        name: CONTROL_GROUPS,
        purpose: "the setsockopt hook attaches to their root",
        state,
        since: "Linux 4.5, mounted as type cgroup2",
        without: "no fast calls by setsockopt",
        evidence,
        required: false,
    }
}

fn barrier(host: &Host) -> Feature {
    let global = i64::from(libc::MEMBARRIER_CMD_GLOBAL);
    let (state, evidence) = match host.barriers {
        commands if commands < 0 => (State::Absent, "membarrier(2) does not answer"),
        commands if commands & global != 0 => (State::Present, "membarrier(2) offers it"),
        _ => (State::Absent, "membarrier(2) does not offer it"),
    };
    Feature {
        name: "barrier for all CPUs",
        purpose: "reusing a subscription's place once no CPU delivers to it any more",
        state,
        since: "CONFIG_MEMBARRIER, and a kernel started without nohz_full",
        without: "ending a subscription reports an error",
        evidence: evidence.to_owned(),
        required: false,
    }
}

/// The mode of lockdown, including "none", and the source of this fact.
fn lockdown_mode(host: &Host) -> Option<(String, String)> {
    let bracketed = |text: &str| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned());
    if let Some(mode) = host.lockdown.as_deref().and_then(bracketed) {
        return Some((mode, "/sys/kernel/security/lockdown".to_owned()));
    }
    let started = host
        .command_line
        .as_deref()
        .unwrap_or("")
        .split_whitespace();
    if let Some(mode) = started
        .filter_map(|word| word.strip_prefix("lockdown="))
        .next_back()
    {
        return Some((mode.to_owned(), "the kernel's command line".to_owned()));
    }
    host.options.as_ref()?;
    if host.option("SECURITY_LOCKDOWN_LSM") != Some("y") {
        return Some((
            "none".to_owned(),
            option_evidence(host, "SECURITY_LOCKDOWN_LSM"),
        ));
    }
    let forced = [
        ("confidentiality", "LOCK_DOWN_KERNEL_FORCE_CONFIDENTIALITY"),
        ("integrity", "LOCK_DOWN_KERNEL_FORCE_INTEGRITY"),
    ];
    forced
        .iter()
        .find(|(_, option)| host.option(option) == Some("y"))
        .map(|(mode, option)| ((*mode).to_owned(), option_evidence(host, option)))
}

fn lockdown(host: &Host) -> Feature {
    let (state, evidence) = match lockdown_mode(host) {
        Some((mode, source)) if mode == "none" => (State::Present, source),
        Some((mode, source)) => (State::Absent, format!("mode {mode}: {source}")),
        None => (
            State::Unknown("securityfs is not mounted"),
            "/sys/kernel/security/lockdown cannot be read, and no option decides".to_owned(),
        ),
    };
    Feature {
        name: LOCKDOWN,
        purpose: "the kernel may be observed and changed by root",
        state,
        since: "a kernel started without lockdown (often a consequence of secure boot)",
        without: "integrity forbids programs to write to applications' memory, which we do not \
                  use; confidentiality also kprobes and most reading of kernel memory",
        evidence,
        required: false,
    }
}

fn unprivileged(host: &Host) -> Feature {
    let (state, evidence) = match host.unprivileged.as_deref() {
        Some("0") => (
            State::Absent,
            "kernel.unprivileged_bpf_disabled is 0".to_owned(),
        ),
        Some(value) => (
            State::Present,
            format!("kernel.unprivileged_bpf_disabled is {value}"),
        ),
        None => (
            State::Unknown("unprivileged_bpf_disabled cannot be read"),
            "kernels before 4.4 have no such setting".to_owned(),
        ),
    };
    Feature {
        name: UNPRIVILEGED,
        purpose: "only the core's host loads programs; applications use what it hands out",
        state,
        since: "sysctl kernel.unprivileged_bpf_disabled=2 (1: until the next boot)",
        without: "every user may load simple programs of his own; we need no such right",
        evidence,
        required: false,
    }
}

fn real_time(host: &Host) -> Feature {
    let is_real_time = host.build.contains("PREEMPT_RT");
    let (state, evidence) = if is_real_time {
        (State::Present, format!("uname says {}", host.build))
    } else {
        (
            State::Absent,
            format!("uname does not say PREEMPT_RT: {}", host.build),
        )
    };
    Feature {
        name: REAL_TIME,
        purpose: "a bound for what the kernel itself delays",
        state,
        since: "CONFIG_PREEMPT_RT",
        without: "now and then the kernel delays a wake-up, by milliseconds under load",
        evidence,
        required: false,
    }
}

fn memory_lock(host: &Host) -> Feature {
    let limit = describe_limit(host.memory_lock, "bytes");
    let state = match host.version() {
        Some(version) if version >= NO_LOCK_LIMIT => State::Present,
        Some(_) if host.memory_lock.is_none() => State::Present,
        Some(_) => State::Absent,
        None => State::Unknown("the release has no version number"),
    };
    Feature {
        name: MEMORY_LOCK,
        purpose: "queues and channels of any size",
        state,
        since: "Linux 5.11",
        without: "the limit of locked memory (ulimit -l) must be raised for the host",
        evidence: format!("Linux {}; limit {limit}", host.release),
        required: false,
    }
}

fn signals(host: &Host) -> Feature {
    let enough = host.signals.is_none_or(|limit| limit >= SIGNALS_MIN);
    let limit = describe_limit(host.signals, "signals of this user");
    let now = host
        .status_field("SigQ")
        .and_then(|field| field.split('/').next());
    Feature {
        name: SIGNALS,
        purpose: "real-time signals that wait for their receiver",
        state: if enough {
            State::Present
        } else {
            State::Absent
        },
        since: "a limit of pending signals (ulimit -i) of at least 1024",
        without: "more signals are dropped; each is counted as signal-limit",
        evidence: format!(
            "limit {limit}; {} queued now",
            now.unwrap_or("an unknown number")
        ),
        required: false,
    }
}

fn describe_limit(limit: Limit, unit: &str) -> String {
    limit.map_or("none".to_owned(), |limit| format!("{limit} {unit}"))
}

fn option_evidence(host: &Host, option: &str) -> String {
    host.options
        .as_ref()
        .map_or(String::new(), |options| options.evidence(option))
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use super::*;

    fn host() -> Host {
        Host {
            release: "6.18.1".to_owned(),
            build: "#1 SMP PREEMPT_DYNAMIC".to_owned(),
            status: Some("CapEff:\t000001ffffffffff\nSigQ:\t2/96365\n".to_owned()),
            is_root: true,
            ..Host::default()
        }
    }

    fn mode(host: &Host) -> Option<String> {
        lockdown_mode(host).map(|(mode, _)| mode)
    }

    #[test]
    fn lockdown_is_told_by_its_file_else_the_command_line_else_the_options() {
        let text = |text: &str| Some(text.to_owned());
        let mut host = host();
        assert_eq!(mode(&host), None);
        assert!(matches!(lockdown(&host).state, State::Unknown(_)));
        let forced = "CONFIG_SECURITY_LOCKDOWN_LSM=y\nCONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY=y";
        host.options = Some(Options::from_text(forced));
        assert_eq!(mode(&host), text("integrity"));
        host.command_line = text("quiet lockdown=confidentiality");
        assert_eq!(mode(&host), text("confidentiality"));
        host.lockdown = text("[none] integrity confidentiality");
        assert_eq!(lockdown(&host).state, State::Present);
    }

    #[test]
    fn a_kernel_without_lockdown_is_not_locked_down() {
        let options = Some(Options::from_text("CONFIG_BPF=y"));
        assert_eq!(mode(&Host { options, ..host() }), Some("none".to_owned()));
    }

    #[test]
    fn privileges_need_both_root_and_capabilities() {
        assert_eq!(privileges(&host()).state, State::Present);
        assert_eq!(
            privileges(&Host {
                is_root: false,
                ..host()
            })
            .state,
            State::Absent
        );
        assert_eq!(
            privileges(&Host {
                status: None,
                ..host()
            })
            .state,
            State::Absent
        );
    }

    #[test]
    fn a_refusal_of_bpf_counts_only_for_those_who_may_use_it() {
        let refused = Host {
            bpf_errno: libc::EPERM,
            ..host()
        };
        assert_eq!(system_call(&refused).state, State::Absent);
        let user = Host {
            status: None,
            ..refused
        };
        assert_eq!(system_call(&user).state, State::Present);
        assert_eq!(
            system_call(&Host {
                bpf_errno: libc::ENOSYS,
                ..user
            })
            .state,
            State::Absent
        );
    }

    #[test]
    fn limits_are_judged_with_the_kernels_version() {
        let old = Host {
            release: "5.10.0".to_owned(),
            memory_lock: Some(65536),
            ..host()
        };
        assert_eq!(memory_lock(&old).state, State::Absent);
        assert_eq!(
            memory_lock(&Host {
                memory_lock: None,
                ..old
            })
            .state,
            State::Present
        );
        assert_eq!(
            signals(&Host {
                signals: Some(64),
                ..host()
            })
            .state,
            State::Absent
        );
        assert_eq!(signals(&host()).evidence, "limit none; 2 queued now");
    }

    #[test]
    fn a_host_that_tells_nothing_is_judged_without_panic() {
        let host = Host::default();
        let features = [basics(&host, &Types::default()), surroundings(&host)].concat();
        assert!(features.iter().all(|feature| !feature.evidence.is_empty()));
    }
}
