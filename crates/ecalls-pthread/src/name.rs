//! Names of threads. A user-level thread's is kept here, for the kernel has only that of the kernel
//! thread that executes it: `pthread_setname_np` and prctl(2) set it, and either tells it. Without
//! one of its own a thread has the process's.

use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::sync::Mutex;

use ecalls_preload::errno;
use libc::{EFAULT, ERANGE, PR_GET_NAME, PR_SET_NAME, pthread_t, size_t};

use crate::next;
use crate::runtime::can_park;
use crate::thread::{Record, ask};

/// Bytes of a name, with the zero at its end.
const NAME: usize = 16;

/// A thread's name; `None`: it was given none.
#[derive(Debug)]
pub(crate) struct Name(Mutex<Option<[u8; NAME]>>);

impl Name {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn get(&self) -> [u8; NAME] {
        let own = self.0.lock().ok().and_then(|name| *name);
        own.unwrap_or_else(|| {
            let of_process = std::fs::read("/proc/self/comm").unwrap_or_default();
            cut(of_process.strip_suffix(b"\n").unwrap_or(&of_process))
        })
    }
}

/// What has room of a name.
fn cut(name: &[u8]) -> [u8; NAME] {
    let mut cut = [0; NAME];
    let length = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len())
        .min(NAME - 1);
    cut[..length].copy_from_slice(&name[..length]);
    cut
}

fn set(record: &Record, name: &[u8]) {
    let name = cut(name);
    if let Ok(mut own) = record.name.0.lock() {
        *own = Some(name);
    }
    if let Some(thread) = record.thread() {
        let shown = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        thread.set_name(&shown.to_string_lossy());
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int {
    // SAFETY: the caller's thread and name.
    unsafe {
        let real = || next::pthread_setname_np(thread, name);
        ask(thread, real, |record| {
            let name = CStr::from_ptr(name);
            if name.to_bytes_with_nul().len() > NAME {
                return ERANGE;
            }
            set(record, name.to_bytes());
            0
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_getname_np(
    thread: pthread_t,
    name: *mut c_char,
    bytes: size_t,
) -> c_int {
    // SAFETY: the caller's thread and memory.
    unsafe {
        let real = || next::pthread_getname_np(thread, name, bytes);
        ask(thread, real, |record| {
            if bytes < NAME {
                return ERANGE;
            }
            name.cast::<[u8; NAME]>().write_unaligned(record.name.get());
            0
        })
    }
}

/// The caller's name, if it is a user-level thread; all else is the kernel's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    let own = matches!(option, PR_GET_NAME | PR_SET_NAME) && can_park();
    let Some(record) = Record::mine().filter(|_| own) else {
        // SAFETY: the caller's arguments.
        return unsafe { next::prctl(option, a, b, c, d) };
    };
    if a == 0 {
        errno::set(EFAULT);
        return -1;
    }
    // SAFETY: the caller's name, or its memory for one.
    unsafe {
        if option == PR_GET_NAME {
            (a as *mut [u8; NAME]).write_unaligned(record.name.get());
        } else {
            // The kernel, too, reads no further than a name may reach.
            let length = libc::strnlen(a as *const c_char, NAME - 1);
            set(record, std::slice::from_raw_parts(a as *const u8, length));
        }
    }
    0
}
