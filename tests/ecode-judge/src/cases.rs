//! The texts of `tests/ecode`: where each is to run, and the execution of those in `run`, whose
//! tests stand in them. Each run of each test happens before the judge and in every way of
//! execution, and all must leave the same; what the test expects is then looked for in it.
//!
//! ```text
//! //@ input: u64 bytes; u16 port        the service's format; without it, there is none
//! //@ kinds: OPENED, CLOSED             so are attributes, sinks
//! //@ services: timer 3                 so are constants
//! //@ denied: signal signals need ...   what may not be requested, and why
//! //@ service: yes                      it is a service
//! //@ unreadable: data it differs       a field that cannot be read, and why
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ecode::Compiled;
use ecode::environment::{Denied, Environment};
use ecode::run;
use ecode::source::Source;
use ecode::tree::{Builtin, EventField, Test};
use ecode::trial::{Left, Setting, run_test};

use crate::differential::{Loaded, Way};
use crate::judge::Judge;
use crate::world::{Outcome, World};

/// What a line that is for the harness begins with.
pub const MARK: &str = "//@ ";

/// A folder of texts.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ecode")
        .join(name)
}

/// What the text says of where it is to run.
pub fn environment(text: &str) -> Environment {
    let mut environment = Environment::default();
    let lines = text.lines().filter_map(|line| line.strip_prefix(MARK));
    for (key, value) in lines.filter_map(|line| line.split_once(": ")) {
        let words = || value.split(", ").map(str::to_owned);
        let pairs = || value.split(", ").filter_map(|pair| pair.split_once(' '));
        match key {
            "input" => environment.input = Some(value.to_owned()),
            "kinds" => environment.kinds = words().collect(),
            "attributes" => environment.attributes = words().collect(),
            "sinks" => environment.sinks = Some(words().collect()),
            "services" => {
                let service = |(name, index): (&str, &str)| {
                    (name.to_owned(), index.parse().expect("an index"))
                };
                environment.services = pairs().map(service).collect();
            }
            "constants" => {
                let constant = |(name, value): (&str, &str)| {
                    (name.to_owned(), value.parse().expect("a number"))
                };
                environment.constants = pairs().map(constant).collect();
            }
            "service" => environment.service = true,
            "output" => environment.output_most = value.parse().ok(),
            "unreadable" => {
                let field = |(name, why): (&str, &str)| (name.to_owned(), why.to_owned());
                environment.unreadable.extend(pairs().map(field));
            }
            "denied" => environment.denied.extend(pairs().map(denied)),
            _ => {}
        }
    }
    environment
}

/// Surroundings with something of everything.
pub fn surroundings() -> Environment {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Environment {
        input: Some("u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]".into()),
        kinds: names(&["OPENED", "CLOSED"]),
        attributes: names(&["load", "jobs"]),
        sinks: Some(names(&["load", "distance"])),
        services: vec![("timer".into(), 3)],
        constants: vec![("NUM_RESOURCES".into(), 16)],
        denied: Vec::new(),
        ..Environment::default()
    }
}

fn denied((name, reason): (&str, &str)) -> Denied {
    let builtin = match name {
        "signal" => Builtin::Signal,
        "raise" => Builtin::Raise(0),
        "drop" => Builtin::Drop,
        "defer" => Builtin::Defer,
        "random" => Builtin::Random,
        "attr" => Builtin::Attribute(0),
        "uid" => Builtin::Event(EventField::Uid),
        other => panic!("no name for a denied request: {other}"),
    };
    Denied {
        builtin,
        reason: reason.to_owned().leak(),
    }
}

/// Runs all tests of the texts in `run`. Gives how many there are.
///
/// # Errors
/// Everything in which ways differ, or that is not as expected.
pub fn run_all(ways: &[&dyn Way]) -> Result<usize, String> {
    run_folder("run", ways)
}

/// The same of another folder, in which a text may have none.
///
/// # Errors
/// Those of [`run_all`].
pub fn run_folder(name: &str, ways: &[&dyn Way]) -> Result<usize, String> {
    let entries = std::fs::read_dir(folder(name)).expect("the folder of texts");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a text").path()).collect();
    paths.sort();
    let (mut tests, mut wrong) = (0, String::new());
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a text");
        let source = Source::new(path.display().to_string(), text);
        let compiled = ecode::compile(&source, &environment(&source.text));
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(refused) => {
                wrong += &refused.render(&source);
                continue;
            }
        };
        if compiled.tree.tests.is_empty() && name == "run" {
            let _ = writeln!(wrong, "{}: no test stands in it", source.name);
        }
        for test in &compiled.tree.tests {
            tests += 1;
            if let Err(what) = run_one(&source, &compiled, test, ways) {
                let _ = writeln!(wrong, "{}: \"{}\": {what}", source.name, test.name);
            }
        }
    }
    if wrong.is_empty() {
        Ok(tests)
    } else {
        Err(wrong)
    }
}

/// Runs one test.
fn run_one(
    source: &Source,
    compiled: &Compiled,
    test: &Test,
    ways: &[&dyn Way],
) -> Result<(), String> {
    let mut judge = Judge::new(&compiled.tree);
    let mut loaded: Vec<(&str, Box<dyn Loaded + '_>)> = Vec::new();
    for way in ways {
        let program = way.load(&compiled.program);
        loaded.push((
            way.name(),
            program.ok_or_else(|| format!("beyond a limit of {}", way.name()))?,
        ));
    }
    let unmet = run_test(
        &compiled.tree,
        &compiled.program,
        test,
        |setting: &Setting| {
            let world = World::from(setting);
            let expected = judge.run(&world);
            for (name, program) in &mut loaded {
                if let Some(what) = program.run(&world).difference(&expected) {
                    return Err(format!("{name}: {what}"));
                }
            }
            Ok(left(compiled, expected))
        },
    )?;
    let lines = unmet.iter().map(|unmet| {
        let line = source.position(unmet.span.start).line;
        format!("line {line}: {}", source.text_of(unmet.span))
    });
    let lines: Vec<String> = lines.collect();
    match lines.as_slice() {
        [] => Ok(()),
        _ => Err(format!("does not hold: {}", lines.join("; "))),
    }
}

/// What the judge says, as the other ways leave it.
fn left(compiled: &Compiled, outcome: Outcome) -> Left {
    let program = &compiled.program;
    let mut state = program.state.bytes.clone();
    for (name, bytes) in &outcome.statics {
        let mut entries = program.state.entries.iter().filter(|entry| !entry.constant);
        if let Some(entry) = entries.find(|entry| entry.name == *name) {
            state[entry.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    let mut output = outcome.output;
    output.resize(program.output as usize, 0);
    let effects = outcome.effects.iter().map(|effect| run::Effect {
        kind: effect.kind,
        number: effect.number,
        values: effect.values,
    });
    Left {
        result: outcome.result,
        fault: outcome.fault,
        fault_place: None,
        fuel: outcome.fuel,
        dropped: outcome.drop,
        accepted: outcome.accepted,
        rejected: outcome.rejected,
        random: outcome.random,
        effects: effects.collect(),
        output,
        state,
    }
}
