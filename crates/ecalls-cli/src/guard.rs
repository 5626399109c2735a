//! `ecalls guard --port N`: turns connections away while the server at that port is behind.
//!
//! The guard works as long as this command does. It needs neither a core nor the daemon.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ecalls_abi::ecode::ECODE_FAULT_SHIFT;
use ecalls_kernel::guard::{Counts, Guard, LISTENERS_MAX, Mode, policy};
use ecalls_kernel::handler::Handler;
use ecode::diagnostic::render_fault;
use ecode::source::Source;
use ecode::tree::Fault;
use serde::Serialize;

use crate::duration;
use crate::ecode::text;
use crate::exit::{Failure, Outcome};
use crate::output::{Output, Table, note};
use crate::stop::Stop;

/// Guard a TCP server against overload: turn connections away before they cost anything
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The server's TCP port, IPv4 and IPv6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// What becomes of a connection that is turned away
    #[arg(long, value_enum, value_name = "MODE", default_value = "drop")]
    mode: Turn,
    /// Time from a connection's establishment until the server accepts it, at most about this
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = target)]
    target_delay: Duration,
    /// A text in E-code that decides instead of the rule: a result of 0 turns a connection away
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Interval between two lines
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse_positive)]
    every: Duration,
    /// End after this number of lines
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Turn {
    /// Its first packet is lost: the client tries again after a second
    Drop,
    /// It is refused by a reset: the client knows at once
    Refuse,
    /// It gets an answer of HTTP (503, Retry-After), so that a browser shows a message
    Sorry,
}

const HELP: &str = "\
The server is not changed and knows nothing of it. The guard is for the network namespace in which
it runs, all interfaces, and ends with this command, however that ends. A listener that the server
closes and opens again is guarded still. It needs root.

A connection is turned away while two things hold: the connections that the server has not accepted
yet would take it longer than --target-delay at its present pace, and the oldest of them has waited
for more than a quarter of that. It ends when the first is below a half, or the second below an
eighth. A server that accepts connections at once, and lets them wait within itself, is behind
by this measure only if it tells of them (doc/guard.md).

With --mode sorry a listener of this command answers those that are turned away: plain HTTP by a
page (503), TLS by an alert (internal_error), anything else by a reset. It has at most 256
connections at a time, each for two seconds; what comes beyond that is dropped.

A text of --policy sees age_ns and wait_ns, which the rule compares with target_ns; refuses (1: the
rule would), pace_ns, queued, numconnects, response_ns, open, admitted, refused; family,
remote_port, remote_ip4 and remote_ip[16] of the client. examples/ecode/guard.ec is one.

Per interval: connections that were ADMITTED and REFUSED; QUEUE, how long the oldest in the queue
had waited, and WAIT, what the queue would have taken, both the mean of what connections found that
came; SORRY, how many of the refused were answered. Now: PACE, the time between two accepts of the
busy server; OPEN connections. STATE: refuses, if connections were turned away in the interval.

Keys with --json: port, mode, state (admits, refuses, no_listener), admitted, refused, sorry (those
that were answered of these), sorry_open (are being answered now), established, queue_delay_ms,
wait_ms (null: no connection came), pace_ms (null: not known), open, numconnects (that wait within
the server; null: it does not tell), listeners;
since the beginning: admitted_total, refused_total, sorry_total, sorry_failed (how often the
listener that answers could not accept; null: another mode), turns (how often refusing began),
policy_failed (runs of --policy after which the rule decided; null: there is none).";

/// The shortest `--target-delay`: the kernel tells ages in steps of up to this length.
const TARGET_MIN: Duration = Duration::from_millis(10);
const TARGET_MAX: Duration = Duration::from_secs(60);

fn target(text: &str) -> Result<Duration, String> {
    let target = duration::parse(text)?;
    if !(TARGET_MIN..=TARGET_MAX).contains(&target) {
        return Err("must be from 10ms to 60s".to_owned());
    }
    Ok(target)
}

/// An interval, as printed with `--json`.
#[derive(Debug, Serialize)]
struct Line {
    port: u16,
    mode: &'static str,
    state: &'static str,
    admitted: u64,
    refused: u64,
    sorry: u64,
    sorry_open: i64,
    established: u64,
    queue_delay_ms: Option<f64>,
    wait_ms: Option<f64>,
    pace_ms: Option<f64>,
    open: i64,
    numconnects: Option<u64>,
    listeners: u32,
    admitted_total: u64,
    refused_total: u64,
    sorry_total: u64,
    sorry_failed: Option<u64>,
    turns: u64,
    policy_failed: Option<u64>,
}

