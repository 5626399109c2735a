//! The loop with the kernel's own timers, descriptors and threads. Nothing here measures how long
//! anything takes.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ecalls_loop::clock::{Clock, Monotonic};
use ecalls_loop::{As, Error, Fd, Interest, Loop, Next, Source, Timing, best_effort, timer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{read, write};
use rustix::pipe::pipe;

#[test]
fn timer_runs_at_its_release_and_not_before() {
    let events = Loop::new().unwrap();
    assert_eq!(events.timing(), Timing::Plain);
    let start_ns = events.now_ns();
    let runs = Rc::new(Cell::new(0));
    for after_ns in [2_000_000, 1_000_000, 0] {
        let runs = Rc::clone(&runs);
        let release_ns = start_ns + after_ns;
        let run = move |turn: &ecalls_loop::Turn<'_>| {
            assert!(turn.start_ns() >= release_ns);
            assert!(Monotonic.now_ns() >= release_ns);
            runs.set(runs.get() + 1);
        };
        events.submit(timer(release_ns), run).unwrap();
    }
    events.run().unwrap();
    assert_eq!((runs.get(), events.tardiness().timers), (3, 3));
}

#[test]
fn loop_without_anything_to_wait_for_ends() {
    let events = Loop::new().unwrap();
    events.run().unwrap();
    assert!(events.is_empty());
    assert_eq!(events.turn().unwrap(), Next::Over);
}

#[test]
fn stop_before_run_is_not_forgotten_and_counts_once() {
    let events = Loop::new().unwrap();
    events.submit(best_effort(0), |turn| turn.stop()).unwrap();
    events.submit(best_effort(1), |_| {}).unwrap();
    events.stop();
    events.run().unwrap();
    assert_eq!(events.len(), 2);
    events.run().unwrap();
    assert_eq!(events.len(), 1);
    events.run().unwrap();
    assert!(events.is_empty());
}

#[test]
fn thread_has_one_loop_at_a_time() {
    let first = Loop::new().unwrap();
    assert!(matches!(Loop::new(), Err(Error::SecondLoop)));
    let other = thread::spawn(|| Loop::new().is_ok());
    assert!(other.join().unwrap(), "another thread has its own");
    drop(first);
    Loop::new().unwrap();
}

#[test]
fn event_cannot_run_its_loop() {
    let events = Loop::new().unwrap();
    let run = |turn: &ecalls_loop::Turn<'_>| {
        assert!(matches!(turn.run(), Err(Error::Running)));
        assert!(matches!(turn.turn(), Err(Error::Running)));
    };
    events.submit(best_effort(0), run).unwrap();
    events.run().unwrap();
    assert!(events.is_empty());
}

#[test]
fn loop_goes_on_after_a_callback_that_panicked() {
    let events = Loop::new().unwrap();
    events.submit(best_effort(0), |_| panic!("mine")).unwrap();
    let done = Rc::new(Cell::new(false));
    let mark = Rc::clone(&done);
    let run = move |_: &ecalls_loop::Turn<'_>| mark.set(true);
    events.submit(best_effort(1), run).unwrap();
    let run = std::panic::AssertUnwindSafe(|| events.run());
    std::panic::catch_unwind(run).unwrap_err();
    events.stop();
    events.run().unwrap();
    assert!(!done.get());
    events.submit(best_effort(2), |turn| turn.stop()).unwrap();
    events.run().unwrap();
    assert!(done.get());
}

#[test]
fn cancelled_event_is_dropped_where_it_may_use_the_loop() {
    struct Cancels(Rc<Loop>, ecalls_loop::Event);
    impl Drop for Cancels {
        fn drop(&mut self) {
            assert!(self.0.cancel(self.1));
        }
    }
    let events = Rc::new(Loop::new().unwrap());
    let other = events.submit(timer(u64::MAX), |_| {}).unwrap();
    let guard = Cancels(Rc::clone(&events), other);
    let event = events.submit(timer(u64::MAX), move |_| {
        let _ = &guard;
    });
    assert!(events.cancel(event.unwrap()));
    assert!(events.is_empty());
}

#[test]
fn name_of_another_loop_means_nothing() {
    let ours = Loop::new().unwrap();
    let event = ours.submit(best_effort(0), |_| {}).unwrap();
    let theirs = thread::spawn(move || {
        let theirs = Loop::new().unwrap();
        theirs.submit(best_effort(0), |_| {}).unwrap();
        (theirs.cancel(event), theirs.resubmit(event, timer(0)))
    });
    assert_eq!(theirs.join().unwrap(), (false, false));
    assert!(ours.cancel(event));
}

/// Reads a byte of `end` each time it is readable, and notes it; ends the watch at 0.
fn reader(events: &Loop, end: OwnedFd, kind: As) -> Rc<RefCell<Vec<u8>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let bytes = Rc::clone(&seen);
    let name = Rc::new(Cell::new(None));
    let own = Rc::clone(&name);
    let watch = events
        .watch(
            Fd(end),
            Interest::READABLE,
            kind,
            move |turn, end, ready| {
                assert!(ready.readable);
                let mut byte = [0];
                if read(&end.0, &mut byte).unwrap() == 0 {
                    let own = own.get().unwrap();
                    assert!(turn.unwatch(own));
                    assert!(!turn.unwatch(own));
                } else {
                    bytes.borrow_mut().push(byte[0]);
                }
            },
        )
        .unwrap();
    name.set(Some(watch));
    seen
}

