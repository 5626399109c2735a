//! The order in which events run, against a model; in virtual time.
//!
//! A script submits, cancels and moves events, before and while the loop runs; each event takes
//! some time. The model is a plain list from which the next event is picked by the rules of Coop
//! §2.1, said in one line each.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod time;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use ecalls_loop::{Event, Loop, Turn, When, best_effort, timer};
use proptest::prelude::*;
use time::VirtualTime;

/// What an event does when it runs, beside taking time.
#[derive(Clone, Debug)]
enum Act {
    Submit(usize),
    Cancel(usize),
    Move(usize, When),
    Again(When),
}

/// An event of the script.
#[derive(Clone, Debug)]
struct Item {
    when: When,
    takes_ns: u64,
    acts: Vec<Act>,
}

/// Runs per script at most: `Again` may go on forever.
const RUNS_MAX: usize = 60;

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        (0..2_000_u64).prop_map(timer),
        prop_oneof![0..5_u64, Just(u64::MAX)].prop_map(best_effort),
    ]
}

fn script() -> impl Strategy<Value = (Vec<Item>, Vec<usize>)> {
    const ITEMS: usize = 12;
    let act = prop_oneof![
        3 => (0..ITEMS).prop_map(Act::Submit),
        2 => (0..ITEMS).prop_map(Act::Cancel),
        2 => (0..ITEMS, when()).prop_map(|(item, when)| Act::Move(item, when)),
        1 => when().prop_map(Act::Again),
    ];
    let item = (when(), 0..300_u64, prop::collection::vec(act, 0..4)).prop_map(
        |(when, takes_ns, acts)| Item {
            when,
            takes_ns,
            acts,
        },
    );
    (
        prop::collection::vec(item, ITEMS),
        prop::collection::vec(0..ITEMS, 1..8),
    )
}

/// What ran, when, and what each act returned.
type Trace = Vec<(usize, u64, Vec<bool>)>;

/// The loop's run of a script.
struct Player {
    items: Vec<Item>,
    /// The last submission of each item.
    names: RefCell<HashMap<usize, Event>>,
    trace: RefCell<Trace>,
    time: VirtualTime,
}

impl Player {
    fn submit(self: &Rc<Self>, events: &Loop, item: usize) {
        let player = Rc::clone(self);
        let when = self.items[item].when;
        let run = move |turn: &Turn<'_>| player.run(turn, item);
        let name = events.submit(when, run).unwrap();
        self.names.borrow_mut().insert(item, name);
    }

    fn run(self: &Rc<Self>, turn: &Turn<'_>, item: usize) {
        let start_ns = turn.start_ns();
        assert_eq!(start_ns, self.time.now());
        self.time.pass(self.items[item].takes_ns);
        let mut results = Vec::new();
        for act in self.items[item].acts.clone() {
            results.push(match act {
                Act::Submit(other) => {
                    self.submit(turn, other);
                    true
                }
                Act::Cancel(other) => {
                    let name = self.names.borrow().get(&other).copied();
                    name.is_some_and(|name| turn.cancel(name))
                }
                Act::Move(other, when) => {
                    let name = self.names.borrow().get(&other).copied();
                    name.is_some_and(|name| turn.resubmit(name, when))
                }
                Act::Again(when) => {
                    turn.again(when);
                    true
                }
            });
        }
        self.trace.borrow_mut().push((item, start_ns, results));
        if self.trace.borrow().len() == RUNS_MAX {
            turn.stop();
        }
    }
}

fn play(items: &[Item], first: &[usize]) -> Trace {
    let time = VirtualTime::default();
    let events = time.events();
    let player = Rc::new(Player {
        items: items.to_vec(),
        names: RefCell::default(),
        trace: RefCell::default(),
        time,
    });
    for item in first {
        player.submit(&events, *item);
    }
    events.run().unwrap();
    player.trace.take()
}

/// The model: an event that waits.
#[derive(Clone, Debug)]
struct Waiting {
    item: usize,
    name: usize,
    when: When,
    order: usize,
}

#[derive(Default)]
struct Model {
    waiting: Vec<Waiting>,
    names: HashMap<usize, usize>,
    submitted: usize,
    order: usize,
    now_ns: u64,
}

impl Model {
    fn enqueue(&mut self, item: usize, name: usize, when: When) {
        self.order += 1;
        let order = self.order;
        self.waiting.push(Waiting {
            item,
            name,
            when,
            order,
        });
    }

    fn submit(&mut self, items: &[Item], item: usize) {
        self.submitted += 1;
        self.names.insert(item, self.submitted);
        self.enqueue(item, self.submitted, items[item].when);
    }

