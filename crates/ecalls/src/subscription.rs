//! A subscription: the actions for each event of a service, in order (struct ecalls of ECalls-05
//! §3). The result of each action decides whether the next one runs (ECalls-05 §3.1):
//!
//! | action | the chain continues |
//! |---|---|
//! | [`handler`](SubscriptionBuilder::handler) | if the kernel handler passes the event |
//! | [`ecode`](SubscriptionBuilder::ecode) | if your E-code, in the kernel, does not return 0 |
//! | [`thread`](SubscriptionBuilder::thread) | if the handler passes it, in a kernel thread |
//! | [`signal`](SubscriptionBuilder::signal) | always |
//! | [`user`](SubscriptionBuilder::user) | if your handler returns [`Flow::Continue`] |
//! | [`memory`](SubscriptionBuilder::memory) | always |
//! | [`remote`](SubscriptionBuilder::remote) | if the channel has a sink |

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::ecode::diagnostic::render_fault;
use ::ecode::source::Source;
use ::ecode::tree::Fault;
use ecalls_abi::channel::Id;
use ecalls_abi::ecode::{ECODE_FAULT_SHIFT, HANDLER_ECODE};
use ecalls_abi::handler::HANDLER_REMOTE;
use ecalls_abi::service::SubscriptionCount;
use ecalls_abi::subscription::{
    ACTION_FIXED_VALUE, ACTION_HANDLER, ACTION_MEMORY, ACTION_SIGNAL, ACTION_THREAD, ACTION_USER,
    Action, SCOPE_ALL,
};
use ecalls_abi::wire::text_id;
use ecalls_kernel::handle::SubscriptionHandle;
use ecalls_kernel::lane::Numbers;
use ecalls_kernel::probe::sends_signals;
use ecalls_kernel::signal::{SignalSender, real_time_signals};
use ecalls_kernel::stat::ServiceStat;
use ecalls_kernel::subscription::Request;
use ecalls_ring::Event;
use zerocopy::FromZeros;

use crate::channel::Channel;
use crate::ecode::Surroundings;
use crate::format::Format;
use crate::handler::Handler;
use crate::host::Ecalls;
use crate::user::UserThread;
use crate::{Error, Result};

/// The time between attempts to send a signal, while as many wait as this user may have.
const SIGNAL_RETRY: Duration = Duration::from_millis(1);

/// The decision of a user handler about the rest of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The chain continues with the next action.
    Continue,
    /// The chain ends.
    Stop,
}

/// A handler of the program, or of this library. The second argument: the subscription ends.
pub(crate) type UserHandler = Box<dyn FnMut(&Event, &AtomicBool) -> Flow + Send>;

/// Builds a subscription.
pub struct SubscriptionBuilder {
    ecalls: Ecalls,
    service: ServiceStat,
    receiver: u32,
    kinds: u32,
    pid: u32,
    deadline_ns: u64,
    channel: Option<Id>,
    coalesce: bool,
    actions: Vec<Action>,
    users: Vec<(usize, UserHandler)>,
    /// The kernel handlers of the chain, not compiled yet, by their indices.
    makings: Vec<(usize, Making)>,
    attributes: Vec<String>,
    error: Option<Error>,
}

impl std::fmt::Debug for SubscriptionBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionBuilder")
            .field("service", &self.service.info.name())
            .field("actions", &self.actions)
            .finish_non_exhaustive()
    }
}

impl SubscriptionBuilder {
    pub(crate) fn new(ecalls: Ecalls, service: &ServiceStat) -> SubscriptionBuilder {
        SubscriptionBuilder {
            receiver: ecalls.pid(),
            ecalls,
            service: service.clone(),
            kinds: 0,
            pid: 0,
            deadline_ns: 0,
            channel: None,
            coalesce: false,
            actions: Vec::new(),
            users: Vec::new(),
            makings: Vec::new(),
            attributes: Vec::new(),
            error: None,
        }
    }

