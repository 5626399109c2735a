//! Timed threads: each rule by hand, then what an honest one gains and what a liar does not, over
//! time.

use sched_sim::machine::Machine;
use sched_sim::policy::{Cpu, NOBODY, Options, PLAIN, Plain, Queue, why};
use sched_sim::script::{Chance, Hog};
use sched_sim::thread::{Action, Figures, Script, Spec, View};

const MS: u64 = 1_000_000;
/// Of a run.
const LENGTH: u64 = 4_000 * MS;
/// The longest turn of a thread that is woken by its time: `FAIR_TURN_NS`.
const TURN: u64 = 3 * MS / 2;

/// A CPU with a hog, and a timed thread that sleeps and is so far ahead of the hog.
fn beside_hog(ahead: u64) -> (Cpu, u32, u64) {
    let mut cpu = Cpu::new(&Options::default());
    let timed = cpu.add(100, NOBODY);
    cpu.ready(timed, 0);
    cpu.choose(0, &Queue { vtime: 0, count: 1 });
    cpu.start(timed, None, 0);
    cpu.stop(ahead);
    cpu.sleep(timed, ahead);
    let hog = Plain {
        vtime: 0,
        weight: 100,
        group: NOBODY,
    };
    cpu.start(PLAIN, Some(&hog), ahead);
    (cpu, timed, ahead)
}

#[test]
fn its_time_has_the_precedence_of_a_due_release() {
    let (mut cpu, timed, now) = beside_hog(15 * MS);
    cpu.ready(timed, now);
    assert!(!cpu.preempts(timed, now), "it is ahead");
    cpu.timed_ready(timed, now);
    assert!(cpu.preempts(timed, now));
    let choice = cpu.choose(now, &Queue { vtime: 0, count: 0 });
    assert_eq!((choice.who, choice.why), (timed, why::RELEASE));
}

#[test]
fn it_has_one_turn_and_no_grace() {
    let (mut cpu, timed, now) = beside_hog(15 * MS);
    cpu.ready(timed, now);
    cpu.timed_ready(timed, now);
    cpu.stop(now);
    cpu.start(timed, None, now);
    assert_eq!(cpu.limit_ns, now + TURN);
    assert_eq!(
        cpu.cooperative, 0,
        "nothing keeps others from preempting it"
    );
    let choice = cpu.choose(now + TURN, &Queue { vtime: 0, count: 1 });
    assert_eq!(choice.who, PLAIN);
    assert_eq!(cpu.entity(timed).overran, 0);
}

#[test]
fn earlier_releases_go_first_whatever_time_it_says() {
    let (mut cpu, timed, now) = beside_hog(0);
    let other = cpu.add(100, NOBODY);
    cpu.ready(other, now + 1);
    cpu.timed_ready(other, now + 1);
    cpu.ready(timed, now + 2);
    cpu.timed_ready(timed, now + 2);
    assert_eq!(
        cpu.choose(now + 3, &Queue { vtime: 0, count: 0 }).who,
        other
    );
}

#[test]
fn beyond_20_ms_ahead_it_waits_for_its_share() {
    let (mut cpu, timed, now) = beside_hog(20 * MS + 1);
    cpu.ready(timed, now);
    cpu.timed_ready(timed, now);
    assert_eq!(cpu.cooperative, 0);
    assert!(!cpu.preempts(timed, now));
    assert_eq!(cpu.entity(timed).ahead, 1, "it is counted");
}

/// Computes and sleeps until a time, again and again.
#[derive(Clone, Debug)]
struct Sleeps {
    chance: Chance,
    run_ns: (u64, u64),
    sleep_ns: (u64, u64),
    runs: bool,
    due_ns: u64,
}

impl Sleeps {
    fn new(run_ns: (u64, u64), sleep_ns: (u64, u64)) -> Self {
        let chance = Chance::new(7);
        Self {
            chance,
            run_ns,
            sleep_ns,
            runs: true,
            due_ns: 0,
        }
    }
}

