//! The entry to the library: the machine's core as this program sees it.
//!
//! Ordinary programs reach the core through the daemon; privileged ones host it themselves where no
//! daemon runs. Nothing else in this library depends on the difference.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::ecode::source::Source;
use ecalls_abi::service::ServiceInfo;
use ecalls_abi::wire::Host;
use ecalls_kernel::access::{self, Access};
use ecalls_kernel::core::Core;
use ecalls_kernel::lane::{Kept, Numbers};
use ecalls_kernel::stat::ServiceStat;
use ecalls_ring::Event;

use crate::Result;
use crate::channel::ChannelBuilder;
use crate::format::Format;
use crate::service::{Provider, Raise, Service};
use crate::subscription::SubscriptionBuilder;

/// The machine's core. Cheap to clone; objects that were opened with a clone end independently, and
/// the connection ends with the last of them.
#[derive(Clone, Debug)]
pub struct Ecalls {
    access: Arc<dyn Access>,
}

impl Ecalls {
    /// Connects to the daemon (`ecallsd`), for programs of any user. If no daemon runs, a
    /// privileged program joins the machine's core, or loads one into the kernel.
    ///
    /// A program that hosts the core loads each of its parts (services, signals, kernel threads,
    /// calls) at the first use, by the same privileges. A program that gives them up after opening
    /// loads all parts before, by [`Ecalls::complete`].
    ///
    /// # Errors
    /// [`crate::Error::Denied`] without a daemon and privileges, [`crate::Error::Unsupported`] with
    /// the feature that this kernel lacks, [`crate::Error::Quota`] if this user has used up its
    /// connections.
    pub fn open() -> Result<Ecalls> {
        access::open().map(Ecalls::new)
    }

    /// The same, but waits for the daemon for at most `time`. A program calls it after
    /// [`crate::Error::DaemonGone`], to continue with the next daemon.
    ///
    /// # Errors
    /// [`crate::Error::DaemonGone`] if the time is over.
    pub fn open_within(time: Duration) -> Result<Ecalls> {
        access::open_within(time).map(Ecalls::new)
    }

    /// Connects to the daemon or joins the core if either runs, and never loads a core.
    pub fn join() -> Result<Option<Ecalls>> {
        Ok(access::join()?.map(Ecalls::new))
    }

    /// Hosts the core in this program even if a core runs: for tools that need its tables.
    ///
    /// # Errors
    /// [`crate::Error::Hosted`] while a daemon runs, and those of [`Ecalls::open`].
    pub fn host() -> Result<Ecalls> {
        access::host().map(Ecalls::new)
    }

    fn new(access: Arc<dyn Access>) -> Ecalls {
        Ecalls { access }
    }

    /// The interface of the core: everything that can be listed, and its counters.
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

    /// The core as far as channels among hosts (the crate `ecalls-channel`) need it: also for
    /// privileged clients of the daemon.
    ///
    /// # Errors
    /// [`crate::Error::Denied`] for other clients.
    pub fn lane(&self) -> Result<&Arc<Core>> {
        self.access.lane()
    }

    /// Loads all parts of the core that this program hosts: before it gives up the privileges by
    /// which it loads. For a client of the daemon there is nothing to load.
    ///
    /// # Errors
    /// Those of a part that the core cannot do without.
    pub fn complete(&self) -> Result<()> {
        self.core().map_or(Ok(()), |core| core.complete())
    }

    /// Fails when no events can arrive any more.
    ///
    /// # Errors
    /// [`crate::Error::DaemonGone`]: open again, and subscribe again.
    pub fn check(&self) -> Result<()> {
        self.access.check()
    }

    /// The id of this process as events show it; inside a container it differs from the process's
    /// own.
    pub fn pid(&self) -> u32 {
        self.access.pid()
    }

    /// Starts building a channel.
    pub fn channel(&self) -> ChannelBuilder {
        ChannelBuilder::new(self.clone())
    }

    /// Starts building a subscription to the service of that name.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`], with the names of all services.
    pub fn subscribe(&self, service: &str) -> Result<SubscriptionBuilder> {
        let stat = self.access.service_named(service)?;
        Ok(SubscriptionBuilder::new(self.clone(), &stat))
    }

    /// Registers a service of this program (ECalls-05 §3). `format` describes its data as C fields
    /// ("u64 load; u32 threads"), `kinds` names its kinds ("high low").
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the name is taken or malformed.
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

    /// Adds the service that a text in E-code defines: its program runs on the tracepoint that it
    /// names, and raises an event if its result is not 0. `name` is the text's name in messages,
    /// such as its file. Needs root.
    ///
    /// # Errors
    /// [`crate::Error::Ecode`] with all errors in the text; [`crate::Error::Invalid`] for a name
    /// that is taken; [`crate::Error::Denied`].
    pub fn provide_ecode(&self, name: &str, text: &str) -> Result<Provider> {
        Provider::add_ecode(self, &Source::new(name, text))
    }

    /// Makes a text in E-code, with its name in messages, the filter (OUT) of a channel among
    /// hosts, or removes it; for the crate `ecalls-channel`, which describes it. Returns the
    /// compiler's warnings.
    ///
    /// # Errors
    /// [`crate::Error::Ecode`] with all errors in the text; those of [`Numbers::set_out`].
    #[doc(hidden)]
    pub fn set_out(
        &self,
        channel: &Numbers,
        text: Option<(&str, &str)>,
        attributes: &[String],
        kept: &mut Kept,
    ) -> Result<Vec<String>> {
        let Some((name, text)) = text else {
            return channel.set_out(None, kept).map(|()| Vec::new());
        };
        let service = self.access.service_stat(channel.channel().service)?;
        let source = Source::new(name, text);
        let (handler, warnings) = crate::ecode::compile_filter(&service, &source, attributes)?;
        channel.set_out(Some(&handler), kept)?;
        Ok(warnings)
    }

    /// Raises an event of an application service by its name. Returns the number of subscriptions
    /// to which it was offered.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] if there is no such service.
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
        // A service that has ended has no names; its events are shown with numbers.
        let (name, kind, format) = self.names().unwrap_or_else(|_| {
            (
                format!("service-{}", event.service),
                event.kind.to_string(),
                Format::default(),
            )
        });
        write!(f, "{name} {kind} ")?;
        match event.host() {
            Some(host) => write!(f, "host={}", Host(host))?,
            None => write!(f, "pid={}", event.pid)?,
        }
        for (field, value) in format.read(event.data_bytes()) {
            if !field.is_padding() {
                write!(f, " {}={value}", field.name)?;
            }
        }
        Ok(())
    }
}
