//! The lock under which a core is loaded, joined and changed; and the file by which a core is
//! found.
//!
//! Every change of the shared tables by user space (subscriptions, channels, services, attachments)
//! is made under one file lock, so that the changes of programs which host the core together do not
//! interfere. The kernel releases the lock when its holder dies. The file itself remains, because
//! removing a lock file is a race.
//!
//! The file contains the id of the map `ecalls_host` of the core that was loaded last, and the
//! process that loaded it. A search through all maps of the machine would be harmful: the kernel
//! empties a table of programs shortly after its last user has gone, and a process that opens and
//! closes the table by its id before then makes the kernel keep the table forever (6.18: each close
//! takes a reference for a work item that is queued only once).

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::io::fcntl_dupfd_cloexec;

use crate::error::{Error, Result};
use crate::kernel::instance;

/// The need of a program that cannot host the core, and found no daemon.
pub(crate) const NEEDED: &str = "the daemon, which does not run (systemctl start ecallsd), or root";

/// Bytes of each number in the file, including blanks and the end of the line.
const NUMBER_BYTES: usize = 12;

/// Held while it lives.
#[derive(Debug)]
pub(crate) struct Lock(File);

pub(crate) fn lock() -> Result<Lock> {
    let file = open_file()?;
    file.lock()
        .map_err(|error| Error::from_io("locking the core's file", error))?;
    Ok(Lock(file))
}

impl Lock {
    /// Id of the host map of the core that was loaded last; `None`: none since the machine's start.
    pub(crate) fn core_id(&self) -> Option<u32> {
        self.number(0)
    }

    /// The process that loaded that core.
    pub(crate) fn loader(&self) -> Option<u32> {
        self.number(1)
    }

    fn number(&self, line: u64) -> Option<u32> {
        let mut text = [0; NUMBER_BYTES];
        let at = line * NUMBER_BYTES as u64;
        let count = self.0.read_at(&mut text, at).ok()?;
        str::from_utf8(&text[..count]).ok()?.trim().parse().ok()
    }

    /// Records the id of a newly loaded core's host map, and this process.
    pub(crate) fn set_core(&self, id: u32) -> Result<()> {
        let width = NUMBER_BYTES - 1;
        let text = format!("{id:<width$}\n{:<width$}\n", std::process::id());
        self.0
            .write_all_at(text.as_bytes(), 0)
            .map_err(|error| Error::from_io("writing the core's file", error))
    }
}

fn open_file() -> Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(instance::lock_path()?)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => Error::Denied {
                action: "using events",
                privilege: NEEDED,
            },
            _ => Error::from_io("opening the core's file", error),
        })
}

/// A sign of life: each program that takes part in a core holds it while it does so, and a second
/// one for each part of the core that it holds.
///
/// The kernel empties a core's table of handlers and frees its timers when the last process closes
/// them, each a little later and independently; so a core that no program holds any more must not
/// be joined, although its maps can still be found. A joining program opens everything first and
/// then checks whether another program is alive.
///
/// A dying process closes its descriptors in the order of their numbers, on some kernels from the
/// first one, on others (6.18) from the last. So the sign has two halves: the first is opened
/// before the maps, the second has a number above theirs. While both exist, the maps exist, too.
#[derive(Debug)]
pub(crate) struct Alive {
    subject: Subject,
    first: File,
    last: Option<File>,
}

/// The subject of a sign: the core, or one of its parts (core/part.rs), each with two bytes of the
/// file, one for each half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    /// The core.
    Core,
    /// The part with the object file of this number in the loader's table.
    Part(usize),
}

impl Subject {
    /// The byte of the first half; that of the last half is the next one.
    fn first(self) -> i64 {
        match self {
            Subject::Core => 0,
            Subject::Part(number) => PARTS + 2 * i64::try_from(number).expect("a small table"),
        }
    }
}

/// Bytes of the file: one is locked while the core's record changes, one while a part is loaded;
/// then the first byte of the signs of parts.
const RECORD: i64 = 2;
const LOADING: i64 = 3;
const PARTS: i64 = 16;

/// A lock for a short time, independent of [`Lock`]; held while this object exists.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "the lock ends with it")] File);

/// Waits until no other thread or process changes the core's record.
pub(crate) fn hold_record() -> Result<Held> {
    hold(RECORD)
}

/// Waits until no other thread or process loads or joins a part of the core. The holder may wait
/// for the record, and for nothing else.
pub(crate) fn hold_parts() -> Result<Held> {
    hold(LOADING)
}

fn hold(byte: i64) -> Result<Held> {
    let file = open_file()?;
    let wanted = range(libc::F_WRLCK, byte);
    loop {
        // SAFETY: `wanted` is a flock structure that the call reads.
        let error = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const wanted) };
        if error == 0 {
            return Ok(Held(file));
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(Error::from_io("waiting for the core's file", error));
        }
    }
}

impl Alive {
    /// Opens the first half, which is not locked yet.
    pub(crate) fn open(subject: Subject) -> Result<Alive> {
        Ok(Alive {
            subject,
            first: open_file()?,
            last: None,
        })
    }

    /// Whether another program gives the sign.
    pub(crate) fn others(&self) -> Result<bool> {
        let first = self.subject.first();
        Ok(self.is_given(first)? && self.is_given(first + 1)?)
    }

    fn is_given(&self, half: i64) -> Result<bool> {
        is_locked(&self.first, half)
            .map_err(|error| Error::from_io("looking who uses the core", error))
    }

    /// Gives the sign until it is dropped. `above` is the largest number of the core's descriptors.
    pub(crate) fn give(&mut self, above: RawFd) -> Result<()> {
        let file = open_file()?;
        let last = fcntl_dupfd_cloexec(&file, above + 1)
            .map_err(|errno| Error::from_io("taking part in the core", errno.into()))?;
        let last = File::from(last);
        give_half(&self.first, self.subject.first())?;
        give_half(&last, self.subject.first() + 1)?;
        self.last = Some(last);
        Ok(())
    }
}

fn give_half(file: &File, half: i64) -> Result<()> {
    lock_byte(file, libc::F_RDLCK, half)
        .map_err(|error| Error::from_io("taking part in the core", error))
}

/// Whether another open file description holds a lock of this byte. The check blocks no other
/// process.
pub(crate) fn is_locked(file: &File, byte: i64) -> std::io::Result<bool> {
    let mut wanted = range(libc::F_WRLCK, byte);
    // SAFETY: `wanted` is a flock structure that the call may write.
    let error = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut wanted) };
    if error < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(i32::from(wanted.l_type) != libc::F_UNLCK)
}

/// Locks a byte until `file` is closed, for whatever reason; `WouldBlock` if another lock
/// conflicts. `kind`: `F_RDLCK`, which can be shared, or `F_WRLCK`.
pub(crate) fn lock_byte(file: &File, kind: i32, byte: i64) -> std::io::Result<()> {
    let wanted = range(kind, byte);
    // SAFETY: `wanted` is a flock structure that the call reads.
    let error = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) };
    if error < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// One byte of the file, for a lock of an open file description.
fn range(kind: i32, byte: i64) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).expect("a small constant"),
        l_whence: 0, // SEEK_SET
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}
