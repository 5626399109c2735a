//! A call of poll or select: asks the thread's set, and sleeps until it has an answer.
//!
//! The thread sleeps in ppoll(2) on the set's descriptor alone, with the time and the mask of
//! signals of the call. So these are as exact as without the library, the call goes on after
//! SIGCONT, where epoll_wait(2) would end with EINTR, and it is a point of cancellation. After
//! [`SLEEP_NS`] it sleeps in the kernel's poll of the whole array, which what the set might have
//! missed cannot escape. Signals are blocked between the two sleeps, so that none is lost there
//! that should end the call.

use std::ffi::c_int;
use std::ptr;

use ecalls_preload::errno;
use libc::{POLLIN, pollfd, sigset_t, timespec};

use crate::next;
use crate::set::Answer;
use crate::thread::Thread;

const SECOND_NS: u64 = 1_000_000_000;
/// So long a thread sleeps on its set alone.
const SLEEP_NS: u64 = 50_000_000;

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// What the kernel's poll is called with.
pub(crate) enum Sleep {
    /// As the program has called.
    AsAsked,
    /// For the time that is left, with a mask of signals; null: as long as it takes, and the
    /// thread's own mask.
    Rest(*const timespec, *const sigset_t),
}

/// A call of the program.
pub(crate) struct Call<'a> {
    pub(crate) entries: *mut pollfd,
    pub(crate) count: usize,
    /// ns; `None`: for ever.
    pub(crate) limit_ns: Option<u64>,
    pub(crate) mask: *const sigset_t,
    /// Has the kernel answer.
    pub(crate) kernel: &'a dyn Fn(Sleep) -> c_int,
    /// Puts the kernel's answer into the array.
    pub(crate) see: &'a dyn Fn(&mut [pollfd]),
    /// Gives the program the answers that are in the array, for which the set has a count, before a
    /// handler may use the array; an empty one: nothing is ready. The program's count; `None`: only
    /// the kernel's answer is right.
    pub(crate) give: &'a dyn Fn(&[pollfd], c_int) -> Option<c_int>,
}

/// A point of cancellation, as the C library's function is one even if it does not wait.
pub(crate) fn cancellation_point() {
    // SAFETY: unwinds the stack of a thread that is cancelled.
    unsafe { pthread_testcancel() };
}

pub(crate) fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes the time.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned() * SECOND_NS + now.tv_nsec.cast_unsigned()
}

pub(crate) fn span(ns: u64) -> timespec {
    timespec {
        tv_sec: i64::try_from(ns / SECOND_NS).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns % SECOND_NS).unwrap_or(0),
    }
}

/// ns of a span; `None`: the kernel would refuse it.
pub(crate) fn ns_of(span: &timespec) -> Option<u64> {
    let second = i64::try_from(SECOND_NS).unwrap_or(0);
    if span.tv_sec < 0 || !(0..second).contains(&span.tv_nsec) {
        return None;
    }
    let ns = span.tv_sec.cast_unsigned().saturating_mul(SECOND_NS);
    Some(ns.saturating_add(span.tv_nsec.cast_unsigned()))
}

/// Blocks all signals while it lives.
struct Blocked(sigset_t);

