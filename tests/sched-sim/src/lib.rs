//! The scheduling policy of `bpf/lib/sched` on the host.
//!
//! [`policy`] makes its functions callable; the tests beside have one test for each rule, named
//! after it. [`machine`] is a simulated machine that the policy schedules, with threads
//! ([`thread`]) that follow [`script`]s; [`world`] makes such machines by chance. `patience` says
//! how long a thread may wait at most.
#![deny(unsafe_code)]

pub mod call;
pub mod machine;
mod patience;
pub mod policy;
pub mod script;
pub mod thread;
pub mod world;
