//! Built-ins, except for those of sinks: the event, numbers, and requests, which are written into
//! the frame as effects.

use super::condition::is_signed;
use super::{Lowered, Lowering};
use crate::frame::{at, effect};
use crate::ir::{Address, Op, Operand, Operator, Region, Relation};
use crate::limits;
use crate::tree::{Builtin, EventField, Expression, VariableId};
use crate::types::{Int, Type};

const ZERO: Operand = Operand::Constant(0);
const U64: Type = Type::Int(Int::UNSIGNED_LONG);

impl<'t> Lowering<'t> {
    /// Values of arguments, from left to right.
    fn arguments(&mut self, all: &'t [Expression]) -> Lowered<Vec<Operand>> {
        let mut values = Vec::with_capacity(all.len());
        for (argument, at) in all.iter().zip(1..) {
            let mut value = self.value(argument)?;
            for later in &all[at..] {
                value = self.hold(value, later);
            }
            values.push(value);
        }
        Ok(values)
    }

    pub(super) fn builtin(
        &mut self,
        builtin: Builtin,
        arguments: &'t [Expression],
        e: &'t Expression,
    ) -> Lowered<Operand> {
        let values = self.arguments(arguments)?;
        self.span = e.span;
        let argument = |at: usize| values.get(at).copied().unwrap_or(ZERO);
        let (a, b, c) = (argument(0), argument(1), argument(2));
        Ok(match builtin {
            Builtin::Event(field) => self.event(field)?,
            Builtin::Now => self.frame(at::NOW),
            Builtin::Min => self.pick(b, a, a, b, &e.ty)?,
            Builtin::Max => self.pick(a, b, a, b, &e.ty)?,
            Builtin::Clamp => {
                let most = self.pick(a, b, a, b, &e.ty)?;
                self.pick(c, most, most, c, &e.ty)?
            }
            Builtin::Abs => self.absolute(a, &e.ty)?,
            Builtin::Hash => self.hash(a),
            Builtin::Random => self.random(),
            Builtin::Attribute(number) => {
                let offset = number.min(limits::ATTRIBUTES - 1) * 8;
                let from = Address::fixed(Region::Attributes, offset);
                self.load(from, &Type::Int(Int::LONG))
            }
            Builtin::SinkAttribute(number) => {
                let number = number.min(limits::ATTRIBUTES - 1);
                self.sink_word(a, at::SINK_ATTRIBUTE + number * 8)
            }
            Builtin::SinkId => self.sink_word(a, at::SINK_ID),
            Builtin::SinkAge => {
                let told = self.sink_word(a, at::SINK_TOLD);
                let now = self.frame(at::NOW);
                self.binary(Operator::Subtract, now, told)
            }
            Builtin::Accept => {
                self.accepts = true;
                self.judge_sink(a, at::ACCEPTED, at::REJECTED)
            }
            Builtin::Reject => self.judge_sink(a, at::REJECTED, at::ACCEPTED),
            Builtin::Once(memory) => self.once(memory, a, b)?,
            Builtin::Signal => self.request(effect::SIGNAL, a, [b, ZERO, ZERO]),
            Builtin::Raise(service) => self.request(
                effect::RAISE,
                Operand::Constant(i64::from(service)),
                [a, b, c],
            ),
            Builtin::Defer => self.request(effect::DEFER, ZERO, [a, ZERO, ZERO]),
            Builtin::Drop => self.drop_event(a),
            Builtin::Count => self.request(effect::COUNT, a, [b, ZERO, ZERO]),
            Builtin::Histogram => self.request(effect::HISTOGRAM, ZERO, [a, ZERO, ZERO]),
        })
    }

    fn event(&mut self, field: EventField) -> Lowered<Operand> {
        let offset = match field {
            EventField::Service => at::EVENT_SERVICE,
            EventField::Kind => at::EVENT_KIND,
            EventField::Time => at::EVENT_TIME,
            EventField::Deadline => at::EVENT_DEADLINE,
            EventField::TimeLeft => return self.time_left(),
            EventField::Id => at::EVENT_ID,
            EventField::Pid => at::EVENT_PID,
            EventField::Tid => at::EVENT_TID,
            EventField::Uid => at::EVENT_UID,
            EventField::Cpu => at::EVENT_CPU,
            EventField::Type => at::EVENT_TYPE,
            EventField::Priority => at::EVENT_PRIORITY,
            EventField::Size => at::EVENT_SIZE,
        };
        Ok(self.load(Address::fixed(Region::Event, offset), &field.ty()))
    }

    fn time_left(&mut self) -> Lowered<Operand> {
        let deadline = self.load(Address::fixed(Region::Event, at::EVENT_DEADLINE), &U64);
        let left = self.copy(Operand::Constant(i64::MAX));
        self.when(Relation::NotEqual, deadline, ZERO, |this| {
            let now = this.frame(at::NOW);
            let difference = this.binary(Operator::Subtract, deadline, now);
            this.set(left, difference);
            Ok(())
        })?;
        Ok(Operand::Register(left))
    }

