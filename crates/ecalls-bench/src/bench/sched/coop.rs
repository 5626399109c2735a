//! Rows of unmodified programs that wait for time: under our scheduler as with `ecalls run --coop`,
//! the same without that (`ecalls_plain`), and under the kernel's own in the same boot.
//!
//! Each program sleeps 10 ms and then computes, 1 ms or, each fourth time, 3 ms: so it is ahead of
//! its share at some times, and behind it at others. Beside it are eight threads that wait for a
//! frame's time and compute 1 ms, of the same kind as the program, and four hogs, all on one CPU.
//!
//! How late the program's threads run is measured from outside, alike under each scheduler
//! ([`trace`]): from the interrupt in which a timer wakes a thread until that thread has the CPU.
//! What the program itself sees is reported, too: with all that its runtime adds, which may round
//! its timeouts up to a millisecond.
//!
//! - [`program`]: the programs, and the part of this one that becomes one of them;
//! - [`trace`]: the kernel's events, read as text.

mod program;
mod trace;

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ecalls::child::ChildSlot;
use ecalls::{Channel, now_ns};
use hdrhistogram::Histogram;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::figures::{Figure, Figures};
use super::rows::{Polling, Row, Run};
use super::stage::{Workload, join_cpu, last_cpu};
use super::under::{Under, Which};
use super::work::{Span, Work, cpu_ns, hog};
use super::{ECALLS, ECALLS_PLAIN};
use crate::exit::{Code, Failure, Outcome};
use crate::output::note;
use program::{Program, READY};
pub(crate) use program::{SUBCOMMAND, part};
use trace::Trace;

const SECOND_NS: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// What comes first is not counted: the kernel's timers may not be watched yet.
const SETTLE_MS: u64 = 500;
/// The time in which a program begins that does not say when it has.
const BEGIN: Duration = Duration::from_secs(5);
/// How often the scheduler's holder attends to it.
const ATTEND: Duration = Duration::from_millis(50);
const HOGS: usize = 4;
/// Times that the holder attends before timers are armed for [`Subject::Hook`], and these timers.
const ARMING: u32 = 10;
const ARMED: u32 = 20_000;

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Loop,
    Python,
    Go,
    Ffplay,
    Mpv,
    /// What watching the kernel's timers costs a thread that has nothing to do with it.
    Hook,
}

const LATE: &[Figure] = &[
    Figure::P50,
    Figure::P99,
    Figure::Max,
    Figure::Wakes,
    Figure::OwnP50,
    Figure::OwnP99,
    Figure::HogCpu,
];

/// All of them.
pub(super) fn runs() -> Vec<Run> {
    let beside = "beside 8 players and 4 hogs: from its timers until it runs";
    let run = |subject, name: &str, what: &'static str, figures: &'static [Figure]| Run {
        workload: Workload {
            players: Vec::new(),
            is_one_group: false,
            hogs: HOGS,
            are_hogs_real_time: false,
        },
        polling: Polling::Unmodified(subject),
        rows: vec![Row {
            name: name.to_owned(),
            source: beside,
            what,
            figures,
        }],
    };
    let mut runs = vec![
        run(Subject::Loop, "coop_loop", "one thread of nanosleep", LATE),
        run(Subject::Python, "coop_python", "Python with asyncio", LATE),
        run(Subject::Go, "coop_go", "Go with time.Sleep", LATE),
        run(Subject::Ffplay, "coop_ffplay", "ffplay, 30 frames/s", LATE),
        run(Subject::Mpv, "coop_mpv", "mpv, 30 frames/s", LATE),
        run(
            Subject::Hook,
            "coop_hook",
            "a thread that is not timed arms a timer while timed threads exist",
            &[Figure::Arm],
        ),
    ];
    runs[5].rows[0].source = "without other load";
    runs
}

