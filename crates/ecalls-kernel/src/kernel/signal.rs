//! Real-time signals in the papers' order (ECalls-05 §3.1.1): SIGKILL and SIGSTOP first, then the
//! real-time signals from SIGRTMIN (most urgent) to SIGRTMAX, then the regular ones.
//!
//! The papers patched the kernel for that. A stock kernel (measured on 6.18 and 7.2) does this with
//! the signals that are pending when a thread returns to user space:
//!
//! 1. SIGKILL ends the process at once, and SIGSTOP cannot be masked: nothing to do.
//! 2. It takes the signals in ascending order of their numbers, hence regular ones before real-time
//!    ones. (Signals caused by a fault of the thread itself precede all others, and signals to the
//!    thread precede signals to its process; those of ECalls go to the process.)
//! 3. For each it lays a handler frame on the stack *without running it* and blocks that handler's
//!    `sa_mask`; then it takes the next one. So the handler that is laid **last runs first**,
//!    and a signal that an earlier frame's mask blocks waits until that frame's handler returns.
//!
//! SIGUSR1, SIGRTMIN+1 and SIGRTMIN, sent in this order, therefore run
//!
//! | mask of real-time handlers | of regular ones | order |
//! |---|---|---|
//! | empty | empty | RTMIN+1, RTMIN, USR1: reversed |
//! | full | full | USR1, RTMIN, RTMIN+1: regular first |
//! | **full** | **without real-time signals** | **RTMIN, RTMIN+1, USR1** |
//!
//! The last row is the papers' order, and follows from two rules: [`install`] gives real-time
//! handlers a full mask, and [`keep_order`] removes the real-time signals from the masks of the
//! regular handlers of a program. By the second rule, a real-time signal also interrupts a running
//! regular handler. Signals of one number remain in the order in which they were sent.
//!
//! The order holds within a thread. If several threads leave a signal unblocked, the kernel chooses
//! one of them: let one thread take the signals, and [`block`] them in the others (a thread
//! inherits the blocked signals of its creator).
//!
//! [`SignalQueue`] takes signals without handlers. It takes them by sigtimedwait(2), not by reading
//! a signalfd: a signal that BPF sends has the code SI_KERNEL, for which a signalfd drops the
//! value. Also, it can ask for the real-time signals first, which a read cannot. Its signalfd is
//! only for waiting.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::process::{PidfdFlags, pidfd_open};
use rustix::thread::gettid;

use crate::error::{Error, Result};
use crate::kernel::sys;

/// A signal as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalValue {
    pub signal: i32,
    /// The value that the sender attached; 0 if it could not attach one (kill).
    pub value: u64,
    /// Process that sent it; 0: the kernel, as for all events.
    pub pid: u32,
    /// User of that process; 0 for the kernel.
    pub uid: u32,
    /// How it was sent (`si_code`): SI_KERNEL (0x80) by an event, SI_QUEUE (-1) by sigqueue, and
    /// so on.
    pub code: i32,
}

/// A handler of a real-time signal.
///
/// It interrupts the thread at any instruction, so it may call only async-signal-safe functions: no
/// allocation, no lock, no output through std. Atomics and shared memory are allowed. A panic in it
/// ends the process. errno is preserved.
pub type Handler = fn(SignalValue);

/// Number of signals, and one more for the unused number 0.
const SIGNALS: usize = 65;