    /// The rules: due timers by release, else best effort by virtual time, else wait for a timer.
    fn next(&mut self) -> Option<Waiting> {
        let timers = || {
            let timers = self.waiting.iter().filter_map(|event| match event.when {
                When::Timer { release_ns } => Some((release_ns, event.order)),
                When::BestEffort { .. } => None,
            });
            timers.min()
        };
        let work = || {
            let work = self.waiting.iter().filter_map(|event| match event.when {
                When::BestEffort { user_virtual_time } => Some((user_virtual_time, event.order)),
                When::Timer { .. } => None,
            });
            work.min()
        };
        let due = timers().filter(|(release_ns, _)| *release_ns <= self.now_ns);
        let (_, order) = due.or_else(work).or_else(timers)?;
        let at = self.waiting.iter().position(|event| event.order == order)?;
        let event = self.waiting.remove(at);
        if let When::Timer { release_ns } = event.when {
            self.now_ns = self.now_ns.max(release_ns);
        }
        Some(event)
    }

    fn play(items: &[Item], first: &[usize]) -> Trace {
        let mut model = Model::default();
        let mut trace = Trace::new();
        for item in first {
            model.submit(items, *item);
        }
        while trace.len() < RUNS_MAX {
            let Some(event) = model.next() else { break };
            let start_ns = model.now_ns;
            model.now_ns += items[event.item].takes_ns;
            let mut again = None;
            let acts = items[event.item].acts.iter();
            let results = acts.map(|act| model.act(items, &event, act, &mut again));
            let results = results.collect();
            if let Some(when) = again {
                model.enqueue(event.item, event.name, when);
            }
            trace.push((event.item, start_ns, results));
        }
        trace
    }

    fn act(
        &mut self,
        items: &[Item],
        running: &Waiting,
        act: &Act,
        again: &mut Option<When>,
    ) -> bool {
        match act {
            Act::Submit(item) => {
                self.submit(items, *item);
                true
            }
            Act::Again(when) => {
                *again = Some(*when);
                true
            }
            Act::Cancel(item) => {
                let Some(name) = self.names.get(item).copied() else {
                    return false;
                };
                if name == running.name {
                    return again.take().is_some();
                }
                let before = self.waiting.len();
                self.waiting.retain(|event| event.name != name);
                self.waiting.len() < before
            }
            Act::Move(item, when) => {
                let Some(name) = self.names.get(item).copied() else {
                    return false;
                };
                if name == running.name {
                    *again = Some(*when);
                    return true;
                }
                let Some(at) = self.waiting.iter().position(|event| event.name == name) else {
                    return false;
                };
                let event = self.waiting.remove(at);
                self.enqueue(event.item, event.name, *when);
                true
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn events_run_in_the_order_of_the_model((items, first) in script()) {
        prop_assert_eq!(play(&items, &first), Model::play(&items, &first));
    }
}

#[test]
fn late_timers_run_all_and_earliest_release_first() {
    let time = VirtualTime::default();
    let events = time.events();
    let seen = Rc::new(RefCell::new(Vec::new()));
    for release_ns in [30, 10, 20] {
        let seen = Rc::clone(&seen);
        events
            .submit(timer(release_ns), move |turn| {
                seen.borrow_mut().push((release_ns, turn.tardiness_ns()));
            })
            .unwrap();
    }
    time.pass(1000);
    events.run().unwrap();
    assert_eq!(*seen.borrow(), [(10, 990), (20, 980), (30, 970)]);
    assert_eq!(events.tardiness().max_ns, 990);
}

#[test]
fn timers_among_short_work_are_as_late_as_one_piece_of_it() {
    const CHUNK_NS: u64 = 20_000;
    const TIMERS: u64 = 2000;
    let time = VirtualTime::default();
    let events = time.events();
    let chunk = time.clone();
    events
        .submit(best_effort(0), move |turn| {
            chunk.pass(CHUNK_NS);
            turn.again(best_effort(0));
        })
        .unwrap();
    let mut left = TIMERS;
    events
        .submit(timer(1), move |turn| {
            left -= 1;
            match left {
                0 => turn.stop(),
                _ => turn.again(timer(turn.start_ns() + 1 + (left * 7919) % 100_000)),
            }
        })
        .unwrap();
    events.run().unwrap();
    let tardiness = events.tardiness();
    assert_eq!(tardiness.timers, TIMERS);
    assert!(tardiness.max_ns < CHUNK_NS, "{tardiness:?}");
    assert!(
        tardiness.p50_ns.abs_diff(CHUNK_NS / 2) < CHUNK_NS / 10,
        "{tardiness:?}"
    );
}
