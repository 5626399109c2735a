//! Services of one's own (ECalls-05 §3): register a unique name, raise events for others.

use std::sync::Arc;
use std::time::Duration;

use ::ecode::source::Source;
use ecalls_abi::downcall::RAISE_ABSOLUTE;
use ecalls_abi::event::{EVENT_CPU, TARGET_ALL, TARGET_WAKE_ONE, Target};
use ecalls_kernel::handle::ServiceHandle;
use ecalls_kernel::raise::Raise as KernelRaise;

use crate::Result;
use crate::host::Ecalls;

/// A service added from a BPF object file or from a text in E-code, whose programs raise its events
/// in the kernel. It ends when this is dropped, and with the process. See bpf/ecalls/service.bpf.h
/// and `man 7 ecode`.
#[derive(Debug)]
pub struct Provider(ecalls_kernel::provider::Provider);

impl Provider {
    pub(crate) fn add(ecalls: &Ecalls, object: &[u8]) -> Result<Provider> {
        ecalls_kernel::provider::Provider::add(ecalls.access(), object).map(Provider)
    }

    pub(crate) fn add_ecode(ecalls: &Ecalls, source: &Source) -> Result<Provider> {
        let (tracepoint, compiled) = crate::ecode::compile_service(source)?;
        let access = ecalls.access();
        ecalls_kernel::provider::Provider::add_ecode(access, &tracepoint, &compiled, source)
            .map(Provider)
    }

    /// How often the kernel skipped its programs because they, or others of their kind, were active
    /// on that CPU: what was not looked at.
    ///
    /// # Errors
    /// [`crate::Error::Os`].
    pub fn skipped(&self) -> Result<u64> {
        self.0.skipped()
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.0.index()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.name()
    }
}

/// What is raised: the arguments of raise_event (ECalls-05 §3).
#[derive(Clone, Debug)]
pub struct Raise<'a> {
    target: i32,
    kind: u32,
    slot_type: u32,
    priority: u32,
    cpu: bool,
    deadline: Option<Duration>,
    release: Option<Duration>,
    absolute: bool,
    data: &'a [u8],
}

impl<'a> Raise<'a> {
    /// An event for every subscription, of kind 0, without deadline.
    pub fn new(data: &'a [u8]) -> Raise<'a> {
        Raise {
            target: TARGET_ALL,
            kind: 0,
            slot_type: 0,
            priority: 0,
            cpu: false,
            deadline: None,
            release: None,
            absolute: false,
            data,
        }
    }

    /// For whom: one process, all, or one of them in turn.
    #[must_use]
    pub fn target(mut self, target: Target) -> Raise<'a> {
        self.target = target.raw().unwrap_or(TARGET_ALL);
        self
    }

    /// For one of the subscriptions, in turn (round robin).
    #[must_use]
    pub fn wake_one(mut self) -> Raise<'a> {
        self.target = TARGET_WAKE_ONE;
        self
    }

    /// What happened, 0 to 31.
    #[must_use]
    pub fn kind(mut self, kind: u32) -> Raise<'a> {
        self.kind = kind;
        self
    }

    /// Which typed slot it belongs to ([`crate::SlotUse::Type`]).
    #[must_use]
    pub fn slot_type(mut self, slot_type: u32) -> Raise<'a> {
        self.slot_type = slot_type;
        self
    }

    /// Which priority slot it belongs to ([`crate::SlotUse::Priority`]); 0 is the most urgent.
    #[must_use]
    pub fn priority(mut self, priority: u32) -> Raise<'a> {
        self.priority = priority;
        self
    }

    /// Discarded, and counted, when not delivered within this time (of its release, if later).
    /// Kept in whole microseconds.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Raise<'a> {
        self.deadline = Some(deadline);
        self
    }

    /// Not delivered before this time has passed. Kept in whole microseconds.
    #[must_use]
    pub fn release(mut self, release: Duration) -> Raise<'a> {
        self.release = Some(release);
        self
    }

    /// The same two as times of CLOCK_MONOTONIC ([`crate::now_ns`]), in ns, kept in whole
    /// microseconds; None: none. The deadline may then also be before the release.
    #[must_use]
    pub fn at(mut self, release_ns: Option<u64>, deadline_ns: Option<u64>) -> Raise<'a> {
        self.absolute = true;
        self.release = release_ns.map(Duration::from_nanos);
        self.deadline = deadline_ns.map(Duration::from_nanos);
        self
    }

    /// Asks for event-aware CPU scheduling of the receiver (ECalls-05 §4): of the thread that reads
    /// the channel, see [`crate::downcall::Caller::sink_slot`].
    #[must_use]
    pub fn cpu(mut self) -> Raise<'a> {
        self.cpu = true;
        self
    }

    pub(crate) fn to_kernel(&self) -> KernelRaise<'a> {
        KernelRaise {
            target: self.target,
            kind: self.kind,
            kind_type: self.slot_type,
            priority: self.priority,
            flags: flag(self.cpu, EVENT_CPU) | flag(self.absolute, RAISE_ABSOLUTE),
            deadline_us: microseconds(self.deadline),
            release_us: microseconds(self.release),
            data: self.data,
        }
    }
}

fn flag(set: bool, bit: u32) -> u32 {
    if set { bit } else { 0 }
}

/// Whole microseconds, rounded up: 0 means none.
fn microseconds(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| {
        u64::try_from(time.as_nanos().div_ceil(1000))
            .unwrap_or(u64::MAX)
            .max(1)
    })
}

/// A service that this program registered. Dropping it unregisters it.
#[derive(Debug)]
pub struct Service(ServiceHandle);

impl Service {
    pub(crate) fn register(
        ecalls: &Ecalls,
        name: &str,
        format: &str,
        kinds: &str,
    ) -> Result<Service> {
        Ok(Service(ServiceHandle::register(
            Arc::clone(ecalls.access()),
            name,
            format,
            kinds,
        )?))
    }

    /// Its index, for [`crate::downcall::Call::Raise`].
    pub fn index(&self) -> u32 {
        self.0.index()
    }

    /// Raises an event. Returns how many subscriptions it is for (now, or at its release time);
    /// 0: nobody subscribed, and it was dropped and counted.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for more than 168 bytes of data; [`crate::Error::Quota`] when this
    /// user raises more, or has more events waiting, than the daemon lets it; [`crate::Error::Os`]
    /// with ENOSPC when the queue is full and this deadline the latest.
    pub fn raise(&self, raise: &Raise<'_>) -> Result<i64> {
        self.0.raise(&raise.to_kernel())
    }
}
