//! The entry to the library: the machine's core, and the formats of its services' events. Man page:
//! ecalls_open(3).

use std::ffi::{c_char, c_int};
use std::time::Duration;

use ecalls::Ecalls;
use ecalls_abi::Event;

use crate::error::{Failure, guard};
use crate::pointer::{give, output, reference, take_back, text, write_text};

/// `ecalls_t`: the machine's core. Other handles hold references, so it can be closed before them.
#[derive(Debug)]
pub struct HostHandle(pub(crate) Ecalls);

/// Connects to the daemon (ecallsd), for programs of any user. If no daemon runs, a privileged
/// program joins the machine's core, or loads one into the kernel.
/// -EPERM: there is neither a daemon nor a privilege; -EDQUOT: this user has used up its
/// connections; -ENOSYS: the kernel lacks a feature, which the text names; -EPROTO: a core of
/// another version or build runs; -ENOEXEC: the kernel refused a program.
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

/// The same, but waits for the daemon for at most `timeout_us`. A program calls it after -ESHUTDOWN
/// from ecalls_check() or another function, to continue with the next daemon. -ESHUTDOWN: the time
/// is over.
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

/// Loads all parts of the core that this program hosts, which otherwise are loaded at their first
/// use: before it gives up the privileges by which it loads. For a client of the daemon there is
/// nothing to load. -ENOEXEC if the kernel refused a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_complete(ecalls: *const HostHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        host.0.complete()?;
        Ok(0)
    })
}

/// Whether events can still arrive: 0, or -ESHUTDOWN when the daemon has ended. Then no handle that
/// was made with `ecalls` receives events any more: close them, open again, and subscribe again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_check(ecalls: *const HostHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        host.0.check()?;
        Ok(0)
    })
}

/// Returns the process id of this process as events show it; inside a container it differs from
/// getpid().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_pid(ecalls: *const HostHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        Ok(host.0.pid().cast_signed())
    })
}

/// Connects to the daemon or joins the machine's core if either runs, and never loads a core.
/// -ENOENT: neither runs.
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

/// Closes the handle. Handles that were opened with it remain valid until they are closed
/// themselves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_close(ecalls: *mut HostHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(ecalls) };
}

/// Writes an event as one line of text for people: service, kind, process, fields by name. As with
/// snprintf, at most `size` bytes are written with the final 0, and the length of the whole text is
/// returned. Programs use the structs in ecalls/service.h. A service that has ended is shown by its
/// number. Of the data, those in the struct are shown.
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
        let line = host.0.describe(&ecalls::Event::from(*event)).to_string();
        // SAFETY: an output (the root's Safety).
        unsafe { write_text(&line, buffer, size) }
    })
}

/// Writes the format of a service's data, the fields of a C struct: "u64 cookie; u16 port". As with
/// snprintf, at most `size` bytes are written with the final 0, and the length of the whole text is
/// returned. -ENOENT: there is no such service.
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
