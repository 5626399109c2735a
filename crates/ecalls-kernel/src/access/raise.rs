//! Raises events of application services (ECalls-05 §3, raise_event), by the generic call.

use std::time::Duration;

use ecalls_abi::downcall::{Generic, Op, RAISE_ABSOLUTE};
use ecalls_abi::event::{EVENT_CPU, TARGET_ALL, TARGET_WAKE_ONE, Target};
use ecalls_abi::version::{DATA_INLINE, DATA_LARGE, DATA_MAX};
use zerocopy::IntoBytes;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::kernel::segment::PAGE;

/// The arguments of raise_event (ECalls-05 §3).
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

    /// The receivers: one process, all, or one of them in turn.
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

    /// The kind of the event, 0 to 31.
    #[must_use]
    pub fn kind(mut self, kind: u32) -> Raise<'a> {
        self.kind = kind;
        self
    }

    /// The typed slot to which it belongs (`SlotUse::Type`).
    #[must_use]
    pub fn slot_type(mut self, slot_type: u32) -> Raise<'a> {
        self.slot_type = slot_type;
        self
    }

    /// The priority slot to which it belongs (`SlotUse::Priority`); 0 is the most urgent.
    #[must_use]
    pub fn priority(mut self, priority: u32) -> Raise<'a> {
        self.priority = priority;
        self
    }

    /// The event is discarded and counted if it is not delivered within this time (from its
    /// release, if that is later). Stored in whole microseconds.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Raise<'a> {
        self.deadline = Some(deadline);
        self
    }

    /// The event is not delivered before this time has passed. Stored in whole microseconds.
    #[must_use]
    pub fn release(mut self, release: Duration) -> Raise<'a> {
        self.release = Some(release);
        self
    }

    /// The same two values as times of CLOCK_MONOTONIC ([`crate::now_ns`]), in ns, stored in whole
    /// microseconds; `None`: none. The deadline may then also be before the release.
    #[must_use]
    pub fn at(mut self, release_ns: Option<u64>, deadline_ns: Option<u64>) -> Raise<'a> {
        self.absolute = true;
        self.release = release_ns.map(Duration::from_nanos);
        self.deadline = deadline_ns.map(Duration::from_nanos);
        self
    }

    /// Requests event-aware CPU scheduling of the receiver (ECalls-05 §4), that is, of the thread
    /// that reads the channel; see `Caller::sink_slot`.
    #[must_use]
    pub fn cpu(mut self) -> Raise<'a> {
        self.cpu = true;
        self
    }
}

/// Raises an event of the named application service (the generic call, ECalls-01 §2.3.1). Returns
/// the number of subscriptions to which it is offered.
pub fn raise_by_name(access: &dyn Access, name: &str, raise: &Raise<'_>) -> Result<i64> {
    let mut call = Generic::new(name, Op::Raise).map_err(|_| Error::Invalid {
        what: "the service's name",
        given: format!("{name:?}"),
        expected: "a name of 1 to 31 bytes",
    })?;
    let (most, expected) = match raise.release {
        None => (DATA_LARGE, "at most 65536 bytes"),
        Some(_) => (
            DATA_MAX,
            "at most 2152 bytes in an event that waits for its release",
        ),
    };
    if raise.data.len() > most {
        return Err(Error::Invalid {
            what: "the event's data",
            given: format!("{} bytes", raise.data.len()),
            expected,
        });
    }
    call.target = raise.target;
    call.kind = raise.kind;
    call.r#type = raise.slot_type;
    call.priority = raise.priority;
    call.flags = flag(raise.cpu, EVENT_CPU) | flag(raise.absolute, RAISE_ABSOLUTE);
    call.deadline_us = microseconds(raise.deadline);
    call.release_us = microseconds(raise.release);
    call.size = u32::try_from(raise.data.len()).expect("checked");
    let (first, rest) = raise.data.split_at(raise.data.len().min(DATA_INLINE));
    call.data.as_mut_bytes()[..first.len()].copy_from_slice(first);
    match call_with(access, &mut call, rest)? {
        code if code == -i64::from(libc::ENOENT) && !has_service(access, name)? => {
            Err(Error::Unknown {
                what: "application service",
                name: name.to_owned(),
                hint: "`ecalls services` lists them".to_owned(),
            })
        }
        code if code == -i64::from(libc::EPERM) => Err(Error::Invalid {
            what: "the service",
            given: format!("{name:?}"),
            expected: "an application service of this process (root: of any); the kernel raises \
                       for the built-in ones itself",
        }),
        // There is no subscription: the event is counted as dropped for that reason.
        code if code == -i64::from(libc::ENOENT) => Ok(0),
        code if code == -i64::from(libc::EDQUOT) => Err(Error::Quota {
            which: "raised or waiting events",
            limit: 0,
        }),
        code if code < 0 => Err(Error::from_errno("raising an event", code)),
        offered => Ok(offered),
    }
}

/// Attempts for a call whose data the kernel side could not read, or not deliver at this moment.
const TRIES: u32 = 100;

/// Executes a call with data beyond its record, which the kernel side reads where they are. Each
/// attempt reads every page of them before, since the kernel side cannot wait for a page.
fn call_with(access: &dyn Access, call: &mut Generic, rest: &[u8]) -> Result<i64> {
    if rest.is_empty() {
        return access.generic(call);
    }
    call.rest = rest.as_ptr().addr() as u64;
    let mut result = 0;
    for _ in 0..TRIES {
        let pages = rest.iter().step_by(PAGE).chain(rest.last());
        std::hint::black_box(pages.fold(0u8, |sum, byte| sum ^ byte));
        result = access.generic(call)?;
        let again = [libc::EFAULT, libc::EAGAIN].map(|error| -i64::from(error));
        if !again.contains(&result) {
            break;
        }
    }
    Ok(result)
}

fn has_service(access: &dyn Access, name: &str) -> Result<bool> {
    match access.find_service(name) {
        Ok(_) => Ok(true),
        Err(Error::Unknown { .. }) => Ok(false),
        Err(error) => Err(error),
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
