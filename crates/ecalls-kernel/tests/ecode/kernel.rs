//! The way in the kernel, for the comparison with the judge (tests/ecode-judge).

use std::mem::take;
use std::time::Duration;

use ecalls_kernel::ecode::{Trial, TrialMemory};
use ecode::bpf;
use ecode::ir::Program;
use ecode_judge::differential::{Loaded, Way};
use ecode_judge::instructions::{Image, emitted};
use ecode_judge::{Outcome, World};

use crate::gave_up;

/// What a program may take to be loaded or refused.
pub(crate) const QUICK: Duration = Duration::from_millis(50);

/// Time of this thread on a CPU.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec that the call may write.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// In the kernel, as a text that is trusted or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) secret: Option<u64>,
}

impl Way for Kernel {
    fn name(&self) -> &'static str {
        match self.secret {
            None => "kernel",
            Some(_) => "kernel, hardened",
        }
    }

    fn load<'w>(&'w self, program: &Program) -> Option<Box<dyn Loaded + 'w>> {
        let object = emitted(program, self.secret)?;
        let begin = thread_time();
        let trial = Trial::load(&object).expect("memory");
        let time = thread_time() - begin;
        let count = object.instructions.len();
        if time >= QUICK || trial.as_ref().is_err_and(gave_up) {
            println!("too hard for the verifier: {count} instructions, {time:?}");
            return None;
        }
        let trial = trial.unwrap_or_else(|refusal| {
            let text = bpf::disassemble(&object, None);
            panic!("refused: {}\n{text}\n{program}", refusal.reason);
        });
        Some(Box::new(KernelProgram {
            trial,
            state: program.state.bytes.clone(),
            program: program.clone(),
        }))
    }
}

struct KernelProgram {
    trial: Trial,
    state: Vec<u8>,
    program: Program,
}

impl Loaded for KernelProgram {
    fn run(&mut self, world: &World) -> Outcome {
        let mut image = Image::new(&self.program, &self.state, world);
        let [frame, event, state, attributes, sinks] = &mut image.memories;
        let mut memory = TrialMemory {
            frame: take(frame),
            event: take(event),
            state: take(state),
            attributes: take(attributes),
            sinks: take(sinks),
        };
        self.trial.run(&mut memory).expect("a run");
        self.state.clone_from(&memory.state);
        (*frame, *state) = (memory.frame, memory.state);
        image.outcome(&self.program)
    }
}
