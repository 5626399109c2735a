//! The mechanism that serves each purpose on this kernel, and the reason.
//!
//! Functions from features to choices; they follow the core's behaviour when it loads
//! (core/load.rs) and report what it would do if the caller may not load it. The figures are from
//! one quiet machine and show proportions.

use super::part::{
    DISPATCH, EXTENSION, LOCK, PRCTL, RUN, SCHED, SETSOCKOPT, SIGNAL, SOCKET, SOCKET_STORAGE,
    SWITCH, TASK, TASK_WORK, THREAD, TIMER, TRAMPOLINE, VERDICT, WAKE,
};
use super::setting::{CONTROL_GROUPS, LOCKDOWN, MEMORY_LOCK, REAL_TIME, SIGNALS, UNPRIVILEGED};
use super::{Feature, State};
use crate::kernel::objects::FastCall;

/// The mechanism for a purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The purpose.
    pub purpose: &'static str,
    /// The mechanism that is used here; "none" if there is none.
    pub mechanism: &'static str,
    /// The reason for it.
    pub why: String,
    /// The alternatives, and why they are not used here.
    pub alternatives: &'static str,
}

/// The choices by the findings of [`super::features`].
pub fn choices(features: &[Feature]) -> Vec<Choice> {
    let found = Found(features);
    let (basics, others) = PLAIN.split_at(1);
    let mut choices: Vec<Choice> = basics.iter().map(|plain| plain.choose(&found)).collect();
    choices.extend([
        queue_lock(&found),
        fast_call(&found),
        deferred_call(&found),
        signals(&found),
    ]);
    choices.extend(others.iter().map(|plain| plain.choose(&found)));
    choices.extend([
        trampolines(&found),
        scheduling(&found),
        kernel_latency(&found),
    ]);
    choices.extend([
        unprivileged(&found),
        memory_lock(&found),
        queued_signals(&found),
    ]);
    choices
}

/// The features by name.
struct Found<'a>(&'a [Feature]);

impl Found<'_> {
    fn feature(&self, name: &str) -> Option<&Feature> {
        self.0.iter().find(|feature| feature.name == name)
    }

    fn is_present(&self, name: &str) -> bool {
        self.feature(name)
            .is_some_and(|feature| feature.state == State::Present)
    }

    fn is_unknown(&self, name: &str) -> bool {
        self.feature(name)
            .is_some_and(|feature| matches!(feature.state, State::Unknown(_)))
    }

    fn evidence(&self, name: &str) -> &str {
        self.feature(name)
            .map_or("not looked for", |feature| feature.evidence.as_str())
    }

    fn without(&self, name: &str) -> &str {
        self.feature(name).map_or("", |feature| feature.without)
    }

    /// The reason why `name` is not used: what is missing, what would provide it, what follows.
    fn lack(&self, name: &str) -> String {
        let Some(feature) = self.feature(name) else {
            return format!("{name}: not looked for");
        };
        let Feature {
            since, evidence, ..
        } = feature;
        match feature.state {
            State::Present => format!("{name} is present"),
            State::Absent => format!("{name}: absent ({evidence}); needs {since}"),
            State::Unknown(why) => format!("{name}: {why}"),
        }
    }
}

/// A purpose for which there is one mechanism, or none.
struct Plain {
    purpose: &'static str,
    needs: &'static [&'static str],
    mechanism: &'static str,
    why: &'static str,
    alternatives: &'static str,
}

impl Plain {
    fn choose(&self, found: &Found<'_>) -> Choice {
        let missing = self.needs.iter().find(|name| !found.is_present(name));
        let (mechanism, why) = match missing {
            None => (self.mechanism, self.why.to_owned()),
            Some(name) if found.is_unknown(name) => (
                self.mechanism,
                format!("{}, unless {}", self.why, found.lack(name)),
            ),
            Some(name) => (
                "none",
                format!("{}; {}", found.lack(name), found.without(name)),
            ),
        };
        let Plain {
            purpose,
            alternatives,
            ..
        } = *self;
        Choice {
            purpose,
            mechanism,
            why,
            alternatives,
        }
    }
}

