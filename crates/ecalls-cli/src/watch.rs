//! `ecalls watch`: the events of a service as lines, as they arrive.
//!
//! One subscription with the handlers asked for and a ring at its end. The loop reads without
//! system calls while events are there, collects lines, and hands them out when the ring is empty,
//! so that printing keeps up with bursts; what it does not keep up with is counted and told in the
//! end.

mod histogram;
mod line;
mod socket;
mod texts;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ecalls::timer::Timer;
use ecalls::{Channel, Ecalls, Handler, Subscription, now_ns};
use ecalls_abi::service::{SERVICE_CPU, SERVICE_SOCKET, SERVICE_TIMER};
use ecalls_kernel::builtin::{self, BUILTINS, Builtin};
use ecalls_kernel::stat::ServiceStat;
use serde::Serialize;

pub(crate) use self::histogram::lower as bucket_from;
use self::line::Lines;
use self::socket::Sockets;
use self::texts::Texts;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Dropped, Output, note};
use crate::stop::{PATIENCE, Stop};
use crate::{duration, handler, process};

/// Events that may wait to be printed.
const RING: u32 = 65536;

/// Events that are printed between two looks at the clock and at the signals.
const BATCH: u32 = 256;

/// Print the events of a service as they arrive
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Name of the service, see `ecalls services`
    service: String,
    /// socket: the sockets of this process, also those it opens later; other services: only events
    /// raised in this process
    #[arg(long)]
    pid: Option<u32>,
    /// Only events of this kind, by name; may be given again
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Discard and count events that are not delivered within this time
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    deadline: Option<Duration>,
    /// A handler that runs in the kernel before an event is delivered; may be given again, in order
    #[arg(long = "handler", value_name = "HANDLER", value_parser = handler::parse)]
    handlers: Vec<Handler>,
    /// Only events for which this is true: E-code, which runs in the kernel: an expression
    /// (`bytes > 1000 && local_port == 80`) or a body; may be given again
    #[arg(long = "where", value_name = "TEXT")]
    conditions: Vec<String>,
    /// A handler in E-code, from this file; before --where; may be given again, in order
    #[arg(long = "ecode", value_name = "FILE")]
    texts: Vec<PathBuf>,
    /// End after so many events
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time; with exit code 6 if less than --count arrived, or without --count
    /// nothing: neither an event nor anything that was counted
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse_positive)]
    time: Option<Duration>,
    /// timer: the period of the timer that is watched; cpu: how often it measures, for everybody
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    every: Option<Duration>,
    /// The shortest time to report: sched: wait for a CPU; net: round trip; disk: request; memory:
    /// search. Holds for everybody who watches
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    threshold: Option<Duration>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
A line has the time of the raise (seconds since the watch began), the time from then (or from the
release time) until it was read here, service, kind, the process in which it was raised (by), the
CPU, and the data by the names of the service's format.

Handlers: sample:10 (one in ten), limit:100/s and limit:100/s,20 (at most 20 at once),
threshold:field>=5 (also < <= == != >), histogram:field and histogram:field>>10 (counts the values,
shifted right; printed in the end), count.

E-code (`man 7 ecode`): names are the fields of the service's data, its kinds (event.kind == exec),
and event.pid, .uid, .cpu, .time and so on. What is false, or 0, is not printed. A struct output
takes the place of the data. What count() and histogram() counted is printed in the end.

--pid: most built-in services raise in the context of the process that they tell about. A process'
children are other processes: task tells of their forks, execs and exits without --pid only.
Sockets are told to every subscription and stay registered when the watch ends.

It ends on SIGINT and SIGTERM too. The last line, on standard error, tells what was received and
what was not, and why.

Keys with --json: what (event), time_ns (Unix time), raise_ns (CLOCK_MONOTONIC), latency_ns,
service, kind (the name of the event's kind, as `ecalls services` lists them: of sockets data or
connection), data (an object, by field), raised_by, tid, uid, cpu, target, type, priority,
deadline_ns, release_ns, id; then what (histogram), field, from, count; what (counter), counter,
count; in the end what (summary), received, late, filtered, dropped (an object: count by reason),
skipped, failed and undone (of E-code: runs that ended in a fault, and what was asked for and could
not be done).

