//! Thread-local storage belongs to the user-level thread, on whichever kernel thread it runs.
//!
//! Without storage of their own, the same threads read each other's variables: the first test was
//! seen to fail then.

#![allow(unsafe_code, reason = "errno as C has it")]

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ecalls_threads::{Runtime, spawn, yield_now};

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Whether threads have storage of their own here; if not, says so.
fn has_storage() -> bool {
    let has = Runtime::builder()
        .processors(1)
        .start()
        .expect("a runtime")
        .has_own_storage();
    if !has {
        println!("not run: it needs glibc on x86-64");
    }
    has
}

fn errno() -> &'static Cell<i32> {
    // SAFETY: it returns an address.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: the calling thread's variable, for as long as the thread lives.
    unsafe { &*at.cast::<Cell<i32>>() }
}

#[test]
fn variables_follow_their_thread() {
    if !has_storage() {
        return;
    }
    let wrong = Runtime::builder()
        .processors(2)
        .run(|| {
            let wrong = Arc::new(AtomicU64::new(0));
            let threads: Vec<_> = (1..=64_u64)
                .map(|number| {
                    let wrong = Arc::clone(&wrong);
                    spawn(move || {
                        // Kept across all switches, as compilers keep it.
                        let kept = errno();
                        NUMBER.set(number);
                        let mut texts = Vec::new();
                        for round in 0..500_u64 {
                            let code = i32::try_from(number).unwrap();
                            kept.set(code);
                            let text = format!("{number} {round}");
                            TEXT.with_borrow_mut(|own| own.clone_from(&text));
                            yield_now();
                            let is_right = kept.get() == code
                                && NUMBER.get() == number
                                && TEXT.with_borrow(|own| *own == text)
                                && text == format!("{number} {round}");
                            wrong.fetch_add(u64::from(!is_right), Ordering::Relaxed);
                            texts.push(text);
                            texts.truncate(40);
                        }
                    })
                })
                .collect();
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            wrong.load(Ordering::Relaxed)
        })
        .unwrap();
    assert_eq!(wrong, 0, "of 32,000 rounds");
}

#[test]
fn a_thread_begins_with_initial_values_and_its_variables_are_dropped() {
    struct Counts(Arc<AtomicU64>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local!(static COUNTS: RefCell<Option<Counts>> = const { RefCell::new(None) });
    if !has_storage() {
        return;
    }
    let dropped = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&dropped);
    Runtime::builder()
        .processors(2)
        .run(move || {
            for _ in 0..100 {
                let counter = Arc::clone(&counter);
                let thread = spawn(move || {
                    assert_eq!(NUMBER.get(), 0);
                    assert!(COUNTS.with_borrow(Option::is_none));
                    NUMBER.set(7);
                    COUNTS.set(Some(Counts(counter)));
                });
                thread.join().unwrap();
            }
        })
        .unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 100);
}

/// malloc's caches are per block; a block that is used again keeps them.
#[test]
fn threads_that_come_and_go_leak_no_memory() {
    fn resident() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }
    if !has_storage() {
        return;
    }
    let grown = Runtime::builder()
        .processors(1)
        .run(|| {
            let turn = || {
                let threads: Vec<_> = (0..100)
                    .map(|_| {
                        spawn(|| {
                            (1..20)
                                .map(|size| vec![1_u8; 16 * size])
                                .map(|v| v.len())
                                .sum::<usize>()
                        })
                    })
                    .collect();
                threads
                    .into_iter()
                    .for_each(|thread| assert!(thread.join().unwrap() > 0));
            };
            (0..10).for_each(|_| turn());
            let before = resident();
            (0..200).for_each(|_| turn());
            resident().saturating_sub(before)
        })
        .unwrap();
    assert!(grown < 4 << 20, "20,000 threads left {grown} bytes");
}
