//! The ring layout: events in order of arrival (ECalls-01 §2.3).
//!
//! Producers take positions, and the one reader follows. Position p is in entry p % capacity. An
//! event takes n positions, one per entry that its data need ([`entries`]), and the `sequence` of
//! its first entry shows whether it is complete:
//!
//! | `sequence` of entry p % capacity | means | the reader at front = p | next writer |
//! |---|---|---|---|
//! | 0, or at most p - capacity + 1 | unused, or an earlier round | finds nothing | producer of p |
//! | the same, words changing | a producer has taken p and writes | finds nothing | the same |
//! | p + 1 | an event of n entries | copies, then front = p + n | producer of p + capacity |
//!
//! The word of a further entry that would be its `sequence` is 0. So data, which others choose,
//! never look like a complete event at a position where a later round begins one.
//!
//! A producer takes its n positions by one compare-and-exchange of `back`, and only if back - front
//! is then at most the capacity. `back` has not changed between the check and the exchange, and
//! `front` only grows: so no entry is written before its last event was read, whatever the number
//! of producers and the age of the `front` that they saw. A producer that fails [`TRIES`] times,
//! because others were faster each time, finds the ring full.
//!
//! Ordering: a producer's words are stored before its `sequence` (release; the reader acquires),
//! and a reader's copy ends before its store of `front` (release; the producers acquire). The
//! reader compares `sequence` again after the copy: with a correct writer it cannot have changed,
//! and with an incorrect one the torn copy is discarded.
//!
//! A subscription may coalesce: while the last event that it has stored is at or behind `front`, a
//! further one is not stored, since that event stands for it. Whoever reads it looks afterwards
//! what there is, and must find whatever the further event would have told. So both sides store
//! before they load: a producer has a full barrier between what happened and its load of `front`,
//! and the reader one behind its store of `front`, if the event has the flag [`EVENT_COALESCES`].
//!
//! A complete event with a wrong number remains unread and the ring fills up behind it: a channel
//! with a corrupted ring delivers nothing, and its drops are counted as `ring_full`.

use ecalls_abi::Layout;
use ecalls_abi::event::{EVENT_COALESCES, EVENT_VOID, entries};

use crate::error::{BadSegment, Full};
use crate::event::Event;
use crate::sleep::Sleep;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::words::{
    BACK, DEADLINE, Entry, FLAG, FLAGS, FRONT, SEQUENCE, Shape, Words, entries_of, entry_at,
    load_event, store_event,
};

/// Attempts of a producer to take its positions.
pub const TRIES: usize = if cfg!(loom) { 3 } else { 64 };

/// The entry of a position.
#[inline]
fn entry(words: &[AtomicU64], capacity: u32, position: u64) -> Option<&Entry> {
    entry_at(words, (position & u64::from(capacity - 1)) as usize)
}

/// The only reader of a ring.
///
/// It is an iterator over the events that are complete. `None` means that there is none now; more
/// may follow. Two readers of one ring disturb each other (events are doubled or delayed), but this
/// is still memory-safe.
#[derive(Debug)]
pub struct RingReader<W> {
    words: W,
    capacity: u32,
    /// Next position to read; the producers see the copy `front` in the segment.
    front: u64,
    /// The complete events from `front` to here, `ahead` in number, are in the order of their
    /// deadlines; `latest` is the last one's.
    seen: u64,
    ahead: usize,
    latest: u64,
    /// The events that were taken, of those that `flag` counts.
    taken: u64,
}

impl<W: Words> RingReader<W> {
    /// Continues reading the ring in `words` at the position where its last reader stopped.
    ///
    /// # Errors
    /// [`BadSegment`] if it is not a ring, or not complete.
    pub fn new(words: W) -> Result<RingReader<W>, BadSegment> {
        let shape = Shape::of_layout(words.words(), Layout::Ring)?;
        let front = words
            .words()
            .get(FRONT)
            .map_or(0, |front| front.load(Ordering::Relaxed));
        let stored = words
            .words()
            .get(FLAG)
            .map_or(0, |flag| flag.load(Ordering::Acquire));
        let mut reader = RingReader {
            words,
            capacity: shape.capacity,
            front,
            seen: front,
            ahead: 0,
            latest: 0,
            taken: 0,
        };
        // Not exact if a former reader has ended while events arrived: then wake-ups come late by
        // as many events as were incomplete here.
        let (waiting, _) = reader.waiting(shape.capacity as usize);
        reader.taken = stored.saturating_sub(waiting as u64);
        Ok(reader)
    }

