//! The code of a program: how the code generator makes it of its function, after it has checked
//! that by rules of its own; its memory and its call. This file has all that is unsafe of this
//! crate.
//!
//! The memory is anonymous and private. The code is written into it while it is writable, then it
//! becomes executable and stops being writable (`mprotect`), and it stays so until it is unmapped
//! with this. Where the process may not have such memory, that fails, and nothing else happened.

#![allow(unsafe_code, reason = "machine code has no safe name")]

use std::sync::LazyLock;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use ecode::frame::at;
use ecode::ir::{Program, Region};
use ecode::run::{Ended, Engine, Layout};
use ecode::source::Span;
use ecode::tree::Fault;
use memmap2::{Mmap, MmapMut};
use target_lexicon::Triple;

use crate::error::Error;
use crate::function::{Translated, translate};
use crate::limits;

/// The code of a program.
#[derive(Debug)]
pub(crate) struct Code {
    code: Mmap,
    /// What the numbers mean that the code returns.
    places: Box<[(Fault, Span)]>,
    /// Bytes that the code's memory has at least.
    bytes: usize,
    /// Where the result is.
    result: usize,
    fuel: u32,
}

/// `crate::function` makes functions of this signature.
type Function = unsafe extern "sysv64" fn(*mut u8) -> u64;

static ISA: LazyLock<Result<OwnedTargetIsa, String>> =
    LazyLock::new(|| processor().map_err(|error| error.to_string()));

fn processor() -> Result<OwnedTargetIsa, Box<dyn std::error::Error>> {
    let mut flags = settings::builder();
    flags.set("opt_level", "speed")?;
    flags.set("unwind_info", "false")?;
    // A frame larger than a page is touched in each page, so that none is beyond the stack's guard.
    flags.set("enable_probestack", "true")?;
    flags.set("probestack_strategy", "inline")?;
    flags.set("enable_verifier", "true")?;
    let mut builder = isa::lookup(Triple::host())?;
    if is_x86_feature_detected!("bmi1") {
        builder.enable("has_bmi1")?;
    }
    if is_x86_feature_detected!("bmi2") {
        builder.enable("has_bmi2")?;
    }
    Ok(builder.finish(settings::Flags::new(flags))?)
}

impl Code {
    /// Makes the code of a program.
    pub(crate) fn new(program: &Program) -> Result<Code, Error> {
        let Translated { function, places } = translate(program)?;
        let isa = ISA.as_ref().map_err(|why| Error::Generator(why.clone()))?;
        let mut context = Context::for_function(function);
        let compiled = context
            .compile(isa.as_ref(), &mut ControlPlane::default())
            .map_err(|why| Error::Generator(why.inner.to_string()))?;
        if !compiled.buffer.relocs().is_empty() {
            return Err(Error::Unsupported("code that refers to other code"));
        }
        let stack = compiled.buffer.frame_layout();
        let stack = stack.map_or(usize::MAX, |stack| stack.frame_to_fp_offset as usize);
        if stack > limits::STACK_BYTES {
            return Err(Error::LimitReached {
                which: "bytes of stack",
                most: limits::STACK_BYTES,
            });
        }
        let layout = Layout::new(program);
        Ok(Code {
            code: executable(compiled.code_buffer()).map_err(Error::Denied)?,
            places: places.into(),
            bytes: layout.bytes(),
            result: layout.section(Region::Frame).start + at::RESULT as usize,
            fuel: program.fuel,
        })
    }
}

/// Memory with this code.
fn executable(code: &[u8]) -> std::io::Result<Mmap> {
    let mut memory = MmapMut::map_anon(code.len())?;
    memory.copy_from_slice(code);
    memory.make_exec()
}

impl Engine for Code {
    fn run(&self, bytes: &mut [u8]) -> Ended {
        if bytes.len() < self.bytes {
            // Another program's memory.
            return Ended {
                result: Err((Fault::Input, None)),
                fuel: self.fuel,
            };
        }
        // SAFETY: `Code::new` put a whole function of this signature there, and it is executable
        // and cannot be written as long as `self.code` is there.
        let function = unsafe { std::mem::transmute::<*const u8, Function>(self.code.as_ptr()) };
        // SAFETY: the function accesses `self.bytes` bytes from this pointer on, as
        // `function/access.rs` made it, which are there by the comparison above and which nobody
        // else uses during this borrow; and it calls nothing and cannot trap or unwind.
        let ended = unsafe { function(bytes.as_mut_ptr()) };
        let place = (ended >> 32) as usize;
        let result = match place.checked_sub(1).and_then(|at| self.places.get(at)) {
            Some((fault, span)) => Err((*fault, Some(*span))),
            None => Ok(word(bytes, self.result)),
        };
        Ended {
            result,
            fuel: ended as u32,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> i64 {
    let there = bytes.get(at..).and_then(|rest| rest.first_chunk());
    there.map_or(1, |word| i64::from_le_bytes(*word))
}
