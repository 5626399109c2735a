//! Assignments: `=`, `+=` and its like, `++` and `--`. The input, constants and the event cannot be
//! written; the message gives the reason.

use super::conversion::{common, convert, number, promoted};
use super::expression::one;
use super::{Checker, Fixed, Operand, cut};
use crate::ast::{self, ExpressionKind as Ast};
use crate::source::Span;
use crate::tree::{BinaryOperator, Expression, ExpressionKind, Place};
use crate::types::{Int, Type};

impl Checker<'_> {
    /// The place that is written. `None`: it cannot be written; this has been reported.
    fn target(&mut self, source: &ast::Expression) -> Option<Place> {
        match self.expression(source) {
            Operand::Place(place) => {
                let fixed = self.details(place.variable).fixed;
                if let Some(fixed) = fixed {
                    self.refuse_to_write(&place, fixed);
                    return None;
                }
                if self.context.looks_only {
                    self.only_looks(source.span);
                    return None;
                }
                self.details(place.variable).written = true;
                (place.ty != Type::Error).then_some(place)
            }
            Operand::Error => None,
            Operand::Text(..) | Operand::Value(_) => {
                self.no_place(source);
                None
            }
        }
    }

    /// Reports a change in an `expect`.
    pub(super) fn only_looks(&mut self, span: Span) {
        self.error_hint(
            span,
            "an expectation only looks, it changes nothing",
            "set what the run is to find before 'run;'",
        );
    }

    fn refuse_to_write(&mut self, place: &Place, fixed: Fixed) {
        let name = cut(&self.variable(place.variable).name);
        let (message, hint) = match fixed {
            Fixed::Const => (
                format!("'{name}' is const"),
                "what changes is declared without const",
            ),
            Fixed::Input => (
                "the input cannot be written: others read it too".to_owned(),
                "write into output, or into a variable of your own",
            ),
            Fixed::Sink => (
                format!("'{name}' is the sink that the loop has come to"),
                "sinks are chosen with accept(s) and reject(s)",
            ),
            Fixed::Test => (
                format!("'{name}' is what the run gave"),
                "an expectation only looks at it",
            ),
        };
        self.error_hint(place.span, message, hint);
    }

    fn no_place(&mut self, source: &ast::Expression) {
        let (message, hint) = match &source.kind {
            Ast::Field(base, _) if matches!(&base.kind, Ast::Name(name) if name == "event") => (
                "what the event tells of itself cannot be written",
                "compute with a variable of your own; in a test it can be set before 'run;'",
            ),
            Ast::Field(..) => (
                "the attributes of a sink cannot be written",
                "the sink itself tells them; here it is accepted or rejected",
            ),
            Ast::Name(_) => (
                "this is a constant: it cannot be written",
                "to compare, write '=='; what changes is a static or a variable",
            ),
            Ast::Call(name, _) if name.text == "attr" => (
                "an attribute of the channel cannot be written from here",
                "who reads the channel sets it; what the program keeps is a static",
            ),
            _ => (
                "this cannot be written",
                "a variable, a field or an element is expected here",
            ),
        };
        self.error_hint(source.span, message, hint);
    }

    /// `place = value`
    #[inline(never)]
    pub(super) fn assign(
        &mut self,
        place: &ast::Expression,
        value: &ast::Expression,
        span: Span,
    ) -> Option<Expression> {
        let target = self.target(place);
        let operand = self.expression(value);
        let target = target?;
        if target.ty.is_scalar() {
            let value = self.scalar(operand, value.span)?;
            let value = self.adapt(value, &target.ty);
            return Some(Expression {
                ty: target.ty.clone(),
                kind: ExpressionKind::Assign(target, Box::new(value)),
                span,
            });
        }
        let kind = match operand {
            Operand::Error => return None,
            Operand::Text(text, at) if target.ty.is_text() => {
                let text = self.fitting_text(&target.ty, &text, at)?;
                ExpressionKind::FillText(target, text)
            }
            Operand::Place(from) if from.ty == target.ty => {
                self.details(from.variable).read = true;
                ExpressionKind::Copy { to: target, from }
            }
            other => {
                self.no_copy(&target.ty, &other, value.span);
                return None;
            }
        };
        Some(Expression {
            kind,
            ty: Type::Void,
            span,
        })
    }

    fn no_copy(&mut self, to: &Type, from: &Operand, span: Span) {
        let wanted = self.type_name(to);
        let given = match from {
            Operand::Place(place) if place.ty == Type::Error => return,
            Operand::Place(place) => self.type_name(&place.ty),
            Operand::Value(value) => self.type_name(&value.ty),
            Operand::Text(..) | Operand::Error => "a text".to_owned(),
        };
        self.error_hint(
            span,
            format!("{wanted} is expected here, this is {given}"),
            "arrays and structs are assigned as a whole to one of the very same type",
        );
    }

    /// `place op= value`. `at` is the operator's place.
    #[inline(never)]
    pub(super) fn assign_binary(
        &mut self,
        operator: BinaryOperator,
        place: &ast::Expression,
        value: &ast::Expression,
        (span, at): (Span, Span),
    ) -> Option<Expression> {
        use BinaryOperator as Op;
        let target = self.target(place);
        let value = self.value(value);
        let (target, value) = (self.scalar_target(target?, at)?, value?);
        let shift = matches!(operator, Op::ShiftLeft | Op::ShiftRight);
        let bits = shift || matches!(operator, Op::And | Op::Or | Op::Xor);
        if bits && (target.ty == Type::Fixed || value.ty == Type::Fixed) {
            self.bits_of_fixed(operator, at);
            return None;
        }
        if matches!(operator, Op::Divide | Op::Remainder) {
            self.warn_of_zero(operator, &value);
        }
        let (compute, by) = if shift {
            let compute = promoted(&target.ty);
            let count = self.shift_count(value, &compute);
            (compute, count)
        } else {
            let compute = common(&target.ty, &value.ty);
            let by = convert(value, &compute);
            (compute, by)
        };
        Some(update(target, operator, compute, by, false, span))
    }

    /// `++` and `--`
    #[inline(never)]
    pub(super) fn step(
        &mut self,
        place: &ast::Expression,
        by: i8,
        old: bool,
        span: Span,
    ) -> Option<Expression> {
        let target = self.target(place)?;
        let target = self.scalar_target(target, span)?;
        let compute = common(&target.ty, &Type::Int(Int::INT));
        let operator = if by < 0 {
            BinaryOperator::Subtract
        } else {
            BinaryOperator::Add
        };
        let by = number(one(&compute), compute.clone(), span);
        Some(update(target, operator, compute, by, old, span))
    }

    fn scalar_target(&mut self, place: Place, at: Span) -> Option<Place> {
        if place.ty.is_scalar() {
            return Some(place);
        }
        let name = self.type_name(&place.ty);
        self.error_hint(
            at,
            format!("this works on numbers, '{name}' is none"),
            "name one of its elements or fields",
        );
        None
    }
}

fn update(
    place: Place,
    operator: BinaryOperator,
    compute: Type,
    by: Expression,
    old: bool,
    span: Span,
) -> Expression {
    Expression {
        ty: place.ty.clone(),
        kind: ExpressionKind::Update {
            place,
            operator,
            compute,
            by: Box::new(by),
            old,
        },
        span,
    }
}
