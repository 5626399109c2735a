//! A thread of the simulated machine: what it does is a [`Script`], what became of it its figures.

use crate::patience::Wait;
use crate::policy::{NEVER, NOBODY, Plain, Window};

/// Weight of a thread of nice 0 ([`Spec::weight`]).
pub(crate) const WEIGHT: u32 = 100;

/// What the policy may be told of one: that; the weight that the kernel's part tells
/// (`SHARE_NICE_0` in bpf/sched/share.h); and the least one, of a thread in a group that has next
/// to no share. So virtual time is as fast as time, much slower, or faster.
pub const NICE_0: [u32; 3] = [WEIGHT, 6400, 25];

/// What a thread does next, asked whenever it has the CPU and has done what it said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Run(u64),
    /// Sleeps for a time, in some other way than by a poll.
    Sleep(u64),
    /// `sched_yield`, of a thread that does not poll.
    Yield,
    /// `coop_poll`: with best-effort work (an importance) it yields, else it sleeps until the
    /// release.
    Poll {
        release_ns: u64,
        /// Of its first best-effort event.
        importance: u64,
    },
    /// Raises an event for another thread, which wakes if it sleeps for good or is told when it
    /// waits.
    Raise {
        /// Whose event it is.
        thread: usize,
        deadline_ns: u64,
    },
    /// Sends a message to a thread, which wakes if it sleeps until one comes.
    Send(usize),
    /// Takes a message that was sent to it, or sleeps until one comes.
    Receive,
    /// May run on another CPU only, from now on (it is plain, and bound).
    Go(usize),
    Exit,
}

/// What a thread sees when it is asked.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub now: u64,
    /// The slot's line 1: when to poll again, and the earliest release of the others.
    pub slice_end_ns: u64,
    /// The slot's line 1, too.
    pub next_release_ns: u64,
    /// Least importance of the others of its group.
    pub least_importance: u64,
    /// The slot's state: whether it is cooperative.
    pub cooperative: bool,
}

/// The behaviour of a thread.
pub trait Script {
    /// Says what the thread does next, and may note figures of its own.
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action;
}

/// What became of a thread.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub ran_ns: u64,
    /// Times it was given the CPU.
    pub turns: u64,
    /// Times it woke.
    pub wakes: u64,
    /// Longest time it waited for the CPU.
    pub waited_ns_max: u64,
    /// Times between the release of each timer and its dispatch, by the script.
    pub tardiness_ns: Vec<u64>,
    /// Units of work, such as frames, by the script.
    pub frames: u64,
}

impl Figures {
    /// The tardiness that a part (of 1) of the timers does not exceed.
    pub fn tardiness_at(&self, part: f64) -> u64 {
        let mut sorted = self.tardiness_ns.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        let at = (last as f64 * part).ceil() as usize;
        sorted.get(at).copied().unwrap_or(0)
    }
}

/// How a thread is registered with the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// 100 is nice 0; the policy is told `Machine::nice_0` for that.
    pub weight: u32,
    /// The machine's number of its group.
    pub group: Option<usize>,
    /// Whether it is an entity: it polls, has a window, or gets events. Else it is plain.
    pub registered: bool,
    /// Whether its program is timed: each `Action::Sleep` ends at a time that it has set.
    pub timed: bool,
    /// Its window, and whether it is work-conserving.
    pub window: Option<(Window, bool)>,
    pub cpu: usize,
    /// Whether it is plain and may not leave its CPU.
    pub bound: bool,
}

impl Spec {
    /// A thread that nobody has registered.
    pub fn plain(cpu: usize) -> Self {
        Self {
            weight: WEIGHT,
            group: None,
            registered: false,
            timed: false,
            window: None,
            cpu,
            bound: false,
        }
    }

    /// A thread of a program that runs with `ecalls run --coop`.
    pub fn timed(cpu: usize) -> Self {
        Self {
            timed: true,
            ..Self::registered(cpu)
        }
    }

    /// A thread that may poll and receive events.
    pub fn registered(cpu: usize) -> Self {
        Self {
            registered: true,
            ..Self::plain(cpu)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Asleep until an event that carries this number wakes it.
    Asleep(u64),
    Waiting,
    Running,
    Ended,
}

pub(crate) struct Thread {
    pub(crate) spec: Spec,
    pub(crate) script: Box<dyn Script>,
    pub(crate) figures: Figures,
    pub(crate) state: State,
    pub(crate) cpu: usize,
    /// Its number among the CPU's entities, or NOBODY.
    pub(crate) entity: u32,
    /// If it is plain: its virtual time. `group` is its group's number on this CPU.
    pub(crate) plain: Plain,
    /// What is left of its last `Run`.
    pub(crate) left_ns: u64,
    pub(crate) since_ns: u64,
    pub(crate) wait: Wait,
    /// When it last had each CPU.
    pub(crate) had_ns: Vec<u64>,
    /// Messages that were sent to it, and whether it sleeps until one comes.
    pub(crate) inbox: u32,
    /// It has woken, and has not run since.
    pub(crate) woken: bool,
    pub(crate) receives: bool,
    pub(crate) view: View,
    pub(crate) promised: bool,
}

impl Thread {
    pub(crate) fn new(spec: Spec, script: Box<dyn Script>, cpus: usize) -> Self {
        Self {
            spec,
            script,
            figures: Figures::default(),
            state: State::Asleep(0),
            cpu: spec.cpu,
            entity: NOBODY,
            plain: Plain {
                vtime: 0,
                weight: spec.weight,
                group: NOBODY,
                ..Plain::default()
            },
            left_ns: 0,
            since_ns: 0,
            wait: Wait::default(),
            had_ns: vec![0; cpus],
            inbox: 0,
            woken: false,
            receives: false,
            view: View {
                now: 0,
                slice_end_ns: 0,
                next_release_ns: NEVER,
                least_importance: NEVER,
                cooperative: false,
            },
            promised: false,
        }
    }
}
