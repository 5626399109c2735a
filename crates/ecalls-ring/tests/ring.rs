//! The ring and the sleeping flag, one thread at a time and with threads. Needs: nothing.

#![cfg(not(loom))]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ecalls_abi::{Event, Layout, SlotUse};
use ecalls_ring::words::zeroed;
use ecalls_ring::{BadSegment, Full, RingReader, RingWriter, Shape, Sleep};
use proptest::prelude::*;

fn ring(capacity: u32) -> Vec<AtomicU64> {
    let shape = Shape {
        layout: Layout::Ring,
        capacity,
        slot_use: SlotUse::Free,
        channel: 1,
    };
    let words = zeroed(shape.words_needed());
    shape.write(&words).unwrap();
    words
}

fn event(id: u64) -> Event {
    let mut event = Event {
        id,
        raise_ns: !id,
        ..Event::default()
    };
    event.set_data(&id.to_ne_bytes()).unwrap();
    event
}

#[test]
fn events_come_out_whole_and_in_order_of_arrival() {
    let words = ring(64);
    let (writer, mut reader) = (
        RingWriter::new(&words, 2).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    assert_eq!(reader.next(), None);
    for id in 0..40 {
        assert_eq!(writer.push(&event(id)), Ok(id));
    }
    assert_eq!((reader.len(), reader.is_ready()), (40, true));
    for id in 0..40 {
        assert_eq!(
            reader.next(),
            Some(Event {
                sequence: id + 1,
                ..event(id)
            })
        );
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
        RingWriter::new(&words, 2).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    let push = |deadline_ns| {
        let event = Event {
            deadline_ns,
            ..event(1)
        };
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
        RingWriter::new(&words, 4).unwrap(),
        RingReader::new(&words).unwrap(),
    );
    for id in 0..60 {
        writer.push(&event(id)).unwrap();
    }
    assert_eq!(writer.push(&event(60)), Err(Full));
    assert_eq!(reader.next().unwrap().id, 0);
    assert_eq!(writer.push(&event(60)), Ok(60));
}

#[test]
fn next_reader_goes_on_where_the_last_one_stopped() {
    let words = ring(64);
    let writer = RingWriter::new(&words, 1).unwrap();
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
    RingWriter::new(&words, 1).unwrap().push(&event(1)).unwrap();
    assert_eq!(
        (reader.len(), reader.is_ready(), reader.next()),
        (2, false, None)
    );
}

#[test]
fn slots_are_no_ring_and_a_ring_needs_room_for_its_producers() {
    let words = ring(64);
    assert_eq!(
        RingWriter::new(&words, 64).err(),
        Some(BadSegment::Slack { slack: 64 })
    );
    let shape = Shape {
        layout: Layout::Slots,
        capacity: 64,
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
    const EACH: u64 = if cfg!(miri) { 20 } else { 30_000 };
    let words = Arc::new(ring(64));
    let (wake, descriptor) = std::sync::mpsc::channel();
    let producers: Vec<_> = (0..3u64)
        .map(|producer| {
            let (words, wake) = (words.clone(), wake.clone());
            std::thread::spawn(move || {
                let writer = RingWriter::new(words, 3).unwrap();
                for count in 0..EACH {
                    while writer.push(&event(producer << 32 | count)) == Err(Full) {
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
        assert_eq!((event.raise_ns, event.data[0]), (!event.id, event.id));
        expected[producer] += 1;
    }
    for producer in producers {
        producer.join().unwrap();
    }
    assert_eq!(reader.next(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    #[cfg_attr(miri, ignore = "too slow there")]
    fn ring_behaves_like_a_bounded_queue(
        steps in prop::collection::vec(prop::bool::weighted(0.55), 0..300),
        start in prop_oneof![Just(0u64), 0..1u64 << 40],
    ) {
        let words = ring(8);
        words[1].store(start, Ordering::Relaxed);
        words[8].store(start, Ordering::Relaxed);
        let writer = RingWriter::new(&words, 2).unwrap();
        let mut reader = RingReader::new(&words).unwrap();
        let mut model = VecDeque::new();
        for (id, push) in (0u64..).zip(steps) {
            if push {
                let fits = model.len() < 6;
                prop_assert_eq!(writer.push(&event(id)).is_ok(), fits);
                if fits {
                    model.push_back(id);
                }
            } else {
                prop_assert_eq!(reader.next().map(|event| event.id), model.pop_front());
            }
            prop_assert_eq!(reader.len(), model.len());
            prop_assert_eq!(reader.is_ready(), !model.is_empty());
        }
    }
}
