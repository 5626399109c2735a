//! Calls to the kernel: fast, deferred and generic ones, beside the cheapest system call.

use ecalls::downcall::{Call, Caller};
use ecalls::now_ns;
use ecalls_abi::downcall::{DOWN_CAPACITY, DRAIN_MAX};

use super::Bench;
use super::timing::{MEAN, Value};
use crate::exit::Failure;

/// Calls of one batch.
const ROUNDS: u32 = 20_000;
/// Deferred calls pushed without a drain: as many as the ring holds.
const PUSHED: u32 = DOWN_CAPACITY as u32 - 64;
/// Times that each batch pushes so many.
const PUSHES: u32 = 50;
/// Deferred calls of one drain.
const DRAINED: u64 = DRAIN_MAX as u64;
/// Drains of one batch.
const DRAINS: u32 = 500;

/// Measures all rows about calls.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let channel = bench.ecalls.channel().open()?;
    let caller = channel.caller();
    let effort = bench.effort;
    let before_ns = getppid(bench)?;
    let fast = effort.best_mean(ROUNDS, || {
        caller.fast(Call::GetPid)?;
        Ok(())
    })?;
    let generic = effort.best_mean(ROUNDS, || {
        caller.run(Call::GetPid)?;
        Ok(())
    })?;
    let push_ns = push(bench, caller)?;
    let between_ns = getppid(bench)?;
    let push_single_ns = push_single(bench, caller)?;
    let drain_ns = drain(bench, caller)?;
    // Many rows are compared with it and it takes little time, so it is measured three times.
    let getppid_ns = getppid(bench)?.min(between_ns).min(before_ns);
    Ok(vec![
        Value::ns("getppid", getppid_ns, MEAN, "the cheapest system call"),
        Value::ns("downcall_fast", fast, MEAN, "a fast call with its result"),
        Value::ns(
            "downcall_deferred_push",
            push_ns,
            MEAN,
            "deferring a call: a store into shared memory, of several in a row",
        ),
        Value::ns(
            "downcall_deferred_push_single",
            push_single_ns,
            MEAN,
            "deferring a single call, with the lock that lets threads share the channel",
        ),
        Value::ns(
            "downcall_deferred_drain",
            drain_ns,
            MEAN,
            "handling a deferred call in a batch of 64, the fast call that does it apart",
        ),
        Value::ns(
            "downcall_generic",
            generic,
            MEAN,
            "a call by the universal mechanism, BPF_PROG_RUN",
        ),
    ])
}

fn getppid(bench: &Bench) -> Result<f64, Failure> {
    bench.effort.best_mean(ROUNDS, || {
        std::hint::black_box(std::os::unix::process::parent_id());
        Ok(())
    })
}

/// Sets an attribute of the channel; its value has no effect.
fn set(value: u32) -> Call {
    Call::Set {
        attribute: 0,
        value: value.into(),
    }
}

fn push(bench: &Bench, caller: &Caller) -> Result<f64, Failure> {
    pushes(bench, caller, |caller| {
        let mut batch = caller.batch();
        for value in 0..PUSHED {
            batch.defer(set(value))?;
        }
        Ok(())
    })
}

fn push_single(bench: &Bench, caller: &Caller) -> Result<f64, Failure> {
    pushes(bench, caller, |caller| {
        for value in 0..PUSHED {
            caller.defer(set(value))?;
        }
        Ok(())
    })
}

/// Time per call of `fill`, which defers PUSHED calls; the time of draining them is not included.
fn pushes(
    bench: &Bench,
    caller: &Caller,
    fill: impl Fn(&Caller) -> ecalls::Result<()>,
) -> Result<f64, Failure> {
    let rounds = bench.effort.rounds(PUSHES);
    bench.effort.best(|| {
        let mut total_ns = 0;
        for _ in 0..rounds {
            caller.flush()?;
            let start_ns = now_ns();
            fill(caller)?;
            total_ns += now_ns() - start_ns;
        }
        caller.flush()?;
        Ok(total_ns as f64 / f64::from(rounds) / f64::from(PUSHED))
    })
}

fn drain(bench: &Bench, caller: &Caller) -> Result<f64, Failure> {
    let empty_ns = drained(bench, caller, 0)?;
    let full_ns = drained(bench, caller, DRAINED)?;
    // On a busy machine the difference can be less than a tick of the clock.
    Ok((full_ns - empty_ns).max(1.0) / DRAINED as f64)
}

/// Time of a fast call that handles `count` deferred ones.
fn drained(bench: &Bench, caller: &Caller, count: u64) -> Result<f64, Failure> {
    let rounds = bench.effort.rounds(DRAINS);
    bench.effort.best(|| {
        let mut total_ns = 0;
        for _ in 0..rounds {
            for value in 0..count {
                caller.defer(set(value as u32))?;
            }
            let start_ns = now_ns();
            caller.fast(Call::Nop)?;
            total_ns += now_ns() - start_ns;
        }
        Ok(total_ns as f64 / f64::from(rounds))
    })
}
