//! The shared-memory protocols of a channel, as pure algorithms on slices of atomic words.
//!
//! `abi/channel.h` and `abi/downcall.h` define what the kernel side and an application share; this
//! crate is the application's half of it, and a model of the kernel side's half for tests, for loom
//! and for producers in user space. It uses no system call and no map: the owner of the memory
//! passes it as [`Words`], a slice of 64-bit atomics, and there is no `unsafe` here.
//!
//! - [`words`]: the layout of a segment, checked once ([`Shape`]), and the copy of an event;
//! - [`event`]: an event with all of its data, [`Event`];
//! - [`ring`]: events in order of arrival, [`RingReader`] and [`RingWriter`];
//! - [`slots`]: events in slots with a bit pattern, [`SlotsReader`] and [`SlotsWriter`];
//! - [`sleep`]: how a reader goes to sleep without losing a wake-up, [`Sleep`];
//! - [`mod@ready`]: which sockets may be ready, [`Ready`];
//! - [`cells`]: replies that are kept ready for the kernel side, [`Cells`];
//! - [`defer`]: deferred downcalls, [`DeferWriter`] and [`Drain`];
//! - [`edf`]: earliest deadline first among events that wait in user space, [`EdfQueue`].
//!
//! Every word that the other side can write is unverified: an index is masked, a difference
//! bounded, a copy validated. Garbage costs events, but never causes a panic, an access out of
//! bounds, or an endless loop; `tests/hostile.rs` tests this.

#![cfg_attr(not(loom), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

pub mod cells;
pub mod defer;
pub mod edf;
pub mod error;
pub mod event;
pub mod ready;
pub mod ring;
pub mod sleep;
pub mod slots;
mod sync;
pub mod words;

pub use cells::Cells;
pub use defer::{DeferWriter, Drain};
pub use edf::EdfQueue;
pub use error::{BadSegment, Full};
pub use event::Event;
pub use ready::Ready;
pub use ring::{RingReader, RingWriter};
pub use sleep::Sleep;
pub use slots::{Put, SlotsReader, SlotsWriter};
pub use sync::AtomicU64;
pub use words::{Shape, Words};
