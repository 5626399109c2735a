//! Calls of the policy as data: what was asked, and what it answered. They are recorded so that the
//! kernel can be asked the same (kernel.bpf.c, whose `struct call` is mirrored here).

use std::cell::RefCell;

use crate::policy::{Choice, Plain, Queue, Window};

/// Which function: as kernel.bpf.c counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    Add,
    AddGroup,
    Remove,
    Ready,
    ReadyPlain,
    Sleep,
    SleepPlain,
    Start,
    Stop,
    Poll,
    Admit,
    AdmitEnd,
    Event,
    GroupQueue,
    Choose,
    Preempts,
    PreemptsPlain,
    Timer,
    Woke,
    Yield,
    TimedReady,
    Timed,
}

/// `struct call`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub op: Op,
    pub i: u32,
    pub flag: u32,
    pub group: u32,
    pub now_ns: u64,
    pub a: u64,
    pub b: u64,
    pub result: u64,
    pub plain: Plain,
    pub queue: Queue,
    pub choice: Choice,
    pub wish: Window,
}

impl Call {
    pub fn new(op: Op, i: u32, now_ns: u64) -> Self {
        Self {
            op,
            i,
            flag: 0,
            group: 0,
            now_ns,
            a: 0,
            b: 0,
            result: 0,
            plain: Plain::default(),
            queue: Queue::default(),
            choice: Choice::default(),
            wish: Window::default(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its memory before the first call.
    pub begin: Vec<u8>,
    /// All of them, with their answers.
    pub calls: Vec<Call>,
    /// Its memory after the last one.
    pub end: Vec<u8>,
}

thread_local! {
    static RECORDS: RefCell<Option<Vec<Recorded>>> = const { RefCell::new(None) };
}

/// What happens to the CPUs that are made, and dropped, in here. Copies of them do not count.
pub fn record(run: impl FnOnce()) -> Vec<Recorded> {
    RECORDS.set(Some(Vec::new()));
    run();
    RECORDS.take().unwrap_or_default()
}

pub(crate) fn is_recording() -> bool {
    RECORDS.with_borrow(Option::is_some)
}

pub(crate) fn keep(recorded: Recorded) {
    RECORDS.with_borrow_mut(|records| records.as_mut().map(|records| records.push(recorded)));
}
