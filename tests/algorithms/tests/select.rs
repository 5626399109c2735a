//! Wake-one against a walk around the list, and the bit arithmetic against Rust's.

use algorithms::full;
use proptest::prelude::*;

const NONE: u32 = 64;

fn select(matching: u64, count: u32, turn: u32) -> u32 {
    (full().select_one)(matching, count, turn)
}

/// The first match from `turn` on, around the end.
fn walk(matching: u64, count: u32, turn: u32) -> u32 {
    let around = (0..count).map(|i| (turn % count + i) % count);
    around
        .into_iter()
        .find(|&i| matching >> i & 1 == 1)
        .unwrap_or(NONE)
}

/// Words with few, many and no bits.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => any::<u64>(),
        2 => (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| a & b & c),
        2 => (any::<u64>(), 0..64u32).prop_map(|(word, shift)| word >> shift),
        2 => (0..64u32).prop_map(|bit| 1 << bit),
        1 => Just(0),
        1 => Just(u64::MAX),
    ]
}

proptest! {
    #[test]
    fn first_match_from_the_turn_on_is_taken(
        matching in word(),
        count in 1..=64u32,
        turn in prop_oneof![0..=64u32, any::<u32>()],
    ) {
        prop_assert_eq!(select(matching, count, turn), walk(matching, count, turn));
    }

    #[test]
    fn those_who_match_are_served_equally(
        matching in word(), count in 1..=64u32, start in 0..64u32,
    ) {
        let members = (0..count).filter(|i| matching >> i & 1 == 1).count();
        let (mut turn, mut served) = (start, [0; 64]);
        for _ in 0..3 * members {
            let i = select(matching, count, turn);
            served[i as usize] += 1;
            turn = i + 1;
        }
        for i in 0..64 {
            let expected = if i < count && matching >> i & 1 == 1 { 3 } else { 0 };
            prop_assert_eq!(served[i as usize], expected);
        }
    }

    #[test]
    fn who_always_matches_waits_for_at_most_the_others(
        masks in prop::collection::vec(word(), 200),
        count in 1..=64u32,
        always in 0..64u32,
    ) {
        let always = always % count;
        let (mut turn, mut waited) = (0, 0);
        for mask in masks {
            let i = select(mask | 1 << always, count, turn);
            turn = i + 1;
            waited = if i == always { 0 } else { waited + 1 };
            prop_assert!(waited < count);
        }
    }

    #[test]
    fn lists_that_follow_one_another_are_walked_as_one(
        lists in prop::collection::vec(word(), 1..6),
        turn in 0..400u32,
    ) {
        let bases: Vec<u32> = (0..).step_by(64).take(lists.len()).collect();
        let lowest = |mask: u64, base: u32| (mask != 0).then(|| base + mask.trailing_zeros());
        let from_turn = lists.iter().zip(&bases)
            .find_map(|(&mask, &base)| lowest((full().select_from)(mask, base, turn), base));
        let first = lists.iter().zip(&bases).find_map(|(&mask, &base)| lowest(mask, base));
        let all = 64 * u32::try_from(lists.len()).unwrap();
        let bit = |at: u32| lists[at as usize / 64] >> (at % 64) & 1 == 1;
        let expected = (turn.min(all)..all).chain(0..turn.min(all)).find(|&at| bit(at));
        prop_assert_eq!(from_turn.or(first), expected);
    }

    #[test]
    fn bit_arithmetic_agrees_with_the_processor(word in word()) {
        prop_assert_eq!((full().bits_count)(word), word.count_ones());
        prop_assert_eq!((full().bits_lowest)(word), word.trailing_zeros());
        prop_assert_eq!((full().bits_log2)(word), word.checked_ilog2().unwrap_or(0));
    }
}

#[test]
fn nobody_is_selected_when_nobody_matches() {
    assert_eq!(select(0, 64, 5), NONE);
    assert_eq!(select(u64::MAX, 0, 5), NONE);
    assert_eq!(
        select(0b1000, 3, 1),
        NONE,
        "a bit beyond the list is nobody"
    );
}

#[test]
fn count_above_the_largest_is_the_largest() {
    assert_eq!(select(1 << 63, 1000, 0), 63);
    assert_eq!(select(u64::MAX, u32::MAX, 64), 0);
}

#[test]
fn each_single_bit_is_found() {
    for bit in 0..64 {
        assert_eq!((full().bits_lowest)(1 << bit), bit);
        assert_eq!((full().bits_log2)(1 << bit), bit);
        assert_eq!(select(1 << bit, 64, (bit + 1) % 64), bit);
    }
}
