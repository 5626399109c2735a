//! The heap against a sorted vector: the order is total over (key, tie), and nothing is lost.

use algorithms::{Entry, Heap, full, small};
use proptest::prelude::*;

/// Few different keys, so that ties are common, and the ends of the range.
fn key() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..8u64,
        2 => any::<u64>(),
        1 => Just(0),
        1 => Just(u64::MAX - 1),
        1 => Just(u64::MAX),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Push(u64, u64),
    Pop,
    Remove(prop::sample::Index),
    RemoveLast,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (key(), key()).prop_map(|(key, tie)| Step::Push(key, tie)),
        2 => Just(Step::Pop),
        1 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => Just(Step::RemoveLast),
    ]
}

fn order(e: &Entry) -> (u64, u64) {
    (e.key, e.tie)
}

/// Takes from the model the very entry that the heap gave; its order must be as expected.
fn take(model: &mut Vec<Entry>, entry: Entry) {
    let at = model
        .iter()
        .position(|&e| e == entry)
        .expect("an entry that was put in");
    model.swap_remove(at);
}

fn agrees_with_model(mut heap: Heap, steps: &[Step]) {
    let mut model: Vec<Entry> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Push(key, tie) => {
                let entry = Entry {
                    key,
                    tie,
                    slot: number as u64,
                };
                let fits = model.len() < heap.capacity();
                assert_eq!(heap.push(entry), fits);
                if fits {
                    model.push(entry);
                }
            }
            Step::Pop => {
                let first = heap.pop();
                assert_eq!(first.as_ref().map(order), model.iter().map(order).min());
                if let Some(entry) = first {
                    take(&mut model, entry);
                }
            }
            Step::Remove(index) if model.is_empty() => heap.remove(index.index(2000) as u32),
            Step::Remove(index) => {
                let i = index.index(model.len());
                let entry = heap.entries()[i];
                heap.remove(i as u32 + 1);
                take(&mut model, entry);
            }
            Step::RemoveLast => {
                let i = heap.last_by_key();
                assert_eq!(i == 0, model.is_empty());
                if i != 0 {
                    let entry = heap.entries()[i as usize - 1];
                    assert_eq!(Some(order(&entry)), model.iter().map(order).max());
                    heap.remove(i);
                    take(&mut model, entry);
                }
            }
        }
        let by_tie = heap.last_by_tie();
        let tie = (by_tie != 0).then(|| heap.entries()[by_tie as usize - 1].tie);
        assert_eq!(tie, model.iter().map(|e| e.tie).max());
        let mut entries = heap.entries();
        entries.sort_unstable();
        model.sort_unstable();
        assert_eq!(entries, model);
    }
}

proptest! {
    #[test]
    fn small_heap_agrees_with_a_sorted_vector(steps in prop::collection::vec(step(), 0..200)) {
        agrees_with_model(Heap::new(small()), &steps);
    }

    #[test]
    fn entries_come_out_sorted(
        keys in prop::collection::vec((any::<u64>(), key()), 0..1100),
    ) {
        let mut heap = Heap::new(full());
        let mut model = Vec::new();
        for (slot, &(key, tie)) in keys.iter().enumerate() {
            if heap.push(Entry { key, tie, slot: slot as u64 }) {
                model.push((key, tie));
            }
        }
        prop_assert_eq!(model.len(), keys.len().min(heap.capacity()));
        model.sort_unstable();
        let sorted: Vec<_> = std::iter::from_fn(|| heap.pop()).map(|e| order(&e)).collect();
        prop_assert_eq!(sorted, model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn full_size_heap_agrees_with_a_sorted_vector(
        steps in prop::collection::vec(step(), 1500..2500),
    ) {
        agrees_with_model(Heap::new(full()), &steps);
    }
}

#[test]
fn full_heap_refuses_and_keeps_what_it_has() {
    let mut heap = Heap::new(full());
    for slot in 0..1023 {
        assert!(heap.push(Entry {
            key: 1023 - slot,
            tie: 0,
            slot
        }));
    }
    assert!(!heap.push(Entry {
        key: 0,
        tie: 0,
        slot: 1023
    }));
    assert_eq!(
        heap.pop(),
        Some(Entry {
            key: 1,
            tie: 0,
            slot: 1022
        })
    );
}

#[test]
fn empty_heap_gives_nothing() {
    let mut heap = Heap::new(full());
    assert_eq!(heap.pop(), None);
    assert_eq!(heap.last_by_key(), 0);
    assert_eq!(heap.last_by_tie(), 0);
    heap.remove(0);
    heap.remove(1);
    assert_eq!(heap.entries(), []);
}
