//! Only the cooperative poll, for event loops of other libraries (Coop §3.1). Man page:
//! ecalls_coop_poll(3).

use std::ffi::c_int;
use std::thread::{self, ThreadId};

use ecalls_loop::Timing;
use ecalls_loop::bare::CoopPoll;
use ecalls_loop::poll::Answer;

use crate::channel::ChannelHandle;
use crate::error::{Failure, Outcome, guard};
use crate::pointer::{give, output, reference, take_back, write_optional};

/// The answer to a poll. A field is ECALLS_COOP_NONE where there is no such value; times can lie in
/// the past.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CoopAnswer {
    /// When the thread must poll again. In the past: after it has run the timers that are
    /// due.
    pub slice_end_ns: u64,
    /// When another thread's timer is due: the thread must poll by then, too.
    pub next_release_ns: u64,
    /// The least user virtual time of the other members of the group: a thread whose own is
    /// greater must poll.
    pub least_importance: u64,
}

impl From<Answer> for CoopAnswer {
    fn from(answer: Answer) -> CoopAnswer {
        CoopAnswer {
            slice_end_ns: answer.slice_end_ns,
            next_release_ns: answer.next_release_ns,
            least_importance: answer.least_importance,
        }
    }
}

/// `ecalls_coop_t`.
#[derive(Debug)]
pub struct CoopHandle {
    poll: std::cell::RefCell<CoopPoll>,
    thread: ThreadId,
}

/// The poll of the calling thread.
///
/// # Safety
/// As [`reference`].
unsafe fn own<'a>(handle: *const CoopHandle) -> Outcome<&'a CoopHandle> {
    // SAFETY: the caller's promise.
    let handle = unsafe { reference(handle, "the poll") }?;
    if handle.thread != thread::current().id() {
        return Err(Failure::invalid("the poll belongs to another thread"));
    }
    Ok(handle)
}

/// Lets the calling thread poll by slot `slot`, 0 to 15, of a channel, in group `group` (0: none;
/// threads of one user that name the same number share their CPU time by importance). `channel`
/// NULL: the thread polls without a scheduler, and its sleeps are as precise as the kernel's
/// timers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_open(
    channel: *const ChannelHandle,
    slot: u32,
    group: u32,
    poll: *mut *mut CoopHandle,
) -> c_int {
    guard(|| {
        let place = output(poll, "the place for the poll")?;
        let poll = if channel.is_null() {
            CoopPoll::plain()
        } else {
            // SAFETY: a handle (the root's Safety).
            let channel = unsafe { reference(channel, "the channel") }?;
            CoopPoll::by_slot(&channel.caller, slot_number(slot), group)?
        };
        let handle = CoopHandle {
            poll: std::cell::RefCell::new(poll),
            thread: thread::current().id(),
        };
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, handle) };
        Ok(0)
    })
}

pub(crate) fn slot_number(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

/// Ends a thread's polls. The thread keeps the slot until it ends or names another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_close(poll: *mut CoopHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(poll) };
}

/// One poll: the release time of the caller's first timer, and the least user virtual time of its
/// best-effort work; ECALLS_COOP_NONE where there is none. With work, or with a timer that is due,
/// the thread yields; otherwise it sleeps until `release_ns` or a signal. `answer` may be NULL.
/// 1: a scheduler has answered; 0: none is active. -EDEADLK: both are ECALLS_COOP_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_poll(
    poll: *mut CoopHandle,
    release_ns: u64,
    importance: u64,
    answer: *mut CoopAnswer,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let own = unsafe { own(poll) }?;
        let answered = own.poll.borrow_mut().poll(release_ns, importance)?;
        // SAFETY: an output (the root's Safety).
        Ok(unsafe { told(own, answered, answer) })
    })
}

/// Begins a poll before a sleep that the caller performs itself, in epoll for instance, until
/// `release_ns` at the latest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_before_sleep(
    poll: *mut CoopHandle,
    release_ns: u64,
    importance: u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let own = unsafe { own(poll) }?;
        own.poll.borrow_mut().before_sleep(release_ns, importance);
        Ok(0)
    })
}

/// Ends the poll that ecalls_coop_before_sleep() began. Answer and result are those of
/// ecalls_coop_poll().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_coop_after_sleep(
    poll: *mut CoopHandle,
    answer: *mut CoopAnswer,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let own = unsafe { own(poll) }?;
        let answered = own.poll.borrow_mut().after_sleep();
        // SAFETY: an output (the root's Safety).
        Ok(unsafe { told(own, answered, answer) })
    })
}

/// Writes the answer. Returns whether a scheduler gave one.
///
/// # Safety
/// As [`write_optional`].
unsafe fn told(own: &CoopHandle, answered: Answer, answer: *mut CoopAnswer) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { write_optional(answer, answered.into()) };
    c_int::from(own.poll.borrow().timing() == Timing::Cooperative)
}
