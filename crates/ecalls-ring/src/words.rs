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
use ecalls_abi::event::{ENTRY_DATA, entries};
use ecalls_abi::version::{DATA_INLINE, DATA_LARGE, DATA_MAX};
use ecalls_abi::zerocopy::{transmute, transmute_mut};
use ecalls_abi::{ABI_VERSION, Event as Record, Layout, Lost, SlotUse, Up};

use crate::error::BadSegment;
use crate::event::Event;
use crate::sync::{AtomicU64, FURTHER_WORDS, Ordering, is_copied};

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
pub(crate) const SEQUENCE: usize = offset_of!(Record, sequence) / 8;
/// The word of an event's deadline.
pub(crate) const DEADLINE: usize = offset_of!(Record, deadline_ns) / 8;
/// The word whose lower half is an event's flags.
pub(crate) const FLAGS: usize = offset_of!(Record, flags) / 8;
/// The word whose lower half is an event's size.
const SIZE: usize = offset_of!(Record, size) / 8;
/// Words of an event before its data.
const EVENT_HEAD: usize = offset_of!(Record, data) / 8;

pub(crate) const FLAG: usize = offset_of!(Up, flag) / 8;
pub(crate) const BACK: usize = offset_of!(Up, back) / 8;
pub(crate) const FRONT: usize = offset_of!(Up, front) / 8;
pub(crate) const SLEEPING: usize = offset_of!(Up, sleeping) / 8;
pub(crate) const WAKE_AT: usize = offset_of!(Up, wake_at) / 8;
pub(crate) const WAKE_BY: usize = offset_of!(Up, wake_by_ns) / 8;

/// The checked content of the header of `up`: where the events are and how they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Ring or slots.
    pub layout: Layout,
    /// Entries of a ring, or slots; a power of two.
    pub capacity: u32,
    /// Entries of a slot, at least 1; a ring has 1.
    pub width: u32,
    /// The rule by which an event gets its slot; without meaning in a ring.
    pub slot_use: SlotUse,
    /// Raw id of the channel.
    pub channel: u32,
}

impl Shape {
    /// Words of a segment of this shape.
    pub fn words_needed(&self) -> usize {
        (UP_EVENTS + self.capacity as usize * self.width as usize) * ELEMENT_WORDS
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
        let shape = Shape {
            layout,
            capacity,
            width: up.width,
            slot_use,
            channel: up.channel,
        };
        shape.check()?;
        if words.len() < shape.words_needed() {
            return Err(too_short(shape.words_needed()));
        }
        Ok(shape)
    }

