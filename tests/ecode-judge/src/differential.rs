//! The comparison: a random program, a few random events, and every way of execution has to leave
//! what the judge says. What differs is shrunk and told with its seed:
//!
//! ```text
//! seed 1234, event 2: user: result: 3 is not 4
//! ...the shrunk text...
//! ```

use ecode::diagnostic::{Diagnostics, Severity};
use ecode::ir::Program;
use ecode::run::{Machine, Memory};
use ecode::source::Source;
use ecode::tree::Tree;
use ecode::trial::Left;

use crate::dice::Dice;
use crate::judge::Judge;
use crate::program::{environment, program};
use crate::shrink::shrink;
use crate::world::{Outcome, World};

/// Events that each program gets, one after the other, its state being kept.
const EVENTS: u64 = 3;

/// A way in which programs run.
pub trait Way {
    /// Its name in messages.
    fn name(&self) -> &'static str;

    /// Takes a program, its state new. `None`: it is beyond a limit of this way, and passed over.
    fn load<'w>(&'w self, program: &Program) -> Option<Box<dyn Loaded + 'w>>;
}

/// A program that can run; its state stays from run to run.
pub trait Loaded {
    /// Runs it on an event.
    fn run(&mut self, world: &World) -> Outcome;
}

/// A number that the environment gives, or another one.
///
/// # Panics
/// If what is given is no number.
pub fn number(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// The results of comparing a number of programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub compared: u64,
    /// Programs beyond a limit.
    pub passed_over: u64,
    /// Runs that ended in a fault, for each of `Fault::ALL` in that order.
    pub faults: [u64; 4],
    pub runs: u64,
}

impl Tally {
    /// Whether these programs say much: few are beyond a limit, and few runs end in a fault, but
    /// some in each. However few they are, chance does not decide it: what is found must lie
    /// further from its bound than it does once in a million times.
    pub fn says_much(&self) -> bool {
        const PASSED_OVER: f64 = 1.0 / 20.0;
        const FAULTS: f64 = 1.0 / 8.0;
        const EACH_FAULT: f64 = 1.0 / 200.0;
        let programs = (self.compared + self.passed_over) as f64;
        let runs = self.runs as f64;
        // Runs of one program often end alike: they count as one for how far chance goes.
        let alike = (runs / (self.compared as f64).max(1.0)).max(1.0);
        let faults: u64 = self.faults.iter().sum();
        let each =
            |count: &u64| *count as f64 >= runs * EACH_FAULT - chance(runs, EACH_FAULT, alike);
        self.passed_over as f64 <= programs * PASSED_OVER + chance(programs, PASSED_OVER, 1.0)
            && faults as f64 <= runs * FAULTS + chance(runs, FAULTS, alike)
            && self.faults.iter().all(each)
    }
}

/// How far from `of * rate` chance takes a count, but for once in a million times, where `alike` of
/// them go together: five times the deviation of a binomial distribution, and one step for what is
/// so rare that it has none.
fn chance(of: f64, rate: f64, alike: f64) -> f64 {
    5.0 * (of * rate * (1.0 - rate) * alike).sqrt() + alike
}

/// Compares the programs of these seeds; the first difference ends it, and is told.
pub fn compare(seeds: std::ops::Range<u64>, ways: &[&dyn Way]) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for seed in seeds {
        let text = program(seed);
        match compare_text(&text, seed, ways) {
            Found::Same(runs, faults) => {
                tally.compared += 1;
                tally.runs += runs;
                for (all, these) in tally.faults.iter_mut().zip(faults) {
                    *all += these;
                }
            }
            Found::PassedOver(why) => {
                println!("seed {seed}: passed over: {why}");
                tally.passed_over += 1;
            }
            Found::Refused(why) => return Err(format!("seed {seed}: refused: {why}\n{text}")),
            Found::Different(_) => return Err(explain(&text, seed, ways)),
        }
    }
    Ok(tally)
}

/// What became of one program.
#[derive(Debug)]
pub enum Found {
    /// All ways agree: runs, and how many of them ended in each fault.
    Same(u64, [u64; 4]),
    /// It is beyond a limit.
    PassedOver(String),
    /// It is no program.
    Refused(String),
    /// Two do not agree: which, in what.
    Different(String),
}

fn explain(text: &str, seed: u64, ways: &[&dyn Way]) -> String {
    let differs = |text: &str| matches!(compare_text(text, seed, ways), Found::Different(_));
    let small = shrink(text, &differs);
    let what = match compare_text(&small, seed, ways) {
        Found::Different(what) => what,
        other => format!("{other:?}"),
    };
    let shown = lowered(&small).map(|(_, program)| program.to_string());
    let program = shown.unwrap_or_else(|_| String::new());
    format!("seed {seed}, {what}\n{small}\n{program}")
}

