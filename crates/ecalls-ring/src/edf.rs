//! A queue in user space, ordered by earliest deadline first (ECalls-05 §3).
//!
//! The kernel side's queue orders events until they are delivered. From then on they are in order
//! of delivery; code that takes more than one at a time (handler threads, readers) inserts them
//! into this queue and takes them by deadline, so that the order holds to the end.
//!
//! The order: earlier deadlines first, then values without a deadline; equal ones in order of
//! arrival. A full queue drops the last value in this order, which may be the new one, and counts
//! it: the same rule as the kernel side's `queue_full`.
//!
//! Keys are separate from the values, so that a value (an event has 272 bytes) is moved once in
//! and once out. A balanced tree of keys gives access to both ends in logarithmic time, which one
//! binary heap does not.

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
    /// The index of each key's value.
    order: BTreeMap<Key, usize>,
    values: Vec<Option<T>>,
    /// Indices of `values` that are not in use.
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

    /// Inserts a value. If the queue was full, returns the value that was dropped, the one with the
    /// latest deadline, and counts it.
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

    /// The earliest deadline in the queue, ns; `None` if no value has a deadline.
    pub fn next_deadline(&self) -> Option<u64> {
        let (key, _) = self.order.first_key_value()?;
        (!key.has_none).then_some(key.deadline_ns)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Largest number of values.
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
