//! The kernel side of a client's user-level threads: a page of its own, and the program by which
//! its threads become activations. Both end with the connection.

use std::sync::{Arc, OnceLock};

use ecalls_abi::message::{Answer, Done};
use ecalls_kernel::Error;
use ecalls_kernel::activation::{Host, HostedActivations};
use tracing::warn;

use super::{Context, Result};
use crate::client::{Held, Reply};
use crate::quota::{Amounts, Resource};

/// Descriptors that the broker holds for it: its page and the program, and copies of both in
/// transit to the client.
const DESCRIPTORS: u64 = 4;

/// What sees threads of clients block. It is loaded when a client first needs it.
#[derive(Debug, Default)]
pub struct Blocking(OnceLock<std::result::Result<Arc<Host>, String>>);

impl Blocking {
    /// It, if a client has needed it and this kernel supports it.
    pub fn loaded(&self) -> Option<&Arc<Host>> {
        self.0.get()?.as_ref().ok()
    }

    fn host(&self) -> Result<Arc<Host>> {
        let host = match self.0.get() {
            Some(host) => host,
            None => match Host::load() {
                Err(Error::Refused { why, .. }) => {
                    warn!("no client's user-level threads are seen to block: {why}");
                    self.0.get_or_init(|| Err(why))
                }
                other => {
                    let host = Arc::new(other?);
                    self.0.get_or_init(|| Ok(host))
                }
            },
        };
        Ok(host.clone().map_err(|why| Error::Refused {
            what: "the program that sees threads block",
            why,
        })?)
    }
}

/// Opens a page. It counts as a channel, so that there are enough for all users' channels.
pub fn open(context: &mut Context<'_>) -> Result<Reply> {
    let host = context.blocking.host()?;
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
