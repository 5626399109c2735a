//! What is written about the language holds: the chapter's programs are programs, and the chapter,
//! the manual page and the editors' grammar name all that the language has, and its limits.

use std::collections::BTreeSet;
use std::path::Path;

use ecode::diagnostic::{Diagnostics, Severity};
use ecode::environment::Environment;
use ecode::format::format;
use ecode::lexer::{KEYWORDS, TYPES, WORDS_IN_PLACE};
use ecode::source::Source;
use ecode::tree::EventField;
use ecode::{check, limits, parser};

const CHAPTER: &str = "doc/ecode.md";
const MANUAL: &str = "doc/man/ecode.7";
const GRAMMAR: &str = "editors/ecode.tmLanguage.json";

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The services: what a text of each finds, by the name. The chapter's table says what the services
/// themselves say (a test of `ecalls` compares both).
fn services() -> Vec<(String, Environment)> {
    let chapter = read(CHAPTER);
    let head = "| service | fields of its data | kinds |";
    let table = chapter.split(head).nth(1).expect("the services");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let service = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let word = |text: &str| text.trim_matches('`').to_owned();
        let environment = Environment {
            input: Some(word(cells[2])),
            kinds: cells[3].split(", ").map(word).collect(),
            attributes: vec!["load".into()],
            sinks: Some(vec!["load".into()]),
            ..Environment::default()
        };
        (word(cells[1]), environment)
    };
    let all: Vec<_> = rows.map(service).collect();
    assert!(all.len() >= 9);
    all
}

/// Everything that is found about a text for a service.
fn found(source: &Source, service: &str) -> Diagnostics {
    let services = services().into_iter();
    let mut services = services.filter(|(name, _)| name == service);
    found_in(source, &services.next().expect("the service").1)
}

fn found_in(source: &Source, environment: &Environment) -> Diagnostics {
    let (unit, mut told) = parser::parse(source);
    let mut environment = environment.clone();
    if parser::service(source).is_some() {
        environment.service = true;
        environment.input = Some("s32 pid; s32 old_pid; char filename[64]".into());
    }
    told.extend(check::check(&unit, &environment).1);
    Diagnostics::new(told)
}

/// A program is one for some service: its fields are those of that service, not of several.
fn is_a_program(source: &Source) {
    let found: Vec<_> = services()
        .iter()
        .map(|(_, environment)| found_in(source, environment).render(source))
        .collect();
    let least = found.iter().min_by_key(|found| found.len());
    assert_eq!(least.expect("services"), "", "{}", source.text);
}

/// Blocks of the chapter in that language.
fn blocks(chapter: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let parts = chapter.split(&begin).skip(1);
    parts
        .filter_map(|part| Some(part.split("```").next()?.to_owned()))
        .collect()
}

#[test]
fn programs_of_the_chapter_are_programs_in_their_one_form() {
    let programs = blocks(&read(CHAPTER), "ecode");
    assert!(programs.len() >= 10);
    for program in programs {
        let source = Source::new(CHAPTER, program.clone());
        is_a_program(&source);
        assert_eq!(format(&source), Ok(program));
    }
}

#[test]
fn programs_of_the_manual_are_programs() {
    let manual = read(MANUAL);
    let example = manual.split(".SH EXAMPLES").nth(1).expect("examples");
    let parts = example.split(".EX\n").skip(1);
    let programs: Vec<_> = parts.filter_map(|part| part.split(".EE").next()).collect();
    assert!(programs.len() >= 2);
    for program in programs {
        is_a_program(&Source::new(MANUAL, program));
    }
}

#[test]
fn the_errors_that_are_shown_look_like_that() {
    let shown = &blocks(&read(CHAPTER), "text")[0];
    let source = Source::new("filter.ec", "byte > 1000\n");
    assert_eq!(found(&source, "socket").render(&source), *shown);
    let shown = &blocks(&read(CHAPTER), "text")[1];
    let source = Source::new("filter.ec", "event.kind == fork || exec\n");
    assert_eq!(found(&source, "task").render(&source), *shown);
    let manual = read(MANUAL);
    let source = Source::new(
        "filter.ec",
        "// A filter.\n\n    if (input.byte > 1000)\n        ;",
    );
    let first = found(&source, "socket")
        .all
        .into_iter()
        .find(|one| one.severity == Severity::Error);
    let rendered = Diagnostics::new(vec![first.expect("an error")]).render(&source);
    for line in rendered.lines() {
        assert!(manual.contains(line.trim()), "{line}\n{rendered}");
    }
}

