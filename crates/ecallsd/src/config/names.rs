//! Users and groups by name, from /etc/passwd and /etc/group.
//!
//! Only these two files are read, and no module of the C library's name service is loaded: it would
//! run in the process that holds the daemon's capabilities, and would need the network. Users of
//! other directories are given by number.

use std::collections::HashMap;
use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// A user or group as a configuration names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a name, or a number from 0 to 4294967294")]
pub enum Who {
    /// By number.
    Number(u32),
    /// By name.
    Name(String),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Number(number) => number.fmt(f),
            Who::Name(name) => write!(f, "{name:?}"),
        }
    }
}

/// The users and groups of this machine.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Number and first group of each user.
    users: HashMap<String, (u32, u32)>,
    /// Number and further members of each group.
    groups: HashMap<String, (u32, Vec<String>)>,
}

impl Names {
    /// The users and groups of the system; a file that cannot be read defines none.
    pub fn of_system() -> Names {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Names::parse(&text("/etc/passwd"), &text("/etc/group"))
    }

    /// Parses the texts of the two files. Malformed lines are skipped, as is usual.
    pub fn parse(passwd: &str, group: &str) -> Names {
        let mut names = Names::default();
        for line in passwd.lines() {
            let mut fields = line.split(':');
            if let (Some(name), _, Some(Ok(uid)), Some(Ok(gid))) = (
                fields.next(),
                fields.next(),
                fields.next().map(str::parse),
                fields.next().map(str::parse),
            ) {
                names.users.entry(name.to_owned()).or_insert((uid, gid));
            }
        }
        for line in group.lines() {
            let mut fields = line.split(':');
            if let (Some(name), _, Some(Ok(gid)), members) = (
                fields.next(),
                fields.next(),
                fields.next().map(str::parse),
                fields.next().unwrap_or(""),
            ) {
                let members = members.split(',').filter(|member| !member.is_empty());
                let members = members.map(|member| member.trim().to_owned()).collect();
                names
                    .groups
                    .entry(name.to_owned())
                    .or_insert((gid, members));
            }
        }
        names
    }

    /// A user's number; None: there is no such name.
    pub fn user(&self, who: &Who) -> Option<u32> {
        match who {
            Who::Number(number) => Some(*number),
            Who::Name(name) => self.users.get(name).map(|(uid, _)| *uid),
        }
    }

    /// A group's number; None: there is no such name.
    pub fn group(&self, who: &Who) -> Option<u32> {
        match who {
            Who::Number(number) => Some(*number),
            Who::Name(name) => self.groups.get(name).map(|(gid, _)| *gid),
        }
    }

    /// The users that belong to group `gid`, by their first group or as its members.
    pub fn members(&self, gid: u32) -> Vec<u32> {
        let first = self.users.values().filter(|(_, first)| *first == gid);
        let further = self
            .groups
            .values()
            .filter(|(group, _)| *group == gid)
            .flat_map(|(_, members)| members)
            .filter_map(|member| self.users.get(member));
        let mut uids: Vec<_> = first.chain(further).map(|(uid, _)| *uid).collect();
        uids.sort_unstable();
        uids.dedup();
        uids
    }

    /// The numbers of all users, in order.
    pub fn uids(&self) -> Vec<u32> {
        let mut uids: Vec<_> = self.users.values().map(|(uid, _)| *uid).collect();
        uids.sort_unstable();
        uids.dedup();
        uids
    }

    /// A user's name, for people; its number if it has none.
    pub fn of_user(&self, uid: u32) -> String {
        self.users
            .iter()
            .filter(|(_, (number, _))| *number == uid)
            .map(|(name, _)| name.clone())
            .min()
            .unwrap_or_else(|| uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
                          alice:x:1000:1000::/home/alice:/bin/sh\n\
                          bob:x:1001:100:::\n\
                          broken:x:many:1::\n\
                          \n+@nis\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:\nmonitor:x:200:alice, bob,nobody\nhalf:x\n";

    #[test]
    fn names_are_found_and_broken_lines_are_not() {
        let names = Names::parse(PASSWD, GROUP);
        let user = |name: &str| names.user(&Who::Name(name.to_owned()));
        assert_eq!(user("alice"), Some(1000));
        assert_eq!(user("broken"), None);
        assert_eq!(names.user(&Who::Number(77)), Some(77));
        assert_eq!(names.group(&Who::Name("monitor".to_owned())), Some(200));
        assert_eq!(names.group(&Who::Name("half".to_owned())), None);
        assert_eq!(names.of_user(1001), "bob");
        assert_eq!(names.of_user(5), "5");
    }

    #[test]
    fn members_of_a_group_are_those_listed_and_those_whose_first_group_it_is() {
        let names = Names::parse(PASSWD, GROUP);
        assert_eq!(names.members(200), [1000, 1001]);
        assert_eq!(names.members(100), [1001]);
        assert_eq!(names.members(7), [0; 0]);
    }
}
