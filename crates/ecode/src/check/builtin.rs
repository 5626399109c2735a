//! The functions of the language: their names, how they are called, and the types of their
//! arguments.

use super::call::arguments_text;
use super::conversion::{common, constant_of, convert, number, promoted};
use super::scope::Binding;
use super::{Checker, Details, Fixed, Operand, cut};
use crate::ast::{self, ExpressionKind as Ast, Name};
use crate::frame;
use crate::limits;
use crate::source::Span;
use crate::tree::{BinaryOperator, Builtin, Expression, ExpressionKind, Storage, Variable};
use crate::types::{Int, Type};

const UNSIGNED_LONG: Type = Type::Int(Int::UNSIGNED_LONG);
const LONG: Type = Type::Int(Int::LONG);
const UNSIGNED: Type = Type::Int(Int::UNSIGNED);
const INT: Type = Type::Int(Int::INT);

/// A function of the language: its name, the least and the largest number of arguments, the call as
/// it is explained, and what the call is checked as.
struct Row(&'static str, usize, usize, &'static str, What);

/// The check of a call.
enum What {
    /// A built-in without arguments.
    Plain(Builtin),
    /// A built-in of numbers, which are converted to a common type.
    Extreme(Builtin),
    /// A built-in of a sink.
    Sink(Builtin),
    /// A request of numbers, which the dispatcher carries out after the run.
    Request(Builtin),
    /// A request with a check of its own.
    OwnRequest(Own),
    /// Any other call.
    Own(Own),
}

/// Checks a call.
type Own = fn(&mut Checker<'_>, &[ast::Expression], Span) -> Option<Expression>;

use What::{Extreme, Own as Check, OwnRequest, Plain, Request, Sink};

/// All of them. How each is computed is in [`crate::lower`].
#[rustfmt::skip]
static ALL: [Row; 21] = [
    Row("now", 0, 0, "now(): ns on the clock of events", Plain(Builtin::Now)),
    Row("random", 0, 0, "random()", Plain(Builtin::Random)),
    Row("min", 2, 2, "min(a, b)", Extreme(Builtin::Min)),
    Row("max", 2, 2, "max(a, b)", Extreme(Builtin::Max)),
    Row("clamp", 3, 3, "clamp(value, low, high)", Extreme(Builtin::Clamp)),
    Row("abs", 1, 1, "abs(value)", Check(|this, given, at| this.abs(&given[0], at))),
    Row("hash", 1, 1, "hash(number)", Check(|this, given, at| this.hash(&given[0], at))),
    Row("attr", 1, 1, "attr(\"name\")", Check(|this, given, at| this.attribute(&given[0], at))),
    Row("once", 2, 2, "once(key, ttl_us)",
        Check(|this, given, at| this.once(&given[0], &given[1], at))),
    Row("length", 1, 1, "length(text)", Check(|this, given, at| this.length(&given[0], at))),
    Row("prefix", 2, 2, "prefix(text, beginning)",
        Check(|this, given, at| this.prefix(&given[0], &given[1], at))),
    Row("age", 1, 1, "age(s) of a sink", Sink(Builtin::SinkAge)),
    Row("accept", 1, 1, "accept(s) of a sink", Sink(Builtin::Accept)),
    Row("reject", 1, 1, "reject(s) of a sink", Sink(Builtin::Reject)),
    Row("best", 2, 2, "best(n, key): in the key, 'sink' is the sink that is looked at",
        Check(|this, given, at| this.best(&given[0], &given[1], at))),
    Row("signal", 2, 2, "signal(number, value)", Request(Builtin::Signal)),
    Row("raise", 1, 4, "raise(\"service\", a, b, c): up to three numbers",
        OwnRequest(|this, given, at| this.raise(&given[0], &given[1..], at))),
    Row("defer", 1, 1, "defer(us)", Request(Builtin::Defer)),
    Row("drop", 1, 1, "drop(reason)", Request(Builtin::Drop)),
    Row("count", 1, 2, "count(counter) or count(counter, by)", Request(Builtin::Count)),
    Row("histogram", 1, 1, "histogram(value)", Request(Builtin::Histogram)),
];

fn find(name: &str) -> Option<&'static Row> {
    ALL.iter().find(|row| row.0 == name)
}

