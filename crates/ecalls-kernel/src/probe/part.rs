//! The parts of the kernel that we use: functions, tracepoints, kinds of programs and maps.
//!
//! Each row of [`PARTS`] names what must be listed in the kernel's type information, and what can
//! be tried in addition. A part is absent as soon as one of its pieces is certainly absent; present
//! when all pieces work or, untried, are listed; otherwise unknown. `required` means that the
//! present core does not load without it, even if another mechanism is known.

use std::collections::HashSet;

use libbpf_rs::{MapType, ProgramType};

use super::trial::{self, Finding, Trial};
use super::types::Types;
use super::types::Witness::{self, Function, Kfunc, Struct, Tracepoint};
use super::{Feature, State};

/// Names to which the choices refer.
pub(super) const DISPATCH: &str = "dispatch tracepoint";
pub(super) const LOCK: &str = "interrupt-safe lock";
pub(super) const PREEMPTION: &str = "preemption control";
pub(super) const RUN: &str = "programs run by system call";
pub(super) const PRCTL: &str = "prctl tracepoint";
pub(super) const SETSOCKOPT: &str = "setsockopt hook";
pub(super) const TRAMPOLINE: &str = "trampolines";
pub(super) const SWITCH: &str = "context switch tracepoint";
pub(super) const TIMER: &str = "timers";
pub(super) const THREAD: &str = "kernel threads";
pub(super) const SIGNAL: &str = "signals with a value";
pub(super) const VERDICT: &str = "signal verdict";
pub(super) const TASK_WORK: &str = "work in the receiver's context";
pub(super) const WAKE: &str = "ring buffer";
pub(super) const SOCKET: &str = "socket tracepoint";
pub(super) const SOCKET_STORAGE: &str = "socket storage";
pub(super) const TASK: &str = "process tracepoints";
pub(super) const SCHED: &str = "scheduler tracepoints";
pub(super) const EXTENSION: &str = "sched_ext";

struct Part {
    name: &'static str,
    purpose: &'static str,
    since: &'static str,
    without: &'static str,
    required: bool,
    /// All of these are needed; of each, the first alternative that exists.
    pieces: &'static [&'static [Witness]],
    trial: Option<Trial>,
}

const NOT_LOADED: &str = "the core is not loaded";
const ROOT_ONLY: &str = "only root can try it";

