//! The time from a text to a verified handler that runs in the kernel.
//!
//! `text_to_running_N` is the time that a program needs to replace the handler of a subscription:
//! from the call with the text until an event raised after it has been handled by the new handler.
//! `subscribe_N` is the same for a new subscription. Right before, in the same round, the text is
//! only compiled (`compile_N`), and the result only loaded (`load_N`); the rest of
//! `text_to_running_N` is `attach_N`: storing the program, running it, and reading its event.
//!
//! Each measurement begins after a pause, in which the processor sleeps and its caches go cold, as
//! for a user who changes a filter now and then. `text_to_running_N_hot` is measured right after
//! the text was compiled and loaded a few times: it shows the cost of the work itself.
//!
//! The baseline is `true_start`: a program that does nothing, from its start to its end.
//!
//! N: one line, twenty lines, and the largest handler that a program without privileges may load
//! ([`limits::BPF_INSTRUCTIONS_STRANGER`]).

use std::io;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ecalls::{Channel, Subscription};
use ecalls_kernel::ecode::Trial;
use ecalls_kernel::measure::{self, Measure};
use ecode::bpf::Object;
use ecode::environment::Environment;
use ecode::limits;
use ecode::source::Source;

use super::super::Bench;
use super::super::timing::{Value, silent};
use crate::exit::{Code, Failure, Outcome};

/// Rounds of each text.
const ROUNDS: u32 = 200;
/// Rounds of bpftrace, which takes some hundred times as long.
const BPFTRACE_ROUNDS: u32 = 10;
/// The pause before each cold measurement.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of times that the text is compiled and loaded right before a hot measurement.
const WARM: u32 = 3;

const ONE: &str = "event.cpu < 100000";
const TWENTY: &str = include_str!("twenty.ec");
/// A handler that filters every event: an event that arrives was handled by the next handler.
const NOTHING: &str = "0";

/// The rows of each text.
const TEXTS: [[&str; 6]; 3] = [
    [
        "text_to_running_1",
        "subscribe_1",
        "compile_1",
        "load_1",
        "attach_1",
        "text_to_running_1_hot",
    ],
    [
        "text_to_running_20",
        "subscribe_20",
        "compile_20",
        "load_20",
        "attach_20",
        "text_to_running_20_hot",
    ],
    [
        "text_to_running_max",
        "subscribe_max",
        "compile_max",
        "load_max",
        "attach_max",
        "text_to_running_max_hot",
    ],
];

/// All rows.
pub(crate) const ROWS: &[&str] = TEXTS.as_flattened();

/// Measures all rows.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let texts = [ONE.to_owned(), TWENTY.to_owned(), largest()?];
    let mut all = Vec::new();
    for (rows, text) in TEXTS.into_iter().zip(texts) {
        all.extend(one(bench, rows, &text)?);
    }
    Ok(all)
}

/// Times of one round, us.
type Round = [f64; 6];

