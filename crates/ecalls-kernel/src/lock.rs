//! The lock under which a core is loaded, joined and changed.
//!
//! Every change of the shared tables by user space (subscriptions, channels, services, attachments)
//! happens under one file lock, so that programs which host the core together do not step on each
//! other. The kernel releases it when its holder dies. The file itself stays: removing a lock file
//! is a race.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use crate::error::{Error, Result};

/// Where the lock is; only root can open it, so nobody else can hold it.
pub const LOCK_PATH: &str = "/run/ecalls.lock";

/// Held while it lives.
#[derive(Debug)]
pub(crate) struct Lock(#[allow(dead_code, reason = "dropping it releases the lock")] File);

/// Waits for the lock.
pub(crate) fn lock() -> Result<Lock> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(LOCK_PATH)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => Error::Denied {
                action: "hosting the core",
                privilege: "root",
            },
            _ => Error::from_io("opening /run/ecalls.lock", error),
        })?;
    file.lock()
        .map_err(|error| Error::from_io("locking /run/ecalls.lock", error))?;
    Ok(Lock(file))
}
