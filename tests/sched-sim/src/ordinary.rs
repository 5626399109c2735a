//! Machines of ordinary programs by chance, from a seed: hogs, sleepers, chains of threads that
//! wake each other, servers with workers, threads that yield, kernel threads that are bound to a
//! CPU. None of them has told the scheduler anything.
//!
//! What holds for each of them is here and in `moves`; the bounds have names.

use crate::machine::Machine;
use crate::policy::{NEVER, Options};
use crate::script::{Chance, Hog};
use crate::thread::{Action, Figures, Script, Spec, View};
use crate::world::Run;

const US: u64 = 1000;
const MS: u64 = 1_000_000;

/// The kernel's tick.
pub const TICK_NS: u64 = 4 * MS;
/// A thread that sleeps most of the time runs so soon after it wakes, beside any number of hogs...
pub const WAKE_MOST_NS: u64 = 2 * MS;
/// ... and so much later for each other thread that sleeps, too, and so is owed as much.
pub const OWED_MOST_NS: u64 = 2 * MS;

/// Until then threads begin, hogs among them: for once each of these is owed, too.
const BEGUN_NS: u64 = 100 * MS;

/// Sleeps, and computes for a small part of that time.
#[derive(Clone, Debug)]
pub struct Sleeper {
    pub chance: Chance,
    /// It sleeps between a half of that and all of it.
    pub sleep_ns: u64,
    /// It computes for so long at most.
    pub run_ns: u64,
    wakes_ns: Option<u64>,
}

impl Sleeper {
    pub fn new(seed: u64, sleep_ns: u64, run_ns: u64) -> Self {
        Self {
            chance: Chance::new(seed),
            sleep_ns,
            run_ns,
            wakes_ns: None,
        }
    }
}

impl Script for Sleeper {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        if let Some(wakes_ns) = self.wakes_ns.take() {
            if wakes_ns > BEGUN_NS {
                figures.tardiness_ns.push(view.now - wakes_ns);
            }
            return Action::Run(self.chance.between(self.run_ns / 2, self.run_ns));
        }
        let ns = self.chance.between(self.sleep_ns / 2, self.sleep_ns);
        self.wakes_ns = Some(view.now + ns);
        Action::Sleep(ns)
    }
}

/// Receives a message, computes, and sends one on: to each of some threads in turn. A link of a
/// chain sends it to the next one, a worker to its server, a server to its workers.
#[derive(Clone, Debug)]
pub struct Link {
    pub chance: Chance,
    /// The threads that it sends to: from, to.
    pub next: (usize, usize),
    /// It computes for so long at most.
    pub run_ns: u64,
    /// Messages that it sends before it receives the first one.
    pub first: usize,
    turn: usize,
    step: u32,
}

impl Link {
    /// A link that waits for a message, but sends so many at first.
    pub fn new(seed: u64, next: (usize, usize), run_ns: u64, first: usize) -> Self {
        Self {
            chance: Chance::new(seed),
            next,
            run_ns,
            first,
            turn: 0,
            step: 0,
        }
    }

    fn send(&mut self) -> Action {
        let (from, to) = self.next;
        let thread = from + self.turn % (to - from + 1);
        self.turn += 1;
        Action::Send(thread)
    }
}

impl Script for Link {
    fn next(&mut self, _: &View, figures: &mut Figures) -> Action {
        if self.first > 0 {
            self.first -= 1;
            return self.send();
        }
        self.step = (self.step + 1) % 3;
        match self.step {
            1 => Action::Receive,
            2 => Action::Run(self.chance.between(US, self.run_ns)),
            _ => {
                figures.frames += 1;
                self.send()
            }
        }
    }
}

/// Computes for a time, and goes to the other one of two CPUs, for ever.
#[derive(Clone, Copy, Debug)]
pub struct Mover {
    pub stay_ns: u64,
    pub cpu: usize,
    pub goes: bool,
}

impl Script for Mover {
    fn next(&mut self, _: &View, _: &mut Figures) -> Action {
        self.goes = !self.goes;
        if self.goes {
            return Action::Run(self.stay_ns);
        }
        self.cpu = 1 - self.cpu;
        Action::Go(self.cpu)
    }
}

/// Yields again and again, after it has computed for so long at most.
#[derive(Clone, Debug)]
struct Yielder {
    chance: Chance,
    run_ns: u64,
    ran: bool,
}

impl Script for Yielder {
    fn next(&mut self, _: &View, _: &mut Figures) -> Action {
        self.ran = !self.ran;
        if self.ran {
            return Action::Run(self.chance.between(US, self.run_ns));
        }
        Action::Yield
    }
}

/// What is expected of the threads of a machine.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// They sleep most of the time.
    sleepers: Vec<usize>,
    /// With their weights.
    hogs: Vec<(usize, u64)>,
    weights: u64,
}