    /// Only these kinds of events, by name; by default all.
    #[must_use]
    pub fn kinds(mut self, names: &[&str]) -> SubscriptionBuilder {
        for name in names {
            match self.service.info.kinds().position(|kind| kind == *name) {
                Some(kind) => self.kinds |= 1 << kind,
                None => {
                    let known: Vec<_> = self.service.info.kinds().collect();
                    self.error.get_or_insert(Error::Unknown {
                        what: "kind",
                        name: (*name).to_owned(),
                        hint: format!("this service has {}", known.join(", ")),
                    });
                }
            }
        }
        self
    }

    /// The same as bits, for kinds without names: bit k stands for kind k.
    #[must_use]
    pub fn kinds_mask(mut self, mask: u32) -> SubscriptionBuilder {
        self.kinds |= mask;
        self
    }

    /// Only events raised in process `pid`.
    #[must_use]
    pub fn pid(mut self, pid: u32) -> SubscriptionBuilder {
        self.pid = pid;
        self
    }

    /// The receiver (process_id of struct ecalls); by default this process. Signals are sent to it,
    /// and the targets of events are compared with it.
    #[must_use]
    pub fn receiver(mut self, pid: u32) -> SubscriptionBuilder {
        self.receiver = pid;
        self
    }

    /// Events not delivered within this time are discarded and counted.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> SubscriptionBuilder {
        self.deadline_ns = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// While an event of this subscription that is stored has not been read, it stands for further
    /// ones, which are not stored but counted ([`DropReason::Coalesced`]): for a program that looks
    /// itself what there is, once an event has told it that there is something. The chain's last
    /// action is the only one that stores the event (memory or a user handler), into a ring; slots
    /// of use `Ready` always do so, by type of event.
    ///
    /// [`DropReason::Coalesced`]: ecalls_abi::channel::DropReason::Coalesced
    #[must_use]
    pub fn coalesce(mut self) -> SubscriptionBuilder {
        self.coalesce = true;
        self
    }

    /// Next action: a kernel handler.
    #[must_use]
    pub fn handler(self, handler: &Handler) -> SubscriptionBuilder {
        if handler.may_sleep() {
            return self.refuse(Error::Invalid {
                what: "the kernel handler",
                given: handler.name().to_owned(),
                expected: "one that does not sleep; this one runs in a kernel thread only",
            });
        }
        self.kernel_handler(ACTION_HANDLER, handler)
    }

    /// Next action: a kernel handler in a kernel thread, which may sleep; the rest of the chain
    /// follows there.
    #[must_use]
    pub fn thread(self, handler: &Handler) -> SubscriptionBuilder {
        self.kernel_handler(ACTION_THREAD, handler)
    }

    /// Next action: a handler in E-code, which runs in the kernel for each event: an expression
    /// (`bytes > 1000`) or a body. It may name the fields of the service's data, and its kinds. If
    /// its result is 0 the chain ends. Its `output` is the event's data for the rest of the chain,
    /// whose handlers name the fields of this output.
    #[must_use]
    pub fn ecode(self, text: &str) -> SubscriptionBuilder {
        self.ecode_named("ecode", text)
    }

    /// The same with the name with which messages about the text begin, such as its file's name.
    #[must_use]
    pub fn ecode_named(self, name: &str, text: &str) -> SubscriptionBuilder {
        self.ecode_handler(ACTION_HANDLER, Source::new(name, text))
    }

    /// Next action: a handler in E-code in a kernel thread; the rest of the chain follows there.
    #[must_use]
    pub fn ecode_thread(self, text: &str) -> SubscriptionBuilder {
        self.ecode_thread_named("ecode", text)
    }

    /// The same with the name with which messages about the text begin.
    #[must_use]
    pub fn ecode_thread_named(self, name: &str, text: &str) -> SubscriptionBuilder {
        self.ecode_handler(ACTION_THREAD, Source::new(name, text))
    }