    /// `a < b ? other : first`
    fn pick(
        &mut self,
        a: Operand,
        b: Operand,
        first: Operand,
        other: Operand,
        ty: &Type,
    ) -> Lowered<Operand> {
        let less = if is_signed(ty) {
            Relation::LessSigned
        } else {
            Relation::Less
        };
        let result = self.copy(first);
        self.when(less, a, b, |this| {
            this.set(result, other);
            Ok(())
        })?;
        Ok(Operand::Register(result))
    }

    fn absolute(&mut self, a: Operand, ty: &Type) -> Lowered<Operand> {
        if !is_signed(ty) {
            return Ok(a);
        }
        let result = self.copy(a);
        self.when(Relation::LessSigned, a, ZERO, |this| {
            let negative = this.negate(a, ty);
            this.set(result, negative);
            Ok(())
        })?;
        Ok(Operand::Register(result))
    }

    /// [`crate::frame::hash`]
    fn hash(&mut self, x: Operand) -> Operand {
        if let Operand::Constant(known) = x {
            return Operand::Constant(crate::frame::hash(known as u64) as i64);
        }
        let x = self.mix(x, Operator::ShiftRight, 30);
        let factor = Operand::Constant(0xbf58_476d_1ce4_e5b9_u64 as i64);
        let x = self.binary(Operator::Multiply, x, factor);
        let x = self.mix(x, Operator::ShiftRight, 27);
        let factor = Operand::Constant(0x94d0_49bb_1331_11eb_u64 as i64);
        let x = self.binary(Operator::Multiply, x, factor);
        self.mix(x, Operator::ShiftRight, 31)
    }

    /// [`crate::frame::random`]
    fn random(&mut self) -> Operand {
        let state = self.frame(at::RANDOM);
        let state = self.mix(state, Operator::ShiftLeft, 13);
        let state = self.mix(state, Operator::ShiftRight, 7);
        let state = self.mix(state, Operator::ShiftLeft, 17);
        self.store(Address::fixed(Region::Frame, at::RANDOM), state, &U64);
        state
    }

    /// `x ^ (x SHIFT by)`
    fn mix(&mut self, x: Operand, shift: Operator, by: i64) -> Operand {
        let shifted = self.binary(shift, x, Operand::Constant(by));
        self.binary(Operator::Xor, x, shifted)
    }

    fn request(&mut self, kind: u32, number: Operand, values: [Operand; 3]) -> Operand {
        self.emit(Op::Effect {
            kind,
            number,
            values,
        });
        ZERO
    }

    fn drop_event(&mut self, reason: Operand) -> Operand {
        let low = self.binary(Operator::And, reason, Operand::Constant(255));
        let value = self.binary(Operator::Add, low, Operand::Constant(1));
        let to = Address::fixed(Region::Frame, at::DROP);
        self.store(to, value, &Type::Int(Int::UNSIGNED));
        self.emit(Op::Return(ZERO));
        ZERO
    }

    /// `once`: looks the key up, and stores it if it is not remembered.
    fn once(&mut self, memory: VariableId, key: Operand, ttl_us: Operand) -> Lowered<Operand> {
        let hash = self.hash(key);
        let entries = i64::from(limits::ONCE_ENTRIES);
        let place = self.binary(Operator::Remainder, hash, Operand::Constant(entries));
        let mut entry = self.variable_address(memory)?;
        self.step(&mut entry, place, limits::ONCE_ENTRIES, 16);
        let then = entry.plus(8);
        let now = self.frame(at::NOW);
        let result = self.copy(Operand::Constant(1));
        self.block(|this, forgotten| {
            let of_entry = this.load(entry, &U64);
            this.exit_if(Relation::NotEqual, of_entry, key, forgotten);
            let time = this.load(then, &U64);
            this.exit_if(Relation::Equal, time, ZERO, forgotten);
            let ago = this.binary(Operator::Subtract, now, time);
            let sign = this.binary(Operator::ShiftRightSigned, ago, Operand::Constant(63));
            let not_negative = this.binary(Operator::Xor, sign, Operand::Constant(-1));
            let ago = this.binary(Operator::And, ago, not_negative);
            let ago_us = this.binary(Operator::Divide, ago, Operand::Constant(1000));
            this.exit_if(Relation::LessEqual, ttl_us, ago_us, forgotten);
            this.set(result, ZERO);
            Ok(())
        })?;
        self.when(
            Relation::NotEqual,
            Operand::Register(result),
            ZERO,
            |this| {
                this.store(entry, key, &U64);
                this.store(then, now, &U64);
                Ok(())
            },
        )?;
        Ok(Operand::Register(result))
    }
}
