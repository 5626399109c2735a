//! Calls of the text's own functions, and the checks of all calls: the number and types of
//! arguments, and the rights of the subscription.

use super::builtin;
use super::scope::{Binding, nearest};
use super::{Call, Checker, Operand, cut};
use crate::ast::{self, Name};
use crate::source::Span;
use crate::tree::{Builtin, Expression, ExpressionKind, FunctionId};
use crate::types::Type;

/// The replacement for a function of C's library.
fn foreign_function(name: &str) -> Option<&'static str> {
    let hint = match name {
        "printf" | "puts" | "fprintf" | "bpf_printk" => {
            "nothing is printed: keep it in output or in a static variable"
        }
        "strcmp" | "strcasecmp" | "memcmp" => "strings are compared by == and !=",
        "strncmp" | "strstr" => "whether a string begins so: prefix(string, \"...\")",
        "strlen" | "strnlen" => "bytes of a string: length(string)",
        "strcpy" | "strncpy" | "memcpy" | "memset" => {
            "strings, arrays and structs are assigned by ="
        }
        "malloc" | "calloc" | "free" => "what stays from event to event is a static variable",
        "time" | "clock" | "clock_gettime" => "the time in ns is now()",
        "rand" => "a number at random: random()",
        _ => return None,
    };
    Some(hint)
}

impl Checker<'_> {
    /// `name(arguments)`
    #[inline(never)]
    pub(super) fn call(
        &mut self,
        name: &Name,
        arguments: &[ast::Expression],
        span: Span,
    ) -> Operand {
        let value = match self.scopes.find(&name.text) {
            Some(Binding::Function(id)) => {
                let id = *id;
                self.call_function(id, name, arguments, span)
            }
            None if builtin::is_builtin(&name.text) => self.call_builtin(name, arguments, span),
            found => {
                match found {
                    Some(Binding::Error) => {}
                    Some(_) => {
                        let message = format!("'{}' is no function", cut(&name.text));
                        let hint = "a number and a variable stand without parentheses";
                        self.error_hint(name.span, message, hint);
                    }
                    None => self.unknown_function(name),
                }
                self.look_at(arguments);
                None
            }
        };
        value.map_or(Operand::Error, Operand::Value)
    }

    /// Checks the arguments of a wrong call, to report their own errors too.
    pub(super) fn look_at(&mut self, arguments: &[ast::Expression]) {
        for argument in arguments {
            if let Operand::Place(place) = self.expression(argument) {
                self.details(place.variable).read = true;
            }
        }
    }

    fn unknown_function(&mut self, name: &Name) {
        if !self.unknown.insert(format!("{}()", name.text)) {
            return;
        }
        let own = self
            .signatures
            .iter()
            .map(|signature| signature.name.as_str());
        let near = nearest(&self.budget, &name.text, own.chain(builtin::names()));
        let hint = match (foreign_function(&name.text), near) {
            (Some(hint), _) => hint.to_owned(),
            (None, Some(near)) if self.hints() => format!("did you mean '{near}'?"),
            _ => format!("define it: u64 {}(u64 x) {{ ... }}", cut(&name.text)),
        };
        self.error_hint(
            name.span,
            format!("there is no function '{}'", cut(&name.text)),
            hint,
        );
    }

    #[inline(never)]
    fn call_function(
        &mut self,
        id: FunctionId,
        name: &Name,
        arguments: &[ast::Expression],
        span: Span,
    ) -> Option<Expression> {
        self.signatures[id.0 as usize].called = true;
        self.context.exits += 1;
        self.calls.push(Call {
            from: self.context.function,
            to: id,
            span: name.span,
        });
        let signature = &self.signatures[id.0 as usize];
        let (result, parameters) = (signature.result.clone(), signature.parameters.clone());
        if parameters.len() != arguments.len() {
            self.wrong_count(id, name, arguments.len());
            self.look_at(arguments);
            return None;
        }
        let mut values = Vec::with_capacity(arguments.len());
        for (argument, ty) in arguments.iter().zip(&parameters) {
            let value = self.value(argument);
            if *ty != Type::Error {
                values.push(value.map(|value| self.adapt(value, ty)));
            }
        }
        if result == Type::Error || values.len() != parameters.len() {
            return None;
        }
        Some(Expression {
            kind: ExpressionKind::Call(id, values.into_iter().collect::<Option<_>>()?),
            ty: result,
            span,
        })
    }

    fn wrong_count(&mut self, id: FunctionId, name: &Name, given: usize) {
        let signature = &self.signatures[id.0 as usize];
        let wanted = signature.parameters.len();
        let types: Vec<_> = signature
            .parameters
            .iter()
            .map(|ty| self.type_name(ty))
            .collect();
        let shown = cut(&name.text);
        let hint = format!("it is {shown}({})", types.join(", "));
        let message = format!("'{shown}' takes {}, {given} given", arguments_text(wanted));
        self.error_hint(name.span, message, hint);
    }

    /// Whether the subscription may do this; if not, it is reported.
    pub(super) fn allowed(&mut self, builtin: Builtin, span: Span) -> bool {
        let same = |denied: Builtin| match (denied, builtin) {
            (Builtin::Event(a), Builtin::Event(b)) => a == b,
            (a, b) => std::mem::discriminant(&a) == std::mem::discriminant(&b),
        };
        let denied = self
            .environment
            .denied
            .iter()
            .find(|denied| same(denied.builtin));
        if let Some(denied) = denied {
            self.error(span, format!("not allowed here: {}", denied.reason));
        }
        denied.is_none()
    }
}

/// "2 arguments"
pub(super) fn arguments_text(count: usize) -> String {
    match count {
        0 => "no arguments".to_owned(),
        1 => "1 argument".to_owned(),
        _ => format!("{count} arguments"),
    }
}
