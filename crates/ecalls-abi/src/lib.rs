//! The contract between the kernel side and applications, in Rust: a mirror of `abi/*.h`.
//!
//! The headers define the contract. Each header has one module here with the same name, each struct
//! the same fields in the same order, and each constant its header name without the `ECALLS_`
//! prefix. The mirror adds newtypes for numbers that are easily confused ([`Id`], [`Target`],
//! [`DropReason`], [`State`], ...) and methods for the meaning of fields.
//!
//! The structs are plain bytes (`zerocopy`'s traits), so every other crate can view them in a map's
//! value or in shared memory without `unsafe`. A struct that was read from memory which another
//! process can write is unverified: its numbers remain raw integers until a `from_raw` has checked
//! them.
//!
//! tests/layout lists every struct, field and constant as data. One test compares the list with the
//! headers by the C compiler, another (beside the kernel side) with the BTF of the BPF objects.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod activation;
pub mod answer;
pub mod audience;
pub mod channel;
pub mod coop;
pub mod downcall;
pub mod ecode;
pub mod event;
pub mod fate;
pub mod guard;
pub mod handler;
pub mod lane;
pub mod message;
pub mod ready;
pub mod relay;
pub mod runtime;
pub mod sched;
pub mod service;
pub mod sink;
pub mod subscription;
pub mod text;
pub mod upload;
pub mod user;
pub mod version;
pub mod wire;

pub use channel::{Channel, DropReason, Id, Layout, Lost, SlotUse, State, Up};
pub use coop::Coop;
pub use downcall::{Down, Downcall, Generic, Op};
pub use event::{Event, Target};
pub use service::{Host, Service, ServiceCount, ServiceInfo, SubscriptionCount};
pub use subscription::{Action, ActionKind, Subscription};
pub use user::User;
pub use version::ABI_VERSION;

/// The crate whose traits the structs implement, so that users need not specify its version.
pub use zerocopy;
