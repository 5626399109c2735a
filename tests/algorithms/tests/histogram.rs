//! The histogram's buckets cover every value once, in order, within the error that they promise.

use algorithms::full;
use proptest::prelude::*;

fn bucket(value: u64) -> u32 {
    (full().histogram_bucket)(value)
}

fn lower(bucket: u32) -> u64 {
    (full().histogram_lower)(bucket)
}

fn middle(bucket: u32) -> u64 {
    (full().histogram_middle)(bucket)
}

/// Values of every magnitude, and the two sides of each power of two.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift),
        (0..64u32, 0..3u64).prop_map(|(e, d)| (1u64 << e).wrapping_add(d).wrapping_sub(1)),
    ]
}

proptest! {
    #[test]
    fn value_lies_between_its_bucket_and_the_next(value in value()) {
        let b = bucket(value);
        prop_assert!(b < 64);
        prop_assert!(lower(b) <= value);
        prop_assert!(b == 63 || value < lower(b + 1));
    }

    #[test]
    fn larger_value_is_never_in_an_earlier_bucket(a in value(), b in value()) {
        prop_assert!(bucket(a.min(b)) <= bucket(a.max(b)));
    }

    #[test]
    fn value_is_less_than_one_and_a_half_times_its_lower_bound(value in 1..1u64 << 32) {
        prop_assert!(2 * value < 3 * lower(bucket(value)).max(1));
    }

    #[test]
    fn middle_of_a_bucket_is_within_a_quarter_of_the_value(value in 0..1u64 << 32) {
        prop_assert!(4 * middle(bucket(value)).abs_diff(value) <= value);
    }
}

#[test]
fn bounds_are_two_per_octave() {
    let bounds: Vec<_> = (0..10).map(lower).collect();
    assert_eq!(bounds, [0, 1, 2, 3, 4, 6, 8, 12, 16, 24]);
    assert_eq!(lower(62), 1 << 31);
    assert_eq!(lower(63), 3 << 30);
}

#[test]
fn lower_bound_and_middle_are_in_the_bucket() {
    for b in 0..64 {
        assert_eq!((bucket(lower(b)), bucket(middle(b))), (b, b));
        assert_eq!(bucket(lower(b).saturating_sub(1)), b.saturating_sub(1));
    }
}

#[test]
fn values_below_four_are_exact() {
    for value in 0..4 {
        assert_eq!(
            (lower(bucket(value)), middle(bucket(value))),
            (value, value)
        );
    }
}

#[test]
fn huge_values_are_in_the_last_bucket() {
    for value in [3 << 30, u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX] {
        assert_eq!(bucket(value), 63);
    }
}

#[test]
fn bucket_beyond_the_last_is_masked() {
    assert_eq!((lower(64), lower(66), middle(67)), (0, 2, 3));
}
