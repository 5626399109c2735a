//! The cooperative poll against a simulated scheduler: a thread that reads line 0 of the slots,
//! writes line 1, and lets one loop run at a time, in virtual time (Coop §3.1, §3.2).
//!
//! A loop that yields tells the scheduler and waits until it is chosen. So all is as on one CPU,
//! and every run is the same.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use ecalls_abi::coop::{COOP_COOPERATIVE, COOP_DEMOTED, COOP_NONE, COOP_POLLING};
use ecalls_loop::clock::Clock;
use ecalls_loop::coop::{ASK_AGAIN_NS, Cooperative, Slot, Yield};
use ecalls_loop::{Loop, Timing, best_effort, timer};
use proptest::prelude::*;

/// The words of a slot.
type Memory = Arc<Vec<AtomicU64>>;

const RELEASE: usize = 0;
const IMPORTANCE: usize = 1;
const POLLS: usize = 2;
const FLAGS: usize = 3;
const NEXT_RELEASE: usize = 8;
const LEAST_IMPORTANCE: usize = 9;
const SLICE_END: usize = 10;
const DISPATCH: usize = 11;
const STATE_AND_ANSWERED: usize = 15;

/// How long a thread runs when no release is near.
const SLICE_NS: u64 = 20_000_000;

fn memory() -> Memory {
    Arc::new((0..16).map(|_| AtomicU64::new(0)).collect())
}

fn read(memory: &Memory, word: usize) -> u64 {
    memory[word].load(Ordering::Acquire)
}

fn write(memory: &Memory, word: usize, value: u64) {
    memory[word].store(value, Ordering::Release);
}

/// Answers the poll that `memory` shows.
fn answer(memory: &Memory, slice_end_ns: u64, next_release_ns: u64, least_importance: u64) {
    write(memory, SLICE_END, slice_end_ns);
    write(memory, NEXT_RELEASE, next_release_ns);
    write(memory, LEAST_IMPORTANCE, least_importance);
    let [a, b, c, d] = COOP_COOPERATIVE.to_ne_bytes();
    let [e, f, g, h] = (read(memory, POLLS) as u32).to_ne_bytes();
    let word = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    write(memory, STATE_AND_ANSWERED, word);
}

#[derive(Clone, Debug, Default)]
struct Time(Arc<AtomicU64>);

impl Time {
    fn pass(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::AcqRel);
    }
}

