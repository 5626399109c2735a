//! `abi/sched.h`: what the scheduler counts, one element per CPU.

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
    /// Zero.
    pub pad: [u64; 1],
    /// Tardiness of all, in buckets of us: two per power of two.
    pub tardiness: [u64; 64],
}

impl SchedCount {
    /// Adds another CPU's.
    pub fn add(&mut self, other: &SchedCount) {
        let worst = self.tardiest_ns.max(other.tardiest_ns);
        let mut sums = [0u64; size_of::<SchedCount>() / 8];
        let (mine, theirs) = (self.as_bytes(), other.as_bytes());
        for ((sum, mine), theirs) in sums.iter_mut().zip(words(mine)).zip(words(theirs)) {
            *sum = mine.wrapping_add(theirs);
        }
        if let Ok(sum) = SchedCount::read_from_bytes(sums.as_bytes()) {
            *self = sum;
        }
        self.tardiest_ns = worst;
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
    fn counts_add_up_and_the_worst_stays() {
        let mut a = SchedCount::new_zeroed();
        let mut b = SchedCount::new_zeroed();
        (a.polls, a.tardiest_ns, a.tardiness[3]) = (1, 9, 2);
        (b.polls, b.tardiest_ns, b.tardiness[3]) = (5, 4, 1);
        a.add(&b);
        assert_eq!((a.polls, a.tardiest_ns, a.tardiness[3]), (6, 9, 3));
    }
}
