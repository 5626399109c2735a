//! Warns of indices that may be outside their array. A run with such an index fails, so a filter
//! lets the event pass. The proof is in the IR: simplification has removed each [`Op::Bound`] that
//! always holds (see [`crate::ir::facts`]).
//!
//! There is no warning of a static as index, if all values that the text stores in it are inside: a
//! ring's `at = (at + 1) % 16`. The run checks it nevertheless, since a static may keep its value
//! from a program that this one replaces.
//!
//! There is no warning of a sink's number, which is no index in the text, and of a character of a
//! string: `i < length(comm)` keeps `comm[i]` inside, which this proof does not cover.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::range::{Range, range_with};
use crate::diagnostic::Diagnostic;
use crate::ir::{Fault, Instruction, Op, Program};
use crate::limits;
use crate::source::Span;
use crate::tree::{Expression, ExpressionKind, Place, Statement, Storage, Tree};
use crate::types::{Int, Type};

/// The warnings, at most as many as are shown.
pub(crate) fn unproven(tree: &Tree, program: &Program) -> Vec<Diagnostic> {
    let mut asked = BTreeSet::new();
    bounds(&program.body, &mut asked);
    if asked.is_empty() {
        return Vec::new();
    }
    let mut told = BTreeMap::new();
    each_expression(tree, &mut |expression| {
        indices(tree, expression, &asked, &mut told);
    });
    let told = told.into_iter().take(limits::DIAGNOSTICS);
    told.map(|((start, end), count)| {
        let message = format!("the index may be outside: the array has {count} elements");
        Diagnostic::warning(Span { start, end }, message).hint(format!(
            "a run in which it is fails, and the event goes on; make sure of it first: \
             i >= 0 && i < {count}"
        ))
    })
    .collect()
}

/// A span in the order of the text.
type Key = (u32, u32);

/// The places where the run checks an index, or where an index is always outside.
fn bounds(body: &[Instruction], asked: &mut BTreeSet<Key>) {
    for Instruction { op, span } in body {
        if matches!(op, Op::Bound { .. } | Op::Fail(Fault::Index)) {
            asked.insert((span.start, span.end));
        }
        op.bodies().for_each(|inner| bounds(inner, asked));
    }
}

/// The expressions of all statements of the body and of the functions.
fn each_expression(tree: &Tree, look: &mut dyn FnMut(&Expression)) {
    statements(&tree.body, look);
    for function in &tree.functions {
        statements(&function.body, look);
    }
}

fn statements(list: &[Statement], look: &mut dyn FnMut(&Expression)) {
    for statement in list {
        statement.expressions(&mut |expression| look(expression));
        statement.bodies(&mut |body| statements(body, look));
    }
}

/// The indices of an expression that the run checks, with the number of elements.
fn indices(
    tree: &Tree,
    expression: &Expression,
    asked: &BTreeSet<Key>,
    told: &mut BTreeMap<Key, u32>,
) {
    expression.places(&mut |place| {
        for index in &place.indices {
            let is_character = place.ty == Type::Int(Int::CHAR) && index.stride == 1;
            let Span { start, end } = index.value.span;
            let asks = !is_character && asked.contains(&(start, end));
            if asks && !is_kept_inside(tree, &index.value, index.count) {
                told.insert((start, end), index.count);
            }
        }
    });
    expression.children(&mut |child| indices(tree, child, asked, told));
}

/// Whether an index is inside because the statics in it are always within bounds.
fn is_kept_inside(tree: &Tree, index: &Expression, count: u32) -> bool {
    let inside = Range::new(0, i128::from(count) - 1);
    let known = |place: &Place| stays(tree, place, inside).then_some(inside);
    range_with(index, &known).is_some_and(|range| inside.holds(range))
}

/// Whether the initial value of a static is within bounds and, if the static is within bounds,
/// every value is that the text stores in it (an induction).
fn stays(tree: &Tree, place: &Place, bounds: Range) -> bool {
    let variable = &tree.variables[place.variable.0 as usize];
    let (Storage::Static(bytes), Type::Int(int)) = (&variable.storage, &place.ty) else {
        return false;
    };
    let at = place.offset as usize;
    let mut first = [0; 8];
    let Some(from) = bytes.get(at..at + int.bytes() as usize) else {
        return false;
    };
    first[..from.len()].copy_from_slice(from);
    let first = i128::from(int.wrap(i64::from_le_bytes(first)));
    let is_it = |other: &Place| {
        other.variable == place.variable && other.offset == place.offset && other.ty == place.ty
    };
    let known = |other: &Place| (is_it(other) && other.indices.is_empty()).then_some(bounds);
    let mut holds = place.indices.is_empty() && bounds.holds(Range::of(first));
    each_expression(tree, &mut |expression| {
        holds &= keeps(expression, place, &|value| {
            range_with(value, &known).is_some_and(|range| bounds.holds(range))
        });
    });
    holds
}

/// Whether each value that an expression stores in the variable of this place is right, or is
/// stored in another part of the variable.
fn keeps(expression: &Expression, place: &Place, right: &dyn Fn(&Expression) -> bool) -> bool {
    let (to, value) = match &expression.kind {
        ExpressionKind::Assign(to, value) => (Some(to), Some(value)),
        ExpressionKind::Update { place: to, .. } => (Some(to), None),
        ExpressionKind::Copy { to, .. }
        | ExpressionKind::Fill(to, _)
        | ExpressionKind::FillText(to, _) => (Some(to), None),
        _ => (None, None),
    };
    let mut holds = match to.filter(|to| to.variable == place.variable) {
        None => true,
        Some(to) if to.offset == place.offset && to.indices.is_empty() => {
            to.ty == place.ty && value.is_some_and(|value| right(value))
        }
        Some(to) => bytes(to).is_some_and(|to| {
            bytes(place).is_some_and(|place| to.end <= place.start || place.end <= to.start)
        }),
    };
    expression.children(&mut |child| holds &= keeps(child, place, right));
    holds
}

/// The bytes of its variable that a number can occupy, for all values of its indices.
fn bytes(place: &Place) -> Option<std::ops::Range<u32>> {
    let size = match place.ty {
        Type::Int(int) => int.bytes(),
        Type::Bool => 1,
        Type::Fixed => 8,
        _ => return None,
    };
    let indices = place.indices.iter();
    let last = indices
        .map(|index| index.stride * (index.count - 1))
        .sum::<u32>();
    Some(place.offset..place.offset + last + size)
}
