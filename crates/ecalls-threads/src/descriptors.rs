//! Threads that wait until a descriptor is ready, without an activation each.
//!
//! They are in one epoll set of the runtime. Whoever keeps the time for the runtime, a spare that
//! sleeps until the first sleeping thread's time (`park`), sleeps in that set instead of on its
//! futex, and is called by an eventfd, the `bell`; while no spare sleeps, the schedulers look at
//! the set now and then. Each wait is for one event, with a number of its own, so that a
//! descriptor that is closed, and its number used again, is nobody's; what an event has ended stays
//! in the set, without effect, for the next wait.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, dup};

use crate::activation::Activation;
use crate::calls::{Entered, blocking};
use crate::error::{Error, Result};
use crate::spin::Spin;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::thread::{After, Thread};
use crate::wait::{now_ns, timespec};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interest {
    /// A read, or an accept, would not block.
    Read,
    /// The same, or urgent data are there.
    ReadOrUrgent,
    /// A write, or the end of a connect, would not block.
    Write,
}

const BELL: u64 = 0;
/// Events taken at a time.
const EVENTS: usize = 64;

#[derive(Debug)]
pub(crate) struct Descriptors {
    epoll: OwnedFd,
    bell: OwnedFd,
    /// By token: who waits, and the epoch of its wait.
    waiters: Spin<HashMap<u64, (Arc<Thread>, u64)>>,
    /// Those that a thread waits for by themselves, not by a copy.
    fds: Spin<HashSet<RawFd>>,
    /// Number of waiters.
    count: AtomicU32,
    /// The last token.
    tokens: AtomicU64,
    /// 1 + the processor whose spare sleeps in the set; 0: none does.
    sleeper: AtomicU32,
}

