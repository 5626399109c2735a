//! The entry: the machine's core as this program sees it.
//!
//! Ordinary programs reach it through the daemon; privileged ones host it themselves where no
//! daemon runs. Nothing else in this library depends on which of the two it is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::ecode::source::Source;
use ecalls_abi::event::Event;
use ecalls_abi::service::ServiceInfo;
use ecalls_kernel::access::{self, Access};
use ecalls_kernel::core::Core;
use ecalls_kernel::stat::ServiceStat;

use crate::Result;
use crate::channel::ChannelBuilder;
use crate::format::Format;
use crate::service::{Provider, Raise, Service};
use crate::subscription::SubscriptionBuilder;

/// The machine's core. Cheap to clone; what was opened with one clone ends by itself, and the
/// connection with the last.
#[derive(Clone, Debug)]
pub struct Ecalls {
    access: Arc<dyn Access>,
}

impl Ecalls {
    /// Connects to the daemon (`ecallsd`), for programs of any user. Where none runs, a privileged
    /// program joins the machine's core, or loads it into the kernel if there is none.
    ///
    /// A program that hosts the core loads each of its parts (services, signals, kernel threads,
    /// calls) at the first use, by the same privileges. A program that gives them up after opening
    /// loads all parts before, by [`Ecalls::complete`].
    ///
    /// # Errors
    /// [`crate::Error::Denied`] without daemon and privileges, [`crate::Error::Unsupported`] naming
    /// what this kernel lacks, [`crate::Error::Quota`] when this user has all its connections.
    pub fn open() -> Result<Ecalls> {
        access::open().map(Ecalls::new)
    }

    /// The same, but waits for the daemon for at most `time`: after [`crate::Error::DaemonGone`],
    /// to go on with the next one.
    ///
    /// # Errors
    /// [`crate::Error::DaemonGone`] when the time has run out.
    pub fn open_within(time: Duration) -> Result<Ecalls> {
        access::open_within(time).map(Ecalls::new)
    }

    /// Connects to the daemon or joins the core, if either runs; loads nothing.
    pub fn join() -> Result<Option<Ecalls>> {
        Ok(access::join()?.map(Ecalls::new))
    }

    /// Hosts the core in this program, whatever else runs: for tools that need its tables.
    ///
    /// # Errors
    /// [`crate::Error::Hosted`] while a daemon runs, and those of [`Ecalls::open`].
    pub fn host() -> Result<Ecalls> {
        access::host().map(Ecalls::new)
    }

    fn new(access: Arc<dyn Access>) -> Ecalls {
        Ecalls { access }
    }

    /// The way to the core: everything that can be looked at, and what it counts.
    pub fn access(&self) -> &Arc<dyn Access> {
        &self.access
    }

    /// The core's own tables, for programs that host it.
    ///
    /// # Errors
    /// [`crate::Error::Denied`] for a client of the daemon.
    pub fn core(&self) -> Result<&Arc<Core>> {
        self.access.core()
    }

    /// Loads all parts of the core that this program hosts: before it gives up the privileges by
    /// which it loads. For a client of the daemon there is nothing to load.
    ///
    /// # Errors
    /// Those of a part that the core cannot do without.
    pub fn complete(&self) -> Result<()> {
        self.core().map_or(Ok(()), |core| core.complete())
    }

    /// Whether events still come.
    ///
    /// # Errors
    /// [`crate::Error::DaemonGone`]: open again, and subscribe again.
    pub fn check(&self) -> Result<()> {
        self.access.check()
    }

    /// This process, as events number it. Inside a container that is not its own number there.
    pub fn pid(&self) -> u32 {
        self.access.pid()
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
        let stat = self.access.service_named(service)?;
        Ok(SubscriptionBuilder::new(self.clone(), &stat))
    }

    /// Registers a service of this program (ECalls-05 §3). `format` describes its data as C fields
    /// ("u64 load; u32 threads"), `kinds` names its kinds ("high low").
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when the name is taken or malformed.
    pub fn register_service(&self, name: &str, format: &str, kinds: &str) -> Result<Service> {
        Format::parse(format)?;
        Service::register(Arc::clone(&self.access), name, format, kinds)
    }

    /// Adds a service whose programs, in the BPF object file `object`, raise its events in the
    /// kernel. Needs root.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a file that is no service, was compiled for another version or
    /// is refused by the kernel, and for a name that is taken; [`crate::Error::Denied`].
    pub fn provide(&self, object: &[u8]) -> Result<Provider> {
        Provider::add(self, object)
    }

    /// Adds the service that a text in E-code is: where the kernel meets the tracepoint that it
    /// names, its program runs, and raises an event if its result is not 0. `name`: what messages
    /// about the text begin with, say of its file. Needs root.
    ///
    /// # Errors
    /// [`crate::Error::Ecode`] for a text that is wrong, with all that is wrong;
    /// [`crate::Error::Invalid`] for a name that is taken; [`crate::Error::Denied`].
    pub fn provide_ecode(&self, name: &str, text: &str) -> Result<Provider> {
        Provider::add_ecode(self, &Source::new(name, text))
    }

    /// Raises an event of a named application service. Returns how many subscriptions it is for.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] without such a service.
    pub fn raise(&self, service: &str, raise: &Raise<'_>) -> Result<i64> {
        ecalls_kernel::raise::raise_by_name(&*self.access, service, raise)
    }

    /// All services.
    pub fn services(&self) -> Result<Vec<ServiceStat>> {
        self.access.services()
    }

    /// The format of a service's data.
    pub fn format(&self, service: u32) -> Result<Format> {
        Format::parse(self.access.service_info(service)?.format())
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
        Ok(name_of_kind(&self.access.service_info(service)?, kind))
    }
}

/// A kind's name, or its number where it has none.
fn name_of_kind(info: &ServiceInfo, kind: u32) -> String {
    let index = usize::try_from(kind).unwrap_or(usize::MAX);
    info.kinds()
        .nth(index)
        .map_or_else(|| kind.to_string(), str::to_owned)
}

/// Displays an event with its service's names.
#[derive(Debug)]
pub struct Described<'a> {
    ecalls: &'a Ecalls,
    event: &'a Event,
}

impl Described<'_> {
    fn names(&self) -> Result<(String, String, Format)> {
        let info = self.ecalls.access.service_info(self.event.service)?;
        let format = Format::parse(info.format())?;
        Ok((
            info.name().to_owned(),
            name_of_kind(&info, self.event.kind),
            format,
        ))
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
