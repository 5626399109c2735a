//! Events between the Linux kernel and applications, in both directions, with deadlines.
//!
//! A *service* raises events: the kernel's sockets, timers, tasks and scheduler, or another
//! application. A *subscription* says what is done with each: a kernel handler, a handler in a
//! kernel thread, a real-time signal, a handler of yours on a thread of this library, shared
//! memory, in the order you choose, each result deciding whether the next one runs (ECalls-05
//! §3.1). A *channel* is the shared memory you read events from, without a system call while there
//! are any, and write calls to the kernel into. Events that miss their deadline are discarded and
//! counted.
//!
//! ```no_run
//! use ecalls::Ecalls;
//!
//! let ecalls = Ecalls::open()?;
//! let mut channel = ecalls.channel().open()?;
//! let _subscription = ecalls.subscribe("task")?.memory(&channel).install()?;
//! loop {
//!     let event = channel.recv()?;
//!     println!("{}", ecalls.describe(&event));
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), ecalls::Error>(())
//! ```
//!
//! - [`Ecalls`]: the machine's core, loaded or joined;
//! - [`channel`]: shared memory to read from, ring or slots;
//! - [`subscription`]: what is done with events;
//! - [`handler`]: the kernel handlers there are;
//! - [`downcall`]: calls to the kernel: fast, deferred, generic;
//! - [`service`]: services of your own;
//! - [`socket`], [`timer`]: the services you steer;
//! - [`coop`], [`window`], [`child`]: what a thread tells the scheduler, or a parent of its child;
//! - [`mod@format`]: the data of events, by field name.

#![forbid(unsafe_code)]

pub mod channel;
pub mod child;
pub mod coop;
pub mod downcall;
mod ecode;
pub mod format;
pub mod handler;
mod host;
pub mod service;
pub mod socket;
pub mod subscription;
pub mod timer;
mod user;
pub mod window;

pub use channel::{Channel, ChannelBuilder};
pub use ecalls_abi::channel::{DropReason, Layout, Lost, SlotUse};
pub use ecalls_abi::event::{Event, Target};
pub use ecalls_kernel::{Error, Result, now_ns, signal};
pub use format::{Format, Value};
pub use handler::Handler;
pub use host::{Described, Ecalls};
pub use service::{Provider, Raise, Service};
pub use subscription::{Flow, Subscription, SubscriptionBuilder};
pub use window::{Admission, Window};