/// The first one precedes the others in the list.
const PLAIN: &[Plain] = &[
    Plain {
        purpose: "raise and dispatch",
        needs: &[DISPATCH],
        mechanism: "one dispatcher on bpf_trigger_tp, fired by bpf_modify_return_test_tp",
        why: "starts it from every kind of program: 231 ns from raise to handler, 6 ns if nobody \
              listens",
        alternatives: "the dispatcher once per class of tracepoints: more to load, no timers or \
                       threads as sources; not built",
    },
    Plain {
        purpose: "handlers in kernel threads",
        needs: &[THREAD],
        mechanism: "bpf_wq",
        why: "1.6 to 2.5 us from event to handler, which may sleep",
        alternatives: "task work: runs in the receiver, so only when that runs",
    },
    Plain {
        purpose: "timers",
        needs: &[TIMER],
        mechanism: "bpf_timer, absolute",
        why: "set and served in the kernel, without a thread",
        alternatives: "timerfd in the application: a system call for each",
    },
    Plain {
        purpose: "waking a sleeping program",
        needs: &[WAKE],
        mechanism: "a ring buffer's descriptor, only when the sleeping flag is set",
        why: "one descriptor for poll and epoll; a program that is awake costs no wake-up",
        alternatives: "signals: dearer, and they interrupt",
    },
    Plain {
        purpose: "interest in sockets",
        needs: &[SOCKET, SOCKET_STORAGE],
        mechanism: "tracepoint sk_data_ready, interest in socket storage",
        why: "30 to 35 ns per arrival; registered by descriptor, inherited by accepted connections",
        alternatives: "epoll in the application: a system call per look",
    },
    Plain {
        purpose: "task service",
        needs: &[TASK],
        mechanism: "tracepoints sched_process_fork, sched_process_exec, sched_process_exit",
        why: "nothing is polled; attached only while somebody subscribes",
        alternatives: "the process connector of netlink: root only, no filter in the kernel",
    },
    Plain {
        purpose: "sched service",
        needs: &[SCHED],
        mechanism: "tracepoints sched_wakeup, sched_wakeup_new, sched_switch",
        why: "attached only while somebody subscribes: each context switch pays for them",
        alternatives: "/proc/pid/schedstat: polled, no events",
    },
];

fn queue_lock(found: &Found<'_>) -> Choice {
    let (mechanism, why) = if found.is_present(LOCK) {
        let why = "safe against interrupts on the same CPU, and against deadlock";
        ("bpf_res_spin_lock_irqsave", why.to_owned())
    } else {
        let why = format!("{}; {}", found.lack(LOCK), found.without(LOCK));
        ("bpf_spin_lock", why)
    };
    Choice {
        purpose: "lock of the event queues",
        mechanism,
        why,
        alternatives: "no lock, for what only one CPU uses: hand-over between its contexts; not \
                       built",
    }
}

fn fast_call(found: &Found<'_>) -> Choice {
    let mechanism = best_fast_call(found);
    let name = match mechanism {
        Some(FastCall::Security) => "security: a trampoline on security_task_prctl",
        Some(FastCall::Prctl) => "prctl: tracepoint task_prctl_unknown",
        Some(FastCall::Setsockopt) => "setsockopt: the control groups' hook",
        Some(FastCall::Run) => "run: a program run by bpf(2)",
        None => "none",
    };
    let why = match mechanism {
        Some(FastCall::Security) => {
            "the cheapest, and prctl returns the handler's own result".to_owned()
        }
        Some(FastCall::Prctl) if found.is_unknown(TRAMPOLINE) => {
            format!(
                "2.1 times getppid; better where trampolines work ({})",
                found.lack(TRAMPOLINE)
            )
        }
        Some(FastCall::Prctl) => format!(
            "2.1 times getppid, the result by shared memory; {}",
            found.lack(TRAMPOLINE)
        ),
        Some(FastCall::Setsockopt) => found.lack(PRCTL),
        Some(FastCall::Run) => format!("{}; {}", found.lack(PRCTL), found.lack(SETSOCKOPT)),
        None => found.lack(RUN),
    };
    Choice {
        purpose: "fast call",
        mechanism: name,
        why,
        alternatives: "in order: security (trampoline), prctl (245 ns), setsockopt (430 ns), run \
                       (570 ns); sys_enter is not used: every system call of the machine pays",
    }
}

