//! The programs and maps of cores that are in the kernel now, by id and name: for tests and for
//! diagnosis.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapHandle};

use crate::core::HOST_MAP;
use crate::core::handler::STATE_NAME;
use crate::ecode::PROGRAM_NAME;
use crate::kernel::objects::{MAPS, PROGRAMS};
use crate::kernel::sys;
use crate::provider::meeting;

/// After this time the kernel has emptied a table of programs whose last user has gone, even on a
/// busy machine.
const EMPTYING: Duration = Duration::from_secs(1);

/// The longest wait, if maps come and go.
const PATIENCE: Duration = Duration::from_secs(3);

/// Ids and names of the programs and maps of cores that are in the kernel now, including those of a
/// core that is being torn down; maps only if no program is left and each has existed for some time
/// (`settled`), because opening a table of programs while it is torn down is harmful (see
/// kernel/lock.rs). It needs root; otherwise it is empty, too.
pub fn residue() -> Vec<(u32, String)> {
    let programs: Vec<_> = sys::program_ids()
        .filter_map(|id| Some((id, sys::program_name(id)?)))
        .filter(|(_, name)| {
            PROGRAMS.iter().any(|known| known.name == name)
                || meeting::PROGRAMS.contains(&name.as_str())
                || PROGRAM_NAME.to_str() == Ok(name.as_str())
        })
        .collect();
    if !programs.is_empty() {
        return programs;
    }
    settled()
        .into_iter()
        .filter_map(|id| {
            let map = MapHandle::from_map_id(id).ok()?;
            Some((id, map.name().to_string_lossy().into_owned()))
        })
        .filter(|(_, name)| {
            name == HOST_MAP
                || name.starts_with("ecalls_")
                || name == STATE_NAME
                || meeting::MAPS.contains(&name.as_str())
                || MAPS.iter().any(|known| *known == name)
        })
        .collect()
}

/// Ids of the maps that this process has seen for [`EMPTYING`] and that still exist. It waits until
/// all maps that it has seen for a shorter time are gone.
fn settled() -> Vec<u32> {
    static SEEN: Mutex<BTreeMap<u32, Instant>> = Mutex::new(BTreeMap::new());

    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    loop {
        let now = Instant::now();
        let here = sys::map_ids().map(|id| (id, *seen.get(&id).unwrap_or(&now)));
        *seen = here.collect();
        let old = |since: &Instant| now.duration_since(*since) >= EMPTYING;
        if seen.values().all(old) || start.elapsed() >= PATIENCE {
            let settled = seen.iter().filter(|(_, since)| old(since));
            return settled.map(|(id, _)| *id).collect();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
