//! Places that can be read and written: variables, their fields and elements; and the other
//! meanings of a name. A name without a declaration is a field of the input, a kind of the service,
//! a constant of the environment, or a constant of the kernel, in this order.

use super::conversion::{constant_of, convert, number};
use super::initialise::{last_element, outside};
use super::scope::{Binding, nearest};
use super::{Checker, Operand, cut};
use crate::ast::{self, Name};
use crate::environment::NUMBERS;
use crate::source::Span;
use crate::tree::{
    Builtin, EventField, Expression, ExpressionKind, Index, Place, SinkField, VariableId,
};
use crate::types::{Int, Type};

impl Checker<'_> {
    /// The whole of a variable.
    pub(super) fn place_of(&self, variable: VariableId, span: Span) -> Place {
        Place {
            variable,
            offset: 0,
            indices: Vec::new(),
            ty: self.variable(variable).ty.clone(),
            span,
        }
    }

    /// A name.
    #[inline(never)]
    pub(super) fn name(&mut self, name: &str, span: Span) -> Operand {
        match self.scopes.find(name) {
            Some(Binding::Variable(id)) => {
                let id = *id;
                if self.details(id).of_body
                    && (self.context.function.is_some() || self.context.looks_only)
                {
                    self.of_body(name, span);
                    return Operand::Error;
                }
                Operand::Place(self.place_of(id, span))
            }
            Some(Binding::Constant(ty, value, _)) => {
                Operand::Value(number(*value, ty.clone(), span))
            }
            Some(Binding::Function(_)) => {
                let message = format!("'{}' is a function", cut(name));
                self.error_hint(span, message, format!("call it: {}(...)", cut(name)));
                Operand::Error
            }
            Some(Binding::Error) => Operand::Error,
            None => self.name_of_surroundings(name, span),
        }
    }

    fn of_body(&mut self, name: &str, span: Span) {
        if self.unknown.insert(name.to_owned()) {
            let message = format!("'{}' is known in the body only", cut(name));
            let hint = "its value has to be computed: pass it as an argument";
            self.error_hint(span, message, hint);
        }
    }

    fn name_of_surroundings(&mut self, name: &str, span: Span) -> Operand {
        if let Some(place) = self.input_field(name, span) {
            return Operand::Place(place);
        }
        let kind = self.environment.kinds.iter().position(|kind| kind == name);
        let value = kind
            .map(|at| at as i64)
            .or_else(|| self.given_constant(name))
            .or_else(|| {
                let mut numbers = NUMBERS.iter();
                let found = numbers.find(|(known, _)| *known == name);
                found.map(|(_, value)| *value)
            });
        if let Some(value) = value {
            let int = if i32::try_from(value).is_ok() {
                Int::INT
            } else {
                Int::LONG
            };
            return Operand::Value(number(value, Type::Int(int), span));
        }
        if self.unknown.insert(name.to_owned()) {
            self.unknown_name(name, span);
        }
        Operand::Error
    }

    /// A constant of the environment; its use is recorded.
    fn given_constant(&mut self, name: &str) -> Option<i64> {
        let mut given = self.environment.constants.iter();
        let at = given.position(|(known, _)| known == name)?;
        if let Some(used) = self.tree.constants_used.get_mut(at) {
            *used = true;
        }
        Some(self.environment.constants[at].1)
    }

    /// A field of the input, by its bare name.
    pub(super) fn input_field(&self, name: &str, span: Span) -> Option<Place> {
        let input = self.tree.input?;
        let Type::Struct(id) = self.variable(input).ty else {
            return None;
        };
        let field = self.tree.structs.all[id].field(name)?;
        Some(Place {
            variable: input,
            offset: field.offset,
            indices: Vec::new(),
            ty: field.ty.clone(),
            span,
        })
    }

    /// Reports a field that exists but cannot be read. `false`: there is no such field.
    fn unreadable(&mut self, name: &str, span: Span) -> bool {
        let environment = self.environment;
        let known = environment
            .unreadable
            .iter()
            .find(|(known, _)| known == name);
        if let Some((_, reason)) = known
            && self.unknown.insert(format!("field {name}"))
        {
            let message = format!("the field '{}' cannot be read", cut(name));
            self.error_hint(span, message, reason.as_str());
        }
        known.is_some()
    }

    fn unknown_name(&mut self, name: &str, span: Span) {
        if self.unreadable(name, span) {
            return;
        }
        let message = match name {
            "input" => "there is no input here".to_owned(),
            "output" => "there is no output here".to_owned(),
            "event" => "the event itself is no value".to_owned(),
            "sinks" if self.environment.sinks.is_none() => "there are no sinks here".to_owned(),
            "sinks" => "the sinks can only be looked at one by one".to_owned(),
            _ if super::builtin::is_builtin(name) => format!("'{name}' is a function"),
            _ => format!("'{}' is not declared", cut(name)),
        };
        let hint = match name {
            "input" | "output" => format!("declare it: struct {name} {{ ... }};"),
            "event" => "name a field: event.pid, event.time, ...".to_owned(),
            "sinks" if self.environment.sinks.is_none() => self.environment.naming.sinks.to_owned(),
            "sinks" => "for (s in sinks) { ... }".to_owned(),
            "float" | "double" => "'fixed' is the type of numbers with a fraction".to_owned(),
            _ if EventField::ALL.iter().any(|(known, _)| *known == name) => {
                format!("did you mean event.{name}?")
            }
            _ if super::builtin::is_builtin(name) => format!("call it: {name}(...)"),
            _ => self.similar(name),
        };
        let hint = match hint.is_empty() && self.environment.input.is_none() {
            true => self.environment.naming.input.to_owned(),
            false => hint,
        };
        self.error_hint(span, message, hint);
    }

    /// "did you mean" for a name of a value.
    fn similar(&self, name: &str) -> String {
        if !self.hints() {
            return String::new();
        }
        let values = self.scopes.visible().filter_map(|(known, binding)| {
            (!matches!(binding, Binding::Function(_))).then_some(known)
        });
        let environment = self.environment;
        let kinds = environment.kinds.iter().map(String::as_str);
        let constants = environment
            .constants
            .iter()
            .map(|(known, _)| known.as_str());
        let fields = self.input_fields();
        match nearest(
            &self.budget,
            name,
            values
                .chain(kinds)
                .chain(constants)
                .chain(fields)
                .chain(NUMBERS.iter().map(|(known, _)| *known)),
        ) {
            Some(near) => format!("did you mean '{near}'?"),
            None => self.known_fields(),
        }
    }

    /// A list of the existing names, for a name that resembles none of them.
    fn known_fields(&self) -> String {
        const SHOWN: usize = 8;
        let fields = self
            .input_fields()
            .filter(|field| !field.starts_with("pad"));
        let mut shown: Vec<_> = fields.take(SHOWN + 1).map(cut).collect();
        if shown.is_empty() {
            return String::new();
        }
        if shown.len() > SHOWN {
            shown[SHOWN] = "...".to_owned();
        }
        format!("the event's data has {}", shown.join(", "))
    }

    fn input_fields(&self) -> impl Iterator<Item = &str> {
        let input = self.tree.input.map(|id| &self.variable(id).ty);
        let fields = match input {
            Some(Type::Struct(id)) => self.tree.structs.all[*id].fields.as_slice(),
            _ => &[],
        };
        fields.iter().map(|field| field.name.as_str())
    }

    /// `base.name`
    #[inline(never)]
    pub(super) fn field(&mut self, base: &ast::Expression, name: &Name, span: Span) -> Operand {
        if let ast::ExpressionKind::Name(event) = &base.kind
            && event == "event"
            && self.scopes.find("event").is_none()
        {
            return self.event_field(name, span);
        }
        let Operand::Place(place) = self.expression_or_told(base, "has no fields") else {
            return Operand::Error;
        };
        match place.ty {
            Type::Struct(id) => match self.tree.structs.all[id].field(&name.text) {
                Some(field) => Operand::Place(Place {
                    offset: place.offset + field.offset,
                    ty: field.ty.clone(),
                    span,
                    ..place
                }),
                None => {
                    self.no_field(id, name);
                    Operand::Error
                }
            },
            Type::Sink => self.sink_field(place, name, span),
            Type::Error => Operand::Error,
            ref other => {
                let message = format!("{} has no fields", self.type_name(other));
                let hint = match other {
                    Type::Array(..) => "name one of its elements: [0]",
                    _ => "it is a number: it stands for itself",
                };
                self.error_hint(name.span, message, hint);
                Operand::Error
            }
        }
    }

    /// An expression that must be a place; `what` names it in the message if it is none.
    fn expression_or_told(&mut self, base: &ast::Expression, what: &str) -> Operand {
        match self.expression(base) {
            Operand::Place(place) => Operand::Place(place),
            Operand::Error => Operand::Error,
            Operand::Text(..) => {
                self.error(base.span, format!("a text {what}"));
                Operand::Error
            }
            Operand::Value(value) => {
                let message = format!("{} {what}", self.type_name(&value.ty));
                self.error_hint(base.span, message, "it is a number: it stands for itself");
                Operand::Error
            }
        }
    }

    /// `event.name`: a field that every event has, else a field of the event's data.
    fn event_field(&mut self, name: &Name, span: Span) -> Operand {
        let known = EventField::ALL
            .iter()
            .find(|(known, _)| *known == name.text);
        if let Some((_, field)) = known {
            let builtin = Builtin::Event(*field);
            if !self.allowed(builtin, span) {
                return Operand::Error;
            }
            return Operand::Value(Expression {
                kind: ExpressionKind::Builtin(builtin, Vec::new()),
                ty: field.ty(),
                span,
            });
        }
        if let Some(place) = self.input_field(&name.text, span) {
            return Operand::Place(place);
        }
        if self.unreadable(&name.text, name.span) {
            return Operand::Error;
        }
        let own = EventField::ALL.iter().map(|(known, _)| *known);
        let known: Vec<_> = own.chain(self.input_fields()).collect();
        let hint = self.near_or_all(&name.text, &known);
        self.error_hint(
            name.span,
            format!("the event has no field '{}'", cut(&name.text)),
            hint,
        );
        Operand::Error
    }

    /// "did you mean", or a list of the existing names.
    pub(super) fn near_or_all(&self, name: &str, known: &[&str]) -> String {
        const LISTED: usize = 8;
        if !self.hints() {
            return String::new();
        }
        if let Some(near) = nearest(&self.budget, name, known.iter().copied()) {
            return format!("did you mean '{near}'?");
        }
        let mut listed: Vec<String> = known.iter().take(LISTED).map(|name| cut(name)).collect();
        if known.len() > LISTED {
            listed.push("...".into());
        }
        match known {
            [] => "there are none here".to_owned(),
            _ => format!("known: {}", listed.join(", ")),
        }
    }

    /// Reports that a struct has no such field.
    pub(super) fn no_field(&mut self, id: usize, name: &Name) {
        if self.tree.structs.all[id].name == "input" && self.unreadable(&name.text, name.span) {
            return;
        }
        let laid = &self.tree.structs.all[id];
        let message = match laid.name.as_str() {
            "input" | "output" => format!("{} has no field '{}'", laid.name, cut(&name.text)),
            other => format!("struct {} has no field '{}'", cut(other), cut(&name.text)),
        };
        let fields: Vec<_> = laid
            .fields
            .iter()
            .map(|field| field.name.as_str())
            .collect();
        let hint = self.near_or_all(&name.text, &fields);
        self.error_hint(name.span, message, hint);
    }

    /// `s.name` of a sink.
    fn sink_field(&mut self, sink: Place, name: &Name, span: Span) -> Operand {
        let (builtin, int) = match self.field_of_sink(name) {
            Some(SinkField::Attribute(number)) => (Builtin::SinkAttribute(number), Int::LONG),
            Some(_) => (Builtin::SinkId, Int::UNSIGNED_LONG),
            None => return Operand::Error,
        };
        if !self.allowed(builtin, span) {
            return Operand::Error;
        }
        Operand::Value(Expression {
            kind: ExpressionKind::Builtin(builtin, vec![self.sink_value(sink)]),
            ty: Type::Int(int),
            span,
        })
    }

    /// The property of a sink with this name. `None`: there is none; this has been reported.
    pub(super) fn field_of_sink(&mut self, name: &Name) -> Option<SinkField> {
        if name.text == "id" {
            return Some(SinkField::Id);
        }
        let attributes = self.environment.sinks.as_deref().unwrap_or_default();
        let number = attributes.iter().position(|known| *known == name.text);
        if number.is_none() {
            let known = attributes.iter().map(String::as_str).chain(["id"]);
            let known: Vec<_> = known.collect();
            let hint = self.near_or_all(&name.text, &known);
            let message = format!("a sink has no attribute '{}'", cut(&name.text));
            self.error_hint(name.span, message, hint);
        }
        number.map(|at| SinkField::Attribute(at as u32))
    }

    /// The value of a sink's variable.
    pub(super) fn sink_value(&mut self, sink: Place) -> Expression {
        self.details(sink.variable).read = true;
        Expression {
            ty: Type::Sink,
            span: sink.span,
            kind: ExpressionKind::Load(sink),
        }
    }

    /// `base[index]`
    #[inline(never)]
    pub(super) fn index(
        &mut self,
        base: &ast::Expression,
        at: &ast::Expression,
        span: Span,
    ) -> Operand {
        let array = self.expression_or_told(base, "has no elements");
        let index = self.integer(at, "an index");
        let (Operand::Place(mut place), Some(index)) = (array, index) else {
            return Operand::Error;
        };
        let (of, count) = match place.ty {
            Type::Array(of, count) => (*of, count),
            Type::Error => return Operand::Error,
            other => {
                let message = format!("{} has no elements", self.type_name(&other));
                let hint = match other {
                    Type::Struct(_) => "name one of its fields: .field",
                    _ => "it is a number: it stands for itself",
                };
                self.error_hint(base.span, message, hint);
                return Operand::Error;
            }
        };
        place.ty = of;
        place.span = span;
        let stride = self.tree.structs.size(&place.ty).unwrap_or(0);
        let wide = match index.ty {
            Type::Int(Int::UNSIGNED_LONG) => index,
            _ => convert(index, &Type::Int(Int::LONG)),
        };
        match constant_of(&wide) {
            Some(value) if (value as u64) < u64::from(count) => {
                place.offset += value as u32 * stride;
            }
            Some(_) if self.context.silent => {}
            Some(value) if wide.ty == Type::Int(Int::UNSIGNED_LONG) => {
                let shown = Int::UNSIGNED_LONG.exact(value);
                let message = format!("index {shown} is outside: the array has {count} elements");
                self.error_hint(at.span, message, last_element(count));
                return Operand::Error;
            }
            Some(value) => {
                self.error_hint(at.span, outside(value, count), last_element(count));
                return Operand::Error;
            }
            None => place.indices.push(Index {
                value: wide,
                count,
                stride,
            }),
        }
        Operand::Place(place)
    }
}
