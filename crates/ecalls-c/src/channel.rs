//! Channels: shared memory from which a program reads its events. Man page: ecalls_channel(3).
//!
//! In Rust a channel has one reader by its type. In C nothing says so, hence the lock around it. It
//! is held for a look into shared memory, never while a reader sleeps: others can subscribe with a
//! channel whose reader waits. A lock that nobody else holds costs some ns per event, no system
//! call.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ecalls::downcall::Caller;
use ecalls::{Channel, Event, Layout, Lost, SlotUse};
use ecalls_abi::downcall::{DEFER_DELAY, DEFER_SWITCH};

use crate::error::{Failure, Outcome, guard};
use crate::host::HostHandle;
use crate::pointer::{Options, give, options, output, reference, take_back};

/// Looks into an empty channel before its reader goes to sleep.
const SPINS: u32 = 200;

/// Events of a channel whose options do not say it.
const CAPACITY: u32 = 1024;

/// How a channel is laid out (ECalls-01 §2.3). All 0 but `size`: a ring of 1024 events.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ChannelOptions {
    /// Size of this struct.
    pub size: u32,
    /// ECALLS_LAYOUT_RING or ECALLS_LAYOUT_SLOTS.
    pub layout: u32,
    /// Events, a power of two: of a ring 64 to 65536 and more than there are CPUs, of slots 1 to
    /// 1024. 0: 1024.
    pub capacity: u32,
    /// Which slot an event takes: ECALLS_SLOT_FREE, _PRIORITY or _TYPE.
    pub slot_use: u32,
    /// When deferred calls are handled, beside the next fast call (ECalls-01 §2.3.1): any of
    /// ECALLS_DEFER_DELAY, ECALLS_DEFER_SWITCH.
    pub defer: u32,
    /// 1: late events are handed out too, instead of being discarded and counted.
    pub keep_late: u32,
    /// With ECALLS_DEFER_DELAY: how long deferred calls may wait, us, at least 1.
    pub delay_us: u64,
}

// SAFETY: repr(C), begins with a u32, integers without padding.
unsafe impl Options for ChannelOptions {
    const LEAST: usize = 32;
}

const _: () = assert!(
    size_of::<ChannelOptions>() == ChannelOptions::LEAST,
    "the first version"
);

/// `ecalls_channel_t`.
#[derive(Debug)]
pub struct ChannelHandle {
    reader: Mutex<Channel>,
    pub(crate) caller: Caller,
    /// Slots of a slot layout; 0 for a ring.
    slots: usize,
    /// Belongs to the channel in `reader`.
    wake_fd: RawFd,
}

impl ChannelHandle {
    /// The channel, for as long as one look takes.
    pub(crate) fn reader(&self) -> MutexGuard<'_, Channel> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor to wait on.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to `reader`, which lives as long as this handle.
        unsafe { BorrowedFd::borrow_raw(self.wake_fd) }
    }

    /// The next event; sleeps until `until_ns`, or forever. None: the time ran out.
    fn recv(&self, until_ns: Option<u64>) -> Outcome<Option<Event>> {
        for _ in 0..SPINS {
            if let Some(event) = self.reader().try_recv() {
                return Ok(Some(event));
            }
            std::hint::spin_loop();
        }
        loop {
            let left_ns = until_ns.map(|until| until.saturating_sub(ecalls::now_ns()));
            if self.reader().prepare_wait() {
                let waited = ecalls_kernel::wait_readable(self.wake(), left_ns);
                self.reader().end_wait();
                waited?;
            }
            if let Some(event) = self.reader().try_recv() {
                return Ok(Some(event));
            }
            if until_ns.is_some_and(|until| ecalls::now_ns() >= until) {
                return Ok(None);
            }
        }
    }
}

/// Opens a channel (ECalls-05 §3.2). `options` NULL: a ring of 1024 events.
/// -EINVAL for options without meaning; -ENOSPC when all channels of the core are in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_open(
    ecalls: *const HostHandle,
    options: *const ChannelOptions,
    channel: *mut *mut ChannelHandle,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: options (the root's Safety).
        let given = unsafe { channel_options(options) }?;
        let place = output(channel, "the place for the channel")?;
        let opened = open(host, &given)?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, opened) };
        Ok(0)
    })
}

/// Closes a channel: its descriptor and its memory are gone. Timers made with it keep its kernel
/// side until they are cancelled. Events that a subscription still sends there are counted as
/// ECALLS_DROP_CHANNEL_GONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_close(channel: *mut ChannelHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(channel) };
}

/// The descriptor to wait on with poll or epoll, between ecalls_channel_prepare_wait and
/// ecalls_channel_end_wait. It belongs to the channel: do not close or read it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_fd(channel: *const ChannelHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        Ok(channel.wake_fd)
    })
}

/// The next event, without waiting and without a system call. When several wait, the one with the
/// earliest deadline; late ones are discarded and counted. -EAGAIN: no event waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_try_recv(
    channel: *mut ChannelHandle,
    event: *mut Event,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(event, "the place for the event")?;
        let Some(next) = channel.reader().try_recv() else {
            return Ok(-libc::EAGAIN);
        };
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(next) };
        Ok(0)
    })
}

