//! C's rules about types of values: the type of a literal, promotion of operands, the common type
//! of two operands, and conversion by assignment (C11 6.3, 6.4.4.1).

use super::{Checker, Operand, constant};
use crate::ast;
use crate::source::Span;
use crate::tree::{
    BinaryOperator, Builtin, EventField, Expression, ExpressionKind, Place, Storage,
};
use crate::types::{FIXED_ONE, Int, Type};

/// The type of a whole number. `None`: no type holds it.
pub(super) fn literal_type(value: u64, unsigned: bool, long: bool, decimal: bool) -> Option<Int> {
    let candidates = [Int::INT, Int::UNSIGNED, Int::LONG, Int::UNSIGNED_LONG];
    candidates.into_iter().find(|int| {
        let sign = if unsigned {
            !int.signed
        } else {
            int.signed || !decimal
        };
        let width = !long || int.bits == 64;
        let most = u64::MAX >> (64 - u32::from(int.bits) + u32::from(int.signed));
        sign && width && value <= most
    })
}

/// Integer promotion: smaller types become `int`.
pub(super) fn promoted(ty: &Type) -> Type {
    match ty {
        Type::Bool => Type::Int(Int::INT),
        Type::Int(int) if int.bits < 32 => Type::Int(Int::INT),
        other => other.clone(),
    }
}

/// The usual arithmetic conversions: the type in which two scalars meet.
pub(super) fn common(a: &Type, b: &Type) -> Type {
    match (promoted(a), promoted(b)) {
        (Type::Fixed, _) | (_, Type::Fixed) => Type::Fixed,
        (Type::Int(a), Type::Int(b)) => Type::Int(Int {
            bits: a.bits.max(b.bits),
            signed: match a.bits.cmp(&b.bits) {
                std::cmp::Ordering::Less => b.signed,
                std::cmp::Ordering::Equal => a.signed && b.signed,
                std::cmp::Ordering::Greater => a.signed,
            },
        }),
        (a, _) => a,
    }
}

/// A constant.
pub(super) fn number(value: i64, ty: Type, span: Span) -> Expression {
    Expression {
        kind: ExpressionKind::Constant(value),
        ty,
        span,
    }
}

/// The value of a constant.
pub(super) fn constant_of(expression: &Expression) -> Option<i64> {
    match expression.kind {
        ExpressionKind::Constant(value) => Some(value),
        _ => None,
    }
}

/// A conversion between scalars, written out. No warnings: for casts and for operators.
pub(super) fn convert(expression: Expression, to: &Type) -> Expression {
    if expression.ty == *to {
        return expression;
    }
    let span = expression.span;
    if let ExpressionKind::Constant(value) = expression.kind {
        return number(
            constant::convert(value, &expression.ty, to),
            to.clone(),
            span,
        );
    }
    Expression {
        kind: ExpressionKind::Convert(Box::new(expression)),
        ty: to.clone(),
        span,
    }
}

/// The expression as a condition: whether its value is not 0.
pub(super) fn truth(expression: Expression) -> Expression {
    convert(expression, &Type::Bool)
}