    /// Names for the attributes of the channel, in the order of their numbers: in E-code they are
    /// `attr("name")`, and [`crate::downcall::Call::Set`] sets them.
    #[must_use]
    pub fn attributes(mut self, names: &[&str]) -> SubscriptionBuilder {
        self.attributes = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Next action: the event goes to other hosts, to all sinks of the channel `name` that a
    /// program of this host has open (the crate `ecalls-channel`). What the chain has made of the
    /// event's data must have the channel's format. The chain ends here if the channel has no
    /// sink. A client of the daemon needs the right `publish` for the channel.
    #[must_use]
    pub fn remote(mut self, name: &str) -> SubscriptionBuilder {
        let mut action = Action::new_zeroed();
        action.kind = ACTION_HANDLER;
        action.handler = HANDLER_REMOTE;
        self.makings
            .push((self.actions.len(), Making::Remote(name.to_owned())));
        self.actions.push(action);
        self
    }

    /// Next action: real-time signal `number` (SIGRTMIN to SIGRTMAX, 34 to 64) with the event's
    /// first data word as its value. Before Linux 6.13 a thread of this program sends it, one
    /// wake-up later, and only to this program.
    #[must_use]
    pub fn signal(mut self, number: u32) -> SubscriptionBuilder {
        let mut action = Action::new_zeroed();
        action.kind = ACTION_SIGNAL;
        action.signal = number;
        self.actions.push(action);
        self
    }

    /// Next action: the same with a fixed value.
    #[must_use]
    pub fn signal_value(mut self, number: u32, value: u64) -> SubscriptionBuilder {
        let mut action = Action::new_zeroed();
        action.kind = ACTION_SIGNAL;
        action.flags = ACTION_FIXED_VALUE;
        action.signal = number;
        action.argument[0] = value;
        self.actions.push(action);
        self
    }

    /// Next action: a handler of this program, called on a thread of the library (an upcall).
    /// When several events wait, the earliest deadline is first; late ones are discarded.
    #[must_use]
    pub fn user(
        mut self,
        mut handler: impl FnMut(&Event) -> Flow + Send + 'static,
    ) -> SubscriptionBuilder {
        let mut action = Action::new_zeroed();
        action.kind = ACTION_USER;
        let handler: UserHandler = Box::new(move |event, _| handler(event));
        self.users.push((self.actions.len(), handler));
        self.actions.push(action);
        self
    }

    /// Next action: shared memory of a channel.
    #[must_use]
    pub fn memory(mut self, channel: &Channel) -> SubscriptionBuilder {
        let mut action = Action::new_zeroed();
        action.kind = ACTION_MEMORY;
        action.channel = channel.id().raw();
        self.channel.get_or_insert(channel.id());
        self.actions.push(action);
        self
    }

    /// Counts undelivered events, and the histogram, in this channel, without delivering events
    /// there.
    #[must_use]
    pub fn report_to(mut self, channel: &Channel) -> SubscriptionBuilder {
        self.channel = Some(channel.id());
        self
    }

    /// Installs the subscription.
    ///
    /// # Errors
    /// The first error of any of the steps, and those of the kernel side.
    pub fn install(mut self) -> Result<Subscription> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.send_signals_here()?;
        let mut threads = Vec::new();
        for (at, handler) in self.users.drain(..) {
            let last = at + 1 == self.actions.len();
            let thread = UserThread::start(&self.ecalls, handler, (!last).then_some(at + 1))?;
            self.actions[at].channel = thread.channel().raw();
            self.channel.get_or_insert(thread.channel());
            threads.push(thread);
        }
        let surroundings = Surroundings {
            ecalls: self.ecalls.clone(),
            service: self.service.clone(),
            has_channel: self.channel.is_some(),
            attributes: self.attributes,
        };
        let mut format = self.service.info.format().to_owned();
        let mut texts = Vec::new();
        let mut handlers = Vec::new();
        let last = self.makings.last().map(|(at, _)| *at);
        for (at, making) in self.makings {
            match making {
                Making::Handler(handler) => {
                    let encoded = handler.encode(&Format::parse(&format)?)?;
                    (self.actions[at].handler, self.actions[at].argument) = encoded;
                }
                Making::Remote(name) => {
                    self.actions[at].argument = remote(&self.ecalls, &name, &format)?;
                }
                Making::Text(source) => {
                    let made = surroundings.compile(&source, &format)?;
                    let input = std::mem::replace(&mut format, made.output);
                    handlers.push((at, made.handler));
                    texts.push(Text {
                        action: at,
                        source: Mutex::new(source),
                        input,
                        output: Mutex::new(format.clone()),
                        warnings: Mutex::new(made.warnings),
                        read: Some(at) != last,
                    });
                }
            }
        }
        let request = Request {
            service: self.service.index,
            receiver: self.receiver,
            kinds: self.kinds,
            pid: self.pid,
            deadline_ns: self.deadline_ns,
            channel: self.channel,
            coalesce: self.coalesce,
            scope: SCOPE_ALL,
            actions: self.actions,
        };
        let access = Arc::clone(self.ecalls.access());
        let handle = SubscriptionHandle::install_with(access, &request, &handlers)?;
        Ok(Subscription {
            handle,
            surroundings,
            texts,
            _threads: threads,
        })
    }

