//! A loop as one of a runtime's tasks: its timers, its sources and other tasks all come to run.

#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ecalls_loop::{As, Fd, Interest, Loop, best_effort, timer};
use rustix::pipe::{PipeFlags, pipe_with};

const MS: u64 = 1_000_000;
/// Nothing here takes that long.
const LIMIT: Duration = Duration::from_secs(60);

async fn drive(events: &Loop) {
    let driven = tokio::time::timeout(LIMIT, ecalls_tokio::drive(events)).await;
    driven.expect("it ends").expect("it runs");
}

/// Each step begins when the one before has happened, however long the process waits for a CPU.
#[tokio::test]
async fn loop_and_tasks_take_turns() {
    let events = Loop::new().expect("a loop");
    let order = Rc::new(RefCell::new(String::new()));
    let note = |what: char| {
        let order = Rc::clone(&order);
        move || order.borrow_mut().push(what)
    };
    let (early, late) = (note('1'), note('3'));
    events
        .submit(timer(events.now_ns() + 10 * MS), move |_| early())
        .expect("submitted");
    let task = note('2');
    let waited_for = events.remote();
    let other = async {
        while order.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        task();
        let release_ns = events.now_ns() + 20 * MS;
        events
            .submit(timer(release_ns), move |_| late())
            .expect("submitted");
        drop(waited_for);
        release_ns
    };
    let ((), release_ns) = tokio::join!(drive(&events), other);
    assert_eq!(*order.borrow(), "123");
    assert!(events.now_ns() >= release_ns);
}

#[tokio::test]
async fn busy_loop_lets_others_run() {
    let events = Loop::new().expect("a loop");
    let (ran, seen) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
    let (steps, stop) = (Rc::clone(&ran), Rc::clone(&seen));
    events
        .submit(best_effort(0), move |turn| {
            steps.set(steps.get() + 1);
            match stop.get() {
                0 => turn.again(best_effort(steps.get())),
                _ => turn.stop(),
            }
        })
        .expect("submitted");
    let other = async {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        seen.set(1);
    };
    tokio::join!(drive(&events), other);
    assert!(ran.get() > 1, "{} pieces", ran.get());
}

/// Each callback leaves something in the pipe: the descriptor never changes, it stays readable.
#[tokio::test]
async fn source_that_stays_ready_comes_again() {
    let events = Loop::new().expect("a loop");
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
    let read = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&read);
    events
        .watch(
            Fd(reader),
            Interest::READABLE,
            As::Timer,
            move |turn, fd, _| {
                let mut byte = [0];
                rustix::io::read(&*fd, &mut byte).expect("a byte");
                seen.borrow_mut().push(byte[0]);
                if byte[0] == b'f' {
                    turn.stop();
                }
            },
        )
        .expect("watched");
    let other = async {
        for part in [b"abc", b"def"] {
            tokio::time::sleep(Duration::from_millis(20)).await;
            rustix::io::write(&writer, part).expect("written");
        }
    };
    tokio::join!(drive(&events), other);
    assert_eq!(*read.borrow(), b"abcdef");
}

#[tokio::test]
async fn other_threads_wake_it() {
    let events = Loop::new().expect("a loop");
    let remote = events.remote();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        remote
            .submit(best_effort(0), |turn| turn.stop())
            .expect("submitted");
    });
    drive(&events).await;
    thread.join().expect("it ends");
}
