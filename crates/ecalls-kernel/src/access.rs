//! How a program reaches the core: it hosts it, or it is a client of the daemon that does.
//!
//! Everything above this file is the same for both. Events and calls go the same way in both, from
//! and to the program's own memory; only what is rare (opening, subscribing, looking) is asked of
//! the daemon instead of being done here.

pub(crate) mod client;
pub mod downcall;
mod generic;
pub mod handle;
pub(crate) mod memory;
pub mod raise;
pub mod refusal;
pub mod upload;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ecalls_abi::downcall::{Generic, Op};
use ecalls_abi::message::{
    Answer, FateView, LookFate, Name, Number, Request, SetParameter, UserView, WATCH_IF_ABSENT,
    WatchSocket,
};
use ecalls_abi::service::{ServiceInfo, SocketInterest, SubscriptionCount};
use ecalls_abi::text;
use zerocopy::{FromZeros, IntoBytes};

use crate::access::client::unexpected;
pub use crate::access::client::{Client, socket_path};
use crate::core::stat::{QueueOwner, QueueStat, ServiceStat, SubscriptionStat};
use crate::core::{Core, Cost};
use crate::core::{builtin, socket};
use crate::error::{Error, Result};
use crate::kernel::objects::FastCall;
use crate::kernel::sys;

/// How often [`Access::open_within`] tries again.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// The way to the core.
#[derive(Debug)]
pub enum Access {
    /// This program hosts it, alone or with others.
    Host(Arc<Core>),
    /// The daemon does.
    Client(Client),
}

/// The core as both kinds of program know it.
#[derive(Clone, Debug)]
pub struct HostView {
    /// Process that loaded the core: the daemon, or a program.
    pub pid: u32,
    /// Whether that is the daemon.
    pub daemon: bool,
    /// When it was loaded, ns.
    pub start_ns: u64,
    /// CPUs the queues were made for.
    pub cpus: u32,
    /// The mechanism of the fast call.
    pub fast_call: FastCall,
}

impl Access {
    /// Connects to the daemon; without one joins the machine's core, or loads it.
    ///
    /// # Errors
    /// [`Error::Denied`] when there is no daemon and the program may not host the core itself,
    /// [`Error::Unsupported`] on a kernel that cannot.
    pub fn open() -> Result<Access> {
        if let Some(client) = Client::connect(&socket_path())? {
            return Ok(Access::Client(client));
        }
        Ok(Access::Host(Arc::new(Core::open()?)))
    }

    /// The same, but waits for the daemon for at most `time`: for clients of one that restarts.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] when the time has run out.
    pub fn open_within(time: Duration) -> Result<Access> {
        let until = Instant::now() + time;
        loop {
            match Client::connect(&socket_path()) {
                Ok(Some(client)) => return Ok(Access::Client(client)),
                Ok(None) | Err(Error::DaemonGone) => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Err(Error::DaemonGone);
            }
            std::thread::sleep(TRY_AGAIN);
        }
    }

    /// Reaches the core that runs, if one does; loads nothing.
    pub fn join() -> Result<Option<Access>> {
        if let Some(client) = Client::connect(&socket_path())? {
            return Ok(Some(Access::Client(client)));
        }
        Ok(Core::join_running()?.map(|core| Access::Host(Arc::new(core))))
    }

    /// Hosts the core in this program, whether a daemon runs or not.
    ///
    /// # Errors
    /// Those of [`Core::open`].
    pub fn host() -> Result<Access> {
        Ok(Access::Host(Arc::new(Core::open()?)))
    }

    /// The core itself, for programs that host it.
    ///
    /// # Errors
    /// [`Error::Denied`] for a client of the daemon.
    pub fn core(&self) -> Result<&Arc<Core>> {
        match self {
            Access::Host(core) => Ok(core),
            Access::Client(_) => Err(Error::Denied {
                action: "using the core's tables",
                privilege: "to host the core: stop the daemon first (systemctl stop ecallsd)",
            }),
        }
    }

    /// This process, as the kernel numbers it.
    pub fn pid(&self) -> u32 {
        match self {
            Access::Host(_) => std::process::id(),
            Access::Client(client) => client.welcome().pid,
        }
    }

