//! A channel as a source: events of the kernel become events of the loop.
//!
//! Needs a core: runs as root with `ECALLS_TEST_ROOT=1`, and otherwise says that it does not.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ecalls::Ecalls;
use ecalls::timer::Timer;
use ecalls_loop::{As, Interest, Loop, best_effort};

/// Events that are waited for.
const EVENTS: usize = 20;

#[test]
fn events_of_a_channel_reach_a_loop_that_sleeps_and_one_that_works() {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return;
    }
    let ecalls = Ecalls::open().unwrap();
    for works in [false, true] {
        let channel = ecalls.channel().open().unwrap();
        let caller = channel.caller().clone();
        let subscription = ecalls.subscribe("timer").unwrap().memory(&channel);
        let subscription = subscription.install().unwrap();
        let timer = Timer::every(&caller, Duration::from_millis(1)).unwrap();
        let events = Loop::new().unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let ids = Rc::clone(&seen);
        events
            .watch(
                channel,
                Interest::READABLE,
                As::Timer,
                move |turn, channel, _| {
                    // One at a time: the loop comes again for the rest.
                    let event = channel.try_recv().unwrap();
                    ids.borrow_mut().push(event.id);
                    if ids.borrow().len() == EVENTS {
                        turn.stop();
                    }
                },
            )
            .unwrap();
        if works {
            let work = |turn: &ecalls_loop::Turn<'_>| turn.again(best_effort(0));
            events.submit(best_effort(0), work).unwrap();
        }
        events.run().unwrap();
        assert_eq!(seen.borrow().len(), EVENTS);
        drop((timer, subscription));
    }
}
