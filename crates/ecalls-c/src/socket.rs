//! The socket service: the registration of sockets. Man page: ecalls_socket(3).

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ecalls::Target;
use ecalls::socket::Interest as Registration;

use crate::error::{Failure, Outcome, guard};
use crate::host::HostHandle;
use crate::pointer::{Options, options, reference, write_optional};

/// ecalls_interest.flags: `type` of the events is that of the interest instead of the descriptor.
pub const ECALLS_INTEREST_TYPE: u32 = 1;
/// ecalls_interest.flags: events of arriving data only, not of connections.
pub const ECALLS_INTEREST_DATA_ONLY: u32 = 2;
/// ecalls_interest.flags: connections that a listener accepts are not registered.
pub const ECALLS_INTEREST_NOT_INHERITED: u32 = 4;

const FLAGS: u32 = ECALLS_INTEREST_TYPE | ECALLS_INTEREST_DATA_ONLY | ECALLS_INTEREST_NOT_INHERITED;

/// The registration of a socket (ECalls-05 §5.2). With all fields 0 but `size`: events of data and
/// connections for this process, inherited by accepted connections.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Interest {
    /// Size of this struct.
    pub size: u32,
    /// ECALLS_INTEREST_*.
    pub flags: u32,
    /// The receiver. 0: this process. ECALLS_TARGET_ALL: every subscription.
    /// ECALLS_TARGET_WAKE_ONE: one of them, in turn.
    pub target: i32,
    /// With ECALLS_INTEREST_TYPE: `type` of its events, which selects the slot by type.
    /// Otherwise it is the number of the descriptor.
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

/// Registers a socket of this process with the service "socket". The registration lasts as long as
/// the socket, or until ecalls_forget_socket. `interest` NULL: as if all fields were 0.
/// -EBADF: `fd` is not open; -EINVAL: it is not a socket.
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

/// Registers all sockets that process `pid` has open now. Their number is written to `registered`,
/// which may be NULL. The code is the system's if there is no such process or the caller may not
/// inspect it.
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
pub(crate) unsafe fn descriptor<'a>(fd: c_int) -> Outcome<BorrowedFd<'a>> {
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