/// The mechanism that the core attaches, by the order in which it tries them.
fn best_fast_call(found: &Found<'_>) -> Option<FastCall> {
    let candidates = [
        (FastCall::Security, found.is_present(TRAMPOLINE)),
        (FastCall::Prctl, found.is_present(PRCTL)),
        (
            FastCall::Setsockopt,
            found.is_present(SETSOCKOPT) && found.is_present(CONTROL_GROUPS),
        ),
        (
            FastCall::Run,
            found.is_present(RUN) || found.is_unknown(RUN),
        ),
    ];
    candidates
        .into_iter()
        .find(|(_, usable)| *usable)
        .map(|(mechanism, _)| mechanism)
}

fn deferred_call(found: &Found<'_>) -> Choice {
    let (mechanism, why) = if found.is_present(SWITCH) {
        let why = "105 ns per context switch of the machine, so attached only while a channel asks";
        (
            "at the next fast call, after a delay, or at the next context switch",
            why.to_owned(),
        )
    } else {
        (
            "at the next fast call, or after a delay",
            found.lack(SWITCH),
        )
    };
    Choice {
        purpose: "deferred call",
        mechanism,
        why,
        alternatives: "at the return of any system call: 67 ns for everybody's; not built",
    }
}

fn signals(found: &Found<'_>) -> Choice {
    let (mechanism, why) = match (found.is_present(SIGNAL), found.is_present(VERDICT)) {
        (true, true) if found.is_present(TASK_WORK) => (
            "bpf_send_signal_task, by task work when busy",
            "a 64-bit value; what the kernel drops is seen and counted".to_owned(),
        ),
        (true, true) => (
            "bpf_send_signal_task, by a kernel thread when busy",
            format!("a 64-bit value, drops counted; {}", found.lack(TASK_WORK)),
        ),
        (true, false) => ("none", found.lack(VERDICT)),
        (false, _) => (
            "pidfd_send_signal, by a thread of the subscriber",
            format!("{}; {}", found.lack(SIGNAL), found.without(SIGNAL)),
        ),
    };
    Choice {
        purpose: "real-time signals",
        mechanism,
        why,
        alternatives: "bpf_send_signal: no value, only to the interrupted process; not built",
    }
}

fn trampolines(found: &Found<'_>) -> Choice {
    let present = found.is_present(TRAMPOLINE);
    Choice {
        purpose: "trampolines",
        mechanism: if present {
            "used for fast calls"
        } else {
            "none"
        },
        why: if present {
            found.evidence(TRAMPOLINE).to_owned()
        } else {
            format!("{}; {}", found.lack(TRAMPOLINE), found.without(TRAMPOLINE))
        },
        alternatives: "kprobes: dearer, and they return nothing; not built",
    }
}

fn scheduling(found: &Found<'_>) -> Choice {
    let present = found.is_present(EXTENSION);
    Choice {
        purpose: "CPU scheduling",
        mechanism: if present {
            "sched_ext"
        } else {
            "none: the kernel's own scheduler"
        },
        why: if present {
            "our scheduler can be loaded, and leaves without a trace".to_owned()
        } else {
            format!("{}; {}", found.lack(EXTENSION), found.without(EXTENSION))
        },
        alternatives: "SCHED_DEADLINE and SCHED_RR know neither events nor release times",
    }
}

fn kernel_latency(found: &Found<'_>) -> Choice {
    let present = found.is_present(REAL_TIME);
    let locked = if found.is_present(LOCKDOWN) {
        "not locked down"
    } else {
        "locked down"
    };
    let locked = if found.is_unknown(LOCKDOWN) {
        "lockdown unknown"
    } else {
        locked
    };
    Choice {
        purpose: "kernel",
        mechanism: if present {
            "real-time preemption"
        } else {
            "ordinary preemption"
        },
        why: format!(
            "{}; {locked}: {}",
            found.evidence(REAL_TIME),
            found.evidence(LOCKDOWN)
        ),
        alternatives: "a kernel with CONFIG_PREEMPT_RT, for bounds instead of averages",
    }
}

