//! The answers of all processes of this machine, for who asks what answers here (`ecalls answer
//! list`).
//!
//! Nothing is registered anywhere: a process that answers holds the attachment of the program to
//! the interface and the maps, which /proc shows among its descriptors. Maps are opened by their
//! ids, those of programs excepted: opening one of these keeps what it has.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;

use ecalls_abi::answer::AnswerCount;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::FromBytes;

use super::{CELLS, COUNTS, PROGRAM, SECOND_NS, SETTING, Setting};
use crate::error::{Error, Result};
use crate::kernel::sys;
use crate::kernel::table::Table;

/// A program that answers at one port, as it is now.
#[derive(Clone, Debug)]
pub struct Running {
    pub pid: u32,
    /// Its name in the network namespace of the process, or its number there.
    pub interface: String,
    pub at: SocketAddr,
    pub cells: u32,
    pub per_second: u64,
    /// Of all CPUs.
    pub counts: AnswerCount,
}

/// What answers on this machine, ordered by process. What ends meanwhile is left out.
///
/// # Errors
/// [`Error::Denied`] for who is not root.
pub fn running() -> Result<Vec<Running>> {
    if !sys::is_root() {
        return Err(Error::Denied {
            action: "looking at what answers on this machine",
            privilege: "root",
        });
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    Ok(pids.into_iter().flat_map(of_process).collect())
}

/// What a process's descriptor is of, by the fields of /proc/PID/fdinfo.
struct Held(String);

impl Held {
    fn number(&self, field: &str) -> Option<u32> {
        let fields = self.0.lines().filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(name, _)| *name == field);
        let (_, value) = values.next()?;
        value.split_whitespace().next()?.parse().ok()
    }
}

/// Attachments, and maps, of which a process has descriptors.
fn held(pid: u32) -> (Vec<Held>, Vec<Held>) {
    let folder = format!("/proc/{pid}/fd");
    let (mut links, mut maps) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        let of = match &*target {
            "anon_inode:bpf_link" => &mut links,
            "anon_inode:bpf-map" => &mut maps,
            _ => continue,
        };
        let fd = entry.file_name();
        let path = Path::new("/proc").join(pid.to_string()).join("fdinfo");
        of.extend(fs::read_to_string(path.join(fd)).ok().map(Held));
    }
    (links, maps)
}

fn of_process(pid: u32) -> Vec<Running> {
    let (links, maps) = held(pid);
    let programs = links
        .iter()
        .filter_map(|link| Some((link.number("prog_id")?, link.number("ifindex")?)));
    let mut programs: Vec<(u32, u32)> = programs.collect();
    programs.sort_unstable();
    programs.dedup();
    let found = programs.into_iter().filter_map(|(program, index)| {
        (sys::program_name(program)? == PROGRAM).then_some(())?;
        of_program(pid, program, index, &maps)
    });
    found.collect()
}

fn of_program(pid: u32, program: u32, index: u32, held: &[Held]) -> Option<Running> {
    let program = sys::program_by_id(program).ok()?;
    let used = sys::program_maps(program.as_fd()).ok()?;
    let open = |held: &Held| {
        let id = held.number("map_id").filter(|id| used.contains(id))?;
        let is_of_programs = held.number("map_type") == Some(libbpf_sys::BPF_MAP_TYPE_PROG_ARRAY);
        (!is_of_programs).then(|| MapHandle::from_map_id(id).ok())?
    };
    let maps: Vec<MapHandle> = held.iter().filter_map(open).collect();
    let named = |name: &str| maps.iter().find(|map| map.name() == name);
    let bytes = named(SETTING)?.lookup(&[0; 4], MapFlags::ANY).ok()??;
    let (setting, _) = Setting::read_from_prefix(&bytes).ok()?;
    let counts = Table::new(MapHandle::try_from(named(COUNTS)?).ok()?);
    let mut sum = AnswerCount::default();
    counts.per_cpu(0).ok()?.iter().for_each(|cpu| sum.add(cpu));
    Some(Running {
        pid,
        interface: interface(pid, index).unwrap_or_else(|| index.to_string()),
        at: setting.at(),
        cells: named(CELLS)?.max_entries(),
        per_second: SECOND_NS / setting.interval_ns.max(1),
        counts: sum,
    })
}

/// The name of an interface in a process's network namespace: /proc has each with its number in the
/// list of multicast groups of IPv4.
fn interface(pid: u32, index: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/igmp")).ok()?;
    let mut rows = text.lines().filter_map(|line| {
        let (number, rest) = line.split_once('\t')?;
        Some((number.parse::<u32>().ok()?, rest.split_whitespace().next()?))
    });
    let (_, name) = rows.find(|(number, _)| *number == index)?;
    Some(name.to_owned())
}

impl Setting {
    fn at(&self) -> SocketAddr {
        let ip = match i32::from(self.family) {
            libc::AF_INET => {
                let [a, b, c, d, ..] = self.address;
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            _ => IpAddr::V6(Ipv6Addr::from(self.address)),
        };
        SocketAddr::new(ip, u16::from_be_bytes(self.port))
    }
}
