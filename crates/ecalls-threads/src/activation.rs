//! The upcall layer (SA §3.1): what an activation does.
//!
//! An activation is a kernel thread. It is a *spare* until it gets a virtual processor; then it is
//! the processor's scheduler, and executes one thread after the other, each on the thread's own
//! stack ([`Activation::run`]). The paper's upcalls are the ways into the scheduler:
//!
//! - `new`, `block`: a spare obtains a processor that another activation has lost
//!   ([`Activation::obtain`]);
//! - `unblock`: the scheduler finds who came back, and tells the policy ([`Activation::gather`]);
//! - `restart`: a thread that came back is chosen, as any other ([`Activation::step`]).
//!
//! **Scheduling points.** A thread calls [`enter`](Activation::enter) before it uses anything of
//! its processor. That sets the activation's lock (SA §4.2), so that from there on a block, e.g. a
//! page fault, is not told, and then asks whether the activation still has the processor. It might
//! not: the thread has blocked since. Then the thread leaves the activation, as in a yield, and is
//! ready: it was bound to it in the kernel alone. The activation is a spare. So a thread that comes
//! back from the kernel runs on in parallel until its next scheduling point, but touches nothing
//! that it does not own; and to restart it is a switch between stacks.
//!
//! **Looking.** A spare that must take over quickly is runnable and yields: when the processor's
//! holder blocks, the kernel switches to it at once, where a wake-up takes 15 us. One spare
//! per processor does so, while threads are ready there; the others sleep.

use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use ecalls_abi::runtime::{RUNTIME_RUNS, RUNTIME_SPARE};
use rustix::thread::{gettid, sched_yield};

use crate::calls::{Interrupted, await_spare};
use crate::local;
use crate::mask;
use crate::page::ActivationWords;
use crate::policy::{Processor, Ready, Why};
use crate::processor::Words;
use crate::runtime::{Shared, Virtual};
use crate::status::Counts;
use crate::storage::{self, Block};
use crate::sync::{AtomicU32, Ordering, heavy_fence, light_fence};
use crate::thread::{After, Thread};
use crate::timers::NEVER;
use crate::wait::{now_ns, sleep_on};
use crate::word::Notified;

/// A spare that has looked so often, and no thread has blocked meanwhile, sleeps.
const LOOKS_MAX: u32 = 64;
/// and looks again after so long: a thread that blocks meanwhile stops its processor until then.
const REST_NS: u64 = 250_000;
/// The scheduler needs less of its kernel thread's stack.
const SCHEDULER_BYTES: usize = 96 << 10;
/// Sleeping threads are looked at once in so many switches while others are ready.
const TIMER_PERIOD: u32 = 16;

/// Where a processor's words are: an activation has the same processor for as long as it lives, and
/// looks at them several times in each switch.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    words: NonNull<Words>,
    here: NonNull<Virtual>,
    counts: NonNull<Counts>,
}

impl Place {
    fn of(shared: &Shared, index: usize) -> Self {
        Self {
            index,
            words: NonNull::from(shared.words(index)),
            here: NonNull::from(shared.processor(index)),
            counts: NonNull::from(shared.status.processor(index)),
        }
    }
}

/// What a kernel thread of a runtime needs.
pub(crate) struct Activation {
    /// From 1.
    pub(crate) number: u32,
    shared: NonNull<Shared>,
    /// Its words in the page of `shared`.
    own: NonNull<ActivationWords>,
    /// Its processor's, from the beginning of `main` on.
    place: Cell<Place>,
    tid: AtomicU32,
    /// The thread that it executes, or that has blocked in it.
    current: UnsafeCell<Option<Arc<Thread>>>,
    /// Switches since the sleeping threads were looked at.
    turns: Cell<u32>,
    /// As a spare: blocks on its processor that it has seen, and looks since then.
    looks: Cell<(u64, u32)>,
    /// It has looked in vain, and rests.
    rests: Cell<bool>,
    /// The base of its own thread-local storage, and of the one in use.
    home: Cell<usize>,
    worn: Cell<usize>,
    /// The signal mask that the kernel has for it.
    mask: Cell<u64>,
    /// It has no processor, and waits for one, on storage of its own.
    is_spare: Cell<bool>,
    /// Where the scheduler's stack begins, downwards.
    stack: Cell<usize>,
}

