//! Application services: one process registers a unique name and raises events for others
//! (ECalls-05 §3, register_service and raise_event).

use std::collections::HashMap;
use std::sync::Arc;

use ecalls_abi::channel::{STATE_ACTIVE, STATE_DEAD, STATE_FREE};
use ecalls_abi::downcall::{Generic, Op};
use ecalls_abi::service::{SERVICE_USER, ServiceInfo};
use ecalls_abi::text;
use ecalls_abi::version::SERVICES_MAX;
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::{FromZeros, IntoBytes};

use crate::access::Access;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::owner::{self, Owner};

/// A service in the core, made by this process for its owner. Dropping it unregisters it.
#[derive(Debug)]
pub struct HostedService {
    core: Arc<Core>,
    index: u32,
    owner: Owner,
    /// The process that made it.
    host: u32,
}

/// What is raised.
#[derive(Clone, Copy, Debug)]
pub struct Raise<'a> {
    /// Process to tell, or `TARGET_*` of `ecalls_abi::event`.
    pub target: i32,
    /// What happened, 0..31.
    pub kind: u32,
    /// Which typed slot it belongs to.
    pub kind_type: u32,
    /// Which priority slot it belongs to; 0 is the most urgent.
    pub priority: u32,
    /// `EVENT_CPU` or 0.
    pub flags: u32,
    /// Relative, us; 0: none.
    pub deadline_us: u64,
    /// Relative, us; 0: at once.
    pub release_us: u64,
    /// At most `DATA_MAX` bytes.
    pub data: &'a [u8],
}

/// A service's description, checked.
///
/// # Errors
/// [`Error::Invalid`] for a name that is empty, too long or has blanks.
pub fn describe(name: &str, format: &str, kinds: &str) -> Result<ServiceInfo> {
    let mut info = ServiceInfo::new_zeroed();
    let fits = text::write(&mut info.name, name).is_ok()
        && text::write(&mut info.format, format).is_ok()
        && text::write(&mut info.kinds, kinds).is_ok();
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) || !fits {
        return Err(invalid(
            name,
            "a name of 1 to 31 bytes without blanks, a format and kinds of at most 511",
        ));
    }
    Ok(info)
}

