//! The core's tables, for root and for users that a rule names: with them a program loads a service
//! into the kernel itself, so that the daemon never loads an object of a client.

use ecalls_abi::message::{Answer, Done};

use super::{Context, Result, end};
use crate::client::Reply;

/// Passes the map of that number to the client.
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
