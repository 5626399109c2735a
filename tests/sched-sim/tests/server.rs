//! What the task server promises (ECalls-05 §4.2, rule 5), and the reserve beside it: to events,
//! and to fair threads while there are none, beside windows that claim nearly all of a CPU.

use sched_sim::machine::Machine;
use sched_sim::policy::{Admission, Cpu, DWCS, NEVER, NOBODY, Options, PLAIN, Plain};
use sched_sim::policy::{Queue, Window, why};
use sched_sim::script::Hog;
use sched_sim::thread::{Action, Figures, Script, Spec, View};

const MS: u64 = 1_000_000;
const EMPTY: Queue = Queue { vtime: 0, count: 0 };
/// Between two events: no multiple of the server's period.
const EVERY: u64 = 10_007_000;

/// DWCS with a task server of 1 ms per period.
fn options() -> Options {
    Options {
        window_order: DWCS,
        server_ns: MS,
        ..Options::default()
    }
}

/// 190 of 200 ms, of which x of y may be missed. With 1 of 2, the server has 47.5 % left, which is
/// 1 of 2.1 ms, and so 1 of 3.
fn wish(x: u32, y: u32) -> Window {
    Window::new(200 * MS, 190 * MS, x, y)
}

/// Threads on the first CPU that always want their window, and two that have none.
fn add(machine: &mut Machine, wish: Window, count: usize) -> [Vec<usize>; 2] {
    let window = Spec {
        window: Some((wish, false)),
        ..Spec::registered(0)
    };
    let windows = (0..count).map(|_| machine.add(window, 0, Hog)).collect();
    // Registered, so that no other CPU takes them.
    let fair = (0..2).map(|_| machine.add(Spec::registered(0), 0, Hog));
    [windows, fair.collect()]
}

/// Part of the CPU that threads had.
fn share(machine: &Machine, threads: &[usize]) -> f64 {
    let ran = |&thread: &usize| machine.figures(thread).ran_ns;
    threads.iter().map(ran).sum::<u64>() as f64 / machine.now() as f64
}

/// Raises an event for a thread from time to time.
#[derive(Clone, Debug, Default)]
struct Raises {
    sink: usize,
    raised: bool,
}

impl Script for Raises {
    fn next(&mut self, view: &View, _: &mut Figures) -> Action {
        self.raised = !self.raised;
        if !self.raised {
            return Action::Sleep(EVERY);
        }
        Action::Raise {
            thread: self.sink,
            deadline_ns: view.now + EVERY,
        }
    }
}

/// Handles each in 0.2 ms, and notes how late it began.
#[derive(Clone, Debug, Default)]
struct Sink {
    runs: bool,
}

impl Script for Sink {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        self.runs = !self.runs;
        if !self.runs {
            return Action::Sleep(NEVER);
        }
        figures.tardiness_ns.push(view.now % EVERY);
        Action::Run(MS / 5)
    }
}

#[test]
fn fair_threads_have_the_servers_service_in_each_of_its_periods() {
    for count in [1, 2] {
        let mut machine = Machine::new(1, 0, &options());
        // What they need is the same, and what they claim is all of the CPU or more.
        let [windows, fair] = add(&mut machine, wish(count, count + 1), count as usize);
        machine.run_until(10_000 * MS).expect("its rules hold");
        let of_server = [1.0 / 3.0, 0.25][count as usize - 1];
        let had = share(&machine, &fair);
        assert!((had - of_server).abs() < 0.01, "{had} of {of_server}");
        for thread in fair {
            let waited = machine.figures(thread).waited_ns_max;
            assert!(waited <= 8 * MS, "a turn each, of 3 or 4 ms: {waited}");
        }
        assert!(windows.iter().all(|&thread| !machine.promised(thread)));
    }
}

#[test]
fn event_is_served_by_the_end_of_the_servers_next_period() {
    let mut machine = Machine::new(2, 0, &options());
    add(&mut machine, wish(1, 2), 1);
    let sink = machine.add(Spec::registered(0), 0, Sink::default());
    let raises = Raises {
        sink,
        ..Raises::default()
    };
    machine.add(Spec::registered(1), 0, raises);
    machine.run_until(10_000 * MS).expect("its rules hold");
    let figures = machine.figures(sink);
    assert!(figures.turns >= 990, "{}", figures.turns);
    let worst = figures.tardiness_at(1.0);
    // One period that was used up, and one in which windows may go first.
    assert!(worst <= 6 * MS, "{worst}");
}

