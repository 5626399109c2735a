//! The slot layout: events in slots, found by a bit pattern (ECalls-01 §2.3).
//!
//! Bit i of `pattern` shows that slot i holds an event: producers set it, the reader clears it,
//! both atomically. The slot's `sequence` is a seqlock, and each increase by two is one event:
//!
//! | bit | `sequence` | meaning | writer of the slot |
//! |---|---|---|---|
//! | 0 | even | free | the producer that changes `sequence` from even to odd |
//! | 0 | odd | a producer checks the bit again, or writes | that producer |
//! | 1 | odd | the event is written, the producer is about to leave | that producer |
//! | 1 | even | holds an event | FREE, PRIORITY: none; TYPE: as if free |
//!
//! A producer makes `sequence` odd, checks the bit again (FREE, PRIORITY: if it is set, another
//! producer was faster and this one restores `sequence`), writes, sets the bit, and makes
//! `sequence` even. The bit is set before the number is even: otherwise a second producer could
//! find the slot free between the two, and overwrite an unread event.
//!
//! The reader's order depends on the use. FREE and PRIORITY: copy, then clear, because the set bit
//! excludes producers. TYPE: clear, then copy, because the slot may be rewritten at any time: an
//! event that is written after the clear sets the bit again, so the newest event is never lost. If
//! the slot remains odd for [`RETRIES`] checks, the bit remains (or is set again) and the event is
//! found the next time.
//!
//! Clearing first can find one event twice (the clear takes an older event's bit, the copy gets the
//! newer event, whose bit is set afterwards). The reader therefore remembers each slot's last
//! `sequence` and returns no event twice. The same number shows how many events it never copied:
//! [`SlotsReader::unread`] is exact, while a producer that counts the events that it replaces may
//! miss one that races with the clear.

use alloc::boxed::Box;
use core::mem::offset_of;

use ecalls_abi::channel::SLOTS_MAX;
use ecalls_abi::event::entries;
use ecalls_abi::{Layout, SlotUse, Up};

use crate::error::BadSegment;
use crate::event::Event;
use crate::sleep::Sleep;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::words::{Entry, FLAG, SEQUENCE, Shape, Words, entry_at, load_event, store_event};

/// Checks of a slot that is being written before it is left for later.
pub const RETRIES: usize = if cfg!(loom) { 2 } else { 64 };

const PATTERN: usize = offset_of!(Up, pattern) / 8;
const PATTERN_WORDS: usize = SLOTS_MAX / 64;

fn pattern(words: &[AtomicU64]) -> Option<&[AtomicU64; PATTERN_WORDS]> {
    words.get(PATTERN..)?.first_chunk()
}

/// The words of the pattern that belong to slots, and the bits of each that belong to slots.
fn pattern_in_use(words: &[AtomicU64], capacity: u32) -> (&[AtomicU64], u64) {
    let count = capacity.div_ceil(64) as usize;
    let bits = if capacity < 64 {
        (1 << capacity) - 1
    } else {
        u64::MAX
    };
    (
        pattern(words)
            .and_then(|pattern| pattern.get(..count))
            .unwrap_or(&[]),
        bits,
    )
}

/// The only reader of a channel with slots.
#[derive(Debug)]
pub struct SlotsReader<W> {
    words: W,
    capacity: u32,
    width: u32,
    slot_use: SlotUse,
    /// Each slot's `sequence` when its event was last returned.
    seen: Box<[u64]>,
    unread: u64,
}

impl<W: Words> SlotsReader<W> {
    /// Reads the slots in `words`. Events that wait there already are found.
    ///
    /// # Errors
    /// [`BadSegment`] if they are not slots, or not complete.
    pub fn new(words: W) -> Result<SlotsReader<W>, BadSegment> {
        let shape = Shape::of_layout(words.words(), Layout::Slots)?;
        let seen = (0..shape.capacity as usize)
            .map(|slot| seen_at_start(words.words(), slot, shape.width))
            .collect();
        Ok(SlotsReader {
            words,
            capacity: shape.capacity,
            width: shape.width,
            slot_use: shape.slot_use,
            seen,
            unread: 0,
        })
    }

    /// Takes the event in `slot`; `None` if there is none, or if a producer is writing it (its bit
    /// then remains).
    pub fn take(&mut self, slot: usize) -> Option<Event> {
        let words = self.words.words();
        let seen = self.seen.get_mut(slot)?;
        let word = &pattern(words)?[slot / 64 % PATTERN_WORDS];
        let bit = 1u64 << (slot % 64);
        // Acquire: a reader that sees the bit sees at least the odd number of the producer that set
        // it.
        if word.load(Ordering::Acquire) & bit == 0 {
            return None;
        }
        let width = self.width;
        let event = if self.slot_use == SlotUse::Type {
            word.fetch_and(!bit, Ordering::AcqRel);
            let event = copy(words, slot, width);
            if event.is_none() {
                word.fetch_or(bit, Ordering::Release);
            }
            event?
        } else {
            let event = copy(words, slot, width)?;
            word.fetch_and(!bit, Ordering::Release);
            event
        };
        let events = event.sequence.wrapping_sub(*seen) / 2;
        if events == 0 {
            return None;
        }
        *seen = event.sequence;
        self.unread = self.unread.wrapping_add(events - 1);
        Some(event)
    }

