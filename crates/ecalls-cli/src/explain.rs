//! `ecalls explain`: why an event was late, dropped or filtered. The kernel side records the latest
//! events that were not delivered; this file prints the meaning of a record and advice.

use ecalls::{DropReason, Ecalls};
use ecalls_abi::message::{
    FATE_DROPPED, FATE_FILTERED, FATE_FILTERED_FOR, FATE_LATE, FateView, QUOTA_NAMES, STAGE_CHAIN,
    STAGE_OFFER, STAGE_QUEUE, STAGE_RAISE, STAGE_TIMER,
};
use ecalls_abi::text;
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, Table, note};
use crate::{duration, process};

/// Explain why an event was late, dropped or filtered; without an id, list the latest ones
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The event's id, as `ecalls watch --json` and this command print it
    event: Option<u64>,
    /// Number of events to list
    #[arg(long, short = 'n', default_value = "20")]
    number: std::num::NonZeroU16,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Only events that were late, dropped or filtered are recorded, and only the most recent of them. Root
sees all records, other users those of their own processes.

Keys with --json: event, what (late, dropped, filtered), reason, drop (the argument of E-code's
drop(), if that filtered the event), stage (raise, queue, offer, chain), action (its position in the
chain, from 1), subscription, service, kind, pid and uid (of the process that raised the event),
age_ns, waited_ns (since the raise or the release time), allowed_ns (time from there to the
deadline; null: none), quota.";

/// Records of one event that are read: one for each subscription that did not receive it.
const FATES_MAX: usize = 64;

/// One record, for JSON.
#[derive(Debug, Serialize)]
struct Row {
    event: u64,
    what: &'static str,
    reason: Option<&'static str>,
    drop: Option<u32>,
    stage: &'static str,
    action: Option<u32>,
    subscription: Option<u32>,
    service: String,
    kind: String,
    pid: u32,
    uid: u32,
    age_ns: u64,
    waited_ns: u64,
    allowed_ns: Option<u64>,
    quota: Option<&'static str>,
}

/// Prints the records of one event, or the latest records.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut out = Output::new(args.json);
    let Some(ecalls) = Ecalls::join()? else {
        return Err(Failure::new(
            Code::Failed,
            "no core is loaded: no program on this machine uses events now",
        ));
    };
    let most = args
        .event
        .map_or(usize::from(args.number.get()), |_| FATES_MAX);
    let fates = ecalls.access().fates(args.event.unwrap_or(0), most)?;
    let now_ns = ecalls::now_ns();
    let rows: Vec<Row> = fates
        .iter()
        .map(|fate| row(&ecalls, fate, now_ns))
        .collect();
    match args.event {
        Some(event) if rows.is_empty() => Err(Failure::new(
            Code::Unknown,
            format!(
                "no record of event {event}: it was delivered, is older than the latest ones that \
                 were not (`ecalls explain` lists them), or is another user's"
            ),
        )),
        _ if args.json => {
            rows.iter().try_for_each(|row| out.object(row))?;
            out.flush()
        }
        Some(_) => {
            rows.iter().try_for_each(|row| tell(&mut out, row))?;
            out.flush()
        }
        None => {
            list(&mut out, &rows)?;
            out.flush()
        }
    }
}

fn row(ecalls: &Ecalls, fate: &FateView, now_ns: u64) -> Row {
    let due_ns = fate.raise_ns.max(fate.release_ns);
    let index = usize::try_from(fate.reason).unwrap_or(usize::MAX);
    let reason = DropReason::from_index(index).filter(|_| fate.what == FATE_DROPPED);
    let quota = usize::try_from(fate.quota).unwrap_or(usize::MAX);
    let (stage, action) = (fate.stage & 0xff, fate.stage >> 8);
    Row {
        event: fate.event,
        what: match fate.what {
            FATE_LATE => "late",
            FATE_DROPPED => "dropped",
            FATE_FILTERED | FATE_FILTERED_FOR => "filtered",
            _ => "unknown",
        },
        reason: reason.map(DropReason::name),
        drop: (fate.what == FATE_FILTERED_FOR).then_some(fate.reason),
        stage: match stage {
            STAGE_RAISE => "raise",
            STAGE_TIMER => "timer",
            STAGE_QUEUE => "queue",
            STAGE_OFFER => "offer",
            STAGE_CHAIN => "chain",
            _ => "unknown",
        },
        action: (stage == STAGE_CHAIN).then_some(action + 1),
        subscription: ecalls_abi::Id::from_raw(fate.subscription).map(ecalls_abi::Id::index),
        service: text::read(&fate.name).to_owned(),
        kind: ecalls
            .kind_name(fate.service, fate.kind)
            .unwrap_or_else(|_| fate.kind.to_string()),
        pid: fate.pid,
        uid: fate.uid,
        age_ns: now_ns.saturating_sub(fate.when_ns),
        waited_ns: fate.when_ns.saturating_sub(due_ns),
        allowed_ns: (fate.deadline_ns != 0).then(|| fate.deadline_ns.saturating_sub(due_ns)),
        quota: (reason == Some(DropReason::Quota))
            .then(|| QUOTA_NAMES.get(quota).copied())
            .flatten(),
    }
}

