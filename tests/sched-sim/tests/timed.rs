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
    cpu.timed(timed);
    cpu.ready(timed, 0);
    cpu.choose(0, &Queue { vtime: 0, count: 1 });
    cpu.start(timed, None, 0);
    cpu.stop(ahead);
    cpu.sleep(timed, ahead);
    let hog = Plain {
        vtime: 0,
        weight: 100,
        group: NOBODY,
        ..Plain::default()
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
    cpu.timed(other);
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

/// Two timed threads that are due, 15 ms ahead of a hog, which runs.
fn two_due() -> (Cpu, [u32; 2], u64) {
    let (mut cpu, one, now) = beside_hog(15 * MS);
    let two = cpu.add(100, NOBODY);
    cpu.timed(two);
    for thread in [one, two] {
        cpu.ready(thread, now);
        cpu.timed_ready(thread, now);
    }
    (cpu, [one, two], now)
}

/// Lets the CPU run whom the policy chooses, beside a hog that waits.
fn go(cpu: &mut Cpu, now: u64) -> u32 {
    let hog = Plain {
        vtime: cpu.plain.vtime,
        weight: 100,
        group: NOBODY,
        ..Plain::default()
    };
    let count = u64::from(cpu.running != PLAIN);
    let vtime = hog.vtime;
    let choice = cpu.choose(now, &Queue { vtime, count });
    if choice.keep == 0 {
        cpu.stop(now);
    }
    let plain = (choice.who == PLAIN && choice.keep == 0).then_some(&hog);
    cpu.start(choice.who, plain, now);
    choice.who
}

#[test]
fn several_whose_time_has_come_all_begin_soon_and_before_fair_threads() {
    let (mut cpu, [one, two], begin) = two_due();
    let (mut now, mut had) = (begin, [0, 0]);
    let (mut first, mut turns) = (Vec::new(), 0);
    loop {
        let who = go(&mut cpu, now);
        let Some(which) = [one, two].iter().position(|&thread| thread == who) else {
            break;
        };
        if !first.contains(&who) {
            first.push(who);
            assert!(now <= begin + Options::default().slice_min_ns, "{now}");
        }
        had[which] += cpu.timer() - now;
        turns += 1;
        assert!(cpu.timer() > now, "it runs");
        now = cpu.timer();
    }
    assert_eq!(had, [TURN, TURN], "its turn, and no more");
    assert_eq!(turns, 3, "who has run waits for the other's whole turn");
}

#[test]
fn who_makes_way_for_a_release_goes_on_before_fair_threads() {
    let (mut cpu, [one, two], now) = two_due();
    cpu.leave(two, now);
    assert_eq!(go(&mut cpu, now), one);
    cpu.ready(two, now + MS / 5);
    cpu.timed_ready(two, now + MS / 5);
    assert!(cpu.preempts(two, now + MS / 5), "it has no slack");
    let had = MS / 5 + 1;
    assert_eq!(go(&mut cpu, now + had), two);
    let now = now + MS / 2;
    cpu.stop_for_good(now);
    cpu.sleep(two, now);
    assert_eq!(go(&mut cpu, now), one);
    assert_eq!(cpu.limit_ns, now + TURN - had);
    assert_eq!(cpu.entity(one).overran + cpu.entity(one).slept, 0);
}

#[test]
fn a_release_that_comes_in_its_turn_ends_it() {
    let (mut cpu, [one, poller], now) = two_due();
    cpu.leave(poller, now);
    cpu.ready(poller, now);
    cpu.poll(poller, now, now + MS / 2, 0);
    assert_eq!(go(&mut cpu, now), one);
    assert_eq!((cpu.limit_ns, cpu.timer()), (now + MS / 2, now + MS / 2));
    // A timer expires a moment after its time.
    assert_eq!(go(&mut cpu, now + MS / 2 + 1), poller);
}

#[test]
fn a_yield_ends_the_turn() {
    let (mut cpu, [one, two], now) = two_due();
    cpu.leave(two, now);
    assert_eq!(go(&mut cpu, now), one);
    assert!(cpu.yields());
    assert_eq!(go(&mut cpu, now + MS / 5), PLAIN);
}

/// A hog has run for a time while a thread slept, whom another thread wakes then: whether it
/// preempts, of a timed and of a plain one, `slept` after it has fallen asleep.
fn woken(slept: u64) -> [bool; 2] {
    let queue = Queue { vtime: 0, count: 0 };
    let (mut cpu, timed, begin) = beside_hog(0);
    let now = begin + slept;
    cpu.ready(timed, now);
    let timed = cpu.preempts_since(timed, begin, now);
    let (mut cpu, _, begin) = beside_hog(0);
    let mut plain = Plain {
        vtime: 0,
        weight: 100,
        group: NOBODY,
        ..Plain::default()
    };
    cpu.choose(begin, &queue);
    cpu.ready_plain(&mut plain, now);
    [timed, cpu.preempts_plain(&plain, begin, now)]
}

#[test]
fn whom_another_thread_wakes_is_served_as_a_plain_thread() {
    for slept in [0, MS / 2, MS, 3 * MS, 10 * MS] {
        let [timed, plain] = woken(slept);
        assert_eq!(timed, plain, "{slept} ns");
    }
    assert_eq!(woken(3 * MS), [true, true], "it has credit");
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

/// Threads of a runtime, as Go has one.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// Waits for the time, wakes a helper, and then does the work.
    Works {
        helper: usize,
    },
    Helps,
    /// Has timers of its own that come at the same times.
    Watches,
}

#[derive(Clone, Copy, Debug)]
struct Runtime {
    role: Role,
    step: usize,
}

impl Script for Runtime {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        const PERIOD: u64 = 13 * MS;
        const MOMENT: u64 = MS / 50;
        let late = view.now % PERIOD;
        self.step += 1;
        match (self.role, self.step) {
            (Role::Helps, 1) => Action::Receive,
            (Role::Works { .. }, 1) => Action::Sleep(PERIOD - late),
            (Role::Watches, 1) => Action::Sleep(PERIOD - late + MOMENT / 2),
            (Role::Works { .. }, 2 | 4) => Action::Run(MOMENT),
            (Role::Works { helper }, 3) => Action::Send(helper),
            (role, _) => {
                self.step = 0;
                figures.tardiness_ns.push(late);
                let works = matches!(role, Role::Works { .. });
                Action::Run(if works { 3 * MS } else { MOMENT })
            }
        }
    }
}

