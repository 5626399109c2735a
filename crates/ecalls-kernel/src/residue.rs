//! What of a core is in the kernel right now, by name: for tests, and for people who wonder.

use libbpf_rs::{MapCore, MapHandle};

use crate::core::HOST_MAP;
use crate::objects::{MAPS, PROGRAMS};
use crate::sys;

/// Names of the maps and programs of cores that are in the kernel now, also of one that is just
/// being torn down. Empty: no trace. Needs root; else it is empty, too.
pub fn residue() -> Vec<String> {
    let maps = sys::map_ids().filter_map(|id| {
        let name = MapHandle::from_map_id(id)
            .ok()?
            .name()
            .to_string_lossy()
            .into_owned();
        let own = name == HOST_MAP
            || name.starts_with("ecalls_")
            || MAPS.iter().any(|known| *known == name);
        own.then_some(name)
    });
    let programs = sys::program_ids().filter_map(|id| {
        let name = sys::program_name(id)?;
        PROGRAMS
            .iter()
            .any(|known| known.name == name)
            .then_some(name)
    });
    maps.chain(programs).collect()
}
