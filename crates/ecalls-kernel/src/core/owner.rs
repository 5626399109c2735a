//! Owners in the core: the process to which a channel, a subscription or a service belongs, and the
//! list of processes whose exit the kernel side watches.
//!
//! A program that hosts the core owns the objects that it creates. The daemon creates objects on
//! behalf of clients: then the client is the owner, so that the kernel side ends them with the
//! client and accepts calls from no other process.

use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

use ecalls_abi::channel::{Id, STATE_ACTIVE};
use libbpf_rs::{MapCore, MapFlags};

use crate::core::{Core, Identity};
use crate::error::{Error, Result};
use crate::kernel::table::lookup;

/// The part of the core that handles deferred calls before their owner's next scheduling.
const SWITCH: &str = "downcall_switch";

/// The process for which an object is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    /// Its start time since boot, ns, which distinguishes it from a later process with the same id.
    pub start_ns: u64,
    pub uid: u32,
    /// Its user's row in the table of quotas; 0: no quotas.
    pub user: u32,
}

impl Owner {
    /// This process, without quotas.
    ///
    /// # Errors
    /// Those of [`Core::identify_here`].
    pub fn current(core: &Core) -> Result<Owner> {
        Ok(Owner::new(&core.identify_here(std::process::id())?, 0))
    }

    /// Fails if the owner has ended. Objects that became active before this check are ended by the
    /// kernel side when the owner exits.
    ///
    /// # Errors
    /// [`Error::Closed`]: it has ended, perhaps before the objects became active.
    pub(crate) fn check(&self, core: &Core) -> Result<()> {
        match core.identify(self.pid) {
            Ok(now) if now.start_ns == self.start_ns => Ok(()),
            _ => Err(Error::Closed("the process that it is for")),
        }
    }

    /// A process whose user has row `user`.
    pub fn new(identity: &Identity, user: u32) -> Owner {
        Owner {
            pid: identity.pid,
            start_ns: identity.start_ns,
            uid: identity.uid,
            user,
        }
    }
}

/// Whether ids of processes mean to this process what they mean to the kernel: it is in the PID
/// namespace that the machine began with. Asked once, since the daemon may not look any more when
/// it serves; a process stays in its namespace.
pub(crate) fn is_in_first_namespace() -> bool {
    /// Its number (`PROC_PID_INIT_INO`) is part of the kernel's interface: linux/nsfs.h.
    const FIRST: u64 = 0xefff_fffc;
    static IS_FIRST: LazyLock<bool> = LazyLock::new(|| {
        // Without /proc it is not known, and more likely.
        std::fs::metadata("/proc/self/ns/pid").map_or(true, |own| own.ino() == FIRST)
    });
    *IS_FIRST
}

/// Counts one more object of process `pid`.
pub(crate) fn add(core: &Core, pid: u32) -> Result<()> {
    change(core, pid, |count| count + 1)
}

/// Counts one object less.
pub(crate) fn remove(core: &Core, pid: u32) -> Result<()> {
    change(core, pid, |count| count.saturating_sub(1))
}

fn change(core: &Core, pid: u32, to: impl Fn(u32) -> u32) -> Result<()> {
    let owners = core.map("owners")?;
    let key = pid.to_ne_bytes();
    let count = lookup(owners, &key, "reading the owners")?.unwrap_or(0);
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

/// Records that the deferred calls of this channel are handled before its owner's next scheduling.
///
/// # Errors
/// [`Error::LimitReached`] if another channel of the process is registered already.
pub(crate) fn defer_at_switch(core: &Core, pid: u32, channel: Id) -> Result<()> {
    if let Some(other) = switch_channel(core, pid)? {
        let row = core.tables.channels.get(other.index())?;
        // A channel of another program that this process ran before, or of an earlier process with
        // its id, no longer counts.
        if row.id == other.raw() && row.state == STATE_ACTIVE {
            return Err(Error::LimitReached {
                which: "channels of one process whose calls are deferred to its scheduling",
                limit: 1,
            });
        }
    }
    core.map("switch_owners")?
        .update(
            &pid.to_ne_bytes(),
            &channel.raw().to_ne_bytes(),
            MapFlags::ANY,
        )
        .map_err(|error| Error::from_bpf("writing the owners", &error))
}

/// Removes that record, if it names this channel.
pub(crate) fn forget_switch(core: &Core, pid: u32, channel: u32) -> Result<()> {
    if core.living_part(SWITCH)?.is_none() {
        return Ok(()); // no channel's calls are handled in this way
    }
    if switch_channel(core, pid)?.map(Id::raw) != Some(channel) {
        return Ok(());
    }
    core.map("switch_owners")?
        .delete(&pid.to_ne_bytes())
        .map_err(|error| Error::from_bpf("writing the owners", &error))
}

fn switch_channel(core: &Core, pid: u32) -> Result<Option<Id>> {
    let owners = core.map("switch_owners")?;
    let raw: Option<u32> = lookup(owners, &pid.to_ne_bytes(), "reading the owners")?;
    Ok(raw.and_then(Id::from_raw))
}
