//! Real-time signals in the papers' order. Man page: ecalls_signal(3).
//!
//! The Rust library calls a handler of type `fn`; the C handlers are kept here, one per signal, and
//! `forward` finds the one to call.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use ecalls::signal::{self, SignalValue};

use crate::error::{Failure, guard};

/// A real-time signal as it was received.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// Its number.
    pub signal: i32,
    /// How it was sent (si_code): SI_KERNEL by an event, SI_QUEUE by sigqueue.
    pub code: i32,
    /// What the sender attached; 0 if nothing.
    pub value: u64,
    /// Process that sent it; 0: the kernel, as for all events.
    pub pid: u32,
    /// User of that process; 0 for the kernel.
    pub uid: u32,
}

/// A handler of a real-time signal. It runs in the middle of whatever the thread was doing: it may
/// call only what signal-safety(7) lists, and no function of this library.
pub type SignalCallback = Option<unsafe extern "C" fn(received: *const Signal)>;

/// Numbers there are, and one for the 0 that none has.
const SIGNALS: usize = 65;

/// The C handler of each signal, or null. Stored before the kernel learns of it.
static HANDLERS: [AtomicPtr<()>; SIGNALS] = [const { AtomicPtr::new(null_mut()) }; SIGNALS];

/// Calls `handler` whenever real-time signal `signal`, SIGRTMIN to SIGRTMAX, arrives at the process
/// (ECalls-05 §3.1.1). While it runs all other signals wait, other than those that report a fault.
/// With ecalls_signal_keep_order, pending signals are then handled in the papers' order: real-time
/// signals before regular ones, the lowest number first. -EINVAL for another signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_signal_install(signal: c_int, handler: SignalCallback) -> c_int {
    guard(|| {
        let handler = handler.ok_or_else(|| Failure::invalid("the handler is NULL"))?;
        // Out of range: refused below, before it would be missed.
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

/// Takes the handler of a real-time signal away. From then on the signal is ignored: its default
/// would end the process, and a sender may not know yet. -EINVAL for another signal.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_signal_uninstall(signal: c_int) -> c_int {
    guard(|| {
        signal::uninstall(signal)?;
        Ok(0)
    })
}

/// Takes the real-time signals out of the masks of all regular handlers that the process has now,
/// so that real-time signals precede and interrupt them. Call it after those were installed.
/// Returns how many handlers were changed.
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
    // SAFETY: only `ecalls_signal_install` stores something, and that is such a function.
    let handler =
        unsafe { std::mem::transmute::<*mut (), unsafe extern "C" fn(*const Signal)>(handler) };
    // SAFETY: the program made it for this; the value lives during the call.
    unsafe { handler(&raw const value) };
}