/// Signals by which the kernel reports a fault of the running thread. They always precede all
/// others, and a handler of one often must not be interrupted: their masks remain as they are, and
/// they remain unblocked while a real-time handler runs, so that a fault in it is reported.
const FAULTS: [c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// The handler of each signal, a [`Handler`] or null. [`install`] writes it before it registers it
/// with the kernel, [`deliver`] reads it.
static HANDLERS: [AtomicPtr<()>; SIGNALS] = [const { AtomicPtr::new(null_mut()) }; SIGNALS];

/// The real-time signals that a program may use, most urgent first (the C library reserves some).
pub fn real_time_signals() -> RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

/// Runs `handler` whenever real-time signal `signal` arrives, for the whole process. System calls
/// that it interrupts are resumed where the kernel can do so (SA_RESTART). While it runs, all
/// signals are blocked, except those that report a fault.
///
/// # Errors
/// [`Error::Invalid`] if `signal` is not one of [`real_time_signals`].
pub fn install(signal: i32, handler: Handler) -> Result<()> {
    let slot = real_time_slot(signal)?;
    let former = slot.swap(handler as *mut (), Ordering::AcqRel);
    let mut mask = filled_set();
    for fault in FAULTS {
        remove(&mut mask, fault);
    }
    let entry: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = deliver;
    let action = libc::sigaction {
        sa_sigaction: entry as libc::sighandler_t,
        sa_mask: mask,
        sa_flags: libc::SA_SIGINFO | libc::SA_RESTART,
        sa_restorer: None,
    };
    set_action(signal, &action).inspect_err(|_| slot.store(former, Ordering::Release))
}

/// Removes the handler of real-time signal `signal`. From then on the signal is ignored: its
/// default action would end the process, and a sender may still send it.
///
/// # Errors
/// [`Error::Invalid`] if `signal` is not one of [`real_time_signals`].
pub fn uninstall(signal: i32) -> Result<()> {
    let slot = real_time_slot(signal)?;
    ignore(signal)?;
    slot.store(null_mut(), Ordering::Release);
    Ok(())
}

/// Ignores `signal`, in this process and in those that it starts from now on.
///
/// # Errors
/// [`Error::Os`] if the signal cannot be ignored, as SIGKILL.
pub fn ignore(signal: i32) -> Result<()> {
    let action = libc::sigaction {
        sa_sigaction: libc::SIG_IGN,
        sa_mask: empty_set(),
        sa_flags: 0,
        sa_restorer: None,
    };
    set_action(signal, &action)
}

/// Removes the real-time signals from the masks of all regular handlers that the process has now,
/// so that real-time signals precede and interrupt them. Returns the signals whose handlers were
/// changed.
///
/// Call it when the program and its libraries have installed their handlers, and again after they
/// install more; not while another thread installs one. Handlers of faults keep their masks.
///
/// # Errors
/// [`Error::Os`] if the system refuses; none is known.
pub fn keep_order() -> Result<Vec<i32>> {
    let regular = 1..32;
    let mut changed = Vec::new();
    for signal in regular.filter(|signal| !FAULTS.contains(signal) && !is_final(*signal)) {
        let mut action = action_of(signal)?;
        let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        if has_handler && real_time_signals().any(|each| contains(&action.sa_mask, each)) {
            for each in real_time_signals() {
                remove(&mut action.sa_mask, each);
            }
            set_action(signal, &action)?;
            changed.push(signal);
        }
    }
    Ok(changed)
}

/// Blocks signals in the calling thread: they wait until [`unblock`] or a [`SignalQueue`].
///
/// # Errors
/// [`Error::Invalid`] for a number that is not a signal, or one that cannot be blocked.
pub fn block(signals: &[i32]) -> Result<()> {
    set_mask(libc::SIG_BLOCK, &set_of(signals)?)
}

/// Unblocks signals in the calling thread. Pending ones are handled before it returns.
///
/// # Errors
/// As [`block`].
pub fn unblock(signals: &[i32]) -> Result<()> {
    set_mask(libc::SIG_UNBLOCK, &set_of(signals)?)
}

/// Takes signals without handlers, in the papers' order, with all 64 bits of their values.
///
/// Its descriptor is readable while a signal is pending: use it with poll or epoll, in the process
/// that created it (an epoll set inherited by a child watches the parent's signals). Do not read
/// from it. Any thread may take signals; those that were sent to a thread can be taken by that
/// thread only.
#[derive(Debug)]
pub struct SignalQueue {
    fd: OwnedFd,
    real_time: libc::sigset_t,
    regular: libc::sigset_t,
}

impl SignalQueue {
    /// Blocks `signals` in the calling thread and creates a queue for them. Other threads must
    /// block them too: create the queue before they start. They remain blocked when the queue is
    /// dropped.
    ///
    /// # Errors
    /// As [`block`]; [`Error::Os`] if no descriptors are left.
    pub fn new(signals: &[i32]) -> Result<SignalQueue> {
        let all = set_of(signals)?;
        set_mask(libc::SIG_BLOCK, &all)?;
        // SAFETY: `all` is a set that set_of initialized; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const all, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(Error::last_os("opening a descriptor for signals"));
        }
        // SAFETY: the call above just returned `fd`, so it is open and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let (real_time, regular): (Vec<i32>, Vec<i32>) = signals
            .iter()
            .partition(|signal| real_time_signals().contains(*signal));
        Ok(SignalQueue {
            fd,
            real_time: set_of(&real_time)?,
            regular: set_of(&regular)?,
        })
    }

    /// The next signal, if one is pending.
    ///
    /// # Errors
    /// [`Error::Os`] if the system refuses; none is known.
    pub fn take(&self) -> Result<Option<SignalValue>> {
        match take_one(&self.real_time)? {
            Some(value) => Ok(Some(value)),
            None => take_one(&self.regular),
        }
    }

    /// The next signal; waits for it at most `timeout_ns` (`None`: without limit). `Ok(None)` if
    /// the time is over.
    ///
    /// # Errors
    /// As [`SignalQueue::take`].
    pub fn wait(&self, timeout_ns: Option<u64>) -> Result<Option<SignalValue>> {
        let end_ns = timeout_ns.map(|ns| sys::now_ns().saturating_add(ns));
        loop {
            if let Some(value) = self.take()? {
                return Ok(Some(value));
            }
            let left_ns = end_ns.map(|end_ns| end_ns.saturating_sub(sys::now_ns()));
            if left_ns == Some(0) {
                return Ok(None);
            }
            // It also returns when a handler ran, or when another thread took the signal: hence the
            // loop.
            sys::wait_readable(self.as_fd(), left_ns)?;
        }
    }
}

