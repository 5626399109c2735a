//! A binary heap whose entries know their positions, so that any of them can be removed in O(log
//! n): a cancelled event leaves no entry behind.
//!
//! An entry represents an index of the queue's table (`slot`). `places[slot]` is its position here;
//! the caller owns `places` and shares it between heaps, since a slot is in one heap at a time.
//! Order: least key first; equal keys in the order of their sequence, which is unique.

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// Release time or user virtual time.
    pub(crate) key: u64,
    /// The number of its submission.
    pub(crate) sequence: u64,
    /// The index in the table that it represents.
    pub(crate) slot: u32,
}

/// The heap.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<Entry>,
}

impl Heap {
    pub(crate) fn first(&self) -> Option<Entry> {
        self.entries.first().copied()
    }

    pub(crate) fn push(&mut self, entry: Entry, places: &mut [u32]) {
        self.entries.push(entry);
        self.rise(self.entries.len() - 1, places);
    }

    /// Removes the entry at `at`.
    pub(crate) fn remove(&mut self, at: usize, places: &mut [u32]) -> Entry {
        let removed = self.entries.swap_remove(at);
        if at < self.entries.len() {
            // The entry that replaces it came from the end: it may belong further down, or further
            // up.
            self.sink(at, places);
            self.rise(at, places);
        }
        removed
    }

    fn rise(&mut self, mut at: usize, places: &mut [u32]) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.entries[parent] <= self.entries[at] {
                break;
            }
            self.entries.swap(parent, at);
            self.note(at, places);
            at = parent;
        }
        self.note(at, places);
    }

    fn sink(&mut self, mut at: usize, places: &mut [u32]) {
        loop {
            let left = 2 * at + 1;
            let right = left + 1;
            let Some(mut least) = self.entries.get(left).map(|_| left) else {
                break;
            };
            if right < self.entries.len() && self.entries[right] < self.entries[left] {
                least = right;
            }
            if self.entries[at] <= self.entries[least] {
                break;
            }
            self.entries.swap(at, least);
            self.note(at, places);
            at = least;
        }
        self.note(at, places);
    }

    /// Records the position of the entry at `at`. A heap holds fewer than 2^32 entries, because the
    /// queue limits their number.
    fn note(&self, at: usize, places: &mut [u32]) {
        if let Some(entry) = self.entries.get(at) {
            places[entry.slot as usize] = at as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_in_order_whatever_is_removed() {
        let count = 200_u32;
        let mut places = vec![0; count as usize];
        let mut heap = Heap::default();
        for slot in 0..count {
            let key = u64::from(slot.wrapping_mul(2_654_435_761) >> 27);
            let sequence = u64::from(slot);
            heap.push(
                Entry {
                    key,
                    sequence,
                    slot,
                },
                &mut places,
            );
        }
        for slot in (0..count).step_by(3) {
            let removed = heap.remove(places[slot as usize] as usize, &mut places);
            assert_eq!(removed.slot, slot);
        }
        let mut last = None;
        let mut left = 0;
        while heap.first().is_some() {
            let entry = heap.remove(0, &mut places);
            assert!(last < Some(entry), "{last:?} {entry:?}");
            last = Some(entry);
            left += 1;
        }
        assert_eq!(left, count - count.div_ceil(3));
    }
}
