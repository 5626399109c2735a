//! Expressions: [`Lowering::value`] computes the value; [`Lowering::effect`] is for expressions
//! whose value is not used.
//!
//! Updates of statics are atomic where an instruction exists for it, which also returns the former
//! value. The value of the update is computed from that: so no update is lost, and no two runs get
//! the same number of `n++`.

use super::condition::is_simple;
use super::place::Found;
use super::{Lowered, Lowering};
use crate::ir::{Op, Operand, Operator, Register};
use crate::tree::{BinaryOperator, Expression, ExpressionKind, Place};
use crate::types::Type;

/// The parts of [`ExpressionKind::Update`].
#[derive(Clone, Copy)]
struct Update<'t> {
    place: &'t Place,
    operator: BinaryOperator,
    compute: &'t Type,
    by: &'t Expression,
    old: bool,
}

impl<'t> Lowering<'t> {
    /// The value of an expression; 0 for a void one.
    pub(super) fn value(&mut self, e: &'t Expression) -> Lowered<Operand> {
        self.nested(|this| {
            this.span = e.span;
            this.value_here(e)
        })
    }

    fn value_here(&mut self, e: &'t Expression) -> Lowered<Operand> {
        match &e.kind {
            ExpressionKind::Constant(value) => Ok(Operand::Constant(*value)),
            ExpressionKind::Load(place) => self.read(place),
            ExpressionKind::Arithmetic(operator, a, b) => self.combine(*operator, a, b, &e.ty),
            ExpressionKind::Negate(a) => {
                let value = self.value(a)?;
                self.span = e.span;
                Ok(self.negate(value, &e.ty))
            }
            ExpressionKind::Complement(a) => {
                let value = self.value(a)?;
                self.span = e.span;
                Ok(self.complement(value, &e.ty))
            }
            ExpressionKind::Not(a) if !is_simple(a) => self.decide(e),
            ExpressionKind::And(..) | ExpressionKind::Or(..) => self.decide(e),
            ExpressionKind::Compare(..)
            | ExpressionKind::Not(_)
            | ExpressionKind::CompareText { .. } => {
                let (relation, a, b) = self.relation(e)?;
                self.span = e.span;
                Ok(self.compare(relation, a, b))
            }
            ExpressionKind::Choice(condition, a, b) => self.choice(condition, a, b),
            ExpressionKind::Comma(a, b) => {
                self.effect(a)?;
                self.value(b)
            }
            ExpressionKind::Convert(a) => {
                let value = self.value(a)?;
                self.span = e.span;
                Ok(self.convert(value, &a.ty, &e.ty))
            }
            ExpressionKind::Assign(place, b) => self.assign(place, b),
            ExpressionKind::Update {
                place,
                operator,
                compute,
                by,
                old,
            } => {
                let update = Update {
                    place,
                    operator: *operator,
                    compute,
                    by,
                    old: *old,
                };
                self.update(update, e)
            }
            _ => self.whole(e),
        }
    }

    /// The other expressions: arrays, structs, strings and calls.
    fn whole(&mut self, e: &'t Expression) -> Lowered<Operand> {
        let nothing = Operand::Constant(0);
        match &e.kind {
            ExpressionKind::Copy { to, from } => self.copy_all(to, from).map(|()| nothing),
            ExpressionKind::Fill(place, values) => self.fill(place, values).map(|()| nothing),
            ExpressionKind::FillText(place, text) => self.fill_text(place, text).map(|()| nothing),
            ExpressionKind::Call(function, arguments) => self.call(*function, arguments),
            ExpressionKind::Builtin(builtin, arguments) => self.builtin(*builtin, arguments, e),
            ExpressionKind::ComparePlaces { text, with, prefix } => {
                self.compare_places(text, with, *prefix)
            }
            ExpressionKind::Length(place) => self.length(place),
            ExpressionKind::NextSink(after) => self.next_sink(after),
            ExpressionKind::Best { count, sink, key } => {
                self.best(count, *sink, key).map(|()| nothing)
            }
            _ => Ok(nothing),
        }
    }

    /// An expression that is evaluated for its effect.
    pub(super) fn effect(&mut self, e: &'t Expression) -> Lowered<()> {
        self.nested(|this| {
            this.span = e.span;
            match &e.kind {
                ExpressionKind::Update {
                    place,
                    operator,
                    compute,
                    by,
                    ..
                } => {
                    let operator = *operator;
                    let update = Update {
                        place,
                        operator,
                        compute,
                        by,
                        old: false,
                    };
                    this.update_only(update, e)
                }
                ExpressionKind::Comma(a, b) => {
                    this.effect(a)?;
                    this.effect(b)
                }
                ExpressionKind::Convert(a) => this.effect(a),
                ExpressionKind::Choice(condition, a, b) => {
                    this.choose(condition, |this| this.effect(a), |this| this.effect(b))
                }
                _ => this.value_here(e).map(|_| ()),
            }
        })
    }

