//! Threads that go to another CPU of the simulated machine: those that wake, where one is idle;
//! those that wait, to an idle CPU, or to a busy one by balance, as bpf/sched/take.h does it.
//!
//! With a tick, each move and each wait is checked: how far behind or ahead of the others a thread
//! comes to stand, and how long it waited (`was_late`).

use crate::machine::{Machine, Processor};
use crate::policy::{Load, Look, Move, NOBODY, Queue, Wants};
use crate::script::Chance;
use crate::thread::{State, Thread};

/// A turn of a thread: the slice where others wait, and up to a tick more.
const TURN_NS: u64 = 8_000_000;
/// CPU time by which one that has woken may be before all others (`FAIR_CREDIT_NS`).
const CREDIT_NS: u64 = 4_000_000;
/// By so much one that was alone is ahead of the others (`FAIR_ALONE_NS`).
const ALONE_NS: u64 = 10_000_000;
/// So many turns of each rival, by weight, a thread waits at most.
const TURNS: u64 = 2;

const ROTATE_PERIODS: u64 = 2;
const LOOKS: usize = 8;
const BALANCE_CPUS: usize = 3;
const AGAIN_NS: u64 = 1_000_000;
const LEVEL_NS: u64 = 50_000;
/// A CPU that has not compared loads for so long asks the policy whom to run.
pub(crate) const NEXT_LOOK_NS: u64 = 1_000_000;
const NEXT_SHOWN_NS: u64 = 4_000_000;

/// What a CPU knows of balancing (`struct sched_places`).
pub(crate) struct Balancing {
    looked: usize,
    took: bool,
    look_ns: u64,
    rotate_ns: u64,
    /// Until then, no thread that may leave is next.
    shown_ns: u64,
    /// It would take a thread that is next elsewhere.
    pub(crate) asked: bool,
    chance: Chance,
}

/// One CPU interrupts another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kick {
    /// If it is idle, it looks for a thread.
    Idle(usize),
    /// The turn of its thread ends.
    Preempt(usize),
}

impl Default for Balancing {
    fn default() -> Self {
        Self {
            looked: 0,
            took: false,
            look_ns: 0,
            rotate_ns: 0,
            shown_ns: 0,
            asked: false,
            chance: Chance::new(1),
        }
    }
}

impl Processor {
    /// Nobody has it.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && !self.away
    }

    /// What the policy is told of its waiting plain threads.
    pub(crate) fn waiting(&self) -> Queue {
        Queue {
            vtime: self.queue.first().map_or(0, |first| first.0),
            count: self.queue.len() as u64,
        }
    }

    /// The policy's virtual time, up to date (`fair_follows`).
    fn least(&self, now: u64) -> u64 {
        let policy = &self.policy;
        let beyond = |vtime: u64| vtime.wrapping_sub(policy.vtime).cast_signed().max(0);
        let weight = u64::from(policy.plain.weight.max(1));
        let ran = now.saturating_sub(policy.charged_ns) * 100 / weight;
        let running = self.running.map(|_| policy.plain.vtime.wrapping_add(ran));
        let first = self.queue.first().map(|waiting| waiting.0);
        let least = first.into_iter().chain(running).map(beyond).min();
        let least = least.unwrap_or(0).unsigned_abs();
        let passed = policy.passed + ran;
        let passed = if first.is_some() { passed } else { passed / 2 };
        let follows = passed.max(least.saturating_sub(ALONE_NS * 100 / weight));
        policy.vtime.wrapping_add(least.min(follows))
    }
}

impl Machine {
    /// The weights of the threads that want a CPU.
    pub(crate) fn load(&self, cpu: usize) -> u64 {
        let processor = &self.processors[cpu];
        let waiting = processor.queue.iter().map(|waiting| waiting.1);
        let all = waiting.chain(processor.running);
        all.map(|i| u64::from(self.threads[i].plain.weight)).sum()
    }

    /// CPU time by which a thread is ahead of the first of those that are on a CPU, at least 0.
    fn ahead_ns(&self, number: usize, cpu: usize) -> u64 {
        let thread = &self.threads[number];
        let least = self.processors[cpu].least(self.now);
        let ahead = thread.plain.vtime.wrapping_sub(least).cast_signed().max(0);
        ahead.unsigned_abs() * u64::from(thread.plain.weight) / 100
    }

    /// A plain thread, which is in no queue, goes by the virtual time of another CPU.
    fn go(&mut self, number: usize, to: usize) {
        let from = self.threads[number].cpu;
        let before = self.ahead_ns(number, from);
        let moves = Move {
            there: self.processors[from].waiting(),
            here: self.processors[to].waiting(),
            vtime: self.threads[number].plain.vtime,
            now_ns: self.now,
        };
        let thread = &mut self.threads[number];
        if let Ok([from, to]) = self.processors.get_disjoint_mut([from, to]) {
            thread.plain.vtime = to.policy.arrive(&from.policy, &moves);
        }
        thread.plain.slept = 0;
        thread.cpu = to;
        let after = self.ahead_ns(number, to);
        if self.tick_ns == 0 || after.abs_diff(before) <= TURN_NS + CREDIT_NS {
            return;
        }
        self.wrong.get_or_insert_with(|| {
            format!(
                "thread {number} was {before} ns ahead on cpu {from}, and is {after} ns ahead \
                 on cpu {to} since it went there at {} ns",
                self.now
            )
        });
    }

