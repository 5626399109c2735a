//! A slot of a parent for a child process (`ECALLS_OP_HAND`): a group or a window for a program
//! that does not use the scheduler itself.
//!
//! The parent starts a process that waits, hands it a slot, and lets it continue: with its next
//! yield the child's first thread has the requested properties, and keeps them when it executes
//! another program. In a group, all threads and programs that the child starts are members, too; a
//! window belongs to that thread alone.
//!
//! A separate thread makes the calls and lends its binding for a moment, so that the caller's own
//! slot is not changed.

use std::time::Duration;

use ecalls_abi::coop::COOP_TIMED;
use ecalls_abi::downcall::Op;

use crate::coop::{SlotMemory, Standing};
use crate::downcall::Caller;
use crate::window::{Admission, MET, Periods, Window};
use crate::{Error, Result};

/// A child's slot, as its parent sees it.
#[derive(Debug)]
pub struct ChildSlot {
    slot: SlotMemory,
    window: Option<Window>,
    /// Requests that had been answered before.
    answered: u16,
}

impl Caller {
    /// Binds slot `number` (0 to 15) of this channel to the first thread of process `child`, from
    /// its next yield on: in `group` (0: none), or with `window`. The process must be a child of
    /// this one and have the same user. The binding lasts until the child ends or names a slot
    /// itself. Once this process has ended, the child loses it when it migrates to another CPU.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number; [`Error::Os`] for a window out of bounds, or for a
    /// member of a group; and the errors of a fast call.
    pub fn hand_slot(
        &self,
        number: usize,
        group: u32,
        window: Option<&Window>,
        child: u32,
    ) -> Result<ChildSlot> {
        self.hand(number, group, 0, window, child)
    }

    /// The same, and each timed sleep of the child's threads, and of those that they and their
    /// programs create, ends with a release that is due.
    ///
    /// # Errors
    /// Those of [`Caller::hand_slot`].
    pub fn hand_timed_slot(&self, number: usize, group: u32, child: u32) -> Result<ChildSlot> {
        self.hand(number, group, COOP_TIMED, None, child)
    }

    fn hand(
        &self,
        number: usize,
        group: u32,
        flags: u32,
        window: Option<&Window>,
        child: u32,
    ) -> Result<ChildSlot> {
        let slot = self.slot(number)?;
        let answered = slot.answered();
        let hand = || {
            self.bind_slot(number, group, flags)?;
            if let Some(window) = window {
                self.wish(window.arguments())?;
            }
            match self.fast_op(Op::Hand, [child.into(), 0, 0])? {
                0 => Ok(()),
                code => Err(Error::Os {
                    action: "handing a slot to a child",
                    source: std::io::Error::from_raw_os_error(i32::try_from(-code).unwrap_or(0)),
                }),
            }
        };
        std::thread::scope(|scope| scope.spawn(hand).join())
            .unwrap_or(Err(Error::Closed("the thread that hands the slot")))?;
        Ok(ChildSlot {
            slot,
            window: window.copied(),
            answered,
        })
    }
}

impl ChildSlot {
    /// The scheduler's view of the child. [`Standing::Unknown`]: it has not yielded yet.
    pub fn standing(&self) -> Standing {
        self.slot.standing()
    }

    /// The answer to its window. `None`: it requested none, or has not yielded yet.
    pub fn admission(&self) -> Option<Admission> {
        self.slot.admission(self.answered, self.window.as_ref()?)
    }

    /// The results of its window's periods until it last ran.
    pub fn periods(&self) -> Periods {
        match self.window {
            Some(_) => self.slot.periods(),
            None => Periods::default(),
        }
    }

    /// CPU time of all members of its group since the group exists, until a thread of the child
    /// last received the CPU.
    pub fn group_time(&self) -> Duration {
        match self.window {
            Some(_) => Duration::ZERO,
            None => Duration::from_nanos(self.slot.told(MET)),
        }
    }
}