impl Clock for Time {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A scheduler of one thread, as a function that is called at each yield.
struct Scripted<F>(F);

impl<F: FnMut()> Yield for Scripted<F> {
    fn yield_now(&mut self) {
        (self.0)();
    }
}

/// A loop whose polls `scheduler` answers.
fn scripted(time: &Time, slot: &Memory, scheduler: impl FnMut() + 'static) -> Loop {
    let slot = Slot::new(Arc::clone(slot)).unwrap();
    let poll = Cooperative::with_yield(slot, Scripted(scheduler));
    Loop::with_poll(time.clone(), poll).unwrap()
}

/// Submits endless work of this importance, in pieces of `takes_ns`; counts them.
fn work(events: &Loop, time: &Time, importance: u64, takes_ns: u64) -> Rc<Cell<u64>> {
    let pieces = Rc::new(Cell::new(0));
    let (count, time) = (Rc::clone(&pieces), time.clone());
    events
        .submit(best_effort(importance), move |turn| {
            time.pass(takes_ns);
            count.set(count.get() + 1);
            turn.again(best_effort(importance));
        })
        .unwrap();
    pieces
}

/// The scheduler may stop a thread within its slice, for a promised window, and writes line 1 anew
/// when it goes on: with a shorter slice, or demoted.
#[test]
fn events_keep_to_the_slice_that_the_thread_has_now() {
    for state in [COOP_COOPERATIVE, COOP_DEMOTED] {
        let (time, slot) = (Time::default(), memory());
        let theirs = Arc::clone(&slot);
        let now = time.clone();
        let polls = Rc::new(Cell::new(0));
        let polled = Rc::clone(&polls);
        let events = scripted(&time, &slot, move || {
            polled.set(polled.get() + 1);
            answer(&theirs, now.now_ns() + 20, COOP_NONE, COOP_NONE);
            write(&theirs, DISPATCH, now.now_ns());
        });
        let pieces = work(&events, &time, 1, 2);
        let (theirs, now) = (Arc::clone(&slot), time.clone());
        events
            .submit(timer(5), move |_| {
                // It was stopped, and goes on.
                let word = read(&theirs, STATE_AND_ANSWERED) >> 32 << 32 | u64::from(state);
                write(&theirs, STATE_AND_ANSWERED, word);
                write(&theirs, DISPATCH, now.now_ns());
                let end = now.now_ns() + if state == COOP_DEMOTED { 1000 } else { 2 };
                write(&theirs, SLICE_END, end);
            })
            .unwrap();
        let (count, seen) = (Rc::clone(&pieces), Rc::new(Cell::new(0)));
        let (until, at) = (Rc::clone(&polls), Rc::clone(&seen));
        events
            .submit(timer(6), move |turn| {
                assert_eq!(until.get(), 1, "in the first slice");
                at.set(count.get());
                turn.again(timer(u64::MAX / 2));
            })
            .unwrap();
        events.submit(timer(12), |turn| turn.stop()).unwrap();
        events.run().unwrap();
        assert_eq!(polls.get(), 2, "it polled before that slice's 20 ns");
        assert!(pieces.get() > seen.get(), "and went on");
    }
}

#[test]
fn poll_says_release_and_importance_and_that_it_is_one() {
    let (time, slot) = (Time::default(), memory());
    let theirs = Arc::clone(&slot);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let polls = Rc::clone(&seen);
    let events = scripted(&time, &slot, move || {
        let line_0 = [RELEASE, IMPORTANCE, POLLS, FLAGS].map(|word| read(&theirs, word));
        polls.borrow_mut().push(line_0);
        answer(&theirs, COOP_NONE, COOP_NONE, COOP_NONE);
    });
    let outside = Arc::clone(&slot);
    events
        .submit(best_effort(7), move |turn| {
            assert_eq!(read(&outside, FLAGS), 0, "an event is no poll");
            turn.stop();
        })
        .unwrap();
    events.submit(timer(500), |_| {}).unwrap();
    events.run().unwrap();
    assert_eq!(*seen.borrow(), [[500, 7, 1, u64::from(COOP_POLLING)]]);
    assert_eq!(events.timing(), Timing::Cooperative);
}

#[test]
fn best_effort_events_start_only_until_the_slice_ends_or_others_are_due() {
    for (slice_ns, release_ns) in [(350, COOP_NONE), (COOP_NONE, 350), (900, 350), (350, 900)] {
        let (time, slot) = (Time::default(), memory());
        let (theirs, clock) = (Arc::clone(&slot), time.clone());
        let seen = Rc::new(RefCell::new(Vec::new()));
        let polls = Rc::clone(&seen);
        let events = scripted(&time, &slot, move || {
            let now_ns = clock.now_ns();
            polls.borrow_mut().push(now_ns);
            let (slice_end_ns, next_ns) = (slice_ns, release_ns);
            let from_now = |ns: u64| ns.saturating_add(now_ns);
            answer(
                &theirs,
                from_now(slice_end_ns),
                from_now(next_ns),
                COOP_NONE,
            );
        });
        work(&events, &time, 0, 100);
        events.submit(timer(1000), |turn| turn.stop()).unwrap();
        events.run().unwrap();
        // The last piece starts within the slice and is not interrupted.
        assert_eq!(*seen.borrow(), [0, 400, 800]);
    }
}

#[test]
fn slice_of_nothing_is_for_due_timers_alone() {
    let (time, slot) = (Time::default(), memory());
    let theirs = Arc::clone(&slot);
    let polls = Rc::new(Cell::new(0));
    let count = Rc::clone(&polls);
    let clock = time.clone();
    let events = scripted(&time, &slot, move || {
        count.set(count.get() + 1);
        clock.pass(10); // others run
        answer(&theirs, 0, COOP_NONE, COOP_NONE);
    });
    let pieces = work(&events, &time, 0, 100);
    let timers = Rc::new(Cell::new(0));
    for release_ns in [1, 2, 3] {
        let timers = Rc::clone(&timers);
        let run = move |_: &ecalls_loop::Turn<'_>| timers.set(timers.get() + 1);
        events.submit(timer(release_ns), run).unwrap();
    }
    events.submit(timer(95), |turn| turn.stop()).unwrap();
    events.run().unwrap();
    assert_eq!((timers.get(), pieces.get()), (3, 0));
    assert_eq!(polls.get(), 10, "each time it polled at once");
}

#[test]
fn less_important_thread_polls_after_each_event() {
    for (others, polls_per_event) in [(4, true), (5, false), (6, false), (COOP_NONE, false)] {
        let (time, slot) = (Time::default(), memory());
        let theirs = Arc::clone(&slot);
        let polls = Rc::new(Cell::new(0));
        let count = Rc::clone(&polls);
        let events = scripted(&time, &slot, move || {
            count.set(count.get() + 1);
            answer(&theirs, COOP_NONE, COOP_NONE, others);
        });
        let pieces = work(&events, &time, 5, 100);
        events.submit(timer(1000), |turn| turn.stop()).unwrap();
        events.run().unwrap();
        assert_eq!(pieces.get(), 10);
        assert_eq!(
            polls.get(),
            if polls_per_event { 10 } else { 1 },
            "{others}"
        );
    }
}

#[test]
fn without_a_scheduler_the_loop_runs_on_and_seldom_yields() {
    let (time, slot) = (Time::default(), memory());
    let yields = Rc::new(Cell::new(0));
    let count = Rc::clone(&yields);
    let events = scripted(&time, &slot, move || count.set(count.get() + 1));
    let pieces = work(&events, &time, 0, ASK_AGAIN_NS / 10_000);
    let stop = timer(2 * ASK_AGAIN_NS + ASK_AGAIN_NS / 2);
    events.submit(stop, |turn| turn.stop()).unwrap();
    events.run().unwrap();
    assert_eq!((pieces.get(), yields.get()), (25_000, 3));
    assert_eq!(events.timing(), Timing::Plain);
}

#[test]
fn scheduler_that_comes_back_is_noticed() {
    let (time, slot) = (Time::default(), memory());
    let theirs = Arc::clone(&slot);
    let clock = time.clone();
    let is_there = |now_ns| !(1_000_000..ASK_AGAIN_NS).contains(&now_ns);
    let events = scripted(&time, &slot, move || {
        let now_ns = clock.now_ns();
        if is_there(now_ns) {
            answer(&theirs, now_ns + 100_000, COOP_NONE, COOP_NONE);
        }
    });
    work(&events, &time, 0, 50_000);
    let seen = Rc::new(RefCell::new(Vec::new()));
    for release_ns in [500_000, 50_000_000, 3 * ASK_AGAIN_NS] {
        let seen = Rc::clone(&seen);
        let run = move |turn: &ecalls_loop::Turn<'_>| {
            seen.borrow_mut().push(turn.timing());
            if release_ns > ASK_AGAIN_NS {
                turn.stop();
            }
        };
        events.submit(timer(release_ns), run).unwrap();
    }
    events.run().unwrap();
    let expected = [Timing::Cooperative, Timing::Plain, Timing::Cooperative];
    assert_eq!(*seen.borrow(), expected);
}

