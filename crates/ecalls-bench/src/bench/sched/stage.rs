//! Runs one workload: players and hogs as threads, all on one CPU, with a common beginning.

use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Barrier, OnceLock};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use ecalls::{Channel, Ecalls, now_ns};
use ecalls_loop::Loop;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use super::player::{Clip, Played, play};
use super::viewer::Viewer;
use super::work::{Burned, Span, Work, hog};
use crate::exit::{Code, Failure};

const SECOND_NS: u64 = 1_000_000_000;
/// Time between the agreement on the beginning and the beginning, ns, so that all threads learn of
/// it.
const AGREED_NS: u64 = 20_000_000;
/// The first part of a run is not counted, ns.
const SETTLE_NS: u64 = 500_000_000;
/// Time before the end at which demotions are counted, ns: a player that has ended polls no more.
const ENDING_NS: u64 = 5_000_000;
/// The priority of players in SCHED_RR: each precedes all threads that are not real-time.
const PRIORITY: &str = "1";

/// The threads of a workload.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) players: Vec<Clip>,
    /// The players are one group and share by their user virtual time.
    pub(super) is_one_group: bool,
    pub(super) hogs: usize,
    /// Whether the hogs run in SCHED_RR too when the players do.
    pub(super) are_hogs_real_time: bool,
}

/// How players wait, and their scheduling class.
#[derive(Clone, Copy, Debug)]
pub(super) enum Class<'a> {
    /// Kernel timers, in the default class.
    Plain,
    /// The same in SCHED_RR, and the hogs in the default class.
    RoundRobin,
    /// By a slot, cooperatively.
    Cooperative(&'a Ecalls),
}

/// The results of a run.
#[derive(Debug)]
pub(super) struct Seen {
    /// Seconds that were counted.
    pub(super) seconds: f64,
    pub(super) players: Vec<Played>,
    pub(super) hogs: Vec<Burned>,
    /// By rule: overran, slept, ahead.
    pub(super) demotions: Demotions,
}

/// A player that is ready to begin.
enum Player {
    Loop(Box<Loop>),
    Viewer(Viewer),
}

impl Player {
    fn on(events: Loop) -> Player {
        Player::Loop(Box::new(events))
    }

    fn play(self, clip: Clip, number: u64, work: Work, span: Span) -> Result<Played, Failure> {
        match self {
            Player::Loop(events) => play(&events, clip, number, work, span),
            Player::Viewer(viewer) => viewer.play(work, span),
        }
    }
}

/// The threads' agreement on a beginning.
#[derive(Debug)]
struct Agreement {
    ready: Barrier,
    begun: Barrier,
    span: OnceLock<Span>,
    cpu: usize,
}

impl Agreement {
    /// An agreement of `threads` threads and the one that starts them.
    fn of(threads: usize) -> Result<Agreement, Failure> {
        Ok(Agreement {
            ready: Barrier::new(threads + 1),
            begun: Barrier::new(threads + 1),
            span: OnceLock::new(),
            cpu: last_cpu()?,
        })
    }

    /// In a worker: waits for the beginning. `None`: the run was cancelled.
    fn await_begin(&self) -> Option<Span> {
        self.ready.wait();
        self.begun.wait();
        self.span.get().copied()
    }

    /// Starts all threads. Returns the end of the run.
    fn begin(&self, seconds: u64) -> u64 {
        let begin_ns = now_ns() + AGREED_NS;
        let from_ns = begin_ns + SETTLE_NS;
        let end_ns = from_ns + seconds * SECOND_NS;
        let span = Span {
            begin_ns,
            from_ns,
            end_ns,
        };
        // Only this thread sets it.
        let _ = self.span.set(span);
        end_ns
    }
}

/// The number of demotions so far, by rule; `None`: the scheduler does not count them.
pub(super) type Demotions = Option<[f64; 3]>;

