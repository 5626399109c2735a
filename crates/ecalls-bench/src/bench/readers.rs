//! Events that reach a program through shared memory: a reader that looks, a reader that sleeps,
//! and how many events per second one ring carries.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ecalls::downcall::Call;
use ecalls::{Channel, Ecalls, Event, Service, Subscription, now_ns};
use ecalls_kernel::measure::{self, Measure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Bench;
use super::timing::{Effort, MEDIAN, Value, on_two_cpus, os, silent};
use crate::exit::{Failure, Outcome};

/// Events of one batch for readers that poll, and for readers that sleep.
pub(crate) const AWAKE: u32 = 5000;
const ASLEEP: u32 = 1000;
/// A reader that waits for longer gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Polls of an empty ring between two checks of the clock.
const LOOKS: u32 = 10_000;
/// Capacity of the ring, which is also the number of events of a producer's run and of a batch.
const RING: u32 = 16_384;
const STREAM_RUN: u32 = 10_000;
const STREAM: u32 = 500_000;

/// Measures all rows about readers.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    Ok(vec![
        awake(&bench.ecalls, bench.effort)?,
        awake_round(&bench.ecalls, bench.effort)?,
        asleep(&bench.ecalls, bench.effort)?,
        recv(&bench.ecalls, bench.effort)?,
        stream(&bench.ecalls, bench.effort)?,
    ])
}

/// One way: from the raise in the kernel on one processor to a polling reader on another.
pub(crate) fn awake(ecalls: &Ecalls, effort: Effort) -> Result<Value, Failure> {
    let mut channel = ecalls.channel().open()?;
    let _subscription = ecalls.subscribe("core")?.memory(&channel).install()?;
    // The latency of the last event as the reader measured it, ns; 0: not read yet.
    let taken_ns = AtomicU64::new(0);
    let measure = Measure::new(1);
    let value = effort.best_median_of_two(
        AWAKE,
        || {
            taken_ns.store(0, Ordering::Relaxed);
            measure::raise(ecalls.core()?, &measure)?;
            look(|| Some(taken_ns.load(Ordering::Relaxed)).filter(|ns| *ns != 0))
        },
        || {
            let event = look_into(&mut channel)?;
            let ns = now_ns().saturating_sub(event.raise_ns);
            taken_ns.store(ns.max(1), Ordering::Relaxed);
            Ok(())
        },
    )?;
    let what = "one way: raised on one processor to seen by a reader that looks, on another";
    Ok(Value::ns("user_handler_awake", value, MEDIAN, what))
}

/// Calls `found` until it returns a value.
pub(crate) fn look<T>(mut found: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let start_ns = now_ns();
    let patience_ns = PATIENCE.as_nanos();
    while u128::from(now_ns() - start_ns) < patience_ns {
        for _ in 0..LOOKS {
            if let Some(value) = found() {
                return Ok(value);
            }
            spin_loop();
        }
    }
    Err(silent("an event"))
}

fn look_into(channel: &mut Channel) -> Result<Event, Failure> {
    look(|| channel.try_recv())
}

/// One of two programs that raise events for each other.
struct Peer {
    channel: Channel,
    raises: Service,
    _hears: Subscription,
}

impl Peer {
    /// Two peers in one process: each has a service, and subscribes to the other's.
    fn pair(ecalls: &Ecalls) -> Result<(Peer, Peer), Failure> {
        let register = |side: &str| {
            let name = format!("bench-{side}-{}", std::process::id());
            ecalls.register_service(&name, "u64 value", "event")
        };
        let (one, other) = (register("near")?, register("far")?);
        let near = Peer::new(ecalls, one, &format!("bench-far-{}", std::process::id()))?;
        let far = Peer::new(ecalls, other, &format!("bench-near-{}", std::process::id()))?;
        Ok((near, far))
    }

    fn new(ecalls: &Ecalls, raises: Service, hears: &str) -> Result<Peer, Failure> {
        let channel = ecalls.channel().open()?;
        let hears = ecalls.subscribe(hears)?.memory(&channel).install()?;
        Ok(Peer {
            channel,
            raises,
            _hears: hears,
        })
    }

    /// Raises an event by a fast call.
    fn raise(&self) -> Outcome {
        let call = Call::Raise {
            service: self.raises.index(),
            kind: 0,
            target: ecalls_abi::event::TARGET_ALL,
            data: 1,
        };
        match self.channel.caller().fast(call)? {
            offered if offered > 0 => Ok(()),
            refused => Err(os("raising an event", format!("result {refused}"))),
        }
    }
}