/// Guards until it is told to end.
pub(crate) fn run(args: &Args) -> Outcome {
    let stop = Stop::on_signals()?;
    let target_ns = u64::try_from(args.target_delay.as_nanos()).unwrap_or(u64::MAX);
    let mode = match args.mode {
        Turn::Drop => Mode::Drop,
        Turn::Refuse => Mode::Refuse,
        Turn::Sorry => Mode::Sorry,
    };
    let policy = args.policy.as_deref().map(compile).transpose()?;
    let handler = policy.as_ref().map(|(_, handler)| handler);
    let guard = Guard::start(args.port, mode, target_ns, handler).map_err(Failure::from)?;
    note(format_args!(
        "ecalls: guards port {} until this command ends",
        args.port
    ));
    if !guard.hears() {
        note(format_args!(
            "ecalls: another program listens at the name by which a server could tell this guard \
             of its connections: the queue of the listener alone decides"
        ));
    }
    let mut out = Output::new(args.json);
    let (mut before, begin) = (Counts::default(), Instant::now());
    let mut lines = 0;
    let (mut has_told, mut has_failed) = (false, false);
    while args.count.is_none_or(|most| lines < most) {
        // The last, shorter interval is shown, too: what it counted is nowhere else.
        let is_last = stop.sleep(args.every);
        let now = guard.counts().map_err(Failure::from)?;
        if now.unseen > 0 && !has_told {
            note(format_args!(
                "ecalls: port {} has more than {LISTENERS_MAX} listeners: the others' queues are \
                 not seen",
                args.port
            ));
            has_told = true;
        }
        let source = policy.as_ref().map(|(source, _)| source);
        if let Some(source) = source.filter(|_| now.failed > 0 && !has_failed) {
            note(failure(source, now.fault));
            has_failed = true;
        }
        let mut line = line(args, &before, &now);
        let told = guard.told().map_err(Failure::from)?;
        line.numconnects = told.map(|page| page.numconnects);
        line.sorry_failed = guard.sorry_failed();
        if args.json {
            out.object(&line)?;
        } else {
            let shown = table(&line, begin.elapsed()).to_string();
            let is_first = lines % HEADER_EVERY == 0 && (lines == 0 || is_live());
            let text = shown.lines().skip(usize::from(!is_first));
            text.into_iter().try_for_each(|line| out.line(line))?;
        }
        out.flush()?;
        (before, lines) = (now, lines + 1);
        if is_last {
            break;
        }
    }
    out.flush()
}

/// The policy, and its text for messages.
fn compile(file: &Path) -> Result<(Source, Handler), Failure> {
    let source = text::read(file)?;
    let checked = text::check_for(&source, &policy::environment())?;
    let object = text::object(&source, &checked)?;
    let handler = Handler::new(&checked.program, Some(object), source.clone())?;
    Ok((source, handler))
}

/// Why it failed.
fn failure(source: &Source, fault: u64) -> String {
    let byte = ((fault >> ECODE_FAULT_SHIFT) as u32).checked_sub(1);
    let told = Fault::of_number(fault as u32).map(|fault| render_fault(source, fault, byte));
    format!(
        "{}\n    where the policy fails, the rule decides",
        told.unwrap_or_else(|| source.name.clone())
    )
}

/// On a terminal the names of the columns are repeated after so many lines.
const HEADER_EVERY: u64 = 20;

fn is_live() -> bool {
    std::io::stdout().is_terminal()
}

fn line(args: &Args, before: &Counts, now: &Counts) -> Line {
    let (admitted, refused) = (now.admitted - before.admitted, now.refused - before.refused);
    let came = admitted + refused;
    let ms = |ns: u64| ns as f64 / 1e6;
    let mean_ms = |sum_ns: u64| (came > 0).then(|| ms(sum_ns) / came as f64);
    Line {
        port: args.port,
        mode: match args.mode {
            Turn::Drop => "drop",
            Turn::Refuse => "refuse",
            Turn::Sorry => "sorry",
        },
        state: match now {
            _ if now.listeners == 0 => "no_listener",
            _ if refused > 0 => "refuses",
            _ => "admits",
        },
        admitted,
        refused,
        sorry: now.sorry - before.sorry,
        sorry_open: now.sorry_open.max(0),
        established: now.established - before.established,
        queue_delay_ms: mean_ms(now.age_ns_sum - before.age_ns_sum),
        wait_ms: mean_ms(now.wait_ns_sum.saturating_sub(before.wait_ns_sum)),
        pace_ms: (now.pace_ns > 0).then(|| ms(now.pace_ns)),
        open: now.open.max(0),
        numconnects: None,
        listeners: now.listeners,
        admitted_total: now.admitted,
        refused_total: now.refused,
        sorry_total: now.sorry,
        sorry_failed: None,
        turns: now.turns,
        policy_failed: args.policy.is_some().then_some(now.failed),
    }
}

/// Its columns have room for what later lines hold, so that lines stand below each other.
fn table(line: &Line, elapsed: Duration) -> Table {
    let mut table = Table::new(&[
        ">   TIME",
        ">ADMITTED",
        "> REFUSED",
        ">   QUEUE",
        ">    WAIT",
        ">    PACE",
        ">   OPEN",
        ">   SORRY",
        "STATE",
    ]);
    let time = |ms: Option<f64>| match ms {
        Some(ms) => duration::show_ns((ms * 1e6) as u64),
        None => "-".to_owned(),
    };
    let mut state = line.state.replace('_', " ");
    if let Some(failed) = line.policy_failed.filter(|failed| *failed > 0) {
        state += &format!(", policy failed {failed} times");
    }
    if let Some(failed) = line.sorry_failed.filter(|failed| *failed > 0) {
        state += &format!(", answer failed {failed} times");
    }
    table.row([
        format!("{:.0}s", elapsed.as_secs_f64()),
        line.admitted.to_string(),
        line.refused.to_string(),
        time(line.queue_delay_ms),
        time(line.wait_ms),
        time(line.pace_ms),
        line.open.to_string(),
        line.sorry.to_string(),
        state,
    ]);
    table
}
