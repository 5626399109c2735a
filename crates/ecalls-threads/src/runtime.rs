//! A runtime: its virtual processors, activations and threads, and what they share.

use std::collections::VecDeque;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};
use std::thread as kernel_thread;

use ecalls_kernel::activation::Activations;
use rustix::thread::{CpuSet, Pid, futex, sched_setaffinity};

use crate::activation::Activation;
use crate::builder::Builder;
use crate::descriptors::Descriptors;
use crate::error::{Error, Result};
use crate::mask;
use crate::page::{ActivationWords, Page};
use crate::policy::{Policy, Processor, RoundRobin, Why};
use crate::processor::{Unblocked, Words};
use crate::spin::Spin;
use crate::stack::{Stack, Stacks};
use crate::status::StatusFile;
use crate::storage::Library;
use crate::sync::{self, AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::thread::{Current, JoinHandle, Thread, create};
use crate::timers::{NEVER, Timers};

const ACTIVATION_STACK_BYTES: usize = 128 << 10;

/// A virtual processor's words that only the runtime uses.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Virtual {
    pub(crate) unblocked: Unblocked<Thread>,
    /// Spares that are runnable and look for themselves: 1, or on its way there.
    pub(crate) looking: AtomicU32,
    /// 1: the spare that has looked rests, because no thread blocks.
    pub(crate) resting: AtomicU32,
    /// 1: a spare has been woken to look, and has not run yet.
    pub(crate) summoned: AtomicU32,
    /// 1: a spare has been created, and does not count itself yet.
    pub(crate) coming: AtomicU32,
    /// Futex of the sleeping spares.
    pub(crate) call: AtomicU32,
}

impl Virtual {
    /// With the kernel side: nobody would take the processor over if its holder blocked now.
    #[inline]
    pub(crate) fn has_no_spare(&self) -> bool {
        self.looking.load(Ordering::SeqCst) == 0 && self.resting.load(Ordering::SeqCst) == 0
    }

    fn new() -> Self {
        Self {
            unblocked: Unblocked::new(),
            looking: AtomicU32::new(0),
            resting: AtomicU32::new(0),
            summoned: AtomicU32::new(0),
            coming: AtomicU32::new(0),
            call: AtomicU32::new(0),
        }
    }
}

