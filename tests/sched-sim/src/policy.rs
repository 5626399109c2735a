//! The C policy, callable: [`Cpu`] is a `struct sched_cpu` and what may be done with it.
//!
//! The structures are mirrored field by field, so that a test can look at everything; their sizes
//! are compared when the first [`Cpu`] is made.
#![allow(
    unsafe_code,
    reason = "calls C functions on memory that they share with no one"
)]

use crate::call::{self, Call, Op, Recorded};

pub const ENTITIES: usize = 64;
pub const NOBODY: u32 = 64;
pub const PLAIN: u32 = 65;
pub const NEVER: u64 = u64::MAX;

/// Why somebody was chosen: `SCHED_WHY_...`.
pub mod why {
    pub const NOBODY: u32 = 0;
    pub const FAIR: u32 = 1;
    pub const RELEASE: u32 = 2;
    pub const WINDOW: u32 = 3;
    pub const EVENT: u32 = 4;
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub period_ns: u64,
    pub slice_min_ns: u64,
    pub slack_ns: u64,
    pub ahead_ns: u64,
    pub reserve: u64,
    pub server_ns: u64,
    pub window_order: u32,
    pub pad: u32,
}

/// `WINDOW_DWCS`.
pub const DWCS: u32 = 0;
/// `WINDOW_SPREAD`.
pub const SPREAD: u32 = 1;

/// What admission says: `ADMIT_...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Admission {
    Refused,
    Unpromised,
    Promised,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub period_ns: u64,
    pub service_ns: u64,
    pub deadline_ns: u64,
    pub served_ns: u64,
    pub x: u32,
    pub y: u32,
    pub now_x: u32,
    pub now_y: u32,
    pub position: u32,
    pub tagged: u32,
    pub met: u64,
    pub missed: u64,
    pub violated: u64,
}

impl Window {
    pub fn new(period_ns: u64, service_ns: u64, x: u32, y: u32) -> Self {
        Self {
            period_ns,
            service_ns,
            x,
            y,
            now_x: x,
            now_y: y,
            ..Self::default()
        }
    }

    /// Whether its claim goes before another's.
    pub fn before(&self, other: &Self, order: u32) -> bool {
        policy_window_before(self, other, order) != 0
    }

    pub fn meet(&mut self) {
        policy_window_met(self);
    }

    pub fn miss(&mut self) {
        policy_window_miss(self);
    }

    /// Whether the period at this position claims, in the order `SPREAD`.
    pub fn counts(&self, position: u32) -> bool {
        policy_window_counts(self, position) != 0
    }
}