fn one(bench: &Bench, rows: [&'static str; 6], text: &str) -> Result<Vec<Value>, Failure> {
    let mut channel = bench.ecalls.channel().open()?;
    let live = bench.ecalls.subscribe("core")?;
    let live = live.ecode(NOTHING).memory(&channel).install()?;
    let trial = Trial::load(&compile(text)?)?
        .map_err(|refusal| Failure::new(Code::Failed, refusal.reason))?;
    let mut rounds: Vec<Round> = Vec::new();
    // The first two rounds are for warming up.
    for at in 0..bench.effort.rounds(ROUNDS) + 2 {
        let round = round(bench, &mut channel, &live, &trial, text)?;
        if at >= 2 {
            rounds.push(round);
        }
    }
    let what = [
        "from the text to the first event handled, in place of another handler",
        "the same for a new subscription",
        "of it, compiling",
        "of it, the kernel's verifier and code",
        "of it, all else: placed, called, the event read",
        "the first of these, where the same has just been done",
    ];
    let values = rows.into_iter().zip(what).enumerate();
    Ok(values
        .map(|(of, (row, what))| {
            let mut times: Vec<f64> = rounds.iter().map(|round| round[of]).collect();
            times.sort_by(f64::total_cmp);
            Value::percentiles(row, &times, what)
        })
        .collect())
}

fn round(
    bench: &Bench,
    channel: &mut Channel,
    live: &Subscription,
    trial: &Trial,
    text: &str,
) -> Result<Round, Failure> {
    live.replace_ecode(NOTHING)?;
    let begin = Instant::now();
    let new = bench.ecalls.subscribe("core")?;
    let new = new.ecode(text).memory(channel).install()?;
    see_event(bench, channel)?;
    let subscribed = begin.elapsed();
    drop(new);
    thread::sleep(PAUSE);
    let begin = Instant::now();
    let object = compile(text)?;
    let compiled = begin.elapsed();
    let begin = Instant::now();
    let loaded = trial.load_handler(&object)?;
    let load = begin.elapsed();
    drop(loaded.map_err(|refusal| Failure::new(Code::Failed, refusal.reason))?);
    thread::sleep(PAUSE);
    let begin = Instant::now();
    live.replace_ecode(text)?;
    see_event(bench, channel)?;
    let whole = begin.elapsed();
    live.replace_ecode(NOTHING)?;
    // The end of a subscription waits for runs of the handler before the last, so that the
    // replacement does not have to.
    drop(bench.ecalls.subscribe("core")?.memory(channel).install()?);
    for _ in 0..WARM {
        drop(trial.load_handler(&compile(text)?)?);
    }
    let begin = Instant::now();
    live.replace_ecode(text)?;
    see_event(bench, channel)?;
    let hot = begin.elapsed();
    let us = |time: Duration| time.as_nanos() as f64 / 1e3;
    let attach = us(whole) - us(compiled) - us(load);
    Ok([
        us(whole),
        us(subscribed),
        us(compiled),
        us(load),
        attach,
        us(hot),
    ])
}

/// Raises an event and reads it, which shows that the handler passed it.
fn see_event(bench: &Bench, channel: &mut Channel) -> Outcome {
    measure::raise(bench.ecalls.core()?, &Measure::new(1))?;
    match channel.try_recv() {
        Some(_) => Ok(()),
        None => Err(silent("an event that a handler lets through")),
    }
}

fn compile(text: &str) -> Result<Object, Failure> {
    let source = Source::new("ecode", text);
    let compiled = ecode::compile(&source, &Environment::default());
    compiled
        .map(|compiled| compiled.object)
        .map_err(|all| Failure::new(Code::Failed, all.render(&source)))
}

/// The largest handler: a sequence of rules, as a program might generate it.
fn largest() -> Result<String, Failure> {
    let rules = |count: usize| {
        let mut text = "static u64 hits; u64 score = 0;\n".to_owned();
        for at in 0..count {
            text += &format!(
                "if (event.pid % {} == {at}) score += hash(event.time + {at}) % 7;\n",
                at + 2
            );
        }
        text + "hits += score; return 1;\n"
    };
    let fits = |count: usize| {
        compile(&rules(count))
            .is_ok_and(|object| object.instructions.len() <= limits::BPF_INSTRUCTIONS_STRANGER)
    };
    let (mut low, mut high) = (1, limits::BPF_INSTRUCTIONS_STRANGER);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(rules(low))
}

/// The time of a bpftrace program that does nothing.
pub(crate) fn bpftrace(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let what = "bpftrace from its start to its end, with a program that does nothing";
    let mut command = Command::new("bpftrace");
    command.args(["-e", "BEGIN { exit(); }"]);
    let rounds = bench.effort.rounds(ROUNDS).min(BPFTRACE_ROUNDS);
    let times = runs(command, rounds);
    let row = "bpftrace_start";
    Ok(vec![times.map_or_else(
        |_| Value::missing(row, "bpftrace is not installed, or does not run here"),
        |times| Value::percentiles(row, &times, what),
    )])
}

/// The time of a program that does nothing, the baseline of `text_to_running_N`. Both consist of
/// the kernel's work on memory and files with cold caches, so a slow machine slows both.
pub(crate) fn nothing(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let what = "`true` from its start to its end, after the same pause";
    let times = runs(Command::new("true"), bench.effort.rounds(ROUNDS));
    let row = "true_start";
    Ok(vec![times.map_or_else(
        |_| Value::missing(row, "there is no `true` here"),
        |times| Value::percentiles(row, &times, what),
    )])
}

/// Times from a program's start to its end in us, each after the pause, in their order.
fn runs(mut command: Command, rounds: u32) -> io::Result<Vec<f64>> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut times = Vec::new();
    for _ in 0..rounds {
        thread::sleep(PAUSE);
        let begin = Instant::now();
        if !command.status()?.success() {
            return Err(io::ErrorKind::Other.into());
        }
        times.push(begin.elapsed().as_nanos() as f64 / 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}
