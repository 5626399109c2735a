//! The timer service: one-shot, periodic and absolute timers whose expiries are events.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ecalls_abi::version::TIMERS_MAX;
use ecalls_kernel::now_ns;

use crate::downcall::{Call, Caller};
use crate::{Error, Result};

/// The search for a free timer begins after the one that this process took last.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The most timers of one channel.
const CHANNEL_TIMERS_MAX: usize = 256;

/// The most attempts to give the kernel memory for a timer.
const REFILLS: usize = 8;

/// A timer of this process. Its events go to the subscriptions of this process to the service
/// `timer`; `event.type` and the field `timer` hold its number. Dropping it cancels it.
#[derive(Debug)]
pub struct Timer {
    caller: Caller,
    number: u32,
}

impl Timer {
    /// A timer that expires once, after the time `after`.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if all timers of the core are in use.
    pub fn after(caller: &Caller, after: Duration) -> Result<Timer> {
        Timer::at(caller, from_now(caller, after)?, None)
    }

    /// A timer that expires every `period` (at least 50 us), the first time after one period.
    pub fn every(caller: &Caller, period: Duration) -> Result<Timer> {
        Timer::at(caller, from_now(caller, period)?, Some(period))
    }

    /// A timer that expires at `expiry_ns` of CLOCK_MONOTONIC, and then every `period` if there is
    /// one.
    pub fn at(caller: &Caller, expiry_ns: u64, period: Option<Duration>) -> Result<Timer> {
        let period_ns = period.map_or(0, nanoseconds);
        let limit = u32::try_from(TIMERS_MAX).expect("a small limit");
        for _ in 0..limit {
            let timer = NEXT.fetch_add(1, Ordering::Relaxed) % limit;
            let result = set(
                caller,
                Call::Timer {
                    timer,
                    expiry_ns,
                    period_ns,
                },
            )?;
            match i32::try_from(-result).unwrap_or(0) {
                libc::EBUSY | libc::EPERM => {}
                libc::EINVAL => {
                    return Err(Error::Invalid {
                        what: "the timer's period",
                        given: format!("{period_ns} ns"),
                        expected: "none, or at least 50 us",
                    });
                }
                libc::ENOSPC => {
                    return Err(Error::LimitReached {
                        which: "timers of one channel",
                        limit: CHANNEL_TIMERS_MAX,
                    });
                }
                libc::EDQUOT => {
                    return Err(Error::Quota {
                        which: "timers",
                        limit: 0,
                    });
                }
                0 => {
                    return Ok(Timer {
                        caller: caller.clone(),
                        number: timer,
                    });
                }
                code => {
                    return Err(Error::Os {
                        action: "setting a timer",
                        source: std::io::Error::from_raw_os_error(code),
                    });
                }
            }
        }
        Err(Error::LimitReached {
            which: "timers of one core",
            limit: TIMERS_MAX,
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Moves the next expiry, and the period, by a deferred call: no system call.
    pub fn move_later(&self, expiry_ns: u64, period: Option<Duration>) -> Result<()> {
        let period_ns = period.map_or(0, nanoseconds);
        self.caller.defer(Call::Timer {
            timer: self.number,
            expiry_ns,
            period_ns,
        })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // If the core is gone, the timer is gone, too.
        let call = Call::Timer {
            timer: self.number,
            expiry_ns: 0,
            period_ns: 0,
        };
        let _ = self.caller.fast(call);
    }
}

/// Sets a timer. The first use of each timer allocates memory in a context where the kernel cannot
/// wait: only the objects in this CPU's cache of small allocations are available, and when it is
/// empty, every attempt fails. Creating a pipe allocates an object of the same size in a context
/// where the kernel can wait; it then fills the cache with a page of such objects.
fn set(caller: &Caller, call: Call) -> Result<i64> {
    let mut pipes = Vec::new();
    loop {
        let result = caller.fast(call)?;
        if result != -i64::from(libc::ENOMEM) || pipes.len() == REFILLS {
            return Ok(result);
        }
        match std::io::pipe() {
            Ok(pipe) => pipes.push(pipe),
            Err(_) => return Ok(result), // no descriptors left: the kernel's result is returned
        }
    }
}

/// The time after this duration. A process's first call loads a program of the kernel side, which
/// takes longer than many a timer; so there is a call before.
fn from_now(caller: &Caller, duration: Duration) -> Result<u64> {
    caller.fast(Call::Nop)?;
    Ok(now_ns().saturating_add(nanoseconds(duration)))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
