//! A loop that goes round does not allocate: a periodic timer, best-effort work, a descriptor that
//! is ready now and then.

#![allow(
    unsafe_code,
    reason = "an allocator is unsafe by its trait; this one counts and hands on"
)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ecalls_loop::{As, Fd, Interest, Loop, best_effort, timer};
use rustix::io::{read, write};
use rustix::pipe::pipe;

thread_local! {
    /// Each thread counts its own: the one that waits for the test allocates at any time.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: each call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn loop_that_goes_round_does_not_allocate() {
    const WARM: u64 = 100;
    const ROUNDS: u64 = 1000;
    let events = Loop::new().unwrap();
    let (theirs, ours) = pipe().unwrap();
    let take = |_: &ecalls_loop::Turn<'_>, end: &mut Fd<_>, _| {
        read(&end.0, &mut [0; 16]).unwrap();
    };
    events
        .watch(Fd(theirs), Interest::READABLE, As::BestEffort(0), take)
        .unwrap();
    events
        .submit(best_effort(1), |turn| {
            turn.again(timer(turn.start_ns() + 1));
        })
        .unwrap();
    let (mut round, mut before) = (0, 0);
    let run = move |turn: &ecalls_loop::Turn<'_>| {
        round += 1;
        write(&ours, &[1]).unwrap();
        if round == WARM {
            before = ALLOCATIONS.get();
        }
        if round == WARM + ROUNDS {
            let made = ALLOCATIONS.get() - before;
            assert_eq!(made, 0);
            return turn.stop();
        }
        turn.again(timer(turn.start_ns() + 20_000));
    };
    events.submit(timer(0), run).unwrap();
    events.run().unwrap();
}
