//! Real-time signals: by ECalls, and by sigqueue.
//!
//! Both measurements begin before the system call that raises the event or queues the signal, and
//! end when the handler runs. The handler is the same.

use std::sync::atomic::{AtomicU64, Ordering};

use ecalls::now_ns;
use ecalls_kernel::baseline;
use ecalls_kernel::measure::{self, Measure};
use ecalls_kernel::signal::{self, SignalValue};

use super::Bench;
use super::timing::{Effort, MEDIAN, Value, silent};
use crate::exit::Failure;

/// Signals of one batch.
const ROUNDS: u32 = 2000;
/// A signal that has not arrived by then is lost.
const PATIENCE_NS: u64 = 1_000_000_000;

/// When the handler ran; 0: it has not run yet.
static HANDLED_NS: AtomicU64 = AtomicU64::new(0);

fn handler(_: SignalValue) {
    HANDLED_NS.store(now_ns(), Ordering::Release);
}

/// The signal number of the measurement: neither the first nor the last one, which programs prefer.
fn number() -> i32 {
    signal::real_time_signals().start() + 7
}

/// Measures both rows.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let ours = ours(bench)?;
    Ok(vec![
        Value::ns(
            "signal",
            ours,
            MEDIAN,
            "raise in the kernel to handler run, signal action",
        ),
        baseline(bench.effort)?,
    ])
}

fn ours(bench: &Bench) -> Result<f64, Failure> {
    let number = u32::try_from(number()).expect("a signal's number");
    let subscribe = || {
        bench
            .ecalls
            .subscribe("core")?
            .signal(number)
            .install()
            .map_err(Failure::from)
    };
    with_handler(|| {
        let _subscription = subscribe()?;
        let measure = Measure::new(1);
        sample(bench.effort, || {
            measure::raise(bench.ecalls.core()?, &measure)?;
            Ok(())
        })
    })
}

/// The baseline: sigqueue to the own process, with a handler.
pub(crate) fn baseline(effort: Effort) -> Result<Value, Failure> {
    let value = with_handler(|| sample(effort, || Ok(baseline::queue_signal(number(), 1)?)))?;
    let what = "sigqueue to oneself to handler run";
    Ok(Value::ns("rt_signal", value, MEDIAN, what))
}

fn with_handler<T>(run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    signal::install(number(), handler)?;
    let result = run();
    signal::uninstall(number())?;
    result
}

fn sample(effort: Effort, mut send: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    effort.best_median(ROUNDS, || {
        HANDLED_NS.store(0, Ordering::Release);
        let start_ns = now_ns();
        send()?;
        loop {
            let handled_ns = HANDLED_NS.load(Ordering::Acquire);
            if handled_ns != 0 {
                return Ok(handled_ns.saturating_sub(start_ns));
            }
            if now_ns() - start_ns > PATIENCE_NS {
                return Err(silent("a signal"));
            }
        }
    })
}
