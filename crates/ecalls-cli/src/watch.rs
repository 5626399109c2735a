//! `ecalls watch`: the events of a service as lines, as they arrive.
//!
//! A watch is one subscription with the given handlers, and a ring at its end. The loop reads
//! without system calls while events are available, collects lines, and writes them when the ring
//! is empty, so that printing keeps up with bursts. Events that found the ring full are counted and
//! reported at the end, with the option that enlarges the ring.

mod histogram;
mod line;
mod socket;
mod texts;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use ecalls::timer::Timer;
use ecalls::{Channel, DropReason, Ecalls, Handler, Subscription, now_ns};
use ecalls_abi::channel::{CAPACITY_MAX, CAPACITY_MIN};
use ecalls_abi::service::{SERVICE_CPU, SERVICE_SOCKET, SERVICE_TIMER};
use ecalls_kernel::builtin::{self, BUILTINS, Builtin};
use ecalls_kernel::stat::ServiceStat;
use serde::Serialize;

pub(crate) use self::histogram::lower as bucket_from;
use self::line::Lines;
use self::socket::Sockets;
use self::texts::Texts;
use crate::chain::ChainArgs;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Dropped, Output, note};
use crate::stop::{PATIENCE, Stop};
use crate::{duration, process};

/// Events that may wait in the ring unless --ring says otherwise: half a megabyte, so that all the
/// watches of a user fit within the memory that the daemon allows it.
const RING: u32 = 2048;

/// The values that --ring accepts.
const RING_EVENTS: RangeInclusive<i64> = CAPACITY_MIN as i64..=CAPACITY_MAX as i64;

/// Events that are printed between two checks of the clock and of the signals.
const BATCH: u32 = 256;

/// Print the events of a service as they arrive
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Name of the service, see `ecalls services`
    service: String,
    /// For socket: watch all sockets of this process, also those that it opens later. For other
    /// services: only events that are raised in the context of this process
    #[arg(long)]
    pid: Option<u32>,
    /// Discard events that are not delivered within this time, and count them as late
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    deadline: Option<Duration>,
    /// While an event has not been read, further ones are not stored but counted as coalesced: for
    /// a watch that is to see that something happens, and not each time
    #[arg(long)]
    coalesce: bool,
    #[command(flatten)]
    chain: ChainArgs,
    /// End after this number of events
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time. The exit code is 6 if fewer events than --count arrived or, without
    /// --count, if no event arrived and no handler counted any
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse_positive)]
    time: Option<Duration>,
    /// For timer: the period of the timer. For cpu: the interval of measurements, which holds for
    /// all watchers
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    every: Option<Duration>,
    /// The shortest time to report, which holds for all watchers. sched: wait for a CPU; net: round
    /// trip; disk: request; memory: search for free memory
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    threshold: Option<Duration>,
    /// Events that can wait until they are printed, 64 to 65536, rounded up to a power of two; each
    /// takes 256 bytes of memory
    #[arg(long, value_name = "EVENTS", default_value_t = RING)]
    #[arg(value_parser = clap::value_parser!(u32).range(RING_EVENTS))]
    ring: u32,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Each line shows when the event was raised (seconds since the watch began), its latency (from the
raise, or from the release time, until this command read it), its service and kind, the process in
whose context it was raised (by), the CPU, and the data by the field names of the service's format.

