//! Earliest deadline first among what waits in user space (ECalls-05 §3).
//!
//! The kernel side's queue orders events until they are delivered. From then on they lie in order
//! of delivery; whoever takes more than one at a time (handler threads, readers) puts them in here
//! and takes them out by deadline, so that the order holds to the end.
//!
//! The order: earlier deadlines first, then whatever has none; equal ones in order of arrival. A
//! full queue drops the last in this order, which may be the newcomer, and counts it: the same rule
//! as the kernel side's `queue_full`.
//!
//! Keys are apart from the values, so that a value (an event has 256 bytes) is moved once in and
//! once out. A balanced tree of keys serves both ends in logarithmic time, which one binary heap
//! does not.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Order of waiting: without a deadline after all with one, then deadline, then arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    has_none: bool,
    deadline_ns: u64,
    arrival: u64,
}

/// A bounded queue, earliest deadline first.
#[derive(Clone, Debug)]
pub struct EdfQueue<T> {
    /// Where the value of each key is.
    order: BTreeMap<Key, usize>,
    values: Vec<Option<T>>,
    /// Places of `values` that are not in use.
    free: Vec<usize>,
    capacity: usize,
    arrivals: u64,
    dropped: u64,
}

impl<T> EdfQueue<T> {
    /// An empty queue for at most `capacity` values.
    pub fn new(capacity: usize) -> EdfQueue<T> {
        EdfQueue {
            order: BTreeMap::new(),
            values: Vec::new(),
            free: Vec::new(),
            capacity,
            arrivals: 0,
            dropped: 0,
        }
    }

    /// Puts a value in. Returns what had to be dropped for it, the value with the latest deadline,
    /// if the queue was full; it is counted.
    ///
    /// `deadline_ns` is absolute; `None`: none.
    pub fn push(&mut self, deadline_ns: Option<u64>, value: T) -> Option<T> {
        let key = Key {
            has_none: deadline_ns.is_none(),
            deadline_ns: deadline_ns.unwrap_or(0),
            arrival: self.arrivals,
        };
        self.arrivals = self.arrivals.wrapping_add(1);
        let mut dropped = None;
        if self.order.len() >= self.capacity {
            self.dropped = self.dropped.wrapping_add(1);
            match self.order.last_key_value() {
                Some((last, _)) if *last > key => dropped = self.take_last(),
                _ => return Some(value),
            }
        }
        let place = self.free.pop().unwrap_or(self.values.len());
        if place == self.values.len() {
            self.values.push(Some(value));
        } else {
            self.values[place] = Some(value);
        }
        self.order.insert(key, place);
        dropped
    }

    /// Takes the value with the earliest deadline.
    pub fn pop(&mut self) -> Option<T> {
        let (_, place) = self.order.pop_first()?;
        self.take_place(place)
    }

    /// The earliest deadline in ns that waits; `None` if nothing with a deadline waits.
    pub fn next_deadline(&self) -> Option<u64> {
        let (key, _) = self.order.first_key_value()?;
        (!key.has_none).then_some(key.deadline_ns)
    }

    /// Values that wait.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Values that may wait.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Values dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn take_last(&mut self) -> Option<T> {
        let (_, place) = self.order.pop_last()?;
        self.take_place(place)
    }

    fn take_place(&mut self, place: usize) -> Option<T> {
        self.free.push(place);
        self.values.get_mut(place)?.take()
    }
}
