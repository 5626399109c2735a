//! Ordinary programs, which know nothing of the scheduler: hogs, sleepers, chains of threads that
//! wake each other, servers with workers, threads that yield, kernel threads that are bound to a
//! CPU.

use sched_sim::machine::Machine;
use sched_sim::ordinary::{self, Mover, Sleeper, TICK_NS, WAKE_MOST_NS};
use sched_sim::policy::Options;
use sched_sim::script::Hog;
use sched_sim::thread::{Action, Figures, NICE_0, Script, Spec, View};
use sched_sim::world;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// `sched-sim` runs many more seeds.
#[test]
fn ordinary_threads_run_soon_and_lose_nothing_by_moving_nor_beside_entities() {
    for seed in 1..100 {
        let nice_0 = NICE_0[seed as usize / 3 % NICE_0.len()];
        let first = ordinary::run(seed, nice_0, 2 * SECOND);
        assert!(first.is_ok(), "{first:?}");
        if seed % 3 == 0 {
            let chosen = ordinary::run_by_choices(seed, nice_0, 2 * SECOND);
            let beside = ordinary::run_beside_entities(seed, nice_0, 2 * SECOND);
            assert_eq!(chosen, beside, "beside entities, seed {seed}");
        }
        if seed % 20 == 0 {
            let again = ordinary::run(seed, nice_0, 2 * SECOND);
            assert_eq!(first, again, "seed {seed}");
        }
    }
}

/// In the first two, threads waited behind one that had come from another CPU far ahead of them.
#[test]
fn machines_that_broke_a_rule_once_keep_it() {
    for seed in [
        1795527767, 583655475, 358004329, 1000426, 2003984, 2004030, 6010565, 1795729695,
    ] {
        for run in [ordinary::run, ordinary::run_by_choices] {
            for nice_0 in NICE_0 {
                let run = run(seed, nice_0, 2 * SECOND);
                assert!(run.is_ok(), "{run:?}");
            }
        }
    }
    let run = world::run(5005347, 100, 2 * SECOND);
    assert!(
        run.is_ok(),
        "windows ended each turn of one that did not poll: {run:?}"
    );
}

/// Notes how late it runs after it has begun, and ends.
struct Newcomer(u64);

impl Script for Newcomer {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        figures.tardiness_ns.push(view.now - self.0);
        Action::Exit
    }
}

/// In rounds, as threads do that have begun together.
#[test]
fn new_thread_does_not_wait_for_a_round_of_hundreds_of_hogs() {
    for hogs in [10, 40, 200] {
        let mut machine = Machine::new(1, 0, &Options::default());
        machine.tick_ns = TICK_NS;
        for _ in 0..hogs {
            machine.add(Spec::plain(0), 0, Hog);
        }
        let newcomers: Vec<usize> = (1..20)
            .map(|i| i * SECOND / 7)
            .map(|at| machine.add(Spec::plain(0), at, Newcomer(at)))
            .collect();
        machine.run_until(4 * SECOND).expect("it keeps its rules");
        for number in newcomers {
            let late = machine.figures(number).tardiness_at(1.0);
            assert!(late <= WAKE_MOST_NS, "{late} ns beside {hogs}");
        }
    }
}

/// A real-time thread has one of two CPUs, but for what the kernel leaves to others.
#[test]
fn threads_beside_a_real_time_thread_share_what_it_leaves_and_come_back_after_it() {
    let mut machine = Machine::new(2, 0, &Options::default());
    machine.tick_ns = TICK_NS;
    for i in 0..3 {
        machine.add(Spec::plain(i % 2), 0, Hog);
    }
    for second in 0..4 {
        machine.take_away(0, second * SECOND, second * SECOND + 950 * MS);
    }
    let mut ran = [0; 3];
    for (seconds, least_ms) in [(4, 1250), (8, 2250)] {
        machine
            .run_until(seconds * SECOND)
            .expect("it keeps its rules");
        let before = ran;
        ran = [0, 1, 2].map(|i| machine.figures(i).ran_ns);
        let had = [0, 1, 2].map(|i| (ran[i] - before[i]) / MS);
        println!("{seconds}: {had:?}");
        assert!(had.iter().all(|ms| *ms > least_ms), "{had:?}");
    }
}

/// It takes along how far it is ahead of the first one, however long ago the CPUs have decided
/// last. How far it is ahead of the others differs by a turn, from which one that goes in step with
/// shorter turns can gain.
#[test]
fn a_thread_that_goes_to_and_fro_between_two_cpus_has_no_more_than_a_share() {
    for hogs in 1..5 {
        for stay_ms in 5..12 {
            let mut machine = Machine::new(2, 0, &Options::default());
            machine.tick_ns = TICK_NS;
            let bound = |cpu| Spec {
                bound: true,
                ..Spec::plain(cpu)
            };
            for i in 0..2 * hogs {
                machine.add(bound(i % 2), 0, Hog);
            }
            let mover = Mover {
                stay_ns: stay_ms * 1_000_000,
                cpu: 0,
                goes: false,
            };
            let number = machine.add(bound(0), 0, mover);
            machine.run_until(8 * SECOND).expect("it keeps its rules");
            let hog = (0..number).map(|i| machine.figures(i).ran_ns).min();
            let had = machine.figures(number).ran_ns;
            let most = hog.expect("a hog") * 11 / 10;
            assert!(had < most, "{hogs} hogs, {stay_ms} ms: {had} of {most}");
        }
    }
}

/// Sleeps for long, and notes how long it then takes to compute 4 ms, and 20 ms more.
#[derive(Default)]
struct Awakes {
    step: usize,
    since_ns: u64,
}

impl Script for Awakes {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        let action = match self.step {
            0 => Action::Sleep(500 * MS),
            1 => Action::Run(4 * MS),
            2 => Action::Run(20 * MS),
            _ => Action::Exit,
        };
        if self.step > 1 {
            figures.tardiness_ns.push(view.now - self.since_ns);
        }
        self.since_ns = view.now;
        self.step += 1;
        action
    }
}

/// Times are times, whatever a thread of nice 0 weighs: of a computation after a long sleep, the
/// first 4 ms (credit) and the rest (the share), and when a thread runs that wakes often.
#[test]
fn times_do_not_depend_on_what_a_thread_of_nice_0_weighs() {
    for cpus in [1, 2] {
        let figures = NICE_0.map(|nice_0| {
            let mut machine = Machine::new(cpus, 0, &Options::default());
            machine.tick_ns = TICK_NS;
            machine.nice_0 = nice_0;
            for cpu in 0..cpus {
                for weight in [40, 100, 300] {
                    let spec = Spec {
                        weight,
                        bound: true,
                        ..Spec::plain(cpu)
                    };
                    machine.add(spec, 0, Hog);
                }
            }
            let late = machine.add(Spec::plain(0), 500 * MS, Awakes::default());
            let sleeper = machine.add(Spec::plain(0), 0, Sleeper::new(1, 7 * MS, 2 * MS));
            machine.run_until(10 * SECOND).expect("it keeps its rules");
            let mut all: Vec<u64> = (0..late).map(|i| machine.figures(i).ran_ns).collect();
            all.extend(&machine.figures(late).tardiness_ns);
            all.push(machine.figures(sleeper).tardiness_at(0.99));
            all
        });
        println!("{cpus} CPUs: {figures:?}");
        for scaled in &figures[1..] {
            for (a, b) in scaled.iter().zip(&figures[0]) {
                assert!(a.abs_diff(*b) < 5 * MS + b / 50, "{figures:?}");
            }
        }
    }
}
