//! Subscriptions with handlers in E-code, and replacements of these handlers: [`begin`] decides and
//! takes the texts, the compiler compiles them one after the other ([`crate::broker`]), and
//! [`finish`] executes the request. Time passes in between, so every decision is made again.
//!
//! The handlers of a chain are compiled in order: the output format of one is the input format of
//! the next.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use ecalls_abi::message::{REFUSED_QUOTA, Refused, ReplaceHandler, Request, Subscribe};
use ecalls_kernel::environment::may_raise;
use ecalls_kernel::handler::Handler;
use ecalls_kernel::upload::{self, Text};
use ecalls_kernel::{Error, now_ns};
use ecode::source::Source;

use super::subscription::{self, Wanted, fits};
use super::{Context, No, Result, done};
use crate::client::Reply;
use crate::compiler::cap;
use crate::compiler::job::{Job, Made};
use crate::quota::upload::Exceeded;

/// The request that is executed when all texts are compiled.
#[derive(Clone, Debug)]
enum Then {
    Install(Box<Subscribe>),
    Replace(ReplaceHandler),
}

/// An upload in progress.
#[derive(Debug)]
pub struct Plan {
    then: Then,
    service: u32,
    kinds: Vec<String>,
    has_channel: bool,
    services: Vec<(String, u32)>,
    /// Texts that are not compiled yet, by action.
    texts: VecDeque<(usize, Text)>,
    /// Input format of the first of those.
    input: String,
    /// The compiled handlers, and the formats that they were compiled for.
    handlers: Vec<(usize, Handler)>,
    inputs: Vec<(usize, String)>,
}

impl From<Exceeded> for No {
    fn from(exceeded: Exceeded) -> No {
        let Exceeded { name, limit } = exceeded;
        No(Box::new(Refused::new(REFUSED_QUOTA, limit, name, "", "")))
    }
}

/// Whether a request has texts.
pub fn is_upload(request: &Request) -> bool {
    match request {
        Request::Subscribe(body) => body.uploads().next().is_some(),
        Request::ReplaceHandler(_) => true,
        _ => false,
    }
}

/// Takes an upload and refuses everything that can be refused without compiling.
///
/// # Errors
/// The refusal for the client.
pub fn begin(context: &Context<'_>, request: &Request, fds: &[OwnedFd]) -> Result<Plan> {
    let (then, service, has_channel, input) = match request {
        Request::Subscribe(body) => {
            subscription::look(context, body)?;
            let then = Then::Install(Box::new(*body));
            (then, body.service, body.channel != 0, None)
        }
        Request::ReplaceHandler(body) => {
            let (service, has_channel, input) = placed(context, body)?;
            (Then::Replace(*body), service, has_channel, Some(input))
        }
        _ => return Err(No::invalid("the request", request.name(), "one with texts")),
    };
    let limits = context.policy.limits(&context.client.who);
    let account = context.client.who.account;
    let actions: Vec<usize> = match &then {
        Then::Install(body) => body.uploads().collect(),
        Then::Replace(body) => vec![usize::try_from(body.action).unwrap_or(usize::MAX)],
    };
    let mut texts = VecDeque::new();
    for (action, fd) in actions.into_iter().zip(fds) {
        let admitted =
            |uploads: &mut crate::quota::upload::Uploads| uploads.admit(account, &limits, now_ns());
        context.ledger.uploads(admitted)?;
        texts.push_back((action, upload::read(fd)?));
    }
    let info = context.core.service_info(service)?;
    let raises = texts.iter().any(|(_, text)| may_raise(&text.text));
    let owner = &context.client.owner;
    Ok(Plan {
        then,
        service,
        kinds: info.kinds().map(str::to_owned).collect(),
        has_channel,
        services: match raises {
            true => context.core.raisable(owner.pid, owner.uid, service)?,
            false => Vec::new(),
        },
        texts,
        input: input.unwrap_or_else(|| info.format().to_owned()),
        handlers: Vec::new(),
        inputs: Vec::new(),
    })
}

