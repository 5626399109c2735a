//! Sinks of a channel: a sink is its number in the table of sinks, 0 to 63.

use super::place::Home;
use super::{Lowered, Lowering};
use crate::frame::at;
use crate::ir::{Address, Op, Operand, Operator, Region, Register, Relation};
use crate::limits;
use crate::tree::{Expression, VariableId};
use crate::types::{Int, Type};

const ZERO: Operand = Operand::Constant(0);
const U64: Type = Type::Int(Int::UNSIGNED_LONG);
const KEY: Type = Type::Int(Int::LONG);

impl<'t> Lowering<'t> {
    /// A word of a sink's entry.
    pub(super) fn sink_word(&mut self, sink: Operand, offset: u32) -> Operand {
        let mut entry = Address::fixed(Region::Sinks, offset);
        self.step(&mut entry, sink, limits::SINKS, at::SINK_BYTES);
        self.load(entry, &U64)
    }

    /// Sets the sink's bit in one mask of the frame, and clears it in the other.
    pub(super) fn judge_sink(&mut self, sink: Operand, set: u32, clear: u32) -> Operand {
        let bit = self.binary(Operator::ShiftLeft, Operand::Constant(1), sink);
        self.judge_sinks(bit, set, clear);
        ZERO
    }

    fn judge_sinks(&mut self, bits: Operand, set: u32, clear: u32) {
        let before = self.frame(set);
        let after = self.binary(Operator::Or, before, bits);
        self.store(Address::fixed(Region::Frame, set), after, &U64);
        let others = self.binary(Operator::Xor, bits, Operand::Constant(-1));
        let before = self.frame(clear);
        let after = self.binary(Operator::And, before, others);
        self.store(Address::fixed(Region::Frame, clear), after, &U64);
    }

    /// The next sink that exists.
    pub(super) fn next_sink(&mut self, after: &'t Expression) -> Lowered<Operand> {
        let span = self.span;
        let after = self.value(after)?;
        self.span = span;
        let mask = self.frame(at::SINKS_PRESENT);
        Ok(Operand::Register(self.next_bit(mask, after)))
    }

    fn next_bit(&mut self, mask: Operand, after: Operand) -> Register {
        let to = self.register();
        self.emit(Op::NextBit { to, mask, after });
        to
    }

    /// `best`: evaluates all keys, then chooses each sink before which fewer than `count` others
    /// come.
    pub(super) fn best(
        &mut self,
        count: &'t Expression,
        sink: VariableId,
        key: &'t Expression,
    ) -> Lowered<()> {
        self.accepts = true;
        let span = self.span;
        let count = self.value(count)?;
        let count = Operand::Register(self.copy(count));
        self.span = span;
        self.scope(|this| {
            let keys = this.scratch(limits::SINKS * 8)?;
            let keys = Address::fixed(Region::Locals, keys);
            let present = this.frame(at::SINKS_PRESENT);
            let number = this.register();
            this.homes[sink.0 as usize] = Home::Register(number);
            this.each_sink(present, number, |this| {
                this.emit(Op::Burn(1));
                let value = this.value(key)?;
                this.span = span;
                let mut to = keys;
                this.step(&mut to, Operand::Register(number), limits::SINKS, 8);
                this.store(to, value, &KEY);
                Ok(())
            })?;
            let chosen = this.choose_best(present, keys, count)?;
            let not_chosen = this.binary(Operator::Xor, chosen, Operand::Constant(-1));
            let rest = this.binary(Operator::And, present, not_chosen);
            this.judge_sinks(chosen, at::ACCEPTED, at::REJECTED);
            this.judge_sinks(rest, at::REJECTED, at::ACCEPTED);
            Ok(())
        })
    }

    /// The set of sinks before which fewer than `count` others come. A sink comes before another by
    /// a greater key, or by an equal key and a smaller number.
    fn choose_best(&mut self, present: Operand, keys: Address, count: Operand) -> Lowered<Operand> {
        let (chosen, one) = (self.copy(ZERO), Operand::Constant(1));
        let (sink, other) = (self.register(), self.register());
        let (is, against) = (Operand::Register(sink), Operand::Register(other));
        self.each_sink(present, sink, |this| {
            let key = this.key(keys, is);
            let before = this.copy(ZERO);
            this.each_sink(present, other, |this| {
                let key_there = this.key(keys, against);
                let greater = this.compare(Relation::LessSigned, key, key_there);
                let equal = this.compare(Relation::Equal, key, key_there);
                let earlier = this.compare(Relation::Less, against, is);
                let tie = this.binary(Operator::And, equal, earlier);
                let comes_before = this.binary(Operator::Or, greater, tie);
                let so_far = Operand::Register(before);
                let sum = this.binary(Operator::Add, so_far, comes_before);
                this.set(before, sum);
                Ok(())
            })?;
            this.when(
                Relation::LessSigned,
                Operand::Register(before),
                count,
                |this| {
                    let bit = this.binary(Operator::ShiftLeft, one, is);
                    let with = this.binary(Operator::Or, Operand::Register(chosen), bit);
                    this.set(chosen, with);
                    Ok(())
                },
            )
        })?;
        Ok(Operand::Register(chosen))
    }

    fn key(&mut self, mut keys: Address, sink: Operand) -> Operand {
        self.step(&mut keys, sink, limits::SINKS, 8);
        self.load(keys, &KEY)
    }

    /// A loop over the sinks: `inside` is executed with each sink's number in `number`, which is -1
    /// afterwards.
    fn each_sink(
        &mut self,
        present: Operand,
        number: Register,
        inside: impl FnOnce(&mut Self) -> Lowered<()>,
    ) -> Lowered<()> {
        self.set(number, Operand::Constant(-1));
        self.repeat(|this, end| {
            let next = this.next_bit(present, Operand::Register(number));
            this.set(number, Operand::Register(next));
            this.exit_if(Relation::LessSigned, Operand::Register(number), ZERO, end);
            inside(this)
        })
    }
}
