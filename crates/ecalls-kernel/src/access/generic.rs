//! The generic call of a daemon's client (ECalls-01 §2.3.1): by way of the fast call.
//!
//! Who hosts the core runs a program for it. A client that had that program could bind its maps to
//! it, and they would live as long as the core. So it has none; it says in a fast call where the
//! generic call is in its memory, and the kernel side reads it from there. The result comes back in
//! a frame of a channel: of a small one for this purpose, opened with the first such call.

use std::sync::Arc;

use ecalls_abi::channel::{Id, Layout, SlotUse};
use ecalls_abi::downcall::{Generic, Op};
use ecalls_abi::message::OpenChannel;

use crate::access::Access;
use crate::access::connection::Connection;
use crate::access::downcall::{Frames, Way};
use crate::access::memory::ChannelMemory;
use crate::error::{Error, Result};

/// Slots of the channel, in which nothing ever arrives.
const CAPACITY: u32 = 1;

/// How often a call is made whose memory the kernel side could not read: it was written a moment
/// before, so it is not there only if the machine just put it away.
const TRIES: u32 = 100;

/// The channel. The daemon closes it with the connection.
#[derive(Debug)]
pub(crate) struct Calls {
    id: Id,
    memory: ChannelMemory,
    frames: Frames,
}

impl Calls {
    /// Opens one.
    pub(crate) fn open(connection: &Connection) -> Result<Arc<Calls>> {
        let (id, fds) = connection.open_channel(&OpenChannel {
            layout: Layout::Slots.raw(),
            capacity: CAPACITY,
            slot_use: SlotUse::Free.raw(),
            defer: 0,
            delay_ns: 0,
        })?;
        Ok(Arc::new(Calls {
            id,
            memory: ChannelMemory::map(&fds, CAPACITY)?,
            frames: Frames::default(),
        }))
    }

    /// Makes a call. Its result.
    ///
    /// # Errors
    /// [`Error::DaemonGone`], and EFAULT as above.
    pub(crate) fn call(&self, access: &dyn Access, call: &Generic) -> Result<i64> {
        let frame = loop {
            match self.frames.lease() {
                Some(frame) => break frame,
                // As many threads call as there are frames; each has its own in a moment.
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
            // Copied each time, so that it was just written. The kernel side reads it while this
            // thread is in the call.
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
