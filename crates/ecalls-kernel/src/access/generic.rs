//! The generic call of a daemon's client (ECalls-01 §2.3.1), by the fast call.
//!
//! A program that hosts the core runs a BPF program for the generic call. A client that had this
//! BPF program could bind maps to it, which would live as long as the core. So a client does not
//! have it; a fast call passes the address of the generic call in the client's memory, and the
//! kernel side reads it from there. The result is returned in a frame of a channel: a small one for
//! this purpose, opened by the first such call.

use std::sync::Arc;

use ecalls_abi::channel::{Id, Layout};
use ecalls_abi::downcall::{Generic, Op};

use crate::access::Access;
use crate::access::connection::Connection;
use crate::access::downcall::{Frames, Way};
use crate::access::memory::ChannelMemory;
use crate::core::channel::Shape;
use crate::error::{Error, Result};

/// Slots of the channel, which receives no events.
const CAPACITY: u32 = 1;

/// The number of attempts for a call whose memory the kernel side could not read: it was written
/// immediately before, so it is absent only if the machine has just reclaimed the page.
const TRIES: u32 = 100;

/// The channel. The daemon closes it with the connection.
#[derive(Debug)]
pub(crate) struct Calls {
    id: Id,
    memory: ChannelMemory,
    frames: Frames,
}

impl Calls {
    /// Opens the channel.
    pub(crate) fn open(connection: &Connection) -> Result<Arc<Calls>> {
        let shape = Shape {
            layout: Layout::Slots,
            capacity: CAPACITY,
            ..Shape::default()
        };
        let (id, fds) = connection.open_channel(&shape)?;
        Ok(Arc::new(Calls {
            id,
            memory: ChannelMemory::map(&fds, &shape)?,
            frames: Frames::default(),
        }))
    }

    /// Executes a call, and returns its result.
    ///
    /// # Errors
    /// [`Error::DaemonGone`], and EFAULT after all attempts.
    pub(crate) fn call(&self, access: &dyn Access, call: &Generic) -> Result<i64> {
        let frame = loop {
            match self.frames.lease() {
                Some(frame) => break frame,
                // More threads call than there are frames; a frame is free soon.
                None => std::thread::yield_now(),
            }
        };
        let way = Way {
            access,
            channel: self.id,
            down: self.memory.down(),
            frame: &frame,
        };
        let refused = -i64::from(libc::EFAULT);
        for _ in 0..TRIES {
            // It is copied each time, so that it was just written. The kernel side reads it while
            // this thread executes the call.
            let copy = *call;
            let address = std::ptr::from_ref(std::hint::black_box(&copy)).addr() as u64;
            match way.call_until_answered(Op::Call, [address, 0, 0])? {
                result if result == refused => {}
                result => return Ok(result),
            }
        }
        Err(Error::from_errno("calling a service", refused))
    }
}
