//! Statements. Each scope releases the memory of its locals at its end; `break`, `continue` and
//! `return` are exits from the blocks around the statements that they leave.
//!
//! A function is expanded where it is called: fresh registers for its parameters and locals, and a
//! block that its `return`s leave. A loop is
//!
//! ```text
//! loop L { if !condition exit L; burn; block C { body, continue = exit C }; next }
//! ```
//!
//! and a `switch` compares label after label. Groups that fall through into each other form a run.
//! A single group needs one block; a longer run needs a register that holds the number of the group
//! at which it is entered:
//!
//! ```text
//! block END { block { if v != 1 exit; ...; exit END }   case 1: ...; break;
//!             block { enter = 9; if v == 2 { enter = 0 }; if v == 3 { enter = 1 }
//!                     if enter == 9 exit
//!                     block { if 0 < enter exit; ... }   case 2: ...
//!                     block { if 1 < enter exit; ... } } case 3: ...
//!             ... }                                      default: ...
//! ```

use super::place::Home;
use super::{Lowered, Lowering};
use crate::ir::{Address, Label, Op, Operand, Relation};
use crate::tree::{Expression, ExpressionKind, FunctionId, Place, Statement, VariableId};
use crate::types::Type;

/// The labels of a group of a `switch`, and its statements.
type Group = (Vec<Option<i64>>, Vec<Statement>);

impl<'t> Lowering<'t> {
    /// Statements with a scope of their own.
    pub(super) fn statements(&mut self, all: &'t [Statement]) -> Lowered<()> {
        self.scope(|this| {
            for (at, statement) in all.iter().enumerate() {
                match statement {
                    Statement::Declare(variable) => this.declare(*variable, all.get(at + 1))?,
                    _ => this.nested(|this| this.statement(statement))?,
                }
            }
            Ok(())
        })
    }

    fn statement(&mut self, statement: &'t Statement) -> Lowered<()> {
        match statement {
            Statement::Declare(variable) => self.declare(*variable, None),
            Statement::Evaluate(expression) => self.effect(expression),
            Statement::Block(body) => self.statements(body),
            Statement::If(condition, then, otherwise) => self.choose(
                condition,
                |this| this.statements(then),
                |this| this.statements(otherwise),
            ),
            Statement::Loop {
                condition,
                next,
                body,
                after,
                span,
            } => {
                self.span = *span;
                self.repeat(|this, label| {
                    this.iteration(condition.as_ref(), next.as_ref(), body, *after, label)
                })
            }
            Statement::Switch { value, groups } => self.switch(value, groups),
            Statement::Break => {
                self.leave(self.on_break);
                Ok(())
            }
            Statement::Continue => {
                self.leave(self.on_continue);
                Ok(())
            }
            Statement::Return(value) => self.give_back(value.as_ref()),
        }
    }

    pub(super) fn leave(&mut self, label: Option<Label>) {
        if let Some(label) = label {
            self.emit(Op::Exit(label));
        }
    }

    /// Begins a local: sets it to 0, unless the next statement writes all its bytes.
    fn declare(&mut self, id: VariableId, next: Option<&Statement>) -> Lowered<()> {
        let variable = &self.tree.variables[id.0 as usize];
        self.span = variable.span;
        match self.make_room(id)? {
            Home::Register(register) => self.set(register, Operand::Constant(0)),
            Home::Memory(region, offset) if !next.is_some_and(|next| gives_all(next, id)) => {
                let bytes = self.size_of(&variable.ty);
                self.zero(Address::fixed(region, offset), bytes, 8);
            }
            Home::Memory(..) | Home::None => {}
        }
        Ok(())
    }

    fn iteration(
        &mut self,
        condition: Option<&'t Expression>,
        next: Option<&'t Expression>,
        body: &'t [Statement],
        after: bool,
        label: Label,
    ) -> Lowered<()> {
        let head = self.span;
        let before = if after { None } else { condition };
        if let Some(condition) = before {
            self.branch(condition, false, label)?;
        }
        self.span = head;
        self.emit(Op::Burn(1));
        let outer = (self.on_break, self.on_continue);
        self.block(|this, on_continue| {
            (this.on_break, this.on_continue) = (Some(label), Some(on_continue));
            this.statements(body)
        })?;
        (self.on_break, self.on_continue) = outer;
        if let Some(next) = next {
            self.effect(next)?;
        }
        if after && let Some(condition) = condition {
            self.branch(condition, false, label)?;
        }
        Ok(())
    }

    fn switch(&mut self, value: &'t Expression, groups: &'t [Group]) -> Lowered<()> {
        let value = self.value(value)?;
        let value = Operand::Register(self.copy(value));
        let outer = self.on_break;
        self.block(|this, end| {
            this.on_break = Some(end);
            let runs: Vec<&[Group]> = groups
                .chunk_by(|group, _| can_fall_through(&group.1))
                .collect();
            let has_default =
                |run: &&&[Group]| run.iter().any(|(labels, _)| labels.contains(&None));
            for run in runs.iter().filter(|run| !has_default(run)) {
                this.block(|this, skip| {
                    this.run(value, run, Some(skip))?;
                    this.leave(Some(end));
                    Ok(())
                })?;
            }
            match runs.iter().find(has_default) {
                Some(run) => this.run(value, run, None),
                None => Ok(()),
            }
        })?;
        self.on_break = outer;
        Ok(())
    }