impl AsFd for SignalQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// For a descriptor of the calling thread instead of its process (Linux 6.9); and to send to its
/// process all the same.
const PIDFD_THREAD: u32 = 0x80;
const TO_PROCESS: u32 = 2;

/// Sends real-time signals to this process that look like those of events: where the kernel side
/// cannot send them (before Linux 6.13).
///
/// It belongs to the thread that made it: a thread may say SI_KERNEL only in what it sends to
/// itself, so it names itself, and asks that its process gets the signal. It blocks all signals, so
/// that another thread takes this one, as when the kernel sends it to a program's threads.
#[derive(Debug)]
pub struct SignalSender {
    thread: OwnedFd,
    signal: c_int,
}

/// A siginfo_t on 64-bit processors, as sigqueue(3) fills it in.
#[repr(C)]
struct Info {
    signal: c_int,
    errno: c_int,
    code: c_int,
    pad: c_int,
    pid: c_int,
    uid: u32,
    value: u64,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());

impl SignalSender {
    /// Sends real-time signal `signal` from the calling thread.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `signal` is not one of [`real_time_signals`], [`Error::Os`] if no
    /// descriptors are left.
    pub fn new(signal: u32) -> Result<SignalSender> {
        let signal = c_int::try_from(signal).unwrap_or(0);
        real_time_slot(signal)?;
        let action = "opening a descriptor of this thread";
        let opened = pidfd_open(gettid(), PidfdFlags::from_bits_retain(PIDFD_THREAD));
        let thread = opened.map_err(|errno| Error::Os {
            action,
            source: errno.into(),
        })?;
        let mut mask = filled_set();
        for fault in FAULTS {
            remove(&mut mask, fault);
        }
        set_mask(libc::SIG_BLOCK, &mask)?;
        Ok(SignalSender { thread, signal })
    }

    /// Queues one with this value.
    ///
    /// # Errors
    /// [`Error::Os`]: this user has as many that wait as it may (RLIMIT_SIGPENDING), or this is not
    /// the thread that made it.
    pub fn send(&self, value: u64) -> Result<()> {
        let info = Info {
            signal: self.signal,
            errno: 0,
            code: libc::SI_KERNEL,
            pad: 0,
            pid: 0,
            uid: 0,
            value,
            rest: [0; 12],
        };
        // SAFETY: the descriptor is open, and `info` is as large as a siginfo_t, and only read.
        let error = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.thread.as_raw_fd(),
                self.signal,
                &raw const info,
                TO_PROCESS,
            )
        };
        match error {
            0 => Ok(()),
            _ => Err(Error::last_os("sending a signal")),
        }
    }
}

