//! A client of the daemon: it sends requests, and the daemon reads and writes the core's tables for
//! it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ecalls_abi::channel::Id;
use ecalls_abi::downcall::{Generic, Op};
use ecalls_abi::message::{
    Answer, FateView, LookFate, Name, Number, ReplaceHandler, Request as Ask, SUBSCRIBE_COALESCE,
    ServiceView, SetParameter, Subscribe, SubscriptionView, UserView, WATCH_IF_ABSENT, WatchSocket,
};
use ecalls_abi::service::{ServiceInfo, SocketInterest};
use ecalls_abi::text;
use zerocopy::{FromZeros, IntoBytes};

use crate::access::connection::{Connection, unexpected};
use crate::access::generic::Calls;
use crate::access::memory::ChannelMemory;
use crate::access::upload;
use crate::access::{Access, Held, HostView, OpenedChannel};
use crate::core::channel::Shape;
use crate::core::handler::Handler;
use crate::core::stat::{QueueOwner, QueueStat, ServiceStat, SubscriptionStat};
use crate::core::subscription::{Request, wrong_count};
use crate::core::{Core, Cost, builtin};
use crate::error::{Error, Result};
use crate::kernel::objects::FastCall;
use crate::kernel::sys;

/// A program that has a connection to the daemon.
#[derive(Debug)]
pub(crate) struct Client {
    connection: Arc<Connection>,
    /// The program of the generic call, if the kernel has no fast call.
    program: Option<OwnedFd>,
    /// The channel for generic calls, if the kernel has a fast call.
    calls: Mutex<Option<Arc<Calls>>>,
    /// The daemon's core, if this program has been its guest.
    guest: OnceLock<Arc<Core>>,
}

/// An object that the daemon holds for this program.
#[derive(Debug)]
struct AtDaemon {
    connection: Arc<Connection>,
    /// Its id or index.
    number: u32,
    /// The request that ends it.
    end: fn(Number) -> Ask,
}

impl Held for AtDaemon {
    /// Lets the daemon compile another text for an action.
    fn replace_handler(&self, action: usize, handler: &Handler) -> Result<()> {
        let file = upload::write(handler)?;
        let request = Ask::ReplaceHandler(ReplaceHandler {
            subscription: self.number,
            action: u32::try_from(action).unwrap_or(u32::MAX),
        });
        self.connection
            .value_with(&request, &[file.as_fd()])
            .map(|_| ())
    }
}

impl Drop for AtDaemon {
    fn drop(&mut self) {
        let number = self.number;
        // If the daemon is gone, it holds nothing.
        let _ = self
            .connection
            .ask(&(self.end)(Number { number, pad: 0 }), &[]);
    }
}

impl Client {
    /// Connects to the daemon that listens at `path`; `None` if none listens there.
    ///
    /// # Errors
    /// Those of [`Connection::open`].
    pub(crate) fn connect(path: &Path) -> Result<Option<Client>> {
        let opened = Connection::open(path)?;
        Ok(opened.map(|(connection, program)| Client {
            connection: Arc::new(connection),
            program,
            calls: Mutex::default(),
            guest: OnceLock::new(),
        }))
    }

    fn held(&self, number: u32, end: fn(Number) -> Ask) -> Box<dyn Held> {
        let connection = Arc::clone(&self.connection);
        Box::new(AtDaemon {
            connection,
            number,
            end,
        })
    }

    /// The channel for generic calls.
    fn calls(&self) -> Result<Arc<Calls>> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(calls) = &*calls {
            return Ok(Arc::clone(calls));
        }
        let opened = Calls::open(&self.connection)?;
        *calls = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn generic_by_fast_call(&self, call: &Generic) -> Result<i64> {
        if call.op != Op::Raise.raw() || call.channel != 0 {
            return Err(Error::Denied {
                action: "calling by BPF_PROG_RUN",
                privilege: "to host the core: where the kernel has a fast call, the daemon gives \
                            that program to nobody",
            });
        }
        self.calls()?.call(self, call)
    }

    fn service_view(&self, index: u32) -> Result<ServiceView> {
        match look(&self.connection, index, Ask::LookService)? {
            Some(Answer::Service(view)) if view.index == index => Ok(view),
            _ => Err(Error::Closed("the service")),
        }
    }
}

impl Access for Client {
    fn core(&self) -> Result<&Arc<Core>> {
        Err(Error::Denied {
            action: "using the core's tables",
            privilege: "to host the core: stop the daemon first (systemctl stop ecallsd)",
        })
    }

    fn lane(&self) -> Result<&Arc<Core>> {
        self.check()?;
        if let Some(core) = self.guest.get() {
            return Ok(core);
        }
        if !sys::may_host() {
            return Err(Error::Denied {
                action: "using the tables of channels among hosts",
                privilege: "root; rules of the daemon's configuration can let others subscribe \
                            (application_services) and publish (publish)",
            });
        }
        let core = Core::visit(self.connection.welcome().daemon)?;
        Ok(self.guest.get_or_init(|| Arc::new(core)))
    }

