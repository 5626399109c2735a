//! The other sources of a loop's events: descriptors, channels, other threads; and the use of the
//! loop within another event loop. Man page: ecalls_loop_watch(3).

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use ecalls_loop::{As, Fd, Interest, Next, Ready, Remote, Source, Turn};

use crate::channel::ChannelHandle;
use crate::error::{Failure, Outcome, guard};
use crate::event_loop::{
    ECALLS_LOOP_BEST_EFFORT, ECALLS_LOOP_TIMER, LoopEvent, LoopHandle, own, when,
};
use crate::pointer::{Options, give, options, output, reference, take_back, write_optional};

/// `interest` and `ready` of a source: reading it does not block.
pub const ECALLS_LOOP_READABLE: u32 = 1;
/// `interest` and `ready` of a source: writing it does not block.
pub const ECALLS_LOOP_WRITABLE: u32 = 2;

/// Runs on the loop's thread while a source is ready: ECALLS_LOOP_READABLE, _WRITABLE. `source` is
/// the number that ecalls_loop_watch() returned.
pub type LoopSourceCallback = Option<
    unsafe extern "C" fn(events: *mut LoopHandle, source: u64, ready: u32, context: *mut c_void),
>;

/// A source to watch: a descriptor or a channel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LoopSource {
    /// Size of this struct.
    pub size: u32,
    /// Type of its event: ECALLS_LOOP_TIMER, with the time at which the source was found ready
    /// as the release time, or ECALLS_LOOP_BEST_EFFORT.
    pub r#type: u32,
    /// The function to call.
    pub callback: LoopSourceCallback,
    /// Passed to the callback.
    pub context: *mut c_void,
    /// Best effort: the event with the least value runs first.
    pub user_virtual_time: u64,
    /// The channel to watch; it must stay open while it is watched. NULL: `fd`.
    pub channel: *mut ChannelHandle,
    /// The descriptor to watch; it must stay open while it is watched.
    pub fd: i32,
    /// What to wait for: ECALLS_LOOP_READABLE, _WRITABLE, or both. 0: readable.
    pub interest: u32,
}

// SAFETY: repr(C), begins with a u32, without padding; every pattern is a value.
unsafe impl Options for LoopSource {
    const LEAST: usize = size_of::<LoopSource>();
}

/// `ecalls_loop_remote_t`.
#[derive(Debug)]
pub struct RemoteHandle {
    remote: Remote,
    events: *mut LoopHandle,
}

/// The arguments of a callback while they move to the loop's thread.
struct Arguments {
    events: *mut LoopHandle,
    context: *mut c_void,
}

// SAFETY: only the loop's thread dereferences the pointers; the caller submitted them for this
// purpose.
unsafe impl Send for Arguments {}

/// A channel of a C program while it is watched.
struct Watched(*const ChannelHandle);

impl Watched {
    fn channel(&self) -> &ChannelHandle {
        // SAFETY: the caller promises that it stays open while it is watched.
        unsafe { &*self.0 }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel().wake()
    }
}

impl Source for Watched {
    fn arm(&mut self) -> bool {
        self.channel().reader().prepare_wait()
    }

    fn disarm(&mut self) {
        self.channel().reader().end_wait();
    }
}

fn interest(bits: u32) -> Outcome<Interest> {
    match bits {
        0 | ECALLS_LOOP_READABLE => Ok(Interest::READABLE),
        ECALLS_LOOP_WRITABLE => Ok(Interest::WRITABLE),
        3 => Ok(Interest::BOTH),
        other => Err(Failure::invalid(format!(
            "the source's interest is {other}: it is ECALLS_LOOP_READABLE, _WRITABLE, or both"
        ))),
    }
}

fn bits(ready: Ready) -> u32 {
    let readable = u32::from(ready.readable) * ECALLS_LOOP_READABLE;
    let writable = u32::from(ready.writable) * ECALLS_LOOP_WRITABLE;
    readable | writable
}

fn kind(given: &LoopSource) -> Outcome<As> {
    match given.r#type {
        ECALLS_LOOP_TIMER => Ok(As::Timer),
        ECALLS_LOOP_BEST_EFFORT => Ok(As::BestEffort(given.user_virtual_time)),
        other => Err(Failure::invalid(format!(
            "the source's type is {other}: it is ECALLS_LOOP_TIMER or ECALLS_LOOP_BEST_EFFORT"
        ))),
    }
}