impl Default for Options {
    /// As the scheduler has them when nobody says otherwise.
    fn default() -> Self {
        Self {
            period_ns: 20_000_000,
            slice_min_ns: 100_000,
            slack_ns: 1_000_000,
            ahead_ns: 20_000_000,
            reserve: (1 << 20) / 20,
            server_ns: 0,
            window_order: SPREAD,
            pad: 0,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain {
    pub vtime: u64,
    pub slept: u64,
    pub weight: u32,
    pub group: u32,
    pub brief: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    pub vtime: u64,
    pub count: u64,
}

/// `struct fair_move`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub there: Queue,
    pub here: Queue,
    pub vtime: u64,
    pub now_ns: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Entity {
    pub vtime: u64,
    pub weight: u32,
    pub group: u32,
    pub release_ns: u64,
    pub importance: u64,
    pub overran: u64,
    pub slept: u64,
    pub ahead: u64,
    pub event_ns: u64,
    pub turn_ns: u64,
    pub window: Window,
    pub ran_ns: u64,
    pub inner_vtime: u64,
    pub head_vtime: u64,
    pub shared_vtime: u64,
    pub shared_weight: u32,
    pub pad: u32,
    pub queued: u32,
    pub members: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub who: u32,
    pub why: u32,
    pub keep: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Debug)]
pub struct Raw {
    pub options: Options,
    pub used: u64,
    pub groups: u64,
    pub inside: u64,
    pub runnable: u64,
    pub cooperative: u64,
    pub polled: u64,
    pub timed: u64,
    pub due: u64,
    pub fresh: u64,
    pub windowed: u64,
    pub promised: u64,
    pub served: u64,
    pub conserving: u64,
    pub counting: u64,
    pub starting: u64,
    pub events: u64,
    pub vtime: u64,
    pub passed: u64,
    pub owed: u64,
    pub woke: u64,
    pub kept: u64,
    pub kept_ns: u64,
    pub quotas: u64,
    pub yields: u64,
    pub queued_vtime: u64,
    pub queue: Queue,
    pub running: u32,
    pub zero: u32,
    pub plain: Plain,
    pub charged_ns: u64,
    pub protected_ns: u64,
    pub slice_end_ns: u64,
    pub limit_ns: u64,
    pub due_end_ns: u64,
    pub claims: u32,
    pub on_server: u32,
    pub serving: u32,
    pub first: u32,
    pub next_release_ns: u64,
    pub grid_ns: u64,
    pub quota_end_ns: u64,
    pub quota_used_ns: u64,
    pub promised_share: u64,
    pub all_fit: u64,
    pub had_ns: u64,
    pub away_ns: u64,
    pub away_share: u64,
    pub choice: Choice,
    pub wish: Window,
    pub server: Window,
    pub entity: [Entity; ENTITIES],
}

impl Raw {
    fn zeroed() -> Self {
        Self {
            options: Options::default(),
            used: 0,
            groups: 0,
            inside: 0,
            runnable: 0,
            cooperative: 0,
            polled: 0,
            timed: 0,
            due: 0,
            fresh: 0,
            windowed: 0,
            promised: 0,
            served: 0,
            conserving: 0,
            counting: 0,
            starting: 0,
            events: 0,
            vtime: 0,
            passed: 0,
            owed: 0,
            woke: 0,
            kept: 0,
            kept_ns: 0,
            quotas: 0,
            yields: 0,
            queued_vtime: 0,
            queue: Queue::default(),
            running: 0,
            zero: 0,
            plain: Plain::default(),
            charged_ns: 0,
            protected_ns: 0,
            slice_end_ns: 0,
            limit_ns: 0,
            due_end_ns: 0,
            claims: 0,
            on_server: 0,
            serving: 0,
            first: 0,
            next_release_ns: 0,
            grid_ns: 0,
            quota_end_ns: 0,
            quota_used_ns: 0,
            promised_share: 0,
            all_fit: 0,
            had_ns: 0,
            away_ns: 0,
            away_share: 0,
            choice: Choice::default(),
            wish: Window::default(),
            server: Window::default(),
            entity: [Entity::default(); ENTITIES],
        }
    }
}

unsafe extern "C" {
    safe static policy_sizes: [u64; 5];
    safe fn policy_init(cpu: &mut Raw, options: &Options);
    safe fn policy_add(cpu: &mut Raw, weight: u32, group: u32) -> u32;
    safe fn policy_add_group(cpu: &mut Raw) -> u32;
    safe fn policy_remove(cpu: &mut Raw, i: u32);
    safe fn policy_ready(cpu: &mut Raw, i: u32, now: u64);
    safe fn policy_timed(cpu: &mut Raw, i: u32);
    safe fn policy_timed_ready(cpu: &mut Raw, i: u32, now: u64);
    safe fn policy_ready_plain(cpu: &mut Raw, plain: &mut Plain, now: u64);
    safe fn policy_sleep(cpu: &mut Raw, i: u32, asleep: u32, now: u64);
    safe fn policy_sleep_plain(cpu: &mut Raw, plain: &Plain, now: u64);
    safe fn policy_start(cpu: &mut Raw, who: u32, plain: Option<&Plain>, now: u64);
    safe fn policy_stop(cpu: &mut Raw, waits: u32, now: u64);
    safe fn policy_is_next(cpu: &Raw, plain: &Plain, nexts: u64, woken: u32) -> i32;
    safe fn policy_shorten(cpu: &mut Raw, end_ns: u64);
    safe fn policy_yield(cpu: &mut Raw) -> i32;
    safe fn policy_poll(cpu: &mut Raw, i: u32, now: u64, release: u64, importance: u64);
    safe fn policy_choose(cpu: &mut Raw, now: u64, queue: &Queue, choice: &mut Choice);
    safe fn policy_preempts(cpu: &mut Raw, who: u32, since: u64, now: u64) -> i32;
    safe fn policy_preempts_plain(
        cpu: &mut Raw,
        vtime: u64,
        weight: u32,
        since: u64,
        now: u64,
    ) -> i32;
    safe fn policy_timer(cpu: &mut Raw) -> u64;
    safe fn policy_next_release(cpu: &mut Raw, except: u32, now: u64) -> u64;
    safe fn policy_least_importance(cpu: &mut Raw, except: u32) -> u64;
    safe fn policy_admit(cpu: &mut Raw, i: u32, wish: &Window, conserving: u32, now: u64) -> u32;
    safe fn policy_admit_end(cpu: &mut Raw, i: u32, now: u64);
    safe fn policy_event(cpu: &mut Raw, i: u32, deadline: u64);
    safe fn policy_window_before(a: &Window, b: &Window, order: u32) -> i32;
    safe fn policy_window_met(window: &mut Window);
    safe fn policy_window_miss(window: &mut Window);
    safe fn policy_window_counts(window: &Window, position: u32) -> i32;
    safe fn policy_woke(cpu: &mut Raw);
    safe fn policy_begin(cpu: &Raw) -> u64;
    safe fn policy_weight(weight: u32, is_kernel: u32) -> u32;
    safe fn policy_is_owed(cpu: &Raw) -> i32;
    safe fn policy_move(vtime: u64, from_least: u64, to_least: u64) -> u64;
    safe fn policy_arrive(from: &Raw, to: &mut Raw, moves: &Move) -> u64;
    safe fn policy_away(cpu: &Raw, now: u64) -> u64;
    safe fn policy_balance_left(promised_share: u64) -> u64;
    safe fn policy_balance_takes(look: &Look, vtime: u64, weight: u64) -> u32;
    safe fn policy_balance_wants(mine: &Load, theirs: &Load, weight: u64) -> u32;
}

/// What the policy knows of one CPU. Read anything; change it only by the functions.
#[derive(Debug)]
pub struct Cpu {
    raw: Box<Raw>,
    /// What it was asked, and its memory before that, if that is recorded.
    record: Option<(Vec<u8>, Vec<Call>)>,
}

impl Clone for Cpu {
    fn clone(&self) -> Self {
        Self {
            raw: self.raw.clone(),
            record: None,
        }
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        if let Some((begin, calls)) = self.record.take() {
            let end = bytes(&*self.raw).to_vec();
            call::keep(Recorded { begin, calls, end });
        }
    }
}

trait Flat {}
impl Flat for Raw {}
impl Flat for Call {}

fn bytes<T: Flat>(of: &T) -> &[u8] {
    // SAFETY: the structures are `repr(C)` without padding, as C's are: each byte is initialized.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(of).cast(), size_of::<T>()) }
}

impl Call {
    pub fn bytes(&self) -> &[u8] {
        bytes(self)
    }
}

impl std::ops::Deref for Cpu {
    type Target = Raw;

    fn deref(&self) -> &Raw {
        &self.raw
    }
}

impl Cpu {
    pub fn new(options: &Options) -> Self {
        let sizes = [
            size_of::<Raw>(),
            size_of::<Entity>(),
            size_of::<Options>(),
            size_of::<Choice>(),
            size_of::<Window>(),
        ];
        assert_eq!(policy_sizes, sizes.map(|size| size as u64), "the mirror");
        let mut raw = Box::new(Raw::zeroed());
        policy_init(&mut raw, options);
        let record = call::is_recording().then(|| (bytes(&*raw).to_vec(), Vec::new()));
        Self { raw, record }
    }

    fn note(&mut self, call: impl FnOnce() -> Call) {
        if let Some((_, calls)) = &mut self.record {
            calls.push(call());
        }
    }

    pub fn entity(&self, i: u32) -> &Entity {
        &self.raw.entity[i as usize]
    }

    pub fn is_cooperative(&self, i: u32) -> bool {
        self.raw.cooperative >> i & 1 == 1
    }

    pub fn is_runnable(&self, i: u32) -> bool {
        self.raw.runnable >> i & 1 == 1
    }

    pub fn add(&mut self, weight: u32, group: u32) -> u32 {
        let i = policy_add(&mut self.raw, weight, group);
        self.note(|| Call {
            flag: weight,
            group,
            result: i.into(),
            ..Call::new(Op::Add, 0, 0)
        });
        i
    }

    pub fn add_group(&mut self) -> u32 {
        let i = policy_add_group(&mut self.raw);
        self.note(|| Call {
            result: i.into(),
            ..Call::new(Op::AddGroup, 0, 0)
        });
        i
    }

    pub fn remove(&mut self, i: u32) {
        policy_remove(&mut self.raw, i);
        self.note(|| Call::new(Op::Remove, i, 0));
    }

    /// What the caller knows of a group's plain members that wait.
    pub fn set_group_queue(&mut self, group: u32, queue: Queue) {
        let place = &mut self.raw.entity[group as usize];
        place.head_vtime = queue.vtime;
        place.queued = queue.count.try_into().expect("few");
        self.note(|| Call {
            a: queue.vtime,
            b: queue.count,
            ..Call::new(Op::GroupQueue, group, 0)
        });
    }

    pub fn ready(&mut self, i: u32, now: u64) {
        policy_ready(&mut self.raw, i, now);
        self.note(|| Call::new(Op::Ready, i, now));
    }

    /// It is a thread of a timed program from now on.
    pub fn timed(&mut self, i: u32) {
        policy_timed(&mut self.raw, i);
        self.note(|| Call::new(Op::Timed, i, 0));
    }

    pub fn timed_ready(&mut self, i: u32, now: u64) {
        policy_timed_ready(&mut self.raw, i, now);
        self.note(|| Call::new(Op::TimedReady, i, now));
    }

    pub fn ready_plain(&mut self, plain: &mut Plain, now: u64) {
        let before = *plain;
        policy_ready_plain(&mut self.raw, plain, now);
        self.note(|| Call {
            plain: before,
            result: plain.vtime,
            ..Call::new(Op::ReadyPlain, 0, now)
        });
    }

    pub fn sleep(&mut self, i: u32, now: u64) {
        policy_sleep(&mut self.raw, i, 1, now);
        self.note(|| Call {
            flag: 1,
            ..Call::new(Op::Sleep, i, now)
        });
    }

    /// It ends or goes to another CPU.
    pub fn leave(&mut self, i: u32, now: u64) {
        policy_sleep(&mut self.raw, i, 0, now);
        self.note(|| Call::new(Op::Sleep, i, now));
    }

    pub fn sleep_plain(&mut self, plain: &Plain, now: u64) {
        policy_sleep_plain(&mut self.raw, plain, now);
        self.note(|| Call {
            plain: *plain,
            ..Call::new(Op::SleepPlain, 0, now)
        });
    }

    /// The virtual time here of a plain thread that comes from another CPU: `fair_arrive`.
    pub fn arrive(&mut self, from: &Cpu, moves: &Move) -> u64 {
        policy_arrive(&from.raw, &mut self.raw, moves)
    }

    /// The part of the CPU, in 2^20ths, that others have: `away_share`.
    pub fn away(&self, now: u64) -> u64 {
        policy_away(&self.raw, now)
    }

    pub fn start(&mut self, who: u32, plain: Option<&Plain>, now: u64) {
        policy_start(&mut self.raw, who, plain, now);
        self.note(|| Call {
            flag: plain.is_some().into(),
            plain: plain.copied().unwrap_or_default(),
            ..Call::new(Op::Start, who, now)
        });
    }

    /// Who runs stops, and waits.
    pub fn stop(&mut self, now: u64) {
        policy_stop(&mut self.raw, 1, now);
        self.note(|| Call {
            flag: 1,
            ..Call::new(Op::Stop, 0, now)
        });
    }

    /// Who runs stops, and sleeps then, or leaves.
    pub fn stop_for_good(&mut self, now: u64) {
        policy_stop(&mut self.raw, 0, now);
        self.note(|| Call::new(Op::Stop, 0, now));
    }

    /// `fair_is_next`: whether a plain thread that begins to wait is next, beside so many others.
    pub fn is_next(&self, plain: &Plain, nexts: usize, woken: bool) -> bool {
        policy_is_next(&self.raw, plain, nexts as u64, woken.into()) != 0
    }

    /// `turn_shorten`: the turn ends then at the latest. It is not replayed in the kernel.
    pub fn shorten(&mut self, end_ns: u64) {
        policy_shorten(&mut self.raw, end_ns);
    }

    /// Who runs yields: whether somebody else may run.
    pub fn yields(&mut self) -> bool {
        let result = policy_yield(&mut self.raw) != 0;
        self.note(|| Call {
            result: result.into(),
            ..Call::new(Op::Yield, 0, 0)
        });
        result
    }

    pub fn poll(&mut self, i: u32, now: u64, release: u64, importance: u64) {
        policy_poll(&mut self.raw, i, now, release, importance);
        self.note(|| Call {
            a: release,
            b: importance,
            ..Call::new(Op::Poll, i, now)
        });
    }

    pub fn choose(&mut self, now: u64, queue: &Queue) -> Choice {
        let mut choice = Choice::default();
        policy_choose(&mut self.raw, now, queue, &mut choice);
        self.note(|| Call {
            queue: *queue,
            choice,
            ..Call::new(Op::Choose, 0, now)
        });
        choice
    }

    /// How long `who` might run if it were given the CPU, or went on.
    pub fn would_run_ns(&self, who: u32, now: u64) -> u64 {
        let mut copy = self.clone();
        copy.start(who, None, now);
        copy.limit_ns - now
    }

    /// Of a thread that has not had the CPU for long.
    pub fn preempts(&mut self, who: u32, now: u64) -> bool {
        self.preempts_since(who, 0, now)
    }

    /// `since`: when the thread last had the CPU.
    pub fn preempts_since(&mut self, who: u32, since: u64, now: u64) -> bool {
        let result = policy_preempts(&mut self.raw, who, since, now) != 0;
        self.note(|| Call {
            b: since,
            result: result.into(),
            ..Call::new(Op::Preempts, who, now)
        });
        result
    }

    /// `since`: when the thread last had the CPU.
    pub fn preempts_plain(&mut self, plain: &Plain, since: u64, now: u64) -> bool {
        let (vtime, weight) = (plain.vtime, plain.weight);
        let result = policy_preempts_plain(&mut self.raw, vtime, weight, since, now) != 0;
        self.note(|| Call {
            a: plain.vtime,
            b: since,
            flag: plain.weight,
            result: result.into(),
            ..Call::new(Op::PreemptsPlain, 0, now)
        });
        result
    }

    pub fn timer(&mut self) -> u64 {
        let result = policy_timer(&mut self.raw);
        self.note(|| Call {
            result,
            ..Call::new(Op::Timer, 0, 0)
        });
        result
    }

    pub fn next_release(&mut self, except: u32, now: u64) -> u64 {
        policy_next_release(&mut self.raw, except, now)
    }

    /// `fair_woke`: who runs has woken for its turn.
    pub fn woke(&mut self) {
        policy_woke(&mut self.raw);
        self.note(|| Call::new(Op::Woke, 0, 0));
    }

    /// `fair_begin`: the virtual time at which a new thread begins.
    pub fn begins(&self) -> u64 {
        policy_begin(&self.raw)
    }

    /// `fair_is_owed`: whether the first plain thread that waits goes before all from other CPUs.
    pub fn is_owed(&self) -> bool {
        policy_is_owed(&self.raw) != 0
    }

    pub fn admit(&mut self, i: u32, wish: &Window, conserving: bool, now: u64) -> Admission {
        let result = policy_admit(&mut self.raw, i, wish, conserving.into(), now);
        self.note(|| Call {
            flag: conserving.into(),
            wish: *wish,
            result: result.into(),
            ..Call::new(Op::Admit, i, now)
        });
        match result {
            0 => Admission::Refused,
            1 => Admission::Unpromised,
            _ => Admission::Promised,
        }
    }

    pub fn end_window(&mut self, i: u32, now: u64) {
        policy_admit_end(&mut self.raw, i, now);
        self.note(|| Call::new(Op::AdmitEnd, i, now));
    }

    /// An event for a thread is pending.
    pub fn event(&mut self, i: u32, deadline: u64) {
        policy_event(&mut self.raw, i, deadline);
        self.note(|| Call {
            a: deadline,
            ..Call::new(Op::Event, i, 0)
        });
    }

    pub fn least_importance(&mut self, except: u32) -> u64 {
        policy_least_importance(&mut self.raw, except)
    }
}

/// `vtime_move`.
pub fn moved(vtime: u64, from_least: u64, to_least: u64) -> u64 {
    policy_move(vtime, from_least, to_least)
}

/// `struct balance_load`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub weight: u64,
    pub left: u64,
}

impl Load {
    pub fn new(weight: u64, promised_share: u64) -> Self {
        let left = policy_balance_left(promised_share);
        Self { weight, left }
    }

    /// `balance_wants`: whether a CPU that carries this takes a thread from one that carries that.
    pub fn wants(&self, theirs: &Load, weight: u64) -> Wants {
        match policy_balance_wants(self, theirs, weight) {
            0 => Wants::Stays,
            1 => Wants::Rotates,
            2 => Wants::Takes,
            other => panic!("{other}"),
        }
    }
}

/// `vtime_weight` of a kernel thread.
pub fn kernel_weight(weight: u32) -> u32 {
    policy_weight(weight, 1)
}

/// `vtime_weight` of any other thread.
pub fn user_weight(weight: u32) -> u32 {
    policy_weight(weight, 0)
}

/// `struct balance_look`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub mine: Load,
    pub theirs: Load,
    pub vtime: u64,
    pub period_ns: u64,
    pub wanted: Wants,
    pub pad: u32,
}

impl Look {
    /// `balance_takes`.
    pub fn takes(&self, vtime: u64, weight: u64) -> bool {
        policy_balance_takes(self, vtime, weight) != 0
    }
}

/// `BALANCE_...`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wants {
    Stays,
    Rotates,
    Takes,
}