// SAFETY: `shared` and `own` point to atomics; the cells are used by the activation itself.
unsafe impl Sync for Activation {}
// SAFETY: as above.
unsafe impl Send for Activation {}

impl Activation {
    pub(crate) fn new(number: u32, shared: &Shared) -> Self {
        Self {
            number,
            shared: NonNull::from(shared),
            own: NonNull::from(shared.words_of(number)),
            place: Cell::new(Place::of(shared, 0)),
            tid: AtomicU32::new(0),
            current: UnsafeCell::new(None),
            turns: Cell::new(0),
            looks: Cell::new((0, 0)),
            rests: Cell::new(false),
            home: Cell::new(0),
            worn: Cell::new(0),
            mask: Cell::new(mask::UNKNOWN),
            is_spare: Cell::new(true),
            stack: Cell::new(0),
        }
    }

    /// The calling kernel thread, if it is an activation. Not to be kept across a switch.
    #[inline]
    pub(crate) fn get<'a>() -> Option<&'a Self> {
        // SAFETY: the activation's main function has set it, and ends after this call.
        let activation = local::get().map(|activation| unsafe { activation.as_ref() });
        // A kernel thread inherits the register from the thread that creates it, but has storage of
        // its own.
        activation.filter(|activation| activation.worn.get() == storage::read())
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the kernel thread holds an `Arc` of it for as long as it runs.
        unsafe { self.shared.as_ref() }
    }

    #[inline]
    fn own(&self) -> &ActivationWords {
        // SAFETY: they are where they are for as long as `shared` exists.
        unsafe { self.own.as_ref() }
    }

    #[inline]
    pub(crate) fn processor(&self) -> usize {
        self.place.get().index
    }

    #[inline]
    pub(crate) fn words(&self) -> &Words {
        // SAFETY: they are where they are for as long as `shared` exists.
        unsafe { self.place.get().words.as_ref() }
    }

    #[inline]
    pub(crate) fn here(&self) -> &Virtual {
        // SAFETY: as above.
        unsafe { self.place.get().here.as_ref() }
    }

    /// What others see of its processor.
    pub(crate) fn counts(&self) -> &Counts {
        // SAFETY: as above.
        unsafe { self.place.get().counts.as_ref() }
    }

    /// Others see that it does this.
    fn show(&self, state: u32) {
        let shown = self.shared().status.activation(self.number);
        let index = self.processor();
        let processor = u32::try_from(index).unwrap_or(0);
        shown.processor.store(processor, Ordering::Relaxed);
        shown.state.store(state, Ordering::Relaxed);
        self.shared().show_blocks(index);
    }

    #[inline]
    pub(crate) fn lock(&self) -> &AtomicU32 {
        &self.own().lock
    }

    #[inline]
    pub(crate) fn current_ref(&self) -> Option<&Arc<Thread>> {
        // SAFETY: see `Sync`.
        unsafe { &*self.current.get() }.as_ref()
    }

    /// The thread that it executes, if that may go on in another one.
    #[inline]
    pub(crate) fn movable_ref(&self) -> Option<&Arc<Thread>> {
        self.current_ref().filter(|thread| !thread.stays.get())
    }

    /// The same.
    pub(crate) fn movable(&self) -> Option<Arc<Thread>> {
        self.movable_ref().cloned()
    }

    /// Whether the thread that it executes must go on here.
    pub(crate) fn is_stayed_in(&self) -> bool {
        self.current_ref().is_some_and(|thread| thread.stays.get())
    }

    /// The thread that it executes.
    pub(crate) fn current(&self) -> Option<Arc<Thread>> {
        self.current_ref().cloned()
    }

    // --- scheduling points ---

