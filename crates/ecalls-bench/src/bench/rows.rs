//! The rows, and the sections that measure them: rows with the same set-up form a section.

use super::timing::Value;
use ecalls_cli::arguments::What;

use super::{
    Bench, arrivals, baselines, calls, channel, ecode, kernel, readers, server, signals, sizes,
    sockets, start,
};
use crate::exit::Failure;

/// Rows that are measured together.
pub(crate) struct Section {
    /// Their names, in the order in which they are reported.
    pub(crate) rows: &'static [&'static str],
    /// The set-up takes seconds, so the section is measured only once.
    pub(crate) slow: bool,
    /// Measures them all.
    pub(crate) measure: fn(&Bench) -> Result<Vec<Value>, Failure>,
}

/// The sections of a measurement.
pub(crate) fn sections(what: What) -> &'static [Section] {
    match what {
        What::Events => SECTIONS,
        What::Ecode => ecode::SECTIONS,
        What::Server => server::SECTIONS,
        What::Channel => channel::SECTIONS,
        // These have rows of their own.
        What::Sched | What::Threads | What::Io | What::Web => &[],
    }
}

/// The rows that are measured before this program has a core.
pub(crate) fn without_core(what: What) -> &'static [&'static str] {
    match what {
        What::Events => start::ROWS,
        What::Ecode
        | What::Server
        | What::Channel
        | What::Sched
        | What::Threads
        | What::Io
        | What::Web => &[],
    }
}

/// Sections about events. The names are a contract: other programs use them.
const SECTIONS: &[Section] = &[
    Section {
        rows: &[
            "getppid",
            "downcall_fast",
            "downcall_deferred_push",
            "downcall_deferred_push_single",
            "downcall_deferred_drain",
            "downcall_generic",
        ],
        slow: false,
        measure: calls::measure,
    },
    Section {
        rows: &["signal", "rt_signal"],
        slow: false,
        measure: signals::measure,
    },
    Section {
        rows: &["kernel_handler", "kernel_handler_direct", "trigger"],
        slow: false,
        measure: kernel::handlers,
    },
    Section {
        rows: &["eventfd_epoll", "pipe", "mpsc"],
        slow: false,
        measure: baselines::measure,
    },
    Section {
        rows: &[
            "user_handler_awake",
            "user_handler_awake_round",
            "user_handler_asleep",
            "user_handler_recv",
            "ring_events_per_s",
        ],
        slow: false,
        measure: readers::measure,
    },
    Section {
        rows: &["queue_insert", "queue_pop"],
        slow: false,
        measure: kernel::queue,
    },
    Section {
        rows: &["readiness_bitmap", "epoll_wait", "poll"],
        slow: false,
        measure: sockets::measure,
    },
    Section {
        rows: &[
            "raise_nobody",
            "fanout_1",
            "fanout_2",
            "fanout_4",
            "fanout_8",
            "fanout_16",
            "fanout_32",
            "fanout_64",
            "wake_cost",
        ],
        slow: true,
        measure: kernel::fanout,
    },
    Section {
        rows: &[
            "raise_0",
            "read_0",
            "raise_16",
            "read_16",
            "raise_168",
            "read_168",
            "raise_169",
            "read_169",
            "raise_1024",
            "read_1024",
            "raise_2152",
            "read_2152",
            "raise_65536",
            "read_65536",
        ],
        slow: false,
        measure: sizes::measure,
    },
    Section {
        rows: &[
            "arrival_bare",
            "arrival_memory",
            "arrival_filter",
            "arrival_field",
            "arrival_told",
            "arrival_pair",
        ],
        slow: false,
        measure: arrivals::measure,
    },
];

/// Every row of a measurement.
pub(crate) fn of(what: What) -> impl Iterator<Item = &'static str> {
    let sections = sections(what).iter().map(|section| section.rows);
    let rows = std::iter::once(without_core(what)).chain(sections);
    rows.flatten().copied()
}

/// All rows.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    of(What::Events)
        .chain(of(What::Ecode))
        .chain(of(What::Server))
        .chain(of(What::Channel))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that must exist.
    const CONTRACT: &[&str] = &[
        "start",
        "getppid",
        "downcall_fast",
        "downcall_deferred_push",
        "downcall_deferred_drain",
        "downcall_generic",
        "signal",
        "rt_signal",
        "kernel_handler",
        "kernel_handler_direct",
        "user_handler_awake",
        "user_handler_asleep",
        "eventfd_epoll",
        "pipe",
        "queue_insert",
        "queue_pop",
        "readiness_bitmap",
        "epoll_wait",
        "poll",
        "fanout_1",
        "fanout_2",
        "fanout_4",
        "fanout_8",
        "fanout_16",
        "fanout_32",
        "fanout_64",
        "ring_events_per_s",
        "text_to_running_1",
        "text_to_running_20",
        "text_to_running_max",
        "compile_20",
        "load_20",
        "attach_20",
        "user_call",
        "kernel_call",
        "bpftrace_start",
        "true_start",
        "server_bare",
        "server_memory",
        "server_coalesced",
        "server_filter",
        "server_readiness",
        "server_sched",
        "server_ringbuf",
        "server_bpftrace",
        "server_perf",
        "lane_submit_8",
        "lane_out_0",
    ];

    #[test]
    fn every_row_of_the_contract_exists_and_no_name_is_used_twice() {
        for row in CONTRACT {
            assert!(all().any(|known| known == *row), "{row}");
        }
        let mut names: Vec<_> = all().collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }
}
