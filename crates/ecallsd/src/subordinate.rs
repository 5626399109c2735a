//! Subordinate users: the ids that a user was given for its containers (/etc/subuid), and the user
//! that is charged for them.
//!
//! A user with containers has some ten thousand ids, and would have as many times the limits of a
//! single user. So resources and requests of a subordinate id are charged to the user that it was
//! given to: one share, one rate, one row in the kernel side's table. Its rights to see and reach
//! others are its own: to the kernel it is a user like any other.
//!
//! Ids of root's ranges are not charged to root, because root has no limits; and an id that
//! /etc/passwd names is a user of its own, whatever /etc/subuid says.

use std::fs;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::config::{Names, Who};

/// The file that lists them.
pub const PATH: &str = "/etc/subuid";

/// Ranges that are kept.
const RANGES_MAX: usize = 4096;

/// A range of ids that are charged to a user.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdRange {
    pub first: u32,
    pub last: u32,
    pub owner: u32,
}

/// All ranges; if two overlap, the first one applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subordinates(Vec<IdRange>);

impl Subordinates {
    /// The ranges of the system. `None`: the file, or the list of users, cannot be read.
    pub fn of_system(names: &Names) -> Option<Subordinates> {
        let text = fs::read_to_string(PATH).ok()?;
        let known = names.uids();
        (!known.is_empty()).then(|| Subordinates::parse(&text, names))
    }

    /// Parses the file's text. Malformed lines are skipped, as is usual.
    pub fn parse(text: &str, names: &Names) -> Subordinates {
        let known = names.uids();
        let mut ranges = Vec::new();
        for line in text.lines() {
            let mut fields = line.trim().split(':');
            let (Some(name), Some(Ok(first)), Some(Ok(count)), None) = (
                fields.next(),
                fields.next().map(str::parse::<u32>),
                fields.next().map(str::parse::<u32>),
                fields.next(),
            ) else {
                continue;
            };
            let by_name = names.user(&Who::Name(name.to_owned()));
            let Some(owner) = by_name.or_else(|| name.parse().ok()) else {
                continue;
            };
            let last = count
                .checked_sub(1)
                .and_then(|more| first.checked_add(more));
            if let Some(last) = last
                && owner != 0
            {
                without(&known, IdRange { first, last, owner }, &mut ranges);
            }
        }
        ranges.truncate(RANGES_MAX);
        Subordinates(ranges)
    }

    /// Adds ranges that were received.
    pub fn add(&mut self, ranges: &[IdRange]) {
        let room = RANGES_MAX.saturating_sub(self.0.len());
        self.0.extend(ranges.iter().take(room));
    }

    pub fn ranges(&self) -> &[IdRange] {
        &self.0
    }

    /// The user that is charged for an id: usually itself.
    pub fn account(&self, uid: u32) -> u32 {
        let holds = |range: &&IdRange| (range.first..=range.last).contains(&uid);
        match self.0.iter().find(holds) {
            Some(range) if uid != 0 => range.owner,
            _ => uid,
        }
    }
}

/// Adds the parts of a range that contain no known user, in order.
fn without(known: &[u32], range: IdRange, to: &mut Vec<IdRange>) {
    let mut first = Some(range.first);
    for uid in known
        .iter()
        .filter(|uid| (range.first..=range.last).contains(uid))
    {
        if let Some(begin) = first.filter(|begin| begin < uid) {
            let last = uid - 1;
            to.push(IdRange {
                first: begin,
                last,
                ..range
            });
        }
        first = uid.checked_add(1);
    }
    if let Some(first) = first.filter(|first| *first <= range.last) {
        to.push(IdRange { first, ..range });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let passwd = "root:x:0:0:::\nalice:x:1000:1000:::\nbob:x:100010:100:::\n";
        Names::parse(passwd, "")
    }

    #[test]
    fn subordinate_ids_count_for_whom_they_were_given_to() {
        let text = "alice:100000:65536\n1001:200000:10\n nobody:300000:1\n\nalice:1:x\nbroken\n";
        let subordinates = Subordinates::parse(text, &names());
        for (uid, account) in [
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 165_536),
            (200_009, 1001),
            (300_000, 300_000),
            (0, 0),
        ] {
            assert_eq!(subordinates.account(uid), account, "{uid}");
        }
    }

    #[test]
    fn users_with_a_name_and_roots_ranges_count_for_nobody_else() {
        let text = "alice:0:200000\nroot:300000:65536\nalice:4294967290:100\nalice:5:0\n";
        let subordinates = Subordinates::parse(text, &names());
        for uid in [0, 1000, 100_010, 300_000, u32::MAX] {
            assert_eq!(subordinates.account(uid), uid);
        }
        for uid in [1, 999, 1001, 100_009, 100_011, 199_999] {
            assert_eq!(subordinates.account(uid), 1000, "{uid}");
        }
    }
}
