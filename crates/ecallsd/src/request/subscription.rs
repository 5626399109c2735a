//! Installing and ending subscriptions.

use std::sync::Arc;

use ecalls_abi::channel::Id;
use ecalls_abi::ecode::HANDLER_ECODE;
use ecalls_abi::handler::{HANDLER_COPY_USER, HANDLER_REMOTE, HANDLERS_BUILT_IN};
use ecalls_abi::message::{SUBSCRIBE_COALESCE, Subscribe};
use ecalls_abi::subscription::{
    ACTION_HANDLER, ACTION_MEMORY, ACTION_SIGNAL, ACTION_THREAD, ACTION_USER, Action, SCOPE_ALL,
    SCOPE_OWN,
};
use ecalls_kernel::Error;
use ecalls_kernel::handler::Handler;
use ecalls_kernel::lane;
use ecalls_kernel::subscription::{HostedSubscription, Request};
use ecode::data_format;

use super::{Context, No, Result, done};
use crate::client::{Held, Reply};
use crate::compiler::cap;
use crate::policy::{Receiver, Scope, Service};
use crate::quota::{Amounts, Resource};

/// Descriptors that the broker holds for a subscription: the attachments of its service.
const DESCRIPTORS: u64 = 2;

/// A request with its compiled texts.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub body: &'a Subscribe,
    /// Its handlers in E-code, by action.
    pub handlers: &'a [(usize, Handler)],
    /// The formats of these handlers' inputs, by action.
    pub inputs: &'a [(usize, String)],
    /// The format of the data behind the last of them.
    pub output: &'a str,
}

impl Wanted<'_> {
    /// The format of the data that an action gets.
    fn format(&self, action: usize) -> &str {
        let mut inputs = self.inputs.iter();
        let next = inputs.find(|(at, _)| *at >= action);
        next.map_or(self.output, |(_, format)| format)
    }
}

/// The decision about a request.
#[derive(Clone, Debug)]
pub struct Decided {
    actions: Vec<Action>,
    /// The action that sends to a channel, and the channel's format.
    remote: Option<(usize, String)>,
    channel: Option<Id>,
    receiver: Receiver,
    scope: Scope,
}

/// Installs a subscription without handlers in E-code.
pub fn subscribe(context: &mut Context<'_>, body: &Subscribe) -> Result<Reply> {
    let info = context.core.service_info(body.service)?;
    let wanted = Wanted {
        body,
        handlers: &[],
        inputs: &[],
        output: info.format(),
    };
    install(context, &wanted).map(|(id, _)| done(id))
}

/// Decides about a subscription without installing it.
///
/// # Errors
/// The request is invalid, or the client lacks a right.
pub fn look(context: &Context<'_>, body: &Subscribe) -> Result<Decided> {
    let count = usize::try_from(body.actions).unwrap_or(usize::MAX);
    let Some(actions) = body.action.get(..count) else {
        return Err(No::invalid(
            "the number of actions",
            body.actions,
            "1 to 8 actions per subscription",
        ));
    };
    if body.flags & !SUBSCRIBE_COALESCE != 0 {
        return Err(No::invalid(
            "the flags of the subscription",
            body.flags,
            "0 or 1: it coalesces",
        ));
    }
    let (mut actions, mut remote) = (actions.to_vec(), None);
    for (at, action) in actions.iter_mut().enumerate() {
        check(context, action)?;
        if action.kind == ACTION_HANDLER && action.handler == HANDLER_REMOTE {
            let (argument, format) = publish(context, action.argument[1])?;
            action.argument = argument;
            remote = Some((at, format));
        }
    }
    let channel = match body.channel {
        0 => None,
        id => Some(own_channel(context, id)?),
    };
    let receiver = receiver(context, body.receiver)?;
    let scope = decide(context, body.service, &receiver, &actions)?;
    Ok(Decided {
        actions,
        remote,
        channel,
        receiver,
        scope,
    })
}

/// Installs a subscription and returns its id; and the action that sends to a channel, with the
/// channel's format.
///
/// # Errors
/// As [`look`], another format than the channel's, and those of the kernel side.
pub fn install(
    context: &mut Context<'_>,
    wanted: &Wanted<'_>,
) -> Result<(u32, Option<(usize, String)>)> {
    let Wanted { body, handlers, .. } = *wanted;
    let Decided {
        actions,
        remote,
        channel,
        receiver,
        scope,
    } = look(context, body)?;
    if let Some((at, expected)) = &remote {
        fits(
            wanted.format(*at),
            expected,
            "the format of the channel to which it is sent",
        )?;
    }
    let texts = handlers.len() as u64;
    let amounts = Amounts::NONE
        .and(Resource::Subscriptions, 1)
        .and(Resource::Bytes, texts * cap::HANDLER_BYTES)
        .and(
            Resource::Descriptors,
            DESCRIPTORS + texts * cap::HANDLER_DESCRIPTORS,
        );
    let charge = context.charge(amounts)?;
    let request = Request {
        service: body.service,
        receiver: receiver.pid,
        kinds: body.kinds,
        pid: body.pid,
        deadline_ns: body.deadline_ns,
        channel,
        coalesce: body.flags & SUBSCRIBE_COALESCE != 0,
        scope: match scope {
            Scope::Own => SCOPE_OWN,
            Scope::All => SCOPE_ALL,
        },
        actions,
    };
    // Before one that has ended loses its row.
    context.users.settle();
    let core = Arc::clone(context.core);
    let owner = &context.client.owner;
    let thing = HostedSubscription::install_with(core, owner, &request, handlers)?;
    let id = thing.id().raw();
    context
        .client
        .subscriptions
        .insert(id, Held { thing, charge });
    Ok((id, remote))
}

