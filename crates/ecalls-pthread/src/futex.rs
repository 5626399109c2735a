//! System calls that programs make themselves, by `syscall`. futex(2) is that of Rust, whose locks,
//! conditions and parked threads are futexes: waits and wake-ups within one process are the
//! runtime's. Whatever else is asked for goes to the kernel, as a call that may block.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ecalls_threads::blocking;
use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, EAGAIN, EINVAL, ETIMEDOUT, timespec};

use crate::cpus::unbound;
use crate::runtime::{can_park, park, unpark};
use crate::thread::in_call;
use crate::{next, time};
use ecalls_preload::errno;

const ANY: usize = 0xFFFF_FFFF;
/// Somebody waits in the kernel at a word of this process: wake-ups go there, too.
static IN_KERNEL: AtomicBool = AtomicBool::new(false);

fn failed(error: c_int) -> c_long {
    errno::set(error);
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's.
    let real = || unsafe { next::syscall(number, a, b, c, d, e, f) };
    if !can_park() {
        return real();
    }
    match number {
        libc::SYS_futex => {}
        // These return in another process as well, or not at all.
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork | libc::SYS_exit => {
            return real();
        }
        libc::SYS_execve | libc::SYS_execveat => return unbound(real),
        _ => return in_call(real),
    }
    let operation = c_int::try_from(b).unwrap_or(0);
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let is_private = operation & libc::FUTEX_PRIVATE_FLAG != 0;
    match command {
        libc::FUTEX_WAIT if is_private => {
            // SAFETY: the caller's; the time is a span.
            let span = unsafe { (d as *const timespec).as_ref() };
            wait(a, c, span.map(time::after_ns).transpose())
        }
        libc::FUTEX_WAIT_BITSET if is_private && f & ANY == ANY => {
            let is_real = operation & libc::FUTEX_CLOCK_REALTIME != 0;
            let clock = if is_real {
                CLOCK_REALTIME
            } else {
                CLOCK_MONOTONIC
            };
            // SAFETY: the caller's.
            let until = unsafe { (d as *const timespec).as_ref() };
            wait(a, c, until.map(|at| time::until_ns(clock, at)).transpose())
        }
        libc::FUTEX_WAKE if is_private => wake(a, c, real),
        libc::FUTEX_WAKE_BITSET if is_private && f & ANY == ANY => wake(a, c, real),
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            IN_KERNEL.store(true, Ordering::SeqCst);
            blocking(real)
        }
        _ => blocking(real),
    }
}

fn wait(address: usize, value: usize, until_ns: Result<Option<u64>, c_int>) -> c_long {
    let until_ns = match until_ns {
        Ok(until_ns) => until_ns,
        Err(error) => return failed(error),
    };
    if !address.is_multiple_of(4) {
        return failed(EINVAL);
    }
    // SAFETY: the caller's word.
    let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
    let mut differs = false;
    let in_time = park(address, until_ns, || {
        differs = word.load(Ordering::SeqCst) as usize != value & ANY;
        differs
    });
    if differs {
        failed(EAGAIN)
    } else if in_time {
        0
    } else {
        failed(ETIMEDOUT)
    }
}

fn wake(address: usize, most: usize, real: impl FnOnce() -> c_long) -> c_long {
    std::sync::atomic::fence(Ordering::SeqCst);
    // The kernel takes a negative number for all.
    let most = c_int::try_from(most & ANY)
        .ok()
        .and_then(|most| usize::try_from(most).ok());
    let woken = unpark(address, most.unwrap_or(usize::MAX));
    if IN_KERNEL.load(Ordering::SeqCst) && most.is_none_or(|most| woken < most) {
        let more = real();
        return c_long::try_from(woken).unwrap_or(0) + more.max(0);
    }
    c_long::try_from(woken).unwrap_or(0)
}