/// How late such a program does its work beside hogs, and what these had.
fn runtime_beside(hogs: usize, spec: Spec) -> (u64, u64) {
    let mut machine = machine();
    let [works, _, _] = [Role::Works { helper: 1 }, Role::Helps, Role::Watches]
        .map(|role| machine.add(spec, 0, Runtime { role, step: 0 }));
    let hogs: Vec<usize> = (0..hogs)
        .map(|_| machine.add(Spec::plain(0), 0, Hog))
        .collect();
    machine.run_until(LENGTH).expect("the machine's rules hold");
    let had = hogs.iter().map(|&hog| machine.figures(hog).ran_ns).sum();
    (machine.figures(works).tardiness_at(0.99), had)
}

#[test]
fn a_runtime_whose_threads_wake_each_other_is_no_later_than_a_plain_one() {
    for hogs in [2, 3, 4] {
        let (plain, without) = runtime_beside(hogs, Spec::plain(0));
        let (timed, with) = runtime_beside(hogs, Spec::timed(0));
        assert!(
            timed <= plain,
            "{hogs} hogs: {timed} ns late, plain {plain}"
        );
        assert!(timed <= MS * 6 / 10, "{hogs} hogs: {timed}");
        assert!(with * 100 >= without * 98, "hogs {with}, without {without}");
    }
}
