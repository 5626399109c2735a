//! Every interleaving and every allowed reordering of small cases, by loom.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p ecalls-ring --release --test loom`.
//! The reader is always the thread that starts last: loom first runs the threads in their order,
//! and when a thread stores it only goes back to the last other access of that word. A producer
//! that loads a word before it stores there would hide an earlier load of the reader.
//!
//! loom does not move a load behind a later store, so the release of `front` is argued, not tried.
//! A model's event has three words (see the crate's `sync`): the sequence, `id`, and that of `size`
//! and `subscription`; one with more data has one word in each further entry.

#![cfg(loom)]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::mem::offset_of;

use ecalls_abi::channel::{UP_ELEMENT_BYTES, UP_EVENTS};
use ecalls_abi::event::{ENTRY_DATA, EVENT_COALESCES, entries};
use ecalls_abi::version::DATA_INLINE;
use ecalls_abi::zerocopy::IntoBytes;
use ecalls_abi::{Event as Record, Layout, SlotUse};
use ecalls_ring::defer::DOWN_WORDS;
use ecalls_ring::words::zeroed;
use ecalls_ring::{
    AtomicU64, DeferWriter, Drain, Event, Full, Put, RingReader, RingWriter, Shape, Sleep,
    SlotsReader, SlotsWriter,
};
use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;

mod cells;
mod order;
mod ready;

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
    wide(layout, capacity, slot_use, 1)
}

fn wide(layout: Layout, capacity: u32, slot_use: SlotUse, width: u32) -> Segment {
    let shape = Shape {
        layout,
        capacity,
        width,
        slot_use,
        channel: 1,
    };
    let words = zeroed(shape.words_needed());
    shape.write(&words).unwrap();
    Segment(Arc::new(words))
}

fn event(id: u64) -> Event {
    Event::from(Record {
        id,
        subscription: !(id as u32),
        ..Record::default()
    })
}

/// An event that takes `entries` entries, each further one with its id.
fn long(id: u64, entries: usize) -> Event {
    let mut event = event(id);
    let data = [id; (DATA_INLINE + 3 * ENTRY_DATA) / 8];
    let bytes = DATA_INLINE + (entries - 1) * ENTRY_DATA;
    event.set_data(&data.as_bytes()[..bytes]).unwrap();
    event
}

fn id_of(event: Event) -> u64 {
    assert_eq!(event.subscription, !(event.id as u32), "the copy is torn");
    for entry in 1..entries(event.size as usize) {
        let at = DATA_INLINE + (entry - 1) * ENTRY_DATA;
        let word = &event.data_bytes()[at..at + 8];
        assert_eq!(word, event.id.as_bytes(), "the copy is torn");
    }
    event.id
}

