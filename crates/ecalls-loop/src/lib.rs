//! An event loop for programs that keep time (Coop §2).
//!
//! A thread is a sequence of *events*: callbacks that run one after the other, each short, none
//! interrupted by another. A *timer* has a release time; after that time it runs before all
//! best-effort events, earliest release first, and it is never skipped, however late it is. A
//! *best-effort* event has a user virtual time: the least runs first. A program divides its long
//! computations into best-effort events, uses timers for output and for deadlines, and so adapts to
//! the share of the CPU that it gets.
//!
//! ```
//! use ecalls_loop::{Loop, best_effort, timer};
//!
//! let events = Loop::new()?;
//! let start = events.now_ns();
//! events.submit(timer(start + 1_000_000), |turn| turn.stop())?;
//! let mut steps = 0;
//! events.submit(best_effort(0), move |turn| {
//!     steps += 1; // a piece of work, and then the next
//!     turn.again(best_effort(steps));
//! })?;
//! events.run()?;
//! # Ok::<(), ecalls_loop::Error>(())
//! ```
//!
//! - [`Loop`]: `submit`, `cancel`, `run`, `stop` (Figure 1), descriptors and channels as sources;
//! - [`When`], [`Event`], [`Turn`]: an event, its name, and its callback's argument (Figure 2);
//! - [`Remote`]: submits from other threads;
//! - [`poll`]: how a loop waits: [`plain`], or cooperatively with the scheduler by a slot
//!   ([`coop`]); a trait, so that tests can bring their own time;
//! - [`bare`]: the poll alone, for other event loops.
//!
//! `doc/loop.md` is the chapter about it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod bare;
pub mod clock;
pub mod coop;
pub mod descriptors;
mod error;
mod event;
mod event_loop;
mod heap;
mod mailbox;
pub mod plain;
pub mod poll;
mod queue;
mod remote;
mod source;
mod sync;
mod tardiness;

pub use error::{Error, Result};
pub use event::{Event, Turn, When, best_effort, timer};
pub use event_loop::{Loop, Next};
pub use poll::Timing;
pub use remote::Remote;
pub use source::{As, Fd, Interest, Ready, Source, Watch};
pub use tardiness::Tardiness;

/// The most events of one loop, queued or running.
pub const EVENTS_MAX: usize = queue::EVENTS_MAX;
/// The most sources that one loop watches.
pub const SOURCES_MAX: usize = source::SOURCES_MAX;
/// The most events from other threads that wait for a loop.
pub const REMOTE_MAX: usize = mailbox::WAITING_MAX;
