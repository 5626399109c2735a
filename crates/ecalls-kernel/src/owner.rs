//! Which processes own something in the core, so that the kernel side knows whose exit matters.

use ecalls_abi::channel::Id;
use libbpf_rs::{MapCore, MapFlags};

use crate::core::Core;
use crate::error::{Error, Result};

/// Counts one more thing that belongs to process `pid`.
pub(crate) fn add(core: &Core, pid: u32) -> Result<()> {
    change(core, pid, |count| count + 1)
}

/// Counts one thing less.
pub(crate) fn remove(core: &Core, pid: u32) -> Result<()> {
    change(core, pid, |count| count.saturating_sub(1))
}

fn change(core: &Core, pid: u32, to: impl Fn(u32) -> u32) -> Result<()> {
    let owners = core.map("owners")?;
    let key = pid.to_ne_bytes();
    let count = owners
        .lookup(&key, MapFlags::ANY)
        .map_err(|error| Error::from_bpf("reading the owners", &error))?
        .and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)))
        .unwrap_or(0);
    let result = match to(count) {
        0 => owners.delete(&key),
        count => owners.update(&key, &count.to_ne_bytes(), MapFlags::ANY),
    };
    match result {
        Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
            Err(Error::from_bpf("writing the owners", &error))
        }
        _ => Ok(()),
    }
}

/// Notes (or forgets) that deferred calls of this process are handled before its next scheduling.
///
/// # Errors
/// [`Error::LimitReached`] when another channel of the process does that already.
pub(crate) fn defer_at_switch(core: &Core, pid: u32, channel: Option<Id>) -> Result<()> {
    let owners = core.map("switch_owners")?;
    let key = pid.to_ne_bytes();
    let result = match channel {
        Some(id) => match owners.update(&key, &id.raw().to_ne_bytes(), MapFlags::NO_EXIST) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => {
                return Err(Error::LimitReached {
                    which: "channels of one process whose calls are deferred to its scheduling",
                    limit: 1,
                });
            }
            other => other,
        },
        None => owners.delete(&key),
    };
    match result {
        Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
            Err(Error::from_bpf("writing the owners", &error))
        }
        _ => Ok(()),
    }
}
