//! C's operators and conversions as on x86-64, in the 64-bit operators of the IR. Operands and
//! results of narrower types are extended to 64 bits.
//!
//! `fixed` counts millionths. With a = ai * 10^6 + af (division towards zero) and b likewise,
//!
//! ```text
//! a * b = ai * b + af * bi + af * bf / 10^6
//! a / b = q * 10^6 + r * 10^6 / b        q = a / b, r = a % b
//! ```
//!
//! in 64 bits that wrap: the exact result modulo 2^64, without wider numbers. If b is an integer n
//! of at most 32 bits, these are a * n and a / n. Where |b| > 2^43, r * 10^6 may need more than 64
//! bits; see [`Lowering::divide_by_large`].

use super::condition::is_signed;
use super::{Lowered, Lowering};
use crate::ir::{Op, Operand, Operator, Relation};
use crate::tree::{BinaryOperator, Expression, ExpressionKind};
use crate::types::{FIXED_ONE, Int, Type};

const ONE: Operand = Operand::Constant(FIXED_ONE);

impl<'t> Lowering<'t> {
    /// `a OP b` in the expression's type.
    pub(super) fn combine(
        &mut self,
        operator: BinaryOperator,
        a: &'t Expression,
        b: &'t Expression,
        ty: &Type,
    ) -> Lowered<Operand> {
        let left = self.value(a)?;
        let left = self.hold(left, b);
        if let (Type::Fixed, Some(whole)) = (ty, whole_number(b)) {
            let right = self.value(whole)?;
            return Ok(match operator {
                BinaryOperator::Multiply => self.binary(Operator::Multiply, left, right),
                BinaryOperator::Divide => self.binary(Operator::DivideSigned, left, right),
                _ => {
                    let right = self.binary(Operator::Multiply, right, ONE);
                    return self.arithmetic(operator, ty, left, right);
                }
            });
        }
        let right = self.value(b)?;
        self.arithmetic(operator, ty, left, right)
    }

    /// `a OP b` of values of this type; the count of a shift may have any type.
    pub(super) fn arithmetic(
        &mut self,
        operator: BinaryOperator,
        ty: &Type,
        a: Operand,
        b: Operand,
    ) -> Lowered<Operand> {
        match (ty, operator) {
            (Type::Fixed, BinaryOperator::Multiply) => return Ok(self.multiply_fixed(a, b)),
            (Type::Fixed, BinaryOperator::Divide) => return self.divide_fixed(a, b),
            _ => {}
        }
        let signed = is_signed(ty);
        let kind = operator;
        let Some(operator) = Operator::of_integers(kind, signed) else {
            let (relation, a, b) = super::condition::compared(kind, signed, a, b);
            return Ok(self.compare(relation, a, b));
        };
        // The result of any other operator is in the type's range if the operands are.
        let wraps = match kind {
            BinaryOperator::Add | BinaryOperator::Subtract | BinaryOperator::Multiply => true,
            BinaryOperator::ShiftLeft => true,
            _ => operator == Operator::DivideSigned,
        };
        let is_shift = matches!(
            operator,
            Operator::ShiftLeft | Operator::ShiftRight | Operator::ShiftRightSigned
        );
        let b = match ty {
            Type::Int(int) if is_shift => {
                self.binary(Operator::And, b, Operand::Constant(i64::from(int.bits) - 1))
            }
            _ => b,
        };
        let result = match (operator, b) {
            (Operator::DivideSigned, Operand::Constant(by @ 2..)) if by & (by - 1) == 0 => {
                self.divide_by_power(a, by)
            }
            _ => self.binary(operator, a, b),
        };
        Ok(if wraps { self.wrap(result, ty) } else { result })
    }

    /// `a / by` towards zero, of a number with sign by a power of two: a shift, before which a
    /// negative number gets `by - 1`. In the kernel that takes a quarter of a division's time.
    fn divide_by_power(&mut self, a: Operand, by: i64) -> Operand {
        let sign = self.binary(Operator::ShiftRightSigned, a, Operand::Constant(63));
        let plus = self.binary(Operator::And, sign, Operand::Constant(by - 1));
        let sum = self.binary(Operator::Add, a, plus);
        let bits = Operand::Constant(i64::from(by.trailing_zeros()));
        self.binary(Operator::ShiftRightSigned, sum, bits)
    }

    fn multiply_fixed(&mut self, a: Operand, b: Operand) -> Operand {
        let (a_whole, a_part) = self.split(a);
        let (b_whole, b_part) = self.split(b);
        let first = self.binary(Operator::Multiply, a_whole, b);
        let second = self.binary(Operator::Multiply, a_part, b_whole);
        let third = self.binary(Operator::Multiply, a_part, b_part);
        let third = self.binary(Operator::DivideSigned, third, ONE);
        let sum = self.binary(Operator::Add, first, second);
        self.binary(Operator::Add, sum, third)
    }

    /// The whole number and the millionths beyond it.
    fn split(&mut self, a: Operand) -> (Operand, Operand) {
        let whole = self.binary(Operator::DivideSigned, a, ONE);
        (whole, self.binary(Operator::RemainderSigned, a, ONE))
    }