    /// Whether events still come.
    ///
    /// # Errors
    /// [`Error::DaemonGone`]
    pub fn check(&self) -> Result<()> {
        match self {
            Access::Host(_) => Ok(()),
            Access::Client(client) => client.check(),
        }
    }

    /// The core's description.
    pub fn view(&self) -> Result<HostView> {
        Ok(match self {
            Access::Host(core) => {
                let host = core.host()?;
                HostView {
                    pid: host.pid,
                    daemon: false,
                    start_ns: host.start_ns,
                    cpus: core.cpus(),
                    fast_call: core.fast_call(),
                }
            }
            Access::Client(client) => HostView {
                pid: client.welcome().daemon,
                daemon: true,
                start_ns: client.welcome().start_ns,
                cpus: client.welcome().cpus,
                fast_call: client.fast_call(),
            },
        })
    }

    /// The mechanism of the fast call.
    pub(crate) fn fast_call(&self) -> FastCall {
        match self {
            Access::Host(core) => core.fast_call(),
            Access::Client(client) => client.fast_call(),
        }
    }

    /// Some socket: the fast call by setsockopt needs one.
    #[expect(clippy::unused_self, reason = "one for the process serves every core")]
    pub(crate) fn call_socket(&self) -> Result<&'static OwnedFd> {
        static SOCKET: OnceLock<OwnedFd> = OnceLock::new();
        if let Some(socket) = SOCKET.get() {
            return Ok(socket);
        }
        let socket = std::os::unix::net::UnixDatagram::unbound()
            .map_err(|error| Error::from_io("opening a socket", error))?;
        Ok(SOCKET.get_or_init(|| OwnedFd::from(socket)))
    }

    /// Runs a generic call. Its result: a negative errno for a refusal.
    pub(crate) fn generic(&self, call: &mut Generic) -> Result<i64> {
        let code = match self {
            Access::Host(core) => core.run("call_generic", call.as_mut_bytes())?,
            Access::Client(client) => {
                // Without the daemon the program still runs, and nobody hears of it.
                client.check()?;
                match client.program() {
                    Some(program) => sys::run(program, call.as_mut_bytes())?,
                    None => return self.generic_by_fast_call(client, call),
                }
            }
        };
        if code < 0 {
            return Err(Error::from_errno("calling a service", i64::from(code)));
        }
        Ok(call.result)
    }

    /// Whether this program can run the program of the generic call.
    pub(crate) fn has_program(&self) -> bool {
        match self {
            Access::Host(_) => true,
            Access::Client(client) => client.program().is_some(),
        }
    }

    fn generic_by_fast_call(&self, client: &Client, call: &Generic) -> Result<i64> {
        if call.op != Op::Raise.raw() || call.channel != 0 {
            return Err(Error::Denied {
                action: "calling by BPF_PROG_RUN",
                privilege: "to host the core: where the kernel has a fast call, the daemon gives \
                            that program to nobody",
            });
        }
        client.calls()?.call(self, call)
    }

    /// Whether there is a service of that name.
    pub(crate) fn has_service(&self, name: &str) -> Result<bool> {
        match self.find_service(name) {
            Ok(_) => Ok(true),
            Err(Error::Unknown { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Index of the service of that name.
    ///
    /// # Errors
    /// [`Error::Unknown`], with the names there are.
    pub fn find_service(&self, name: &str) -> Result<u32> {
        match self {
            Access::Host(core) => core.find_service(name),
            Access::Client(_) => Ok(self.service_named(name)?.index),
        }
    }

    /// The service of that name, with everything counted of it.
    ///
    /// # Errors
    /// [`Error::Unknown`], with the names there are.
    pub fn service_named(&self, name: &str) -> Result<ServiceStat> {
        let client = match self {
            Access::Host(core) => return core.service_stat(core.find_service(name)?),
            Access::Client(client) => client,
        };
        let mut message = Name::new_zeroed();
        if text::write(&mut message.name, name).is_err() {
            return Err(Error::Unknown {
                what: "service",
                name: name.to_owned(),
                hint: "`ecalls services` lists them".to_owned(),
            });
        }
        match client.ask(&Request::FindService(message), &[])?.0 {
            Answer::Service(view) => Ok(service_stat(&view)),
            other => Err(unexpected(&other)),
        }
    }

    /// One service.
    pub fn service_stat(&self, index: u32) -> Result<ServiceStat> {
        match self {
            Access::Host(core) => core.service_stat(index),
            Access::Client(client) => match look(client, index, Request::LookService)? {
                Some(Answer::Service(view)) if view.index == index => Ok(service_stat(&view)),
                _ => Err(Error::Closed("the service")),
            },
        }
    }

    /// A service's name, format and kinds.
    ///
    /// # Errors
    /// [`Error::Closed`] when there is none at that index.
    pub fn service_info(&self, index: u32) -> Result<ServiceInfo> {
        let info = match self {
            Access::Host(core) => core.service_info(index)?,
            Access::Client(client) => client.info(index)?,
        };
        if info.name().is_empty() {
            return Err(Error::Closed("the service"));
        }
        Ok(info)
    }

    /// Every service there is.
    pub fn services(&self) -> Result<Vec<ServiceStat>> {
        let client = match self {
            Access::Host(core) => return core.services(),
            Access::Client(client) => client,
        };
        look_through(client, Request::LookService, |answer| match answer {
            Answer::Service(view) => Some((view.index + 1, service_stat(&view))),
            _ => None,
        })
    }

    /// Whether a service's programs are attached now.
    pub fn is_attached(&self, service: u32) -> Result<bool> {
        match self {
            Access::Host(core) => core.is_attached(service),
            Access::Client(client) => match look(client, service, Request::LookService)? {
                Some(Answer::Service(view)) if view.index == service => Ok(view.attached != 0),
                _ => Err(Error::Closed("the service")),
            },
        }
    }

    /// Every subscription that the caller may see.
    pub fn subscriptions(&self) -> Result<Vec<SubscriptionStat>> {
        let client = match self {
            Access::Host(core) => return core.subscriptions(),
            Access::Client(client) => client,
        };
        look_through(client, Request::LookSubscription, |answer| match answer {
            Answer::Subscription(view) => Some((
                view.next,
                SubscriptionStat {
                    row: view.row,
                    count: view.count,
                },
            )),
            _ => None,
        })
    }

    /// What is counted of the subscription at `index`, summed over CPUs.
    pub fn subscription_count(&self, index: u32) -> Result<SubscriptionCount> {
        match self {
            Access::Host(core) => core.subscription_count(index),
            Access::Client(_) => Ok(self.subscription(index)?.count),
        }
    }

    /// The subscription at `index`.
    pub fn subscription(&self, index: u32) -> Result<SubscriptionStat> {
        match self {
            Access::Host(core) => core.subscription(index),
            Access::Client(client) => match look(client, index, Request::LookSubscription)? {
                Some(Answer::Subscription(view)) if view.next == index + 1 => {
                    Ok(SubscriptionStat {
                        row: view.row,
                        count: view.count,
                    })
                }
                _ => Err(Error::Closed("the subscription")),
            },
        }
    }

    /// Every channel that the caller may see.
    pub fn channels(&self) -> Result<Vec<ecalls_abi::Channel>> {
        let client = match self {
            Access::Host(core) => return core.channels(),
            Access::Client(client) => client,
        };
        look_through(client, Request::LookChannel, |answer| match answer {
            Answer::Channel(view) => Some((view.next, view.row)),
            _ => None,
        })
    }

    /// Every queue's fill.
    pub fn queues(&self) -> Result<Vec<QueueStat>> {
        let client = match self {
            Access::Host(core) => return core.queues(),
            Access::Client(client) => client,
        };
        let cpus = client.welcome().cpus;
        look_through(client, Request::LookQueue, |answer| match answer {
            Answer::Queue(view) => Some((
                view.next,
                QueueStat {
                    owner: QueueOwner::new(view.owner, cpus),
                    ready: view.ready,
                    held: view.held,
                },
            )),
            _ => None,
        })
    }

    /// Every user that the daemon counts. None without a daemon: nobody counts by user then.
    pub fn users(&self) -> Result<Option<Vec<UserView>>> {
        let client = match self {
            Access::Host(_) => return Ok(None),
            Access::Client(client) => client,
        };
        let users = look_through(client, Request::LookUser, |answer| match answer {
            Answer::User(view) => Some((view.next, view)),
            _ => None,
        })?;
        Ok(Some(users))
    }

    /// What became of an event, newest first; 0: of every event that was not delivered. At most
    /// `most`.
    pub fn fates(&self, event: u64, most: usize) -> Result<Vec<FateView>> {
        let client = match self {
            Access::Host(core) => return core.fates(event, most),
            Access::Client(client) => client,
        };
        let mut found: Vec<FateView> = Vec::new();
        while found.len() < most {
            let older_ns = found.last().map_or(0, |fate| fate.when_ns);
            let request = Request::LookFate(LookFate { event, older_ns });
            match client.ask(&request, &[])?.0 {
                Answer::Fate(view) => found.push(view),
                Answer::End(_) => break,
                other => return Err(unexpected(&other)),
            }
        }
        Ok(found)
    }

    /// Sets a built-in service's parameter, e.g. the smallest delay that `sched` reports, ns.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an application service, which has no parameter.
    pub fn set_parameter(&self, service: u32, value: u64) -> Result<()> {
        match self {
            Access::Host(core) => core.set_parameter(service, value),
            Access::Client(client) => {
                let request = Request::SetParameter(SetParameter {
                    service,
                    pad: 0,
                    value,
                });
                client.value(&request).map(|_| ())
            }
        }
    }

    /// Registers a socket with the socket service. `if_absent`: a registration that is there stays.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the descriptor is no socket.
    pub fn watch_socket(
        &self,
        fd: BorrowedFd<'_>,
        interest: &SocketInterest,
        if_absent: bool,
    ) -> Result<()> {
        match self {
            Access::Host(core) if if_absent => socket::register_if_absent(core, fd, interest),
            Access::Host(core) => socket::register(core, fd, interest),
            Access::Client(client) => {
                let request = Request::WatchSocket(WatchSocket {
                    target: interest.target,
                    r#type: interest.r#type,
                    kinds: interest.kinds,
                    inherit: interest.inherit,
                    deadline_ns: interest.deadline_ns,
                    flags: if if_absent { WATCH_IF_ABSENT } else { 0 },
                    pad: 0,
                });
                client.value_with(&request, &[fd]).map(|_| ())
            }
        }
    }

    /// Ends a socket's registration. That there was none is no error.
    pub fn forget_socket(&self, fd: BorrowedFd<'_>) -> Result<()> {
        match self {
            Access::Host(core) => socket::unregister(core, fd),
            Access::Client(client) => {
                let request = Request::ForgetSocket(Number::default());
                client.value_with(&request, &[fd]).map(|_| ())
            }
        }
    }

    /// The core's map at place `number` of the loader's table; None behind the last.
    ///
    /// # Errors
    /// [`Error::Denied`] unless root.
    pub fn take_map(&self, number: u32) -> Result<Option<OwnedFd>> {
        match self {
            Access::Host(core) => core.copy_map(number),
            Access::Client(client) => {
                let request = Request::TakeMap(Number { number, pad: 0 });
                match client.ask(&request, &[])? {
                    (Answer::Done(_), mut fds) => Ok(fds.pop()),
                    (Answer::End(_), _) => Ok(None),
                    (other, _) => Err(unexpected(&other)),
                }
            }
        }
    }
}

/// Asks for the first of something from `number` on. None: there is no further one.
fn look(client: &Client, number: u32, request: fn(Number) -> Request) -> Result<Option<Answer>> {
    match client.ask(&request(Number { number, pad: 0 }), &[])?.0 {
        Answer::End(_) => Ok(None),
        answer => Ok(Some(answer)),
    }
}

/// Asks for all of something. `take`: where to go on looking, and the thing.
fn look_through<T>(
    client: &Client,
    request: fn(Number) -> Request,
    take: impl Fn(Answer) -> Option<(u32, T)>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(answer) = look(client, at, request)? {
        let Some((next, thing)) = take(answer) else {
            return Err(unexpected(&answer));
        };
        found.push(thing);
        if next <= at {
            break; // a daemon that goes in circles
        }
        at = next;
    }
    Ok(found)
}

fn service_stat(view: &ecalls_abi::message::ServiceView) -> ServiceStat {
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
