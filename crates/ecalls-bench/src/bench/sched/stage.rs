//! Runs one workload: players and hogs as threads of their own, all on one CPU, beginning together.

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
/// From the agreement on a time to that time, ns: everybody has to learn of it.
const AGREED_NS: u64 = 20_000_000;
/// What comes first is not counted, ns.
const SETTLE_NS: u64 = 500_000_000;
/// Before the end demotions are counted, ns: a player that has ended does not poll any more.
const ENDING_NS: u64 = 5_000_000;
/// The priority of players in SCHED_RR: any is above everything that is not real-time.
const PRIORITY: &str = "1";

/// Threads to run together.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) players: Vec<Clip>,
    /// The players share by their user virtual time.
    pub(super) is_one_group: bool,
    pub(super) hogs: usize,
    /// In SCHED_RR, where players are, the hogs are, too.
    pub(super) are_hogs_real_time: bool,
}

/// How players wait, and in which class they run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Class<'a> {
    /// Timers of the kernel, like everybody.
    Plain,
    /// The same in SCHED_RR, the hogs below.
    RoundRobin,
    /// By a slot, cooperatively.
    Cooperative(&'a Ecalls),
}

/// What came of it.
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

/// What the threads agree on before they begin.
#[derive(Debug)]
struct Agreement {
    ready: Barrier,
    begun: Barrier,
    span: OnceLock<Span>,
    cpu: usize,
}

impl Agreement {
    /// Of so many threads, and of the one that lets them begin.
    fn of(threads: usize) -> Result<Agreement, Failure> {
        Ok(Agreement {
            ready: Barrier::new(threads + 1),
            begun: Barrier::new(threads + 1),
            span: OnceLock::new(),
            cpu: last_cpu()?,
        })
    }

    /// In a worker: waits for the beginning. None: it was called off.
    fn await_begin(&self) -> Option<Span> {
        self.ready.wait();
        self.begun.wait();
        self.span.get().copied()
    }

    /// Lets everybody begin. Until when it goes.
    fn begin(&self, seconds: u64) -> u64 {
        let begin_ns = now_ns() + AGREED_NS;
        let from_ns = begin_ns + SETTLE_NS;
        let end_ns = from_ns + seconds * SECOND_NS;
        let span = Span {
            begin_ns,
            from_ns,
            end_ns,
        };
        // Nobody else sets it.
        let _ = self.span.set(span);
        end_ns
    }
}

/// Demotions so far, by rule; None: nobody counts them.
pub(super) type Demotions = Option<[f64; 3]>;

/// Runs it for so long. `demotions` is asked before and towards the end.
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
                // Somebody listens.
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
        // All that shall be raised have told their number by now.
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

/// What was counted after `before`.
fn since(before: Demotions, after: Demotions) -> Demotions {
    let before = before.unwrap_or_default();
    after.map(|after| std::array::from_fn(|rule| after[rule] - before[rule]))
}

/// What the threads return; nothing of those that did not begin.
fn join<T>(threads: Vec<ScopedJoinHandle<'_, Option<T>>>) -> Result<Vec<T>, Failure> {
    // All of them end before anything is said of one.
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

/// In a worker: runs where the others do from now on.
pub(super) fn join_cpu(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // Refused only if that CPU has just gone: then everybody is where the kernel put them.
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

/// The CPU where it all happens: the last of those that this program may use.
pub(super) fn last_cpu() -> Result<usize, Failure> {
    let set = sched_getaffinity(None)
        .map_err(|error| Failure::new(Code::Failed, format!("asking for the CPUs: {error}")))?;
    let cpus = (0..CpuSet::MAX_CPU).rev();
    Ok(cpus.into_iter().find(|cpu| set.is_set(*cpu)).unwrap_or(0))
}
