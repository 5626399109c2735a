//! Events between the Linux kernel and applications, in both directions, with deadlines.
//!
//! A *service* raises events: the kernel's sockets, timers, tasks and scheduler, or another
//! application. A *subscription* lists the actions for each event: a kernel handler, a handler in a
//! kernel thread, a real-time signal, a handler of the program on a thread of this library, shared
//! memory. They run in the given order, and the result of each decides whether the next one runs
//! (ECalls-05 §3.1). A *channel* is the shared memory from which a program reads its events,
//! without a system call while events wait, and into which it writes its calls to the kernel.
//! Events that miss their deadline are discarded and counted.
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
//! - [`subscription`]: the actions for events;
//! - [`handler`]: the built-in kernel handlers;
//! - [`downcall`]: calls to the kernel: fast, deferred, generic;
//! - [`service`]: services of the program;
//! - [`socket`], [`timer`]: the services that a program controls;
//! - [`answer`]: replies to datagrams that the kernel gives;
//! - [`mod@ready`]: which sockets may be read, through shared memory;
//! - [`coop`], [`window`], [`child`]: a thread's requests to the scheduler, or a parent's for its
//!   child;
//! - [`mod@format`]: the data of events, by field name.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod answer;
pub mod channel;
pub mod child;
pub mod coop;
pub mod downcall;
mod ecode;
pub mod format;
pub mod handler;
mod host;
pub mod ready;
pub mod service;
pub mod socket;
pub mod subscription;
pub mod timer;
mod user;
pub mod window;

pub use answer::{AnswerHolder, AnswerPlan, AnswerText, Answers};
pub use channel::{Channel, ChannelBuilder};
pub use ecalls_abi::channel::{DropReason, Layout, Lost, SlotUse};
pub use ecalls_abi::event::Target;
pub use ecalls_kernel::{Error, Result, now_ns, signal};
pub use ecalls_ring::Event;
pub use format::{Format, Value};
pub use handler::Handler;
pub use host::{Described, Ecalls};
pub use ready::ReadySockets;
pub use service::{Provider, Raise, Service};
pub use subscription::{Flow, Subscription, SubscriptionBuilder};
pub use window::{Admission, Window};
