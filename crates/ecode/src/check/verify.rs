//! Checks the invariants of [`crate::tree`]: types of operands, places inside their variables,
//! values inside their types. It runs only with debug assertions; a failure is an error of the
//! checker, not of a text.

use super::constant;
use crate::tree::{
    BinaryOperator, Builtin, Expression, ExpressionKind, Place, Statement, Storage, TestStep, Tree,
};
use crate::types::{Int, Type};

/// Looks at all of a tree.
pub(super) fn verify(tree: &Tree) -> Result<(), String> {
    let look = Look { tree };
    for function in &tree.functions {
        look.statements(&function.body, Some(&function.result))?;
    }
    for variable in &tree.variables {
        let size = tree.structs.size(&variable.ty);
        if let Storage::Static(bytes) | Storage::Constant(bytes) = &variable.storage {
            holds(size == Some(bytes.len() as u32), "bytes of", &variable.name)?;
        }
    }
    for test in &tree.tests {
        for step in &test.steps {
            match step {
                TestStep::Input(set) => look.expression(set)?,
                TestStep::Expect { condition, .. } => look.bool(condition)?,
                TestStep::Requested { request, .. } => look.expression(request)?,
                TestStep::Event(..)
                | TestStep::Attribute(..)
                | TestStep::Now(_)
                | TestStep::Sink(..)
                | TestStep::Run(_) => {}
            }
        }
    }
    look.statements(&tree.body, None)
}

fn holds(condition: bool, what: &str, at: &impl std::fmt::Debug) -> Result<(), String> {
    if condition {
        Ok(())
    } else {
        Err(format!("{what}: {at:?}"))
    }
}

struct Look<'t> {
    tree: &'t Tree,
}

const LONG: Type = Type::Int(Int::LONG);

/// Whether operators compute in this type.
fn computes(ty: &Type) -> bool {
    match ty {
        Type::Int(int) => int.bits >= 32,
        other => *other == Type::Fixed,
    }
}

