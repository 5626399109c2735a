//! Application services: a process registers a unique name and raises events for subscribers
//! (ECalls-05 §3, register_service and raise_event).

use std::collections::HashMap;
use std::sync::Arc;

use ecalls_abi::channel::{STATE_ACTIVE, STATE_DEAD, STATE_FREE};
use ecalls_abi::service::{SERVICE_USER, ServiceInfo};
use ecalls_abi::text;
use ecalls_abi::version::SERVICES_MAX;
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::FromZeros;

use crate::core::Core;
use crate::core::owner::{self, Owner};
use crate::error::{Error, Result};
use crate::kernel::lock::lock;
use crate::kernel::table::lookup;

/// A service in the core, created by this process for its owner. Dropping it unregisters it.
#[derive(Debug)]
pub struct HostedService {
    core: Arc<Core>,
    index: u32,
    owner: Owner,
    /// The process that created it.
    host: u32,
}

/// A service's description, checked.
///
/// # Errors
/// [`Error::Invalid`] for a name that is empty, too long or contains blanks.
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
        // The owner is first: once the service is active, the reaper must see the owner's exit.
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

    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for HostedService {
    fn drop(&mut self) {
        // A forked child has a copy; the service belongs to its parent.
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
    // The name may be that of a service whose owner was killed.
    forget_name(core, index)?;
    let mut row = core.tables.services.get(index)?;
    // A service that is registered again finds its waiting events, and its counters continue.
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
    crate::core::subscription::publish(core, index)
}

/// Ends a service. The caller holds the lock.
fn close(core: &Core, index: u32) -> Result<()> {
    let mut row = core.tables.services.get(index)?;
    row.state = STATE_FREE;
    core.tables.services.set(index, &row)?;
    forget_name(core, index)
}

/// Removes the name of a row from the map of names.
fn forget_name(core: &Core, index: u32) -> Result<()> {
    let info = core.tables.infos.get(index)?;
    if find(core, info.name())? != Some(index) {
        return Ok(());
    }
    core.map("service_names")?
        .delete(&info.name)
        .map_err(|error| Error::from_bpf("naming a service", &error))
}

impl Core {
    /// The application services whose events process `pid` of user `uid` may raise, except that at
    /// index `except`: a handler that raises the event that it handles would never end.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn raisable(&self, pid: u32, uid: u32, except: u32) -> Result<Vec<(String, u32)>> {
        let mut found = Vec::new();
        let mut from = SERVICE_USER;
        while let Some(index) = self.next_service(from)? {
            from = index + 1;
            let owner = self.service_owner(index)?;
            let may = uid == 0 || owner.is_some_and(|(owner, _)| owner == pid);
            if index != except && may {
                found.push((self.service_info(index)?.name().to_owned(), index));
            }
        }
        Ok(found)
    }
}

/// Index of the service of that name.
pub(crate) fn find(core: &Core, name: &str) -> Result<Option<u32>> {
    let mut key = [0u8; ecalls_abi::version::NAME_MAX];
    if text::write(&mut key, name).is_err() {
        return Ok(None);
    }
    lookup(core.map("service_names")?, &key, "looking a service up")
}

/// A row for an application service: its own former one, else a free one, else one that is kept for
/// the subscriptions of a service that has ended.
///
/// A kept row is given to another service only if there is no other row, so that its subscriptions
/// work again when that service returns. No quota counts it. So if all rows are in use, the user
/// whose ended services keep the most rows loses one: a user that keeps many rows takes none from
/// others.
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
        if crate::core::subscription::living(core, &row)?.is_empty() {
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

/// Ends the subscriptions to the former service of row `index`, unless `name` is that service.
fn end_subscriptions(core: &Core, index: u32, name: &str) -> Result<()> {
    if core.tables.infos.get(index)?.name() == name {
        return Ok(());
    }
    let row = core.tables.services.get(index)?;
    for (at, mut subscription) in crate::core::subscription::living(core, &row)? {
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
