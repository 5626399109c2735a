//! Carries the frames of a channel from its buffer to where they are sent (abi/sink.h): the one
//! step of an event's way to other hosts for which the kernel needs a process, since no program on
//! a tracepoint can create a packet.
//!
//! A thread sleeps until frames are in the buffer. On the lane it sends each as one packet. The
//! program on the interface takes it there and sends it to the frame's sinks; the kernel then tells
//! the sender that the packet was dropped. So whether it arrived there shows in `fanned`, which
//! only this thread's packets increment. For the relay it does what that program does: it numbers
//! the frame for each sink, and sends it.
//!
//! It counts what it takes of each user's ([`LaneShare`]): so the kernel side knows what a user has
//! in the buffer.

use std::mem::offset_of;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ecalls_abi::sink::{
    LANE_BUFFER, LaneOut, LaneShare, REMOTE_FAILED, REMOTE_SIZE, SINKS_MAX, Sink, lane_record,
};
use ecalls_abi::version::USERS_MAX;
use ecalls_abi::wire::Wire;
use libbpf_rs::libbpf_sys::{BPF_F_MMAPABLE, bpf_map_create_opts, size_t};
use libbpf_rs::{MapHandle, MapType, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, poll};
use zerocopy::{FromBytes, IntoBytes};

use crate::core::lane::sink::{Outs, Sinks};
use crate::error::{Error, Result};
use crate::kernel::interface::{Interface, PacketSocket};
use crate::kernel::sys;
use crate::kernel::table::Mapped;
use crate::kernel::worker::Worker;

/// Bytes of a record in the buffer before the packet begins (bpf/net/remote.h): two for the row of
/// its user, or 0, and four that align the rest.
const BEFORE: usize = 6;

/// Bytes of a packet before the frame: headers of Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

/// How frames of a channel get to a host that is reached by the relay.
pub trait Transport: std::fmt::Debug + Send + Sync {
    /// Sends a frame to this host. It may wait, but not for ever.
    ///
    /// # Errors
    /// If it could not be sent: it is missing there.
    fn send(&self, host: u64, frame: &[u8]) -> std::io::Result<()>;
}

/// A channel's buffer and the thread that empties it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Carrier {
    buffer: MapHandle,
    shares: MapHandle,
    _worker: Worker,
}

impl Carrier {
    /// For the channel in row `row`, whose sinks are behind this interface.
    pub(crate) fn to_interface(outs: Outs, row: u32, interface: Interface) -> Result<Carrier> {
        let packets = interface.packets()?;
        Carrier::start(move |packet| send(&packets, packet, &outs, row))
    }

    /// For the channel in row `row`, to whose sinks `transport` sends.
    pub(crate) fn to_relay(
        outs: Outs,
        sinks: Sinks,
        row: u32,
        transport: Arc<dyn Transport>,
    ) -> Result<Carrier> {
        Carrier::start(move |packet| {
            if let Some(frame) = packet.get(HEADERS..) {
                relay(&*transport, frame, &outs, &sinks, row);
            }
        })
    }

    /// Calls `send` with each packet.
    fn start(send: impl Fn(&[u8]) + Send + 'static) -> Result<Carrier> {
        let (buffer, shares) = (buffer()?, shares()?);
        let copy = MapHandle::try_from(&buffer);
        let copy = copy.map_err(|error| Error::from_bpf("opening a buffer", &error))?;
        let taken: Mapped<LaneShare> = Mapped::map(&shares, USERS_MAX)?;
        let take = move |record: &[u8]| {
            let Some((before, packet)) = record.split_first_chunk::<BEFORE>() else {
                return;
            };
            let user = u32::from(u16::from_ne_bytes([before[0], before[1]]));
            if user > 0 && (user as usize) < USERS_MAX {
                let bytes = lane_record(record.len() as u64);
                // Relaxed: the kernel side learns nothing else from it.
                taken
                    .word(user, offset_of!(LaneShare, taken))
                    .fetch_add(bytes, Ordering::Relaxed);
            }
            send(packet);
        };
        let work = move |until: &OwnedFd| carry(&copy, take, until);
        Ok(Carrier {
            buffer,
            shares,
            _worker: Worker::start("ecalls-lane", "starting to send frames", work)?,
        })
    }