    /// From here on the caller has a processor, until [`leave`](Self::leave) or a switch: that of
    /// the activation that is returned, on which it continues if it has blocked before.
    #[inline]
    #[must_use = "the calling thread can be on another activation now"]
    pub(crate) fn enter(&self) -> &Self {
        // The kernel side reads the lock when this very thread blocks, so program order is enough.
        self.lock().store(1, Ordering::Relaxed);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        if self.words().active.load(Ordering::Relaxed) == self.number {
            self
        } else {
            self.back()
        }
    }

    #[inline]
    pub(crate) fn leave(&self) {
        self.lock().store(0, Ordering::Release);
    }

    /// The thread has blocked, and can go on: takes the processor if it is free, or leaves the
    /// activation and waits until the policy chooses it.
    #[cold]
    fn back(&self) -> &Self {
        let mut activation = self;
        loop {
            let words = activation.words();
            if words.active() == activation.number {
                return activation;
            }
            if words.take(activation.number) {
                let reclaimed = &activation.counts().reclaimed;
                reclaimed.fetch_add(1, Ordering::Relaxed);
                activation.show(RUNTIME_RUNS);
                return activation;
            }
            match activation.current() {
                Some(thread) if thread.is_on_its_stack() => {
                    // SAFETY: the current thread is the one on whose stack this is.
                    unsafe { thread.suspend(After::Unblocked) };
                }
                // The handler of a signal, on a stack that must stay with the kernel thread.
                _ => sched_yield(),
            }
            // The runtime's, whose thread this is.
            activation = Self::get().unwrap_or(activation);
            activation.lock().store(1, Ordering::Relaxed);
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        }
    }

    /// What the handler of a signal has interrupted in the calling kernel thread, whose stack
    /// pointer that was.
    pub(crate) fn interrupted(&self, stack_pointer: usize) -> Interrupted {
        let scheduler = self.stack.get().saturating_sub(SCHEDULER_BYTES)..self.stack.get();
        let is_in_it = self.lock().load(Ordering::Relaxed) != 0
            // It has left the lock, and not yet its stack.
            || scheduler.contains(&stack_pointer);
        // A kernel thread that an activation has created has its register at first.
        if !is_in_it || self.tid() != gettid().as_raw_nonzero().get().cast_unsigned() {
            Interrupted::Code
        } else if self.is_spare.get() {
            Interrupted::Spare
        } else {
            Interrupted::Switch
        }
    }

    // --- the scheduler ---

