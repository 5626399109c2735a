//! The core's tables, for root and for whom a rule names: with them a program loads a service into
//! the kernel itself, so that the daemon never loads what a client gives it.

use ecalls_abi::message::{Answer, Done};

use super::{Context, Result, end};
use crate::client::Reply;

/// Hands over the map of that number.
///
/// # Errors
/// The client may not, or the descriptor cannot be copied.
pub fn take(context: &mut Context<'_>, number: u32) -> Result<Reply> {
    context.policy.add_service(&context.client.who)?;
    Ok(match context.core.copy_map(number)? {
        Some(map) => Reply {
            answer: Answer::Done(Done { value: 0 }),
            fds: vec![map],
        },
        None => end(),
    })
}
