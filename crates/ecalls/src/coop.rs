//! A thread's slot for cooperative polling (Coop §3.1), and its binding to the thread.
//!
//! The slot is in the channel's own memory; the scheduler finds it at the thread's next yield.
//! `abi/coop.h` defines its contents.

use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ecalls_abi::coop::{
    COOP_BYTES, COOP_COOPERATIVE, COOP_DEMOTED, COOP_NO_PLACE, COOP_SINK, Coop,
};
use ecalls_abi::downcall::{COOP_SLOTS, DOWN_COOP, DOWN_ELEMENT_BYTES, Op};
use ecalls_kernel::handle::ChannelHandle;
use ecalls_ring::{AtomicU64, Words};

use crate::downcall::Caller;
use crate::{Error, Result};

const ELEMENT_WORDS: usize = DOWN_ELEMENT_BYTES / 8;
const SLOT_WORDS: usize = COOP_BYTES / 8;
/// The word that holds the state, in its low half.
const STATE: usize = offset_of!(Coop, state) / 8;

/// The scheduler's view of the thread of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// The scheduler has not seen the thread, or does not run.
    Unknown,
    /// The thread polls and keeps the rules.
    Cooperative,
    /// The thread is scheduled by fair share until its next poll.
    Fair,
    /// The scheduler has no place for the thread, which is scheduled by fair share: the table of a
    /// CPU has 64 places, of which one user has 32. The scheduler tries again whenever the thread
    /// yields.
    NoPlace,
}

/// The memory of a thread's slot.
#[derive(Clone)]
pub struct SlotMemory {
    handle: Arc<ChannelHandle>,
    number: usize,
}

impl fmt::Debug for SlotMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.number)
    }
}

impl Words for SlotMemory {
    fn words(&self) -> &[AtomicU64] {
        let first = DOWN_COOP * ELEMENT_WORDS + self.number * SLOT_WORDS;
        self.handle
            .down()
            .get(first..first + SLOT_WORDS)
            .unwrap_or_default()
    }
}

impl SlotMemory {
    /// The scheduler's view of the thread.
    pub fn standing(&self) -> Standing {
        match self.told(STATE) as u32 {
            COOP_COOPERATIVE => Standing::Cooperative,
            COOP_DEMOTED => Standing::Fair,
            COOP_NO_PLACE => Standing::NoPlace,
            _ => Standing::Unknown,
        }
    }

    /// A word of the slot that the scheduler writes.
    pub(crate) fn told(&self, word: usize) -> u64 {
        let word = self.words().get(word);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }
}

impl Caller {
    /// Binds slot `number` (0 to 15) of this channel to the calling thread, in `group` (0: none;
    /// threads of one user that name the same number are a group). The binding takes effect at the
    /// thread's next yield; without a scheduler its polls are not answered.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number; and the errors of a fast call.
    pub fn coop_slot(&self, number: usize, group: u32) -> Result<SlotMemory> {
        self.bind_slot(number, group, 0)
    }

    /// The same for the thread that reads this channel's events, which becomes their sink. When an
    /// event was raised with [`crate::Raise::cpu`], the thread runs before other fair threads, as
    /// long as it has not exceeded its share; the sink of the event with the earliest deadline runs
    /// first.
    ///
    /// # Errors
    /// Those of [`Caller::coop_slot`].
    pub fn sink_slot(&self, number: usize, group: u32) -> Result<SlotMemory> {
        self.bind_slot(number, group, COOP_SINK)
    }

    pub(crate) fn bind_slot(&self, number: usize, group: u32, flags: u32) -> Result<SlotMemory> {
        let slot = self.slot(number)?;
        match self.fast_op(Op::Coop, [number as u64, group.into(), flags.into()])? {
            0 => Ok(slot),
            code => Err(Error::Os {
                action: "naming the slot of a thread",
                source: std::io::Error::from_raw_os_error(i32::try_from(-code).unwrap_or(0)),
            }),
        }
    }

    /// The memory of slot `number` (0 to 15), for reading only: no thread is bound.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number.
    pub fn slot(&self, number: usize) -> Result<SlotMemory> {
        if number >= COOP_SLOTS {
            return Err(Error::Invalid {
                what: "the slot",
                given: number.to_string(),
                expected: "0 to 15",
            });
        }
        Ok(SlotMemory {
            handle: Arc::clone(self.handle()),
            number,
        })
    }
}
