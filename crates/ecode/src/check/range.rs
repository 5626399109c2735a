//! Which values an expression can have, seen from its type and its outermost operators; and the
//! comparisons that are decided by it, whatever the event: they do not do what somebody meant.

use super::Checker;
use super::conversion::{constant_of, shown};
use crate::source::Span;
use crate::tree::{BinaryOperator, Expression, ExpressionKind, Place};
use crate::types::{FIXED_ONE, Int, Type};

/// Least and greatest value, both possible.
pub(crate) type Range = (i128, i128);

const ONE: i128 = FIXED_ONE as i128;

fn of_int(int: Int) -> Range {
    let bits = u32::from(int.bits);
    if int.signed {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    }
}

fn of_type(ty: &Type) -> Option<Range> {
    match ty {
        Type::Bool => Some((0, 1)),
        Type::Int(int) => Some(of_int(*int)),
        _ => None,
    }
}

/// The range of an expression of integer type.
pub(crate) fn range(expression: &Expression) -> Option<Range> {
    range_with(expression, &|_| None)
}

/// The same where the ranges of some places are known.
pub(crate) fn range_with(
    expression: &Expression,
    known: &dyn Fn(&Place) -> Option<Range>,
) -> Option<Range> {
    let all = of_type(&expression.ty)?;
    match &expression.kind {
        ExpressionKind::Constant(value) => {
            let unsigned = matches!(expression.ty, Type::Int(int) if !int.signed);
            let value = if unsigned {
                i128::from(*value as u64)
            } else {
                i128::from(*value)
            };
            Some((value, value))
        }
        ExpressionKind::Load(place) => Some(known(place).unwrap_or(all)),
        ExpressionKind::Convert(inner) => {
            let inner = range_with(inner, known)?;
            let fits = inner.0 >= all.0 && inner.1 <= all.1;
            Some(if fits && expression.ty != Type::Bool {
                inner
            } else {
                all
            })
        }
        ExpressionKind::Arithmetic(operator, a, by) => {
            let (a, by) = (range_with(a, known)?, range_with(by, known)?);
            let result = computed(*operator, a, by);
            let fits = |range: &Range| range.0 >= all.0 && range.1 <= all.1;
            Some(result.filter(fits).unwrap_or(all))
        }
        _ => Some(all),
    }
}

/// The exact results of an operator. `None`: nothing is known.
fn computed(operator: BinaryOperator, a: Range, by: Range) -> Option<Range> {
    let known = by.0 == by.1 && by.0 > 0;
    match operator {
        BinaryOperator::Add => Some((a.0 + by.0, a.1 + by.1)),
        BinaryOperator::Subtract => Some((a.0 - by.1, a.1 - by.0)),
        BinaryOperator::Multiply => product(a, by),
        BinaryOperator::And if known => Some((0, by.1)),
        BinaryOperator::Remainder if known => {
            let low = if a.0 < 0 { 1 - by.1 } else { 0 };
            Some((low, by.1 - 1))
        }
        _ => None,
    }
}

fn product(a: Range, b: Range) -> Option<Range> {
    let all = [(a.0, b.0), (a.0, b.1), (a.1, b.0), (a.1, b.1)];
    let all = all.map(|(a, b)| a.checked_mul(b));
    let least = all.iter().copied().min()??;
    let most = all.iter().copied().max()??;
    Some((least, most))
}

/// The range of a `fixed` expression in millionths, where it is known and nothing has wrapped.
fn fixed_range(expression: &Expression) -> Option<Range> {
    let of = match &expression.kind {
        ExpressionKind::Constant(value) => (i128::from(*value), i128::from(*value)),
        ExpressionKind::Convert(inner) if inner.ty != Type::Fixed => {
            let (least, most) = range(inner)?;
            (least * ONE, most * ONE)
        }
        ExpressionKind::Arithmetic(operator, a, b) => {
            fixed_result(*operator, fixed_range(a)?, fixed_range(b)?)?
        }
        _ => return None,
    };
    fits_fixed(of).then_some(of)
}

fn fixed_result(operator: BinaryOperator, a: Range, b: Range) -> Option<Range> {
    match operator {
        BinaryOperator::Multiply => product(a, b).map(|(least, most)| (least / ONE, most / ONE)),
        BinaryOperator::Divide if a.0 == a.1 && b.0 == b.1 && b.0 != 0 => {
            let quotient = a.0 * ONE / b.0;
            Some((quotient, quotient))
        }
        BinaryOperator::Add | BinaryOperator::Subtract => computed(operator, a, b),
        _ => None,
    }
}

