//! Signals: each thread has a mask of its own, and gets what is sent to it by `pthread_kill`.
//!
//! To the kernel both belong to the kernel thread that executes the thread at the moment. The mask
//! goes with the thread (`ecalls_threads::note_signal_mask`). A signal that is sent to a thread is
//! noted in its record, and the thread is made to look: a wait in the runtime ends, a system call
//! is interrupted, and what computes executes a handler of this library. The thread then sends the
//! signal to the kernel thread that executes it, and so the program's handler runs at once, in the
//! thread that it was meant for. A thread looks ([`take`]) whenever a function of this library has
//! waited. Once in a while it looks at a moment when it cannot act, so the monitor repeats it.
//!
//! Signals of the process are the kernel's: it gives them to the first kernel thread, in which
//! `main` runs, or if that has blocked them to any other one that has not.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ecalls_preload::errno;
use ecalls_threads::{Current, is_on_own_stack, is_thread, note_signal_mask};
use libc::{
    CLOCK_MONOTONIC, EINTR, EINVAL, ESRCH, epoll_event, fd_set, nfds_t, pid_t, pollfd, pthread_t,
    siginfo_t, sigset_t, timespec,
};

use crate::next;
use crate::thread::{Record, ask, in_call};
use crate::{cancel, deferred, handlers, slice, time};

/// Some thread has been sent a signal in this process.
static EVER: AtomicBool = AtomicBool::new(false);
/// Threads that were sent one, until they have it. It has its memory from the beginning, and does
/// not grow: a handler may send one, too.
static SENT: Mutex<Vec<Arc<Record>>> = Mutex::new(Vec::new());
const SENT_MAX: usize = 1024;

/// What glibc blocks for nobody: the signals of cancellation and of `setuid`.
const OF_GLIBC: u64 = 3 << 31;

/// Of one thread: bits of signals, from the first.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Sent to it, and not had yet.
    pending: AtomicU64,
    /// It is in sigwait for these.
    awaited: AtomicU64,
}

/// What a call that has waited does once handlers have run.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Handled {
    /// None has.
    Nothing,
    /// The call goes on if the kernel would restart it (SA_RESTART).
    Restarts,
    /// It fails with EINTR.
    Interrupts,
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// What a set of the C library has, without this library's own signals.
///
/// # Safety
/// It is a set.
unsafe fn bits_of(set: *const sigset_t) -> u64 {
    // SAFETY: as the caller says; its first word has the kernel's signals.
    let bits = unsafe { set.cast::<u64>().read() };
    bits & !OF_GLIBC & !bit(slice::signal()) & !bit(slice::interrupt_signal())
}

fn set_of(bits: u64) -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: zeros are an empty set, and its first word has the kernel's signals.
    unsafe {
        set.as_mut_ptr().cast::<u64>().write(bits);
        set.assume_init()
    }
}

/// Changes the signal mask that the kernel has for the calling kernel thread; returns the former.
fn change(how: c_int, set: &sigset_t) -> u64 {
    let mut old = set_of(0);
    // SAFETY: the sets are its own.
    unsafe { next::pthread_sigmask(how, set, &raw mut old) };
    // SAFETY: as above.
    unsafe { bits_of(&raw const old) }
}

/// Blocks all signals in the calling kernel thread; returns what it had blocked.
pub(crate) fn block_all() -> u64 {
    change(libc::SIG_BLOCK, &set_of(u64::MAX))
}

/// Its signal mask is that again.
pub(crate) fn restore(mask: u64) {
    change(libc::SIG_SETMASK, &set_of(mask));
}

/// The calling thread's signal mask.
pub(crate) fn mask() -> u64 {
    match Record::mine().and_then(Record::thread) {
        Some(thread) => thread.signal_mask(),
        None => change(libc::SIG_BLOCK, &set_of(0)),
    }
}