/// Measures a run under a scheduler: our own twice. Nothing where it cannot be measured, which is
/// said, or where it makes no sense.
pub(super) fn measure(
    subject: Subject,
    which: &Which,
    under: &mut Under,
    work: Work,
    seconds: u64,
) -> Result<Vec<(String, Figures)>, Failure> {
    let both: &[(bool, &str)] = match which {
        Which::Ecalls => &[(true, ECALLS), (false, ECALLS_PLAIN)],
        Which::RoundRobin => &[],
        Which::Eevdf | Which::Peer(_) => &[(false, "")],
    };
    let mut seen = Vec::new();
    for &(is_timed, name) in both {
        let name = match name {
            "" => which.to_string(),
            name => name.to_owned(),
        };
        let figures = match subject {
            Subject::Hook => Some(arm(under, is_timed)?),
            _ => beside(subject, under, is_timed, work, seconds)?,
        };
        under.check()?;
        seen.extend(figures.map(|figures| (name, figures)));
    }
    Ok(seen)
}

/// A child that has stopped itself, and becomes timed, or not, before it is continued.
struct Started {
    child: Child,
    _slot: Option<ChildSlot>,
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Started {
    /// `slots`: of the channel by which it becomes timed, and the number of its slot.
    fn begin(mut command: Command, slots: Option<(&Channel, usize)>) -> Result<Started, Failure> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| failed("starting a program", error))?;
        let mut started = Started { child, _slot: None };
        let pid = started.pid()?;
        waitid(
            WaitId::Pid(pid),
            WaitIdOptions::STOPPED | WaitIdOptions::EXITED,
        )
        .map_err(|error| failed("waiting for a program", error))?;
        if let Some((channel, number)) = slots {
            let id = started.child.id();
            started._slot = Some(channel.caller().hand_timed_slot(number, 0, id)?);
        }
        kill_process(pid, Signal::CONT).map_err(|error| failed("continuing a program", error))?;
        Ok(started)
    }

    fn pid(&self) -> Result<Pid, Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| Failure::new(Code::Failed, "a program without a process id"))
    }

    /// Its threads.
    fn threads(&self) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let names = tasks.into_iter().flatten().flatten();
        names
            .filter_map(|name| name.file_name().to_str()?.parse().ok())
            .collect()
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Failed, format!("{what}: {error}"))
}

/// The channel whose slots make programs timed.
fn slots(under: &Under, is_timed: bool) -> Result<Option<Channel>, Failure> {
    match under {
        Under::Ours { ecalls, .. } if is_timed => Ok(Some(ecalls.channel().open()?)),
        _ => Ok(None),
    }
}

/// A program beside players and hogs. `None`: it is not here.
fn beside(
    subject: Subject,
    under: &mut Under,
    is_timed: bool,
    work: Work,
    seconds: u64,
) -> Result<Option<Figures>, Failure> {
    let program = match Program::of(subject, seconds) {
        Ok(program) => program,
        Err(why) => {
            note(format_args!("without the row coop_* of {subject:?}: {why}"));
            return Ok(None);
        }
    };
    let trace = match Trace::new() {
        Ok(trace) => trace,
        Err(Failure::Message(Code::Unsupported, why)) => {
            note(format_args!("without the rows coop_*: {why}"));
            return Ok(None);
        }
        Err(failure) => return Err(failure),
    };
    let all = sched_getaffinity(None).map_err(|error| failed("asking for the CPUs", error))?;
    // What this thread starts inherits its CPU.
    join_cpu(last_cpu()?);
    let seen = observe(program, &trace, under, is_timed, work, seconds);
    let _ = sched_setaffinity(None, &all);
    seen.map(Some)
}

