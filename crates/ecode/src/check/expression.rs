//! Expressions: the types of each operator's operands and of its result. Operations on constants
//! are folded.

use super::conversion::{common, constant_of, convert, literal_type, number, promoted};
use super::{Checker, Operand, constant};
use crate::ast::{self, ExpressionKind as Ast, UnaryOperator};
use crate::source::Span;
use crate::tree::{BinaryOperator, Expression, ExpressionKind};
use crate::types::{FIXED_ONE, Int, Type};

impl Checker<'_> {
    /// An expression whose use is not known yet.
    pub(super) fn expression(&mut self, source: &ast::Expression) -> Operand {
        if !self.enter(source.span) {
            return Operand::Error;
        }
        let operand = self.expression_within(source);
        self.leave();
        operand
    }

    fn expression_within(&mut self, source: &ast::Expression) -> Operand {
        let span = source.span;
        let value = match &source.kind {
            Ast::Error => {
                self.unread = true;
                None
            }
            Ast::Name(name) => return self.name(name, span),
            Ast::Field(base, name) => return self.field(base, name, span),
            Ast::Index(base, at) => return self.index(base, at, span),
            Ast::Text(text) => return Operand::Text(text.clone(), span),
            Ast::Call(name, arguments) => return self.call(name, arguments, span),
            Ast::Integer { .. } | Ast::Fixed(_) | Ast::Character(_) | Ast::Bool(_) => {
                self.literal(source)
            }
            Ast::Unary(operator, operand) => self.unary(*operator, operand, span),
            Ast::Step { place, by, old } => self.step(place, *by, *old, span),
            Ast::Binary(operator, a, b, at) => self.binary(*operator, a, b, (span, *at)),
            Ast::And(a, b) => self.logic(a, b, false, span),
            Ast::Or(a, b) => self.logic(a, b, true, span),
            Ast::Choice(condition, a, b) => self.choice(condition, a, b, span),
            Ast::Assign(place, value) => self.assign(place, value, span),
            Ast::AssignBinary(operator, place, value, at) => {
                self.assign_binary(*operator, place, value, (span, *at))
            }
            Ast::Comma(a, b) => self.comma(a, b, span),
            Ast::Cast(ty, value) => self.cast(ty, value, span),
            Ast::SizeOf(of) => self.size_of(of, span),
            Ast::SizeOfType(ty, dimensions) => self.size_of_type(ty, dimensions, span),
        };
        value.map_or(Operand::Error, Operand::Value)
    }

    #[inline(never)]
    fn literal(&mut self, source: &ast::Expression) -> Option<Expression> {
        let span = source.span;
        Some(match source.kind {
            Ast::Integer {
                value,
                unsigned,
                long,
                decimal,
            } => {
                let Some(int) = literal_type(value, unsigned, long, decimal) else {
                    self.error_hint(
                        span,
                        "this number is larger than any long",
                        "with 'u' behind it, it is an unsigned long",
                    );
                    return None;
                };
                number(value as i64, Type::Int(int), span)
            }
            Ast::Fixed(millionths) => number(millionths, Type::Fixed, span),
            Ast::Character(byte) => {
                number(i64::from(byte.cast_signed()), Type::Int(Int::INT), span)
            }
            Ast::Bool(value) => number(i64::from(value), Type::Bool, span),
            _ => return None,
        })
    }

    #[inline(never)]
    fn unary(
        &mut self,
        operator: UnaryOperator,
        source: &ast::Expression,
        span: Span,
    ) -> Option<Expression> {
        if let (UnaryOperator::Minus, Some(least)) = (operator, least_long(source)) {
            return Some(number(least, Type::Int(Int::LONG), span));
        }
        if operator == UnaryOperator::Not {
            let value = self.negated(source)?;
            let kind = match constant_of(&value) {
                Some(known) => ExpressionKind::Constant(i64::from(known == 0)),
                None => ExpressionKind::Not(Box::new(value)),
            };
            return Some(Expression {
                kind,
                ty: Type::Bool,
                span,
            });
        }
        let value = self.value(source)?;
        let ty = promoted(&value.ty);
        if operator == UnaryOperator::Complement && ty == Type::Fixed {
            self.error_hint(
                span,
                "'~' works on the bits of whole numbers, this is a fixed",
                "convert it first: (long)(...)",
            );
            return None;
        }
        let value = convert(value, &ty);
        let wrap = |folded: i64| match ty {
            Type::Int(int) => int.wrap(folded),
            _ => folded,
        };
        let kind = match (operator, constant_of(&value)) {
            (UnaryOperator::Minus, Some(known)) => {
                ExpressionKind::Constant(wrap(known.wrapping_neg()))
            }
            (UnaryOperator::Complement, Some(known)) => ExpressionKind::Constant(wrap(!known)),
            (UnaryOperator::Minus, None) => ExpressionKind::Negate(Box::new(value)),
            (UnaryOperator::Complement, None) => ExpressionKind::Complement(Box::new(value)),
            _ => return Some(Expression { span, ..value }),
        };
        Some(Expression { kind, ty, span })
    }

    /// An operator between two numbers, or two texts. `at` is the operator's place.
    #[inline(never)]
    fn binary(
        &mut self,
        operator: BinaryOperator,
        a: &ast::Expression,
        b: &ast::Expression,
        (span, at): (Span, Span),
    ) -> Option<Expression> {
        let left = self.expression(a);
        let right = self.expression(b);
        if matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual)
            && (self.is_text(&left) || self.is_text(&right))
        {
            let same = self.compare_texts((left, a.span), (right, b.span), false, span)?;
            return Some(if operator == BinaryOperator::Equal {
                same
            } else {
                not(same)
            });
        }
        if is_aggregate(&left) && is_aggregate(&right) {
            self.no_operator(operator, &left, at);
            return None;
        }
        let left = self.scalar(left, a.span);
        let right = self.scalar(right, b.span);
        self.combine(operator, left?, right?, (span, at))
    }

    /// An operator between two operands of which one is no number.
    #[inline(never)]
    fn no_operator(&mut self, operator: BinaryOperator, left: &Operand, at: Span) {
        let text = self.is_text(left);
        let kind = if text { "texts" } else { "arrays and structs" };
        let hint = if text {
            "texts have ==, !=, prefix(a, b) and length(a)"
        } else {
            "write it for each element and field"
        };
        let message = format!("'{}' does not work on {kind}", operator.sign());
        self.error_hint(at, message, hint);
    }

    /// An operator between two scalars.
    #[inline(never)]
    pub(super) fn combine(
        &mut self,
        operator: BinaryOperator,
        a: Expression,
        b: Expression,
        (span, at): (Span, Span),
    ) -> Option<Expression> {
        use BinaryOperator as Op;
        let comparison = matches!(
            operator,
            Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual | Op::Equal | Op::NotEqual
        );
        let shift = matches!(operator, Op::ShiftLeft | Op::ShiftRight);
        let bits = shift || matches!(operator, Op::And | Op::Or | Op::Xor);
        if bits && (a.ty == Type::Fixed || b.ty == Type::Fixed) {
            self.bits_of_fixed(operator, at);
            return None;
        }
        if shift {
            let ty = promoted(&a.ty);
            let count = self.shift_count(b, &ty);
            return Some(arithmetic(
                operator,
                ty.clone(),
                convert(a, &ty),
                count,
                span,
            ));
        }
        let ty = common(&a.ty, &b.ty);
        self.warn_of_wrapping(&a, &ty);
        self.warn_of_wrapping(&b, &ty);
        if comparison {
            return Some(self.comparison(operator, (a, b), &ty, (span, at)));
        }
        if matches!(operator, Op::Divide | Op::Remainder) {
            self.warn_of_zero(operator, &b);
        }
        let (a, b) = (convert(a, &ty), convert(b, &ty));
        self.warn_of_overflow(operator, (&a, &b), at);
        Some(arithmetic(operator, ty, a, b, span))
    }

    pub(super) fn bits_of_fixed(&mut self, operator: BinaryOperator, at: Span) {
        let sign = operator.sign();
        let message = format!("'{sign}' works on the bits of whole numbers, this is a fixed");
        self.error_hint(at, message, "convert it first: (long)(...)");
    }

    /// Warns of a division whose result is 0 by definition.
    pub(super) fn warn_of_zero(&mut self, operator: BinaryOperator, by: &Expression) {
        if constant_of(by) == Some(0) {
            let result = if operator == BinaryOperator::Divide {
                "0"
            } else {
                "the left side"
            };
            self.warn(
                by.span,
                format!("a division by 0: the result is {result}"),
                "",
            );
        }
    }

    /// The count of a shift, an `unsigned int`, reduced if it is known.
    pub(super) fn shift_count(&mut self, count: Expression, ty: &Type) -> Expression {
        let Type::Int(int) = *ty else {
            return count;
        };
        let known = constant_of(&count);
        let unsigned = convert(count, &Type::Int(Int::UNSIGNED));
        let Some(before) = known else {
            return unsigned;
        };
        let bits = i64::from(int.bits);
        let reduced = before.rem_euclid(bits);
        if reduced != before {
            let name = self.type_name(ty);
            let message = format!("{name} has {bits} bits: this shifts by {reduced}");
            self.warn(unsigned.span, message, "");
        }
        number(reduced, Type::Int(Int::UNSIGNED), unsigned.span)
    }

    fn comparison(
        &mut self,
        operator: BinaryOperator,
        (a, b): (Expression, Expression),
        ty: &Type,
        (span, at): (Span, Span),
    ) -> Expression {
        let negative = [&a, &b].into_iter().find_map(|side| {
            let signed = !matches!(side.ty, Type::Int(int) if !int.signed);
            constant_of(side).filter(|value| signed && *value < 0)
        });
        self.note_mixed_sign(operator, [&a, &b], ty, at);
        let (a, b) = (convert(a, ty), convert(b, ty));
        let kind = match (constant_of(&a), constant_of(&b)) {
            (Some(a), Some(b)) => {
                ExpressionKind::Constant(i64::from(constant::compare(operator, ty, a, b)))
            }
            _ => {
                self.warn_if_decided(operator, (&a, &b), negative, at);
                ExpressionKind::Compare(operator, Box::new(a), Box::new(b))
            }
        };
        Expression {
            kind,
            ty: Type::Bool,
            span,
        }
    }

    /// `&&`, `||`
    #[inline(never)]
    fn logic(
        &mut self,
        a: &ast::Expression,
        b: &ast::Expression,
        or: bool,
        span: Span,
    ) -> Option<Expression> {
        let (a, b) = self.conditions((a, b), or);
        let (a, b) = (a?, b?);
        let kind = match (constant_of(&a), constant_of(&b)) {
            (Some(known), _) if (known != 0) == or => ExpressionKind::Constant(i64::from(or)),
            (Some(_), _) => return Some(Expression { span, ..b }),
            (None, Some(known)) if (known != 0) != or => return Some(Expression { span, ..a }),
            _ if or => ExpressionKind::Or(Box::new(a), Box::new(b)),
            _ => ExpressionKind::And(Box::new(a), Box::new(b)),
        };
        Some(Expression {
            kind,
            ty: Type::Bool,
            span,
        })
    }

    /// `c ? a : b`
    #[inline(never)]
    fn choice(
        &mut self,
        condition: &ast::Expression,
        a: &ast::Expression,
        b: &ast::Expression,
        span: Span,
    ) -> Option<Expression> {
        let condition = self.condition(condition);
        let (left, right) = (self.expression(a), self.expression(b));
        let void =
            |operand: &Operand| matches!(operand, Operand::Value(value) if value.ty == Type::Void);
        let (left, right, ty) = match (left, right) {
            (Operand::Value(left), Operand::Value(right))
                if left.ty == Type::Void && right.ty == Type::Void =>
            {
                (left, right, Type::Void)
            }
            (left, right) if void(&left) != void(&right) => {
                let error = matches!(left, Operand::Error) || matches!(right, Operand::Error);
                if !error {
                    let message = "one side of ':' gives a value, the other gives none";
                    self.error_hint(span, message, "write it with 'if' and 'else'");
                }
                return None;
            }
            (left, right) => {
                let left = self.scalar(left, a.span);
                let right = self.scalar(right, b.span);
                let (left, right) = (left?, right?);
                let ty = common(&left.ty, &right.ty);
                (convert(left, &ty), convert(right, &ty), ty)
            }
        };
        let condition = condition?;
        if let Some(known) = constant_of(&condition) {
            let chosen = if known != 0 { left } else { right };
            return Some(Expression { span, ..chosen });
        }
        let (left, right) = (Box::new(left), Box::new(right));
        Some(Expression {
            kind: ExpressionKind::Choice(Box::new(condition), left, right),
            ty,
            span,
        })
    }

    #[inline(never)]
    fn comma(
        &mut self,
        a: &ast::Expression,
        b: &ast::Expression,
        span: Span,
    ) -> Option<Expression> {
        let left = self.effect(a);
        let right = match self.expression(b) {
            Operand::Value(value) => Some(value),
            other => self.scalar(other, b.span),
        };
        let (left, right) = (left?, right?);
        Some(Expression {
            ty: right.ty.clone(),
            kind: ExpressionKind::Comma(Box::new(left), Box::new(right)),
            span,
        })
    }

    #[inline(never)]
    fn cast(
        &mut self,
        to: &ast::TypeName,
        source: &ast::Expression,
        span: Span,
    ) -> Option<Expression> {
        let ty = self.named_type(to);
        if ty == Some(Type::Void) {
            self.error(
                to.span,
                "what is cast to void has no value that could be used",
            );
            return None;
        }
        let value = self.value(source);
        let (ty, value) = (ty?, value?);
        if !ty.is_scalar() {
            let message = format!("nothing can be converted to {}", self.type_name(&ty));
            self.error_hint(to.span, message, "assign its fields one by one");
            return None;
        }
        let converted = convert(value, &ty);
        Some(Expression { span, ..converted })
    }

    #[inline(never)]
    fn size_of(&mut self, of: &ast::Expression, span: Span) -> Option<Expression> {
        if let Some(effect) = effect_in(of) {
            self.error_hint(
                effect,
                "sizeof does not evaluate its operand: this would not happen",
                "write the type, or a variable",
            );
            return None;
        }
        let silent = std::mem::replace(&mut self.context.silent, true);
        let operand = self.expression(of);
        self.context.silent = silent;
        let ty = match operand {
            Operand::Error => return None,
            Operand::Text(text, _) => return Some(size(text.len() as u32 + 1, span)),
            // As in C, where a truth value is an int.
            Operand::Value(_) if is_logical(of) => Type::Int(Int::INT),
            Operand::Value(value) => value.ty,
            Operand::Place(place) => {
                self.details(place.variable).read = true;
                place.ty
            }
        };
        self.size_of_known(&ty, of.span, span)
    }

    #[inline(never)]
    fn size_of_type(
        &mut self,
        written: &ast::TypeName,
        dimensions: &[ast::Expression],
        span: Span,
    ) -> Option<Expression> {
        let mut ty = self.named_type(written)?;
        self.nesting(&ty, dimensions.len(), written.span)?;
        for dimension in dimensions.iter().rev() {
            let count = self.dimension(dimension, &ty)?;
            ty = Type::Array(Box::new(ty), count);
        }
        self.size_of_known(&ty, written.span, span)
    }

    fn size_of_known(&mut self, ty: &Type, of: Span, span: Span) -> Option<Expression> {
        match (ty, self.tree.structs.size(ty)) {
            (Type::Void | Type::Sink, _) => {
                let message = format!("{} has no size", self.type_name(ty));
                self.error(of, message);
                None
            }
            (Type::Error, _) => None,
            (_, Some(bytes)) => Some(size(bytes, span)),
            (_, None) => {
                self.error(of, "this type is larger than 4 GiB");
                None
            }
        }
    }
}