/// Whether code of the calling thread that had this mask is the handler of a signal. One that the
/// program has installed past the C library is told by its mask: its signal is blocked.
pub(crate) fn is_in_handler(mask: &sigset_t) -> bool {
    let thread = Record::mine().and_then(Record::thread);
    handlers::is_in_one()
        // SAFETY: it is a set.
        || thread.is_some_and(|thread| thread.signal_mask() != unsafe { bits_of(mask) })
}

// --- what is sent to a thread ---

impl Record {
    fn blocked(&self) -> u64 {
        self.thread().map_or(u64::MAX, Current::signal_mask)
    }

    fn ready_signals(&self) -> u64 {
        self.signals.pending.load(Ordering::SeqCst) & !self.blocked()
    }

    fn take_signal(&self, signal: c_int) -> bool {
        let bit = bit(signal);
        self.signals.pending.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }
}

/// The calling thread receives the signals that were sent to it: their handlers run.
#[inline]
pub(crate) fn take() -> Handled {
    if EVER.load(Ordering::Relaxed) {
        take_now()
    } else {
        Handled::Nothing
    }
}

/// Whether there is something for [`take`].
pub(crate) fn are_there() -> bool {
    let mine = Record::mine().filter(|_| EVER.load(Ordering::Relaxed) && can_take());
    mine.is_some_and(|record| {
        record.ready_signals() != 0 || deferred::bits() & !record.blocked() != 0
    })
}

/// Whether handlers of the calling thread's may run here: they may leave by a jump, and so not from
/// the stack of the scheduler.
fn can_take() -> bool {
    is_thread() && is_on_own_stack()
}

#[cold]
fn take_now() -> Handled {
    let mut handled = Handled::Nothing;
    let Some(record) = Record::mine().filter(|_| can_take()) else {
        return handled;
    };
    let before = errno::get();
    loop {
        let ready = record.ready_signals();
        if ready == 0 {
            match deferred::take(!record.blocked()) {
                0 => break,
                signal => handled = handled.max(handling_of(signal)),
            }
            continue;
        }
        let signal = ready.trailing_zeros().cast_signed() + 1;
        if record.take_signal(signal) {
            handled = handled.max(handling_of(signal));
            cancel::unblock_if(signal);
            slice::send(signal, ecalls_threads::kernel_thread().unwrap_or(0));
        }
    }
    errno::set(before);
    handled
}

fn handling_of(signal: c_int) -> Handled {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks; zeros are one if it is refused.
    let action = unsafe {
        next::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    match action.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => Handled::Nothing,
        _ if action.sa_flags & libc::SA_RESTART != 0 => Handled::Restarts,
        _ => Handled::Interrupts,
    }
}

/// Has a thread look.
fn rouse(record: &Record, signal: c_int) {
    let tid = record.in_call();
    if record.signals.awaited.load(Ordering::SeqCst) & bit(signal) != 0 {
        slice::send(slice::interrupt_signal(), tid);
        return;
    }
    if record.ready_signals() & bit(signal) == 0 {
        return;
    }
    record.interrupt();
    if tid != 0 && handling_of(signal) == Handled::Interrupts {
        slice::send(slice::interrupt_signal(), tid);
    } else {
        slice::have_look(if tid == 0 {
            record.kernel_thread()
        } else {
            tid
        });
    }
}

fn note(record: &Record, signal: c_int) {
    EVER.store(true, Ordering::SeqCst);
    record
        .signals
        .pending
        .fetch_or(bit(signal), Ordering::SeqCst);
}

/// Sends a signal to a thread.
pub(crate) fn send(record: &Arc<Record>, signal: c_int) {
    note(record, signal);
    if Record::mine().is_some_and(|mine| ptr::eq(mine, Arc::as_ptr(record))) && is_thread() {
        take();
    } else {
        rouse(record, signal);
    }
    if let Ok(mut sent) = SENT.try_lock()
        && sent.len() < sent.capacity()
        && record.ready_signals() != 0
    {
        sent.push(Arc::clone(record));
    }
}

/// Before any thread is created.
pub(crate) fn prepare() {
    if let Ok(mut sent) = SENT.try_lock() {
        sent.reserve_exact(SENT_MAX);
    }
}

