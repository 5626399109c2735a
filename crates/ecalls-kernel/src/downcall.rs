//! Fast calls by whichever mechanism the core attached (ECalls-01 §2.3.1).
//!
//! A call names the channel, a frame (where the result is left when the mechanism cannot return it)
//! and the operation. One frame belongs to one calling thread; [`FrameLease`] hands them out.
//!
//! A hook may leave a call unanswered: the kernel never runs a program inside itself on one CPU, so
//! a thread that calls while another thread of its CPU was preempted in the program finds nobody at
//! the trampoline. Then the frame's sequence has not moved, nothing was done, and the call is made
//! again by the universal mechanism, which has no such limit.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use ecalls_abi::downcall::{DOWN_ELEMENT_BYTES, DOWN_FRAMES, Downcall, FRAMES, Generic, Op, call};
use zerocopy::FromZeros;

use crate::error::Result;
use crate::handle::ChannelHandle;
use crate::objects::FastCall;
use crate::sys;

/// Words of a frame, and where its result and sequence are.
const ELEMENT_WORDS: usize = DOWN_ELEMENT_BYTES / 8;
const RESULT_WORD: usize = std::mem::offset_of!(Downcall, result) / 8;
const SEQUENCE_WORD: usize = std::mem::offset_of!(Downcall, sequence) / 8;

/// Frames in use of one channel: a bit each.
#[derive(Debug, Default)]
pub struct Frames(AtomicU64);

/// A frame that belongs to the caller until it is dropped.
#[derive(Debug)]
pub struct FrameLease<'a> {
    frames: &'a Frames,
    index: u16,
}

impl Frames {
    /// Takes a free frame; None while all [`FRAMES`] are in use.
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

impl ChannelHandle {
    /// A fast call: runs the operation in the kernel without blocking and returns its result, a
    /// negative errno for a refusal by the operation itself.
    ///
    /// # Errors
    /// Those of [`ChannelHandle::run_call`], which answers where the hook did not.
    pub fn fast_call(&self, frame: &FrameLease<'_>, op: Op, arguments: [u64; 3]) -> Result<i64> {
        let mechanism = self.access().fast_call();
        if mechanism == FastCall::Run {
            return self.run_call(op, arguments);
        }
        let [a, b, c] = arguments;
        let word = call(
            self.id().raw(),
            frame.index,
            u16::try_from(op.raw()).expect("small"),
        );
        let before = self.frame_word(frame, SEQUENCE_WORD);
        let returned = match mechanism {
            FastCall::Setsockopt => {
                sys::fast_setsockopt(self.access().call_socket()?.as_raw_fd(), [word, a, b, c])
            }
            _ => sys::fast_prctl(word, a, b, c),
        };
        if mechanism == FastCall::Security && returned > 0 {
            return Ok(i64::from(returned));
        }
        if self.frame_word(frame, SEQUENCE_WORD) == before {
            return self.run_call(op, arguments);
        }
        Ok(self.frame_word(frame, RESULT_WORD).cast_signed())
    }

    /// The same operation by the universal mechanism: slower, and independent of every hook.
    pub fn run_call(&self, op: Op, arguments: [u64; 3]) -> Result<i64> {
        let mut generic = Generic::new_zeroed();
        generic.op = op.raw();
        generic.channel = self.id().raw();
        generic.argument = arguments;
        self.access().generic(&mut generic)
    }

    fn frame_word(&self, frame: &FrameLease<'_>, word: usize) -> u64 {
        let at = (DOWN_FRAMES + usize::from(frame.index)) * ELEMENT_WORDS + word;
        self.down()[at].load(Ordering::Acquire)
    }
}
