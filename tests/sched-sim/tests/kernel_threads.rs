//! Kernel threads of a high nice value, which hold locks that other threads want: khugepaged (nice
//! 19) holds that of a program's memory for milliseconds, while each thread of the program that
//! touches new memory waits.

use sched_sim::machine::Machine;
use sched_sim::ordinary::TICK_NS;
use sched_sim::policy::{Options, kernel_weight, user_weight};
use sched_sim::script::Hog;
use sched_sim::thread::{Action, Figures, Script, Spec, View};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// The kernel's weight of nice 19, rounded as it tells it.
const NICE_19: u32 = 1;
/// What the kernel thread computes with the lock, and how long it sleeps before it takes it again.
const HELD_NS: u64 = 10 * MS;
const PAUSE_NS: u64 = SECOND;
/// A thread computes for so long, and then wants the lock.
const WORK_NS: u64 = 5 * MS;

/// Takes the lock, computes, gives it back: that is a message to who waits for it.
struct Holder {
    step: u32,
    to: usize,
}

impl Script for Holder {
    fn next(&mut self, _: &View, _: &mut Figures) -> Action {
        self.step = (self.step + 1) % 3;
        match self.step {
            1 => Action::Sleep(PAUSE_NS),
            2 => Action::Run(HELD_NS),
            _ => Action::Send(self.to),
        }
    }
}

/// Computes in pieces, and once waits for the lock.
struct Worker {
    has_waited: bool,
}

impl Script for Worker {
    fn next(&mut self, view: &View, figures: &mut Figures) -> Action {
        if view.now > PAUSE_NS && !self.has_waited {
            self.has_waited = true;
            return Action::Receive;
        }
        if self.has_waited && figures.frames == 0 {
            // When it had the lock.
            figures.frames = view.now / MS;
        }
        Action::Run(WORK_NS)
    }
}

/// The time for which a thread waits for a lock, beside so many hogs on its CPU, if the thread that
/// holds the lock has this weight.
fn waits_ms(weight: u32, hogs: u32, nice_0: u32) -> u64 {
    let mut machine = Machine::new(1, 0, &Options::default());
    machine.nice_0 = nice_0;
    machine.tick_ns = TICK_NS;
    let worker = machine.add(Spec::plain(0), 0, Worker { has_waited: false });
    let holder = Spec {
        weight,
        ..Spec::plain(0)
    };
    machine.add(
        holder,
        0,
        Holder {
            step: 0,
            to: worker,
        },
    );
    for _ in 0..hogs {
        machine.add(Spec::plain(0), 0, Hog);
    }
    machine.run_until(20 * SECOND).expect("it keeps the rules");
    let had_ms = machine.figures(worker).frames;
    assert_ne!(had_ms, 0, "it never had the lock");
    had_ms - PAUSE_NS / MS
}

#[test]
fn who_waits_for_a_lock_of_a_kernel_thread_of_nice_19_has_it_soon() {
    for nice_0 in [100, 6400] {
        for hogs in 1..=4 {
            // By its credit it has 4 ms of these at once.
            let most_ms = 80 * u64::from(hogs) + 20;
            let waits = waits_ms(kernel_weight(NICE_19), hogs, nice_0);
            assert!(waits <= most_ms, "{nice_0}, {hogs} hogs: {waits} ms");
            // By the weight of nice 19, which a program's thread has.
            let waits = waits_ms(user_weight(NICE_19), hogs, nice_0);
            assert!(waits > 4 * most_ms, "{nice_0}, {hogs} hogs: {waits} ms");
        }
    }
}

#[test]
fn the_weight_of_others_is_what_it_is() {
    for weight in [1, 2, 11, 100, 10_000] {
        assert_eq!(user_weight(weight), weight);
        assert_eq!(kernel_weight(weight), weight.max(11));
    }
}
