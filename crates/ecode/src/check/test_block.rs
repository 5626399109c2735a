//! Tests in the text: what the event is, one or more runs, and what is expected of them. A step
//! that sets something gives a constant; an expectation only looks.

use super::conversion::{constant_of, convert, truth};
use super::scope::Binding;
use super::{Checker, Context, Facts, Fixed, Operand, cut};
use crate::ast::{self, ExpressionKind as Ast, Initialiser};
use crate::source::Span;
use crate::tree::{EventField, Place, Storage, Test, TestStep, Variable, VariableId};
use crate::types::{Int, Type};

impl Checker<'_> {
    /// All tests, in order.
    pub(super) fn tests(&mut self, unit: &ast::Unit) {
        let mut names = std::collections::HashSet::new();
        for item in &unit.items {
            let ast::Item::Test(item) = item else {
                continue;
            };
            if !names.insert(item.name.as_str()) {
                self.error(item.span, format!("a second test \"{}\"", cut(&item.name)));
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
        let result = self.outcome("result", Int::LONG, condition.span);
        let fault = self.outcome("fault", Int::INT, condition.span);
        let condition = self.condition_of_statement(condition);
        self.scopes.close();
        Some(TestStep::Expect {
            condition: truth(condition?),
            result,
            fault,
        })
    }

    /// A local that an expectation can name.
    fn outcome(&mut self, name: &str, int: Int, span: Span) -> VariableId {
        let variable = Variable {
            name: name.to_owned(),
            ty: Type::Int(int),
            storage: Storage::Local,
            span,
        };
        let facts = Facts {
            fixed: Some(Fixed::Test),
            ..Facts::default()
        };
        let id = self.add_variable(variable, facts);
        self.declare(name, span, Binding::Variable(id));
        id
    }

    fn setting(&mut self, place: &ast::Expression, value: &Initialiser) -> Option<TestStep> {
        if let Ast::Call(name, arguments) = &place.kind
            && name.text == "attr"
            && let [attribute] = arguments.as_slice()
        {
            let number = self.attribute_number(attribute);
            let value = self.set_value(value, "an attribute");
            return Some(TestStep::Attribute(number?, value?));
        }
        if let Some(field) = self.event_field_of(place) {
            return Some(TestStep::Event(field, self.set_value(value, "this field")?));
        }
        let target = self.input_place(place)?;
        let filling = self.filling(&target.ty, value)?;
        if let Some(at) = filling.not_constant() {
            self.error(at, "a test gives constants");
            return None;
        }
        Some(TestStep::Input(filling.into_expression(target)))
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

    /// A place of the input. `None`: it is none, and that is told.
    fn input_place(&mut self, place: &ast::Expression) -> Option<Place> {
        match self.expression(place) {
            Operand::Place(found) if Some(found.variable) == self.tree.input => {
                if let Some(index) = found.indices.first() {
                    self.error(index.value.span, "a test gives constants");
                    return None;
                }
                (found.ty != Type::Error).then_some(found)
            }
            Operand::Error => None,
            _ => {
                self.error_hint(
                    place.span,
                    "a test sets the input, the event and attributes",
                    "input.x = 1;  event.pid = 1;  attr(\"load\") = 1;",
                );
                None
            }
        }
    }

    fn set_value(&mut self, value: &Initialiser, what: &str) -> Option<i64> {
        let source = match value {
            Initialiser::Value(source) => source,
            Initialiser::List(_, span) => {
                self.error(*span, format!("{what} has one value"));
                return None;
            }
        };
        let number = convert(self.integer(source, "this value")?, &Type::Int(Int::LONG));
        let known = constant_of(&number);
        if known.is_none() {
            self.error(source.span, "a test gives constants");
        }
        known
    }
}
