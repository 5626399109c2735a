//! Costs within the kernel: raising, queueing, kernel handlers, and copies into the rings of many
//! subscriptions. Measuring programs of the kernel side execute the rounds.

use ecalls::{Channel, Handler, Subscription};
use ecalls_kernel::measure::{self, Measure, RAISE_QUEUED};

use super::Bench;
use super::timing::{MEAN, Value};
use crate::exit::{Code, Failure};

/// Events of one batch that are not queued or stored.
const ROUNDS: u32 = 20_000;
/// Events that are in the queue while its operations are measured.
const QUEUED: u32 = 1000;
/// Events that are added to them and removed again: the number of queued events varies around
/// QUEUED.
const STEP: u32 = 32;
/// Times that each batch does so.
const STEPS: u32 = 100;
/// The queued events' deadlines are spread over this time.
const SPREAD_NS: u64 = 1_000_000_000;
/// Capacity of a subscription's ring: small, so that 64 rings together stay in the cache.
const RING: u32 = 64;
/// Events that are raised before the rings are read, and times that each batch does so.
const FANOUT: u32 = 32;
const FANOUTS: u32 = 50;
/// Wake-ups of one batch.
const WAKES: u32 = 200;

/// From the raise to the end of the kernel handler; the same without the queue; and only the path
/// to the dispatcher.
pub(crate) fn handlers(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let rounds = Measure::new(bench.effort.rounds(ROUNDS));
    let core = bench.ecalls.core()?;
    let trigger = bench
        .effort
        .best(|| Ok(measure::trigger(core, &rounds)?.round_ns()))?;
    let count = Handler::Count { end: true };
    let _subscription = bench.ecalls.subscribe("core")?.handler(&count).install()?;
    let queued = raises(bench, ROUNDS, RAISE_QUEUED)?;
    let direct = raises(bench, ROUNDS, 0)?;
    Ok(vec![
        Value::ns(
            "kernel_handler",
            queued,
            MEAN,
            "raise, queue by deadline, dispatch, kernel handler done",
        ),
        Value::ns(
            "kernel_handler_direct",
            direct,
            MEAN,
            "the same while nothing waits: raise, dispatch, kernel handler done",
        ),
        Value::ns(
            "trigger",
            trigger,
            MEAN,
            "the way to the dispatcher and back: its share of every raise",
        ),
    ])
}

/// Time per event raised in the kernel.
fn raises(bench: &Bench, rounds: u32, flags: u32) -> Result<f64, Failure> {
    let measure = Measure {
        flags,
        ..Measure::new(bench.effort.rounds(rounds))
    };
    let core = bench.ecalls.core()?;
    bench
        .effort
        .best(|| Ok(measure::raise(core, &measure)?.round_ns()))
}

/// The deadline queue with 1000 events. This is the queue of the kernel threads, which nobody reads
/// unless a subscription has a thread action.
pub(crate) fn queue(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let core = bench.ecalls.core()?;
    let plan = |n| Measure {
        queue: core.cpus(),
        deadline_ns: SPREAD_NS,
        ..Measure::new(n)
    };
    let below = measure::push(core, &plan(QUEUED - STEP / 2))?;
    let steps = bench.effort.rounds(STEPS);
    let mut insert_ns = f64::INFINITY;
    let pop_ns = bench.effort.best(|| {
        let (mut insert, mut pop) = (0.0, 0.0);
        for _ in 0..steps {
            let pushed = measure::push(core, &plan(STEP))?;
            let popped = measure::pop(core, &plan(STEP))?;
            if pushed.done != popped.done {
                return Err(busy());
            }
            insert += pushed.round_ns();
            pop += popped.round_ns();
        }
        insert_ns = insert_ns.min(insert / f64::from(steps));
        Ok(pop / f64::from(steps))
    });
    let emptied = measure::pop(core, &plan(2 * QUEUED))?;
    let pop_ns = pop_ns?;
    if emptied.done != below.done {
        return Err(busy());
    }
    Ok(vec![
        Value::ns(
            "queue_insert",
            insert_ns,
            MEAN,
            "adding to a queue of 1000 events by deadline, lock and copy included",
        ),
        Value::ns(
            "queue_pop",
            pop_ns,
            MEAN,
            "taking the earliest of 1000 events, lock and copy included",
        ),
    ])
}

fn busy() -> Failure {
    let message =
        "another program uses the queue that is measured: end it, or leave out queue rows";
    Failure::new(Code::Failed, message)
}

/// A subscription with its ring.
struct Reader {
    channel: Channel,
    _subscription: Subscription,
}

fn reader(bench: &Bench) -> Result<Reader, Failure> {
    let channel = bench.ecalls.channel().ring(RING).open()?;
    let subscription = bench.ecalls.subscribe("core")?.memory(&channel).install()?;
    Ok(Reader {
        channel,
        _subscription: subscription,
    })
}

const WHAT_FANOUT: &str = "a raise with so many memory subscriptions, a ring each";

/// Raises with 0 to 64 subscriptions, and the additional cost of a wake-up.
pub(crate) fn fanout(bench: &Bench) -> Result<Vec<Value>, Failure> {
    const STEPS: &[(usize, &str)] = &[
        (1, "fanout_1"),
        (2, "fanout_2"),
        (4, "fanout_4"),
        (8, "fanout_8"),
        (16, "fanout_16"),
        (32, "fanout_32"),
        (64, "fanout_64"),
    ];
    let nobody = raises(bench, ROUNDS, 0)?;
    let what = "a raise while nobody subscribes: counted, and that is all";
    let mut values = vec![Value::ns("raise_nobody", nobody, MEAN, what)];
    let mut readers = Vec::new();
    let mut wake = 0.0;
    for (count, row) in STEPS {
        while readers.len() < *count {
            readers.push(reader(bench)?);
        }
        let value = fanned(bench, &mut readers)?;
        values.push(Value::ns(row, value, MEAN, WHAT_FANOUT));
        if *count == 1 {
            wake = wake_cost(bench, &mut readers[0])?;
        }
    }
    let what = "what a raise costs more when the reader sleeps and must be woken";
    values.push(Value::ns("wake_cost", wake, MEAN, what));
    Ok(values)
}

fn fanned(bench: &Bench, readers: &mut [Reader]) -> Result<f64, Failure> {
    let measure = Measure::new(FANOUT);
    let rounds = bench.effort.rounds(FANOUTS);
    bench.effort.best(|| {
        let mut total_ns = 0.0;
        for _ in 0..rounds {
            total_ns += measure::raise(bench.ecalls.core()?, &measure)?.round_ns();
            for reader in &mut *readers {
                while reader.channel.try_recv().is_some() {}
            }
        }
        Ok(total_ns / f64::from(rounds))
    })
}

fn wake_cost(bench: &Bench, reader: &mut Reader) -> Result<f64, Failure> {
    let core = bench.ecalls.core()?;
    let measure = Measure::new(1);
    let mut cost = |sleeping: bool| {
        bench.effort.best_mean(WAKES, || {
            if sleeping {
                reader.channel.prepare_wait();
            }
            measure::raise(core, &measure)?;
            if sleeping {
                reader.channel.end_wait();
            }
            reader.channel.try_recv();
            Ok(())
        })
    };
    let awake_ns = cost(false)?;
    Ok((cost(true)? - awake_ns).max(1.0))
}