impl Look<'_> {
    /// Statements of a function with this result; of the body, `None`.
    fn statements(&self, all: &[Statement], result: Option<&Type>) -> Result<(), String> {
        all.iter()
            .try_for_each(|statement| self.statement(statement, result))
    }

    fn statement(&self, statement: &Statement, result: Option<&Type>) -> Result<(), String> {
        match statement {
            Statement::Declare(id) => {
                let variable = &self.tree.variables[id.0 as usize];
                holds(variable.storage == Storage::Local, "declares", variable)
            }
            Statement::Evaluate(value) => self.expression(value),
            Statement::Block(inner) => self.statements(inner, result),
            Statement::If(condition, then, otherwise) => {
                self.bool(condition)?;
                self.statements(then, result)?;
                self.statements(otherwise, result)
            }
            Statement::Loop {
                condition,
                next,
                body,
                ..
            } => {
                condition
                    .iter()
                    .try_for_each(|condition| self.bool(condition))?;
                next.iter().try_for_each(|next| self.expression(next))?;
                self.statements(body, result)
            }
            Statement::Switch { value, groups } => {
                self.expression(value)?;
                let Type::Int(int) = value.ty else {
                    return Err(format!("a switch of {:?}", value.ty));
                };
                holds(int.bits >= 32, "a switch of", &int)?;
                let mut labels: Vec<_> = groups.iter().flat_map(|(labels, _)| labels).collect();
                let fits = labels
                    .iter()
                    .all(|label| label.is_none_or(|v| int.wrap(v) == v));
                labels.sort_unstable();
                let distinct = labels.windows(2).all(|pair| pair[0] != pair[1]);
                holds(fits && distinct, "labels", &labels)?;
                groups
                    .iter()
                    .try_for_each(|(_, inner)| self.statements(inner, result))
            }
            Statement::Break | Statement::Continue => Ok(()),
            Statement::Return(None) => holds(
                result.is_none_or(|ty| *ty == Type::Void),
                "returns nothing",
                &result,
            ),
            Statement::Return(Some(value)) => self.typed(value, result.unwrap_or(&LONG)),
        }
    }

    fn bool(&self, value: &Expression) -> Result<(), String> {
        self.typed(value, &Type::Bool)
    }

    fn typed(&self, value: &Expression, ty: &Type) -> Result<(), String> {
        self.expression(value)?;
        holds(value.ty == *ty, "is not of its type", &(ty, value))
    }

    fn expression(&self, value: &Expression) -> Result<(), String> {
        let ty = &value.ty;
        let void = || holds(*ty == Type::Void, "is not void", value);
        let truth = || holds(*ty == Type::Bool, "is no bool", value);
        match &value.kind {
            ExpressionKind::Constant(known) => {
                holds(ty.is_scalar(), "a constant", value)?;
                holds(
                    constant::convert(*known, ty, ty) == *known || *ty == Type::Fixed,
                    "",
                    value,
                )
            }
            ExpressionKind::Load(place) => {
                holds(ty.is_scalar() || *ty == Type::Sink, "loads", value)?;
                holds(place.ty == *ty, "loads", value)?;
                self.place(place)
            }
            ExpressionKind::Arithmetic(operator, a, b) => {
                holds(computes(ty), "computes", value)?;
                self.typed(a, ty)?;
                self.typed(b, by_type(*operator, ty))
            }
            ExpressionKind::Compare(_, a, b) => {
                truth()?;
                holds(computes(&a.ty), "compares", value)?;
                self.expression(a)?;
                self.typed(b, &a.ty)
            }
            ExpressionKind::Negate(a) | ExpressionKind::Complement(a) => {
                holds(computes(ty), "computes", value)?;
                self.typed(a, ty)
            }
            ExpressionKind::Not(a) => truth().and_then(|()| self.bool(a)),
            ExpressionKind::And(a, b) | ExpressionKind::Or(a, b) => {
                truth()?;
                self.bool(a)?;
                self.bool(b)
            }
            ExpressionKind::Choice(condition, a, b) => {
                self.bool(condition)?;
                self.typed(a, ty)?;
                self.typed(b, ty)
            }
            ExpressionKind::Comma(a, b) => {
                self.expression(a)?;
                self.typed(b, ty)
            }
            ExpressionKind::Convert(a) => {
                let from = a.ty.is_scalar() || a.ty == Type::Sink;
                holds(from && ty.is_scalar(), "converts", value)?;
                self.expression(a)
            }
            _ => self.writes(value, &void, &truth),
        }
    }

    /// Expressions that write.
    fn writes(
        &self,
        value: &Expression,
        void: &dyn Fn() -> Result<(), String>,
        truth: &dyn Fn() -> Result<(), String>,
    ) -> Result<(), String> {
        let ty = &value.ty;
        match &value.kind {
            ExpressionKind::Assign(place, from) => {
                self.place(place)?;
                let next_sink = matches!(from.kind, ExpressionKind::NextSink(_));
                self.typed(from, if next_sink { &LONG } else { &place.ty })
            }
            ExpressionKind::Update {
                place,
                operator,
                compute,
                by,
                ..
            } => {
                holds(
                    place.ty == *ty && ty.is_scalar() && computes(compute),
                    "updates",
                    value,
                )?;
                self.place(place)?;
                self.typed(by, by_type(*operator, compute))
            }
            ExpressionKind::Copy { to, from } => {
                void()?;
                holds(to.ty == from.ty, "copies", value)?;
                self.place(to)?;
                self.place(from)
            }
            ExpressionKind::Fill(place, values) => {
                void()?;
                self.place(place)?;
                let size = self.tree.structs.size(&place.ty).unwrap_or(0);
                values.iter().try_for_each(|(offset, scalar)| {
                    let end = offset + self.tree.structs.size(&scalar.ty).unwrap_or(u32::MAX / 2);
                    holds(
                        scalar.ty.is_scalar() && end <= size,
                        "fills",
                        &(offset, scalar),
                    )?;
                    self.expression(scalar)
                })
            }
            ExpressionKind::FillText(place, text) => {
                void()?;
                self.text(place, text)
            }
            _ => self.asks(value, truth),
        }
    }

    /// Comparisons of texts, and calls.
    fn asks(
        &self,
        value: &Expression,
        truth: &dyn Fn() -> Result<(), String>,
    ) -> Result<(), String> {
        match &value.kind {
            ExpressionKind::CompareText { text, with, .. } => {
                truth()?;
                holds(!with.contains(&0), "compares", value)?;
                self.text(text, with)
            }
            ExpressionKind::ComparePlaces { text, with, .. } => {
                truth()?;
                self.text(text, &[])?;
                self.text(with, &[])
            }
            ExpressionKind::Length(place) => {
                holds(value.ty == Type::Int(Int::UNSIGNED), "a length", value)?;
                self.text(place, &[])
            }
            ExpressionKind::Call(id, arguments) => {
                let function = &self.tree.functions[id.0 as usize];
                holds(function.result == value.ty, "calls", value)?;
                holds(function.parameters.len() == arguments.len(), "calls", value)?;
                let parameters = function.parameters.iter();
                parameters
                    .zip(arguments)
                    .try_for_each(|(parameter, argument)| {
                        self.typed(argument, &self.tree.variables[parameter.0 as usize].ty)
                    })
            }
            ExpressionKind::Builtin(builtin, arguments) => self.builtin(value, *builtin, arguments),
            ExpressionKind::NextSink(after) => self.typed(after, &LONG),
            ExpressionKind::Best { count, key, .. } => {
                holds(value.ty == Type::Void, "is not void", value)?;
                self.typed(count, &LONG)?;
                self.typed(key, &LONG)
            }
            _ => Ok(()),
        }
    }

    fn builtin(
        &self,
        value: &Expression,
        builtin: Builtin,
        arguments: &[Expression],
    ) -> Result<(), String> {
        let (types, ty) = super::builtin::signature(builtin, &value.ty);
        let fewer = matches!(builtin, Builtin::Raise(_)) && arguments.len() < types.len();
        holds(
            value.ty == ty && (fewer || types.len() == arguments.len()),
            "asks for",
            value,
        )?;
        arguments
            .iter()
            .zip(&types)
            .try_for_each(|(argument, ty)| self.typed(argument, ty))
    }

    /// An array of `char` that this text fits.
    fn text(&self, place: &Place, text: &[u8]) -> Result<(), String> {
        self.place(place)?;
        let size = self.tree.structs.size(&place.ty).unwrap_or(0);
        holds(
            place.ty.is_text() && text.len() <= size as usize,
            "no text",
            place,
        )
    }

    /// A place lies inside its variable, whatever its indices are.
    fn place(&self, place: &Place) -> Result<(), String> {
        let variable = &self.tree.variables[place.variable.0 as usize];
        let mut end = u64::from(place.offset);
        for index in &place.indices {
            let int = index.value.ty == LONG || index.value.ty == Type::Int(Int::UNSIGNED_LONG);
            holds(int && index.count > 0, "an index", index)?;
            self.expression(&index.value)?;
            end += u64::from(index.count - 1) * u64::from(index.stride);
        }
        end += u64::from(self.tree.structs.size(&place.ty).unwrap_or(0));
        let size = self.tree.structs.size(&variable.ty).unwrap_or(0);
        holds(end <= u64::from(size), "outside", place)
    }
}

/// The type of an operator's right side.
fn by_type(operator: BinaryOperator, ty: &Type) -> &Type {
    match operator {
        BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight => &Type::Int(Int::UNSIGNED),
        _ => ty,
    }
}
