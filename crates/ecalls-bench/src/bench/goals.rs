//! The goal of each row: a ratio to a baseline of the same run.
//!
//! `goal` is the aim on a quiet machine. `margin` allows for a machine that does other work during
//! the check: a row fails only above goal * margin. Rows with two threads on two processors vary
//! more and have larger margins.
//!
//! Three goals are missed on the machine on which they were set (virtual, with retpolines):
//! - `kernel_handler_direct`: the path to the dispatcher takes 44 ns, the time stamp 30, leaving
//!   and entering preemption 11, and the goal amounts to 70. It was derived from a handler that was
//!   reached without time stamp, subscription and accounting. The checks that protect users from
//!   each other (whose event it is, who sees it) added a tenth. The same build measured 0.06 on one
//!   day and 0.145 on another, so the margin detects an event of twice the cost, but nothing finer.
//! - `kernel_handler` adds the queue: its lock twice and the event's copy twice, 50 ns to insert
//!   and as much to take.
//! - `user_handler_asleep` includes two interrupts that a processor sends to itself: BPF cannot
//!   wake a thread without one, and on a virtual machine each takes 5 us. Readers that call `recv`
//!   poll for some microseconds before they sleep, so they have this cost only when events are
//!   rare.

/// The goal of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The row.
    pub(crate) row: &'static str,
    /// The row of the divisor.
    pub(crate) baseline: &'static str,
    /// The largest ratio that meets the goal.
    pub(crate) goal: f64,
    /// A check fails above `goal * margin`.
    pub(crate) margin: f64,
}

const fn goal(row: &'static str, baseline: &'static str, goal: f64, margin: f64) -> Goal {
    Goal {
        row,
        baseline,
        goal,
        margin,
    }
}

/// The time of `true` in ms on the machine on which the goals were set.
const TRUE_MS: f64 = 1.0;

/// Numbers of instructions do not vary, so they have no margin.
const fn counted(row: &'static str, baseline: &'static str) -> Goal {
    goal(row, baseline, 1.3, 1.0)
}

/// From a text to a running handler: the aim is less than 1 ms for twenty lines and 5 ms for the
/// largest text where a program that does nothing takes [`TRUE_MS`]. A busy machine disturbs both,
/// so the margin detects a factor of four.
const fn started(row: &'static str, goal_ms: f64) -> Goal {
    goal(row, "true_start", goal_ms / TRUE_MS, 4.0)
}

/// `rate`: the part of its rate that a busy server keeps while it is observed. Values are times per
/// request. On a machine that does other work such ratios vary by a tenth; [`gate_of`] is stricter
/// where the clock counts instructions.
const fn observed(row: &'static str, rate: f64) -> Goal {
    goal(row, "server_bare", 1.0 / rate, 1.1)
}

/// What was reached where the clock counts instructions, and a little more: between two runs the
/// largest difference was 0.006. One run had 1.0281 with `server_memory` and 1.0253 with
/// `server_filter`; these have 0.004 and 0.005 beside that.
const COUNTED: &[(&str, f64)] = &[
    ("server_memory", 1.032),
    ("server_coalesced", 1.022),
    ("server_filter", 1.030),
    ("server_readiness", 1.022),
    ("server_sched", 1.012),
];

/// All goals. `queue_insert` aims at 100 ns where a system call takes 117. A deferred push takes a
/// dozen cycles: with system calls of 95 to 165 ns that was 0.05 to 0.019 of one.
/// `user_handler_awake` is the way of cache lines to another processor and some 100 ns. A plain
/// store takes 60 to 400 ns for that way on different machines, while eventfd's round trip takes 11
/// to 25 us: what is compared goes the same way. `user_handler_asleep` was 2.06 where that round
/// trip took 11 us.
pub(crate) const GOALS: &[Goal] = &[
    goal("start", "bpftrace", 0.8, 1.25),
    goal("downcall_fast", "getppid", 2.2, 1.5),
    goal("downcall_deferred_push", "getppid", 0.02, 4.0),
    goal("downcall_deferred_drain", "getppid", 0.1, 1.5),
    goal("kernel_handler", "rt_signal", 0.08, 3.0),
    goal("kernel_handler_direct", "rt_signal", 0.03, 6.0),
    goal("user_handler_awake", "mpsc", 2.0, 2.0),
    goal("user_handler_asleep", "eventfd_epoll", 1.0, 3.0),
    goal("queue_insert", "getppid", 0.85, 1.5),
    goal("readiness_bitmap", "epoll_wait", 0.03, 2.0),
    started("text_to_running_1", 1.0),
    started("text_to_running_20", 1.0),
    started("text_to_running_max", 5.0),
    observed("server_memory", 0.98),
    observed("server_coalesced", 0.98),
    observed("server_filter", 0.99),
    observed("server_readiness", 0.98),
    observed("server_sched", 0.99),
    goal("lane_submit_8", "send_8", 0.33, 3.0),
    goal("fig9_best_3", "fig9_best_1", 0.5, 2.0),
    goal("lane_out_1", "lane_out_8", 0.33, 2.0),
    goal("lane_out_0", "lane_out_8", 0.13, 2.0),
    counted("executed_paper", "executed_paper_clang"),
    counted("executed_filter", "executed_filter_clang"),
    counted("executed_array", "executed_array_clang"),
    counted("executed_long_array", "executed_long_array_clang"),
    counted("executed_counter", "executed_counter_clang"),
    // Machine code for user space; the margin is for other work on the machine.
    goal("native_call_paper", "native_call_paper_clang", 1.5, 1.5),
];

