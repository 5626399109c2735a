//! Groups by name, and their numbers.
//!
//! The scheduler identifies a user's groups by numbers. A name has the number of its hash, or the
//! next free one if another name of the user has that number. To make all processes agree, the
//! first user of a name leaves a file for its number, which contains the name, in a folder of the
//! user that is emptied when the machine restarts. The file is linked there when it is complete, so
//! nobody reads a partial name.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use ecalls_abi::coop::COOP_GROUPS;

use crate::exit::{Code, Failure};

/// The longest name, in bytes.
const NAME_MAX: usize = 255;
/// Numbers that are tried for a name.
const TRIES: u32 = 64;

/// A group; all processes of a user that give the same name are in the same group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(super) name: String,
    pub(super) number: u32,
    /// It was given as a number, which no file reserves.
    is_number: bool,
}

impl Group {
    /// A number stands for itself; any other name has the number of its hash (FNV-1a).
    pub(crate) fn parse(name: &str) -> Result<Group, String> {
        let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let said: Result<u32, _> = name.parse();
        let number = match said {
            Ok(number) => number,
            Err(_) if name.is_empty() || name.len() > NAME_MAX => 0,
            Err(_) => 1 + name.bytes().fold(0x811c_9dc5, hash) % COOP_GROUPS,
        };
        if number == 0 || number > COOP_GROUPS {
            return Err(format!(
                "a group is a name, or a number of 1 to {COOP_GROUPS}"
            ));
        }
        Ok(Group {
            name: name.to_owned(),
            number,
            is_number: said.is_ok(),
        })
    }

    /// This group with a number that no other name of the user has.
    pub(super) fn claimed(self) -> Result<Group, Failure> {
        if self.is_number {
            return Ok(self);
        }
        let claimed = folder().and_then(|folder| self.claimed_in(&folder));
        claimed.map_err(|error| {
            let name = &self.name;
            Failure::new(
                Code::Failed,
                format!(
                    "reserving a number for the group {name}: {error} (a group can be given as a \
                     number instead)"
                ),
            )
        })
    }

    fn claimed_in(&self, folder: &Path) -> io::Result<Group> {
        let mut group = self.clone();
        for _ in 0..TRIES {
            if belongs_to(folder, group.number, &group.name)? {
                return Ok(group);
            }
            group.number = 1 + group.number % COOP_GROUPS;
        }
        Err(io::Error::other("too many groups"))
    }
}

/// Whether `number` belongs to `name`; a free number is reserved for it.
fn belongs_to(folder: &Path, number: u32, name: &str) -> io::Result<bool> {
    // The name of the new file is unique by process and time: a killed process may have left a file
    // here, and a process in another pid namespace may have the same id.
    let own = folder.join(format!("new-{}-{}", std::process::id(), ecalls::now_ns()));
    let place = folder.join(number.to_string());
    File::create_new(&own)?.write_all(name.as_bytes())?;
    let linked = fs::hard_link(&own, &place);
    // The file was linked to its final name, or is not needed.
    let _ = fs::remove_file(&own);
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Ok(fs::read(&place)? == name.as_bytes())
        }
        linked => linked.map(|()| true),
    }
}

/// The folder with this user's numbers; all sessions of the user share it.
fn folder() -> io::Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let session = PathBuf::from(format!("/run/user/{uid}"));
    let folder = match uid {
        0 => PathBuf::from("/run/ecalls-groups"),
        _ if is_of(&session, uid) => session.join("ecalls-groups"),
        _ => std::env::temp_dir().join(format!("ecalls-groups-{uid}")),
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match is_of(&folder, uid) {
        true => Ok(folder),
        false => Err(io::Error::other(format!(
            "{} is another's",
            folder.display()
        ))),
    }
}

/// Whether `path` is a folder, not a symbolic link, and belongs to this user.
fn is_of(folder: &Path, uid: u32) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_one_number_by_its_name_and_a_number_is_itself() {
        let number = |name| Group::parse(name).map(|group| group.number);
        assert_eq!(number("7"), Ok(7));
        assert_eq!(number("players"), number("players"));
        assert_ne!(number("players"), number("hogs"));
        for name in ["a", "players", "65536x"] {
            assert!((1..=COOP_GROUPS).contains(&number(name).expect("a number")));
        }
        for wrong in ["", "0", "65536"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        assert!(number(&"x".repeat(NAME_MAX + 1)).is_err());
    }

    #[test]
    fn two_names_with_one_hash_are_two_groups_and_stay_so() {
        let folder = std::env::temp_dir().join(format!("ecalls-groups-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let named = |name: &str, number| Group {
            name: name.to_owned(),
            number,
            is_number: false,
        };
        let claimed = |group: &Group| group.claimed_in(&folder).expect("a number").number;
        let (one, other) = (named("one", COOP_GROUPS), named("other", COOP_GROUPS));
        for _ in 0..2 {
            assert_eq!(claimed(&one), COOP_GROUPS);
            assert_eq!(claimed(&other), 1, "the next one");
        }
        assert_eq!(
            fs::read_dir(&folder).expect("it").count(),
            2,
            "nothing else"
        );
        fs::remove_dir_all(&folder).expect("removed");
    }
}
