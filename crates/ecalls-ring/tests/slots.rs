//! The three uses of slots, one thread at a time and with threads. Needs: nothing.

#![cfg(not(loom))]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ecalls_abi::{Event as Record, Layout, SlotUse};
use ecalls_ring::words::zeroed;
use ecalls_ring::{Event, Put, Shape, SlotsReader, SlotsWriter};
use proptest::prelude::*;

fn slots(capacity: u32, slot_use: SlotUse) -> Vec<AtomicU64> {
    let shape = Shape {
        layout: Layout::Slots,
        capacity,
        width: 3,
        slot_use,
        channel: 1,
    };
    let words = zeroed(shape.words_needed());
    shape.write(&words).unwrap();
    words
}

/// An event for a slot, with 0, 250 or 500 bytes of data.
fn event(slot: u32, id: u64) -> Event {
    let mut event = Event::from(Record {
        id,
        raise_ns: !id,
        r#type: slot,
        priority: slot,
        ..Record::default()
    });
    event
        .set_data(&[id as u8; 500][..(id % 3 * 250) as usize])
        .unwrap();
    event
}

fn taken(reader: &mut SlotsReader<&Vec<AtomicU64>>) -> Vec<(usize, u64)> {
    reader
        .take_pending()
        .map(|(slot, taken)| {
            assert_eq!(taken.data_bytes(), event(0, taken.id).data_bytes());
            (slot, taken.id)
        })
        .collect()
}

#[test]
fn event_that_is_larger_than_its_slot_is_dropped() {
    let words = slots(2, SlotUse::Free);
    let (writer, mut reader) = (
        SlotsWriter::new(&words).unwrap(),
        SlotsReader::new(&words).unwrap(),
    );
    let most = 168 + 2 * 248;
    let mut large = event(0, 1);
    large.set_data(&vec![1; most + 1]).unwrap();
    assert_eq!((writer.put(&large), reader.is_ready()), (Put::Full, false));
    large.set_data(&vec![2; most]).unwrap();
    assert_eq!(writer.put(&large), Put::Delivered);
    assert_eq!(writer.put(&event(0, 2)), Put::Delivered);
    assert_eq!(reader.take(0).unwrap().data_bytes(), vec![2; most]);
    assert_eq!(taken(&mut reader), [(1, 2)]);
}

#[test]
fn free_use_takes_the_next_free_slot_and_drops_when_none_is_free() {
    let words = slots(64, SlotUse::Free);
    let (writer, mut reader) = (
        SlotsWriter::new(&words).unwrap(),
        SlotsReader::new(&words).unwrap(),
    );
    for id in 0..64 {
        assert_eq!(writer.put(&event(9, id)), Put::Delivered);
    }
    assert_eq!(writer.put(&event(9, 64)), Put::Full);
    assert_eq!(reader.take(5).unwrap().id, 5);
    assert_eq!(writer.put(&event(9, 65)), Put::Delivered);
    assert_eq!(reader.take(5).unwrap().id, 65);
    assert_eq!(
        (taken(&mut reader).len(), reader.unread(), reader.flag()),
        (63, 0, 65)
    );
}

#[test]
fn priority_use_comes_out_most_urgent_first_and_drops_while_full() {
    let words = slots(64, SlotUse::Priority);
    let (writer, mut reader) = (
        SlotsWriter::new(&words).unwrap(),
        SlotsReader::new(&words).unwrap(),
    );
    assert_eq!(writer.put(&event(40, 1)), Put::Delivered);
    assert_eq!(writer.put(&event(0, 2)), Put::Delivered);
    assert_eq!(writer.put(&event(40, 3)), Put::Full);
    assert_eq!(writer.put(&event(64, 4)), Put::Full);
    assert_eq!(taken(&mut reader), [(0, 2), (40, 1)]);
}

#[test]
#[cfg_attr(miri, ignore = "too slow there")]
fn type_use_keeps_the_newest_and_counts_what_it_replaced() {
    let words = slots(1024, SlotUse::Type);
    let (writer, mut reader) = (
        SlotsWriter::new(&words).unwrap(),
        SlotsReader::new(&words).unwrap(),
    );
    assert_eq!(writer.put(&event(1000, 1)), Put::Delivered);
    assert_eq!(writer.put(&event(1000, 2)), Put::Replaced);
    assert_eq!(writer.put(&event(1000, 3)), Put::Replaced);
    assert_eq!(taken(&mut reader), [(1000, 3)]);
    assert_eq!((taken(&mut reader), reader.unread()), (vec![], 2));
}

#[test]
#[cfg_attr(miri, ignore = "too slow there")]
fn ready_use_keeps_the_first_and_counts_those_it_stands_for() {
    let words = slots(1024, SlotUse::Ready);
    let (writer, mut reader) = (
        SlotsWriter::new(&words).unwrap(),
        SlotsReader::new(&words).unwrap(),
    );
    assert_eq!(writer.put(&event(1000, 1)), Put::Delivered);
    assert_eq!(writer.put(&event(1000, 2)), Put::Coalesced);
    assert_eq!(writer.put(&event(1024, 3)), Put::Full);
    assert_eq!(taken(&mut reader), [(1000, 1)]);
    assert_eq!(writer.put(&event(1000, 4)), Put::Delivered);
    let mut ready = Vec::new();
    reader.take_ready(|slot| ready.push(slot));
    assert_eq!(ready, [1000]);
    assert_eq!(writer.put(&event(1000, 5)), Put::Delivered);
    assert_eq!(taken(&mut reader), [(1000, 5)]);
}

