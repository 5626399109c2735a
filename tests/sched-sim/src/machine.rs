//! The simulated machine: CPUs, threads and time. It does what the glue does in the kernel, and the
//! policy decides.
//!
//! Time goes from event to event (a thread has computed enough, a sleeper wakes, a timer fires);
//! events of one moment happen in the order in which they were planned. There is no other source of
//! chance than the scripts', so a run repeats exactly.
//!
//! A CPU that becomes idle looks for a thread that waits elsewhere, and then only looks again if it
//! is kicked, as in the kernel (`moves`). After each event the machine checks what must always hold
//! (`Machine::check`).
//!
//! With a tick the machine does more of what the kernel does, for [`ordinary`](crate::ordinary)
//! threads: a slice that no timer ends lasts until a tick, a thread that wakes goes to an idle CPU,
//! and busy CPUs balance (`moves`).

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use crate::moves::{Balancing, Kick, NEXT_LOOK_NS};
use crate::patience::{Rival, Wait, binds};
use crate::policy::{Admission, Choice, Cpu, NEVER, NOBODY, Options, PLAIN, Queue, why};
use crate::thread::{Action, Figures, Script, Spec, State, Thread, WEIGHT};

/// Decisions at one moment on one machine: more, and it makes no progress.
const DECISIONS_AT_ONCE_MAX: u32 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A CPU's running thread has computed what it said; the CPU's generation.
    Done(usize, u64),
    /// A CPU's timer; its generation.
    Timer(usize, u64),
    /// A real-time thread begins to run on a CPU, or stops.
    RealTime(usize, bool),
    /// A thread wakes from the sleep with this number.
    Wake(usize, u64),
}

pub(crate) struct Processor {
    pub(crate) policy: Cpu,
    pub(crate) running: Option<usize>,
    /// A real-time thread has it.
    pub(crate) away: bool,
    /// Those that wait: by virtual time, then number.
    pub(crate) queue: BTreeSet<(u64, usize)>,
    /// Those of them that the CPU takes without asking the policy, in this order.
    pub(crate) nexts: VecDeque<usize>,
    /// The same for each group's plain members.
    group_queue: Vec<BTreeSet<(u64, usize)>>,
    /// The entities of the machine's groups.
    groups: Vec<u32>,
    /// Who each entity is.
    thread_of: [usize; 64],
    generation: u64,
    timer_generation: u64,
    timer_ns: u64,
    tick_end_ns: u64,
    switched: Option<usize>,
    /// CPU time that threads have had by virtual time.
    passed_ns: u64,
    pub(crate) balancing: Balancing,
}

pub struct Machine {
    pub(crate) options: Options,
    pub(crate) processors: Vec<Processor>,
    pub(crate) threads: Vec<Thread>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
    pub(crate) now: u64,
    decided_at: (u64, u32),
    pub(crate) kicks: VecDeque<Kick>,
    /// What was seen and must not be, between two checks.
    pub(crate) wrong: Option<String>,
    /// The kernel's tick; 0: slices end when they should, and threads move to idle CPUs only.
    pub tick_ns: u64,
    /// The weight that the policy is told of a thread of nice 0.
    pub nice_0: u32,
    /// Whether a real-time thread makes others wait.
    pub(crate) has_real_time: bool,
    pub switch_ns: u64,
    /// Whether a thread that is certainly next runs without a choice (bpf/sched/next.h).
    pub has_nexts: bool,
    /// Times a CPU was asked who runs next.
    pub decisions: u64,
    /// Times a CPU went from one thread to another.
    pub switches: u64,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} threads at {} ns", self.threads.len(), self.now)
    }
}

impl Machine {
    /// A machine with groups of threads, which stand on each CPU.
    pub fn new(cpus: usize, groups: usize, options: &Options) -> Self {
        let processor = || {
            let mut policy = Cpu::new(options);
            let numbers = (0..groups).map(|_| policy.add_group()).collect();
            Processor {
                policy,
                running: None,
                away: false,
                queue: BTreeSet::new(),
                nexts: VecDeque::new(),
                group_queue: vec![BTreeSet::new(); groups],
                groups: numbers,
                thread_of: [usize::MAX; 64],
                generation: 0,
                timer_generation: 0,
                timer_ns: NEVER,
                tick_end_ns: NEVER,
                switched: None,
                passed_ns: 0,
                balancing: Balancing::default(),
            }
        };
        Self {
            options: *options,
            processors: (0..cpus).map(|_| processor()).collect(),
            threads: Vec::new(),
            events: BinaryHeap::new(),
            planned: 0,
            now: 0,
            decided_at: (0, 0),
            kicks: VecDeque::new(),
            wrong: None,
            tick_ns: 0,
            nice_0: WEIGHT,
            has_real_time: false,
            switch_ns: 0,
            has_nexts: false,
            decisions: 0,
            switches: 0,
        }
    }