/// Runs the producers and the reader at the same time.
fn race<T: 'static, R: 'static, const N: usize>(
    producers: [impl FnOnce() -> T + 'static; N],
    reader: impl FnOnce() -> R + 'static,
) -> ([T; N], R) {
    let producers = producers.map(thread::spawn);
    let reader = thread::spawn(reader);
    (
        producers.map(|producer| producer.join().unwrap()),
        reader.join().unwrap(),
    )
}

#[test]
fn no_wake_up_is_lost_when_reader_goes_to_sleep() {
    model(|| {
        let words = segment(Layout::Ring, 2, SlotUse::Free);
        let (writer, mut reader) = (
            RingWriter::new(words.clone()).unwrap(),
            RingReader::new(words).unwrap(),
        );
        let produce = move || {
            writer.push(&event(7)).unwrap();
            writer.sleep().should_wake()
        };
        let ([woken], (slept, mut reader)) = race([produce], move || {
            let slept = reader.sleep().may_sleep(|| reader.is_ready());
            if !slept {
                assert_eq!(reader.next().map(id_of), Some(7));
            }
            (slept, reader)
        });
        assert!(woken || !slept, "the reader sleeps and nobody wakes it");
        assert_eq!(reader.next().map(id_of), slept.then_some(7));
    });
}

#[test]
fn one_of_two_producers_wakes_the_reader() {
    model(|| {
        let words = segment(Layout::Ring, 4, SlotUse::Free);
        let sleep = Sleep::new(words);
        assert!(sleep.may_sleep(|| false));
        let other = sleep.clone();
        let ([one], other) = race([move || sleep.should_wake()], move || other.should_wake());
        assert!(one ^ other);
    });
}

#[test]
fn reader_that_lets_two_events_gather_is_woken() {
    model(|| {
        let words = segment(Layout::Ring, 2, SlotUse::Free);
        let reader = RingReader::new(words.clone()).unwrap();
        let producers = [1, 2].map(|id| {
            let writer = RingWriter::new(words.clone()).unwrap();
            move || {
                writer.push(&event(id)).unwrap();
                writer.sleep().should_wake()
            }
        });
        let (woken, slept) = race(producers, move || reader.may_sleep_until(2, 0));
        assert!(
            woken != [false; 2] || !slept,
            "the reader sleeps and nobody wakes it"
        );
    });
}

#[test]
fn two_producers_lose_and_double_no_event() {
    model(|| {
        let words = segment(Layout::Ring, 4, SlotUse::Free);
        let producers = [10, 20].map(|id| {
            let writer = RingWriter::new(words.clone()).unwrap();
            move || writer.push(&event(id)).is_ok()
        });
        let mut reader = RingReader::new(words).unwrap();
        let (pushed, (mut ids, mut reader)) = race(producers, move || {
            let ids: Vec<u64> = reader.next().map(id_of).into_iter().collect();
            (ids, reader)
        });
        ids.extend(reader.by_ref().map(id_of));
        ids.sort_unstable();
        assert_eq!((ids, pushed), (vec![10, 20], [true, true]));
    });
}

#[test]
fn entry_is_not_written_before_its_last_event_was_read() {
    model(|| {
        let words = segment(Layout::Ring, 2, SlotUse::Free);
        let writer = RingWriter::new(words.clone()).unwrap();
        let mut reader = RingReader::new(words).unwrap();
        writer.push(&event(1)).unwrap();
        let produce = move || {
            (2..=3)
                .filter(|id| writer.push(&event(*id)) != Err(Full))
                .collect::<Vec<u64>>()
        };
        let ([pushed], (mut ids, mut reader)) = race([produce], move || {
            let ids: Vec<u64> = reader.by_ref().take(2).map(id_of).collect();
            (ids, reader)
        });
        ids.extend(reader.by_ref().map(id_of));
        assert_eq!((ids[0], &ids[1..]), (1, &pushed[..]));
    });
}

#[test]
fn late_producers_take_no_position_twice() {
    model(|| {
        let words = segment(Layout::Ring, 4, SlotUse::Free);
        let before = RingWriter::new(words.clone()).unwrap();
        let filled = (1..10)
            .take_while(|id| before.push(&event(*id)).is_ok())
            .count() as u64;
        let mut reader = RingReader::new(words.clone()).unwrap();
        assert_eq!(reader.next().map(id_of), Some(1));
        let [one, other] = [10, 20].map(|id| {
            let writer = RingWriter::new(words.clone()).unwrap();
            move || writer.push(&event(id)).is_ok()
        });
        let ([one], other) = race([one], other);
        let ids: Vec<u64> = reader.map(id_of).collect();
        assert!(ids.iter().copied().take(filled as usize - 1).eq(2..=filled));
        assert_eq!(
            ids.len(),
            filled as usize - 1 + usize::from(one) + usize::from(other)
        );
    });
}

#[test]
fn long_events_of_two_producers_come_whole_and_once() {
    model(|| {
        let words = segment(Layout::Ring, 4, SlotUse::Free);
        let first = RingWriter::new(words.clone()).unwrap();
        let mut reader = RingReader::new(words.clone()).unwrap();
        first.push(&event(1)).unwrap();
        assert_eq!(reader.next().map(id_of), Some(1));
        // The second of them goes around the end of the ring.
        let producers = [10, 20].map(|id| {
            let writer = RingWriter::new(words.clone()).unwrap();
            move || writer.push(&long(id, 2)).is_ok()
        });
        let (pushed, (mut ids, mut reader)) = race(producers, move || {
            let ids: Vec<u64> = reader.next().map(id_of).into_iter().collect();
            (ids, reader)
        });
        ids.extend(reader.by_ref().map(id_of));
        ids.sort_unstable();
        assert_eq!((ids, pushed), (vec![10, 20], [true, true]));
    });
}

#[test]
fn entries_of_a_long_event_are_not_written_before_it_was_read() {
    model(|| {
        let words = segment(Layout::Ring, 4, SlotUse::Free);
        let writer = RingWriter::new(words.clone()).unwrap();
        let mut reader = RingReader::new(words).unwrap();
        writer.push(&long(1, 3)).unwrap();
        let produce = move || writer.push(&long(2, 2)).is_ok();
        let ([pushed], (mut ids, mut reader)) = race([produce], move || {
            let ids: Vec<u64> = reader.next().map(id_of).into_iter().collect();
            (ids, reader)
        });
        ids.extend(reader.by_ref().map(id_of));
        let expected = if pushed { vec![1, 2] } else { vec![1] };
        assert_eq!(ids, expected);
    });
}

#[test]
fn long_event_in_a_typed_slot_is_whole() {
    model(|| {
        let words = wide(Layout::Slots, 2, SlotUse::Type, 2);
        let mut reader = SlotsReader::new(words.clone()).unwrap();
        let writer = SlotsWriter::new(words).unwrap();
        assert_eq!(writer.put(&long(1, 2)), Put::Delivered);
        let ([put], (mut ids, mut reader)) = race([move || writer.put(&long(2, 2))], move || {
            let ids: Vec<u64> = reader.take(0).map(id_of).into_iter().collect();
            (ids, reader)
        });
        ids.extend(reader.take(0).map(id_of));
        ids.extend(reader.take(0).map(id_of));
        assert_ne!(put, Put::Full);
        assert!(ids == [1, 2] || ids == [2], "{ids:?}");
    });
}

#[test]
fn typed_slot_never_loses_the_newest_event_and_doubles_none() {
    model(|| {
        let words = segment(Layout::Slots, 2, SlotUse::Type);
        let mut reader = SlotsReader::new(words.clone()).unwrap();
        let writer = SlotsWriter::new(words).unwrap();
        assert_eq!(writer.put(&event(1)), Put::Delivered);
        let ([put], (mut ids, mut reader)) = race([move || writer.put(&event(2))], move || {
            let ids: Vec<u64> = reader.take(0).map(id_of).into_iter().collect();
            (ids, reader)
        });
        ids.extend(reader.take(0).map(id_of));
        ids.extend(reader.take(0).map(id_of));
        assert_ne!(put, Put::Full);
        assert!(ids == [1, 2] || ids == [2], "{ids:?}");
        assert_eq!(ids.len() as u64 + reader.unread(), 2);
        assert!(!reader.is_ready());
    });
}

#[test]
fn free_slot_is_taken_once_and_whole() {
    model(|| {
        let words = segment(Layout::Slots, 2, SlotUse::Free);
        let mut reader = SlotsReader::new(words.clone()).unwrap();
        let writer = SlotsWriter::new(words).unwrap();
        let ([put], (mut ids, mut reader)) = race([move || writer.put(&event(1))], move || {
            let ids: Vec<u64> = reader.take(0).map(id_of).into_iter().collect();
            (ids, reader)
        });
        ids.extend(reader.take(0).map(id_of));
        assert_eq!(
            (ids, put, reader.is_ready()),
            (vec![1], Put::Delivered, false)
        );
    });
}

#[test]
fn free_slots_lose_and_double_no_event_of_two_producers() {
    model(|| {
        let words = segment(Layout::Slots, 2, SlotUse::Free);
        let mut reader = SlotsReader::new(words.clone()).unwrap();
        let producers = [10, 20].map(|id| {
            let writer = SlotsWriter::new(words.clone()).unwrap();
            move || writer.put(&event(id))
        });
        let (put, (mut ids, mut reader)) = race(producers, move || {
            let ids: Vec<u64> = reader.take(0).map(id_of).into_iter().collect();
            (ids, reader)
        });
        ids.extend(reader.take_pending().map(|(_, event)| id_of(event)));
        ids.sort_unstable();
        assert_eq!((ids, put), (vec![10, 20], [Put::Delivered; 2]));
    });
}

#[test]
fn slot_that_is_full_is_not_overwritten_while_it_is_read() {
    model(|| {
        let words = segment(Layout::Slots, 2, SlotUse::Priority);
        let mut reader = SlotsReader::new(words.clone()).unwrap();
        let writer = SlotsWriter::new(words).unwrap();
        assert_eq!(writer.put(&event(1)), Put::Delivered);
        let ([put], (mut ids, mut reader)) = race([move || writer.put(&event(2))], move || {
            let ids: Vec<u64> = reader.take(0).map(id_of).into_iter().collect();
            (ids, reader)
        });
        ids.extend(reader.take(0).map(id_of));
        let expected = if put == Put::Delivered {
            vec![1, 2]
        } else {
            vec![1]
        };
        assert_eq!(ids, expected);
        assert_ne!(put, Put::Replaced);
    });
}

#[test]
fn who_takes_readiness_finds_what_it_stands_for() {
    model(|| {
        let words = segment(Layout::Slots, 2, SlotUse::Ready);
        let mut reader = SlotsReader::new(words.clone()).unwrap();
        let writer = SlotsWriter::new(words).unwrap();
        assert_eq!(writer.put(&event(1)), Put::Delivered);
        let source = Arc::new(AtomicU64::new(0));
        let filled = Arc::clone(&source);
        let produce = move || {
            filled.store(1, Ordering::Relaxed);
            writer.put(&event(2))
        };
        let ([put], (found, mut reader)) = race([produce], move || {
            reader.take_ready(|_| ());
            (source.load(Ordering::Relaxed), reader)
        });
        let mut told = 0;
        reader.take_ready(|_| told += 1);
        assert_eq!(told, u64::from(put == Put::Delivered));
        assert!(found == 1 || told == 1, "nobody reads what is there");
    });
}

/// A reader takes the first event of a subscription that coalesces, and looks what there is, while
/// there is more and a second event tells it.
fn reader_looks_while_a_second_event_comes(flags: u32) {
    let words = segment(Layout::Ring, 4, SlotUse::Free);
    let mut reader = RingReader::new(words.clone()).unwrap();
    let writer = RingWriter::new(words.clone()).unwrap();
    let stored = AtomicU64::new(0);
    let first = writer.push_coalescing(&event(1), &stored);
    assert_eq!(first, Ok(Some(0)));
    // A model's event has no such word.
    let word = UP_EVENTS * UP_ELEMENT_BYTES + offset_of!(Record, flags);
    words.0[word / 8].store(u64::from(flags), Ordering::Relaxed);
    let source = Arc::new(AtomicU64::new(0));
    let filled = Arc::clone(&source);
    let produce = move || {
        filled.store(1, Ordering::Relaxed);
        writer.push_coalescing(&event(2), &stored)
    };
    let ([put], (found, reader)) = race([produce], move || {
        assert_eq!(reader.next().map(id_of), Some(1));
        (source.load(Ordering::Relaxed), reader)
    });
    let told = reader.count() as u64;
    assert_eq!(told, u64::from(put != Ok(None)));
    assert!(found == 1 || told == 1, "nobody reads what is there");
}

#[test]
fn who_reads_an_event_finds_what_it_stands_for() {
    model(|| reader_looks_while_a_second_event_comes(EVENT_COALESCES));
}

#[test]
#[should_panic(expected = "nobody reads what is there")]
fn who_reads_an_event_without_a_barrier_misses_what_it_stands_for() {
    model(|| reader_looks_while_a_second_event_comes(0));
}

#[test]
fn reader_of_slots_that_goes_to_sleep_is_woken() {
    model(|| {
        let words = segment(Layout::Slots, 2, SlotUse::Type);
        let reader = SlotsReader::new(words.clone()).unwrap();
        let writer = SlotsWriter::new(words).unwrap();
        let produce = move || {
            writer.put(&event(1));
            writer.sleep().should_wake()
        };
        let ([woken], (slept, mut reader)) = race([produce], move || {
            (reader.sleep().may_sleep(|| reader.is_ready()), reader)
        });
        assert!(woken || !slept, "the reader sleeps and nobody wakes it");
        assert_eq!(reader.take(0).map(id_of), Some(1));
    });
}

/// An application and a drain, on one segment.
fn down() -> (DeferWriter<Segment>, Drain<Segment>) {
    let words = Segment(Arc::new(zeroed(DOWN_WORDS)));
    (
        DeferWriter::new(words.clone()).unwrap(),
        Drain::new(words).unwrap(),
    )
}

/// Drains and returns the calls' numbers.
fn drained(drain: &mut Drain<Segment>) -> Vec<u64> {
    let mut numbers = Vec::new();
    drain.drain(|call| {
        assert_eq!(call.argument, [call.argument[0]; 3], "the copy is torn");
        numbers.push(call.argument[0]);
        true
    });
    numbers
}

#[test]
fn deferred_calls_are_drained_once_and_in_order() {
    model(|| {
        let (mut writer, mut drain) = down();
        let defer = move || {
            (1..=3)
                .filter(|number| writer.push(1, [*number; 3]).is_ok())
                .collect::<Vec<u64>>()
        };
        let ([pushed], (mut numbers, mut drain)) =
            race([defer], move || (drained(&mut drain), drain));
        numbers.extend(drained(&mut drain));
        assert_eq!(numbers, pushed);
    });
}

#[test]
fn cell_is_drained_with_its_latest_value() {
    model(|| {
        let (mut writer, mut drain) = down();
        writer.set_latest(0, 1, [1; 3]).unwrap();
        let defer = move || writer.set_latest(0, 1, [2; 3]).unwrap();
        let (_, (mut values, mut drain)) = race([defer], move || (drained(&mut drain), drain));
        values.extend(drained(&mut drain));
        assert!(values.is_sorted(), "{values:?}");
        assert_eq!(values.last(), Some(&2));
        assert_eq!(drained(&mut drain), [0; 0]);
    });
}
