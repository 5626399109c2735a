//! Subscriptions to the services that the demonstration shows, and one thread that reads all.
//!
//! Each subscription has a channel. The thread periodically reads what waits in all of them,
//! without a system call. It could also sleep until it is woken, and receive an event within a few
//! microseconds; but then the server, whose packets raise the events, would pay for every wake-up.
//! With deadlines of some milliseconds this is not necessary. The thread's own turns are paid by
//! the server and the load, too, where these two keep all processors busy: so there is one thread,
//! and it does not look more often than the deadline needs. Events older than the deadline are not
//! read: the kernel side or the channel discards and counts them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ecalls::{Channel, Ecalls, Event, Subscription, now_ns};
use ecalls_abi::service::{ServiceCount, SubscriptionCount};

use super::seen::{Ours, Seen};
use crate::exit::Failure;
use crate::web::watch::{Reader, Threshold};

/// The services, in the order of the output.
const SERVICES: &[&str] = &["socket", "task", "sched"];

/// The row of the socket service's events that a handler in E-code passes.
const FILTER: &str = "filter";

/// The text of that handler, which runs in the kernel for each event and keeps state.
fn filter(port: u16) -> String {
    format!(
        "static long requests; \
         if (local_port != {port}) return 0; \
         return event.kind == connection ? backlog > 8 : ++requests % 100 == 0;"
    )
}

/// Events of one channel.
const RING: u32 = 16_384;
/// Events that are counted between two releases of the lock.
const BATCH: usize = 256;
/// The interval of the reader's looks.
pub(super) const PACE: Duration = Duration::from_millis(1);
/// Shorter waits for a CPU are not reported, ns.
pub(super) const DELAY_NS: u64 = 100_000;

/// All subscriptions.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) services: Vec<Watched>,
    /// Services that are missing, with the reason.
    pub(super) absent: Vec<(&'static str, String)>,
    /// Takes the events of all services.
    pub(super) reader: Reader,
    _threshold: Option<Threshold>,
}

/// What the reader has of a subscription.
struct Source {
    channel: Channel,
    /// The event that was read last.
    event: Event,
    seen: Arc<Mutex<Seen>>,
}

impl Attached {
    /// Subscribes to every service that exists.
    ///
    /// # Errors
    /// The reader's thread cannot be started.
    pub(super) fn new(
        ecalls: &Ecalls,
        deadline: Duration,
        ours: Ours,
    ) -> Result<Attached, Failure> {
        let threshold = Threshold::set(ecalls, DELAY_NS).ok();
        let (mut services, mut absent, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        let rows = SERVICES.iter().map(|name| (*name, *name, None));
        for (row, service, text) in rows.chain([(FILTER, SERVICES[0], Some(filter(ours.port)))]) {
            match Watched::open(ecalls, row, service, text, deadline) {
                Ok((watched, source)) => {
                    services.push(watched);
                    sources.push(source);
                }
                Err(error) => absent.push((row, error.to_string())),
            }
        }
        let reader = Reader::start("demo", PACE, move || {
            for source in &mut sources {
                while read_batch(source, &ours) {}
            }
        })?;
        Ok(Attached {
            services,
            absent,
            reader,
            _threshold: threshold,
        })
    }
}

/// One subscription to a service.
#[derive(Debug)]
pub(super) struct Watched {
    /// The name of its row.
    pub(super) name: &'static str,
    /// The handler in E-code through which its events pass.
    pub(super) text: Option<String>,
    /// Names of its kinds.
    pub(super) kinds: Vec<String>,
    ecalls: Ecalls,
    index: u32,
    subscription: Subscription,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    /// Subscribes to `service` for the row `name`.
    fn open(
        ecalls: &Ecalls,
        name: &'static str,
        service: &str,
        text: Option<String>,
        deadline: Duration,
    ) -> ecalls::Result<(Watched, Source)> {
        let index = ecalls.access().find_service(service)?;
        let info = ecalls.access().service_stat(index)?.info;
        let channel = ecalls.channel().ring(RING).open()?;
        let mut builder = ecalls.subscribe(service)?.deadline(deadline);
        if let Some(text) = &text {
            builder = builder.ecode_named("filter", text);
        }
        let subscription = builder.memory(&channel).install()?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let source = Source {
            channel,
            event: Event::default(),
            seen: Arc::clone(&seen),
        };
        let watched = Watched {
            name,
            text,
            kinds: info.kinds().map(str::to_owned).collect(),
            ecalls: ecalls.clone(),
            index,
            subscription,
            seen,
        };
        Ok((watched, source))
    }

    /// The reader's counts so far.
    pub(super) fn seen(&self) -> Seen {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The kernel side's counts of the subscription.
    pub(super) fn count(&self) -> Result<SubscriptionCount, Failure> {
        Ok(self.subscription.count()?)
    }

    /// The kernel side's counts of the whole service since the core was loaded.
    pub(super) fn service_count(&self) -> Result<ServiceCount, Failure> {
        Ok(self.ecalls.access().service_stat(self.index)?.count)
    }
}

/// Reads up to a batch of waiting events. Returns false if none waits any more.
fn read_batch(source: &mut Source, ours: &Ours) -> bool {
    let (channel, event) = (&mut source.channel, &mut source.event);
    let mut seen = source.seen.lock().unwrap_or_else(PoisonError::into_inner);
    let mut more = true;
    for _ in 0..BATCH {
        more = channel.try_recv_into(event);
        if !more {
            break;
        }
        seen.add(event, now_ns(), ours);
    }
    seen.late = channel.late();
    seen.lost = channel.lost();
    more
}
