//! Numbers: the instructions that change only a register.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use ecode::ir::{Op, Operand, Operator, Register};

use super::Translator;
use crate::error::Error;

impl Translator<'_> {
    /// The register that an instruction writes and its value, if it is one of these.
    pub(super) fn computed(&mut self, op: &Op) -> Result<Option<(Register, Value)>, Error> {
        let (to, value) = match *op {
            Op::Set { to, from } => (to, self.value(from)?),
            Op::Binary { to, operator, a, b } => {
                let operands = (self.value(a)?, self.value(b)?);
                let value = match b {
                    Operand::Constant(number) if !matches!(number, 0 | -1) => {
                        self.divided_by_safe(operator, operands)
                    }
                    _ => None,
                };
                (
                    to,
                    value.unwrap_or_else(|| self.binary(operator, operands.0, operands.1)),
                )
            }
            Op::Compare { to, relation, a, b } => {
                let holds = self.condition((relation, a, b))?;
                (to, self.builder.ins().uextend(I64, holds))
            }
            Op::Extend {
                to,
                from,
                bits,
                signed,
            } => {
                let from = self.value(from)?;
                (to, self.extend(from, bits, signed))
            }
            Op::NextBit { to, mask, after } => {
                let (mask, after) = (self.value(mask)?, self.value(after)?);
                (to, self.next_bit(mask, after))
            }
            _ => return Ok(None),
        };
        Ok(Some((to, value)))
    }

    fn extend(&mut self, from: Value, bits: u8, signed: bool) -> Value {
        let narrow = match bits {
            8 => I8,
            16 => I16,
            _ => I32,
        };
        let low = self.builder.ins().ireduce(narrow, from);
        if signed {
            self.builder.ins().sextend(I64, low)
        } else {
            self.builder.ins().uextend(I64, low)
        }
    }

    /// The processor takes counts of shifts modulo 64, as the IR does.
    pub(super) fn binary(&mut self, operator: Operator, a: Value, b: Value) -> Value {
        let ins = self.builder.ins();
        match operator {
            Operator::Add => ins.iadd(a, b),
            Operator::Subtract => ins.isub(a, b),
            Operator::Multiply => ins.imul(a, b),
            Operator::And => ins.band(a, b),
            Operator::Or => ins.bor(a, b),
            Operator::Xor => ins.bxor(a, b),
            Operator::ShiftLeft => ins.ishl(a, b),
            Operator::ShiftRight => ins.ushr(a, b),
            Operator::ShiftRightSigned => ins.sshr(a, b),
            Operator::Divide | Operator::Remainder => self.divide(operator, a, b),
            Operator::DivideSigned | Operator::RemainderSigned => {
                self.divide_signed(operator, a, b)
            }
        }
    }

    /// A division by a number that is neither 0 nor -1.
    fn divided_by_safe(&mut self, operator: Operator, (a, b): (Value, Value)) -> Option<Value> {
        let ins = self.builder.ins();
        Some(match operator {
            Operator::Divide => ins.udiv(a, b),
            Operator::Remainder => ins.urem(a, b),
            Operator::DivideSigned => ins.sdiv(a, b),
            Operator::RemainderSigned => ins.srem(a, b),
            _ => return None,
        })
    }

    /// By 0 the processor traps: then it divides by 1, and the result is put in its place.
    fn divide(&mut self, operator: Operator, a: Value, b: Value) -> Value {
        let is_zero = self.equals(b, 0);
        let one = self.number(1);
        let by = self.builder.ins().select(is_zero, one, b);
        let (value, otherwise) = if operator == Operator::Divide {
            (self.builder.ins().udiv(a, by), self.number(0))
        } else {
            (self.builder.ins().urem(a, by), a)
        };
        self.builder.ins().select(is_zero, otherwise, value)
    }

    /// The same, and by -1, by which the smallest number has no quotient.
    fn divide_signed(&mut self, operator: Operator, a: Value, b: Value) -> Value {
        let (is_zero, is_minus) = (self.equals(b, 0), self.equals(b, -1));
        let is_special = self.builder.ins().bor(is_zero, is_minus);
        let one = self.number(1);
        let by = self.builder.ins().select(is_special, one, b);
        let none = self.number(0);
        let (value, of_zero, of_minus) = if operator == Operator::DivideSigned {
            let negative = self.builder.ins().ineg(a);
            (self.builder.ins().sdiv(a, by), none, negative)
        } else {
            (self.builder.ins().srem(a, by), a, none)
        };
        let value = self.builder.ins().select(is_minus, of_minus, value);
        self.builder.ins().select(is_zero, of_zero, value)
    }

    fn equals(&mut self, value: Value, number: i64) -> Value {
        let number = self.number(number);
        self.builder.ins().icmp(IntCC::Equal, value, number)
    }

    /// `ecode::ir::next_bit`
    fn next_bit(&mut self, mask: Value, after: Value) -> Value {
        let (none, one, all) = (self.number(0), self.number(1), self.number(-1));
        let count = self.builder.ins().iadd(after, one);
        let higher = self.builder.ins().ishl(all, count);
        let above = self.builder.ins().band(mask, higher);
        let last = self.number(63);
        let code = IntCC::SignedGreaterThanOrEqual;
        let is_last = self.builder.ins().icmp(code, after, last);
        let above = self.builder.ins().select(is_last, none, above);
        let code = IntCC::SignedLessThan;
        let is_first = self.builder.ins().icmp(code, after, none);
        let above = self.builder.ins().select(is_first, mask, above);
        let lowest = self.builder.ins().ctz(above);
        let is_none = self.equals(above, 0);
        self.builder.ins().select(is_none, all, lowest)
    }
}
