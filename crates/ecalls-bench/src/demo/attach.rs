//! Subscriptions to the services that the demonstration shows, with a reader thread for each.
//!
//! Each service has a channel and a thread, which periodically reads the waiting events without a
//! system call. The thread could also sleep until it is woken, and receive an event within a few
//! microseconds; but then the server, whose packets raise the events, would pay for every wake-up.
//! With deadlines of some milliseconds this is not necessary. Events older than the deadline are
//! not read: the kernel side or the channel discards and counts them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ecalls::{Channel, Ecalls, Subscription, now_ns};
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
/// The interval of a reader's polls.
pub(super) const PACE: Duration = Duration::from_micros(300);
/// Shorter waits for a CPU are not reported, ns.
pub(super) const DELAY_NS: u64 = 100_000;

/// All subscriptions.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) services: Vec<Watched>,
    /// Services that are missing, with the reason.
    pub(super) absent: Vec<(&'static str, String)>,
    _threshold: Option<Threshold>,
}

impl Attached {
    /// Subscribes to every service that exists.
    pub(super) fn new(ecalls: &Ecalls, deadline: Duration, ours: Ours) -> Attached {
        let mut attached = Attached {
            services: Vec::new(),
            absent: Vec::new(),
            _threshold: Threshold::set(ecalls, DELAY_NS).ok(),
        };
        for name in SERVICES {
            attached.add(name, Watched::new(ecalls, name, deadline, ours));
        }
        attached.add(FILTER, Watched::filtered(ecalls, deadline, ours));
        attached
    }

    fn add(&mut self, name: &'static str, watched: ecalls::Result<Watched>) {
        match watched {
            Ok(watched) => self.services.push(watched),
            Err(error) => self.absent.push((name, error.to_string())),
        }
    }
}

/// One service with its reader.
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
    reader: Reader,
}

impl Watched {
    fn new(
        ecalls: &Ecalls,
        name: &'static str,
        deadline: Duration,
        ours: Ours,
    ) -> ecalls::Result<Watched> {
        Watched::open(ecalls, name, None, deadline, ours)
    }

    /// The sockets again, through a filter.
    fn filtered(ecalls: &Ecalls, deadline: Duration, ours: Ours) -> ecalls::Result<Watched> {
        let text = Some(filter(ours.port));
        let watched = Watched::open(ecalls, SERVICES[0], text, deadline, ours)?;
        Ok(Watched {
            name: FILTER,
            ..watched
        })
    }

    fn open(
        ecalls: &Ecalls,
        name: &'static str,
        text: Option<String>,
        deadline: Duration,
        ours: Ours,
    ) -> ecalls::Result<Watched> {
        let index = ecalls.access().find_service(name)?;
        let info = ecalls.access().service_stat(index)?.info;
        let mut channel = ecalls.channel().ring(RING).open()?;
        let mut builder = ecalls.subscribe(name)?.deadline(deadline);
        if let Some(text) = &text {
            builder = builder.ecode_named("filter", text);
        }
        let subscription = builder.memory(&channel).install()?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let into = Arc::clone(&seen);
        let reader = Reader::start(
            name,
            PACE,
            move || {
                while read_batch(&mut channel, &into, &ours) {}
            },
        )?;
        Ok(Watched {
            name,
            text,
            kinds: info.kinds().map(str::to_owned).collect(),
            ecalls: ecalls.clone(),
            index,
            subscription,
            seen,
            reader,
        })
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

    /// Whether the reader still runs.
    pub(super) fn is_read(&self) -> bool {
        self.reader.is_running()
    }
}

/// Reads up to a batch of waiting events. Returns false if none waits any more.
fn read_batch(channel: &mut Channel, seen: &Mutex<Seen>, ours: &Ours) -> bool {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let mut more = true;
    for _ in 0..BATCH {
        match channel.try_recv() {
            Some(event) => seen.add(&event, now_ns(), ours),
            None => {
                more = false;
                break;
            }
        }
    }
    seen.late = channel.late();
    seen.lost = channel.lost();
    more
}