/// The types of a built-in's arguments, as many as it can have, and of its result. `own`: the type
/// of the call, where any type is right.
#[rustfmt::skip]
pub(super) fn signature(builtin: Builtin, own: &Type) -> (Vec<Type>, Type) {
    let own = |count| (vec![own.clone(); count], own.clone());
    let fixed = |arguments: &[Type], result| (arguments.to_vec(), result);
    match builtin {
        Builtin::Event(field) => fixed(&[], field.ty()),
        Builtin::Now | Builtin::Random => fixed(&[], UNSIGNED_LONG),
        Builtin::Min | Builtin::Max => own(2),
        Builtin::Clamp => own(3),
        Builtin::Abs => own(1),
        Builtin::Hash => fixed(&[UNSIGNED_LONG], UNSIGNED_LONG),
        Builtin::Attribute(_) => fixed(&[], LONG),
        Builtin::SinkAttribute(_) => fixed(&[Type::Sink], LONG),
        Builtin::SinkId | Builtin::SinkAge => fixed(&[Type::Sink], UNSIGNED_LONG),
        Builtin::Accept | Builtin::Reject => fixed(&[Type::Sink], Type::Void),
        Builtin::Once(_) => fixed(&[UNSIGNED_LONG, UNSIGNED_LONG], Type::Bool),
        Builtin::Signal => fixed(&[INT, UNSIGNED_LONG], Type::Void),
        Builtin::Raise(_) => fixed(&[LONG, LONG, LONG], Type::Void),
        Builtin::Defer | Builtin::Histogram => fixed(&[UNSIGNED_LONG], Type::Void),
        Builtin::Drop => fixed(&[INT], Type::Void),
        Builtin::Count => fixed(&[UNSIGNED, UNSIGNED_LONG], Type::Void),
    }
}