/// Threads look from here on.
pub(crate) fn expect() {
    EVER.store(true, Ordering::SeqCst);
}

/// Called by the monitor: once more for those that have not received theirs.
pub(crate) fn repeat() {
    if !EVER.load(Ordering::Relaxed) {
        return;
    }
    // In the child of a fork it can be locked for ever.
    if let Ok(mut sent) = SENT.try_lock() {
        sent.retain(|record| {
            let ready = record.ready_signals();
            let waits = !record.has_ended() && ready != 0;
            if waits {
                rouse(record, ready.trailing_zeros().cast_signed() + 1);
            }
            waits
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int {
    let ours = |record: &Arc<Record>| {
        if record.has_ended() {
            return ESRCH;
        }
        match signal {
            0 => 0,
            _ if !(1..=libc::SIGRTMAX()).contains(&signal) => EINVAL,
            _ => {
                send(record, signal);
                0
            }
        }
    };
    // SAFETY: the caller's thread.
    unsafe { ask(thread, || next::pthread_kill(thread, signal), ours) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn raise(signal: c_int) -> c_int {
    let is_signal = (1..=libc::SIGRTMAX()).contains(&signal);
    match Record::mine().filter(|_| is_signal && is_thread()) {
        Some(record) => {
            note(record, signal);
            take();
            0
        }
        // SAFETY: any signal.
        None => unsafe { next::raise(signal) },
    }
}

// --- masks ---

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_sigmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    let Some(thread) = Record::mine().and_then(Record::thread) else {
        // SAFETY: the caller's sets.
        return unsafe { next::pthread_sigmask(how, set, old) };
    };
    let before = if set.is_null() {
        change(libc::SIG_BLOCK, &set_of(0))
    } else {
        // SAFETY: the caller's set.
        let bits = unsafe { bits_of(set) };
        let mask = thread.signal_mask();
        let new = match how {
            libc::SIG_BLOCK => mask | bits,
            libc::SIG_UNBLOCK => mask & !bits,
            libc::SIG_SETMASK => bits,
            _ => return EINVAL,
        };
        let before = change(how, &set_of(bits));
        // At the end of a handler the mask comes back.
        if before == mask && !handlers::is_in_one() {
            thread.set_signal_mask(new);
            note_signal_mask(Some(new));
        }
        before
    };
    if !old.is_null() {
        // SAFETY: the caller's set.
        unsafe { *old = set_of(before) };
    }
    take();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigprocmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller's sets.
    match unsafe { pthread_sigmask(how, set, old) } {
        0 => 0,
        error => failed(error),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigpending(set: *mut sigset_t) -> c_int {
    // SAFETY: the caller's set.
    let result = unsafe { next::sigpending(set) };
    if let Some(record) = Record::mine()
        && result == 0
    {
        let pending = record.signals.pending.load(Ordering::SeqCst) | deferred::bits();
        // SAFETY: as above.
        unsafe { *set.cast::<u64>() |= pending };
    }
    result
}

fn failed(error: c_int) -> c_int {
    errno::set(error);
    -1
}

/// Executes a call that may block, and during which the thread has another signal mask; null: its
/// own.
///
/// # Safety
/// It is a set, or null.
unsafe fn in_call_with(
    mask: *const sigset_t,
    call: impl FnOnce(*const sigset_t) -> c_int,
) -> c_int {
    let thread = Record::mine().filter(|_| is_thread());
    let (Some(thread), false) = (thread.and_then(Record::thread), mask.is_null()) else {
        return in_call(|| call(mask));
    };
    let before = thread.signal_mask();
    // SAFETY: the caller's set.
    let during = unsafe { bits_of(mask) };
    // What is sent from here on waits at this kernel thread for the call.
    thread.set_signal_mask(during);
    in_call(|| {
        let result = call(&set_of(during));
        thread.set_signal_mask(before);
        note_signal_mask(Some(before));
        result
    })
}

macro_rules! with_mask {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type,)* mask: *const sigset_t) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { in_call_with(mask, |mask| next::$name($($argument,)* mask)) }
        }
    )*};
}

with_mask! {
    fn sigsuspend();
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        limit: *const timespec);
    fn epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, limit_ms: c_int);
}

