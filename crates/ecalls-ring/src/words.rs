//! Segments as slices of atomic words: their layout, and copies in and out.
//!
//! A segment is memory that two sides write, so it is never viewed as a struct: it is a slice of
//! 64-bit atomics, fields are word offsets computed from the structs of `ecalls-abi`, and only a
//! copy is a struct. All shared fields of the contract are 64 bits wide and aligned; the 32-bit
//! fields of the header are written once, before any reader exists.
//!
//! [`Shape`] is the content of the header after it was checked against the slice. Readers and
//! writers read it once and keep their own copy, so a later change of the header has no effect.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::offset_of;

use ecalls_abi::channel::{UP_EVENTS, UP_HISTOGRAM};
use ecalls_abi::version::DATA_MAX;
use ecalls_abi::zerocopy::transmute;
use ecalls_abi::{ABI_VERSION, Event, Layout, Lost, SlotUse, Up};

use crate::error::BadSegment;
use crate::sync::{AtomicU64, EVENT_WORDS, Ordering};

/// Memory that is shared with the other side, as 64-bit atomic words.
///
/// The slice should remain the same for the value's life. If it does not, readers and writers find
/// nothing and write nothing outside of it, but return garbage.
pub trait Words {
    /// The words.
    fn words(&self) -> &[AtomicU64];
}

impl Words for [AtomicU64] {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

impl Words for Vec<AtomicU64> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

impl<T: Words + ?Sized> Words for &T {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }
}

impl<T: Words + ?Sized> Words for Arc<T> {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }
}

impl<T: Words + ?Sized> Words for Box<T> {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }
}

/// `count` words of zero, on the heap: a segment for tests and for producers in user space.
pub fn zeroed(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// Words of one element of `up`: the header, the counters, an event.
pub const ELEMENT_WORDS: usize = ecalls_abi::channel::UP_ELEMENT_BYTES / 8;

/// Word of an event that contains its sequence.
pub(crate) const SEQUENCE: usize = offset_of!(Event, sequence) / 8;
/// The word of an event's deadline.
pub(crate) const DEADLINE: usize = offset_of!(Event, deadline_ns) / 8;
/// Words of an event before its data.
const EVENT_HEAD: usize = offset_of!(Event, data) / 8;

pub(crate) const FLAG: usize = offset_of!(Up, flag) / 8;
pub(crate) const BACK: usize = offset_of!(Up, back) / 8;
pub(crate) const FRONT: usize = offset_of!(Up, front) / 8;
pub(crate) const SLEEPING: usize = offset_of!(Up, sleeping) / 8;

/// The checked content of the header of `up`: where the events are and how they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Ring or slots.
    pub layout: Layout,
    /// Capacity in events; a power of two.
    pub capacity: u32,
    /// The rule by which an event gets its slot; without meaning in a ring.
    pub slot_use: SlotUse,
    /// Raw id of the channel.
    pub channel: u32,
}

impl Shape {
    /// Words of a segment of this shape.
    pub fn words_needed(&self) -> usize {
        (UP_EVENTS + self.capacity as usize) * ELEMENT_WORDS
    }

    /// Reads the shape from the header and checks it against the slice.
    ///
    /// Capacities below `CAPACITY_MIN` are accepted: that limit is the host's, not the protocol's.
    ///
    /// # Errors
    /// [`BadSegment`] names the invalid part.
    pub fn read(words: &[AtomicU64]) -> Result<Shape, BadSegment> {
        let too_short = |needed| BadSegment::TooShort {
            words: words.len(),
            needed,
        };
        let up = header(words).ok_or(too_short(ELEMENT_WORDS))?;
        if up.version != ABI_VERSION {
            return Err(BadSegment::Version { found: up.version });
        }
        let layout = Layout::from_raw(up.layout).ok_or(BadSegment::Layout { found: up.layout })?;
        let slot_use =
            SlotUse::from_raw(up.slot_use).ok_or(BadSegment::SlotUse { found: up.slot_use })?;
        let capacity = up.capacity;
        if !capacity.is_power_of_two() || capacity > layout.capacity_max() {
            return Err(BadSegment::Capacity { found: capacity });
        }
        let shape = Shape {
            layout,
            capacity,
            slot_use,
            channel: up.channel,
        };
        if words.len() < shape.words_needed() {
            return Err(too_short(shape.words_needed()));
        }
        Ok(shape)
    }

    /// Writes the header of an unused segment, as the host does when it creates a channel.
    ///
    /// # Errors
    /// [`BadSegment::TooShort`] or [`BadSegment::Capacity`]; nothing is written then.
    pub fn write(&self, words: &[AtomicU64]) -> Result<(), BadSegment> {
        if !self.capacity.is_power_of_two() || self.capacity > self.layout.capacity_max() {
            return Err(BadSegment::Capacity {
                found: self.capacity,
            });
        }
        if words.len() < self.words_needed() {
            let needed = self.words_needed();
            return Err(BadSegment::TooShort {
                words: words.len(),
                needed,
            });
        }
        let up = Up {
            version: ABI_VERSION,
            layout: self.layout.raw(),
            capacity: self.capacity,
            slot_use: self.slot_use.raw(),
            channel: self.channel,
            ..Up::default()
        };
        let header: [u64; ELEMENT_WORDS] = transmute!(up);
        for (word, value) in words.iter().zip(header) {
            word.store(value, Ordering::Release);
        }
        Ok(())
    }

