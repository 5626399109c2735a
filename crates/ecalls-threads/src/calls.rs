//! What the calling thread asks of its runtime: scheduling points. Outside of a runtime each does
//! what a kernel thread expects.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::{nanosleep, sched_yield};
use rustix::time::Timespec;

use crate::activation::Activation;
use crate::policy::Why;
use crate::sync::Ordering;
use crate::thread::{After, JoinHandle, Thread, create};
use crate::wait::now_ns;
use crate::word::Notified;
use crate::{local, mask, storage};

/// While it lives, the calling thread has its processor (and does not, if it had it before: then
/// the caller is a scheduler). Outside of a runtime, and for a thread that stays where it is, it
/// does nothing. No switch may happen meanwhile.
pub(crate) struct Entered(Option<NonNull<Activation>>);

impl Entered {
    pub(crate) fn new() -> Self {
        let entered = Activation::get()
            .filter(|activation| activation.lock().load(Ordering::Relaxed) == 0)
            .filter(|activation| !activation.is_stayed_in())
            .map(|activation| NonNull::from(activation.enter()));
        Self(entered)
    }

    fn activation(&self) -> Option<&Activation> {
        // SAFETY: it is the calling kernel thread, as no switch has happened.
        self.0.map(|activation| unsafe { activation.as_ref() })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(activation) = self.activation() {
            activation.leave();
        }
    }
}

/// Makes a thread ready that nobody else makes ready.
pub(crate) fn make_ready(thread: Arc<Thread>, why: Why) {
    let shared = Arc::clone(&thread.shared);
    let here = Activation::get()
        .filter(|at| std::ptr::eq(at.shared(), Arc::as_ptr(&shared)) && !at.is_stayed_in());
    match here {
        Some(activation) => {
            let entered = Entered::new();
            let activation = entered.activation().unwrap_or(activation);
            activation.make_ready_here(thread, why);
        }
        None if why == Why::Created => shared.inject(thread, Why::Started),
        None => shared.inject(thread, why),
    }
}

/// Wakes a thread that waits in that epoch; false: something else has.
pub(crate) fn wake(thread: &Arc<Thread>, epoch: u64) -> bool {
    let notified = thread.wait.notify(epoch);
    if notified == Notified::Waiting {
        make_ready(Arc::clone(thread), Why::Woken);
    }
    notified != Notified::Late
}

/// Gives other ready threads the processor; the policy decides when the caller continues.
// Inlined so that a switch's `ret` belongs to the `call` by which the scheduler came: the
// processor predicts it, which is 40 of 55 ns.
#[inline(always)]
pub fn yield_now() {
    match Activation::get().filter(|at| at.movable_ref().is_some()) {
        Some(activation) => {
            if let Some(thread) = activation.enter().current_ref() {
                // SAFETY: the current thread is the one on whose stack this is.
                unsafe { thread.suspend(After::Yield) };
            }
        }
        None => std::thread::yield_now(),
    }
}

/// The last that a thread does on its stack: from here on it has its processor, to end there.
pub(crate) fn enter_at_end() {
    if let Some(activation) = Activation::get() {
        let _ = activation.enter();
    }
}

/// The user-level thread that the caller is, in code of its own: `None` in the scheduler that
/// executes it, and in a kernel thread outside of a runtime.
#[inline]
fn caller<'a>() -> Option<&'a Arc<Thread>> {
    let activation = Activation::get().filter(|at| at.lock().load(Ordering::Relaxed) == 0);
    activation.and_then(Activation::current_ref)
}

/// Whether the caller is a user-level thread, in code of its own: not in the scheduler that
/// executes it, nor in a kernel thread outside of a runtime.
#[inline]
#[must_use]
pub fn is_thread() -> bool {
    caller().is_some()
}

/// Whether the caller is called by the scheduler of an activation, and so must not wait for
/// threads.
#[inline]
#[must_use]
pub fn in_scheduler() -> bool {
    Activation::get().is_some_and(|activation| {
        activation.lock().load(Ordering::Relaxed) != 0 || activation.current_ref().is_none()
    })
}

/// Whether the caller is a user-level thread that can be put aside where it is: not one that
/// [stays](set_stays).
#[inline]
#[must_use]
pub fn can_switch() -> bool {
    caller().is_some_and(|thread| !thread.stays.get())
}

/// Whether the caller is on the stack of the user-level thread that it is: the handler of a signal
/// can be on an alternate one, or on the scheduler's, which is about to execute the thread.
#[must_use]
pub fn is_on_own_stack() -> bool {
    let thread = Activation::get().and_then(Activation::current_ref);
    thread.is_some_and(|thread| thread.is_on_its_stack())
}

