//! The interface of the core: a program hosts it, or is a client of the daemon that does.
//!
//! [`Access`] comprises the operations of both. Which of the two a program is, is determined once,
//! when it is opened; all other code uses the interface. Events and calls take the same path in
//! both, from and to the program's own memory; only rare operations (opening, subscribing, listing)
//! are sent to the daemon instead of being executed here.

pub(crate) mod client;
pub(crate) mod connection;
pub mod downcall;
mod generic;
pub mod handle;
pub(crate) mod host;
pub(crate) mod memory;
mod open;
pub mod raise;
pub mod refusal;
pub mod upload;

use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use ecalls_abi::channel::Id;
use ecalls_abi::downcall::Generic;
use ecalls_abi::message::{FateView, UserView};
use ecalls_abi::service::{ServiceInfo, SocketInterest, SubscriptionCount};

use crate::access::memory::ChannelMemory;
use crate::core::Core;
use crate::core::channel::Shape;
use crate::core::handler::Handler;
use crate::core::stat::{QueueStat, ServiceStat, SubscriptionStat};
use crate::core::subscription::Request;
use crate::error::{Error, Result};
use crate::kernel::objects::FastCall;

pub use open::{host, join, of_core, open, open_within};

/// The description of the core for both kinds of program.
#[derive(Clone, Debug)]
pub struct HostView {
    /// Process that loaded the core: the daemon, or a program.
    pub pid: u32,
    /// Whether that process is the daemon.
    pub daemon: bool,
    /// When it was loaded, ns.
    pub start_ns: u64,
    /// CPUs for which the queues were made.
    pub cpus: u32,
    /// The mechanism of the fast call; `None`: no fast call has been made yet.
    pub fast_call: Option<FastCall>,
}

/// The handle of a channel, a subscription or a service of this process: the row in the core that
/// this program hosts, or its number at the daemon. Dropping it ends the object.
pub trait Held: Debug + Send + Sync {
    /// Replaces the handler in E-code of an action of a subscription.
    ///
    /// # Errors
    /// [`Error::Closed`] for an object without such a handler, [`Error::Ecode`], [`Error::Quota`].
    fn replace_handler(&self, _action: usize, _handler: &Handler) -> Result<()> {
        Err(Error::Closed("the handler"))
    }
}

/// A channel that was opened.
#[derive(Debug)]
pub struct OpenedChannel {
    pub(crate) _held: Box<dyn Held>,
    pub(crate) id: Id,
    pub(crate) memory: ChannelMemory,
    /// Readable when the wake descriptor is, or when no event can arrive any more; `None`: events
    /// can arrive for as long as the process lives.
    pub(crate) either: Option<OwnedFd>,
}

/// The operations of the core.
pub trait Access: Debug + Send + Sync {
    /// The core itself, for programs that host it.
    ///
    /// # Errors
    /// [`Error::Denied`] for a client of the daemon.
    fn core(&self) -> Result<&Arc<Core>>;

    /// The core as far as channels among hosts need it: its host, and a client of the daemon that
    /// could host one, read and write their tables themselves.
    ///
    /// # Errors
    /// [`Error::Denied`] for other clients, [`Error::DaemonGone`].
    fn lane(&self) -> Result<&Arc<Core>> {
        self.core()
    }

    /// The id of this process in the kernel's initial namespace.
    fn pid(&self) -> u32;

    /// Fails when no events can arrive any more.
    ///
    /// # Errors
    /// [`Error::DaemonGone`]
    fn check(&self) -> Result<()>;

    /// The core's description.
    fn view(&self) -> Result<HostView>;

    /// The mechanism of the fast call, attached.
    fn fast_call(&self) -> Result<FastCall>;

    /// Whether this program can execute the BPF program of the generic call.
    fn has_program(&self) -> bool;

    /// Executes a generic call. A negative result is the errno with which the operation was
    /// refused.
    fn generic(&self, call: &mut Generic) -> Result<i64>;

    /// Opens a channel of this process.
    fn open_channel(&self, shape: &Shape) -> Result<OpenedChannel>;

    /// Installs a subscription of this process, with the programs of those actions that are
    /// handlers in E-code.
    fn subscribe(
        &self,
        request: &Request,
        handlers: &[(usize, Handler)],
    ) -> Result<(Id, Box<dyn Held>)>;

    /// Registers a service of this process, and returns its index.
    fn register_service(&self, info: &ServiceInfo) -> Result<(u32, Box<dyn Held>)>;

    /// Index of the service of that name.
    ///
    /// # Errors
    /// [`Error::Unknown`], with the names of all services.
    fn find_service(&self, name: &str) -> Result<u32>;

    /// The service of that name, with its counters.
    ///
    /// # Errors
    /// [`Error::Unknown`], with the names of all services.
    fn service_named(&self, name: &str) -> Result<ServiceStat>;

    fn service_stat(&self, index: u32) -> Result<ServiceStat>;

    /// A service's name, format and kinds.
    ///
    /// # Errors
    /// [`Error::Closed`] if there is none at that index.
    fn service_info(&self, index: u32) -> Result<ServiceInfo>;

    fn services(&self) -> Result<Vec<ServiceStat>>;

    /// Whether a service's programs are attached now.
    fn is_attached(&self, service: u32) -> Result<bool>;

    /// Every subscription that the caller may see.
    fn subscriptions(&self) -> Result<Vec<SubscriptionStat>>;

    fn subscription(&self, index: u32) -> Result<SubscriptionStat>;

    /// The counters of the subscription at `index`, summed over CPUs.
    fn subscription_count(&self, index: u32) -> Result<SubscriptionCount> {
        Ok(self.subscription(index)?.count)
    }

    /// Every channel that the caller may see.
    fn channels(&self) -> Result<Vec<ecalls_abi::Channel>>;

    /// The state of every queue.
    fn queues(&self) -> Result<Vec<QueueStat>>;

    /// The users with their counters, which only the daemon keeps; `None` without a daemon.
    fn users(&self) -> Result<Option<Vec<UserView>>>;

    /// The fates of an event, newest first; 0: of all events that were not delivered. At most
    /// `most`.
    fn fates(&self, event: u64, most: usize) -> Result<Vec<FateView>>;

    /// Sets a built-in service's parameter, e.g. the smallest delay that `sched` reports, ns.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an application service, which has no parameter.
    fn set_parameter(&self, service: u32, value: u64) -> Result<()>;

    /// Registers a socket with the socket service. `if_absent`: an existing registration stays.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the descriptor is not a socket.
    fn watch_socket(
        &self,
        fd: BorrowedFd<'_>,
        interest: &SocketInterest,
        if_absent: bool,
    ) -> Result<()>;

    /// Ends a socket's registration; without one it does nothing.
    fn forget_socket(&self, fd: BorrowedFd<'_>) -> Result<()>;

    /// The core's map at index `number` of the loader's table; `None` after the last one.
    ///
    /// # Errors
    /// [`Error::Denied`] unless root.
    fn take_map(&self, number: u32) -> Result<Option<OwnedFd>>;
}