Examples:
  ecalls watch task --kind exec
  ecalls watch socket --pid 4711 --handler 'threshold:bytes>=1000' --json
  ecalls watch timer --every 100ms --count 10
  ecalls watch socket --where 'bytes > 1000 && local_port == 80'
  ecalls watch task --where 'static long n; event.kind == exec && n++ % 10 == 0'
  ecalls watch sched --threshold 2ms --for 10s
  ecalls watch net --kind retransmit
  ecalls watch disk --threshold 20ms --pid 4711
  ecalls watch cpu --every 5s --kind utilization --handler 'threshold:utilization>=500'";

/// What was not printed, and why.
#[derive(Debug, Serialize)]
struct Summary {
    what: &'static str,
    received: u64,
    late: u64,
    filtered: u64,
    dropped: Dropped,
    skipped: u64,
    failed: u64,
    undone: u64,
}

/// Everything that is open while a watch runs. Its parts end in this order.
#[derive(Debug)]
struct Watch {
    subscription: Subscription,
    texts: Texts,
    _timer: Option<Timer>,
    _threshold: Option<Threshold>,
    channel: Channel,
    sockets: Option<Sockets>,
    service: ServiceStat,
    skipped_before: u64,
    ecalls: Ecalls,
}

/// Prints events until the user, --count or --for ends it.
pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(pid) = args.pid {
        process::check(pid)?;
    }
    let stop = Stop::on_signals()?;
    let mut watch = Watch::begin(args)?;
    let mut out = Output::new(args.json);
    let mut lines = Lines::new(&watch.service, &watch.subscription.format())?;
    let received = watch.print_events(args, &stop, &mut out, &mut lines)?;
    let counted = watch.end(args, &mut out, received)?;
    // Who only counts wants no line.
    let wanted = args.count.unwrap_or(u64::from(!counted));
    if !stop.is_set() && received < wanted {
        let time = duration::show_ns(nanoseconds(args.time.unwrap_or_default()));
        let message = format!("{received} of {wanted} events arrived within {time}");
        return Err(Failure::new(Code::Nothing, message));
    }
    Ok(())
}

impl Watch {
    fn begin(args: &Args) -> Result<Watch, Failure> {
        let ecalls = Ecalls::open()?;
        let index = ecalls.access().find_service(&args.service)?;
        let service = ecalls.access().service_stat(index)?;
        check_options(args, index)?;
        let channel = ecalls.channel().ring(RING).open()?;
        let texts = Texts::read(args)?;
        let subscription = subscribe(&ecalls, args, &texts, index, &channel)?;
        let period = args.every.filter(|_| index == SERVICE_CPU);
        let threshold = match args.threshold.or(period) {
            Some(time) => Some(Threshold::set(&ecalls, index, time)?),
            None => None,
        };
        let timer = match args.every.filter(|_| index == SERVICE_TIMER) {
            Some(period) => Some(Timer::every(channel.caller(), period)?),
            None => None,
        };
        let sockets = match args.pid.filter(|_| index == SERVICE_SOCKET) {
            Some(pid) => Some(Sockets::follow(&ecalls, pid)?),
            None => None,
        };
        match (&sockets, args.pid) {
            (Some(sockets), Some(pid)) => note(format_args!(
                "watching {} of {}",
                sockets.count(),
                process::show(pid)
            )),
            (None, None) if index == SERVICE_SOCKET => note(
                "watching the sockets that programs registered for everybody; --pid watches all \
                 of one process",
            ),
            _ => {}
        }
        Ok(Watch {
            subscription,
            texts,
            _timer: timer,
            _threshold: threshold,
            channel,
            sockets,
            skipped_before: skipped(&service),
            service,
            ecalls,
        })
    }

    /// Prints until the end. Returns how many events there were.
    fn print_events(
        &mut self,
        args: &Args,
        stop: &Stop,
        out: &mut Output,
        lines: &mut Lines,
    ) -> Result<u64, Failure> {
        let until = args.time.and_then(|time| Instant::now().checked_add(time));
        let most = args.count.unwrap_or(u64::MAX);
        let mut received = 0;
        while received < most && !stop.is_set() {
            let batch = received;
            while received < most && received - batch < BATCH.into() {
                let Some(event) = self.channel.try_recv() else {
                    break;
                };
                lines.print(out, &event, now_ns())?;
                received += 1;
            }
            let left = until.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            if let Some(sockets) = &mut self.sockets {
                sockets.poll(&self.ecalls)?;
            }
            if received == batch {
                out.flush()?;
                let patience = left.map_or(PATIENCE, |left| left.min(PATIENCE));
                if let Some(event) = self.channel.recv_timeout(patience)? {
                    lines.print(out, &event, now_ns())?;
                    received += 1;
                }
            }
        }
        Ok(received)
    }