#[test]
fn descriptor_comes_again_while_it_is_ready_and_until_it_is_unwatched() {
    for kind in [As::Timer, As::BestEffort(3)] {
        let (theirs, ours) = pipe().unwrap();
        let events = Loop::new().unwrap();
        let seen = reader(&events, theirs, kind);
        let writer = thread::spawn(move || {
            for byte in 1..=5 {
                write(&ours, &[byte]).unwrap();
                thread::yield_now();
            }
        });
        events.run().unwrap();
        writer.join().unwrap();
        assert_eq!(*seen.borrow(), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn busy_loop_sees_descriptors_too() {
    let (theirs, ours) = pipe().unwrap();
    let events = Loop::new().unwrap();
    let seen = reader(&events, theirs, As::Timer);
    let noticed = Rc::clone(&seen);
    let mut ours = Some(ours);
    events
        .submit(best_effort(0), move |turn| match noticed.borrow().len() {
            0 if turn.when() == best_effort(0) => {
                write(ours.as_ref().unwrap(), &[7]).unwrap();
                turn.again(best_effort(1));
            }
            0 => turn.again(best_effort(1)),
            _ => ours = None,
        })
        .unwrap();
    events.run().unwrap();
    assert_eq!(*seen.borrow(), [7]);
}

#[test]
fn best_effort_source_waits_for_more_important_work() {
    let (theirs, ours) = pipe().unwrap();
    write(&ours, &[1]).unwrap();
    drop(ours);
    let events = Loop::new().unwrap();
    let seen = reader(&events, theirs, As::BestEffort(10));
    let mut left = 2000;
    let noticed = Rc::clone(&seen);
    events
        .submit(best_effort(0), move |turn| {
            assert!(noticed.borrow().is_empty());
            left -= 1;
            if left > 0 {
                turn.again(best_effort(5));
            }
        })
        .unwrap();
    events.run().unwrap();
    assert_eq!(*seen.borrow(), [1]);
}

/// Ready `left` times without its descriptor: as a channel in which events wait.
struct Counted {
    fd: OwnedFd,
    left: Rc<Cell<u32>>,
}

impl AsFd for Counted {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Source for Counted {
    fn arm(&mut self) -> bool {
        self.left.get() == 0
    }
}

#[test]
fn source_that_cannot_be_armed_comes_at_once() {
    let (theirs, _ours) = pipe().unwrap();
    let left = Rc::new(Cell::new(3));
    let source = Counted {
        fd: theirs,
        left: Rc::clone(&left),
    };
    let events = Loop::new().unwrap();
    events
        .watch(
            source,
            Interest::READABLE,
            As::BestEffort(0),
            |turn, source, _| {
                source.left.set(source.left.get() - 1);
                if source.left.get() == 0 {
                    turn.stop();
                }
            },
        )
        .unwrap();
    events.run().unwrap();
    assert_eq!(left.get(), 0);
}

#[test]
fn other_threads_submit_and_the_loop_waits_for_them() {
    const THREADS: u64 = 4;
    const EACH: u64 = 500;
    let events = Loop::new().unwrap();
    let sum = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (remote, sum) = (events.remote(), Arc::clone(&sum));
            thread::spawn(move || {
                for number in 1..=EACH {
                    let sum = Arc::clone(&sum);
                    let add = move |_: &ecalls_loop::Turn<'_>| {
                        sum.fetch_add(number, Ordering::Relaxed);
                    };
                    remote.submit(best_effort(number), add).unwrap();
                    if number % 50 == 0 {
                        thread::yield_now(); // let the loop go to sleep at times
                    }
                }
            })
        })
        .collect();
    events.run().unwrap();
    assert_eq!(sum.load(Ordering::Relaxed), THREADS * EACH * (EACH + 1) / 2);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn remote_stops_a_sleeping_loop_and_outlives_it() {
    let events = Loop::new().unwrap();
    let remote = events.remote();
    let theirs = remote.clone();
    let stopper = thread::spawn(move || theirs.stop());
    events.run().unwrap();
    stopper.join().unwrap().unwrap();
    drop(events);
    assert!(matches!(remote.stop(), Err(Error::Closed)));
}

#[test]
fn remote_refuses_more_than_may_wait() {
    let events = Loop::new().unwrap();
    let remote = events.remote();
    for _ in 0..ecalls_loop::REMOTE_MAX {
        remote.submit(timer(0), |_| {}).unwrap();
    }
    let refused = remote.stop();
    assert!(
        matches!(refused, Err(Error::LimitReached { .. })),
        "{refused:?}"
    );
    drop(remote);
    events.run().unwrap();
    assert_eq!(events.tardiness().timers, ecalls_loop::REMOTE_MAX as u64);
}

/// Sleeps as another event loop would, on the descriptor alone.
fn sleep(events: &Loop) {
    poll(&mut [PollFd::new(events, PollFlags::IN)], None).unwrap();
}

#[test]
fn another_event_loop_drives_it_by_its_descriptor() {
    let (theirs, ours) = pipe().unwrap();
    let events = Loop::new().unwrap();
    let seen = reader(&events, theirs, As::Timer);
    let remote = events.remote();
    let far = events.submit(timer(u64::MAX / 2), |_| {}).unwrap();
    assert_eq!(events.turn().unwrap(), Next::At(u64::MAX / 2));
    assert!(events.cancel(far));
    assert_eq!(events.turn().unwrap(), Next::Ready);
    let release_ns = events.now_ns() + 1_000_000;
    let run = move |turn: &ecalls_loop::Turn<'_>| {
        assert!(turn.start_ns() >= release_ns);
        write(&ours, &[9]).unwrap();
        let remote = remote.clone();
        thread::spawn(move || remote.stop().unwrap());
    };
    events.submit(timer(release_ns), run).unwrap();
    loop {
        match events.turn().unwrap() {
            Next::Now => {}
            Next::Over => break,
            Next::At(_) | Next::Ready => sleep(&events),
        }
    }
    events.run().unwrap();
    assert_eq!(*seen.borrow(), [9]);
}
