//! Time slices. A thread that computes for long while others wait for its processor gets a signal,
//! and gives up the processor in the signal's handler: as kernel threads have it, so programs may
//! wait in a loop for what another thread does.
//!
//! A thread is not stopped where it may hold a lock that the scheduler needs: in this library, in
//! the C library and the dynamic linker, and in whatever else has the program's `malloc`. Then the
//! monitor tries again a millisecond later. An exception is a wait for a futex inside of the C
//! library: whom it waits for may need this processor. Nor is it stopped in a handler of the
//! program's, which may have interrupted any of these, or the scheduler: if two signals are pending
//! the kernel begins the program's handler, and interrupts that at its first instruction.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{next, signals};
use ecalls_preload::errno;

/// From and to of the code in which no thread is stopped.
static PARTS: OnceLock<Parts> = OnceLock::new();
static MISSED: AtomicBool = AtomicBool::new(false);

struct Parts {
    ranges: Vec<(usize, usize)>,
    /// `malloc` is the program's own, and so is in all of its code.
    is_everywhere: bool,
    signal: c_int,
    interrupt: c_int,
}

/// `dladdr1` gives the symbol that an address has.
const RTLD_DL_SYMENT: c_int = 1;

unsafe extern "C" {
    /// Of the signals that the C library gives to libraries: the lowest priority that is free.
    fn __libc_allocate_rtsig(high: c_int) -> c_int;
}

/// Whether an address is in this library's code.
pub(crate) fn is_here(address: usize) -> bool {
    static HERE: OnceLock<(usize, usize)> = OnceLock::new();
    let look = || object_of(is_here as *const () as usize).map_or((0, 0), |(range, _)| range);
    let (from, to) = HERE.get_or_init(look);
    (*from..*to).contains(&address)
}

/// Whether a signal has interrupted this library's code, but not in a system call.
pub(crate) fn is_in_library(context: &libc::ucontext_t) -> bool {
    let at = usize::try_from(context.uc_mcontext.gregs[libc::REG_RIP as usize]).unwrap_or(0);
    // SAFETY: the code was executed.
    is_here(at) && unsafe { !is_behind_call(at) && !is_at_call(at) }
}

/// Where the object lies that has an address, and whether it is the program itself.
fn object_of(address: usize) -> Option<((usize, usize), bool)> {
    type Found = (usize, Option<((usize, usize), bool)>);
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes a valid one, and what is passed below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
        // SAFETY: as many as it says.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        for header in headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
        {
            let from = usize::try_from(info.dlpi_addr + header.p_vaddr).unwrap_or(0);
            let to = from + usize::try_from(header.p_memsz).unwrap_or(0);
            if (from..to).contains(&found.0) {
                // SAFETY: a name of the linker's.
                let is_program = unsafe { info.dlpi_name.is_null() || *info.dlpi_name == 0 };
                found.1 = Some(((from, to), is_program));
                return 1;
            }
        }
        0
    }
    let mut found: Found = (address, None);
    // SAFETY: `look` uses `found` as what it is.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found.1
}

/// Where a function is. To a program that takes its address the linker may have given a stub of
/// that name, which only jumps to the function.
fn named(name: &CStr) -> usize {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    let mut symbol = ptr::null_mut::<libc::Elf64_Sym>();
    // SAFETY: looks up a name, and its address; the variables are for what is found. A symbol is of
    // an object that stays loaded.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let to = (&raw mut symbol).cast();
        let is_known = libc::dladdr1(found, info.as_mut_ptr(), to, RTLD_DL_SYMENT) != 0;
        let is_stub = is_known && symbol.as_ref().is_some_and(|symbol| symbol.st_shndx == 0);
        if is_stub {
            libc::dlsym(libc::RTLD_NEXT, name.as_ptr()).addr()
        } else {
            found.addr()
        }
    }
}

fn look() -> Parts {
    let malloc = object_of(named(c"malloc"));
    // SAFETY: asks.
    let vdso = usize::try_from(unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }).unwrap_or(0);
    let objects = [
        object_of(is_here as *const () as usize),
        object_of(named(c"gnu_get_libc_version")),
        object_of(named(c"__tls_get_addr")),
        malloc,
    ];
    let mut ranges: Vec<_> = objects.iter().flatten().map(|(range, _)| *range).collect();
    if vdso != 0 {
        ranges.push((vdso, vdso + (16 << 10)));
    }
    // SAFETY: reserves a signal.
    let (signal, interrupt) = unsafe { (__libc_allocate_rtsig(0), __libc_allocate_rtsig(0)) };
    Parts {
        ranges,
        is_everywhere: malloc.is_none_or(|(_, is_program)| is_program),
        signal,
        interrupt,
    }
}

fn parts() -> &'static Parts {
    PARTS.get_or_init(look)
}

/// Called before the first thread is created.
pub(crate) fn prepare() {
    let parts = parts();
    install(parts.signal, stop, libc::SA_RESTART);
    install(parts.interrupt, interrupt, 0);
}

type Handler = extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);

fn install(signal: c_int, handler: Handler, flags: c_int) {
    // SAFETY: all zeros is one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags | libc::SA_SIGINFO;
    // SAFETY: the handler is of this type.
    unsafe { next::sigaction(signal, &raw const action, ptr::null_mut()) };
}

/// The signal that ends a time slice, and the one that ends a system call.
pub(crate) fn signal() -> c_int {
    parts().signal
}