Handlers: sample:10 (one in ten), limit:100/s and limit:100/s,20 (at most 20 at once),
threshold:field>=5 (also < <= == != >), histogram:field and histogram:field>>10 (a histogram of the
field's values, shifted right, which is printed at the end), count.

E-code (`man 7 ecode`) can name the fields of the service's data, its kinds (event.kind == exec),
and attributes of the event (event.pid, event.uid, event.cpu, event.time, ...). Events for which the
result is 0 are not printed. If the program declares `struct output`, its fields are printed instead
of the service's. The counters of count() and histogram() are printed at the end.

--pid: most built-in services raise an event in the context of the process that it concerns. Child
processes are separate: to see their forks, execs and exits, watch task without --pid. Sockets are
registered for all subscriptions and stay registered when the watch ends.

Once its subscription is installed, the command prints a line on standard error that begins with
\"watching SERVICE\": a script that waits for this line misses no later event. SIGINT and SIGTERM
end the watch. At the end, a line on standard error gives the number of events that were received,
late, filtered and lost, with the reasons, and coalesced.

Keys with --json: what (event), time_ns (Unix time), raise_ns (CLOCK_MONOTONIC), latency_ns,
service, kind (its name, as `ecalls services` lists it), data (an object, by field), raised_by, tid
(0: unknown), host (of an event that came from another one), uid, cpu, target, type, priority,
deadline_ns, release_ns, id; then what (histogram), field, from, count; what (counter), counter,
count; at the end what (summary), received, late, filtered, dropped (an object: count by reason),
skipped (runs of the service's program that the kernel skipped), failed (runs of E-code that ended
in a fault), undone (requests of E-code that could not be carried out).

Examples:
  ecalls watch task --kind exec
  ecalls watch socket --pid 4711 --handler 'threshold:bytes>=1000' --json
  ecalls watch timer --every 100ms --count 10
  ecalls watch socket --where 'bytes > 1000 && local_port == 80'
  ecalls watch socket --pid 4711 --coalesce
  ecalls watch task --where 'static long n; event.kind == exec && n++ % 10 == 0'
  ecalls watch sched --threshold 2ms --for 10s
  ecalls watch net --kind retransmit
  ecalls watch disk --threshold 20ms --pid 4711
  ecalls watch cpu --every 5s --kind utilization --handler 'threshold:utilization>=500'";

/// The numbers of events that were not printed, by reason.
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

/// All resources of a running watch. They are dropped in this order.
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
    // With a handler that counts and no --count, no line is required.
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
        let channel = ecalls
            .channel()
            .ring(args.ring.next_power_of_two())
            .open()?;
        let texts = Texts(args.chain.texts()?);
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
        announce(args, index, sockets.as_ref());
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

    /// Prints until the end. Returns the number of events.
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

    /// Prints the counters. Returns whether handlers or texts have counted any event.
    fn end(&self, args: &Args, out: &mut Output, received: u64) -> Result<bool, Failure> {
        let counts = self.channel.histogram();
        for handler in &args.chain.handlers {
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
            mut dropped,
            skipped,
            failed,
            undone,
            ..
        } = summary;
        let coalesced = std::mem::take(&mut dropped.0[DropReason::Coalesced.index()]);
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
            "received {received}, late {late}, filtered {filtered}, lost {dropped}{}{}{}{}",
            also("coalesced", coalesced),
            also("skipped by the kernel", skipped),
            also("passed because E-code failed", failed),
            also("asked for by E-code and not done", undone),
        ));
        report_full_ring(dropped.0[DropReason::RingFull as usize], args.ring);
        Ok(counts.iter().any(|count| *count > 0))
    }
}

/// Prints the line that says that the subscription is installed, for which scripts wait.
fn announce(args: &Args, service: u32, sockets: Option<&Sockets>) {
    let name = &args.service;
    match (sockets, args.pid) {
        (Some(sockets), Some(pid)) => note(format_args!(
            "watching {name}: {} of {}",
            sockets.count(),
            process::show(pid)
        )),
        (None, _) if service == SERVICE_SOCKET => note(format_args!(
            "watching {name}: the sockets that programs registered for everybody; --pid watches \
             all sockets of one process",
        )),
        (_, Some(pid)) => note(format_args!("watching {name}: {}", process::show(pid))),
        _ => note(format_args!("watching {name}")),
    }
}

/// Checks the options that apply to certain services only.
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
    // Data arrives while some other process is on the CPU, so for a socket this process is
    // meaningless.
    if let Some(pid) = args.pid.filter(|_| service != SERVICE_SOCKET) {
        builder = builder.pid(pid);
    }
    if let Some(deadline) = args.deadline {
        builder = builder.deadline(deadline);
    }
    if args.coalesce {
        builder = builder.coalesce();
    }
    builder = args.chain.subscribe(builder, &texts.0);
    let subscription = builder.report_to(channel).memory(channel).install()?;
    for warning in subscription.warnings() {
        note(warning);
    }
    Ok(subscription)
}

/// Prints advice about events that were lost because the ring was full.
fn report_full_ring(lost: u64, ring: u32) {
    let ring = ring.next_power_of_two();
    let advice = match ring.saturating_mul(8).min(CAPACITY_MAX) {
        larger if larger > ring => format!("--ring {larger} makes room for more"),
        _ => "it has the largest size: --kind, --where or --handler reduce the events".to_owned(),
    };
    if lost > 0 {
        note(format_args!(
            "{lost} events were lost because the ring of {ring} events was full; {advice}"
        ));
    }
}

/// Runs of the service's programs that the kernel skipped.
fn skipped(service: &ServiceStat) -> u64 {
    service.costs.iter().map(|cost| cost.skipped).sum()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The threshold of a service, which is reset to its default when the watch ends.
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
            // This fails if the core is gone, and then does not matter.
            let _ = self.0.access().set_parameter(self.1, parameter.default_ns);
        }
    }
}