    /// Where the kernel side cannot send signals, a thread of this program sends them to it when
    /// the event has come to it. While too many wait to be taken, events wait in the thread's ring,
    /// and what that has no room for is counted there. For another process there is no such way,
    /// and the kernel side refuses the subscription.
    fn send_signals_here(&mut self) -> Result<()> {
        let is_signal = |action: &Action| action.kind == ACTION_SIGNAL;
        if !self.actions.iter().any(is_signal) || sends_signals() {
            return Ok(());
        }
        if self.receiver != self.ecalls.pid() {
            return Ok(());
        }
        let actions = self.actions.iter_mut().enumerate();
        for (at, action) in actions.filter(|(_, action)| is_signal(action)) {
            let signal = action.signal;
            if !real_time_signals().any(|one| one.unsigned_abs() == signal) {
                return Err(Error::Invalid {
                    what: "the signal",
                    given: signal.to_string(),
                    expected: "a real-time signal, SIGRTMIN (34) to SIGRTMAX (64)",
                });
            }
            let fixed = (action.flags & ACTION_FIXED_VALUE != 0).then_some(action.argument[0]);
            let mut sender = None;
            let handler: UserHandler = Box::new(move |event, ends| {
                let value = fixed.unwrap_or_else(|| event.data_word());
                let mut sends = || {
                    if sender.is_none() {
                        sender = SignalSender::new(signal).ok();
                    }
                    sender.as_ref().is_some_and(|one| one.send(value).is_ok())
                };
                while !sends() && !ends.load(Ordering::Relaxed) {
                    std::thread::sleep(SIGNAL_RETRY);
                }
                Flow::Continue
            });
            *action = Action::new_zeroed();
            action.kind = ACTION_USER;
            self.users.push((at, handler));
        }
        Ok(())
    }

    fn ecode_handler(mut self, kind: u32, source: Source) -> SubscriptionBuilder {
        let mut action = Action::new_zeroed();
        action.kind = kind;
        action.handler = HANDLER_ECODE;
        self.makings
            .push((self.actions.len(), Making::Text(source)));
        self.actions.push(action);
        self
    }

    fn kernel_handler(mut self, kind: u32, handler: &Handler) -> SubscriptionBuilder {
        let mut action = Action::new_zeroed();
        action.kind = kind;
        self.makings
            .push((self.actions.len(), Making::Handler(handler.clone())));
        self.actions.push(action);
        self
    }

    fn refuse(mut self, error: Error) -> SubscriptionBuilder {
        self.error.get_or_insert(error);
        self
    }
}

/// A kernel handler that can be compiled only when the format of its data is known.
enum Making {
    Handler(Handler),
    Text(Source),
    /// Sending to the channel of this name.
    Remote(String),
}

/// The arguments of the handler that sends data of this format to the sinks of a channel.
fn remote(ecalls: &Ecalls, name: &str, format: &str) -> Result<[u64; 3]> {
    let arguments = match ecalls.core() {
        Ok(core) => Numbers::of(Arc::clone(core), name)?.remote(),
        // The daemon looks for it, and writes the rest.
        Err(_) => [0, text_id(name), 0],
    };
    let service = ecalls.access().service_named(name)?;
    let expected = service.info.format();
    if Format::parse(format)?.fields != Format::parse(expected)?.fields {
        return Err(Error::Invalid {
            what: "the format of the data for the channel",
            given: format!("`{format}`, the channel's is `{expected}`"),
            expected: "the two must be the same; an `output` in E-code can make it so",
        });
    }
    Ok(arguments)
}

