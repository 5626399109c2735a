//! The workloads with `ecalls-threads`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ecalls_threads::{Builder, KernelSide, Runtime, blocking, scheduling_point, spawn, yield_now};

use super::mechanisms::unblock_us;
use super::peers::strangers;
use super::{
    Blocks, ECALLS, ECALLS_BARE, ECALLS_TOLD, Effort, ROUND_ROWS, ROUNDS, Values, compute, failed,
    iterations_per_us, ns_each, per_s,
};
use crate::exit::{Failure, Outcome};
use crate::output::note;

fn plain() -> Builder {
    Runtime::builder().processors(1).kernel(KernelSide::Never)
}

pub(super) fn measure(
    values: &mut Values,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
) -> Outcome {
    if wanted("table3_yield") {
        for (system, own_storage) in [(ECALLS, true), (ECALLS_BARE, false)] {
            let builder = plain().own_storage(own_storage);
            values.add(
                "table3_yield",
                system,
                switch_ns(builder, 10, 2_000_000 / effort.divisor)?,
            );
        }
    }
    if wanted("table3_sumtime") {
        let times = plain().run(|| (0..11).map(|_| sumtime_ms()).collect::<Vec<_>>());
        let times = times.map_err(failed)?;
        if let Some((first, further)) = times.split_first() {
            values.add("table3_sumtime_first", ECALLS, *first);
            further
                .iter()
                .for_each(|ms| values.add("table3_sumtime", ECALLS, *ms));
        }
    }
    if wanted("create_join") {
        let count = 100_000 / effort.divisor;
        let ns = plain().run(move || {
            let start = Instant::now();
            for _ in 0..count {
                let _ = spawn(|| ()).join();
            }
            ns_each(count, start)
        });
        values.add("create_join", ECALLS, ns.map_err(failed)?);
    }
    if wanted("block_no") {
        let count = 1_000_000 / effort.divisor;
        let ns = plain().run(move || {
            let start = Instant::now();
            (0..count).for_each(|_| blocking(|| ()));
            ns_each(count, start)
        });
        values.add("block_no", ECALLS, ns.map_err(failed)?);
    }
    blocks(values, effort, wanted)?;
    scale(values, effort, wanted)
}

/// The rows about threads that block, without and with the kernel side.
fn blocks(values: &mut Values, effort: Effort, wanted: &dyn Fn(&str) -> bool) -> Outcome {
    let speed = iterations_per_us();
    for (system, kernel) in [
        (ECALLS, KernelSide::Never),
        (ECALLS_TOLD, KernelSide::Required),
    ] {
        let builder = plain().processors(effort.processors).kernel(kernel);
        let runtime = match builder.start() {
            Ok(runtime) => runtime,
            Err(error) if system == ECALLS_TOLD => {
                note(format_args!("without the rows of {system}: {error}"));
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        let is_told = runtime.is_told();
        if is_told {
            strangers(values, system, effort, wanted)?;
        }
        let sleep = move |us| {
            let call = || std::thread::sleep(Duration::from_micros(us));
            if is_told {
                call();
                scheduling_point();
            } else {
                blocking(call);
            }
        };
        for (row, busy_us, sleep_us) in ROUND_ROWS.into_iter().filter(|(row, ..)| wanted(row)) {
            let rounds = (ROUNDS / effort.divisor).max(10);
            let start = Instant::now();
            let threads = (0..effort.round_threads()).map(|_| {
                runtime.spawn(move || {
                    for _ in 0..rounds {
                        compute(busy_us * speed);
                        sleep(sleep_us);
                    }
                })
            });
            let threads: Vec<_> = threads.collect::<Result<_, _>>().map_err(failed)?;
            threads.into_iter().for_each(|thread| drop(thread.join()));
            values.add(row, system, per_s(rounds * effort.round_threads(), start));
        }
        if wanted("table1_unblock") || wanted("table2_restart") {
            let (lost_us, restart_us) = unblock_us(&runtime, effort, sleep)?;
            values.add("table1_unblock", system, lost_us);
            values.add("table2_restart", system, restart_us);
        }
        if wanted("block_next") {
            values.add(
                "block_next",
                system,
                block_next_us(&runtime, effort, sleep)?,
            );
        }
    }
    Ok(())
}

/// One thread blocks, another one is ready: from before the call until that one runs.
fn block_next_us(
    runtime: &Runtime,
    effort: Effort,
    sleep: impl Fn(u64) + Copy + Send + 'static,
) -> Result<f64, Failure> {
    let rounds = (2000 / effort.divisor).max(20);
    let blocks = Arc::new(Blocks::default());
    let (first, second) = (Arc::clone(&blocks), Arc::clone(&blocks));
    let first = runtime.spawn(move || {
        for _ in 0..rounds {
            first.begin();
            sleep(50);
            yield_now();
        }
        first.end();
    });
    let second = runtime.spawn(move || {
        while second.look() {
            yield_now();
        }
    });
    let (first, second) = (first.map_err(failed)?, second.map_err(failed)?);
    let _ = (first.join(), second.join());
    blocks.median_us()
}

fn switch_ns(builder: Builder, threads: u64, switches: u64) -> Result<f64, Failure> {
    let rounds = (switches / threads).max(2);
    let ns = builder.run(move || {
        let all: Vec<_> = (0..threads)
            .map(|_| spawn(move || (0..rounds).for_each(|_| yield_now())))
            .collect();
        // Once around, so that every thread has begun.
        yield_now();
        let start = Instant::now();
        all.into_iter().for_each(|thread| drop(thread.join()));
        ns_each(threads * (rounds - 1), start)
    });
    ns.map_err(failed)
}

fn sumtime_ms() -> f64 {
    fn sum(from: u64, to: u64) -> u64 {
        if to - from == 1 {
            return from;
        }
        let middle = from.midpoint(to);
        let halves = [(from, middle), (middle, to)].map(|(from, to)| spawn(move || sum(from, to)));
        halves
            .into_iter()
            .map(|half| half.join().unwrap_or(0))
            .sum()
    }
    let start = Instant::now();
    std::hint::black_box(sum(0, 1000));
    start.elapsed().as_secs_f64() * 1e3
}

fn scale(values: &mut Values, effort: Effort, wanted: &dyn Fn(&str) -> bool) -> Outcome {
    for (row, threads) in [
        ("scale_1000", 1000),
        ("scale_100000", 100_000),
        ("scale_1000000", 1_000_000),
    ] {
        if !wanted(row) || effort.divisor > 1 && threads > 1000 {
            continue;
        }
        let builder = plain()
            .own_storage(false)
            .threads_max(threads + 1)
            .stack_bytes(16 << 10);
        let before = resident_bytes();
        let threads = threads as u64;
        let (ns, bytes) = builder
            .run(move || {
                let rounds = (4_000_000 / threads).max(4);
                let all: Vec<_> = (0..threads)
                    .map(|_| spawn(move || (0..rounds).for_each(|_| yield_now())))
                    .collect();
                yield_now();
                let bytes = resident_bytes().saturating_sub(before);
                let start = Instant::now();
                all.into_iter().for_each(|thread| drop(thread.join()));
                (ns_each(threads * (rounds - 1), start), bytes)
            })
            .map_err(failed)?;
        values.add(row, ECALLS_BARE, ns);
        if threads == 1_000_000 {
            values.add("scale_1000000_bytes", ECALLS_BARE, bytes as f64 / 1e6);
        }
    }
    Ok(())
}

fn resident_bytes() -> u64 {
    const PAGE: u64 = 4096;
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * PAGE
}
