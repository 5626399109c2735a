//! The mailbox's atomics and lock. The model of tests/mailbox.rs uses loom's instead.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
