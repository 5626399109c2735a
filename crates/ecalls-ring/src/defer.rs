//! Deferred downcalls: a store by the application, which the kernel side handles later (ECalls-01
//! §2.3.1).
//!
//! `down` has a ring for calls that must all be handled, and cells of which only the latest value
//! counts. The application writes them, and the kernel side drains them at the next fast call,
//! after a delay, or before the caller's next scheduling.
//!
//! Ring: the writer owns `back`, the drain owns `front`; the entries between them wait. The writer
//! has private copies of `back` and of `front`, and reads `front` again only when the ring looks
//! full, so a call costs five stores and no shared load.
//!
//! Cells: the writer makes the cell's `sequence` odd, writes, makes it even, and sets the cell's
//! bit in `latest`. The drain clears the bit and then copies the cell. If the sequence is odd or
//! changes, the drain leaves the cell: the writer has not set the bit yet, and the latest value is
//! handled afterwards. A value may be handled twice (the drain cleared the bit of an older value,
//! copied the newer one, and then finds the newer one's bit); since both are the same value, this
//! is correct for a cell.
//!
//! Threads of an application exclude each other by `&mut`.

use core::fmt;
use core::mem::offset_of;

use ecalls_abi::downcall::{
    DOWN_CAPACITY, DOWN_ELEMENT_BYTES, DOWN_FRAMES, DOWN_LATEST, DOWN_RING, DRAIN_MAX, FRAMES,
    LATEST,
};
use ecalls_abi::zerocopy::transmute;
use ecalls_abi::{Down, Downcall};

use crate::error::{BadSegment, Full};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::words::Words;

/// Entries of the ring.
pub const CAPACITY: usize = if cfg!(loom) { 2 } else { DOWN_CAPACITY };
/// Words of a segment `down` up to the end of the ring. The slots for polling follow the ring.
pub const DOWN_WORDS: usize = (DOWN_RING + CAPACITY) * CALL_WORDS;

/// Words of one element.
const CALL_WORDS: usize = DOWN_ELEMENT_BYTES / 8;
const OP: usize = offset_of!(Downcall, op) / 8;
const ARGUMENT: usize = offset_of!(Downcall, argument) / 8;
const RESULT: usize = offset_of!(Downcall, result) / 8;
const SEQUENCE: usize = offset_of!(Downcall, sequence) / 8;

const BACK: usize = offset_of!(Down, back) / 8;
const LATEST_BITS: usize = offset_of!(Down, latest) / 8;
const FRONT: usize = offset_of!(Down, front) / 8;
const HANDLED: usize = offset_of!(Down, handled) / 8;
const REFUSED: usize = offset_of!(Down, refused) / 8;
const DRAINS: usize = offset_of!(Down, drains) / 8;

type Element = [AtomicU64; CALL_WORDS];

/// The number of a latest-value cell is not below `LATEST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchCell {
    /// The number that was given.
    pub cell: usize,
}

impl fmt::Display for NoSuchCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there is no latest-value cell {}, only {LATEST}",
            self.cell
        )
    }
}

impl core::error::Error for NoSuchCell {}

fn element(words: &[AtomicU64], index: usize) -> Option<&Element> {
    words.get(index * CALL_WORDS..)?.first_chunk()
}

fn ring_entry(words: &[AtomicU64], position: u64) -> Option<&Element> {
    element(words, DOWN_RING + (position % CAPACITY as u64) as usize)
}

fn check(words: &[AtomicU64]) -> Result<(), BadSegment> {
    if words.len() < DOWN_WORDS {
        return Err(BadSegment::TooShort {
            words: words.len(),
            needed: DOWN_WORDS,
        });
    }
    Ok(())
}

fn load_call(from: &Element) -> Downcall {
    let mut words = [0; CALL_WORDS];
    for i in (OP..=OP).chain(ARGUMENT..RESULT) {
        words[i] = from[i].load(Ordering::Relaxed);
    }
    transmute!(words)
}

#[inline]
fn store_call(to: &Element, op: u32, argument: [u64; 3]) {
    to[OP].store(transmute!([op, 0u32]), Ordering::Relaxed);
    for (word, value) in to[ARGUMENT..RESULT].iter().zip(argument) {
        word.store(value, Ordering::Relaxed);
    }
}

