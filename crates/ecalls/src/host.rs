//! The entry: the machine's core as this program sees it.

use std::fmt;
use std::sync::Arc;

use ecalls_abi::event::Event;
use ecalls_kernel::core::Core;
use ecalls_kernel::stat::ServiceStat;

use crate::Result;
use crate::channel::ChannelBuilder;
use crate::format::Format;
use crate::service::{Raise, Service};
use crate::subscription::SubscriptionBuilder;

/// The machine's core. Cheap to clone; the core lives as long as anybody holds it.
#[derive(Clone, Debug)]
pub struct Ecalls {
    core: Arc<Core>,
}

impl Ecalls {
    /// Joins the machine's core, or loads it into the kernel if there is none (root).
    ///
    /// # Errors
    /// [`crate::Error::Denied`] without privileges, [`crate::Error::Unsupported`] naming what this
    /// kernel lacks.
    pub fn open() -> Result<Ecalls> {
        Ok(Ecalls {
            core: Arc::new(Core::open()?),
        })
    }

    /// Joins the core if one runs; loads nothing.
    pub fn join() -> Result<Option<Ecalls>> {
        Ok(Core::join_running()?.map(|core| Ecalls {
            core: Arc::new(core),
        }))
    }

    /// The kernel side's tables and counters.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Starts a new channel.
    pub fn channel(&self) -> ChannelBuilder {
        ChannelBuilder::new(self.clone())
    }

    /// Starts a subscription to the service of that name.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`], with the names there are.
    pub fn subscribe(&self, service: &str) -> Result<SubscriptionBuilder> {
        let index = self.core.find_service(service)?;
        let stat = self.core.service_stat(index)?;
        Ok(SubscriptionBuilder::new(self.clone(), &stat))
    }

    /// Registers a service of this program (ECalls-05 §3). `format` describes its data as C fields
    /// ("u64 load; u32 threads"), `kinds` names its kinds ("high low").
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when the name is taken or malformed.
    pub fn register_service(&self, name: &str, format: &str, kinds: &str) -> Result<Service> {
        Format::parse(format)?;
        Service::register(self, name, format, kinds)
    }

    /// Raises an event of a named application service. Returns how many subscriptions it is for.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] without such a service.
    pub fn raise(&self, service: &str, raise: &Raise<'_>) -> Result<i64> {
        ecalls_kernel::service::raise_by_name(&self.core, service, &raise.to_kernel())
    }

    /// All services.
    pub fn services(&self) -> Result<Vec<ServiceStat>> {
        self.core.services()
    }

    /// The format of a service's data.
    pub fn format(&self, service: u32) -> Result<Format> {
        Format::parse(self.core.service_stat(service)?.info.format())
    }

    /// An event as text: service, kind, fields by name. For people; programs use [`Format`].
    pub fn describe<'a>(&'a self, event: &'a Event) -> Described<'a> {
        Described {
            ecalls: self,
            event,
        }
    }

    /// Name of a kind of a service.
    pub fn kind_name(&self, service: u32, kind: u32) -> Result<String> {
        let info = self.core.service_stat(service)?.info;
        let index = usize::try_from(kind).unwrap_or(usize::MAX);
        Ok(info
            .kinds()
            .nth(index)
            .map_or_else(|| kind.to_string(), str::to_owned))
    }
}

/// Displays an event with its service's names.
#[derive(Debug)]
pub struct Described<'a> {
    ecalls: &'a Ecalls,
    event: &'a Event,
}

impl Described<'_> {
    fn names(&self) -> Result<(String, String, Format)> {
        let stat = self.ecalls.core.service_stat(self.event.service)?;
        let kind = self.ecalls.kind_name(self.event.service, self.event.kind)?;
        let format = Format::parse(stat.info.format())?;
        Ok((stat.info.name().to_owned(), kind, format))
    }
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = self.event;
        // A service that is gone has no names; its events still have numbers.
        let (name, kind, format) = self.names().unwrap_or_else(|_| {
            (
                format!("service-{}", event.service),
                event.kind.to_string(),
                Format::default(),
            )
        });
        write!(f, "{name} {kind} pid={}", event.pid)?;
        for (field, value) in format.read(event.data_bytes()) {
            if !field.is_padding() {
                write!(f, " {}={value}", field.name)?;
            }
        }
        Ok(())
    }
}
