//! Services of the program: it registers a name and raises events for other programs. Man page:
//! ecalls_service(3).

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use ecalls::{Raise, Service, Target};
use ecalls_abi::downcall::RAISE_ABSOLUTE;
use ecalls_abi::event::EVENT_CPU;
use ecalls_abi::version::DATA_LARGE;

use crate::error::{Failure, Outcome, guard};
use crate::host::HostHandle;
use crate::pointer::{
    Options, bytes, give, optional_text, options, output, reference, take_back, text,
    write_optional,
};

/// An event to raise: the arguments of raise_event (ECalls-05 §3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RaiseOptions {
    /// Size of this struct.
    pub size: u32,
    /// The receiver: a process id, ECALLS_TARGET_ALL or ECALLS_TARGET_WAKE_ONE. Not 0.
    pub target: i32,
    /// Kind of the event, 0 to 31.
    pub kind: u32,
    /// Selects the slot in channels whose slots are used by type.
    pub r#type: u32,
    /// Selects the slot in channels whose slots are used by priority; 0 is the most urgent.
    pub priority: u32,
    /// ECALLS_EVENT_CPU asks for event-aware CPU scheduling of the receiver (ECalls-05 §4).
    /// ECALLS_RAISE_ABSOLUTE makes the two times below times of CLOCK_MONOTONIC.
    pub flags: u32,
    /// The event is discarded and counted if it is not delivered within this time (after its
    /// release time, if that is later), us. 0: no deadline.
    pub deadline_us: u64,
    /// The event is not delivered before this time has passed, us. 0: at once.
    pub release_us: u64,
    /// The data. NULL: none.
    pub data: *const c_void,
    /// Size of the data in bytes, at most ECALLS_DATA_LARGE; with a release time
    /// ECALLS_DATA_MAX.
    pub data_size: u64,
}

// SAFETY: repr(C), begins with a u32, integers and a pointer, no padding.
unsafe impl Options for RaiseOptions {
    const LEAST: usize = 56;
}

const _: () = assert!(
    size_of::<RaiseOptions>() == RaiseOptions::LEAST,
    "the first version"
);

/// `ecalls_service_t`.
#[derive(Debug)]
pub struct ServiceHandle(Service);

/// Registers a service of this program by a unique name (ECalls-05 §3). `format` describes its data
/// as the fields of a C struct: "u64 load; u32 threads"; `kinds` names its kinds: "high low". Both
/// may be NULL: no data, kinds without names.
/// -EINVAL: the name is taken or not well-formed; -ENOSPC: all services of the core are in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_service_register(
    ecalls: *const HostHandle,
    name: *const c_char,
    format: *const c_char,
    kinds: *const c_char,
    service: *mut *mut ServiceHandle,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: a text (the root's Safety).
        let name = unsafe { text(name, "the service's name") }?;
        // SAFETY: a text (the root's Safety).
        let format = unsafe { optional_text(format, "the format") }?;
        // SAFETY: a text (the root's Safety).
        let kinds = unsafe { optional_text(kinds, "the kinds") }?;
        let place = output(service, "the place for the service")?;
        let registered = host.0.register_service(name, format, kinds)?;
        // SAFETY: an output (the root's Safety).
        unsafe { give(place, ServiceHandle(registered)) };
        Ok(0)
    })
}

/// Unregisters a service. Subscriptions to it stay, and receive its events if it is registered
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_service_unregister(service: *mut ServiceHandle) {
    // SAFETY: a handle (the root's Safety).
    unsafe { take_back(service) };
}

/// Writes the index of the service: `service` of its events, and the argument of ECALLS_OP_RAISE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_service_index(
    service: *const ServiceHandle,
    index: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let service = unsafe { reference(service, "the service") }?;
        let place = output(index, "the place for the index")?;
        // SAFETY: an output (the root's Safety).
        unsafe { place.write(service.0.index()) };
        Ok(0)
    })
}

