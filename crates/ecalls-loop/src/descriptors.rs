//! The descriptors on which a loop sleeps: its sources, a timer, and a bell that other threads
//! ring.
//!
//! All are in one epoll instance, whose descriptor another event loop can watch in turn. The timer
//! is absolute, so no time is lost between reading the clock and sleeping, and the kernel applies
//! no slack to it. It is set only when the release time changes, and never read: setting it again
//! makes it unreadable.
//!
//! All descriptors are level-triggered. A ready descriptor is reported until its event has run, and
//! the loop ignores repeated reports.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::error::{Error, Result};
use crate::poll::NONE;
use crate::source::{Interest, Ready};

/// Ready descriptors that are fetched at a time.
const FETCHED_MAX: usize = 64;
/// The numbers of the timer and the bell in epoll. Sources have smaller numbers.
const TIMER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

/// Rings the bell: ends the loop's sleep.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(crate) fn ring(&self) {
        // It fails only if the counter is at its maximum, and then it is readable anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// The descriptors of one loop.
pub struct Descriptors {
    epoll: Rc<OwnedFd>,
    timer: OwnedFd,
    bell: Bell,
    /// What the timer is set to, or `NONE`.
    set_ns: u64,
    fetched: Vec<epoll::Event>,
    /// Name and readiness of the ready sources, until the loop takes them.
    found: VecDeque<(u64, Ready)>,
    watched: usize,
}

impl Descriptors {
    pub(crate) fn new() -> Result<Descriptors> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::os("epoll"))?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map_err(Error::os("making a timer"))?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::os("making an eventfd"))?;
        for (fd, name) in [(&timer, TIMER), (&bell, BELL)] {
            let name = epoll::EventData::new_u64(name);
            epoll::add(&epoll, fd, name, epoll::EventFlags::IN)
                .map_err(Error::os("watching a descriptor"))?;
        }
        Ok(Descriptors {
            epoll: Rc::new(epoll),
            timer,
            bell: Bell(Arc::new(bell)),
            set_ns: NONE,
            fetched: Vec::with_capacity(FETCHED_MAX),
            found: VecDeque::with_capacity(FETCHED_MAX),
            watched: 0,
        })
    }

    /// Whether descriptors are watched: then a poll must check them periodically.
    pub fn is_watching(&self) -> bool {
        self.watched > 0
    }

    /// Determines which sources are ready, without sleeping.
    ///
    /// # Errors
    /// Those of the system.
    pub fn look(&mut self) -> Result<()> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        self.wait(Some(&now))
    }

    /// Sleeps until `release_ns` ([`NONE`]: without limit), until a source is ready, until the bell
    /// rings, or until a signal arrives.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sleep_until(&mut self, release_ns: u64) -> Result<()> {
        self.set_timer(release_ns)?;
        self.wait(None)
    }

    /// Makes the epoll instance ready at `release_ns`, for an event loop that watches it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_timer(&mut self, release_ns: u64) -> Result<()> {
        if release_ns == self.set_ns {
            return Ok(());
        }
        // 0 would stop the timer; and times beyond i64 are never reached.
        let at_ns = match release_ns {
            NONE => 0,
            at => at.clamp(1, i64::MAX.unsigned_abs()),
        };
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let time = Itimerspec {
            it_interval: zero,
            it_value: timespec(at_ns),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &time)
            .map_err(Error::os("setting a timer"))?;
        self.set_ns = release_ns;
        Ok(())
    }

    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>, name: u64, interest: Interest) -> Result<()> {
        let name = epoll::EventData::new_u64(name);
        epoll::add(&*self.epoll, fd, name, interest.flags())
            .map_err(Error::os("watching a descriptor"))?;
        self.watched += 1;
        Ok(())
    }

    pub(crate) fn remove(&mut self, fd: BorrowedFd<'_>) {
        // It can fail only for a descriptor that is not registered.
        let _ = epoll::delete(&*self.epoll, fd);
        self.watched -= 1;
    }

    /// The first ready source that was not taken yet.
    pub(crate) fn next_found(&mut self) -> Option<(u64, Ready)> {
        self.found.pop_front()
    }

    pub(crate) fn bell(&self) -> Bell {
        self.bell.clone()
    }

    pub(crate) fn epoll(&self) -> Rc<OwnedFd> {
        Rc::clone(&self.epoll)
    }

    fn wait(&mut self, timeout: Option<&Timespec>) -> Result<()> {
        self.fetched.clear();
        let buffer = spare_capacity(&mut self.fetched);
        match epoll::wait(&*self.epoll, buffer, timeout) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(Error::os("waiting for descriptors")(errno)),
        }
        for event in &self.fetched {
            // The struct is packed: copy before use.
            let (data, flags) = (event.data, event.flags);
            match data.u64() {
                TIMER => {}
                BELL => self.silence(),
                name => self.found.push_back((name, Ready::from_flags(flags))),
            }
        }
        Ok(())
    }

    fn silence(&self) {
        // Only this thread reads it, so the read does not block.
        let _ = rustix::io::read(&self.bell.0, &mut [0_u8; 8]);
    }
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptors")
            .field("epoll", &self.epoll)
            .field("watched", &self.watched)
            .finish_non_exhaustive()
    }
}

impl AsFd for Descriptors {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// A time in the form of the system calls.
pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    }
}
