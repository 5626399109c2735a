//! The time from the start of a program to its first event where no daemon runs: it loads the core
//! itself.
//!
//! `start` is the time from the start of a process, which loads the core and subscribes, until it
//! has read an event (of a process that it starts then). `bpftrace` is the time from the start of
//! bpftrace to its end, with a script that ends at once. Their rounds alternate, so that a busy
//! machine slows both. A machine has one core, so this is measured before `ecalls bench` loads its
//! own.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use ecalls::Ecalls;

use super::timing::{Effort, Value, silent};
use crate::exit::{Failure, Outcome};
use crate::output;

/// Both rows.
pub(crate) const ROWS: &[&str] = &["start", "bpftrace"];

/// The hidden subcommand that is the measured process.
pub(crate) const SUBCOMMAND: &str = "first-event";

/// Rounds of each.
const ROUNDS: u32 = 7;

/// The output of the measured process when it has read its first event.
const SEEN: &str = "seen\n";

/// The measured process.
pub(crate) fn first_event() -> Outcome {
    let ecalls = Ecalls::host()?;
    let mut channel = ecalls.channel().open()?;
    let _subscription = ecalls.subscribe("task")?.memory(&channel).install()?;
    let mut raised = Command::new("true").spawn()?;
    channel.recv()?;
    output::write_all(SEEN.as_bytes())?;
    raised.wait()?;
    Ok(())
}

/// Measures both rows.
pub(crate) fn measure(effort: Effort) -> Result<Vec<Value>, Failure> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds(ROUNDS) {
        ours.push(ours_us()?);
        theirs.extend(bpftrace_us());
    }
    let value = |row, mut times: Vec<f64>, what| {
        times.sort_by(f64::total_cmp);
        Value::percentiles(row, &times, what)
    };
    let what = "from a program's start, without a daemon, to its first event";
    let baseline = match theirs.is_empty() {
        true => Value::missing(
            "bpftrace",
            "bpftrace is not installed, or does not run here",
        ),
        false => value("bpftrace", theirs, "bpftrace -e 'BEGIN { exit() }', whole"),
    };
    Ok(vec![value("start", ours, what), baseline])
}

fn ours_us() -> Result<f64, Failure> {
    let begin = Instant::now();
    let mut process = Command::new(std::env::current_exe()?)
        .arg(SUBCOMMAND)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    let out = process.stdout.take().expect("it is piped");
    BufReader::new(out).read_line(&mut line)?;
    let took = us_since(begin);
    if process.wait()?.success() && line == SEEN {
        return Ok(took);
    }
    // If the core cannot be loaded here, this returns the reason.
    drop(Ecalls::host()?);
    Err(silent("an event of a program that loads the core"))
}

/// `None`: bpftrace is not installed, or fails.
fn bpftrace_us() -> Option<f64> {
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-e", "BEGIN { exit() }"]);
    bpftrace.stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let ended = bpftrace.status().is_ok_and(|status| status.success());
    ended.then(|| us_since(begin))
}

fn us_since(begin: Instant) -> f64 {
    begin.elapsed().as_nanos() as f64 / 1e3
}
