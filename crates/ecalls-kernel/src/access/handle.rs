//! Channels, subscriptions and services as the program has them that uses them.
//!
//! A program that hosts the core holds the hosted thing itself. A client of the daemon has its
//! number; the daemon holds it, and ends it when the client says so or its connection closes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ecalls_abi::channel::Id;
use ecalls_abi::message::{Number, OpenChannel, ReplaceHandler, Request as Ask, Subscribe};
use ecalls_abi::service::SubscriptionCount;
use zerocopy::FromZeros;

use crate::access::Access;
use crate::access::client::Client;
use crate::access::memory::ChannelMemory;
use crate::access::raise::{Raise, raise_by_name};
use crate::access::upload;
use crate::core::channel::{HostedChannel, Shape};
use crate::core::handler::Handler;
use crate::core::owner::Owner;
use crate::core::service::{self, HostedService};
use crate::core::stat::SubscriptionStat;
use crate::core::subscription::{HostedSubscription, Request};
use crate::error::{Error, Result};
use crate::kernel::sys;

/// Who holds a thing in the core.
#[derive(Debug)]
enum Holder<T> {
    /// This program.
    Here(T),
    /// The daemon, for this program.
    Daemon,
}

/// Ends what the daemon holds. A daemon that is gone holds nothing.
fn end(access: &Access, request: &Ask) {
    if let Access::Client(client) = access {
        let _ = client.ask(request, &[]);
    }
}

/// An open channel of this process. Dropping it closes it.
#[derive(Debug)]
pub struct ChannelHandle {
    access: Arc<Access>,
    id: Id,
    shape: Shape,
    memory: ChannelMemory,
    /// For a client: readable when the wake descriptor is, or when the daemon has gone.
    either: Option<OwnedFd>,
    holder: Holder<HostedChannel>,
}

impl ChannelHandle {
    /// Opens a channel owned by this process.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity that is no power of two or out of range,
    /// [`Error::LimitReached`] when all channels are in use, [`Error::Quota`].
    pub fn open(access: Arc<Access>, shape: Shape) -> Result<ChannelHandle> {
        match &*access {
            Access::Host(core) => {
                let owner = Owner::current(core)?;
                let hosted = HostedChannel::open(Arc::clone(core), &owner, &shape)?;
                Ok(ChannelHandle {
                    id: hosted.id(),
                    memory: ChannelMemory::map(hosted.fds(), shape.capacity)?,
                    either: None,
                    shape,
                    holder: Holder::Here(hosted),
                    access,
                })
            }
            Access::Client(client) => {
                let (id, fds) = client.open_channel(&OpenChannel {
                    layout: shape.layout.raw(),
                    capacity: shape.capacity,
                    slot_use: shape.slot_use.raw(),
                    defer: shape.defer,
                    delay_ns: shape.delay_ns,
                })?;
                let memory = ChannelMemory::map(&fds, shape.capacity)?;
                let either = client.with_end(memory.wake_fd())?;
                Ok(ChannelHandle {
                    id,
                    memory,
                    either: Some(either),
                    shape,
                    holder: Holder::Daemon,
                    access,
                })
            }
        }
    }

    /// Its id.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Words of the segment from kernel to application.
    pub fn up(&self) -> &[AtomicU64] {
        self.memory.up()
    }

    /// Words of the segment from application to kernel.
    pub fn down(&self) -> &[AtomicU64] {
        self.memory.down()
    }

    /// How this program reaches the core.
    pub fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// The descriptor to sleep on: readable once the kernel woke the reader, or the daemon is gone.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.either
            .as_ref()
            .map_or_else(|| self.memory.wake_fd(), AsFd::as_fd)
    }

    /// Makes the descriptor unreadable until the next wake-up.
    pub fn clear_wake(&self) {
        self.memory.clear_wake();
    }

    /// Waits for a wake-up, at most `timeout_ns`. False: the time ran out.
    ///
    /// # Errors
    /// [`Error::DaemonGone`]: no event will come any more.
    pub fn wait(&self, timeout_ns: Option<u64>) -> Result<bool> {
        let woken = sys::wait_readable(self.wake_fd(), timeout_ns)?;
        self.clear_wake();
        if woken {
            self.access.check()?;
        }
        Ok(woken)
    }
}

impl Drop for ChannelHandle {
    fn drop(&mut self) {
        if matches!(self.holder, Holder::Daemon) {
            let number = self.id.raw();
            end(&self.access, &Ask::CloseChannel(Number { number, pad: 0 }));
        }
    }
}

/// An installed subscription of this process. Dropping it ends it.
#[derive(Debug)]
pub struct SubscriptionHandle {
    access: Arc<Access>,
    id: Id,
    holder: Holder<HostedSubscription>,
}

impl SubscriptionHandle {
    /// Installs a subscription; from then on events arrive.
    ///
    /// # Errors
    /// [`Error::Closed`] when the receiver does not exist, [`Error::LimitReached`] when the service
    /// has all the subscriptions it can have, [`Error::Invalid`] for a chain that makes no sense,
    /// [`Error::Denied`] and [`Error::Quota`] by the daemon.
    pub fn install(access: Arc<Access>, request: &Request) -> Result<SubscriptionHandle> {
        SubscriptionHandle::install_with(access, request, &[])
    }

