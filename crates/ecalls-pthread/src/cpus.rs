//! CPUs. A processor of the runtime, and so the kernel thread that has it, is bound to one CPU; the
//! program's threads are not. So a thread that asks for its CPUs gets those of the process, and
//! what it starts is not bound either: a child that is forked, a program that is executed or
//! spawned, a kernel thread. Without this all of these would share one CPU.
//!
//! The process's CPUs are those of its first kernel thread, which is never bound.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};

use ecalls_preload::errno;
use ecalls_threads::is_thread;
use libc::{FILE, cpu_set_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, size_t};

use crate::next::{self, around};
use crate::thread::in_call;

/// A set for as many CPUs as Linux can have.
type Cpus = [u64; 128];

/// The process, which the child of a vfork is not; 0: without a runtime.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// The runtime has started.
pub(crate) fn begin() {
    // SAFETY: it has no requirements.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// The CPUs of a kernel thread, or 0: the calling one's.
fn get(tid: pid_t) -> Option<Cpus> {
    let mut cpus = MaybeUninit::<Cpus>::zeroed();
    // SAFETY: the set has so many bytes, which were zeroed.
    unsafe {
        let got = next::sched_getaffinity(tid, size_of::<Cpus>(), cpus.as_mut_ptr().cast());
        (got == 0).then(|| cpus.assume_init())
    }
}

/// The calling kernel thread has these CPUs from now on, if it may.
fn set(cpus: &Cpus) {
    // SAFETY: the set has so many bytes.
    unsafe { next::sched_setaffinity(0, size_of::<Cpus>(), cpus.as_ptr().cast()) };
}

/// Executes `call`, which starts something, while the calling kernel thread has the process's CPUs.
pub(crate) fn unbound<R>(call: impl FnOnce() -> R) -> R {
    if !is_thread() {
        return call();
    }
    let before = errno::get();
    let (own, all) = (get(0), get(PROCESS.load(Ordering::Relaxed)));
    if let Some(all) = &all {
        set(all);
    }
    errno::set(before);
    let result = call();
    let after = errno::get();
    if let Some(own) = &own {
        set(own);
    }
    errno::set(after);
    result
}

/// In the child of a fork, before the runtime is forgotten.
pub(crate) fn forked() {
    let parent = PROCESS.swap(0, Ordering::Relaxed);
    if let Some(all) = get(parent).filter(|_| is_thread()) {
        set(&all);
    }
}

/// The thread, as the system names it, if that is a user-level one.
fn is_own(tid: pid_t) -> bool {
    is_thread() && (tid == 0 || u32::try_from(tid).ok() == ecalls_threads::kernel_thread())
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sched_getaffinity(
    tid: pid_t,
    bytes: size_t,
    cpus: *mut cpu_set_t,
) -> c_int {
    let tid = if is_own(tid) {
        PROCESS.load(Ordering::Relaxed)
    } else {
        tid
    };
    // SAFETY: the caller's set.
    unsafe { next::sched_getaffinity(tid, bytes, cpus) }
}

/// As of `pthread_setaffinity_np`: a user-level thread has the CPUs of its process.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sched_setaffinity(
    tid: pid_t,
    bytes: size_t,
    cpus: *const cpu_set_t,
) -> c_int {
    if is_own(tid) {
        errno::set(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's set.
    unsafe { next::sched_setaffinity(tid, bytes, cpus) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    // SAFETY: the caller's command.
    in_call(|| unbound(|| unsafe { next::system(command) }))
}

around! {
    unbound;
    fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE;
    fn posix_spawn(pid: *mut pid_t, path: *const c_char,
        actions: *const posix_spawn_file_actions_t, attr: *const posix_spawnattr_t,
        argv: *const *mut c_char, envp: *const *mut c_char) -> c_int, c"GLIBC_2.15";
    fn posix_spawnp(pid: *mut pid_t, file: *const c_char,
        actions: *const posix_spawn_file_actions_t, attr: *const posix_spawnattr_t,
        argv: *const *mut c_char, envp: *const *mut c_char) -> c_int, c"GLIBC_2.15";
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char)
        -> c_int;
    fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char)
        -> c_int;
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
}

unsafe extern "C-unwind" {
    fn ecalls_execl();
    fn ecalls_execlp();
    fn ecalls_execle();
}

/// Functions whose arguments are lists: exec.c has them.
macro_rules! lists {
    ($($name:ident as $in_c:ident;)*) => {
        $(#[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name() -> c_int {
            core::arch::naked_asm!("jmp {}", sym $in_c)
        })*
    };
}

lists! {
    execl as ecalls_execl;
    execlp as ecalls_execlp;
    execle as ecalls_execle;
}
