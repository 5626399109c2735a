//! Places: the door's resources that no other quota covers. A place is a connection before its
//! HELLO, or one that the broker has closed but the door has not. Closing may take as long as the
//! client likes, because it also closes the descriptors that were sent and not received. Each user
//! has some places, whatever others do.
//!
//! A connection counts until it is closed, wherever its thread waits. So a user's threads in the
//! door are limited to its share of the places, and one for each connection that the broker
//! permits.

use std::collections::HashMap;

/// Places of all users.
const PLACES: u32 = 1024;

/// Places that are reserved for each user, of at most [`PLACES`] / 2 / `OWN` users.
const OWN: u32 = 4;

/// The places of each user.
#[derive(Debug, Default)]
pub struct Places(HashMap<u32, Taken>);

/// The places of one user.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Connections that have not said HELLO.
    new: u32,
    /// All connections.
    all: u32,
}

impl Places {
    /// Takes a place for a new connection of a user that may have `most` connections. Returns false
    /// if the user has its share. That is its reserved part, and of the other half what others
    /// left, divided by one more than the number of users that have some of it, itself included.
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

    /// A connection is no longer new: its client has said HELLO, or it is closed.
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
