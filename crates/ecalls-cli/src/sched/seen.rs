//! The scheduler's records of threads that use it, of their groups, and of the greatest delays.

use std::collections::{BTreeMap, HashMap};

use ecalls::now_ns;
use ecalls_abi::sched::{
    KIND_COOPERATIVE, KIND_WINDOW, SEEN_GROUP, SchedSamples, SchedSeen, SchedWorst,
};
use ecalls_kernel::scheduler;
use serde::Serialize;

use super::count::quantile;
use super::top::printable;
use crate::duration::show_ns;
use crate::output::Table;

/// The number of delays that are shown.
const WORST_MAX: usize = 16;

/// A distribution of times of one kind, of one thread or group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Times {
    p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) max_us: u64,
    /// Pairs of lower bound in us and count; empty buckets are omitted.
    buckets: Vec<(u64, u32)>,
}

impl Times {
    fn new(samples: &SchedSamples) -> Times {
        let counts = samples.count.map(u64::from);
        let some = samples.count.iter().enumerate();
        let some = some.filter(|(_, count)| **count > 0);
        Times {
            p50_us: quantile(&counts, 50),
            p99_us: quantile(&counts, 99),
            max_us: samples.max_ns / 1000,
            buckets: some
                .map(|(at, count)| (crate::watch::bucket_from(at), *count))
                .collect(),
        }
    }
}

/// A thread or a group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Seen {
    pub(super) kind: &'static str,
    pub(super) group: Option<u32>,
    uid: u32,
    pid: Option<u32>,
    pub(super) tid: Option<u32>,
    name: String,
    cpu_ms: u64,
    pub(super) tardiness: Times,
    delay: Times,
    slice: Times,
    pub(super) overran: u64,
    pub(super) slept: u64,
    pub(super) ahead: u64,
}

fn kind_name(kind: u32) -> &'static str {
    match kind {
        KIND_COOPERATIVE => "cooperative",
        KIND_WINDOW => "window",
        _ => "fair",
    }
}

impl Seen {
    fn new(row: &SchedSeen) -> Seen {
        let is_group = row.state == SEEN_GROUP;
        let own = |number: u32| (!is_group).then_some(number);
        Seen {
            kind: match is_group {
                true => "group",
                false => kind_name(row.kind),
            },
            group: (row.group > 0).then_some(row.group),
            uid: row.uid,
            pid: own(row.pid),
            tid: own(row.tid),
            name: printable(&row.comm),
            cpu_ms: row.run_ns / 1_000_000,
            tardiness: Times::new(&row.tardiness),
            delay: Times::new(&row.delay),
            slice: Times::new(&row.slice),
            overran: row.overran,
            slept: row.slept,
            ahead: row.ahead,
        }
    }

    /// How often each rule was broken, as one text.
    pub(super) fn demoted(&self) -> String {
        format!("{}/{}/{}", self.overran, self.slept, self.ahead)
    }
}

/// Threads and groups; a group that is on several CPUs appears once.
pub(super) fn all(rows: &[SchedSeen]) -> Vec<Seen> {
    let mut groups: BTreeMap<(u32, u32), SchedSeen> = BTreeMap::new();
    let mut threads = Vec::new();
    for row in rows {
        if row.state != SEEN_GROUP {
            threads.push(Seen::new(row));
            continue;
        }
        let key = (row.uid, row.group);
        match groups.get_mut(&key) {
            Some(sum) => add(sum, row),
            None => _ = groups.insert(key, *row),
        }
    }
    threads.sort_by_key(|seen| (seen.group, seen.pid, seen.tid));
    threads.extend(groups.values().map(Seen::new));
    threads
}

fn add(sum: &mut SchedSeen, row: &SchedSeen) {
    sum.run_ns += row.run_ns;
    sum.overran += row.overran;
    sum.slept += row.slept;
    sum.ahead += row.ahead;
    sum.tardiness.add(&row.tardiness);
    sum.delay.add(&row.delay);
    sum.slice.add(&row.slice);
}

/// Threads by id. Empty: our scheduler does not run, or this user may not read it.
pub(super) fn by_thread() -> HashMap<u32, Seen> {
    let rows = scheduler::seen().unwrap_or_default();
    let with_number = |seen: Seen| Some((seen.tid?, seen));
    all(&rows).into_iter().filter_map(with_number).collect()
}

/// The table of threads and groups.
pub(super) fn table(all: &[Seen]) -> Table {
    let mut table = Table::new(&[
        "KIND",
        ">GROUP",
        ">TID",
        "NAME",
        ">LATE P99",
        ">MAX us",
        ">WAIT P99",
        ">MAX us",
        ">RUN P50",
        ">MAX us",
        ">DEMOTED",
    ]);
    for seen in all {
        let number = |number: Option<u32>| number.map_or_else(String::new, |n| n.to_string());
        table.row([
            seen.kind.to_owned(),
            number(seen.group),
            number(seen.tid),
            seen.name.clone(),
            seen.tardiness.p99_us.to_string(),
            seen.tardiness.max_us.to_string(),
            seen.delay.p99_us.to_string(),
            seen.delay.max_us.to_string(),
            seen.slice.p50_us.to_string(),
            seen.slice.max_us.to_string(),
            seen.demoted(),
        ]);
    }
    table
}

