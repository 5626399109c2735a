//! What a text of a client may be at most: less than what a program may that hosts the core itself
//! ([`ecode::limits`]). Each is looked at before the kernel sees anything; those of the program by
//! the worker, whose words the client hears, and again by the broker, which does not trust it.

use std::time::Duration;

use ecalls_abi::upload::UPLOAD_BYTES_MAX;
use ecalls_kernel::handler::Parts;

/// Bytes of the text.
pub const TEXT_BYTES: usize = UPLOAD_BYTES_MAX;
/// Brackets in each other.
pub const NESTING: usize = 32;
/// Instructions for the kernel, as the compiler limits them for somebody else's text.
pub const INSTRUCTIONS: usize = ecode::limits::BPF_INSTRUCTIONS_STRANGER;
/// Bytes of all `static` variables and constant tables.
pub const STATE_BYTES: usize = 8192;
/// Instructions of one run: iterations that it may make, times those of the program. A few
/// milliseconds in which nothing else runs on that processor.
pub const RUN: u64 = 4_000_000;
/// Bytes of the description of an output.
pub const FORMAT_BYTES: usize = 4096;

/// What the daemon holds of the machine's memory for one handler, whatever it is: its program, the
/// kernel's translation of it, and its state.
pub const HANDLER_BYTES: u64 = 128 << 10;
/// Descriptors that it holds for one: state, what is attached.
pub const HANDLER_DESCRIPTORS: u64 = 4;

/// Time on a processor to compile one text.
pub const CPU: Duration = Duration::from_millis(250);
/// The same by the clock on the wall, on a machine that has more to do.
pub const WALL: Duration = Duration::from_secs(5);
/// Memory of a worker.
pub const MEMORY: u64 = 128 << 20;

/// Whether a program is within the caps; else which one it is beyond, in words.
///
/// # Errors
/// What is too large, and what to do.
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