/// The application's side of `down`.
#[derive(Debug)]
pub struct DeferWriter<W> {
    words: W,
    back: u64,
    /// `front` when the ring last looked full.
    front_seen: u64,
    /// Each cell's `sequence`, even.
    sequence: [u64; LATEST],
}

impl<W: Words> DeferWriter<W> {
    /// Writes into `words`, from the position where the last writer stopped.
    ///
    /// # Errors
    /// [`BadSegment::TooShort`] if `words` is not a whole segment `down`.
    pub fn new(words: W) -> Result<DeferWriter<W>, BadSegment> {
        let all = words.words();
        check(all)?;
        let load = |word: Option<&AtomicU64>| word.map_or(0, |word| word.load(Ordering::Acquire));
        let (back, front_seen) = (load(all.get(BACK)), load(all.get(FRONT)));
        // A writer that died while it wrote a cell left the sequence odd: continue with the next
        // even number.
        let sequence = core::array::from_fn(|cell| {
            let word = element(all, DOWN_LATEST + cell).map(|element| &element[SEQUENCE]);
            load(word).wrapping_add(1) & !1
        });
        Ok(DeferWriter {
            words,
            back,
            front_seen,
            sequence,
        })
    }

    /// Defers a call. The kernel side handles it once, after all earlier ones.
    ///
    /// # Errors
    /// [`Full`] if [`CAPACITY`] calls wait: make a fast call, which drains some.
    #[inline]
    pub fn push(&mut self, op: u32, argument: [u64; 3]) -> Result<(), Full> {
        let words = self.words.words();
        if self.back.wrapping_sub(self.front_seen) >= CAPACITY as u64 {
            self.front_seen = words.get(FRONT).ok_or(Full)?.load(Ordering::Acquire);
            if self.back.wrapping_sub(self.front_seen) >= CAPACITY as u64 {
                return Err(Full);
            }
        }
        let entry = ring_entry(words, self.back).ok_or(Full)?;
        store_call(entry, op, argument);
        self.back = self.back.wrapping_add(1);
        words
            .get(BACK)
            .ok_or(Full)?
            .store(self.back, Ordering::Release);
        Ok(())
    }

    /// Defers a call of which only the latest counts: it replaces the call in `cell`. True: no
    /// cell was waiting to be handled before this call.
    ///
    /// # Errors
    /// [`NoSuchCell`] if `cell` is not below `LATEST`.
    pub fn set_latest(
        &mut self,
        cell: usize,
        op: u32,
        argument: [u64; 3],
    ) -> Result<bool, NoSuchCell> {
        let words = self.words.words();
        let error = NoSuchCell { cell };
        let sequence = self.sequence.get_mut(cell).ok_or(error)?;
        let place = element(words, DOWN_LATEST + cell).ok_or(error)?;
        place[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Relaxed);
        // The odd number is stored before the words.
        fence(Ordering::Release);
        store_call(place, op, argument);
        *sequence = sequence.wrapping_add(2);
        place[SEQUENCE].store(*sequence, Ordering::Release);
        let bits = words.get(LATEST_BITS).ok_or(error)?;
        Ok(bits.fetch_or(1 << cell, Ordering::Release) & LATEST_MASK == 0)
    }

    /// Whether the call that was pushed last is the only one that waits in the ring. False: earlier
    /// ones were not handled yet, and the drain that handles them checks for more afterwards.
    ///
    /// Therefore this is checked after the push, with a full barrier: the drain stores `front` and
    /// then checks `back`. So at least one of the two sees the other's change.
    pub fn is_first(&self) -> bool {
        fence(Ordering::SeqCst);
        self.pending() <= 1
    }

    /// Calls in the ring that wait to be handled; at most [`CAPACITY`], for any value of `front`.
    pub fn pending(&self) -> usize {
        let front = self.words.words().get(FRONT);
        let front = front.map_or(self.back, |front| front.load(Ordering::Acquire));
        self.back.wrapping_sub(front).min(CAPACITY as u64) as usize
    }

