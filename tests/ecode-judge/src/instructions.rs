//! The way of the kernel's instructions: what a program of them finds in its memories, what it
//! leaves there ([`Image`]), and a way to run them without a kernel ([`Interpreted`]).

use ecode::bpf::{self, Map, Object, Options};
use ecode::frame::at;
use ecode::ir::Program;
use ecode::trial::Left;

use crate::differential::{Loaded, Way};
use crate::interpret::Run;
use crate::world::{Outcome, World};

/// The memories of a program, by [`Map`].
#[derive(Clone, Debug)]
pub struct Image {
    /// The bytes of each.
    pub memories: [Vec<u8>; 5],
}

impl Image {
    /// Before a run, with this state.
    pub fn new(program: &Program, state: &[u8], world: &World) -> Image {
        let mut frame = vec![0; at::BYTES as usize];
        let mut put = |offset: u32, bytes: &[u8]| {
            frame[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        put(at::NOW, &world.now.to_le_bytes());
        put(at::RANDOM, &world.random.to_le_bytes());
        put(at::RESULT, &1u64.to_le_bytes());
        put(at::FUEL, &program.fuel.to_le_bytes());
        put(at::SINKS_PRESENT, &world.present().to_le_bytes());
        let mut event = world.header.clone();
        event.extend(&world.data);
        event.resize((at::EVENT_DATA + program.input) as usize, 0);
        let attributes = world.attributes.iter();
        let attributes = attributes.flat_map(|value| value.to_le_bytes()).collect();
        let mut memories = [const { Vec::new() }; 5];
        memories[Map::Frame as usize] = frame;
        memories[Map::Event as usize] = event;
        memories[Map::State as usize] = state.to_vec();
        memories[Map::Attributes as usize] = attributes;
        memories[Map::Sinks as usize] = world.sink_table();
        Image { memories }
    }

    /// After a run.
    pub fn outcome(&self, program: &Program) -> Outcome {
        let [frame, _, state, ..] = &self.memories;
        let left = Left::of_frame(frame, program.output, state);
        Outcome::new(program, left)
    }
}

/// The kernel's instructions of a program, made for a text that is not trusted if there is a secret
/// ([`Options::secret`]). None: it is too large for the kernel.
///
/// # Panics
/// What is made passes for one of ours, whatever it is.
pub fn emitted(program: &Program, secret: Option<u64>) -> Option<Object> {
    let object = bpf::emit_with(program, &Options { secret }).ok()?;
    let maps = [
        Map::Frame,
        Map::Event,
        Map::State,
        Map::Attributes,
        Map::Sinks,
    ];
    assert_eq!(bpf::inspect(&object, &maps), Ok(()), "{program}");
    Some(object)
}

/// The kernel's instructions, without a kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interpreted {
    /// See [`Options::secret`].
    pub secret: Option<u64>,
}

impl Way for Interpreted {
    fn name(&self) -> &'static str {
        match self.secret {
            None => "instructions",
            Some(_) => "instructions, hardened",
        }
    }

    fn load<'w>(&'w self, program: &Program) -> Option<Box<dyn Loaded + 'w>> {
        Some(Box::new(InterpretedProgram {
            object: emitted(program, self.secret)?,
            state: program.state.bytes.clone(),
            program: program.clone(),
        }))
    }
}

struct InterpretedProgram {
    object: Object,
    state: Vec<u8>,
    program: Program,
}

impl Loaded for InterpretedProgram {
    fn run(&mut self, world: &World) -> Outcome {
        let mut image = Image::new(&self.program, &self.state, world);
        let mut run = Run::new(&mut image.memories);
        run.execute_object(&self.object).unwrap_or_else(|stopped| {
            let text = bpf::disassemble(&self.object, None);
            panic!("{stopped:?}\n{text}\n{}", self.program);
        });
        self.state.clone_from(&image.memories[Map::State as usize]);
        image.outcome(&self.program)
    }
}
