//! Two threads that send work to each other, as a server and its clients do, on CPUs beside hogs:
//! each of them wants a CPU, but sleeps for a moment again and again. Meanwhile an idle CPU takes a
//! hog. So it is the hogs that are alone on a CPU, in turns, and these two that are not.

use std::cell::Cell;
use std::rc::Rc;

use sched_sim::machine::Machine;
use sched_sim::ordinary::{Link, TICK_NS};
use sched_sim::policy::{Cpu, NOBODY, Options, PLAIN, Plain};
use sched_sim::script::{Chance, Hog};
use sched_sim::thread::{Action, Figures, NICE_0, Script, Spec, View};

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Requests that are under way.
const REQUESTS: usize = 16;
/// Of each thread for a request, at most; and of a switch.
const RUN_NS: u64 = 400 * US;
const SWITCH_NS: u64 = 20 * US;
/// The two have at least so much of their share of all CPUs.
const NEARLY: f64 = 0.83;

/// Takes all messages that have come, computes for each, and then sends as many.
struct Batch {
    chance: Chance,
    to: usize,
    /// Messages that were sent to it and to the other one, and not taken yet.
    come: Rc<Cell<usize>>,
    gone: Rc<Cell<usize>>,
    has_first: bool,
    takes: usize,
    computes: usize,
    sends: usize,
    is_written: bool,
}

impl Batch {
    fn run(&mut self) -> Action {
        Action::Run(self.chance.between(RUN_NS / 4, RUN_NS / 2))
    }
}

impl Script for Batch {
    fn next(&mut self, _: &View, _: &mut Figures) -> Action {
        if std::mem::take(&mut self.has_first) {
            self.computes = self.come.replace(0);
            self.takes = self.computes - 1;
        }
        if self.takes > 0 {
            self.takes -= 1;
            return Action::Receive;
        }
        if self.computes > 0 {
            self.computes -= 1;
            self.sends += 1;
            return self.run();
        }
        if self.sends > 0 {
            self.is_written = !self.is_written;
            if self.is_written {
                return self.run();
            }
            self.sends -= 1;
            self.gone.set(self.gone.get() + 1);
            return Action::Send(self.to);
        }
        self.has_first = true;
        Action::Receive
    }
}

fn add_batches(machine: &mut Machine) {
    let sent: [Rc<Cell<usize>>; 2] = Default::default();
    for i in 0..2 {
        let batch = Batch {
            chance: Chance::new(i as u64 + 1),
            to: 1 - i,
            come: sent[i].clone(),
            gone: sent[1 - i].clone(),
            has_first: false,
            takes: 0,
            computes: 0,
            sends: if i == 0 { REQUESTS } else { 0 },
            is_written: false,
        };
        machine.add(Spec::plain(i), 0, batch);
    }
}

fn add_links(machine: &mut Machine) {
    for i in 0..2 {
        let first = if i == 0 { REQUESTS } else { 0 };
        let link = Link::new(i as u64 + 1, (1 - i, 1 - i), RUN_NS, first);
        machine.add(Spec::plain(i), 0, link);
    }
}

/// The part of its share of all CPUs that the first two threads have together, beside so many hogs.
fn part(cpus: usize, hogs: usize, nice_0: u32, add: fn(&mut Machine)) -> f64 {
    let mut machine = Machine::new(cpus, 0, &Options::default());
    machine.nice_0 = nice_0;
    machine.tick_ns = TICK_NS;
    machine.switch_ns = SWITCH_NS;
    machine.has_nexts = true;
    add(&mut machine);
    for i in 0..hogs {
        machine.add(Spec::plain(i % cpus), 0, Hog);
    }
    machine.run_until(10 * SECOND).expect("it keeps its rules");
    let had_ns = machine.figures(0).ran_ns + machine.figures(1).ran_ns;
    let share = (cpus as f64 / (2 + hogs) as f64).min(1.0);
    had_ns as f64 / (2.0 * share * machine.now() as f64)
}

#[test]
fn threads_that_sleep_for_a_moment_have_their_share_of_cpus_where_hogs_take_turns_alone() {
    for (name, add) in [("links", add_links as fn(&mut _)), ("batches", add_batches)] {
        for (cpus, hogs) in [(2, 1), (2, 2), (2, 4), (4, 3), (4, 4), (4, 6), (4, 8)] {
            let parts = NICE_0.map(|nice_0| part(cpus, hogs, nice_0, add));
            println!("{name}, {cpus} CPUs, {hogs} hogs: {parts:.2?}");
            assert!(parts.iter().all(|part| *part > NEARLY), "{parts:?}");
        }
    }
}

#[test]
fn thread_that_was_alone_is_ahead_of_who_comes_by_half_of_that_unless_it_sleeps() {
    for (ran_ms, ahead_ms) in [(0, 0), (10, 5), (20, 10), (100, 10)] {
        let mut cpu = Cpu::new(&Options::default());
        let plain = |vtime| Plain {
            vtime,
            weight: 100,
            group: NOBODY,
            ..Plain::default()
        };
        let mut alone = plain(0);
        cpu.ready_plain(&mut alone, 0);
        cpu.start(PLAIN, Some(&alone), 0);
        let mut sleeps = cpu.clone();
        let mut comes = plain(cpu.begins());
        cpu.ready_plain(&mut comes, ran_ms * MS);
        assert_eq!(cpu.plain.vtime - cpu.vtime, ahead_ms * MS);
        sleeps.stop_for_good(ran_ms * MS);
        sleeps.sleep_plain(&alone, ran_ms * MS);
        assert_eq!(sleeps.vtime, ran_ms * MS);
    }
}
