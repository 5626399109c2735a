//! Texts in E-code: how many a user may upload per second, and how much CPU time they may take.
//!
//! A text beyond either limit is refused, not delayed: a program that uploads so much should not
//! wait for each text. The time of a text is known only afterwards, so one text can exceed the
//! user's time; the user then waits longer for the next one.

use std::collections::HashMap;

use crate::config::Limits;
use crate::rate::{Bucket, Rate};

const SECOND_NS: u64 = 1_000_000_000;

/// Users that are remembered; with more, those whose rates are unused are dropped.
const USERS_KEPT: usize = 1024;

/// What a user has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Number of texts refused because of their rate.
    pub too_many: u64,
    /// Number of texts refused because of their CPU time.
    pub too_long: u64,
    bucket: Bucket,
    /// When the time that was used is available again.
    paid_ns: u64,
}

/// A rate that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Its name in messages: "... of your user".
    pub name: &'static str,
    pub limit: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Uploads {
    users: HashMap<u32, Used>,
}

impl Uploads {
    /// Decides whether a user may upload another text now. Root always may.
    ///
    /// # Errors
    /// The rate that is used up.
    pub fn admit(&mut self, uid: u32, limits: &Limits, now_ns: u64) -> Result<(), Exceeded> {
        if uid == 0 {
            return Ok(());
        }
        if self.users.len() >= USERS_KEPT && !self.users.contains_key(&uid) {
            let is_full = |used: &Used| used.bucket.is_full(now_ns) && used.paid_ns <= now_ns;
            self.users.retain(|_, used| !is_full(used));
        }
        let used = self.users.entry(uid).or_default();
        if used.paid_ns.saturating_sub(now_ns) > SECOND_NS {
            used.too_long += 1;
            return Err(Exceeded {
                name: "time for E-code uploads, ns per second,",
                limit: limits.upload_time.0,
            });
        }
        let rate = Rate {
            per_s: limits.uploads_per_s.get(),
            burst: limits.uploads_burst.get(),
        };
        let mut bucket = used.bucket;
        if bucket.take(rate, now_ns) > 0 {
            used.too_many += 1;
            return Err(Exceeded {
                name: "E-code uploads per second",
                limit: rate.per_s,
            });
        }
        used.bucket = bucket;
        Ok(())
    }

    /// Charges the time for a user's text.
    pub fn spend(&mut self, uid: u32, limits: &Limits, spent_ns: u64, now_ns: u64) {
        let Some(used) = self.users.get_mut(&uid) else {
            return; // root, or a user that was dropped meanwhile
        };
        let per_s = u128::from(limits.upload_time.0.max(1));
        let paid = u128::from(spent_ns) * u128::from(SECOND_NS) / per_s;
        let paid = u64::try_from(paid).unwrap_or(u64::MAX);
        used.paid_ns = used.paid_ns.max(now_ns).saturating_add(paid);
    }

    pub fn of(&self, uid: u32) -> Used {
        self.users.get(&uid).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Count, HandlerTime};

    const NOW: u64 = 5_000_000_000;
    const ALICE: u32 = 7;

    fn limits() -> Limits {
        Limits {
            uploads_per_s: Count(10),
            uploads_burst: Count(3),
            upload_time: HandlerTime(100_000_000),
            ..Limits::default()
        }
    }

    #[test]
    fn a_burst_is_free_and_then_there_are_so_many_in_a_second() {
        let mut uploads = Uploads::default();
        for _ in 0..3 {
            assert_eq!(uploads.admit(ALICE, &limits(), NOW), Ok(()));
        }
        for _ in 0..1000 {
            assert!(
                uploads.admit(ALICE, &limits(), NOW).is_err(),
                "none of these counts"
            );
        }
        assert_eq!(uploads.admit(8, &limits(), NOW), Ok(()), "another user");
        assert_eq!(uploads.admit(ALICE, &limits(), NOW + 100_000_000), Ok(()));
        let refused = uploads.admit(ALICE, &limits(), NOW + 100_000_001);
        assert_eq!(refused.map_err(|one| one.limit), Err(10));
        assert_eq!(uploads.of(ALICE).too_many, 1001);
    }

    #[test]
    fn time_that_was_used_is_paid_for_and_root_pays_nothing() {
        let mut uploads = Uploads::default();
        assert_eq!(uploads.admit(ALICE, &limits(), NOW), Ok(()));
        // As much as two and a half seconds may take.
        uploads.spend(ALICE, &limits(), 250_000_000, NOW);
        let refused = uploads.admit(ALICE, &limits(), NOW + 1_499_999_999);
        assert_eq!(refused.map_err(|one| one.limit), Err(100_000_000));
        assert_eq!(uploads.admit(ALICE, &limits(), NOW + 1_500_000_000), Ok(()));
        assert_eq!(uploads.of(ALICE).too_long, 1);
        for _ in 0..1000 {
            assert_eq!(uploads.admit(0, &limits(), NOW), Ok(()));
            uploads.spend(0, &limits(), u64::MAX, NOW);
        }
        assert_eq!(uploads.of(0), Used::default());
    }

    #[test]
    fn many_users_take_a_bounded_place() {
        let mut uploads = Uploads::default();
        for uid in 1..100_000 {
            let now = NOW + u64::from(uid) * 1_000_000;
            assert_eq!(uploads.admit(uid, &limits(), now), Ok(()));
        }
        assert!(
            uploads.users.len() <= USERS_KEPT + 1,
            "{}",
            uploads.users.len()
        );
    }
}
