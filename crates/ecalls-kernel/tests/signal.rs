//! The papers' order of signals, as a process sees it (ECalls-05 §3.1.1). Needs no privileges.
//!
//! Handlers and masks belong to a process, and the kernel gives a process's signal to any thread
//! that lets it through. So each test acts in a child process of its own, which has one thread,
//! and judges there; the parent learns whether the child panicked, and why.

#![allow(
    unsafe_code,
    reason = "fork, and handlers as a program without this crate installs them"
)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ecalls_kernel::signal::{
    SignalQueue, SignalValue, block, install, keep_order, real_time_signals, unblock, uninstall,
};

const LARGE: u64 = 0xfedc_ba98_7654_3210;

/// How long a scenario may take, seconds.
const LIMIT_S: u32 = 60;

/// Runs `scenario` in a child with one thread; fails with its message if it panics.
fn in_child(scenario: fn()) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    let error = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(error, 0);
    // SAFETY: the pipe's descriptor was just opened and is used nowhere else.
    let mut read = unsafe { File::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let write = unsafe { File::from_raw_fd(ends[1]) };
    // SAFETY: the child has one thread, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: takes a number. Ends a child that hangs, so that its parent need not wait.
        unsafe { libc::alarm(LIMIT_S) };
        std::panic::set_hook(Box::new(move |info| {
            let _ = write!(&write, "{info}");
        }));
        let failed = std::panic::catch_unwind(scenario).is_err();
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    drop(write);
    let mut message = String::new();
    read.read_to_string(&mut message).expect("a pipe");
    let mut status = -1;
    // SAFETY: waits for our own child; `status` is room for its result.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "{message}");
}

/// What handlers wrote down, in the order in which they ran: signals and values.
static RECORDS: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];
static RECORDED: AtomicUsize = AtomicUsize::new(0);

const STARTED: u64 = 1_000_001;
const ENDED: u64 = 1_000_002;

fn record(what: u64) {
    RECORDS[RECORDED.fetch_add(1, Ordering::Relaxed)].store(what, Ordering::Relaxed);
}

fn records() -> Vec<u64> {
    let count = RECORDED.load(Ordering::Relaxed);
    RECORDS[..count]
        .iter()
        .map(|each| each.load(Ordering::Relaxed))
        .collect()
}

fn record_signal(received: SignalValue) {
    record(u64::from(received.signal.unsigned_abs()));
}

fn record_value(received: SignalValue) {
    record(received.value);
}

extern "C" fn regular(signal: libc::c_int) {
    record(u64::from(signal.unsigned_abs()));
}

extern "C" fn regular_that_is_interrupted(_: libc::c_int) {
    record(STARTED);
    send(libc::SIGRTMIN(), 0);
    record(ENDED);
}

/// A handler with a full mask, as a program that knows nothing of us may install it.
fn install_regular(signal: i32, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: a zeroed sigaction is a valid one: an empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: `sa_mask` is a set.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: `handler` only stores into atomics and sends signals.
    let error = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert_eq!(error, 0);
}

/// Queues a signal to this process.
fn send(signal: i32, value: u64) {
    let bytes = usize::try_from(value).expect("64 bits");
    let value = libc::sigval {
        sival_ptr: std::ptr::without_provenance_mut(bytes),
    };
    let pid = i32::try_from(std::process::id()).expect("a process id");
    // SAFETY: takes numbers only; the value is not followed.
    let error = unsafe { libc::sigqueue(pid, signal, value) };
    assert_eq!(error, 0);
}

fn number(signal: i32) -> u64 {
    u64::from(signal.unsigned_abs())
}

/// USR1, RTMIN+1, RTMIN: sent in that order while all three wait.
fn send_three() -> [i32; 3] {
    let three = [libc::SIGUSR1, libc::SIGRTMIN() + 1, libc::SIGRTMIN()];
    block(&three).expect("blocked");
    for signal in three {
        send(signal, 0);
    }
    three
}

fn handlers_of_three() {
    install_regular(libc::SIGUSR1, regular);
    install(libc::SIGRTMIN(), record_signal).expect("installed");
    install(libc::SIGRTMIN() + 1, record_signal).expect("installed");
}

#[test]
fn real_time_signals_come_first_and_the_lowest_of_them_before_the_others() {
    in_child(|| {
        handlers_of_three();
        assert_eq!(keep_order().expect("kept"), [libc::SIGUSR1]);
        unblock(&send_three()).expect("unblocked");
        let order = [libc::SIGRTMIN(), libc::SIGRTMIN() + 1, libc::SIGUSR1];
        assert_eq!(records(), order.map(number));
    });
}

#[test]
fn without_keep_order_a_regular_handler_with_a_full_mask_comes_first() {
    in_child(|| {
        handlers_of_three();
        unblock(&send_three()).expect("unblocked");
        let order = [libc::SIGUSR1, libc::SIGRTMIN(), libc::SIGRTMIN() + 1];
        assert_eq!(records(), order.map(number));
    });
}

