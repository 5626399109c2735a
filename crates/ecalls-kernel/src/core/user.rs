//! The users of the core: what the processes of each uid may use, and what they use at present.
//!
//! The process that decides about limits (the daemon) gives each uid a row; subscriptions, channels
//! and application services that are created on its behalf name that row. The kernel side counts in
//! the same row what it admits, so a limit is stored as a single word through a mapping of the
//! table, never as a whole row.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use ecalls_abi::channel::{STATE_ACTIVE, STATE_FREE};
use ecalls_abi::user::UNLIMITED;
use ecalls_abi::user::User;
use ecalls_abi::version::USERS_MAX;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::kernel::table::Mapped;

/// Largest burst of a rate: `BUCKET_BURST_MAX` of bpf/lib/bucket.h.
pub const BURST_MAX: u32 = 1 << 16;

/// The limits of one user; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Events offered to its subscriptions, per second.
    pub up_per_s: u64,
    /// Their largest burst; 0 counts as 1.
    pub up_burst: u32,
    /// Events it raises by calls and by timers, per second.
    pub raise_per_s: u64,
    /// Their largest burst; 0 counts as 1.
    pub raise_burst: u32,
    /// Time of its kernel handlers, ns per second.
    pub handler_ns_per_s: u64,
    /// Its events and chains that may wait in queues.
    pub queued_max: u32,
    /// Number of timers of its channels.
    pub timers_max: u32,
    /// Times that its timers are set, or expire again, per second.
    pub timer_per_s: u64,
    /// Their largest burst; 0 counts as 1.
    pub timer_burst: u32,
}

/// The mapped table.
#[derive(Debug)]
struct Users<'a>(&'a Mapped<User>);

impl Users<'_> {
    fn store(&self, row: u32, offset: usize, value: u64) {
        self.0.word(row, offset).store(value, Ordering::Release);
    }

    /// Stores two adjacent 32-bit fields, the first of which is at `offset`.
    fn store_pair(&self, row: u32, offset: usize, first: u32, second: u32) {
        self.store(row, offset, zerocopy::transmute!([first, second]));
    }

    fn read(&self, row: u32) -> User {
        self.0.get(row)
    }

    fn store_limits(&self, row: u32, limits: &Limits) {
        self.store(row, offset_of!(User, up_per_s), limits.up_per_s);
        self.store(row, offset_of!(User, raise_per_s), limits.raise_per_s);
        let handler_ns = limits.handler_ns_per_s;
        self.store(row, offset_of!(User, handler_ns_per_s), handler_ns);
        let (up, raise) = (limits.up_burst, limits.raise_burst);
        self.store_pair(row, offset_of!(User, up_burst), up, raise);
        let (queued, timers) = (limits.queued_max, limits.timers_max);
        self.store_pair(row, offset_of!(User, queued_max), queued, timers);
        self.store(row, offset_of!(User, timer_per_s), limits.timer_per_s);
        let burst = limits.timer_burst;
        self.store_pair(row, offset_of!(User, timer_burst), burst, 0);
    }

    /// Resets a row for a new user: full buckets and counters of 0. Events of the former user that
    /// still wait remain counted until they no longer wait.
    fn forget(&self, row: u32) {
        for offset in [
            offset_of!(User, up_tat),
            offset_of!(User, offered),
            offset_of!(User, up_throttled),
            offset_of!(User, raise_tat),
            offset_of!(User, raised),
            offset_of!(User, raise_throttled),
            offset_of!(User, queue_throttled),
            offset_of!(User, timers_throttled),
            offset_of!(User, timer_tat),
            offset_of!(User, timer_throttled),
            offset_of!(User, handler_tat),
            offset_of!(User, handler_ns),
            offset_of!(User, handler_throttled),
        ] {
            self.store(row, offset, 0);
        }
    }
}

impl Core {
    /// Gives row `row` to user `uid` with these limits, or changes the limits of its user. They
    /// apply from the next event on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for row 0, which is unlimited, a row outside the table, or a burst above
    /// [`BURST_MAX`].
    pub fn set_user(&self, row: u32, uid: u32, limits: &Limits) -> Result<()> {
        check_row(row)?;
        check_burst("up_burst", limits.up_burst)?;
        check_burst("raise_burst", limits.raise_burst)?;
        check_burst("timer_burst", limits.timer_burst)?;
        let users = self.mapped_users()?;
        let former = users.read(row);
        if former.state != STATE_ACTIVE || former.uid != uid {
            users.forget(row);
        }
        if former.handler_ns_per_s != limits.handler_ns_per_s {
            // A charge at the former rate would not be paid off at this one.
            users.store(row, offset_of!(User, handler_tat), 0);
        }
        users.store_limits(row, limits);
        users.store_pair(row, offset_of!(User, state), STATE_ACTIVE, uid);
        Ok(())
    }

    /// Frees a row. No subscription, channel or service may name it any more.
    ///
    /// # Errors
    /// As for [`Core::set_user`].
    pub fn free_user(&self, row: u32) -> Result<()> {
        check_row(row)?;
        let users = self.mapped_users()?;
        users.store_limits(row, &Limits::default());
        users.store_pair(row, offset_of!(User, state), STATE_FREE, 0);
        Ok(())
    }

    /// The limits and the use of one row.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a row outside the table.
    pub fn user(&self, row: u32) -> Result<User> {
        if row as usize >= USERS_MAX {
            return Err(invalid_row(row));
        }
        Ok(self.mapped_users()?.read(row))
    }

    /// Every row that belongs to a user, with its index.
    pub fn users(&self) -> Result<Vec<(u32, User)>> {
        let users = self.mapped_users()?;
        Ok((0..USERS_MAX as u32)
            .map(|row| (row, users.read(row)))
            .filter(|(_, user)| user.state == STATE_ACTIVE)
            .collect())
    }

    fn mapped_users(&self) -> Result<Users<'_>> {
        self.views
            .users
            .get_or_map(|| Mapped::map(self.map("users")?, USERS_MAX))
            .map(Users)
    }
}

fn check_row(row: u32) -> Result<()> {
    if row == UNLIMITED || row as usize >= USERS_MAX {
        return Err(invalid_row(row));
    }
    Ok(())
}

fn invalid_row(row: u32) -> Error {
    Error::Invalid {
        what: "the user's row",
        given: row.to_string(),
        expected: "1 to 255; row 0 is for whom nothing is limited",
    }
}

fn check_burst(what: &'static str, burst: u32) -> Result<()> {
    if burst > BURST_MAX {
        return Err(Error::Invalid {
            what,
            given: burst.to_string(),
            expected: "at most 65536",
        });
    }
    Ok(())
}
