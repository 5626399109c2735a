//! Fast calls by the mechanism that the core attached (ECalls-01 §2.3.1).
//!
//! A call names the channel, a frame (which receives the result if the mechanism cannot return it)
//! and the operation. A frame belongs to one calling thread; [`FrameLease`] assigns it.
//!
//! A hook may leave a call unanswered: the kernel never runs a program recursively on one CPU, so
//! the trampoline skips the program for a thread that calls while another thread of its CPU was
//! preempted in it. Then the frame's sequence is unchanged, nothing was executed, and the call is
//! repeated: by the universal mechanism, which has no such limit, or, in a program without that
//! mechanism (a client of the daemon), after a pause in which the other thread finishes.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ecalls_abi::channel::Id;
use ecalls_abi::downcall::{DOWN_ELEMENT_BYTES, DOWN_FRAMES, Downcall, FRAMES, Generic, Op, call};
use zerocopy::FromZeros;

use crate::access::Access;
use crate::access::handle::ChannelHandle;
use crate::error::{Error, Result};
use crate::kernel::objects::FastCall;
use crate::kernel::sys;

/// Words of a frame, and the offsets of its result and sequence.
const ELEMENT_WORDS: usize = DOWN_ELEMENT_BYTES / 8;
const RESULT_WORD: usize = std::mem::offset_of!(Downcall, result) / 8;
const SEQUENCE_WORD: usize = std::mem::offset_of!(Downcall, sequence) / 8;

/// The number of attempts of a client for an unanswered call, and the pause between them: a thread
/// that was preempted in the program has the CPU again by then.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(1);

/// Frames of one channel that are in use: a bit each.
#[derive(Debug, Default)]
pub struct Frames(AtomicU64);

/// A frame that belongs to the caller until it is dropped.
#[derive(Debug)]
pub struct FrameLease<'a> {
    frames: &'a Frames,
    index: u16,
}

impl Frames {
    /// Takes a free frame; `None` while all [`FRAMES`] are in use.
    pub fn lease(&self) -> Option<FrameLease<'_>> {
        let mut used = self.0.load(Ordering::Relaxed);
        loop {
            let free = (!used).trailing_zeros();
            if free as usize >= FRAMES {
                return None;
            }
            let taken = used | 1 << free;
            match self
                .0
                .compare_exchange_weak(used, taken, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    let index = u16::try_from(free).expect("below 64");
                    return Some(FrameLease {
                        frames: self,
                        index,
                    });
                }
                Err(now) => used = now,
            }
        }
    }
}

impl Drop for FrameLease<'_> {
    fn drop(&mut self) {
        self.frames
            .0
            .fetch_and(!(1 << self.index), Ordering::Release);
    }
}

/// The parameters of a fast call: a channel of this process, and a frame of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a> {
    pub(crate) access: &'a dyn Access,
    pub(crate) channel: Id,
    pub(crate) down: &'a [AtomicU64],
    pub(crate) frame: &'a FrameLease<'a>,
}

impl Way<'_> {
    /// One call by the hook; `None` if it was not answered.
    fn call(&self, op: Op, [a, b, c]: [u64; 3]) -> Result<Option<i64>> {
        let mechanism = self.access.fast_call()?;
        let op = u16::try_from(op.raw()).expect("small");
        let word = call(self.channel.raw(), self.frame.index, op);
        let before = self.word(SEQUENCE_WORD);
        let returned = match mechanism {
            FastCall::Setsockopt => {
                sys::fast_setsockopt(call_socket()?.as_raw_fd(), [word, a, b, c])
            }
            _ => sys::fast_prctl(word, a, b, c),
        };
        if mechanism == FastCall::Security && returned > 0 {
            return Ok(Some(i64::from(returned)));
        }
        let answered = self.word(SEQUENCE_WORD) != before;
        Ok(answered.then(|| self.word(RESULT_WORD).cast_signed()))
    }

    /// A call by the hook alone; it is repeated if it is not answered. `-EPERM`: the channel no
    /// longer belongs to this process.
    ///
    /// # Errors
    /// [`Error::DaemonGone`]
    pub(crate) fn call_until_answered(&self, op: Op, arguments: [u64; 3]) -> Result<i64> {
        let tries = match self.access.fast_call()? {
            FastCall::Security => TRIES,
            // The other mechanisms cannot be preempted.
            _ => 1,
        };
        for number in 0..tries {
            if let Some(result) = self.call(op, arguments)? {
                return Ok(result);
            }
            self.access.check()?;
            if number + 1 < tries {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(-i64::from(libc::EPERM))
    }

    fn word(&self, word: usize) -> u64 {
        let at = (DOWN_FRAMES + usize::from(self.frame.index)) * ELEMENT_WORDS + word;
        self.down[at].load(Ordering::Acquire)
    }
}

/// A socket of this process, which the fast call by setsockopt needs.
fn call_socket() -> Result<&'static OwnedFd> {
    static SOCKET: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(socket) = SOCKET.get() {
        return Ok(socket);
    }
    let socket = UnixDatagram::unbound();
    let socket = socket.map_err(|error| Error::from_io("opening a socket", error))?;
    Ok(SOCKET.get_or_init(|| OwnedFd::from(socket)))
}

impl ChannelHandle {
    /// A fast call: executes the operation in the kernel without blocking and returns its result,
    /// or a negative errno with which the operation refused the call.
    ///
    /// # Errors
    /// Those of [`ChannelHandle::run_call`], which is used if the hook does not answer.
    pub fn fast_call(&self, frame: &FrameLease<'_>, op: Op, arguments: [u64; 3]) -> Result<i64> {
        let access = self.access();
        if access.fast_call()? == FastCall::Run {
            return self.run_call(op, arguments);
        }
        let way = Way {
            access: &**access,
            channel: self.id(),
            down: self.down(),
            frame,
        };
        if let Some(result) = way.call(op, arguments)? {
            return Ok(result);
        }
        match access.has_program() {
            true => self.run_call(op, arguments),
            false => way.call_until_answered(op, arguments),
        }
    }

    /// The same operation by the universal mechanism: slower, and independent of every hook.
    ///
    /// # Errors
    /// [`Error::Denied`] for a client of a daemon whose kernel has a
    /// fast call.
    pub fn run_call(&self, op: Op, arguments: [u64; 3]) -> Result<i64> {
        let mut generic = Generic::new_zeroed();
        generic.op = op.raw();
        generic.channel = self.id().raw();
        generic.argument = arguments;
        self.access().generic(&mut generic)
    }
}