/// As it is since POSIX.1-2001.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __xpg_sigpause(signal: c_int) -> c_int {
    if !(1..=libc::SIGRTMAX()).contains(&signal) {
        return failed(EINVAL);
    }
    let during = set_of(mask() & !bit(signal));
    // SAFETY: the set is its own.
    unsafe { sigsuspend(&raw const during) }
}

/// A ppoll that ready.rs has nothing for.
///
/// # Safety
/// As for ppoll(2).
pub(crate) unsafe fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { in_call_with(mask, |mask| next::ppoll(fds, count, limit, mask)) }
}

// --- sigwait ---

/// One of the signals of a set, once it is there; -1 and EAGAIN: the time has passed.
///
/// # Safety
/// The pointers are to such variables, or null.
unsafe fn wait(set: *const sigset_t, info: *mut siginfo_t, limit: *const timespec) -> c_int {
    let Some(record) = Record::mine().filter(|_| is_thread()) else {
        // SAFETY: the caller's arguments.
        return in_call(|| unsafe { next::sigtimedwait(set, info, limit) });
    };
    // SAFETY: as above.
    let until_ns = match unsafe { limit.as_ref() }.map(time::after_ns).transpose() {
        Ok(until_ns) => until_ns,
        Err(error) => return failed(error),
    };
    // SAFETY: as above.
    let bits = unsafe { bits_of(set) };
    loop {
        cancel::point();
        record.signals.awaited.store(bits, Ordering::SeqCst);
        let signal = in_call(|| wait_once(record, bits, info, until_ns));
        record.signals.awaited.store(0, Ordering::SeqCst);
        if signal != slice::interrupt_signal() {
            return signal;
        }
    }
}

/// The same until somebody interrupts the thread: then that signal is returned. It is blocked
/// meanwhile, so that it is not lost before the call.
fn wait_once(record: &Record, bits: u64, info: *mut siginfo_t, until_ns: Option<u64>) -> c_int {
    let interrupt = bit(slice::interrupt_signal());
    change(libc::SIG_BLOCK, &set_of(interrupt));
    let pending = record.signals.pending.load(Ordering::SeqCst) & bits;
    let first = pending.trailing_zeros().cast_signed() + 1;
    let signal = if pending != 0 && record.take_signal(first) {
        describe(info, first);
        first
    } else {
        let limit =
            until_ns.map(|until| time::span(until.saturating_sub(time::now_ns(CLOCK_MONOTONIC))));
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the sets and times are its own, and the variable the caller's.
        unsafe { next::sigtimedwait(&set_of(bits | interrupt), info, limit) }
    };
    change(libc::SIG_UNBLOCK, &set_of(interrupt));
    signal
}

/// A signal that came by `pthread_kill`.
fn describe(info: *mut siginfo_t, signal: c_int) {
    if info.is_null() {
        return;
    }
    // SAFETY: the caller's variable; zeros are one.
    unsafe {
        info.write(std::mem::zeroed());
        (*info).si_signo = signal;
        (*info).si_code = libc::SI_TKILL;
        // The sender, as of kill(2): behind the three numbers, at the alignment of a pointer.
        *info.byte_add(16).cast::<pid_t>() = libc::getpid();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
    loop {
        // SAFETY: the caller's set.
        let found = unsafe { wait(set, ptr::null_mut(), ptr::null()) };
        if found > 0 {
            // SAFETY: the caller's variable.
            unsafe { *signal = found };
            return 0;
        }
        if errno::get() != EINTR {
            return errno::get();
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    // SAFETY: the caller's set and variable.
    unsafe { wait(set, info, ptr::null()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the caller's set, variable and time.
    unsafe { wait(set, info, limit) }
}
