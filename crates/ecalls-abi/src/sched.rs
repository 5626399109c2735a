//! `abi/sched.h`: the scheduler's counters and statistics.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// No thread wanted the CPU.
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
    /// Of those: the running thread continued.
    pub kept: u64,
    /// A thread that became ready preempted the running one.
    pub preempted: u64,
    /// Threads taken from a CPU with a higher load.
    pub balanced: u64,
    /// Threads taken because this CPU was idle.
    pub stolen: u64,
    /// Threads that began to poll.
    pub entered: u64,
    /// Threads that ended, or migrated to another CPU.
    pub left: u64,
    /// Threads without a free place.
    pub full: u64,
    /// Polls.
    pub polls: u64,
    /// Demotions: ran past the slice and the slack.
    pub overran: u64,
    /// Demotions: slept outside a poll.
    pub slept: u64,
    /// Demotions: virtual time too far beyond the least.
    pub ahead: u64,
    /// Times at which a thread got the CPU after its release.
    pub releases: u64,
    /// Of those, the worst tardiness: from the release to the CPU.
    pub tardiest_ns: u64,
    /// Wishes for a window that were granted, promised or not.
    pub windows: u64,
    /// Wishes for a window that were refused.
    pub refused: u64,
    /// Records for which the trace had no room.
    pub untraced: u64,
    /// Times at which a thread began to wait for the quota of its control group (cpu.max).
    pub parked: u64,
    /// Threads that ran because they had waited for ten seconds: with few threads, none does.
    pub overdue: u64,
    /// Tardiness of all, in buckets of us: two per power of two.
    pub tardiness: [u64; 64],
}

/// Fair: the thread does not poll, or is demoted.
pub const KIND_FAIR: u32 = 0;
/// It polls, and keeps the rules.
pub const KIND_COOPERATIVE: u32 = 1;
/// It has a window.
pub const KIND_WINDOW: u32 = 2;

/// An unused row.
pub const SEEN_FREE: u32 = 0;
/// A thread's row.
pub const SEEN_THREAD: u32 = 1;
/// The row of a group on one CPU.
pub const SEEN_GROUP: u32 = 2;

/// Number of a CPU's last runs that are stored.
pub const SEEN_RUNS: usize = 64;
/// Number of a CPU's worst cases of tardiness that are stored.
pub const SEEN_WORST: usize = 16;
/// Number of threads that are stored for one worst case.
pub const SEEN_CULPRITS: usize = 8;

/// `struct ecalls_sched_samples`: times, by bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedSamples {
    /// The longest.
    pub max_ns: u64,
    /// Counts, in buckets of us: two per power of two.
    pub count: [u32; 64],
}

impl SchedSamples {
    /// Adds the counts of another row.
    pub fn add(&mut self, other: &SchedSamples) {
        self.max_ns = self.max_ns.max(other.max_ns);
        for (mine, theirs) in self.count.iter_mut().zip(other.count) {
            *mine = mine.wrapping_add(theirs);
        }
    }
}

/// `struct ecalls_sched_seen`: statistics of a thread with scheduling attributes of its own, or of
/// a group of such threads on one CPU.
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
    /// Its user.
    pub uid: u32,
    /// The group's number; 0: the thread is in no group.
    pub group: u32,
    /// Used by the scheduler: the group's row.
    pub within: u32,
    /// Its CPU.
    pub cpu: u32,
    /// When the row began.
    pub since_ns: u64,
    /// Since when the thread waits for its CPU; 0: it does not wait.
    pub ready_ns: u64,
    /// Since when it runs; 0: it does not run.
    pub began_ns: u64,
    /// CPU time.
    pub run_ns: u64,
    /// Demotions: ran past the slice and the slack.
    pub overran: u64,
    /// Demotions: slept outside a poll.
    pub slept: u64,
    /// Demotions: virtual time too far beyond the least.
    pub ahead: u64,
    /// The thread's name when it began to poll.
    pub comm: [u8; 16],
    /// From the release until the thread got the CPU.
    pub tardiness: SchedSamples,
    /// From becoming ready until the thread got the CPU.
    pub delay: SchedSamples,
    /// From getting the CPU until the next thread got it.
    pub slice: SchedSamples,
}

