//! Shared memory: the readers and writers of `ecalls-ring` over words that somebody else writes as
//! he likes, between any two of their steps.
//!
//! The input is a script: first the memory's kind and length, then steps, each either a store to a
//! word or a call. Always: no call panics or reads outside, a pass over the events ends after at
//! most as many as there are places, and what comes out is within its bounds.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ecalls_abi::downcall::{DRAIN_MAX, FRAMES, LATEST};
use ecalls_abi::event::{ENTRY_DATA, EVENT_VOID};
use ecalls_abi::version::DATA_INLINE;
use ecalls_abi::{Layout, SlotUse};
use ecalls_ring::defer::{self, DOWN_WORDS};
use ecalls_ring::words::{self, ELEMENT_WORDS, zeroed};
use ecalls_ring::{
    DeferWriter, Drain, Event, RingReader, RingWriter, Shape, SlotsReader, SlotsWriter, Words,
};

const EVENTS: u32 = 8;
/// Entries of a slot here.
const WIDTH: u32 = 3;
const STEPS_MAX: usize = 200;

/// Memory whose length may be cut at any time.
struct Memory {
    words: Vec<AtomicU64>,
    len: AtomicUsize,
}

impl Words for Memory {
    fn words(&self) -> &[AtomicU64] {
        let len = self.len.load(Ordering::Relaxed).min(self.words.len());
        &self.words[..len]
    }
}

impl Memory {
    fn new(len: usize) -> Memory {
        Memory {
            words: zeroed(len),
            len: AtomicUsize::new(len),
        }
    }
}

/// The input, as numbers.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A word's value: small, near the ends, one bit, or anything.
    fn value(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            small @ 0..=99 => u64::from(small),
            high @ 100..=139 => u64::MAX - u64::from(high - 100),
            bit @ 140..=203 => 1 << (bit - 140),
            _ => {
                let mut bytes = [0; 8];
                for byte in &mut bytes {
                    *byte = self.byte()?;
                }
                u64::from_ne_bytes(bytes)
            }
        })
    }

    /// A word: one of the header, a sequence, or any.
    fn place(&mut self, element: usize, len: usize) -> Option<usize> {
        let at = usize::from(self.byte()?);
        Some(
            match at {
                0..=63 => at,
                64..=159 => (at - 64) * element,
                _ => at * 256 + usize::from(self.byte()?),
            } % len,
        )
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let mut script = Script(bytes);
    let _ = match script.byte() {
        Some(0..=79) => ring(&mut script),
        Some(80..=159) => slots(&mut script),
        Some(160..=229) => down(&mut script),
        Some(_) => header(&mut script),
        None => None,
    };
}

/// Does the step if it is one that anything may be done to; false: it is the caller's.
fn meddle(script: &mut Script<'_>, memory: &Memory, element: usize, step: u8) -> Option<bool> {
    let len = memory.words.len();
    match step % 8 {
        0..=2 => {
            let place = script.place(element, len)?;
            memory.words[place].store(script.value()?, Ordering::Relaxed);
        }
        3 if step > 250 => {
            let cut = usize::from(script.byte()?) * 8;
            memory.len.store(cut.min(len), Ordering::Relaxed);
        }
        3 => memory.len.store(len, Ordering::Relaxed),
        _ => return Some(false),
    }
    Some(true)
}

fn up(layout: Layout, slot_use: SlotUse, width: u32) -> Memory {
    let shape = Shape {
        layout,
        capacity: EVENTS,
        width,
        slot_use,
        channel: 1,
    };
    let memory = Memory::new(shape.words_needed());
    shape.write(memory.words()).expect("enough words");
    memory
}

/// `entries`: the most that an event has.
fn check_event(event: &Event, entries: u32) {
    let most = DATA_INLINE + (entries as usize - 1) * ENTRY_DATA;
    assert!(event.data_bytes().len() <= most);
    assert_eq!(event.data_bytes().len(), event.size as usize);
    let _ = (event.target(), event.deadline(), event.is_late(5));
}

/// An event with up to 4 KiB of data, or one that a reader skips.
fn sized(value: u64) -> Event {
    let mut event = Event::default();
    event
        .set_data(&[1; 4096][..(value % 4096) as usize])
        .expect("few bytes");
    event.flags = if value % 7 == 1 { EVENT_VOID } else { 0 };
    event
}

