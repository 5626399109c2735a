//! Operators whose result is a constant or an operand: both operands are constants, or one of them
//! is the operator's neutral or absorbing element. Used when an instruction is made, and again by
//! `simplify`.

use crate::ir::{Operand, Operator, Relation};

/// The result, if it is a constant or one of the operands.
pub(super) fn binary(operator: Operator, a: Operand, b: Operand) -> Option<Operand> {
    let zero = Operand::Constant(0);
    match (a, b) {
        (Operand::Constant(a), Operand::Constant(b)) => {
            return Some(Operand::Constant(operator.apply(a, b)));
        }
        (Operand::Constant(a), _) => match (operator, a) {
            (Operator::Add | Operator::Or | Operator::Xor, 0) => return Some(b),
            (Operator::Multiply, 1) | (Operator::And, -1) => return Some(b),
            (Operator::Multiply | Operator::And, 0) => return Some(zero),
            (Operator::Or, -1) => return Some(Operand::Constant(-1)),
            (
                Operator::ShiftLeft
                | Operator::ShiftRight
                | Operator::ShiftRightSigned
                | Operator::Divide
                | Operator::DivideSigned
                | Operator::Remainder
                | Operator::RemainderSigned,
                0,
            ) => return Some(zero),
            _ => {}
        },
        (_, Operand::Constant(b)) => match (operator, b) {
            (Operator::Multiply | Operator::And | Operator::Divide, 0) => return Some(zero),
            (Operator::DivideSigned, 0) => return Some(zero),
            (Operator::Remainder | Operator::RemainderSigned, 1) => return Some(zero),
            (Operator::RemainderSigned, -1) => return Some(zero),
            (Operator::Or, -1) => return Some(Operand::Constant(-1)),
            (
                Operator::Add
                | Operator::Subtract
                | Operator::Or
                | Operator::Xor
                | Operator::ShiftLeft
                | Operator::ShiftRight
                | Operator::ShiftRightSigned
                | Operator::Remainder
                | Operator::RemainderSigned,
                0,
            )
            | (Operator::Multiply | Operator::Divide | Operator::DivideSigned, 1)
            | (Operator::And, -1) => return Some(a),
            _ => {}
        },
        (Operand::Register(_), Operand::Register(_)) => {}
    }
    match operator {
        Operator::Subtract | Operator::Xor if a == b => Some(zero),
        Operator::And | Operator::Or if a == b => Some(a),
        _ => None,
    }
}

/// Whether the relation holds, if the constants decide it.
pub(super) fn relation(relation: Relation, a: Operand, b: Operand) -> Option<bool> {
    match (a, b) {
        (Operand::Constant(a), Operand::Constant(b)) => Some(relation.holds(a, b)),
        _ if a == b => Some(relation.holds(0, 0)),
        // Without sign, no number is less than 0.
        (_, Operand::Constant(0)) if relation == Relation::Less => Some(false),
        (Operand::Constant(0), _) if relation == Relation::LessEqual => Some(true),
        _ => None,
    }
}