#[test]
fn a_real_time_signal_interrupts_a_running_regular_handler() {
    in_child(|| {
        install_regular(libc::SIGUSR1, regular_that_is_interrupted);
        install(libc::SIGRTMIN(), record_signal).expect("installed");
        send(libc::SIGUSR1, 0);
        let waits = [STARTED, ENDED, number(libc::SIGRTMIN())];
        assert_eq!(records(), waits, "before keep_order");
        keep_order().expect("kept");
        send(libc::SIGUSR1, 0);
        assert_eq!(records()[3..], [STARTED, number(libc::SIGRTMIN()), ENDED]);
    });
}

#[test]
fn a_real_time_handler_is_not_interrupted_by_any_signal() {
    fn sends_others(_: SignalValue) {
        record(STARTED);
        send(libc::SIGRTMIN(), 0);
        send(libc::SIGUSR1, 0);
        record(ENDED);
    }
    in_child(|| {
        handlers_of_three();
        keep_order().expect("kept");
        install(libc::SIGRTMIN() + 1, sends_others).expect("installed");
        send(libc::SIGRTMIN() + 1, 0);
        let then = [number(libc::SIGRTMIN()), number(libc::SIGUSR1)];
        assert_eq!(records(), [STARTED, ENDED, then[0], then[1]]);
    });
}

#[test]
fn signals_of_one_number_stay_in_order_and_keep_all_bits_of_their_values() {
    in_child(|| {
        install(libc::SIGRTMAX(), record_value).expect("installed");
        block(&[libc::SIGRTMAX()]).expect("blocked");
        let values = [LARGE, u64::MAX, 0, 1 << 63, 7];
        for value in values {
            send(libc::SIGRTMAX(), value);
        }
        unblock(&[libc::SIGRTMAX()]).expect("unblocked");
        assert_eq!(records(), values);
    });
}

#[test]
fn a_handler_learns_who_sent_the_signal() {
    fn check(received: SignalValue) {
        let me = (std::process::id(), libc::SI_QUEUE, LARGE);
        record(u64::from(
            (received.pid, received.code, received.value) == me,
        ));
    }
    in_child(|| {
        install(libc::SIGRTMIN(), check).expect("installed");
        send(libc::SIGRTMIN(), LARGE);
        assert_eq!(records(), [1]);
    });
}

#[test]
fn a_handler_leaves_errno_as_it_was() {
    fn fails(_: SignalValue) {
        // SAFETY: closes nothing: there is no such descriptor.
        record(u64::from(unsafe { libc::close(-1) } == -1));
    }
    in_child(|| {
        install(libc::SIGRTMIN(), fails).expect("installed");
        block(&[libc::SIGRTMIN()]).expect("blocked");
        send(libc::SIGRTMIN(), 0);
        // SAFETY: the errno of this thread is always there.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above; only this thread uses it.
        unsafe { *errno = libc::E2BIG };
        unblock(&[libc::SIGRTMIN()]).expect("unblocked");
        let left = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((records(), left), (vec![1], Some(libc::E2BIG)));
    });
}

#[test]
fn an_uninstalled_signal_is_ignored() {
    in_child(|| {
        install(libc::SIGRTMIN(), record_signal).expect("installed");
        uninstall(libc::SIGRTMIN()).expect("uninstalled");
        send(libc::SIGRTMIN(), 0);
        assert_eq!(records(), []);
    });
}

#[test]
fn handlers_of_faults_keep_their_masks() {
    in_child(|| {
        install_regular(libc::SIGSEGV, regular);
        install_regular(libc::SIGHUP, regular);
        assert_eq!(keep_order().expect("kept"), [libc::SIGHUP]);
        assert_eq!(keep_order().expect("kept"), [], "the second time");
    });
}

#[test]
fn a_queue_gives_signals_in_the_same_order_with_their_values() {
    in_child(|| {
        let signals: Vec<i32> = real_time_signals().chain([libc::SIGUSR1]).collect();
        let queue = SignalQueue::new(&signals).expect("a queue");
        send(libc::SIGUSR1, 1);
        send(libc::SIGRTMAX(), LARGE);
        send(libc::SIGRTMIN(), u64::MAX);
        send(libc::SIGRTMIN(), 2);
        let taken: Vec<(i32, u64)> = std::iter::from_fn(|| queue.take().expect("taken"))
            .map(|each| (each.signal, each.value))
            .collect();
        let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
        let order = [
            (first, u64::MAX),
            (first, 2),
            (last, LARGE),
            (libc::SIGUSR1, 1),
        ];
        assert_eq!(taken, order);
    });
}

#[test]
fn a_queue_can_be_waited_for_and_says_when_time_is_up() {
    in_child(|| {
        let queue = SignalQueue::new(&[libc::SIGRTMIN()]).expect("a queue");
        assert!(!ecalls_kernel::wait_readable(queue.as_fd(), Some(0)).expect("polled"));
        assert_eq!(queue.wait(Some(2_000_000)).expect("waited"), None);
        send(libc::SIGRTMIN(), LARGE);
        assert!(ecalls_kernel::wait_readable(queue.as_fd(), Some(0)).expect("polled"));
        let received = queue.wait(None).expect("waited").expect("a signal");
        assert_eq!((received.signal, received.value), (libc::SIGRTMIN(), LARGE));
        assert_eq!(received.pid, std::process::id());
        assert_eq!(queue.take().expect("taken"), None);
    });
}
