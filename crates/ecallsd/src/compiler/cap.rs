//! Upper limits for a text of a client: stricter than those of a program that hosts the core itself
//! ([`ecode::limits`]). All are checked before the kernel sees the program; those of the program by
//! the worker, whose message the client receives, and again by the broker, which does not trust the
//! worker.

use std::time::Duration;

use ecalls_abi::upload::UPLOAD_BYTES_MAX;
use ecalls_kernel::handler::Parts;

pub const TEXT_BYTES: usize = UPLOAD_BYTES_MAX;
/// Depth of nested brackets.
pub const NESTING: usize = 32;
/// BPF instructions, as the compiler limits them for texts of strangers.
pub const INSTRUCTIONS: usize = ecode::limits::BPF_INSTRUCTIONS_STRANGER;
/// Bytes of all `static` variables and constant tables.
pub const STATE_BYTES: usize = 8192;
/// Instructions of one run: its largest number of iterations times the instructions of the program.
/// That is a few milliseconds in which nothing else runs on the CPU.
pub const RUN: u64 = 4_000_000;
/// Bytes of the description of an output.
pub const FORMAT_BYTES: usize = 4096;

/// The machine's memory that the daemon charges for one handler, whatever its size: the program,
/// the kernel's translation of it, and its state.
pub const HANDLER_BYTES: u64 = 128 << 10;
/// Descriptors that the daemon holds for one handler: its state, and its attachment.
pub const HANDLER_DESCRIPTORS: u64 = 4;

/// CPU time for compiling one text.
pub const CPU: Duration = Duration::from_millis(250);
/// Elapsed time for it on a busy machine.
pub const WALL: Duration = Duration::from_secs(5);
/// Memory of a worker.
pub const MEMORY: u64 = 128 << 20;

/// Checks a program against these limits.
///
/// # Errors
/// The limit that is exceeded, and advice.
pub fn check(parts: &Parts) -> Result<(), String> {
    let instructions = parts.object.instructions.len();
    if instructions > INSTRUCTIONS {
        return Err(format!(
            "the program has {instructions} instructions for the kernel; an uploaded one has at \
             most {INSTRUCTIONS}"
        ));
    }
    let state = parts.state.bytes.len();
    if state > STATE_BYTES {
        return Err(format!(
            "it keeps {state} bytes in static variables and tables; an uploaded one keeps at most \
             {STATE_BYTES}"
        ));
    }
    let fuel = u64::from(parts.fuel);
    let run = fuel * instructions as u64;
    if run > RUN {
        let most = RUN / instructions.max(1) as u64;
        return Err(format!(
            "a run may take {fuel} iterations of {instructions} instructions; an uploaded \
             program's at most {RUN} in all\n    hint: begin with `fuel {most};`"
        ));
    }
    Ok(())
}
