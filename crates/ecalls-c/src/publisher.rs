//! Publishers: programs that submit events to a channel among hosts. Man page: ecalls_publisher(3).

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use ecalls::{Ecalls, Error};
use ecalls_abi::service::SubscriptionCount;
use ecalls_abi::sink::SINKS_MAX;
use ecalls_abi::version::DATA_MAX;
use ecalls_abi::wire::WIRE_ATTRIBUTES;
use ecalls_channel::frame::Submission;
use ecalls_channel::{ClientPublisher, Publisher, Sent};

use crate::error::{Failure, Outcome, guard};
use crate::host::HostHandle;
use crate::net_channel::ip;
use crate::pointer::{
    Options, bytes, give, options, output, reference, take_back, text, texts, write_optional,
};

/// An attribute of this host, which travels with an event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetAttribute {
    /// Its number, below ECALLS_ATTRIBUTES.
    pub number: u64,
    /// Its value.
    pub value: u64,
}

/// An event to submit to a channel among hosts.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetSubmission {
    /// Size of this struct.
    pub size: u32,
    /// Kind of the event, 0 to 31.
    pub kind: u32,
    /// Selects the slot in channels whose slots are used by type.
    pub r#type: u32,
    /// Selects the slot in channels whose slots are used by priority; 0 is the most urgent.
    pub priority: u32,
    /// The event is discarded and counted where it is not delivered within this time, us;
    /// hosts need no common clock. 0: no deadline.
    pub deadline_us: u64,
    /// The data, in the channel's format. NULL: none.
    pub data: *const c_void,
    /// Size of the data in bytes, at most ECALLS_DATA_MAX.
    pub data_size: u64,
    /// Attributes of this host that it tells. NULL: none.
    pub attributes: *const NetAttribute,
    /// Number of attributes, at most 8.
    pub attribute_count: u64,
}

// SAFETY: repr(C), begins with a u32, integers and pointers, no padding.
unsafe impl Options for NetSubmission {
    const LEAST: usize = 56;
}

const _: () = assert!(
    size_of::<NetSubmission>() == NetSubmission::LEAST,
    "the first version"
);

/// How an event was submitted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetSent {
    /// 1: the kernel side sends it, to those sinks that the channel's filter chooses, if it
    /// has one; ecalls_publisher_fates() says what it has done. Then `sinks` and `failed`
    /// are 0.
    pub filtered: u64,
    /// Sinks to which it was sent.
    pub sinks: u64,
    /// Sinks to which it could not be sent; they will count it as missing.
    pub failed: u64,
    /// Subscriptions on this host to which it was offered.
    pub offered: i64,
}

#[derive(Debug)]
enum By {
    Host(Box<Publisher>),
    Client(Box<ClientPublisher>),
}

/// `ecalls_publisher_t`.
#[derive(Debug)]
pub struct PublisherHandle(By);

/// Prepares to submit events to a channel that a program of this host has open: to its sinks of
/// each moment if `sink_count` is 0, otherwise to the hosts with these addresses, at most 64.
/// -ENOENT: no program of this host has it open; -EPERM: without root, and without a daemon whose
/// configuration permits this user to publish on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_publisher_open(
    ecalls: *const HostHandle,
    channel: *const c_char,
    sinks: *const *const c_char,
    sink_count: u32,
    publisher: *mut *mut PublisherHandle,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: a text (the root's Safety).
        let channel = unsafe { text(channel, "the channel's name") }?;
        // SAFETY: so many texts (the root's Safety).
        let sinks = unsafe { texts(sinks, sink_count, SINKS_MAX, "sink") }?;
        let place = output(publisher, "the place for the publisher")?;
        let opened = open(&host.0, channel, &sinks)?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, PublisherHandle(opened)) };
        Ok(0)
    })
}

/// Ends a publisher. An event that the kernel side has under way for it is lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_publisher_close(publisher: *mut PublisherHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(publisher) };
}

/// Submits an event (KECho §2): a frame to each sink, of which the channel's filter chooses if the
/// publisher names none, and the same event on this host. A sink that cannot be reached does not
/// keep it from the others. `sent` may be NULL.
/// -EINVAL: data that the channel's format does not describe, an impossible kind, or attributes
/// where the filter chooses; -EDQUOT: this user may submit no more now, which is counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_publisher_submit(
    publisher: *const PublisherHandle,
    submission: *const NetSubmission,
    sent: *mut NetSent,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let publisher = unsafe { reference(publisher, "the publisher") }?;
        // SAFETY: options, and what they point to (the root's Safety).
        let submission = unsafe { build(submission) }?;
        let done = match &publisher.0 {
            By::Host(publisher) => how(&publisher.submit(&submission)?),
            By::Client(publisher) => {
                if !publisher.submit(&submission)? {
                    let text = "this user's limits let it submit no more now";
                    return Err(Failure::new(libc::EDQUOT, text));
                }
                NetSent {
                    filtered: 1,
                    sinks: 0,
                    failed: 0,
                    offered: 0,
                }
            }
        };
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(sent, done) };
        Ok(0)
    })
}

