//! select(2): the kernel looks at every bit of the sets, and so does the server.
#![allow(unsafe_code, reason = "select takes descriptors as numbers")]

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use rustix::event::{FdSetElement, fd_set_insert, fd_set_num_elements, select};

use super::{Events, Interest, Ready, timespec, unless_interrupted};

#[derive(Default)]
pub(super) struct Select {
    /// By descriptor.
    waits: Vec<Option<(usize, Interest)>>,
    /// Scratch: the sets that the kernel changes.
    read: Vec<FdSetElement>,
    write: Vec<FdSetElement>,
}

impl Events for Select {
    fn add(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        let at = fd as usize;
        if at >= self.waits.len() {
            self.waits.resize(at + 1, None);
        }
        self.waits[at] = Some((token, interest));
        Ok(())
    }

    fn change(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        self.add(fd, token, interest)
    }

    fn remove(&mut self, fd: RawFd, _token: usize) {
        if let Some(place) = self.waits.get_mut(fd as usize) {
            *place = None;
        }
        while self.waits.last().is_some_and(Option::is_none) {
            self.waits.pop();
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let end = self.waits.len() as RawFd;
        let elements = fd_set_num_elements(self.waits.len(), end);
        for set in [&mut self.read, &mut self.write] {
            set.clear();
            set.resize(elements, FdSetElement::default());
        }
        for (fd, wait) in self.waits.iter().enumerate() {
            match wait {
                Some((_, Interest::Read)) => fd_set_insert(&mut self.read, fd as RawFd),
                Some((_, Interest::Write)) => fd_set_insert(&mut self.write, fd as RawFd),
                Some((_, Interest::Nothing)) | None => {}
            }
        }
        let timeout = timespec(timeout);
        // SAFETY: `add` got these descriptors, and `remove` comes before they are closed.
        let count = unsafe {
            select(
                end,
                Some(&mut self.read),
                Some(&mut self.write),
                None,
                timeout.as_ref(),
            )
        };
        if let Err(error) = count {
            return unless_interrupted(error);
        }
        for (set, interest) in [(&self.read, Interest::Read), (&self.write, Interest::Write)] {
            for fd in rustix::event::FdSetIter::new(set) {
                let Some(Some((token, _))) = self.waits.get(fd as usize) else {
                    continue;
                };
                ready.push(Ready {
                    token: *token,
                    read: interest == Interest::Read,
                    write: interest == Interest::Write,
                });
            }
        }
        Ok(())
    }
}
