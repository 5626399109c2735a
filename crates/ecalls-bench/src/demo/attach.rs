//! Subscriptions to the services that the demonstration shows, and a reader thread for each.
//!
//! One service, one channel, one thread: the thread looks from time to time and reads what waits,
//! without a system call. It could also sleep until it is woken, and know of an event in a few
//! microseconds; but then every wake-up would be paid for by the server, whose packets raise the
//! events. With deadlines of some milliseconds nobody needs that. Events that are older than the
//! deadline are not read: the kernel side or the channel discards and counts them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ecalls::{Channel, Ecalls, Subscription, now_ns};
use ecalls_abi::service::{SERVICE_SCHED, ServiceCount, SubscriptionCount};
use ecalls_kernel::builtin;

use super::seen::{Ours, Seen};
use crate::exit::Failure;

/// Services that are shown, in this order.
const SERVICES: &[&str] = &["socket", "task", "sched"];

/// Name of the row of the socket service's events that a handler in E-code lets through.
const FILTER: &str = "filter";

/// That handler: runs in the kernel for each event, and remembers.
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
/// Between two looks of a reader.
pub(super) const PACE: Duration = Duration::from_micros(300);
/// Waits for a CPU that are shorter are not reported, ns.
pub(super) const DELAY_NS: u64 = 100_000;

/// All of them.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) services: Vec<Watched>,
    /// Services that are not there, and why.
    pub(super) absent: Vec<(&'static str, String)>,
    _threshold: Option<Threshold>,
}

impl Attached {
    /// Subscribes to every service that is there.
    pub(super) fn new(ecalls: &Ecalls, deadline: Duration, ours: Ours) -> Attached {
        let mut attached = Attached {
            services: Vec::new(),
            absent: Vec::new(),
            _threshold: Threshold::set(ecalls).ok(),
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

/// The sched service's threshold, which is one for the machine. It gets its default back.
#[derive(Debug)]
struct Threshold(Ecalls);

impl Threshold {
    fn set(ecalls: &Ecalls) -> ecalls::Result<Threshold> {
        ecalls.access().set_parameter(SERVICE_SCHED, DELAY_NS)?;
        Ok(Threshold(ecalls.clone()))
    }
}

impl Drop for Threshold {
    fn drop(&mut self) {
        let core = self.0.access();
        // A core that is gone has no threshold.
        if let Ok(parameter) = builtin::parameter(SERVICE_SCHED) {
            let _ = core.set_parameter(SERVICE_SCHED, parameter.default_ns);
        }
    }
}

/// One service that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    /// What its row is called.
    pub(super) name: &'static str,
    /// The handler in E-code that its events pass.
    pub(super) text: Option<String>,
    /// Names of its kinds.
    pub(super) kinds: Vec<String>,
    ecalls: Ecalls,
    index: u32,
    subscription: Subscription,
    seen: Arc<Mutex<Seen>>,
    reader: Reader,
}

/// A reader thread. Dropping it ends it.
#[derive(Debug)]
struct Reader {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A reader that panicked has said so.
            let _ = thread.join();
        }
    }
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

    /// The sockets once more, through a filter.
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
        let stat = ecalls.access().service_stat(index)?;
        if stat.costs.is_empty() {
            return Err(ecalls::Error::Unsupported {
                feature: "program of this service in the running core",
                since: "a core that has one",
            });
        }
        let channel = ecalls.channel().ring(RING).open()?;
        let mut builder = ecalls.subscribe(name)?.deadline(deadline);
        if let Some(text) = &text {
            builder = builder.ecode_named("filter", text);
        }
        let subscription = builder.memory(&channel).install()?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let ending = Arc::new(AtomicBool::new(false));
        let (into, stop) = (Arc::clone(&seen), Arc::clone(&ending));
        let thread = thread::Builder::new()
            .name(format!("read-{name}"))
            .spawn(move || read(channel, &into, &stop, &ours))
            .map_err(|source| ecalls::Error::Os {
                action: "starting a reader",
                source,
            })?;
        Ok(Watched {
            name,
            text,
            kinds: stat.info.kinds().map(str::to_owned).collect(),
            ecalls: ecalls.clone(),
            index,
            subscription,
            seen,
            reader: Reader {
                ending,
                thread: Some(thread),
            },
        })
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> Seen {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What the kernel side counted of the subscription.
    pub(super) fn count(&self) -> Result<SubscriptionCount, Failure> {
        Ok(self.subscription.count()?)
    }

    /// What it counted of the whole service, since the core was loaded.
    pub(super) fn service_count(&self) -> Result<ServiceCount, Failure> {
        Ok(self.ecalls.access().service_stat(self.index)?.count)
    }

    /// Whether the reader still runs.
    pub(super) fn is_read(&self) -> bool {
        self.reader
            .thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

fn read(mut channel: Channel, seen: &Mutex<Seen>, stop: &AtomicBool, ours: &Ours) {
    while !stop.load(Ordering::Relaxed) {
        // One more look than there were events: what came meanwhile is read now.
        while read_batch(&mut channel, seen, ours) {}
        thread::sleep(PACE);
    }
}

/// Reads what waits, up to a batch. False: nothing waits any more.
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