/// Round trip between two peers that wait as `wait` says.
fn round_trip(
    ecalls: &Ecalls,
    effort: Effort,
    rounds: u32,
    wait: impl Fn(&mut Channel) -> Outcome + Sync,
) -> Result<f64, Failure> {
    let (mut near, mut far) = Peer::pair(ecalls)?;
    effort.best_median_of_two(
        rounds,
        || {
            let start_ns = now_ns();
            near.raise()?;
            wait(&mut near.channel)?;
            Ok(now_ns() - start_ns)
        },
        || {
            wait(&mut far.channel)?;
            far.raise()
        },
    )
}

fn awake_round(ecalls: &Ecalls, effort: Effort) -> Result<Value, Failure> {
    let value = round_trip(ecalls, effort, AWAKE, |channel| {
        look_into(channel).map(|_| ())
    })?;
    let what = "round trip: both raise by a fast call, both look";
    Ok(Value::ns("user_handler_awake_round", value, MEDIAN, what))
}

/// Round trip between sleeping readers.
pub(crate) fn asleep(ecalls: &Ecalls, effort: Effort) -> Result<Value, Failure> {
    let value = round_trip(ecalls, effort, ASLEEP, sleep)?;
    let what = "round trip: both raise by a fast call, both sleep at once until they are woken";
    Ok(Value::ns("user_handler_asleep", value, MEDIAN, what))
}

/// Round trip between readers that call `recv`, which polls for some microseconds before it sleeps.
fn recv(ecalls: &Ecalls, effort: Effort) -> Result<Value, Failure> {
    let value = round_trip(ecalls, effort, ASLEEP, |channel| {
        match channel.recv_timeout(PATIENCE)? {
            Some(_) => Ok(()),
            None => Err(silent("an event")),
        }
    })?;
    let what =
        "round trip: both raise by a fast call, both call recv, which looks before it sleeps";
    Ok(Value::ns("user_handler_recv", value, MEDIAN, what))
}

/// Waits as `recv` does, but sleeps without polling first.
fn sleep(channel: &mut Channel) -> Outcome {
    let patience = Timespec::try_from(PATIENCE).expect("a short time");
    while channel.try_recv().is_none() {
        if channel.prepare_wait() {
            let mut set = [PollFd::new(channel, PollFlags::IN)];
            let ready = poll(&mut set, Some(&patience)).map_err(|error| os("poll", error))?;
            channel.end_wait();
            if ready == 0 {
                return Err(silent("a wake-up"));
            }
        }
    }
    Ok(())
}

/// Events per second through one ring, from one processor to another.
fn stream(ecalls: &Ecalls, effort: Effort) -> Result<Value, Failure> {
    let mut channel = ecalls.channel().ring(RING).open()?;
    let _subscription = ecalls.subscribe("core")?.memory(&channel).install()?;
    let run_ns = effort.best(|| stream_batch(ecalls, effort, &mut channel))?;
    Ok(Value {
        row: "ring_events_per_s",
        value: 1e9 / run_ns,
        unit: "events/s",
        statistic: "best batch mean",
        what: "events read per second through one ring, raised without a pause",
        percentiles_us: None,
        cpu: None,
        open: None,
        calls: None,
        refused: None,
        p99_ms: None,
    })
}

/// Time per event read.
fn stream_batch(ecalls: &Ecalls, effort: Effort, channel: &mut Channel) -> Result<f64, Failure> {
    let runs = effort.rounds(STREAM / STREAM_RUN);
    let measure = Measure::new(STREAM_RUN);
    let ended = AtomicBool::new(false);
    let (raised, (read, took_ns)) = on_two_cpus(
        || {
            let raised =
                (0..runs).try_for_each(|_| measure::raise(ecalls.core()?, &measure).map(|_| ()));
            ended.store(true, Ordering::Release);
            raised
        },
        || {
            let (start_ns, mut read) = (now_ns(), 0u64);
            loop {
                let last = ended.load(Ordering::Acquire);
                while channel.try_recv().is_some() {
                    read += 1;
                }
                if last {
                    return (read, now_ns() - start_ns);
                }
                spin_loop();
            }
        },
    )?;
    raised?;
    Ok(took_ns as f64 / read.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_ends_with_the_first_find() {
        let mut looks = 0;
        let found = look(|| {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found.expect("found"), 3);
    }
}
