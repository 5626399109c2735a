//! Every interleaving of a loop that goes to sleep and threads that submit to it, by loom.
//!
//! The file of the crate is compiled once more, with loom's atomics and lock. A lost wake-up is a
//! reader that waits when nothing runs any more, which loom reports.

#![forbid(unsafe_code)]
#![allow(dead_code, reason = "the models use a part of it")]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

#[path = "../src/mailbox.rs"]
mod mailbox;

use loom::sync::{Arc, Notify};
use loom::thread;
use mailbox::{Mailbox, Refused};

/// Preemptions per run: enough for every known failure of such protocols.
const PREEMPTIONS: usize = 3;

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(run);
}

/// As the loop does: sleep until the bell rings, unless there is something.
fn sleep(mailbox: &Mailbox<u32>, bell: &Notify) {
    if mailbox.may_sleep() {
        bell.wait();
    }
}

fn submit(mailbox: &Mailbox<u32>, bell: &Notify, item: u32) {
    if mailbox.put(item).expect("there is place") {
        bell.notify();
    }
}

/// Takes until `count` items came.
fn read(mailbox: &Mailbox<u32>, bell: &Notify, count: usize) -> Vec<u32> {
    let mut got = Vec::new();
    while got.len() < count {
        let mut taken = Vec::new();
        if mailbox.is_filled() {
            mailbox.take(&mut taken);
        }
        got.append(&mut taken);
        if got.len() < count {
            sleep(mailbox, bell);
        }
    }
    got
}

#[test]
fn reader_that_goes_to_sleep_misses_nothing() {
    model(|| {
        let shared = Arc::new((Mailbox::new(), Notify::new()));
        let writers: Vec<_> = (0..2)
            .map(|item| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || submit(&shared.0, &shared.1, item))
            })
            .collect();
        let mut got = read(&shared.0, &shared.1, 2);
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
        for writer in writers {
            writer.join().expect("no panic");
        }
    });
}

#[test]
fn items_of_one_writer_keep_their_order() {
    model(|| {
        let shared = Arc::new((Mailbox::new(), Notify::new()));
        let theirs = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            submit(&theirs.0, &theirs.1, 1);
            submit(&theirs.0, &theirs.1, 2);
        });
        assert_eq!(read(&shared.0, &shared.1, 2), [1, 2]);
        writer.join().expect("no panic");
    });
}

#[test]
fn last_writer_that_leaves_wakes_the_reader() {
    model(|| {
        let shared = Arc::new((Mailbox::<u32>::new(), Notify::new()));
        shared.0.join();
        let theirs = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            if theirs.0.leave() {
                theirs.1.notify();
            }
        });
        let mut taken = Vec::new();
        while shared.0.has_writers() {
            shared.0.take(&mut taken);
            if shared.0.has_writers() {
                sleep(&shared.0, &shared.1);
            }
        }
        writer.join().expect("no panic");
    });
}

#[test]
fn closed_mailbox_takes_nothing_and_keeps_nothing() {
    model(|| {
        let shared = Arc::new(Mailbox::new());
        let theirs = Arc::clone(&shared);
        let writer = thread::spawn(move || theirs.put(1));
        let left = shared.close();
        let put = writer.join().expect("no panic");
        match put {
            Ok(_) => assert_eq!(left, [1]),
            Err(refused) => {
                assert_eq!(refused, Refused::Closed);
                assert!(left.is_empty());
            }
        }
    });
}