/// One of the greatest delays.
#[derive(Debug, Serialize)]
pub(super) struct Worst {
    tardy_ns: u64,
    ago_ns: u64,
    pid: u32,
    tid: u32,
    name: String,
    group: Option<u32>,
    cpu: u32,
    before_ns: u64,
    rest_ns: u64,
    by: Vec<Culprit>,
}

/// A thread that ran during the delay.
#[derive(Debug, Serialize)]
struct Culprit {
    ran_ns: u64,
    pid: u32,
    tid: u32,
    name: String,
    kind: &'static str,
}

impl Worst {
    fn new(note: &SchedWorst, now: u64) -> Worst {
        let named = note.by.iter().filter(|by| by.tid != 0);
        let mut by: Vec<Culprit> = named
            .map(|by| Culprit {
                ran_ns: by.ran_ns,
                pid: by.pid,
                tid: by.tid,
                name: printable(&by.comm),
                kind: kind_name(by.kind),
            })
            .collect();
        by.sort_by_key(|by| std::cmp::Reverse(by.ran_ns));
        Worst {
            tardy_ns: note.tardy_ns,
            ago_ns: now.saturating_sub(note.at_ns),
            pid: note.pid,
            tid: note.tid,
            name: printable(&note.comm),
            group: (note.group > 0).then_some(note.group),
            cpu: note.cpu,
            before_ns: note.before_ns,
            rest_ns: note.rest_ns,
            by,
        }
    }
}

/// The greatest delays of all CPUs.
pub(super) fn worst() -> ecalls::Result<Vec<Worst>> {
    let (notes, now) = (scheduler::worst()?, now_ns());
    let first = notes.iter().take(WORST_MAX);
    Ok(first.map(|note| Worst::new(note, now)).collect())
}

/// The table of delays: below each, the threads that ran meanwhile.
pub(super) fn worst_table(worst: &[Worst]) -> Table {
    let mut table = Table::new(&[">LATE", ">AGO", ">TID", "NAME", ">GROUP", ">CPU"]);
    for one in worst {
        table.row([
            show_ns(one.tardy_ns),
            show_ns(one.ago_ns),
            one.tid.to_string(),
            one.name.clone(),
            one.group.map_or_else(String::new, |n| n.to_string()),
            one.cpu.to_string(),
        ]);
        for by in &one.by {
            let itself = if by.tid == one.tid { ", itself" } else { "" };
            table.note(format!(
                "{} by {} ({}, {}{itself})",
                show_ns(by.ran_ns),
                by.name,
                by.tid,
                by.kind
            ));
        }
        if one.rest_ns > 0 {
            table.note(format!("{} by others", show_ns(one.rest_ns)));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecalls_abi::sched::SEEN_THREAD;
    use ecalls_abi::zerocopy::FromZeros;

    fn row(state: u32, tid: u32, group: u32, late_us: u64) -> SchedSeen {
        let mut row = SchedSeen::new_zeroed();
        (row.state, row.tid, row.group, row.overran) = (state, tid, group, 1);
        row.tardiness.count[5] = 1;
        row.tardiness.max_ns = late_us * 1000;
        row
    }

    #[test]
    fn a_group_on_two_cpus_is_told_once() {
        let rows = [
            row(SEEN_GROUP, 0, 3, 7),
            row(SEEN_THREAD, 12, 3, 7),
            row(SEEN_GROUP, 0, 3, 9),
            row(SEEN_GROUP, 0, 4, 6),
        ];
        let all = all(&rows);
        let told: Vec<_> = all.iter().map(|s| (s.kind, s.group, s.tid)).collect();
        assert_eq!(
            told,
            [
                ("fair", Some(3), Some(12)),
                ("group", Some(3), None),
                ("group", Some(4), None)
            ]
        );
        assert_eq!((all[1].tardiness.max_us, all[1].overran), (9, 2));
        assert_eq!(all[1].tardiness.buckets, [(6, 2)]);
        assert!(table(&all).to_string().contains("2/0/0"));
    }

    #[test]
    fn who_ran_longest_while_a_thread_was_late_comes_first() {
        let mut note = SchedWorst::new_zeroed();
        (note.tid, note.tardy_ns, note.at_ns, note.rest_ns) = (7, 5_000_000, 10, 1000);
        (note.by[0].tid, note.by[0].ran_ns) = (8, 1_000_000);
        (note.by[1].tid, note.by[1].ran_ns) = (7, 3_999_000);
        let text = worst_table(&[Worst::new(&note, 20)]).to_string();
        let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word}: {text}"));
        assert!(at("5.00ms") < at("itself") && at("itself") < at("(8, fair)"));
        assert!(at("(8, fair)") < at("1.00us by others"));
    }
}
