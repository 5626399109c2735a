//! `ecalls run`: runs a program and reports what it received from the machine's scheduler.
//!
//! The program's exit status and output are its own; the report goes to standard error, like that
//! of time(1). The threads and processes below the program are sampled ten times a second in /proc:
//! a thread that lives for less than that counts in the CPU time, but not in the waiting times.
//!
//! A program that does not use the scheduler itself can be given a group ([`group`]) or a window
//! ([`place`]).

mod group;
mod place;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ecalls::window::Window;
use ecalls_kernel::scheduler;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, setpriority_process, waitid,
};
use rustix::thread::set_current_timer_slack;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};

use crate::duration::{self, show_ns};
use crate::exit::{Code, Failure, Outcome};
use crate::output::note;
use crate::preload;
use crate::sched::count::{self, Tardiness};
use crate::sched::thread::{Had, Threads, look_below};
use group::Group;
use place::{Place, Placed, Wish};

/// The longest interval between two samples.
const LOOK: Duration = Duration::from_millis(100);
/// A shell reports a program that a signal ended with this number plus that of the signal.
const BY_SIGNAL: i32 = 128;

/// Run a program and report the CPU time that it received
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Nice value of the program: -20 (most CPU time; root) to 19 (least)
    #[arg(long, value_name = "N", allow_hyphen_values = true,
          value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: Option<i32>,
    /// Make the program and all its descendants members of the user's group of this name
    #[arg(long, value_name = "NAME", conflicts_with = "period", value_parser = Group::parse)]
    group: Option<Group>,
    /// Give the program's first thread a window with this period (0.1 ms to 10 s)
    #[arg(long, value_name = "TIME", requires = "service",
          value_parser = duration::parse_positive)]
    period: Option<Duration>,
    /// CPU time that the window reserves in each period
    #[arg(long, value_name = "TIME", requires = "period",
          value_parser = duration::parse_positive)]
    service: Option<Duration>,
    /// Number of periods X in any Y (at most 1024) that the window may miss; by default none
    #[arg(long, value_name = "X/Y", requires = "period", value_parser = place::parse_window)]
    window: Option<(u16, u16)>,
    /// Run each thread of the program when its timed sleep ends, even ahead of its share
    #[arg(long, conflicts_with = "period")]
    coop: bool,
    /// Run the program's POSIX threads as user-level threads on scheduler activations
    #[arg(long)]
    threads: bool,
    /// Answer the program's select and poll from an epoll set that lasts
    #[arg(long, conflicts_with = "threads")]
    io: bool,
    /// Internal: the child that waits for its place in the scheduler, and then executes the program
    #[arg(long, hide = true)]
    waits: Option<i32>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

const HELP: &str = "\
The report goes to standard error, after the program's own output. The exit status is that of the
program, or 128 plus the number of the signal that ended it. The program runs under the scheduler
that is active: `ecalls sched start` starts ours.

--group, --coop and --period need our scheduler. If it does not run, they are refused with exit
code 5, or 4 if the kernel has no sched_ext.
- The members of a group that run on one CPU pool the CPU time that each would get alone. Among
  members that poll (event loops of ECalls; ECALLS_GROUP holds the number of the group) the most
  important one runs; members that do not poll get a fair share. The program's first thread stays on
  the CPU where it started; its other threads, and programs that it starts, are placed on the CPUs
  with the shortest queues. At most 24 of them per CPU and user are members; further threads, and
  processes that change their user, are scheduled by fair share. A number as NAME selects the group
  with this number, even if a group of that name exists.
- With --coop, a thread whose timed sleep ends (epoll_wait, poll, select, nanosleep, the timeout of
  a condition, a timer descriptor that it has armed) runs before all threads of fair share, even if
  it has had more CPU time than they: up to 20 ms more, so no program gets more than its share. This
  holds for all threads and descendants of the program, statically linked and Go programs included,
  for 24 of them per CPU and user. The kernel's timer slack is 1 ns; select, poll and epoll_wait
  keep a thousandth of the timeout. A program that only waits for time is on time anyway.
- A window reserves CPU time for the program's first thread only, which stays on its CPU. The window
  is promised, admitted without guarantee (the report says so), or refused with exit code 3 and the
  share of the CPU that this user has left for windows; the program is then not started. Beyond its
  service time the program gets a fair share. Periods are counted until the thread last ran.
A slot that the program takes itself replaces the group or window.

--threads loads libecalls_pthread.so before the C library (glibc, x86-64): pthread_create makes
user-level threads, of which as many run as the process may use CPUs; one that blocks in a system
call leaves its CPU to another one. ECALLS_THREADS_PROCESSORS sets another number, and with
ECALLS_THREADS_SAY the library says how it works. Statically linked programs, and those that gain
privileges when they start, are refused.

--io loads libecalls_io.so before the C library (glibc, x86-64): select and poll of 16 or more
descriptors cost what is ready, as with epoll, and answer what they would answer. Programs that use
epoll are not changed. Statically linked programs, and those that gain privileges when they start,
are refused; of programs in Go and with io_uring it says that it does not reach what they do.