impl Descriptors {
    pub(crate) fn new() -> Result<Self> {
        let failed = "make the set of descriptors that threads wait for";
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(Error::os(failed))?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(Error::os(failed))?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)
            .map_err(Error::os(failed))?;
        Ok(Self {
            epoll,
            bell,
            waiters: Spin::new(HashMap::new()),
            fds: Spin::new(HashSet::new()),
            count: AtomicU32::new(0),
            tokens: AtomicU64::new(BELL),
            sleeper: AtomicU32::new(0),
        })
    }

    /// Whether threads wait.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Registers a wait. Returns its token, and the descriptor that is in the set if it is a copy.
    fn begin(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        thread: &Arc<Thread>,
    ) -> io::Result<(u64, Option<OwnedFd>)> {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed) + 1;
        let flags = match interest {
            Interest::Read => EventFlags::IN | EventFlags::RDHUP,
            Interest::ReadOrUrgent => EventFlags::IN | EventFlags::RDHUP | EventFlags::PRI,
            Interest::Write => EventFlags::OUT,
        } | EventFlags::ONESHOT;
        let waiter = (Arc::clone(thread), thread.wait.epoch());
        self.waiters.lock().insert(token, waiter);
        self.count.fetch_add(1, Ordering::SeqCst);
        let data = EventData::new_u64(token);
        let is_first = self.fds.lock().insert(fd.as_raw_fd());
        let added = if is_first {
            // An earlier wait that an event has ended has left its registration.
            match epoll::modify(&self.epoll, fd, data, flags) {
                Err(Errno::NOENT) => epoll::add(&self.epoll, fd, data, flags),
                modified => modified,
            }
            .map(|()| None)
        } else {
            // Another thread waits for the same descriptor.
            dup(fd).and_then(|copy| {
                epoll::add(&self.epoll, &copy, data, flags)?;
                Ok(Some(copy))
            })
        };
        added.map(|copy| (token, copy)).map_err(|errno| {
            if is_first {
                self.fds.lock().remove(&fd.as_raw_fd());
            }
            self.forget(token);
            errno.into()
        })
    }

    /// Ends a wait; false: an event had ended it.
    fn end(&self, token: u64, fd: BorrowedFd<'_>, copy: Option<&OwnedFd>) -> bool {
        let was_waiting = self.forget(token);
        if was_waiting || copy.is_some() {
            // The program may have closed it meanwhile, and then it is not in the set any more.
            let _ = epoll::delete(&self.epoll, copy.map_or(fd, AsFd::as_fd));
        }
        if copy.is_none() {
            self.fds.lock().remove(&fd.as_raw_fd());
        }
        was_waiting
    }

    fn forget(&self, token: u64) -> bool {
        let was_waiting = self.waiters.lock().remove(&token).is_some();
        if was_waiting {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        was_waiting
    }

    /// Those whose descriptors are ready now, or until that time; `None`: for ever.
    fn take(&self, until_ns: Option<u64>) -> Vec<(Arc<Thread>, u64)> {
        let limit = until_ns.map(|until_ns| timespec(until_ns.saturating_sub(now_ns())));
        let mut events = Vec::with_capacity(EVENTS);
        // Interrupted, or refused: as if nothing were ready.
        let _ = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            limit.as_ref(),
        );
        let mut found = Vec::new();
        for event in &events {
            let token = event.data.u64();
            if token == BELL {
                let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
            } else if let Some(waiter) = self.waiters.lock().remove(&token) {
                self.count.fetch_sub(1, Ordering::SeqCst);
                found.push(waiter);
            }
        }
        found
    }

    /// Those whose descriptors are ready now.
    pub(crate) fn look(&self) -> Vec<(Arc<Thread>, u64)> {
        self.take(Some(0))
    }

    /// Sleeps in the set as a spare of processor `index`, unless `is_needless` once who calls the
    /// spare rings the bell.
    pub(crate) fn sleep(
        &self,
        index: usize,
        until_ns: Option<u64>,
        is_needless: impl FnOnce() -> bool,
    ) -> Vec<(Arc<Thread>, u64)> {
        let me = u32::try_from(index + 1).unwrap_or(0);
        self.sleeper.store(me, Ordering::SeqCst);
        let found = if is_needless() {
            Vec::new()
        } else {
            self.take(until_ns)
        };
        self.sleeper.store(0, Ordering::SeqCst);
        found
    }

    /// Wakes the spare of processor `index` that sleeps in the set, if one does.
    pub(crate) fn ring(&self, index: usize) {
        // The caller has changed the word that `is_needless` looks at: all sequentially consistent.
        if usize::try_from(self.sleeper.load(Ordering::SeqCst)) == Ok(index + 1) {
            // A bell that rings already is enough.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// Waits until a descriptor is ready. A thread that waits so holds no activation, where one that
/// blocks in a read does: for connections that are mostly idle this saves a kernel thread each.
///
/// # Errors
/// What the system refuses.
pub fn wait_ready(fd: impl AsFd, interest: Interest) -> io::Result<()> {
    wait(fd.as_fd(), interest, None).map(drop)
}

/// The same for at most `limit`; false: that has passed.
///
/// # Errors
/// What the system refuses.
pub fn wait_ready_for(fd: impl AsFd, interest: Interest, limit: Duration) -> io::Result<bool> {
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    wait(
        fd.as_fd(),
        interest,
        Some(now_ns().saturating_add(limit_ns)),
    )
}

fn wait(fd: BorrowedFd<'_>, interest: Interest, until_ns: Option<u64>) -> io::Result<bool> {
    let Some((activation, thread)) = Activation::get().and_then(|at| Some((at, at.movable()?)))
    else {
        return wait_outside(fd, interest, until_ns);
    };
    let shared = &thread.shared;
    let activation = activation.enter();
    let (token, copy) = match shared.descriptors.begin(fd, interest, &thread) {
        Ok(begun) => begun,
        Err(error) => {
            activation.leave();
            // A file that cannot be waited for is always ready.
            let is_file = error.raw_os_error() == Some(libc::EPERM);
            return if is_file { Ok(true) } else { Err(error) };
        }
    };
    shared.call_keeper();
    if let Some(until_ns) = until_ns {
        shared.add_timer(until_ns, &thread);
    }
    // SAFETY: `current` is the thread on whose stack this is.
    unsafe { thread.suspend(After::Wait) };
    thread.wait.resume();
    let _scheduler = Entered::new();
    if let Some(until_ns) = until_ns {
        shared.timers.remove(until_ns, &thread);
    }
    Ok(!shared.descriptors.end(token, fd, copy.as_ref()))
}

/// For kernel threads outside of the runtime, and threads that stay in theirs.
fn wait_outside(fd: BorrowedFd<'_>, interest: Interest, until_ns: Option<u64>) -> io::Result<bool> {
    let flags = match interest {
        Interest::Read => PollFlags::IN,
        Interest::ReadOrUrgent => PollFlags::IN | PollFlags::PRI,
        Interest::Write => PollFlags::OUT,
    };
    loop {
        let limit = until_ns.map(|until_ns| timespec(until_ns.saturating_sub(now_ns())));
        let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
        match blocking(|| poll(&mut fds, limit.as_ref())) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}
