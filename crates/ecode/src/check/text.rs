//! Strings: arrays of `char`, which end at their first 0 or with the array, and string literals.

use super::conversion::{number, truth};
use super::{Checker, Operand};
use crate::source::Span;
use crate::tree::{Expression, ExpressionKind, Place};
use crate::types::Type;

impl Checker<'_> {
    /// Whether it is a string.
    pub(super) fn is_text(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Text(..) => true,
            Operand::Place(place) => place.ty.is_text(),
            Operand::Value(_) | Operand::Error => false,
        }
    }

    /// A string literal that is assigned to an array of this type. `None`: it does not fit, which
    /// has been reported.
    pub(super) fn fitting_text(&mut self, ty: &Type, text: &[u8], span: Span) -> Option<Vec<u8>> {
        let Type::Array(_, count) = ty else {
            return None;
        };
        if text.len() > *count as usize {
            let have = text.len();
            self.error_hint(
                span,
                format!("the text has {have} characters, the array {count}"),
                format!("char NAME[{have}] holds it"),
            );
            return None;
        }
        Some(text.to_vec())
    }

    /// Whether two strings are equal, or the first begins with the second.
    #[inline(never)]
    pub(super) fn compare_texts(
        &mut self,
        (a, a_span): (Operand, Span),
        (b, b_span): (Operand, Span),
        prefix: bool,
        span: Span,
    ) -> Option<Expression> {
        // `"bash" == name` means the same as `name == "bash"`.
        let swap = !prefix && matches!(a, Operand::Text(..));
        let ((a, a_span), (b, b_span)) = if swap {
            ((b, b_span), (a, a_span))
        } else {
            ((a, a_span), (b, b_span))
        };
        for (operand, at) in [(&a, a_span), (&b, b_span)] {
            if matches!(operand, Operand::Error) {
                self.hint_at_quotes(at);
            }
        }
        let text = self.text_place(a, a_span);
        let kind = match b {
            Operand::Text(with, at) => {
                let text = text?;
                return self.compare_with(text, with, prefix, (span, at));
            }
            other => ExpressionKind::ComparePlaces {
                with: self.text_place(other, b_span)?,
                text: text?,
                prefix,
            },
        };
        Some(Expression {
            kind,
            ty: Type::Bool,
            span,
        })
    }

    /// Adds a hint: an undeclared name beside a string was probably meant as a literal.
    fn hint_at_quotes(&mut self, at: Span) {
        let told = self.diagnostics.last_mut().filter(|told| told.span == at);
        let Some(told) = told else { return };
        let name = told.message.strip_suffix(" is not declared");
        let near = told.hint.starts_with("did you mean");
        if let Some(name) = name.filter(|_| !near) {
            told.hint = format!("a text stands in quotes: \"{}\"", name.trim_matches('\''));
        }
    }

    fn compare_with(
        &mut self,
        text: Place,
        mut with: Vec<u8>,
        prefix: bool,
        (span, at): (Span, Span),
    ) -> Option<Expression> {
        if with.contains(&0) {
            self.error_hint(
                at,
                "a text ends at its first 0: this one can be equal to none",
                "write it without the 0",
            );
            return None;
        }
        let Type::Array(_, count) = text.ty else {
            return None;
        };
        let never = with.len() > count as usize;
        if never {
            let have = with.len();
            let message = format!("never true: the text has {have} characters, the array {count}");
            self.warn(at, message, "");
            with.truncate(count as usize);
        }
        let same = Expression {
            kind: ExpressionKind::CompareText { text, with, prefix },
            ty: Type::Bool,
            span,
        };
        let no = number(0, Type::Bool, span);
        Some(if never {
            Expression {
                kind: ExpressionKind::And(Box::new(truth(same)), Box::new(no)),
                ty: Type::Bool,
                span,
            }
        } else {
            same
        })
    }

    /// An array of `char`. `None`: it is something else, which has been reported.
    pub(super) fn text_place(&mut self, operand: Operand, span: Span) -> Option<Place> {
        let given = match operand {
            Operand::Place(place) if place.ty.is_text() => {
                self.details(place.variable).read = true;
                return Some(place);
            }
            Operand::Place(place) => place.ty,
            Operand::Value(value) => value.ty,
            Operand::Text(..) => {
                self.error_hint(
                    span,
                    "an array of char is expected here, not a text in quotes",
                    "name what is looked at: a field or a variable",
                );
                return None;
            }
            Operand::Error => return None,
        };
        if given != Type::Error {
            let name = self.type_name(&given);
            self.error_hint(
                span,
                format!("an array of char is expected here, this is {name}"),
                "strings are arrays of char; numbers are compared without quotes",
            );
        }
        None
    }
}
