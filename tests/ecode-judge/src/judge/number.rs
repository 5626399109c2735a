//! Numbers: mathematical ones, cut to their type.

use ecode::tree::BinaryOperator;
use ecode::types::{Int, Type};

const MILLION: i64 = 1_000_000;

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
        (Type::Fixed, _) => cut(value / i128::from(MILLION), to),
        (_, Type::Fixed) => cut(value * i128::from(MILLION), to),
        _ => cut(value, to),
    }
}

/// `a OP b` in this type; of a shift, `b` is the count.
pub(super) fn combine(operator: BinaryOperator, a: i128, b: i128, ty: &Type) -> i128 {
    let int = int_of(ty);
    let count = b.rem_euclid(i128::from(int.bits));
    let result = match operator {
        BinaryOperator::Multiply if *ty == Type::Fixed => multiply(a as i64, b as i64),
        BinaryOperator::Divide if *ty == Type::Fixed => divide(a as i64, b as i64),
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

/// The product of two fixed numbers, by the language's formula.
fn multiply(a: i64, b: i64) -> i128 {
    let (a_whole, a_part) = (a / MILLION, a % MILLION);
    let (b_whole, b_part) = (b / MILLION, b % MILLION);
    let parts = a_part.wrapping_mul(b_part) / MILLION;
    let sum = a_whole
        .wrapping_mul(b)
        .wrapping_add(a_part.wrapping_mul(b_whole));
    i128::from(sum.wrapping_add(parts))
}

/// Their quotient: the whole number, then two times three digits.
fn divide(a: i64, b: i64) -> i128 {
    if b == 0 {
        return 0;
    }
    let mut quotient = a.wrapping_div(b);
    let mut rest = a.wrapping_rem(b);
    for _ in 0..2 {
        let more = rest.wrapping_mul(1000);
        quotient = quotient
            .wrapping_mul(1000)
            .wrapping_add(more.wrapping_div(b));
        rest = more.wrapping_rem(b);
    }
    i128::from(quotient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dice;

    #[test]
    fn fixed_numbers_are_exact_where_the_result_fits() {
        let mut dice = Dice::new(1);
        for _ in 0..100_000 {
            let a = (dice.any() as i64) >> (20 + dice.below(40));
            let b = (dice.any() as i64) >> (20 + dice.below(40));
            let (wide_a, wide_b) = (i128::from(a), i128::from(b));
            let product = multiply(a, b);
            let exact = wide_a * wide_b / i128::from(MILLION);
            if i64::try_from(exact).is_ok() {
                assert!(product == exact, "{a} * {b} = {product}, not {exact}");
            }
            if b == 0 || i64::try_from(wide_b * 1000).is_err() {
                continue;
            }
            let quotient = divide(a, b);
            let exact = wide_a * i128::from(MILLION) / wide_b;
            if i64::try_from(exact).is_ok() {
                assert!(quotient == exact, "{a} / {b} = {quotient}, not {exact}");
            }
        }
    }

    #[test]
    fn numbers_are_cut_to_their_type() {
        assert_eq!(cut(300, &Type::Int(Int::CHAR)), 44);
        assert_eq!(cut(200, &Type::Int(Int::CHAR)), -56);
        assert_eq!(cut(-1, &Type::Int(Int::UNSIGNED_LONG)), (1 << 64) - 1);
        assert_eq!(cut(1 << 63, &Type::Int(Int::LONG)), -1 << 63);
    }
}