/// All names.
pub(super) fn names<'n>() -> impl Iterator<Item = &'n str> {
    ALL.iter().map(|row| -> &'n str { row.0 })
}

/// Whether the function is a request, which is carried out after the run.
pub(super) fn is_request(name: &str) -> bool {
    find(name).is_some_and(|row| matches!(row.4, Request(..) | OwnRequest(_)))
}

/// Whether the language has a function of that name.
pub(super) fn is_builtin(name: &str) -> bool {
    find(name).is_some()
}

impl Checker<'_> {
    /// A call of one of them.
    #[inline(never)]
    pub(super) fn call_builtin(
        &mut self,
        name: &Name,
        arguments: &[ast::Expression],
        span: Span,
    ) -> Option<Expression> {
        let &Row(_, least, most, how, ref what) = find(&name.text)?;
        if !(least..=most).contains(&arguments.len()) {
            let wanted = match (least, most) {
                (least, most) if least == most => arguments_text(least),
                _ => format!("{least} to {most} arguments"),
            };
            let message = format!("'{}' takes {wanted}, {} given", name.text, arguments.len());
            self.error_hint(name.span, message, format!("it is {how}"));
            self.look_at(arguments);
            return None;
        }
        if is_request(&name.text) {
            self.may_request(name)?;
        }
        match what {
            Plain(builtin) => self.plain(*builtin, Vec::new(), UNSIGNED_LONG, span),
            Extreme(builtin) => self.extreme(*builtin, arguments, span),
            Sink(builtin) => self.of_sink(*builtin, &arguments[0], span),
            Request(builtin) => {
                self.changes(name.span)?;
                self.request(*builtin, arguments, span)
            }
            OwnRequest(check) | Check(check) => check(self, arguments, span),
        }
    }

    fn prefix(
        &mut self,
        text: &ast::Expression,
        beginning: &ast::Expression,
        span: Span,
    ) -> Option<Expression> {
        let a = (self.expression(text), text.span);
        let b = (self.expression(beginning), beginning.span);
        self.compare_texts(a, b, true, span)
    }

    fn plain(
        &mut self,
        builtin: Builtin,
        arguments: Vec<Expression>,
        ty: Type,
        span: Span,
    ) -> Option<Expression> {
        self.allowed(builtin, span).then_some(Expression {
            kind: ExpressionKind::Builtin(builtin, arguments),
            ty,
            span,
        })
    }

    /// A request of numbers.
    #[inline(never)]
    fn request(
        &mut self,
        builtin: Builtin,
        arguments: &[ast::Expression],
        span: Span,
    ) -> Option<Expression> {
        let (types, _) = signature(builtin, &Type::Void);
        let values: Vec<_> = arguments
            .iter()
            .zip(&types)
            .map(|(argument, ty)| self.argument(argument, ty))
            .collect();
        let mut values = values.into_iter().collect::<Option<Vec<_>>>()?;
        if builtin == Builtin::Count && values.len() == 1 {
            values.push(number(1, UNSIGNED_LONG, span));
        }
        if builtin == Builtin::Drop {
            self.context.exits += 1;
        }
        self.in_range(builtin, &values[0])?;
        self.plain(builtin, values, Type::Void, span)
    }

    /// Checks the number that a request names, if it is constant. A wrong reason to drop is an
    /// error; wrong numbers of other requests are refused at run time, so they are warnings.
    fn in_range(&mut self, builtin: Builtin, value: &Expression) -> Option<()> {
        let (what, range) = match builtin {
            Builtin::Drop => ("a reason", 0..=255),
            Builtin::Count => ("a counter", 0..=63),
            Builtin::Signal => ("a real-time signal", 34..=64),
            _ => return Some(()),
        };
        let Some(given) = constant_of(value).filter(|given| !range.contains(given)) else {
            return Some(());
        };
        let (least, most) = range.into_inner();
        let message = format!("{what} is {least} to {most}, not {given}");
        if builtin == Builtin::Drop {
            self.error(value.span, message);
            return None;
        }
        self.warn(value.span, message, "it is counted as not done");
        Some(())
    }

    /// An argument that is a whole number of this type.
    fn argument(&mut self, source: &ast::Expression, ty: &Type) -> Option<Expression> {
        let value = self.integer(source, "this argument")?;
        let signed = !matches!(value.ty, Type::Int(int) if !int.signed);
        let negative = constant_of(&value).filter(|known| signed && *known < 0);
        if let (Some(known), Type::Int(to)) = (negative, ty)
            && !to.signed
        {
            let message = format!("{known} has no meaning here: it becomes a large number");
            self.warn(source.span, message, "");
        }
        Some(self.adapt(value, ty))
    }

    /// Refuses a request in a condition: a test can only expect that the request was made.
    fn may_request(&mut self, name: &Name) -> Option<()> {
        if !self.context.looks_only || self.context.request_named {
            return Some(());
        }
        let text = &name.text;
        let message = format!("'{text}' is no part of a condition: it is expected alone");
        let hint = format!(
            "`expect {text}(...);` says that it was made; a condition has `requests` and `dropped`"
        );
        self.error_hint(name.span, message, hint);
        None
    }

    /// Refuses a call with an effect in an `expect`.
    fn changes(&mut self, span: Span) -> Option<()> {
        let named = std::mem::take(&mut self.context.request_named);
        if self.context.looks_only && !named {
            self.only_looks(span);
            return None;
        }
        Some(())
    }

    /// `min`, `max`, `clamp`
    #[inline(never)]
    fn extreme(
        &mut self,
        builtin: Builtin,
        arguments: &[ast::Expression],
        span: Span,
    ) -> Option<Expression> {
        let values: Vec<_> = arguments
            .iter()
            .map(|argument| self.value(argument))
            .collect();
        let values = values.into_iter().collect::<Option<Vec<_>>>()?;
        let ty = values
            .iter()
            .fold(Type::Bool, |ty, value| common(&ty, &value.ty));
        let values: Vec<_> = values
            .into_iter()
            .map(|value| convert(value, &ty))
            .collect();
        let known: Option<Vec<_>> = values.iter().map(constant_of).collect();
        let Some(known) = known else {
            return self.plain(builtin, values, ty, span);
        };
        let less = |a, b| super::constant::compare(BinaryOperator::Less, &ty, a, b);
        let min = |a, b| if less(b, a) { b } else { a };
        let max = |a, b| if less(a, b) { b } else { a };
        let result = match (builtin, known.as_slice()) {
            (Builtin::Min, [a, b]) => min(*a, *b),
            (Builtin::Max, [a, b]) => max(*a, *b),
            (_, [a, low, high]) => min(max(*a, *low), *high),
            _ => 0,
        };
        Some(number(result, ty, span))
    }

    fn abs(&mut self, argument: &ast::Expression, span: Span) -> Option<Expression> {
        let value = self.value(argument)?;
        let ty = promoted(&value.ty);
        let value = convert(value, &ty);
        let int = match ty {
            Type::Int(int) => int,
            _ => Int::LONG,
        };
        if !int.signed {
            self.warn(span, "abs of what is never negative", "");
        }
        match constant_of(&value) {
            Some(known) if int.signed => Some(number(int.wrap(known.wrapping_abs()), ty, span)),
            _ => self.plain(Builtin::Abs, vec![value], ty, span),
        }
    }

    fn hash(&mut self, argument: &ast::Expression, span: Span) -> Option<Expression> {
        let value = self.integer(argument, "what is hashed")?;
        let value = convert(value, &UNSIGNED_LONG);
        match constant_of(&value) {
            Some(known) => Some(number(
                frame::hash(known as u64) as i64,
                UNSIGNED_LONG,
                span,
            )),
            None => self.plain(Builtin::Hash, vec![value], UNSIGNED_LONG, span),
        }
    }

    /// A name in quotes.
    fn quoted<'e>(&mut self, source: &'e ast::Expression, what: &str) -> Option<&'e str> {
        if let Ast::Text(text) = &source.kind
            && let Ok(name) = std::str::from_utf8(text)
        {
            return Some(name);
        }
        let hint = match &source.kind {
            Ast::Name(name) => format!("write \"{}\"", cut(name)),
            _ => "it is known by its name only".to_owned(),
        };
        let message = format!("{what} is written in quotes: \"name\"");
        self.error_hint(source.span, message, hint);
        None
    }

    fn attribute(&mut self, source: &ast::Expression, span: Span) -> Option<Expression> {
        if !self.allowed(Builtin::Attribute(0), span) {
            return None;
        }
        let number = self.attribute_number(source)?;
        self.plain(Builtin::Attribute(number), Vec::new(), LONG, span)
    }

    /// The number of the channel's attribute that is named.
    pub(super) fn attribute_number(&mut self, source: &ast::Expression) -> Option<u32> {
        let name = self.quoted(source, "an attribute's name")?;
        let environment = self.environment;
        let known: Vec<_> = environment.attributes.iter().map(String::as_str).collect();
        let number = known.iter().position(|known| *known == name);
        if number.is_none() {
            let hint = match known.is_empty() {
                true => environment.naming.attributes.to_owned(),
                false => self.near_or_all(name, &known),
            };
            let message = format!("there is no attribute '{}'", cut(name));
            self.error_hint(source.span, message, hint);
        }
        number.map(|at| at as u32)
    }

    #[inline(never)]
    fn raise(
        &mut self,
        service: &ast::Expression,
        numbers: &[ast::Expression],
        span: Span,
    ) -> Option<Expression> {
        self.changes(span)?;
        if !self.allowed(Builtin::Raise(0), span) {
            self.look_at(std::slice::from_ref(service));
            self.look_at(numbers);
            return None;
        }
        let environment = self.environment;
        let services = environment.services.iter();
        let name = self.quoted(service, "a service's name");
        let index = name.and_then(|name| {
            let found = services.clone().find(|(known, _)| known == name);
            if found.is_none() {
                let known: Vec<_> = services.map(|(known, _)| known.as_str()).collect();
                let hint = match known.is_empty() {
                    true => environment.naming.services.to_owned(),
                    false => self.near_or_all(name, &known),
                };
                let message = format!("no service '{}' can be raised from here", cut(name));
                self.error_hint(service.span, message, hint);
            }
            found.map(|(_, index)| *index)
        });
        let numbers = numbers.iter().map(|argument| {
            let value = self.integer(argument, "this argument")?;
            Some(convert(value, &LONG))
        });
        let numbers: Vec<_> = numbers.collect();
        let numbers = numbers.into_iter().collect::<Option<Vec<_>>>()?;
        self.plain(Builtin::Raise(index?), numbers, Type::Void, span)
    }

    #[inline(never)]
    fn once(
        &mut self,
        key: &ast::Expression,
        ttl: &ast::Expression,
        span: Span,
    ) -> Option<Expression> {
        self.changes(span)?;
        let key = self.integer(key, "a key");
        let ttl = self.argument(ttl, &UNSIGNED_LONG);
        let (key, ttl) = (convert(key?, &UNSIGNED_LONG), ttl?);
        // For each key: the key itself, and the time until which it is remembered.
        let memory = Type::Array(Box::new(UNSIGNED_LONG), 2 * limits::ONCE_ENTRIES);
        let bytes = 16 * limits::ONCE_ENTRIES;
        self.reserve_state(bytes, 8, span)?;
        // No variable of the text has such a name.
        let name = self.state_name("once()");
        let variable = Variable {
            name,
            ty: memory,
            storage: Storage::Static(vec![0; bytes as usize]),
            span,
        };
        let id = self.add_variable(variable, Details::default());
        self.plain(Builtin::Once(id), vec![key, ttl], Type::Bool, span)
    }

    fn length(&mut self, argument: &ast::Expression, span: Span) -> Option<Expression> {
        let ty = Type::Int(Int::UNSIGNED);
        match self.expression(argument) {
            Operand::Text(text, _) => {
                let length = text
                    .iter()
                    .position(|byte| *byte == 0)
                    .unwrap_or(text.len());
                Some(number(length as i64, ty, span))
            }
            other => {
                let place = self.text_place(other, argument.span)?;
                Some(Expression {
                    kind: ExpressionKind::Length(place),
                    ty,
                    span,
                })
            }
        }
    }

    fn of_sink(
        &mut self,
        builtin: Builtin,
        argument: &ast::Expression,
        span: Span,
    ) -> Option<Expression> {
        let (_, ty) = signature(builtin, &Type::Void);
        if ty == Type::Void {
            self.changes(span)?;
        }
        let given = match self.expression(argument) {
            Operand::Place(place) if place.ty == Type::Sink => {
                let sink = self.sink_value(place);
                return self.plain(builtin, vec![sink], ty, span);
            }
            Operand::Error => return None,
            Operand::Place(place) => self.type_name(&place.ty),
            Operand::Value(value) => self.type_name(&value.ty),
            Operand::Text(..) => "a text".to_owned(),
        };
        self.error_hint(
            argument.span,
            format!("a sink is expected here, this is {given}"),
            "for (s in sinks) { ... } names them one by one",
        );
        None
    }

    #[inline(never)]
    fn best(
        &mut self,
        count: &ast::Expression,
        key: &ast::Expression,
        span: Span,
    ) -> Option<Expression> {
        self.changes(span)?;
        self.sinks_here(span)?;
        let count = self.integer(count, "how many sinks");
        self.scopes.open();
        let at = key.span;
        let sink = self.sink_variable("sink", at);
        self.declare("sink", at, Binding::Variable(sink));
        let key = self.integer(key, "the key");
        self.scopes.close();
        let kind = ExpressionKind::Best {
            count: Box::new(convert(count?, &LONG)),
            sink,
            key: Box::new(convert(key?, &LONG)),
        };
        Some(Expression {
            kind,
            ty: Type::Void,
            span,
        })
    }

    /// A local that holds a sink.
    pub(super) fn sink_variable(&mut self, name: &str, span: Span) -> crate::tree::VariableId {
        let variable = Variable {
            name: name.to_owned(),
            ty: Type::Sink,
            storage: Storage::Local,
            span,
        };
        let details = Details {
            fixed: Some(Fixed::Sink),
            ..Details::default()
        };
        self.add_variable(variable, details)
    }

    /// Whether there are sinks; if not, this is reported.
    pub(super) fn sinks_here(&mut self, span: Span) -> Option<()> {
        if self.environment.sinks.is_none() {
            self.error_hint(
                span,
                "there are no sinks here",
                self.environment.naming.sinks,
            );
        }
        self.environment.sinks.as_ref().map(|_| ())
    }
}