    /// The shape, if the layout is `layout`.
    pub(crate) fn of_layout(words: &[AtomicU64], layout: Layout) -> Result<Shape, BadSegment> {
        let shape = Shape::read(words)?;
        if shape.layout != layout {
            return Err(BadSegment::Layout {
                found: shape.layout.raw(),
            });
        }
        Ok(shape)
    }
}

/// A copy of the header of `up`; `None` if the slice is shorter than one element.
pub fn header(words: &[AtomicU64]) -> Option<Up> {
    let words: [u64; ELEMENT_WORDS] = load(words, 0)?;
    Some(transmute!(words))
}

/// A copy of the counters of undelivered events by reason; `None` if the slice is too short.
///
/// Counters are read one by one: each is correct, but they need not be of the same moment.
pub fn lost(words: &[AtomicU64]) -> Option<Lost> {
    let words: [u64; ELEMENT_WORDS] = load(words, ELEMENT_WORDS)?;
    Some(transmute!(words))
}

/// A copy of the histogram handler's counters; `None` if the slice is too short.
pub fn histogram(words: &[AtomicU64]) -> Option<[u64; 2 * ELEMENT_WORDS]> {
    load(words, UP_HISTOGRAM * ELEMENT_WORDS)
}

fn load<const N: usize>(words: &[AtomicU64], at: usize) -> Option<[u64; N]> {
    let words = words.get(at..)?.first_chunk::<N>()?;
    Some(core::array::from_fn(|i| words[i].load(Ordering::Acquire)))
}

/// The words of event `index` (below the capacity); `None` if they are not in the slice.
pub(crate) fn event_at(words: &[AtomicU64], index: usize) -> Option<&[AtomicU64; ELEMENT_WORDS]> {
    words
        .get((UP_EVENTS + index) * ELEMENT_WORDS..)?
        .first_chunk()
}

/// Copies an event by relaxed loads; the caller validates `sequence` before and after.
///
/// Data words that the event does not use are not copied, since they contain those of an older
/// event. They become 0.
pub(crate) fn load_event(from: &[AtomicU64; ELEMENT_WORDS], sequence: u64) -> Event {
    let mut words = [0u64; ELEMENT_WORDS];
    words[SEQUENCE] = sequence;
    let head = EVENT_HEAD.min(EVENT_WORDS);
    for i in SEQUENCE + 1..head {
        words[i] = from[i].load(Ordering::Relaxed);
    }
    let mut event: Event = transmute!(words);
    let used = (event.size as usize).min(DATA_MAX).div_ceil(8);
    for (word, from) in event.data[..used].iter_mut().zip(&from[EVENT_HEAD..]) {
        *word = from.load(Ordering::Relaxed);
    }
    event
}

/// Writes an event's words by relaxed stores, except its sequence and unused data.
pub(crate) fn store_event(to: &[AtomicU64; ELEMENT_WORDS], event: &Event) {
    let used = (event.size as usize).min(DATA_MAX).div_ceil(8);
    let end = (EVENT_HEAD + used).min(EVENT_WORDS);
    let words: [u64; ELEMENT_WORDS] = transmute!(*event);
    for i in SEQUENCE + 1..end {
        to[i].store(words[i], Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        layout: Layout::Ring,
        capacity: 4,
        slot_use: SlotUse::Free,
        channel: 7,
    };

    #[test]
    fn word_offsets_are_those_of_the_header() {
        assert_eq!((FLAG, BACK, FRONT, SLEEPING), (0, 1, 8, 9));
        assert_eq!((SEQUENCE, EVENT_HEAD), (0, 11));
        assert_eq!(ELEMENT_WORDS, ecalls_abi::event::EVENT_WORDS);
    }

    #[test]
    fn shape_is_read_as_it_was_written() {
        let words = zeroed(SHAPE.words_needed());
        SHAPE.write(&words).unwrap();
        assert_eq!(Shape::read(&words), Ok(SHAPE));
        assert_eq!(lost(&words).unwrap().late, 0);
        assert_eq!(histogram(&words), Some([0; 64]));
    }

    #[test]
    fn header_that_promises_too_much_is_refused() {
        let words = zeroed(SHAPE.words_needed() - 1);
        let needed = SHAPE.words_needed();
        let error = BadSegment::TooShort {
            words: needed - 1,
            needed,
        };
        assert_eq!(SHAPE.write(&words), Err(error));
        assert_eq!(Shape::read(&words), Err(BadSegment::Version { found: 0 }));
        assert!(matches!(
            Shape::read(&[]),
            Err(BadSegment::TooShort { words: 0, .. })
        ));
        let slots = Shape {
            layout: Layout::Slots,
            capacity: 2048,
            ..SHAPE
        };
        assert_eq!(
            slots.write(&words),
            Err(BadSegment::Capacity { found: 2048 })
        );
    }

    #[test]
    fn words_that_an_event_does_not_use_are_not_copied() {
        let words = zeroed(ELEMENT_WORDS);
        let place = words.first_chunk().unwrap();
        let mut event = Event {
            id: 1,
            ..Event::default()
        };
        event.set_data(&[0xaa; DATA_MAX]).unwrap();
        store_event(place, &event);
        event.set_data(&[0xbb; 3]).unwrap();
        store_event(place, &event);
        assert_eq!(load_event(place, 0), event);
    }

    #[test]
    fn size_that_lies_reads_nothing_outside() {
        let words = zeroed(ELEMENT_WORDS);
        for word in &words {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        let event = load_event(words.first_chunk().unwrap(), 5);
        assert_eq!(
            (event.sequence, event.size, event.data),
            (5, u32::MAX, [u64::MAX; 21])
        );
    }
}
