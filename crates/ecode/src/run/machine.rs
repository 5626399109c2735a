//! The interpreter: one loop over flat code.

use super::code::{Code, CopyRow, EffectRow, Slot, bytes_at, put_at};
use super::flatten::{Flat, flatten};
use super::memory::{Layout, Memory, Prologue};
use crate::frame::at;
use crate::ir::{Program, Region, next_bit};
use crate::limits;
use crate::tree::Fault;

/// Slots of most programs, and of the largest: then an index of 16 bits is never outside.
const FEW: usize = 256;
const ALL: usize = 1 << 16;

/// A program, ready to run in user space.
#[derive(Debug)]
pub struct Machine {
    flat: Flat,
    slots: Block,
    prologue: Prologue,
    /// Where the frame begins.
    frame: usize,
}

#[derive(Debug)]
enum Block {
    Few(Box<[i64; FEW]>),
    All(Box<[i64]>),
}

impl Machine {
    /// Prepares a program.
    pub fn new(program: &Program) -> Machine {
        let layout = Layout::new(program);
        let flat = flatten(program, &layout);
        let mut slots = vec![0; if flat.slots <= FEW { FEW } else { ALL }].into_boxed_slice();
        for (slot, value) in &flat.constants {
            slots[usize::from(*slot)] = *value;
        }
        Machine {
            slots: match slots.try_into() {
                Ok(few) => Block::Few(few),
                Err(all) => Block::All(all),
            },
            flat,
            prologue: Prologue {
                input: program.input,
                output: program.output,
                fuel: program.fuel,
            },
            frame: layout.begin(Region::Frame),
        }
    }

    /// Runs the program once on a memory that was made for it. What it left is in the memory, the
    /// result and the fault as well.
    pub fn run(&mut self, memory: &mut Memory) -> Result<i64, Fault> {
        if !memory.begin(&self.prologue) {
            return Err(Fault::Input);
        }
        let mut run = Run {
            flat: &self.flat,
            bytes: &mut memory.bytes,
            frame: self.frame,
            fuel: self.prologue.fuel,
        };
        let ended = match &mut self.slots {
            Block::Few(slots) => run.execute(slots),
            Block::All(slots) => match slots.first_chunk_mut::<ALL>() {
                Some(slots) => run.execute(slots),
                None => Ok(1),
            },
        };
        let fuel = run.fuel;
        memory.end(fuel, ended);
        ended
    }
}

struct Run<'r> {
    flat: &'r Flat,
    bytes: &'r mut [u8],
    frame: usize,
    fuel: u32,
}

/// The slots; an index is never outside, so that nothing asks.
struct Slots<'s, const N: usize>(&'s mut [i64; N]);

impl<const N: usize> Slots<'_, N> {
    #[inline(always)]
    fn get(&self, slot: Slot) -> i64 {
        self.0[usize::from(slot) % N]
    }

    #[inline(always)]
    fn unsigned(&self, slot: Slot) -> u64 {
        self.get(slot) as u64
    }

    #[inline(always)]
    fn set(&mut self, slot: Slot, value: i64) {
        self.0[usize::from(slot) % N] = value;
    }

    #[inline(always)]
    fn set_bool(&mut self, slot: Slot, value: bool) {
        self.set(slot, i64::from(value));
    }

    /// `at`, and as far on as `index` says.
    #[inline(always)]
    fn place(&self, at: u32, index: Slot) -> usize {
        (at as usize).wrapping_add(self.get(index) as usize)
    }
}