    /// Whether [`Iterator::next`] would return an event: one load of a word that changes only when
    /// an event arrives.
    pub fn is_ready(&self) -> bool {
        entry(self.words.words(), self.capacity, self.front).is_some_and(|entry| {
            entry[SEQUENCE].load(Ordering::Acquire) == self.front.wrapping_add(1)
        })
    }

    /// Whether the complete events, `most` at most, wait in the order of their deadlines: then a
    /// reader takes them as they are. Each event is looked at once, however often this is called.
    pub fn is_in_order(&mut self, most: usize) -> bool {
        if self.seen.wrapping_sub(self.front) > u64::from(self.capacity) {
            (self.seen, self.ahead, self.latest) = (self.front, 0, 0);
        }
        while self.ahead < most {
            let Some(first) = entry(self.words.words(), self.capacity, self.seen) else {
                break;
            };
            if first[SEQUENCE].load(Ordering::Acquire) != self.seen.wrapping_add(1) {
                break;
            }
            // None, which is 0, is the latest.
            let deadline = first[DEADLINE].load(Ordering::Relaxed).wrapping_sub(1);
            if self.seen != self.front && deadline < self.latest {
                return false;
            }
            let count = entries_of(first, self.capacity as usize);
            self.seen = self.seen.wrapping_add(count as u64);
            self.ahead += 1;
            self.latest = deadline;
        }
        true
    }

    /// The number of complete events, `most` at most, and the earliest of their deadlines, or
    /// [`u64::MAX`].
    fn waiting(&self, most: usize) -> (usize, u64) {
        let (mut position, mut count, mut earliest) = (self.front, 0, u64::MAX);
        while count < most {
            let Some(first) = entry(self.words.words(), self.capacity, position) else {
                break;
            };
            if first[SEQUENCE].load(Ordering::Acquire) != position.wrapping_add(1) {
                break;
            }
            let deadline = first[DEADLINE].load(Ordering::Relaxed);
            earliest = earliest.min(deadline.wrapping_sub(1));
            position = position.wrapping_add(entries_of(first, self.capacity as usize) as u64);
            count += 1;
        }
        (count, earliest.saturating_add(1))
    }

    /// Announces that the reader sleeps until `events` events wait, until one arrives whose
    /// deadline is before `by_ns`, or until `by_ns`. True: wait on the descriptor now.
    pub fn may_sleep_until(&self, events: usize, by_ns: u64) -> bool {
        let at = self.taken.wrapping_add(events as u64);
        self.sleep().may_sleep_until(at, by_ns, || {
            let (count, earliest) = self.waiting(events);
            count >= events || earliest < by_ns
        })
    }

    /// Entries of waiting events, complete or being written; at most the capacity, for any value of
    /// `back`.
    pub fn len(&self) -> usize {
        let back = self
            .words
            .words()
            .get(BACK)
            .map_or(0, |word| word.load(Ordering::Acquire));
        back.wrapping_sub(self.front).min(u64::from(self.capacity)) as usize
    }

