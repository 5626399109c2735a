//! Signals of the process that have interrupted the runtime, and not a thread. Amid a switch the
//! program's handler would run on the storage of a thread that another processor may execute by
//! now; in a spare it would not; from neither it could leave by a jump. So the signal is noted
//! here, and the next thread that does not block it has it, mostly the one that was about to go on.
//!
//! If no thread looks, the monitor makes those look that run. If they do not take it, it gives the
//! signal to the kernel once more, and then a spare may handle it, for others may only wait: a
//! spare has the signal mask of the thread that it has executed last.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use ecalls_threads::Runtime;
use libc::siginfo_t;

use crate::{next, runtime, slice};

/// More are handled where they come.
const PLACES: usize = 64;
/// So often those that run are made to look, a millisecond between two, before a spare may handle a
/// signal: they may block it.
const LOOKS: u32 = 100;
static ALL: [Place; PLACES] = [const { Place::new() }; PLACES];
/// How many are in use, at least: threads look often, and mostly there is none.
static USED: AtomicU32 = AtomicU32::new(0);
/// Those that no thread has taken, and a spare may handle: bits of signals, from the first.
static ANYWHERE: AtomicU64 = AtomicU64::new(0);

const FREE: i32 = 0;
/// Somebody writes or reads `info`.
const IN_USE: i32 = -1;

struct Place {
    /// `FREE`, `IN_USE`, or the signal. Who has changed it to `IN_USE` uses `info`.
    signal: AtomicI32,
    /// How often the monitor has seen it.
    seen: AtomicU32,
    info: UnsafeCell<MaybeUninit<siginfo_t>>,
}

// SAFETY: `signal` says who may use `info`.
unsafe impl Sync for Place {}

impl Place {
    const fn new() -> Self {
        Self {
            signal: AtomicI32::new(FREE),
            seen: AtomicU32::new(0),
            info: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    fn claim(&self, from: i32) -> bool {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        from != IN_USE
            && self
                .signal
                .compare_exchange(from, IN_USE, order.0, order.1)
                .is_ok()
    }

    /// What it has, if that is one of these signals; it is free then.
    fn take(&self, among: u64) -> Option<(c_int, siginfo_t)> {
        let signal = self.signal.load(Ordering::Relaxed);
        if signal <= 0 || among & (1 << (signal - 1)) == 0 || !self.claim(signal) {
            return None;
        }
        // SAFETY: it is the caller's, and has been written.
        let info = unsafe { (*self.info.get()).assume_init_read() };
        self.signal.store(FREE, Ordering::Release);
        USED.fetch_sub(1, Ordering::SeqCst);
        Some((signal, info))
    }
}

/// Notes a signal, with what the kernel says of it; false: it must be handled at once. It uses
/// nothing that is thread-local.
pub(crate) fn put(signal: c_int, info: Option<siginfo_t>) -> bool {
    let is_real_time = signal >= libc::SIGRTMIN();
    if !is_real_time && bits() & (1 << (signal - 1)) != 0 {
        return true;
    }
    USED.fetch_add(1, Ordering::SeqCst);
    let Some(place) = ALL.iter().find(|place| place.claim(FREE)) else {
        USED.fetch_sub(1, Ordering::SeqCst);
        return false;
    };
    let info = info.unwrap_or_else(slice::undescribed);
    // SAFETY: the place is the caller's.
    unsafe { (*place.info.get()).write(info) };
    place.seen.store(0, Ordering::Relaxed);
    place.signal.store(signal, Ordering::Release);
    runtime::ring();
    true
}

/// Whether a spare should not handle a signal, as there may be threads that can.
pub(crate) fn is_for_others(signal: c_int) -> bool {
    let bit = 1 << (signal - 1);
    ANYWHERE.fetch_and(!bit, Ordering::Relaxed) & bit == 0
}

/// Those that are here: bits of signals, from the first.
pub(crate) fn bits() -> u64 {
    if USED.load(Ordering::SeqCst) == 0 {
        return 0;
    }
    ALL.iter().fold(0, |bits, place| {
        let signal = place.signal.load(Ordering::Relaxed);
        bits | if signal > 0 { 1 << (signal - 1) } else { 0 }
    })
}

/// Gives one of these signals to the calling kernel thread; 0: there is none.
pub(crate) fn take(among: u64) -> c_int {
    if bits() & among == 0 {
        return 0;
    }
    let Some((signal, info)) = ALL.iter().find_map(|place| place.take(among)) else {
        return 0;
    };
    slice::send_described(signal, ecalls_threads::kernel_thread().unwrap_or(0), &info);
    signal
}

/// Called by the monitor; false: there is none.
pub(crate) fn repeat(runtime: &Runtime) -> bool {
    ANYWHERE.store(0, Ordering::Relaxed);
    if bits() == 0 {
        return false;
    }
    runtime.running().for_each(slice::have_look);
    let looks = if runtime.is_idle() { 1 } else { LOOKS };
    let is_old = |place: &&Place| place.seen.fetch_add(1, Ordering::Relaxed) >= looks;
    let old = ALL.iter().filter(is_old);
    for (signal, info) in old.filter_map(|place| place.take(u64::MAX)) {
        ANYWHERE.fetch_or(1 << (signal - 1), Ordering::Relaxed);
        send_to_process(signal, &info);
    }
    true
}

fn send_to_process(signal: c_int, info: &siginfo_t) {
    let number = usize::try_from(signal).unwrap_or(0);
    // SAFETY: as the kernel has passed it. It refuses to pass on some descriptions.
    unsafe {
        let pid = usize::try_from(libc::getpid()).unwrap_or(0);
        let info = std::ptr::from_ref(info).addr();
        let sent = next::syscall(libc::SYS_rt_sigqueueinfo, pid, number, info, 0, 0, 0);
        if sent != 0 {
            next::syscall(libc::SYS_kill, pid, number, 0, 0, 0, 0);
        }
    };
}

/// In the child of a fork: they were its parent's.
pub(crate) fn forget_all() {
    for place in &ALL {
        place.signal.store(FREE, Ordering::Relaxed);
    }
    USED.store(0, Ordering::SeqCst);
}
