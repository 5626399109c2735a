//! Subscriptions: the actions for each event of a service. Man page: ecalls_subscribe(3).

use std::ffi::{c_char, c_int};
use std::time::Duration;

use ecalls::{Ecalls, Subscription, SubscriptionBuilder};
use ecalls_abi::downcall::ATTRIBUTES;
use ecalls_abi::service::SubscriptionCount;
use ecalls_abi::version::ACTIONS_MAX;

use crate::action::SubscribeAction;
use crate::channel::ChannelHandle;
use crate::error::{Failure, Outcome, guard};
use crate::host::HostHandle;
use crate::pointer::{
    Options, give, optional_text, options, output, reference, sized, take_back, text, texts,
    write_text,
};

/// The events to receive, and the actions for each (struct ecalls of ECalls-05 §3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SubscribeOptions {
    /// Size of this struct.
    pub size: u32,
    /// Size of one action: sizeof(struct ecalls_subscribe_action).
    pub action_size: u32,
    /// The actions, in order.
    pub actions: *const SubscribeAction,
    /// Number of actions: 1 to ECALLS_ACTIONS_MAX.
    pub action_count: u32,
    /// Bit k selects events of kind k. 0: all.
    pub kinds: u32,
    /// The receiver (process_id of struct ecalls): signals go to it, and an event's target is
    /// compared with it. 0: this process.
    pub receiver: u32,
    /// Only events raised in this process. 0: in any process.
    pub pid: u32,
    /// Events not delivered within this time are discarded and counted, us. 0: none.
    pub deadline_us: u64,
    /// Channel that shows the counts of events that were not delivered, and the histogram.
    /// NULL: that of the first MEMORY action.
    pub report: *const ChannelHandle,
    /// Names of the attributes of the reporting channel, in the order of their numbers, for
    /// handlers in E-code.
    pub attributes: *const *const c_char,
    /// Number of attributes: 0 to ECALLS_ATTRIBUTES.
    pub attribute_count: u32,
    /// 1: while an event that is stored in a ring has not been read, it stands for further ones,
    /// which are only counted (ECALLS_DROP_COALESCED). 0: each is stored.
    pub coalesce: u32,
}

// SAFETY: repr(C), begins with a u32, integers and pointers, no padding.
unsafe impl Options for SubscribeOptions {
    const LEAST: usize = 48;
}

const _: () = assert!(
    std::mem::offset_of!(SubscribeOptions, attributes) == SubscribeOptions::LEAST,
    "behind the first version"
);

/// `ecalls_subscription_t`.
#[derive(Debug)]
pub struct SubscriptionHandle(Subscription);

/// Subscribes to the service of that name; events arrive from then on (ECalls-05 §3).
/// -ENOENT: there is no such service, kernel handler or field; the text lists the existing ones.
/// -EINVAL: an option is invalid, or the E-code has errors, which the text lists with their places;
/// -ENOSPC: the service has the largest number of subscriptions; -ESHUTDOWN: the receiver does not
/// exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_subscribe(
    ecalls: *const HostHandle,
    service: *const c_char,
    options: *const SubscribeOptions,
    subscription: *mut *mut SubscriptionHandle,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: a text (the root's Safety).
        let name = unsafe { text(service, "the service's name") }?;
        // SAFETY: options (the root's Safety).
        let given = unsafe { self::options(options, "the subscription's options") }?;
        let place = output(subscription, "the place for the subscription")?;
        // SAFETY: what the options point to is as the root's Safety demands.
        let installed = unsafe { subscribe(&host.0, name, &given) }?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, SubscriptionHandle(installed)) };
        Ok(0)
    })
}

/// Ends a subscription. Waits for a handler of the program that is running, unless that handler
/// calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_unsubscribe(subscription: *mut SubscriptionHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(subscription) };
}

/// Writes the id of the subscription: `subscription` of its events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_subscription_id(
    subscription: *const SubscriptionHandle,
    id: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let subscription = unsafe { reference(subscription, "the subscription") }?;
        let place = output(id, "the place for the id")?;
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(subscription.0.id().raw()) };
        Ok(0)
    })
}

/// Writes the subscription's counters: offered, delivered, filtered, late, dropped by reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_subscription_counts(
    subscription: *const SubscriptionHandle,
    counts: *mut SubscriptionCount,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let subscription = unsafe { reference(subscription, "the subscription") }?;
        let place = output(counts, "the place for the counters")?;
        let counted = subscription.0.count()?;
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(counted) };
        Ok(0)
    })
}