impl Blocked {
    fn new() -> Self {
        // SAFETY: sets of its own.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }

    fn end(&self) {
        // SAFETY: the mask of before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

impl Call<'_> {
    /// The array; a handler may have called in between, so it is looked up anew.
    ///
    /// # Safety
    /// Nobody else uses it.
    unsafe fn array<'b>(&self) -> &'b mut [pollfd] {
        // SAFETY: the caller's array, or the thread's own.
        unsafe { std::slice::from_raw_parts_mut(self.entries, self.count) }
    }

    /// Executes it.
    ///
    /// # Safety
    /// As poll(2), of the array.
    pub(crate) unsafe fn execute(&self, thread: *mut Thread) -> c_int {
        let before = errno::get();
        // SAFETY: the thread's own, until it leaves.
        let answer = unsafe {
            (*thread)
                .set
                .ask(self.array(), now_ns(libc::CLOCK_MONOTONIC_COARSE))
        };
        let given = match answer {
            // SAFETY: the set has answered in it.
            Answer::Ready(count) => (self.give)(unsafe { self.array() }, count),
            Answer::Nothing if self.limit_ns == Some(0) && self.mask.is_null() => {
                (self.give)(&[], 0)
            }
            Answer::Nothing => return self.sleep(thread, before),
            Answer::Kernel { checks } => {
                return self.ask_kernel(thread, Sleep::AsAsked, checks);
            }
        };
        let Some(count) = given else {
            return self.ask_kernel(thread, Sleep::AsAsked, false);
        };
        Thread::leave(thread);
        errno::set(before);
        count
    }

    /// The kernel answers; the set is free meanwhile.
    fn ask_kernel(&self, thread: *mut Thread, sleep: Sleep, checks: bool) -> c_int {
        // SAFETY: the thread's own.
        let uses = unsafe { (*thread).uses };
        Thread::leave(thread);
        let result = (self.kernel)(sleep);
        // SAFETY: as above.
        let set = unsafe { &mut (*thread).set };
        if result >= 0 || errno::get() == libc::EINVAL {
            set.was_taken(self.count, result >= 0);
        }
        if result <= 0 || !checks {
            return result;
        }
        let before = errno::get();
        if let Some(thread) = Thread::enter() {
            // SAFETY: the thread's own. If the set was used, so was the array, and it is not
            // looked at.
            unsafe {
                if (*thread).uses == uses + 1 {
                    let entries = self.array();
                    (self.see)(entries);
                    let now_ns = now_ns(libc::CLOCK_MONOTONIC_COARSE);
                    (*thread).set.check(entries, now_ns);
                }
            }
            Thread::leave(thread);
        }
        errno::set(before);
        result
    }

    fn sleep(&self, thread: *mut Thread, errno_before: c_int) -> c_int {
        let end_ns = self.limit_ns.map(|limit_ns| {
            let now_ns = now_ns(libc::CLOCK_MONOTONIC);
            now_ns.saturating_add(limit_ns)
        });
        let is_short = self.limit_ns.is_some_and(|limit_ns| limit_ns <= SLEEP_NS);
        let blocked = (!is_short).then(Blocked::new);
        let mask = match &blocked {
            Some(blocked) if self.mask.is_null() => &raw const blocked.0,
            _ => self.mask,
        };
        let outcome = self.sleep_until(thread, end_ns, mask);
        let after = match outcome {
            0.. => errno_before,
            _ => errno::get(),
        };
        if let Some(blocked) = blocked {
            blocked.end();
        }
        errno::set(after);
        outcome
    }

    fn sleep_until(
        &self,
        thread: *mut Thread,
        end_ns: Option<u64>,
        mask: *const sigset_t,
    ) -> c_int {
        let left_ns = || {
            let left = |end_ns: u64| end_ns.saturating_sub(now_ns(libc::CLOCK_MONOTONIC));
            end_ns.map(left)
        };
        let rest = |thread, checks| {
            let left = left_ns().map(span);
            let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            self.ask_kernel(thread, Sleep::Rest(left, mask), checks)
        };
        let mut limit_ns = self.limit_ns;
        loop {
            // SAFETY: the thread's own.
            let (epoll, uses) = unsafe { ((*thread).set.epoll, (*thread).uses) };
            Thread::leave(thread);
            let mut set = pollfd {
                fd: epoll,
                events: POLLIN,
                revents: 0,
            };
            let time = span(limit_ns.unwrap_or(SLEEP_NS).min(SLEEP_NS));
            // SAFETY: one entry, and the caller's mask.
            let result = unsafe { next::ppoll(&raw mut set, 1, &raw const time, mask) };
            if result < 0 || result == 0 && limit_ns.is_some_and(|limit_ns| limit_ns <= SLEEP_NS) {
                return if result < 0 {
                    result
                } else {
                    (self.give)(&[], 0).unwrap_or(0)
                };
            }
            let Some(again) = Thread::enter() else {
                return (self.kernel)(Sleep::Rest(
                    left_ns()
                        .map(span)
                        .as_ref()
                        .map_or(ptr::null(), ptr::from_ref),
                    mask,
                ));
            };
            // SAFETY: the thread's own.
            let was_used = unsafe { (*again).uses != uses + 1 };
            if was_used || result == 0 || set.revents != POLLIN {
                return rest(again, !was_used);
            }
            // SAFETY: as above; nobody has used the array.
            match unsafe { (*again).set.collect(self.array()) } {
                Answer::Ready(count) => {
                    // SAFETY: as above.
                    let Some(count) = (self.give)(unsafe { self.array() }, count) else {
                        return rest(again, false);
                    };
                    Thread::leave(again);
                    return count;
                }
                Answer::Nothing => limit_ns = left_ns(),
                Answer::Kernel { checks } => return rest(again, checks),
            }
        }
    }
}
