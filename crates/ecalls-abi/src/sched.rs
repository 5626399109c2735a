//! `abi/sched.h`: what the scheduler counts, and what else people can see of it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Nobody wanted the CPU.
pub const WHY_NOBODY: u32 = 0;
/// The chosen thread had the least virtual time (Coop §3.2).
pub const WHY_FAIR: u32 = 1;
/// The chosen thread's release was due (Coop §3.2).
pub const WHY_RELEASE: u32 = 2;
/// The chosen thread's window claims the CPU (ECalls-05 §4.1).
pub const WHY_WINDOW: u32 = 3;
/// The chosen thread is the sink of the first event (ECalls-05 §4.2).
pub const WHY_EVENT: u32 = 4;
/// Room for reasons.
pub const WHYS: usize = 8;

/// `struct ecalls_sched_count`: of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedCount {
    /// Choices by reason, `WHY_*`.
    pub chosen: [u64; WHYS],
    /// Of those: who ran went on.
    pub kept: u64,
    /// Who had become ready took the CPU at once.
    pub preempted: u64,
    /// Threads taken from a CPU that had more.
    pub balanced: u64,
    /// Threads taken because this CPU had none.
    pub stolen: u64,
    /// Threads that began to poll.
    pub entered: u64,
    /// Threads that ended, or went to another CPU.
    pub left: u64,
    /// Threads for which there was no place.
    pub full: u64,
    /// Polls.
    pub polls: u64,
    /// Demotions: ran past the slice and the slack.
    pub overran: u64,
    /// Demotions: slept other than in a poll.
    pub slept: u64,
    /// Demotions: virtual time too far beyond the least.
    pub ahead: u64,
    /// Times at which a thread had the CPU after its release.
    pub releases: u64,
    /// Of those, the worst tardiness: from the release to the CPU.
    pub tardiest_ns: u64,
    /// Wishes for a window that were granted, promised or not.
    pub windows: u64,
    /// Wishes for a window that were refused.
    pub refused: u64,
    /// Notes for which there was no place in the trace.
    pub untraced: u64,
    /// Tardiness of all, in buckets of us: two per power of two.
    pub tardiness: [u64; 64],
}

/// Fair: it said nothing, or is demoted.
pub const KIND_FAIR: u32 = 0;
/// It polls, and keeps the rules.
pub const KIND_COOPERATIVE: u32 = 1;
/// It has a window.
pub const KIND_WINDOW: u32 = 2;

/// A row that nobody has.
pub const SEEN_FREE: u32 = 0;
/// A thread's row.
pub const SEEN_THREAD: u32 = 1;
/// The row of a group on one CPU.
pub const SEEN_GROUP: u32 = 2;

/// Last runs of a CPU that are kept.
pub const SEEN_RUNS: usize = 64;
/// Worst tardinesses of a CPU that are kept.
pub const SEEN_WORST: usize = 16;
/// Threads that are named for one.
pub const SEEN_CULPRITS: usize = 8;

/// `struct ecalls_sched_samples`: times, by bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedSamples {
    /// The longest.
    pub max_ns: u64,
    /// How many, in buckets of us: two per power of two.
    pub count: [u32; 64],
}

impl SchedSamples {
    /// Adds another row's.
    pub fn add(&mut self, other: &SchedSamples) {
        self.max_ns = self.max_ns.max(other.max_ns);
        for (mine, theirs) in self.count.iter_mut().zip(other.count) {
            *mine = mine.wrapping_add(theirs);
        }
    }
}

/// `struct ecalls_sched_seen`: what is seen of a thread that told the scheduler something, or of a
/// group of such threads on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedSeen {
    /// `SEEN_*`.
    pub state: u32,
    /// `KIND_*`, of a thread.
    pub kind: u32,
    /// Of a thread.
    pub pid: u32,
    /// Of a thread.
    pub tid: u32,
    /// Whose it is.
    pub uid: u32,
    /// Its number; 0: the thread is in none.
    pub group: u32,
    /// The scheduler's own: the group's row.
    pub within: u32,
    /// Where it runs.
    pub cpu: u32,
    /// When the row began.
    pub since_ns: u64,
    /// Since when the thread waits for its CPU; 0: it does not.
    pub ready_ns: u64,
    /// Since when it runs; 0: it does not.
    pub began_ns: u64,
    /// CPU time.
    pub run_ns: u64,
    /// Demotions: ran past the slice and the slack.
    pub overran: u64,
    /// Demotions: slept other than in a poll.
    pub slept: u64,
    /// Demotions: virtual time too far beyond the least.
    pub ahead: u64,
    /// The thread's name when it began to poll.
    pub comm: [u8; 16],
    /// From the release to the CPU.
    pub tardiness: SchedSamples,
    /// From being ready to the CPU.
    pub delay: SchedSamples,
    /// From the CPU to the next thread's turn.
    pub slice: SchedSamples,
}

/// `struct ecalls_sched_run`: a thread had the CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedRun {
    /// From then on.
    pub from_ns: u64,
    /// Until then; 0: it runs.
    pub to_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// `KIND_*`.
    pub kind: u32,
    /// Zero.
    pub pad: u32,
    /// Its name.
    pub comm: [u8; 16],
}

