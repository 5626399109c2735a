//! Known amounts of computation, and the resources that a thread has used.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};

use super::track::Track;

/// Steps that are computed between two readings of the clock.
const BATCH: u64 = 64;
/// Rounds of the speed measurement, of which the best counts, since other work may disturb one.
const ROUNDS: usize = 7;
const ROUND_STEPS: u64 = 100_000;

/// More than the length of a thread's three counters as text.
const COUNTS_BYTES: usize = 128;
/// The index of the number of turns among them.
const TURNS: usize = 2;

/// The interval in which a workload runs, by CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) begin_ns: u64,
    /// The time before it is not counted, because threads have only just begun.
    pub(super) from_ns: u64,
    pub(super) end_ns: u64,
}

/// The speed of this machine's computation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    steps_per_ms: u64,
}

impl Work {
    /// Measures the speed by the calling thread's CPU time.
    pub(super) fn measure() -> Work {
        let round = |_| {
            let start = cpu_ns();
            steps(ROUND_STEPS);
            cpu_ns().saturating_sub(start).max(1)
        };
        let best_ns = (0..ROUNDS).map(round).min().unwrap_or(1);
        Work {
            steps_per_ms: (ROUND_STEPS * 1_000_000 / best_ns).max(1),
        }
    }

    /// Computes for this CPU time.
    pub(super) fn spend(self, ns: u64) {
        steps(self.steps_per_ms * ns / 1_000_000);
    }
}

fn steps(count: u64) {
    let mut state = 1_u64;
    for begun in (0..count).step_by(BATCH as usize) {
        for _ in 0..BATCH.min(count - begun) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        state = black_box(state);
    }
}

/// The resources that a thread has used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) cpu_ns: u64,
    /// The number of times that it received the CPU after another thread.
    pub(super) switches: u64,
}

/// Reads the usage of the calling thread. All players read it at the same moment, so it must be
/// fast: the file is open already and holds three numbers, whereas the kernel needs 0.2 ms in the
/// test machine to write a thread's status.
#[derive(Debug)]
pub(super) struct Meter(Option<File>);

impl Meter {
    /// A meter of the calling thread.
    pub(super) fn new() -> Meter {
        // Without /proc there are no counts of switches; everything else works.
        Meter(File::open("/proc/thread-self/schedstat").ok())
    }

    /// The usage so far.
    pub(super) fn read(&self) -> Usage {
        let mut text = [0; COUNTS_BYTES];
        let read = self
            .0
            .as_ref()
            .and_then(|file| file.read_at(&mut text, 0).ok());
        let text = String::from_utf8_lossy(&text[..read.unwrap_or(0)]);
        let turns = text.split_whitespace().nth(TURNS);
        Usage {
            cpu_ns: cpu_ns(),
            switches: turns.and_then(|count| count.parse().ok()).unwrap_or(0),
        }
    }
}

impl Usage {
    /// The usage since `before`.
    pub(super) fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            switches: self.switches.saturating_sub(before.switches),
        }
    }
}

/// CPU time of the calling thread.
pub(super) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// The results of a hog.
#[derive(Debug)]
pub(super) struct Burned {
    pub(super) usage: Usage,
    pub(super) track: Track,
}

/// A hog only computes, and reads the clock after every 20 us of its CPU time.
pub(super) fn hog(work: Work, span: Span) -> Burned {
    const LOOK_NS: u64 = 20_000;
    let meter = Meter::new();
    let mut at_start = None;
    let mut track = Track::new(span);
    loop {
        work.spend(LOOK_NS);
        let now_ns = ecalls::now_ns();
        track.look(now_ns, 0);
        if now_ns >= span.from_ns && at_start.is_none() {
            at_start = Some(meter.read());
        }
        if now_ns >= span.end_ns {
            let now = meter.read();
            let usage = now.since(at_start.unwrap_or(now));
            return Burned { usage, track };
        }
    }
}

/// Pseudo-random numbers, the same in each run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.checked_rem(limit).unwrap_or(0)
    }
}

/// Jain's index of fairness: 1 if all shares are equal, 1 / n if one thread has everything.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_1_for_equal_shares_and_a_part_for_one_who_has_all() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-9);
        assert!((jain(&[0.0, 0.0]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn random_numbers_repeat_and_keep_their_limit() {
        let (mut one, mut other) = (Random::new(3), Random::new(3));
        for _ in 0..1000 {
            let number = one.below(7);
            assert!(number < 7 && number == other.below(7));
        }
        assert_eq!(one.below(0), 0);
    }
}
