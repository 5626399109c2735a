//! ECalls: the kernel sets a bit in shared memory for each socket that may be read, and the server
//! finds it there. It makes a system call to sleep, and one in the life of each socket.
//!
//! What memory does not tell, room to write and what is no socket of the Internet, is in an epoll
//! set, beside the descriptor by which the memory wakes who sleeps. While there is work, that set
//! is asked in one of [`TURNS`] turns, and in each while somebody waits for room.
#![allow(unsafe_code, reason = "descriptors come as numbers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use ecalls::{Error, ReadySockets};

use super::epoll::Epoll;
use super::{Events, Interest, Ready};

/// The token of the memory's descriptor.
const WAKE: usize = usize::MAX;
/// No token.
const NONE: usize = usize::MAX - 1;
const TURNS: u32 = 32;

pub(super) struct Ecalls {
    sockets: ReadySockets,
    /// By descriptor; [`NONE`]: it is not told by the memory.
    tokens: Vec<usize>,
    rest: Epoll,
    /// Sockets that wait for room, by descriptor, which are in the set.
    writers: Vec<RawFd>,
    turn: u32,
}

impl Ecalls {
    pub(super) fn open() -> io::Result<Ecalls> {
        let sockets = ReadySockets::open().map_err(io::Error::other)?;
        let mut rest = Epoll::open()?;
        rest.add(sockets.as_fd().as_raw_fd(), WAKE, Interest::Read)?;
        Ok(Ecalls {
            sockets,
            tokens: Vec::new(),
            rest,
            writers: Vec::new(),
            turn: 0,
        })
    }

    fn token(&self, fd: RawFd) -> usize {
        let at = usize::try_from(fd).unwrap_or(usize::MAX);
        self.tokens.get(at).copied().unwrap_or(NONE)
    }

    fn is_told(&self, fd: RawFd) -> bool {
        self.token(fd) != NONE
    }

    fn wait_for_room(&mut self, fd: RawFd, token: usize, waits: bool) -> io::Result<()> {
        let place = self.writers.iter().position(|writer| *writer == fd);
        match (place, waits) {
            (None, true) => {
                self.rest.add(fd, token, Interest::Write)?;
                self.writers.push(fd);
            }
            (Some(place), false) => {
                self.writers.swap_remove(place);
                self.rest.forget(fd)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn ask(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.turn = 0;
        let before = ready.len();
        self.rest.wait(timeout, ready)?;
        if let Some(woken) = ready[before..].iter().position(|one| one.token == WAKE) {
            ready.swap_remove(before + woken);
        }
        Ok(())
    }

    fn take(&mut self, ready: &mut Vec<Ready>) {
        let tokens = &self.tokens;
        self.sockets.take(|fd| {
            let token = tokens[fd as usize];
            if token != NONE {
                ready.push(Ready {
                    token,
                    read: true,
                    write: false,
                });
            }
        });
    }
}

impl Events for Ecalls {
    fn add(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        // SAFETY: the caller has it open.
        match self.sockets.add(unsafe { BorrowedFd::borrow_raw(fd) }) {
            Ok(()) => {}
            Err(Error::Invalid { .. }) => return self.rest.add(fd, token, interest),
            Err(error) => return Err(io::Error::other(error)),
        }
        let at = usize::try_from(fd).map_err(io::Error::other)?;
        if self.tokens.len() <= at {
            self.tokens.resize(at + 1, NONE);
        }
        self.tokens[at] = token;
        if interest == Interest::Read {
            return Ok(());
        }
        self.change(fd, token, interest)
    }

    fn change(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        if !self.is_told(fd) {
            return self.rest.change(fd, token, interest);
        }
        if interest == Interest::Read {
            self.sockets.resume(fd);
        } else {
            self.sockets.pause(fd);
        }
        self.wait_for_room(fd, token, interest == Interest::Write)
    }

    fn remove(&mut self, fd: RawFd, token: usize) {
        if self.is_told(fd) {
            self.sockets.pause(fd);
            self.tokens[fd as usize] = NONE;
            // If that fails, closing it takes it out as well.
            let _ = self.wait_for_room(fd, token, false);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let sleeps = !self.sockets.is_ready() && timeout != Some(Duration::ZERO);
        if sleeps && self.sockets.prepare_wait() {
            let slept = self.ask(timeout, ready);
            self.sockets.end_wait();
            slept?;
        } else {
            self.turn += 1;
            if self.turn >= TURNS || !self.writers.is_empty() || !self.sockets.is_ready() {
                self.ask(Some(Duration::ZERO), ready)?;
            }
        }
        self.take(ready);
        Ok(())
    }
}
