//! Loads the kernel side: every object file in order, sharing maps by name, then the set-up
//! programs and the attachments that always stay. The record that others join by is completed last.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ecalls_abi::fate::FATES;
use ecalls_abi::version::{ABI_VERSION, CHANNELS_MAX, TIMERS_MAX};
use ecalls_abi::{service, text};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::core::builtin;
use crate::core::{Core, HOST_MAP};
use crate::error::{Error, Result};
use crate::kernel::lock::{Alive, Lock};
use crate::kernel::objects::{self, FastCall, MAPS, OBJECTS, PROGRAMS, Place};
use crate::kernel::{sys, verdict};

/// Loads a core; `flags`: `HOST_*`. The caller holds the lock and found none to join.
pub(crate) fn load(lock: &Lock, alive: Alive, flags: u32) -> Result<Core> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, print_log)));
    let cpus =
        libbpf_rs::num_possible_cpus().map_err(|error| Error::from_bpf("counting CPUs", &error))?;
    let cpus = u32::try_from(cpus).expect("fewer CPUs than 2^32");
    let mut loader = Loader {
        cpus,
        ..Loader::default()
    };
    for object in OBJECTS {
        let result = loader.object(object);
        let verdict = verdict::take();
        match (result, verdict) {
            (Ok(()), _) => {}
            (Err(_), verdict) if object.optional => {
                loader.refused.extend(verdict.map(|why| (object.name, why)));
            }
            (Err(_), Some(why)) => {
                return Err(Error::Refused {
                    what: object.name,
                    why,
                });
            }
            (Err(source), None) => return Err(explain(object.name, source)),
        }
    }
    loader.finish(lock, alive, flags)
}

/// libbpf's own words, for who asks for them; our errors say the same shorter.
pub(crate) fn print_log(_: PrintLevel, text: String) {
    verdict::note(&text);
    if std::env::var_os("ECALLS_LIBBPF_LOG").is_some() {
        eprint!("{text}");
    }
}

/// A refusal in terms of what the kernel lacks, where that is known.
fn explain(object: &'static str, source: libbpf_rs::Error) -> Error {
    if source.kind() == libbpf_rs::ErrorKind::PermissionDenied && !sys::is_root() {
        return Error::Denied {
            action: "loading the core",
            privilege: "root",
        };
    }
    match crate::probe::missing_requirement() {
        Some((feature, since)) => Error::Unsupported { feature, since },
        None => Error::Load { object, source },
    }
}

#[derive(Default)]
struct Loader {
    cpus: u32,
    maps: HashMap<String, MapHandle>,
    programs: HashMap<&'static str, OwnedFd>,
    links: Vec<(&'static str, OwnedFd)>,
    /// Optional objects that the verifier refused, and why.
    refused: HashMap<&'static str, String>,
}

impl Loader {
    /// Loads one object, with the maps that exist already; keeps its programs and new maps.
    fn object(&mut self, spec: &objects::Object) -> libbpf_rs::Result<()> {
        let mut open = ObjectBuilder::default()
            .name(spec.name)?
            .open_memory(spec.bytes)?;
        self.prepare_maps(&mut open)?;
        let loaded = open.load()?;
        self.keep_programs(spec.name, &loaded)?;
        for map in loaded.maps() {
            let name = map.name().to_string_lossy().into_owned();
            if !name.contains('.') && !self.maps.contains_key(&name) {
                self.maps.insert(name, MapHandle::try_from(&map)?);
            }
        }
        Ok(())
    }

    fn prepare_maps(&self, open: &mut OpenObject) -> libbpf_rs::Result<()> {
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name == CONSTANTS {
                set_cpus(&mut map, self.cpus);
            } else if let Some(shared) = self.maps.get(&name) {
                map.reuse_fd(shared.as_fd())?;
            } else if name == "queues" {
                map.set_max_entries(self.cpus + 2)?;
            } else if name == "fates" {
                map.set_max_entries(self.cpus * FATES as u32)?;
            } else if name == "queue_timers" {
                map.set_max_entries(self.cpus + 1)?;
            }
        }
        Ok(())
    }

    fn keep_programs(&mut self, object: &str, loaded: &Object) -> libbpf_rs::Result<()> {
        for program in loaded.progs() {
            let known = PROGRAMS
                .iter()
                .find(|known| known.object == object && *known.name == *program.name());
            if let Some(known) = known {
                let fd = program
                    .as_fd()
                    .try_clone_to_owned()
                    .map_err(libbpf_rs::Error::from)?;
                self.programs.insert(known.name, fd);
            }
        }
        Ok(())
    }

    fn finish(mut self, lock: &Lock, alive: Alive, flags: u32) -> Result<Core> {
        let mut maps = HashMap::new();
        let mut host = service::Host::new_zeroed();
        for (slot, name) in host.map_ids.iter_mut().zip(MAPS) {
            if let Some(map) = self.maps.remove(*name) {
                *slot = map_id(&map)?;
                maps.insert(*name, map);
            }
        }
        for (slot, program) in host.prog_ids.iter_mut().zip(PROGRAMS) {
            if let Some(fd) = self.programs.get(program.name) {
                *slot = sys::program_info(fd.as_fd())?.id;
            }
        }
        self.fill_handlers(&maps)?;
        let fast_call = self.attach()?;
        for (name, link) in &self.links {
            if let Some(at) = PROGRAMS.iter().position(|program| program.name == *name) {
                host.link_ids[at] = sys::link_ids(link.as_fd())?.0;
            }
        }
        host.version = ABI_VERSION;
        host.pid = std::process::id();
        host.cpus = self.cpus;
        host.flags = flags;
        host.start_ns = sys::now_ns();
        text::write(&mut host.mechanism, fast_call.name()).expect("a short name");
        let map = self
            .maps
            .remove(HOST_MAP)
            .ok_or(Error::Closed("the host map"))?;
        assert!(
            self.maps.is_empty(),
            "maps that are missing in the table MAPS: {:?}",
            self.maps.keys()
        );
        let mut core = Core::assemble(
            alive,
            MapHandle::try_from(&map).map_err(|e| Error::from_bpf("opening a map", &e))?,
            &host,
            maps,
            self.programs,
            self.links.into_iter().map(|(_, link)| link).collect(),
            true,
        )?;
        core.refused = self.refused;
        builtin::describe(&core)?;
        set_up(&core)?;
        host.ready = objects::tables_checksum();
        map.update(&0u32.to_ne_bytes(), host.as_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("completing the core", &error))?;
        core.give_sign()?;
        lock.set_core(map_id(&map)?)?;
        Ok(core)
    }

