//! Which sockets may be read, through shared memory. Man page: ecalls_socket_ready(3).
//!
//! In Rust the type of a map permits one reader only. C has no such types, hence the lock. It is
//! held while a thread sleeps: a map is one thread's.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ecalls::ReadySockets;

use crate::error::{Failure, Outcome, guard};
use crate::pointer::{give, output, reference, take_back};
use crate::socket::descriptor;

/// A map, and hints that were taken together and not returned yet.
#[derive(Debug)]
pub struct SocketReadyHandle {
    own: Mutex<(ReadySockets, Vec<c_int>)>,
    wake_fd: RawFd,
}

impl SocketReadyHandle {
    fn own(&self) -> MutexGuard<'_, (ReadySockets, Vec<c_int>)> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Safety
/// As the root's.
unsafe fn map<'a>(ready: *const SocketReadyHandle) -> Outcome<&'a SocketReadyHandle> {
    // SAFETY: a handle (the root's Safety).
    unsafe { reference(ready, "the map") }
}

/// Opens a map of one thread's sockets (ECalls-01 §3.2). It needs no ecalls_t, but root's rights:
/// -EPERM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_ready_open(ready: *mut *mut SocketReadyHandle) -> c_int {
    guard(|| {
        let place = output(ready, "the place for the map")?;
        let sockets = ReadySockets::open()?;
        let handle = SocketReadyHandle {
            wake_fd: sockets.as_fd().as_raw_fd(),
            own: Mutex::new((sockets, Vec::new())),
        };
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, handle) };
        Ok(0)
    })
}

/// Closes a map: its sockets are told no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_ready_close(ready: *mut SocketReadyHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(ready) };
}

/// Adds a socket of IPv4 or IPv6: it is hinted once, and then whenever more has come, until it is
/// closed. One system call. -EBADF: `fd` is not open; -EINVAL: it is no such socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_interest_add(
    ready: *mut SocketReadyHandle,
    fd: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let map = unsafe { map(ready) }?;
        // SAFETY: the program keeps its descriptor open during the call (ecalls_socket_ready(3)).
        let socket = unsafe { descriptor(fd) }?;
        map.own().0.add(socket)?;
        Ok(0)
    })
}

/// Ends that. A socket that is closed need not be removed, unless another process holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_interest_remove(
    ready: *mut SocketReadyHandle,
    fd: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let map = unsafe { map(ready) }?;
        // SAFETY: the program keeps its descriptor open during the call (ecalls_socket_ready(3)).
        let socket = unsafe { descriptor(fd) }?;
        map.own().0.remove(socket)?;
        Ok(0)
    })
}

/// No hints of a socket that was added, or hints of it again: then it is hinted once. No system
/// call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_interest_set(
    ready: *mut SocketReadyHandle,
    fd: c_int,
    wanted: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let map = unsafe { map(ready) }?;
        if wanted == 0 {
            map.own().0.pause(fd);
        } else {
            map.own().0.resume(fd);
        }
        Ok(0)
    })
}

/// Takes hints: writes at most `most` descriptors that may be ready, and returns how many. If it
/// returns `most`, there may be more. No system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_ready_take(
    ready: *mut SocketReadyHandle,
    most: usize,
    fds: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let map = unsafe { map(ready) }?;
        let place = output(fds, "the place for the descriptors")?;
        let mut own = map.own();
        let (sockets, taken) = &mut *own;
        if taken.is_empty() {
            sockets.take(|fd| taken.push(fd));
        }
        let count = taken.len().min(most);
        // SAFETY: an output of `most` numbers (the root's Safety), for now ours alone.
        let places = unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), most) };
        for (place, fd) in places.iter_mut().zip(taken.drain(..count)) {
            *place = fd;
        }
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    })
}

/// Sleeps until there is a hint, at most for `timeout_us`; -1: without limit. -ETIMEDOUT: there is
/// none. One system call, and none if there is one already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_ready_wait(
    ready: *mut SocketReadyHandle,
    timeout_us: i64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let map = unsafe { map(ready) }?;
        let timeout = match timeout_us {
            -1 => None,
            us => Some(Duration::from_micros(u64::try_from(us).map_err(|_| {
                Failure::invalid(format!("the timeout is {us} us: -1, or 0 and more"))
            })?)),
        };
        let mut own = map.own();
        if !own.1.is_empty() || own.0.wait(timeout)? {
            return Ok(0);
        }
        Ok(-libc::ETIMEDOUT)
    })
}

/// The descriptor to wait on with poll or epoll, between ecalls_socket_ready_prepare_wait and
/// ecalls_socket_ready_end_wait. It belongs to the map: do not close or read it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_ready_fd(ready: *const SocketReadyHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let map = unsafe { map(ready) }?;
        Ok(map.wake_fd)
    })
}

/// Requests a wake-up. 1: wait on the descriptor, then call ecalls_socket_ready_end_wait and take.
/// 0: there is a hint already, so do not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_ready_prepare_wait(ready: *mut SocketReadyHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let map = unsafe { map(ready) }?;
        let mut own = map.own();
        Ok(c_int::from(own.1.is_empty() && own.0.prepare_wait()))
    })
}

/// Ends a wait: the descriptor becomes unreadable again, and no wake-up is requested.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_socket_ready_end_wait(ready: *mut SocketReadyHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let map = unsafe { map(ready) }?;
        map.own().0.end_wait();
        Ok(0)
    })
}
