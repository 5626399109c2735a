//! The rules, one by one: each test gives texts and what the checks make of them. Errors with their
//! exact places are in `tests/ecode/reject`, whole programs in `tests/ecode/accept`.

mod conversion;
mod program;
mod structure;

use super::check;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::environment::Environment;
use crate::parser;
use crate::source::Source;
use crate::tree::Tree;

/// Surroundings with something of everything.
fn surroundings() -> Environment {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Environment {
        input: Some("u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]".into()),
        kinds: names(&["OPENED", "CLOSED"]),
        attributes: names(&["load", "jobs"]),
        sinks: Some(names(&["load", "distance"])),
        services: vec![("timer".into(), 3)],
        constants: vec![("NUM_RESOURCES".into(), 16), ("HUGE".into(), 1 << 40)],
        denied: Vec::new(),
        ..Environment::default()
    }
}

fn findings_in(environment: &Environment, text: &str) -> (Option<Tree>, Vec<Diagnostic>) {
    let source = Source::new("t", text);
    let (unit, mut told) = parser::parse(&source);
    let (tree, more) = check(&unit, environment);
    told.extend(more);
    (tree, told)
}

/// All findings of a text, as they are shown.
fn shown(text: &str, told: &[Diagnostic]) -> String {
    let all = Diagnostics {
        all: told.to_vec(),
        left_out: 0,
    };
    all.render(&Source::new("t", text))
}

/// The tree of a text in which nothing is to be found.
#[track_caller]
fn tree(text: &str) -> Tree {
    let (tree, told) = findings_in(&surroundings(), text);
    assert!(told.is_empty(), "{}", shown(text, &told));
    tree.expect("a tree")
}

/// The findings of a text: "line:column severity message", and a hint behind " | ".
fn findings(text: &str) -> Vec<String> {
    let source = Source::new("t", text);
    let (tree, told) = findings_in(&surroundings(), text);
    let errors = told.iter().any(|d| d.severity == Severity::Error);
    assert_eq!(tree.is_none(), errors, "{text}: {told:?}");
    let line = |d: &Diagnostic| {
        let place = source.position(d.span.start);
        let severity = match d.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let hint = if d.hint.is_empty() {
            String::new()
        } else {
            format!(" | {}", d.hint)
        };
        format!(
            "{}:{} {severity} {}{hint}",
            place.line, place.column, d.message
        )
    };
    told.iter().map(line).collect()
}
