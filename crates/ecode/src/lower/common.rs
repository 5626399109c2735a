//! Moves instructions that both branches of an `if` execute out of it: those at their beginnings
//! before the `if`, those at their ends behind it.

use super::simplify::Simplifier;
use super::unroll::rename;
use crate::ir::{Address, Instruction, Op, Operand, Register};

impl Simplifier {
    /// Computes before an `if` the instructions with which both branches begin.
    pub(super) fn take_out(
        &mut self,
        then: &mut Vec<Instruction>,
        otherwise: &mut Vec<Instruction>,
        out: &mut Vec<Instruction>,
    ) {
        while let (Some(here), Some(there)) = (first(then), first(otherwise))
            && let (
                Op::Binary { to, operator, a, b },
                Op::Binary {
                    to: other,
                    operator: other_operator,
                    a: other_a,
                    b: other_b,
                },
            ) = (&then[here].op, &otherwise[there].op)
            && (operator, a, b) == (other_operator, other_a, other_b)
            && self.unroll.is_written_once(*to)
            && self.unroll.is_written_once(*other)
            && !writes_one_of(&then[..here], [*a, *b])
            && !writes_one_of(&otherwise[..there], [*a, *b])
        {
            let (to, other, operands) = (*to, *other, [*a, *b]);
            let instruction = then.remove(here);
            otherwise.remove(there);
            rename(otherwise, other, to);
            // The facts are those after the `if`, where its operands may have changed.
            if writes_one_of(then, operands) || writes_one_of(otherwise, operands) {
                self.facts.forget(to);
            } else {
                self.facts.apply(&instruction.op);
            }
            out.push(instruction);
        }
    }

    /// Removes the store with which both branches end, if it is to the same place. The branches
    /// leave the value in a register instead, and the caller stores it behind them.
    pub(super) fn sink_store(
        &mut self,
        then: &mut Vec<Instruction>,
        otherwise: &mut Vec<Instruction>,
    ) -> Option<Instruction> {
        let (
            Op::Store { to, value, bits },
            Op::Store {
                to: other,
                value: other_value,
                bits: other_bits,
            },
        ) = (&then.last()?.op, &otherwise.last()?.op)
        else {
            return None;
        };
        if (to, bits) != (other, other_bits) || !self.is_kept(to, then, otherwise) {
            return None;
        }
        let (to, bits, values) = (*to, *bits, [*value, *other_value]);
        let register = self.unroll.register();
        self.facts.grow(self.unroll.registers());
        let span = then.last()?.span;
        for (list, from) in [then, otherwise].into_iter().zip(values) {
            let last = list.last_mut()?;
            last.op = Op::Set { to: register, from };
        }
        self.facts.forget(register);
        let value = Operand::Register(register);
        let op = Op::Store { to, value, bits };
        Some(Instruction { op, span })
    }

    /// Whether neither branch changes the registers of an address.
    fn is_kept(&self, to: &Address, then: &[Instruction], otherwise: &[Instruction]) -> bool {
        let Some(index) = to.index else { return true };
        let register = [Operand::Register(index.register)];
        !writes_one_of(then, register) && !writes_one_of(otherwise, register)
    }
}

/// The first instruction that is not a copy.
fn first(list: &[Instruction]) -> Option<usize> {
    list.iter()
        .position(|one| !matches!(one.op, Op::Set { .. }))
}

/// Whether these instructions write one of the operands.
fn writes_one_of<const N: usize>(list: &[Instruction], operands: [Operand; N]) -> bool {
    list.iter().any(|one| {
        let writes = |to: Register| operands.contains(&Operand::Register(to));
        one.op.writes().is_some_and(writes)
            || one.op.bodies().any(|inner| writes_one_of(inner, operands))
    })
}
