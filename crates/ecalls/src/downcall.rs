//! Downcalls: calls of a program to the kernel side (ECalls-01 §2.3.1).
//!
//! - *fast*: a cheap system call; the handler does not block;
//! - *deferred*: a store into shared memory, no system call; handled in a batch at the next fast
//!   call, after a delay, or before the next scheduling, as the channel was opened; or only the
//!   latest of a kind counts ([`Caller::defer_latest`]);
//! - *generic*: by service name, may block ([`crate::Ecalls::raise`]).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ecalls_abi::downcall::{DEFER_DELAY, Op};
use ecalls_kernel::downcall::Frames;
use ecalls_kernel::handle::ChannelHandle;
use ecalls_ring::{DeferWriter, Words};

use crate::{Error, Result};

/// The `down` words of a channel.
#[derive(Clone, Debug)]
struct Down(Arc<ChannelHandle>);

impl Words for Down {
    fn words(&self) -> &[AtomicU64] {
        self.0.down()
    }
}

/// A call to the kernel side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Only handles the deferred calls. Result: their number.
    Nop,
    /// Result: the caller's process id.
    GetPid,
    /// Sets an attribute of the channel, which kernel handlers read.
    Set {
        /// Its number, 0 to 31.
        attribute: u32,
        /// Its new value.
        value: u64,
    },
    /// Result: an attribute's value.
    Get {
        /// Its number, 0 to 31.
        attribute: u32,
    },
    /// Raises an event of an application service of this process, with one word of data. Result:
    /// the number of subscriptions to which it was offered.
    Raise {
        /// Index of the service.
        service: u32,
        /// Kind of the event, 0 to 31.
        kind: u32,
        /// A process id, -1 for all subscriptions, or -2 for one of them in turn.
        target: i32,
        /// The data.
        data: u64,
    },
    /// Sets, moves or (expiry 0) cancels a timer; see [`crate::timer`].
    Timer {
        /// Its number.
        timer: u32,
        /// Expiry, ns of CLOCK_MONOTONIC; 0: never.
        expiry_ns: u64,
        /// Period, ns; 0: the timer expires once.
        period_ns: u64,
    },
}

impl Call {
    #[inline]
    fn encode(self) -> (Op, [u64; 3]) {
        match self {
            Call::Nop => (Op::Nop, [0; 3]),
            Call::GetPid => (Op::Getpid, [0; 3]),
            Call::Set { attribute, value } => (Op::Set, [attribute.into(), value, 0]),
            Call::Get { attribute } => (Op::Get, [attribute.into(), 0, 0]),
            Call::Raise {
                service,
                kind,
                target,
                data,
            } => {
                let which = u64::from(service) | u64::from(kind) << 16;
                (Op::Raise, [which, i64::from(target).cast_unsigned(), data])
            }
            Call::Timer {
                timer,
                expiry_ns,
                period_ns,
            } => (Op::Timer, [timer.into(), expiry_ns, period_ns]),
        }
    }
}

/// Calls the kernel side over one channel. Clones share it and can be used from any thread.
#[derive(Clone, Debug)]
pub struct Caller {
    handle: Arc<ChannelHandle>,
    frames: Arc<Frames>,
    deferred: Arc<Mutex<Deferred>>,
}

/// The state that the lock protects.
#[derive(Debug)]
struct Deferred {
    writer: DeferWriter<Down>,
    /// With a delay: whether the kernel's timer runs for the calls in the ring.
    delayed: bool,
}

impl Caller {
    pub(crate) fn new(handle: Arc<ChannelHandle>) -> Result<Caller> {
        let writer = DeferWriter::new(Down(Arc::clone(&handle)))
            .map_err(|_| Error::Closed("the channel's segment"))?;
        let delayed = handle.shape().defer & DEFER_DELAY != 0;
        Ok(Caller {
            handle,
            frames: Arc::default(),
            deferred: Arc::new(Mutex::new(Deferred { writer, delayed })),
        })
    }

    pub(crate) fn handle(&self) -> &Arc<ChannelHandle> {
        &self.handle
    }

    /// A fast call, complete when the function returns. A negative result is the negative errno of
    /// a refusal.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if 64 threads call at the same time.
    pub fn fast(&self, call: Call) -> Result<i64> {
        let (op, arguments) = call.encode();
        self.fast_op(op, arguments)
    }

