//! The interpreter: one loop over flat code.
//!
//! Measured: ns for an event, including the copy of its record and the results in memory; beside it
//! the same IR as a tree of boxed closures, without the frame. The least of six runs on a busy
//! machine:
//!
//! | | this loop | closures |
//! |---|---|---|
//! | `port == 80` | 12.0 | 7.2 |
//! | `bytes > 1000 && port == 80` | 13.6 | 14.5 |
//! | `comm == "bash" && bytes >= 4096` | 14.6 | 15.9 |
//! | `switch` with four cases | 11.3 | 12.3 |
//! | a moving average in `fixed` | 22.7 | 39.5 |
//! | the sum of 16 numbers in a loop | 135 | 342 |
//! | ECalls-05's example, 16 times 8 attributes | 3,501 | 7,512 |
//!
//! Some 8 ns of the left column are the copy of the record and the head of the frame. One `match`
//! makes one table of jumps: split into three functions, each with its part of the instructions, it
//! took up to twice as long. Loops that check their condition at their end save one jump in each
//! iteration. rbpf was not used: its JIT checks no memory, and it has no maps.

use super::code::{Code, CopyRow, EffectRow, Slot, Target, There, bytes_at, put_at};
use super::flatten::{Flat, flatten};
use super::machine::Ended;
use super::memory::Layout;
use crate::frame::at;
use crate::ir::{Program, Region, next_bit};
use crate::limits;
use crate::tree::Fault;

/// Slots of most programs, and of the largest: then an index of 16 bits is never outside.
const FEW: usize = 256;
const ALL: usize = 1 << 16;

/// Flat code and its slots.
#[derive(Debug)]
pub(super) struct Interpreter {
    flat: Flat,
    slots: Block,
    fuel: u32,
    /// Where the frame begins.
    frame: usize,
}

#[derive(Debug)]
enum Block {
    Few(Box<[i64; FEW]>),
    All(Box<[i64]>),
}

impl Interpreter {
    pub(super) fn new(program: &Program, layout: &Layout) -> Interpreter {
        let flat = flatten(program, layout);
        let mut slots = vec![0; if flat.slots <= FEW { FEW } else { ALL }].into_boxed_slice();
        for (slot, value) in &flat.constants {
            slots[usize::from(*slot)] = *value;
        }
        Interpreter {
            slots: match slots.try_into() {
                Ok(few) => Block::Few(few),
                Err(all) => Block::All(all),
            },
            flat,
            fuel: program.fuel,
            frame: layout.section(Region::Frame).start,
        }
    }

    pub(super) fn run(&mut self, bytes: &mut [u8]) -> Ended {
        let mut run = Run {
            flat: &self.flat,
            bytes,
            frame: self.frame,
            fuel: self.fuel,
        };
        let ended = match &mut self.slots {
            Block::Few(slots) => run.execute(slots),
            Block::All(slots) => match slots.first_chunk_mut::<ALL>() {
                Some(slots) => run.execute(slots),
                None => Ok(1),
            },
        };
        let fuel = run.fuel;
        let place = |(fault, at): (Fault, usize)| (fault, self.flat.spans.get(at).copied());
        Ended {
            result: ended.map_err(place),
            fuel,
        }
    }
}

struct Run<'r> {
    flat: &'r Flat,
    bytes: &'r mut [u8],
    frame: usize,
    fuel: u32,
}

/// The slots. An index is never outside, so it needs no check.
struct Slots<'s, const N: usize>(&'s mut [i64; N]);

impl<const N: usize> Slots<'_, N> {
    #[inline(always)]
    fn get(&self, slot: Slot) -> i64 {
        self.0[usize::from(slot) % N]
    }

    #[inline(always)]
    fn word(&self, slot: Slot) -> u64 {
        self.get(slot) as u64
    }

    #[inline(always)]
    fn set(&mut self, slot: Slot, value: i64) {
        self.0[usize::from(slot) % N] = value;
    }

    #[inline(always)]
    fn put(&mut self, slot: Slot, value: impl Into<i64>) {
        self.set(slot, value.into());
    }

    #[inline(always)]
    fn place(&self, there: There) -> usize {
        (there.at as usize).wrapping_add(self.get(there.index) as usize)
    }

    #[inline(always)]
    fn read<const SIZE: usize>(&self, memory: &[u8], there: There) -> [u8; SIZE] {
        bytes_at(memory, self.place(there))
    }

    #[inline(always)]
    fn write<const SIZE: usize>(&self, memory: &mut [u8], there: There, value: Slot) {
        if let Some(bytes) = self.get(value).to_le_bytes().first_chunk::<SIZE>() {
            put_at(memory, self.place(there), *bytes);
        }
    }
}

