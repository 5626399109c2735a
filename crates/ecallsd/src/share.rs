//! Places: what clients take of the door while nobody else accounts for them. That is a connection
//! before its HELLO, and one that the broker has given up and that is not closed yet, which may
//! take as long as its client likes: who closes a socket closes the descriptors that were sent to
//! it and not received. Each user may have some places, whatever others do.
//!
//! A connection counts until it is closed, wherever its thread waits. So a user's threads in the
//! door are at most its share of the places, and one for each connection that the broker lets it
//! have.

use std::collections::HashMap;

/// Places of all users.
const PLACES: u32 = 1024;

/// Places that each user has for itself, of at most [`PLACES`] / 2 / `OWN` users.
const OWN: u32 = 4;

/// Who has how many.
#[derive(Debug, Default)]
pub struct Places(HashMap<u32, Taken>);

/// What one user has.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Connections that have not said HELLO.
    new: u32,
    /// Connections.
    all: u32,
}

impl Places {
    /// Takes one for a new connection of a user that the broker lets have `most` connections.
    /// False: the user has its share. That is its own part, and of the other half what others
    /// left, divided by the users that have some of it, itself included, and one.
    pub fn take(&mut self, uid: u32, most: u32) -> bool {
        let mine = self.0.get(&uid).copied().unwrap_or_default();
        let new: u32 = self.0.values().map(|taken| taken.new).sum();
        let (mut common, mut users) = (0, 1);
        for (_, taken) in self.0.iter().filter(|(user, _)| **user != uid) {
            common += taken.new.saturating_sub(OWN);
            users += u32::from(taken.new > OWN);
        }
        let share = OWN + (PLACES / 2).saturating_sub(common) / (users + 1);
        if mine.new >= share || new >= PLACES || mine.all >= share.saturating_add(most) {
            return false;
        }
        let mine = self.0.entry(uid).or_default();
        mine.new += 1;
        mine.all += 1;
        true
    }

    /// A connection is no longer new: it has said HELLO, or is closed.
    pub fn greet(&mut self, uid: u32) {
        if let Some(mine) = self.0.get_mut(&uid) {
            mine.new -= 1;
        }
    }

    /// A connection that was greeted is closed.
    pub fn leave(&mut self, uid: u32) {
        if let Some(mine) = self.0.get_mut(&uid) {
            mine.all -= 1;
            if mine.all == 0 {
                self.0.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_never_has_all_the_places() {
        let mut places = Places::default();
        let mut taken = 0;
        while places.take(1, 0) {
            taken += 1;
        }
        assert_eq!(taken, OWN + PLACES / 4);
        assert!(places.take(2, 0));
        for uid in [1, 2] {
            places.greet(uid);
            places.leave(uid);
        }
        assert!(places.take(1, 0));
    }

    #[test]
    fn a_hundred_greedy_users_leave_some() {
        let mut places = Places::default();
        for uid in 1..=100 {
            while places.take(uid, 0) {}
        }
        assert!(places.take(1000, 0));
        let taken: u32 = places.0.values().map(|taken| taken.new).sum();
        assert!(taken <= PLACES);
    }

    #[test]
    fn who_has_many_connections_that_do_not_close_gets_no_new_ones_and_others_do() {
        let mut places = Places::default();
        let mut taken = 0;
        while places.take(1, 8) {
            places.greet(1);
            taken += 1;
        }
        assert_eq!(taken, OWN + PLACES / 4 + 8);
        assert!(places.take(2, 8));
        places.leave(1);
        assert!(places.take(1, 8));
    }
}
