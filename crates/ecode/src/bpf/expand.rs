//! Steps that are many instructions: copies and zeros, effects, and the search for a bit.

use super::machine::{Inst, Kind, Test, V, Value};
use super::select::Select;
use crate::frame::at;
use crate::ir::{Fault, Operand, Operator};
use crate::limits;

/// More bytes than this are done by a loop.
const STRAIGHT_BYTES: u32 = 192;
/// Bytes per round of such a loop.
const ROUND_BYTES: u32 = 64;

impl Select<'_> {
    /// Copies bytes by words. The two ranges are equal or do not overlap, and the processors that
    /// the kernel's JIT supports access unaligned words.
    pub(super) fn copy(&mut self, to: (V, i16), from: (V, i16), bytes: u32) {
        let done = self.rounds(
            bytes,
            [Some(to.0), Some(from.0)],
            |this, [to_base, from_base]| {
                this.copy_straight((to_base, to.1), (from_base, from.1), 0, ROUND_BYTES);
            },
        );
        self.copy_straight(to, from, done, bytes);
    }

    fn copy_straight(&mut self, to: (V, i16), from: (V, i16), start: u32, end: u32) {
        for (at, bytes) in pieces(start, end) {
            let word = self.code.register();
            let bits = bytes as u8 * 8;
            self.load(word, from.0, from.1 as u32 + at, bits);
            self.store(to.0, to.1 as u32 + at, Value::Register(word), bits);
        }
    }

    /// Sets bytes to 0.
    pub(super) fn zero_from(&mut self, base: V, offset: u32, bytes: u32) {
        let clear = |this: &mut Self, base, start, end| {
            for (at, bytes) in pieces(start, end) {
                this.store(base, offset + at, Value::Immediate(0), bytes as u8 * 8);
            }
        };
        let done = self.rounds(bytes, [Some(base), None], |this, [base, _]| {
            clear(this, base, 0, ROUND_BYTES);
        });
        clear(self, base, done, bytes);
    }

    /// Emits a loop that does `round` for each [`ROUND_BYTES`] of many bytes and advances the
    /// bases. Returns the number of bytes that it covers.
    fn rounds(
        &mut self,
        bytes: u32,
        bases: [Option<V>; 2],
        round: impl FnOnce(&mut Self, [V; 2]),
    ) -> u32 {
        if bytes <= STRAIGHT_BYTES {
            return 0;
        }
        let done = bytes / ROUND_BYTES * ROUND_BYTES;
        let distance = self.code.add(Kind::Scratch);
        let (head, end) = (self.label(), self.label());
        self.set_hidden(distance, Value::Immediate(0));
        self.emit(Inst::Label(head));
        let enough = self.fault(Fault::Fuel);
        self.emit(Inst::MayGoto(enough));
        let last = Value::Immediate((done - ROUND_BYTES) as i32);
        self.branch(Test::Greater, distance, last, end);
        let moved = bases.map(|base| {
            let place = self.code.add(Kind::Scratch);
            if let Some(base) = base {
                self.alu(Operator::Add, place, base, Value::Register(distance), false);
            }
            place
        });
        round(self, moved);
        self.alu(
            Operator::Add,
            distance,
            distance,
            Value::Immediate(ROUND_BYTES as i32),
            false,
        );
        self.emit(Inst::Jump(head));
        self.emit(Inst::Label(end));
        done
    }

    /// Adds an effect to the frame.
    pub(super) fn effect(&mut self, kind: u32, number: Operand, values: &[Operand; 3]) {
        let (frame, count, place) = (
            self.frame,
            self.code.register(),
            self.code.add(Kind::Scratch),
        );
        self.load(count, frame, at::EFFECT_COUNT, 32);
        let most = Value::Immediate(limits::EFFECTS as i32);
        let full = self.fault_here(Fault::Effects);
        self.branch(Test::GreaterEqual, count, most, full);
        const { assert!(limits::EFFECTS.is_power_of_two()) };
        let mask = Value::Immediate(limits::EFFECTS as i32 - 1);
        self.alu(Operator::And, place, count, mask, false);
        let bytes = Value::Immediate(at::EFFECT_BYTES.trailing_zeros() as i32);
        self.alu(Operator::ShiftLeft, place, place, bytes, false);
        self.alu(Operator::Add, place, place, Value::Register(frame), false);
        self.store(place, at::EFFECT, Value::Immediate(kind as i32), 32);
        let number = self.half(number);
        self.store(place, at::EFFECT + 4, number, 32);
        for (value, offset) in values.iter().zip([8, 16, 24]) {
            let value = self.value(*value);
            self.store(place, at::EFFECT + offset, value, 64);
        }
        self.alu(Operator::Add, count, count, Value::Immediate(1), false);
        self.store(frame, at::EFFECT_COUNT, Value::Register(count), 32);
    }

    /// The lowest set bit above a position: that bit minus one has as many set bits as its
    /// position.
    pub(super) fn next_bit(&mut self, to: V, mask: Operand, after: Operand) {
        let over = self.label();
        let (first, bits, result) = (
            self.code.register(),
            self.code.register(),
            self.code.register(),
        );
        let mask = self.register(mask);
        let after = self.register(after);
        self.emit(Inst::Move {
            to: result,
            from: Value::Immediate(-1),
            narrow: false,
        });
        self.alu(Operator::Add, first, after, Value::Immediate(1), false);
        self.branch(Test::Greater, first, Value::Immediate(63), over);
        self.alu(
            Operator::ShiftRight,
            bits,
            mask,
            Value::Register(first),
            false,
        );
        self.branch(Test::Equal, bits, Value::Immediate(0), over);
        self.emit(Inst::Negate {
            to: result,
            a: bits,
            narrow: false,
        });
        self.alu(Operator::And, bits, bits, Value::Register(result), false);
        self.alu(Operator::Add, bits, bits, Value::Immediate(-1), false);
        self.count_bits(bits);
        self.alu(Operator::Add, result, bits, Value::Register(first), false);
        self.emit(Inst::Label(over));
        // The program compares the result again with -1.
        self.set_hidden(to, Value::Register(result));
    }

    /// `bits` = the number of its set bits: sums of 2, 4, 8 and finally all bits.
    fn count_bits(&mut self, bits: V) {
        let [ones, threes, fifteens, bytes] = [
            0x5555_5555_5555_5555,
            0x3333_3333_3333_3333,
            0x0f0f_0f0f_0f0f_0f0f,
            0x0101_0101_0101_0101,
        ]
        .map(|value| {
            let to = self.code.register();
            self.emit(Inst::Wide { to, value });
            Value::Register(to)
        });
        let part = self.code.register();
        let shift = Value::Immediate;
        self.alu(Operator::ShiftRight, part, bits, shift(1), false);
        self.alu(Operator::And, part, part, ones, false);
        self.alu(Operator::Subtract, bits, bits, Value::Register(part), false);
        self.alu(Operator::And, part, bits, threes, false);
        self.alu(Operator::ShiftRight, bits, bits, shift(2), false);
        self.alu(Operator::And, bits, bits, threes, false);
        self.alu(Operator::Add, bits, bits, Value::Register(part), false);
        self.alu(Operator::ShiftRight, part, bits, shift(4), false);
        self.alu(Operator::Add, bits, bits, Value::Register(part), false);
        self.alu(Operator::And, bits, bits, fifteens, false);
        self.alu(Operator::Multiply, bits, bits, bytes, false);
        self.alu(Operator::ShiftRight, bits, bits, shift(56), false);
    }
}

/// Words of 8 bytes, then smaller ones for the rest: offset and size of each.
fn pieces(start: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let size = [8, 4, 2, 1].into_iter().find(|size| at + size <= end)?;
        at += size;
        Some((at - size, size))
    })
}
