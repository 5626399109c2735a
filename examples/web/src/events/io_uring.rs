//! io_uring(7), for readiness only: a lasting poll request for each descriptor, which reports each
//! readiness once. Requests go to the kernel with the call that waits, so a turn of the loop takes
//! one call, whatever has changed. Reading and writing stay calls of their own: by requests, too,
//! they would need another server than that of the other mechanisms.
#![allow(unsafe_code, reason = "the kernel takes requests from shared memory")]

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::{Events, Interest, Ready};

/// Requests that fit into the ring; it is submitted earlier if there are more.
const REQUESTS: u32 = 1024;
/// The answers that the kernel keeps in the ring; it keeps further ones elsewhere.
const ANSWERS: u32 = 8192;
/// An answer to a request that takes another one back.
const NOBODY: u64 = u64::MAX;

/// What is waited for by a token.
#[derive(Clone, Copy, Debug)]
struct Wait {
    fd: RawFd,
    interest: Interest,
    /// Of the request that is in force: answers to earlier ones are old.
    turn: u32,
    is_used: bool,
}

pub(super) struct Ring {
    ring: IoUring,
    waits: Vec<Wait>,
}

fn flags(interest: Interest) -> u32 {
    (match interest {
        Interest::Read => libc::POLLIN,
        Interest::Write => libc::POLLOUT,
        Interest::Nothing => 0,
    }) as u32
}

fn number(token: usize, turn: u32) -> u64 {
    token as u64 | u64::from(turn) << 32
}

impl Ring {
    pub(super) fn open() -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_cqsize(ANSWERS)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(REQUESTS)?;
        Ok(Ring {
            ring,
            waits: Vec::new(),
        })
    }

    fn push(&mut self, request: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: a poll request refers to no memory of ours.
            if unsafe { self.ring.submission().push(request) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    fn arm(&mut self, token: usize) -> io::Result<()> {
        let wait = &mut self.waits[token];
        wait.turn = wait.turn.wrapping_add(1);
        if wait.interest == Interest::Nothing {
            return Ok(());
        }
        let request = opcode::PollAdd::new(Fd(wait.fd), flags(wait.interest))
            .multi(true)
            .build()
            .user_data(number(token, wait.turn));
        self.push(&request)
    }

    fn take_back(&mut self, token: usize) -> io::Result<()> {
        let old = number(token, self.waits[token].turn);
        // Not PollRemove: that leaves a request alone which is about to report something.
        let request = opcode::AsyncCancel::new(old).build().user_data(NOBODY);
        self.push(&request)
    }

    /// The token that an answer is for; `None`: nobody waits for it any more.
    fn token_of(&self, answer: &cqueue::Entry) -> Option<usize> {
        let token = (answer.user_data() & u64::from(u32::MAX)) as usize;
        let wait = self.waits.get(token)?;
        (wait.is_used && number(token, wait.turn) == answer.user_data()).then_some(token)
    }
}

impl Events for Ring {
    fn add(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        const NONE: Wait = Wait {
            fd: -1,
            interest: Interest::Read,
            turn: 0,
            is_used: false,
        };
        if token >= self.waits.len() {
            self.waits.resize(token + 1, NONE);
        }
        let wait = &mut self.waits[token];
        (wait.fd, wait.interest, wait.is_used) = (fd, interest, true);
        self.arm(token)
    }

    fn change(&mut self, _fd: RawFd, token: usize, interest: Interest) -> io::Result<()> {
        self.take_back(token)?;
        self.waits[token].interest = interest;
        self.arm(token)
    }

    fn remove(&mut self, _fd: RawFd, token: usize) {
        // The request holds the file. Without room for taking it back, the peer's end does it.
        let _ = self.take_back(token);
        self.waits[token].is_used = false;
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut args = SubmitArgs::new();
        let time = timeout.map(|timeout| {
            Timespec::new()
                .sec(timeout.as_secs())
                .nsec(timeout.subsec_nanos())
        });
        if let Some(time) = &time {
            args = args.timespec(time);
        }
        let want = usize::from(timeout != Some(Duration::ZERO));
        match self.ring.submitter().submit_with_args(want, &args) {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
                _ => return Err(error),
            },
        }
        let answers: Vec<cqueue::Entry> = self.ring.completion().collect();
        for answer in answers {
            let Some(token) = self.token_of(&answer) else {
                continue;
            };
            let found = answer.result();
            let fails =
                found < 0 || found & i32::from(libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
            ready.push(Ready {
                token,
                read: fails || found & i32::from(libc::POLLIN) != 0,
                write: fails || found & i32::from(libc::POLLOUT) != 0,
            });
            // The kernel ends a request that lasts when it has no memory for an answer.
            if !cqueue::more(answer.flags()) && found >= 0 {
                self.arm(token)?;
            }
        }
        Ok(())
    }
}
