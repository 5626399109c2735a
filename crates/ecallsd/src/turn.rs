//! Fair queueing of requests: they wait per user, and the users take turns. A user with a thousand
//! connections gets one answer for each one that the other users get.

use std::collections::{HashMap, VecDeque};

/// The waiting items.
#[derive(Debug)]
pub struct Turns<T> {
    waiting: HashMap<u32, VecDeque<T>>,
    order: VecDeque<u32>,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns {
            waiting: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Turns<T> {
    /// Adds an item of user `uid`.
    pub fn push(&mut self, uid: u32, item: T) {
        let waiting = self.waiting.entry(uid).or_default();
        if waiting.is_empty() {
            self.order.push_back(uid);
        }
        waiting.push_back(item);
    }

    /// Removes the next item.
    pub fn pop(&mut self) -> Option<T> {
        let uid = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&uid)?;
        let item = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&uid);
        } else {
            self.order.push_back(uid);
        }
        item
    }

    /// Removes an item wherever it is. Returns whether there was one.
    pub fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> bool {
        let mut found = None;
        for (uid, waiting) in &mut self.waiting {
            if let Some(at) = waiting.iter().position(&is_it) {
                waiting.remove(at);
                found = Some((*uid, waiting.is_empty()));
                break;
            }
        }
        if let Some((uid, true)) = found {
            self.waiting.remove(&uid);
            self.order.retain(|other| *other != uid);
        }
        found.is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::default();
        for item in 0..4 {
            turns.push(1, (1, item));
        }
        turns.push(2, (2, 0));
        turns.push(3, (3, 0));
        let order: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(order, [(1, 0), (2, 0), (3, 0), (1, 1), (1, 2), (1, 3)]);
        assert!(turns.is_empty() && turns.waiting.is_empty());
    }

    #[test]
    fn what_is_taken_out_has_no_turn() {
        let mut turns = Turns::default();
        for (uid, item) in [(1, 10), (1, 11), (2, 20)] {
            turns.push(uid, item);
        }
        assert!(turns.remove(|item| *item == 20) && !turns.remove(|item| *item == 20));
        assert!(turns.remove(|item| *item == 10));
        assert_eq!((turns.pop(), turns.pop()), (Some(11), None));
        assert!(turns.is_empty() && turns.waiting.is_empty());
    }
}