proptest! {
    #[test]
    fn any_answer_leaves_timers_in_order(lines in prop::collection::vec(any::<[u64; 7]>(), 1..40)) {
        let (time, slot) = (Time::default(), memory());
        let (theirs, clock) = (Arc::clone(&slot), time.clone());
        let mut lines = lines.into_iter().cycle();
        let events = scripted(&time, &slot, move || {
            clock.pass(50);
            answer(&theirs, 0, 0, 0);
            let line = lines.next().unwrap_or_default();
            for (word, value) in (NEXT_RELEASE..).zip(line) {
                // Times near now, too.
                let value = if value % 2 == 0 { value % 10_000 } else { value };
                write(&theirs, word, value);
            }
        });
        work(&events, &time, 5, 100);
        let last = Rc::new(Cell::new(0));
        for release_ns in (0..10).rev().map(|number| number * 500) {
            let last = Rc::clone(&last);
            let run = move |turn: &ecalls_loop::Turn<'_>| {
                assert!(release_ns >= last.replace(release_ns));
                assert!(turn.tardiness_ns() <= 100);
                if release_ns == 4500 {
                    turn.stop();
                }
            };
            events.submit(timer(release_ns), run).unwrap();
        }
        events.run().unwrap();
        prop_assert_eq!(last.get(), 4500);
    }
}

/// What the running thread tells the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Yields,
    Ends,
}

/// The side of a loop: tells the scheduler that it yields, and waits until it is chosen.
struct Turnstile {
    to_scheduler: Sender<Said>,
    chosen: Receiver<()>,
}

impl Yield for Turnstile {
    fn yield_now(&mut self) {
        self.to_scheduler.send(Said::Yields).expect("it listens");
        self.chosen.recv().expect("it chooses somebody");
    }
}

impl Drop for Turnstile {
    fn drop(&mut self) {
        self.to_scheduler.send(Said::Ends).expect("it listens");
    }
}