    /// A run of groups. Exits `skip` if no group has the value; without `skip`, one of them is the
    /// default.
    fn run(&mut self, value: Operand, run: &'t [Group], skip: Option<Label>) -> Lowered<()> {
        if let [(labels, body)] = run {
            if let Some(skip) = skip {
                self.exit_unless_among(value, labels, skip)?;
            }
            return self.nested(|this| this.statements(body));
        }
        let none = run.len() as i64;
        let is_default = |group: &Group| group.0.contains(&None);
        let first = run.iter().position(is_default).map_or(none, |at| at as i64);
        let enter = self.copy(Operand::Constant(first));
        for ((labels, _), at) in run.iter().zip(0..) {
            for label in labels.iter().flatten() {
                self.when(Relation::Equal, value, Operand::Constant(*label), |this| {
                    this.set(enter, Operand::Constant(at));
                    Ok(())
                })?;
            }
        }
        let enter = Operand::Register(enter);
        if let Some(skip) = skip {
            self.exit_if(Relation::Equal, enter, Operand::Constant(none), skip);
        }
        for ((_, body), at) in run.iter().zip(0..) {
            self.block(|this, over| {
                this.exit_if(Relation::LessSigned, Operand::Constant(at), enter, over);
                this.nested(|this| this.statements(body))
            })?;
        }
        Ok(())
    }

    fn exit_unless_among(
        &mut self,
        value: Operand,
        labels: &[Option<i64>],
        skip: Label,
    ) -> Lowered<()> {
        if let [Some(only)] = labels {
            self.exit_if(Relation::NotEqual, value, Operand::Constant(*only), skip);
            return Ok(());
        }
        self.block(|this, found| {
            for label in labels.iter().flatten() {
                this.exit_if(Relation::Equal, value, Operand::Constant(*label), found);
                this.check_count()?;
            }
            this.leave(Some(skip));
            Ok(())
        })
    }

    fn give_back(&mut self, value: Option<&'t Expression>) -> Lowered<()> {
        let value = match value {
            Some(value) => Some(self.value(value)?),
            None => None,
        };
        match self.on_return {
            Some((label, result)) => {
                if let Some(value) = value {
                    self.set(result, value);
                }
                self.emit(Op::Exit(label));
            }
            None => self.emit(Op::Return(value.unwrap_or(self.unsaid()))),
        }
        Ok(())
    }

    /// The result of a run that returns none.
    pub(super) fn unsaid(&self) -> Operand {
        Operand::Constant(self.tree.unsaid.unwrap_or(1))
    }

    /// Expands a function. The value of a void function is 0.
    pub(super) fn call(&mut self, id: FunctionId, arguments: &'t [Expression]) -> Lowered<Operand> {
        let function = &self.tree.functions[id.0 as usize];
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let value = self.value(argument)?;
            values.push(self.copy(value));
        }
        for (parameter, value) in function.parameters.iter().zip(values) {
            self.homes[parameter.0 as usize] = Home::Register(value);
        }
        let result = self.copy(Operand::Constant(0));
        let outer = (self.on_break, self.on_continue, self.on_return);
        self.block(|this, label| {
            (this.on_break, this.on_continue) = (None, None);
            this.on_return = Some((label, result));
            this.statements(&function.body)
        })?;
        (self.on_break, self.on_continue, self.on_return) = outer;
        match function.result {
            Type::Void => Ok(Operand::Constant(0)),
            _ => Ok(Operand::Register(result)),
        }
    }
}

/// Whether a statement writes all bytes of the variable before reading any.
fn gives_all(statement: &Statement, id: VariableId) -> bool {
    let Statement::Evaluate(expression) = statement else {
        return false;
    };
    let whole =
        |place: &Place| place.variable == id && place.offset == 0 && place.indices.is_empty();
    match &expression.kind {
        // The zeros are written first, so the values may read the variable.
        ExpressionKind::Fill(to, _) | ExpressionKind::FillText(to, _) => {
            whole(to) && !to.ty.is_scalar()
        }
        ExpressionKind::Copy { to, from } => whole(to) && from.variable != id,
        _ => false,
    }
}

/// Whether the end of these statements can be reached.
fn can_fall_through(statements: &[Statement]) -> bool {
    match statements.last() {
        Some(Statement::Break | Statement::Continue | Statement::Return(_)) => false,
        Some(Statement::Block(inner)) => can_fall_through(inner),
        Some(Statement::If(_, then, otherwise)) => {
            can_fall_through(then) || can_fall_through(otherwise)
        }
        _ => true,
    }
}
