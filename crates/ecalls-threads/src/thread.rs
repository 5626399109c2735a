//! A user-level thread: its control block, its creation and its end.

use core::arch::asm;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use corosensei::{Coroutine, Yielder};

use crate::activation::Activation;
use crate::calls;
use crate::error::Error;
use crate::processor::Linked;
use crate::runtime::Shared;
use crate::spin::Spin;
use crate::stack::Stack;
use crate::status;
use crate::storage::Block;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::wait::Waiters;
use crate::word::WaitWord;

/// Why a thread gives up its processor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    /// It stays ready.
    Yield,
    /// It waits to be woken.
    Wait,
    /// It has none: it has blocked, and another activation has the processor now.
    Unblocked,
}

pub(crate) type Routine = Coroutine<(), After, (), Stack>;

/// The control block of a thread.
pub(crate) struct Thread {
    pub(crate) id: u64,
    pub(crate) shared: Arc<Shared>,
    /// More is more important; a policy may use it.
    pub(crate) priority: AtomicU32,
    /// On CLOCK_MONOTONIC, ns; 0: none. A policy may use it.
    pub(crate) deadline_ns: AtomicU64,
    pub(crate) wait: WaitWord,
    /// 1: it came back from blocking, and has not been chosen since.
    pub(crate) is_back: AtomicU32,
    /// Link of those that came back.
    next: AtomicPtr<Thread>,
    /// 1: it has ended. Kernel threads outside of the runtime wait for it by futex.
    pub(crate) ended: AtomicU32,
    pub(crate) joiners: Waiters,
    /// The activation that executes it, or has executed it last; 0: none yet.
    pub(crate) at: AtomicU32,
    /// A wait of it was ended by [`Current::interrupt`].
    pub(crate) interrupted: AtomicBool,
    /// 1 + the place of its name; 0: it has none.
    named: AtomicU32,
    /// Its signal mask.
    pub(crate) mask: AtomicU64,
    /// What a layer above has attached; only the thread uses it.
    pub(crate) attached: Cell<*mut ()>,
    /// It must not leave the kernel thread that executes it ([`calls::set_stays`]); only the thread
    /// uses it.
    pub(crate) stays: Cell<bool>,
    /// The lowest address of its stack, and its bytes.
    stack: (usize, usize),
    /// Used by the activation that executes the thread.
    routine: UnsafeCell<Option<Routine>>,
    /// Its thread-local storage; `None`: its kernel thread's.
    pub(crate) block: Option<Block>,
    yielder: Cell<Option<NonNull<Yielder<(), After>>>>,
}

// SAFETY: `routine`, `yielder`, `attached` and `stays` are used by the activation that took the
// thread out of the policy, or from the thread's own stack, until it is ready or settled again;
// both synchronize.
unsafe impl Sync for Thread {}
// SAFETY: as above; the closure that the routine executes is `Send`.
unsafe impl Send for Thread {}

impl Thread {
    pub(crate) fn new(
        shared: Arc<Shared>,
        stack: Stack,
        block: Option<Block>,
        body: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        let thread = Arc::new(Self {
            id: shared.next_id(),
            priority: AtomicU32::new(0),
            deadline_ns: AtomicU64::new(0),
            wait: WaitWord::new(),
            is_back: AtomicU32::new(0),
            next: AtomicPtr::new(null_mut()),
            ended: AtomicU32::new(0),
            joiners: Waiters::new(),
            at: AtomicU32::new(0),
            interrupted: AtomicBool::new(false),
            named: AtomicU32::new(0),
            mask: AtomicU64::new(mask_of_creator(&shared)),
            attached: Cell::new(null_mut()),
            stays: Cell::new(false),
            stack: stack.range(),
            routine: UnsafeCell::new(None),
            block,
            yielder: Cell::new(None),
            shared,
        });
        let me = Arc::as_ptr(&thread);
        let routine = Routine::with_stack(stack, move |yielder, ()| {
            // SAFETY: the activation that executes this holds an `Arc` of the thread.
            unsafe { &*me }.yielder.set(Some(NonNull::from(yielder)));
            outermost(body);
        });
        // SAFETY: nobody else has the thread yet.
        unsafe { *thread.routine.get() = Some(routine) };
        thread
    }

