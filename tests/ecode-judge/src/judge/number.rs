//! Numbers: mathematical ones, cut to their type.

use ecode::tree::BinaryOperator;
use ecode::types::{Int, Type};

const MILLION: i128 = 1_000_000;

/// A type's bits and sign.
fn int_of(ty: &Type) -> Int {
    match ty {
        Type::Int(int) => *int,
        Type::Bool => Int::new(8, false),
        _ => Int::LONG,
    }
}

/// A number in this type: the only one of its values that differs by a multiple of 2^bits.
pub(super) fn cut(value: i128, ty: &Type) -> i128 {
    let int = int_of(ty);
    let modulus = 1i128 << int.bits;
    let low = value.rem_euclid(modulus);
    if int.signed && low >= modulus / 2 {
        low - modulus
    } else {
        low
    }
}

/// The number that bytes of memory are.
pub(super) fn from_bytes(bytes: &[u8], ty: &Type) -> i128 {
    let number = bytes
        .iter()
        .rev()
        .fold(0i128, |number, byte| number << 8 | i128::from(*byte));
    match ty {
        Type::Bool => i128::from(number != 0),
        _ => cut(number, ty),
    }
}

/// A number in another type.
pub(super) fn convert(value: i128, from: &Type, to: &Type) -> i128 {
    match (from, to) {
        (_, Type::Bool) => i128::from(value != 0),
        (Type::Fixed, Type::Fixed) => value,
        (Type::Fixed, _) => cut(value / MILLION, to),
        (_, Type::Fixed) => cut(value * MILLION, to),
        _ => cut(value, to),
    }
}

/// `a OP b` in this type; of a shift, `b` is the count.
pub(super) fn combine(operator: BinaryOperator, a: i128, b: i128, ty: &Type) -> i128 {
    let int = int_of(ty);
    let count = b.rem_euclid(i128::from(int.bits));
    let result = match operator {
        BinaryOperator::Multiply if *ty == Type::Fixed => a * b / MILLION,
        BinaryOperator::Divide if *ty == Type::Fixed && b != 0 => a * MILLION / b,
        BinaryOperator::Add => a + b,
        BinaryOperator::Subtract => a - b,
        BinaryOperator::Multiply => cut(a, &Type::Int(Int::LONG)) * b,
        BinaryOperator::Divide if b == 0 => 0,
        BinaryOperator::Divide => a / b,
        BinaryOperator::Remainder if b == 0 => a,
        BinaryOperator::Remainder => a % b,
        BinaryOperator::ShiftLeft => (a & ((1 << 64) - 1)) << count,
        BinaryOperator::ShiftRight => a >> count,
        BinaryOperator::And => a & b,
        BinaryOperator::Or => a | b,
        BinaryOperator::Xor => a ^ b,
        BinaryOperator::Less => i128::from(a < b),
        BinaryOperator::LessEqual => i128::from(a <= b),
        BinaryOperator::Greater => i128::from(a > b),
        BinaryOperator::GreaterEqual => i128::from(a >= b),
        BinaryOperator::Equal => i128::from(a == b),
        BinaryOperator::NotEqual => i128::from(a != b),
    };
    cut(result, ty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_cut_to_their_type() {
        assert_eq!(cut(300, &Type::Int(Int::CHAR)), 44);
        assert_eq!(cut(200, &Type::Int(Int::CHAR)), -56);
        assert_eq!(cut(-1, &Type::Int(Int::UNSIGNED_LONG)), (1 << 64) - 1);
        assert_eq!(cut(1 << 63, &Type::Int(Int::LONG)), -1 << 63);
    }
}
