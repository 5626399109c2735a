//! `abi/guard.h`: what a server tells the guard of its port.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The abstract name at which the guard of a port listens begins so; the port follows in digits.
pub const GUARD_NAME: &str = "ecalls-guard/";
/// `told`: the other words are the server's.
pub const GUARD_PAGE_TOLD: u64 = 1;

/// `struct ecalls_guard_page`: the queue within a server. Each field is a word of its own.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct GuardPage {
    /// [`GUARD_PAGE_TOLD`]; 0: nothing is told.
    pub told: u64,
    /// Accepted connections whose request waits or is served.
    pub numconnects: u64,
    /// `CLOCK_MONOTONIC`: since when the first of them waits; 0: none does.
    pub since_ns: u64,
    /// Requests that are answered, ever.
    pub served: u64,
}

const _: () = assert!(size_of::<GuardPage>() == 32, "guard page");