pub(crate) fn interrupt_signal() -> c_int {
    parts().interrupt
}

/// Whether the library uses the signal itself, as the C library does some: to programs it is none.
pub(crate) fn is_own(signal: c_int) -> bool {
    PARTS
        .get()
        .is_some_and(|parts| signal == parts.signal || signal == parts.interrupt)
}

/// Whether a thread could not be stopped since the last call.
pub(crate) fn take_missed() -> bool {
    MISSED.swap(false, Ordering::Relaxed)
}

pub(crate) fn describe() -> &'static str {
    if parts().is_everywhere {
        "without time slices, as the program has a malloc of its own"
    } else {
        "with time slices"
    }
}

pub(crate) fn send(signal: c_int, tid: u32) {
    if signal == parts().signal && parts().is_everywhere {
        return;
    }
    let tid = usize::try_from(tid).unwrap_or(0);
    let signal = usize::try_from(signal).unwrap_or(0);
    // SAFETY: the thread may have ended; the signal has a handler.
    unsafe {
        let pid = usize::try_from(libc::getpid()).unwrap_or(0);
        next::syscall(libc::SYS_tgkill, pid, tid, signal, 0, 0, 0)
    };
}

/// Has the thread that runs in a kernel thread look for the signals that were sent to it; its
/// system call is restarted.
pub(crate) fn have_look(tid: u32) {
    send_described(parts().signal, tid, &undescribed());
}

/// The description of a signal that says nothing but that a program has sent it.
pub(crate) fn undescribed() -> libc::siginfo_t {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: zeros are one.
    unsafe {
        (*info.as_mut_ptr()).si_code = libc::SI_QUEUE;
        info.assume_init()
    }
}

/// Sends a signal with a description, which the kernel has passed, or which says that a program has
/// sent it.
pub(crate) fn send_described(signal: c_int, tid: u32, info: &libc::siginfo_t) {
    let tid = usize::try_from(tid).unwrap_or(0);
    let signal = usize::try_from(signal).unwrap_or(0);
    // SAFETY: the thread may have ended; the signal has a handler.
    unsafe {
        let pid = usize::try_from(libc::getpid()).unwrap_or(0);
        let info = ptr::from_ref(info).addr();
        next::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, info, 0, 0)
    };
}

/// A thread that is stopped here continues here, perhaps on another kernel thread; or it is
/// cancelled, and its stack unwound.
extern "C-unwind" fn stop(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(parts) = PARTS.get() else {
        return;
    };
    // SAFETY: the kernel passes it.
    let is_to_look = unsafe { (*info).si_code } == libc::SI_QUEUE;
    // SAFETY: the kernel passes the context of the interrupted thread.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    if is_to_look {
        return look_for_signals(signal, context);
    }
    let registers = &context.uc_mcontext.gregs;
    let at = usize::try_from(registers[libc::REG_RIP as usize]).unwrap_or(0);
    let is_inside = parts
        .ranges
        .iter()
        .any(|(from, to)| (*from..*to).contains(&at));
    let may_hold_locks = is_inside && !is_in_futex(at, registers[libc::REG_RAX as usize]);
    if may_hold_locks || signals::is_in_handler(&context.uc_sigmask) {
        MISSED.store(true, Ordering::Relaxed);
        return;
    }
    let errno = errno::get();
    // For the threads that run here next; until now others that had been sent have waited.
    unblock(parts.signal);
    ecalls_threads::yield_from_signal();
    signals::take();
    errno::set(errno);
}

/// Has the kernel thread receive a signal again whose handler does not return here, or not soon.
pub(crate) fn unblock(signal: c_int) {
    let set = 1_u64 << (signal - 1);
    let how = usize::try_from(libc::SIG_UNBLOCK).unwrap_or(0);
    let set = (&raw const set).addr();
    let bytes = size_of::<u64>();
    // SAFETY: past the C library's functions, which leave its own signals out of each set.
    unsafe { next::syscall(libc::SYS_rt_sigprocmask, how, set, 0, bytes, 0, 0) };
}

/// Whether the interrupted code is about to continue a wait for a futex.
fn is_in_futex(at: usize, number: i64) -> bool {
    // SAFETY: the code that was executed.
    number == libc::SYS_futex && unsafe { is_at_call(at) }
}

const SYSCALL: [u8; 2] = [0x0F, 0x05];

/// Whether a system call is about to begin, or to be restarted.
///
/// # Safety
/// It is the address of code.
unsafe fn is_at_call(at: usize) -> bool {
    // SAFETY: as the caller says.
    unsafe { (at as *const [u8; 2]).read_unaligned() == SYSCALL }
}

/// Whether a system call has ended there.
///
/// # Safety
/// It is the address of code that was executed.
unsafe fn is_behind_call(at: usize) -> bool {
    // SAFETY: as the caller says; no object begins with its code.
    unsafe { is_at_call(at - SYSCALL.len()) }
}

/// Its system call ends with EINTR.
extern "C-unwind" fn interrupt(signal: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes it.
    look_for_signals(signal, unsafe { &*context.cast() });
}

/// The handlers of what was sent to the thread run, which may leave this kernel thread to others.
fn look_for_signals(signal: c_int, context: &libc::ucontext_t) {
    if is_in_library(context) {
        // It looks itself, or the monitor repeats it.
        MISSED.store(true, Ordering::Relaxed);
    } else if signals::are_there() {
        unblock(signal);
        signals::take();
    }
}