impl HostedService {
    /// Registers a service of `owner` by a unique name.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is taken, [`Error::LimitReached`].
    pub fn register(core: Arc<Core>, owner: &Owner, info: &ServiceInfo) -> Result<HostedService> {
        let name = info.name();
        let info = &describe(name, info.format(), text::read(&info.kinds))?;
        let _lock = lock()?;
        if let Some(taken) = find(&core, name)? {
            let row = core.tables.services.get(taken)?;
            if row.state == STATE_ACTIVE {
                return Err(invalid(name, "a name that no living service has"));
            }
        }
        let index = find_free(&core, name)?;
        end_subscriptions(&core, index, name)?;
        // First the owner: from the moment it is active, the reaper sees it exit.
        owner::add(&core, owner.pid)?;
        if let Err(error) = announce(&core, index, info, owner) {
            let _ = close(&core, index);
            let _ = owner::remove(&core, owner.pid);
            return Err(error);
        }
        Ok(HostedService {
            core,
            index,
            owner: *owner,
            host: std::process::id(),
        })
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for HostedService {
    fn drop(&mut self) {
        // A forked child has a copy; what it stands for is its parent's.
        if self.host != std::process::id() {
            return;
        }
        let Ok(_lock) = lock() else { return };
        let Ok(row) = self.core.tables.services.get(self.index) else {
            return;
        };
        if row.owner != self.owner.pid || row.owner_start != self.owner.start_ns {
            return;
        }
        let _ = close(&self.core, self.index);
        let _ = owner::remove(&self.core, row.owner);
    }
}

/// Makes a service's row active, under its name. The caller holds the lock.
fn announce(core: &Core, index: u32, info: &ServiceInfo, owner: &Owner) -> Result<()> {
    // Of a service whose owner was killed.
    forget_name(core, index)?;
    let mut row = core.tables.services.get(index)?;
    // A service that comes back finds its events that still wait, and goes on counting.
    if core.tables.infos.get(index)?.name() != info.name() {
        row.parameter += 1;
        core.tables.services.set(index, &row)?;
        core.tables
            .service_counts
            .set_per_cpu(index, &FromZeros::new_zeroed())?;
        core.tables
            .latencies
            .set_per_cpu(index, &FromZeros::new_zeroed())?;
    }
    core.tables.infos.set(index, info)?;
    row.owner = owner.pid;
    row.owner_start = owner.start_ns;
    row.owner_uid = owner.uid;
    row.user = owner.user;
    row.state = STATE_ACTIVE;
    core.tables.services.set(index, &row)?;
    core.map("service_names")?
        .update(&info.name, &index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::from_bpf("naming a service", &error))?;
    crate::subscription::publish(core, index)
}

/// Ends a service. The caller holds the lock.
fn close(core: &Core, index: u32) -> Result<()> {
    let mut row = core.tables.services.get(index)?;
    row.state = STATE_FREE;
    core.tables.services.set(index, &row)?;
    forget_name(core, index)
}

/// The name of a row no longer leads to it.
fn forget_name(core: &Core, index: u32) -> Result<()> {
    let info = core.tables.infos.get(index)?;
    if find(core, info.name())? != Some(index) {
        return Ok(());
    }
    core.map("service_names")?
        .delete(&info.name)
        .map_err(|error| Error::from_bpf("naming a service", &error))
}

/// Raises an event of the named application service (the generic call, ECalls-01 §2.3.1). Returns
/// how many subscriptions it is for.
pub fn raise_by_name(access: &Access, name: &str, raise: &Raise<'_>) -> Result<i64> {
    let mut call =
        Generic::new(name, Op::Raise).map_err(|_| invalid(name, "a name of 1 to 31 bytes"))?;
    if raise.data.len() > ecalls_abi::version::DATA_MAX {
        return Err(Error::Invalid {
            what: "the event's data",
            given: format!("{} bytes", raise.data.len()),
            expected: "at most 168 bytes",
        });
    }
    call.target = raise.target;
    call.kind = raise.kind;
    call.r#type = raise.kind_type;
    call.priority = raise.priority;
    call.flags = raise.flags;
    call.deadline_us = raise.deadline_us;
    call.release_us = raise.release_us;
    call.size = u32::try_from(raise.data.len()).expect("checked");
    call.data.as_mut_bytes()[..raise.data.len()].copy_from_slice(raise.data);
    match access.generic(&mut call)? {
        code if code == -i64::from(libc::ENOENT) && !access.has_service(name)? => {
            Err(Error::Unknown {
                what: "application service",
                name: name.to_owned(),
                hint: "`ecalls services` lists them".to_owned(),
            })
        }
        code if code == -i64::from(libc::EPERM) => Err(Error::Invalid {
            what: "the service",
            given: format!("{name:?}"),
            expected: "an application service of this process (root: of any); the kernel raises \
                       for the built-in ones itself",
        }),
        // Nobody subscribed: the event is counted as dropped for that reason.
        code if code == -i64::from(libc::ENOENT) => Ok(0),
        code if code == -i64::from(libc::EDQUOT) => Err(Error::Quota {
            which: "raised or waiting events",
            limit: 0,
        }),
        code if code < 0 => Err(Error::from_errno("raising an event", code)),
        offered => Ok(offered),
    }
}

/// Index of the service of that name.
pub(crate) fn find(core: &Core, name: &str) -> Result<Option<u32>> {
    let mut key = [0u8; ecalls_abi::version::NAME_MAX];
    if text::write(&mut key, name).is_err() {
        return Ok(None);
    }
    Ok(core
        .map("service_names")?
        .lookup(&key, MapFlags::ANY)
        .map_err(|error| Error::from_bpf("looking a service up", &error))?
        .and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?))))
}

/// A row for an application service: its own former one, else a free one, else one that is kept for
/// the subscriptions of a service that has ended.
///
/// Such a row is nobody else's as long as there is another, so that its subscriptions see that
/// service come back. Nobody is charged for it. So where all rows are in use, the user for whose
/// services most of them are kept gives one back: whoever lets many be kept loses only those.
fn find_free(core: &Core, name: &str) -> Result<u32> {
    let rows = SERVICE_USER..SERVICES_MAX as u32;
    for index in rows.clone() {
        let info = core.tables.infos.get(index)?;
        if info.name() == name && core.tables.services.get(index)?.state != STATE_ACTIVE {
            return Ok(index);
        }
    }
    let mut kept: HashMap<u32, Vec<u32>> = HashMap::new();
    for index in rows {
        let row = core.tables.services.get(index)?;
        if row.state == STATE_ACTIVE {
            continue;
        }
        if crate::subscription::living(core, &row)?.is_empty() {
            return Ok(index);
        }
        kept.entry(row.owner_uid).or_default().push(index);
    }
    let most = kept.into_values().max_by_key(Vec::len);
    most.and_then(|rows| rows.first().copied())
        .ok_or(Error::LimitReached {
            which: "services of one core",
            limit: SERVICES_MAX,
        })
}

/// Ends what subscribed to the service that row `index` was, unless `name` is that service.
fn end_subscriptions(core: &Core, index: u32, name: &str) -> Result<()> {
    if core.tables.infos.get(index)?.name() == name {
        return Ok(());
    }
    let row = core.tables.services.get(index)?;
    for (at, mut subscription) in crate::subscription::living(core, &row)? {
        subscription.state = STATE_DEAD;
        core.tables.subscriptions.set(at, &subscription)?;
    }
    Ok(())
}

fn invalid(name: &str, expected: &'static str) -> Error {
    Error::Invalid {
        what: "the service's name",
        given: format!("{name:?}"),
        expected,
    }
}
