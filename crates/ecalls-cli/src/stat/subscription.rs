//! Subscriptions for `ecalls stat`: each with its chain as text and its counters.

use ::ecode::tree::Fault;
use ecalls::Format;
use ecalls_abi::ecode::HANDLER_ECODE;
use ecalls_abi::subscription::{ACTION_HANDLER, ACTION_THREAD, Action};
use ecalls_kernel::stat::{ServiceStat, SubscriptionStat};
use serde::Serialize;

use super::{section, state_name};
use crate::exit::Outcome;
use crate::handler::{channel_index, show_chain};
use crate::output::{Dropped, Output, Table};
use crate::{duration, process};

#[derive(Debug, Serialize)]
struct SubscriptionRow {
    what: &'static str,
    id: u32,
    service: String,
    owner: u32,
    receiver: u32,
    state: &'static str,
    kinds: u32,
    pid: u32,
    deadline_ns: u64,
    channel: Option<u32>,
    chain: String,
    offered: u64,
    delivered: u64,
    filtered: u64,
    late: u64,
    dropped: Dropped,
    wakes: u64,
    signals: u64,
    threads: u64,
    handlers: u64,
    failed: u64,
    faults: Vec<String>,
    undone: u64,
}

impl SubscriptionRow {
    fn new(stat: &SubscriptionStat, services: &[ServiceStat]) -> SubscriptionRow {
        let (row, count) = (&stat.row, &stat.count);
        let service = services.iter().find(|one| one.index == row.service);
        let format = service.and_then(|one| Format::parse(one.info.format()).ok());
        SubscriptionRow {
            what: "subscription",
            id: ecalls_abi::Id::from_raw(row.id).map_or(0, ecalls_abi::Id::index),
            service: service.map_or(format!("gone ({})", row.service), |one| {
                one.info.name().to_owned()
            }),
            owner: row.owner,
            receiver: row.receiver,
            state: state_name(row.state),
            kinds: row.kinds,
            pid: row.pid,
            deadline_ns: row.deadline_ns,
            channel: (row.channel != 0).then(|| channel_index(row.channel)),
            chain: show_chain(row.chain(), &format.unwrap_or_default()),
            offered: count.offered,
            delivered: count.delivered,
            filtered: count.filtered,
            late: count.late,
            dropped: Dropped(count.dropped),
            wakes: count.wakes,
            signals: count.signals,
            threads: count.threads,
            handlers: count.handlers,
            failed: count.failed,
            faults: faults(row.chain()),
            undone: count.undone,
        }
    }
}

/// The reason of the last fault of each E-code handler that had one.
fn faults(chain: &[Action]) -> Vec<String> {
    let handlers = chain.iter().zip(1..).filter(|(action, _)| {
        matches!(action.kind, ACTION_HANDLER | ACTION_THREAD) && action.handler == HANDLER_ECODE
    });
    let faults = handlers.filter_map(|(action, number)| {
        let fault = Fault::of_number(action.argument[1] as u32)?;
        Some(format!("action {number}: {}", fault.name()))
    });
    faults.collect()
}

/// Prints subscriptions.
pub(super) fn print(
    out: &mut Output,
    services: &[ServiceStat],
    stats: &[SubscriptionStat],
) -> Outcome {
    let rows: Vec<_> = stats
        .iter()
        .map(|stat| SubscriptionRow::new(stat, services))
        .collect();
    if out.is_json() {
        return rows.iter().try_for_each(|row| out.object(row));
    }
    let mut table = Table::new(&[
        ">SUBSCRIPTION",
        "SERVICE",
        "RECEIVER",
        "STATE",
        ">OFFERED",
        ">DELIVERED",
        ">FILTERED",
        ">LATE",
        ">WAKES",
        ">SIGNALS",
        ">THREADS",
        ">HANDLERS",
        "DROPPED",
    ]);
    for row in &rows {
        table.row([
            row.id.to_string(),
            row.service.clone(),
            process::show(row.receiver),
            row.state.to_owned(),
            row.offered.to_string(),
            row.delivered.to_string(),
            row.filtered.to_string(),
            row.late.to_string(),
            row.wakes.to_string(),
            row.signals.to_string(),
            row.threads.to_string(),
            row.handlers.to_string(),
            row.dropped.to_string(),
        ]);
        table.note(format!("{}{}", row.chain, conditions(row)));
    }
    section(out, &table, rows.len())
}

/// The other conditions of a subscription: `, within 5.00ms, only raised in 42 (cat)`.
fn conditions(row: &SubscriptionRow) -> String {
    let mut text = String::new();
    if row.deadline_ns != 0 {
        text += &format!(", within {}", duration::show_ns(row.deadline_ns));
    }
    if row.kinds != 0 {
        text += &format!(", kinds {:#x}", row.kinds);
    }
    if row.pid != 0 {
        text += &format!(", only raised in {}", process::show(row.pid));
    }
    if row.owner != row.receiver {
        text += &format!(", made by {}", process::show(row.owner));
    }
    if row.failed != 0 {
        text += &format!(", {} runs of E-code failed", row.failed);
        for fault in &row.faults {
            text += &format!(" ({fault})");
        }
    }
    if row.undone != 0 {
        text += &format!(", {} of its requests failed", row.undone);
    }
    text
}