    /// The running thread says that it may run on another CPU only: it waits there.
    pub(crate) fn go_where_it_may_run(&mut self, from: usize, to: usize) {
        let number = self.leave_cpu(from);
        self.threads[number].state = State::Waiting;
        self.go(number, to);
        let policy = &mut self.processors[to].policy;
        policy.ready_plain(&mut self.threads[number].plain, self.now);
        self.enqueue(number);
        self.begin_wait(number);
        self.decide(from);
        if self.processors[to].running.is_none() {
            self.decide(to);
        }
        self.show(number);
    }

    /// A thread that wakes goes where nobody runs, unless that is its own CPU.
    pub(crate) fn go_to_idle(&mut self, number: usize) {
        let thread = &self.threads[number];
        let (cpu, is_free) = (thread.cpu, self.is_free(number));
        if self.tick_ns == 0 || !is_free || self.processors[cpu].is_idle() {
            return;
        }
        let idle = (0..self.processors.len()).find(|&to| self.processors[to].is_idle());
        if let Some(to) = idle {
            self.go(number, to);
        }
    }

    fn is_free(&self, number: usize) -> bool {
        let thread = &self.threads[number];
        thread.entity == NOBODY && thread.spec.group.is_none() && !thread.spec.bound
    }

    /// A plain thread that waits, and may leave its CPU, does.
    fn leave_queue(&mut self, number: usize, to: usize) {
        let from = self.threads[number].cpu;
        self.dequeue(number);
        let plain = self.threads[number].plain;
        self.processors[from].policy.sleep_plain(&plain, self.now);
        self.go(number, to);
        let policy = &mut self.processors[to].policy;
        policy.ready_plain(&mut self.threads[number].plain, self.now);
        self.enqueue(number);
        self.begin_wait(number);
        self.arm(from);
    }

    /// The first thread that waits for a CPU, may leave it, and is not in its local queue.
    fn first_free(&self, cpu: usize) -> Option<usize> {
        let Processor { queue, nexts, .. } = &self.processors[cpu];
        let mut waiting = queue.iter().map(|waiting| waiting.1);
        waiting.find(|number| self.is_free(*number) && !nexts.contains(number))
    }

    /// A thread that an idle CPU takes from the first other one where it finds one; it is in the
    /// queue here then. If there are only such as are next there, the CPU asks for them.
    pub(crate) fn steal(&mut self, to: usize) -> Option<usize> {
        let cpus = self.processors.len();
        for other in (1..cpus).map(|round| (to + round) % cpus) {
            if let Some(number) = self.first_free(other) {
                self.leave_queue(number, to);
                return Some(number);
            }
            self.ask(other, true);
        }
        None
    }

    /// Another CPU would take a thread that is next on this one.
    fn ask(&mut self, other: usize, is_idle: bool) -> bool {
        let mut nexts = self.processors[other].nexts.iter();
        if !nexts.any(|&number| self.is_free(number)) {
            return false;
        }
        self.processors[other].balancing.shown_ns = self.now + NEXT_SHOWN_NS;
        if is_idle {
            self.kicks.push_back(Kick::Preempt(other));
        }
        true
    }

    /// A thread has gone into the queue of its CPU: an idle one is kicked for it.
    pub(crate) fn show(&mut self, number: usize) {
        let own = self.threads[number].cpu;
        if !self.is_free(number) || self.processors[own].nexts.contains(&number) {
            return;
        }
        if let Some(idle) = self.idle_beside(own) {
            self.kicks.push_back(Kick::Idle(idle));
        }
    }

    /// An idle CPU that was not kicked yet.
    fn idle_beside(&self, own: usize) -> Option<usize> {
        (0..self.processors.len()).find(|&cpu| {
            let is_kicked = self.kicks.contains(&Kick::Idle(cpu));
            cpu != own && self.processors[cpu].is_idle() && !is_kicked
        })
    }

    /// Interrupts that CPUs sent each other during an event arrive after it.
    pub(crate) fn answer_kicks(&mut self) {
        while let Some(kick) = self.kicks.pop_front() {
            match kick {
                Kick::Idle(cpu) if !self.processors[cpu].is_idle() => {}
                Kick::Idle(cpu) | Kick::Preempt(cpu) => self.decide(cpu),
            }
        }
    }