/// The context of a handler to be replaced: its service, whether it has a channel, and its input
/// format.
fn placed(context: &Context<'_>, body: &ReplaceHandler) -> Result<(u32, bool, String)> {
    let client = &context.client;
    let held = client.subscriptions.get(&body.subscription);
    let held = held.ok_or_else(|| No::from(Error::Closed("the subscription")))?;
    let inputs = client.inputs.get(&body.subscription);
    let action = usize::try_from(body.action).unwrap_or(usize::MAX);
    let input = inputs.and_then(|inputs| inputs.iter().find(|(at, _)| *at == action));
    let (_, input) = input.ok_or_else(|| No::from(Error::Closed("the handler in E-code")))?;
    let has_channel = held.thing.channel().is_some();
    Ok((held.thing.service(), has_channel, input.clone()))
}

/// The format that the rest of the chain expects of a handler to be replaced, if anything there
/// depends on it.
fn behind<'a>(context: &'a Context<'_>, body: &ReplaceHandler) -> Option<&'a str> {
    let inputs = context.client.inputs.get(&body.subscription)?;
    let action = usize::try_from(body.action).unwrap_or(usize::MAX);
    let later = inputs.iter().filter(|(at, _)| *at > action);
    let next = later.min_by_key(|(at, _)| *at);
    next.map(|(_, format)| format.as_str())
}

impl Plan {
    /// The next job. `None`: all texts are compiled.
    pub fn next_job(&self, serial: u32) -> Option<Job> {
        let (_, text) = self.texts.front()?;
        Some(Job {
            serial,
            name: text.name.clone(),
            text: text.text.clone(),
            input: self.input.clone(),
            kinds: self.kinds.clone(),
            has_channel: self.has_channel,
            attributes: text.attributes.clone(),
            services: self.services.clone(),
        })
    }

    /// Takes the result of the last job.
    ///
    /// # Errors
    /// The program exceeds a limit, or is not one of the compiler's.
    pub fn take(&mut self, made: Made) -> Result<()> {
        let Some((action, text)) = self.texts.pop_front() else {
            return Ok(());
        };
        let source = Source::new(text.name, text.text);
        cap::check(&made.parts).map_err(|why| {
            let name = &source.name;
            No::from(Error::Ecode(format!("{name}: error: {why}")))
        })?;
        let handler = Handler::of_untrusted(made.parts, source, self.has_channel)?;
        self.handlers.push((action, handler));
        let behind = match made.output.is_empty() {
            true => self.input.clone(),
            false => made.output,
        };
        self.inputs
            .push((action, std::mem::replace(&mut self.input, behind)));
        Ok(())
    }

    pub fn service(&self) -> u32 {
        self.service
    }
}

/// Executes the request with the compiled texts.
///
/// # Errors
/// The refusal for the client: conditions may have changed since [`begin`].
pub fn finish(context: &mut Context<'_>, plan: Plan) -> Result<Reply> {
    match plan.then {
        Then::Install(body) => {
            let wanted = Wanted {
                body: &body,
                handlers: &plan.handlers,
                inputs: &plan.inputs,
                output: &plan.input,
            };
            let (id, remote) = subscription::install(context, &wanted)?;
            let mut inputs = plan.inputs;
            inputs.extend(remote);
            context.client.inputs.insert(id, inputs);
            Ok(done(id))
        }
        Then::Replace(body) => {
            placed(context, &body)?;
            if let Some(expected) = behind(context, &body) {
                fits(
                    &plan.input,
                    expected,
                    "that for which the rest of the chain was made",
                )?;
            }
            let held = context.client.subscriptions.get(&body.subscription);
            let held = held.ok_or_else(|| No::from(Error::Closed("the subscription")))?;
            for (action, handler) in &plan.handlers {
                held.thing.replace_handler(*action, handler)?;
            }
            Ok(done(0u32))
        }
    }
}