/// Runs a workload for `seconds`. `demotions` is called before the run and near its end.
pub(super) fn run(
    workload: &Workload,
    class: Class<'_>,
    work: Work,
    seconds: u64,
    demotions: impl Fn() -> Result<Demotions, Failure>,
) -> Result<Seen, Failure> {
    let agreement = &Agreement::of(workload.players.len() + workload.hogs)?;
    let ecalls = match class {
        Class::Cooperative(ecalls) => Some(ecalls),
        Class::Plain | Class::RoundRobin => None,
    };
    let slots = ecalls.map(|ecalls| ecalls.channel().open()).transpose()?;
    let (slots, group) = (slots.as_ref(), u32::from(workload.is_one_group));
    thread::scope(|scope| {
        let (tell, tids) = channel();
        let player = |(number, &clip): (usize, &Clip)| {
            let tell = tell.clone();
            scope.spawn(move || {
                join_cpu(agreement.cpu);
                let player = match clip.live_from_ns {
                    Some(from_ns) => Viewer::new(ecalls, clip, from_ns).map(Player::Viewer),
                    None => make_loop(slots, number, group).map(Player::on),
                };
                // The receiver exists.
                let _ = tell.send(gettid());
                let span = agreement.await_begin()?;
                Some(player.and_then(|player| player.play(clip, number as u64, work, span)))
            })
        };
        let players: Vec<_> = workload.players.iter().enumerate().map(player).collect();
        let hog = |_| {
            let tell = workload.are_hogs_real_time.then(|| tell.clone());
            scope.spawn(move || {
                join_cpu(agreement.cpu);
                let _ = tell.map(|tell| tell.send(gettid()));
                agreement.await_begin().map(|span| hog(work, span))
            })
        };
        let hogs: Vec<_> = (0..workload.hogs).map(hog).collect();
        agreement.ready.wait();
        // All threads that are to become real-time have sent their ids by now.
        let raised = match class {
            Class::RoundRobin => tids.try_iter().try_for_each(raise),
            Class::Plain | Class::Cooperative(_) => Ok(()),
        };
        let before = demotions();
        let mut after = Ok(None);
        let end_ns = raised.is_ok().then(|| agreement.begin(seconds));
        agreement.begun.wait();
        if let Some(end_ns) = end_ns {
            let left_ns = end_ns.saturating_sub(now_ns() + ENDING_NS);
            thread::sleep(Duration::from_nanos(left_ns));
            after = demotions();
        }
        let (players, hogs) = (join(players)?, join(hogs)?);
        raised?;
        Ok(Seen {
            seconds: seconds as f64,
            players: players.into_iter().collect::<Result<_, _>>()?,
            hogs,
            demotions: since(before?, after?),
        })
    })
}

/// The demotions after `before`.
fn since(before: Demotions, after: Demotions) -> Demotions {
    let before = before.unwrap_or_default();
    after.map(|after| std::array::from_fn(|rule| after[rule] - before[rule]))
}

/// The results of the threads; nothing for threads that did not begin.
fn join<T>(threads: Vec<ScopedJoinHandle<'_, Option<T>>>) -> Result<Vec<T>, Failure> {
    // All threads end before an error of one is reported.
    let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    let failed = |_| Failure::new(Code::Failed, "a thread of the workload ended by a panic");
    let values = ended.into_iter().map(|value| value.map_err(failed));
    values.filter_map(Result::transpose).collect()
}

fn make_loop(slots: Option<&Channel>, number: usize, group: u32) -> Result<Loop, Failure> {
    let made = match slots {
        Some(channel) => Loop::by_slot(channel.caller(), number, group),
        None => Loop::new(),
    };
    made.map_err(|error| Failure::new(Code::Failed, format!("a player's event loop: {error}")))
}

/// In a worker: binds the thread to the CPU of all others.
pub(super) fn join_cpu(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // This fails only if that CPU has just gone offline; then the kernel chooses one for all
    // threads.
    let _ = sched_setaffinity(None, &set);
}

/// Puts a thread into SCHED_RR.
pub(super) fn raise(thread: Pid) -> Result<(), Failure> {
    let tid = thread.as_raw_nonzero().to_string();
    let status = Command::new("chrt")
        .args(["-r", "-p", PRIORITY, &tid])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::new(
            Code::Denied,
            "SCHED_RR needs root, or more real-time time for this control group",
        )),
        Err(error) => Err(Failure::new(
            Code::Failed,
            format!("starting chrt: {error}"),
        )),
    }
}

/// The CPU of the workload: the last one that this program may use.
pub(super) fn last_cpu() -> Result<usize, Failure> {
    let set = sched_getaffinity(None)
        .map_err(|error| Failure::new(Code::Failed, format!("asking for the CPUs: {error}")))?;
    let cpus = (0..CpuSet::MAX_CPU).rev();
    Ok(cpus.into_iter().find(|cpu| set.is_set(*cpu)).unwrap_or(0))
}
