//! Visits the places and the expressions of an expression, and the expressions and statements of a
//! statement, in the order of their evaluation. So a search in a tree need not know every kind of
//! node.

use crate::tree::{Expression, ExpressionKind, Place, Statement};

impl Expression {
    /// The places that this expression itself names.
    pub fn places<'t>(&'t self, visit: &mut dyn FnMut(&'t Place)) {
        match &self.kind {
            ExpressionKind::Load(place)
            | ExpressionKind::Assign(place, _)
            | ExpressionKind::Update { place, .. }
            | ExpressionKind::Fill(place, _)
            | ExpressionKind::FillText(place, _)
            | ExpressionKind::CompareText { text: place, .. }
            | ExpressionKind::Length(place) => visit(place),
            ExpressionKind::Copy { to, from } => {
                visit(to);
                visit(from);
            }
            ExpressionKind::ComparePlaces { text, with, .. } => {
                visit(text);
                visit(with);
            }
            ExpressionKind::Constant(_)
            | ExpressionKind::Arithmetic(..)
            | ExpressionKind::Compare(..)
            | ExpressionKind::Negate(_)
            | ExpressionKind::Complement(_)
            | ExpressionKind::Not(_)
            | ExpressionKind::And(..)
            | ExpressionKind::Or(..)
            | ExpressionKind::Choice(..)
            | ExpressionKind::Comma(..)
            | ExpressionKind::Convert(_)
            | ExpressionKind::Call(..)
            | ExpressionKind::Builtin(..)
            | ExpressionKind::NextSink(_)
            | ExpressionKind::Best { .. } => {}
        }
    }

    /// The expressions directly in this one, those in its places included.
    pub fn children<'t>(&'t self, visit: &mut dyn FnMut(&'t Expression)) {
        self.places(&mut |place| place.indices.iter().for_each(|index| visit(&index.value)));
        match &self.kind {
            ExpressionKind::Constant(_)
            | ExpressionKind::Load(_)
            | ExpressionKind::Copy { .. }
            | ExpressionKind::FillText(..)
            | ExpressionKind::CompareText { .. }
            | ExpressionKind::ComparePlaces { .. }
            | ExpressionKind::Length(_) => {}
            ExpressionKind::Negate(a)
            | ExpressionKind::Complement(a)
            | ExpressionKind::Not(a)
            | ExpressionKind::Convert(a)
            | ExpressionKind::Assign(_, a)
            | ExpressionKind::Update { by: a, .. }
            | ExpressionKind::NextSink(a) => visit(a),
            ExpressionKind::Arithmetic(_, a, b)
            | ExpressionKind::Compare(_, a, b)
            | ExpressionKind::And(a, b)
            | ExpressionKind::Or(a, b)
            | ExpressionKind::Comma(a, b)
            | ExpressionKind::Best {
                count: a, key: b, ..
            } => {
                visit(a);
                visit(b);
            }
            ExpressionKind::Choice(a, b, c) => {
                visit(a);
                visit(b);
                visit(c);
            }
            ExpressionKind::Call(_, all) | ExpressionKind::Builtin(_, all) => {
                all.iter().for_each(visit);
            }
            ExpressionKind::Fill(_, values) => {
                values.iter().for_each(|(_, value)| visit(value));
            }
        }
    }

    /// Whether `is` holds for this expression or for one in it.
    pub fn contains(&self, is: &dyn Fn(&Expression) -> bool) -> bool {
        let mut found = is(self);
        self.children(&mut |child| found = found || child.contains(is));
        found
    }
}

impl Statement {
    /// The expressions directly in this statement.
    pub fn expressions<'t>(&'t self, visit: &mut dyn FnMut(&'t Expression)) {
        match self {
            Statement::Evaluate(e) | Statement::If(e, ..) | Statement::Return(Some(e)) => visit(e),
            Statement::Switch { value, .. } => visit(value),
            Statement::Loop {
                condition, next, ..
            } => {
                condition.iter().for_each(&mut *visit);
                next.iter().for_each(visit);
            }
            Statement::Declare(_)
            | Statement::Block(_)
            | Statement::Break
            | Statement::Continue
            | Statement::Return(None) => {}
        }
    }

    /// The lists of statements directly in this statement.
    pub fn bodies<'t>(&'t self, visit: &mut dyn FnMut(&'t [Statement])) {
        match self {
            Statement::Block(body) | Statement::Loop { body, .. } => visit(body),
            Statement::If(_, then, otherwise) => {
                visit(then);
                visit(otherwise);
            }
            Statement::Switch { groups, .. } => {
                groups.iter().for_each(|(_, body)| visit(body));
            }
            Statement::Declare(_)
            | Statement::Evaluate(_)
            | Statement::Break
            | Statement::Continue
            | Statement::Return(_) => {}
        }
    }
}