    /// Writes the header of an unused segment, as the host does when it creates a channel.
    ///
    /// # Errors
    /// [`BadSegment`] names the invalid part; nothing is written then.
    pub fn write(&self, words: &[AtomicU64]) -> Result<(), BadSegment> {
        self.check()?;
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
            width: self.width,
            ..Up::default()
        };
        let header: [u64; ELEMENT_WORDS] = transmute!(up);
        for (word, value) in words.iter().zip(header) {
            word.store(value, Ordering::Release);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), BadSegment> {
        let (capacity, width) = (self.capacity, self.width);
        if !capacity.is_power_of_two() || capacity > self.layout.capacity_max() {
            return Err(BadSegment::Capacity { found: capacity });
        }
        let widest = match self.layout {
            Layout::Ring => 1,
            Layout::Slots => entries(DATA_MAX),
        };
        if width == 0 || width as usize > widest {
            return Err(BadSegment::Width { found: width });
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

/// The words of entry `index`; `None` if they are not in the slice.
#[inline]
pub(crate) fn entry_at(words: &[AtomicU64], index: usize) -> Option<&Entry> {
    words
        .get((UP_EVENTS + index) * ELEMENT_WORDS..)?
        .first_chunk()
}

/// An entry of a ring or a slot.
pub(crate) type Entry = [AtomicU64; ELEMENT_WORDS];

/// Word of a further entry with its first data.
const FURTHER_DATA: usize = 1;

/// The entries of the event that begins at `first`, `most` at most, as [`load_event`] takes them.
#[inline]
pub(crate) fn entries_of(first: &Entry, most: usize) -> usize {
    let size = first[SIZE].load(Ordering::Relaxed) as u32 as usize;
    if size <= DATA_INLINE || size > DATA_LARGE || entries(size) > most {
        return 1;
    }
    entries(size)
}

/// Copies an event into `event` by relaxed loads; the caller validates `sequence` before and after.
/// `further(i)` is the entry i behind `first`, from 1 to `most` - 1.
///
/// Data words that the event does not use are not copied, since they contain those of an older
/// event. They become 0. A size beyond `most` entries is that of garbage: then the record's own
/// data is all that there is.
#[inline]
pub(crate) fn load_event<'a>(
    event: &mut Event,
    first: &Entry,
    further: impl Fn(usize) -> Option<&'a Entry>,
    most: usize,
    sequence: u64,
) {
    event.forget_long();
    let words: &mut [u64; ELEMENT_WORDS] = transmute_mut!(event.record_mut());
    words[EVENT_HEAD..].fill(0);
    words[SEQUENCE] = sequence;
    for i in (SEQUENCE + 1..EVENT_HEAD).filter(|i| is_copied(*i)) {
        words[i] = first[i].load(Ordering::Relaxed);
    }
    let size = words[SIZE] as u32 as usize;
    let used = if is_copied(EVENT_HEAD) {
        size.min(DATA_INLINE).div_ceil(8)
    } else {
        0
    };
    let data = &mut words[EVENT_HEAD..EVENT_HEAD + used];
    for (word, from) in data.iter_mut().zip(&first[EVENT_HEAD..]) {
        *word = from.load(Ordering::Relaxed);
    }
    if size > DATA_INLINE {
        load_further(event, further, most);
    }
}

/// The same for the data beyond the record.
#[inline(never)]
fn load_further<'a>(event: &mut Event, further: impl Fn(usize) -> Option<&'a Entry>, most: usize) {
    let size = event.size as usize;
    if size > DATA_LARGE || entries(size) > most {
        event.size = DATA_INLINE as u32;
        return;
    }
    let mut long = Vec::with_capacity(size.div_ceil(8));
    long.extend_from_slice(&event.data);
    for entry in (1..entries(size)).map_while(further) {
        let data = &entry[FURTHER_DATA..];
        let count = (size.div_ceil(8) - long.len()).min(data.len());
        let copied = count.min(FURTHER_WORDS);
        long.extend(
            data[..copied]
                .iter()
                .map(|word| word.load(Ordering::Relaxed)),
        );
        long.resize(long.len() + count - copied, 0);
    }
    event.set_long(long.into_boxed_slice());
}

/// Writes an event by relaxed stores, except its sequence and unused data. `further(i)` is the
/// entry i behind `first`.
pub(crate) fn store_event<'a>(
    first: &Entry,
    further: impl Fn(usize) -> Option<&'a Entry>,
    event: &Event,
) {
    let used = (event.size as usize).min(DATA_INLINE).div_ceil(8);
    let words: [u64; ELEMENT_WORDS] = transmute!(*event.record());
    for i in (SEQUENCE + 1..EVENT_HEAD + used).filter(|i| is_copied(*i)) {
        first[i].store(words[i], Ordering::Relaxed);
    }
    let rest = event.words().get(DATA_INLINE / 8..).unwrap_or(&[]);
    for (i, data) in rest.chunks(ENTRY_DATA / 8).enumerate() {
        let Some(entry) = further(i + 1) else { return };
        entry[SEQUENCE].store(0, Ordering::Relaxed);
        for (word, value) in entry[FURTHER_DATA..].iter().zip(data).take(FURTHER_WORDS) {
            word.store(*value, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        layout: Layout::Ring,
        capacity: 4,
        width: 1,
        slot_use: SlotUse::Free,
        channel: 7,
    };

    #[test]
    fn word_offsets_are_those_of_the_header() {
        assert_eq!((FLAG, BACK, FRONT, SLEEPING), (0, 1, 8, 9));
        assert_eq!((SEQUENCE, EVENT_HEAD), (0, 11));
        assert_eq!(ELEMENT_WORDS, size_of::<Record>() / 8);
        assert!(is_copied(1) && is_copied(offset_of!(Record, size) / 8));
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
        for width in [0, 2] {
            let wide = Shape { width, ..SHAPE };
            assert_eq!(wide.write(&words), Err(BadSegment::Width { found: width }));
        }
    }

    /// A segment of 4 entries, each word of which is `fill`.
    fn filled(fill: u64) -> Vec<AtomicU64> {
        let words = zeroed(SHAPE.words_needed());
        for word in &words {
            word.store(fill, Ordering::Relaxed);
        }
        words
    }

    fn load(words: &[AtomicU64], most: usize) -> Event {
        let first = entry_at(words, 0).expect("it has 4");
        // What it held before leaves no trace.
        let mut event = Event::default();
        event.set_data(&[0xbb; 600]).expect("it fits");
        load_event(&mut event, first, |i| entry_at(words, i), most, 5);
        event
    }

    #[test]
    fn words_that_an_event_does_not_use_are_not_copied() {
        let words = filled(u64::MAX);
        for size in [
            DATA_INLINE + 2 * ENTRY_DATA,
            DATA_INLINE + 3,
            DATA_INLINE,
            3,
        ] {
            let mut event = Event::default();
            event.id = 1;
            event.sequence = 5;
            event.set_data(&[0xaa; DATA_LARGE][..size]).unwrap();
            let first = entry_at(&words, 0).unwrap();
            store_event(first, |i| entry_at(&words, i), &event);
            assert_eq!(load(&words, 4), event);
        }
    }

    #[test]
    fn further_entry_never_looks_like_a_record() {
        let words = filled(7);
        let mut event = Event::default();
        event.set_data(&[0xaa; 600]).unwrap();
        store_event(
            entry_at(&words, 0).unwrap(),
            |i| entry_at(&words, i),
            &event,
        );
        for i in 1..3 {
            let sequence = &entry_at(&words, i).unwrap()[SEQUENCE];
            assert_eq!(sequence.load(Ordering::Relaxed), 0);
        }
        let unused = &entry_at(&words, 3).unwrap()[SEQUENCE];
        assert_eq!(unused.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn size_that_lies_reads_nothing_outside() {
        let words = filled(u64::MAX);
        let size_word = &words[UP_EVENTS * ELEMENT_WORDS + 10];
        for size in [
            DATA_INLINE + ENTRY_DATA + 1,
            DATA_LARGE + 1,
            u32::MAX as usize,
        ] {
            size_word.store(size as u64, Ordering::Relaxed);
            let event = load(&words, 2);
            assert_eq!((event.sequence, event.size), (5, 168));
            assert_eq!(event.data_bytes(), [0xff; 168]);
        }
        size_word.store(DATA_INLINE as u64 + 9, Ordering::Relaxed);
        assert_eq!(load(&words, 2).data_bytes(), [0xff; 177]);
    }
}