    pub(crate) fn fast_op(&self, op: Op, arguments: [u64; 3]) -> Result<i64> {
        let frame = self.frames.lease().ok_or(Error::LimitReached {
            which: "fast calls of one channel at the same time",
            limit: ecalls_abi::downcall::FRAMES,
        })?;
        self.handle.fast_call(&frame, op, arguments)
    }

    /// The same call by the mechanism that every kernel has (BPF_PROG_RUN): slower, but without a
    /// hook.
    pub fn run(&self, call: Call) -> Result<i64> {
        let (op, arguments) = call.encode();
        self.handle.run_call(op, arguments)
    }

    /// Defers a call: a store into shared memory. If the ring is full, its calls are first handled
    /// by a fast call. A sequence of calls costs less as a [`Caller::batch`].
    ///
    /// # Errors
    /// Those of [`Caller::fast`].
    pub fn defer(&self, call: Call) -> Result<()> {
        self.batch().defer(call)
    }

    /// Takes the channel's lock once for several deferred calls; other threads that defer wait
    /// until the batch is dropped.
    pub fn batch(&self) -> Batch<'_> {
        Batch {
            caller: self,
            deferred: self.deferred.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Defers a call in a cell (0 to 15) that holds only the latest call: it replaces a call in the
    /// same cell that was not handled yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another cell.
    pub fn defer_latest(&self, cell: usize, call: Call) -> Result<()> {
        let (op, arguments) = call.encode();
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = deferred
            .writer
            .set_latest(cell, op.raw(), arguments)
            .map_err(|_| Error::Invalid {
                what: "the cell",
                given: cell.to_string(),
                expected: "0 to 15",
            })?;
        if deferred.delayed && is_first {
            self.arm()?;
        }
        Ok(())
    }

    /// Requests that the kernel side handles the deferred calls after the channel's delay.
    fn arm(&self) -> Result<()> {
        match self.fast_op(Op::Delay, [0; 3])? {
            0.. => Ok(()),
            code => Err(Error::Os {
                action: "arming the timer of deferred calls",
                source: std::io::Error::from_raw_os_error(i32::try_from(-code).unwrap_or(0)),
            }),
        }
    }

    /// Handles all deferred calls now, by fast calls.
    pub fn flush(&self) -> Result<()> {
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        self.flush_ring(&mut deferred)
    }

    fn flush_ring(&self, deferred: &mut Deferred) -> Result<()> {
        let rounds = ecalls_abi::downcall::DOWN_CAPACITY / ecalls_abi::downcall::DRAIN_MAX + 1;
        for _ in 0..rounds {
            self.fast_op(Op::Nop, [0; 3])?;
            if deferred.writer.pending() == 0 && deferred.writer.pending_latest() == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Number of deferred calls that were not handled yet.
    pub fn pending(&self) -> usize {
        let deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        deferred.writer.pending() + deferred.writer.pending_latest().count_ones() as usize
    }

    /// The longest time that deferred calls wait, if the channel was opened with a delay.
    pub fn delay(&self) -> Option<Duration> {
        let shape = self.handle.shape();
        (shape.defer & DEFER_DELAY != 0).then(|| Duration::from_nanos(shape.delay_ns))
    }
}

/// A sequence of deferred calls: see [`Caller::batch`].
#[derive(Debug)]
pub struct Batch<'a> {
    caller: &'a Caller,
    deferred: MutexGuard<'a, Deferred>,
}

impl Batch<'_> {
    /// Defers a call, as [`Caller::defer`] does.
    ///
    /// # Errors
    /// Those of [`Caller::fast`].
    #[inline]
    pub fn defer(&mut self, call: Call) -> Result<()> {
        let (op, arguments) = call.encode();
        if self.deferred.writer.push(op.raw(), arguments).is_err() {
            self.make_room(op, arguments)?;
        }
        if self.deferred.delayed && self.deferred.writer.is_first() {
            self.caller.arm()?;
        }
        Ok(())
    }

    /// The ring is full: handles its calls, then defers this one.
    #[cold]
    fn make_room(&mut self, op: Op, arguments: [u64; 3]) -> Result<()> {
        self.caller.flush_ring(&mut self.deferred)?;
        self.deferred
            .writer
            .push(op.raw(), arguments)
            .map_err(|_| Error::LimitReached {
                which: "deferred calls of one channel",
                limit: ecalls_abi::downcall::DOWN_CAPACITY,
            })
    }
}
