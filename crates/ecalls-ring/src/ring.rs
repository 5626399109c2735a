//! The ring layout: events in order of arrival (ECalls-01 §2.3).
//!
//! Producers take positions, and the one reader follows. Position p is in entry p % capacity, and
//! the entry's `sequence` shows which position it holds:
//!
//! | `sequence` of entry p % capacity | means | the reader at front = p | next writer |
//! |---|---|---|---|
//! | 0, or p - capacity + 1 | unused, or the round before | finds nothing | producer of p |
//! | the same, words changing | a producer has taken p and writes | finds nothing | the same |
//! | p + 1 | position p is complete | copies, then front = p + 1 | producer of p + capacity |
//!
//! A producer takes a position only while back - front < capacity - slack. At most `slack`
//! producers are between that check and their `fetch_add`, so back - front never exceeds the
//! capacity and no entry is written before its last event was read. The argument holds for any
//! staleness of the two words: every position at or above front + capacity - slack was taken by a
//! producer that had checked before the first of those was taken, and there are at most `slack` of
//! them.
//!
//! Ordering: a producer's words are stored before its `sequence` (release; the reader acquires),
//! and a reader's copy ends before its store of `front` (release; the producers acquire). The
//! reader compares `sequence` again after the copy: with a correct writer it cannot have changed,
//! and with an incorrect one the torn copy is discarded.
//!
//! A complete event with a wrong number remains unread and the ring fills up behind it: a channel
//! with a corrupted ring delivers nothing, and its drops are counted as `ring_full`.

use ecalls_abi::{Event, Layout};

use crate::error::{BadSegment, Full};
use crate::sleep::Sleep;
use crate::sync::{Ordering, fence};
use crate::words::{
    BACK, DEADLINE, FLAG, FRONT, SEQUENCE, Shape, Words, event_at, load_event, store_event,
};

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
    /// The complete events from `front` to here are in the order of their deadlines; `latest` is
    /// the last one's.
    seen: u64,
    latest: u64,
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
        Ok(RingReader {
            words,
            capacity: shape.capacity,
            front,
            seen: front,
            latest: 0,
        })
    }

    /// Whether [`Iterator::next`] would return an event: one load of a word that changes only when
    /// an event arrives.
    pub fn is_ready(&self) -> bool {
        let index = (self.front & u64::from(self.capacity - 1)) as usize;
        event_at(self.words.words(), index).is_some_and(|entry| {
            entry[SEQUENCE].load(Ordering::Acquire) == self.front.wrapping_add(1)
        })
    }

    /// Whether the complete events, `most` at most, wait in the order of their deadlines: then a
    /// reader takes them as they are. Each event is looked at once, however often this is called.
    pub fn is_in_order(&mut self, most: usize) -> bool {
        if self.seen.wrapping_sub(self.front) > u64::from(self.capacity) {
            (self.seen, self.latest) = (self.front, 0);
        }
        while self.seen.wrapping_sub(self.front) < most as u64 {
            let index = (self.seen & u64::from(self.capacity - 1)) as usize;
            let next = self.seen.wrapping_add(1);
            let Some(entry) = event_at(self.words.words(), index) else {
                break;
            };
            if entry[SEQUENCE].load(Ordering::Acquire) != next {
                break;
            }
            // None, which is 0, is the latest.
            let deadline = entry[DEADLINE].load(Ordering::Relaxed).wrapping_sub(1);
            if self.seen != self.front && deadline < self.latest {
                return false;
            }
            (self.seen, self.latest) = (next, deadline);
        }
        true
    }

    /// Waiting events, complete or being written; at most the capacity, for any value of `back`.
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

    /// Capacity of the ring, in events.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Next position to read: the number of events read since the channel exists.
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
        let words = self.words.words();
        let sequence = self.front.wrapping_add(1);
        let index = (self.front & u64::from(self.capacity - 1)) as usize;
        let entry = event_at(words, index)?;
        if entry[SEQUENCE].load(Ordering::Acquire) != sequence {
            return None;
        }
        let event = load_event(entry, sequence);
        fence(Ordering::Acquire);
        if entry[SEQUENCE].load(Ordering::Relaxed) != sequence {
            return None;
        }
        self.front = sequence;
        words.get(FRONT)?.store(sequence, Ordering::Release);
        Some(event)
    }
}

/// A producer: the kernel side's algorithm, as a model and for producers in user space.
///
/// Threads may share it, up to `slack` at once.
#[derive(Debug)]
pub struct RingWriter<W> {
    words: W,
    capacity: u32,
    slack: u32,
}

impl<W: Words> RingWriter<W> {
    /// Writes the ring in `words`; at most `slack` producers call [`RingWriter::push`] at once.
    /// (The kernel side's slack is the number of CPUs.)
    ///
    /// # Errors
    /// [`BadSegment`] if it is not a ring, not complete, or its capacity is not above `slack`.
    pub fn new(words: W, slack: u32) -> Result<RingWriter<W>, BadSegment> {
        let shape = Shape::of_layout(words.words(), Layout::Ring)?;
        if slack >= shape.capacity {
            return Err(BadSegment::Slack { slack });
        }
        Ok(RingWriter {
            words,
            capacity: shape.capacity,
            slack,
        })
    }

    /// Inserts an event and returns its position. Call [`Sleep::should_wake`] afterwards.
    ///
    /// # Errors
    /// [`Full`] if the reader has not kept up, or `front` is invalid: above `back`, or further
    /// below it than the capacity.
    pub fn push(&self, event: &Event) -> Result<u64, Full> {
        let words = self.words.words();
        let (Some(front), Some(back), Some(flag)) =
            (words.get(FRONT), words.get(BACK), words.get(FLAG))
        else {
            return Err(Full);
        };
        let front_seen = front.load(Ordering::Acquire);
        let waiting = back.load(Ordering::Relaxed).wrapping_sub(front_seen);
        if waiting >= u64::from(self.capacity - self.slack) {
            return Err(Full);
        }
        let position = back.fetch_add(1, Ordering::Relaxed);
        let index = (position & u64::from(self.capacity - 1)) as usize;
        let entry = event_at(words, index).ok_or(Full)?;
        store_event(entry, event);
        entry[SEQUENCE].store(position.wrapping_add(1), Ordering::Release);
        flag.fetch_add(1, Ordering::Release);
        Ok(position)
    }

    /// The sleeping flag of this channel.
    pub fn sleep(&self) -> Sleep<&W> {
        Sleep::new(&self.words)
    }
}
