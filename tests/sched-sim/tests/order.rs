//! The order of decisions holds at each moment, not only when somebody is chosen: what becomes of
//! releases that come due, and of claims, while another one has the CPU.

use sched_sim::machine::Machine;
use sched_sim::policy::{Cpu, DWCS, NEVER, NOBODY, Options, SPREAD, Window};
use sched_sim::script::Hog;
use sched_sim::thread::{Action, Figures, Script, Spec, View};

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Has something to do at each of its releases, for 50 us, and sleeps until the next one, or waits
/// with other work, in pieces as short.
struct Timely {
    waits: bool,
    polled: bool,
    release_ns: u64,
}

impl Script for Timely {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        if self.release_ns <= view.now {
            figures.tardiness_ns.push(view.now - self.release_ns);
            self.release_ns = view.now + 7 * MS;
            self.polled = false;
            return Action::Run(50 * US);
        }
        self.polled = !self.polled;
        if !self.polled {
            return Action::Run(50 * US);
        }
        Action::Poll {
            release_ns: self.release_ns,
            importance: if self.waits { 1 } else { NEVER },
        }
    }
}

/// Computes, and polls when it is told to: in time, or once only.
struct Polls {
    once: bool,
    begun: bool,
}

impl Script for Polls {
    fn next(&mut self, view: &View, _: &mut Figures) -> Action {
        let until = view.slice_end_ns.min(view.next_release_ns);
        if !self.begun || !self.once && view.now >= until {
            self.begun = true;
            return Action::Poll {
                release_ns: NEVER - 1,
                importance: 1,
            };
        }
        Action::Run(100 * US)
    }
}

/// Its window is promised, or admitted without guarantee: its periods need all of the CPU.
fn wish(promised: bool) -> Window {
    let service = if promised { 20 } else { 39 };
    Window::new(40 * MS, service * MS, 1, 2)
}

/// A thread that has such a window beside another one, for ten seconds. Returns both.
fn beside(
    order: u32,
    promised: bool,
    owner: impl Script + 'static,
    other: impl Script + 'static,
) -> (Machine, usize, usize) {
    let mut machine = Machine::new(
        1,
        0,
        &Options {
            window_order: order,
            ..Options::default()
        },
    );
    let spec = Spec {
        window: Some((wish(promised), false)),
        ..Spec::registered(0)
    };
    // The other one first: it polls before there is a claim.
    let other = machine.add(Spec::registered(0), 0, other);
    let owner = machine.add(spec, MS / 2, owner);
    assert_eq!(machine.promised(owner), promised);
    machine.run_until(10 * SECOND).expect("its rules hold");
    (machine, owner, other)
}

fn timely(waits: bool) -> Timely {
    Timely {
        waits,
        polled: false,
        release_ns: MS,
    }
}

#[test]
fn release_does_not_wait_for_a_claim_without_guarantee() {
    for (order, waits) in [(DWCS, false), (DWCS, true), (SPREAD, false), (SPREAD, true)] {
        let (machine, owner, other) = beside(order, false, Hog, timely(waits));
        let late = machine.figures(other).tardiness_at(1.0);
        assert_eq!(late, 0, "order {order}, waits: {waits}");
        // The claim goes on after it: releases take 0.3 ms of 40, and it needs 39. Who waits with
        // other work has that in the periods that do not claim.
        let window = machine.entity(owner).window;
        assert!(window.met >= 125, "{window:?}");
    }
}

/// By hand: in the kernel no timer comes for who has just become ready.
#[test]
fn release_preempts_a_claim_without_guarantee_and_is_a_time_to_look() {
    for promised in [false, true] {
        let mut cpu = Cpu::new(&Options::default());
        let timely = cpu.add(100, NOBODY);
        cpu.ready(timely, 0);
        cpu.start(timely, None, 0);
        cpu.poll(timely, 0, 5 * MS, NEVER);
        cpu.stop_for_good(0);
        cpu.sleep(timely, 0);
        let owner = cpu.add(100, NOBODY);
        cpu.ready(owner, 0);
        cpu.admit(owner, &wish(promised), false, 0);
        cpu.start(owner, None, 0);
        // Something else wakes it before its time.
        cpu.ready(timely, MS);
        assert!(!cpu.preempts(timely, MS), "not due");
        let end_ns = wish(promised).service_ns;
        assert_eq!(cpu.timer(), if promised { end_ns } else { 5 * MS });
        assert_eq!(cpu.preempts(timely, 5 * MS), !promised);
    }
}

#[test]
fn release_waits_for_a_promised_claim() {
    for waits in [false, true] {
        let (machine, owner, other) = beside(SPREAD, true, Hog, timely(waits));
        let late = machine.figures(other).tardiness_at(1.0);
        assert!((15 * MS..=20 * MS).contains(&late), "{late} ns");
        assert_eq!(machine.entity(owner).window.missed, 0);
    }
}

#[test]
fn cooperative_thread_that_claims_without_guarantee_is_told_of_releases() {
    for (once, most) in [(false, 100 * US), (true, MS)] {
        for waits in [false, true] {
            let owner = Polls { once, begun: false };
            let (machine, owner, other) = beside(SPREAD, false, owner, timely(waits));
            let late = machine.figures(other).tardiness_at(1.0);
            let entity = machine.entity(owner);
            assert!(late <= most, "{late} ns, once: {once}, waits: {waits}");
            assert_eq!(entity.overran, u64::from(once));
            assert!(entity.window.met >= 120, "{:?}", entity.window);
        }
    }
}
