//! The end of the demonstration: totals, costs beside those of other means, and whether every event
//! is accounted for.

use std::thread;
use std::time::Duration;

use ecalls_abi::service::{ServiceCount, SubscriptionCount};
use serde::Serialize;

use super::attach::Watched;
use super::seen::Seen;
use crate::bench::timing::Value;
use crate::duration::show_ns;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Dropped, Output, Table};
use crate::web::watch::Reader;

/// The number of attempts to read counters while no event is under way, and the time between two.
const LOOKS: u32 = 40;
const LOOK: Duration = Duration::from_millis(25);

/// Above this, a ratio depends more on the machine than on ECalls; the reason follows.
const RATIO_MAX: f64 = 1.05;
const WHY_MORE: &str = "\
More than without us: other work keeps this machine busy, and each time our reader wakes up the
scheduler comes back to the server sooner. What we cost shows on a quiet machine.";

/// Requests per second without and with ECalls, alternately.
#[derive(Debug, Default)]
pub(super) struct Cost {
    pub(super) turns: Vec<(f64, f64)>,
}

impl Cost {
    /// The best turn with ECalls divided by the best without: other work on the machine can only
    /// worsen a turn.
    fn ratio(&self) -> Option<f64> {
        let best = |of: fn(&(f64, f64)) -> f64| self.turns.iter().map(of).max_by(f64::total_cmp);
        Some(best(|turn| turn.1)? / best(|turn| turn.0)?)
    }
}

/// The accounts of one service at the end.
#[derive(Debug)]
pub(super) struct Account {
    name: &'static str,
    seen: Seen,
    offered: SubscriptionCount,
    raised: ServiceCount,
    read: bool,
}

impl Account {
    /// Reads the accounts while no event is under way. On a busy machine processes and scheduling
    /// delays never stop, so this repeats until the counters are consistent.
    pub(super) fn take(watched: &Watched, reader: &Reader) -> Result<Account, Failure> {
        let mut look = 0;
        loop {
            let account = Account {
                name: watched.name,
                raised: watched.service_count()?,
                offered: watched.count()?,
                seen: watched.seen(),
                read: reader.is_running(),
            };
            look += 1;
            if account.is_whole() || look == LOOKS {
                return Ok(account);
            }
            thread::sleep(LOOK);
        }
    }

    /// raised = dispatched + late + dropped
    fn service_adds_up(&self) -> bool {
        let count = &self.raised;
        count.raised == count.dispatched + count.late + count.dropped.iter().sum::<u64>()
    }

    /// offered = delivered + filtered + late + dropped
    fn subscription_adds_up(&self) -> bool {
        let count = &self.offered;
        let dropped: u64 = count.dropped.iter().sum();
        count.offered == count.delivered + count.filtered + count.late + dropped
    }

    /// delivered = read + late at the reader
    fn reader_adds_up(&self) -> bool {
        self.offered.delivered == self.seen.events + self.seen.late && self.read
    }

    fn is_whole(&self) -> bool {
        self.service_adds_up() && self.subscription_adds_up() && self.reader_adds_up()
    }
}

/// The failure of inconsistent accounts.
pub(super) fn unbalanced() -> Failure {
    let message = "the accounts do not add up: events are missing, or this machine raises too \
                   many of them for a look between two";
    Failure::new(Code::Failed, message)
}

/// One line of JSON: the totals of a service.
#[derive(Debug, Serialize)]
struct Total {
    what: &'static str,
    service: &'static str,
    offered: u64,
    delivered: u64,
    filtered: u64,
    /// Runs of an E-code handler that ended in a fault.
    failed: u64,
    read: u64,
    of_server: u64,
    late: u64,
    dropped: Dropped,
    wakes: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    whole: bool,
}

impl Total {
    fn new(account: &Account) -> Total {
        let (seen, offered) = (&account.seen, &account.offered);
        Total {
            what: "total",
            service: account.name,
            offered: offered.offered,
            delivered: offered.delivered,
            filtered: offered.filtered,
            failed: offered.failed,
            read: seen.events,
            of_server: seen.ours,
            late: offered.late + seen.late,
            dropped: Dropped(offered.dropped),
            wakes: offered.wakes,
            p50_ns: seen.latency_ns(0.5),
            p99_ns: seen.latency_ns(0.99),
            max_ns: seen.latency.max(),
            whole: account.is_whole(),
        }
    }
}

/// Prints everything. Returns false if an event is not accounted for.
pub(super) fn print(
    out: &mut Output,
    cost: Option<&Cost>,
    accounts: &[Account],
    values: &[Value],
) -> Result<bool, Failure> {
    let totals: Vec<Total> = accounts.iter().map(Total::new).collect();
    if out.is_json() {
        print_objects(out, cost, &totals, values)?;
    } else {
        print_text(out, cost, accounts, &totals, values)?;
    }
    Ok(totals.iter().all(|total| total.whole))
}

