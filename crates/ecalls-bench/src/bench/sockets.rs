//! Which of 1010 sockets have data when 10 do? (ECalls-01 §3.2 is about servers that have to
//! examine all of them.) The socket service with one slot per socket, epoll and poll watch the same
//! sockets.

use std::hint::black_box;
use std::io::Write;
use std::os::unix::net::UnixStream;

use ecalls::socket::Interest;
use ecalls::{Channel, SlotUse};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::Bench;
use super::timing::{MEAN, Value, os, silent};
use crate::exit::{Failure, Outcome};

/// The number of sockets, and of those that have data.
const SOCKETS: usize = 1010;
const ACTIVE: usize = 10;
/// Slots: the next power of two.
const SLOTS: u32 = 1024;
/// Descriptors of both ends, and some more.
const DESCRIPTORS: u64 = 2 * SOCKETS as u64 + 200;
/// Queries of one batch.
const BITMAP_ROUNDS: u32 = 20_000;
const EPOLL_ROUNDS: u32 = 5000;
const POLL_ROUNDS: u32 = 200;

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Measures all three rows.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    allow_descriptors()?;
    let pairs = (0..SOCKETS)
        .map(|_| UnixStream::pair())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| os("opening 1010 pairs of sockets", error))?;
    let channel = bench.ecalls.channel().slots(SLOTS, SlotUse::Type).open()?;
    let _subscription = bench
        .ecalls
        .subscribe("socket")?
        .memory(&channel)
        .install()?;
    for (slot, (socket, _)) in (0u32..).zip(&pairs) {
        let interest = Interest::default().data_only().slot_type(slot);
        bench.ecalls.watch_socket(socket, &interest)?;
    }
    for pair in pairs.iter().step_by(SOCKETS / ACTIVE).take(ACTIVE) {
        (&pair.1)
            .write_all(b"data")
            .map_err(|error| os("writing a socket", error))?;
    }
    let sockets: Vec<&UnixStream> = pairs.iter().map(|(socket, _)| socket).collect();
    Ok(vec![
        bitmap(bench, &channel)?,
        epoll_wait(bench, &sockets)?,
        poll_all(bench, &sockets)?,
    ])
}

/// Raises the limit of open descriptors of this process.
fn allow_descriptors() -> Outcome {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|now| now < DESCRIPTORS) {
        limit.current = Some(DESCRIPTORS);
        limit.maximum = limit.maximum.map(|most| most.max(DESCRIPTORS));
        setrlimit(Resource::Nofile, limit)
            .map_err(|error| os("raising the limit of open files", error))?;
    }
    Ok(())
}

fn check(found: usize, by: &str) -> Outcome {
    if found == ACTIVE {
        return Ok(());
    }
    Err(silent(&format!(
        "the data of {ACTIVE} sockets ({found} were found by {by})"
    )))
}

fn bitmap(bench: &Bench, channel: &Channel) -> Result<Value, Failure> {
    let mut found = 0;
    channel.for_each_ready(|_| found += 1);
    check(found, "the bit pattern")?;
    let value = bench.effort.best_mean(BITMAP_ROUNDS, || {
        channel.for_each_ready(|slot| {
            black_box(slot);
        });
        Ok(())
    })?;
    let what = "finding the 10 of 1010 watched sockets that have data, in the bit pattern";
    Ok(Value::ns("readiness_bitmap", value, MEAN, what))
}

fn epoll_wait(bench: &Bench, sockets: &[&UnixStream]) -> Result<Value, Failure> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)
        .map_err(|error| os("opening an epoll set", error))?;
    for (index, socket) in (0u64..).zip(sockets) {
        let data = epoll::EventData::new_u64(index);
        epoll::add(&set, socket, data, epoll::EventFlags::IN)
            .map_err(|error| os("adding to an epoll set", error))?;
    }
    let mut events = Vec::with_capacity(64);
    let mut wait = || {
        events.clear();
        let buffer = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&set, buffer, Some(&NOW)).map_err(|error| os("epoll_wait", error))
    };
    check(wait()?, "epoll_wait")?;
    let value = bench.effort.best_mean(EPOLL_ROUNDS, || {
        black_box(wait()?);
        Ok(())
    })?;
    let what = "the same by epoll_wait";
    Ok(Value::ns("epoll_wait", value, MEAN, what))
}

fn poll_all(bench: &Bench, sockets: &[&UnixStream]) -> Result<Value, Failure> {
    let mut set: Vec<PollFd<'_>> = sockets
        .iter()
        .map(|socket| PollFd::new(*socket, PollFlags::IN))
        .collect();
    let mut wait = || poll(&mut set, Some(&NOW)).map_err(|error| os("poll", error));
    check(wait()?, "poll")?;
    let value = bench.effort.best_mean(POLL_ROUNDS, || {
        black_box(wait()?);
        Ok(())
    })?;
    let what = "the same by poll";
    Ok(Value::ns("poll", value, MEAN, what))
}