    /// Takes every waiting event, in order of slot: one pass over the slots, so it ends even if
    /// producers continue.
    pub fn take_pending(&mut self) -> TakePending<'_, W> {
        TakePending {
            reader: self,
            word: 0,
            bits: 0,
        }
    }

    /// Calls `f` with each slot that holds an event, in order, and changes nothing.
    #[inline]
    pub fn for_each_ready(&self, mut f: impl FnMut(usize)) {
        for (index, bits) in self.pending_words().enumerate() {
            for_each_bit(bits, |bit| f(index * 64 + bit));
        }
    }

    /// Calls `f` with each slot that holds an event, in order, and clears its bit without a copy:
    /// for a reader that only needs to know which slots have events. A newer event sets the bit
    /// again.
    #[inline]
    pub fn take_ready(&mut self, mut f: impl FnMut(usize)) {
        let (words, mask) = pattern_in_use(self.words.words(), self.capacity);
        for (index, word) in words.iter().enumerate() {
            if word.load(Ordering::Relaxed) & mask != 0 {
                let bits = word.swap(0, Ordering::AcqRel) & mask;
                for_each_bit(bits, |bit| f(index * 64 + bit));
            }
        }
    }

    /// The current pattern: word i has the bits of slots 64 i to 64 i + 63.
    #[inline]
    pub fn pending_words(&self) -> impl Iterator<Item = u64> {
        let (words, mask) = pattern_in_use(self.words.words(), self.capacity);
        words
            .iter()
            .map(move |word| word.load(Ordering::Acquire) & mask)
    }

    /// Whether a slot holds an event.
    pub fn is_ready(&self) -> bool {
        self.pending_words().any(|bits| bits != 0)
    }

    /// Events inserted since the channel exists: one word to check instead of the pattern.
    pub fn flag(&self) -> u64 {
        self.words
            .words()
            .get(FLAG)
            .map_or(0, |flag| flag.load(Ordering::Acquire))
    }

    /// Events that were inserted and that this reader never copied: those that were replaced, and
    /// those that it took only by [`SlotsReader::take_ready`]. The number for a slot is known when
    /// its next event is copied.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Number of slots.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// The sleeping flag of this channel.
    pub fn sleep(&self) -> Sleep<&W> {
        Sleep::new(&self.words)
    }

    /// The memory.
    pub fn words(&self) -> &W {
        &self.words
    }
}

/// Entry `i` of a slot.
fn entry(words: &[AtomicU64], slot: usize, width: u32, i: usize) -> Option<&Entry> {
    entry_at(words, slot * width as usize + i)
}

/// The `sequence` of a slot that a new reader regards as read.
fn seen_at_start(words: &[AtomicU64], slot: usize, width: u32) -> u64 {
    let first = entry(words, slot, width, 0);
    let sequence = first.map_or(0, |first| first[SEQUENCE].load(Ordering::Acquire));
    let bits = pattern(words).map_or(0, |pattern| {
        pattern[slot / 64 % PATTERN_WORDS].load(Ordering::Acquire)
    });
    let waits = bits & 1 << (slot % 64) != 0;
    if waits && sequence.is_multiple_of(2) {
        sequence.saturating_sub(2)
    } else {
        sequence & !1
    }
}

/// A copy of a slot that was not written meanwhile; `None` after [`RETRIES`] checks.
fn copy(words: &[AtomicU64], slot: usize, width: u32) -> Option<Event> {
    let further = |i| entry(words, slot, width, i);
    let first = further(0)?;
    let mut event = Event::default();
    for _ in 0..RETRIES {
        let sequence = first[SEQUENCE].load(Ordering::Acquire);
        if !sequence.is_multiple_of(2) {
            core::hint::spin_loop();
            continue;
        }
        load_event(&mut event, first, further, width as usize, sequence);
        fence(Ordering::Acquire);
        if first[SEQUENCE].load(Ordering::Relaxed) == sequence {
            return Some(event);
        }
    }
    None
}

#[inline]
fn for_each_bit(mut bits: u64, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// The events of one pass; see [`SlotsReader::take_pending`].
#[derive(Debug)]
pub struct TakePending<'a, W> {
    reader: &'a mut SlotsReader<W>,
    /// Next word of the pattern.
    word: usize,
    /// Bits of the previous word that are still to be taken.
    bits: u64,
}

