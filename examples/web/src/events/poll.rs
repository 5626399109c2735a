//! poll(2): the kernel looks at each descriptor of an array.
#![allow(
    unsafe_code,
    reason = "the array outlives no descriptor, which no type can say"
)]

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::{Events, Interest, Ready, timespec, unless_interrupted};

#[derive(Debug, Default)]
pub(super) struct Poll {
    array: Vec<PollFd<'static>>,
    /// The tokens of the array's places, and the places of tokens.
    tokens: Vec<usize>,
    places: Vec<usize>,
}

fn flags(interest: Interest) -> PollFlags {
    match interest {
        Interest::Read => PollFlags::IN,
        Interest::Write => PollFlags::OUT,
        Interest::Nothing => PollFlags::empty(),
    }
}

fn entry(fd: RawFd, interest: Interest) -> PollFd<'static> {
    // SAFETY: `remove` comes before the descriptor is closed.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    PollFd::from_borrowed_fd(fd, flags(interest))
}

impl Events for Poll {
    fn add(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        if token >= self.places.len() {
            self.places.resize(token + 1, usize::MAX);
        }
        self.places[token] = self.array.len();
        self.tokens.push(token);
        self.array.push(entry(fd, interest));
        Ok(())
    }

    fn change(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        self.array[self.places[token]] = entry(fd, interest);
        Ok(())
    }

    fn remove(&mut self, _fd: RawFd, token: usize) {
        let place = std::mem::replace(&mut self.places[token], usize::MAX);
        self.array.swap_remove(place);
        self.tokens.swap_remove(place);
        if let Some(moved) = self.tokens.get(place) {
            self.places[*moved] = place;
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = timespec(timeout);
        let mut left = match poll(&mut self.array, timeout.as_ref()) {
            Ok(count) => count,
            Err(error) => return unless_interrupted(error),
        };
        for (entry, token) in self.array.iter().zip(&self.tokens) {
            if left == 0 {
                break;
            }
            let found = entry.revents();
            if found.is_empty() {
                continue;
            }
            left -= 1;
            let fails = found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
            ready.push(Ready {
                token: *token,
                read: fails || found.contains(PollFlags::IN),
                write: fails || found.contains(PollFlags::OUT),
            });
        }
        Ok(())
    }
}
