//! Sampling: exactly one in n, the first of each n.

use algorithms::full;
use proptest::prelude::*;

proptest! {
    #[test]
    fn one_passes_in_any_n_that_follow_each_other(start in 0..1u64 << 60, n in 1..300u64) {
        let passed = (start..start + n).filter(|&count| (full().sample_takes)(count, n)).count();
        prop_assert_eq!(passed, 1);
    }
}

#[test]
fn first_event_passes() {
    for n in [0, 1, 2, 7, u64::MAX] {
        assert!((full().sample_takes)(0, n));
    }
}

#[test]
fn zero_and_one_let_everything_pass() {
    for count in [0, 1, 2, u64::MAX] {
        assert!((full().sample_takes)(count, 0));
        assert!((full().sample_takes)(count, 1));
    }
}

#[test]
fn largest_n_passes_the_first_and_the_last_count() {
    assert!(!(full().sample_takes)(u64::MAX - 1, u64::MAX));
    assert!((full().sample_takes)(u64::MAX, u64::MAX));
}