/// The next instruction: the target if the condition holds.
#[inline(always)]
fn jump(at: usize, holds: bool, target: Target) -> usize {
    if holds { usize::from(target) } else { at }
}

#[inline(always)]
fn burn(fuel: &mut u32, units: u32) -> Result<(), Fault> {
    let left = fuel.checked_sub(units);
    *fuel = left.unwrap_or(0);
    left.map(|_| ()).ok_or(Fault::Fuel)
}

impl Run<'_> {
    /// One arm for each instruction, so that the compiler makes one table of jumps. A fault is
    /// returned with the index of its instruction.
    fn execute<const N: usize>(&mut self, slots: &mut [i64; N]) -> Result<i64, (Fault, usize)> {
        let code = &self.flat.code[..];
        let (mut s, m) = (Slots(slots), &mut *self.bytes);
        let mut next = 0;
        while let Some(op) = code.get(next) {
            next += 1;
            match *op {
                Code::Set(to, a) => s.set(to, s.get(a)),
                Code::Add(to, a, b) => s.set(to, s.get(a).wrapping_add(s.get(b))),
                Code::Subtract(to, a, b) => s.set(to, s.get(a).wrapping_sub(s.get(b))),
                Code::Multiply(to, a, b) => s.set(to, s.get(a).wrapping_mul(s.get(b))),
                Code::And(to, a, b) => s.set(to, s.get(a) & s.get(b)),
                Code::Or(to, a, b) => s.set(to, s.get(a) | s.get(b)),
                Code::Xor(to, a, b) => s.set(to, s.get(a) ^ s.get(b)),
                Code::ShiftLeft(to, a, b) => s.set(to, s.get(a) << (s.get(b) & 63)),
                Code::ShiftRight(to, a, b) => s.set(to, (s.word(a) >> (s.get(b) & 63)) as i64),
                Code::Rare(operator, to, a, b) => s.set(to, operator.apply(s.get(a), s.get(b))),
                Code::Equal(to, a, b) => s.put(to, s.get(a) == s.get(b)),
                Code::NotEqual(to, a, b) => s.put(to, s.get(a) != s.get(b)),
                Code::Less(to, a, b) => s.put(to, s.word(a) < s.word(b)),
                Code::LessEqual(to, a, b) => s.put(to, s.word(a) <= s.word(b)),
                Code::LessSigned(to, a, b) => s.put(to, s.get(a) < s.get(b)),
                Code::LessEqualSigned(to, a, b) => s.put(to, s.get(a) <= s.get(b)),
                Code::Signed8(to, a) => s.put(to, s.get(a) as i8),
                Code::Signed16(to, a) => s.put(to, s.get(a) as i16),
                Code::Signed32(to, a) => s.put(to, s.get(a) as i32),
                Code::Unsigned8(to, a) => s.put(to, s.get(a) as u8),
                Code::Unsigned16(to, a) => s.put(to, s.get(a) as u16),
                Code::Unsigned32(to, a) => s.put(to, s.get(a) as u32),
                Code::Jump(to) => next = usize::from(to),
                Code::IfEqual(a, b, to) => next = jump(next, s.get(a) == s.get(b), to),
                Code::IfNotEqual(a, b, to) => next = jump(next, s.get(a) != s.get(b), to),
                Code::IfLess(a, b, to) => next = jump(next, s.word(a) < s.word(b), to),
                Code::IfLessEqual(a, b, to) => next = jump(next, s.word(a) <= s.word(b), to),
                Code::IfLessSigned(a, b, to) => next = jump(next, s.get(a) < s.get(b), to),
                Code::IfLessEqualSigned(a, b, to) => next = jump(next, s.get(a) <= s.get(b), to),
                Code::Bound(a, b) if s.word(a) < s.word(b) => {}
                Code::Bound(..) => return Err((Fault::Index, next - 1)),
                Code::LoadU8(to, there) => s.put(to, u8::from_le_bytes(s.read(m, there))),
                Code::LoadU16(to, there) => s.put(to, u16::from_le_bytes(s.read(m, there))),
                Code::LoadU32(to, there) => s.put(to, u32::from_le_bytes(s.read(m, there))),
                Code::LoadS8(to, there) => s.put(to, i8::from_le_bytes(s.read(m, there))),
                Code::LoadS16(to, there) => s.put(to, i16::from_le_bytes(s.read(m, there))),
                Code::LoadS32(to, there) => s.put(to, i32::from_le_bytes(s.read(m, there))),
                Code::Load64(to, there) => s.put(to, i64::from_le_bytes(s.read(m, there))),
                Code::Store8(there, a) => s.write::<1>(m, there, a),
                Code::Store16(there, a) => s.write::<2>(m, there, a),
                Code::Store32(there, a) => s.write::<4>(m, there, a),
                Code::Store64(there, a) => s.write::<8>(m, there, a),
                Code::Copy(row) => copy(&self.flat.copies, row, &s, m),
                Code::Zero(row) => zero(&self.flat.copies, row, &s, m),
                Code::Effect(row) => {
                    let frame = &mut m[self.frame..];
                    effect(&self.flat.effects, row, &s, frame).map_err(|all| (all, next - 1))?;
                }
                Code::NextBit(to, a, b) => s.set(to, next_bit(s.word(a), s.get(b))),
                Code::Burn(units) => burn(&mut self.fuel, units).map_err(|out| (out, next - 1))?,
                Code::Return(a) => return Ok(s.get(a)),
                Code::Fail(fault) => return Err((fault, next - 1)),
            }
        }
        Ok(1)
    }
}

