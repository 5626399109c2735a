//! The texts of `tests/ecode`: in `reject` those that are refused, with every finding at its exact
//! place; in `accept` those that are programs, with their warnings.
//!
//! A text says in lines that begin with `//@` where it is to run ([`ecode_judge::cases`]) and what
//! is to be found:
//!
//! ```text
//! //@ error 3:12 input has no field 'byte'
//! //@ hint did you mean 'bytes'?        belongs to the finding before it
//! ```
//!
//! Findings must be these, all of them, in this order. `ECALLS_UPDATE=1` writes what is found into
//! the texts: look at every changed line.

use std::fmt::Write as _;

use ecode::Compiled;
use ecode::bpf::{self, Map, Options};
use ecode::diagnostic::{Diagnostic, Severity};
use ecode::format::format;
use ecode::source::Source;
use ecode_judge::cases::{MARK, environment, folder, run_all};
use ecode_judge::differential::User;

/// Every program is one that the inspector knows, hardened or not.
fn inspect(source: &Source, compiled: &Compiled) {
    let hardened = Options { secret: Some(99) };
    let hardened = bpf::emit_with(&compiled.program, &hardened).expect("it was emitted before");
    for object in [&compiled.object, &hardened] {
        let all = [
            Map::Frame,
            Map::Event,
            Map::State,
            Map::Attributes,
            Map::Sinks,
        ];
        if let Err(foreign) = bpf::inspect(object, &all) {
            let text = bpf::disassemble(object, Some(source));
            panic!("{}: {foreign}\n{text}", source.name);
        }
    }
}

/// Everything that is found, as the text is to say it.
fn found(source: &Source) -> (Vec<Diagnostic>, String) {
    let told = match ecode::compile(source, &environment(&source.text)) {
        Ok(compiled) => {
            inspect(source, &compiled);
            compiled.warnings
        }
        Err(refused) => refused.all,
    };
    let mut lines = String::new();
    for one in &told {
        let place = source.position(one.span.start);
        let severity = match one.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let (line, column) = (place.line, place.column);
        let _ = writeln!(lines, "{MARK}{severity} {line}:{column} {}", one.message);
        if !one.hint.is_empty() {
            let _ = writeln!(lines, "{MARK}hint {}", one.hint);
        }
    }
    (told, lines)
}

fn is_finding(line: &str) -> bool {
    let line = line.strip_prefix(MARK).unwrap_or_default();
    ["error ", "warning ", "hint "]
        .iter()
        .any(|word| line.starts_with(word))
}

/// Compares all texts of a folder with what is found in them. Gives how many there are.
fn look(name: &str, must_fail: bool) -> usize {
    let update = std::env::var_os("ECALLS_UPDATE").is_some();
    let mut wrong = String::new();
    let entries = std::fs::read_dir(folder(name)).expect("the folder of texts");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a text").path()).collect();
    paths.sort();
    for path in &paths {
        let text = std::fs::read_to_string(path).expect("a text");
        let source = Source::new(path.display().to_string(), text.clone());
        let (told, found) = found(&source);
        let expected: String = text
            .split_inclusive('\n')
            .filter(|line| is_finding(line))
            .collect();
        if update && found != expected {
            let rest: String = text
                .split_inclusive('\n')
                .filter(|line| !is_finding(line))
                .collect();
            std::fs::write(path, rest + &found).expect("the text can be written");
        } else if found != expected {
            let _ = writeln!(wrong, "{}: expected\n{expected}found\n{found}", source.name);
        }
        if told.iter().any(|one| one.severity == Severity::Error) != must_fail {
            let _ = writeln!(wrong, "{}: is in the wrong folder", source.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    paths.len()
}

#[test]
fn texts_that_are_wrong_are_refused_with_every_mistake_at_its_place() {
    assert!(look("reject", true) >= 80);
}

/// Errors of `tests/ecode/reject` that do not say what to do. It only falls.
const WITHOUT_HINT: usize = 37;

#[test]
fn errors_without_a_hint_become_fewer() {
    let mut without = 0;
    for entry in std::fs::read_dir(folder("reject")).expect("the folder of texts") {
        let path = entry.expect("a text").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let (told, _) = found(&Source::new(path.display().to_string(), text));
        let errors = told.iter().filter(|one| one.severity == Severity::Error);
        without += errors.filter(|one| one.hint.is_empty()).count();
    }
    assert_eq!(
        without, WITHOUT_HINT,
        "errors without a hint: give a new one its hint; if there are fewer, lower WITHOUT_HINT"
    );
}

#[test]
fn texts_that_are_right_are_programs() {
    assert!(look("accept", false) >= 60);
}

/// The same texts run in the kernel, too (crates/ecalls-kernel/tests/ecode.rs).
#[test]
fn texts_do_what_their_tests_expect() {
    let tests = run_all(&[&User]).unwrap_or_else(|what| panic!("{what}"));
    println!("{tests} tests");
    assert!(tests >= 170);
}

/// The recipes of the documentation: programs about which there is nothing to say, written as the
/// formatter writes them.
#[test]
fn examples_are_programs_as_they_should_be_written() {
    let examples = "../../examples/ecode";
    assert!(look(examples, false) >= 10);
    for entry in std::fs::read_dir(folder(examples)).expect("the examples") {
        let path = entry.expect("an example").path();
        let text = std::fs::read_to_string(&path).expect("an example");
        assert!(!text.lines().any(is_finding), "{}", path.display());
        let formatted = format(&Source::new("example", text.clone()));
        assert_eq!(formatted, Ok(text), "{}", path.display());
    }
}

/// What the formatter writes of a program has the same findings, at other places.
#[test]
fn formatted_texts_mean_the_same() {
    for entry in std::fs::read_dir(folder("accept")).expect("the folder of texts") {
        let path = entry.expect("a text").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let source = Source::new(path.display().to_string(), text);
        let written = format(&source).unwrap_or_else(|told| panic!("{}", told.render(&source)));
        let written = Source::new("formatted", written);
        let messages = |source| found(source).0.into_iter().map(|one| one.message);
        assert!(
            messages(&source).eq(messages(&written)),
            "{}\n{}",
            source.name,
            written.text
        );
    }
}
