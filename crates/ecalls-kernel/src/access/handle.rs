//! The program's handles of its channels, subscriptions and services, for hosts of the core and for
//! clients alike.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ecalls_abi::channel::Id;
use ecalls_abi::service::SubscriptionCount;

use crate::access::raise::{Raise, raise_by_name};
use crate::access::{Access, Held, OpenedChannel};
use crate::core::channel::Shape;
use crate::core::handler::Handler;
use crate::core::service::describe;
use crate::core::stat::SubscriptionStat;
use crate::core::subscription::Request;
use crate::error::Result;
use crate::kernel::sys;

/// An open channel of this process. Dropping it closes it.
#[derive(Debug)]
pub struct ChannelHandle {
    channel: OpenedChannel,
    shape: Shape,
    access: Arc<dyn Access>,
}

impl ChannelHandle {
    /// Opens a channel owned by this process.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a capacity that is not a power of two or is out of range,
    /// [`crate::Error::LimitReached`] if all channels are in use, [`crate::Error::Quota`].
    pub fn open(access: Arc<dyn Access>, shape: Shape) -> Result<ChannelHandle> {
        Ok(ChannelHandle {
            channel: access.open_channel(&shape)?,
            shape,
            access,
        })
    }

    pub fn id(&self) -> Id {
        self.channel.id
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Words of the segment from kernel to application.
    pub fn up(&self) -> &[AtomicU64] {
        self.channel.memory.up()
    }

    /// Words of the segment from application to kernel.
    pub fn down(&self) -> &[AtomicU64] {
        self.channel.memory.down()
    }

    /// The interface by which this program uses the core.
    pub fn access(&self) -> &Arc<dyn Access> {
        &self.access
    }

    /// The descriptor for sleeping: readable once the kernel woke the reader, or the daemon is
    /// gone.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        let memory = &self.channel.memory;
        let either = self.channel.either.as_ref();
        either.map_or_else(|| memory.wake_fd(), AsFd::as_fd)
    }

    /// Makes the descriptor unreadable until the next wake-up.
    pub fn clear_wake(&self) {
        self.channel.memory.clear_wake();
    }

    /// Waits for a wake-up, at most `timeout_ns`. False: the time is over.
    ///
    /// # Errors
    /// [`crate::Error::DaemonGone`]: no event can arrive any more.
    pub fn wait(&self, timeout_ns: Option<u64>) -> Result<bool> {
        let woken = sys::wait_readable(self.wake_fd(), timeout_ns)?;
        self.clear_wake();
        if woken {
            self.access.check()?;
        }
        Ok(woken)
    }
}

/// An installed subscription of this process. Dropping it ends it.
#[derive(Debug)]
pub struct SubscriptionHandle {
    access: Arc<dyn Access>,
    id: Id,
    held: Box<dyn Held>,
}

impl SubscriptionHandle {
    /// Installs a subscription; from then on events arrive.
    ///
    /// # Errors
    /// [`crate::Error::Closed`] if the receiver does not exist, [`crate::Error::LimitReached`] if
    /// the service has its maximum of subscriptions, [`crate::Error::Invalid`] for an invalid
    /// chain, [`crate::Error::Denied`] and [`crate::Error::Quota`] by the daemon.
    pub fn install(access: Arc<dyn Access>, request: &Request) -> Result<SubscriptionHandle> {
        SubscriptionHandle::install_with(access, request, &[])
    }

    /// The same with the programs of the actions that are handlers in E-code.
    ///
    /// # Errors
    /// [`crate::Error::Ecode`] if a program is refused by the kernel, or by the daemon, whose
    /// limits are narrower; [`crate::Error::LimitReached`] for a text that is too long for the
    /// daemon, or for too many of them; and those of [`SubscriptionHandle::install`].
    pub fn install_with(
        access: Arc<dyn Access>,
        request: &Request,
        handlers: &[(usize, Handler)],
    ) -> Result<SubscriptionHandle> {
        let (id, held) = access.subscribe(request, handlers)?;
        Ok(SubscriptionHandle { access, id, held })
    }

    /// Its id, which events contain.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Replaces the handler in E-code of an action; no event is lost, and each is handled either by
    /// the former handler or by this one.
    ///
    /// # Errors
    /// [`crate::Error::Closed`], [`crate::Error::Ecode`], and by the daemon
    /// [`crate::Error::Quota`].
    pub fn replace_handler(&self, action: usize, handler: &Handler) -> Result<()> {
        self.held.replace_handler(action, handler)
    }

    /// The kernel side's counters of it.
    pub fn count(&self) -> Result<SubscriptionCount> {
        self.access.subscription_count(self.id.index())
    }

    /// Its counters and its row.
    pub fn stat(&self) -> Result<SubscriptionStat> {
        self.access.subscription(self.id.index())
    }
}

/// A service that this process registered. Dropping it unregisters it.
#[derive(Debug)]
pub struct Service {
    access: Arc<dyn Access>,
    index: u32,
    name: String,
    _held: Box<dyn Held>,
}

impl Service {
    /// Registers a service by a unique name.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a name that is empty, too long or taken,
    /// [`crate::Error::LimitReached`], [`crate::Error::Quota`].
    pub fn register(
        access: Arc<dyn Access>,
        name: &str,
        format: &str,
        kinds: &str,
    ) -> Result<Service> {
        let info = describe(name, format, kinds)?;
        let (index, held) = access.register_service(&info)?;
        Ok(Service {
            access,
            index,
            name: name.to_owned(),
            _held: held,
        })
    }

    /// Its index, for calls that raise its events.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Raises an event. Returns the number of subscriptions to which it is offered (now, or at its
    /// release time); 0: there is no subscription, and the event was dropped and counted.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for more than 65536 bytes of data (2152 with a
    /// release time);
    /// [`Error::Quota`](crate::Error::Quota) if this user raises more events, or has more waiting
    /// ones, than the daemon permits; [`Error::Os`](crate::Error::Os) with ENOSPC if the queue is
    /// full and this deadline is the latest.
    pub fn raise(&self, raise: &Raise<'_>) -> Result<i64> {
        raise_by_name(&*self.access, &self.name, raise)
    }
}
