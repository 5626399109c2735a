//! The programs and maps of cores that are in the kernel now, by id and name: for tests and for
//! diagnosis.

use std::os::fd::AsFd;

use libbpf_rs::ObjectBuilder;

use crate::core::HOST_MAP;
use crate::core::handler::STATE_NAME;
use crate::ecode::PROGRAM_NAME;
use crate::kernel::objects::{MAP_LIST, MAPS, OBJECTS, PROGRAMS};
use crate::kernel::sys;
use crate::provider::meeting;

/// Ids and names of the programs and maps of cores that are in the kernel now, including those of a
/// core that is being torn down; maps only if no program is left. The program that lists the maps
/// is not among them. It needs root; otherwise it is empty, too.
///
/// # Panics
/// If root cannot list the machine's maps.
pub fn residue() -> Vec<(u32, String)> {
    let programs: Vec<_> = sys::program_ids()
        .filter_map(|id| Some((id, sys::program_name(id)?)))
        .filter(|(_, name)| {
            PROGRAMS.iter().any(|known| known.name == name) && name != MAP_LIST
                || meeting::PROGRAMS.contains(&name.as_str())
                || PROGRAM_NAME.to_str() == Ok(name.as_str())
        })
        .collect();
    if !programs.is_empty() || !sys::is_root() {
        return programs;
    }
    let mut maps = maps().expect("root can list the machine's maps");
    maps.retain(|(_, name)| {
        name == HOST_MAP
            || name.starts_with("ecalls_")
            || name == STATE_NAME
            || meeting::MAPS.contains(&name.as_str())
            || MAPS.iter().any(|known| *known == name)
    });
    maps
}

/// Ids and names of the maps of the machine, without tables of programs that nobody has open. A
/// process that opens one while it is torn down makes the kernel keep it (kernel/lock.rs): this one
/// opens none, and one that joined a core in that moment may have.
fn maps() -> Option<Vec<(u32, String)>> {
    let object = OBJECTS.iter().find(|object| object.name == MAP_LIST)?;
    let open = ObjectBuilder::default().open_memory(object.bytes).ok()?;
    let object = open.load().ok()?;
    let program = object.progs().next()?;
    sys::list_maps(program.as_fd()).ok()
}
