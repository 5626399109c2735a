//! Rates with a number per second and a burst (a token bucket, stored as one point in time).
//!
//! The bucket is the time at which it would be full; taking a token moves it forward by one
//! interval. It may lie at most a burst ahead of now. Nothing runs in between, and a full bucket is
//! equivalent to one that does not exist, so it can be dropped.

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Number per second, and burst.
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

/// A user's bucket. A new one is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    full_ns: u64,
}

impl Bucket {
    /// Takes one token, whether it is available or not. Returns the time until it would have been
    /// available, ns; 0: it was.
    ///
    /// A caller that comes too early thus waits behind earlier ones. It waits before it takes
    /// another token, so a bucket never lags further behind than the number of its callers.
    pub fn take(&mut self, rate: Rate, now_ns: u64) -> u64 {
        let interval = rate.interval_ns();
        self.full_ns = self.full_ns.max(now_ns).saturating_add(interval);
        let burst_ns = interval.saturating_mul(rate.burst.max(1));
        (self.full_ns - now_ns).saturating_sub(burst_ns)
    }

    /// Whether it is full, which is equivalent to a new one.
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
        /// A caller that waits as told takes at most `burst` and `per_s` in each second.
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
