//! Notification between two threads on two processors without this project: round trips by the
//! kernel's own means, in which each thread is asleep until the other one writes, and a message in
//! shared memory that the other thread looks for.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{read, write};
use rustix::pipe::pipe;

use super::Bench;
use super::readers::{AWAKE, look};
use super::timing::{Effort, MEDIAN, Value, os, silent};
use crate::exit::{Failure, Outcome};

/// Round trips of one batch.
const ROUNDS: u32 = 1000;
/// A thread that waits for longer gives up.
const PATIENCE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// Measures all three rows.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    Ok(vec![
        eventfd_epoll(bench.effort)?,
        pipes(bench.effort)?,
        sent(bench.effort)?,
    ])
}

/// One end of a pair of eventfds: notifies the other end, and waits for a notification.
struct EventEnd {
    tell: OwnedFd,
    told: OwnedFd,
    epoll: OwnedFd,
}

impl EventEnd {
    fn pair() -> rustix::io::Result<(EventEnd, EventEnd)> {
        let one = eventfd(0, EventfdFlags::NONBLOCK)?;
        let other = eventfd(0, EventfdFlags::NONBLOCK)?;
        let near = EventEnd::new(
            one.try_clone().map_err(errno)?,
            other.try_clone().map_err(errno)?,
        )?;
        Ok((near, EventEnd::new(other, one)?))
    }

    fn new(tell: OwnedFd, told: OwnedFd) -> rustix::io::Result<EventEnd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &told, data, epoll::EventFlags::IN)?;
        Ok(EventEnd { tell, told, epoll })
    }

    fn tell(&self) -> Outcome {
        write(&self.tell, &1u64.to_ne_bytes()).map_err(|error| os("writing an eventfd", error))?;
        Ok(())
    }

    fn wait(&self) -> Outcome {
        let mut events = Vec::with_capacity(1);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        let ready = epoll::wait(&self.epoll, buffer, Some(&PATIENCE))
            .map_err(|error| os("waiting for an eventfd", error))?;
        if ready == 0 {
            return Err(silent("an eventfd's event"));
        }
        let mut count = [0; 8];
        read(&self.told, &mut count).map_err(|error| os("reading an eventfd", error))?;
        Ok(())
    }
}

fn errno(error: std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::INVAL)
}

/// Round trip by eventfd and epoll.
pub(crate) fn eventfd_epoll(effort: Effort) -> Result<Value, Failure> {
    let (near, far) = EventEnd::pair().map_err(|error| os("opening eventfds", error))?;
    let value = effort.best_median_of_two(
        ROUNDS,
        || {
            let start_ns = ecalls::now_ns();
            near.tell()?;
            near.wait()?;
            Ok(ecalls::now_ns() - start_ns)
        },
        || {
            far.wait()?;
            far.tell()
        },
    )?;
    let what = "round trip between two threads by eventfd, asleep in epoll_wait";
    Ok(Value::ns("eventfd_epoll", value, MEDIAN, what))
}

/// Round trip by two pipes.
pub(crate) fn pipes(effort: Effort) -> Result<Value, Failure> {
    let opened = || pipe().map_err(|error| os("opening a pipe", error));
    let (far_in, near_out) = opened()?;
    let (near_in, far_out) = opened()?;
    let tell = |out: &OwnedFd| {
        write(out, &[1]).map_err(|error| os("writing a pipe", error))?;
        Ok(())
    };
    // The other end is closed when its thread gives up.
    let wait = |input: &OwnedFd| match read(input, &mut [0; 1]) {
        Ok(1) => Ok(()),
        Ok(_) => Err(silent("a byte in a pipe")),
        Err(error) => Err(os("reading a pipe", error)),
    };
    let value = effort.best_median_of_two(
        ROUNDS,
        move || {
            let start_ns = ecalls::now_ns();
            tell(&near_out)?;
            wait(&near_in)?;
            Ok(ecalls::now_ns() - start_ns)
        },
        move || {
            wait(&far_in)?;
            tell(&far_out)
        },
    )?;
    let what = "round trip between two threads by two pipes, asleep in read";
    Ok(Value::ns("pipe", value, MEDIAN, what))
}

/// One way through a channel of the standard library to a thread that looks.
fn sent(effort: Effort) -> Result<Value, Failure> {
    let (sender, receiver) = mpsc::sync_channel(1);
    // How long ago a message was sent when it was seen, ns; 0: not yet.
    let seen_ns = &AtomicU64::new(0);
    let value = effort.best_median_of_two(
        AWAKE,
        || {
            seen_ns.store(0, Ordering::Relaxed);
            // The receiver is dropped when its thread gives up.
            let sent = sender.send(ecalls::now_ns());
            sent.map_err(|_| silent("a place in a channel"))?;
            look(|| Some(seen_ns.load(Ordering::Acquire)).filter(|ns| *ns != 0))
        },
        move || {
            let sent_ns = look(|| receiver.try_recv().ok())?;
            let ns = ecalls::now_ns().saturating_sub(sent_ns);
            seen_ns.store(ns.max(1), Ordering::Release);
            Ok(())
        },
    )?;
    let what = "one way: sent through std::sync::mpsc to seen by a thread that looks, on another";
    Ok(Value::ns("mpsc", value, MEDIAN, what))
}