/// Coop §3.2 on one CPU, for threads of one group that always have work: due releases first, with
/// a slice of nothing; else the least importance, until the earliest release.
fn schedule(time: &Time, slots: &[Memory], told: &Receiver<Said>, chosen: &[Sender<()>]) {
    for _ in slots {
        assert_eq!(told.recv().expect("all begin"), Said::Yields);
    }
    let mut threads: Vec<usize> = (0..slots.len()).collect();
    while !threads.is_empty() {
        let now_ns = time.now_ns();
        let key = |word: usize| move |thread: &usize| read(&slots[*thread], word);
        let least = |word| threads.iter().copied().min_by_key(key(word));
        let earliest = least(RELEASE).expect("there is a thread");
        let release_ns = read(&slots[earliest], RELEASE);
        let (thread, slice_end_ns) = if release_ns <= now_ns {
            (earliest, now_ns)
        } else {
            let important = least(IMPORTANCE).expect("there is a thread");
            (important, release_ns.min(now_ns + SLICE_NS))
        };
        let others = || threads.iter().filter(|other| **other != thread);
        let least = |word| others().map(key(word)).min().unwrap_or(COOP_NONE);
        let (next_release_ns, importance) = (least(RELEASE), least(IMPORTANCE));
        answer(&slots[thread], slice_end_ns, next_release_ns, importance);
        chosen[thread].send(()).expect("it waits");
        if told.recv().expect("it runs") == Said::Ends {
            threads.retain(|other| *other != thread);
        }
    }
}

/// What one thread of the group did.
#[derive(Clone, Copy, Debug)]
struct Report {
    frames: u64,
    tardiness_ns_max: u64,
}

/// Threads whose frames cost `frame_ns[i]` each, in one group by frames, until `end_ns`.
fn players(frame_ns: &[u64], chunk_ns: u64, end_ns: u64) -> Vec<Report> {
    let time = Time::default();
    let slots: Vec<Memory> = frame_ns.iter().map(|_| memory()).collect();
    let (to_scheduler, told) = channel();
    let reports = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let mut gates = Vec::new();
        for (me, frame_ns) in frame_ns.iter().copied().enumerate() {
            let (gate, chosen) = channel();
            gates.push(gate);
            let turnstile = Turnstile {
                to_scheduler: to_scheduler.clone(),
                chosen,
            };
            let (time, slot, reports) = (time.clone(), Arc::clone(&slots[me]), &reports);
            scope.spawn(move || {
                let poll = Cooperative::with_yield(Slot::new(slot).unwrap(), turnstile);
                let report = play(&time, poll, frame_ns, chunk_ns, end_ns);
                reports.lock().unwrap().push((me, report));
            });
        }
        drop(to_scheduler);
        let (time, slots) = (time.clone(), &slots);
        scope.spawn(move || schedule(&time, slots, &told, &gates));
    });
    let mut reports = reports.into_inner().unwrap();
    reports.sort_by_key(|(me, _)| *me);
    reports.into_iter().map(|(_, report)| report).collect()
}

fn play(
    time: &Time,
    poll: Cooperative<Memory, Turnstile>,
    frame_ns: u64,
    chunk_ns: u64,
    end_ns: u64,
) -> Report {
    let events = Loop::with_poll(time.clone(), poll).unwrap();
    let frames = Rc::new(Cell::new(0));
    let (count, clock) = (Rc::clone(&frames), time.clone());
    let mut left_ns = frame_ns;
    events
        .submit(best_effort(0), move |turn| {
            clock.pass(chunk_ns);
            left_ns -= chunk_ns;
            if left_ns == 0 {
                left_ns = frame_ns;
                count.set(count.get() + 1);
            }
            turn.again(best_effort(count.get()));
        })
        .unwrap();
    let period_ns = 1_000_000 + frame_ns;
    events
        .submit(timer(period_ns), move |turn| {
            if turn.start_ns() > end_ns {
                return turn.stop();
            }
            turn.again(timer(turn.start_ns() + period_ns));
        })
        .unwrap();
    events.run().unwrap();
    Report {
        frames: frames.get(),
        tardiness_ns_max: events.tardiness().max_ns,
    }
}

#[test]
fn players_of_one_group_have_the_same_frame_rate_and_keep_time() {
    const CHUNK_NS: u64 = 20_000;
    let frames_ns = [100_000, 200_000, 700_000];
    let reports = players(&frames_ns, CHUNK_NS, 1_000_000_000);
    let frames: Vec<u64> = reports.iter().map(|report| report.frames).collect();
    let (least, most) = (frames.iter().min(), frames.iter().max());
    let (least, most) = (*least.unwrap(), *most.unwrap());
    assert!(least > 900 && most - least <= 2, "{reports:?}");
    for report in &reports {
        assert!(report.tardiness_ns_max <= CHUNK_NS, "{reports:?}");
    }
}
