//! The same workloads with kernel threads, with Tokio, and in Go.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::{
    Blocks, Effort, GO, POSIX, PTHREADS, ROUND_ROWS, ROUNDS, ROWS, TOKIO, Values, compute, failed,
    iterations_per_us, mechanisms, ns_each, per_s,
};
use ecalls_cli::arguments::BenchArguments;
use ecalls_cli::preload;
use serde_json::Value;

use crate::bench::sched::switching::ordinary_ns;
use crate::exit::{Code, Failure, Outcome};
use crate::output::note;

pub(super) fn measure(
    values: &mut Values,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
    go: Option<&Go>,
) -> Outcome {
    kernel_threads(values, effort, wanted)?;
    mechanisms::kernel(values, effort, wanted)?;
    strangers(values, PTHREADS, effort, wanted)?;
    tokio(values, effort, wanted)?;
    match go {
        Some(go) => go.measure(values, effort, wanted),
        None => Ok(()),
    }
}

pub(super) fn kernel_threads(
    values: &mut Values,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
) -> Outcome {
    if wanted("block_next") {
        values.add("block_next", PTHREADS, block_next_us(effort)?);
    }
    if wanted("table3_yield") {
        let yields = 20_000 / effort.divisor;
        let begin = Arc::new(Barrier::new(3));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let begin = Arc::clone(&begin);
                thread::spawn(move || {
                    begin.wait();
                    (0..yields).for_each(|_| thread::yield_now());
                })
            })
            .collect();
        let start = Instant::now();
        begin.wait();
        threads.into_iter().for_each(|thread| drop(thread.join()));
        values.add("table3_yield", PTHREADS, ns_each(2 * yields, start));
    }
    if wanted("table3_sumtime") {
        for turn in 0..3 {
            let start = Instant::now();
            std::hint::black_box(sum(0, 1000));
            let ms = start.elapsed().as_secs_f64() * 1e3;
            let row = if turn == 0 {
                "table3_sumtime_first"
            } else {
                "table3_sumtime"
            };
            values.add(row, PTHREADS, ms);
        }
    }
    if wanted("create_join") {
        let count = 2000 / effort.divisor;
        let start = Instant::now();
        (0..count).for_each(|_| drop(thread::spawn(|| ()).join()));
        values.add("create_join", PTHREADS, ns_each(count, start));
    }
    let speed = iterations_per_us();
    for (row, busy_us, sleep_us) in ROUND_ROWS.into_iter().filter(|(row, ..)| wanted(row)) {
        let rounds = (ROUNDS / effort.divisor).max(10);
        let start = Instant::now();
        let threads: Vec<_> = (0..effort.round_threads())
            .map(|_| {
                thread::spawn(move || {
                    for _ in 0..rounds {
                        compute(busy_us * speed);
                        thread::sleep(Duration::from_micros(sleep_us));
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| drop(thread.join()));
        values.add(row, PTHREADS, per_s(rounds * effort.round_threads(), start));
    }
    Ok(())
}

/// The rows of kernel threads of another process of this program, whose POSIX threads are
/// user-level threads.
pub(super) fn posix(values: &mut Values, args: &BenchArguments) -> Outcome {
    let this = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(&this);
    command.args(["bench", "threads", "--part", "kernel-threads", "--json"]);
    let processors = args.processors.to_string();
    command.args(["--processors", &processors]);
    command.env("ECALLS_THREADS_PROCESSORS", &processors);
    if args.quick {
        command.arg("--quick");
    }
    if let Some(rows) = &args.row {
        command.args(["--row", rows]);
    }
    preload::set(&mut command, &preload::threads(this.as_os_str())?);
    let output = command.output().map_err(failed)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format_args!("{POSIX}: {why}")));
    }
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let object: Value = serde_json::from_str(line).map_err(failed)?;
        let row = ROWS.iter().find(|row| object["row"] == row.name);
        if let (Some(row), Some(value)) = (row, object["value"].as_f64()) {
            values.add(row.name, POSIX, value);
        }
    }
    Ok(())
}

/// Context switches of kernel threads that no runtime has.
pub(super) fn strangers(
    values: &mut Values,
    system: &str,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
) -> Outcome {
    let rows = ["stranger_yield", "stranger_wake"];
    if rows.into_iter().any(wanted) {
        let costs_ns = ordinary_ns(300_000_000 / effort.divisor)?;
        for (row, ns) in rows.into_iter().zip(costs_ns) {
            values.add(row, system, ns);
        }
    }
    Ok(())
}