    fn pid(&self) -> u32 {
        self.connection.welcome().pid
    }

    fn check(&self) -> Result<()> {
        self.connection.check()
    }

    fn view(&self) -> Result<HostView> {
        let welcome = self.connection.welcome();
        Ok(HostView {
            pid: welcome.daemon,
            daemon: true,
            start_ns: welcome.start_ns,
            cpus: welcome.cpus,
            fast_call: self.fast_call().ok(),
        })
    }

    fn fast_call(&self) -> Result<FastCall> {
        let mechanism = text::read(&self.connection.welcome().mechanism);
        Ok(FastCall::from_name(mechanism).unwrap_or(FastCall::Run))
    }

    fn has_program(&self) -> bool {
        self.program.is_some()
    }

    fn generic(&self, call: &mut Generic) -> Result<i64> {
        // Without the daemon the program would still run, but no process would receive the event.
        self.check()?;
        let Some(program) = &self.program else {
            return self.generic_by_fast_call(call);
        };
        match sys::run(program.as_fd(), call.as_mut_bytes())? {
            code @ ..0 => Err(Error::from_errno("calling a service", i64::from(code))),
            _ => Ok(call.result),
        }
    }

    fn open_channel(&self, shape: &Shape) -> Result<OpenedChannel> {
        let (id, fds) = self.connection.open_channel(shape)?;
        let held = self.held(id.raw(), Ask::CloseChannel);
        let memory = ChannelMemory::map(&fds, shape)?;
        let either = self.connection.with_end(memory.wake_fd())?;
        Ok(OpenedChannel {
            _held: held,
            id,
            memory,
            either: Some(either),
        })
    }

    fn subscribe(
        &self,
        request: &Request,
        handlers: &[(usize, Handler)],
    ) -> Result<(Id, Box<dyn Held>)> {
        let message = subscribe(request)?;
        let files = upload::write_all(handlers)?;
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let id = self.connection.made(&Ask::Subscribe(message), &files)?;
        Ok((id, self.held(id.raw(), Ask::Unsubscribe)))
    }

    fn register_service(&self, info: &ServiceInfo) -> Result<(u32, Box<dyn Held>)> {
        let value = self.connection.value(&Ask::RegisterService(*info))?;
        let index = u32::try_from(value).map_err(|_| Error::Closed("the daemon"))?;
        Ok((index, self.held(index, Ask::UnregisterService)))
    }

    fn find_service(&self, name: &str) -> Result<u32> {
        Ok(self.service_named(name)?.index)
    }

    fn service_named(&self, name: &str) -> Result<ServiceStat> {
        let mut message = Name::new_zeroed();
        if text::write(&mut message.name, name).is_err() {
            return Err(Error::Unknown {
                what: "service",
                name: name.to_owned(),
                hint: "`ecalls services` lists them".to_owned(),
            });
        }
        match self.connection.ask(&Ask::FindService(message), &[])?.0 {
            Answer::Service(view) => Ok(service_stat(&view)),
            other => Err(unexpected(&other)),
        }
    }

    fn service_stat(&self, index: u32) -> Result<ServiceStat> {
        Ok(service_stat(&self.service_view(index)?))
    }

    fn service_info(&self, index: u32) -> Result<ServiceInfo> {
        let info = self.connection.info(index)?;
        match info.name().is_empty() {
            true => Err(Error::Closed("the service")),
            false => Ok(info),
        }
    }

    fn services(&self) -> Result<Vec<ServiceStat>> {
        look_through(&self.connection, Ask::LookService, |answer| match answer {
            Answer::Service(view) => Some((view.index + 1, service_stat(&view))),
            _ => None,
        })
    }

    fn is_attached(&self, service: u32) -> Result<bool> {
        Ok(self.service_view(service)?.attached != 0)
    }

    fn subscriptions(&self) -> Result<Vec<SubscriptionStat>> {
        let request = Ask::LookSubscription;
        look_through(&self.connection, request, |answer| match answer {
            Answer::Subscription(view) => Some((view.next, subscription_stat(&view))),
            _ => None,
        })
    }

    fn subscription(&self, index: u32) -> Result<SubscriptionStat> {
        match look(&self.connection, index, Ask::LookSubscription)? {
            Some(Answer::Subscription(view)) if view.next == index + 1 => {
                Ok(subscription_stat(&view))
            }
            _ => Err(Error::Closed("the subscription")),
        }
    }

    fn channels(&self) -> Result<Vec<ecalls_abi::Channel>> {
        look_through(&self.connection, Ask::LookChannel, |answer| match answer {
            Answer::Channel(view) => Some((view.next, view.row)),
            _ => None,
        })
    }

