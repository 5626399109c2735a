//! A program that hosts the core: it reads and writes the core's tables itself.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use ecalls_abi::channel::Id;
use ecalls_abi::downcall::Generic;
use ecalls_abi::message::{FateView, UserView};
use ecalls_abi::service::{ServiceInfo, SocketInterest, SubscriptionCount};
use zerocopy::IntoBytes;

use crate::access::memory::ChannelMemory;
use crate::access::{Access, Held, HostView, OpenedChannel};
use crate::core::channel::{HostedChannel, Shape};
use crate::core::handler::Handler;
use crate::core::owner::Owner;
use crate::core::service::HostedService;
use crate::core::stat::{QueueStat, ServiceStat, SubscriptionStat};
use crate::core::subscription::{HostedSubscription, Request};
use crate::core::{Core, socket};
use crate::error::{Error, Result};
use crate::kernel::objects::FastCall;

/// The core that this program hosts, alone or with others.
#[derive(Debug)]
pub(crate) struct Host(pub(crate) Arc<Core>);

impl Held for HostedChannel {}

impl Held for HostedService {}

impl Held for HostedSubscription {
    fn replace_handler(&self, action: usize, handler: &Handler) -> Result<()> {
        HostedSubscription::replace_handler(self, action, handler)
    }
}

impl Access for Host {
    fn core(&self) -> Result<&Arc<Core>> {
        Ok(&self.0)
    }

    fn pid(&self) -> u32 {
        self.0.own_pid()
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn view(&self) -> Result<HostView> {
        let host = self.0.host()?;
        Ok(HostView {
            pid: host.pid,
            daemon: false,
            start_ns: host.start_ns,
            cpus: self.0.cpus(),
            fast_call: FastCall::from_name(host.mechanism()),
        })
    }

    fn fast_call(&self) -> Result<FastCall> {
        self.0.fast_call()
    }

    fn has_program(&self) -> bool {
        true
    }

    fn generic(&self, call: &mut Generic) -> Result<i64> {
        match self.0.run("call_generic", call.as_mut_bytes())? {
            code @ ..0 => Err(Error::from_errno("calling a service", i64::from(code))),
            _ => Ok(call.result),
        }
    }

    fn open_channel(&self, shape: &Shape) -> Result<OpenedChannel> {
        let owner = Owner::current(&self.0)?;
        let hosted = HostedChannel::open(Arc::clone(&self.0), &owner, shape)?;
        Ok(OpenedChannel {
            id: hosted.id(),
            memory: ChannelMemory::map(hosted.fds(), shape)?,
            either: None,
            _held: Box::new(hosted),
        })
    }

    fn subscribe(
        &self,
        request: &Request,
        handlers: &[(usize, Handler)],
    ) -> Result<(Id, Box<dyn Held>)> {
        let (core, owner) = (Arc::clone(&self.0), Owner::current(&self.0)?);
        let hosted = HostedSubscription::install_with(core, &owner, request, handlers)?;
        Ok((hosted.id(), Box::new(hosted)))
    }

    fn register_service(&self, info: &ServiceInfo) -> Result<(u32, Box<dyn Held>)> {
        let owner = Owner::current(&self.0)?;
        let hosted = HostedService::register(Arc::clone(&self.0), &owner, info)?;
        Ok((hosted.index(), Box::new(hosted)))
    }

    fn find_service(&self, name: &str) -> Result<u32> {
        self.0.find_service(name)
    }

    fn service_named(&self, name: &str) -> Result<ServiceStat> {
        self.0.service_stat(self.0.find_service(name)?)
    }

    fn service_stat(&self, index: u32) -> Result<ServiceStat> {
        self.0.service_stat(index)
    }

    fn service_info(&self, index: u32) -> Result<ServiceInfo> {
        let info = self.0.service_info(index)?;
        match info.name().is_empty() {
            true => Err(Error::Closed("the service")),
            false => Ok(info),
        }
    }

    fn services(&self) -> Result<Vec<ServiceStat>> {
        self.0.services()
    }

    fn is_attached(&self, service: u32) -> Result<bool> {
        self.0.is_attached(service)
    }

    fn subscriptions(&self) -> Result<Vec<SubscriptionStat>> {
        self.0.subscriptions()
    }

    fn subscription(&self, index: u32) -> Result<SubscriptionStat> {
        self.0.subscription(index)
    }

    fn subscription_count(&self, index: u32) -> Result<SubscriptionCount> {
        self.0.subscription_count(index)
    }

    fn channels(&self) -> Result<Vec<ecalls_abi::Channel>> {
        self.0.channels()
    }

    fn queues(&self) -> Result<Vec<QueueStat>> {
        self.0.queues()
    }

    fn users(&self) -> Result<Option<Vec<UserView>>> {
        Ok(None)
    }

    fn fates(&self, event: u64, most: usize) -> Result<Vec<FateView>> {
        self.0.fates(event, most)
    }

    fn set_parameter(&self, service: u32, value: u64) -> Result<()> {
        self.0.set_parameter(service, value)
    }

    fn watch_socket(
        &self,
        fd: BorrowedFd<'_>,
        interest: &SocketInterest,
        if_absent: bool,
    ) -> Result<()> {
        match if_absent {
            true => socket::register_if_absent(&self.0, fd, interest),
            false => socket::register(&self.0, fd, interest),
        }
    }

    fn forget_socket(&self, fd: BorrowedFd<'_>) -> Result<()> {
        socket::unregister(&self.0, fd)
    }

    fn take_map(&self, number: u32) -> Result<Option<OwnedFd>> {
        self.0.copy_map(number)
    }
}