const PARTS: &[Part] = &[
    Part {
        name: DISPATCH,
        purpose: "one dispatcher that every kind of program can start",
        since: "Linux 6.12",
        without: NOT_LOADED,
        required: true,
        pieces: &[
            &[Kfunc("bpf_modify_return_test_tp")],
            &[Tracepoint("bpf_trigger_tp")],
        ],
        trial: None,
    },
    Part {
        name: LOCK,
        purpose: "the lock of the event queues, in interrupts too",
        since: "Linux 6.15",
        without: "bpf_spin_lock guards the queues: what a non-maskable interrupt would queue is \
                  dropped, and each event pays for one program more (50 ns)",
        required: false,
        pieces: &[
            &[Kfunc("bpf_res_spin_lock_irqsave")],
            &[Kfunc("bpf_res_spin_unlock_irqrestore")],
        ],
        trial: None,
    },
    Part {
        name: PREEMPTION,
        purpose: "raising and delivering from programs that can be preempted",
        since: "Linux 6.10",
        without: NOT_LOADED,
        required: true,
        pieces: &[
            &[Kfunc("bpf_preempt_disable")],
            &[Kfunc("bpf_preempt_enable")],
        ],
        trial: None,
    },
    Part {
        name: "process look-up",
        purpose: "finding an event's receiver",
        since: "Linux 6.2",
        without: NOT_LOADED,
        required: true,
        pieces: &[&[Kfunc("bpf_task_from_pid")], &[Kfunc("bpf_task_release")]],
        trial: None,
    },
    Part {
        name: "process look-up by the caller's numbering",
        purpose: "slots for child processes: a group or a window for another program",
        since: "Linux 6.15",
        without: "a program can be given no slot; the scheduler, which serves slots, needs a newer \
                  kernel too",
        required: false,
        pieces: &[&[Kfunc("bpf_task_from_vpid")]],
        trial: None,
    },
    Part {
        name: "bounded loops",
        purpose: "handlers that look at more than one value",
        since: "Linux 5.17",
        without: NOT_LOADED,
        required: true,
        pieces: &[&[Function("bpf_loop")]],
        trial: None,
    },
    Part {
        name: RUN,
        purpose: "setting the core up, calls by service name, the slow fast call",
        since: "Linux 5.14",
        without: NOT_LOADED,
        required: true,
        pieces: &[&[Function("bpf_prog_test_run_syscall")]],
        trial: Some(Trial::Program(ProgramType::Syscall)),
    },
    Part {
        name: PRCTL,
        purpose: "fast calls: 245 ns, and no other system call gets slower",
        since: "Linux 6.13",
        without: "fast calls go through trampolines, else through setsockopt (430 ns)",
        required: false,
        pieces: &[&[Tracepoint("task_prctl_unknown")]],
        trial: None,
    },
    Part {
        name: SETSOCKOPT,
        purpose: "fast calls on kernels without the prctl tracepoint",
        since: "Linux 5.3, CONFIG_CGROUP_BPF",
        without: "fast calls run a program by bpf(2) (570 ns) where nothing better is there",
        required: false,
        pieces: &[&[Function("__cgroup_bpf_run_filter_setsockopt")]],
        trial: Some(Trial::Program(ProgramType::CgroupSockopt)),
    },
    Part {
        name: TRAMPOLINE,
        purpose: "fast calls that return their result; read-or-block in one call",
        since: "Linux 5.7, CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS, and no policy against it",
        without: "fast calls go through the prctl tracepoint and leave results in shared memory; \
                  a read that would block takes a second call",
        required: false,
        pieces: &[&[Function("security_task_prctl")]],
        trial: Some(Trial::Trampoline(Function("security_task_prctl"))),
    },
    Part {
        name: SWITCH,
        purpose: "deferred calls handled before the caller's next scheduling",
        since: "Linux 5.5, CONFIG_BPF_EVENTS",
        without: NOT_LOADED,
        required: true,
        pieces: &[&[Tracepoint("sched_switch")]],
        trial: None,
    },
    Part {
        name: TIMER,
        purpose: "release times, the timer service, delayed calls, the queues' backstop",
        since: "Linux 5.15",
        without: NOT_LOADED,
        required: true,
        pieces: &[&[Function("bpf_timer_init")], &[Struct("bpf_timer")]],
        trial: None,
    },
    Part {
        name: THREAD,
        purpose: "handlers in kernel threads, which may sleep",
        since: "Linux 6.10",
        without: NOT_LOADED,
        required: true,
        pieces: &[
            &[Kfunc("bpf_wq_init")],
            &[
                Kfunc("bpf_wq_set_callback"),
                Kfunc("bpf_wq_set_callback_impl"),
            ],
            &[Kfunc("bpf_wq_start")],
        ],
        trial: None,
    },
    Part {
        name: SIGNAL,
        purpose: "real-time signals with a 64-bit value to any process",
        since: "Linux 6.13",
        without: "a thread of the program that subscribes sends them to it, one wake-up later; \
                  another process gets none",
        required: false,
        pieces: &[&[Kfunc("bpf_send_signal_task")]],
        trial: None,
    },
    Part {
        name: VERDICT,
        purpose: "counting signals that the kernel dropped",
        since: "Linux 5.5, CONFIG_BPF_EVENTS",
        without: NOT_LOADED,
        required: true,
        pieces: &[&[Tracepoint("signal_generate")]],
        trial: None,
    },
    Part {
        name: TASK_WORK,
        purpose: "signals that wait for their receiver instead of for a kernel thread",
        since: "Linux 6.18",
        without: "a signal that cannot be sent at once goes through a kernel thread",
        required: false,
        pieces: &[&[
            Kfunc("bpf_task_work_schedule_signal"),
            Kfunc("bpf_task_work_schedule_signal_impl"),
        ]],
        trial: None,
    },
    Part {
        name: WAKE,
        purpose: "waking a program that sleeps on a channel's descriptor",
        since: "Linux 5.8",
        without: NOT_LOADED,
        required: true,
        pieces: &[&[Function("bpf_ringbuf_output")]],
        trial: Some(Trial::Map(MapType::RingBuf)),
    },
    Part {
        name: SOCKET,
        purpose: "the socket service: data and new connections",
        since: "Linux 6.3, CONFIG_BPF_EVENTS",
        without: NOT_LOADED,
        required: true,
        pieces: &[&[Tracepoint("sk_data_ready")]],
        trial: None,
    },
    Part {
        name: SOCKET_STORAGE,
        purpose: "interest in a socket, kept in the socket itself",
        since: "Linux 5.2",
        without: NOT_LOADED,
        required: true,
        pieces: &[&[Function("bpf_sk_storage_get")]],
        trial: Some(Trial::Map(MapType::SkStorage)),
    },
    Part {
        name: TASK,
        purpose: "the task service: start, exec and end of processes",
        since: "Linux 5.5, CONFIG_BPF_EVENTS",
        without: NOT_LOADED,
        required: true,
        pieces: &[
            &[Tracepoint("sched_process_fork")],
            &[Tracepoint("sched_process_exec")],
            &[Tracepoint("sched_process_exit")],
        ],
        trial: None,
    },
    Part {
        name: SCHED,
        purpose: "the sched service: wake-ups and waiting times",
        since: "Linux 5.5, CONFIG_BPF_EVENTS",
        without: NOT_LOADED,
        required: true,
        pieces: &[
            &[Tracepoint("sched_wakeup")],
            &[Tracepoint("sched_wakeup_new")],
            &[Tracepoint("sched_switch")],
        ],
        trial: None,
    },
    Part {
        name: "TCP tracepoints",
        purpose: "the net service: retransmissions, round-trip times, connection states",
        since: "CONFIG_INET, CONFIG_BPF_EVENTS",
        without: "nobody can subscribe to net",
        required: false,
        pieces: &[
            &[Tracepoint("tcp_retransmit_skb")],
            &[Tracepoint("tcp_probe")],
            &[Tracepoint("inet_sock_set_state")],
        ],
        trial: None,
    },
    Part {
        name: "choice of a listener",
        purpose: "ecalls guard: a server that is behind gets no more connections",
        since: "Linux 5.17, CONFIG_INET, CONFIG_NET_SOCK_MSG, CONFIG_BPF_EVENTS",
        without: "ecalls guard does not start",
        required: false,
        pieces: &[
            &[Tracepoint("inet_sock_set_state")],
            &[Struct("bpf_sk_lookup_kern")],
            &[Function("sock_map_alloc")],
        ],
        trial: Some(Trial::Program(ProgramType::SkLookup)),
    },
    Part {
        name: "programs on an interface",
        purpose: "ecalls::Answers: datagrams that the kernel answers; channels among hosts",
        since: "Linux 6.6, CONFIG_NET_XGRESS, CONFIG_INET",
        without: "all datagrams go to their socket; channels among hosts do not open",
        required: false,
        pieces: &[&[Function("tcx_link_attach")]],
        trial: Some(Trial::Program(ProgramType::SchedCls)),
    },
    Part {
        name: "block device tracepoints",
        purpose: "the disk service: requests that took long",
        since: "Linux 6.5, CONFIG_BLOCK, CONFIG_BPF_EVENTS",
        without: "nobody can subscribe to disk",
        required: false,
        pieces: &[
            &[Tracepoint("block_io_start")],
            &[Tracepoint("block_rq_issue")],
            &[Tracepoint("block_rq_complete")],
        ],
        trial: None,
    },
    Part {
        name: "memory tracepoints",
        purpose: "the memory service: waiting for memory, victims of its lack",
        since: "Linux 6.8, CONFIG_MEMCG, CONFIG_BPF_EVENTS",
        without: "nobody can subscribe to memory",
        required: false,
        pieces: &[
            &[Tracepoint("mm_vmscan_direct_reclaim_begin")],
            &[Tracepoint("mm_vmscan_direct_reclaim_end")],
            &[Tracepoint("mm_vmscan_memcg_reclaim_begin")],
            &[Tracepoint("mm_vmscan_memcg_reclaim_end")],
            &[Tracepoint("mark_victim")],
        ],
        trial: None,
    },
    Part {
        name: "walking over control groups",
        purpose: "the cpu service, and pressure of the memory service",
        since: "Linux 6.7, CONFIG_CGROUPS",
        without: "nobody can subscribe to cpu; memory tells no pressure",
        required: false,
        pieces: &[
            &[Kfunc("bpf_iter_css_new")],
            &[Kfunc("bpf_cgroup_from_id")],
            &[Kfunc("css_rstat_flush"), Kfunc("cgroup_rstat_flush")],
        ],
        trial: None,
    },
    Part {
        name: "pressure stall information",
        purpose: "pressure of the cpu and memory services",
        since: "Linux 4.20, CONFIG_PSI, not switched off (psi=1)",
        without: "cpu and memory tell no pressure",
        required: false,
        pieces: &[&[Function("psi_show")]],
        trial: None,
    },
    Part {
        name: EXTENSION,
        purpose: "our CPU scheduler: events and applications' timing decide who runs",
        since: "Linux 6.12, CONFIG_SCHED_CLASS_EXT",
        without: "the kernel's own scheduler decides; cooperative loops use plain timers",
        required: false,
        pieces: &[&[Struct("sched_ext_ops")]],
        trial: None,
    },
    Part {
        name: "timed programs",
        purpose: "ecalls run --coop: an unmodified program's timed sleeps end on time",
        since: "what sched_ext needs, CONFIG_BPF_EVENTS",
        without: "the command is refused; `chrt -r 1 PROGRAM` is on time, and may starve others",
        required: false,
        pieces: &[&[Struct("sched_ext_ops")], &[Tracepoint("hrtimer_start")]],
        trial: None,
    },
];

