//! Execution in user space: the same programs, the same results, no kernel.
//!
//! [`Machine::new`] flattens the IR into a list of short instructions (`code`); [`Machine::run`]
//! executes it on a [`Memory`], which holds what a program sees and leaves: the event, the frame,
//! the state. A run allocates nothing and cannot panic; whatever it does ends by the fuel.
//!
//! [`Machine::of`] executes another [`Engine`] made of the same program: the crate `ecode-native`
//! makes machine code. [`Layout`] says where in the memory it finds what.
//!
//! ```
//! # use ecode::{ir, run};
//! # let program = ir::Program::default();
//! let mut machine = run::Machine::new(&program);
//! let mut memory = run::Memory::new(&program);
//! memory.set_now(1_000_000_000);
//! memory.set_input(&[0; 8]);
//! let result = machine.run(&mut memory);
//! ```

mod code;
mod flatten;
mod interpreter;
mod machine;
mod memory;

pub use machine::{Ended, Engine, Machine};
pub use memory::{Effect, Layout, Memory};
