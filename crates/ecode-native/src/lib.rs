//! E-code as machine code: the programs that [`ecode::run`] interprets, in some twentieth of the
//! time, with the same results, faults, places and fuel. The code generator is Cranelift.
//!
//! [`compile`] makes a [`Machine`], which runs like any other. Where there can be none, it says
//! why: the caller takes `Machine::new` then, the interpreter. [`machine`] does both.
//!
//! ```
//! # use ecode::{ir, run};
//! # let program = ir::Program::default();
//! let (mut machine, interpreted) = ecode_native::machine(&program);
//! if let Some(why) = interpreted {
//!     eprintln!("E-code is interpreted: {why}");
//! }
//! let mut memory = run::Memory::new(&program);
//! let result = machine.run(&mut memory);
//! ```
//!
//! A text may come from an enemy, and its program runs in this process. So the code relies on no
//! proof that other parts of the compiler made:
//!
//! - **It reads and writes only the memory of its run** (`function/access.rs`). A fixed address is
//!   compared with its section while the code is made; one with an index by the code itself, each
//!   time, unless the same register has just been compared. It writes only to what a program may
//!   write to.
//! - **It ends** (`function/flow.rs`). Each round of a loop takes fuel, or else is counted.
//! - **It calls nothing** and has no address but that of its memory. A division is made so that it
//!   cannot trap. Its stack is bounded and touched page by page.
//! - **Its memory is never writable and executable at once** (`code.rs`).
//!
//! There is code for x86-64, in builds with the feature `code`: the generator is 26 crates, which
//! take longer to compile than all else here. Other processors and builds interpret.

#[cfg(all(feature = "code", target_arch = "x86_64"))]
mod code;
mod error;
#[cfg(all(feature = "code", target_arch = "x86_64"))]
mod function;
pub mod limits;

use ecode::ir::Program;
use ecode::run::Machine;

pub use error::Error;

/// The machine that executes this program's machine code.
///
/// # Errors
/// [`Error`] says why there is none.
#[cfg(all(feature = "code", target_arch = "x86_64"))]
pub fn compile(program: &Program) -> Result<Machine, Error> {
    let code = code::Code::new(program)?;
    Ok(Machine::of(Box::new(code), program))
}

/// Says that there is no machine code here.
///
/// # Errors
/// Always.
#[cfg(not(all(feature = "code", target_arch = "x86_64")))]
pub fn compile(_: &Program) -> Result<Machine, Error> {
    Err(Error::Unsupported(if cfg!(feature = "code") {
        "there is machine code for x86-64 only"
    } else {
        "this build makes no machine code (feature `code` of ecode-native)"
    }))
}

/// The fastest machine for this program: machine code, or the interpreter and why.
pub fn machine(program: &Program) -> (Machine, Option<Error>) {
    match compile(program) {
        Ok(machine) => (machine, None),
        Err(why) => (Machine::new(program), Some(why)),
    }
}
