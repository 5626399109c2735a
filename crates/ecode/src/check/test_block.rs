//! Tests in the text: the event, attributes and sinks, one or more runs, and the expected results.
//! A step sets values to constants; an expectation is a condition without effects, or names a
//! request that the run must have made.

use super::builtin::is_request;
use super::conversion::{constant_of, convert, truth};
use super::scope::Binding;
use super::{Checker, Context, Details, Fixed, Operand, cut};
use crate::ast::{self, ExpressionKind as Ast, Initialiser};
use crate::limits;
use crate::source::Span;
use crate::tree::{
    EventField, Outcome, Place, SinkField, Storage, Test, TestStep, Variable, VariableId,
};
use crate::types::{Int, Type};

/// The message for a value that is not constant, and its hint.
const CONSTANTS: &str = "a test gives constants";
const WHICH: &str = "a number, an enum's value, a text, or what is computed of those";

impl Checker<'_> {
    pub(super) fn tests(&mut self, unit: &ast::Unit) {
        let mut names = std::collections::HashSet::new();
        for item in &unit.items {
            let ast::Item::Test(item) = item else {
                continue;
            };
            if !names.insert(item.name.as_str()) {
                let message = format!("a second test \"{}\"", cut(&item.name));
                self.error_hint(item.span, message, "choose another name");
            }
            let steps = item.steps.iter().filter_map(|step| self.test_step(step));
            let test = Test {
                name: item.name.clone(),
                steps: steps.collect(),
                span: item.span,
            };
            self.tree.tests.push(test);
        }
    }

    fn test_step(&mut self, step: &ast::TestStep) -> Option<TestStep> {
        self.context = Context {
            looks_only: true,
            ..Context::default()
        };
        match step {
            ast::TestStep::Run(span) => Some(TestStep::Run(*span)),
            ast::TestStep::Expect(condition) => self.expectation(condition),
            ast::TestStep::Set { place, value } => self.setting(place, value),
        }
    }

    fn expectation(&mut self, condition: &ast::Expression) -> Option<TestStep> {
        self.scopes.open();
        let outcomes = self.outcomes(condition.span);
        let step = match &condition.kind {
            Ast::Call(name, arguments)
                if is_request(&name.text) && self.scopes.find(&name.text).is_none() =>
            {
                self.context.request_named = true;
                let request = self.call(name, arguments, condition.span);
                self.context.request_named = false;
                match request {
                    Operand::Value(request) => Some(TestStep::Requested { request, outcomes }),
                    _ => None,
                }
            }
            _ => self
                .condition_of_statement(condition)
                .map(|condition| TestStep::Expect {
                    condition: truth(condition),
                    outcomes,
                }),
        };
        self.scopes.close();
        step
    }

    /// The names that an expectation can use besides those of the text. A declaration of the text
    /// with the same name has priority, except over `result` and `fault`.
    fn outcomes(&mut self, span: Span) -> Vec<(Outcome, VariableId)> {
        let mut known = Vec::new();
        for (name, outcome) in Outcome::ALL {
            let always = matches!(outcome, Outcome::Result | Outcome::Fault);
            let taken = self.scopes.find(name).is_some() || self.input_field(name, span).is_some();
            if taken && !always {
                continue;
            }
            let variable = Variable {
                name: name.to_owned(),
                ty: outcome.ty(),
                storage: Storage::Local,
                span,
            };
            let details = Details {
                fixed: Some(Fixed::Test),
                ..Details::default()
            };
            let id = self.add_variable(variable, details);
            self.declare(name, span, Binding::Variable(id));
            known.push((outcome, id));
        }
        known
    }

    fn setting(&mut self, place: &ast::Expression, value: &Initialiser) -> Option<TestStep> {
        match &place.kind {
            Ast::Call(name, arguments) if name.text == "attr" && arguments.len() == 1 => {
                let number = self.attribute_number(&arguments[0]);
                let value = self.set_value(value, "an attribute");
                return Some(TestStep::Attribute(number?, value?));
            }
            Ast::Call(name, arguments) if name.text == "now" && arguments.is_empty() => {
                return Some(TestStep::Now(self.set_value(value, "the time")?));
            }
            Ast::Call(name, arguments)
                if name.text == "age"
                    && arguments.len() == 1
                    && self.numbered_sink(&arguments[0]).is_some() =>
            {
                let sink = self.numbered_sink(&arguments[0])?;
                let number = self.sink_number(sink);
                let value = self.set_value(value, "an age");
                return Some(TestStep::Sink(number?, SinkField::Age, value?));
            }
            Ast::Field(base, name) if self.numbered_sink(base).is_some() => {
                let sink = self.numbered_sink(base)?;
                let number = self.sink_number(sink);
                let field = number.and_then(|_| self.field_of_sink(name));
                let value = self.set_value(value, "this field");
                return Some(TestStep::Sink(number?, field?, value?));
            }
            _ => {}
        }
        if let Some(field) = self.event_field_of(place) {
            return Some(TestStep::Event(field, self.set_value(value, "this field")?));
        }
        let target = self.input_place(place)?;
        let filling = self.filling(&target.ty, value)?;
        if let Some(at) = filling.not_constant() {
            self.error_hint(at, CONSTANTS, WHICH);
            return None;
        }
        Some(TestStep::Input(filling.into_expression(target)))
    }

    /// `sinks[number]`: the number.
    fn numbered_sink<'e>(&self, source: &'e ast::Expression) -> Option<&'e ast::Expression> {
        let Ast::Index(list, number) = &source.kind else {
            return None;
        };
        let named = matches!(&list.kind, Ast::Name(list) if list == "sinks");
        (named && self.scopes.find("sinks").is_none()).then_some(&**number)
    }

    /// The number of a sink in the table.
    fn sink_number(&mut self, source: &ast::Expression) -> Option<u32> {
        self.sinks_here(source.span)?;
        let number = convert(
            self.integer(source, "a sink's number")?,
            &Type::Int(Int::LONG),
        );
        let Some(number) = constant_of(&number) else {
            self.error_hint(source.span, CONSTANTS, WHICH);
            return None;
        };
        let known = u32::try_from(number).ok();
        let known = known.filter(|number| *number < limits::SINKS);
        if known.is_none() {
            let last = limits::SINKS - 1;
            self.error(source.span, format!("sinks are 0 to {last}, not {number}"));
        }
        known
    }

    /// `event.pid`: a field that every event has.
    fn event_field_of(&self, place: &ast::Expression) -> Option<EventField> {
        let Ast::Field(base, name) = &place.kind else {
            return None;
        };
        let of_event = matches!(&base.kind, Ast::Name(base) if base == "event");
        let known = EventField::ALL
            .iter()
            .find(|(known, _)| *known == name.text);
        known.filter(|_| of_event).map(|(_, field)| *field)
    }

    /// A place of the input. `None`: it is another place, which has been reported.
    fn input_place(&mut self, place: &ast::Expression) -> Option<Place> {
        match self.expression(place) {
            Operand::Place(found) if Some(found.variable) == self.tree.input => {
                if let Some(index) = found.indices.first() {
                    self.error_hint(index.value.span, CONSTANTS, WHICH);
                    return None;
                }
                (found.ty != Type::Error).then_some(found)
            }
            Operand::Error => None,
            _ => {
                self.error_hint(
                    place.span,
                    "a test sets the input, the event, attributes, sinks and the time",
                    "input.x = 1;  event.pid = 1;  attr(\"load\") = 1;  sinks[0].load = 1;  \
                     now() = 1;",
                );
                None
            }
        }
    }

    fn set_value(&mut self, value: &Initialiser, what: &str) -> Option<i64> {
        let source = match value {
            Initialiser::Value(source) => source,
            Initialiser::List(_, span) => {
                self.error_hint(
                    *span,
                    format!("{what} has one value"),
                    "write it without braces",
                );
                return None;
            }
        };
        let number = convert(self.integer(source, "this value")?, &Type::Int(Int::LONG));
        let known = constant_of(&number);
        if known.is_none() {
            self.error_hint(source.span, CONSTANTS, WHICH);
        }
        known
    }
}
