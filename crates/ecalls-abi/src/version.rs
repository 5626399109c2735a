//! `abi/version.h`: the version and the limits of the contract.
//!
//! The version is written into the core's `host` map when the core is loaded and compared by every
//! program that joins. Limits are constants of both sides; reaching one is an error with its name.
//! Times are nanoseconds of `CLOCK_MONOTONIC` unless a name says otherwise.

/// Version of the contract; both sides must agree on it exactly.
pub const ABI_VERSION: u32 = 4;

/// Bytes of data in an event's record; the others follow in further entries.
pub const DATA_INLINE: usize = 168;
/// Bytes of data of one event, on every path.
pub const DATA_MAX: usize = 2152;
/// Bytes of data of one event from an application's memory to that of others.
pub const DATA_LARGE: usize = 65536;
/// Services of one core, built in and of applications.
pub const SERVICES_MAX: usize = 256;
/// Subscriptions of one core.
pub const SUBSCRIPTIONS_MAX: usize = 4096;
/// Subscriptions of one service.
pub const SUBSCRIBERS_MAX: usize = 64;
/// Channels of one core.
pub const CHANNELS_MAX: usize = 1024;
/// Actions of one subscription.
pub const ACTIONS_MAX: usize = 8;
/// Registered kernel handlers.
pub const HANDLERS_MAX: usize = 64;
/// Bytes of a name, including its final 0.
pub const NAME_MAX: usize = 32;
/// Bytes of a format text, including its final 0.
pub const FORMAT_MAX: usize = 512;
/// Timers of the timer service.
pub const TIMERS_MAX: usize = 1024;
/// Users whose use is limited; see [`crate::user`].
pub const USERS_MAX: usize = 256;