    /// A thread that this CPU takes from the next one that it looks at; it is in the queue here.
    pub(crate) fn balance(&mut self, cpu: usize) -> Option<usize> {
        let (cpus, now) = (self.processors.len(), self.now);
        let own = &mut self.processors[cpu].balancing;
        if self.tick_ns == 0 || cpus < 2 || now < own.look_ns || std::mem::take(&mut own.took) {
            return None;
        }
        let (first, rotates) = (own.looked, now >= own.rotate_ns);
        let others = (1..=cpus)
            .map(|i| (first + i) % cpus)
            .filter(|other| *other != cpu);
        let other = others
            .take(BALANCE_CPUS)
            .reduce(|a, b| if self.load(b) > self.load(a) { b } else { a })
            .expect("another");
        self.processors[cpu].balancing.looked = other;
        let look = Look {
            mine: Load::new(self.load(cpu), self.processors[cpu].policy.away(now)),
            theirs: Load::new(self.load(other), self.processors[other].policy.away(now)),
            vtime: self.processors[other].policy.vtime,
            period_ns: self.options.period_ns,
            wanted: if rotates {
                Wants::Rotates
            } else {
                Wants::Takes
            },
            pad: 0,
        };
        if look.mine.wants(&look.theirs, 0) < look.wanted {
            self.processors[cpu].balancing.look_ns = now + LEVEL_NS;
            return None;
        }
        let taken = {
            let mut first = self.processors[other].queue.iter().take(LOOKS);
            let nexts = &self.processors[other].nexts;
            first.find(|&&(vtime, i)| {
                self.is_free(i)
                    && !nexts.contains(&i)
                    && look.takes(vtime, self.threads[i].plain.weight.into())
            })
        };
        let Some(&(_, number)) = taken else {
            self.processors[cpu].balancing.look_ns = now + AGAIN_NS;
            self.processors[cpu].balancing.asked = self.ask(other, false);
            return None;
        };
        let period_ns = self.options.period_ns;
        let own = &mut self.processors[cpu].balancing;
        own.took = true;
        own.rotate_ns = now + ROTATE_PERIODS * period_ns + own.chance.between(0, period_ns - 1);
        self.processors[other].balancing.rotate_ns = self.processors[cpu].balancing.rotate_ns;
        self.leave_queue(number, cpu);
        Some(number)
    }

    /// A thread has begun to wait: whether it is next, as bpf/sched/next.h decides it.
    pub(crate) fn note_next(&mut self, number: usize, woken: bool) {
        let thread = &self.threads[number];
        let is_single = self.processors.len() == 1;
        let is_wanted = self.idle_beside(thread.cpu).is_some();
        let processor = &mut self.processors[thread.cpu];
        let has_looked = self.now < processor.balancing.look_ns + NEXT_LOOK_NS;
        let may_leave = !thread.spec.bound;
        if may_leave && (is_wanted || self.now < processor.balancing.shown_ns) {
            return;
        }
        if !self.has_nexts || woken && !thread.spec.bound || !(has_looked || is_single) {
            return;
        }
        let nexts = &mut processor.nexts;
        if !processor.policy.is_next(&thread.plain, nexts.len(), woken) {
            return;
        }
        match woken {
            true => nexts.push_front(number),
            false => nexts.push_back(number),
        }
    }

    /// The thread that runs next without a choice.
    pub(crate) fn take_next(&mut self, cpu: usize) -> Option<usize> {
        loop {
            let number = self.processors[cpu].nexts.pop_front()?;
            let key = (self.threads[number].plain.vtime, number);
            // An idle CPU may have taken it.
            if self.processors[cpu].queue.contains(&key) {
                return Some(number);
            }
        }
    }

    /// A thread that was next runs: those behind it are for an idle CPU that has asked for them.
    pub(crate) fn show_nexts(&mut self, cpu: usize) {
        if self.now >= self.processors[cpu].balancing.shown_ns || self.idle_beside(cpu).is_none() {
            return;
        }
        for number in std::mem::take(&mut self.processors[cpu].nexts) {
            self.show(number);
        }
    }

    /// Says so if a plain thread that runs now has waited for too long.
    pub(crate) fn was_late(&self, number: usize) -> Option<String> {
        let thread = &self.threads[number];
        if self.tick_ns == 0
            || self.has_real_time
            || thread.entity != NOBODY
            || thread.state != State::Waiting
        {
            return None;
        }
        // In hundredths: a turn of each thread that had the CPU meanwhile, or as much more as that
        // is heavier.
        let turns = |rival: &Thread| {
            let weight = u64::from(rival.spec.weight) * 100;
            100.max(weight / u64::from(thread.spec.weight))
        };
        let had_it = |rival: &&Thread| rival.had_ns[thread.cpu] > thread.since_ns;
        let rivals: u64 = self.threads.iter().filter(had_it).map(turns).sum();
        let waited = self.now - thread.since_ns;
        let most = TURNS * TURN_NS * (100 + rivals) / 100;
        (waited > most).then(|| {
            format!(
                "thread {number} has waited for {waited} ns at {} ns: at most {most} ns",
                self.now
            )
        })
    }
}