    /// The buffer.
    pub(crate) fn buffer(&self) -> &MapHandle {
        &self.buffer
    }

    /// What users have in it.
    pub(crate) fn shares(&self) -> &MapHandle {
        &self.shares
    }
}

fn buffer() -> Result<MapHandle> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as size_t,
        ..Default::default()
    };
    let bytes = LANE_BUFFER as u32;
    MapHandle::create(MapType::RingBuf, Some("ecalls_lane"), 0, 0, bytes, &options)
        .map_err(|error| Error::from_bpf("making a channel's buffer", &error))
}

fn shares() -> Result<MapHandle> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as size_t,
        map_flags: BPF_F_MMAPABLE,
        ..Default::default()
    };
    let (bytes, rows) = (size_of::<LaneShare>() as u32, USERS_MAX as u32);
    MapHandle::create(MapType::Array, Some("lane_share"), 4, bytes, rows, &options)
        .map_err(|error| Error::from_bpf("making a table of users", &error))
}

/// What the thread does. If the buffer cannot be read it ends, and the buffer fills: the kernel
/// side counts that.
fn carry(buffer: &MapHandle, take: impl Fn(&[u8]), stop: &OwnedFd) {
    let mut builder = RingBufferBuilder::new();
    let each = |record: &[u8]| {
        take(record);
        0
    };
    if builder.add(buffer, each).is_err() {
        return;
    }
    let Ok(ring) = builder.build() else { return };
    // SAFETY: `ring` keeps this descriptor open, and lives as long as the loop.
    let filled = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
    loop {
        let _ = ring.consume();
        let mut fds = [
            PollFd::from_borrowed_fd(filled, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
            Ok(_) if !fds[1].revents().is_empty() => return,
            Ok(_) => {}
        }
    }
}

fn send(packets: &PacketSocket, packet: &[u8], outs: &Outs, row: u32) {
    let fanned = offset_of!(LaneOut, fanned);
    let before = outs.word(row, fanned).load(Ordering::Relaxed);
    let sent = packets.send(packet);
    if outs.word(row, fanned).load(Ordering::Relaxed) != before {
        return;
    }
    let reason = match sent {
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => REMOTE_SIZE,
        _ => REMOTE_FAILED,
    };
    let refused = offset_of!(LaneOut, refused) + reason * 8;
    outs.word(row, refused).fetch_add(1, Ordering::Relaxed);
}

/// Sends the frame to its sinks, as bpf/net/egress.h does on the lane.
fn relay(transport: &dyn Transport, frame: &[u8], outs: &Outs, sinks: &Sinks, row: u32) {
    let Ok((mut wire, data)) = Wire::read_from_prefix(frame) else {
        return;
    };
    let count = |field: usize, by: u64| outs.word(row, field).fetch_add(by, Ordering::Relaxed);
    let (chosen, deadline_ns) = (wire.sinks, wire.left_ns);
    let frames = u64::from(chosen.count_ones());
    count(offset_of!(LaneOut, frames), frames);
    count(offset_of!(LaneOut, fanned), 1);
    wire.sinks = 0;
    wire.left_ns = deadline_ns.saturating_sub(sys::now_ns());
    if deadline_ns > 0 && wire.left_ns == 0 {
        count(offset_of!(LaneOut, late), frames);
        return;
    }
    let all = sinks.of_channel(row);
    for number in (0..SINKS_MAX as u32).filter(|number| chosen >> number & 1 == 1) {
        let sink = all.get(number as usize);
        let Some(host) = sink.filter(|sink| sink.member != 0).and_then(Sink::host) else {
            count(offset_of!(LaneOut, gone), 1);
            continue;
        };
        wire.sequence = sinks.next(row, number);
        count(offset_of!(LaneOut, sent), 1);
        let bytes = [wire.as_bytes(), data].concat();
        if transport.send(host, &bytes).is_err() {
            sinks.failed(row, number);
        }
    }
}