/// What the handler of a signal has interrupted: [`interrupted`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interrupted {
    /// Code of a thread, or of a kernel thread outside of a runtime.
    Code,
    /// A switch between threads. The handler must neither use thread-local storage, which may be
    /// that of a thread that another processor executes by now, nor leave by a jump.
    Switch,
    /// An activation that waits for a processor, with storage of its own. The handler must not
    /// leave by a jump.
    Spare,
}

/// What the handler of a signal, which calls, has interrupted: the code whose stack pointer that
/// was.
#[must_use]
pub fn interrupted(stack_pointer: usize) -> Interrupted {
    // Even while it changes its storage, so that `Activation::get` does not know it.
    let Some(activation) = local::get() else {
        return Interrupted::Code;
    };
    // SAFETY: activations that have been set live as long as their runtime.
    unsafe { activation.as_ref() }.interrupted(stack_pointer)
}

/// Has the calling thread stay where it is, in the kernel thread that executes it, until it is told
/// otherwise: to this crate it is a kernel thread outside of the runtime meanwhile. In the handler
/// of a signal it must be so: the handler can have interrupted code that has a lock of the
/// allocator's, or is in a call of [`blocking`]. Returns what held before; the same for whoever is
/// no user-level thread.
pub fn set_stays(stays: bool) -> bool {
    match caller() {
        Some(thread) => thread.stays.replace(stays),
        None => stays,
    }
}

/// Attaches a pointer to the calling thread, for a layer above that has things of each thread:
/// [`attached`] returns it, to this thread alone. False: the caller is no user-level thread.
pub fn attach(pointer: *mut ()) -> bool {
    let thread = Activation::get().and_then(Activation::current_ref);
    thread.is_some_and(|thread| {
        thread.attached.set(pointer);
        true
    })
}

/// What the calling thread has attached; null: nothing, or the caller is no user-level thread.
#[inline]
#[must_use]
pub fn attached() -> *mut () {
    let thread = Activation::get().and_then(Activation::current_ref);
    thread.map_or(null_mut(), |thread| thread.attached.get())
}

/// The id of the kernel thread that executes the caller, if that is a user-level thread.
#[must_use]
pub fn kernel_thread() -> Option<u32> {
    Activation::get().map(Activation::tid)
}

/// The calling thread has changed the signal mask of the kernel thread that executes it; `None`:
/// that may be any one for a while, as in the handler of a signal. Other threads are executed with
/// theirs.
pub fn note_signal_mask(mask: Option<u64>) {
    if let Some(activation) = Activation::get() {
        activation.note_mask(mask.unwrap_or(mask::UNKNOWN));
    }
}

/// Gives up the processor like [`yield_now`], from the handler of a signal that has interrupted
/// the thread; not if the thread is without its processor, in the scheduler, or on the stack of a
/// kernel thread, as in a handler on an alternate stack.
///
/// The interrupted code must not have been this crate's, nor hold a lock that the scheduler needs
/// (the allocator's); and each thread must have its own thread-local storage.
pub fn yield_from_signal() {
    let has_processor = Activation::get().is_some_and(|activation| {
        can_switch()
            && activation.words().active.load(Ordering::Relaxed) == activation.number
            && activation
                .current_ref()
                .is_some_and(|thread| thread.is_on_its_stack())
    });
    if has_processor {
        yield_now();
    }
}

/// In the child of a fork: there is no runtime any more, and the calling thread is a kernel
/// thread.
pub fn forget_runtimes() {
    local::set(None);
    crate::park::forget_all();
    storage::forget_all();
}

/// Sleeps; the processor executes other threads.
pub fn sleep(duration: Duration) {
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    sleep_until(now_ns().saturating_add(ns));
}

/// Sleeps until a time on CLOCK_MONOTONIC, ns.
pub fn sleep_until(time_ns: u64) {
    let Some((activation, thread)) = Activation::get().and_then(|at| Some((at, at.movable()?)))
    else {
        let ns = time_ns.saturating_sub(now_ns());
        return blocking(|| std::thread::sleep(Duration::from_nanos(ns)));
    };
    let _ = activation.enter();
    thread.shared.add_timer(time_ns, &thread);
    // SAFETY: as in `yield_now`.
    unsafe { thread.suspend(After::Wait) };
    thread.wait.resume();
    let _scheduler = Entered::new();
    // Only a thread that was interrupted is still there.
    thread.shared.timers.remove(time_ns, &thread);
}

