//! The ring and the sleeping flag, one thread at a time and with threads. Needs: nothing.

#![cfg(not(loom))]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ecalls_abi::event::{EVENT_COALESCES, EVENT_VOID, entries};
use ecalls_abi::{Event as Record, Layout, SlotUse};
use ecalls_ring::words::zeroed;
use ecalls_ring::{BadSegment, Event, Full, RingReader, RingWriter, Shape, Sleep};
use proptest::prelude::*;

fn ring(capacity: u32) -> Vec<AtomicU64> {
    let shape = Shape {
        layout: Layout::Ring,
        capacity,
        width: 1,
        slot_use: SlotUse::Free,
        channel: 1,
    };
    let words = zeroed(shape.words_needed());
    shape.write(&words).unwrap();
    words
}

fn event(id: u64) -> Event {
    let mut event = Event::from(Record {
        id,
        raise_ns: !id,
        ..Record::default()
    });
    event.set_data(&id.to_ne_bytes()).unwrap();
    event
}

/// An event that takes `size` bytes of data, each word of which is `word`.
fn sized(id: u64, size: usize, word: u64) -> Event {
    let mut event = event(id);
    let bytes: Vec<u8> = word.to_ne_bytes().into_iter().cycle().take(size).collect();
    event.set_data(&bytes).unwrap();
    event
}

fn at_position(position: u64, mut event: Event) -> Event {
    event.sequence = position.wrapping_add(1);
    event
}

