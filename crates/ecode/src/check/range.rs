//! The range of values of an expression, from its type and its operators; and warnings of
//! comparisons with a known result, and of operators whose result does not fit.

use super::Checker;
use super::conversion::constant_of;
use crate::ir::Operator;
use crate::range;
use crate::source::Span;
use crate::tree::{BinaryOperator, Expression, ExpressionKind, Place};
use crate::types::{FIXED_ONE, Type};

/// A range of exact numbers.
pub(crate) type Range = range::Range<i128>;

const ONE: i128 = FIXED_ONE as i128;

fn of_type(ty: &Type) -> Option<Range> {
    match ty {
        Type::Bool => Some(Range::new(0, 1)),
        Type::Int(int) => Some(Range::of_int(*int)),
        _ => None,
    }
}

/// The range of an expression of integer type.
pub(crate) fn range(expression: &Expression) -> Option<Range> {
    range_with(expression, &|_| None)
}

/// The range of an expression of integer type, given the ranges of some places.
pub(crate) fn range_with(
    expression: &Expression,
    known: &dyn Fn(&Place) -> Option<Range>,
) -> Option<Range> {
    let all = of_type(&expression.ty)?;
    let exact = match &expression.kind {
        ExpressionKind::Constant(value) => Some(Range::of(match expression.ty {
            Type::Int(int) => int.exact(*value),
            _ => i128::from(*value),
        })),
        ExpressionKind::Load(place) => known(place),
        ExpressionKind::Convert(inner) if expression.ty != Type::Bool => range_with(inner, known),
        ExpressionKind::Arithmetic(operator, a, b) => {
            let (a, b) = (range_with(a, known)?, range_with(b, known)?);
            integers(*operator, &expression.ty, a, b)
        }
        _ => None,
    };
    Some(exact.filter(|exact| all.holds(*exact)).unwrap_or(all))
}

/// The exact results of an operator on integers of this type. `None`: nothing is known.
fn integers(operator: BinaryOperator, ty: &Type, a: Range, b: Range) -> Option<Range> {
    let Type::Int(int) = ty else { return None };
    let shifts = matches!(
        operator,
        BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight
    );
    let counts = Range::new(0, i128::from(int.bits) - 1);
    if shifts && !counts.holds(b) {
        return None;
    }
    Range::computed(Operator::of_integers(operator, int.signed)?, a, b)
}

/// The range of a `fixed` expression in millionths, where it is known and nothing has wrapped.
fn fixed_range(expression: &Expression) -> Option<Range> {
    let of = match &expression.kind {
        ExpressionKind::Constant(value) => Range::of(i128::from(*value)),
        ExpressionKind::Convert(inner) if inner.ty != Type::Fixed => {
            let Range { low, high } = range(inner)?;
            Range::new(low * ONE, high * ONE)
        }
        ExpressionKind::Arithmetic(operator, a, b) => {
            fixed_result(*operator, fixed_range(a)?, fixed_range(b)?)?
        }
        _ => return None,
    };
    of.narrow().map(|_| of)
}

fn fixed_result(operator: BinaryOperator, a: Range, b: Range) -> Option<Range> {
    match operator {
        BinaryOperator::Multiply => Range::computed(Operator::Multiply, a, b)
            .map(|exact| Range::new(exact.low / ONE, exact.high / ONE)),
        BinaryOperator::Divide => {
            let (a, b) = (a.only()?, b.only().filter(|b| *b != 0)?);
            Some(Range::of(a * ONE / b))
        }
        BinaryOperator::Add => Range::computed(Operator::Add, a, b),
        BinaryOperator::Subtract => Range::computed(Operator::Subtract, a, b),
        _ => None,
    }
}

/// The result of a comparison, if it is the same for all values of these ranges.
fn always(operator: BinaryOperator, a: Range, b: Range) -> Option<bool> {
    use BinaryOperator as Op;
    match operator {
        Op::Equal => a.equal(b),
        Op::NotEqual => a.equal(b).map(|equal| !equal),
        Op::Less => a.less(b),
        Op::GreaterEqual => a.less(b).map(|less| !less),
        Op::Greater => b.less(a),
        Op::LessEqual => b.less(a).map(|less| !less),
        _ => None,
    }
}

impl Checker<'_> {
    /// Warns of an operator whose exact result does not fit its type, if its operands are
    /// constants, or `fixed` numbers with known ranges.
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
            if let Some(Range { low, high }) = result.filter(|result| result.narrow().is_none()) {
                let far = if high > i128::from(i64::MAX) {
                    high
                } else {
                    low
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
                .and_then(|(of_a, of_b)| integers(operator, &a.ty, of_a, of_b)),
            _ => None,
        };
        let Some(exact) = exact.filter(|exact| !Range::of_int(*int).holds(*exact)) else {
            return;
        };
        let exact = exact.low;
        let becomes = int.wrap(exact as i64);
        let name = self.type_name(&a.ty);
        let becomes = int.exact(becomes);
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

    /// Warns of a comparison whose result is always the same, and of a negative constant that is
    /// compared without sign. The operands are converted; `negative` is the constant before that.
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
            let hint = format!("the other side is {} to {}", other.low, other.high);
            self.warn(span, format!("this comparison is always {result}"), hint);
        } else if let (Some(before), Type::Int(int)) = (negative, &a.ty) {
            let equality = matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual);
            if !equality && !int.signed {
                let after = int.exact(int.wrap(before));
                self.warn(
                    span,
                    format!("{before} is compared without sign: as {after}"),
                    "convert the other side: (long)(...)",
                );
            }
        }
    }
}
