//! A child process in a slot of its parent's (`ECALLS_OP_HAND`): for a program that knows nothing
//! of the scheduler, a group or a window.
//!
//! The parent starts a process that waits, hands it a slot, and lets it go on: with its next yield
//! the child's first thread is what the parent asked for, and stays that when it becomes another
//! program. In a group, what it starts (threads and programs) is a member, too; a window is of that
//! thread alone.
//!
//! The calls are made by a thread of their own, which lends its binding for a moment: so the
//! caller's own slot is not touched.

use std::time::Duration;

use ecalls_abi::downcall::Op;

use crate::coop::{SlotMemory, Standing};
use crate::downcall::Caller;
use crate::window::{Admission, MET, Periods, Window};
use crate::{Error, Result};

/// What a child was given, as its parent sees it.
#[derive(Debug)]
pub struct ChildSlot {
    slot: SlotMemory,
    window: Option<Window>,
    /// Wishes that had been answered before.
    answered: u16,
}

impl Caller {
    /// Makes slot `number` (0 to 15) of this channel that of the first thread of process `child`,
    /// from its next yield on: in `group` (0: none), or with `window`. It counts only for a child
    /// of this process that is the same user's, and until it ends or takes a slot itself. Once
    /// this process has ended, the child loses it when it moves to another CPU.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number; [`Error::Os`] for a window out of bounds, or one of
    /// a member of a group; what a fast call fails for.
    pub fn hand_slot(
        &self,
        number: usize,
        group: u32,
        window: Option<&Window>,
        child: u32,
    ) -> Result<ChildSlot> {
        let slot = self.slot(number)?;
        let answered = slot.answered();
        let hand = || {
            self.coop_slot(number, group)?;
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
    /// What the scheduler takes the child for. [`Standing::Unknown`]: it has not yielded yet.
    pub fn standing(&self) -> Standing {
        self.slot.standing()
    }

    /// The answer to its window. None: it asked for none, or has not yielded yet.
    pub fn admission(&self) -> Option<Admission> {
        self.slot.admission(self.answered, self.window.as_ref()?)
    }

    /// How the periods of its window went, up to when it ran last.
    pub fn periods(&self) -> Periods {
        match self.window {
            Some(_) => self.slot.periods(),
            None => Periods::default(),
        }
    }

    /// CPU time that its group has had, of all its members, since there is such a group; up to when
    /// a thread of the child's was given the CPU last.
    pub fn group_time(&self) -> Duration {
        match self.window {
            Some(_) => Duration::ZERO,
            None => Duration::from_nanos(self.slot.told(MET)),
        }
    }
}