    /// Cells that wait to be handled: bit i for cell i.
    pub fn pending_latest(&self) -> u64 {
        let bits = self.words.words().get(LATEST_BITS);
        bits.map_or(0, |bits| bits.load(Ordering::Acquire)) & LATEST_MASK
    }

    /// The memory.
    pub fn words(&self) -> &W {
        &self.words
    }
}

const LATEST_MASK: u64 = (1 << LATEST) - 1;

/// The result of the last fast call of a frame: the frame's `sequence` (incremented with each
/// result) and the result. `None` if the frame's number is not below `FRAMES` or the slice is too
/// short.
///
/// The kernel side writes a frame during a call of the thread that owns it, so that thread never
/// reads a partial update.
pub fn frame_result(words: &[AtomicU64], frame: usize) -> Option<(u64, i64)> {
    if frame >= FRAMES {
        return None;
    }
    let frame = element(words, DOWN_FRAMES + frame)?;
    let sequence = frame[SEQUENCE].load(Ordering::Acquire);
    Some((sequence, frame[RESULT].load(Ordering::Relaxed) as i64))
}

/// The drain: the kernel side's algorithm, as a model for tests.
#[derive(Debug)]
pub struct Drain<W> {
    words: W,
    /// The drain's own `front`; the one in the segment is its copy for the writer.
    front: u64,
}

impl<W: Words> Drain<W> {
    /// Drains `words`, from the position where the last drain stopped.
    ///
    /// # Errors
    /// [`BadSegment::TooShort`] if `words` is not a whole segment `down`.
    pub fn new(words: W) -> Result<Drain<W>, BadSegment> {
        check(words.words())?;
        let front = words
            .words()
            .get(FRONT)
            .map_or(0, |front| front.load(Ordering::Relaxed));
        Ok(Drain { words, front })
    }

    /// Passes the waiting calls to `handle`, first those of the ring and then the cells, at most
    /// `DRAIN_MAX` at a time; `handle` returns false to refuse a call. Returns their number.
    ///
    /// A false `back` causes at most `DRAIN_MAX` calls with garbage.
    pub fn drain(&mut self, mut handle: impl FnMut(&Downcall) -> bool) -> usize {
        let words = self.words.words();
        let (mut count, mut refused) = (0, 0);
        let mut one = |call: &Downcall| {
            count += 1;
            refused += u64::from(!handle(call));
        };
        let back = words
            .get(BACK)
            .map_or(self.front, |back| back.load(Ordering::Acquire));
        let waiting = back.wrapping_sub(self.front).min(DRAIN_MAX as u64);
        for _ in 0..waiting {
            let Some(entry) = ring_entry(words, self.front) else {
                break;
            };
            one(&load_call(entry));
            self.front = self.front.wrapping_add(1);
        }
        if let Some(front) = words.get(FRONT) {
            front.store(self.front, Ordering::Release);
        }
        if let Some(bits) = words.get(LATEST_BITS) {
            drain_latest(words, bits, DRAIN_MAX - waiting as usize, &mut one);
        }
        for (word, add) in [(HANDLED, count as u64), (REFUSED, refused)] {
            if let Some(word) = words.get(word) {
                word.fetch_add(add, Ordering::Relaxed);
            }
        }
        if let (Some(drains), true) = (words.get(DRAINS), count > 0) {
            drains.fetch_add(1, Ordering::Relaxed);
        }
        count
    }
}

/// Takes at most `limit` cells.
fn drain_latest(
    words: &[AtomicU64],
    bits: &AtomicU64,
    limit: usize,
    one: &mut impl FnMut(&Downcall),
) {
    let waiting = bits.load(Ordering::Relaxed) & LATEST_MASK;
    for cell in (0..LATEST)
        .filter(|cell| waiting & 1 << cell != 0)
        .take(limit)
    {
        bits.fetch_and(!(1 << cell), Ordering::AcqRel);
        let Some(place) = element(words, DOWN_LATEST + cell) else {
            continue;
        };
        let sequence = place[SEQUENCE].load(Ordering::Acquire);
        let call = load_call(place);
        fence(Ordering::Acquire);
        if sequence % 2 == 0 && place[SEQUENCE].load(Ordering::Relaxed) == sequence {
            one(&call);
        }
    }
}