/// All names to look up in the kernel's type information.
pub(super) fn names() -> HashSet<Witness> {
    PARTS
        .iter()
        .flat_map(|part| part.pieces.iter().flat_map(|piece| piece.iter().copied()))
        .chain([trial::TRIAL_PLACE])
        .collect()
}

/// The features of all parts here. `may_load`: whether trials are possible.
pub(super) fn features(types: &Types, may_load: bool) -> Vec<Feature> {
    PARTS
        .iter()
        .map(|part| {
            let mut findings: Vec<Finding> = part
                .pieces
                .iter()
                .map(|piece| find_piece(piece, types, may_load))
                .collect();
            match part.trial {
                Some(trial) if may_load => findings.push(trial::try_out(trial, types)),
                Some(Trial::Trampoline(_)) => findings.push(Finding::Unknown(ROOT_ONLY)),
                Some(Trial::Program(_) | Trial::Map(_)) | None => {}
            }
            judge(part, &findings)
        })
        .collect()
}

/// The finding about the first alternative that exists, else about the first one.
fn find_piece(piece: &[Witness], types: &Types, may_load: bool) -> Finding {
    let there = |finding: &Finding| matches!(finding, Finding::Works(..) | Finding::Listed(_));
    let mut findings = piece.iter().map(|witness| find(*witness, types, may_load));
    let first = findings
        .next()
        .unwrap_or(Finding::Unknown("nothing to look for"));
    if there(&first) {
        return first;
    }
    findings.find(there).unwrap_or(first)
}