#[test]
#[cfg_attr(miri, ignore = "too slow there")]
fn readiness_is_seen_without_taking_and_can_be_cleared_without_copying() {
    let words = slots(1024, SlotUse::Type);
    let (writer, mut reader) = (
        SlotsWriter::new(&words).unwrap(),
        SlotsReader::new(&words).unwrap(),
    );
    for slot in [3, 64, 1009] {
        writer.put(&event(slot, 1));
    }
    let mut ready = Vec::new();
    reader.for_each_ready(|slot| ready.push(slot));
    reader.take_ready(|slot| ready.push(slot));
    assert_eq!(ready, [3, 64, 1009, 3, 64, 1009]);
    assert!(!reader.is_ready());
    assert_eq!(reader.take(3), None);
    writer.put(&event(3, 2));
    assert_eq!((reader.take(3).unwrap().id, reader.unread()), (2, 1));
}

#[test]
fn new_reader_finds_what_waits_and_nothing_that_was_read() {
    let words = slots(64, SlotUse::Type);
    let writer = SlotsWriter::new(&words).unwrap();
    writer.put(&event(1, 10));
    writer.put(&event(2, 20));
    assert_eq!(SlotsReader::new(&words).unwrap().take(1).unwrap().id, 10);
    writer.put(&event(2, 21));
    let mut reader = SlotsReader::new(&words).unwrap();
    words[16].fetch_or(0b10, Ordering::Relaxed);
    assert_eq!((taken(&mut reader), reader.unread()), (vec![(2, 21)], 0));
}

#[test]
fn slot_that_is_being_written_is_left_for_later() {
    for slot_use in [SlotUse::Free, SlotUse::Type] {
        let words = slots(64, slot_use);
        SlotsWriter::new(&words).unwrap().put(&event(0, 1));
        words[4 * 32].fetch_add(1, Ordering::Relaxed);
        let mut reader = SlotsReader::new(&words).unwrap();
        assert_eq!((taken(&mut reader), reader.is_ready()), (vec![], true));
        words[4 * 32].fetch_add(1, Ordering::Relaxed);
        assert_eq!(
            (taken(&mut reader), reader.is_ready()),
            (vec![(0, 1)], false)
        );
    }
}

/// Three producers, one reader: with free slots every event arrives once; with typed ones the
/// last of each producer arrives last.
#[test]
fn threads_lose_no_event_in_free_slots_and_no_newest_in_typed_ones() {
    const EACH: u64 = if cfg!(miri) { 8 } else { 30_000 };
    for slot_use in [SlotUse::Free, SlotUse::Type] {
        let words = Arc::new(slots(64, slot_use));
        let mut reader = SlotsReader::new(words.clone()).unwrap();
        let producers: Vec<_> = (0..3u32)
            .map(|producer| {
                let writer = SlotsWriter::new(words.clone()).unwrap();
                std::thread::spawn(move || {
                    for count in 1..=EACH {
                        let id = u64::from(producer) << 32 | count;
                        while writer.put(&event(producer, id)) == Put::Full {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let (mut last, mut count) = ([0u64; 3], 0);
        loop {
            let finished = producers.iter().all(std::thread::JoinHandle::is_finished);
            for (_, event) in reader.take_pending() {
                assert_eq!(event.raise_ns, !event.id, "the copy is torn");
                let producer = (event.id >> 32) as usize;
                let newest = event.id & 0xffff_ffff;
                assert!(slot_use == SlotUse::Free || newest > last[producer]);
                last[producer] = last[producer].max(newest);
                count += 1;
            }
            if finished && !reader.is_ready() {
                break;
            }
        }
        assert_eq!(last, [EACH; 3]);
        assert_eq!(count + reader.unread(), 3 * EACH);
        assert!(slot_use == SlotUse::Type || reader.unread() == 0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32),
    Take(usize),
    TakePending,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u32..70).prop_map(Step::Put),
        2 => (0usize..70).prop_map(Step::Take),
        1 => Just(Step::TakePending),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    #[cfg_attr(miri, ignore = "too slow there")]
    fn slots_behave_like_a_map_from_slot_to_event(
        steps in prop::collection::vec(step(), 0..200),
        slot_use in prop_oneof![
            Just(SlotUse::Free),
            Just(SlotUse::Priority),
            Just(SlotUse::Type),
            Just(SlotUse::Ready),
        ],
    ) {
        let words = slots(64, slot_use);
        let writer = SlotsWriter::new(&words).unwrap();
        let mut reader = SlotsReader::new(&words).unwrap();
        let mut model: BTreeMap<usize, u64> = BTreeMap::new();
        for (id, step) in (0u64..).zip(steps) {
            match step {
                Step::Put(slot) => {
                    let place = match slot_use {
                        SlotUse::Free => (0..64).find(|slot| !model.contains_key(slot)),
                        _ => Some(slot as usize),
                    };
                    let place = place.filter(|place| *place < 64);
                    let full = place.is_none_or(|place| {
                        slot_use == SlotUse::Priority && model.contains_key(&place)
                    });
                    let put = writer.put(&event(slot, id));
                    if full {
                        prop_assert_eq!(put, Put::Full);
                        continue;
                    }
                    let place = place.unwrap_or(0);
                    let replaced = model.contains_key(&place);
                    if !replaced || slot_use != SlotUse::Ready {
                        model.insert(place, id);
                    }
                    prop_assert_eq!(put, match replaced {
                        true if slot_use == SlotUse::Ready => Put::Coalesced,
                        true => Put::Replaced,
                        false => Put::Delivered,
                    });
                }
                Step::Take(slot) => {
                    prop_assert_eq!(reader.take(slot).map(|event| event.id), model.remove(&slot));
                }
                Step::TakePending => {
                    let all: Vec<(usize, u64)> = std::mem::take(&mut model).into_iter().collect();
                    prop_assert_eq!(taken(&mut reader), all);
                }
            }
            prop_assert_eq!(reader.is_ready(), !model.is_empty());
        }
    }
}
