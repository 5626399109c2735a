//! The other side writes garbage: nothing panics, nothing reads outside, nothing loops without
//! bound, and everybody who is still honest goes on. Needs: nothing.

#![cfg(not(loom))]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::atomic::{AtomicU64, Ordering};

use ecalls_abi::downcall::DRAIN_MAX;
use ecalls_abi::{Event as Record, Layout, SlotUse};
use ecalls_ring::defer::{CAPACITY, DOWN_WORDS};
use ecalls_ring::words::{self, zeroed};
use ecalls_ring::{
    DeferWriter, Drain, Event, RingReader, RingWriter, Shape, Sleep, SlotsReader, SlotsWriter,
};
use proptest::prelude::*;

/// Capacity of the segments here; small, so that a write often hits what matters.
const EVENTS: u32 = 8;

fn segment(layout: Layout, slot_use: SlotUse, width: u32) -> Vec<AtomicU64> {
    let shape = Shape {
        layout,
        capacity: EVENTS,
        width,
        slot_use,
        channel: 1,
    };
    let words = zeroed(shape.words_needed());
    shape.write(&words).unwrap();
    words
}

/// A word's value: extremes and small numbers more often than others.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0u64..20,
        1 => (0u64..20).prop_map(|n| u64::MAX - n),
        1 => (0u32..64).prop_map(|bit| 1 << bit),
        2 => any::<u64>(),
    ]
}

/// Writes to words: mostly those of the header, and the sequences.
fn garbage(len: usize, element: usize) -> impl Strategy<Value = Vec<(usize, u64)>> {
    let place = prop_oneof![
        2 => 0usize..20,
        2 => (0..len / element).prop_map(move |index| index * element),
        1 => 0..len,
    ];
    prop::collection::vec((place, value()), 1..40)
}

fn scribble(words: &[AtomicU64], writes: &[(usize, u64)]) {
    for (place, value) in writes {
        words[*place].store(*value, Ordering::Relaxed);
    }
}

const UP_WORDS: usize = (4 + EVENTS as usize) * 32;
/// Entries of a slot here.
const WIDTH: u32 = 3;
const SLOTS_WORDS: usize = (4 + (EVENTS * WIDTH) as usize) * 32;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    #[cfg_attr(miri, ignore = "too slow there")]
    fn ring_survives_garbage_in_every_word(
        rounds in prop::collection::vec(garbage(UP_WORDS, 32), 1..6),
        size in 0usize..3000,
    ) {
        let words = segment(Layout::Ring, SlotUse::Free, 1);
        let writer = RingWriter::new(&words).unwrap();
        let mut reader = RingReader::new(&words).unwrap();
        for writes in rounds {
            let mut event = Event::default();
            event.set_data(&vec![1; size]).unwrap();
            let _ = writer.push(&event);
            scribble(&words, &writes);
            prop_assert!(reader.len() <= EVENTS as usize);
            let _ = (reader.is_ready(), reader.is_empty());
            // One pass without a producer ends: no entry can hold two positions.
            let count = reader.by_ref().inspect(|event| {
                assert!(event.data_bytes().len() <= 168 + 7 * 248);
            }).count();
            prop_assert!(count <= EVENTS as usize);
            let _ = (writer.push(&Event::default()), writer.sleep().should_wake());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow there")]
    fn slots_survive_garbage_in_every_word(
        rounds in prop::collection::vec(garbage(SLOTS_WORDS, 32), 1..6),
        slot_use in prop_oneof![Just(SlotUse::Free), Just(SlotUse::Priority), Just(SlotUse::Type)],
        slot in any::<u32>(),
        size in 0usize..1000,
    ) {
        let words = segment(Layout::Slots, slot_use, WIDTH);
        let writer = SlotsWriter::new(&words).unwrap();
        let mut reader = SlotsReader::new(&words).unwrap();
        for writes in rounds {
            let record = Record { r#type: slot, priority: slot, ..Record::default() };
            let mut event = Event::from(record);
            event.set_data(&vec![1; size]).unwrap();
            writer.put(&event);
            scribble(&words, &writes);
            prop_assert!(reader.take_pending().count() <= EVENTS as usize);
            reader.for_each_ready(|slot| assert!(slot < EVENTS as usize));
            writer.put(&event);
            reader.take_ready(|slot| assert!(slot < EVENTS as usize));
            prop_assert_eq!((reader.take(slot as usize), reader.is_ready()), (None, false));
            let _ = (reader.unread(), reader.flag(), SlotsReader::new(&words).is_ok());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow there")]
    fn drain_is_bounded_whatever_the_application_writes(
        rounds in prop::collection::vec(garbage(DOWN_WORDS, 8), 1..4),
    ) {
        let words = zeroed(DOWN_WORDS);
        let (mut writer, mut drain) =
            (DeferWriter::new(&words).unwrap(), Drain::new(&words).unwrap());
        for writes in rounds {
            let _ = writer.push(1, [2; 3]);
            scribble(&words, &writes);
            prop_assert!(drain.drain(|call| call.op % 2 == 0) <= DRAIN_MAX);
            prop_assert!(writer.pending() <= CAPACITY && writer.pending_latest() < 1 << 16);
            let _ = (writer.push(1, [2; 3]), writer.set_latest(3, 1, [2; 3]));
            let mut next = DeferWriter::new(&words).unwrap();
            let _ = (next.push(1, [2; 3]), next.set_latest(3, 1, [2; 3]));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow there")]
    fn header_of_garbage_is_refused_or_fits(
        writes in garbage(32, 32),
        len in 0usize..UP_WORDS,
    ) {
        let all = segment(Layout::Slots, SlotUse::Type, 1);
        scribble(&all, &writes);
        let part = &all[..len];
        if let Ok(shape) = Shape::read(part) {
            prop_assert!(shape.words_needed() <= part.len());
        }
        let _ = (RingReader::new(part).is_ok(), SlotsReader::new(part).is_ok());
        let _ = (words::header(part), words::lost(part), words::histogram(part));
        let sleep = Sleep::new(part);
        let _ = (sleep.may_sleep(|| false), sleep.should_wake(), sleep.cancel_sleep());
    }
}