/// Replaces handler number `number` in E-code, counted from 0, while events arrive: each event
/// meets either the old handler or the new one. Static variables of the same name and type keep
/// their values. `name`: the text's name in messages; NULL: "ecode".
/// -EINVAL: the text has errors, or another output than the following handlers were compiled for;
/// -ESHUTDOWN: there is no such handler. In these cases the old handler stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_subscription_replace(
    subscription: *const SubscriptionHandle,
    number: u32,
    name: *const c_char,
    text: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let subscription = unsafe { reference(subscription, "the subscription") }?;
        // SAFETY: a text (the root's Safety).
        let name = match unsafe { optional_text(name, "the text's name") }? {
            "" => "ecode",
            name => name,
        };
        // SAFETY: a text (the root's Safety).
        let text = unsafe { self::text(text, "the handler's text") }?;
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        subscription.0.replace_ecode_at(number, name, text)?;
        Ok(0)
    })
}

/// Writes the format of the data at the end of the chain: that of the service, or the output of the
/// last handler in E-code that has one. The arguments are those of ecalls_format().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_subscription_format(
    subscription: *const SubscriptionHandle,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let subscription = unsafe { reference(subscription, "the subscription") }?;
        // SAFETY: an output (the root's Safety).
        unsafe { write_text(&subscription.0.format(), buffer, size) }
    })
}

/// Writes the compiler's warnings about the texts in E-code (an unused variable, a condition that
/// never holds): messages with their places, each with a line feed at its end. The arguments are
/// those of ecalls_format(); 0: there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_subscription_warnings(
    subscription: *const SubscriptionHandle,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let subscription = unsafe { reference(subscription, "the subscription") }?;
        let warnings = subscription.0.warnings().into_iter();
        let text: String = warnings.map(|warning| warning + "\n").collect();
        // SAFETY: an output (the root's Safety).
        unsafe { write_text(&text, buffer, size) }
    })
}

/// # Safety
/// As [`subscribe`].
unsafe fn with_attributes(
    builder: SubscriptionBuilder,
    given: &SubscribeOptions,
) -> Outcome<SubscriptionBuilder> {
    let (names, count) = (given.attributes, given.attribute_count);
    // SAFETY: the caller's promise.
    let names = unsafe { texts(names, count, ATTRIBUTES, "attribute") }?;
    Ok(match names[..] {
        [] => builder,
        _ => builder.attributes(&names),
    })
}

/// # Safety
/// What `given` points to is as the crate root demands.
unsafe fn subscribe(
    ecalls: &Ecalls,
    service: &str,
    given: &SubscribeOptions,
) -> Outcome<Subscription> {
    let mut builder = with_kinds(ecalls, service, given.kinds)?
        .pid(given.pid)
        .deadline(Duration::from_micros(given.deadline_us));
    if given.receiver != 0 {
        builder = builder.receiver(given.receiver);
    }
    match given.coalesce {
        0 => {}
        1 => builder = builder.coalesce(),
        other => return Err(Failure::invalid(format!("coalesce is {other}: 0 or 1"))),
    }
    let count = usize::try_from(given.action_count).unwrap_or(usize::MAX);
    if count == 0 || count > ACTIONS_MAX {
        let text = format!("action_count is {count}: 1 to {ACTIONS_MAX}");
        return Err(Failure::invalid(text));
    }
    let first = output(given.actions.cast_mut(), "the array of actions")?;
    for index in 0..count {
        let offset = index * usize::try_from(given.action_size).unwrap_or(0);
        // SAFETY: `count` actions of `action_size` bytes are there, by the caller's promise.
        let place = unsafe { first.as_ptr().byte_add(offset) };
        // SAFETY: as above.
        let action = unsafe { sized(place, given.action_size, "the actions") }?;
        // SAFETY: the caller's promise.
        builder = unsafe { action.add_to(builder) }
            .map_err(|failure| failure.at(format!("action {index}")))?;
    }
    // SAFETY: the caller's promise.
    builder = unsafe { with_attributes(builder, given) }?;
    if !given.report.is_null() {
        // SAFETY: the caller's promise.
        let channel = unsafe { reference(given.report, "the report's channel") }?;
        builder = builder.report_to(&channel.reader());
    }
    Ok(builder.install()?)
}

/// A subscription to the kinds whose bits are set. The Rust library takes kinds by name.
fn with_kinds(ecalls: &Ecalls, service: &str, kinds: u32) -> Outcome<SubscriptionBuilder> {
    let builder = ecalls.subscribe(service)?;
    if kinds == 0 {
        return Ok(builder);
    }
    let core = ecalls.access();
    let info = core.service_stat(core.find_service(service)?)?.info;
    let names: Vec<&str> = info.kinds().collect();
    let known = u32::try_from((1u64 << names.len().min(32)) - 1).unwrap_or(u32::MAX);
    if kinds & !known != 0 {
        let text = format!(
            "kinds is {kinds:#x}: this service has {} kinds ({})",
            names.len(),
            names.join(", ")
        );
        return Err(Failure::invalid(text));
    }
    let wanted: Vec<&str> = (0..names.len())
        .filter(|kind| kinds & 1 << kind != 0)
        .map(|kind| names[kind])
        .collect();
    Ok(builder.kinds(&wanted))
}