    fn choice(
        &mut self,
        condition: &'t Expression,
        a: &'t Expression,
        b: &'t Expression,
    ) -> Lowered<Operand> {
        let result = self.register();
        let give = |this: &mut Self, value: &'t Expression| {
            let given = this.value(value)?;
            this.set(result, given);
            Ok(())
        };
        self.choose(condition, |this| give(this, a), |this| give(this, b))?;
        Ok(Operand::Register(result))
    }

    fn read(&mut self, place: &'t Place) -> Lowered<Operand> {
        match self.find(place)? {
            Found::Register(register) => Ok(Operand::Register(register)),
            Found::Memory(address) => {
                self.span = place.span;
                Ok(self.load(address, &place.ty))
            }
        }
    }

    fn assign(&mut self, place: &'t Place, value: &'t Expression) -> Lowered<Operand> {
        let found = self.find(place)?;
        let value = self.value(value)?;
        self.span = place.span;
        match found {
            Found::Register(register) => {
                self.set(register, value);
                Ok(Operand::Register(register))
            }
            Found::Memory(address) => {
                self.store(address, value, &place.ty);
                Ok(value)
            }
        }
    }

    fn update(&mut self, update: Update<'t>, e: &'t Expression) -> Lowered<Operand> {
        let found = self.find(update.place)?;
        let by = self.value(update.by)?;
        self.span = e.span;
        let old = self.register();
        if !self.update_at_once(found, by, update, Some(old)) {
            return self.update_found(found, by, update);
        }
        let ty = &update.place.ty;
        let before = match ty {
            // The atomic instruction extends it by zeros.
            Type::Int(int) if int.signed => self.wrap(Operand::Register(old), ty),
            _ => Operand::Register(old),
        };
        if update.old {
            return Ok(before);
        }
        let wide = self.convert(before, ty, update.compute);
        let after = self.arithmetic(update.operator, update.compute, wide, by)?;
        Ok(self.convert(after, update.compute, ty))
    }

    fn update_found(&mut self, found: Found, by: Operand, update: Update<'t>) -> Lowered<Operand> {
        let ty = &update.place.ty;
        let before = match found {
            Found::Register(register) if update.old => {
                Operand::Register(self.copy(Operand::Register(register)))
            }
            Found::Register(register) => Operand::Register(register),
            Found::Memory(address) => self.load(address, ty),
        };
        let wide = self.convert(before, ty, update.compute);
        let result = self.arithmetic(update.operator, update.compute, wide, by)?;
        let after = self.convert(result, update.compute, ty);
        let kept = match found {
            Found::Register(register) => {
                self.set(register, after);
                Operand::Register(register)
            }
            Found::Memory(address) => {
                self.store(address, after, ty);
                after
            }
        };
        Ok(if update.old { before } else { kept })
    }

    /// An update whose value is not used.
    fn update_only(&mut self, update: Update<'t>, e: &'t Expression) -> Lowered<()> {
        let found = self.find(update.place)?;
        let by = self.value(update.by)?;
        self.span = e.span;
        if !self.update_at_once(found, by, update, None) {
            self.update_found(found, by, update)?;
        }
        Ok(())
    }

    /// The update as one atomic instruction, which writes the former value to `old`. False: it
    /// cannot be one, and no instruction was emitted.
    fn update_at_once(
        &mut self,
        found: Found,
        by: Operand,
        update: Update<'t>,
        old: Option<Register>,
    ) -> bool {
        let (Found::Memory(to), Some(operator)) = (found, self.atomic(update)) else {
            return false;
        };
        let (bits, _) = super::place::width(&update.place.ty);
        let (operator, value) = match operator {
            Operator::Subtract => {
                let value = self.binary(Operator::Subtract, Operand::Constant(0), by);
                (Operator::Add, value)
            }
            _ => (operator, by),
        };
        self.emit(Op::Atomic {
            old,
            to,
            operator,
            value,
            bits,
        });
        true
    }

    /// The operator, if the update of this place is atomic.
    fn atomic(&self, update: Update<'t>) -> Option<Operator> {
        let is_fixed = match (&update.place.ty, update.compute) {
            (Type::Int(int), Type::Int(_)) if int.bits >= 32 => false,
            (Type::Fixed, Type::Fixed) => true,
            _ => return None,
        };
        if !self.is_static(update.place.variable) {
            return None;
        }
        match update.operator {
            BinaryOperator::Add => Some(Operator::Add),
            BinaryOperator::Subtract => Some(Operator::Subtract),
            BinaryOperator::And if !is_fixed => Some(Operator::And),
            BinaryOperator::Or if !is_fixed => Some(Operator::Or),
            BinaryOperator::Xor if !is_fixed => Some(Operator::Xor),
            _ => None,
        }
    }
}