/// Executes `call`, which may block its kernel thread: the processor executes other threads
/// meanwhile. If it does not block, this costs some 20 ns.
///
/// With the kernel side the processor is given up if the call blocks, as it is without this
/// function, too, whatever the thread blocks in; then a [`scheduling_point`] should follow, which
/// this function has. During the call the thread [stays](set_stays) in its kernel thread, the
/// handlers of signals included.
pub fn blocking<R>(call: impl FnOnce() -> R) -> R {
    let Some(thread) = caller() else {
        return call();
    };
    let stays = Stays::begin(thread);
    // One that has stayed before has no scheduling point afterwards either.
    let comes_back = leave(stays.before) && !stays.before;
    let result = call();
    drop(stays);
    if comes_back {
        scheduling_point();
    }
    result
}

/// Gives up the processor before a call of the calling thread, unless the kernel side sees whether
/// that blocks, so that a spare is woken only if it does. False: the thread keeps it.
fn leave(has_stayed: bool) -> bool {
    let Some(activation) = Activation::get() else {
        return false;
    };
    if activation.shared().is_told() {
        return true;
    }
    // Who stays does not wait for a processor that it does not have any more.
    if has_stayed && activation.words().active.load(Ordering::Relaxed) != activation.number {
        return false;
    }
    let activation = activation.enter();
    let (shared, index) = (activation.shared(), activation.processor());
    let mut left = activation.words().leave();
    if !left && shared.add_spare(index) {
        // It takes some 50 us once for each activation; a block can take for ever.
        await_spare(|| activation.words().leave());
        left = true;
    }
    if left {
        let here = shared.processor(index);
        activation.counts().left.fetch_add(1, Ordering::Relaxed);
        if here.looking.load(Ordering::SeqCst) == 0 {
            if shared.has_work(index) || shared.wants_keeper() {
                shared.summon(index);
            } else {
                shared.note_idle(index);
            }
        }
    }
    activation.leave();
    left
}

/// While it lives, the thread stays in its kernel thread.
struct Stays {
    thread: NonNull<Thread>,
    before: bool,
}

impl Stays {
    fn begin(thread: &Arc<Thread>) -> Self {
        Self {
            before: thread.stays.replace(true),
            thread: NonNull::from(&**thread),
        }
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        // SAFETY: it is the calling thread, which exists.
        unsafe { self.thread.as_ref() }.stays.set(self.before);
    }
}

/// A scheduling point, and nothing else: if the calling thread has blocked since the last one, it
/// waits here until the policy chooses it. Without such a point it would run on beside the thread
/// that now has its processor. Whatever this crate offers has one, so a program needs this only
/// after calls that block and are not in [`blocking`].
pub fn scheduling_point() {
    drop(Entered::new());
}

/// Waits until a spare that was created is there, however long the machine takes to run it: without
/// one, a call that never returns would keep the processor, and all its threads would stand still.
pub(crate) fn await_spare(mut is_there: impl FnMut() -> bool) {
    /// It comes within so many, unless other programs have all CPUs.
    const YIELDS: u32 = 1000;
    const PAUSE: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 200_000,
    };
    let mut yields = 0;
    while !is_there() {
        if yields < YIELDS {
            yields += 1;
            sched_yield();
        } else {
            // The system call itself: a thread's sleep can be the runtime's.
            let _ = nanosleep(&PAUSE);
        }
    }
}

/// Creates a thread of the runtime whose thread calls.
///
/// # Panics
/// If the caller is no thread of a runtime (use [`Runtime::spawn`](crate::Runtime::spawn)), or no
/// further thread is possible; [`Builder::threads_max`](crate::Builder::threads_max) is the limit.
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let Some(thread) = Activation::get().and_then(Activation::current) else {
        panic!("ecalls_threads::spawn was called outside of a runtime; use Runtime::spawn");
    };
    match create(&thread.shared, body, |_| ()) {
        Ok(handle) => handle,
        Err(error) => panic!("a thread cannot be created: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor that its thread keeps although that blocks for ever stands still for ever.
    #[test]
    fn a_spare_is_waited_for_however_late_it_comes() {
        let start = std::time::Instant::now();
        let mut asked = 0;
        await_spare(|| {
            asked += 1;
            asked > 20_000 || start.elapsed() > Duration::from_millis(100)
        });
        assert!(asked > 20_000 || start.elapsed() > Duration::from_millis(100));
    }
}