/// The function that the kernel calls for every installed signal. Async-signal-safe.
extern "C" fn deliver(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the C library's errno of this thread is always there.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; only this thread uses it.
    let kept = unsafe { *errno };
    // SAFETY: with SA_SIGINFO the kernel passes a siginfo_t that lives until we return.
    let value = describe(signal, unsafe { &*info });
    let slot = usize::try_from(signal).ok().and_then(|at| HANDLERS.get(at));
    let handler = slot.map_or(null_mut(), |slot| slot.load(Ordering::Acquire));
    if !handler.is_null() {
        // SAFETY: only `install` stores something other than null, and that is a `Handler`.
        let handler = unsafe { std::mem::transmute::<*mut (), Handler>(handler) };
        handler(value);
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}

fn take_one(set: &libc::sigset_t) -> Result<Option<SignalValue>> {
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: the set and the time are alive, and `info` is room for one siginfo_t.
        let signal = unsafe { libc::sigtimedwait(set, info.as_mut_ptr(), &raw const now) };
        if signal > 0 {
            // SAFETY: zeroed is a valid siginfo_t (numbers and an array), and the kernel filled
            // it.
            return Ok(Some(describe(signal, unsafe { info.assume_init_ref() })));
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN) => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(Error::last_os("taking a signal")),
        }
    }
}

fn describe(signal: c_int, info: &libc::siginfo_t) -> SignalValue {
    let code = info.si_code;
    let fields = fields_of(signal, code);
    let mut described = SignalValue {
        signal,
        value: 0,
        pid: 0,
        uid: 0,
        code,
    };
    if fields.value {
        // SAFETY: this code comes with a value (fields_of), which any 64 bits are.
        described.value = unsafe { info.si_value() }.sival_ptr.addr() as u64;
    }
    if fields.sender {
        // SAFETY: this code comes with a sender (fields_of), a number.
        described.pid = u32::try_from(unsafe { info.si_pid() }).unwrap_or(0);
        // SAFETY: as above.
        described.uid = unsafe { info.si_uid() };
    }
    described
}

/// The fields of a siginfo_t, a union, that are valid.
#[derive(Debug, PartialEq, Eq)]
struct Fields {
    value: bool,
    sender: bool,
}

fn fields_of(signal: c_int, code: c_int) -> Fields {
    match code {
        libc::SI_KERNEL | libc::SI_TIMER => Fields {
            value: true,
            sender: false,
        },
        libc::SI_QUEUE | libc::SI_MESGQ | libc::SI_ASYNCIO => Fields {
            value: true,
            sender: true,
        },
        libc::SI_USER | libc::SI_TKILL => Fields {
            value: false,
            sender: true,
        },
        _ => Fields {
            value: false,
            sender: signal == libc::SIGCHLD,
        },
    }
}

fn is_final(signal: c_int) -> bool {
    signal == libc::SIGKILL || signal == libc::SIGSTOP
}

fn real_time_slot(signal: c_int) -> Result<&'static AtomicPtr<()>> {
    usize::try_from(signal)
        .ok()
        .filter(|_| real_time_signals().contains(&signal))
        .and_then(|at| HANDLERS.get(at))
        .ok_or_else(|| Error::Invalid {
            what: "the signal",
            given: signal.to_string(),
            expected: "a real-time signal, SIGRTMIN to SIGRTMAX",
        })
}

fn set_of(signals: &[c_int]) -> Result<libc::sigset_t> {
    let mut set = empty_set();
    for signal in signals {
        // SAFETY: `set` is initialized; a number that is no signal is refused.
        let error = unsafe { libc::sigaddset(&raw mut set, *signal) };
        if error != 0 || is_final(*signal) {
            return Err(Error::Invalid {
                what: "the signal",
                given: signal.to_string(),
                expected: "the number of a signal that can be blocked",
            });
        }
    }
    Ok(set)
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call writes the whole set and cannot fail.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: written above.
    unsafe { set.assume_init() }
}

fn filled_set() -> libc::sigset_t {
    let mut set = empty_set();
    // SAFETY: `set` is a set; the call cannot fail.
    unsafe { libc::sigfillset(&raw mut set) };
    set
}

fn remove(set: &mut libc::sigset_t, signal: c_int) {
    // SAFETY: `set` is initialized; a number that is no signal changes nothing.
    unsafe { libc::sigdelset(set, signal) };
}

fn contains(set: &libc::sigset_t, signal: c_int) -> bool {
    // SAFETY: `set` is initialized; a number that is no signal is not in it.
    unsafe { libc::sigismember(set, signal) == 1 }
}

