//! Statements and control flow: reachability, exits of loops, missing `return`s. Each function here
//! returns whether the next statement can be reached.

use std::collections::HashSet;

use super::conversion::{constant_of, convert, number, promoted};
use super::expression::effect_in;
use super::range::{Range, range};
use super::scope::Binding;
use super::{Checker, Context, Details, Jump, Operand, cut};
use crate::ast::{self, StatementKind as Ast};
use crate::limits;
use crate::source::Span;
use crate::tree::{
    BinaryOperator, Builtin, Expression, ExpressionKind, Statement, Storage, Variable, VariableId,
};
use crate::types::{Int, Type};

const LONG: Type = Type::Int(Int::LONG);

/// The ways out of a loop besides its condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WayOut {
    None,
    /// To the statement after the loop.
    Break,
    /// Further: `return`, `drop`, or a called function that may end the run.
    Far,
}

/// The parts of a loop.
struct Loop<'e> {
    condition: Option<&'e ast::Expression>,
    next: Option<&'e ast::Expression>,
    body: &'e ast::Statement,
    /// `do ... while`
    after: bool,
    head: Span,
}

impl Checker<'_> {
    /// The bodies of all functions.
    pub(super) fn functions(&mut self, unit: &ast::Unit) {
        let items = unit.items.iter().filter_map(|item| match item {
            ast::Item::Function(item) => Some(item),
            _ => None,
        });
        for (item, id) in items.zip(0u32..) {
            self.function(item, crate::tree::FunctionId(id));
        }
    }

    fn function(&mut self, item: &ast::FunctionItem, id: crate::tree::FunctionId) {
        let signature = self.signatures[id.0 as usize].clone();
        self.context = Context {
            function: Some(id),
            result: signature.result.clone(),
            ..Context::default()
        };
        self.scopes.open();
        let declared = item.parameters.iter().flat_map(|p| &p.variables);
        let mut parameters = Vec::new();
        for (parameter, ty) in declared.zip(&signature.parameters) {
            let name = &parameter.name;
            let mut binding = Binding::Error;
            if *ty != Type::Error {
                let variable = self.parameter(name, ty.clone());
                parameters.push(variable);
                binding = Binding::Variable(variable);
            }
            self.declare(&name.text, name.span, binding);
        }
        let mut body = Vec::new();
        let reached = self.statements(&item.body.statements, &mut body);
        self.close_scope();
        if reached && !matches!(signature.result, Type::Void | Type::Error) {
            let message = format!("'{}' may end without 'return'", cut(&signature.name));
            let value_last = item.body.statements.last().is_some_and(
                |last| matches!(&last.kind, Ast::Expression(e) if effect_in(e).is_none()),
            );
            let hint = match value_last {
                true => "it gives 0 then; to give the last expression, write 'return' before it",
                false => "it gives 0 then: end it with 'return VALUE;'",
            };
            self.warn(signature.span, message, hint);
        }
        let function = &mut self.tree.functions[id.0 as usize];
        function.parameters = parameters;
        function.body = body;
    }

    fn parameter(&mut self, name: &ast::Name, ty: Type) -> VariableId {
        let variable = Variable {
            name: name.text.clone(),
            ty,
            storage: Storage::Local,
            span: name.span,
        };
        self.add_variable(variable, Details::default())
    }

    /// The statements that run for an event.
    pub(super) fn body(&mut self, unit: &ast::Unit) {
        self.context = Context {
            result: LONG,
            ..Context::default()
        };
        let Some(block) = &unit.body else {
            if self.errors == 0 {
                let main = self.signatures.iter().any(|one| one.name == "main");
                let hint = if main {
                    "what stands in main runs if it stands alone: take it out of the function"
                } else {
                    "after the declarations, write statements or an expression"
                };
                let message = "there is nothing to run for an event";
                self.error_hint(Span::default(), message, hint);
            }
            return;
        };
        let mut body = std::mem::take(&mut self.prelude);
        self.scopes.open();
        self.statements(&block.statements, &mut body);
        self.close_scope();
        self.tree.body = body;
    }

    /// Consecutive statements.
    fn statements(&mut self, statements: &[ast::Statement], out: &mut Vec<Statement>) -> bool {
        let mut reached = true;
        let mut told = false;
        for statement in statements {
            if !reached && !told && !matches!(statement.kind, Ast::Empty) {
                self.warn(statement.span, "this is never reached", "");
                told = true;
            }
            if reached {
                reached = self.statement(statement, out);
            } else {
                self.statement(statement, &mut Vec::new());
            }
        }
        reached
    }

    /// One statement, as a block of its own.
    #[inline(never)]
    fn nested(&mut self, statement: &ast::Statement) -> (Vec<Statement>, bool) {
        let mut out = Vec::new();
        self.scopes.open();
        let reached = match &statement.kind {
            Ast::Block(block) => self.block(block, statement.span, &mut out),
            _ => self.statement(statement, &mut out),
        };
        self.close_scope();
        (out, reached)
    }

    fn block(&mut self, block: &ast::Block, span: Span, out: &mut Vec<Statement>) -> bool {
        if !self.enter(span) {
            return true;
        }
        let reached = self.statements(&block.statements, out);
        self.leave();
        reached
    }

    fn statement(&mut self, statement: &ast::Statement, out: &mut Vec<Statement>) -> bool {
        if !self.enter(statement.span) {
            return true;
        }
        let reached = self.statement_within(statement, out);
        self.leave();
        reached
    }

    fn statement_within(&mut self, statement: &ast::Statement, out: &mut Vec<Statement>) -> bool {
        let span = statement.span;
        match &statement.kind {
            Ast::Empty => true,
            Ast::Declaration(declaration) => {
                self.declaration(declaration, out);
                true
            }
            Ast::Expression(source) => self.expression_statement(source, out),
            Ast::Block(_) => {
                let (inner, reached) = self.nested(statement);
                out.push(Statement::Block(inner));
                reached
            }
            Ast::If {
                condition,
                then,
                otherwise,
            } => self.if_statement(condition, then, otherwise.as_deref(), out),
            Ast::While { condition, body } => {
                let parts = Loop {
                    condition: Some(condition),
                    next: None,
                    body,
                    after: false,
                    head: span.to(condition.span),
                };
                self.loop_statement(&parts, out)
            }
            Ast::Do { body, condition } => {
                let parts = Loop {
                    condition: Some(condition),
                    next: None,
                    body,
                    after: true,
                    head: condition.span,
                };
                self.loop_statement(&parts, out)
            }
            Ast::For {
                first,
                condition,
                next,
                body,
            } => self.for_statement(span, first, (condition.as_ref(), next.as_ref()), body, out),
            Ast::ForSink { name, body } => self.for_sink(span, name, body, out),
            Ast::Switch { value, groups } => self.switch(value, groups, out),
            Ast::Break => self.leave_loop(span, true, out),
            Ast::Continue => self.leave_loop(span, false, out),
            Ast::Return(value) => {
                self.return_statement(span, value.as_ref(), out);
                false
            }
        }
    }

    #[inline(never)]
    fn expression_statement(&mut self, source: &ast::Expression, out: &mut Vec<Statement>) -> bool {
        let Some(value) = self.effect(source) else {
            return true;
        };
        let ends = matches!(value.kind, ExpressionKind::Builtin(Builtin::Drop, _));
        out.push(Statement::Evaluate(value));
        !ends
    }

    /// An expression that is evaluated for its effect. `None`: an error has been reported.
    pub(super) fn effect(&mut self, source: &ast::Expression) -> Option<Expression> {
        if let ast::ExpressionKind::Cast(to, inner) = &source.kind
            && to.kind == ast::TypeKind::Void
        {
            // A cast to void says that the value is unused on purpose.
            return self.value(inner);
        }
        let value = match self.expression(source) {
            Operand::Value(value) => Some(value),
            other => self.scalar(other, source.span),
        }?;
        let comma = matches!(source.kind, ast::ExpressionKind::Comma(..));
        if !comma && effect_in(source).is_none() {
            let hint = match source.kind {
                ast::ExpressionKind::Binary(BinaryOperator::Equal, ..) => {
                    "an assignment is '=', a result 'return ...;'"
                }
                _ if self.context.function.is_none() => {
                    "a result is 'return ...;': without it every event goes on"
                }
                _ => "",
            };
            self.warn(source.span, "nothing is done with this value", hint);
        }
        Some(value)
    }

    #[inline(never)]
    fn if_statement(
        &mut self,
        condition: &ast::Expression,
        then: &ast::Statement,
        otherwise: Option<&ast::Statement>,
        out: &mut Vec<Statement>,
    ) -> bool {
        let condition = self.condition_of_statement(condition);
        if matches!(then.kind, Ast::Empty) && otherwise.is_none() {
            self.warn(then.span, "an 'if' that does nothing", "a ';' too many?");
        }
        let (then, then_reached) = self.nested(then);
        let (otherwise, else_reached) = match otherwise {
            Some(statement) => self.nested(statement),
            None => (Vec::new(), true),
        };
        if let Some(condition) = condition {
            out.push(Statement::If(condition, then, otherwise));
        }
        then_reached || else_reached
    }

    #[inline(never)]
    fn for_statement(
        &mut self,
        span: Span,
        first: &ast::Statement,
        (condition, next): (Option<&ast::Expression>, Option<&ast::Expression>),
        body: &ast::Statement,
        out: &mut Vec<Statement>,
    ) -> bool {
        let mut inner = Vec::new();
        self.scopes.open();
        self.statement(first, &mut inner);
        let last = next.or(condition).map_or(first.span, |last| last.span);
        let parts = Loop {
            condition,
            next,
            body,
            after: false,
            head: span.to(last),
        };
        let reached = self.loop_statement(&parts, &mut inner);
        self.close_scope();
        out.push(Statement::Block(inner));
        reached
    }

    #[inline(never)]
    fn loop_statement(&mut self, parts: &Loop<'_>, out: &mut Vec<Statement>) -> bool {
        let condition = parts
            .condition
            .map(|condition| self.condition_of_statement(condition));
        let next = parts.next.map(|next| self.effect(next));
        let (body, next_reached, way_out) = self.loop_body(parts);
        let endless = match &condition {
            None => true,
            Some(Some(condition)) => constant_of(condition) == Some(1),
            Some(None) => false,
        };
        if endless && way_out == WayOut::None {
            self.warn(
                parts.head,
                "this loop never ends: it always uses up the fuel",
                "leave it with break or return, or give it a condition",
            );
        }
        if let (Some(None), _) | (_, Some(None)) = (&condition, &next) {
            return true;
        }
        out.push(Statement::Loop {
            condition: condition.flatten().filter(|_| !endless),
            next: next.flatten(),
            body,
            after: parts.after,
            span: parts.head,
        });
        way_out == WayOut::Break || !endless && (next_reached || !parts.after)
    }

    /// A loop's body, whether a next round may follow it, and the ways out of the loop in it.
    fn loop_body(&mut self, parts: &Loop<'_>) -> (Vec<Statement>, bool, WayOut) {
        let exits = self.context.exits;
        self.context.jumps.push(Jump {
            is_loop: true,
            ..Jump::default()
        });
        self.context.loops += 1;
        if self.context.loops == limits::LOOP_DEPTH + 1 {
            let most = limits::LOOP_DEPTH;
            let message = format!("more than {most} loops in each other (LOOP_DEPTH)");
            self.error(parts.head, message);
        }
        let (body, reached) = self.nested(parts.body);
        self.context.loops -= 1;
        let jump = self.context.jumps.pop();
        let next_reached = reached || jump.is_some_and(|jump| jump.continued);
        let way_out = match jump {
            Some(jump) if jump.broken => WayOut::Break,
            _ if self.context.exits > exits => WayOut::Far,
            _ => WayOut::None,
        };
        (body, next_reached, way_out)
    }

    /// `for (s in sinks)`: the variable holds the number of the sink; -1 is behind the last.
    #[inline(never)]
    fn for_sink(
        &mut self,
        span: Span,
        name: &ast::Name,
        body: &ast::Statement,
        out: &mut Vec<Statement>,
    ) -> bool {
        let head = span.to(name.span);
        self.sinks_here(head);
        self.scopes.open();
        let sink = self.sink_variable(&name.text, name.span);
        self.declare(&name.text, name.span, Binding::Variable(sink));
        let place = self.place_of(sink, name.span);
        let load = Expression {
            kind: ExpressionKind::Load(place.clone()),
            ty: Type::Sink,
            span: name.span,
        };
        let now = convert(load, &LONG);
        let step = |from: Expression| Expression {
            kind: ExpressionKind::Assign(
                place.clone(),
                Box::new(Expression {
                    kind: ExpressionKind::NextSink(Box::new(from)),
                    ty: LONG,
                    span: name.span,
                }),
            ),
            ty: Type::Sink,
            span: name.span,
        };
        let first = step(number(-1, LONG, name.span));
        let next = step(now.clone());
        let parts = Loop {
            condition: None,
            next: None,
            body,
            after: false,
            head,
        };
        let (body, _, _) = self.loop_body(&parts);
        self.scopes.close();
        let zero = Box::new(number(0, LONG, name.span));
        let more = ExpressionKind::Compare(BinaryOperator::GreaterEqual, Box::new(now), zero);
        let repeated = Statement::Loop {
            condition: Some(Expression {
                kind: more,
                ty: Type::Bool,
                span: name.span,
            }),
            next: Some(next),
            body,
            after: false,
            span: head,
        };
        let begin = Statement::Declare(sink);
        out.push(Statement::Block(vec![
            begin,
            Statement::Evaluate(first),
            repeated,
        ]));
        true
    }

    #[inline(never)]
    fn switch(
        &mut self,
        source: &ast::Expression,
        groups: &[ast::SwitchGroup],
        out: &mut Vec<Statement>,
    ) -> bool {
        let value = self.integer(source, "what a switch compares");
        let possible = value.as_ref().and_then(range);
        let value = value.map(|value| {
            let ty = promoted(&value.ty);
            convert(value, &ty)
        });
        let int = match value.as_ref().map(|value| &value.ty) {
            Some(Type::Int(int)) => *int,
            _ => Int::LONG,
        };
        self.context.jumps.push(Jump::default());
        let mut known = HashSet::new();
        let mut done = Vec::new();
        let mut reached = true;
        for group in groups {
            let mut labels = Vec::new();
            for (label, span) in &group.labels {
                labels.extend(self.label(label.as_ref(), *span, (int, possible), &mut known));
            }
            let mut statements = Vec::new();
            self.scopes.open();
            reached = self.statements(&group.statements, &mut statements);
            self.close_scope();
            done.push((labels, statements));
        }
        let broken = self.context.jumps.pop().is_some_and(|jump| jump.broken);
        if let Some(value) = value {
            out.push(Statement::Switch {
                value,
                groups: done,
            });
        }
        reached || broken || !known.contains(&None)
    }

    /// A label's value (`Some(None)`: default). `None`: an error has been reported.
    fn label(
        &mut self,
        label: Option<&ast::Expression>,
        span: Span,
        (int, possible): (Int, Option<Range>),
        known: &mut HashSet<Option<i64>>,
    ) -> Option<Option<i64>> {
        let value = match label {
            None => None,
            Some(source) => {
                let (value, from) = self.constant_with_type(source, "a label")?;
                let exact = Range::of(from.exact(value));
                if possible.is_some_and(|possible| !possible.holds(exact)) {
                    self.warn(source.span, "the value is never this", "");
                }
                Some(int.wrap(value))
            }
        };
        if !known.insert(value) {
            let at = label.map_or(span, |source| source.span);
            let message = match value {
                Some(value) => format!("a second label for {value}"),
                None => "a second 'default'".to_owned(),
            };
            self.error_hint(at, message, "only one of them can be met: remove the other");
            return None;
        }
        Some(value)
    }

    /// `break` and `continue`
    fn leave_loop(&mut self, span: Span, is_break: bool, out: &mut Vec<Statement>) -> bool {
        let jump = self
            .context
            .jumps
            .iter_mut()
            .rev()
            .find(|jump| is_break || jump.is_loop);
        match jump {
            Some(jump) if is_break => {
                jump.broken = true;
                out.push(Statement::Break);
            }
            Some(jump) => {
                jump.continued = true;
                out.push(Statement::Continue);
            }
            None => {
                let message = match is_break {
                    true => "'break' outside of a loop or switch",
                    false => "'continue' outside of a loop",
                };
                self.error_hint(span, message, "what ends the run is 'return VALUE;'");
                return true;
            }
        }
        false
    }

    #[inline(never)]
    fn return_statement(
        &mut self,
        span: Span,
        source: Option<&ast::Expression>,
        out: &mut Vec<Statement>,
    ) {
        self.context.exits += 1;
        let in_body = self.context.function.is_none();
        let wanted = self.context.result.clone();
        let Some(source) = source else {
            if !in_body && wanted != Type::Void && wanted != Type::Error {
                let name = self.type_name(&wanted);
                let message = format!("'return' needs a value here: {name}");
                self.error_hint(span, message, "what the function gives: 'return 0;'");
            }
            return out.push(Statement::Return(None));
        };
        if !wanted.is_scalar() {
            self.look_at(std::slice::from_ref(source));
            if wanted == Type::Void {
                let hint = "it is declared as void";
                self.error_hint(source.span, "this function gives no value", hint);
            }
            return;
        }
        match self.expression(source) {
            // As the body's only expression, `accept(s)` is enough.
            Operand::Value(value) if in_body && value.ty == Type::Void => {
                out.push(Statement::Evaluate(value));
                out.push(Statement::Return(None));
            }
            operand => {
                let value = self.scalar(operand, source.span);
                if let Some(value) = value {
                    if in_body && value.ty == Type::Fixed {
                        self.warn(
                            source.span,
                            "the result is a whole number: below 1, this ends the chain",
                            "compare it, or convert it: (long)(...)",
                        );
                    }
                    if in_body || wanted == Type::Bool {
                        self.warn_of_constant_result(source);
                    }
                    let value = self.adapt(value, &wanted);
                    out.push(Statement::Return(Some(value)));
                }
            }
        }
    }
}