/// Whether it is an array or a struct, or a text in quotes.
fn is_aggregate(operand: &Operand) -> bool {
    match operand {
        Operand::Text(..) => true,
        Operand::Place(place) => matches!(place.ty, Type::Array(..) | Type::Struct(_)),
        Operand::Value(_) | Operand::Error => false,
    }
}

/// Whether the outermost operator is one whose result is 0 or 1.
fn is_logical(source: &ast::Expression) -> bool {
    use BinaryOperator as Op;
    match &source.kind {
        Ast::Unary(UnaryOperator::Not, _) | Ast::And(..) | Ast::Or(..) => true,
        Ast::Binary(operator, ..) => matches!(
            operator,
            Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual | Op::Equal | Op::NotEqual
        ),
        Ast::Comma(_, last) => is_logical(last),
        _ => false,
    }
}

fn size(bytes: u32, span: Span) -> Expression {
    number(i64::from(bytes), Type::Int(Int::UNSIGNED_LONG), span)
}

/// `-9223372036854775808`, whose number without the sign would be too large.
fn least_long(source: &ast::Expression) -> Option<i64> {
    const BEYOND: u64 = 1 << 63;
    match source.kind {
        Ast::Integer {
            value: BEYOND,
            unsigned: false,
            decimal: true,
            ..
        } => Some(i64::MIN),
        _ => None,
    }
}