#[test]
fn what_was_not_read_stands_for_further_events_of_the_same_subscription() {
    let words = ring(64);
    let (writer, mut reader) = (
        RingWriter::new(&words).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    let (one, other) = (AtomicU64::new(0), AtomicU64::new(0));
    let push = |id, stored| {
        let mut event = event(id);
        event.flags |= EVENT_COALESCES;
        writer.push_coalescing(&event, stored)
    };
    assert_eq!(push(1, &one), Ok(Some(0)));
    assert_eq!(push(2, &one), Ok(None));
    assert_eq!(push(3, &other), Ok(Some(1)), "of another subscription");
    assert_eq!(push(4, &one), Ok(None));
    assert_eq!(reader.next().map(|event| event.id), Some(1));
    assert_eq!(push(5, &one), Ok(Some(2)), "its own was read");
    assert_eq!(push(6, &other), Ok(None));
    assert_eq!(push(7, &one), Ok(None));
    let ids: Vec<u64> = reader.by_ref().map(|event| event.id).collect();
    assert_eq!(ids, [3, 5]);
    // An older number than that of the last event stores one event more.
    one.store(1, Ordering::Relaxed);
    assert_eq!(push(8, &one), Ok(Some(3)));
}

#[test]
fn an_event_that_is_kept_for_all_holds_nothing_of_the_former_one() {
    let words = ring(64);
    let (writer, mut reader) = (
        RingWriter::new(&words).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    let mut kept = sized(1, 600, 7);
    assert!(!reader.take_into(&mut kept));
    let sizes = [168, 8, 600, 0, 40];
    for (id, size) in (0..).zip(sizes) {
        writer.push(&sized(id, size, id)).unwrap();
    }
    let mut position = 0;
    for (id, size) in (0..).zip(sizes) {
        assert!(reader.take_into(&mut kept));
        assert_eq!(kept, at_position(position, sized(id, size, id)));
        position += entries(size) as u64;
    }
    assert!(!reader.take_into(&mut kept));
}

#[test]
fn events_come_out_whole_and_in_order_of_arrival() {
    let words = ring(64);
    let (writer, mut reader) = (
        RingWriter::new(&words).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    assert_eq!(reader.next(), None);
    for id in 0..40 {
        assert_eq!(writer.push(&event(id)), Ok(id));
    }
    assert_eq!((reader.len(), reader.is_ready()), (40, true));
    for id in 0..40 {
        assert_eq!(reader.next(), Some(at_position(id, event(id))));
    }
    assert_eq!(
        (reader.next(), reader.is_empty(), reader.is_ready()),
        (None, true, false)
    );
}

#[test]
fn a_reader_is_told_whether_events_wait_in_the_order_of_their_deadlines() {
    let words = ring(64);
    let (writer, mut reader) = (
        RingWriter::new(&words).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    let push = |deadline_ns| {
        let mut event = event(1);
        event.deadline_ns = deadline_ns;
        // Some take three entries.
        event
            .set_data(&[1; 600][..(deadline_ns as usize & 1) * 600])
            .unwrap();
        assert!(writer.push(&event).is_ok());
    };
    assert!(reader.is_in_order(8));
    // No deadline, which is 0, is later than any.
    [5, 5, 9, 0, 0].into_iter().for_each(push);
    assert!(reader.is_in_order(8));
    push(7);
    assert!(reader.is_in_order(5) && !reader.is_in_order(8) && !reader.is_in_order(8));
    assert_eq!(reader.by_ref().take(5).count(), 5);
    // The last one waits alone, and what comes after it is compared with it.
    assert!(reader.is_in_order(8));
    push(6);
    assert!(!reader.is_in_order(8));
    assert_eq!(reader.by_ref().count(), 2);
    push(1);
    assert!(reader.is_in_order(8));
}

#[test]
fn full_ring_refuses_and_goes_on_after_a_read() {
    let words = ring(64);
    let (writer, mut reader) = (
        RingWriter::new(&words).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    for id in 0..64 {
        writer.push(&event(id)).unwrap();
    }
    assert_eq!(writer.push(&event(64)), Err(Full));
    assert_eq!(reader.next().unwrap().id, 0);
    assert_eq!(writer.push(&event(64)), Ok(64));
}

#[test]
fn next_reader_goes_on_where_the_last_one_stopped() {
    let words = ring(64);
    let writer = RingWriter::new(&words).unwrap();
    for id in 0..3 {
        writer.push(&event(id)).unwrap();
    }
    assert_eq!(RingReader::new(&words).unwrap().next().unwrap().id, 0);
    assert!(
        RingReader::new(&words)
            .unwrap()
            .map(|event| event.id)
            .eq([1, 2])
    );
}

#[test]
fn position_that_is_taken_but_not_complete_is_waited_for() {
    let words = ring(64);
    let mut reader = RingReader::new(&words).unwrap();
    words[1].fetch_add(1, Ordering::Relaxed);
    RingWriter::new(&words).unwrap().push(&event(1)).unwrap();
    assert_eq!(
        (reader.len(), reader.is_ready(), reader.next()),
        (2, false, None)
    );
}

#[test]
#[cfg_attr(miri, ignore = "too slow there")]
fn event_takes_as_many_entries_as_its_data_need_and_goes_around_the_end() {
    let words = ring(64);
    let (writer, mut reader) = (
        RingWriter::new(&words).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    let sizes = [0, 1, 168, 169, 416, 417, 2152, 2153, 12_000, 168 + 63 * 248];
    let mut position = 0;
    for size in sizes.into_iter().chain(sizes) {
        let sent = sized(7, size, 0x0102_0304_0506_0708);
        assert_eq!(writer.push(&sent), Ok(position));
        assert_eq!(reader.len(), entries(size));
        assert_eq!(reader.next(), Some(at_position(position, sent)));
        position += entries(size) as u64;
        assert_eq!((reader.front(), reader.is_ready()), (position, false));
    }
    assert_eq!(writer.push(&sized(7, 168 + 63 * 248 + 1, 0)), Err(Full));
    for _ in 0..7 {
        writer.push(&sized(7, 2152, 0)).unwrap();
    }
    assert_eq!(writer.push(&sized(7, 417, 0)), Err(Full));
    writer.push(&event(7)).unwrap();
    assert_eq!((reader.len(), reader.by_ref().count()), (64, 8));
}

#[test]
#[cfg_attr(miri, ignore = "too slow there")]
fn data_are_never_taken_for_a_complete_event() {
    let words = ring(64);
    let writer = RingWriter::new(&words).unwrap();
    for later in 65..140 {
        writer.push(&sized(1, 168 + 62 * 248, later)).unwrap();
        let mut reader = RingReader::new(&words).unwrap();
        assert!(reader.next().is_some());
        // A producer takes the next position, and completes nothing there.
        words[1].fetch_add(1, Ordering::Relaxed);
        assert_eq!((reader.is_ready(), reader.next()), (false, None));
        words[8].fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn event_without_data_is_skipped() {
    let words = ring(64);
    let (writer, mut reader) = (
        RingWriter::new(&words).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    let mut void = sized(1, 2152, 5);
    void.flags = EVENT_VOID;
    writer.push(&void).unwrap();
    assert_eq!((reader.next(), reader.len()), (None, 0));
    writer.push(&void).unwrap();
    writer.push(&event(2)).unwrap();
    assert_eq!(reader.next().map(|event| event.id), Some(2));
}

#[test]
fn slots_are_no_ring() {
    let words = ring(64);
    let shape = Shape {
        layout: Layout::Slots,
        capacity: 64,
        width: 1,
        slot_use: SlotUse::Free,
        channel: 1,
    };
    shape.write(&words).unwrap();
    assert_eq!(
        RingReader::new(&words).err(),
        Some(BadSegment::Layout { found: 1 })
    );
}

/// Three producers, one reader that sleeps whenever it may: every event arrives once, in the order
/// of its producer, and no wake-up is lost (a lost one would end in the time-out).
#[test]
fn threads_lose_no_event_and_no_wake_up() {
    const EACH: u64 = if cfg!(miri) { 7 } else { 30_000 };
    let words = Arc::new(ring(64));
    let (wake, descriptor) = std::sync::mpsc::channel();
    let producers: Vec<_> = (0..3u64)
        .map(|producer| {
            let (words, wake) = (words.clone(), wake.clone());
            std::thread::spawn(move || {
                let writer = RingWriter::new(words).unwrap();
                for count in 0..EACH {
                    let id = producer << 32 | count;
                    let event = sized(id, (count % 7 * 150) as usize, id);
                    while writer.push(&event) == Err(Full) {
                        std::thread::yield_now();
                    }
                    if writer.sleep().should_wake() {
                        wake.send(()).unwrap();
                    }
                }
            })
        })
        .collect();
    let mut reader = RingReader::new(words.clone()).unwrap();
    let sleep = Sleep::new(words.clone());
    let mut expected = [0u64; 3];
    while expected != [EACH; 3] {
        let Some(event) = reader.next() else {
            if sleep.may_sleep(|| reader.is_ready()) {
                let limit = std::time::Duration::from_secs(20);
                descriptor.recv_timeout(limit).expect("a wake-up was lost");
            }
            continue;
        };
        let producer = (event.id >> 32) as usize;
        assert_eq!(event.id & 0xffff_ffff, expected[producer]);
        assert_eq!(event.raise_ns, !event.id);
        let size = (expected[producer] % 7 * 150) as usize;
        assert_eq!(event.data_bytes(), sized(0, size, event.id).data_bytes());
        expected[producer] += 1;
    }
    for producer in producers {
        producer.join().unwrap();
    }
    assert_eq!(reader.next(), None);
}

fn used(events: &VecDeque<Event>) -> usize {
    events
        .iter()
        .map(|event| entries(event.size as usize))
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    #[cfg_attr(miri, ignore = "too slow there")]
    fn ring_behaves_like_a_bounded_queue(
        steps in prop::collection::vec((prop::bool::weighted(0.55), 0usize..1500), 0..300),
        start in prop_oneof![Just(0u64), 0..1u64 << 40],
    ) {
        let words = ring(8);
        words[1].store(start, Ordering::Relaxed);
        words[8].store(start, Ordering::Relaxed);
        let writer = RingWriter::new(&words).unwrap();
        let mut reader = RingReader::new(&words).unwrap();
        let mut model = VecDeque::new();
        for (id, (push, size)) in (0u64..).zip(steps) {
            if push {
                let event = sized(id, size, id);
                let fits = used(&model) + entries(size) <= 8;
                prop_assert_eq!(writer.push(&event).is_ok(), fits);
                if fits {
                    model.push_back(event);
                }
            } else {
                let read = reader.next().map(|event| at_position(u64::MAX, event));
                prop_assert_eq!(read, model.pop_front());
            }
            prop_assert_eq!(reader.len(), used(&model));
            prop_assert_eq!(reader.is_ready(), !model.is_empty());
        }
    }
}