impl Checker<'_> {
    /// The value of an expression that must be a number.
    pub(super) fn value(&mut self, expression: &ast::Expression) -> Option<Expression> {
        let operand = self.expression(expression);
        self.scalar(operand, expression.span)
    }

    /// The value of an expression that must be an integer; `what` names its use in messages.
    pub(super) fn integer(&mut self, source: &ast::Expression, what: &str) -> Option<Expression> {
        let value = self.value(source)?;
        if value.ty == Type::Fixed {
            let message = format!("{what} must be a whole number, this is a fixed");
            self.error_hint(source.span, message, "convert it: (long)(...)");
            return None;
        }
        Some(value)
    }

    /// The condition of a statement, with a warning where `==` was probably meant.
    pub(super) fn condition_of_statement(
        &mut self,
        source: &ast::Expression,
    ) -> Option<Expression> {
        let condition = self.condition(source)?;
        if let ast::ExpressionKind::Assign(..) = source.kind {
            self.warn(
                source.span,
                "an assignment as a condition",
                "write == to compare, or (...) != 0 if the assignment is meant",
            );
        }
        Some(condition)
    }

    /// The value of a constant integer expression.
    pub(super) fn constant(&mut self, source: &ast::Expression, what: &str) -> Option<i64> {
        self.constant_with_type(source, what)
            .map(|(value, _)| value)
    }

    /// The value of a constant integer expression, and its type.
    pub(super) fn constant_with_type(
        &mut self,
        source: &ast::Expression,
        what: &str,
    ) -> Option<(i64, Int)> {
        let value = self.integer(source, what)?;
        let ty = promoted(&value.ty);
        let value = convert(value, &ty);
        match (constant_of(&value), value.ty) {
            (Some(number), Type::Int(int)) => Some((number, int)),
            _ => {
                self.error_hint(
                    source.span,
                    format!("{what} must be a constant"),
                    "it may be computed from numbers, enums, sizeof and const scalars",
                );
                None
            }
        }
    }

    /// The scalar value of an expression.
    pub(super) fn scalar(&mut self, operand: Operand, span: Span) -> Option<Expression> {
        match operand {
            Operand::Error => None,
            Operand::Value(value) if value.ty == Type::Void => {
                let hint = "write it as a statement of its own";
                self.error_hint(span, "this gives no value", hint);
                None
            }
            Operand::Value(value) if value.ty == Type::Error => None,
            Operand::Value(value) => {
                // The use of the value of `n++` is a read of n.
                if let ExpressionKind::Update {
                    place, operator, ..
                } = &value.kind
                {
                    self.details(place.variable).read = true;
                    self.warn_of_narrow_update(place, *operator, value.span);
                }
                Some(value)
            }
            Operand::Text(..) => {
                self.error_hint(
                    span,
                    "a text is no number",
                    "texts can be compared with (==, !=, prefix) and assigned to arrays of char",
                );
                None
            }
            Operand::Place(place) => self.load(place),
        }
    }

    /// Warns if the value of an update is used that is not atomic: CPUs can lose such updates.
    fn warn_of_narrow_update(&mut self, place: &Place, operator: BinaryOperator, span: Span) {
        let is_static = matches!(self.variable(place.variable).storage, Storage::Static(_));
        let counts = matches!(operator, BinaryOperator::Add | BinaryOperator::Subtract);
        if let Type::Int(int @ Int { bits: ..32, .. }) = place.ty
            && is_static
            && counts
        {
            let bits = int.bits;
            let message = format!("two CPUs can get the same number: {bits} bits are not atomic");
            self.warn(span, message, "make it u32 or u64");
        }
    }

    /// The value of a place of scalar type.
    pub(super) fn load(&mut self, place: Place) -> Option<Expression> {
        self.details(place.variable).read = true;
        if !place.ty.is_scalar() {
            self.not_a_number(&place);
            return None;
        }
        Some(Expression {
            ty: place.ty.clone(),
            span: place.span,
            kind: ExpressionKind::Load(place),
        })
    }

    fn not_a_number(&mut self, place: &Place) {
        let name = self.type_name(&place.ty);
        let message = format!("a number is needed, this is {name}");
        let hint = match &place.ty {
            Type::Error => return,
            Type::Sink => "a sink has numbers: s.id, age(s), and its attributes",
            ty if ty.is_text() => "texts can be compared: ==, !=, prefix(a, b), length(a)",
            Type::Array(..) => "name one element: [index]",
            _ => "name one of its fields: .field",
        };
        self.error_hint(place.span, message, hint);
    }

    /// Converts a scalar that is assigned, passed or returned, with a warning if that changes a
    /// constant's value.
    pub(super) fn adapt(&mut self, value: Expression, to: &Type) -> Expression {
        if let Some(before) = constant_of(&value) {
            self.warn_if_lossy(before, &value, to);
        }
        self.warn_of_wrapping(&value, to);
        convert(value, to)
    }

    /// Warns of a time in ns that becomes a `fixed`, whose range is 2.5 hours in ns.
    pub(super) fn warn_of_wrapping(&mut self, value: &Expression, to: &Type) {
        let time = matches!(
            value.kind,
            ExpressionKind::Builtin(
                Builtin::Now | Builtin::Event(EventField::Time | EventField::Deadline),
                _
            )
        );
        if time && *to == Type::Fixed {
            let hint = "divide by a whole number first, or take the difference of two times";
            let message = "as a fixed this time wraps: 2.5 hours are the most";
            self.warn(value.span, message, hint);
        }
    }

    fn warn_if_lossy(&mut self, before: i64, value: &Expression, to: &Type) {
        let after = constant::convert(before, &value.ty, to);
        match (&value.ty, to) {
            (Type::Fixed, Type::Int(_)) if before % FIXED_ONE != 0 => {
                let message = format!("the fraction is lost: this becomes {after}");
                self.warn(value.span, message, "fixed variables hold fractions");
            }
            (Type::Int(from), Type::Int(int)) if int.bits < 64 => {
                let other = Int::new(int.bits, !int.signed).wrap(before);
                // -1 for "all bits" is usual, and so are bit patterns of signed variables.
                if after == before || (other == before && from.bits <= 64) {
                    return;
                }
                let name = self.type_name(to);
                let shown = from.exact(before);
                let message = format!("{shown} does not fit: as {name} it becomes {after}");
                self.warn(value.span, message, "");
            }
            _ => {}
        }
    }
}