    fn queues(&self) -> Result<Vec<QueueStat>> {
        let cpus = self.connection.welcome().cpus;
        look_through(&self.connection, Ask::LookQueue, |answer| match answer {
            Answer::Queue(view) => {
                let queue = QueueStat {
                    owner: QueueOwner::new(view.owner, cpus),
                    ready: view.ready,
                    held: view.held,
                };
                Some((view.next, queue))
            }
            _ => None,
        })
    }

    fn users(&self) -> Result<Option<Vec<UserView>>> {
        let users = look_through(&self.connection, Ask::LookUser, |answer| match answer {
            Answer::User(view) => Some((view.next, view)),
            _ => None,
        })?;
        Ok(Some(users))
    }

    fn fates(&self, event: u64, most: usize) -> Result<Vec<FateView>> {
        let mut found: Vec<FateView> = Vec::new();
        while found.len() < most {
            let older_ns = found.last().map_or(0, |fate| fate.when_ns);
            let request = Ask::LookFate(LookFate { event, older_ns });
            match self.connection.ask(&request, &[])?.0 {
                Answer::Fate(view) => found.push(view),
                Answer::End(_) => break,
                other => return Err(unexpected(&other)),
            }
        }
        Ok(found)
    }

    fn set_parameter(&self, service: u32, value: u64) -> Result<()> {
        let request = Ask::SetParameter(SetParameter {
            service,
            pad: 0,
            value,
        });
        self.connection.value(&request).map(|_| ())
    }

    fn watch_socket(
        &self,
        fd: BorrowedFd<'_>,
        interest: &SocketInterest,
        if_absent: bool,
    ) -> Result<()> {
        let request = Ask::WatchSocket(WatchSocket {
            target: interest.target,
            r#type: interest.r#type,
            kinds: interest.kinds,
            inherit: interest.inherit,
            deadline_ns: interest.deadline_ns,
            flags: if if_absent { WATCH_IF_ABSENT } else { 0 },
            pad: 0,
        });
        self.connection.value_with(&request, &[fd]).map(|_| ())
    }

    fn forget_socket(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let request = Ask::ForgetSocket(Number::default());
        self.connection.value_with(&request, &[fd]).map(|_| ())
    }

    fn take_map(&self, number: u32) -> Result<Option<OwnedFd>> {
        let request = Ask::TakeMap(Number { number, pad: 0 });
        match self.connection.ask(&request, &[])? {
            (Answer::Done(_), mut fds) => Ok(fds.pop()),
            (Answer::End(_), _) => Ok(None),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

/// The message that requests a subscription.
fn subscribe(request: &Request) -> Result<Subscribe> {
    let mut message = Subscribe::new_zeroed();
    let count = request.actions.len();
    let Some(places) = message.action.get_mut(..count) else {
        return Err(wrong_count(count));
    };
    places.copy_from_slice(&request.actions);
    message.actions = u32::try_from(count).expect("at most 8");
    message.service = request.service;
    message.receiver = request.receiver;
    message.kinds = request.kinds;
    message.pid = request.pid;
    message.deadline_ns = request.deadline_ns;
    message.channel = request.channel.map_or(0, Id::raw);
    if request.coalesce {
        message.flags |= SUBSCRIBE_COALESCE;
    }
    Ok(message)
}

fn subscription_stat(view: &SubscriptionView) -> SubscriptionStat {
    SubscriptionStat {
        row: view.row,
        count: view.count,
    }
}

/// Requests the first object from `number` on; `None` if there is none.
fn look(
    connection: &Connection,
    number: u32,
    request: fn(Number) -> Ask,
) -> Result<Option<Answer>> {
    match connection.ask(&request(Number { number, pad: 0 }), &[])?.0 {
        Answer::End(_) => Ok(None),
        answer => Ok(Some(answer)),
    }
}

/// Requests all objects of a kind. `take` returns the number to continue with, and the object.
fn look_through<T>(
    connection: &Connection,
    request: fn(Number) -> Ask,
    take: impl Fn(Answer) -> Option<(u32, T)>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(answer) = look(connection, at, request)? {
        let Some((next, thing)) = take(answer) else {
            return Err(unexpected(&answer));
        };
        found.push(thing);
        if next <= at {
            break; // the daemon returns the same objects again
        }
        at = next;
    }
    Ok(found)
}

fn service_stat(view: &ServiceView) -> ServiceStat {
    ServiceStat {
        index: view.index,
        info: view.info,
        owner: view.owner,
        subscriptions: view.subscriptions as usize,
        count: view.count,
        parameter_ns: builtin::parameter(view.index).ok().map(|_| view.parameter),
        costs: vec![Cost {
            program: "all",
            runs: 0,
            total_ns: 0,
            skipped: view.skipped,
        }],
    }
}
