//! Every interleaving of the protocols between activations, by loom: the crate's files are compiled
//! once more, with loom's atomics.
//!
//! loom knows no asymmetric fence: both sides have a whole one, as where membarrier(2) is refused.

#![allow(
    unsafe_code,
    dead_code,
    reason = "the models use a part of the files, and two of them have unsafe code"
)]

mod sync {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence,
    };

    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_fence() {
        fence(Ordering::SeqCst);
    }

    /// A guest gives up at once, since loom has no time.
    pub(crate) struct Patience(bool);

    impl Patience {
        pub(crate) fn new() -> Self {
            Self(false)
        }

        pub(crate) fn is_over(&self) -> bool {
            self.0
        }

        pub(crate) fn wait(&mut self) {
            self.0 = true;
            loom::thread::yield_now();
        }
    }
}

#[path = "../src/biased.rs"]
mod biased;
#[path = "../src/processor.rs"]
mod processor;
#[allow(unreachable_pub, reason = "in the crate it is public")]
#[path = "../src/request.rs"]
mod request;
#[path = "../src/word.rs"]
mod word;

use biased::Biased;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use processor::{Linked, Unblocked, Words};
use request::Request;
use sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use word::{Notified, WaitWord};

/// Preemptions per run: enough for every known failure of such protocols.
const PREEMPTIONS: usize = 3;

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(run);
}

#[test]
fn a_value_has_its_owner_or_a_guest_never_both() {
    model(|| {
        let value = Arc::new(Biased::new(UnsafeCell::new(0_u32)));
        let guests: Vec<_> = (0..2)
            .map(|_| {
                let value = Arc::clone(&value);
                thread::spawn(move || {
                    let visited = value.visit(|cell| {
                        // SAFETY: loom reports a second access at the same time.
                        cell.with_mut(|number| unsafe { *number += 1 });
                    });
                    u32::from(visited.is_some())
                })
            })
            .collect();
        let add = |cell: &mut UnsafeCell<u32>| {
            // SAFETY: as above.
            cell.with_mut(|number| unsafe { *number += 1 });
        };
        // SAFETY: this thread is the only owner.
        unsafe { value.own(add) };
        let visits: u32 = guests.into_iter().map(|guest| guest.join().unwrap()).sum();
        let read = |cell: &mut UnsafeCell<u32>| {
            // SAFETY: as above.
            cell.with(|number| unsafe { *number })
        };
        // SAFETY: as above.
        let total = unsafe { value.own(read) };
        assert_eq!(total, 1 + visits);
    });
}

#[test]
fn of_two_wakers_one_wakes_a_thread_that_goes_to_wait() {
    model(|| {
        let word = Arc::new(WaitWord::new());
        let epoch = word.epoch();
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let word = Arc::clone(&word);
                thread::spawn(move || word.notify(epoch))
            })
            .collect();
        let settled = word.settle();
        let told: Vec<_> = wakers
            .into_iter()
            .map(|waker| waker.join().unwrap())
            .collect();
        let late = told.iter().filter(|told| **told == Notified::Late).count();
        assert_eq!(late, 1, "{told:?}");
        let waiting = told.contains(&Notified::Waiting);
        assert_eq!(
            settled, waiting,
            "the scheduler or one waker makes it ready: {told:?}"
        );
        word.resume();
        assert_eq!(
            word.notify(epoch),
            Notified::Late,
            "the next epoch is another one"
        );
    });
}

/// A thread that came back.
struct Thread {
    number: u32,
    next: AtomicPtr<Thread>,
}

impl Thread {
    fn new(number: u32) -> std::sync::Arc<Self> {
        let next = AtomicPtr::new(std::ptr::null_mut());
        std::sync::Arc::new(Self { number, next })
    }
}

impl Linked for Thread {
    fn next(&self) -> &AtomicPtr<Self> {
        &self.next
    }
}

fn words() -> Words {
    Words {
        active: AtomicU32::new(0),
        spares: AtomicU32::new(0),
        told: AtomicU64::new(0),
        untold: AtomicU64::new(0),
    }
}

