//! Datagrams that the kernel answers where they arrive (ECalls-05 §3.1.2). Man page:
//! ecalls_answers(3).
//!
//! The Rust type permits one writer of cells only. C has no such types, hence the lock.

use std::ffi::{c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ecalls::answer::AnswerCount;
use ecalls::{AnswerPlan, Answers};

use crate::error::{Failure, Outcome, guard};
use crate::pointer::{Options, bytes, give, options, output, reference, take_back, text};

/// Answers that have started.
#[derive(Debug)]
pub struct AnswersHandle(Mutex<Answers>);

impl AnswersHandle {
    fn own(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is answered, and how much.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnswersPlan {
    /// Size of this struct.
    pub size: u32,
    /// Number of cells, 1 to ECALLS_ANSWER_CELLS.
    pub cells: u32,
    /// Name of the interface on which requests arrive.
    pub interface: *const c_char,
    /// The service's address. NULL: any of this host of IPv4; "::": any of either.
    pub address: *const c_char,
    /// The service's UDP port.
    pub port: u32,
    /// The first bytes of a reply that are its request's: even, at most ECALLS_ANSWER_ECHO.
    pub echo: u32,
    /// The most replies in a second.
    pub per_second: u64,
}

// SAFETY: repr(C), begins with a u32, without padding; every pattern is a value.
unsafe impl Options for AnswersPlan {
    const LEAST: usize = size_of::<AnswersPlan>();
}

/// # Safety
/// As the root's.
unsafe fn answers<'a>(answers: *const AnswersHandle) -> Outcome<&'a AnswersHandle> {
    // SAFETY: a handle (the root's Safety).
    unsafe { reference(answers, "the answers") }
}

/// # Safety
/// As the root's.
unsafe fn address(plan: &AnswersPlan) -> Outcome<SocketAddr> {
    let ip = if plan.address.is_null() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        // SAFETY: a text (the root's Safety).
        let given = unsafe { text(plan.address, "the address") }?;
        given
            .parse()
            .map_err(|_| Failure::invalid(format!("{given:?} is no address of IPv4 or IPv6")))?
    };
    let port = u16::try_from(plan.port)
        .map_err(|_| Failure::invalid(format!("the port is {}: there is none", plan.port)))?;
    Ok(SocketAddr::new(ip, port))
}

/// Begins to answer datagrams for a UDP port, which may have a socket or not: at first none, as all
/// cells are empty. `code` is a text in E-code, which says for each datagram a cell, UP or DROP. It
/// needs no ecalls_t, but root's rights: -EPERM. -EINVAL: an error in the text, or a number that is
/// out of bounds; -ENOSYS: the interface has no Ethernet headers, or the kernel lacks something.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_answers_start(
    plan: *const AnswersPlan,
    code: *const c_char,
    answers: *mut *mut AnswersHandle,
) -> c_int {
    guard(|| {
        // SAFETY: options (the root's Safety).
        let plan = unsafe { options(plan, "the plan") }?;
        // SAFETY: a text (the root's Safety).
        let code = unsafe { text(code, "the code") }?;
        let place = output(answers, "the place for the answers")?;
        let plan = AnswerPlan {
            // SAFETY: a text (the root's Safety).
            interface: unsafe { text(plan.interface, "the interface") }?,
            // SAFETY: as above.
            at: unsafe { address(&plan) }?,
            cells: plan.cells,
            echo: plan.echo as usize,
            per_second: plan.per_second,
        };
        let handle = AnswersHandle(Mutex::new(Answers::start(&plan, code)?));
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, handle) };
        Ok(0)
    })
}

/// Answers by the cells that a holder (ecalls-answer(1)) lends to this user at that port, in this
/// network namespace: no privilege is needed, and where, how much and by which code is answered is
/// said by the holder. -ENOENT: there is no holder; -EPERM: it lends to another user; -ENOSPC:
/// another program has its cells, and keeps them for longer than five seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_answers_borrow(
    port: u16,
    answers: *mut *mut AnswersHandle,
) -> c_int {
    guard(|| {
        let place = output(answers, "the place for the answers")?;
        let handle = AnswersHandle(Mutex::new(Answers::borrow_at(port)?));
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, handle) };
        Ok(0)
    })
}

/// Returns 1 if the holder has ended whose cells these are: then nothing is answered any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_answers_have_ended(answers: *const AnswersHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let answers = unsafe { self::answers(answers) }?;
        Ok(c_int::from(answers.own().have_ended()))
    })
}

/// Ends them: from now on all datagrams go to the socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_answers_end(answers: *mut AnswersHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(answers) };
}

/// From now on the kernel gives this reply to this request, and none that it was given before. The
/// code says which cell gets it, whatever that had. 1: so it does. 0: the request goes up, since
/// the code says so, or it is longer than ECALLS_ANSWER_PREFIX, or the reply is empty or longer
/// than ECALLS_ANSWER_REPLY or ECALLS_ANSWER_TIMES the request. No system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_answers_put(
    answers: *mut AnswersHandle,
    request: *const u8,
    request_bytes: usize,
    reply: *const u8,
    reply_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let answers = unsafe { self::answers(answers) }?;
        // SAFETY: memory (the root's Safety).
        let request = unsafe { bytes(request, request_bytes, "the request") }?;
        // SAFETY: as above.
        let reply = unsafe { bytes(reply, reply_bytes, "the reply") }?;
        Ok(c_int::from(answers.own().put(request, reply)))
    })
}

/// From now on this request goes up. 0: it did so before. No system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_answers_remove(
    answers: *mut AnswersHandle,
    request: *const u8,
    request_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let answers = unsafe { self::answers(answers) }?;
        // SAFETY: memory (the root's Safety).
        let request = unsafe { bytes(request, request_bytes, "the request") }?;
        Ok(c_int::from(answers.own().remove(request)))
    })
}

/// From now on the kernel gives this reply to each request for which the code says this cell,
/// whatever its bytes. An empty reply empties the cell. 0: there is no such cell, or the reply is
/// longer than ECALLS_ANSWER_REPLY. No system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_answers_fill(
    answers: *mut AnswersHandle,
    cell: u32,
    reply: *const u8,
    reply_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let answers = unsafe { self::answers(answers) }?;
        // SAFETY: memory (the root's Safety).
        let reply = unsafe { bytes(reply, reply_bytes, "the reply") }?;
        let mut own = answers.own();
        Ok(c_int::from(match reply {
            [] => own.clear(cell),
            reply => own.fill(cell, reply),
        }))
    })
}

/// Returns the cell that the code says for this request. -ENOENT: it goes up, or is dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_answers_cell(
    answers: *mut AnswersHandle,
    request: *const u8,
    request_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let answers = unsafe { self::answers(answers) }?;
        // SAFETY: memory (the root's Safety).
        let request = unsafe { bytes(request, request_bytes, "the request") }?;
        let cell = answers.own().cell_of(request);
        Ok(cell
            .and_then(|cell| c_int::try_from(cell).ok())
            .unwrap_or(-libc::ENOENT))
    })
}

/// Writes what became of all packets that came on the interface since the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_answers_counts(
    answers: *const AnswersHandle,
    counts: *mut AnswerCount,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let answers = unsafe { self::answers(answers) }?;
        let place = output(counts, "the place for the counts")?;
        let counted = answers.own().counts()?;
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(counted) };
        Ok(0)
    })
}
