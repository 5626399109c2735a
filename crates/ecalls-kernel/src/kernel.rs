//! What touches the kernel: system calls, mapped memory, the object files and what libbpf and the
//! verifier say of them, attachments, the lock of the core, signals and other processes.
//!
//! Nothing here knows what a core is.

pub mod baseline;
pub mod confined;
pub(crate) mod link;
pub(crate) mod lock;
pub mod objects;
pub(crate) mod peer;
pub(crate) mod reader;
pub mod segment;
pub mod signal;
pub(crate) mod sys;
pub(crate) mod table;
pub(crate) mod verdict;