impl Run<'_> {
    fn execute<const N: usize>(&mut self, slots: &mut [i64; N]) -> Result<i64, Fault> {
        let code = &self.flat.code[..];
        let mut s = Slots(slots);
        let mut at = 0;
        while let Some(op) = code.get(at) {
            at += 1;
            let (holds, target) = match *op {
                Code::Jump { target } => (true, target),
                Code::IfEqual { a, b, target } => (s.get(a) == s.get(b), target),
                Code::IfNotEqual { a, b, target } => (s.get(a) != s.get(b), target),
                Code::IfLess { a, b, target } => (s.unsigned(a) < s.unsigned(b), target),
                Code::IfLessEqual { a, b, target } => (s.unsigned(a) <= s.unsigned(b), target),
                Code::IfLessSigned { a, b, target } => (s.get(a) < s.get(b), target),
                Code::IfLessEqualSigned { a, b, target } => (s.get(a) <= s.get(b), target),
                Code::Bound { index, count } => {
                    if s.unsigned(index) >= s.unsigned(count) {
                        return Err(Fault::Index);
                    }
                    continue;
                }
                Code::Burn => {
                    self.fuel = self.fuel.checked_sub(1).ok_or(Fault::Fuel)?;
                    continue;
                }
                Code::Effect { row } => {
                    self.effect(row, &s)?;
                    continue;
                }
                Code::Return { value } => return Ok(s.get(value)),
                Code::Fail { fault } => return Err(fault),
                other => {
                    self.compute(other, &mut s);
                    continue;
                }
            };
            if holds {
                at = usize::from(target);
            }
        }
        Ok(1)
    }

    /// What only changes a slot.
    #[inline(always)]
    fn compute<const N: usize>(&mut self, op: Code, s: &mut Slots<'_, N>) {
        match op {
            Code::Set { to, from } => s.set(to, s.get(from)),
            Code::Add { to, a, b } => s.set(to, s.get(a).wrapping_add(s.get(b))),
            Code::Subtract { to, a, b } => s.set(to, s.get(a).wrapping_sub(s.get(b))),
            Code::Multiply { to, a, b } => s.set(to, s.get(a).wrapping_mul(s.get(b))),
            Code::And { to, a, b } => s.set(to, s.get(a) & s.get(b)),
            Code::Or { to, a, b } => s.set(to, s.get(a) | s.get(b)),
            Code::Xor { to, a, b } => s.set(to, s.get(a) ^ s.get(b)),
            Code::ShiftLeft { to, a, b } => s.set(to, s.get(a).wrapping_shl(s.get(b) as u32)),
            Code::ShiftRight { to, a, b } => {
                s.set(to, s.unsigned(a).wrapping_shr(s.get(b) as u32) as i64);
            }
            Code::Rare { operator, to, a, b } => s.set(to, operator.apply(s.get(a), s.get(b))),
            Code::Equal { to, a, b } => s.set_bool(to, s.get(a) == s.get(b)),
            Code::NotEqual { to, a, b } => s.set_bool(to, s.get(a) != s.get(b)),
            Code::Less { to, a, b } => s.set_bool(to, s.unsigned(a) < s.unsigned(b)),
            Code::LessEqual { to, a, b } => s.set_bool(to, s.unsigned(a) <= s.unsigned(b)),
            Code::LessSigned { to, a, b } => s.set_bool(to, s.get(a) < s.get(b)),
            Code::LessEqualSigned { to, a, b } => s.set_bool(to, s.get(a) <= s.get(b)),
            Code::Signed8 { to, from } => s.set(to, i64::from(s.get(from) as i8)),
            Code::Signed16 { to, from } => s.set(to, i64::from(s.get(from) as i16)),
            Code::Signed32 { to, from } => s.set(to, i64::from(s.get(from) as i32)),
            Code::Unsigned8 { to, from } => s.set(to, i64::from(s.get(from) as u8)),
            Code::Unsigned16 { to, from } => s.set(to, i64::from(s.get(from) as u16)),
            Code::Unsigned32 { to, from } => s.set(to, i64::from(s.get(from) as u32)),
            Code::NextBit { to, mask, after } => {
                s.set(to, next_bit(s.unsigned(mask), s.get(after)));
            }
            other => self.access(other, s),
        }
    }

    /// What reads or writes memory.
    #[inline(always)]
    fn access<const N: usize>(&mut self, op: Code, s: &mut Slots<'_, N>) {
        match op {
            Code::LoadU8 { to, index, at } => {
                let [byte] = self.read(s.place(at, index));
                s.set(to, i64::from(byte));
            }
            Code::LoadU16 { to, index, at } => {
                let read = u16::from_le_bytes(self.read(s.place(at, index)));
                s.set(to, i64::from(read));
            }
            Code::LoadU32 { to, index, at } => {
                let read = u32::from_le_bytes(self.read(s.place(at, index)));
                s.set(to, i64::from(read));
            }
            Code::LoadS8 { to, index, at } => {
                let [byte] = self.read(s.place(at, index));
                s.set(to, i64::from(byte as i8));
            }
            Code::LoadS16 { to, index, at } => {
                let read = i16::from_le_bytes(self.read(s.place(at, index)));
                s.set(to, i64::from(read));
            }
            Code::LoadS32 { to, index, at } => {
                let read = i32::from_le_bytes(self.read(s.place(at, index)));
                s.set(to, i64::from(read));
            }
            Code::Load64 { to, index, at } => {
                s.set(to, i64::from_le_bytes(self.read(s.place(at, index))));
            }
            Code::Store8 { value, index, at } => {
                put_at(self.bytes, s.place(at, index), [s.get(value) as u8]);
            }
            Code::Store16 { value, index, at } => {
                let value = s.get(value) as u16;
                put_at(self.bytes, s.place(at, index), value.to_le_bytes());
            }
            Code::Store32 { value, index, at } => {
                let value = s.get(value) as u32;
                put_at(self.bytes, s.place(at, index), value.to_le_bytes());
            }
            Code::Store64 { value, index, at } => {
                put_at(self.bytes, s.place(at, index), s.get(value).to_le_bytes());
            }
            Code::Copy { row } => self.copy(row, s),
            Code::Zero { index, bytes, at } => {
                let begin = s.place(at, index);
                let there = self.bytes.get_mut(begin..);
                if let Some(there) = there.and_then(|rest| rest.get_mut(..usize::from(bytes))) {
                    there.fill(0);
                }
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn read<const SIZE: usize>(&self, at: usize) -> [u8; SIZE] {
        bytes_at(self.bytes, at)
    }

    fn copy<const N: usize>(&mut self, row: u16, s: &Slots<'_, N>) {
        let Some(CopyRow { to, from, bytes }) = self.flat.copies.get(usize::from(row)).copied()
        else {
            return;
        };
        let (to, from) = (s.place(to.0, to.1), s.place(from.0, from.1));
        let bytes = bytes as usize;
        let fits = |at: usize| {
            at.checked_add(bytes)
                .is_some_and(|end| end <= self.bytes.len())
        };
        if fits(to) && fits(from) {
            self.bytes.copy_within(from..from + bytes, to);
        }
    }

    fn effect<const N: usize>(&mut self, row: u16, s: &Slots<'_, N>) -> Result<(), Fault> {
        let Some(EffectRow {
            kind,
            number,
            values,
        }) = self.flat.effects.get(usize::from(row)).copied()
        else {
            return Ok(());
        };
        let count_at = self.frame + at::EFFECT_COUNT as usize;
        let count = u32::from_le_bytes(bytes_at(self.bytes, count_at));
        if count >= limits::EFFECTS {
            return Err(Fault::Effects);
        }
        put_at(self.bytes, count_at, (count + 1).to_le_bytes());
        let begin = self.frame + (at::EFFECT + count * at::EFFECT_BYTES) as usize;
        put_at(self.bytes, begin, kind.to_le_bytes());
        put_at(self.bytes, begin + 4, (s.get(number) as u32).to_le_bytes());
        for (value, at) in values.into_iter().zip([8, 16, 24]) {
            put_at(self.bytes, begin + at, s.get(value).to_le_bytes());
        }
        Ok(())
    }
}
