//! A program under trial, in user space or in the running kernel: a [`Setting`] is its environment
//! and input, [`Left`] holds its results. The bytes are the same for both.

use std::io::ErrorKind;
use std::time::Instant;

use ::ecode::Checked;
use ::ecode::run::{Machine, Memory};
use ::ecode::source::Source;
use ::ecode::trial::{Left, Setting};
use ecalls_kernel::Error;
use ecalls_kernel::ecode::{Trial as KernelTrial, TrialMemory};

use super::text;
use crate::exit::{Code, Failure};
use crate::output::note;

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum On {
    /// In this process; of many runs, as machine code where that can be made
    User,
    /// In this process, by the interpreter
    Interpreter,
    /// In this process, as machine code
    Native,
    /// In the running kernel; needs root
    Kernel,
}

/// Runs from which on machine code, which takes up to a millisecond to make, is worth it.
pub(crate) const MANY_RUNS: u64 = 1000;

/// A program, loaded in one of the two, with the state that it keeps from run to run.
#[derive(Debug)]
pub(crate) enum Trial {
    User(Machine, Box<Memory>),
    Kernel(Box<KernelTrial>, Box<TrialMemory>),
}

/// An error as a failure; one for lack of privileges says what is needed.
fn denied(error: Error) -> Failure {
    match error {
        Error::Os { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            Failure::new(Code::Denied, "running a text in the kernel needs root")
        }
        other => other.into(),
    }
}

impl Trial {
    /// Loads a program. If the kernel refuses it, the message names the line of the text.
    pub(crate) fn new(on: On, source: &Source, checked: &Checked) -> Result<Trial, Failure> {
        let program = &checked.program;
        let user = |machine| Trial::User(machine, Box::new(Memory::new(program)));
        match on {
            On::User | On::Interpreter => return Ok(user(Machine::new(program))),
            On::Native => {
                let failed =
                    |why| Failure::new(Code::Unsupported, format!("no machine code: {why}"));
                return ecode_native::compile(program).map(user).map_err(failed);
            }
            On::Kernel => {}
        }
        let object = text::object(source, checked)?;
        let trial = KernelTrial::load(&object)
            .map_err(denied)?
            .map_err(|refusal| {
                note(refusal.render(&object, source));
                Failure::new(
                    Code::Failed,
                    format!("{}: the kernel's verifier refuses the program", source.name),
                )
            })?;
        let memory = TrialMemory {
            frame: Vec::new(),
            event: Vec::new(),
            state: program.state.bytes.clone(),
            attributes: Vec::new(),
            sinks: Vec::new(),
        };
        Ok(Trial::Kernel(Box::new(trial), Box::new(memory)))
    }

    /// Loads a program for so many runs, and tells how they are made.
    pub(crate) fn of_runs(
        on: On,
        runs: u64,
        source: &Source,
        checked: &Checked,
    ) -> Result<(Trial, On), Failure> {
        if on == On::User {
            if runs >= MANY_RUNS
                && let Ok(trial) = Trial::new(On::Native, source, checked)
            {
                return Ok((trial, On::Native));
            }
            return Trial::of_runs(On::Interpreter, runs, source, checked);
        }
        Ok((Trial::new(on, source, checked)?, on))
    }

    /// Applies the setting to the program's memory.
    pub(crate) fn set(&mut self, setting: &Setting, fuel: u32) {
        match self {
            Trial::User(_, memory) => setting.put_into(memory),
            Trial::Kernel(_, memory) => {
                memory.event.clone_from(&setting.event);
                memory.attributes = setting.attribute_table();
                memory.sinks = setting.sink_table();
                memory.frame = setting.frame(fuel);
            }
        }
    }

    /// Runs the program once on the current setting.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        match self {
            Trial::User(machine, memory) => {
                // The machine also records a fault in the memory, where it is read.
                let _ = machine.run(memory);
                Ok(())
            }
            Trial::Kernel(trial, memory) => Ok(trial.run(memory)?),
        }
    }

    /// Runs the program `runs` times on this setting, with the state kept. Returns the time of one
    /// run in ns, in the kernel by the kernel's own statistics.
    pub(crate) fn time(&mut self, setting: &Setting, fuel: u32, runs: u64) -> Result<u64, Failure> {
        match self {
            Trial::User(machine, memory) => {
                let begin = Instant::now();
                for _ in 0..runs {
                    let _ = machine.run(memory);
                }
                let took_ns = begin.elapsed().as_nanos() / u128::from(runs);
                Ok(u64::try_from(took_ns).unwrap_or(u64::MAX))
            }
            Trial::Kernel(..) => {
                let _counted = ecalls_kernel::enable_statistics()?;
                let before = self.counted()?;
                for _ in 0..runs {
                    self.set(setting, fuel);
                    self.run()?;
                }
                let (count, ns) = self.counted()?;
                Ok((ns - before.1) / (count - before.0).max(1))
            }
        }
    }

    /// Runs and nanoseconds by the kernel's statistics.
    fn counted(&self) -> Result<(u64, u64), Failure> {
        match self {
            Trial::User(..) => Ok((0, 0)),
            Trial::Kernel(trial, _) => Ok(trial.counted()?),
        }
    }

    /// The results of the last run.
    pub(crate) fn left(&self, checked: &Checked) -> Left {
        match self {
            Trial::User(_, memory) => Left::of_memory(memory),
            Trial::Kernel(_, memory) => {
                Left::of_frame(&memory.frame, checked.program.output, &memory.state)
            }
        }
    }
}