fn plain() -> Plain {
    Plain {
        vtime: 0,
        weight: 100,
        group: NOBODY,
        ..Plain::default()
    }
}

fn waiting() -> Queue {
    Queue { vtime: 0, count: 1 }
}

#[test]
fn claim_makes_way_when_the_servers_period_begins_or_who_has_its_turn_wakes() {
    let mut cpu = Cpu::new(&options());
    let i = cpu.add(100, NOBODY);
    cpu.ready(i, 0);
    assert_eq!(
        cpu.admit(i, &wish(1, 2), false, 0),
        Admission::Unpromised,
        "beside a server"
    );
    let mut now = 0;
    assert_eq!(cpu.choose(now, &EMPTY).who, i, "nobody else");
    cpu.start(i, None, now);
    assert_eq!(cpu.timer(), 3 * MS, "its next period");
    now = 3 * MS / 2;
    let mut waking = plain();
    cpu.ready_plain(&mut waking, now);
    assert!(cpu.preempts_plain(&waking, 0, now));
    let choice = cpu.choose(now, &waiting());
    assert_eq!((choice.who, choice.why), (PLAIN, why::FAIR));
    cpu.stop(now);
    cpu.start(PLAIN, Some(&waking), now);
    assert_eq!(cpu.timer(), now + MS, "its service");
    now += MS;
    assert_eq!(cpu.choose(now, &waiting()).why, why::WINDOW);
    cpu.stop(now);
    cpu.start(i, None, now);
    assert!(!cpu.preempts_plain(&plain(), 0, now), "it has had its turn");
    assert_eq!(cpu.timer(), 3 * MS);
    assert_eq!(cpu.choose(3 * MS, &waiting()).who, PLAIN);
}

/// An event takes the server's turn from a fair thread that has it (rule 2), not from another sink.
#[test]
fn event_preempts_a_fair_thread_in_place_of_the_server() {
    let mut cpu = Cpu::new(&options());
    for _ in 0..3 {
        let i = cpu.add(100, NOBODY);
        cpu.ready(i, 0);
    }
    cpu.admit(0, &wish(1, 2), false, 0);
    assert_eq!(cpu.choose(0, &EMPTY).who, 1);
    cpu.start(1, None, 0);
    assert_eq!(cpu.on_server, 1);
    assert!(!cpu.preempts(2, MS / 4));
    cpu.event(2, MS);
    assert!(cpu.preempts(2, MS / 4));
    assert_eq!(cpu.choose(MS / 4, &EMPTY).why, why::EVENT);
}

/// Services that are longer than a quota, and together need all but the reserve: what one takes
/// beyond its quota is owed.
#[test]
fn long_services_without_guarantee_leave_the_reserve_to_the_others() {
    let mut machine = Machine::new(1, 0, &options());
    let [windows, fair] = add(&mut machine, wish(2, 3), 3);
    machine.run_until(20_000 * MS).expect("its rules hold");
    let had = share(&machine, &fair);
    assert!((0.045..0.06).contains(&had), "{had}");
    for thread in windows {
        let window = machine.entity(thread).window;
        assert_eq!((window.violated, machine.promised(thread)), (0, false));
    }
}

#[test]
fn claim_beyond_its_quota_makes_way_for_who_wakes() {
    let mut cpu = Cpu::new(&Options {
        server_ns: 0,
        ..options()
    });
    let (sleeper, i) = (cpu.add(100, NOBODY), cpu.add(100, NOBODY));
    // It leaves claims without guarantee 5 ms of 100.
    let promised = Window::new(10 * MS, 9 * MS, 9, 10);
    assert_eq!(cpu.admit(sleeper, &promised, false, 0), Admission::Promised);
    cpu.ready(i, 0);
    let admission = cpu.admit(i, &wish(1, 2), false, 0);
    assert_eq!(admission, Admission::Unpromised);
    assert_eq!(cpu.choose(0, &EMPTY).who, i);
    cpu.start(i, None, 0);
    assert!(
        !cpu.preempts_plain(&plain(), 0, 150 * MS),
        "it began within its quota"
    );
    cpu.stop(190 * MS);
    let now = 200 * MS;
    assert_eq!(cpu.choose(now, &EMPTY).who, i, "nobody else wants the CPU");
    cpu.start(i, None, now);
    assert_eq!(cpu.timer(), 300 * MS, "the next quota");
    assert!(cpu.preempts_plain(&plain(), 0, now + MS));
    assert_eq!(cpu.choose(now + MS, &waiting()).who, PLAIN);
}
