//! The requests of clients, one file per kind. Each handler first decides (policy), then charges
//! (quota), then acts in the kernel, and stores the new object in the client.

pub mod activations;
pub mod channel;
pub mod look;
pub mod map;
pub mod service;
pub mod socket;
pub mod subscription;
pub mod upload;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ecalls_abi::message::{
    Answer, Done, REFUSED_DENIED, REFUSED_INVALID, REFUSED_QUOTA, Refused, Request,
};
use ecalls_kernel::core::Core;
use ecalls_kernel::refusal;

use crate::client::{Client, Reply};
use crate::policy::{Denied, Policy};
use crate::quota::{Amounts, Charge, Ledger, Refusal};
use crate::retired::Retired;
use crate::users::Users;

/// A refusal for the client.
#[derive(Debug)]
pub struct No(pub Box<Refused>);

/// The result of a request.
pub type Result<T> = std::result::Result<T, No>;

impl From<ecalls_kernel::Error> for No {
    fn from(error: ecalls_kernel::Error) -> No {
        No(Box::new(refusal::from_error(&error)))
    }
}

impl From<Denied> for No {
    fn from(denied: Denied) -> No {
        let refused = Refused::new(REFUSED_DENIED, 0, denied.action, "", denied.needs);
        No(Box::new(refused))
    }
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> No {
        let name = refusal
            .resource
            .map_or("users at the same time", |one| one.name());
        let shared = match refusal.shared {
            true => "what is left on this machine is shared among all users",
            false => "",
        };
        No(Box::new(Refused::new(
            REFUSED_QUOTA,
            refusal.limit,
            name,
            "",
            shared,
        )))
    }
}

impl No {
    /// The refusal of an invalid argument.
    pub fn invalid(what: &str, given: impl ToString, expected: &str) -> No {
        let refused = Refused::new(REFUSED_INVALID, 0, what, &given.to_string(), expected);
        No(Box::new(refused))
    }
}

/// The context of a request: the broker's parts, and the client.
#[derive(Debug)]
pub struct Context<'a> {
    pub core: &'a Arc<Core>,
    pub policy: &'a Policy,
    pub ledger: &'a Ledger,
    pub users: &'a mut Users,
    pub blocking: &'a activations::Blocking,
    /// Memory of closed channels.
    pub retired: &'a mut Retired,
    pub client: &'a mut Client,
}

impl Context<'_> {
    pub fn charge(&self, amounts: Amounts) -> Result<Charge> {
        let limits = self.policy.limits(&self.client.who);
        Ok(self
            .ledger
            .charge(self.client.who.account, &limits, amounts)?)
    }
}

/// Answers a request of a client that has said HELLO.
///
/// # Errors
/// The refusal for the client.
pub fn answer(context: &mut Context<'_>, request: &Request, fds: &[OwnedFd]) -> Result<Reply> {
    match request {
        Request::Hello(_) => Err(No::invalid("HELLO", "the second one", "one per connection")),
        Request::OpenChannel(body) => channel::open(context, body),
        Request::CloseChannel(body) => channel::close(context, body.number),
        Request::Subscribe(body) => subscription::subscribe(context, body),
        Request::Unsubscribe(body) => subscription::end(context, body.number),
        Request::RegisterService(body) => service::register(context, body),
        Request::UnregisterService(body) => service::unregister(context, body.number),
        Request::WatchSocket(body) => socket::watch(context, body, fds),
        Request::ForgetSocket(_) => socket::forget(context, fds),
        Request::SetParameter(body) => service::set_parameter(context, body),
        Request::LookService(body) => look::service(context, body.number),
        Request::FindService(body) => look::find_service(context, body),
        Request::LookSubscription(body) => look::subscription(context, body.number),
        Request::LookChannel(body) => look::channel(context, body.number),
        Request::LookQueue(body) => look::queue(context, body.number),
        Request::LookUser(body) => look::user(context, body.number),
        Request::LookFate(body) => look::fate(context, body),
        Request::TakeMap(body) => map::take(context, body.number),
        Request::OpenActivations(_) => activations::open(context),
        // Requests with texts take another way.
        Request::ReplaceHandler(_) => Err(No::invalid("the request", "no text", "one with a text")),
    }
}

/// Success, with a number.
pub fn done(value: impl Into<u64>) -> Reply {
    Reply::plain(Answer::Done(Done {
        value: value.into(),
    }))
}

/// The end of a list.
pub fn end() -> Reply {
    Reply::plain(Answer::End(Done { value: 0 }))
}
