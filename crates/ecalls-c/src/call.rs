//! Downcalls over a channel: fast and deferred. Man page: ecalls_call(3).
//!
//! A refusal by the kernel side is a result from -4095 to -1, as in the kernel itself, and becomes
//! the function's return code.

use std::ffi::c_int;

use ecalls::downcall::Call;
use ecalls_abi::downcall::{LATEST, Op};

use crate::channel::ChannelHandle;
use crate::error::{Failure, Outcome, guard};
use crate::pointer::{output, reference, write_optional};

/// The largest errno of the kernel.
const ERRNO_MAX: i64 = 4095;

/// A fast call (ECalls-01 §2.3.1), complete when the function returns; deferred calls of the
/// channel are handled before it. `op` and its arguments a, b, c (0 if unused) are those of
/// ecalls/downcall.h: ECALLS_OP_NOP, _GETPID, _SET, _GET, _RAISE or _TIMER. `result` may be NULL.
/// -ENOSPC: 64 threads call at the same time; -ESHUTDOWN: the core is gone; other codes are those
/// with which the kernel side refused the call, results from -4095 to -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_call_fast(
    channel: *const ChannelHandle,
    op: u32,
    a: u64,
    b: u64,
    c: u64,
    result: *mut i64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let returned = channel.caller.fast(decode(op, [a, b, c])?)?;
        if (-ERRNO_MAX..0).contains(&returned) {
            return Err(refusal(returned));
        }
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(result, returned) };
        Ok(0)
    })
}

/// Defers a call: a store into shared memory without a system call (ECalls-01 §2.3.1). The kernel
/// side handles it with the channel's next fast call, or as the channel's options say. When the
/// ring of 1024 calls is full, its calls are first handled by fast calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_call_defer(
    channel: *const ChannelHandle,
    op: u32,
    a: u64,
    b: u64,
    c: u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        channel.caller.defer(decode(op, [a, b, c])?)?;
        Ok(0)
    })
}

/// Defers a call in a cell, 0 to 15, that holds only the latest call: it replaces a call in the
/// same cell that was not handled yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_call_defer_latest(
    channel: *const ChannelHandle,
    cell: u32,
    op: u32,
    a: u64,
    b: u64,
    c: u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let call = decode(op, [a, b, c])?;
        let cell = usize::try_from(cell).unwrap_or(LATEST);
        channel.caller.defer_latest(cell, call)?;
        Ok(0)
    })
}

/// Handles all deferred calls now, by fast calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_call_flush(channel: *const ChannelHandle) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        channel.caller.flush()?;
        Ok(0)
    })
}

/// Writes the number of deferred calls that were not handled yet. No system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_call_pending(
    channel: *const ChannelHandle,
    pending: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let channel = unsafe { reference(channel, "the channel") }?;
        let place = output(pending, "the place for the count")?;
        let count = u64::try_from(channel.caller.pending()).unwrap_or(u64::MAX);
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(count) };
        Ok(0)
    })
}

fn decode(op: u32, arguments: [u64; 3]) -> Outcome<Call> {
    let [a, b, c] = arguments;
    let first =
        || u32::try_from(a).map_err(|_| Failure::invalid(format!("the call's argument a is {a}")));
    Ok(match Op::from_raw(op) {
        Some(Op::Nop) => Call::Nop,
        Some(Op::Getpid) => Call::GetPid,
        Some(Op::Set) => Call::Set {
            attribute: first()?,
            value: b,
        },
        Some(Op::Get) => Call::Get {
            attribute: first()?,
        },
        Some(Op::Raise) => Call::Raise {
            service: first()? & 0xffff,
            kind: first()? >> 16,
            target: target(b)?,
            data: c,
        },
        Some(Op::Timer) => Call::Timer {
            timer: first()?,
            expiry_ns: b,
            period_ns: c,
        },
        // RESUME and DELAY are used only between the library and the kernel side.
        Some(Op::Resume | Op::Delay | Op::Call | Op::Coop | Op::Window | Op::Hand) | None => {
            return Err(Failure::invalid(format!(
                "op is {op}: ECALLS_OP_NOP, _GETPID, _SET, _GET, _RAISE or _TIMER"
            )));
        }
    })
}

/// A target as a C program passes it: an int that was extended to 64 bits, with or without sign.
fn target(word: u64) -> Outcome<i32> {
    let extended = i32::try_from(word as i64).ok();
    extended
        .or_else(|| u32::try_from(word).ok().map(|low| low as i32))
        .ok_or_else(|| Failure::invalid(format!("the call's target is {word}")))
}

fn refusal(returned: i64) -> Failure {
    let number = i32::try_from(-returned).unwrap_or(libc::EIO);
    let reason = std::io::Error::from_raw_os_error(number);
    Failure::new(
        number,
        format!("the kernel side refused the call: {reason}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raise_is_taken_apart_and_its_target_keeps_its_sign() {
        for word in [u64::MAX, u64::from(u32::MAX)] {
            let call = decode(Op::Raise.raw(), [9 | 3 << 16, word, 7]).expect("valid");
            let expected = Call::Raise {
                service: 9,
                kind: 3,
                target: -1,
                data: 7,
            };
            assert_eq!(call, expected);
        }
    }

    #[test]
    fn calls_of_the_library_itself_are_refused() {
        for op in [
            Op::Resume,
            Op::Delay,
            Op::Call,
            Op::Coop,
            Op::Window,
            Op::Hand,
        ]
        .map(Op::raw)
        .into_iter()
        .chain([99])
        {
            assert!(decode(op, [0; 3]).is_err(), "{op}");
        }
        assert!(decode(Op::Set.raw(), [1 << 32, 0, 0]).is_err());
    }
}