fn unprivileged(found: &Found<'_>) -> Choice {
    let closed = found.is_present(UNPRIVILEGED);
    Choice {
        purpose: "who loads programs",
        mechanism: "the host of the core alone",
        why: if closed {
            found.evidence(UNPRIVILEGED).to_owned()
        } else {
            found.lack(UNPRIVILEGED)
        },
        alternatives: "users' own programs: the kernel gives them neither kernel functions nor \
                       tracepoints",
    }
}

fn memory_lock(found: &Found<'_>) -> Choice {
    let free = found.is_present(MEMORY_LOCK);
    Choice {
        purpose: "memory of queues and channels",
        mechanism: if free {
            "counted by control group"
        } else {
            "counted as locked memory"
        },
        why: if free {
            found.evidence(MEMORY_LOCK).to_owned()
        } else {
            format!(
                "{}; {}",
                found.lack(MEMORY_LOCK),
                found.without(MEMORY_LOCK)
            )
        },
        alternatives: "a higher limit: ulimit -l, LimitMEMLOCK=",
    }
}

fn queued_signals(found: &Found<'_>) -> Choice {
    let enough = found.is_present(SIGNALS);
    Choice {
        purpose: "signals waiting for a receiver",
        mechanism: if enough {
            "the receiver's limit as it is"
        } else {
            "too low a limit"
        },
        why: if enough {
            found.evidence(SIGNALS).to_owned()
        } else {
            format!("{}; {}", found.lack(SIGNALS), found.without(SIGNALS))
        },
        alternatives: "a higher limit: ulimit -i, LimitSIGPENDING=; shared memory, which has none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(name: &'static str, state: State) -> Feature {
        let evidence = "seen so".to_owned();
        let (purpose, since, without) = ("a purpose", "Linux 9.9", "something is lost");
        Feature {
            name,
            purpose,
            state,
            since,
            without,
            evidence,
            required: false,
        }
    }

    fn present(names: &[&'static str]) -> Vec<Feature> {
        names
            .iter()
            .map(|name| feature(name, State::Present))
            .collect()
    }

    fn chosen(features: &[Feature], purpose: &str) -> Choice {
        choices(features)
            .into_iter()
            .find(|each| each.purpose == purpose)
            .expect("a choice")
    }

    #[test]
    fn the_best_fast_call_that_is_present_is_chosen() {
        let all = [TRAMPOLINE, PRCTL, SETSOCKOPT, CONTROL_GROUPS, RUN];
        let best = |names: &[&'static str]| best_fast_call(&Found(&present(names)));
        assert_eq!(best(&all), Some(FastCall::Security));
        assert_eq!(best(&all[1..]), Some(FastCall::Prctl));
        assert_eq!(best(&all[2..]), Some(FastCall::Setsockopt));
        assert_eq!(
            best(&[SETSOCKOPT, RUN]),
            Some(FastCall::Run),
            "no control groups"
        );
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn a_fast_call_that_only_root_could_try_is_mentioned_and_not_promised() {
        let mut features = present(&[PRCTL, RUN]);
        features.push(feature(TRAMPOLINE, State::Unknown("only root can try it")));
        let choice = chosen(&features, "fast call");
        assert!(choice.mechanism.starts_with("prctl"));
        assert!(
            choice.why.contains("only root can try it"),
            "{}",
            choice.why
        );
    }

    #[test]
    fn what_is_absent_is_named_with_what_brings_it_and_what_is_lost() {
        let choice = chosen(
            &[feature(THREAD, State::Absent)],
            "handlers in kernel threads",
        );
        assert_eq!(choice.mechanism, "none");
        for words in ["seen so", "Linux 9.9", "something is lost"] {
            assert!(choice.why.contains(words), "{}", choice.why);
        }
    }

    #[test]
    fn every_purpose_is_chosen_for_once_whatever_was_found() {
        for features in [vec![], present(&[DISPATCH, LOCK, TIMER, EXTENSION])] {
            let choices = choices(&features);
            let mut purposes: Vec<_> = choices.iter().map(|each| each.purpose).collect();
            purposes.sort_unstable();
            purposes.dedup();
            assert_eq!(purposes.len(), choices.len());
            assert!(choices.iter().all(|each| !each.why.is_empty()));
        }
    }
}
