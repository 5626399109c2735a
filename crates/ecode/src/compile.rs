//! The driver: the whole way of a text, phase by phase. This is the map of the compiler.
//!
//! It has two steps. [`check()`] reads the text, reports all errors, and makes the [`Program`] that
//! user space can run. [`Checked::emit`] makes the [`Object`] for the kernel from it. A client of
//! the daemon only checks, since the daemon compiles the text itself; [`compile()`] does both.

use crate::bpf::{Object, Options};
use crate::check::{self};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::environment::Environment;
use crate::ir::{Instruction, Program};
use crate::source::Source;
use crate::tree::Tree;
use crate::unproven::unproven;
use crate::{bpf, lower, parser};

/// A text in which nothing is wrong.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The checked program, with its tests and the names of its variables.
    pub tree: Tree,
    /// The IR: user space executes it, and the program for the kernel is made from it.
    pub program: Program,
    /// Findings that keep no program from running.
    pub warnings: Vec<Diagnostic>,
}

/// The result of a compilation.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The checked program, with its tests and the names of its variables.
    pub tree: Tree,
    pub program: Program,
    pub object: Object,
    /// Findings that keep no program from running.
    pub warnings: Vec<Diagnostic>,
    /// Upper bounds of the cost of a run.
    pub cost: Cost,
}

/// Upper bounds of a program's cost, all known before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Iterations of all loops in one run together; 0: it has no loops.
    pub fuel: u32,
    /// Whether a run that would make more of them is ended there: how many it makes depends on what
    /// it meets.
    pub may_run_out: bool,
    /// If it may for no other reason than that it would make so many at most.
    pub fuel_wanted: Option<u64>,
    /// Instructions of the program ([`Program`]); those in loops count once.
    pub instructions: u32,
    /// Instructions in the kernel.
    pub kernel_instructions: u32,
    /// Bytes of the kernel's stack.
    pub stack: u32,
    /// Bytes of its local arrays and structs.
    pub locals: u32,
    /// Bytes that are kept from run to run, constant tables included.
    pub state: u32,
}

/// Checks a text for where it is to run. Nothing is made for the kernel yet: who hands the text on
/// to somebody who compiles it needs no more.
///
/// # Errors
/// All findings, at least one of which is an error.
pub fn check(source: &Source, environment: &Environment) -> Result<Checked, Diagnostics> {
    let (mut unit, mut told) = parser::parse(source);
    if has_errors(&told) {
        // The part that could not be read may have been the body, so its absence is not reported.
        unit.body.get_or_insert_default();
    }
    let (tree, found) = check::check(&unit, environment);
    told.extend(found);
    let Some(tree) = tree.filter(|_| !has_errors(&told)) else {
        return Err(Diagnostics::new(told));
    };
    match lower::lower(&tree) {
        Ok(program) => {
            told.extend(unproven(&tree, &program));
            Ok(Checked {
                warnings: Diagnostics::new(told).all,
                program,
                tree,
            })
        }
        Err(limit) => {
            told.push(limit);
            Err(Diagnostics::new(told))
        }
    }
}

impl Checked {
    /// Makes the program for the kernel, as the options say.
    ///
    /// # Errors
    /// The limit of programs for the kernel that it is beyond, with the warnings.
    pub fn emit(self, options: &Options) -> Result<Compiled, Diagnostics> {
        let Checked {
            tree,
            program,
            warnings,
        } = self;
        match bpf::emit_with(&program, options) {
            Ok(object) => Ok(Compiled {
                cost: Cost::of(&program, &object),
                warnings,
                program,
                object,
                tree,
            }),
            Err(limit) => {
                let mut told = warnings;
                told.push(limit);
                Err(Diagnostics::new(told))
            }
        }
    }
}

/// Checks a text, and makes the program for the kernel.
///
/// # Errors
/// As [`check()`] and [`Checked::emit`].
pub fn compile(source: &Source, environment: &Environment) -> Result<Compiled, Diagnostics> {
    compile_with(source, environment, &Options::default())
}

/// The same, made for the kernel as the options say: those for texts that are not trusted.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(
    source: &Source,
    environment: &Environment,
    options: &Options,
) -> Result<Compiled, Diagnostics> {
    check(source, environment)?.emit(options)
}

fn has_errors(told: &[Diagnostic]) -> bool {
    told.iter().any(|one| one.severity == Severity::Error)
}

impl Cost {
    /// The cost of a program, and of its form for the kernel.
    pub fn of(program: &Program, object: &Object) -> Cost {
        Cost {
            fuel: program.fuel_most.unwrap_or(program.fuel),
            may_run_out: program.fuel_most.is_none(),
            fuel_wanted: program.fuel_wanted,
            instructions: count(&program.body),
            kernel_instructions: object.instructions.len() as u32,
            stack: object.stack,
            locals: program.locals,
            state: program.state.bytes.len() as u32,
        }
    }
}

fn count(body: &[Instruction]) -> u32 {
    let inner = body
        .iter()
        .flat_map(|instruction| instruction.op.bodies())
        .map(count);
    inner.sum::<u32>() + body.len() as u32
}
