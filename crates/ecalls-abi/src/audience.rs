//! `abi/audience.h`: the subscriptions that are offered an event of a built-in service in addition
//! to the service's own list.
//!
//! Subscriptions with scope OWN are in two audiences: that of their receiver's process and that of
//! their owner's user. An audience is a chain of rows, which never changes while it is read.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::version::SUBSCRIBERS_MAX;

/// Rows of the table; row 0 is none.
pub const AUDIENCE_ROWS: usize = 8448;
/// Subscriptions of one audience.
pub const AUDIENCE_MAX: usize = 256;

/// `sort`: of events with process `who` as target.
pub const AUDIENCE_PID: u16 = 0;
/// `sort`: of other events, of user `who`.
pub const AUDIENCE_UID: u16 = 1;

/// `state`: the row is unused.
pub const AUDIENCE_FREE: u32 = 0;
/// `state`: part of an audience.
pub const AUDIENCE_USED: u32 = 1;
/// `state`: out of use since `retired_ns`; a program may still read it.
pub const AUDIENCE_RETIRED: u32 = 2;

/// `struct ecalls_audience_key`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct AudienceKey {
    /// Index of the service.
    pub service: u16,
    /// [`AUDIENCE_PID`] or [`AUDIENCE_UID`].
    pub sort: u16,
    /// The process or the user.
    pub who: u32,
}

const _: () = assert!(size_of::<AudienceKey>() == 8, "audience key");

/// `struct ecalls_audience`: one row.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Audience {
    /// [`AUDIENCE_FREE`], ..; host only.
    pub state: u32,
    /// Next row of the audience; 0: none.
    pub next: u32,
    /// First row: smallest relative deadline of all; 0: none.
    pub deadline_ns: u64,
    /// Host only.
    pub retired_ns: u64,
    /// Subscriptions in this row.
    pub count: u32,
    /// Zero.
    pub pad: u32,
    /// Indices, in order of delivery.
    pub list: [u32; SUBSCRIBERS_MAX],
}

const _: () = assert!(size_of::<Audience>() == 288, "audience");
