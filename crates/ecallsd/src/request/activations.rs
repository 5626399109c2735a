//! The kernel side of a client's user-level threads: a page of its own, and the program by which
//! its threads become activations. Both end with the connection.

use ecalls_abi::message::{Answer, Done};
use ecalls_kernel::Error;
use ecalls_kernel::activation::HostedActivations;

use super::{Context, Result};
use crate::client::{Held, Reply};
use crate::quota::{Amounts, Resource};

/// Descriptors that the broker holds for it: its page and the program, and copies of both in
/// transit to the client.
const DESCRIPTORS: u64 = 4;

/// Opens a page. It counts as a channel, so that there are enough for all users' channels.
pub fn open(context: &mut Context<'_>) -> Result<Reply> {
    let host = context.activations.as_ref().map_err(|why| Error::Refused {
        what: "the program that sees threads block",
        why: why.clone(),
    })?;
    let amounts = Amounts::NONE
        .and(Resource::Channels, 1)
        .and(Resource::Bytes, HostedActivations::BYTES)
        .and(Resource::Descriptors, DESCRIPTORS);
    let charge = context.charge(amounts)?;
    let thing = host.add_client(&context.client.owner)?;
    let fds = thing.copies()?.into();
    let value = thing.index().into();
    context.client.activations.push(Held { thing, charge });
    Ok(Reply {
        answer: Answer::Done(Done { value }),
        fds,
    })
}