    /// The same with the programs of those actions that are handlers in E-code.
    ///
    /// # Errors
    /// [`Error::Ecode`] when the kernel refuses one, or the daemon, whose limits are narrower;
    /// [`Error::LimitReached`] for a text, or for more of them, than the daemon takes; and those of
    /// [`SubscriptionHandle::install`].
    pub fn install_with(
        access: Arc<Access>,
        request: &Request,
        handlers: &[(usize, Handler)],
    ) -> Result<SubscriptionHandle> {
        let (id, holder) = match &*access {
            Access::Host(core) => {
                let core = Arc::clone(core);
                let owner = Owner::current(&core)?;
                let hosted = HostedSubscription::install_with(core, &owner, request, handlers)?;
                (hosted.id(), Holder::Here(hosted))
            }
            Access::Client(client) => (subscribe(client, request, handlers)?, Holder::Daemon),
        };
        Ok(SubscriptionHandle { access, id, holder })
    }

    /// Its id, as events name it.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Replaces the handler in E-code of an action; see [`HostedSubscription::replace_handler`].
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Ecode`], and by the daemon [`Error::Quota`].
    pub fn replace_handler(&self, action: usize, handler: &Handler) -> Result<()> {
        match &self.holder {
            Holder::Here(hosted) => hosted.replace_handler(action, handler),
            Holder::Daemon => replace(&self.access, self.id, action, handler),
        }
    }

    /// What the kernel side counted of it.
    pub fn count(&self) -> Result<SubscriptionCount> {
        self.access.subscription_count(self.id.index())
    }

    /// All of it: its row as well.
    pub fn stat(&self) -> Result<SubscriptionStat> {
        self.access.subscription(self.id.index())
    }
}

/// Asks the daemon to compile another text for an action.
fn replace(access: &Access, id: Id, action: usize, handler: &Handler) -> Result<()> {
    let Access::Client(client) = access else {
        return Err(Error::Closed("the subscription"));
    };
    let file = upload::write(handler)?;
    let request = Ask::ReplaceHandler(ReplaceHandler {
        subscription: id.raw(),
        action: u32::try_from(action).unwrap_or(u32::MAX),
    });
    client.value_with(&request, &[file.as_fd()]).map(|_| ())
}

fn subscribe(client: &Client, request: &Request, handlers: &[(usize, Handler)]) -> Result<Id> {
    let mut message = Subscribe::new_zeroed();
    let count = request.actions.len();
    let Some(places) = message.action.get_mut(..count) else {
        return Err(crate::core::subscription::wrong_count(count));
    };
    places.copy_from_slice(&request.actions);
    message.actions = u32::try_from(count).expect("at most 8");
    message.service = request.service;
    message.receiver = request.receiver;
    message.kinds = request.kinds;
    message.pid = request.pid;
    message.deadline_ns = request.deadline_ns;
    message.channel = request.channel.map_or(0, Id::raw);
    let files = upload::write_all(handlers)?;
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    client.made(&Ask::Subscribe(message), &files)
}

impl Drop for SubscriptionHandle {
    fn drop(&mut self) {
        if matches!(self.holder, Holder::Daemon) {
            let number = self.id.raw();
            end(&self.access, &Ask::Unsubscribe(Number { number, pad: 0 }));
        }
    }
}

/// A service that this process registered. Dropping it unregisters it.
#[derive(Debug)]
pub struct ServiceHandle {
    access: Arc<Access>,
    index: u32,
    name: String,
    holder: Holder<HostedService>,
}

impl ServiceHandle {
    /// Registers a service by a unique name.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is empty, too long or taken, [`Error::LimitReached`],
    /// [`Error::Quota`].
    pub fn register(
        access: Arc<Access>,
        name: &str,
        format: &str,
        kinds: &str,
    ) -> Result<ServiceHandle> {
        let info = service::describe(name, format, kinds)?;
        let (index, holder) = match &*access {
            Access::Host(core) => {
                let owner = Owner::current(core)?;
                let hosted = HostedService::register(Arc::clone(core), &owner, &info)?;
                (hosted.index(), Holder::Here(hosted))
            }
            Access::Client(client) => {
                let value = client.value(&Ask::RegisterService(info))?;
                let index = u32::try_from(value).map_err(|_| Error::Closed("the daemon"))?;
                (index, Holder::Daemon)
            }
        };
        Ok(ServiceHandle {
            access,
            index,
            name: name.to_owned(),
            holder,
        })
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Raises an event of this service.
    pub fn raise(&self, raise: &Raise<'_>) -> Result<i64> {
        raise_by_name(&self.access, &self.name, raise)
    }
}

impl Drop for ServiceHandle {
    fn drop(&mut self) {
        if matches!(self.holder, Holder::Daemon) {
            let number = self.index;
            end(
                &self.access,
                &Ask::UnregisterService(Number { number, pad: 0 }),
            );
        }
    }
}