Keys with --json: scheduler, replaced (true: the scheduler ended, or another one started, while the
program ran; the figures of a group or window are those of the last scheduler), wall_ns, cpu_ns (of
the program and all its descendants), share (of one CPU), wait_ns (runnable, without a CPU), got
(CPU time as a part of the time it was runnable; 1: it never waited), turns, wait_per_turn_ns,
worst_wait_ns (the longest average wait of a thread per turn within a tenth of a second). While our
scheduler runs also, for root: releases, tardy_p50_us, tardy_p99_us (of all polling threads of the
machine in that time). With --group: group, group_number, group_ns (CPU time of the group's
members), group_share (of one CPU).
With --period: window (promised, or what else), met, missed, violated (missed, though X were
already).";

/// The report.
#[derive(Debug, Serialize)]
struct Report {
    scheduler: Option<String>,
    /// Another scheduler, or none, was active at the end.
    replaced: bool,
    wall_ns: u64,
    cpu_ns: u64,
    share: f64,
    wait_ns: u64,
    got: f64,
    turns: u64,
    wait_per_turn_ns: u64,
    worst_wait_ns: u64,
    #[serde(flatten)]
    tardiness: Option<Tardiness>,
    #[serde(flatten)]
    placed: Option<Placed>,
}

/// The active scheduler.
#[derive(Debug, PartialEq, Eq)]
struct By {
    name: Option<String>,
    /// Number of schedulers that have been started so far: it tells apart two of the same name.
    begun: Option<u64>,
}

impl By {
    fn now() -> By {
        let (name, begun) =
            scheduler::state().map_or((None, None), |state| (state.running, state.begun));
        By { name, begun }
    }

    fn is_ours(&self) -> bool {
        self.name.as_deref().is_some_and(scheduler::is_ours)
    }
}

/// The samples of the program's threads.
#[derive(Debug, Default)]
struct Watched {
    threads: Threads,
    worst_wait_ns: u64,
}

/// Runs the program and ends with its exit status.
pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(parent) = args.waits {
        return place::become_program(parent, &args.program);
    }
    let ended = Signals::catch()?;
    let scheduler = By::now();
    if scheduler.name.is_none() && scheduler::state().is_some() && !args.json {
        note("ecalls run: the kernel's own scheduler runs; `ecalls sched start` starts ours");
    }
    let before = count::all();
    let begun = Instant::now();
    let (mut child, place) = start(args, &ended)?;
    let mut watched = Watched::default();
    await_end(&child, &mut watched, &ended)?;
    let wall_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    // The program has ended but has not been reaped yet: its counters are final.
    let cpu_ns = cpu_ns(child.id());
    watched.look(child.id());
    let status = child.wait().map_err(|error| failed_wait(&error))?;
    let after = count::all();
    let later = By::now();
    let anew = scheduler != later && later.is_ours();
    let report = Report::new(
        &watched,
        (scheduler, later),
        wall_ns,
        cpu_ns,
        count::since(before, after),
        place.map(|place| place.placed(wall_ns, anew)),
    );
    report.print(args.json)?;
    std::process::exit(code_of(status));
}

impl Args {
    /// The group or window that the options request.
    fn wish(&self) -> Result<Option<Wish>, Failure> {
        if let Some(group) = &self.group {
            return Ok(Some(Wish::Group(group.clone())));
        }
        let (Some(period), Some(service)) = (self.period, self.service) else {
            return Ok(self.coop.then_some(Wish::Timed));
        };
        let (x, y) = self.window.unwrap_or((0, 1));
        let window = Window {
            period,
            service,
            x,
            y,
            conserving: true,
        };
        place::check_bounds(&window)?;
        Ok(Some(Wish::Window(window)))
    }
}

fn start(args: &Args, signals: &Signals) -> Result<(Child, Option<Place>), Failure> {
    if let Some(nice) = args.nice {
        // The nice value of this process, which the program inherits.
        setpriority_process(None, nice).map_err(|error| {
            Failure::new(
                Code::Denied,
                format!("setting the nice value {nice}: {error}"),
            )
        })?;
    }
    let (name, _) = name_of(&args.program)?;
    let preload = match (args.threads, args.io) {
        (true, _) => Some(preload::threads(name)?),
        (_, true) => Some(preload::io(name)?),
        _ => None,
    };
    if let Some(wish) = args.wish()? {
        if args.coop {
            // The program inherits it: its sleeps end at their times, not up to 50 us later.
            let slack = std::num::NonZeroU64::new(1);
            set_current_timer_slack(slack).map_err(|error| {
                Failure::new(Code::Failed, format!("setting the timer slack: {error}"))
            })?;
        }
        let preload = preload.as_deref();
        let (child, place) = place::start(&args.program, wish, args.coop, preload, signals)?;
        return Ok((child, Some(place)));
    }
    let (name, arguments) = name_of(&args.program)?;
    let mut command = Command::new(name);
    command.args(arguments);
    if let Some(preload) = &preload {
        preload::set(&mut command, preload);
    }
    let child = command.spawn();
    Ok((child.map_err(|error| cannot_start(name, &error))?, None))
}

