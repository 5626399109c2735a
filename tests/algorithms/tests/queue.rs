//! The event queue against a vector of waiting events: earliest deadline first, ties in the order
//! of raising, nothing before its release time, and a full queue drops the latest deadline.

use algorithms::{Pushed, Queue, full, small};
use proptest::prelude::*;
use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    slot: u32,
    key: u64, // the deadline; none: the largest number
    release_ns: u64,
    order: u64,
    held: bool,
}

/// The queue and what we believe is in it.
struct Pair {
    queue: Queue,
    model: Vec<Event>,
    raised: u64,
}

impl Pair {
    fn new(queue: Queue) -> Self {
        Self {
            queue,
            model: Vec::new(),
            raised: 0,
        }
    }

    fn push(&mut self, deadline_ns: u64, release_ns: u64, now_ns: u64) {
        let key = if deadline_ns == 0 {
            u64::MAX
        } else {
            deadline_ns
        };
        let latest = self.model.iter().map(|e| e.key).max();
        let is_full = self.model.len() == self.queue.capacity();
        let slot = match self.queue.push(deadline_ns, release_ns, now_ns) {
            Pushed::Placed(slot) => {
                assert!(!is_full);
                slot
            }
            Pushed::Replaced(slot) => {
                assert!(
                    is_full && latest > Some(key),
                    "dropped for an event that is not earlier"
                );
                let at = self.find(slot);
                assert_eq!(
                    Some(self.model[at].key),
                    latest,
                    "dropped, but not the latest"
                );
                self.model.swap_remove(at);
                slot
            }
            Pushed::Refused => {
                assert!(
                    is_full && latest <= Some(key),
                    "refused, but not the latest"
                );
                return;
            }
        };
        assert!((slot as usize) < self.queue.capacity());
        assert!(
            self.model.iter().all(|e| e.slot != slot),
            "slot {slot} is given out twice"
        );
        let held = release_ns > now_ns;
        self.model.push(Event {
            slot,
            key,
            release_ns,
            order: self.raised,
            held,
        });
        self.raised += 1;
    }

    fn find(&self, slot: u32) -> usize {
        self.model
            .iter()
            .position(|e| e.slot == slot)
            .expect("a slot in use")
    }

    /// Those that are due become ready, earliest release first, at most `release_max`.
    fn release(&mut self, now_ns: u64) -> usize {
        let mut due: Vec<_> = self
            .model
            .iter()
            .filter(|e| e.held && e.release_ns <= now_ns)
            .collect();
        due.sort_unstable_by_key(|e| (e.release_ns, e.key));
        due.truncate(self.queue.release_max());
        let expected: Vec<_> = due.iter().map(|e| (e.release_ns, e.key)).collect();

        let moved = self.queue.release(now_ns);
        let still_held: HashSet<_> = self.queue.held_slots().into_iter().collect();
        let mut released = Vec::new();
        for event in &mut self.model {
            if event.held && !still_held.contains(&event.slot) {
                event.held = false;
                released.push((event.release_ns, event.key));
            }
        }
        released.sort_unstable();
        assert_eq!(released, expected);
        assert_eq!(moved, expected.len());
        moved
    }

    fn pop(&mut self) -> Option<Event> {
        let ready = self.model.iter().filter(|e| !e.held);
        let expected = ready.min_by_key(|e| (e.key, e.order)).copied();
        let slot = self.queue.pop();
        assert_eq!(slot, expected.map(|e| e.slot), "not the earliest deadline");
        if let Some(slot) = slot {
            let at = self.find(slot);
            self.model.swap_remove(at);
        }
        expected
    }

    /// Takes one out of the middle; which is at a place, only the queue knows.
    fn remove(&mut self, at: u32) {
        let ready = self.model.iter().filter(|e| !e.held).count();
        let slot = self.queue.remove(at);
        assert_eq!(slot.is_some(), (1..=ready).contains(&(at as usize)));
        if let Some(slot) = slot {
            let at = self.find(slot);
            assert!(!self.model.swap_remove(at).held, "taken before its time");
        }
    }

    fn check_next_release(&self) {
        let next = self
            .model
            .iter()
            .filter(|e| e.held)
            .map(|e| e.release_ns)
            .min();
        assert_eq!(self.queue.next_release(), next.unwrap_or(0));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { deadline_ns: u64, release_ns: u64 },
    Advance(u64),
    Release,
    Pop,
    Remove(u32),
}

/// Small numbers around the time that the test reaches, and the ends of the range.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => Just(0),
        12 => 0..64u64,
        1 => any::<u64>(),
        1 => Just(u64::MAX - 1),
        1 => Just(u64::MAX),
    ]
}

fn step(pushes: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        pushes => (time(), time())
            .prop_map(|(deadline_ns, release_ns)| Step::Push { deadline_ns, release_ns }),
        2 => (0..8u64).prop_map(Step::Advance),
        2 => Just(Step::Release),
        4 => Just(Step::Pop),
        1 => (0..12u32).prop_map(Step::Remove),
    ]
}

