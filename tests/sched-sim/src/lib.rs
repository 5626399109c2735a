//! The scheduling policy of `bpf/lib/sched`, compiled for the host.
//!
//! [`policy`] makes its functions callable; the tests beside have one test for each rule, named
//! after it.
#![deny(unsafe_code)]

pub mod policy;
