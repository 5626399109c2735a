//! The scheduling policy of `bpf/lib/sched` on the host.
//!
//! [`policy`] makes its functions callable; the tests beside have one test for each rule, named
//! after it. [`machine`] is a simulated machine that the policy schedules, with threads
//! ([`thread`]) that follow [`script`]s; [`world`] makes such machines by chance, and [`ordinary`]
//! those of threads that know nothing of the scheduler. `patience` says how long a thread may wait
//! at most, `moves` how threads go from CPU to CPU, [`quota`] what a control group may have.
#![deny(unsafe_code)]

pub mod call;
pub mod machine;
mod moves;
pub mod ordinary;
mod patience;
pub mod policy;
pub mod quota;
pub mod script;
pub mod thread;
pub mod world;