/// Raises an event of a service of this program (ECalls-05 §3). `raise` NULL: kind 0 for all
/// subscriptions, without data. `offered` may be NULL; it is the number of subscriptions to which
/// the event was offered at once; 0 if the event waits for its release time, or if no subscription
/// matched, which is counted.
/// -EINVAL: too much data; -ENOSPC: the queue is full and this deadline is the latest; -EDQUOT:
/// this user raises more events, or has more events waiting, than the daemon permits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_service_raise(
    service: *const ServiceHandle,
    raise: *const RaiseOptions,
    offered: *mut i64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let service = unsafe { reference(service, "the service") }?;
        // SAFETY: options (the root's Safety).
        let given = unsafe { raise_options(raise) }?;
        // SAFETY: the data is as the root's Safety demands.
        let count = service.0.raise(&unsafe { build(given.as_ref()) }?)?;
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(offered, count) };
        Ok(0)
    })
}

/// The same by the name of a service: the generic call (ECalls-01 §2.3.1), which may block.
/// -ENOENT: there is no such service; -EPERM: the service is built in, or belongs to another
/// process and the caller is not root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ecalls_raise(
    ecalls: *const HostHandle,
    service: *const c_char,
    raise: *const RaiseOptions,
    offered: *mut i64,
) -> c_int {
    guard(|| {
        // SAFETY: a handle (the root's Safety).
        let host = unsafe { reference(ecalls, "ecalls") }?;
        // SAFETY: a text (the root's Safety).
        let name = unsafe { text(service, "the service's name") }?;
        // SAFETY: options (the root's Safety).
        let given = unsafe { raise_options(raise) }?;
        // SAFETY: the data is as the root's Safety demands.
        let count = host.0.raise(name, &unsafe { build(given.as_ref()) }?)?;
        // SAFETY: an output (the root's Safety).
        unsafe { write_optional(offered, count) };
        Ok(0)
    })
}

/// # Safety
/// `pointer` is null or options.
unsafe fn raise_options(pointer: *const RaiseOptions) -> Outcome<Option<RaiseOptions>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { options(pointer, "the event") }.map(Some)
}

/// # Safety
/// The data is not changed during `'a`.
unsafe fn build<'a>(given: Option<&RaiseOptions>) -> Outcome<Raise<'a>> {
    let Some(given) = given else {
        return Ok(Raise::new(&[]));
    };
    let target = match Target::from_raw(given.target) {
        None | Some(Target::Process(0)) => {
            return Err(Failure::invalid(format!(
                "target is {}: a process id, ECALLS_TARGET_ALL or ECALLS_TARGET_WAKE_ONE",
                given.target
            )));
        }
        Some(target) => target,
    };
    if given.flags & !(EVENT_CPU | RAISE_ABSOLUTE) != 0 {
        let text = format!(
            "flags is {:#x}: ECALLS_EVENT_CPU, ECALLS_RAISE_ABSOLUTE",
            given.flags
        );
        return Err(Failure::invalid(text));
    }
    let size = usize::try_from(given.data_size).unwrap_or(usize::MAX);
    if size > DATA_LARGE {
        let text = format!("data_size is {size}: an event holds {DATA_LARGE} bytes");
        return Err(Failure::invalid(text));
    }
    // SAFETY: the caller's promise; few enough.
    let data = unsafe { bytes(given.data.cast::<u8>(), size, "the data") }?;
    let mut raise = Raise::new(data)
        .target(target)
        .kind(given.kind)
        .slot_type(given.r#type)
        .priority(given.priority);
    if given.flags & EVENT_CPU != 0 {
        raise = raise.cpu();
    }
    Ok(with_times(raise, given))
}

fn with_times<'a>(mut raise: Raise<'a>, given: &RaiseOptions) -> Raise<'a> {
    if given.flags & RAISE_ABSOLUTE != 0 {
        let ns = |us: u64| (us != 0).then(|| us.saturating_mul(1000));
        return raise.at(ns(given.release_us), ns(given.deadline_us));
    }
    if given.deadline_us != 0 {
        raise = raise.deadline(Duration::from_micros(given.deadline_us));
    }
    if given.release_us != 0 {
        raise = raise.release(Duration::from_micros(given.release_us));
    }
    raise
}
