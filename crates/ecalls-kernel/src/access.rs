//! The way to the core: a program hosts it, or it is a client of the daemon that does.
//!
//! [`Access`] is what either can do there. Which of the two a program is, is asked once, when it is
//! opened; everything above uses the interface. Events and calls go the same way in both, from and
//! to the program's own memory; only what is rare (opening, subscribing, looking) is asked of the
//! daemon instead of being done here.

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
    /// The mechanism of the fast call; None: nobody has made one yet.
    pub fast_call: Option<FastCall>,
}

/// What a channel, a subscription or a service of this process is held by: the row in the core that
/// this program hosts, or its number at the daemon. Dropping it ends that.
pub trait Held: Debug + Send + Sync {
    /// Replaces the handler in E-code of an action of a subscription.
    ///
    /// # Errors
    /// [`Error::Closed`] for what has no such handler, [`Error::Ecode`], [`Error::Quota`].
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
    /// Readable when the wake descriptor is, or when no event will come any more; None: events
    /// come for as long as the process lives.
    pub(crate) either: Option<OwnedFd>,
}

/// The way to the core.
pub trait Access: Debug + Send + Sync {
    /// The core itself, for programs that host it.
    ///
    /// # Errors
    /// [`Error::Denied`] for a client of the daemon.
    fn core(&self) -> Result<&Arc<Core>>;

    /// This process, as the kernel numbers it.
    fn pid(&self) -> u32;

    /// Whether events still come.
    ///
    /// # Errors
    /// [`Error::DaemonGone`]
    fn check(&self) -> Result<()>;

    /// The core's description.
    fn view(&self) -> Result<HostView>;

    /// The mechanism of the fast call, attached.
    fn fast_call(&self) -> Result<FastCall>;

    /// Whether this program can run the program of the generic call.
    fn has_program(&self) -> bool;

    /// Runs a generic call. Its result: a negative errno for a refusal by the operation.
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

    /// Registers a service of this process. Its index.
    fn register_service(&self, info: &ServiceInfo) -> Result<(u32, Box<dyn Held>)>;

    /// Index of the service of that name.
    ///
    /// # Errors
    /// [`Error::Unknown`], with the names there are.
    fn find_service(&self, name: &str) -> Result<u32>;

    /// The service of that name, with everything counted of it.
    ///
    /// # Errors
    /// [`Error::Unknown`], with the names there are.
    fn service_named(&self, name: &str) -> Result<ServiceStat>;

    fn service_stat(&self, index: u32) -> Result<ServiceStat>;

    /// A service's name, format and kinds.
    ///
    /// # Errors
    /// [`Error::Closed`] when there is none at that index.
    fn service_info(&self, index: u32) -> Result<ServiceInfo>;

    fn services(&self) -> Result<Vec<ServiceStat>>;

    /// Whether a service's programs are attached now.
    fn is_attached(&self, service: u32) -> Result<bool>;

    /// Every subscription that the caller may see.
    fn subscriptions(&self) -> Result<Vec<SubscriptionStat>>;

    fn subscription(&self, index: u32) -> Result<SubscriptionStat>;

    /// What is counted of the subscription at `index`, summed over CPUs.
    fn subscription_count(&self, index: u32) -> Result<SubscriptionCount> {
        Ok(self.subscription(index)?.count)
    }

    /// Every channel that the caller may see.
    fn channels(&self) -> Result<Vec<ecalls_abi::Channel>>;

    /// Every queue's fill.
    fn queues(&self) -> Result<Vec<QueueStat>>;

    /// Every user that the daemon counts. None without a daemon: nobody counts by user then.
    fn users(&self) -> Result<Option<Vec<UserView>>>;

    /// What became of an event, newest first; 0: of every event that was not delivered. At most
    /// `most`.
    fn fates(&self, event: u64, most: usize) -> Result<Vec<FateView>>;

    /// Sets a built-in service's parameter, e.g. the smallest delay that `sched` reports, ns.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an application service, which has no parameter.
    fn set_parameter(&self, service: u32, value: u64) -> Result<()>;

    /// Registers a socket with the socket service. `if_absent`: a registration that is there stays.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the descriptor is no socket.
    fn watch_socket(
        &self,
        fd: BorrowedFd<'_>,
        interest: &SocketInterest,
        if_absent: bool,
    ) -> Result<()>;

    /// Ends a socket's registration. That there was none is no error.
    fn forget_socket(&self, fd: BorrowedFd<'_>) -> Result<()>;

    /// The core's map at place `number` of the loader's table; None behind the last.
    ///
    /// # Errors
    /// [`Error::Denied`] unless root.
    fn take_map(&self, number: u32) -> Result<Option<OwnedFd>>;
}
