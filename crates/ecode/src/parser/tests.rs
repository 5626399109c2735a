//! A printer for the tests, which writes every operator in parentheses; the tests of what texts
//! become, and of what is told about wrong ones.

mod accept;
mod reject;

use std::fmt::Write;

use crate::ast::*;
use crate::diagnostic::{Diagnostics, Severity};
use crate::parser::parse;
use crate::source::Source;
use crate::types::Int;

/// An expression with all its parentheses.
fn show(expression: &Expression) -> String {
    use ExpressionKind as Kind;
    match &expression.kind {
        Kind::Integer {
            value,
            unsigned,
            long,
            ..
        } => {
            let (u, l) = (
                if *unsigned { "u" } else { "" },
                if *long { "l" } else { "" },
            );
            format!("{value}{u}{l}")
        }
        Kind::Fixed(millionths) => format!("{millionths}e-6"),
        Kind::Character(byte) => format!("'{byte}'"),
        Kind::Text(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Kind::Bool(value) => value.to_string(),
        Kind::Name(name) => name.clone(),
        Kind::Field(of, name) => format!("{}.{}", show(of), name.text),
        Kind::Index(of, index) => format!("{}[{}]", show(of), show(index)),
        Kind::Call(name, arguments) => {
            let arguments: Vec<_> = arguments.iter().map(show).collect();
            format!("{}({})", name.text, arguments.join(", "))
        }
        Kind::Unary(operator, of) => format!("({}{})", unary(*operator), show(of)),
        Kind::Step { place, by, old } => {
            let (place, symbol) = (show(place), if *by > 0 { "++" } else { "--" });
            if *old {
                format!("({place}{symbol})")
            } else {
                format!("({symbol}{place})")
            }
        }
        Kind::Binary(operator, a, b, _) => {
            format!("({} {} {})", show(a), operator.sign(), show(b))
        }
        Kind::And(a, b) => format!("({} && {})", show(a), show(b)),
        Kind::Or(a, b) => format!("({} || {})", show(a), show(b)),
        Kind::Choice(a, b, c) => format!("({} ? {} : {})", show(a), show(b), show(c)),
        Kind::Assign(a, b) => format!("({} = {})", show(a), show(b)),
        Kind::AssignBinary(operator, a, b, _) => {
            format!("({} {}= {})", show(a), operator.sign(), show(b))
        }
        Kind::Comma(a, b) => format!("({}, {})", show(a), show(b)),
        Kind::Cast(ty, of) => format!("(<{}>{})", show_type(ty), show(of)),
        Kind::SizeOf(of) => format!("sizeof {}", show(of)),
        Kind::SizeOfType(ty, dimensions) => {
            let dimensions: String = dimensions
                .iter()
                .map(|d| format!("[{}]", show(d)))
                .collect();
            format!("sizeof<{}{dimensions}>", show_type(ty))
        }
        Kind::Error => "ERROR".into(),
    }
}

fn unary(operator: UnaryOperator) -> char {
    match operator {
        UnaryOperator::Plus => '+',
        UnaryOperator::Minus => '-',
        UnaryOperator::Complement => '~',
        UnaryOperator::Not => '!',
    }
}

fn show_type(ty: &TypeName) -> String {
    match &ty.kind {
        TypeKind::Void => "void".into(),
        TypeKind::Bool => "bool".into(),
        TypeKind::Fixed => "fixed".into(),
        TypeKind::Error => "?".into(),
        TypeKind::Struct(name) => format!("struct {name}"),
        TypeKind::Enum(name) => format!("enum {name}"),
        TypeKind::Int(Int { bits, signed }) => format!("{}{bits}", if *signed { 's' } else { 'u' }),
    }
}

fn show_initialiser(initialiser: &Initialiser) -> String {
    match initialiser {
        Initialiser::Value(value) => show(value),
        Initialiser::List(elements, _) => {
            let elements: Vec<_> = elements.iter().map(show_element).collect();
            format!("{{{}}}", elements.join(", "))
        }
    }
}

fn show_element(element: &Element) -> String {
    let value = show_initialiser(&element.value);
    match &element.designator {
        None => value,
        Some(Designator::Field(name)) => format!(".{} = {value}", name.text),
        Some(Designator::Index(index)) => format!("[{}] = {value}", show(index)),
    }
}

fn show_declaration(declaration: &Declaration) -> String {
    let mut text = String::new();
    if declaration.is_static {
        text += "static ";
    }
    if declaration.is_const {
        text += "const ";
    }
    text += &show_type(&declaration.ty);
    for (at, variable) in declaration.variables.iter().enumerate() {
        let _ = write!(
            text,
            "{} {}",
            if at > 0 { "," } else { "" },
            variable.name.text
        );
        for dimension in &variable.dimensions {
            let _ = write!(
                text,
                "[{}]",
                dimension.as_ref().map(show).unwrap_or_default()
            );
        }
        if let Some(initialiser) = &variable.initialiser {
            let _ = write!(text, " = {}", show_initialiser(initialiser));
        }
    }
    text
}

fn show_all(statements: &[Statement]) -> String {
    let shown: Vec<_> = statements.iter().map(show_statement).collect();
    shown.join(" ")
}

fn show_statement(statement: &Statement) -> String {
    use StatementKind as Kind;
    match &statement.kind {
        Kind::Empty => ";".into(),
        Kind::Declaration(declaration) => show_declaration(declaration) + ";",
        Kind::Expression(expression) => show(expression) + ";",
        Kind::Block(block) => format!("{{ {} }}", show_all(&block.statements)),
        Kind::If {
            condition,
            then,
            otherwise,
        } => {
            let rest = otherwise
                .as_ref()
                .map(|s| format!(" else {}", show_statement(s)));
            let rest = rest.unwrap_or_default();
            format!("if ({}) {}{rest}", show(condition), show_statement(then))
        }
        Kind::While { condition, body } => {
            format!("while ({}) {}", show(condition), show_statement(body))
        }
        Kind::Do { body, condition } => {
            format!("do {} while ({});", show_statement(body), show(condition))
        }
        Kind::For {
            first,
            condition,
            next,
            body,
        } => {
            let shown = |part: &Option<Expression>| part.as_ref().map(show).unwrap_or_default();
            let (first, body) = (show_statement(first), show_statement(body));
            format!("for ({first} {}; {}) {body}", shown(condition), shown(next))
        }
        Kind::ForSink { name, body } => format!("each {} {}", name.text, show_statement(body)),
        Kind::Switch { value, groups } => {
            let mut text = format!("switch ({})", show(value));
            for group in groups {
                let labels = group.labels.iter().map(|(label, _)| match label {
                    Some(value) => format!(" {}:", show(value)),
                    None => " default:".into(),
                });
                let _ = write!(text, " [{}", labels.collect::<String>().trim_start());
                let _ = write!(text, " {}]", show_all(&group.statements));
            }
            text
        }
        Kind::Break => "break;".into(),
        Kind::Continue => "continue;".into(),
        Kind::Return(None) => "return;".into(),
        Kind::Return(Some(value)) => format!("return {};", show(value)),
    }
}

fn show_item(item: &Item) -> String {
    let declarations = |all: &[Declaration]| {
        let all: Vec<_> = all.iter().map(show_declaration).collect();
        all.join("; ")
    };
    match item {
        Item::Struct(item) => format!(
            "struct {} {{{}}}",
            item.name.text,
            declarations(&item.fields)
        ),
        Item::Enum(item) => {
            let name = item.name.as_ref().map_or("", |name| &name.text);
            let values = item.values.iter().map(|(name, value)| match value {
                Some(value) => format!("{}={}", name.text, show(value)),
                None => name.text.clone(),
            });
            format!("enum {name} {{{}}}", values.collect::<Vec<_>>().join(", "))
        }
        Item::Variable(declaration) => show_declaration(declaration) + ";",
        Item::Function(item) => format!(
            "{} {}({}) {{ {} }}",
            show_type(&item.ty),
            item.name.text,
            declarations(&item.parameters),
            show_all(&item.body.statements)
        ),
        Item::Fuel(value) => format!("fuel {};", show(value)),
        Item::Service(item) => {
            let kinds = item.kinds.iter().map(|kind| format!(" kind {}", kind.text));
            let deadlines = item.deadlines.iter();
            let deadlines = deadlines.map(|value| format!(" deadline {}", show(value)));
            let parts: String = kinds.chain(deadlines).collect();
            let head = item.head.as_ref();
            let head = head.map(|(name, at)| format!("{} on {}", name.text, at.text));
            format!("service {}{parts};", head.unwrap_or_default())
        }
        Item::Test(item) => {
            let steps = item.steps.iter().map(|step| match step {
                TestStep::Set { place, value } => {
                    format!("{} := {};", show(place), show_initialiser(value))
                }
                TestStep::Run(_) => "run;".into(),
                TestStep::Expect(value) => format!("expect {};", show(value)),
            });
            format!(
                "test {:?} {{ {} }}",
                item.name,
                steps.collect::<Vec<_>>().join(" ")
            )
        }
    }
}

/// A text as it was understood: items, `|`, the body.
fn understood(text: &str) -> String {
    let source = Source::new("t", text);
    let (unit, told) = parse(&source);
    let rendered = Diagnostics::new(told).render(&source);
    assert_eq!(rendered, "", "{text}");
    let items: Vec<_> = unit.items.iter().map(show_item).collect();
    let body = unit.body.map(|body| show_all(&body.statements));
    format!("{} | {}", items.join(" "), body.unwrap_or_default())
        .trim()
        .to_owned()
}

/// An expression as it was understood.
fn expression(text: &str) -> String {
    let shown = understood(text);
    let value = shown
        .strip_prefix("| return ")
        .and_then(|rest| rest.strip_suffix(';'));
    value.unwrap_or(&shown).to_owned()
}

/// `line:column: message` of each diagnostic, warnings with a `w` before.
fn told(text: &str) -> Vec<String> {
    let source = Source::new("t", text);
    let (_, told) = parse(&source);
    let shown = told.iter().map(|d| {
        let place = source.position(d.span.start);
        let warning = if d.severity == Severity::Warning {
            "w "
        } else {
            ""
        };
        format!("{warning}{}:{}: {}", place.line, place.column, d.message)
    });
    shown.collect()
}