/// `a op b` of one type, folded if both operands are constant.
pub(super) fn arithmetic(
    operator: BinaryOperator,
    ty: Type,
    a: Expression,
    b: Expression,
    span: Span,
) -> Expression {
    let kind = match (constant_of(&a), constant_of(&b)) {
        (Some(a), Some(b)) => ExpressionKind::Constant(constant::arithmetic(operator, &ty, a, b)),
        _ => ExpressionKind::Arithmetic(operator, Box::new(a), Box::new(b)),
    };
    Expression { kind, ty, span }
}

/// `!a` of a `bool`.
fn not(value: Expression) -> Expression {
    let kind = match constant_of(&value) {
        Some(known) => ExpressionKind::Constant(i64::from(known == 0)),
        None => {
            return Expression {
                span: value.span,
                ty: Type::Bool,
                kind: ExpressionKind::Not(Box::new(value)),
            };
        }
    };
    Expression { kind, ..value }
}

/// The first part of an expression that has an effect.
pub(super) fn effect_in(source: &ast::Expression) -> Option<Span> {
    match &source.kind {
        Ast::Assign(..) | Ast::AssignBinary(..) | Ast::Step { .. } | Ast::Call(..) => {
            Some(source.span)
        }
        Ast::Field(a, _) | Ast::Unary(_, a) | Ast::Cast(_, a) => effect_in(a),
        Ast::Index(a, b)
        | Ast::Binary(_, a, b, _)
        | Ast::And(a, b)
        | Ast::Or(a, b)
        | Ast::Comma(a, b) => effect_in(a).or_else(|| effect_in(b)),
        Ast::Choice(a, b, c) => effect_in(a)
            .or_else(|| effect_in(b))
            .or_else(|| effect_in(c)),
        Ast::Integer { .. }
        | Ast::Fixed(_)
        | Ast::Character(_)
        | Ast::Text(_)
        | Ast::Bool(_)
        | Ast::Name(_)
        | Ast::SizeOf(_)
        | Ast::SizeOfType(..)
        | Ast::Error => None,
    }
}

/// The step of `++` and `--` in this type.
pub(super) fn one(ty: &Type) -> i64 {
    if *ty == Type::Fixed { FIXED_ONE } else { 1 }
}
