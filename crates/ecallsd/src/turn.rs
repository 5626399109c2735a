//! Whose turn it is: requests wait per user, and users take turns. A user with a thousand
//! connections that all ask gets one answer for each one that the others get.

use std::collections::{HashMap, VecDeque};

/// What waits.
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
    /// One more of user `uid`.
    pub fn push(&mut self, uid: u32, item: T) {
        let waiting = self.waiting.entry(uid).or_default();
        if waiting.is_empty() {
            self.order.push_back(uid);
        }
        waiting.push_back(item);
    }

    /// The next one.
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

    /// Whether nothing waits.
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
}
