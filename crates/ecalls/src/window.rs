//! A thread's window (ECalls-05 §4.1): service in a number of periods of any y, as far as the
//! scheduler can guarantee it.
//!
//! A thread that has a slot (see [`crate::coop`]) requests it: the slot then has the answer and the
//! counts of the thread's periods.

use std::fmt;
use std::mem::offset_of;
use std::time::Duration;

use ecalls_abi::coop::{
    Coop, WINDOW_CONSERVING, WINDOW_NO_PLACE, WINDOW_NONE, WINDOW_PROMISED, WINDOW_UNPROMISED,
    WINDOW_WHOLE, window_shape,
};
use ecalls_abi::downcall::Op;

use crate::coop::SlotMemory;
use crate::downcall::Caller;
use crate::{Error, Result};

/// The word of a slot with the answer, the number of answers, and the remaining part of the CPU.
const ANSWER: usize = offset_of!(Coop, window) / 8;
pub(crate) const MET: usize = offset_of!(Coop, met) / 8;
const MISSED: usize = offset_of!(Coop, missed) / 8;
const VIOLATED: usize = offset_of!(Coop, violated) / 8;

/// A thread's request to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The period T, 0.1 ms to 10 s. It begins where the last one ended, or when the thread wakes
    /// if it slept.
    pub period: Duration,
    /// The service time C: CPU time in each period.
    pub service: Duration,
    /// The number of periods in any y that may be missed.
    pub x: u16,
    /// 1 to 1024.
    pub y: u16,
    /// Whether the thread also gets its fair share beyond its service; otherwise it waits for its
    /// next period.
    pub conserving: bool,
}

impl Window {
    /// The part of a CPU that it needs at least: (1 - x/y) C/T.
    pub fn needs(&self) -> f64 {
        let counted = 1.0 - f64::from(self.x) / f64::from(self.y.max(1));
        counted * self.service.as_secs_f64() / self.period.as_secs_f64()
    }

    /// The arguments of `ECALLS_OP_WINDOW`.
    pub(crate) fn arguments(&self) -> [u64; 3] {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let flags = if self.conserving {
            WINDOW_CONSERVING
        } else {
            0
        };
        [
            nanoseconds(self.period).max(1),
            nanoseconds(self.service),
            window_shape(self.x, self.y, flags),
        ]
    }
}

/// The scheduler's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub enum Admission {
    /// At least y - x of y periods will be served, if the thread wants to run when they begin.
    Promised,
    /// Admitted without guarantee: it is not proved that its periods can all be served. They are
    /// served while the CPU has time for them.
    Unpromised,
    /// It has no window.
    Refused {
        /// The part of the CPU that the window needs.
        needs: f64,
        /// The part that is left for windows of this user.
        left: f64,
    },
    /// It has no window, because the scheduler has no place for the thread: the table of its CPU,
    /// or its user's half of the table, is full.
    NoPlace,
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
            Admission::NoPlace => f.write_str(
                "refused: the scheduler has no place for the thread, of 64 on each CPU, of which \
                 one user has 32",
            ),
        }
    }
}

/// The results of a window's periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// Served.
    pub met: u64,
    /// Not served.
    pub missed: u64,
    /// Not served, although x periods of the current window had been missed already.
    pub violated: u64,
}

impl Caller {
    /// Requests a window for the calling thread, to which this slot is bound (without a group). It
    /// replaces the thread's present window, and remains until the thread ends or names its slot
    /// again.
    ///
    /// # Errors
    /// [`Error::Closed`] if there is no scheduler; [`Error::Os`] if the window is out of bounds, or
    /// the thread is in a group or not bound to a slot; and the errors of a fast call.
    pub fn window(&self, slot: &SlotMemory, window: &Window) -> Result<Admission> {
        let before = slot.answered();
        self.wish(window.arguments())?;
        // The scheduler evaluates the request here.
        std::thread::yield_now();
        slot.admission(before, window)
            .ok_or(Error::Closed("the scheduler"))
    }

    /// Ends the calling thread's window.
    ///
    /// # Errors
    /// Those of [`Caller::window`].
    pub fn end_window(&self, slot: &SlotMemory) -> Result<()> {
        let before = slot.answered();
        self.wish([0; 3])?;
        std::thread::yield_now();
        if slot.answered() == before || slot.told(ANSWER) as u16 != WINDOW_NONE {
            return Err(Error::Closed("the scheduler"));
        }
        Ok(())
    }

    pub(crate) fn wish(&self, arguments: [u64; 3]) -> Result<()> {
        match self.fast_op(Op::Window, arguments)? {
            0 => Ok(()),
            code => Err(Error::Os {
                action: "asking for a window",
                source: std::io::Error::from_raw_os_error(i32::try_from(-code).unwrap_or(0)),
            }),
        }
    }
}

impl SlotMemory {
    /// The number of requests for a window that the scheduler has answered, its low part.
    pub(crate) fn answered(&self) -> u16 {
        (self.told(ANSWER) >> 16) as u16
    }

    /// The answer to `window`, if there is a new one since `before`.
    pub(crate) fn admission(&self, before: u16, window: &Window) -> Option<Admission> {
        let word = self.told(ANSWER);
        if (word >> 16) as u16 == before {
            return None;
        }
        Some(match word as u16 {
            WINDOW_PROMISED => Admission::Promised,
            WINDOW_UNPROMISED => Admission::Unpromised,
            WINDOW_NO_PLACE => Admission::NoPlace,
            _ => Admission::Refused {
                needs: window.needs(),
                left: (word >> 32) as f64 / WINDOW_WHOLE as f64,
            },
        })
    }

    /// The results of the periods of the thread's window until it last ran.
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