/// The same, and sleeps at most `timeout_us` while there is no event; -1: without end. A signal
/// handler that runs does not end the wait. One thread at a time shall wait on a channel.
/// -ETIMEDOUT: the time ran out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_recv(
    channel: *mut ChannelHandle,
    timeout_us: i64,
    event: *mut Event,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(event, "the place for the event")?;
        let until_ns = match timeout_us {
            -1 => None,
            us => {
                let us = u64::try_from(us).map_err(|_| {
                    Failure::invalid(format!("the timeout is {us} us: -1, or 0 and more"))
                })?;
                Some(ecalls::now_ns().saturating_add(us.saturating_mul(1000)))
            }
        };
        let Some(next) = channel.recv(until_ns)? else {
            return Ok(-libc::ETIMEDOUT);
        };
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(next) };
        Ok(0)
    })
}

/// Asks for a wake-up. 1: wait on the descriptor now, then call ecalls_channel_end_wait and read.
/// 0: an event is there already, do not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_prepare_wait(channel: *mut ChannelHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let wait = channel.reader().prepare_wait();
        Ok(c_int::from(wait))
    })
}

/// Ends a wait: the descriptor is unreadable again, and no wake-up is asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_end_wait(channel: *mut ChannelHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        channel.reader().end_wait();
        Ok(0)
    })
}

/// Takes the bits of a slot layout (ECalls-01 §2.3): bit i % 64 of bitmap[i / 64] is set if slot i
/// had an event, and is cleared in the channel, without reading the event. Thereby the readiness of
/// 1024 descriptors costs some ns. `words` is the length of the bitmap, at least capacity / 64,
/// rounded up; words beyond are set to 0. Returns how many bits are set; always 0 for a ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_take_ready(
    channel: *mut ChannelHandle,
    words: usize,
    bitmap: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(bitmap, "the bitmap")?;
        let needed = channel.slots.div_ceil(64);
        if words < needed {
            let text = format!("the bitmap has {words} words: this channel needs {needed}");
            return Err(Failure::invalid(text));
        }
        // SAFETY: an output of that many words (the root's Safety), for now ours alone.
        let bits = unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), words) };
        bits.fill(0);
        let mut count = 0;
        channel.reader().take_ready(|slot| {
            if let Some(word) = bits.get_mut(slot / 64) {
                *word |= 1 << (slot % 64);
                count += 1;
            }
        });
        Ok(count)
    })
}

/// What the kernel side did not deliver to this channel, and why. No system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_lost(
    channel: *const ChannelHandle,
    lost: *mut Lost,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(lost, "the place for the counters")?;
        let counters = channel.reader().lost();
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(counters) };
        Ok(0)
    })
}

/// How many events arrived in time, but were late when this channel's reader came to them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_late(
    channel: *const ChannelHandle,
    late: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(late, "the place for the counter")?;
        let count = channel.reader().late();
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(count) };
        Ok(0)
    })
}

/// Copies the 64 counters of the kernel handler `histogram`. No system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_histogram(
    channel: *const ChannelHandle,
    counters: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(counters.cast::<[u64; 64]>(), "the place for the counters")?;
        let copy = channel.reader().histogram();
        // SAFETY: an output of 64 words (the root's Safety).
        unsafe { place.write(copy) };
        Ok(0)
    })
}

/// # Safety
/// `pointer` is null or options.
unsafe fn channel_options(pointer: *const ChannelOptions) -> Outcome<ChannelOptions> {
    if pointer.is_null() {
        return Ok(ChannelOptions::default());
    }
    // SAFETY: the caller's promise.
    unsafe { options(pointer, "the channel's options") }
}

fn open(host: &HostHandle, given: &ChannelOptions) -> Outcome<ChannelHandle> {
    let layout = Layout::from_raw(given.layout)
        .ok_or_else(|| wrong("layout", given.layout, "ECALLS_LAYOUT_*"))?;
    let slot_use = SlotUse::from_raw(given.slot_use)
        .ok_or_else(|| wrong("slot_use", given.slot_use, "ECALLS_SLOT_*"))?;
    if given.defer & !(DEFER_DELAY | DEFER_SWITCH) != 0 {
        return Err(wrong("defer", given.defer, "ECALLS_DEFER_*"));
    }
    if given.keep_late > 1 {
        return Err(wrong("keep_late", given.keep_late, "0 or 1"));
    }
    if (given.defer & DEFER_DELAY != 0) != (given.delay_us != 0) {
        let text = "delay_us and ECALLS_DEFER_DELAY go together: set both or none";
        return Err(Failure::invalid(text));
    }
    let capacity = if given.capacity == 0 {
        CAPACITY
    } else {
        given.capacity
    };
    let builder = host.0.channel();
    let mut builder = match layout {
        Layout::Ring => builder.ring(capacity),
        Layout::Slots => builder.slots(capacity, slot_use),
    };
    if given.defer & DEFER_DELAY != 0 {
        builder = builder.defer_delay(Duration::from_micros(given.delay_us));
    }
    if given.defer & DEFER_SWITCH != 0 {
        builder = builder.defer_switch();
    }
    if given.keep_late != 0 {
        builder = builder.keep_late();
    }
    let channel = builder.open()?;
    Ok(ChannelHandle {
        caller: channel.caller().clone(),
        slots: match layout {
            Layout::Ring => 0,
            Layout::Slots => usize::try_from(capacity).unwrap_or(0),
        },
        wake_fd: channel.as_fd().as_raw_fd(),
        reader: Mutex::new(channel),
    })
}

fn wrong(field: &str, given: u32, expected: &str) -> Failure {
    Failure::invalid(format!("{field} is {given}: {expected}"))
}
