//! Earliest deadline first. Needs: nothing.

#![cfg(not(loom))]
#![forbid(unsafe_code)]

use ecalls_ring::EdfQueue;
use proptest::prelude::*;

fn all(queue: &mut EdfQueue<u32>) -> Vec<u32> {
    std::iter::from_fn(|| queue.pop()).collect()
}

#[test]
fn earliest_deadline_comes_first_and_none_last() {
    let mut queue = EdfQueue::new(8);
    for (deadline_ns, value) in [(None, 1), (Some(u64::MAX), 2), (Some(5), 3), (Some(0), 4)] {
        assert_eq!(queue.push(deadline_ns, value), None);
    }
    assert_eq!((queue.next_deadline(), queue.len()), (Some(0), 4));
    assert_eq!(all(&mut queue), [4, 3, 2, 1]);
}

#[test]
fn equal_deadlines_keep_the_order_of_arrival() {
    let mut queue = EdfQueue::new(8);
    for value in 0..4 {
        queue.push(Some(7), value);
        queue.push(None, value + 10);
    }
    assert_eq!(all(&mut queue), [0, 1, 2, 3, 10, 11, 12, 13]);
}

#[test]
fn full_queue_drops_the_latest_deadline_and_counts_it() {
    let mut queue = EdfQueue::new(2);
    queue.push(Some(10), 1);
    queue.push(None, 2);
    assert_eq!(queue.push(Some(20), 3), Some(2));
    assert_eq!(
        queue.push(Some(20), 4),
        Some(4),
        "of equal ones the newcomer goes"
    );
    assert_eq!(queue.push(Some(5), 5), Some(3));
    assert_eq!(queue.dropped(), 3);
    assert_eq!(all(&mut queue), [5, 1]);
}

#[test]
fn queue_without_room_drops_everything() {
    let mut queue = EdfQueue::new(0);
    assert_eq!(queue.push(Some(1), 1), Some(1));
    assert_eq!(
        (queue.pop(), queue.is_empty(), queue.dropped()),
        (None, true, 1)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The model: a list that is sorted, stably, after each push.
    #[test]
    #[cfg_attr(miri, ignore = "too slow there")]
    fn queue_behaves_like_a_sorted_list(
        steps in prop::collection::vec(
            prop::option::weighted(0.65, prop::option::weighted(0.8, 0u64..20)), 0..200),
        capacity in 0usize..20,
    ) {
        let mut queue = EdfQueue::new(capacity);
        let mut model: Vec<(Option<u64>, u32)> = Vec::new();
        let mut dropped = 0;
        for (value, step) in (0u32..).zip(steps) {
            let Some(deadline_ns) = step else {
                let first = (!model.is_empty()).then(|| model.remove(0).1);
                prop_assert_eq!(queue.pop(), first);
                continue;
            };
            model.push((deadline_ns, value));
            model.sort_by_key(|(deadline_ns, _)| (deadline_ns.is_none(), *deadline_ns));
            let last = (model.len() > capacity).then(|| model.pop()).flatten();
            dropped += u64::from(last.is_some());
            prop_assert_eq!(queue.push(deadline_ns, value), last.map(|(_, value)| value));
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.next_deadline(), model.first().and_then(|first| first.0));
        }
        prop_assert_eq!(queue.dropped(), dropped);
        let rest: Vec<u32> = model.into_iter().map(|(_, value)| value).collect();
        prop_assert_eq!(all(&mut queue), rest);
    }
}
