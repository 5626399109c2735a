//! The interface of the kernel: system calls, mapped memory, the object files and what libbpf and
//! the verifier report about them, attachments, the instance and the lock of the core, signals,
//! threads and other processes.
//!
//! No code here depends on the core.

pub mod baseline;
pub mod confined;
pub(crate) mod instance;
pub(crate) mod interface;
pub(crate) mod link;
pub(crate) mod lock;
pub(crate) mod namespace;
pub mod objects;
pub(crate) mod peer;
pub(crate) mod reader;
pub mod segment;
pub mod signal;
pub(crate) mod sys;
pub(crate) mod table;
pub(crate) mod verdict;
pub(crate) mod worker;
