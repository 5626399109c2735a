//! epoll(7): the kernel keeps the set, and reports only what is ready, as long as it lasts.
#![allow(unsafe_code, reason = "descriptors come as numbers")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use super::{Events, Interest, Ready, timespec, unless_interrupted};

/// Events that one call returns.
const AT_ONCE: usize = 256;

pub(super) struct Epoll {
    set: OwnedFd,
    found: Vec<epoll::Event>,
}

impl Epoll {
    pub(super) fn open() -> io::Result<Epoll> {
        Ok(Epoll {
            set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            found: Vec::with_capacity(AT_ONCE),
        })
    }

    /// Takes out a descriptor that stays open.
    pub(super) fn forget(&mut self, fd: RawFd) -> io::Result<()> {
        // SAFETY: the caller has it open.
        Ok(epoll::delete(&self.set, unsafe {
            BorrowedFd::borrow_raw(fd)
        })?)
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    match interest {
        Interest::Read => epoll::EventFlags::IN,
        Interest::Write => epoll::EventFlags::OUT,
        Interest::Nothing => epoll::EventFlags::empty(),
    }
}

fn data(token: usize) -> epoll::EventData {
    epoll::EventData::new_u64(token as u64)
}

impl Events for Epoll {
    fn add(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller has it open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Ok(epoll::add(&self.set, fd, data(token), flags(interest))?)
    }

    fn change(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller has it open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Ok(epoll::modify(&self.set, fd, data(token), flags(interest))?)
    }

    /// The kernel takes it out when it is closed.
    fn remove(&mut self, _fd: RawFd, _token: usize) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.found.clear();
        let timeout = timespec(timeout);
        if let Err(error) =
            epoll::wait(&self.set, spare_capacity(&mut self.found), timeout.as_ref())
        {
            return unless_interrupted(error);
        }
        for event in &self.found {
            // The structure is packed.
            let (found, data) = (event.flags, event.data);
            let fails = found.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            ready.push(Ready {
                token: data.u64() as usize,
                read: fails || found.contains(epoll::EventFlags::IN),
                write: fails || found.contains(epoll::EventFlags::OUT),
            });
        }
        Ok(())
    }
}