#[test]
fn all_that_the_language_has_is_documented() {
    let (chapter, manual) = (read(CHAPTER), read(MANUAL));
    let manual = manual
        .replace("\\fB", "")
        .replace("\\fP", "")
        .replace("\\fI", "");
    for name in check::builtins() {
        assert!(chapter.contains(&format!("{name}(")), "{CHAPTER}: {name}");
        assert!(manual.contains(&format!("{name}(")), "{MANUAL}: {name}");
    }
    for (field, _) in EventField::ALL {
        assert!(
            chapter.contains(&format!("`{field}`")),
            "{CHAPTER}: event.{field}"
        );
        assert!(
            manual
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .any(|w| w == field)
        );
    }
    let grammar = blocks(&chapter, "text").pop().expect("the grammar");
    for keyword in KEYWORDS.iter().chain(&WORDS_IN_PLACE) {
        let apart = [
            "char", "int", "long", "short", "signed", "unsigned", "_Bool",
        ];
        assert!(
            apart.contains(keyword) || grammar.contains(&format!("\"{keyword}\"")),
            "{keyword}"
        );
    }
}

#[test]
fn limits_are_documented_as_they_are() {
    let (chapter, manual) = (read(CHAPTER), read(MANUAL));
    let known: [(&str, u64); 17] = [
        ("TEXT_BYTES", limits::TEXT_BYTES as u64),
        ("TOKENS", limits::TOKENS as u64),
        ("DEPTH", limits::DEPTH.into()),
        ("HEIGHT", limits::HEIGHT.into()),
        ("REGION_BYTES", limits::REGION_BYTES.into()),
        ("STATE_BYTES", limits::STATE_BYTES.into()),
        ("ARRAY_ELEMENTS", limits::ARRAY_ELEMENTS.into()),
        ("FUNCTIONS", limits::FUNCTIONS as u64),
        ("PARAMETERS", limits::PARAMETERS as u64),
        ("INSTRUCTIONS", limits::INSTRUCTIONS as u64),
        (
            "BPF_INSTRUCTIONS_STRANGER",
            limits::BPF_INSTRUCTIONS_STRANGER as u64,
        ),
        ("LOOP_DEPTH", limits::LOOP_DEPTH.into()),
        ("FUEL_MAX", limits::FUEL_MAX.into()),
        ("EFFECTS", limits::EFFECTS.into()),
        ("SINKS", limits::SINKS.into()),
        ("ATTRIBUTES", limits::ATTRIBUTES.into()),
        ("ONCE_ENTRIES", limits::ONCE_ENTRIES.into()),
    ];
    for (name, value) in known {
        let row = chapter
            .lines()
            .find(|line| line.contains(&format!("`{name}`")));
        let row = row.unwrap_or_else(|| panic!("{CHAPTER}: no {name}"));
        let mut numbers = row.split(|c: char| !c.is_ascii_digit());
        assert!(
            numbers.any(|number| number == value.to_string()),
            "{CHAPTER}: {name}: {row}"
        );
        let in_manual = !["TOKENS", "SINKS", "ATTRIBUTES"].contains(&name);
        assert!(
            !in_manual || manual.contains(&value.to_string()),
            "{MANUAL}: {name}"
        );
    }
}

#[test]
fn the_editors_grammar_knows_every_word() {
    let grammar = read(GRAMMAR);
    // Words stand in groups: \b(one|two)\b, in JSON with two backslashes.
    let groups = grammar
        .split('(')
        .skip(1)
        .filter_map(|part| part.split(')').next());
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_group = |group: &&str| {
        group
            .split('|')
            .all(|word| !word.is_empty() && word.chars().all(is_word))
    };
    let named: BTreeSet<&str> = groups
        .filter(is_group)
        .flat_map(|group| group.split('|'))
        .collect();
    let fields = EventField::ALL.iter().map(|(field, _)| *field);
    let known: BTreeSet<&str> = KEYWORDS
        .into_iter()
        .chain(TYPES.iter().map(|(name, _)| *name))
        .chain(WORDS_IN_PLACE)
        .chain(check::builtins())
        .chain(fields)
        .chain(["event", "input", "output", "sink"])
        .collect();
    assert_eq!(named, known);
}