fn find(witness: Witness, types: &Types, may_load: bool) -> Finding {
    let name = witness.name();
    if !types.are_known() {
        return Finding::Unknown("the kernel's type information cannot be read");
    }
    let Some(id) = types.id(witness) else {
        return Finding::Fails(format!("{name} is not in the kernel's types"));
    };
    if !may_load {
        return Finding::Listed(name);
    }
    trial::try_witness(witness, id, types).unwrap_or(Finding::Listed(name))
}

fn judge(part: &Part, findings: &[Finding]) -> Feature {
    let fails = findings
        .iter()
        .any(|finding| matches!(finding, Finding::Fails(_)));
    let unknown = findings.iter().find_map(|finding| match finding {
        Finding::Unknown(why) => Some(*why),
        _ => None,
    });
    let state = match unknown {
        _ if fails => State::Absent,
        Some(why) => State::Unknown(why),
        None => State::Present,
    };
    Feature {
        name: part.name,
        purpose: part.purpose,
        state,
        since: part.since,
        without: part.without,
        evidence: evidence(findings),
        required: part.required,
    }
}

/// All findings in words, grouped by kind.
fn evidence(findings: &[Finding]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for finding in findings {
        let (how, what) = match finding {
            Finding::Works(how, what) => (*how, what.as_str()),
            Finding::Listed(name) => ("in the kernel's types:", *name),
            Finding::Fails(why) => (why.as_str(), ""),
            Finding::Unknown(why) => (*why, ""),
        };
        match groups.iter_mut().find(|(kind, _)| *kind == how) {
            Some((_, names)) => names.push(what),
            None => groups.push((how, vec![what])),
        }
    }
    let words = groups
        .iter()
        .map(|(how, names)| format!("{how} {}", names.join(", ")));
    words
        .map(|text| text.trim_end_matches([' ', ',']).to_owned())
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(part: &str, listed: &[Witness]) -> State {
        let features = features(&Types::of(listed), false);
        features
            .into_iter()
            .find(|each| each.name == part)
            .expect("a part")
            .state
    }

    #[test]
    fn a_part_is_present_when_all_its_pieces_are_listed() {
        let (function, tracepoint) = (
            Kfunc("bpf_modify_return_test_tp"),
            Tracepoint("bpf_trigger_tp"),
        );
        assert_eq!(state(DISPATCH, &[function, tracepoint]), State::Present);
        assert_eq!(state(DISPATCH, &[function]), State::Absent);
        assert_eq!(state(DISPATCH, &[tracepoint]), State::Absent);
    }

    #[test]
    fn one_of_two_names_of_a_function_is_enough() {
        let others = [Kfunc("bpf_wq_init"), Kfunc("bpf_wq_start")];
        for name in ["bpf_wq_set_callback", "bpf_wq_set_callback_impl"] {
            assert_eq!(
                state(THREAD, &[others[0], others[1], Kfunc(name)]),
                State::Present
            );
        }
        assert_eq!(state(THREAD, &others), State::Absent);
    }

    #[test]
    fn what_only_a_trial_can_tell_is_unknown_without_one() {
        let listed = [Function("security_task_prctl")];
        assert_eq!(state(TRAMPOLINE, &listed), State::Unknown(ROOT_ONLY));
        assert_eq!(state(TRAMPOLINE, &[]), State::Absent);
    }

    #[test]
    fn without_type_information_nothing_is_called_absent() {
        for feature in features(&Types::default(), false) {
            assert!(matches!(feature.state, State::Unknown(_)), "{feature:?}");
        }
    }

    #[test]
    fn a_refused_trial_outweighs_what_is_listed() {
        let part = PARTS
            .iter()
            .find(|part| part.name == TRAMPOLINE)
            .expect("a part");
        let feature = judge(
            part,
            &[Finding::Listed("f"), Finding::Fails("refused".to_owned())],
        );
        assert_eq!(feature.state, State::Absent);
        assert_eq!(feature.evidence, "in the kernel's types: f; refused");
    }

    #[test]
    fn findings_of_one_kind_are_told_together() {
        let call = |name: &str| Finding::Works("programs may call", name.to_owned());
        let findings = [
            call("f"),
            Finding::Unknown("why"),
            call("g"),
            Finding::Unknown("why"),
        ];
        assert_eq!(evidence(&findings), "programs may call f, g; why");
    }
}