/// The same to all sinks, past the channel's filter: for what this host tells of itself, by
/// attributes, and by which the filters of other hosts choose. -EPERM: without root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_publisher_tell(
    publisher: *const PublisherHandle,
    submission: *const NetSubmission,
    sent: *mut NetSent,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let publisher = unsafe { reference(publisher, "the publisher") }?;
        // SAFETY: options, and what they point to (the root's Safety).
        let submission = unsafe { build(submission) }?;
        let By::Host(publisher) = &publisher.0 else {
            let text = "only programs of root tell what this host is: others pass the filter";
            return Err(Failure::new(libc::EPERM, text));
        };
        let done = how(&publisher.tell(&submission)?);
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(sent, done) };
        Ok(0)
    })
}

/// Writes what has become of the events that were submitted with `filtered` 1, once that is known
/// of all, after `timeout_us` at the latest: delivered to the channel's buffer, from where the
/// kernel side sends them; filtered, since the filter chose no sink or there is none; or dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_publisher_fates(
    publisher: *const PublisherHandle,
    timeout_us: u64,
    counts: *mut SubscriptionCount,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let publisher = unsafe { reference(publisher, "the publisher") }?;
        let place = output(counts, "the place for the counters")?;
        let time = Duration::from_micros(timeout_us);
        let fates = match &publisher.0 {
            By::Host(publisher) => publisher.fates(time)?.unwrap_or_default(),
            By::Client(publisher) => publisher.fates(time)?,
        };
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(fates) };
        Ok(0)
    })
}

fn open(ecalls: &Ecalls, channel: &str, sinks: &[&str]) -> Outcome<By> {
    if sinks.is_empty() {
        return Ok(match ecalls.lane() {
            Err(Error::Denied { .. }) => {
                By::Client(Box::new(ClientPublisher::new(ecalls, channel)?))
            }
            _ => By::Host(Box::new(Publisher::to_sinks(ecalls, channel)?)),
        });
    }
    let addresses: Outcome<Vec<_>> = sinks.iter().map(|sink| ip(sink)).collect();
    let publisher = Publisher::new(ecalls, channel, addresses?)?;
    Ok(By::Host(Box::new(publisher)))
}

fn how(sent: &Sent) -> NetSent {
    NetSent {
        filtered: sent.is_filtered.into(),
        sinks: sent.sinks as u64,
        failed: sent.failed.len() as u64,
        offered: sent.offered,
    }
}

/// # Safety
/// `pointer` is null or options, and what they point to is as the crate root demands.
unsafe fn build(pointer: *const NetSubmission) -> Outcome<Submission> {
    // SAFETY: the caller's promise.
    let given = unsafe { options(pointer, "the submission") }?;
    let size = usize::try_from(given.data_size).unwrap_or(usize::MAX);
    if size > DATA_MAX {
        let text = format!("data_size is {size}: a frame holds {DATA_MAX} bytes");
        return Err(Failure::invalid(text));
    }
    // SAFETY: the caller's promise; few enough.
    let data = unsafe { bytes(given.data.cast::<u8>(), size, "the data") }?;
    let count = usize::try_from(given.attribute_count).unwrap_or(usize::MAX);
    if count > WIRE_ATTRIBUTES {
        let text = format!("attribute_count is {count}: 0 to {WIRE_ATTRIBUTES}");
        return Err(Failure::invalid(text));
    }
    let mut attributes = Vec::with_capacity(count);
    for at in 0..count {
        let first = output(given.attributes.cast_mut(), "the array of attributes")?;
        // SAFETY: `count` attributes are there, by the caller's promise.
        let place = unsafe { first.as_ptr().add(at) };
        // SAFETY: as above.
        let attribute = unsafe { place.read() };
        let number = u8::try_from(attribute.number)
            .map_err(|_| Failure::invalid("an attribute's number is below 32"))?;
        attributes.push((number, attribute.value));
    }
    Ok(Submission {
        data: data.to_vec(),
        kind: given.kind,
        slot_type: given.r#type,
        priority: given.priority,
        left_ns: given.deadline_us.saturating_mul(1000),
        attributes,
    })
}