    /// A thread that begins at a time. Returns its number.
    pub fn add(&mut self, spec: Spec, start_ns: u64, script: impl Script + 'static) -> usize {
        let number = self.threads.len();
        let mut thread = Thread::new(spec, Box::new(script), self.processors.len());
        thread.plain.weight = spec.weight * self.nice_0 / WEIGHT;
        let processor = &mut self.processors[spec.cpu];
        let group = spec.group.map_or(NOBODY, |group| processor.groups[group]);
        thread.plain.group = group;
        if spec.registered {
            thread.entity = processor.policy.add(thread.plain.weight, group);
            assert_ne!(thread.entity, NOBODY, "more entities than places");
            processor.thread_of[thread.entity as usize] = number;
        }
        if spec.timed {
            processor.policy.timed(thread.entity);
        }
        if let Some((wish, conserving)) = spec.window {
            let admission = processor
                .policy
                .admit(thread.entity, &wish, conserving, self.now);
            thread.promised = admission == Admission::Promised;
        }
        self.threads.push(thread);
        self.plan(start_ns, Event::Wake(number, 0));
        number
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// What became of a thread.
    pub fn figures(&self, thread: usize) -> &Figures {
        &self.threads[thread].figures
    }

    /// The policy's record of a registered thread.
    pub fn entity(&self, thread: usize) -> &crate::policy::Entity {
        let thread = &self.threads[thread];
        self.processors[thread.cpu].policy.entity(thread.entity)
    }

    /// Whether a thread's window was promised.
    pub fn promised(&self, thread: usize) -> bool {
        self.threads[thread].promised
    }

    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Lets time pass. An error says what should always hold and did not.
    pub fn run_until(&mut self, end_ns: u64) -> Result<(), String> {
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > end_ns {
                break;
            }
            self.events.pop();
            self.now = at;
            match event {
                Event::Done(cpu, generation) => self.done(cpu, generation),
                Event::Timer(cpu, generation) => self.timer(cpu, generation),
                Event::Wake(thread, number) => self.wake(thread, number, true),
                Event::RealTime(cpu, begins) => self.real_time(cpu, begins),
            }
            self.answer_kicks();
            self.check()?;
        }
        self.now = end_ns;
        let waiting = |&number: &usize| self.threads[number].state == State::Waiting;
        (0..self.threads.len())
            .filter(waiting)
            .find_map(|number| self.starves(number))
            .map_or(Ok(()), Err)
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((at, self.planned, event)));
    }

    /// From a time to another one, a real-time thread has a CPU: the policy is not told.
    pub fn take_away(&mut self, cpu: usize, from_ns: u64, to_ns: u64) {
        self.plan(from_ns, Event::RealTime(cpu, true));
        self.plan(to_ns, Event::RealTime(cpu, false));
        self.has_real_time = true;
    }

    fn real_time(&mut self, cpu: usize, begins: bool) {
        self.stop(cpu, false);
        self.processors[cpu].away = begins;
        // Who is next enters its queue again.
        for number in std::mem::take(&mut self.processors[cpu].nexts) {
            self.show(number);
        }
        self.decide(cpu);
    }

    /// `is_due`: the time has come until which it slept.
    fn wake(&mut self, number: usize, sleep: u64, is_due: bool) {
        let now = self.now;
        let thread = &mut self.threads[number];
        if thread.state != State::Asleep(sleep) {
            return;
        }
        thread.figures.wakes += 1;
        self.go_to_idle(number);
        let thread = &mut self.threads[number];
        let cpu = thread.cpu;
        let policy = &mut self.processors[cpu].policy;
        if sleep == 0 {
            thread.plain.vtime = policy.begins();
        }
        thread.state = State::Waiting;
        thread.woken = true;
        let slept_ns = std::mem::replace(&mut thread.since_ns, now);
        let preempts = if thread.entity == NOBODY {
            policy.ready_plain(&mut thread.plain, now);
            let alone = thread.plain.group == NOBODY;
            let plain = thread.plain;
            self.enqueue(number);
            let policy = &mut self.processors[cpu].policy;
            if alone {
                let preempts = policy.preempts_plain(&plain, slept_ns, now);
                self.note_next(number, true);
                // It set the timer.
                self.processors[cpu].tick_end_ns = 0;
                preempts
            } else {
                policy.running == NOBODY
            }
        } else {
            policy.ready(thread.entity, now);
            if thread.spec.timed && is_due {
                policy.timed_ready(thread.entity, now);
            }
            policy.preempts_since(thread.entity, slept_ns, now)
        };
        self.begin_wait(number);
        self.show(number);
        if preempts {
            self.decide(cpu);
        } else {
            self.arm(cpu);
        }
    }

    /// Puts a plain thread into its queue.
    pub(crate) fn enqueue(&mut self, number: usize) {
        let thread = &self.threads[number];
        let processor = &mut self.processors[thread.cpu];
        let key = (thread.plain.vtime, number);
        match thread.spec.group {
            Some(group) => processor.group_queue[group].insert(key),
            None => processor.queue.insert(key),
        };
        self.tell_groups(thread.cpu);
    }

    pub(crate) fn dequeue(&mut self, number: usize) {
        let thread = &self.threads[number];
        let processor = &mut self.processors[thread.cpu];
        let key = (thread.plain.vtime, number);
        let was = match thread.spec.group {
            Some(group) => processor.group_queue[group].remove(&key),
            None => processor.queue.remove(&key),
        };
        assert!(was, "a waiting plain thread is in its queue");
        self.tell_groups(thread.cpu);
    }

    fn tell_groups(&mut self, cpu: usize) {
        let processor = &mut self.processors[cpu];
        for (queue, &group) in processor.group_queue.iter().zip(&processor.groups) {
            let vtime = queue.first().map_or(0, |first| first.0);
            let count = queue.len() as u64;
            processor
                .policy
                .set_group_queue(group, Queue { vtime, count });
        }
    }

    /// Asks the policy who runs, and lets that thread run.
    pub(crate) fn decide(&mut self, cpu: usize) {
        let now = self.now;
        if self.processors[cpu].away {
            return;
        }
        self.decisions += 1;
        if self.decided_at.0 != now {
            self.decided_at = (now, 0);
        }
        self.decided_at.1 += 1;
        self.account(cpu);
        if let Some(number) = self.take_next(cpu) {
            self.stop(cpu, true);
            self.start(cpu, PLAIN, false, number);
            self.show_nexts(cpu);
            return self.arm(cpu);
        }
        let queue = self.processors[cpu].waiting();
        let choice = self.processors[cpu].policy.choose(now, &queue);
        let may_balance = choice.why == why::FAIR && !self.processors[cpu].policy.is_owed();
        let taken = may_balance.then(|| self.balance(cpu)).flatten();
        if choice.keep == 0 || taken.is_some() {
            self.stop(cpu, taken.is_none());
        }
        let nobody = taken.is_none() && choice.who == NOBODY;
        match taken.or_else(|| nobody.then(|| self.steal(cpu)).flatten()) {
            Some(number) => self.start(cpu, PLAIN, false, number),
            None if choice.who == NOBODY => {}
            None => self.start(cpu, choice.who, choice.keep == 1, self.chosen(cpu, &choice)),
        }
        self.arm(cpu);
    }

    /// What the running thread has computed up to now.
    fn account(&mut self, cpu: usize) {
        let Some(number) = self.processors[cpu].running else {
            return;
        };
        let thread = &mut self.threads[number];
        let ran = self.now - thread.since_ns;
        thread.since_ns = self.now;
        thread.left_ns = thread.left_ns.saturating_sub(ran);
        thread.figures.ran_ns += ran;
        thread.had_ns[cpu] = self.now;
        let processor = &mut self.processors[cpu];
        if processor.policy.claims == 0 {
            processor.passed_ns += ran;
        }
    }

    /// A thread waits from now on.
    pub(crate) fn begin_wait(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let processor = &self.processors[thread.cpu];
        let (vtime, group) = match thread.entity {
            NOBODY => (thread.plain.vtime, thread.plain.group),
            i => {
                let entity = processor.policy.entity(i);
                (entity.vtime, entity.group)
            }
        };
        thread.wait = Wait::begin(&processor.policy, vtime, group, processor.passed_ns);
    }

    /// Says so if a waiting thread has waited for too long.
    fn starves(&self, number: usize) -> Option<String> {
        let thread = &self.threads[number];
        let processor = &self.processors[thread.cpu];
        if thread.entity != NOBODY && !binds(&processor.policy, thread.entity) {
            return None;
        }
        let rivals = self.threads.iter().filter(|rival| {
            let comes_along = rival.entity == NOBODY && rival.plain.group == NOBODY;
            rival.cpu == thread.cpu || comes_along
        });
        let rivals = rivals.map(|rival| Rival {
            weight: rival.plain.weight,
            is_fellow: rival.spec.group.is_some() && rival.spec.group == thread.spec.group,
            may_be_early: rival.spec.registered,
        });
        let wait = &thread.wait;
        let most_ns = wait.most_ns(&self.options, thread.plain.weight, rivals);
        let passed_ns = processor.passed_ns - wait.passed_ns;
        (passed_ns > most_ns).then(|| {
            format!(
                "thread {number} waits at {} ns, though others have had {passed_ns} ns since: \
                 at most {most_ns} ns",
                self.now
            )
        })
    }

    /// The running thread stops, and waits. It may be next, unless the thread that runs instead
    /// comes from another CPU.
    fn stop(&mut self, cpu: usize, may_be_next: bool) {
        self.account(cpu);
        let processor = &mut self.processors[cpu];
        let Some(number) = processor.running.take() else {
            return;
        };
        processor.policy.stop(self.now);
        processor.generation += 1;
        let thread = &mut self.threads[number];
        thread.state = State::Waiting;
        if thread.entity == NOBODY {
            thread.plain = processor.policy.plain;
            self.enqueue(number);
            if may_be_next {
                self.note_next(number, false);
            }
            self.show(number);
        }
        self.begin_wait(number);
    }

    /// The thread that a choice stands for.
    fn chosen(&self, cpu: usize, choice: &Choice) -> usize {
        let processor = &self.processors[cpu];
        match choice.who {
            _ if choice.keep == 1 => processor.running.expect("it goes on"),
            PLAIN => processor.queue.first().expect("one waits").1,
            who => match processor.groups.iter().position(|&g| g == who) {
                Some(group) => processor.group_queue[group].first().expect("one waits").1,
                None => processor.thread_of[who as usize],
            },
        }
    }

    /// Gives the CPU to a thread: as `who`, for the policy. It may go on.
    fn start(&mut self, cpu: usize, who: u32, keep: bool, number: usize) {
        let now = self.now;
        let is_plain = self.threads[number].entity == NOBODY;
        let plain = (is_plain && !keep).then_some(self.threads[number].plain);
        if plain.is_some() {
            self.dequeue(number);
        }
        if !keep && self.wrong.is_none() {
            self.wrong = self.starves(number).or_else(|| self.was_late(number));
        }
        let processor = &mut self.processors[cpu];
        processor.policy.start(who, plain.as_ref(), now);
        if !keep && std::mem::take(&mut self.threads[number].woken) {
            processor.policy.woke();
        }
        // It goes on, but would be replaced by one that is next elsewhere: it looks again soon.
        if keep && std::mem::take(&mut processor.balancing.asked) {
            processor.policy.shorten(now + NEXT_LOOK_NS);
        }
        processor.running = Some(number);
        processor.generation += 1;
        self.processors[cpu].tick_end_ns = self.tick_end(cpu);
        let processor = &mut self.processors[cpu];
        let thread = &mut self.threads[number];
        if !keep {
            let waited = now - thread.since_ns;
            thread.figures.waited_ns_max = thread.figures.waited_ns_max.max(waited);
            thread.figures.turns += 1;
            thread.state = State::Running;
            thread.since_ns = now;
            if processor.switched != Some(number) {
                self.switches += 1;
                thread.left_ns += self.switch_ns;
                processor.switched = Some(number);
            }
        }
        if thread.entity != NOBODY {
            thread.view.slice_end_ns = processor.policy.slice_end_ns;
            thread.view.next_release_ns = processor.policy.next_release(thread.entity, now);
            thread.view.least_importance = processor.policy.least_importance(thread.entity);
        }
        let (at, generation) = (now + thread.left_ns, processor.generation);
        self.plan(at, Event::Done(cpu, generation));
    }

    /// When a CPU looks again. With a tick, that ends a slice for which the glue sets no timer.
    fn due(&mut self, cpu: usize) -> u64 {
        let processor = &mut self.processors[cpu];
        let at = processor.policy.timer();
        if self.tick_ns == 0 || processor.running.is_none() {
            return at;
        }
        at.max(processor.tick_end_ns)
    }

    /// When the tick ends the slice that begins now: the first one after its end. 0: a timer ends
    /// it, because others want the CPU.
    fn tick_end(&self, cpu: usize) -> u64 {
        let policy = &self.processors[cpu].policy;
        let slice_ns = policy.limit_ns - self.now;
        let is_timed =
            policy.cooperative | policy.windowed != 0 || slice_ns < self.options.period_ns;
        if is_timed || self.tick_ns == 0 {
            return 0;
        }
        policy.limit_ns.div_ceil(self.tick_ns) * self.tick_ns
    }

    /// Sets the CPU's timer to when the policy wants to look again. As in the kernel, one that
    /// comes earlier stays: nobody may want that any more.
    pub(crate) fn arm(&mut self, cpu: usize) {
        let at = self.due(cpu);
        let processor = &mut self.processors[cpu];
        if at >= processor.timer_ns {
            return;
        }
        processor.timer_generation += 1;
        processor.timer_ns = at;
        let generation = processor.timer_generation;
        if at != NEVER {
            self.plan(at.max(self.now), Event::Timer(cpu, generation));
        }
    }

    fn timer(&mut self, cpu: usize, generation: u64) {
        if self.processors[cpu].timer_generation != generation {
            return;
        }
        self.processors[cpu].timer_ns = NEVER;
        if self.tick_ns > 0 && self.due(cpu) > self.now {
            return self.arm(cpu);
        }
        self.decide(cpu);
    }

    /// The running thread has computed what it said: what does it do next?
    fn done(&mut self, cpu: usize, generation: u64) {
        if self.processors[cpu].generation != generation {
            return;
        }
        let now = self.now;
        let number = self.processors[cpu].running.expect("it runs");
        self.account(cpu);
        loop {
            let thread = &mut self.threads[number];
            thread.view.now = now;
            thread.view.cooperative = thread.entity != NOBODY
                && self.processors[cpu].policy.is_cooperative(thread.entity);
            match thread.script.next(&thread.view, &mut thread.figures) {
                Action::Run(ns) => {
                    thread.left_ns = ns;
                    self.plan(now + ns, Event::Done(cpu, generation));
                    return;
                }
                Action::Sleep(ns) => return self.sleep(cpu, now.saturating_add(ns)),
                Action::Exit => return self.end(cpu),
                Action::Yield => {
                    if self.processors[cpu].policy.yields() {
                        return self.decide(cpu);
                    }
                }
                Action::Poll {
                    release_ns,
                    importance,
                } => {
                    let entity = thread.entity;
                    self.processors[cpu]
                        .policy
                        .poll(entity, now, release_ns, importance);
                    if importance == NEVER && release_ns > now {
                        return self.sleep(cpu, release_ns);
                    }
                    return self.decide(cpu);
                }
                Action::Raise {
                    thread,
                    deadline_ns,
                } => self.raise(thread, deadline_ns),
                Action::Send(thread) => self.send(thread),
                Action::Go(to) => return self.go_where_it_may_run(cpu, to),
                Action::Receive if thread.inbox > 0 => thread.inbox -= 1,
                Action::Receive => {
                    thread.receives = true;
                    return self.sleep(cpu, NEVER);
                }
            }
            if self.processors[cpu].generation != generation {
                return;
            }
        }
    }

    fn raise(&mut self, number: usize, deadline_ns: u64) {
        let thread = &self.threads[number];
        if thread.entity == NOBODY || thread.state == State::Ended {
            return;
        }
        let cpu = thread.cpu;
        self.processors[cpu]
            .policy
            .event(thread.entity, deadline_ns);
        match thread.state {
            State::Asleep(sleep) => self.wake(number, sleep, false),
            State::Waiting
                if self.processors[cpu]
                    .policy
                    .preempts(thread.entity, self.now) =>
            {
                self.decide(cpu);
            }
            _ => {}
        }
    }

    fn send(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        match thread.state {
            State::Asleep(sleep) if thread.receives => {
                thread.receives = false;
                self.wake(number, sleep, false);
            }
            _ => thread.inbox += 1,
        }
    }

    fn sleep(&mut self, cpu: usize, until: u64) {
        let now = self.now;
        let number = self.leave_cpu(cpu);
        let thread = &mut self.threads[number];
        let policy = &mut self.processors[cpu].policy;
        if thread.entity == NOBODY {
            policy.sleep_plain(&thread.plain, now);
        } else {
            policy.sleep(thread.entity, now);
        }
        let planned = self.planned + 1;
        thread.state = State::Asleep(planned);
        if until == NEVER {
            self.planned = planned;
        } else {
            self.plan(until, Event::Wake(number, planned));
        }
        self.decide(cpu);
    }

    fn end(&mut self, cpu: usize) {
        let now = self.now;
        let number = self.leave_cpu(cpu);
        let thread = &mut self.threads[number];
        let policy = &mut self.processors[cpu].policy;
        thread.state = State::Ended;
        if thread.entity == NOBODY {
            policy.sleep_plain(&thread.plain, now);
        } else {
            policy.leave(thread.entity, now);
            policy.remove(thread.entity);
        }
        self.decide(cpu);
    }

    /// The running thread stops, and does not wait.
    pub(crate) fn leave_cpu(&mut self, cpu: usize) -> usize {
        let processor = &mut self.processors[cpu];
        let number = processor.running.take().expect("it runs");
        processor.policy.stop_for_good(self.now);
        processor.generation += 1;
        let thread = &mut self.threads[number];
        if thread.entity == NOBODY {
            thread.plain = processor.policy.plain;
        }
        number
    }

    /// What must hold after each event.
    fn check(&self) -> Result<(), String> {
        if self.decided_at.1 > DECISIONS_AT_ONCE_MAX {
            return Err(format!("no progress at {} ns", self.now));
        }
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let idle = self.processors.iter().any(Processor::is_idle);
        for (cpu, processor) in self.processors.iter().enumerate() {
            let policy = &processor.policy;
            let entities = policy.runnable & !policy.groups;
            let held = policy.windowed & policy.served & !policy.conserving;
            let queued: usize = processor.group_queue.iter().map(BTreeSet::len).sum();
            let waits = entities & !held != 0 || queued > 0;
            if processor.is_idle() && (waits || !processor.queue.is_empty()) {
                return Err(format!(
                    "cpu {cpu} idles at {} ns while a thread waits",
                    self.now
                ));
            }
            let free = |&&(_, number): &&(u64, usize)| !self.threads[number].spec.bound;
            let free = processor.queue.iter().filter(free).count();
            if idle && free > usize::from(processor.running.is_none()) {
                return Err(format!("cpu {cpu} has too many at {} ns", self.now));
            }
            self.check_policing(cpu)?;
        }
        Ok(())
    }

    /// Rule 3 and the slices bound how far anybody gets ahead by being served early.
    fn check_policing(&self, cpu: usize) -> Result<(), String> {
        let policy = &self.processors[cpu].policy;
        let options = &self.options;
        let most = options.ahead_ns + options.period_ns + 2 * options.slack_ns;
        let mut left = policy.runnable & !policy.inside & !policy.windowed;
        while left != 0 {
            let i = left.trailing_zeros();
            left &= left - 1;
            let entity = policy.entity(i);
            let ahead = entity.vtime.wrapping_sub(policy.vtime).cast_signed();
            let ahead_ns = i128::from(ahead) * i128::from(entity.weight) / 100;
            if ahead_ns > i128::from(most) && entity.members == 0 {
                return Err(format!(
                    "entity {i} is {ahead_ns} ns ahead at {} ns",
                    self.now
                ));
            }
        }
        Ok(())
    }
}