fn agrees_with_model(queue: Queue, steps: &[Step]) {
    let mut pair = Pair::new(queue);
    let mut now_ns = 0;
    for step in steps {
        match *step {
            Step::Push {
                deadline_ns,
                release_ns,
            } => pair.push(deadline_ns, release_ns, now_ns),
            Step::Advance(ns) => now_ns += ns,
            Step::Release => {
                pair.release(now_ns);
            }
            Step::Pop => {
                pair.pop();
            }
            Step::Remove(at) => pair.remove(at),
        }
        pair.check_next_release();
    }
    // What is left comes out in full, once time has ended.
    while pair.release(u64::MAX) > 0 {}
    while pair.pop().is_some() {}
    assert_eq!(pair.model, []);
}

proptest! {
    #[test]
    fn small_queue_agrees_with_a_model(steps in prop::collection::vec(step(6), 0..300)) {
        agrees_with_model(Queue::new(small()), &steps);
    }

    #[test]
    fn overloaded_queue_agrees_with_a_model(steps in prop::collection::vec(step(40), 0..300)) {
        agrees_with_model(Queue::new(small()), &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn full_size_queue_agrees_with_a_model(steps in prop::collection::vec(step(40), 1000..2500)) {
        agrees_with_model(Queue::new(full()), &steps);
    }
}

#[test]
fn events_with_equal_deadlines_keep_the_order_of_raising() {
    let mut queue = Queue::new(full());
    let slots: Vec<_> = (0..1023).map(|_| queue.push(7, 0, 0)).collect();
    for slot in slots {
        assert_eq!(queue.pop().map(Pushed::Placed), Some(slot));
    }
}

#[test]
fn held_event_keeps_its_place_among_equal_deadlines() {
    let mut queue = Queue::new(full());
    let first = queue.push(50, 10, 0);
    let second = queue.push(50, 10, 0);
    let third = queue.push(50, 0, 0);
    assert_eq!(queue.release(10), 2);
    for slot in [first, second, third] {
        assert_eq!(queue.pop().map(Pushed::Placed), Some(slot));
    }
}

#[test]
fn event_without_deadline_comes_last() {
    let mut queue = Queue::new(full());
    let none = queue.push(0, 0, 0);
    let late = queue.push(u64::MAX - 1, 0, 0);
    assert_eq!(queue.pop().map(Pushed::Placed), Some(late));
    assert_eq!(queue.pop().map(Pushed::Placed), Some(none));
    assert_eq!(queue.pop(), None);
}

#[test]
fn held_event_waits_for_its_release_time_and_not_longer() {
    let mut queue = Queue::new(full());
    let held = queue.push(5, 100, 0);
    assert_eq!(queue.next_release(), 100);
    assert_eq!((queue.release(99), queue.pop()), (0, None));
    assert_eq!(queue.release(100), 1);
    assert_eq!(queue.pop().map(Pushed::Placed), Some(held));
    assert_eq!(queue.next_release(), 0);
}

#[test]
fn event_whose_release_time_is_now_or_past_is_ready_at_once() {
    for release_ns in [0, 1, 99, 100] {
        let mut queue = Queue::new(full());
        queue.push(5, release_ns, 100);
        assert!(queue.pop().is_some(), "release {release_ns}");
    }
}

#[test]
fn late_deadline_is_dropped_when_full() {
    let mut queue = Queue::new(small());
    let slots: Vec<_> = (1..=15)
        .map(|deadline| queue.push(deadline, 0, 0))
        .collect();
    assert_eq!(
        queue.push(15, 0, 0),
        Pushed::Refused,
        "as late as the latest: the new one goes"
    );
    assert_eq!(
        queue.push(0, 0, 0),
        Pushed::Refused,
        "no deadline is later than any"
    );
    let Pushed::Placed(latest) = slots[14] else {
        panic!("not full yet")
    };
    assert_eq!(queue.push(14, 0, 0), Pushed::Replaced(latest));
}

#[test]
fn held_event_with_the_latest_deadline_is_dropped_when_full() {
    let mut queue = Queue::new(small());
    let Pushed::Placed(held) = queue.push(90, 5, 0) else {
        panic!("not full yet")
    };
    for _ in 0..14 {
        queue.push(80, 0, 0);
    }
    assert_eq!(queue.push(89, 0, 0), Pushed::Replaced(held));
    assert_eq!(queue.next_release(), 0);
}

#[test]
fn one_call_releases_at_most_the_named_number_and_the_next_goes_on() {
    let mut pair = Pair::new(Queue::new(full()));
    for deadline_ns in 0..200 {
        pair.push(deadline_ns, 1 + deadline_ns % 3, 0);
    }
    let moved: Vec<_> = (0..5).map(|_| pair.release(u64::MAX)).collect();
    assert_eq!(moved, [64, 64, 64, 8, 0]);
}

#[test]
fn order_holds_over_many_rounds() {
    let mut pair = Pair::new(Queue::new(small()));
    for round in 0..100_000u64 {
        let scattered = round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        pair.push(1 + scattered % 32, round + scattered % 8, round);
        if round % 3 > 0 {
            pair.release(round);
            pair.pop();
        }
    }
}
