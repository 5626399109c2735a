//! `libecalls_pthread.so`: loaded before the C library (`ecalls run --threads`, or LD_PRELOAD), it
//! makes the threads of an unmodified program user-level threads on scheduler activations (SA
//! §3.3: a POSIX interface above the library).
//!
//! It works with glibc on x86-64, where each user-level thread has a control block of the C
//! library of its own (`ecalls_threads`, storage.rs). That block is the thread's `pthread_t`, and
//! most of the C library's own code works on it as it is: `pthread_self`, keys, `errno`, the
//! owners and kinds of mutexes, cleanup handlers, `pthread_exit`. So this library does not write
//! these again. It stands before what would *wait* in the kernel:
//!
//! - [`thread`]: a thread is created and waited for in the runtime;
//! - [`lock`], [`condition`]: a lock is tried by the C library's function, and if it is not free,
//!   the thread is parked at its address; the library's unlock is followed by an unpark. What is
//!   shared with other processes is left to the C library;
//! - [`futex`]: the same for programs that call futex(2) themselves, e.g. all in Rust;
//! - [`calls`]: calls that may block their kernel thread are executed in
//!   `ecalls_threads::blocking`, and reads of sockets and pipes wait without a kernel thread;
//! - [`cpus`]: a thread has the CPUs of its process, although what executes it is bound to one;
//! - [`name`]: it has a name of its own, too;
//! - [`signals`]: it has a signal mask of its own, and gets what is sent to it;
//! - [`handlers`]: it stays in its kernel thread while a handler of a signal runs;
//! - [`deferred`]: a signal that interrupts a switch between threads is handled in a thread;
//! - [`slice`](mod@slice): a thread that computes for long gives up its processor by a signal, as
//!   programs may expect of kernel threads.
//!
//! Elsewhere the library is empty. The first kernel thread of the process, in which `main` runs,
//! stays one. So does a thread whose attributes no user-level thread can have (a scheduling
//! policy, CPUs, a stack of its own or a larger one). Such threads and user-level threads use the
//! same locks.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#![allow(
    unsafe_code,
    reason = "it defines functions of the C library, with that library's types"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "what a caller has passed is passed on, for one reason"
)]

mod calls;
mod cancel;
mod condition;
mod cpus;
mod deferred;
mod descriptors;
mod futex;
mod handlers;
mod identity;
mod key;
mod lock;
mod memory;
mod name;
mod next;
mod ready;
mod runtime;
mod semaphore;
mod shared;
mod signals;
mod slice;
mod thread;
mod time;

use std::sync::atomic::{AtomicBool, Ordering};

/// Says something on standard error that ends the program, or that it asked for.
fn say(text: &str) {
    ecalls_preload::next::say(&format!("ecalls-pthread: {text}"));
}

/// Whether the user wants to know how the library works in this process.
fn is_talkative() -> bool {
    std::env::var_os("ECALLS_THREADS_SAY").is_some()
}

/// Says once why the program's threads are kernel threads.
fn say_once(text: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if is_talkative() && !SAID.swap(true, Ordering::Relaxed) {
        say(text);
    }
}
