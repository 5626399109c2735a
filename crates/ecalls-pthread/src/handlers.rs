//! The program's handlers of signals. Each is executed by a function of this library, [`handle`],
//! for two things are different in a handler: it may have interrupted code that has a lock of the
//! allocator's or of the C library's, and it may have interrupted a system call, which goes on
//! after it. So its thread stays in the kernel thread that executes it until the handler has
//! returned (`ecalls_threads::set_stays`): it has no time slices, and what waits or blocks there
//! does so in the kernel, and gives up the processor for the rest of the handler.
//!
//! A signal of the process that has interrupted the runtime is handled in a thread later
//! (deferred.rs).
//!
//! A handler may leave by a jump, too. Whether a jump leaves it is told by the stack pointer with
//! which the program goes on.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use ecalls_preload::errno;
use ecalls_threads::{Interrupted, interrupted, is_thread, note_signal_mask, set_stays};
use libc::{EINVAL, SIG_DFL, SIG_ERR, SIG_IGN, siginfo_t, ucontext_t};

use crate::{deferred, next, signals, slice, thread};

type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// `SIG_HOLD` of sigset(3): no handler either.
const SIG_HOLD: usize = 2;

/// The program's handlers, by signal.
static HANDLERS: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];

unsafe extern "C" {
    fn ecalls_handler() -> *mut [usize; 2];
    fn ecalls_stack_of(env: *const c_void) -> usize;
}

/// Whether the calling thread is in a handler.
pub(crate) fn is_in_one() -> bool {
    // SAFETY: the calling thread's variable.
    unsafe { (*ecalls_handler())[1] != 0 }
}

/// While it lives, the thread is in a handler.
struct Inside {
    before: [usize; 2],
    stayed: bool,
}

impl Inside {
    fn begin(context: &ucontext_t) -> Self {
        let here = 0_u8;
        let here = (&raw const here).addr();
        // SAFETY: the calling thread's variable.
        let range = unsafe { &mut *ecalls_handler() };
        let before = *range;
        if before[1] == 0 {
            let low = context.uc_stack.ss_sp.addr();
            let alternate = [low, low + context.uc_stack.ss_size];
            let is_on_it = (alternate[0]..alternate[1]).contains(&here);
            *range = if is_on_it { alternate } else { [0, here] };
        }
        Self {
            before,
            stayed: set_stays(true),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        set_stays(self.stayed);
        // SAFETY: the calling thread's variable.
        unsafe { *ecalls_handler() = self.before };
    }
}

/// What the kernel calls. On this machine it passes all three to a handler of either type.
unsafe extern "C-unwind" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let handler = place(signal).map_or(0, |place| place.load(Ordering::Acquire));
    // SAFETY: the kernel passes both.
    if unsafe { defer(signal, info, &*context.cast()) } {
        return;
    }
    // SAFETY: the kernel passes a context, and the program has given a handler for the signal.
    unsafe {
        let handler = std::mem::transmute::<usize, Handler>(handler);
        let _inside = Inside::begin(&*context.cast());
        handler(signal, info, context);
    }
}

/// What code causes itself, and not somebody who sends it, has its handler where it is caused.
const OF_CODE: [c_int; 7] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGTRAP,
];

/// Whether the signal is handled later, as it has interrupted no thread: a handler may leave, and
/// use what is thread-local.
///
/// # Safety
/// The kernel has passed the description.
unsafe fn defer(signal: c_int, info: *const siginfo_t, context: &ucontext_t) -> bool {
    let stack_pointer = context.uc_mcontext.gregs[libc::REG_RSP as usize];
    let stack_pointer = usize::try_from(stack_pointer).unwrap_or(0);
    let is_for_later = match interrupted(stack_pointer) {
        // A stack cannot be unwound from any instruction of Rust, as pthread_exit does.
        Interrupted::Code => is_thread() && slice::is_in_library(context),
        Interrupted::Switch => true,
        Interrupted::Spare => deferred::is_for_others(signal),
    };
    if !is_for_later || OF_CODE.contains(&signal) {
        return false;
    }
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks; zeros are one if it is refused.
    let action = unsafe {
        next::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    // With SA_RESETHAND it has no handler any more.
    if action.sa_sigaction != own() {
        return false;
    }
    signals::expect();
    let is_described = action.sa_flags & libc::SA_SIGINFO != 0;
    // SAFETY: as the caller says; the kernel has written it if the program wants to know.
    deferred::put(signal, is_described.then(|| unsafe { *info }))
}

fn place(signal: c_int) -> Option<&'static AtomicUsize> {
    HANDLERS.get(usize::try_from(signal).ok()?)
}