fn fits_fixed((least, most): Range) -> bool {
    least >= i128::from(i64::MIN) && most <= i128::from(i64::MAX)
}

/// What a comparison always gives, if it is always the same.
fn always(operator: BinaryOperator, a: Range, b: Range) -> Option<bool> {
    use BinaryOperator as Op;
    let (below, above) = (a.1 < b.0, a.0 > b.1);
    match operator {
        Op::Equal => (below || above).then_some(false),
        Op::NotEqual => (below || above).then_some(true),
        Op::Less => decided(below, a.0 >= b.1),
        Op::GreaterEqual => decided(a.0 >= b.1, below),
        Op::Greater => decided(above, a.1 <= b.0),
        Op::LessEqual => decided(a.1 <= b.0, above),
        _ => None,
    }
}

fn decided(yes: bool, no: bool) -> Option<bool> {
    match (yes, no) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

impl Checker<'_> {
    /// Warns of an operator whose exact result its type does not hold: of constants, where it is
    /// meant as they stand there; of `fixed` numbers, where their ranges are known.
    pub(super) fn warn_of_overflow(
        &mut self,
        operator: BinaryOperator,
        (a, b): (&Expression, &Expression),
        span: Span,
    ) {
        if a.ty == Type::Fixed {
            let result = fixed_range(a)
                .zip(fixed_range(b))
                .and_then(|(a, b)| fixed_result(operator, a, b));
            if let Some((least, most)) = result.filter(|result| !fits_fixed(*result)) {
                let far = if most > i128::from(i64::MAX) {
                    most
                } else {
                    least
                };
                let message = format!("this may wrap: {} is beyond 'fixed'", far / ONE);
                let hint = "numbers end at 9223372036854.775807: divide before you multiply, or \
                            compute with u64";
                self.warn(span, message, hint);
            }
            return;
        }
        let (Some(_), Some(_), Type::Int(int)) = (constant_of(a), constant_of(b), &a.ty) else {
            return;
        };
        let all_bits = !int.signed && constant_of(a) == Some(0);
        let exact = match operator {
            BinaryOperator::Subtract if all_bits => None,
            BinaryOperator::Add | BinaryOperator::Subtract | BinaryOperator::Multiply => range(a)
                .zip(range(b))
                .and_then(|(a, b)| computed(operator, a, b)),
            _ => None,
        };
        let Some((exact, _)) = exact else { return };
        let becomes = int.wrap(exact as i64);
        let (least, most) = of_int(*int);
        if exact >= least && exact <= most {
            return;
        }
        let name = self.type_name(&a.ty);
        let becomes = shown(becomes, *int);
        let message = format!("{exact} does not fit: as {name} it becomes {becomes}");
        let hint = match exact < 0 && !int.signed {
            true => "begin with a number that has a sign: 1l * ...".to_owned(),
            false if i64::try_from(exact).is_ok() => {
                format!("write {exact}, or begin with a long: 1l * ...")
            }
            false => "compute with smaller numbers".to_owned(),
        };
        self.warn(span, message, hint);
    }

    /// Warns of a comparison, its operands converted, whose result is known without looking. At
    /// least one operand is a constant then, and what it was before (`a`, `b`: the types).
    pub(super) fn warn_if_decided(
        &mut self,
        operator: BinaryOperator,
        (a, b): (&Expression, &Expression),
        negative: Option<i64>,
        span: Span,
    ) {
        let constants = (constant_of(a), constant_of(b));
        if let ((None, None) | (Some(_), Some(_)), Type::Int(_)) = (constants, &a.ty) {
            return;
        }
        let (Some(of_a), Some(of_b)) = (range(a), range(b)) else {
            return;
        };
        if let Some(result) = always(operator, of_a, of_b) {
            let other = if constants.0.is_some() { of_b } else { of_a };
            let hint = format!("the other side is {} to {}", other.0, other.1);
            self.warn(span, format!("this comparison is always {result}"), hint);
        } else if let (Some(before), Type::Int(int)) = (negative, &a.ty) {
            let equality = matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual);
            if !equality && !int.signed {
                let after = shown(int.wrap(before), *int);
                self.warn(
                    span,
                    format!("{before} is compared without sign: as {after}"),
                    "convert the other side: (long)(...)",
                );
            }
        }
    }
}
