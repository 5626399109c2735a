//! From the IR to a program of the kernel.
//!
//! | file | what |
//! |---|---|
//! | `flat` | one list with jumps |
//! | `select`, `operate`, `expand` | instructions with virtual registers (`machine`) |
//! | `near` | reuse of addresses that a register already holds |
//! | `fault` | the record of a run that ends early |
//! | `improve` | fewer instructions |
//! | `live`, `allocate` | allocation of the kernel's ten registers |
//! | `encode` | `struct bpf_insn` |
//! | `btf` | the line of each instruction, for tools of the kernel |
//! | `disassemble` | the program as text |
//! | `inspect` | whether this compiler can have made a program that an untrusted process delivers |
//!
//! **Loops** are jumps back to a `may_goto` (Linux 6.9), which leaves the loop only if that has
//! taken a quarter of a second. It is there for the verifier, which walks such a loop until a round
//! reaches no new state; what really bounds a loop is the fuel. Measured on 6.18, for
//! `for i < 16, for j < 8: if (v[i][j] > load) s++` and a frame in a map:
//!
//! | | load, ms | walked | run, ns |
//! |---|---|---|---|
//! | `may_goto`, constants hidden | 0.10 | 55 | 260 |
//! | `may_goto`, `i = 0` known | 7.1 | 4,367 | 277 |
//! | bpf_loop with callbacks, values in memory | 0.19 | 83 | 2,130 |
//!
//! So a program is one function, calls nothing but lookups at its beginning (which the kernel turns
//! into a few instructions), and keeps its values in registers through loops.
//!
//! **Verification** takes 1.3 us per instruction walked. The head of `select` describes how the
//! compiler makes the verifier walk each instruction about once.
//!
//! **The kernel's hardening.** A program is one of BPF_PROG_TYPE_TRACING (or, for a trial run,
//! RAW_TRACEPOINT), loaded by a process with CAP_BPF and CAP_PERFMON. For such a process the kernel
//! omits some precautions; with [`Options::secret`], for texts that are not trusted, the compiler
//! takes them:
//!
//! - *constants in the kernel's code*: constants of more than 16 bits are XORed with a secret, as
//!   `net.core.bpf_jit_harden` does for unprivileged users;
//! - *out-of-bounds speculation (Spectre v1)*: after its comparison a computed offset is masked to
//!   less than twice the largest one. All that memory belongs to the same map;
//! - *store bypass (v4)*: only addresses and the key of a lookup (0, or the channel's index from
//!   the frame) are stored on the stack, so speculation cannot take a number of the text for an
//!   address;
//! - *addresses*: no instruction turns an address into a number, so a program cannot disclose one.
//!
//! The instruction forms are those of ISA v4 (6.6) without calls of functions, callbacks, spin
//! locks or kernel functions; the only helper is the lookup.

mod allocate;
pub mod btf;
mod disassemble;
mod encode;
mod expand;
mod fault;
mod flat;
mod improve;
mod inspect;
mod live;
mod machine;
mod near;
mod operate;
mod select;
#[cfg(test)]
mod tests;

pub use disassemble::disassemble;
pub use inspect::{Foreign, inspect};

use crate::diagnostic::Diagnostic;
use crate::frame;
use crate::ir::Program;
use crate::limits;
use crate::source::Span;

/// A memory that a program accesses through a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Map {
    /// The frame: element 0, [`frame::at::BYTES`] at least.
    Frame,
    /// The event: the beginning of element 0.
    Event,
    /// The state: the only element of an array of [`Object::state_bytes`] at least.
    State,
    /// Attributes: the element that the frame names by [`frame::at::CHANNEL`].
    Attributes,
    /// The table of sinks: element 0.
    Sinks,
}

/// An instruction with a wide constant into which the loader has to write a map's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapUse {
    /// Index of the first half of the constant, which takes the descriptor.
    pub instruction: u32,
    pub map: Map,
}

/// A program for the kernel that is not loaded: it refers to no map or object of a running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Instructions: `struct bpf_insn` each.
    pub instructions: Vec<u64>,
    /// Where the loader has to write descriptors of maps.
    pub maps: Vec<MapUse>,
    /// For each run of instructions from one part of the text: its first instruction, and that
    /// part.
    pub spans: Vec<(u32, Span)>,
    /// Bytes of the stack, including those that the kernel adds for loops.
    pub stack: u32,
    /// Bytes of the state.
    pub state_bytes: u32,
    /// Bytes of the input that are read at most.
    pub input_bytes: u32,
}

/// How a program is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// For texts that are not trusted (see the head of this file): a random number.
    pub secret: Option<u64>,
}

impl Options {
    /// Instructions that a program may have.
    pub fn instructions_most(&self) -> usize {
        match self.secret {
            Some(_) => limits::BPF_INSTRUCTIONS_STRANGER,
            None => limits::BPF_INSTRUCTIONS,
        }
    }

    /// Whether a constant is so long that it has to be masked.
    fn conceals(&self, value: i32) -> bool {
        self.secret.is_some() && i16::try_from(value).is_err()
    }

    /// The number with which the constant at a place is XORed.
    fn mask(&self, place: usize) -> Option<i64> {
        let secret = self.secret?;
        Some(frame::hash(secret ^ frame::hash(place as u64)) as i64)
    }
}

/// The error of a program beyond the limit.
fn too_many(at: Span, most: usize) -> Diagnostic {
    let message = format!("the program has more than {most} instructions for the kernel");
    Diagnostic::error(at, message)
        .hint("a function is expanded at each call: call the large ones from fewer places")
}

/// The error of a program that the verifier would walk for too long.
fn too_long_in_loops(at: Span) -> Diagnostic {
    let (most, branches) = (limits::BPF_WALK, limits::BPF_BRANCHES);
    let message = format!(
        "the program has more than {most} instructions or {branches} decisions for the kernel, \
         those in a loop counted twice, in a loop in a loop four times"
    );
    Diagnostic::error(at, message).hint("do less in loops in each other")
}

/// Compiles for the kernel.
pub fn emit(program: &Program) -> Result<Object, Diagnostic> {
    emit_with(program, &Options::default())
}

/// Compiles for the kernel with these options.
pub fn emit_with(program: &Program, options: &Options) -> Result<Object, Diagnostic> {
    let first = program
        .body
        .first()
        .map(|first| first.span)
        .unwrap_or_default();
    let flat = flat::flatten(program);
    let most = options.instructions_most();
    let mut code = select::select(program, flat, options).map_err(|at| too_many(at, most))?;
    improve::improve(&mut code);
    let allocation = allocate::allocate(&mut code, program.locals).map_err(|_| {
        Diagnostic::error(first, "the program needs too many values at once")
            .hint("compute some of them later, or keep them in an array")
    })?;
    let encoded = encode::encode(&code, &allocation.registers);
    let count = encoded.instructions.len();
    if count > most {
        return Err(too_many(first, most));
    }
    if encoded.branches > limits::BPF_BRANCHES || encoded.walk > limits::BPF_WALK {
        return Err(too_long_in_loops(first));
    }
    Ok(Object {
        instructions: encoded.instructions,
        maps: encoded.maps,
        spans: encoded.spans,
        stack: allocation.stack,
        state_bytes: program.state.bytes.len() as u32,
        input_bytes: program.input,
    })
}

impl Object {
    /// The part of the text that an instruction came from.
    pub fn span(&self, instruction: u32) -> Span {
        let behind = self
            .spans
            .partition_point(|(first, _)| *first <= instruction);
        let span = behind.checked_sub(1).and_then(|at| self.spans.get(at));
        span.map(|(_, span)| *span).unwrap_or_default()
    }
}