fn ring(script: &mut Script<'_>) -> Option<()> {
    let memory = up(Layout::Ring, SlotUse::Free, 1);
    let mut reader = RingReader::new(&memory).expect("a ring");
    let writer = RingWriter::new(&memory).expect("a ring");
    for _ in 0..STEPS_MAX {
        let step = script.byte()?;
        if meddle(script, &memory, ELEMENT_WORDS, step)? {
            continue;
        }
        match step % 8 {
            4 => {
                let _ = writer.push(&sized(script.value()?));
                let _ = writer.sleep().should_wake();
            }
            5 => {
                // A pass without a producer ends: no place holds two positions.
                let pass = reader.by_ref().take(EVENTS as usize + 1);
                let count = pass.inspect(|event| check_event(event, EVENTS)).count();
                assert!(count <= EVENTS as usize);
            }
            6 => {
                assert!(reader.len() <= EVENTS as usize);
                assert_eq!(usize::from(!reader.is_empty()), reader.len().min(1));
                let _ = (reader.is_ready(), reader.sleep().may_sleep(|| false));
                let _ = reader.sleep().cancel_sleep();
            }
            _ => {
                if let Ok(next) = RingReader::new(&memory) {
                    reader = next;
                }
                if reader.is_ready() {
                    reader
                        .next()
                        .iter()
                        .for_each(|event| check_event(event, EVENTS));
                }
            }
        }
    }
    Some(())
}

fn slots(script: &mut Script<'_>) -> Option<()> {
    let slot_use = match script.byte()? % 3 {
        0 => SlotUse::Free,
        1 => SlotUse::Priority,
        _ => SlotUse::Type,
    };
    let memory = up(Layout::Slots, slot_use, WIDTH);
    let mut reader = SlotsReader::new(&memory).expect("slots");
    let writer = SlotsWriter::new(&memory).expect("slots");
    for _ in 0..STEPS_MAX {
        let step = script.byte()?;
        if meddle(script, &memory, ELEMENT_WORDS, step)? {
            continue;
        }
        match step % 8 {
            4 => {
                let place = script.value()? as u32;
                let mut event = sized(script.value()?);
                event.r#type = place;
                event.priority = place;
                let _ = writer.put(&event);
            }
            5 => {
                let pass = reader.take_pending().take(EVENTS as usize + 1);
                let count = pass.inspect(|(slot, event)| {
                    assert!(*slot < reader_slots());
                    check_event(event, WIDTH);
                });
                assert!(count.count() <= EVENTS as usize);
            }
            6 => {
                reader.for_each_ready(|slot| assert!(slot < reader_slots()));
                reader.take_ready(|slot| assert!(slot < reader_slots()));
                assert!(reader.pending_words().count() <= 1);
            }
            _ => {
                let slot = script.value()? as usize;
                if let Some(event) = reader.take(slot) {
                    assert!(slot < reader_slots());
                    check_event(&event, WIDTH);
                }
                let _ = (reader.unread(), reader.flag(), reader.is_ready());
                if let Ok(next) = SlotsReader::new(&memory) {
                    reader = next;
                }
            }
        }
    }
    Some(())
}

const fn reader_slots() -> usize {
    EVENTS as usize
}

fn down(script: &mut Script<'_>) -> Option<()> {
    const CALL_WORDS: usize = 8;
    let memory = Memory::new(DOWN_WORDS);
    let mut writer = DeferWriter::new(&memory).expect("all of it");
    let mut drain = Drain::new(&memory).expect("all of it");
    for _ in 0..STEPS_MAX {
        let step = script.byte()?;
        if meddle(script, &memory, CALL_WORDS, step)? {
            continue;
        }
        match step % 8 {
            4 => {
                let _ = writer.push(1, [2; 3]);
                let _ = writer.is_first();
            }
            5 => {
                let cell = script.value()? as usize;
                let set = writer.set_latest(cell, 1, [2; 3]);
                assert!(set.is_err() || cell < LATEST);
            }
            6 => {
                let count = drain.drain(|call| call.op % 2 == 0);
                assert!(count <= DRAIN_MAX);
            }
            _ => {
                assert!(writer.pending() <= defer::CAPACITY);
                assert!(writer.pending_latest() < 1 << LATEST);
                let frame = script.value()? as usize;
                let result = defer::frame_result(memory.words(), frame);
                assert!(result.is_none() || frame < FRAMES);
                if let Ok(next) = DeferWriter::new(&memory) {
                    writer = next;
                }
            }
        }
    }
    Some(())
}

/// A header of garbage is refused, or it fits into the memory.
fn header(script: &mut Script<'_>) -> Option<()> {
    let len = usize::from(script.byte()?) * 4;
    let memory = Memory::new(len.max(1));
    let good = Shape {
        layout: Layout::Slots,
        capacity: u32::from(script.byte()?),
        width: u32::from(script.byte()?) % 8,
        slot_use: SlotUse::Type,
        channel: 1,
    };
    if good.write(memory.words()).is_ok() {
        assert_eq!(Shape::read(memory.words()), Ok(good));
    }
    for _ in 0..STEPS_MAX {
        let place = script.place(ELEMENT_WORDS, memory.words.len())?;
        memory.words[place].store(script.value()?, Ordering::Relaxed);
        if let Ok(shape) = Shape::read(memory.words()) {
            assert!(shape.words_needed() <= memory.words.len());
            assert!(shape.capacity.is_power_of_two());
        }
        let _ = RingReader::new(&memory).map(|mut reader| reader.next());
        let _ = SlotsReader::new(&memory).map(|mut reader| reader.take_pending().count());
        let _ = (
            words::lost(memory.words()),
            words::histogram(memory.words()),
        );
    }
    Some(())
}