/// Rows without a goal that are printed beside a baseline.
const COMPARED: &[(&str, &str)] = &[
    ("server_ringbuf", "server_bare"),
    ("server_bpftrace", "server_bare"),
    ("server_perf", "server_bare"),
    ("arrival_memory", "arrival_bare"),
    ("arrival_filter", "arrival_bare"),
    ("arrival_field", "arrival_bare"),
    ("arrival_told", "arrival_bare"),
    ("arrival_pair", "arrival_bare"),
    ("lane_submit_1", "send_1"),
    ("lane_publish_8", "send_8"),
    ("lane_out_8", "send_8"),
    ("fig7_zenoh_8", "sendmmsg_8"),
    ("fig7_mqtt_source", "sendmmsg_8"),
    ("fig7_mqtt_8", "sendmmsg_8"),
    ("fig7_out_8", "sendmmsg_8"),
    ("fig7_out_1", "sendmmsg_8"),
    ("fig7_out_0", "sendmmsg_8"),
    ("fig7_in_8", "group_recv_8"),
    ("fig7_in_1", "group_recv_8"),
    ("fig7_in_0", "group_recv_8"),
    ("fig8_local_20", "fig8_alone_20"),
    ("fig8_local_33", "fig8_alone_33"),
    ("fig8_remote_33", "fig8_alone_33"),
    ("fig8_local_50", "fig8_alone_50"),
    ("fig8_remote_50", "fig8_alone_50"),
    ("fig8_hear_0", "fig8_tell_0"),
    ("fig8_hear_20", "fig8_tell_20"),
    ("fig8_choose_20", "fig8_tell_20"),
    ("fig8_hear_33", "fig8_tell_33"),
    ("fig8_choose_33", "fig8_tell_33"),
    ("fig8_hear_50", "fig8_tell_50"),
    ("fig8_choose_50", "fig8_tell_50"),
    ("fig9_best_1", "fig9_turn"),
    ("fig9_best_5", "fig9_best_1"),
    ("fig9_random_2", "fig9_best_1"),
    ("fig9_cost_best_3", "fig9_cost_best_1"),
    ("fig9_cost_best_5", "fig9_cost_best_1"),
    ("fig9_told_5", "fig9_told_1"),
    ("scale_open", "scale_zenoh_open"),
    ("scale_join", "scale_zenoh_join"),
    ("scale_leave", "scale_zenoh_leave"),
    ("scale_review", "scale_zenoh_review"),
    ("scale_event", "scale_zenoh_event"),
    ("table1_create", "zenoh_create"),
    ("table1_open", "zenoh_open"),
    ("table1_submit", "zenoh_submit"),
    ("table1_poll", "zenoh_poll"),
    ("fig6_100", "send_100"),
    ("fig6_500", "send_500"),
    ("fig6_1000", "send_1000"),
    ("fig6_2000", "send_2000"),
    ("downcall_generic", "getppid"),
    ("signal", "rt_signal"),
    ("user_handler_awake_round", "eventfd_epoll"),
    ("user_handler_recv", "eventfd_epoll"),
    ("poll", "epoll_wait"),
    ("raise_nobody", "getppid"),
    ("bpftrace_start", "true_start"),
    ("static_paper", "static_paper_clang"),
    ("static_filter", "static_filter_clang"),
    ("static_array", "static_array_clang"),
    ("static_long_array", "static_long_array_clang"),
    ("static_counter", "static_counter_clang"),
    ("kernel_call_paper", "kernel_call_paper_clang"),
    ("kernel_call_filter", "kernel_call_filter_clang"),
    ("kernel_call_array", "kernel_call_array_clang"),
    ("kernel_call_long_array", "kernel_call_long_array_clang"),
    ("kernel_call_counter", "kernel_call_counter_clang"),
    ("user_call", "kernel_call"),
    ("user_call_paper", "native_call_paper_clang"),
    ("native_call_filter", "native_call_filter_clang"),
    ("native_call_array", "native_call_array_clang"),
    ("native_call_long_array", "native_call_long_array_clang"),
    ("native_call_counter", "native_call_counter_clang"),
];

