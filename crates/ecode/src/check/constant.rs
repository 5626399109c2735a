//! Operators on constants, as the head of [`crate::tree`] defines them. A constant has 64 bits: the
//! value of its type, extended by its sign or by zeros; for `fixed`, the number of millionths.

use crate::ir::Operator;
use crate::tree::BinaryOperator;
use crate::types::{FIXED_ONE, Int, Type};

/// `a op b` of arithmetic, both of this type; a shift's count is an `unsigned int`.
pub(super) fn arithmetic(operator: BinaryOperator, ty: &Type, a: i64, b: i64) -> i64 {
    match ty {
        Type::Fixed => fixed(operator, a, b),
        Type::Int(int) => int.wrap(integer(operator, *int, a, b)),
        _ => 0,
    }
}

fn integer(operator: BinaryOperator, int: Int, a: i64, b: i64) -> i64 {
    use BinaryOperator as Op;
    let b = match operator {
        Op::ShiftLeft | Op::ShiftRight => b & i64::from(int.bits - 1),
        _ => b,
    };
    Operator::of_integers(operator, int.signed).map_or(0, |known| known.apply(a, b))
}

/// Operators on `fixed`: the exact result, truncated to millionths, modulo 2^64 of these.
fn fixed(operator: BinaryOperator, a: i64, b: i64) -> i64 {
    let (wide_a, wide_b, one) = (i128::from(a), i128::from(b), i128::from(FIXED_ONE));
    match operator {
        BinaryOperator::Add => a.wrapping_add(b),
        BinaryOperator::Subtract => a.wrapping_sub(b),
        BinaryOperator::Multiply => (wide_a * wide_b / one) as i64,
        BinaryOperator::Divide if b == 0 => 0,
        BinaryOperator::Divide => (wide_a * one / wide_b) as i64,
        BinaryOperator::Remainder if b == 0 => a,
        BinaryOperator::Remainder => a.wrapping_rem(b),
        _ => 0,
    }
}

/// `a op b` of a comparison, both of this type.
pub(super) fn compare(operator: BinaryOperator, ty: &Type, a: i64, b: i64) -> bool {
    use BinaryOperator as Op;
    let order = match ty {
        Type::Int(int) if !int.signed => (a as u64).cmp(&(b as u64)),
        _ => a.cmp(&b),
    };
    match operator {
        Op::Less => order.is_lt(),
        Op::LessEqual => order.is_le(),
        Op::Greater => order.is_gt(),
        Op::GreaterEqual => order.is_ge(),
        Op::Equal => order.is_eq(),
        _ => order.is_ne(),
    }
}

/// A value of one scalar type as one of another.
pub(super) fn convert(value: i64, from: &Type, to: &Type) -> i64 {
    match (from, to) {
        (_, Type::Bool) => i64::from(value != 0),
        (Type::Fixed, Type::Int(int)) => int.wrap(value / FIXED_ONE),
        (Type::Fixed, _) | (_, Type::Sink) => value,
        (_, Type::Fixed) => value.wrapping_mul(FIXED_ONE),
        (_, Type::Int(int)) => int.wrap(value),
        _ => value,
    }
}

/// The bytes of a value in memory.
pub(super) fn store(bytes: &mut [u8], offset: u32, ty: &Type, value: i64) {
    let size = match ty {
        Type::Bool => 1,
        Type::Int(int) => int.bytes() as usize,
        _ => 8,
    };
    if let Some(place) = bytes.get_mut(offset as usize..offset as usize + size) {
        place.copy_from_slice(&value.to_le_bytes()[..size]);
    }
}
