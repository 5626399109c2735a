//! Channels: shared memory from which a program reads its events. Man page: ecalls_channel(3).
//!
//! In Rust the type of a channel permits one reader only. C has no such types, hence the lock. It
//! is held while shared memory is read, never while a reader sleeps: other threads can subscribe
//! with a channel whose reader waits. A lock that no other thread holds costs some ns per event and
//! no system call.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ecalls::downcall::Caller;
use ecalls::{Channel, Layout, Lost, SlotUse};
use ecalls_abi::Event;
use ecalls_abi::downcall::{DEFER_DELAY, DEFER_SWITCH};

use crate::error::{Failure, Outcome, guard};
use crate::host::HostHandle;
use crate::pointer::{Options, give, options, output, reference, take_back};

/// Polls of an empty channel before its reader sleeps.
const SPINS: u32 = 200;

/// The default capacity of a channel.
const CAPACITY: u32 = 1024;

/// The layout of a channel (ECalls-01 §2.3). All fields 0 but `size`: a ring of 1024 entries.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ChannelOptions {
    /// Size of this struct.
    pub size: u32,
    /// ECALLS_LAYOUT_RING or ECALLS_LAYOUT_SLOTS.
    pub layout: u32,
    /// Number of entries of a ring or of slots, a power of two: 64 to 65536 for a ring, 1 to
    /// 1024 for slots. 0: 1024.
    pub capacity: u32,
    /// How an event's slot is selected: ECALLS_SLOT_FREE, _PRIORITY, _TYPE or _READY.
    pub slot_use: u32,
    /// When deferred calls are handled, in addition to the next fast call (ECalls-01 §2.3.1):
    /// any of ECALLS_DEFER_DELAY, ECALLS_DEFER_SWITCH.
    pub defer: u32,
    /// 1: late events are returned too, instead of being discarded and counted.
    pub keep_late: u32,
    /// With ECALLS_DEFER_DELAY: the longest time that deferred calls wait, us, at least 1.
    pub delay_us: u64,
    /// Slots: the largest data of an event in bytes, at most ECALLS_DATA_MAX. Events with more
    /// are dropped as ECALLS_DROP_SIZE. 0: ECALLS_DATA_INLINE. A ring has no such limit.
    pub data_max: u64,
    /// With a ring: the longest time for which ecalls_channel_recv lets events gather while
    /// it sleeps, us. An event with a deadline before that ends its sleep at once. 0: each
    /// event that finds it asleep does.
    pub gather_us: u64,
    /// With gather_us: the number of events at which it wakes, at least 1.
    pub gather_events: u64,
}

// SAFETY: repr(C), begins with a u32, integers without padding.
unsafe impl Options for ChannelOptions {
    const LEAST: usize = 32;
}

const _: () = assert!(
    size_of::<ChannelOptions>() == ChannelOptions::LEAST + 24,
    "the third version"
);

/// `ecalls_channel_t`.
#[derive(Debug)]
pub struct ChannelHandle {
    reader: Mutex<Channel>,
    /// The event that was read last, with all of its data.
    last: Mutex<ecalls::Event>,
    pub(crate) caller: Caller,
    /// Whether its reader lets events gather.
    gathers: bool,
    /// Number of slots; 0 for a ring.
    slots: usize,
    /// The descriptor, which belongs to the channel in `reader`.
    wake_fd: RawFd,
}

impl ChannelHandle {
    /// The channel, locked for one operation.
    pub(crate) fn reader(&self) -> MutexGuard<'_, Channel> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an event to the caller.
    ///
    /// # Safety
    /// `place` may be written.
    unsafe fn give(&self, place: NonNull<Event>, event: ecalls::Event) {
        // SAFETY: the caller's promise.
        unsafe { place.write(*event.record()) };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = event;
    }

