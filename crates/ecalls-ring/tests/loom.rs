//! Every interleaving and every allowed reordering of small cases, by loom.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p ecalls-ring --release --test loom`.
//! A model's event has three words (see the crate's `sync`): the sequence, `id` and `raise_ns`.

#![cfg(loom)]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use ecalls_abi::{Event, Layout, SlotUse};
use ecalls_ring::words::zeroed;
use ecalls_ring::{AtomicU64, Full, RingReader, RingWriter, Shape, Sleep};
use loom::sync::Arc;
use loom::thread;

/// Preemptions per run: enough for every known failure of such protocols, and still seconds.
const PREEMPTIONS: usize = 3;

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 20_000;
    builder.check(run);
}

/// A segment whose threads are loom's; `Arc` here is loom's too, so the crate cannot know it.
#[derive(Clone)]
struct Segment(Arc<Vec<AtomicU64>>);

impl ecalls_ring::Words for Segment {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

fn segment(layout: Layout, capacity: u32, slot_use: SlotUse) -> Segment {
    let shape = Shape {
        layout,
        capacity,
        slot_use,
        channel: 1,
    };
    let words = zeroed(shape.words_needed());
    shape.write(&words).unwrap();
    Segment(Arc::new(words))
}

fn event(id: u64) -> Event {
    Event {
        id,
        raise_ns: !id,
        ..Event::default()
    }
}

fn id_of(event: Event) -> u64 {
    assert_eq!(event.raise_ns, !event.id, "the copy is torn");
    event.id
}

#[test]
fn no_wake_up_is_lost_when_reader_goes_to_sleep() {
    model(|| {
        let words = segment(Layout::Ring, 2, SlotUse::Free);
        let producer = {
            let words = words.clone();
            thread::spawn(move || {
                let writer = RingWriter::new(words, 1).unwrap();
                writer.push(&event(7)).unwrap();
                writer.sleep().should_wake()
            })
        };
        let mut reader = RingReader::new(words.clone()).unwrap();
        let slept = Sleep::new(words).may_sleep(|| reader.is_ready());
        let woken = producer.join().unwrap();
        assert!(woken || !slept, "the reader sleeps and nobody wakes it");
        assert_eq!(reader.next().map(id_of), Some(7));
    });
}

#[test]
fn one_of_two_producers_wakes_the_reader() {
    model(|| {
        let words = segment(Layout::Ring, 4, SlotUse::Free);
        let sleep = Sleep::new(words.clone());
        assert!(sleep.may_sleep(|| false));
        let other = {
            let words = words.clone();
            thread::spawn(move || Sleep::new(words).should_wake())
        };
        let one = sleep.should_wake();
        assert!(one ^ other.join().unwrap());
    });
}

#[test]
fn two_producers_lose_and_double_no_event() {
    model(|| {
        let words = segment(Layout::Ring, 4, SlotUse::Free);
        let producers = [10, 20].map(|id| {
            let words = words.clone();
            thread::spawn(move || RingWriter::new(words, 2).unwrap().push(&event(id)).is_ok())
        });
        let mut reader = RingReader::new(words).unwrap();
        let mut ids: Vec<u64> = reader.next().map(id_of).into_iter().collect();
        let pushed = producers.map(|producer| producer.join().unwrap());
        ids.extend(reader.by_ref().map(id_of));
        ids.sort_unstable();
        assert_eq!((ids, pushed), (vec![10, 20], [true, true]));
    });
}

#[test]
fn entry_is_not_written_before_its_last_event_was_read() {
    model(|| {
        let words = segment(Layout::Ring, 2, SlotUse::Free);
        let producer = {
            let words = words.clone();
            thread::spawn(move || {
                let writer = RingWriter::new(words, 1).unwrap();
                let pushed = [1, 2, 3].map(|id| (id, writer.push(&event(id))));
                pushed
                    .into_iter()
                    .filter(|(_, r)| *r != Err(Full))
                    .map(|(id, _)| id)
                    .collect()
            })
        };
        let mut reader = RingReader::new(words).unwrap();
        let mut ids: Vec<u64> = reader.by_ref().take(2).map(id_of).collect();
        let pushed: Vec<u64> = producer.join().unwrap();
        ids.extend(reader.by_ref().map(id_of));
        assert_eq!(ids, pushed);
    });
}

#[test]
fn slack_keeps_late_producers_from_taking_a_position_twice() {
    model(|| {
        let words = segment(Layout::Ring, 4, SlotUse::Free);
        let before = RingWriter::new(words.clone(), 2).unwrap();
        before.push(&event(1)).unwrap();
        let producers = [10, 20].map(|id| {
            let words = words.clone();
            thread::spawn(move || RingWriter::new(words, 2).unwrap().push(&event(id)).is_ok())
        });
        let pushed = producers.map(|producer| producer.join().unwrap());
        let reader = RingReader::new(words).unwrap();
        let ids: Vec<u64> = reader.map(id_of).collect();
        assert_eq!(
            ids.len(),
            1 + pushed.into_iter().filter(|pushed| *pushed).count()
        );
        assert_eq!(ids[0], 1);
    });
}