    /// q * 10^6 + r * 10^6 / b; the second term by the formula above where |b| <= 2^43.
    fn divide_fixed(&mut self, a: Operand, b: Operand) -> Lowered<Operand> {
        let quotient = self.binary(Operator::DivideSigned, a, b);
        let rest = self.binary(Operator::RemainderSigned, a, b);
        let whole = self.binary(Operator::Multiply, quotient, ONE);
        let result = self.copy(whole);
        let plus = |this: &mut Self, digits| {
            let sum = this.binary(Operator::Add, Operand::Register(result), digits);
            this.set(result, sum);
            Ok(())
        };
        // 0 or 1 if -2^43 <= b < 2^43.
        let high = self.binary(Operator::ShiftRightSigned, b, Operand::Constant(43));
        let high = self.binary(Operator::Add, high, Operand::Constant(1));
        let span = self.span;
        let then = self.collect(|this| {
            let more = this.binary(Operator::Multiply, rest, ONE);
            let digits = this.binary(Operator::DivideSigned, more, b);
            plus(this, digits)
        })?;
        let otherwise = self.collect(|this| {
            let digits = this.divide_by_large(rest, b);
            plus(this, digits)
        })?;
        self.span = span;
        self.emit(Op::If {
            relation: Relation::LessEqual,
            a: high,
            b: Operand::Constant(1),
            then,
            otherwise,
        });
        Ok(Operand::Register(result))
    }

    /// r * 10^6 / b for |r| < |b| and |b| >= 2^43. Of the magnitudes, d = r / (b / 10^6 + 1) is the
    /// result or one less: the two differ by less than 10^6 / (b / 10^6), which is below 1. What
    /// remains, r * 10^6 - d * b, is below 2 * b <= 2^64, so it is exact in 64 bits without sign,
    /// and says which.
    fn divide_by_large(&mut self, r: Operand, b: Operand) -> Operand {
        let (r_sign, r) = self.magnitude(r);
        let (b_sign, b) = self.magnitude(b);
        let unit = self.binary(Operator::Divide, b, ONE);
        let unit = self.binary(Operator::Add, unit, Operand::Constant(1));
        let digits = self.binary(Operator::Divide, r, unit);
        let all = self.binary(Operator::Multiply, r, ONE);
        let taken = self.binary(Operator::Multiply, digits, b);
        let remains = self.binary(Operator::Subtract, all, taken);
        let more = self.compare(Relation::LessEqual, b, remains);
        let digits = self.binary(Operator::Add, digits, more);
        let sign = self.binary(Operator::Xor, r_sign, b_sign);
        let digits = self.binary(Operator::Xor, digits, sign);
        self.binary(Operator::Subtract, digits, sign)
    }

    /// The sign (-1 or 0) and the magnitude of a number; the magnitude of the least number is 2^63.
    fn magnitude(&mut self, of: Operand) -> (Operand, Operand) {
        let sign = self.binary(Operator::ShiftRightSigned, of, Operand::Constant(63));
        let flipped = self.binary(Operator::Xor, of, sign);
        (sign, self.binary(Operator::Subtract, flipped, sign))
    }

    /// `-a`
    pub(super) fn negate(&mut self, a: Operand, ty: &Type) -> Operand {
        let result = self.binary(Operator::Subtract, Operand::Constant(0), a);
        self.wrap(result, ty)
    }

    /// `~a`
    pub(super) fn complement(&mut self, a: Operand, ty: &Type) -> Operand {
        let result = self.binary(Operator::Xor, a, Operand::Constant(-1));
        if is_signed(ty) {
            result
        } else {
            self.wrap(result, ty)
        }
    }

    /// Truncates a result to its type.
    pub(super) fn wrap(&mut self, value: Operand, ty: &Type) -> Operand {
        match ty {
            Type::Int(int) if int.bits < 64 => self.extend(value, *int),
            _ => value,
        }
    }

    fn extend(&mut self, from: Operand, int: Int) -> Operand {
        if let Operand::Constant(known) = from {
            return Operand::Constant(int.wrap(known));
        }
        let to = self.register();
        self.emit(Op::Extend {
            to,
            from,
            bits: int.bits,
            signed: int.signed,
        });
        Operand::Register(to)
    }

    /// 1 unless it is 0.
    pub(super) fn truth(&mut self, value: Operand) -> Operand {
        self.compare(Relation::NotEqual, value, Operand::Constant(0))
    }

    /// A value of one type in another.
    pub(super) fn convert(&mut self, value: Operand, from: &Type, to: &Type) -> Operand {
        match (from, to) {
            (Type::Bool, Type::Bool) | (Type::Fixed, Type::Fixed) => value,
            (_, Type::Bool) => self.truth(value),
            (Type::Fixed, Type::Int(_)) => {
                let whole = self.binary(Operator::DivideSigned, value, ONE);
                self.wrap(whole, to)
            }
            (Type::Int(_) | Type::Bool, Type::Fixed) => self.binary(Operator::Multiply, value, ONE),
            (Type::Int(from), Type::Int(to)) if !holds_all(*to, *from) => self.extend(value, *to),
            _ => value,
        }
    }
}

/// Whether a register with a value of type `from` needs no conversion to `to`.
fn holds_all(to: Int, from: Int) -> bool {
    to.bits == 64 || from == to || (from.bits < to.bits && (!from.signed || to.signed))
}

/// The integer of at most 32 bits from which a `fixed` expression was converted, if it was: such a
/// conversion does not wrap.
fn whole_number(e: &Expression) -> Option<&Expression> {
    match &e.kind {
        ExpressionKind::Convert(from) => match from.ty {
            Type::Int(int) if int.bits <= 32 => Some(from),
            _ => None,
        },
        _ => None,
    }
}