    /// Whether no event waits, neither complete nor being written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Capacity of the ring, in entries.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Next position to read: the number of entries read since the channel exists.
    pub fn front(&self) -> u64 {
        self.front
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

impl<W: Words> Iterator for RingReader<W> {
    type Item = Event;

    /// The next complete event. Its `sequence` is its position + 1.
    #[inline]
    fn next(&mut self) -> Option<Event> {
        // One variable from the beginning to the return, so that it is built where the caller wants
        // it: an event is more than four cache lines.
        let mut next = Some(Event::default());
        if !next.as_mut().is_some_and(|event| self.take_into(event)) {
            next = None;
        }
        next
    }
}

impl<W: Words> RingReader<W> {
    /// Copies the next complete event into `event`, in place of what that held, and returns whether
    /// there was one. If not, the content of `event` has no meaning.
    ///
    /// This is the one copy of an event on its way to a program; [`Iterator::next`] makes it, too.
    #[inline]
    pub fn take_into(&mut self, event: &mut Event) -> bool {
        // Events without data are passed over; each has an entry.
        for _ in 0..self.capacity {
            let (words, front, capacity) = (self.words.words(), self.front, self.capacity);
            let sequence = front.wrapping_add(1);
            let Some(first) = entry(words, capacity, front) else {
                return false;
            };
            if first[SEQUENCE].load(Ordering::Acquire) != sequence {
                return false;
            }
            let flags = first[FLAGS].load(Ordering::Relaxed) as u32;
            if flags & EVENT_VOID != 0 {
                self.pass(entries_of(first, capacity as usize));
                continue;
            }
            let further = |i| entry(words, capacity, front.wrapping_add(i as u64));
            load_event(event, first, further, capacity as usize, sequence);
            fence(Ordering::Acquire);
            if first[SEQUENCE].load(Ordering::Relaxed) != sequence {
                return false;
            }
            self.pass(entries(event.size as usize));
            if flags & EVENT_COALESCES != 0 {
                fence(Ordering::SeqCst);
            }
            self.taken = self.taken.wrapping_add(1);
            return true;
        }
        false
    }

    /// Leaves the event at `front`, of so many entries, to the producers.
    #[inline]
    fn pass(&mut self, count: usize) {
        self.front = self.front.wrapping_add(count as u64);
        self.ahead = self.ahead.saturating_sub(1);
        if let Some(front) = self.words.words().get(FRONT) {
            front.store(self.front, Ordering::Release);
        }
    }
}

/// A producer: the kernel side's algorithm, as a model and for producers in user space.
///
/// Threads may share it.
#[derive(Debug)]
pub struct RingWriter<W> {
    words: W,
    capacity: u32,
}

impl<W: Words> RingWriter<W> {
    /// Writes the ring in `words`.
    ///
    /// # Errors
    /// [`BadSegment`] if it is not a ring, or not complete.
    pub fn new(words: W) -> Result<RingWriter<W>, BadSegment> {
        let shape = Shape::of_layout(words.words(), Layout::Ring)?;
        let capacity = shape.capacity;
        Ok(RingWriter { words, capacity })
    }

    /// Inserts an event and returns its position. Call [`Sleep::should_wake`] afterwards.
    ///
    /// # Errors
    /// [`Full`] if the reader has not kept up, the event needs more entries than there are, or
    /// `front` is invalid: above `back`, or further below it than the capacity.
    pub fn push(&self, event: &Event) -> Result<u64, Full> {
        let words = self.words.words();
        let flag = words.get(FLAG).ok_or(Full)?;
        let position = self.reserve(entries(event.size as usize) as u64)?;
        let further = |i| entry(words, self.capacity, position.wrapping_add(i as u64));
        let first = further(0).ok_or(Full)?;
        store_event(first, further, event);
        first[SEQUENCE].store(position.wrapping_add(1), Ordering::Release);
        flag.fetch_add(1, Ordering::Release);
        Ok(position)
    }

    /// The same for a subscription that coalesces: `None` if the event that it stored last was not
    /// read yet, and so stands for this one. `stored` is the subscription's, at first 0; its
    /// events have the flag [`EVENT_COALESCES`].
    ///
    /// # Errors
    /// As [`RingWriter::push`].
    pub fn push_coalescing(&self, event: &Event, stored: &AtomicU64) -> Result<Option<u64>, Full> {
        fence(Ordering::SeqCst);
        let front = self.words.words().get(FRONT).ok_or(Full)?;
        if front.load(Ordering::Acquire) < stored.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let position = self.push(event)?;
        stored.store(position.wrapping_add(1), Ordering::Relaxed);
        Ok(Some(position))
    }

    /// Takes `count` positions, and returns the first.
    fn reserve(&self, count: u64) -> Result<u64, Full> {
        let words = self.words.words();
        let (front, back) = (words.get(FRONT).ok_or(Full)?, words.get(BACK).ok_or(Full)?);
        for _ in 0..TRIES {
            let read = front.load(Ordering::Acquire);
            let position = back.load(Ordering::Relaxed);
            let used = position.wrapping_sub(read).saturating_add(count);
            if used > u64::from(self.capacity) {
                return Err(Full);
            }
            let next = position.wrapping_add(count);
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            if back
                .compare_exchange(position, next, success, failure)
                .is_ok()
            {
                return Ok(position);
            }
        }
        Err(Full)
    }

    /// The sleeping flag of this channel.
    pub fn sleep(&self) -> Sleep<&W> {
        Sleep::new(&self.words)
    }
}