    fn fill_handlers(&self, maps: &HashMap<&'static str, MapHandle>) -> Result<()> {
        let slots = maps
            .get("handlers")
            .ok_or(Error::Closed("the map of handlers"))?;
        for program in PROGRAMS {
            let Place::Handler(slot) = program.place else {
                continue;
            };
            let Some(fd) = self.programs.get(program.name) else {
                continue;
            };
            slots
                .update(
                    &slot.to_ne_bytes(),
                    &fd.as_raw_fd().to_ne_bytes(),
                    MapFlags::ANY,
                )
                .map_err(|error| Error::from_bpf("registering a kernel handler", &error))?;
        }
        Ok(())
    }

    /// Attaches what always stays, and the best fast call that this kernel attaches.
    fn attach(&mut self) -> Result<FastCall> {
        for program in PROGRAMS {
            if program.place == Place::Always {
                let fd = self
                    .programs
                    .get(program.name)
                    .ok_or(Error::Closed("a program"))?;
                let link = sys::attach(fd.as_fd(), libbpf_sys::BPF_TRACE_RAW_TP)?;
                self.links.push((program.name, link));
            }
        }
        for mechanism in [FastCall::Security, FastCall::Prctl, FastCall::Setsockopt] {
            if let Some(link) = attach_fast_call(mechanism, &self.programs) {
                self.links.push(link);
                return Ok(mechanism);
            }
        }
        Ok(FastCall::Run)
    }
}

/// Attaches a mechanism of the fast call; None where this kernel cannot.
pub(crate) fn attach_fast_call(
    mechanism: FastCall,
    programs: &HashMap<&'static str, OwnedFd>,
) -> Option<(&'static str, OwnedFd)> {
    let program = PROGRAMS
        .iter()
        .find(|program| program.place == Place::FastCall(mechanism))?;
    let fd = programs.get(program.name)?.as_fd();
    let link = match mechanism {
        FastCall::Security => sys::attach(fd, libbpf_sys::BPF_MODIFY_RETURN).ok(),
        FastCall::Prctl => sys::attach(fd, libbpf_sys::BPF_TRACE_RAW_TP).ok(),
        FastCall::Setsockopt => {
            let root = cgroup_root()?;
            sys::attach_cgroup(fd, root.as_fd(), libbpf_sys::BPF_CGROUP_SETSOCKOPT).ok()
        }
        FastCall::Run => None,
    };
    Some((program.name, link?))
}

/// The root of the control group hierarchy (version 2), where it is mounted.
fn cgroup_root() -> Option<std::fs::File> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let path = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&"cgroup2"))?[1]
        .to_owned();
    std::fs::File::open(path).ok()
}

/// Runs the programs that set timers and threads up, once per core.
fn set_up(core: &Core) -> Result<()> {
    for cpu in 0..=core.cpus() {
        run_indexed(core, "queue_setup", cpu)?;
    }
    for index in 0..objects::THREADS {
        run_indexed(core, "thread_setup", index)?;
    }
    run_indexed(core, "pump_setup", 0)?;
    // Kernels before 6.18 cannot ask a receiver: there no signal waits.
    if core.program("watch_setup").is_ok() {
        run_indexed(core, "watch_setup", 0)?;
    }
    run_range(core, "delay_setup", CHANNELS_MAX)?;
    run_range(core, "timer_setup", TIMERS_MAX)
}

/// Sets up elements 0 to `count` - 1: {first, count, result} in the kernel side's words.
fn run_range(core: &Core, program: &'static str, count: usize) -> Result<()> {
    let count = u32::try_from(count).expect("a small limit");
    let mut context = [0; 12];
    context[4..8].copy_from_slice(&count.to_ne_bytes());
    match core.run(program, &mut context)? {
        0 => Ok(()),
        error => Err(Error::from_errno("setting the core up", i64::from(error))),
    }
}

fn run_indexed(core: &Core, program: &'static str, index: u32) -> Result<()> {
    match core.run(program, &mut index.to_ne_bytes())? {
        0 => Ok(()),
        error => Err(Error::from_errno("setting the core up", i64::from(error))),
    }
}

fn map_id(map: &MapHandle) -> Result<u32> {
    sys::map_id(map.as_fd())
}

/// The part of an object that holds what the loader says: the number of CPUs (bpf/event/maps.h).
pub(crate) const CONSTANTS: &str = ".rodata.core";

/// Writes the number of CPUs into an object's constants, whose only member it is.
pub(crate) fn set_cpus(map: &mut OpenMapMut<'_>, cpus: u32) {
    if let Some(constants) = map.initial_value_mut()
        && let Some(first) = constants.get_mut(..4)
    {
        first.copy_from_slice(&cpus.to_ne_bytes());
    }
}
