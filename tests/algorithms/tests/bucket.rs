//! The token bucket against the promise it makes: at most burst + T / interval events in any time
//! T, and each event that keeps the rate passes.

use algorithms::{Table, full};
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;

/// A bucket as a caller keeps it.
struct Bucket {
    table: &'static Table,
    tat: u64,
    interval_ns: u64,
    burst: u64,
}

impl Bucket {
    fn new(interval_ns: u64, burst: u64) -> Self {
        Self {
            table: full(),
            tat: 0,
            interval_ns,
            burst,
        }
    }

    fn passes(&mut self, now_ns: u64) -> bool {
        let (allowed, next) =
            self.table
                .bucket_next(self.tat, now_ns, self.interval_ns, self.burst);
        self.tat = next;
        allowed
    }

    fn passes_of(&mut self, events: u64, now_ns: u64) -> u64 {
        (0..events).filter(|_| self.passes(now_ns)).count() as u64
    }
}

/// The plain token bucket, exact: tokens in fractions of 1 / interval, refilled by time.
struct Tokens {
    level: u128,
    at_ns: u64,
}

impl Tokens {
    fn passes(&mut self, now_ns: u64, interval_ns: u64, burst: u64) -> bool {
        let interval = u128::from(interval_ns);
        let refill = u128::from(now_ns - self.at_ns);
        self.level = (self.level + refill).min(u128::from(burst) * interval);
        self.at_ns = now_ns;
        if self.level < interval {
            return false;
        }
        self.level -= interval;
        true
    }
}

proptest! {
    #[test]
    fn decides_as_a_token_bucket_that_starts_full(
        interval_ns in prop_oneof![1..20u64, 1..SECOND_NS, Just(1u64 << 47)],
        burst in prop_oneof![1..5u64, 1..1000u64, Just(1u64 << 16)],
        start_ns in 0..1u64 << 60,
        gaps in prop::collection::vec((0..4u64, 0..4u64), 1..300),
    ) {
        let mut bucket = Bucket::new(interval_ns, burst);
        let mut tokens = Tokens { level: u128::MAX / 2, at_ns: start_ns };
        let mut now_ns = start_ns;
        for (quarters, odd) in gaps {
            now_ns += interval_ns / 4 * quarters + odd;
            prop_assert_eq!(bucket.passes(now_ns), tokens.passes(now_ns, interval_ns, burst));
        }
    }

    #[test]
    fn clocks_that_differ_never_let_more_through(
        interval_ns in 1..1000u64,
        burst in 1..20u64,
        times in prop::collection::vec(0..2000u64, 1..400),
    ) {
        let mut bucket = Bucket::new(interval_ns, burst);
        let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
        let passed = times.iter().filter(|&&now_ns| bucket.passes(now_ns)).count() as u64;
        prop_assert!(passed <= burst + (last - first) / interval_ns);
    }

    #[test]
    fn any_word_and_any_time_recover_within_an_interval_and_the_skew(
        tat in any::<u64>(),
        now_ns in 0..1u64 << 61,
        interval_ns in prop_oneof![1..1000u64, any::<u64>().prop_map(|n| n.max(1))],
        burst in prop_oneof![0..100u64, any::<u64>()],
    ) {
        let mut bucket = Bucket { tat, ..Bucket::new(interval_ns, burst) };
        if !bucket.passes(now_ns) {
            let interval_ns = interval_ns.min(bucket.table.bucket_interval_max_ns);
            prop_assert!(bucket.passes(now_ns + interval_ns + bucket.table.bucket_skew_ns));
        }
    }

    #[test]
    fn refusal_within_the_skew_changes_nothing(
        now_ns in 0..1u64 << 60,
        interval_ns in 1..SECOND_NS,
        burst in 1..100u64,
        back_ns in 0..SECOND_NS,
    ) {
        let mut bucket = Bucket::new(interval_ns, burst);
        let now_ns = now_ns + SECOND_NS;
        bucket.passes_of(burst, now_ns);
        let full = bucket.tat;
        prop_assert!(!bucket.passes(now_ns - back_ns) && bucket.tat == full);
    }

    #[test]
    fn word_never_goes_back_when_an_event_passes(
        tat in any::<u64>(),
        now_ns in any::<u64>(),
        interval_ns in any::<u64>(),
        burst in any::<u64>(),
    ) {
        let (allowed, next) = full().bucket_next(tat, now_ns, interval_ns, burst);
        prop_assert!(!allowed || next >= tat);
    }
}