fn print_objects(
    out: &mut Output,
    cost: Option<&Cost>,
    totals: &[Total],
    values: &[Value],
) -> Outcome {
    #[derive(Serialize)]
    struct Requests {
        what: &'static str,
        turns: Vec<(f64, f64)>,
        ratio: Option<f64>,
    }
    #[derive(Serialize)]
    struct Compared {
        what: &'static str,
        row: &'static str,
        value: f64,
        unit: &'static str,
        means: &'static str,
    }
    if let Some(cost) = cost {
        out.object(&Requests {
            what: "requests_per_s",
            turns: cost.turns.clone(),
            ratio: cost.ratio(),
        })?;
    }
    for total in totals {
        out.object(total)?;
    }
    for value in values {
        out.object(&Compared {
            what: "compared",
            row: value.row,
            value: value.value,
            unit: value.unit,
            means: value.what,
        })?;
    }
    Ok(())
}

fn print_text(
    out: &mut Output,
    cost: Option<&Cost>,
    accounts: &[Account],
    totals: &[Total],
    values: &[Value],
) -> Outcome {
    out.line("\nIn all, from the raise in the kernel to the reader:")?;
    let mut table = Table::new(&[
        "SERVICE",
        ">EVENTS",
        ">SERVER'S",
        ">FILTERED",
        ">P50",
        ">P99",
        ">MAX",
        ">LATE",
        ">DROPPED",
        ">WAKE-UPS",
    ]);
    for total in totals {
        table.row([
            total.service.to_owned(),
            total.read.to_string(),
            total.of_server.to_string(),
            total.filtered.to_string(),
            show_ns(total.p50_ns),
            show_ns(total.p99_ns),
            show_ns(total.max_ns),
            total.late.to_string(),
            total.dropped.to_string(),
            total.wakes.to_string(),
        ]);
    }
    out.table(&table)?;
    if !values.is_empty() {
        out.line("\nBeside what the kernel offers otherwise, on this machine, now:")?;
        let mut table = Table::new(&["", ">TIME", "WHAT"]);
        for value in values {
            let time = show_ns(value.value as u64);
            table.row([value.row.to_owned(), time, value.what.to_owned()]);
        }
        out.table(&table)?;
    }
    if let Some(ratio) = cost.and_then(Cost::ratio) {
        out.line(format_args!(
            "\nThe server's requests per second with us: {:.0} % of those without (best turns).",
            ratio * 100.0
        ))?;
        if ratio > RATIO_MAX {
            out.line(WHY_MORE)?;
        }
    }
    out.line("\nEvery event is accounted for:")?;
    for account in accounts {
        print_account(out, account)?;
    }
    Ok(())
}

fn print_account(out: &mut Output, account: &Account) -> Outcome {
    let (raised, offered, seen) = (&account.raised, &account.offered, &account.seen);
    let yes = |adds_up| if adds_up { "yes" } else { "NO" };
    out.line(format_args!(
        "  {:6}  raised {} = dispatched {} + late {} + dropped {}: {}",
        account.name,
        raised.raised,
        raised.dispatched,
        raised.late,
        raised.dropped.iter().sum::<u64>(),
        yes(account.service_adds_up()),
    ))?;
    out.line(format_args!(
        "          offered {} = delivered {} + filtered {} + late {} + dropped {}: {}",
        offered.offered,
        offered.delivered,
        offered.filtered,
        offered.late,
        offered.dropped.iter().sum::<u64>(),
        yes(account.subscription_adds_up()),
    ))?;
    out.line(format_args!(
        "          delivered {} = read {} + late at the reader {}: {}",
        offered.delivered,
        seen.events,
        seen.late,
        yes(account.reader_adds_up()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_best_turns() {
        let cost = Cost {
            turns: vec![(100.0, 90.0), (80.0, 10.0), (60.0, 50.0)],
        };
        assert_eq!(cost.ratio(), Some(0.9));
        assert_eq!(Cost::default().ratio(), None);
    }

    #[test]
    fn an_account_adds_up_only_if_each_event_is_in_one_counter() {
        let mut account = Account {
            name: "socket",
            seen: Seen::default(),
            offered: SubscriptionCount::default(),
            raised: ServiceCount::default(),
            read: true,
        };
        assert!(account.is_whole());
        account.raised.raised = 3;
        account.raised.dispatched = 2;
        assert!(!account.service_adds_up());
        account.raised.dropped[1] = 1;
        assert!(account.is_whole());
        account.offered.offered = 2;
        account.offered.delivered = 1;
        assert!(!account.subscription_adds_up());
        account.offered.late = 1;
        assert!(!account.reader_adds_up());
        account.seen.events = 1;
        assert!(account.is_whole());
    }
}