    /// The kernel thread's main function.
    pub(crate) fn main(&self) {
        let index = usize::try_from(self.own().processor.load(Ordering::Acquire)).unwrap_or(0);
        self.place.set(Place::of(self.shared(), index));
        self.shared().join(self.number);
        local::set(Some(NonNull::from(self)));
        let tid = gettid().as_raw_nonzero().get().cast_unsigned();
        self.tid.store(tid, Ordering::Release);
        let shown = self.shared().status.activation(self.number);
        shown.tid.store(tid, Ordering::Relaxed);
        self.show(RUNTIME_SPARE);
        self.home.set(storage::read());
        self.worn.set(self.home.get());
        self.mask.set(mask::read());
        let here = 0_u8;
        self.stack.set((&raw const here).addr());
        self.shared().pin(None, self.processor());
        self.lock().store(1, Ordering::Relaxed);
        self.words().add_spare();
        self.here().coming.store(0, Ordering::SeqCst);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            while self.obtain() {
                self.is_spare.set(false);
                self.show(RUNTIME_RUNS);
                let mut yielded = None;
                while let Some(next) = self.step(yielded.take()) {
                    yielded = next;
                }
                self.show(RUNTIME_SPARE);
                self.is_spare.set(true);
            }
        }));
        if ended.is_err() {
            // Its processor would stand still, and threads with it.
            eprintln!("ecalls-threads: the policy panicked, so the process ends");
            std::process::abort();
        }
        local::set(None);
    }

    /// Chooses and executes one thread, and gives back the one that yielded, which must be the
    /// argument of the next call; `None`: it has given up the processor, and is a spare.
    #[inline]
    fn step(&self, yielded: Option<Ready>) -> Option<Option<Ready>> {
        let index = self.processor();
        let shared = self.shared();
        let words = self.words();
        if words.spares.load(Ordering::Relaxed) == 0 {
            self.go_home();
            if shared.add_spare(index) && shared.is_told() {
                // A block without a spare is not told, even if others must run for it to end.
                await_spare(|| words.spares.load(Ordering::SeqCst) > 0);
            }
        }
        self.gather(index, yielded.is_some());
        let at = &mut shared.at(index);
        let found = match yielded {
            Some(thread) => shared.policy.yielded(at, thread),
            None => shared.policy.find_next_to_run(at),
        };
        let found = found.or_else(|| {
            self.go_home();
            shared.policy.take_from_others(&mut shared.at(index))
        });
        let Some(Ready(thread)) = found else {
            if self.gather_elsewhere(index) {
                return Some(None);
            }
            shared.note_idle(index);
            shared.status.note_turn(index, &self.tid, 0);
            self.words().retire();
            return None;
        };
        if thread.is_back.load(Ordering::Relaxed) != 0 {
            thread.is_back.store(0, Ordering::Relaxed);
            let restarts = &self.counts().restarts;
            restarts.fetch_add(1, Ordering::Relaxed);
        }
        self.run(thread)
    }

    /// Upcall `unblock`: tells the policy who can go on since the last switch. Sleeping threads
    /// are looked at more rarely while another one can run.
    fn gather(&self, index: usize, can_run: bool) {
        let shared = self.shared();
        let at = &mut shared.at(index);
        if !self.here().unblocked.is_empty() {
            self.unblock(index, at);
        }
        if shared.has_injected() {
            self.go_home();
            shared.take_injected(|thread, why| shared.policy.ready(at, Ready(thread), why));
        }
        let sleep = shared.timers.earliest_ns() != NEVER;
        let wait = shared.descriptors.is_used() && !shared.has_keeper();
        if !sleep && !wait {
            return;
        }
        let turns = self.turns.get() + 1;
        self.turns.set(turns);
        if turns >= TIMER_PERIOD || !(can_run || shared.policy.waits(index)) {
            self.turns.set(0);
            if sleep {
                self.wake_sleepers(at);
            }
            if wait {
                self.go_home();
                self.wake_waiters(shared.descriptors.look(), at);
            }
        }
    }

    fn unblock(&self, from: usize, at: &mut Processor<'_>) {
        self.go_home();
        let shared = self.shared();
        let unblocked = &shared.processor(from).unblocked;
        unblocked.take_all(|thread| shared.policy.ready(at, Ready(thread), Why::Unblocked));
    }

    /// Who came back to a processor whose holder has not looked yet; false: nobody has.
    fn gather_elsewhere(&self, index: usize) -> bool {
        let shared = self.shared();
        let mut found = false;
        for other in 0..shared.processors() {
            if !shared.processor(other).unblocked.is_empty() {
                self.unblock(other, &mut shared.at(index));
                found = true;
            }
        }
        found
    }

    fn wake_sleepers(&self, at: &mut Processor<'_>) {
        let shared = self.shared();
        let now_ns = now_ns();
        if now_ns < shared.timers.earliest_ns() {
            return;
        }
        self.go_home();
        let due = std::iter::from_fn(|| shared.timers.take_due(now_ns));
        self.wake_waiters(due, at);
    }

    fn wake_waiters(
        &self,
        waiters: impl IntoIterator<Item = (Arc<Thread>, u64)>,
        at: &mut Processor<'_>,
    ) {
        for (thread, epoch) in waiters {
            if thread.wait.notify(epoch) == Notified::Waiting {
                self.shared().policy.ready(at, Ready(thread), Why::Woken);
            }
        }
    }

    /// Executes a thread until it gives up the processor, or has lost it; returns what
    /// [`step`](Self::step) does.
    #[inline]
    fn run(&self, thread: Arc<Thread>) -> Option<Option<Ready>> {
        let index = self.processor();
        self.counts().note_switch();
        self.shared().show_blocks(index);
        self.shared().status.note_turn(index, &self.tid, thread.id);
        self.expect(index);
        // SAFETY: see `Sync`.
        unsafe { *self.current.get() = Some(thread) };
        let Some(thread) = self.current_ref() else {
            return Some(None);
        };
        thread.at.store(self.number, Ordering::Relaxed);
        self.wear(thread.block.map_or(self.home.get(), Block::base));
        // A signal that was blocked until now finds the thread's storage.
        self.have_mask(thread.mask.load(Ordering::Relaxed));
        self.leave();
        // SAFETY: the policy gave the thread to this activation.
        let after = unsafe { thread.execute() };
        // If it blocked meanwhile, the processor can be another one.
        // SAFETY: see `Sync`.
        let Some(thread) = (unsafe { (*self.current.get()).take() }) else {
            return Some(None);
        };
        if !matches!(after, Some(After::Yield)) || !self.shared().keeps_off_storage {
            // From here on the thread can run elsewhere, on its storage.
            self.go_home();
        }
        match after {
            Some(After::Yield) => return Some(Some(Ready(thread))),
            Some(After::Unblocked) => {
                self.hand_in(thread);
                return None;
            }
            Some(After::Wait) => {
                if !thread.wait.settle() {
                    let at = &mut self.shared().at(self.processor());
                    self.shared().policy.ready(at, Ready(thread), Why::Woken);
                }
            }
            None => self.end(&thread),
        }
        Some(None)
    }

    fn end(&self, thread: &Thread) {
        // SAFETY: it has ended here.
        unsafe { thread.discard() };
        thread.ended.store(1, Ordering::SeqCst);
        thread.joiners.wake_all();
        self.shared().end_thread();
    }

    /// The kernel thread's id.
    pub(crate) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Acquire)
    }

    /// A thread that came back has left the activation, which does not have its processor any
    /// more: the scheduler that does will find it. The activation is a spare.
    fn hand_in(&self, thread: Arc<Thread>) {
        self.counts().unblocked.fetch_add(1, Ordering::Relaxed);
        thread.is_back.store(1, Ordering::Relaxed);
        self.words().add_spare();
        self.here().unblocked.push(thread);
        // Whether the processor is free by now it sees when it looks for one to take.
    }

    /// A thread is about to run: if others wait, somebody must take over when it blocks, and an
    /// idle processor can take some.
    fn expect(&self, index: usize) {
        let shared = self.shared();
        light_fence();
        if shared.has_work(index) {
            let here = self.here();
            if shared.is_told() && here.has_no_spare() {
                shared.summon(index);
            }
            shared.rouse();
        } else if shared.wants_keeper() {
            if shared.is_told() {
                shared.summon(index);
            } else {
                shared.rouse();
            }
        }
    }

    /// Uses the thread-local storage of that base from here on.
    #[inline]
    fn wear(&self, base: usize) {
        if self.worn.get() != base {
            self.worn.set(base);
            // SAFETY: its own, or that of the thread that it is about to execute.
            unsafe { storage::write(base) };
        }
    }

    /// Has the kernel use that signal mask from here on.
    #[inline]
    fn have_mask(&self, mask: u64) {
        if self.mask.get() != mask {
            self.mask.set(mask);
            mask::write(mask);
        }
    }

    /// The kernel has another signal mask for the calling kernel thread.
    pub(crate) fn note_mask(&self, mask: u64) {
        self.mask.set(mask);
    }

    /// Uses the activation's own thread-local storage: for whatever allocates, frees or creates.
    #[inline]
    fn go_home(&self) {
        self.wear(self.home.get());
    }

    pub(crate) fn make_ready_here(&self, thread: Arc<Thread>, why: Why) {
        let index = self.processor();
        let at = &mut self.shared().at(index);
        self.shared().policy.ready(at, Ready(thread), why);
        self.expect(index);
    }

    // --- spares ---

    /// Waits until it has a processor with something to do; false: the runtime ends.
    fn obtain(&self) -> bool {
        loop {
            let index = self.processor();
            if self.shared().has_ended() {
                return false;
            }
            if self.grab(index) || self.look(index) || self.park(index) {
                return true;
            }
        }
    }

    fn grab(&self, index: usize) -> bool {
        let (shared, words) = (self.shared(), self.words());
        words.active() == 0
            && (shared.has_work(index) || shared.has_work_elsewhere(index))
            && words.take_as_spare(self.number)
    }

    /// Stays runnable while threads are ready, as one spare of each processor. If no thread blocks,
    /// it ends: a spare that yields beside a thread that computes has half of the CPU.
    fn look(&self, index: usize) -> bool {
        let (shared, here) = (self.shared(), self.here());
        let (mut blocks, mut fruitless) = self.looks.get();
        let mut taken = false;
        if here.looking.fetch_add(1, Ordering::SeqCst) == 0 {
            while fruitless < LOOKS_MAX
                && !shared.has_ended()
                && (shared.has_work(index) || shared.is_due())
            {
                taken = self.grab(index);
                if taken {
                    break;
                }
                sched_yield();
                let now = shared.blocks(index);
                fruitless = if now == blocks { fruitless + 1 } else { 0 };
                blocks = now;
            }
        }
        here.looking.fetch_sub(1, Ordering::SeqCst);
        let rests = fruitless == LOOKS_MAX && !taken && shared.is_told();
        self.rests.set(rests);
        // After the rest one look is enough, if nothing has happened.
        let next = if rests { LOOKS_MAX - 1 } else { 0 };
        self.looks.set((blocks, next));
        taken
    }

    /// Sleeps until it is called, or it has the processor, because a descriptor is ready.
    fn park(&self, index: usize) -> bool {
        let (shared, words, here) = (self.shared(), self.words(), self.here());
        let call = here.call.load(Ordering::Acquire);
        // Who summons from here on changes `call`; what was there before is seen below.
        here.summoned.store(0, Ordering::SeqCst);
        if words.active() == 0 {
            shared.note_idle(index);
        }
        let rests = self.rests.replace(false);
        if rests {
            here.resting.store(1, Ordering::SeqCst);
        }
        heavy_fence();
        let is_free = words.active() == 0;
        let must_look =
            shared.is_told() && here.has_no_spare() && (shared.has_work(index) || shared.is_due());
        let can_take = is_free && (shared.has_work(index) || shared.has_work_elsewhere(index));
        if must_look || can_take || shared.has_ended() {
            if rests {
                here.resting.store(0, Ordering::SeqCst);
            }
            return false;
        }
        // While threads are ready, the holder looks at the time at each switch. Once none is, it
        // sees to it that a spare keeps the time (`expect`), for it might block. A time that has
        // passed is the holder's, or that spare's which looks or rests: it would let none sleep.
        let is_idle = || !shared.has_work(index) && !shared.is_due();
        let keep = if is_free || (shared.is_told() && !rests && is_idle()) {
            shared.keep_time(index)
        } else {
            None
        };
        let rest_ns = rests.then(|| now_ns() + REST_NS);
        let until_ns = keep.filter(|until_ns| *until_ns != NEVER);
        let until_ns = until_ns.into_iter().chain(rest_ns).min();
        let mut ready = Vec::new();
        if keep.is_some() && shared.descriptors.is_used() {
            let is_called = || here.call.load(Ordering::SeqCst) != call;
            ready = shared.descriptors.sleep(index, until_ns, is_called);
        } else {
            sleep_on(&here.call, call, until_ns);
        }
        if keep.is_some() {
            shared.stop_keeping_time(index);
        }
        if rests {
            here.resting.store(0, Ordering::SeqCst);
        }
        here.summoned.store(0, Ordering::SeqCst);
        if ready.is_empty() {
            return false;
        }
        let taken = words.take_as_spare(self.number);
        if taken {
            self.wake_waiters(ready, &mut shared.at(index));
        } else {
            for (thread, epoch) in ready {
                if thread.wait.notify(epoch) == Notified::Waiting {
                    shared.inject(thread, Why::Woken);
                }
            }
        }
        taken
    }
}