/// The result of comparing a ratio with its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The goal is reached.
    Met,
    /// The goal is missed, within the margin.
    Near,
    /// The goal is missed by more than the margin.
    Missed,
}

/// Whether the clock counts instructions, as in the test machine: the environment says so.
pub(crate) fn clock_counts() -> bool {
    std::env::var_os("ECALLS_TEST_MEASURE").is_some()
}

/// The ratio above which a check of this row fails; `counts`: the clock counts instructions.
fn gate_of(goal: &Goal, counts: bool) -> f64 {
    let counted = COUNTED.iter().find(|(row, _)| counts && *row == goal.row);
    counted.map_or(goal.goal * goal.margin, |(_, gate)| *gate)
}

impl Goal {
    /// The ratio above which a check fails here.
    pub(crate) fn gate(&self) -> f64 {
        gate_of(self, clock_counts())
    }

    /// The verdict on `ratio`; NaN is missed.
    pub(crate) fn verdict(&self, ratio: f64) -> Verdict {
        if ratio <= self.goal {
            Verdict::Met
        } else if ratio <= self.gate() {
            Verdict::Near
        } else {
            Verdict::Missed
        }
    }
}

/// The goal of a row, if it has one.
pub(crate) fn goal_of(row: &str) -> Option<&'static Goal> {
    GOALS.iter().find(|goal| goal.row == row)
}

/// The row that a row is compared with, if any.
pub(crate) fn baseline_of(row: &str) -> Option<&'static str> {
    let compared = COMPARED.iter().find(|(name, _)| *name == row);
    goal_of(row)
        .map(|goal| goal.baseline)
        .or(compared.map(|(_, baseline)| *baseline))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;

    #[test]
    fn goals_name_rows_that_exist_and_none_is_named_twice() {
        for (at, goal) in GOALS.iter().enumerate() {
            assert!(rows::all().any(|row| row == goal.row), "{}", goal.row);
            assert!(
                rows::all().any(|row| row == goal.baseline),
                "{}",
                goal.baseline
            );
            assert!(!GOALS[..at].iter().any(|other| other.row == goal.row));
        }
        for (row, baseline) in COMPARED {
            assert!(rows::all().any(|known| known == *row), "{row}");
            assert!(rows::all().any(|known| known == *baseline), "{baseline}");
            assert!(goal_of(row).is_none(), "{row}");
        }
    }

    #[test]
    fn a_gate_is_above_its_goal_and_not_far_above() {
        for goal in GOALS {
            assert!(goal.goal > 0.0, "{}", goal.row);
            let least = match goal.row {
                // Ten runs beside six to eight busy processes: 0.58 to 0.90.
                "start" => 1.25,
                row if row.starts_with("executed") => 1.0,
                // Medians of ratios of neighbouring turns.
                row if row.starts_with("server") => 1.1,
                _ => 1.5,
            };
            assert!((least..=6.0).contains(&goal.margin), "{}", goal.row);
        }
    }

    #[test]
    fn a_clock_that_counts_makes_the_gates_of_the_server_strict() {
        for (row, gate) in COUNTED {
            let goal = goal_of(row).expect("a goal");
            assert_eq!(gate_of(goal, true), *gate);
            assert!(*gate >= goal.goal && *gate < gate_of(goal, false), "{row}");
        }
    }

    #[test]
    fn a_text_that_takes_ten_times_as_long_is_missed() {
        // The published times, and `true` on a busy machine.
        let rows = [
            ("text_to_running_1", 0.65),
            ("text_to_running_20", 1.1),
            ("text_to_running_max", 5.0),
        ];
        for (row, published_ms) in rows {
            let goal = goal_of(row).expect("a goal");
            assert_ne!(goal.verdict(published_ms / TRUE_MS), Verdict::Missed);
            let slower = goal.verdict(10.0 * published_ms / (1.5 * TRUE_MS));
            assert_eq!(slower, Verdict::Missed, "{row}");
        }
    }

    #[test]
    fn a_ratio_meets_its_goal_or_is_near_it_or_misses_it() {
        let goal = goal("a", "b", 0.5, 2.0);
        assert_eq!(goal.verdict(0.5), Verdict::Met);
        assert_eq!(goal.verdict(0.51), Verdict::Near);
        assert_eq!(goal.verdict(1.0), Verdict::Near);
        assert_eq!(goal.verdict(1.01), Verdict::Missed);
        assert_eq!(goal.verdict(f64::NAN), Verdict::Missed);
        assert_eq!(goal.verdict(f64::INFINITY), Verdict::Missed);
    }
}
