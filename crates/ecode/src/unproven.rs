//! Warns of indices that may be outside their array: a run in which one is fails, so that a filter
//! passes what it was to keep out. What can be proven is in the IR already: simplification has
//! taken out each [`Op::Bound`] that always holds.
//!
//! Not told: what looks up a sink, which is no index of the text's; and a character of a text, as
//! `i < length(comm)` holds `comm[i]` inside by what is in the text, which no proof here sees.

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostic::Diagnostic;
use crate::ir::{Fault, Instruction, Op, Program};
use crate::limits;
use crate::source::Span;
use crate::tree::{Expression, Statement, Tree};
use crate::types::{Int, Type};

/// The warnings, at most as many as are shown.
pub(crate) fn unproven(tree: &Tree, program: &Program) -> Vec<Diagnostic> {
    let mut asked = BTreeSet::new();
    bounds(&program.body, &mut asked);
    if asked.is_empty() {
        return Vec::new();
    }
    let mut told = BTreeMap::new();
    let mut look = |expression: &Expression| indices(expression, &asked, &mut told);
    statements(&tree.body, &mut look);
    for function in &tree.functions {
        statements(&function.body, &mut look);
    }
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

/// Where the run asks whether an index is inside, or knows that it is not.
fn bounds(body: &[Instruction], asked: &mut BTreeSet<Key>) {
    for Instruction { op, span } in body {
        if matches!(op, Op::Bound { .. } | Op::Fail(Fault::Index)) {
            asked.insert((span.start, span.end));
        }
        op.bodies().for_each(|inner| bounds(inner, asked));
    }
}

fn statements(list: &[Statement], look: &mut dyn FnMut(&Expression)) {
    for statement in list {
        statement.expressions(&mut |expression| look(expression));
        statement.bodies(&mut |body| statements(body, look));
    }
}

/// Those of the indices in an expression that are asked for, with the number of elements.
fn indices(expression: &Expression, asked: &BTreeSet<Key>, told: &mut BTreeMap<Key, u32>) {
    expression.places(&mut |place| {
        for index in &place.indices {
            let is_character = place.ty == Type::Int(Int::CHAR) && index.stride == 1;
            let Span { start, end } = index.value.span;
            if !is_character && asked.contains(&(start, end)) {
                told.insert((start, end), index.count);
            }
        }
    });
    expression.children(&mut |child| indices(child, asked, told));
}