#[test]
fn burst_passes_at_once_and_then_one_per_interval() {
    let mut bucket = Bucket::new(100, 5);
    assert_eq!(bucket.passes_of(20, 1000), 5);
    assert_eq!(bucket.passes_of(20, 1099), 0);
    assert_eq!(bucket.passes_of(20, 1100), 1);
    assert_eq!(bucket.passes_of(20, 1399), 2);
    assert_eq!(bucket.passes_of(20, 1_000_000), 5);
}

#[test]
fn interval_of_zero_lets_everything_pass() {
    let mut bucket = Bucket::new(0, 0);
    assert_eq!(bucket.passes_of(1000, 7), 1000);
    assert_eq!(bucket.tat, 0);
}

#[test]
fn burst_of_zero_counts_as_one() {
    let mut bucket = Bucket::new(100, 0);
    assert_eq!(bucket.passes_of(10, 1000), 1);
    assert_eq!(bucket.passes_of(10, 1100), 1);
}

#[test]
fn settings_beyond_the_limits_count_as_the_limits() {
    let mut bucket = Bucket::new(u64::MAX, u64::MAX);
    assert_eq!(bucket.passes_of(100_000, 1), 1 << 16);
    assert_eq!(bucket.passes_of(2, 1 + (1 << 47)), 1);
}

#[test]
fn shorter_interval_takes_effect_after_one_interval() {
    let mut bucket = Bucket::new(60 * SECOND_NS, 1000);
    assert_eq!(bucket.passes_of(2000, 1), 1000);
    bucket.interval_ns = 10;
    assert!(!bucket.passes(2));
    // The burst was used up: it comes back one by one.
    assert_eq!(bucket.passes_of(5, 12), 1);
    assert_eq!(bucket.passes_of(5, 32), 2);
}

#[test]
fn clock_that_goes_far_back_blocks_for_one_interval_only() {
    let mut bucket = Bucket::new(100, 3);
    assert_eq!(bucket.passes_of(5, 3600 * SECOND_NS), 3);
    assert!(!bucket.passes(5));
    assert_eq!(bucket.passes_of(5, 105), 1);
}

#[test]
fn many_small_charges_get_no_more_than_the_budget() {
    let (total_ns, per_second) = (400_000_000, 72_486_957);
    let share = (total_ns + 100_000_000) * per_second / 1_000_000_000;
    assert!(spend(1_042, per_second, total_ns) <= share + 2 * 1_042);
}

#[test]
fn end_of_time_does_not_wrap() {
    let mut bucket = Bucket::new(100, 3);
    for now_ns in [u64::MAX - 1, u64::MAX, u64::MAX] {
        assert!(bucket.passes(now_ns));
    }
    assert_eq!(bucket.tat, u64::MAX);
}

/// Charges runs of `used_ns` whenever something is left. The sum over `total_ns`.
fn spend(used_ns: u64, per_second: u64, total_ns: u64) -> u64 {
    let (mut tat, mut now_ns, mut sum) = (0, 1_000, 0);
    let end_ns = now_ns + total_ns;
    while now_ns < end_ns {
        if (full().budget_left)(tat, now_ns) {
            tat = (full().budget_next)(tat, now_ns, used_ns, per_second);
            sum += used_ns;
            now_ns += used_ns;
        } else {
            now_ns += 1_000;
        }
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn budget_lets_through_what_it_says_and_one_run_more(
        used_ns in 1_000..1_000_000u64, per_second in 1_000_000..2_000_000_000u64,
    ) {
        let total_ns = 400_000_000;
        let share = u128::from(per_second) * u128::from(total_ns + 100_000_000) / 1_000_000_000;
        let share = u64::try_from(share).unwrap();
        let spent = spend(used_ns, per_second, total_ns);
        prop_assert!(spent <= share + 2 * used_ns, "{spent} of {share}");
        // A share below one run may let nothing through.
        let least = (share.min(total_ns) * 3 / 4).saturating_sub(used_ns);
        prop_assert!(spent >= least, "{spent} of {share}");
    }

    #[test]
    fn budget_never_wraps(
        tat in any::<u64>(), now in any::<u64>(), used in any::<u64>(), per in any::<u64>(),
    ) {
        prop_assert!((full().budget_next)(tat, now, used, per) >= tat.max(now));
    }
}