/// Checks that data have the format that is expected.
///
/// # Errors
/// They have another one.
pub fn fits(given: &str, expected: &str, whose: &str) -> Result<()> {
    match data_format::is_same(given, expected) {
        true => Ok(()),
        false => Err(No::invalid(
            "the format of the data",
            format!("`{given}`"),
            &format!("{whose}, `{expected}`"),
        )),
    }
}

/// Ends a subscription.
///
/// # Errors
/// The subscription does not belong to this client.
pub fn end(context: &mut Context<'_>, id: u32) -> Result<Reply> {
    context.client.inputs.remove(&id);
    let Some(held) = context.client.subscriptions.remove(&id) else {
        return Err(No::from(Error::Closed("the subscription")));
    };
    finish(context, held);
    Ok(done(0u32))
}

/// Ends a subscription and adds its counters to its user's.
pub fn finish(context: &mut Context<'_>, held: Held<HostedSubscription>) {
    let id = held.thing.id();
    drop(held);
    context.users.add_ended(context.client.who.account, id);
}

/// The receiver, as the kernel describes it.
fn receiver(context: &Context<'_>, pid: u32) -> Result<Receiver> {
    let who = &context.client.who;
    if pid == 0 || pid == who.pid {
        return Ok(Receiver {
            pid: who.pid,
            uid: context.core.identify(who.pid)?.uid,
            saved_uid: who.uid,
        });
    }
    // A process with several users counts as root's (bpf/event/identity.h), so one number suffices.
    let uid = context.core.identify(pid)?.uid;
    Ok(Receiver {
        pid,
        uid,
        saved_uid: uid,
    })
}

fn decide(
    context: &Context<'_>,
    service: u32,
    receiver: &Receiver,
    actions: &[Action],
) -> Result<Scope> {
    if context.core.next_service(service)? != Some(service) {
        return Err(No::from(Error::Closed("the service")));
    }
    let name = context.core.service_stat(service)?;
    let service = Service {
        name: name.info.name(),
        owner_uid: context.core.service_owner(service)?.map(|(_, uid)| uid),
    };
    let who = &context.client.who;
    Ok(context.policy.subscribe(who, &service, receiver, actions)?)
}

/// The arguments of `remote` for the channel with this id, and its format, if the client may
/// publish there.
fn publish(context: &Context<'_>, id: u64) -> Result<([u64; 3], String)> {
    context.policy.publish(&context.client.who, id)?;
    lane::remote(context.core, id)?.ok_or_else(|| {
        No::from(Error::Unknown {
            what: "channel with the id",
            name: format!("{id:016x}"),
            hint: "a program of this host opens it: `ecalls channel open`".to_owned(),
        })
    })
}

/// Checks the properties of an action on which the kernel side relies.
fn check(context: &Context<'_>, action: &Action) -> Result<()> {
    match action.kind {
        // It has no place in a kernel thread, whoever subscribes.
        ACTION_THREAD if action.handler == HANDLER_REMOTE => Err(No::invalid(
            "the kernel handler",
            action.handler,
            "one that runs in a thread; `remote` does not",
        )),
        ACTION_HANDLER if action.handler < HANDLERS_BUILT_IN => Ok(()),
        // The subscription's constructor checks that each has its program.
        ACTION_HANDLER | ACTION_THREAD if action.handler == HANDLER_ECODE => Ok(()),
        ACTION_THREAD
            if action.handler < HANDLERS_BUILT_IN || action.handler == HANDLER_COPY_USER =>
        {
            Ok(())
        }
        ACTION_HANDLER | ACTION_THREAD => Err(No::invalid(
            "the kernel handler",
            action.handler,
            "the number of one that there is; one that sleeps runs in a thread only",
        )),
        // The subscription's constructor checks the signal's number.
        ACTION_SIGNAL => Ok(()),
        ACTION_USER | ACTION_MEMORY => own_channel(context, action.channel).map(|_| ()),
        kind => Err(No::invalid("the kind of an action", kind, "1 to 5")),
    }
}

/// A channel of this client, the only permitted target of delivery.
fn own_channel(context: &Context<'_>, id: u32) -> Result<Id> {
    context
        .client
        .channels
        .get(&id)
        .map(|held| held.thing.id())
        .ok_or_else(|| {
            No::invalid(
                "the channel",
                id,
                "the id of an open channel of this client",
            )
        })
}