fn observe(
    program: Program,
    trace: &Trace,
    under: &mut Under,
    is_timed: bool,
    work: Work,
    seconds: u64,
) -> Result<Figures, Failure> {
    let channel = slots(under, is_timed)?;
    let slot = |number| channel.as_ref().map(|channel| (channel, number));
    let _players = Started::begin(Program::players().command, slot(0))?;
    let mut started = Started::begin(program.command, slot(1))?;
    // It begins without hogs, which some programs need minutes for otherwise.
    let mut lines = Lines::of(&mut started);
    if program.tells {
        lines.next(|line| line == READY)?;
    } else {
        thread::sleep(BEGIN);
    }
    let begin_ns = now_ns();
    let from_ns = begin_ns + SETTLE_MS * MS;
    let span = Span {
        begin_ns,
        from_ns,
        end_ns: from_ns + seconds * SECOND_NS,
    };
    thread::scope(|scope| {
        let hogs: Vec<_> = (0..HOGS)
            .map(|_| scope.spawn(move || hog(work, span)))
            .collect();
        let seen = watch(trace, &started, under, span);
        let mut had_ns = 0;
        for hog in hogs {
            let failed = |_| Failure::new(Code::Failed, "a hog ended by a panic");
            had_ns += hog.join().map_err(failed)?.usage.cpu_ns;
        }
        let late = seen?;
        let own = match program.tells {
            true => lines.next(|line| line != READY)?,
            false => String::new(),
        };
        let own: Vec<f64> = own.split_whitespace().flat_map(str::parse).collect();
        let own = |at| own.get(at).copied().unwrap_or(f64::NAN);
        let us = |ns: u64| ns as f64 / 1000.0;
        Ok(Figures::only(&[
            (Figure::P50, us(late.value_at_quantile(0.5))),
            (Figure::P99, us(late.value_at_quantile(0.99))),
            (Figure::Max, us(late.max())),
            (Figure::Wakes, late.len() as f64),
            (Figure::OwnP50, own(0)),
            (Figure::OwnP99, own(1)),
            (Figure::HogCpu, had_ns as f64 / (seconds * SECOND_NS) as f64),
        ]))
    })
}

/// How late the threads of a program are in the span, ns.
fn watch(
    trace: &Trace,
    started: &Started,
    under: &mut Under,
    span: Span,
) -> Result<Histogram<u64>, Failure> {
    let mut attend_until = |end_ns| -> Outcome {
        while now_ns() < end_ns {
            under.attend()?;
            thread::sleep(ATTEND);
        }
        Ok(())
    };
    attend_until(span.from_ns)?;
    trace.begin()?;
    attend_until(span.end_ns)?;
    trace.end(&started.threads())
}

/// The lines that a program prints.
struct Lines(BufReader<Box<dyn Read>>);

impl Lines {
    fn of(started: &mut Started) -> Lines {
        let out = started.child.stdout.take();
        let none = || Box::new(std::io::empty()) as Box<dyn Read>;
        Lines(BufReader::new(out.map_or_else(none, |out| Box::new(out))))
    }

    /// The next one, which is to be of some kind.
    fn next(&mut self, is_right: impl Fn(&str) -> bool) -> Result<String, Failure> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line);
        read.map_err(|error| failed("reading what a program prints", error))?;
        let line = line.trim_end();
        match !line.is_empty() && is_right(line) {
            true => Ok(line.to_owned()),
            false => Err(failed(
                "a program says what it should not",
                format!("{line:?}"),
            )),
        }
    }
}

/// CPU time of arming a timer beside a thread that sleeps, and is timed or not.
fn arm(under: &mut Under, is_timed: bool) -> Result<Figures, Failure> {
    let channel = slots(under, is_timed)?;
    let slot = channel.as_ref().map(|channel| (channel, 0));
    let mut sleep = Program::stopping();
    sleep.args(["sleep", "3600"]);
    let _timed = Started::begin(sleep, slot)?;
    for _ in 0..ARMING {
        under.attend()?;
        thread::sleep(ATTEND);
    }
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
        .map_err(|error| failed("making a timer", error))?;
    let never = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        },
    };
    let before = cpu_ns();
    for _ in 0..ARMED {
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &never)
            .map_err(|error| failed("arming a timer", error))?;
    }
    let ns = (cpu_ns() - before) as f64 / f64::from(ARMED);
    Ok(Figures::only(&[(Figure::Arm, ns)]))
}
