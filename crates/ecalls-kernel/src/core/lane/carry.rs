//! Carries the frames of a channel from its buffer to the interface (abi/sink.h): the one step of
//! an event's way to other hosts for which the kernel needs a process, since no program on a
//! tracepoint can create a packet.
//!
//! A thread sleeps until frames are in the buffer, and sends each as one packet. The program on the
//! interface takes it there and sends it to the frame's sinks; the kernel then tells the sender
//! that the packet was dropped. So whether it arrived there shows in `fanned`, which only this
//! thread's packets increment.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use ecalls_abi::sink::{LANE_BUFFER, LaneOut, REMOTE_FAILED, REMOTE_SIZE};
use libbpf_rs::libbpf_sys::{bpf_map_create_opts, size_t};
use libbpf_rs::{MapHandle, MapType, RingBufferBuilder};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::core::lane::sink::Outs;
use crate::error::{Error, Result};
use crate::kernel::interface::{Interface, PacketSocket};

/// Bytes of a record in the buffer before the packet begins (`pad` of bpf/net/remote.h).
const PAD: usize = 6;

/// A channel's buffer and the thread that empties it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Carrier {
    buffer: MapHandle,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: u32,
}

impl Carrier {
    /// For the channel in row `row`, whose sinks are behind this interface.
    pub(crate) fn start(outs: Outs, row: u32, interface: Interface) -> Result<Carrier> {
        let error = |source: std::io::Error| Error::from_io("starting to send frames", source);
        let buffer = buffer()?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| error(errno.into()))?;
        let stop = Arc::new(stop);
        let packets = interface.packets()?;
        let (copy, until) = (MapHandle::try_from(&buffer), Arc::clone(&stop));
        let copy = copy.map_err(|error| Error::from_bpf("opening a buffer", &error))?;
        let thread = std::thread::Builder::new()
            .name("ecalls-lane".to_owned())
            .spawn(move || carry(&copy, &packets, &outs, row, &until))
            .map_err(error)?;
        Ok(Carrier {
            buffer,
            stop,
            thread: Some(thread),
            process: std::process::id(),
        })
    }

    /// The buffer.
    pub(crate) fn buffer(&self) -> &MapHandle {
        &self.buffer
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // A forked child has a copy, whose thread is its parent's.
        if self.process != std::process::id() {
            return;
        }
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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

/// What the thread does. If the buffer cannot be read it ends, and the buffer fills: the kernel
/// side counts that.
fn carry(buffer: &MapHandle, packets: &PacketSocket, outs: &Outs, row: u32, stop: &OwnedFd) {
    let mut builder = RingBufferBuilder::new();
    let send = |record: &[u8]| {
        if let Some(packet) = record.get(PAD..) {
            send(packets, packet, outs, row);
        }
        0
    };
    if builder.add(buffer, send).is_err() {
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
    let fanned = std::mem::offset_of!(LaneOut, fanned);
    let before = outs.word(row, fanned).load(Ordering::Relaxed);
    let sent = packets.send(packet);
    if outs.word(row, fanned).load(Ordering::Relaxed) != before {
        return;
    }
    let reason = match sent {
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => REMOTE_SIZE,
        _ => REMOTE_FAILED,
    };
    let refused = std::mem::offset_of!(LaneOut, refused) + reason * 8;
    outs.word(row, refused).fetch_add(1, Ordering::Relaxed);
}