/// Makes an event of the given type whenever a descriptor is ready, or while events wait in a
/// channel. The callback runs in the order of events, and again while the source is ready. The
/// number of the source is written to `number`, which may be NULL. -EPERM: the kind of descriptor
/// cannot be waited for, such as a file's; -EBADF: the descriptor is not open; -EEXIST: it is
/// watched already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_watch(
    events: *mut LoopHandle,
    source: *const LoopSource,
    number: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let own = unsafe { own(events) }?;
        // SAFETY: options (the root's Safety).
        let given = unsafe { options(source, "the source") }?;
        let (kind, interest) = (kind(&given)?, interest(given.interest)?);
        let Some(callback) = given.callback else {
            return Err(Failure::invalid("the source's callback is NULL"));
        };
        // The number is known only after the source is registered.
        let name = std::rc::Rc::new(std::cell::Cell::new(0));
        let told = std::rc::Rc::clone(&name);
        let run = move |ready: Ready| {
            // SAFETY: the caller gave the function with its context; the handle lives while its
            // loop runs.
            unsafe { callback(events, told.get(), bits(ready), given.context) };
        };
        let watch = if given.channel.is_null() {
            if given.fd < 0 {
                return Err(Failure::new(libc::EBADF, "the source's fd is negative"));
            }
            // SAFETY: the caller promises that the descriptor stays open while it is watched.
            let fd = unsafe { BorrowedFd::borrow_raw(given.fd) };
            own.watch(Fd(fd), interest, kind, move |_, _, ready| run(ready))?
        } else {
            let source = Watched(given.channel);
            own.watch(source, interest, kind, move |_, _, ready| run(ready))?
        };
        name.set(watch.raw());
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(number, watch.raw()) };
        Ok(0)
    })
}

/// Ends watching a source. 1: done; 0: it had been ended before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_unwatch(events: *const LoopHandle, source: u64) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let own = unsafe { own(events) }?;
        Ok(own.unwatch(own.source(source)).into())
    })
}

/// Returns the descriptor that another event loop watches for reading, to call ecalls_loop_turn()
/// when it is readable. It belongs to the loop.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_fd(events: *const LoopHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        Ok(unsafe { own(events) }?.as_fd().as_raw_fd())
    })
}

/// Runs the events that are due, and returns instead of sleeping. 1: call it again, at once if
/// `next_ns` is 0, otherwise when the loop's descriptor is readable, which it is at `next_ns` at
/// the latest (UINT64_MAX: no timer waits); 0: the loop was stopped, or no event can occur any
/// more. `next_ns` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_turn(events: *const LoopHandle, next_ns: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let next = unsafe { own(events) }?.turn()?;
        let (more, time_ns) = match next {
            Next::Now => (1, 0),
            Next::At(time_ns) => (1, time_ns),
            Next::Ready => (1, u64::MAX),
            Next::Over => (0, u64::MAX),
        };
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(next_ns, time_ns) };
        Ok(more)
    })
}

/// Opens a handle by which other threads submit events. While one is open, ecalls_loop_run() waits
/// for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_remote(
    events: *mut LoopHandle,
    remote: *mut *mut RemoteHandle,
) -> c_int {
    guard(|| {
        let place = output(remote, "the place for the remote")?;
        // SAFETY: a handle (the root's Safety).
        let remote = unsafe { own(events) }?.remote();
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, RemoteHandle { remote, events }) };
        Ok(0)
    })
}

/// Submits an event from any thread: its callback runs once, on the loop's thread. -ESHUTDOWN: the
/// loop is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_remote_submit(
    remote: *const RemoteHandle,
    event: *const LoopEvent,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let remote = unsafe { reference(remote, "the remote") }?;
        // SAFETY: options (the root's Safety).
        let given = unsafe { options(event, "the event") }?;
        let when = when(given.r#type, given.release_ns, given.user_virtual_time)?;
        let Some(callback) = given.callback else {
            return Err(Failure::invalid("the event's callback is NULL"));
        };
        let arguments = Arguments {
            events: remote.events,
            context: given.context,
        };
        remote.remote.submit(when, move |turn: &Turn<'_>| {
            let Arguments { events, context } = &arguments;
            // SAFETY: the caller gave the function with its context; the handle lives while its
            // loop runs.
            unsafe { callback(*events, turn.event().raw(), *context) };
        })?;
        Ok(0)
    })
}

/// Stops the loop from any thread, before any event that is not running yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_remote_stop(remote: *const RemoteHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        unsafe { reference(remote, "the remote") }?.remote.stop()?;
        Ok(0)
    })
}

/// Closes the handle, on any thread. Events that were submitted by it still run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_loop_remote_close(remote: *mut RemoteHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(remote) };
}
