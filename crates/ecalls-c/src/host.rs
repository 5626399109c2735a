//! The entry: the machine's core, and what its services' events mean. Man page: ecalls_open(3).

use std::ffi::{c_char, c_int};
use std::time::Duration;

use ecalls::{Ecalls, Event};

use crate::error::{Failure, guard};
use crate::pointer::{give, output, reference, take_back, text, write_text};

/// `ecalls_t`: the machine's core. Others clone it, so it may be closed before them.
#[derive(Debug)]
pub struct HostHandle(pub(crate) Ecalls);

/// Connects to the daemon (ecallsd), for programs of any user. Where none runs, a privileged
/// program joins the machine's core, or loads it into the kernel if there is none.
/// -EPERM without daemon and privileges; -EDQUOT when this user has all its connections; -ENOSYS if
/// this kernel lacks something, with its name; -EPROTO if a core of another version or build runs;
/// -ENOEXEC if the kernel refused a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_open(ecalls: *mut *mut HostHandle) -> c_int {
    guard(|| {
        let place = output(ecalls, "the place for ecalls")?;
        let opened = Ecalls::open()?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, HostHandle(opened)) };
        Ok(0)
    })
}

/// The same, but waits for the daemon for at most `timeout_us`: after -ESHUTDOWN from
/// ecalls_check() or another function, to go on with the next daemon. -ESHUTDOWN when the time has
/// run out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_open_within(
    timeout_us: u64,
    ecalls: *mut *mut HostHandle,
) -> c_int {
    guard(|| {
        let place = output(ecalls, "the place for ecalls")?;
        let opened = Ecalls::open_within(Duration::from_micros(timeout_us))?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, HostHandle(opened)) };
        Ok(0)
    })
}

/// Whether events still come: 0, or -ESHUTDOWN when the daemon has ended. Then everything that was
/// made with `ecalls` shows no more events: close it, and open and subscribe again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_check(ecalls: *const HostHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        host.0.check()?;
        Ok(0)
    })
}

/// This process, as events number it; inside a container that is not its own number there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_pid(ecalls: *const HostHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        Ok(host.0.pid().cast_signed())
    })
}

/// Connects to the daemon or joins the machine's core, if either runs; loads nothing. -ENOENT if
/// none runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_join(ecalls: *mut *mut HostHandle) -> c_int {
    guard(|| {
        let place = output(ecalls, "the place for ecalls")?;
        let joined = Ecalls::join()?
            .ok_or_else(|| Failure::new(libc::ENOENT, "no core runs on this machine"))?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, HostHandle(joined)) };
        Ok(0)
    })
}

/// Ends the use of the core. What was opened with it goes on until it is closed itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_close(ecalls: *mut HostHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(ecalls) };
}

/// Writes an event as one line of text: service, kind, process, fields by name. As snprintf: at
/// most `size` bytes with the final 0, and returns the length of the whole text. For people;
/// programs use the structs in ecalls/service.h. A service that is gone is named by its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_describe(
    ecalls: *const HostHandle,
    event: *const Event,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: an argument that is not changed during the call (the root's Safety).
        let event = unsafe { reference(event, "the event") }?;
        let line = host.0.describe(event).to_string();
        // SAFETY: an output (the root's Safety).
        unsafe { write_text(&line, buffer, size) }
    })
}

/// Writes the format of a service's data, the fields of a C struct: "u64 cookie; u16 port". As
/// snprintf: at most `size` bytes with the final 0, and returns the length of the whole text.
/// -ENOENT without such a service.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_format(
    ecalls: *const HostHandle,
    service: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: a text (the root's Safety).
        let name = unsafe { text(service, "the service's name") }?;
        let stat = host.0.access().service_named(name)?;
        // SAFETY: an output (the root's Safety).
        unsafe { write_text(stat.info.format(), buffer, size) }
    })
}