    /// The descriptor to wait on.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to `reader`, which lives as long as this handle.
        unsafe { BorrowedFd::borrow_raw(self.wake_fd) }
    }

    /// Requests a wake-up by the next event, unless a batch is expected.
    fn prepare_wait(&self) -> bool {
        let mut reader = self.reader();
        !reader.is_gathering() && reader.prepare_wait()
    }

    /// The next event; sleeps until `until_ns`, or forever. `None`: the time is over.
    fn recv(&self, until_ns: Option<u64>) -> Outcome<Option<ecalls::Event>> {
        let spins = if self.gathers { 1 } else { SPINS };
        for _ in 0..spins {
            if let Some(event) = self.reader().try_recv() {
                return Ok(Some(event));
            }
            std::hint::spin_loop();
        }
        loop {
            let left_ns = |until: u64| until.saturating_sub(ecalls::now_ns());
            if self.prepare_wait() {
                let waited = ecalls_kernel::wait_readable(self.wake(), until_ns.map(left_ns));
                self.reader().end_wait();
                waited?;
            }
            let gathers = self.reader().prepare_gather(until_ns);
            if let Some(by_ns) = gathers {
                let waited = ecalls_kernel::wait_readable(self.wake(), Some(left_ns(by_ns)));
                self.reader().end_gather();
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

/// Opens a channel (ECalls-05 §3.2). `options` NULL: a ring of 1024 entries.
/// -EINVAL: an option is invalid; -ENOSPC: all channels of the core are in use.
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

/// Closes a channel with its descriptor and its memory. Timers of the channel keep its kernel side
/// until they are cancelled. Events that a subscription sends to a closed channel are counted as
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

/// Returns the next event without waiting and without a system call: of several events the one with
/// the earliest deadline; late ones are discarded and counted. -EAGAIN: no event waits.
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
        unsafe { channel.give(place, next) };
        Ok(0)
    })
}

/// The same, but sleeps for at most `timeout_us` while there is no event; -1: without limit. A
/// signal handler that runs does not end the wait. Only one thread at a time may wait on a channel.
/// -ETIMEDOUT: no event arrived in this time.
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
        unsafe { channel.give(place, next) };
        Ok(0)
    })
}

/// Copies the data of the event that was read last from this channel, at most `size` bytes of them,
/// and returns how many bytes it has: data beyond ECALLS_DATA_INLINE bytes are not in struct
/// ecalls_event. `data` may be NULL if `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_data(
    channel: *const ChannelHandle,
    data: *mut c_void,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let last = channel.last.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = last.data_bytes();
        if size > 0 {
            let place = output(data.cast::<u8>(), "the place for the data")?;
            let count = bytes.len().min(size);
            // SAFETY: an output of `size` bytes (the root's Safety), apart from `bytes`.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), count) };
        }
        Ok(c_int::try_from(bytes.len()).unwrap_or(c_int::MAX))
    })
}

/// Requests a wake-up. 1: wait on the descriptor, then call ecalls_channel_end_wait and read. 0: an
/// event is available already, so do not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_channel_prepare_wait(channel: *mut ChannelHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let wait = channel.reader().prepare_wait();
        Ok(c_int::from(wait))
    })
}

/// Ends a wait: the descriptor becomes unreadable again, and no wake-up is requested.
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
/// had an event. The bit in the channel is cleared, and the event is not read; so the readiness of
/// 1024 descriptors costs some ns. `words` is the length of the bitmap, at least capacity / 64,
/// rounded up; words beyond are set to 0. Returns the number of set bits, which is always 0 for a
/// ring.
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

/// Writes the counts of events that the kernel side did not deliver to this channel, by reason. No
/// system call.
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

/// Writes the number of events that were delivered in time, but were late when the channel's reader
/// read them.
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
    if (given.gather_us != 0) != (given.gather_events != 0) {
        let text = "gather_us and gather_events go together: set both or none";
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
    if given.data_max != 0 {
        builder = builder.data_max(usize::try_from(given.data_max).unwrap_or(usize::MAX));
    }
    if given.defer & DEFER_DELAY != 0 {
        builder = builder.defer_delay(Duration::from_micros(given.delay_us));
    }
    if given.defer & DEFER_SWITCH != 0 {
        builder = builder.defer_switch();
    }
    if given.keep_late != 0 {
        builder = builder.keep_late();
    }
    if given.gather_us != 0 {
        let events = u32::try_from(given.gather_events).unwrap_or(u32::MAX);
        builder = builder.wake_bounds(events, Duration::from_micros(given.gather_us));
    }
    let channel = builder.open()?;
    Ok(ChannelHandle {
        caller: channel.caller().clone(),
        gathers: given.gather_us != 0,
        slots: match layout {
            Layout::Ring => 0,
            Layout::Slots => usize::try_from(capacity).unwrap_or(0),
        },
        wake_fd: channel.as_fd().as_raw_fd(),
        reader: Mutex::new(channel),
        last: Mutex::default(),
    })
}

fn wrong(field: &str, given: u32, expected: &str) -> Failure {
    Failure::invalid(format!("{field} is {given}: {expected}"))
}