/// A handler in E-code that is installed.
#[derive(Debug)]
struct Text {
    action: usize,
    source: Mutex<Source>,
    /// Formats of its data, and of the data for the rest of its chain.
    input: String,
    output: Mutex<String>,
    /// The compiler's warnings about it.
    warnings: Mutex<Vec<String>>,
    /// Whether a later handler of the chain depends on its output.
    read: bool,
}

impl Text {
    fn output(&self) -> MutexGuard<'_, String> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warnings(&self) -> MutexGuard<'_, Vec<String>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An installed subscription. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    // The kernel side ends first, then the handler threads.
    handle: SubscriptionHandle,
    /// The environment of its handlers in E-code.
    surroundings: Surroundings,
    /// In the order of the chain.
    texts: Vec<Text>,
    _threads: Vec<UserThread>,
}

impl Subscription {
    /// Its id: `event.subscription` of its events.
    pub fn id(&self) -> Id {
        self.handle.id()
    }

    /// The kernel side's counters of it.
    pub fn count(&self) -> Result<SubscriptionCount> {
        self.handle.count()
    }

    /// The format of the data at the end of its chain: the service's, or the `output` of its last
    /// handler in E-code that has one.
    pub fn format(&self) -> String {
        match self.texts.last() {
            Some(text) => text.output().clone(),
            None => self.surroundings.service.info.format().to_owned(),
        }
    }

    /// The compiler's warnings about its texts in E-code: an unused variable, a condition that is
    /// never true. Each is a message for people, with its position in the text.
    pub fn warnings(&self) -> Vec<String> {
        let texts = self.texts.iter();
        texts.flat_map(|text| text.warnings().clone()).collect()
    }

    /// For each of its handlers in E-code with failed runs since its installation or replacement
    /// ([`SubscriptionCount::failed`]), the latest failure: its reason and its position in the
    /// text, as a message for people.
    pub fn faults(&self) -> Result<Vec<String>> {
        let actions = self.handle.stat()?.row.action;
        let told = self.texts.iter().filter_map(|text| {
            let noted = actions.get(text.action)?.argument[1];
            let fault = Fault::of_number(noted as u32)?;
            let byte = ((noted >> ECODE_FAULT_SHIFT) as u32).checked_sub(1);
            Some(render_fault(&text.source(), fault, byte))
        });
        Ok(told.collect())
    }

    /// Replaces its first handler in E-code while events arrive: each event is handled either by
    /// the former handler or by this one. `static` variables of the same name and type keep their
    /// values.
    ///
    /// # Errors
    /// [`Error::Ecode`] for a text with errors, or with another `output` than later handlers of the
    /// chain expect: the former handler remains; [`Error::Closed`] if it has no such handler.
    pub fn replace_ecode(&self, text: &str) -> Result<()> {
        self.replace_ecode_at(0, "ecode", text)
    }

    /// The same for its handler in E-code of that number, counted from 0; with the name with which
    /// messages about the text begin.
    ///
    /// # Errors
    /// As [`Subscription::replace_ecode`].
    pub fn replace_ecode_at(&self, number: usize, name: &str, text: &str) -> Result<()> {
        let former = self.texts.get(number);
        let former = former.ok_or(Error::Closed("the handler in E-code"))?;
        let source = Source::new(name, text);
        let made = self.surroundings.compile(&source, &former.input)?;
        let mut output = former.output();
        if former.read && made.output != *output {
            return Err(Error::Ecode(format!(
                "{name}: error: the handlers behind are made for the former output\n    \
                 hint: it is `{output}`, the new one's is `{}`; for another one, install another \
                 subscription",
                made.output
            )));
        }
        self.handle.replace_handler(former.action, &made.handler)?;
        *output = made.output;
        *former.warnings() = made.warnings;
        *former.source() = source;
        Ok(())
    }
}