fn name_of(program: &[OsString]) -> Result<(&OsString, &[OsString]), Failure> {
    let none = || Failure::usage("no program is given");
    program.split_first().ok_or_else(none)
}

fn cannot_start(name: &OsStr, error: &std::io::Error) -> Failure {
    let name = name.to_string_lossy();
    Failure::new(Code::Unknown, format!("starting {name}: {error}"))
}

fn failed_wait(error: &std::io::Error) -> Failure {
    Failure::new(Code::Failed, format!("waiting for the program: {error}"))
}

fn pid_of(child: &Child) -> Result<Pid, Failure> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| Failure::new(Code::Failed, "the program has no process id"))
}

/// Signals to this process that are meant for the program. A terminal sends SIGINT and SIGQUIT to
/// both; this process forwards SIGTERM.
struct Signals {
    term: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> Result<Signals, Failure> {
        let failed = |error| Failure::new(Code::Failed, format!("catching signals: {error}"));
        let ignored = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGQUIT] {
            signal_hook::flag::register(signal, Arc::clone(&ignored)).map_err(failed)?;
        }
        let term = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTERM, Arc::clone(&term)).map_err(failed)?;
        Ok(Signals { term })
    }

    fn pass_on(&self, pid: Pid) {
        if self.term.swap(false, Ordering::Relaxed) {
            // The program may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Samples the program's threads until it has ended, but does not reap it.
fn await_end(child: &Child, watched: &mut Watched, signals: &Signals) -> Outcome {
    let pid = pid_of(child)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // The first samples are close together, so that short programs are not delayed.
    let mut pause = Duration::from_millis(1);
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Ok(Some(_)) => return Ok(()),
            Err(error) => return Err(failed_wait(&error.into())),
        }
        signals.pass_on(pid);
        watched.look(child.id());
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK);
    }
}

impl Watched {
    fn look(&mut self, pid: u32) {
        let mut now = Threads::new();
        look_below(pid, &mut now);
        for (tid, had) in now {
            let before = self.threads.insert(tid, had).unwrap_or_default();
            let wait_ns = had.since(before).wait_per_turn_ns();
            self.worst_wait_ns = self.worst_wait_ns.max(wait_ns);
        }
    }

    fn sum(&self) -> Had {
        let mut sum = Had::default();
        self.threads.values().for_each(|had| sum.add(*had));
        sum
    }
}

impl Report {
    fn new(
        watched: &Watched,
        (scheduler, later): (By, By),
        wall_ns: u64,
        cpu_ns: u64,
        tardiness: Option<Tardiness>,
        placed: Option<Placed>,
    ) -> Report {
        let had = watched.sum();
        let cpu_ns = cpu_ns.max(had.run_ns);
        Report {
            replaced: scheduler != later,
            scheduler: scheduler.name,
            wall_ns,
            cpu_ns,
            share: cpu_ns as f64 / wall_ns.max(1) as f64,
            wait_ns: had.wait_ns,
            got: had.got(),
            turns: had.turns,
            wait_per_turn_ns: had.wait_per_turn_ns(),
            worst_wait_ns: watched.worst_wait_ns,
            tardiness,
            placed,
        }
    }

    fn print(&self, json: bool) -> Outcome {
        if json {
            let mut err = std::io::stderr().lock();
            serde_json::to_writer(&mut err, self)?;
            return Ok(writeln!(err)?);
        }
        let scheduler = self.scheduler.as_deref().unwrap_or("the kernel's own");
        note(format_args!("scheduler {scheduler}"));
        if self.replaced {
            note(
                "the scheduler was replaced meanwhile; figures of a group or window belong to the \
                 last one",
            );
        }
        note(format_args!(
            "time      {}, of which {} on a CPU: {:.2} of one",
            show_ns(self.wall_ns),
            show_ns(self.cpu_ns),
            self.share
        ));
        note(format_args!(
            "waited    {} for a CPU: the program got {:.1} % of the CPU time that it wanted",
            show_ns(self.wait_ns),
            self.got * 100.0
        ));
        note(format_args!(
            "turns     {}, after {} on average, {} in the worst tenth of a second of a thread",
            self.turns,
            show_ns(self.wait_per_turn_ns),
            show_ns(self.worst_wait_ns)
        ));
        if let Some(tardiness) = &self.tardiness {
            note(format_args!(
                "released  {tardiness} (all threads that poll)"
            ));
        }
        if let Some(placed) = &self.placed {
            note(placed);
        }
        Ok(())
    }
}

/// CPU time of a process and of its descendants that were waited for, from /proc. 0: unknown.
fn cpu_ns(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The fields begin after the name, which may contain any character.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|number| number.parse::<u64>().ok()).sum();
    let per_s = rustix::param::clock_ticks_per_second().max(1);
    ticks * 1_000_000_000 / per_s
}

fn code_of(status: ExitStatus) -> i32 {
    let signal = status.signal().map(|signal| BY_SIGNAL + signal);
    status.code().or(signal).unwrap_or(Code::Failed as i32)
}
