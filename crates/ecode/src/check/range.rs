//! Which values an expression can have, seen from its type and its outermost operators; and the
//! comparisons that are decided by it, whatever the event: they do not do what somebody meant.

use super::Checker;
use super::conversion::{constant_of, shown};
use crate::source::Span;
use crate::tree::{BinaryOperator, Expression, ExpressionKind};
use crate::types::{Int, Type};

/// Least and greatest value, both possible.
type Range = (i128, i128);

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
pub(super) fn range(expression: &Expression) -> Option<Range> {
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
        ExpressionKind::Convert(inner) => {
            let inner = range(inner)?;
            let fits = inner.0 >= all.0 && inner.1 <= all.1;
            Some(if fits && expression.ty != Type::Bool {
                inner
            } else {
                all
            })
        }
        ExpressionKind::Arithmetic(operator, _, by) => {
            let by = range(by)?;
            let known = by.0 == by.1 && by.0 > 0;
            match operator {
                BinaryOperator::And if known => Some((0, by.1)),
                BinaryOperator::Remainder if known => {
                    Some((if all.0 < 0 { 1 - by.1 } else { 0 }, by.1 - 1))
                }
                _ => Some(all),
            }
        }
        _ => Some(all),
    }
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