fn list(out: &mut Output, rows: &[Row]) -> Outcome {
    if rows.is_empty() {
        note("no event was late, dropped or filtered lately");
        return Ok(());
    }
    let mut table = Table::new(&[
        ">AGO", ">EVENT", "SERVICE", "KIND", "BY", ">UID", "WHAT", "WHERE", ">WAITED",
    ]);
    for row in rows {
        table.row([
            duration::show_ns(row.age_ns),
            row.event.to_string(),
            row.service.clone(),
            row.kind.clone(),
            process::show(row.pid),
            row.uid.to_string(),
            match row.drop {
                Some(reason) => format!("drop({reason})"),
                None => row.reason.unwrap_or(row.what).to_owned(),
            },
            place(row),
            duration::show_ns(row.waited_ns),
        ]);
    }
    out.table(&table)
}

/// The stage of the path at which the event was lost.
fn place(row: &Row) -> String {
    match (row.action, row.subscription) {
        (Some(action), Some(subscription)) => {
            format!("subscription {subscription}, action {action}")
        }
        (_, Some(subscription)) => format!("subscription {subscription}"),
        _ => row.stage.to_owned(),
    }
}

/// Prints one record as sentences.
fn tell(out: &mut Output, row: &Row) -> Outcome {
    out.line(format!(
        "event {}: {} {}, raised {} ago by {} of user {}",
        row.event,
        row.service,
        row.kind,
        duration::show_ns(row.age_ns + row.waited_ns),
        process::show(row.pid),
        row.uid
    ))?;
    out.line(format!("  {} ({})", what_happened(row), place(row)))?;
    out.line(format!("  {}", what_to_do(row)))
}

fn what_happened(row: &Row) -> String {
    let waited = duration::show_ns(row.waited_ns);
    let allowed = row.allowed_ns.map(duration::show_ns);
    match (row.what, row.reason) {
        ("late", _) => format!(
            "late: the event waited for {waited}, and its deadline was {} after its release time",
            allowed.unwrap_or_else(|| "0ns".to_owned())
        ),
        ("filtered", _) => match row.drop {
            Some(reason) => format!("filtered: a handler in E-code called drop({reason})"),
            None => "filtered: a handler of the subscription ended the chain".to_owned(),
        },
        (_, Some("quota")) => format!(
            "dropped: a quota of the user was used up ({})",
            row.quota.unwrap_or("a quota")
        ),
        (what, reason) => format!(
            "{what}: {}, after {waited}",
            reason.unwrap_or("for an unknown reason")
        ),
    }
}

/// Advice for the user.
fn what_to_do(row: &Row) -> &'static str {
    match (row.what, row.reason) {
        ("late", _) => {
            "the CPU was busy with more urgent events or other work: set a later deadline, or \
             reduce its load (`ecalls stat` shows queues and latencies)"
        }
        ("filtered", _) => "the subscription's handlers decide this: `ecalls stat` shows its chain",
        (_, Some("queue_full")) => {
            "the queue of its CPU was full, and this event had the latest deadline: raise fewer \
             events with release times, or set earlier deadlines"
        }
        (_, Some("ring_full")) => {
            "the reader did not keep up: read more often, or open the channel with more capacity"
        }
        (_, Some("slot_full")) => {
            "the slot held an unread event, or does not exist: read more often"
        }
        (_, Some("replaced")) => {
            "its slot has room for one event, and another one was not read yet, as the channel's \
             layout provides"
        }
        (_, Some("coalesced")) => {
            "an earlier event was not read yet and stands for it, as the subscription or its slots \
             demand"
        }
        (_, Some("signal_limit")) => {
            "the receiver had RLIMIT_SIGPENDING signals waiting: handle them, or raise the limit"
        }
        (_, Some("signal_ignored")) => "the receiver ignores that signal: install a handler",
        (_, Some("target_gone")) => {
            "the receiver has ended, or may not be signalled by the subscription's owner"
        }
        (_, Some("thread_full")) => {
            "too many events wait for kernel threads or signals: handlers that sleep take too long"
        }
        (_, Some("channel_gone")) => "the channel or the subscription had ended",
        (_, Some("no_handler")) => "the chain names a kernel handler that does not exist",
        (_, Some("no_subscriber")) => "no subscription matched the event",
        (_, Some("nested")) => "too many raises interrupted each other on its CPU",
        (_, Some("quota")) => {
            "`ecalls stat --by uid` shows the user's quotas; ecallsd.toml(5) says how to raise one"
        }
        (_, Some("size")) => {
            "its data found no place: open slots with room for it or a larger ring, and let fewer \
             events with more than 168 bytes of data wait"
        }
        _ => "`ecalls stat` shows the counters",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(what: u32, reason: DropReason) -> Row {
        let index = u32::try_from(reason.index()).expect("a small number");
        Row {
            event: 7,
            what: if what == FATE_LATE { "late" } else { "dropped" },
            reason: (what == FATE_DROPPED).then_some(reason.name()),
            drop: None,
            stage: "queue",
            action: None,
            subscription: None,
            service: "s".to_owned(),
            kind: "k".to_owned(),
            pid: index,
            uid: 0,
            age_ns: 0,
            waited_ns: 3_000_000,
            allowed_ns: Some(1_000_000),
            quota: None,
        }
    }

    #[test]
    fn every_reason_has_advice_of_its_own() {
        let advice: std::collections::BTreeSet<&str> = DropReason::ALL
            .into_iter()
            .map(|reason| what_to_do(&fate(FATE_DROPPED, reason)))
            .collect();
        assert_eq!(advice.len(), DropReason::ALL.len());
    }

    #[test]
    fn the_message_of_a_late_event_holds_its_wait_and_its_deadline() {
        let text = what_happened(&fate(FATE_LATE, DropReason::QueueFull));
        assert_eq!(
            text,
            "late: the event waited for 3.00ms, and its deadline was 1.00ms after its release time"
        );
    }
}
