//! What of a core is in the kernel right now, by id and name: for tests, and for people who wonder.

use std::time::Duration;

use libbpf_rs::{MapCore, MapHandle};

use crate::core::HOST_MAP;
use crate::core::handler::STATE_NAME;
use crate::ecode::PROGRAM_NAME;
use crate::kernel::objects::{MAPS, PROGRAMS};
use crate::kernel::sys;
use crate::provider::meeting;

/// By then the kernel has emptied a table of programs whose last user has gone.
const EMPTYING: Duration = Duration::from_millis(100);

/// Ids and names of the programs and maps of cores that are in the kernel now, also of one that is
/// just being torn down; maps only once no program is left and a moment has passed, because opening
/// a dying table of programs does harm (kernel/lock.rs tells). Needs root; else it is empty, too.
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
    std::thread::sleep(EMPTYING);
    sys::map_ids()
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