/// What all threads and activations of a runtime use.
pub(crate) struct Shared {
    pub(crate) policy: Box<dyn Policy>,
    /// The signal mask of whoever has started it.
    pub(crate) mask: u64,
    /// As the policy says.
    pub(crate) keeps_off_storage: bool,
    pub(crate) timers: Timers,
    pub(crate) descriptors: Descriptors,
    stacks: Arc<Stacks>,
    page: Page,
    /// What others may see: counts, and what each activation does.
    pub(crate) status: StatusFile,
    /// What gives each thread storage of its own; `None`: they use their kernel threads'.
    pub(crate) storage: Option<&'static Library>,
    processors: Box<[Virtual]>,
    /// By number - 1.
    activations: Box<[OnceLock<Activation>]>,
    activation_count: AtomicU32,
    kernel_threads: Spin<Vec<kernel_thread::JoinHandle<()>>>,
    /// CPUs of the processors; empty: activations are not bound to CPUs.
    cpus: Vec<usize>,
    /// From kernel threads outside, which have no processor.
    injected: Spin<VecDeque<(Arc<Thread>, Why)>>,
    injected_count: AtomicU32,
    /// Bits of the processors that nobody has. A bit can be set although somebody has the
    /// processor.
    idle: AtomicU64,
    /// 1 + the idle processor whose spare sleeps until the first timer; 0: none.
    keeper: AtomicU32,
    /// Threads that have not ended, and 1 for the `Runtime`.
    live: AtomicU64,
    ids: AtomicU64,
    has_ended: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        places: Places,
        stacks: Arc<Stacks>,
        page: Page,
        storage: Option<&'static Library>,
        activations: usize,
        policy: Option<Box<dyn Policy>>,
    ) -> Result<Arc<Self>> {
        let Places { processors, cpus } = places;
        let is_told = page.kernel().is_some();
        let policy = policy.unwrap_or_else(|| Box::new(RoundRobin::new(processors)));
        Ok(Arc::new(Self {
            mask: mask::read(),
            keeps_off_storage: policy.keeps_off_storage(),
            policy,
            timers: Timers::new(),
            descriptors: Descriptors::new()?,
            stacks,
            page,
            status: StatusFile::new(processors, activations, is_told, storage.is_some())?,
            storage,
            processors: (0..processors).map(|_| Virtual::new()).collect(),
            activations: (0..activations).map(|_| OnceLock::new()).collect(),
            activation_count: AtomicU32::new(0),
            kernel_threads: Spin::new(Vec::new()),
            cpus,
            injected: Spin::new(VecDeque::new()),
            injected_count: AtomicU32::new(0),
            idle: AtomicU64::new(0),
            keeper: AtomicU32::new(0),
            live: AtomicU64::new(1),
            ids: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }))
    }

    #[inline]
    pub(crate) fn words(&self, processor: usize) -> &Words {
        self.page.processor(processor)
    }

    #[inline]
    pub(crate) fn processor(&self, index: usize) -> &Virtual {
        &self.processors[index]
    }

    /// The processor `index`, as policies know it. The caller is its scheduler.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> Processor<'_> {
        Processor::new(index, ptr::from_ref(self).addr())
    }

    pub(crate) fn processors(&self) -> usize {
        self.processors.len()
    }

    pub(crate) fn activation(&self, number: u32) -> Option<&Activation> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.activations.get(index)?.get()
    }

    pub(crate) fn take_stack(&self) -> Result<Stack> {
        self.stacks.take()
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    // --- threads ---

    pub(crate) fn begin(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
        self.status.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn live_threads(&self) -> usize {
        usize::try_from(self.live.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// A thread has ended, or the `Runtime` has been dropped. After the last one all activations
    /// end.
    pub(crate) fn end_thread(&self) {
        self.status.ended.fetch_add(1, Ordering::Relaxed);
        self.end();
    }

    fn end(&self) {
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.has_ended.store(true, Ordering::SeqCst);
            for index in 0..self.processors() {
                self.call(index, i32::MAX as u32);
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    pub(crate) fn inject(&self, thread: Arc<Thread>, why: Why) {
        {
            let mut injected = self.injected.lock();
            injected.push_back((thread, why));
            self.injected_count.fetch_add(1, Ordering::SeqCst);
        }
        sync::heavy_fence();
        // The kernel side leaves no note of a processor that is idle, nor of one that is not.
        let mut all = 0..self.processors();
        let is_busy = match self.is_told() {
            true => all.all(|index| self.words(index).active() != 0),
            false => self.idle.load(Ordering::SeqCst) == 0,
        };
        if is_busy {
            // Whoever looks does so for a processor whose holder might not.
            for index in 0..self.processors() {
                self.summon(index);
            }
        }
        self.rouse();
    }

    #[inline]
    pub(crate) fn has_injected(&self) -> bool {
        self.injected_count.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn take_injected(&self, mut each: impl FnMut(Arc<Thread>, Why)) {
        loop {
            let first = {
                let mut injected = self.injected.lock();
                let first = injected.pop_front();
                if first.is_some() {
                    self.injected_count.fetch_sub(1, Ordering::SeqCst);
                }
                first
            };
            match first {
                Some((thread, why)) => each(thread, why),
                None => return,
            }
        }
    }

    // --- processors ---

    /// Whether the holder of a processor, or who takes it, would find something to do.
    pub(crate) fn has_work(&self, index: usize) -> bool {
        self.policy.waits(index)
            || !self.processors[index].unblocked.is_empty()
            || self.has_injected()
    }

    /// Whether a free processor could help: others have threads that wait, or sleepers are due.
    pub(crate) fn has_work_elsewhere(&self, index: usize) -> bool {
        (0..self.processors()).any(|other| other != index && self.has_work(other)) || self.is_due()
    }

    /// Times that the processor was given up because its thread might block, or did.
    pub(crate) fn blocks(&self, index: usize) -> u64 {
        let left = self.status.processor(index).left.load(Ordering::Relaxed);
        let (told, _) = self.words(index).counts();
        left + told
    }

    /// Whether the time of a sleeping thread has come.
    pub(crate) fn is_due(&self) -> bool {
        let first_ns = self.timers.earliest_ns();
        first_ns != NEVER && first_ns <= crate::wait::now_ns()
    }

    /// Whether the kernel side tells of blocks.
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        self.page.kernel().is_some()
    }

    /// Others see how often threads of a processor have blocked.
    #[inline]
    pub(crate) fn show_blocks(&self, index: usize) {
        if self.is_told() {
            self.status.processor(index).copy(self.words(index));
        }
    }

    /// Nobody has the processor, or soon will.
    pub(crate) fn note_idle(&self, index: usize) {
        if self.idle.load(Ordering::Relaxed) & 1 << index == 0 {
            self.idle.fetch_or(1 << index, Ordering::SeqCst);
        }
    }

    /// What an activation tells the kernel side.
    pub(crate) fn words_of(&self, activation: u32) -> &ActivationWords {
        self.page.activation(activation)
    }

    /// The calling kernel thread is that activation. If the kernel side refuses it, which is
    /// counted, its blocks are not told.
    pub(crate) fn join(&self, activation: u32) {
        let kernel = self.page.kernel();
        if kernel.is_some_and(|kernel| kernel.join(activation).is_err()) {
            self.refuse();
        }
    }

    /// An activation was wanted, and a limit refused it.
    fn refuse(&self) {
        self.status.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Has one spare of a processor look, unless one is on its way.
    pub(crate) fn summon(&self, index: usize) {
        let here = &self.processors[index];
        if here.summoned.swap(1, Ordering::SeqCst) == 0 {
            self.call(index, 1);
        }
    }

    fn call(&self, index: usize, spares: u32) {
        let call = &self.processors[index].call;
        call.fetch_add(1, Ordering::SeqCst);
        // Who does not sleep yet sees the word's new value.
        let _ = futex::wake(call, futex::Flags::PRIVATE, spares);
        self.descriptors.ring(index);
    }

    /// Threads wait: has an idle processor take some.
    #[inline]
    pub(crate) fn rouse(&self) {
        if self.is_told() || self.idle.load(Ordering::Relaxed) != 0 {
            self.rouse_idle();
        }
    }

    fn rouse_idle(&self) {
        if self.is_told() {
            // The kernel side leaves no note of it.
            let mut all = 0..self.processors();
            if let Some(free) = all.find(|index| self.words(*index).active() == 0) {
                self.summon(free);
            }
            return;
        }
        loop {
            let idle = self.idle.load(Ordering::Relaxed);
            if idle == 0 {
                return;
            }
            let index = usize::try_from(idle.trailing_zeros()).unwrap_or(0);
            let first = idle & idle.wrapping_neg();
            let was_idle = self.idle.fetch_and(!first, Ordering::SeqCst) & first != 0;
            if was_idle && self.words(index).active() == 0 {
                self.call(index, 1);
                return;
            }
        }
    }

    // --- time ---

    /// Adds a sleeping thread, which is about to wait.
    pub(crate) fn add_timer(&self, until_ns: u64, thread: &Arc<Thread>) {
        let first_ns = self.timers.earliest_ns();
        self.timers.add(until_ns, thread);
        if until_ns < first_ns {
            self.call_keeper();
        }
    }

    /// Whoever keeps the time must look again: until when it sleeps, or where.
    pub(crate) fn call_keeper(&self) {
        match self.keeper.load(Ordering::SeqCst) {
            0 => self.rouse(),
            // It is one of several spares that sleep there.
            keeper => self.call(usize::try_from(keeper - 1).unwrap_or(0), i32::MAX as u32),
        }
    }

    /// The time until which the caller, a spare of an idle processor, sleeps for all (`NEVER`: only
    /// for descriptors); `None`: no thread sleeps or waits for one, or another spare does it.
    pub(crate) fn keep_time(&self, index: usize) -> Option<u64> {
        let me = u32::try_from(index + 1).unwrap_or(0);
        (self.wants_keeper()
            && self
                .keeper
                .compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok())
        .then(|| {
            // Whoever adds an earlier one from here on sees the keeper.
            sync::heavy_fence();
            self.timers.earliest_ns()
        })
    }

    pub(crate) fn stop_keeping_time(&self, index: usize) {
        self.keeper.store(0, Ordering::SeqCst);
        if self.words(index).active() != 0 && self.wants_keeper() {
            self.rouse();
        }
    }

    /// Whether threads sleep, or wait for descriptors, and no spare sleeps until the first one's
    /// time.
    pub(crate) fn wants_keeper(&self) -> bool {
        let sleep = self.timers.earliest_ns() != NEVER || self.descriptors.is_used();
        sleep && !self.has_keeper()
    }

    pub(crate) fn has_keeper(&self) -> bool {
        self.keeper.load(Ordering::Relaxed) != 0
    }

    // --- activations ---

    /// Lets an activation (`None`: the calling kernel thread) run where its processor does.
    pub(crate) fn pin(&self, tid: Option<Pid>, index: usize) {
        if let Some(cpu) = self.cpus.get(index) {
            let mut cpus = CpuSet::new();
            cpus.set(*cpu);
            // The CPU can be gone by now; then the thread stays where it may run.
            let _ = sched_setaffinity(tid, &cpus);
        }
    }

    /// Has a spare created for a processor that has none, unless one is on its way; false: a limit
    /// is reached, and blocks are not told until a spare comes back.
    pub(crate) fn add_spare(&self, index: usize) -> bool {
        let coming = &self.processors[index].coming;
        if coming.swap(1, Ordering::SeqCst) == 1 {
            return true;
        }
        let is_created = self.add_activation(index);
        if !is_created {
            coming.store(0, Ordering::SeqCst);
        }
        is_created
    }

    /// Creates an activation, which counts itself as a spare of the processor when it runs.
    fn add_activation(&self, index: usize) -> bool {
        if !self.stacks.has_room_beside(ACTIVATION_STACK_BYTES) {
            self.refuse();
            return false;
        }
        let most = u32::try_from(self.activations.len()).unwrap_or(u32::MAX);
        let taken =
            self.activation_count
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
                    (count < most).then_some(count + 1)
                });
        let Ok(count) = taken else {
            self.refuse();
            return false;
        };
        let number = count + 1;
        let place = &self.activations[usize::try_from(count).unwrap_or(0)];
        let activation = place.get_or_init(|| Activation::new(number, self));
        self.words_of(number)
            .processor
            .store(u32::try_from(index).unwrap_or(0), Ordering::Release);
        let address = Address(NonNull::from(activation));
        // The runtime's end waits for all kernel threads, so `self` outlives this one.
        let builder = kernel_thread::Builder::new()
            .name("ecalls-threads".to_owned())
            .stack_size(ACTIVATION_STACK_BYTES);
        let started = mask::blocked(|| {
            builder.spawn(move || {
                let address = address;
                // SAFETY: see above.
                unsafe { address.0.as_ref() }.main();
            })
        });
        match started {
            Ok(thread) => {
                self.kernel_threads.lock().push(thread);
                true
            }
            Err(_) => {
                // Its number is the next one's, unless that has begun already.
                let _ = self.activation_count.compare_exchange(
                    number,
                    count,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                self.refuse();
                false
            }
        }
    }
}

/// Where a runtime's processors are.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) processors: usize,
    /// The CPU of each; empty: activations are not bound to CPUs.
    pub(crate) cpus: Vec<usize>,
}

struct Address(NonNull<Activation>);
// SAFETY: an activation is `Sync`.
unsafe impl Send for Address {}

/// User-level threads on virtual processors. Dropped, it waits until all its threads have ended; so
/// none of them may drop it.
pub struct Runtime {
    shared: Arc<Shared>,
}

/// What a runtime has done: sums over its processors.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Threads that have not ended.
    pub threads: u64,
    /// Activations, i.e. kernel threads.
    pub activations: u64,
    /// Times that a thread began or continued to run.
    pub switches: u64,
    /// Times that a thread gave up its processor around a call that might block.
    pub left: u64,
    /// Blocks that the kernel side told,
    pub told: u64,
    /// and those during a scheduling point, or without a spare, which it did not tell.
    pub untold: u64,
    /// Times that a thread came back and found its processor free,
    pub reclaimed: u64,
    /// and that one which came back waited until it was chosen (SA: `restart`).
    pub restarts: u64,
    /// Activations that were wanted and that a limit refused.
    pub refused: u64,
}

impl Runtime {
    /// A runtime with its defaults, to be changed.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts the first activations.
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Self> {
        let runtime = Self { shared };
        let processors = runtime.shared.processors();
        let mut first = (0..processors).chain(0..processors);
        if !first.all(|index| runtime.shared.add_activation(index)) {
            return Err(Error::LimitReached {
                which: "kernel threads that the system gives (RLIMIT_NPROC, pids.max)",
                limit: runtime.shared.kernel_threads.lock().len(),
            });
        }
        Ok(runtime)
    }

    /// Creates a thread.
    ///
    /// # Errors
    /// [`Error::LimitReached`] for more threads than the runtime may have.
    pub fn spawn<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>> {
        self.spawn_after(body, |_| ())
    }

    /// The same, and shows the thread to the caller before it is ready.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn spawn_after<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
        before: impl FnOnce(&Current),
    ) -> Result<JoinHandle<T>> {
        create(&self.shared, body, before)
    }

    /// Whether the kernel side tells of blocks; else only [`blocking`](crate::blocking) does. It
    /// does not any more if the runtime has it from the daemon, and that has ended.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.shared.page.kernel().is_some_and(Activations::is_alive)
    }

    /// Whether each thread has thread-local storage of its own.
    #[must_use]
    pub fn has_own_storage(&self) -> bool {
        self.shared.storage.is_some()
    }

    /// Its number of virtual processors.
    #[must_use]
    pub fn processors(&self) -> usize {
        self.shared.processors()
    }

    /// Whether any processor executes a thread.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let mut all = 0..self.shared.processors();
        all.any(|index| self.shared.words(index).active() != 0)
    }

    /// Whether all threads wait or block.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let mut all = 0..self.shared.processors();
        !self.is_busy() && !all.any(|index| self.shared.has_work(index))
    }

    /// The kernel threads that execute one and the same thread since the last call although others
    /// wait for the processor; `seen` is the memory between calls, empty at first. Whoever wants
    /// time slices sends them a signal whose handler calls
    /// [`yield_from_signal`](crate::yield_from_signal).
    pub fn overdue(&self, seen: &mut Vec<u64>) -> Vec<u32> {
        let shared = &self.shared;
        seen.resize(shared.processors(), u64::MAX);
        let mut overdue = Vec::new();
        for (index, before) in seen.iter_mut().enumerate() {
            let now = shared
                .status
                .processor(index)
                .switches
                .load(Ordering::Relaxed);
            let is_same = std::mem::replace(before, now) == now;
            let unseen = shared.descriptors.is_used() && !shared.has_keeper();
            if is_same && (shared.has_work(index) || shared.is_due() || unseen) {
                let holder = shared.activation(shared.words(index).active());
                overdue.extend(holder.map(Activation::tid));
            }
        }
        overdue
    }

    /// The kernel threads that have a processor at the moment.
    pub fn running(&self) -> impl Iterator<Item = u32> {
        let shared = &self.shared;
        let holder = |index| shared.activation(shared.words(index).active());
        (0..shared.processors()).filter_map(move |index| holder(index).map(Activation::tid))
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let mut stats = Stats {
            threads: shared.live.load(Ordering::Relaxed).saturating_sub(1),
            activations: shared.activation_count.load(Ordering::Relaxed).into(),
            refused: shared.status.refused.load(Ordering::Relaxed),
            ..Stats::default()
        };
        for index in 0..shared.processors() {
            let counts = shared.status.processor(index);
            let (told, untold) = shared.words(index).counts();
            stats.switches += counts.switches.load(Ordering::Relaxed);
            stats.left += counts.left.load(Ordering::Relaxed);
            stats.told += told;
            stats.untold += untold;
            stats.reclaimed += counts.reclaimed.load(Ordering::Relaxed);
            stats.restarts += counts.restarts.load(Ordering::Relaxed);
        }
        stats
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("processors", &self.shared.processors())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.end();
        loop {
            let next = self.shared.kernel_threads.lock().pop();
            match next {
                Some(thread) => {
                    // An activation does not panic: threads' panics end in their own stacks.
                    let _ = thread.join();
                }
                None => return,
            }
        }
    }
}