/// A machine from a seed, with nothing run yet; `nice_0` as in [`Machine`].
fn make(seed: u64, nice_0: u32) -> (Machine, Expected) {
    let mut chance = Chance::new(seed);
    let chance = &mut chance;
    let cpus = [1, 2, 2, 4][chance.between(0, 3) as usize];
    let mut machine = Machine::new(cpus, 0, &Options::default());
    machine.tick_ns = TICK_NS;
    machine.switch_ns = 2 * US;
    machine.nice_0 = nice_0;
    let mut expected = Expected::default();
    for cpu in 0..cpus {
        let spec = Spec {
            bound: true,
            ..Spec::plain(cpu)
        };
        let (seed, sleep) = (chance.number(), chance.between(1, 20) * MS);
        let number = machine.add(spec, 0, Sleeper::new(seed, sleep, 50 * US));
        expected.sleepers.push(number);
        expected.weights += 100;
    }
    for _ in 0..chance.between(1, 3 * cpus as u64) {
        add(&mut machine, chance, cpus, &mut expected);
    }
    (machine, expected)
}

fn add(machine: &mut Machine, chance: &mut Chance, cpus: usize, expected: &mut Expected) {
    let cpu = chance.between(0, cpus as u64 - 1) as usize;
    let start = chance.between(0, 50 * MS);
    let seed = chance.number();
    let first = machine.threads();
    let plain = Spec {
        bound: chance.one_in(4),
        ..Spec::plain(cpu)
    };
    let mut link = |spec: Spec, next: (usize, usize), run_ns: u64, first: usize| {
        let script = Link::new(seed ^ next.0 as u64, next, run_ns, first);
        machine.add(spec, start, script)
    };
    match chance.between(0, 6) {
        6 => {
            let (chance, run_ns) = (Chance::new(seed), chance.between(5, 500) * US);
            for _ in 0..2 {
                let (chance, ran) = (chance.clone(), false);
                let yielder = Yielder {
                    chance,
                    run_ns,
                    ran,
                };
                machine.add(plain, start, yielder);
            }
        }
        0 | 1 => {
            let weight = [100, 100, 100, 30, 300][chance.between(0, 4) as usize];
            let number = machine.add(Spec { weight, ..plain }, start, Hog);
            expected.hogs.push((number, weight.into()));
            expected.weights += u64::from(weight);
            return;
        }
        2 => {
            let sleep = chance.between(2, 10) * MS;
            let number = machine.add(plain, start, Sleeper::new(seed, sleep, sleep / 40));
            expected.sleepers.push(number);
        }
        3 => {
            // A chain: each wakes the next one, the last one the first.
            let length = chance.between(2, 8) as usize;
            let run_ns = chance.between(5, 100) * US;
            for i in 0..length {
                let spec = Spec {
                    cpu: (cpu + i) % cpus,
                    ..plain
                };
                let next = first + (i + 1) % length;
                link(spec, (next, next), run_ns, usize::from(i == 0));
            }
        }
        _ => {
            // A server, which sends as many messages as it has workers, and one for each answer.
            let workers = chance.between(1, 6) as usize;
            let run_ns = [50, 200, 2000][chance.between(0, 2) as usize] * US;
            link(plain, (first + 1, first + workers), 20 * US, workers);
            for _ in 0..workers {
                link(plain, (first, first), run_ns, 0);
            }
        }
    }
    expected.weights += 100 * (machine.threads() - first) as u64;
}

/// Runs the machine of a seed. An error says which seed, and what did not hold.
pub fn run(seed: u64, nice_0: u32, ns: u64) -> Result<Run, String> {
    let (mut machine, expected) = make(seed, nice_0);
    machine.has_nexts = true;
    observe(machine, expected, seed, ns)
}

/// The same where the policy is asked for each turn.
pub fn run_by_choices(seed: u64, nice_0: u32, ns: u64) -> Result<Run, String> {
    let (machine, expected) = make(seed, nice_0);
    observe(machine, expected, seed, ns)
}

/// Beside an entity on each CPU that never wakes, too: the policy may not decide otherwise for it.
pub fn run_beside_entities(seed: u64, nice_0: u32, ns: u64) -> Result<Run, String> {
    let (mut machine, expected) = make(seed, nice_0);
    for cpu in 0..machine.processors.len() {
        machine.add(Spec::registered(cpu), NEVER, Hog);
    }
    observe(machine, expected, seed, ns)
}

fn observe(mut machine: Machine, expected: Expected, seed: u64, ns: u64) -> Result<Run, String> {
    let named = |wrong: String| format!("ordinary threads, seed {seed}: {wrong}");
    machine.run_until(ns).map_err(named)?;
    let mut digest = seed;
    let ordinary = |&thread: &usize| !machine.threads[thread].spec.registered;
    for thread in (0..machine.threads()).filter(ordinary) {
        let figures = machine.figures(thread);
        digest = (digest ^ figures.ran_ns ^ figures.turns << 40).wrapping_mul(0x0100_0000_01b3);
    }
    let others = (machine.threads() - expected.hogs.len() - 1) as u64;
    let most = WAKE_MOST_NS + others * OWED_MOST_NS;
    for &number in &expected.sleepers {
        let late = machine.figures(number).tardiness_at(1.0);
        if late > most {
            let wrong = format!("sleeper {number} ran {late} ns after it woke: at most {most} ns");
            return Err(named(wrong));
        }
    }
    Ok(Run {
        decisions: machine.decisions,
        switches: machine.switches,
        digest,
    })
}
