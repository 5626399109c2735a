//! The mechanisms by which the server waits for its sockets, behind one trait.
//!
//! The server keeps what it was told about a socket until a call on that socket would block. So a
//! mechanism may report each readiness once ("edge") or as long as it lasts ("level"), and it may
//! report too much: a readiness is a hint. What it must never do is to miss one that begins after
//! [`Events::add`], or that is there already then.

mod ecalls;
mod epoll;
mod io_uring;
mod poll;
mod select;

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// What a socket is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    Write,
    /// For a while.
    Nothing,
}

/// What is ready. Errors and the peer's end count as both: the next call tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) token: usize,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// A mechanism. Tokens are small numbers, of which each is used for one descriptor at a time.
pub(crate) trait Events {
    fn add(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()>;

    fn change(&mut self, fd: RawFd, token: usize, interest: Interest) -> io::Result<()>;

    /// Forgets a descriptor, which the caller then closes.
    fn remove(&mut self, fd: RawFd, token: usize);

    /// Waits until something is ready or the time has passed; `None`: for ever. What is ready is
    /// appended.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Mechanism {
    Select,
    Poll,
    Epoll,
    IoUring,
    Ecalls,
}

impl Mechanism {
    pub(crate) fn open(self) -> io::Result<Box<dyn Events>> {
        Ok(match self {
            Mechanism::Select => Box::new(select::Select::default()),
            Mechanism::Poll => Box::new(poll::Poll::default()),
            Mechanism::Epoll => Box::new(epoll::Epoll::open()?),
            Mechanism::IoUring => Box::new(io_uring::Ring::open()?),
            Mechanism::Ecalls => Box::new(ecalls::Ecalls::open()?),
        })
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mechanism::Select => "select",
            Mechanism::Poll => "poll",
            Mechanism::Epoll => "epoll",
            Mechanism::IoUring => "io_uring",
            Mechanism::Ecalls => "ecalls",
        })
    }
}

/// The kernel's form of a timeout; one that is too long for it never ends.
fn timespec(timeout: Option<Duration>) -> Option<rustix::event::Timespec> {
    timeout.and_then(|timeout| timeout.try_into().ok())
}

/// A wait that a signal ended is a wait in which nothing became ready.
fn unless_interrupted(error: rustix::io::Errno) -> io::Result<()> {
    match error {
        rustix::io::Errno::INTR => Ok(()),
        error => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const SOON: Option<Duration> = Some(Duration::ZERO);
    const LONG: Option<Duration> = Some(Duration::from_secs(60));

    fn each(test: impl Fn(&mut dyn Events, Mechanism)) {
        let is_root = std::env::var_os("ECALLS_TEST_ROOT").is_some();
        for mechanism in <Mechanism as clap::ValueEnum>::value_variants() {
            if *mechanism == Mechanism::Ecalls && !is_root {
                eprintln!("not tested: {mechanism}: ECALLS_TEST_ROOT is not set");
                continue;
            }
            match mechanism.open() {
                Ok(mut events) => test(&mut *events, *mechanism),
                Err(error) => eprintln!("not tested: {mechanism}: {error}"),
            }
        }
    }

    /// Pairs whose descriptors do not go below `from`.
    fn pair() -> (UnixStream, UnixStream) {
        let (a, b) = UnixStream::pair().expect("a pair");
        a.set_nonblocking(true).expect("it is a socket");
        (a, b)
    }

    fn wait(events: &mut dyn Events, timeout: Option<Duration>) -> Vec<Ready> {
        let mut ready = Vec::new();
        events.wait(timeout, &mut ready).expect("it waits");
        ready
    }

    #[test]
    fn what_was_ready_before_it_was_added_is_reported() {
        each(|events, mechanism| {
            let (a, mut b) = pair();
            b.write_all(b"x").expect("room");
            events.add(a.as_raw_fd(), 3, Interest::Read).expect("added");
            let ready = wait(events, LONG);
            assert_eq!(ready.len(), 1, "{mechanism}");
            assert!(ready[0].token == 3 && ready[0].read, "{mechanism}");
        });
    }

    #[test]
    fn each_readiness_is_reported_after_the_last_was_used_up() {
        each(|events, mechanism| {
            let (mut a, mut b) = pair();
            events.add(a.as_raw_fd(), 0, Interest::Read).expect("added");
            assert_eq!(wait(events, SOON), [], "{mechanism}");
            for _ in 0..1000 {
                b.write_all(b"x").expect("room");
                assert!(wait(events, LONG)[0].read, "{mechanism}");
                assert_eq!(a.read(&mut [0; 9]).expect("bytes"), 1);
                assert_eq!(wait(events, SOON), [], "{mechanism}");
            }
            drop(b);
            assert!(wait(events, LONG)[0].read, "{mechanism}");
        });
    }

    #[test]
    fn only_the_present_interest_is_reported() {
        each(|events, mechanism| {
            let (a, mut b) = pair();
            events.add(a.as_raw_fd(), 7, Interest::Read).expect("added");
            assert_eq!(wait(events, SOON), [], "{mechanism}");
            let fd = a.as_raw_fd();
            events.change(fd, 7, Interest::Write).expect("changed");
            assert!(wait(events, LONG)[0].write, "{mechanism}");
            events.change(fd, 7, Interest::Nothing).expect("changed");
            assert_eq!(wait(events, SOON), [], "{mechanism}");
            events.change(fd, 7, Interest::Read).expect("changed");
            assert_eq!(wait(events, SOON), [], "{mechanism}");
            b.write_all(b"x").expect("room");
            assert!(wait(events, LONG)[0].read, "{mechanism}");
        });
    }

    #[test]
    fn a_removed_descriptor_is_forgotten_and_its_number_can_be_used_again() {
        each(|events, mechanism| {
            for _ in 0..100 {
                let (a, mut b) = pair();
                b.write_all(b"x").expect("room");
                events.add(a.as_raw_fd(), 1, Interest::Read).expect("added");
                events.remove(a.as_raw_fd(), 1);
                drop(a);
                assert_eq!(wait(events, SOON), [], "{mechanism}");
                // The kernel has closed it: nothing holds it.
                b.set_nonblocking(true).expect("it is a socket");
                let read = b.read(&mut [0; 9]);
                let is_closed = match &read {
                    Ok(bytes) => *bytes == 0,
                    Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
                };
                assert!(is_closed, "{mechanism}: {read:?}");
            }
        });
    }

    #[test]
    fn descriptors_beyond_1024_are_waited_for() {
        let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        files.current = files.maximum;
        let raised = rustix::process::setrlimit(rustix::process::Resource::Nofile, files);
        if raised.is_err() || files.maximum.is_some_and(|most| most < 2100) {
            eprintln!("not tested: the limit of descriptors is too low");
            return;
        }
        each(|events, mechanism| {
            let mut pairs: Vec<_> = (0..1000).map(|_| pair()).collect();
            for (token, (a, _)) in pairs.iter().enumerate() {
                events
                    .add(a.as_raw_fd(), token, Interest::Read)
                    .expect("added");
            }
            assert_eq!(wait(events, SOON), [], "{mechanism}");
            pairs[999].1.write_all(b"x").expect("room");
            let ready = wait(events, LONG);
            assert!(ready.len() == 1 && ready[0].token == 999, "{mechanism}");
            for (token, (a, _)) in pairs.iter().enumerate() {
                events.remove(a.as_raw_fd(), token);
            }
        });
    }
}
