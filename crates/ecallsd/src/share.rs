//! Places that clients take before the daemon knows more of them than their user: connections that
//! were accepted and have not said HELLO. Each user may have some, whatever others do.

use std::collections::HashMap;

/// Places of all users.
const PLACES: u32 = 1024;

/// Places that each user has for itself, of at most [`PLACES`] / 2 / `OWN` users.
const OWN: u32 = 4;

/// Who has how many.
#[derive(Debug, Default)]
pub struct Places(HashMap<u32, u32>);

impl Places {
    /// Takes one. False: the user has its share. That is its own part, and of the other half what
    /// others left, divided by the users that have some of it, itself included, and one.
    pub fn take(&mut self, uid: u32) -> bool {
        let mine = self.0.get(&uid).copied().unwrap_or(0);
        let taken: u32 = self.0.values().sum();
        let (mut common, mut users) = (0, 1);
        for (_, places) in self.0.iter().filter(|(user, _)| **user != uid) {
            common += places.saturating_sub(OWN);
            users += u32::from(*places > OWN);
        }
        let share = OWN + (PLACES / 2).saturating_sub(common) / (users + 1);
        if mine >= share || taken >= PLACES {
            return false;
        }
        *self.0.entry(uid).or_default() += 1;
        true
    }

    /// Gives one back.
    pub fn leave(&mut self, uid: u32) {
        if let Some(mine) = self.0.get_mut(&uid) {
            *mine -= 1;
            if *mine == 0 {
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
        while places.take(1) {
            taken += 1;
        }
        assert_eq!(taken, OWN + PLACES / 4);
        assert!(places.take(2));
        places.leave(1);
        places.leave(2);
        assert!(places.take(1));
    }

    #[test]
    fn a_hundred_greedy_users_leave_some() {
        let mut places = Places::default();
        for uid in 1..=100 {
            while places.take(uid) {}
        }
        assert!(places.take(1000));
        let taken: u32 = places.0.values().sum();
        assert!(taken <= PLACES);
    }
}