#[test]
fn a_processor_that_is_free_has_one_taker() {
    model(|| {
        let words = Arc::new(words());
        words.spares.store(2, Ordering::SeqCst);
        words.active.store(1, Ordering::SeqCst);
        // The holder blocks, and comes back; a spare looks.
        let spare = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.take_as_spare(2))
        };
        assert!(words.leave());
        let is_back = words.take(1);
        let taken = spare.join().unwrap();
        assert!(!(is_back && taken));
        let active = words.active();
        assert_eq!(active, if is_back { 1 } else { 2 * u32::from(taken) });
        assert_eq!(words.spares.load(Ordering::SeqCst), 2 - u32::from(taken));
    });
}

#[test]
fn whoever_comes_back_is_chosen_or_has_the_processor() {
    model(|| {
        let words = Arc::new(words());
        let unblocked = Arc::new(Unblocked::new());
        // Activation 1 has blocked, 2 has the processor and retires, having found nothing to do.
        words.active.store(2, Ordering::SeqCst);
        let back = {
            let (words, unblocked) = (Arc::clone(&words), Arc::clone(&unblocked));
            thread::spawn(move || {
                if words.take(1) {
                    return true;
                }
                // It hands in its thread, and is a spare that looks.
                words.add_spare();
                unblocked.push(Thread::new(1));
                sync::heavy_fence();
                words.take_as_spare(1)
            })
        };
        words.retire();
        sync::heavy_fence();
        let seen = !unblocked.is_empty() && words.take_as_spare(2);
        let has_it = back.join().unwrap();
        assert!(has_it || seen, "nobody would run the thread");
        let mut left = 0;
        unblocked.take_all(|_| left += 1);
        assert!(left == 0 || words.spares.load(Ordering::SeqCst) == 1);
    });
}

#[test]
fn threads_that_come_back_at_the_same_time_are_all_found() {
    model(|| {
        let unblocked = Arc::new(Unblocked::new());
        let pushers: Vec<_> = [1, 2]
            .map(|number| {
                let unblocked = Arc::clone(&unblocked);
                thread::spawn(move || unblocked.push(Thread::new(number)))
            })
            .into_iter()
            .collect();
        let mut found = Vec::new();
        unblocked.take_all(|thread| found.push(thread.number));
        pushers
            .into_iter()
            .for_each(|pusher| pusher.join().unwrap());
        unblocked.take_all(|thread| found.push(thread.number));
        found.sort_unstable();
        assert_eq!(found, [1, 2]);
    });
}

/// A thread that a waker has woken from one wait begins the next one, which nothing but a request
/// to end will end. Either it sees the request before, or who requests ends the wait.
fn request_and_wait(defers: bool) {
    model(move || {
        let request = Arc::new(Request::new());
        let word = Arc::new(WaitWord::new());
        request.set_deferred(defers);
        assert_eq!(word.notify(word.epoch()), Notified::Early);
        let requester = {
            let (request, word) = (Arc::clone(&request), Arc::clone(&word));
            thread::spawn(move || {
                let interrupts = request.request();
                interrupts.then(|| word.notify(word.epoch()))
            })
        };
        word.resume();
        if defers {
            request.set_deferred(false);
        }
        let sees = request.is_due_at_wait();
        let waits = !sees && word.settle();
        let notified = requester.join().expect("no panic");
        let is_woken = notified == Some(Notified::Waiting);
        assert!(!waits || is_woken, "the request is lost");
        assert!(request.is_due(), "the thread sees it after the wait");
    });
}

#[test]
fn a_request_to_end_is_seen_before_a_wait_or_ends_it() {
    request_and_wait(false);
}

#[test]
fn a_request_that_was_deferred_is_seen_before_a_wait_or_ends_it() {
    request_and_wait(true);
}

#[test]
fn a_thread_that_ends_obeys_no_request() {
    model(|| {
        let request = Arc::new(Request::new());
        let requester = {
            let request = Arc::clone(&request);
            thread::spawn(move || request.request())
        };
        request.set_ends();
        assert!(!request.is_due());
        let _interrupts = requester.join().unwrap();
        assert!(!request.is_due() && !request.request());
    });
}