    /// Executes the thread until it gives up its processor; `None`: it has ended.
    ///
    /// # Safety
    /// The caller is an activation that has taken the thread out of the policy.
    #[inline(always)]
    pub(crate) unsafe fn execute(&self) -> Option<After> {
        // SAFETY: as the caller says, nobody else uses the routine.
        let routine = unsafe { &mut *self.routine.get() }.as_mut()?;
        let shown = self
            .shared
            .status
            .activation(self.at.load(Ordering::Relaxed));
        shown
            .thread
            .store(status::shown(self.id), Ordering::Relaxed);
        routine.resume(()).as_yield()
    }

    /// Gives up the processor.
    ///
    /// # Safety
    /// The caller is on this thread's stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, after: After) {
        if let Some(yielder) = self.yielder.get() {
            // SAFETY: it lives at the bottom of the stack on which the caller is.
            unsafe { yielder.as_ref() }.suspend(after);
        }
    }

    /// Returns the stack of a thread that has ended.
    ///
    /// # Safety
    /// As for `execute`.
    pub(crate) unsafe fn discard(&self) {
        // SAFETY: as the caller says, nobody else uses the routine.
        drop(unsafe { &mut *self.routine.get() }.take());
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) != 0
    }

    /// Whether the caller, which is this thread, is on its own stack: not in the handler of a
    /// signal on an alternate one, which is the kernel thread's.
    pub(crate) fn is_on_its_stack(&self) -> bool {
        let here = 0_u8;
        let (low, bytes) = self.stack;
        (low..low + bytes).contains(&(&raw const here).addr())
    }
}

impl Linked for Thread {
    fn next(&self) -> &AtomicPtr<Self> {
        &self.next
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let named = *self.named.get_mut();
        if named != 0 {
            self.shared.status.free_name(named as usize - 1);
        }
        // Nobody can ask for the thread any more, so its block can be another one's.
        if let (Some(library), Some(block)) = (self.shared.storage, self.block) {
            library.give(block);
        }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A thread's outermost frame: whoever unwinds the stack, or prints it, ends here. Beyond it is the
/// stack of the activation that executes the thread at the moment, which is another one once the
/// thread has waited, e.g. to print.
#[inline(never)]
fn outermost(body: impl FnOnce()) {
    // SAFETY: a note for unwinders that this function has no caller; there is no instruction.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".cfi_undefined rip",
            options(nomem, nostack, preserves_flags)
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".cfi_undefined x30",
            options(nomem, nostack, preserves_flags)
        );
    }
    body();
    // The frame stays until here.
    std::hint::black_box(());
}

/// The signal mask of a new thread: that of the thread that creates it, and from outside of a
/// runtime that of whoever has started this one.
fn mask_of_creator(shared: &Shared) -> u64 {
    let creator = Activation::get().and_then(Activation::current_ref);
    creator.map_or(shared.mask, |creator| creator.mask.load(Ordering::Relaxed))
}

type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// Creates a thread and makes it ready, `before` which it is shown to the caller.
pub(crate) fn create<T: Send + 'static>(
    shared: &Arc<Shared>,
    body: impl FnOnce() -> T + Send + 'static,
    before: impl FnOnce(&Current),
) -> crate::Result<JoinHandle<T>> {
    let outcome = Arc::new(Spin::new(None));
    let result = Arc::clone(&outcome);
    let stack = shared.take_stack()?;
    let storage = shared.storage;
    let block = match storage {
        Some(library) => Some(library.take().ok_or(Error::LimitReached {
            which: "threads for whose storage there is memory",
            limit: shared.live_threads(),
        })?),
        None => None,
    };
    let thread = Thread::new(Arc::clone(shared), stack, block, move || {
        if let Some(library) = storage {
            library.begin();
        }
        let ended = catch_unwind(AssertUnwindSafe(body));
        *result.lock() = Some(ended);
        drop(result);
        if let Some(library) = storage {
            library.end();
        }
        calls::enter_at_end();
    });
    before(&Current(Arc::clone(&thread)));
    shared.begin();
    calls::make_ready(Arc::clone(&thread), crate::Why::Created);
    Ok(JoinHandle { thread, outcome })
}

