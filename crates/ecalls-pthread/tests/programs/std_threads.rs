//! Threads as programs in Rust use them. Ignored here: `main.rs` executes these in a process whose
//! threads are user-level threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};

#[test]
#[ignore = "the_standard_library_of_rust_works executes it"]
fn scoped_threads_share_a_mutex() {
    let sum = Mutex::new(0_u64);
    thread::scope(|scope| {
        for number in 0..64 {
            let sum = &sum;
            scope.spawn(move || {
                for _ in 0..100 {
                    let mut sum = sum.lock().expect("no panic");
                    let before = *sum;
                    thread::yield_now();
                    *sum = before + number;
                }
            });
        }
    });
    assert_eq!(*sum.lock().expect("no panic"), 100 * 63 * 32);
}

#[test]
#[ignore = "the_standard_library_of_rust_works executes it"]
fn channels_pass_on_in_order() {
    let (first, mut last) = channel::<u64>();
    let mut threads = Vec::new();
    for _ in 0..100 {
        let (to, next) = channel();
        let from = std::mem::replace(&mut last, next);
        threads.push(thread::spawn(move || {
            for number in from {
                if to.send(number + 1).is_err() {
                    return;
                }
            }
        }));
    }
    for number in 0..20 {
        first.send(number).expect("it receives");
    }
    drop(first);
    assert_eq!(
        last.iter().collect::<Vec<_>>(),
        (100..120).collect::<Vec<_>>()
    );
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
}

#[test]
#[ignore = "the_standard_library_of_rust_works executes it"]
fn conditions_have_time_limits() {
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    let begun = Instant::now();
    let guard = pair.0.lock().expect("no panic");
    let limit = Duration::from_millis(30);
    let (guard, result) = pair
        .1
        .wait_timeout_while(guard, limit, |done| !*done)
        .expect("no panic");
    assert!(result.timed_out() && begun.elapsed() >= limit);
    drop(guard);
    let other = Arc::clone(&pair);
    let setter = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        *other.0.lock().expect("no panic") = true;
        other.1.notify_all();
    });
    let guard = pair.0.lock().expect("no panic");
    assert!(*pair.1.wait_while(guard, |done| !*done).expect("no panic"));
    setter.join().expect("no panic");
}

#[test]
#[ignore = "the_standard_library_of_rust_works executes it"]
fn a_panic_is_given_to_whoever_joins() {
    let panicked = thread::spawn(|| std::panic::panic_any(7_u32)).join();
    assert_eq!(panicked.expect_err("a panic").downcast_ref(), Some(&7_u32));
}

#[test]
#[ignore = "the_standard_library_of_rust_works executes it"]
fn variables_of_threads_are_their_own_and_are_destroyed() {
    static DESTROYED: AtomicU64 = AtomicU64::new(0);
    struct Own(Cell<u64>);
    impl Drop for Own {
        fn drop(&mut self) {
            DESTROYED.fetch_add(self.0.get(), Ordering::SeqCst);
        }
    }
    thread_local!(static OWN: Own = const { Own(Cell::new(0)) });
    let barrier = Barrier::new(50);
    let once = OnceLock::new();
    let lock = RwLock::new(0);
    thread::scope(|scope| {
        for number in 0..50 {
            let (barrier, once, lock) = (&barrier, &once, &lock);
            scope.spawn(move || {
                OWN.with(|own| own.0.set(number));
                once.get_or_init(|| thread::sleep(Duration::from_millis(2)));
                barrier.wait();
                *lock.write().expect("no panic") += 1;
                assert!(*lock.read().expect("no panic") > 0);
                OWN.with(|own| assert_eq!(own.0.get(), number));
            });
        }
    });
    // A thread's variables are destroyed before whoever joins goes on, but a scope does not join.
    let begun = Instant::now();
    while DESTROYED.load(Ordering::SeqCst) < 49 * 25 && begun.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 49 * 25);
}

#[test]
#[ignore = "the_standard_library_of_rust_works executes it"]
fn a_parked_thread_is_unparked() {
    let may_go = Arc::new(AtomicBool::new(false));
    let waits_for = Arc::clone(&may_go);
    let waits = thread::spawn(move || {
        let begun = Instant::now();
        let pause = Duration::from_millis(20);
        while begun.elapsed() < pause {
            thread::park_timeout(pause);
        }
        // On a slow machine the token is used up by now.
        while !waits_for.load(Ordering::SeqCst) {
            thread::park();
        }
    });
    thread::sleep(Duration::from_millis(40));
    may_go.store(true, Ordering::SeqCst);
    waits.thread().unpark();
    waits.join().expect("no panic");
}