impl Script for Sleeps {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        self.runs = !self.runs;
        if self.runs {
            let late = view.now - self.due_ns;
            figures.tardiness_ns.push(late);
            return Action::Run(self.chance.between(self.run_ns.0, self.run_ns.1));
        }
        let sleep = self.chance.between(self.sleep_ns.0, self.sleep_ns.1);
        self.due_ns = view.now + sleep;
        Action::Sleep(sleep)
    }
}

/// With the kernel's tick: a timer that expires before the policy's next time decides nothing.
fn machine() -> Machine {
    let mut machine = Machine::new(1, 0, &Options::default());
    machine.tick_ns = 4 * MS;
    machine
}

/// One thread with this script beside hogs: what it received, the hogs, and its p99 tardiness.
fn beside(hogs: usize, spec: Spec, script: impl Script + 'static) -> (u64, u64, u64) {
    let mut machine = machine();
    let one = machine.add(spec, 0, script);
    let hogs: Vec<usize> = (0..hogs)
        .map(|_| machine.add(Spec::plain(0), 0, Hog))
        .collect();
    machine.run_until(LENGTH).expect("the machine's rules hold");
    let had = hogs.iter().map(|&hog| machine.figures(hog).ran_ns).sum();
    let one = machine.figures(one);
    (one.ran_ns, had, one.tardiness_at(0.99))
}

/// The least and the most of a time.
type Range = (u64, u64);

/// What a liar does: how long it computes, how long its timers are.
const LIES: &[(&str, Range, Range)] = &[
    ("timers that are always due", (MS / 5, MS / 5), (0, 0)),
    ("tiny periods", (MS / 5, MS / 5), (1, 1_000)),
    ("tiny periods, and whole turns", (TURN, TURN), (1, 1)),
    ("it computes for long", (40 * MS, 40 * MS), (1, 1)),
    ("turns that hardly count", (1_000, 10_000), (1, 1_000)),
    ("anything", (1, 30 * MS), (0, MS / 10)),
];

#[test]
fn no_timer_gives_a_thread_more_than_its_share_and_the_bound() {
    for &(lie, run, sleep) in LIES {
        for hogs in [1, 2, 4, 8] {
            let script = || Sleeps::new(run, sleep);
            let share = LENGTH / (hogs as u64 + 1);
            let (got, had, _) = beside(hogs, Spec::timed(0), script());
            let bound = share + 20 * MS + 2 * TURN;
            assert!(got <= bound, "{lie}, {hogs} hogs: {got} of {share}");
            let (_, without, _) = beside(hogs, Spec::plain(0), Hog);
            assert!(
                had * 100 >= without * 98,
                "{lie}: {hogs} hogs {had}, without {without}"
            );
        }
    }
}

#[test]
fn many_liars_together_have_their_shares() {
    let mut machine = machine();
    for _ in 0..16 {
        machine.add(Spec::timed(0), 0, Sleeps::new((1, 3 * MS), (0, 1_000)));
    }
    let hogs = [0; 4].map(|_| machine.add(Spec::plain(0), 0, Hog));
    // What each may be ahead comes once.
    machine
        .run_until(5 * LENGTH)
        .expect("the machine's rules hold");
    for hog in hogs {
        let ran = machine.figures(hog).ran_ns;
        assert!(ran * 100 >= LENGTH / 4 * 98, "{ran}");
    }
}

#[test]
fn a_loop_that_also_computes_runs_when_its_time_comes() {
    // It wants a fifth of the CPU in all, beside four hogs: more than it has at some times.
    let script = || Sleeps::new((MS, 5 * MS), (8 * MS, 20 * MS));
    let (_, without, late) = beside(4, Spec::plain(0), script());
    let (_, with, timed) = beside(4, Spec::timed(0), script());
    assert!(timed * 10 <= late, "{timed} ns late, plain {late}");
    assert!(with * 100 >= without * 98, "hogs {with}, without {without}");
}
