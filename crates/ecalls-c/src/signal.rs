//! Real-time signals in the papers' order. Man page: ecalls_signal(3).
//!
//! The Rust library calls a handler of type `fn`; this file stores the C handlers, one per signal,
//! and `forward` calls the one of the signal.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use ecalls::signal::{self, SignalValue};

use crate::error::{Failure, guard};

/// A real-time signal as it was received.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// Number of the signal.
    pub signal: i32,
    /// Origin of the signal (si_code): SI_KERNEL for an event, SI_QUEUE for sigqueue.
    pub code: i32,
    /// The value that the sender attached; 0 if there is none.
    pub value: u64,
    /// Process that sent it; 0: the kernel, as for all events.
    pub pid: u32,
    /// User of that process; 0 for the kernel.
    pub uid: u32,
}

/// A handler of a real-time signal. It interrupts the thread at any point, so it may call only the
/// functions in signal-safety(7), and none of this library.
pub type SignalCallback = Option<unsafe extern "C" fn(received: *const Signal)>;

/// The number of signals, and one for the unused number 0.
const SIGNALS: usize = 65;

/// The C handler of each signal, or null. It is stored before the kernel learns of it.
static HANDLERS: [AtomicPtr<()>; SIGNALS] = [const { AtomicPtr::new(null_mut()) }; SIGNALS];

/// Calls `handler` whenever the real-time signal `signal`, SIGRTMIN to SIGRTMAX, arrives at the
/// process (ECalls-05 §3.1.1). While it runs, all other signals are blocked except those that
/// report a fault. With ecalls_signal_keep_order, pending signals are then handled in the papers'
/// order: real-time signals before regular ones, the lowest number first. -EINVAL: another signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_signal_install(signal: c_int, handler: SignalCallback) -> c_int {
    guard(|| {
        let handler = handler.ok_or_else(|| Failure::invalid("the handler is NULL"))?;
        // A number out of range is refused below.
        if let Some(slot) = slot(signal) {
            let former = slot.swap(handler as *mut (), Ordering::AcqRel);
            signal::install(signal, forward)
                .inspect_err(|_| slot.store(former, Ordering::Release))?;
        } else {
            signal::install(signal, forward)?;
        }
        Ok(0)
    })
}

/// Removes the handler of a real-time signal. From then on the signal is ignored, because its
/// default action would end the process, and a sender may still use it. -EINVAL: another signal.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_signal_uninstall(signal: c_int) -> c_int {
    guard(|| {
        signal::uninstall(signal)?;
        Ok(0)
    })
}

/// Removes the real-time signals from the masks of all regular signal handlers that the process has
/// now, so that real-time signals precede and interrupt them. Call it after those handlers were
/// installed. Returns the number of handlers that were changed.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_signal_keep_order() -> c_int {
    guard(|| {
        let changed = signal::keep_order()?;
        Ok(c_int::try_from(changed.len()).unwrap_or(c_int::MAX))
    })
}

fn slot(signal: c_int) -> Option<&'static AtomicPtr<()>> {
    HANDLERS.get(usize::try_from(signal).ok()?)
}

/// Calls the C handler of a signal. Async-signal-safe: loads, and the call.
fn forward(received: SignalValue) {
    let handler = slot(received.signal).map_or(null_mut(), |slot| slot.load(Ordering::Acquire));
    if handler.is_null() {
        return;
    }
    let value = Signal {
        signal: received.signal,
        code: received.code,
        value: received.value,
        pid: received.pid,
        uid: received.uid,
    };
    // SAFETY: only `ecalls_signal_install` stores values here, and they are such functions.
    let handler =
        unsafe { std::mem::transmute::<*mut (), unsafe extern "C" fn(*const Signal)>(handler) };
    // SAFETY: the program installed it for this purpose; the value lives during the call.
    unsafe { handler(&raw const value) };
}
