//! The way in the kernel, for the comparison with the judge (tests/ecode-judge).

use std::time::Duration;

use ecalls_kernel::ecode::{Memory, Trial};
use ecode::bpf::{self, Options};
use ecode::frame::at;
use ecode::ir::Program;
use ecode::limits;
use ecode::tree::Fault;
use ecode_judge::differential::{Loaded, Way, statics};
use ecode_judge::{Effect, Outcome, World};

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
        let options = Options {
            secret: self.secret,
        };
        let object = bpf::emit_with(program, &options).ok()?;
        let begin = thread_time();
        let trial = Trial::load(&object).expect("memory");
        let time = thread_time() - begin;
        let trial = trial.unwrap_or_else(|refusal| {
            let text = bpf::disassemble(&object, None);
            panic!("refused: {}\n{text}\n{program}", refusal.reason);
        });
        let count = object.instructions.len();
        assert!(
            time < QUICK,
            "{time:?} for {count} instructions:\n{program}"
        );
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
        let mut frame = vec![0; at::BYTES as usize];
        let mut put = |offset: u32, bytes: &[u8]| {
            frame[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        put(at::NOW, &world.now.to_le_bytes());
        put(at::RANDOM, &world.random.to_le_bytes());
        put(at::RESULT, &1u64.to_le_bytes());
        put(at::FUEL, &self.program.fuel.to_le_bytes());
        put(at::SINKS_PRESENT, &world.present().to_le_bytes());
        let mut event = world.header.clone();
        event.extend(&world.data);
        event.resize((at::EVENT_DATA + self.program.input) as usize, 0);
        let attributes = world.attributes.iter();
        let mut memory = Memory {
            frame,
            event,
            state: self.state.clone(),
            attributes: attributes.flat_map(|value| value.to_le_bytes()).collect(),
            sinks: world.sink_table(),
        };
        self.trial.run(&mut memory).expect("a run");
        self.state.clone_from(&memory.state);
        self.outcome(&memory)
    }
}

impl KernelProgram {
    fn outcome(&self, memory: &Memory) -> Outcome {
        let bytes = |offset: u32, count: u32| &memory.frame[offset as usize..][..count as usize];
        let word = |offset: u32| u32::from_le_bytes(bytes(offset, 4).try_into().expect("4 bytes"));
        let long = |offset: u32| u64::from_le_bytes(bytes(offset, 8).try_into().expect("8 bytes"));
        let fault = Fault::ALL
            .into_iter()
            .find(|fault| *fault as u32 == word(at::FAULT));
        let effect = |number: u32| {
            let begin = at::EFFECT + number * at::EFFECT_BYTES;
            Effect {
                kind: word(begin),
                number: word(begin + 4),
                values: [8, 16, 24].map(|offset| long(begin + offset)),
            }
        };
        assert!(word(at::EFFECT_COUNT) <= limits::EFFECTS);
        Outcome {
            result: long(at::RESULT) as i64,
            fault,
            fuel: word(at::FUEL),
            output: match fault {
                Some(Fault::Input) => Vec::new(),
                _ => bytes(at::OUTPUT, self.program.output).to_vec(),
            },
            statics: statics(&self.program, &memory.state),
            effects: (0..word(at::EFFECT_COUNT)).map(effect).collect(),
            drop: word(at::DROP).checked_sub(1).map(|reason| reason as u8),
            accepted: long(at::ACCEPTED),
            rejected: long(at::REJECTED),
            random: long(at::RANDOM),
        }
    }
}