/// `struct ecalls_sched_run`: one run of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedRun {
    /// Begin.
    pub from_ns: u64,
    /// End; 0: the thread still runs.
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

/// `struct ecalls_sched_culprit`: a thread that ran while another one was late; it may be the late
/// thread itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedCulprit {
    /// Its CPU time in this interval.
    pub ran_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread; 0: the entry is unused.
    pub tid: u32,
    /// `KIND_*`.
    pub kind: u32,
    /// Zero.
    pub pad: u32,
    /// Its name.
    pub comm: [u8; 16],
}

/// `struct ecalls_sched_worst`: one of the worst cases of tardiness.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedWorst {
    /// When the thread got the CPU; 0: the entry is unused or being written.
    pub at_ns: u64,
    /// Its release time.
    pub release_ns: u64,
    /// The difference of the two.
    pub tardy_ns: u64,
    /// Of that, the time in which it did not wait for the CPU: it still slept, or ran.
    pub before_ns: u64,
    /// Of that, the time of no thread below: interrupts, real-time threads, and further threads.
    pub rest_ns: u64,
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// Its group; 0: none.
    pub group: u32,
    /// Its name.
    pub comm: [u8; 16],
    /// The threads that ran meanwhile.
    pub by: [SchedCulprit; SEEN_CULPRITS],
}

/// `struct ecalls_sched_watch`: runs and worst cases of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedWatch {
    /// Used by the scheduler: the least tardiness of the worst cases,
    pub least_ns: u64,
    /// since the time when they were forgotten.
    pub forgotten_ns: u64,
    /// Number of runs so far.
    pub next: u32,
    /// Zero.
    pub pad: u32,
    /// The last runs.
    pub run: [SchedRun; SEEN_RUNS],
    /// The worst cases, in no order.
    pub worst: [SchedWorst; SEEN_WORST],
}

/// The CPU switches from thread `other` to this one.
pub const TRACE_SWITCH: u32 = 1;
/// A thread is woken.
pub const TRACE_WAKE: u32 = 2;
/// A thread polls.
pub const TRACE_POLL: u32 = 3;
/// A thread gets the CPU after its release.
pub const TRACE_RELEASE: u32 = 4;
/// A thread breaks a rule.
pub const TRACE_DEMOTED: u32 = 5;
/// A thread runs by its window.
pub const TRACE_WINDOW: u32 = 6;
/// A thread is chosen for another reason than its virtual time.
pub const TRACE_CHOSEN: u32 = 7;
/// An event is delivered.
pub const TRACE_EVENT: u32 = 8;

/// The broken rule: the thread ran past the slice and the slack.
pub const TRACE_OVERRAN: u32 = 0;
/// It slept outside a poll.
pub const TRACE_SLEPT: u32 = 1;
/// Its virtual time is too far beyond the least.
pub const TRACE_AHEAD: u32 = 2;

/// Keep the trace on for a limited time.
pub const ASK_TRACE: u32 = 1;
/// End the trace.
pub const ASK_END: u32 = 2;
/// Discard the worst cases.
pub const ASK_FORGET: u32 = 3;

/// `struct ecalls_sched_note`: one record of a trace. The meaning of the numbers depends on `what`
/// (abi/sched.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SchedNote {
    /// Time of the record.
    pub at_ns: u64,
    /// A time: of the release, of the raise; or the former thread's state.
    pub value: u64,
    /// Priorities, or the event's id.
    pub more: u64,
    /// `TRACE_*`.
    pub what: u32,
    /// The CPU.
    pub cpu: u32,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Another thread, or the service.
    pub other: u32,
    /// The kind, rule or CPU.
    pub which: u32,
    /// The thread's name.
    pub comm: [u8; 16],
}

impl SchedCount {
    /// Adds the counters of another CPU.
    pub fn add(&mut self, other: &SchedCount) {
        let worst = self.tardiest_ns.max(other.tardiest_ns);
        *self = self.each(other, u64::wrapping_add);
        self.tardiest_ns = worst;
    }

    /// The counts since `before`. The maximum is that of all times.
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