fn set_mask(how: c_int, set: &libc::sigset_t) -> Result<()> {
    // SAFETY: `set` is initialized; the former mask is not asked for.
    let error = unsafe { libc::pthread_sigmask(how, set, null_mut()) };
    if error != 0 {
        return Err(Error::from_errno(
            "changing the signal mask",
            -i64::from(error),
        ));
    }
    Ok(())
}

fn action_of(signal: c_int) -> Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set; `action` is room for the present one.
    if unsafe { libc::sigaction(signal, null(), action.as_mut_ptr()) } != 0 {
        return Err(Error::last_os("reading a signal's handler"));
    }
    // SAFETY: the call above succeeded, so it is written.
    Ok(unsafe { action.assume_init() })
}

fn set_action(signal: c_int, action: &libc::sigaction) -> Result<()> {
    // SAFETY: `action` names `deliver`, no handler at all, or what the kernel itself just told us.
    if unsafe { libc::sigaction(signal, action, null_mut()) } != 0 {
        return Err(Error::last_os("setting a signal's handler"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn only_what_the_code_promises_is_read_from_the_union() {
        let fields = |code| fields_of(libc::SIGRTMIN(), code);
        assert_eq!(
            fields(libc::SI_KERNEL),
            Fields {
                value: true,
                sender: false
            }
        );
        assert_eq!(
            fields(libc::SI_QUEUE),
            Fields {
                value: true,
                sender: true
            }
        );
        assert_eq!(
            fields(libc::SI_USER),
            Fields {
                value: false,
                sender: true
            }
        );
        let data_ready = 1;
        assert_eq!(
            fields(data_ready),
            Fields {
                value: false,
                sender: false
            }
        );
        let exited = fields_of(libc::SIGCHLD, libc::CLD_EXITED);
        assert_eq!(
            exited,
            Fields {
                value: false,
                sender: true
            }
        );
    }

    #[test]
    fn a_handler_is_refused_for_a_signal_that_is_not_real_time() {
        fn nothing(_: SignalValue) {}
        for signal in [0, -1, libc::SIGUSR1, 32, 33, 65] {
            assert!(
                matches!(install(signal, nothing), Err(Error::Invalid { .. })),
                "{signal}"
            );
        }
    }

    #[test]
    fn what_a_thread_sends_to_its_process_looks_like_an_event_and_another_thread_takes_it() {
        static ARRIVED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
        fn arrived(told: SignalValue) {
            let thread = u64::from(gettid().as_raw_nonzero().get().unsigned_abs());
            let code = u64::from(told.code.unsigned_abs());
            let seen = [thread, u64::from(told.pid | told.uid), code, told.value];
            for (place, seen) in ARRIVED.iter().zip(seen) {
                place.store(seen, Ordering::SeqCst);
            }
        }
        install(50, arrived).expect("a real-time signal");
        let values = [1, u64::MAX];
        let sends = move || {
            let sender = SignalSender::new(50).expect("this thread");
            for value in values {
                sender.send(value).expect("sent");
                let start = std::time::Instant::now();
                while ARRIVED[3].load(Ordering::SeqCst) != value {
                    assert!(start.elapsed().as_secs() < 30, "it did not arrive");
                    std::thread::yield_now();
                }
            }
            (gettid().as_raw_nonzero().get().unsigned_abs(), sender)
        };
        let (thread, sender) = std::thread::spawn(sends).join().expect("it has sent both");
        let [by, sender_of, code, _] = ARRIVED.each_ref().map(|one| one.load(Ordering::SeqCst));
        assert_ne!(by, u64::from(thread));
        assert_eq!((sender_of, code), (0, 0x80), "SI_KERNEL");
        // Neither another thread's, nor one that has ended.
        assert!(matches!(sender.send(1), Err(Error::Os { .. })));
        for signal in [0, 10, 33, 65, u32::MAX] {
            let refused = std::thread::spawn(move || SignalSender::new(signal).map(drop));
            let refused = refused.join().expect("an answer");
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{signal}");
        }
    }

    #[test]
    fn what_cannot_be_blocked_is_refused() {
        for signal in [0, -1, libc::SIGKILL, libc::SIGSTOP, 32, 65] {
            assert!(
                matches!(block(&[signal]), Err(Error::Invalid { .. })),
                "{signal}"
            );
        }
    }
}
