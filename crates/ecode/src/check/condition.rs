//! Warnings of constants used as conditions: `event.kind == fork || exec` is always true, as in C,
//! and lets every event pass. A comparison was meant.
//!
//! Not every such constant is a mistake. A `const` of the text, a constant of the environment and
//! the only member of an enum may be switches (`if (VERBOSE && ...)`, 0 for "no limit"). They are
//! warned of only in `x == A || B` and `x != A && B`, and only if their values are not those of a
//! switch. Members of enums may be results (`return PASS;`). A kind, or a number of the kernel, as
//! the result of the body is warned of, since it does not depend on the event.

use super::conversion::truth;
use super::scope::{Binding, Named};
use super::{Checker, cut};
use crate::ast::{self, ExpressionKind as Ast};
use crate::environment::NUMBERS;
use crate::tree::{BinaryOperator, Expression};

/// Names of members of an enum that are meant as truth values.
const TRUTHS: [&str; 6] = ["true", "false", "yes", "no", "on", "off"];

/// The comparison beside a name: `port == 80`.
struct Comparison<'e> {
    operator: BinaryOperator,
    of: &'e ast::Expression,
}

impl Checker<'_> {
    /// A condition of an expression: a `bool`.
    pub(super) fn condition(&mut self, source: &ast::Expression) -> Option<Expression> {
        let value = self.value(source).map(truth);
        self.warn_of_constant(source, BinaryOperator::Equal, None);
        value
    }

    /// The operand of `!`.
    pub(super) fn negated(&mut self, source: &ast::Expression) -> Option<Expression> {
        let value = self.value(source).map(truth);
        self.warn_of_constant(source, BinaryOperator::NotEqual, None);
        value
    }

    /// Both sides of `&&` and `||`.
    pub(super) fn conditions(
        &mut self,
        (a, b): (&ast::Expression, &ast::Expression),
        or: bool,
    ) -> (Option<Expression>, Option<Expression>) {
        let left = self.value(a).map(truth);
        let beside = nearest_comparison(b, false).map(|near| (near, or));
        self.warn_of_constant(a, BinaryOperator::Equal, beside);
        let right = self.value(b).map(truth);
        let beside = nearest_comparison(a, true).map(|near| (near, or));
        self.warn_of_constant(b, BinaryOperator::Equal, beside);
        (left, right)
    }

    /// The body's result, or one of a function that gives a `bool`.
    pub(super) fn warn_of_constant_result(&mut self, source: &ast::Expression) {
        let Ast::Name(name) = &source.kind else {
            return;
        };
        if let Some((Named::Kind | Named::Number, _)) = self.named(name) {
            self.warn_of_constant(source, BinaryOperator::Equal, None);
        }
    }

    /// Warns of a condition that is the name of a constant. `operator` is the operator that was
    /// probably left out; `beside` is the comparison on the other side of `||` (true) or `&&`.
    fn warn_of_constant(
        &mut self,
        source: &ast::Expression,
        operator: BinaryOperator,
        beside: Option<(Comparison<'_>, bool)>,
    ) {
        let Ast::Name(name) = &source.kind else {
            return;
        };
        let Some((named, value)) = self.named(name) else {
            return;
        };
        let list = beside.as_ref().is_some_and(|(near, or)| {
            matches!(
                (near.operator, or),
                (BinaryOperator::Equal, true) | (BinaryOperator::NotEqual, false)
            )
        });
        let switch = TRUTHS.iter().any(|word| word.eq_ignore_ascii_case(name))
            || named == Named::Setting && (!list || matches!(value, 0 | 1));
        if switch {
            return;
        }
        let beside = beside.and_then(|(near, _)| Some((near.operator, written(near.of)?)));
        let name = cut(name);
        let hint = match (named, beside) {
            (Named::Kind, Some((near, of))) if of == "event.kind" => {
                format!("write '{of} {} {name}'", near.sign())
            }
            (Named::Kind, _) => format!("write 'event.kind {} {name}'", operator.sign()),
            (_, Some((near, of))) => format!("write '{of} {} {name}'", near.sign()),
            _ => format!(
                "compare something with it: '... {} {name}'",
                operator.sign()
            ),
        };
        let message = format!("the constant '{name}' is always {}", value != 0);
        self.warn(source.span, message, hint);
    }

    /// The constant with this name, and its value, if the name means a constant here.
    fn named(&self, name: &str) -> Option<(Named, i64)> {
        match self.scopes.find(name) {
            Some(Binding::Constant(_, value, named)) => return Some((*named, *value)),
            Some(_) => return None,
            None if self
                .input_field(name, crate::source::Span::default())
                .is_some() =>
            {
                return None;
            }
            None => {}
        }
        let environment = self.environment;
        if let Some(at) = environment.kinds.iter().position(|kind| kind == name) {
            return Some((Named::Kind, at as i64));
        }
        let mut given = environment.constants.iter();
        if let Some((_, value)) = given.find(|(known, _)| known == name) {
            return Some((Named::Setting, *value));
        }
        let (_, value) = NUMBERS.iter().find(|(known, _)| *known == name)?;
        Some((Named::Number, *value))
    }
}

/// The comparison of a condition that stands nearest to its end, or to its beginning.
fn nearest_comparison(source: &ast::Expression, end: bool) -> Option<Comparison<'_>> {
    match &source.kind {
        Ast::And(a, b) | Ast::Or(a, b) => {
            let (near, far) = if end { (b, a) } else { (a, b) };
            nearest_comparison(near, end).or_else(|| nearest_comparison(far, end))
        }
        Ast::Binary(operator, of, _, _) => {
            use BinaryOperator as Op;
            let comparison = matches!(
                operator,
                Op::Less
                    | Op::LessEqual
                    | Op::Greater
                    | Op::GreaterEqual
                    | Op::Equal
                    | Op::NotEqual
            );
            let operator = *operator;
            comparison.then_some(Comparison { operator, of })
        }
        _ => None,
    }
}

/// The text of a name, or of a field of a name.
fn written(source: &ast::Expression) -> Option<String> {
    match &source.kind {
        Ast::Name(name) => Some(cut(name)),
        Ast::Field(base, field) => match &base.kind {
            Ast::Name(base) => Some(format!("{}.{}", cut(base), cut(&field.text))),
            _ => None,
        },
        _ => None,
    }
}