/// Copies as a row of the table says.
fn copy<const N: usize>(rows: &[CopyRow], row: u16, s: &Slots<'_, N>, memory: &mut [u8]) {
    let Some(CopyRow { to, from, bytes }) = rows.get(usize::from(row)).copied() else {
        return;
    };
    let (to, from, bytes) = (s.place(to), s.place(from), bytes as usize);
    let fits = |at: usize| at.checked_add(bytes).is_some_and(|end| end <= memory.len());
    if fits(to) && fits(from) {
        memory.copy_within(from..from + bytes, to);
    }
}

/// Sets to 0 as a row of the table says.
fn zero<const N: usize>(rows: &[CopyRow], row: u16, s: &Slots<'_, N>, memory: &mut [u8]) {
    let Some(CopyRow { to, bytes, .. }) = rows.get(usize::from(row)).copied() else {
        return;
    };
    let there = memory.get_mut(s.place(to)..);
    if let Some(there) = there.and_then(|rest| rest.get_mut(..bytes as usize)) {
        there.fill(0);
    }
}

/// Adds a request to the frame.
fn effect<const N: usize>(
    rows: &[EffectRow],
    row: u16,
    s: &Slots<'_, N>,
    frame: &mut [u8],
) -> Result<(), Fault> {
    let Some(EffectRow {
        kind,
        number,
        values,
    }) = rows.get(usize::from(row)).copied()
    else {
        return Ok(());
    };
    let count_at = at::EFFECT_COUNT as usize;
    let count = u32::from_le_bytes(bytes_at(frame, count_at));
    if count >= limits::EFFECTS {
        return Err(Fault::Effects);
    }
    put_at(frame, count_at, (count + 1).to_le_bytes());
    let begin = (at::EFFECT + count * at::EFFECT_BYTES) as usize;
    put_at(frame, begin, kind.to_le_bytes());
    put_at(frame, begin + 4, (s.get(number) as u32).to_le_bytes());
    for (value, at) in values.into_iter().zip([8, 16, 24]) {
        put_at(frame, begin + at, s.get(value).to_le_bytes());
    }
    Ok(())
}
