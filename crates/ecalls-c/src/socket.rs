//! The socket service: which sockets raise events. Man page: ecalls_socket(3).

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ecalls::Target;
use ecalls::socket::Interest as Registration;

use crate::error::{Failure, Outcome, guard};
use crate::host::HostHandle;
use crate::pointer::{Options, options, reference, write_optional};

/// ecalls_interest.flags: `type` of the events is that of the interest, not the descriptor.
pub const ECALLS_INTEREST_TYPE: u32 = 1;
/// ecalls_interest.flags: only arriving data, no connections.
pub const ECALLS_INTEREST_DATA_ONLY: u32 = 2;
/// ecalls_interest.flags: connections that a listener accepts are not registered.
pub const ECALLS_INTEREST_NOT_INHERITED: u32 = 4;

const FLAGS: u32 = ECALLS_INTEREST_TYPE | ECALLS_INTEREST_DATA_ONLY | ECALLS_INTEREST_NOT_INHERITED;

/// What is registered of a socket (ECalls-05 §5.2). All 0 but `size`: data and connections, told to
/// this process, inherited by accepted connections.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Interest {
    /// Size of this struct.
    pub size: u32,
    /// ECALLS_INTEREST_*.
    pub flags: u32,
    /// Who is told: 0: this process. ECALLS_TARGET_ALL: every subscription.
    /// ECALLS_TARGET_WAKE_ONE: one of them, in turn.
    pub target: i32,
    /// With ECALLS_INTEREST_TYPE: `type` of its events: which typed slot they take. Otherwise
    /// that is the number of the descriptor.
    pub r#type: u32,
    /// Deadline of its events, us. 0: none.
    pub deadline_us: u64,
}

// SAFETY: repr(C), begins with a u32, integers without padding.
unsafe impl Options for Interest {
    const LEAST: usize = 24;
}

const _: () = assert!(
    size_of::<Interest>() == Interest::LEAST,
    "the first version"
);

/// Registers a socket of this process with the service "socket". That lives as long as the socket,
/// or until ecalls_forget_socket. `interest` NULL: as if all were 0.
/// -EBADF if `fd` is not open; -EINVAL if it is no socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_watch_socket(
    ecalls: *const HostHandle,
    fd: c_int,
    interest: *const Interest,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: options (the root's Safety).
        let registration = unsafe { registration(interest) }?;
        // SAFETY: the program keeps its descriptor open during the call (ecalls_socket(3)).
        let socket = unsafe { descriptor(fd) }?;
        host.0.watch_socket(socket, &registration)?;
        Ok(0)
    })
}

/// Ends a registration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_forget_socket(ecalls: *const HostHandle, fd: c_int) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: the program keeps its descriptor open during the call (ecalls_socket(3)).
        let socket = unsafe { descriptor(fd) }?;
        host.0.forget_socket(socket)?;
        Ok(0)
    })
}

/// Registers all sockets that process `pid` has open now. `registered` (NULL if you do not care):
/// how many. Fails with the system's code when there is no such process or it may not be looked
/// into.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_watch_sockets_of(
    ecalls: *const HostHandle,
    pid: u32,
    interest: *const Interest,
    registered: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: options (the root's Safety).
        let registration = unsafe { registration(interest) }?;
        let count = host.0.watch_sockets_of(pid, &registration)?;
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(registered, u64::try_from(count).unwrap_or(u64::MAX)) };
        Ok(0)
    })
}

/// # Safety
/// The descriptor stays open during `'a`, if it is open.
unsafe fn descriptor<'a>(fd: c_int) -> Outcome<BorrowedFd<'a>> {
    // SAFETY: takes numbers only.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Failure::new(
            libc::EBADF,
            format!("descriptor {fd} is not open"),
        ));
    }
    // SAFETY: it is open, so it is not -1; the caller's promise.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// # Safety
/// `pointer` is null or options.
unsafe fn registration(pointer: *const Interest) -> Outcome<Registration> {
    let given = if pointer.is_null() {
        Interest::default()
    } else {
        // SAFETY: the caller's promise.
        unsafe { options(pointer, "the interest") }?
    };
    if given.flags & !FLAGS != 0 {
        let text = format!("flags is {}: ECALLS_INTEREST_*", given.flags);
        return Err(Failure::invalid(text));
    }
    let mut registration = Registration::default();
    registration = match Target::from_raw(given.target) {
        Some(Target::All) => registration.everyone(),
        Some(Target::WakeOne) => registration.wake_one(),
        Some(Target::Process(pid)) if pid == 0 || pid == std::process::id() => registration,
        Some(Target::Process(_)) | None => {
            return Err(Failure::invalid(format!(
                "target is {}: 0, ECALLS_TARGET_ALL or ECALLS_TARGET_WAKE_ONE",
                given.target
            )));
        }
    };
    if given.flags & ECALLS_INTEREST_TYPE != 0 {
        registration = registration.slot_type(given.r#type);
    }
    if given.flags & ECALLS_INTEREST_DATA_ONLY != 0 {
        registration = registration.data_only();
    }
    if given.flags & ECALLS_INTEREST_NOT_INHERITED != 0 {
        registration = registration.not_inherited();
    }
    if given.deadline_us != 0 {
        registration = registration.deadline(Duration::from_micros(given.deadline_us));
    }
    Ok(registration)
}