fn lowered(text: &str) -> Result<(Tree, Program), Found> {
    let source = Source::new("random.ec", text);
    let (unit, mut told) = ecode::parser::parse(&source);
    let (tree, more) = ecode::check::check(&unit, &environment());
    told.extend(more);
    told.retain(|one| one.severity == Severity::Error);
    let Some(tree) = tree.filter(|_| told.is_empty()) else {
        let all = Diagnostics {
            all: told,
            left_out: 0,
        };
        return Err(Found::Refused(all.render(&source)));
    };
    match ecode::lower::lower(&tree) {
        Ok(program) => Ok((tree, program)),
        Err(limit) => Err(Found::PassedOver(limit.message)),
    }
}

/// Compares one program; the seed decides the events.
pub fn compare_text(text: &str, seed: u64, ways: &[&dyn Way]) -> Found {
    let (tree, program) = match lowered(text) {
        Ok(both) => both,
        Err(found) => return found,
    };
    if let Err(error) = ecode::ir::verify::verify(&program) {
        return Found::Different(format!("verifier of the IR: {error}"));
    }
    let mut judge = Judge::new(&tree);
    if program.input != judge.reach() {
        return Found::Different(format!("input: {} is not {}", program.input, judge.reach()));
    }
    let mut loaded = Vec::new();
    for way in ways {
        match way.load(&program) {
            Some(program) => loaded.push((way.name(), program)),
            None => return Found::PassedOver(way.name().to_owned()),
        }
    }
    let mut dice = Dice::new(!seed);
    let mut faults = [0; 4];
    for event in 0..EVENTS {
        let world = World::random(&mut dice, program.input as usize);
        let expected = judge.run(&world);
        if let Some(fault) = expected.fault {
            faults[fault as usize - 1] += 1;
        }
        for (name, program) in &mut loaded {
            let outcome = program.run(&world);
            if let Some(what) = outcome.difference(&expected) {
                return Found::Different(format!("event {event}: {name}: {what}"));
            }
        }
    }
    Found::Same(EVENTS, faults)
}

/// The way in user space.
#[derive(Clone, Copy, Debug)]
pub struct User;

impl Way for User {
    fn name(&self) -> &'static str {
        "user"
    }

    fn load<'w>(&'w self, program: &Program) -> Option<Box<dyn Loaded + 'w>> {
        Some(in_user_space(Machine::new(program), program))
    }
}

/// A program in a machine of any kind.
pub fn in_user_space(machine: Machine, program: &Program) -> Box<dyn Loaded> {
    Box::new(UserProgram {
        machine,
        memory: Memory::new(program),
        program: program.clone(),
    })
}

struct UserProgram {
    machine: Machine,
    memory: Memory,
    program: Program,
}

impl Loaded for UserProgram {
    fn run(&mut self, world: &World) -> Outcome {
        let memory = &mut self.memory;
        memory.set_header(&world.header);
        memory.set_input(&world.data);
        memory.set_now(world.now);
        memory.set_random(world.random);
        memory.set_sinks_present(world.present());
        for (value, number) in world.attributes.iter().zip(0..) {
            memory.set_attribute(number, *value);
        }
        let table = memory.sinks_mut();
        let length = table.len();
        table.copy_from_slice(&world.sink_table()[..length]);
        let ended = self.machine.run(memory);
        let left = Left::of_memory(memory);
        assert_eq!(ended.err(), left.fault, "the run says what the memory says");
        Outcome::new(&self.program, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found of so many programs, each run ten times.
    fn tally(programs: u64, passed_over: u64, each_fault: u64) -> Tally {
        let compared = programs - passed_over;
        Tally {
            compared,
            passed_over,
            faults: [each_fault; 4],
            runs: compared * 10,
        }
    }

    #[test]
    fn chance_decides_nothing_and_too_many_are_seen() {
        // Rates at the bounds are right for any number; seldom is one a little beyond.
        for programs in [1, 10, 100, 1000, 2000, 100_000] {
            let at_bound = tally(programs, programs / 20, programs * 10 / 200);
            assert!(at_bound.says_much(), "{at_bound:?}");
        }
        assert!(tally(1000, 70, 100).says_much());
        // Twice as many are seen in a thousand, a little more in very many.
        assert!(!tally(1000, 100, 100).says_much());
        assert!(!tally(100_000, 5600, 10_000).says_much());
        // Hardly a run that ends in a fault, in very many programs; and far too many.
        assert!(!tally(100_000, 0, 3000).says_much());
        assert!(!tally(2000, 0, 1000).says_much());
    }
}