/// The other thread yields, so that it is always the next one.
fn block_next_us(effort: Effort) -> Result<f64, Failure> {
    let rounds = (2000 / effort.divisor).max(20);
    let blocks = Blocks::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                blocks.begin();
                thread::sleep(Duration::from_micros(50));
                thread::yield_now();
            }
            blocks.end();
        });
        scope.spawn(|| {
            while blocks.look() {
                thread::yield_now();
            }
        });
    });
    blocks.median_us()
}

fn sum(from: u64, to: u64) -> u64 {
    if to - from == 1 {
        return from;
    }
    let middle = from.midpoint(to);
    let halves = [(from, middle), (middle, to)];
    let halves = halves.map(|(from, to)| thread::spawn(move || sum(from, to)));
    halves
        .into_iter()
        .map(|half| half.join().unwrap_or(0))
        .sum()
}

/// Tokio's runtime with one worker for each CPU; blocking calls are in `block_in_place`, which
/// hands the worker's other tasks to another kernel thread, as its manual says.
fn tokio(values: &mut Values, effort: Effort, wanted: &dyn Fn(&str) -> bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(effort.processors)
        .build()
        .map_err(|error| Failure::new(Code::Failed, format!("Tokio: {error}")))?;
    if wanted("table3_yield") {
        let yields = 200_000 / effort.divisor;
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                runtime.spawn(async move {
                    for _ in 0..yields {
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        let start = Instant::now();
        runtime.block_on(async move {
            for task in tasks {
                let _ = task.await;
            }
        });
        values.add("table3_yield", TOKIO, ns_each(10 * yields, start));
    }
    let speed = iterations_per_us();
    for (row, busy_us, sleep_us) in ROUND_ROWS.into_iter().filter(|(row, ..)| wanted(row)) {
        let rounds = (ROUNDS / effort.divisor).max(10);
        let start = Instant::now();
        let tasks: Vec<_> = (0..effort.round_threads())
            .map(|_| {
                runtime.spawn(async move {
                    for _ in 0..rounds {
                        compute(busy_us * speed);
                        tokio::task::block_in_place(|| {
                            thread::sleep(Duration::from_micros(sleep_us));
                        });
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        runtime.block_on(async move {
            for task in tasks {
                let _ = task.await;
            }
        });
        values.add(row, TOKIO, per_s(rounds * effort.round_threads(), start));
    }
    Ok(())
}

/// Rows of `peer.go`.
pub(super) const GO_ROWS: [&str; 7] = [
    "table3_yield",
    "table3_sumtime",
    "rounds_100_200",
    "rounds_20_100",
    "http_64",
    "http_10000",
    "http_10000_bytes",
];

/// The workloads in Go, compiled in a folder of their own.
pub(super) struct Go(PathBuf);

impl Go {
    /// `None`: there is no compiler, or it fails.
    pub(super) fn build() -> Result<Option<Self>, Failure> {
        const SOURCE: &str = include_str!("peer.go");
        if Command::new("go").arg("version").output().is_err() {
            note("without the rows of go: there is no compiler for it");
            return Ok(None);
        }
        let folder = std::env::temp_dir().join(format!("ecalls-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let go = Self(folder);
        let source = go.0.join("peer.go");
        std::fs::write(&source, SOURCE).map_err(failed)?;
        let mut command = Command::new("go");
        command.args(["build", "-o"]).args([&go.program(), &source]);
        let built = command.output().map_err(failed)?;
        if !built.status.success() {
            let why = String::from_utf8_lossy(&built.stderr);
            note(format_args!("without the rows of go: {}", why.trim()));
            return Ok(None);
        }
        Ok(Some(go))
    }

    pub(super) fn program(&self) -> PathBuf {
        self.0.join("peer")
    }

    fn measure(
        &self,
        values: &mut Values,
        effort: Effort,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Outcome {
        if !GO_ROWS
            .into_iter()
            .any(|row| !row.starts_with("http") && wanted(row))
        {
            return Ok(());
        }
        let mut command = Command::new(self.program());
        command.args([effort.divisor as usize, effort.processors].map(|number| number.to_string()));
        let output = command.output();
        let output = output.map_err(failed)?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some((name, value)) = line.split_once(' ') else {
                continue;
            };
            let row = ROWS.iter().find(|row| row.name == name && wanted(name));
            if let (Some(row), Ok(value)) = (row, value.parse()) {
                values.add(row.name, GO, value);
            }
        }
        Ok(())
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
