//! A thread that comes back from the kernel when another one has its processor (SA: `unblock`,
//! `restart`). It was bound to its activation in the kernel, and is not any more.

#![allow(unsafe_code, reason = "it handles signals on a stack of its own")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a handler and its stack are installed and removed in one place"
)]

use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ecalls_threads::{
    KernelSide, Runtime, blocking, kernel_thread, scheduling_point, sleep, spawn, yield_now,
};

fn here() -> u32 {
    kernel_thread().expect("a thread of the runtime")
}

#[test]
fn who_has_the_processor_continues_a_thread_that_came_back() {
    for own_storage in [true, false] {
        let builder = Runtime::builder().processors(1).own_storage(own_storage);
        let ran = builder.kernel(KernelSide::Never).run(|| {
            // 1: the thread has given up the processor; 2: another one has it; 3: both are done.
            let stage = Arc::new(AtomicU32::new(0));
            let seen = Arc::clone(&stage);
            let blocks = spawn(move || {
                let before = here();
                blocking(|| {
                    stage.store(1, Ordering::SeqCst);
                    while stage.load(Ordering::SeqCst) < 2 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                let after = here();
                stage.store(3, Ordering::SeqCst);
                (before, after)
            });
            let other = spawn(move || {
                while seen.load(Ordering::SeqCst) < 1 {
                    yield_now();
                }
                let holder = here();
                seen.store(2, Ordering::SeqCst);
                // It never blocks, so its activation keeps the processor.
                while seen.load(Ordering::SeqCst) < 3 {
                    yield_now();
                }
                holder
            });
            let (before, after) = blocks.join().expect("no panic");
            (before, after, other.join().expect("no panic"))
        });
        let (before, after, holder) = ran.expect("it ends");
        assert_ne!(before, holder, "another activation has taken the processor");
        assert_eq!(after, holder, "and continues the thread");
    }
}

/// The kernel threads before and after a scheduling point in a signal's handler.
static IN_HANDLER: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

extern "C" fn handle(_: i32) {
    IN_HANDLER[0].store(here(), Ordering::SeqCst);
    scheduling_point();
    IN_HANDLER[1].store(here(), Ordering::SeqCst);
}

/// Raises a signal whose handler runs on an alternate stack of the calling kernel thread.
fn raise_on(stack: &mut [u8]) {
    let alternate = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: stack.len(),
    };
    let mut before = alternate;
    // SAFETY: all zeros is one; the stack outlives the handler; the former one comes back.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGUSR2, &raw const action, null_mut());
        libc::sigaltstack(&raw const alternate, &raw mut before);
        libc::raise(libc::SIGUSR2);
        libc::sigaltstack(&raw const before, null_mut());
        libc::sigaction(libc::SIGUSR2, null(), null_mut());
    }
}

/// The stack is the kernel thread's, which would use it for its next thread's handler, too.
#[test]
fn a_handler_on_an_alternate_stack_stays_on_its_kernel_thread() {
    let ran = Runtime::builder()
        .processors(1)
        .kernel(KernelSide::Never)
        .run(|| {
            // 1: the thread has given up the processor; 2: another one has it.
            let stage = Arc::new(AtomicU32::new(0));
            let seen = Arc::clone(&stage);
            let blocks = spawn(move || {
                blocking(|| {
                    stage.store(1, Ordering::SeqCst);
                    while stage.load(Ordering::SeqCst) < 2 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    raise_on(&mut vec![0; 64 << 10]);
                });
            });
            let other = spawn(move || {
                while seen.load(Ordering::SeqCst) < 1 {
                    yield_now();
                }
                seen.store(2, Ordering::SeqCst);
                while IN_HANDLER[0].load(Ordering::SeqCst) == 0 {
                    yield_now();
                }
                // The handler would be continued here, if it had left its kernel thread.
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(50) {
                    yield_now();
                }
                // Nobody has the processor.
                sleep(Duration::from_millis(50));
            });
            blocks.join().expect("no panic");
            other.join().expect("no panic");
        });
    ran.expect("it ends");
    let [before, after] = [0, 1].map(|at: usize| IN_HANDLER[at].load(Ordering::SeqCst));
    assert_ne!(before, 0);
    assert_eq!(after, before);
}