impl<W: Words> Iterator for TakePending<'_, W> {
    type Item = (usize, Event);

    fn next(&mut self) -> Option<(usize, Event)> {
        loop {
            while self.bits == 0 {
                let reader = &self.reader;
                let (words, mask) = pattern_in_use(reader.words.words(), reader.capacity);
                self.bits = words.get(self.word)?.load(Ordering::Relaxed) & mask;
                self.word += 1;
            }
            let slot = (self.word - 1) * 64 + self.bits.trailing_zeros() as usize;
            self.bits &= self.bits - 1;
            if let Some(event) = self.reader.take(slot) {
                return Some((slot, event));
            }
        }
    }
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is in its slot.
    Delivered,
    /// It is in its slot, and has replaced an unread event.
    Replaced,
    /// It is nowhere: with [`SlotUse::Ready`] the unread event in its slot stands for it.
    Coalesced,
    /// It is dropped: no free slot, its slot still full, no such slot, more data than a slot has
    /// entries for, or another producer is writing into its slot at this moment (whose event is
    /// equally new).
    Full,
}

/// A producer: the kernel side's algorithm, as a model and for producers in user space.
///
/// Threads may share it.
#[derive(Debug)]
pub struct SlotsWriter<W> {
    words: W,
    capacity: u32,
    width: u32,
    slot_use: SlotUse,
}

impl<W: Words> SlotsWriter<W> {
    /// Writes the slots in `words`.
    ///
    /// # Errors
    /// [`BadSegment`] if they are not slots, or not complete.
    pub fn new(words: W) -> Result<SlotsWriter<W>, BadSegment> {
        let shape = Shape::of_layout(words.words(), Layout::Slots)?;
        Ok(SlotsWriter {
            words,
            capacity: shape.capacity,
            width: shape.width,
            slot_use: shape.slot_use,
        })
    }

    /// Inserts an event into the slot that the channel's use determines. Call
    /// [`Sleep::should_wake`] afterwards.
    pub fn put(&self, event: &Event) -> Put {
        match self.slot_use {
            SlotUse::Priority => self.put_at(event.priority as usize, event),
            SlotUse::Type | SlotUse::Ready => self.put_at(event.r#type as usize, event),
            SlotUse::Free => {
                let (words, mask) = pattern_in_use(self.words.words(), self.capacity);
                for (index, word) in words.iter().enumerate() {
                    let mut free = !word.load(Ordering::Relaxed) & mask;
                    while free != 0 {
                        let slot = index * 64 + free.trailing_zeros() as usize;
                        free &= free - 1;
                        if self.put_at(slot, event) == Put::Delivered {
                            return Put::Delivered;
                        }
                    }
                }
                Put::Full
            }
        }
    }

    /// Whether the event in a slot was not read. With use READY it then stands for a new one, and
    /// the reader that takes it finds whatever happened before: both access the word by a
    /// read-modify-write.
    fn is_unread(&self, word: &AtomicU64, bit: u64) -> bool {
        let bits = match self.slot_use {
            SlotUse::Ready => word.fetch_or(0, Ordering::AcqRel),
            _ => word.load(Ordering::Acquire),
        };
        bits & bit != 0
    }

    fn put_at(&self, slot: usize, event: &Event) -> Put {
        let words = self.words.words();
        let further = |i| entry(words, slot, self.width, i);
        let (Some(pattern), Some(first)) = (pattern(words), further(0)) else {
            return Put::Full;
        };
        if slot >= self.capacity as usize || entries(event.size as usize) > self.width as usize {
            return Put::Full;
        }
        let word = &pattern[slot / 64 % PATTERN_WORDS];
        let bit = 1u64 << (slot % 64);
        if self.slot_use == SlotUse::Ready && self.is_unread(word, bit) {
            return Put::Coalesced;
        }
        let before = first[SEQUENCE].load(Ordering::Relaxed) & !1;
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        let writing = before.wrapping_add(1);
        if first[SEQUENCE]
            .compare_exchange(before, writing, acquire, relaxed)
            .is_err()
        {
            return Put::Full;
        }
        if self.slot_use != SlotUse::Type && self.is_unread(word, bit) {
            first[SEQUENCE].store(before, Ordering::Release);
            return match self.slot_use {
                SlotUse::Ready => Put::Coalesced,
                _ => Put::Full,
            };
        }
        // The odd number is stored before the words.
        fence(Ordering::Release);
        store_event(first, further, event);
        let unread = word.fetch_or(bit, Ordering::AcqRel) & bit != 0;
        first[SEQUENCE].store(before.wrapping_add(2), Ordering::Release);
        if let Some(flag) = words.get(FLAG) {
            flag.fetch_add(1, Ordering::Release);
        }
        if unread {
            Put::Replaced
        } else {
            Put::Delivered
        }
    }

    /// The sleeping flag of this channel.
    pub fn sleep(&self) -> Sleep<&W> {
        Sleep::new(&self.words)
    }
}
