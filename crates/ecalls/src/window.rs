//! A thread's window (ECalls-05 §4.1): service in so many of so many periods, as far as the
//! scheduler can promise it.
//!
//! It is the wish of a thread that has a slot (see [`crate::coop`]): the answer is left there, and
//! so are the counts of its periods.

use std::fmt;
use std::mem::offset_of;
use std::time::Duration;

use ecalls_abi::coop::{
    Coop, WINDOW_CONSERVING, WINDOW_NONE, WINDOW_PROMISED, WINDOW_UNPROMISED, WINDOW_WHOLE,
    window_shape,
};
use ecalls_abi::downcall::Op;

use crate::coop::SlotMemory;
use crate::downcall::Caller;
use crate::{Error, Result};

/// The word of a slot that holds the answer, how many there were, and what is left.
const ANSWER: usize = offset_of!(Coop, window) / 8;
const MET: usize = offset_of!(Coop, met) / 8;
const MISSED: usize = offset_of!(Coop, missed) / 8;
const VIOLATED: usize = offset_of!(Coop, violated) / 8;

/// What a thread wants of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The period T, 0.1 ms to 10 s.
    pub period: Duration,
    /// The service time C: CPU time in each period.
    pub service: Duration,
    /// Of y periods, how many may be missed.
    pub x: u16,
    /// 1 to 1024.
    pub y: u16,
    /// Beyond its service the thread shares what is left, like a fair one; else it waits for its
    /// next period.
    pub conserving: bool,
}

impl Window {
    /// The part of a CPU that it needs at least: (1 - x/y) C/T.
    pub fn needs(&self) -> f64 {
        let counted = 1.0 - f64::from(self.x) / f64::from(self.y.max(1));
        counted * self.service.as_secs_f64() / self.period.as_secs_f64()
    }
}

/// What the scheduler answers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub enum Admission {
    /// At least y - x of y periods will be served, if the thread wants to run when they begin.
    Promised,
    /// Admitted without guarantee: nothing proves that its periods can all be served. They are
    /// while the CPU has time for it.
    Unpromised,
    /// It has no window.
    Refused {
        /// The part of the CPU that the window needs.
        needs: f64,
        /// The part that is left for windows of this user.
        left: f64,
    },
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Admission::Promised => f.write_str("promised"),
            Admission::Unpromised => f.write_str("admitted without guarantee"),
            Admission::Refused { needs, left } => write!(
                f,
                "refused: it needs {:.1} % of the CPU, and {:.1} % is left",
                needs * 100.0,
                left * 100.0
            ),
        }
    }
}

/// How the periods of a window went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// Served.
    pub met: u64,
    /// Not served.
    pub missed: u64,
    /// Not served, though x of the current window had been missed already.
    pub violated: u64,
}

impl Caller {
    /// Asks for a window of the calling thread, whose slot this is (without a group). It takes the
    /// place of the one that the thread has, and holds until the thread ends or names its slot
    /// again.
    ///
    /// # Errors
    /// [`Error::Closed`] if there is no scheduler; [`Error::Os`] if the window is out of bounds, or
    /// the thread is in a group or not bound to a slot; what a fast call fails for.
    pub fn window(&self, slot: &SlotMemory, window: &Window) -> Result<Admission> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let flags = if window.conserving {
            WINDOW_CONSERVING
        } else {
            0
        };
        let [answer, left] = self.wish(
            slot,
            [
                nanoseconds(window.period).max(1),
                nanoseconds(window.service),
                window_shape(window.x, window.y, flags),
            ],
        )?;
        Ok(match answer {
            _ if answer == u32::from(WINDOW_PROMISED) => Admission::Promised,
            _ if answer == u32::from(WINDOW_UNPROMISED) => Admission::Unpromised,
            _ => Admission::Refused {
                needs: window.needs(),
                left: f64::from(left) / WINDOW_WHOLE as f64,
            },
        })
    }

    /// Gives the calling thread's window up.
    ///
    /// # Errors
    /// Those of [`Caller::window`].
    pub fn end_window(&self, slot: &SlotMemory) -> Result<()> {
        match self.wish(slot, [0; 3])? {
            [answer, _] if answer == u32::from(WINDOW_NONE) => Ok(()),
            _ => Err(Error::Closed("the scheduler")),
        }
    }

    /// The answer, and what is left.
    fn wish(&self, slot: &SlotMemory, arguments: [u64; 3]) -> Result<[u32; 2]> {
        let answered = |word: u64| (word >> 16) as u16;
        let before = answered(slot.told(ANSWER));
        match self.fast_op(Op::Window, arguments)? {
            0 => {}
            code => {
                return Err(Error::Os {
                    action: "asking for a window",
                    source: std::io::Error::from_raw_os_error(i32::try_from(-code).unwrap_or(0)),
                });
            }
        }
        // The scheduler looks at it here.
        std::thread::yield_now();
        let word = slot.told(ANSWER);
        if answered(word) == before {
            return Err(Error::Closed("the scheduler"));
        }
        Ok([(word & 0xffff) as u32, (word >> 32) as u32])
    }
}

impl SlotMemory {
    /// How the periods of the thread's window went, up to when it ran last.
    pub fn periods(&self) -> Periods {
        Periods {
            met: self.told(MET),
            missed: self.told(MISSED),
            violated: self.told(VIOLATED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_slot_are_where_the_header_says() {
        assert_eq!((ANSWER, MET, MISSED, VIOLATED), (4, 5, 6, 7));
        assert_eq!(offset_of!(Coop, window) % 8, 0);
        assert_eq!(offset_of!(Coop, window_wishes) % 8, 2);
        assert_eq!(offset_of!(Coop, window_left) % 8, 4);
    }

    #[test]
    fn a_refusal_says_what_it_needs_and_what_is_left() {
        let window = Window {
            period: Duration::from_millis(10),
            service: Duration::from_millis(8),
            x: 1,
            y: 2,
            conserving: false,
        };
        let refused = Admission::Refused {
            needs: window.needs(),
            left: 0.25,
        };
        let text = "refused: it needs 40.0 % of the CPU, and 25.0 % is left";
        assert_eq!(refused.to_string(), text);
    }
}
