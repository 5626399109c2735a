//! The text of an E-code program, which anybody may send: checks, and lowering to the IR.
//! Needs: tests/fuzz/run.
//!
//! Always: there is a tree exactly if nothing is wrong; every finding has its place in the text;
//! and a tree becomes a program that its verifier accepts, or is too large with a place and a
//! reason.

#![no_main]
#![forbid(unsafe_code)]

use ecode::diagnostic::{Diagnostic, Severity};
use ecode::environment::Environment;
use ecode::source::Source;
use ecode::{check, ir, lower, parser};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let source = Source::new("fuzz", text);
    let (unit, told) = parser::parse(&source);
    let readable = !is_wrong(&told);
    let (tree, found) = check::check(&unit, &environment());
    for one in told.iter().chain(&found) {
        assert!(one.span.start <= one.span.end && one.span.end as usize <= text.len());
        assert!(!one.message.is_empty());
    }
    let Some(tree) = tree else {
        assert!(is_wrong(&found) || !readable);
        return;
    };
    assert!(!is_wrong(&found));
    if !readable {
        return;
    }
    match lower::lower(&tree) {
        Ok(program) => {
            if let Err(wrong) = ir::verify::verify(&program) {
                panic!("{wrong}\n{}", ir::print::print(&program, Some(&source)));
            }
        }
        Err(limit) => assert!(!limit.message.is_empty()),
    }
});

fn is_wrong(told: &[Diagnostic]) -> bool {
    told.iter().any(|one| one.severity == Severity::Error)
}

fn environment() -> Environment {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Environment {
        input: Some("u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]".into()),
        kinds: names(&["OPENED", "CLOSED"]),
        attributes: names(&["load", "jobs"]),
        sinks: Some(names(&["load", "distance"])),
        services: vec![("timer".to_owned(), 3)],
        constants: vec![("N".to_owned(), 16)],
        ..Environment::default()
    }
}