    /// Prints what was counted. Whether anything was, by handlers or texts that count.
    fn end(&self, args: &Args, out: &mut Output, received: u64) -> Result<bool, Failure> {
        let counts = self.channel.histogram();
        for handler in &args.handlers {
            if let Handler::Histogram { field, shift } = handler {
                histogram::print(out, field, *shift, &counts)?;
            }
        }
        self.texts.print(out, &counts)?;
        let lost = self.channel.lost();
        let after = self.ecalls.access().service_stat(self.service.index)?;
        let count = self.subscription.count()?;
        let summary = Summary {
            what: "summary",
            received,
            late: lost.late + self.channel.late(),
            filtered: lost.filtered,
            dropped: Dropped(lost.dropped),
            skipped: skipped(&after).saturating_sub(self.skipped_before),
            failed: count.failed,
            undone: count.undone,
        };
        if out.is_json() {
            out.object(&summary)?;
        }
        out.flush()?;
        let Summary {
            late,
            filtered,
            dropped,
            skipped,
            failed,
            undone,
            ..
        } = summary;
        let also = |what: &str, count: u64| match count {
            0 => String::new(),
            n => format!(", {what} {n}"),
        };
        if failed > 0 {
            for fault in self.subscription.faults()? {
                note(fault);
            }
        }
        note(format_args!(
            "received {received}, late {late}, filtered {filtered}, lost {dropped}{}{}{}",
            also("skipped by the kernel", skipped),
            also("passed because E-code failed", failed),
            also("asked for by E-code and not done", undone),
        ));
        Ok(counts.iter().any(|count| *count > 0))
    }
}

/// Options that belong to one service.
fn check_options(args: &Args, service: u32) -> Outcome {
    let name = &args.service;
    if service == SERVICE_TIMER && args.every.is_none() {
        return Err(Failure::usage(
            "watching timer needs a timer: say --every 100ms",
        ));
    }
    if !matches!(service, SERVICE_TIMER | SERVICE_CPU) && args.every.is_some() {
        return Err(Failure::usage(format!(
            "--every is for the services timer and cpu, not for {name}"
        )));
    }
    let has_threshold =
        |builtin: &Builtin| builtin.index != SERVICE_CPU && builtin.parameter.is_some();
    if args.threshold.is_some() && !builtin::find(service).is_some_and(has_threshold) {
        let with: Vec<_> = (BUILTINS.iter())
            .filter(|builtin| has_threshold(builtin))
            .map(|builtin| builtin.name)
            .collect();
        return Err(Failure::usage(format!(
            "--threshold is for the services {}, not for {name}",
            with.join(", ")
        )));
    }
    Ok(())
}

fn subscribe(
    ecalls: &Ecalls,
    args: &Args,
    texts: &Texts,
    service: u32,
    channel: &Channel,
) -> Result<Subscription, Failure> {
    let mut builder = ecalls.subscribe(&args.service)?;
    if !args.kinds.is_empty() {
        let kinds: Vec<&str> = args.kinds.iter().map(String::as_str).collect();
        builder = builder.kinds(&kinds);
    }
    // Data arrives in whatever process the CPU was at: of a socket the process says nothing.
    if let Some(pid) = args.pid.filter(|_| service != SERVICE_SOCKET) {
        builder = builder.pid(pid);
    }
    if let Some(deadline) = args.deadline {
        builder = builder.deadline(deadline);
    }
    for handler in &args.handlers {
        builder = builder.handler(handler);
    }
    builder = texts.subscribe(builder);
    let subscription = builder.report_to(channel).memory(channel).install()?;
    for warning in subscription.warnings() {
        note(warning);
    }
    Ok(subscription)
}

/// Runs of the service's programs that the kernel skipped.
fn skipped(service: &ServiceStat) -> u64 {
    service.costs.iter().map(|cost| cost.skipped).sum()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// From which value on a service reports; back to what it usually is when the watch ends.
#[derive(Debug)]
struct Threshold(Ecalls, u32);

impl Threshold {
    fn set(ecalls: &Ecalls, service: u32, value: Duration) -> Result<Threshold, Failure> {
        ecalls.access().set_parameter(service, nanoseconds(value))?;
        Ok(Threshold(ecalls.clone(), service))
    }
}

impl Drop for Threshold {
    fn drop(&mut self) {
        if let Ok(parameter) = builtin::parameter(self.1) {
            // A core that is gone reports nothing.
            let _ = self.0.access().set_parameter(self.1, parameter.default_ns);
        }
    }
}
