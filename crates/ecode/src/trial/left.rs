//! The results of a run, read from where it ran.

use crate::frame::at;
use crate::limits::EFFECTS;
use crate::run::{Effect, Memory};
use crate::tree::Fault;

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The value it returned; 1 if it returned none.
    pub result: i64,
    /// The fault, if it failed.
    pub fault: Option<Fault>,
    /// The byte of the text where it failed, if it is known.
    pub fault_place: Option<u32>,
    /// Fuel that is left.
    pub fuel: u32,
    /// The reason for which it dropped the event, if it did.
    pub dropped: Option<u8>,
    /// Sinks that were accepted, a bit each.
    pub accepted: u64,
    /// Sinks that were rejected.
    pub rejected: u64,
    /// The state of `random()`.
    pub random: u64,
    pub effects: Vec<Effect>,
    pub output: Vec<u8>,
    pub state: Vec<u8>,
}

impl Left {
    /// The results of a run in user space.
    pub fn of_memory(memory: &Memory) -> Left {
        let (accepted, rejected) = memory.judged();
        Left {
            result: memory.result(),
            fault: memory.fault(),
            fault_place: memory.fault_place(),
            fuel: memory.fuel(),
            dropped: memory.drop_reason(),
            accepted,
            rejected,
            random: memory.random(),
            effects: memory.effects().collect(),
            output: memory.output().to_vec(),
            state: memory.state().to_vec(),
        }
    }

    /// The results of a run in the kernel, from its frame of [`at::BYTES`] bytes and from the
    /// state.
    pub fn of_frame(frame: &[u8], output_bytes: u32, state: &[u8]) -> Left {
        let number = half(frame, at::FAULT);
        let fault = Fault::of_number(number);
        // A fault because of too little data has no place in the text.
        let has_place = fault.is_some_and(|fault| fault != Fault::Input);
        let place = half(frame, at::FAULT_PLACE).checked_sub(1);
        let effect = |number| {
            let begin = at::EFFECT + number * at::EFFECT_BYTES;
            Effect {
                kind: half(frame, begin),
                number: half(frame, begin + 4),
                values: [8, 16, 24].map(|offset| word(frame, begin + offset)),
            }
        };
        let effects = half(frame, at::EFFECT_COUNT).min(EFFECTS);
        let dropped = half(frame, at::DROP).checked_sub(1);
        Left {
            result: word(frame, at::RESULT) as i64,
            fault,
            fault_place: place.filter(|_| has_place),
            fuel: half(frame, at::FUEL),
            dropped: dropped.map(|reason| reason as u8),
            accepted: word(frame, at::ACCEPTED),
            rejected: word(frame, at::REJECTED),
            random: word(frame, at::RANDOM),
            effects: (0..effects).map(effect).collect(),
            output: frame[at::OUTPUT as usize..][..output_bytes as usize].to_vec(),
            state: state.to_vec(),
        }
    }
}

fn word(frame: &[u8], at: u32) -> u64 {
    u64::from(half(frame, at)) | u64::from(half(frame, at + 4)) << 32
}

fn half(frame: &[u8], at: u32) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&frame[at as usize..][..4]);
    u32::from_le_bytes(bytes)
}
