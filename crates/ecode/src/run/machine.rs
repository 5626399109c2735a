//! A program that is ready to run in user space, by the interpreter or by another engine.

use std::fmt::Debug;

use super::interpreter::Interpreter;
use super::memory::{Layout, Memory, Prologue};
use crate::ir::Program;
use crate::source::Span;
use crate::tree::Fault;

/// A program, ready to run in user space.
#[derive(Debug)]
pub struct Machine {
    engine: Kind,
    prologue: Prologue,
}

#[derive(Debug)]
enum Kind {
    Interpreter(Interpreter),
    Other(Box<dyn Engine>),
}

/// What executes a program's body in place of the interpreter, and leaves the same. It was made for
/// one program, and must bear any memory: who calls it may have taken another program's.
pub trait Engine: Debug + Send + Sync {
    /// Executes the body on the bytes of a [`Memory`], which lie as [`Layout`] says. Result, fuel
    /// and fault in the frame are written afterwards, by the caller.
    fn run(&self, bytes: &mut [u8]) -> Ended;
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The result, or the fault and the part of the text where it happened.
    pub result: Result<i64, (Fault, Option<Span>)>,
    /// Fuel that is left.
    pub fuel: u32,
}

impl Machine {
    /// Prepares a program for the interpreter.
    pub fn new(program: &Program) -> Machine {
        let interpreter = Interpreter::new(program, &Layout::new(program));
        Machine::with(Kind::Interpreter(interpreter), program)
    }

    /// The machine for a program from which an engine was made.
    pub fn of(engine: Box<dyn Engine>, program: &Program) -> Machine {
        Machine::with(Kind::Other(engine), program)
    }

    fn with(engine: Kind, program: &Program) -> Machine {
        Machine {
            engine,
            prologue: Prologue {
                input: program.input,
                output: program.output,
                fuel: program.fuel,
            },
        }
    }

    /// Runs the program once on a memory that was made for it. The memory then holds all results,
    /// including the fault.
    pub fn run(&mut self, memory: &mut Memory) -> Result<i64, Fault> {
        if !memory.begin(&self.prologue) {
            return Err(Fault::Input);
        }
        let ended = match &mut self.engine {
            Kind::Interpreter(interpreter) => interpreter.run(&mut memory.bytes),
            Kind::Other(engine) => engine.run(&mut memory.bytes),
        };
        memory.end(&ended);
        ended.result.map_err(|(fault, _)| fault)
    }
}
