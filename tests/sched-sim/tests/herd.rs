//! Where many threads want a CPU: how long a slice is, and threads that send to many, as the groups
//! of hackbench do by sockets. Each sender has messages for all receivers, and one that has room
//! again wakes all senders that wait for it.

use sched_sim::machine::Machine;
use sched_sim::ordinary::{Sleeper, TICK_NS};
use sched_sim::policy::{Cpu, NOBODY, Options, PLAIN, Plain, Queue};
use sched_sim::script::Hog;
use sched_sim::thread::{Action, Figures, Script, Spec, View};

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Threads of each kind, and messages of each sender that a receiver takes before it says so; a
/// sender is at most twice as far.
const MANY: usize = 20;
const ROOM: usize = 7;
/// A thread that sleeps most of the time waits for a few of the receivers at most.
const LATE_MOST_NS: u64 = 8 * MS;

/// Sends to each receiver in turn.
struct Sender {
    to: usize,
    sent: usize,
    /// It has computed the next message.
    is_ready: bool,
    /// Receivers that have to say that there is room.
    waits: usize,
    message_ns: u64,
}

impl Script for Sender {
    fn next(&mut self, _: &View, _: &mut Figures) -> Action {
        if self.waits > 0 {
            self.waits -= 1;
            return Action::Receive;
        }
        self.is_ready = !self.is_ready;
        if self.is_ready {
            return Action::Run(self.message_ns);
        }
        let receiver = self.to + self.sent % MANY;
        self.sent += 1;
        if self.sent.is_multiple_of(ROOM * MANY) && self.sent > ROOM * MANY {
            self.waits = MANY;
        }
        Action::Send(receiver)
    }
}

struct Receiver {
    from: usize,
    received: usize,
    has_message: bool,
    /// Senders that it has yet to tell.
    tells: usize,
    message_ns: u64,
}

impl Script for Receiver {
    fn next(&mut self, _: &View, figures: &mut Figures) -> Action {
        if self.tells > 0 {
            self.tells -= 1;
            return Action::Send(self.from + self.tells);
        }
        self.has_message = !self.has_message;
        if self.has_message {
            return Action::Receive;
        }
        self.received += 1;
        figures.frames += 1;
        if self.received.is_multiple_of(ROOM * MANY) {
            self.tells = MANY;
        }
        Action::Run(self.message_ns)
    }
}

/// What became of a machine.
struct Seen {
    messages: u64,
    switches: u64,
    /// How long after it woke a thread ran that sleeps most of the time: 99 of 100 times.
    late_ns: u64,
}

/// Two groups for each CPU, which need so long for a message, beside so many hogs.
fn run(cpus: usize, message_ns: u64, hogs: usize) -> Seen {
    let mut machine = Machine::new(cpus, 0, &Options::default());
    machine.tick_ns = TICK_NS;
    for _ in 0..2 * cpus {
        let first = machine.threads();
        for _ in 0..MANY {
            let sender = Sender {
                to: first + MANY,
                sent: 0,
                is_ready: false,
                waits: 0,
                message_ns,
            };
            machine.add(Spec::plain(machine.threads() % cpus), 0, sender);
        }
        for _ in 0..MANY {
            let receiver = Receiver {
                from: first,
                received: 0,
                has_message: false,
                tells: 0,
                message_ns: message_ns * 4 / 5,
            };
            machine.add(Spec::plain(machine.threads() % cpus), 0, receiver);
        }
    }
    for _ in 0..hogs {
        machine.add(Spec::plain(0), 0, Hog);
    }
    let sleeper = machine.add(Spec::plain(0), 0, Sleeper::new(1, 10 * MS, 50 * US));
    machine.run_until(4 * SECOND).expect("it keeps its rules");
    let messages = (0..machine.threads()).map(|i| machine.figures(i).frames);
    Seen {
        messages: messages.sum(),
        switches: machine.switches,
        late_ns: machine.figures(sleeper).tardiness_at(0.99),
    }
}

/// A sender that wakes a receiver by each message goes on, and the receivers wait for other
/// senders: one switch is for several messages. Where a turn is for few messages, too.
#[test]
fn threads_that_send_to_many_do_not_switch_for_each_message() {
    for (cpus, message_ns, hogs, least) in [
        (1, 10 * US, 0, 10),
        (1, 10 * US, 2, 10),
        (1, 25 * US, 0, 6),
        (2, 25 * US, 0, 4),
        (4, 50 * US, 0, 2),
    ] {
        let seen = run(cpus, message_ns, hogs);
        let many = seen.messages / seen.switches;
        let late_us = seen.late_ns / US;
        println!(
            "{cpus} CPUs, {message_ns} ns a message, {hogs} hogs: {many} messages a switch; \
             a sleeper is late by {late_us} us"
        );
        let busy_ns = seen.messages * message_ns * 9 / 5;
        assert!(busy_ns > cpus as u64 * 3 * SECOND, "{}", seen.messages);
        assert!(many >= least);
        assert!(seen.late_ns <= LATE_MOST_NS);
    }
}

/// Each worker of a server that wakes in a turn comes before a hog. Of the receivers of a group of
/// dozens, only the first does.
#[test]
fn all_that_wake_in_a_turn_gain_by_their_sleep_unless_many_wait() {
    let plain = Plain {
        weight: 100,
        group: NOBODY,
        ..Plain::default()
    };
    let come_before_the_hog = |waiting| {
        let mut cpu = Cpu::new(&Options::default());
        let vtime = 50 * MS;
        let queue = Queue {
            vtime,
            count: waiting,
        };
        cpu.choose(0, &queue);
        cpu.start(PLAIN, Some(&Plain { vtime, ..plain }), 0);
        cpu.woke();
        [(); 2].map(|()| {
            let mut sleeper = Plain {
                vtime: vtime - MS,
                slept: vtime - 20 * MS,
                ..plain
            };
            cpu.ready_plain(&mut sleeper, MS / 2);
            assert!(!cpu.preempts_plain(&sleeper, MS / 2, MS / 2));
            sleeper.vtime < vtime
        })
    };
    assert_eq!(come_before_the_hog(15), [true, true]);
    assert_eq!(come_before_the_hog(16), [true, false]);
}

#[test]
fn slice_of_a_plain_thread_is_the_same_beside_one_and_beside_dozens() {
    let slice = |others, period_ns| {
        let mut cpu = Cpu::new(&Options {
            period_ns,
            ..Options::default()
        });
        let thread = Plain {
            weight: 100,
            group: NOBODY,
            ..Plain::default()
        };
        cpu.start(PLAIN, Some(&thread), 0);
        let waiting = Queue {
            vtime: 0,
            count: others,
        };
        cpu.choose(0, &waiting);
        cpu.would_run_ns(PLAIN, 0)
    };
    assert_eq!(slice(0, 20 * MS), 20 * MS);
    for others in [1, 20, 65] {
        assert_eq!(slice(others, 20 * MS), 3 * MS / 2, "beside {others}");
    }
    // Each has its turn within five periods.
    assert_eq!(slice(199, 20 * MS), MS / 2);
    assert_eq!(slice(9999, 20 * MS), MS / 10, "least");
    assert_eq!(slice(1, MS), MS / 2, "others have theirs within the period");
}