/// `struct ecalls_sched_culprit`: who ran while a thread was late; that may be itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedCulprit {
    /// For how long.
    pub ran_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread; 0: nobody.
    pub tid: u32,
    /// `KIND_*`.
    pub kind: u32,
    /// Zero.
    pub pad: u32,
    /// Its name.
    pub comm: [u8; 16],
}

/// `struct ecalls_sched_worst`: one of the worst tardinesses.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedWorst {
    /// When the thread had the CPU; 0: nothing, or it is being written.
    pub at_ns: u64,
    /// When it was to have it.
    pub release_ns: u64,
    /// Between the two.
    pub tardy_ns: u64,
    /// Of that, when it did not wait for the CPU: it slept still, or ran.
    pub before_ns: u64,
    /// Of that, what nobody below had: interrupts, real-time threads, and whoever else ran.
    pub rest_ns: u64,
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Where.
    pub cpu: u32,
    /// Its group; 0: none.
    pub group: u32,
    /// Its name.
    pub comm: [u8; 16],
    /// Who ran meanwhile.
    pub by: [SchedCulprit; SEEN_CULPRITS],
}

/// `struct ecalls_sched_watch`: of a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedWatch {
    /// The scheduler's own: the least of the worst,
    pub least_ns: u64,
    /// since then.
    pub forgotten_ns: u64,
    /// Runs so far.
    pub next: u32,
    /// Zero.
    pub pad: u32,
    /// The last of them.
    pub run: [SchedRun; SEEN_RUNS],
    /// The worst tardinesses, in no order.
    pub worst: [SchedWorst; SEEN_WORST],
}

/// The CPU goes from thread `other` to this one.
pub const TRACE_SWITCH: u32 = 1;
/// A thread is woken.
pub const TRACE_WAKE: u32 = 2;
/// A thread polls.
pub const TRACE_POLL: u32 = 3;
/// A thread has the CPU after its release.
pub const TRACE_RELEASE: u32 = 4;
/// A thread breaks a rule.
pub const TRACE_DEMOTED: u32 = 5;
/// A thread runs by its window.
pub const TRACE_WINDOW: u32 = 6;
/// A thread is chosen other than by share.
pub const TRACE_CHOSEN: u32 = 7;
/// An event is delivered.
pub const TRACE_EVENT: u32 = 8;

/// The rule that was broken: it ran past the slice and the slack.
pub const TRACE_OVERRAN: u32 = 0;
/// It slept other than in a poll.
pub const TRACE_SLEPT: u32 = 1;
/// Its virtual time is too far beyond the least.
pub const TRACE_AHEAD: u32 = 2;

/// Keep the trace on for a while.
pub const ASK_TRACE: u32 = 1;
/// End it.
pub const ASK_END: u32 = 2;
/// Forget the worst cases.
pub const ASK_FORGET: u32 = 3;

/// `struct ecalls_sched_note`: one thing that happened, of a trace. What the numbers mean depends
/// on `what`; abi/sched.h tells.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedNote {
    /// When.
    pub at_ns: u64,
    /// A time: of the release, of the raise; or the former thread's state.
    pub value: u64,
    /// Priorities, or the event's id.
    pub more: u64,
    /// `TRACE_*`.
    pub what: u32,
    /// Where.
    pub cpu: u32,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Another thread, or the service.
    pub other: u32,
    /// Which kind, rule or CPU.
    pub which: u32,
    /// The thread's name.
    pub comm: [u8; 16],
}

impl SchedCount {
    /// Adds another CPU's.
    pub fn add(&mut self, other: &SchedCount) {
        let worst = self.tardiest_ns.max(other.tardiest_ns);
        *self = self.each(other, u64::wrapping_add);
        self.tardiest_ns = worst;
    }

    /// What was counted after `before`. The worst is that of all times.
    pub fn since(&self, before: &SchedCount) -> SchedCount {
        let mut rest = self.each(before, u64::wrapping_sub);
        rest.tardiest_ns = self.tardiest_ns;
        rest
    }

    fn each(&self, other: &SchedCount, make: fn(u64, u64) -> u64) -> SchedCount {
        let mut made = [0u64; size_of::<SchedCount>() / 8];
        let (mine, theirs) = (self.as_bytes(), other.as_bytes());
        for ((made, mine), theirs) in made.iter_mut().zip(words(mine)).zip(words(theirs)) {
            *made = make(mine, theirs);
        }
        SchedCount::read_from_bytes(made.as_bytes()).unwrap_or(*self)
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let words = bytes.chunks_exact(8);
    words.filter_map(|word| Some(u64::from_ne_bytes(*word.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn counts_add_up_or_are_taken_off_and_the_worst_stays() {
        let mut a = SchedCount::new_zeroed();
        let mut b = SchedCount::new_zeroed();
        (a.polls, a.tardiest_ns, a.tardiness[3]) = (1, 9, 2);
        (b.polls, b.tardiest_ns, b.tardiness[3]) = (5, 4, 1);
        a.add(&b);
        assert_eq!((a.polls, a.tardiest_ns, a.tardiness[3]), (6, 9, 3));
        let rest = a.since(&b);
        assert_eq!((rest.polls, rest.tardiest_ns, rest.tardiness[3]), (1, 9, 2));
    }
}