// --- what programs give ---

fn own() -> usize {
    handle as *const () as usize
}

/// Notes the program's handler of a signal; returns what the kernel gets instead, and the handler
/// before.
fn replace(signal: c_int, handler: usize) -> (usize, usize) {
    let Some(place) = place(signal) else {
        return (handler, 0);
    };
    let is_none = matches!(handler, SIG_DFL | SIG_IGN | SIG_HOLD | SIG_ERR);
    if is_none || handler == own() {
        return (handler, place.load(Ordering::Acquire));
    }
    (own(), place.swap(handler, Ordering::AcqRel))
}

/// What the program learns of the handler that the kernel had.
fn shown(handler: usize, before: usize) -> usize {
    if handler == own() { before } else { handler }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if slice::is_own(signal) {
        errno::set(EINVAL);
        return -1;
    }
    let mut action = MaybeUninit::uninit();
    let mut before = place(signal).map_or(0, |place| place.load(Ordering::Acquire));
    // SAFETY: the caller's actions.
    unsafe {
        let mut passed = std::ptr::null();
        if let Some(new) = new.as_ref() {
            let action = action.write(*new);
            (action.sa_sigaction, before) = replace(signal, new.sa_sigaction);
            passed = &raw const *action;
        }
        let result = next::sigaction(signal, passed, old);
        if result == 0
            && let Some(old) = old.as_mut()
        {
            old.sa_sigaction = shown(old.sa_sigaction, before);
        }
        result
    }
}

macro_rules! signals {
    ($(fn $name:ident;)*) => {
        mod real {
            use super::*;

            ecalls_preload::next! {
                $(fn $name(signal: c_int, handler: usize) -> usize;)*
            }
        }

        $(#[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(signal: c_int, handler: usize) -> usize {
            if slice::is_own(signal) {
                errno::set(EINVAL);
                return SIG_ERR;
            }
            let (passed, before) = replace(signal, handler);
            // SAFETY: the caller's arguments.
            shown(unsafe { real::$name(signal, passed) }, before)
        })*
    };
}

signals! {
    fn signal;
    fn bsd_signal;
    fn ssignal;
    fn sysv_signal;
    fn __sysv_signal;
    fn sigset;
}

// --- jumps ---

/// If a jump leaves the handler, so does the thread, and whatever call that has interrupted.
///
/// # Safety
/// It is the environment of a setjmp.
unsafe fn jump(env: *const c_void) {
    // SAFETY: as the caller says, and the calling thread's variable.
    let (range, to) = unsafe { (&mut *ecalls_handler(), ecalls_stack_of(env)) };
    if range[1] == 0 || (range[0]..range[1]).contains(&to) {
        return;
    }
    *range = [0; 2];
    set_stays(false);
    thread::leave_call();
    // Some jumps leave the mask as it is in the handler: not for threads that come here next.
    note_signal_mask(None);
}

macro_rules! jumps {
    ($(fn $name:ident;)*) => {
        mod real_jumps {
            use super::*;

            ecalls_preload::next! {
                $(fn $name(env: *mut c_void, value: c_int) -> !;)*
            }
        }

        $(#[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(env: *mut c_void, value: c_int) -> ! {
            // SAFETY: the caller's environment.
            unsafe {
                jump(env);
                real_jumps::$name(env, value)
            }
        })*
    };
}

jumps! {
    fn longjmp;
    fn _longjmp;
    fn siglongjmp;
    fn __longjmp_chk;
}