/// Waits for a thread's end and gives its result. Dropped, it lets the thread run on (detached).
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: Arc<Thread>,
    outcome: Arc<Spin<Option<Outcome<T>>>>,
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> Outcome<T> {
        while !self.thread.has_ended() {
            self.thread.joiners.wait_unless(|| self.thread.has_ended());
        }
        let outcome = self.outcome.lock().take();
        outcome.unwrap_or_else(|| Err(Box::new("the thread's result was taken")))
    }

    /// Whether the thread has ended, so that `join` does not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.has_ended()
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> Current {
        Current(Arc::clone(&self.thread))
    }
}

/// A thread as programs see it: of [`current`] or [`JoinHandle::thread`].
#[derive(Clone, Debug)]
pub struct Current(Arc<Thread>);

impl PartialEq for Current {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Current {}

impl Current {
    /// Its number, unique in its runtime.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The address of its control block in the C library, if it has storage of its own: with glibc
    /// that is its `pthread_t`. It is the thread's until the last `JoinHandle` and `Current` of it
    /// are dropped.
    #[must_use]
    pub fn control_block(&self) -> Option<usize> {
        self.0.block.map(Block::base)
    }

    /// The lowest address of its stack, above the guard, and the bytes from there on.
    #[must_use]
    pub fn stack(&self) -> (usize, usize) {
        self.0.stack
    }

    /// The id of the kernel thread that executes the thread, or has executed it last; 0: none yet.
    #[must_use]
    pub fn kernel_thread(&self) -> u32 {
        let number = self.0.at.load(Ordering::Acquire);
        self.0.shared.activation(number).map_or(0, Activation::tid)
    }

    /// Gives it a name, for `ecalls threads`, which shows its first 15 bytes. Of threads that have
    /// a name at a time 4096 are shown by it, the others by their numbers.
    pub fn set_name(&self, name: &str) {
        let (thread, status) = (&self.0, &self.0.shared.status);
        let mut named = thread.named.load(Ordering::Acquire);
        if named == 0 {
            let Some(place) = status.take_name() else {
                return;
            };
            let new = u32::try_from(place + 1).unwrap_or(0);
            let set = (Ordering::AcqRel, Ordering::Acquire);
            named = match thread.named.compare_exchange(0, new, set.0, set.1) {
                Ok(_) => new,
                Err(others) => {
                    status.free_name(place);
                    others
                }
            };
        }
        status.show_name(named as usize - 1, thread.id, name);
    }

    /// Its signal mask: a bit for each signal, from the first.
    #[must_use]
    pub fn signal_mask(&self) -> u64 {
        self.0.mask.load(Ordering::SeqCst)
    }

    /// Sets its signal mask, which it has from the next time on that it is executed. The calling
    /// thread changes that of its kernel thread, too, and tells by
    /// [`note_signal_mask`](crate::note_signal_mask).
    pub fn set_signal_mask(&self, mask: u64) {
        self.0.mask.store(mask, Ordering::SeqCst);
    }

    /// Ends the wait in which the thread is, or its next one if it is in none: as if what it waits
    /// for had happened. Whoever waits in this crate's locks looks again, and waits on. For a
    /// [`Request`](crate::Request): of a wait that begins meanwhile, either it is ended, or what
    /// the caller has written before is seen by who is about to wait.
    pub fn interrupt(&self) {
        let thread = &self.0;
        thread.interrupted.store(true, Ordering::SeqCst);
        let _scheduler = calls::Entered::new();
        calls::wake(thread, thread.wait.epoch());
    }

    /// Its priority, which [`Ranked`](crate::Ranked) uses; more is more important.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.0.priority.load(Ordering::Relaxed)
    }

    /// Sets its priority, from the next time on that it becomes ready.
    pub fn set_priority(&self, priority: u32) {
        self.0.priority.store(priority, Ordering::Relaxed);
    }

    /// Sets its deadline (CLOCK_MONOTONIC, ns; 0: none), from the next time on that it becomes
    /// ready.
    pub fn set_deadline_ns(&self, deadline_ns: u64) {
        self.0.deadline_ns.store(deadline_ns, Ordering::Relaxed);
    }
}

/// The calling thread; `None` for a kernel thread that is not of a runtime.
#[must_use]
pub fn current() -> Option<Current> {
    Activation::get()?.current().map(Current)
}
