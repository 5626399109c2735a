//! Rates: so many per second, a burst at once (a bucket of tokens, kept as one point in time).
//!
//! The bucket is the time at which it would be full; taking a token moves that forward by one
//! interval. It may lie at most a burst ahead of now. Nothing runs in between, and a bucket that is
//! full says the same as one that does not exist, so it can be forgotten.

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// How much per second, and how much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub per_s: u64,
    /// At least 1.
    pub burst: u64,
}

impl Rate {
    fn interval_ns(self) -> u64 {
        SECOND_NS / self.per_s.clamp(1, SECOND_NS)
    }
}

/// A user's bucket. The new one is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    full_ns: u64,
}

impl Bucket {
    /// Takes one token, whether it is there or not. How long to wait until it would have been
    /// there, ns; 0: it was.
    ///
    /// Whoever comes too early thus waits in line behind those that came before. The caller waits
    /// before it takes again, so a bucket is never more than its takers behind.
    pub fn take(&mut self, rate: Rate, now_ns: u64) -> u64 {
        let interval = rate.interval_ns();
        self.full_ns = self.full_ns.max(now_ns).saturating_add(interval);
        let burst_ns = interval.saturating_mul(rate.burst.max(1));
        (self.full_ns - now_ns).saturating_sub(burst_ns)
    }

    /// Whether it is full: as good as a new one.
    pub fn is_full(&self, now_ns: u64) -> bool {
        self.full_ns <= now_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_free_and_then_one_waits_for_each() {
        let rate = Rate {
            per_s: 1000,
            burst: 5,
        };
        let mut bucket = Bucket::default();
        let now = 1_000_000_000;
        for _ in 0..5 {
            assert_eq!(bucket.take(rate, now), 0);
        }
        assert_eq!(bucket.take(rate, now), 1_000_000);
        assert_eq!(bucket.take(rate, now), 2_000_000);
        assert!(!bucket.is_full(now));
        assert!(bucket.is_full(now + 7_000_000));
    }

    proptest! {
        /// Whoever waits as told takes at most `burst` and `per_s` in each second.
        #[test]
        fn nobody_is_faster_than_the_rate(
            per_s in 1u64..10_000,
            burst in 1u64..100,
            pauses in proptest::collection::vec(0u64..1_000_000, 1..400),
        ) {
            let rate = Rate { per_s, burst };
            let mut bucket = Bucket::default();
            let start = 5_000_000_000;
            let mut now = start;
            for (taken, pause) in pauses.iter().enumerate() {
                now += pause;
                now += bucket.take(rate, now);
                let allowed = burst + (now - start) / rate.interval_ns() ;
                prop_assert!((taken as u64) < allowed + 1, "{taken} of {allowed}");
            }
        }
    }
}
