//! What a context switch costs: two threads on one CPU hand it to each other, and do nothing else.
//!
//! They do so in three ways, for a third of the time each:
//! - *yield*: `sched_yield`, which leaves it to the scheduler to choose the other one;
//! - *wake*: a byte through a pipe; the other one was asleep, and this one sleeps next;
//! - *poll*: like yield, by a slot. Only under our scheduler, where both are cooperative then.
//!
//! A figure is the time by the number of times that either of them was given the CPU. So it has the
//! system calls in it, which are the same under every scheduler.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

use ecalls::downcall::Caller;
use ecalls::now_ns;
use ecalls_loop::bare::CoopPoll;
use rustix::thread::{gettid, sched_yield};

use super::figures::{Figure, Figures};
use super::rows::{Polling, Row, Run};
use super::stage::{self, Class, Workload};
use super::work::Meter;
use crate::exit::{Code, Failure};

const SECOND_NS: u64 = 1_000_000_000;
/// Times that a thread gives the CPU away between two looks at the clock.
const BATCH: usize = 64;
/// A release time that does not come, from now.
const LATER_NS: u64 = 3600 * SECOND_NS;
const WAYS: u64 = 3;

/// How a thread gives the CPU to the other one.
enum Way {
    Yield,
    /// By the pipe to it, and waits for its byte; one of the two begins.
    Wake {
        from: PipeReader,
        to: PipeWriter,
        begins: bool,
    },
    /// By a slot of this number.
    Poll(Caller, usize),
}

impl Way {
    /// The slot of the calling thread, if it polls.
    fn slot(&self) -> Result<Option<CoopPoll>, Failure> {
        let Way::Poll(caller, slot) = self else {
            return Ok(None);
        };
        CoopPoll::by_slot(caller, *slot, 0)
            .map(Some)
            .map_err(failed)
    }
}

/// The run that gives the row.
pub(super) fn run() -> Run {
    Run {
        workload: Workload {
            players: Vec::new(),
            is_one_group: false,
            hogs: 0,
            are_hogs_real_time: false,
        },
        polling: Polling::Handing,
        rows: vec![Row {
            name: "switch_cost".to_owned(),
            source: "Coop §5",
            what: "2 threads that hand the CPU to each other: time by the times that one gets it",
            figures: &[Figure::Yield, Figure::Wake, Figure::Poll],
        }],
    }
}

/// Measures all ways that this class has.
pub(super) fn measure(class: Class<'_>, seconds: u64) -> Result<Figures, Failure> {
    let span_ns = seconds * SECOND_NS / WAYS;
    let is_real_time = matches!(class, Class::RoundRobin);
    let cost = |ways: [Way; 2]| cost_ns(ways, is_real_time, span_ns);
    let mut figures = vec![
        (Figure::Yield, cost([Way::Yield, Way::Yield])?),
        (Figure::Wake, cost(by_pipes()?)?),
    ];
    if let Class::Cooperative(ecalls) = class {
        let channel = ecalls.channel().open()?;
        let ways = [0, 1].map(|slot| Way::Poll(channel.caller().clone(), slot));
        figures.push((Figure::Poll, cost(ways)?));
    }
    Ok(Figures::only(&figures))
}

/// By a yield and by a pipe, in the class that this program has.
pub(in crate::bench) fn ordinary_ns(span_ns: u64) -> Result<[f64; 2], Failure> {
    let cost = |ways| cost_ns(ways, false, span_ns);
    Ok([cost([Way::Yield, Way::Yield])?, cost(by_pipes()?)?])
}

fn by_pipes() -> Result<[Way; 2], Failure> {
    let failed = |error| Failure::new(Code::Failed, format!("making a pipe: {error}"));
    let (from_first, to_second) = pipe().map_err(failed)?;
    let (from_second, to_first) = pipe().map_err(failed)?;
    let way = |from, to, begins| Way::Wake { from, to, begins };
    Ok([
        way(from_second, to_second, true),
        way(from_first, to_first, false),
    ])
}

/// Time by how often either thread got the CPU, ns.
fn cost_ns(ways: [Way; 2], is_real_time: bool, span_ns: u64) -> Result<f64, Failure> {
    let cpu = stage::last_cpu()?;
    let begun = Arc::new(Barrier::new(ways.len() + 1));
    let (tell, tids) = std::sync::mpsc::channel();
    let threads = ways.map(|way| {
        let (begun, tell) = (Arc::clone(&begun), tell.clone());
        thread::spawn(move || {
            stage::join_cpu(cpu);
            // The first slot loads a part of the core.
            let poll = way.slot();
            // Somebody listens.
            let _ = tell.send(gettid());
            begun.wait();
            hand_over(&way, poll?, now_ns() + span_ns)
        })
    });
    let raised = match is_real_time {
        true => tids.iter().take(2).try_for_each(stage::raise),
        false => Ok(()),
    };
    begun.wait();
    let turns: u64 = threads
        .into_iter()
        .map(ended)
        .sum::<Result<u64, Failure>>()?;
    raised?;
    Ok(span_ns as f64 / turns.max(1) as f64)
}

fn ended(thread: JoinHandle<Result<u64, Failure>>) -> Result<u64, Failure> {
    let failed = |_| {
        Failure::new(
            Code::Failed,
            "a thread that gave the CPU away ended by a panic",
        )
    };
    thread.join().map_err(failed)?
}

/// Gives the CPU away until then. How often it came back.
fn hand_over(way: &Way, mut poll: Option<CoopPoll>, end_ns: u64) -> Result<u64, Failure> {
    let meter = Meter::new();
    let before = meter.read();
    while now_ns() < end_ns {
        for _ in 0..BATCH {
            match (way, &mut poll) {
                (Way::Wake { from, to, begins }, _) => {
                    if !pass(from, to, *begins) {
                        return Ok(meter.read().since(before).switches);
                    }
                }
                (_, Some(poll)) => {
                    poll.poll(now_ns() + LATER_NS, 1).map_err(failed)?;
                }
                _ => sched_yield(),
            }
        }
    }
    Ok(meter.read().since(before).switches)
}

fn failed(error: ecalls_loop::Error) -> Failure {
    Failure::new(Code::Failed, format!("polling: {error}"))
}

/// One byte to the other thread, and one from it; who does not begin answers. False: it has ended.
fn pass(mut from: &PipeReader, mut to: &PipeWriter, begins: bool) -> bool {
    let mut byte = [0];
    let mut give = || to.write_all(&[1]).is_ok();
    let mut take = || from.read(&mut byte).is_ok_and(|bytes| bytes == 1);
    match begins {
        true => give() && take(),
        false => take() && give(),
    }
}
