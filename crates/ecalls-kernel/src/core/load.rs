//! Loads the kernel side: the object file that every core needs and its set-up program. The record
//! by which other programs join is completed last. The other object files are parts (core/part.rs),
//! which are loaded by the same functions on first use, and share the core's maps by name.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use ecalls_abi::fate::FATES;
use ecalls_abi::service::{self, HOST_DAEMON};
use ecalls_abi::version::{ABI_VERSION, CHANNELS_MAX, TIMERS_MAX};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::core::builtin;
use crate::core::part::Loaded;
use crate::core::{Core, HOST_MAP};
use crate::error::{Error, Result};
use crate::kernel::lock::{Alive, Lock, NEEDED, Subject, lock};
use crate::kernel::objects::{self, MAPS, OBJECTS, PINNED, PROGRAMS, RESTS, Role};
use crate::kernel::{sys, verdict};
use crate::probe::has_resilient_lock;

impl Core {
    /// Joins the machine's core, or loads it if there is none.
    ///
    /// # Errors
    /// [`Error::Denied`] without privileges, [`Error::Unsupported`] on a kernel without a needed
    /// feature, [`Error::Version`] if a core of another version runs.
    pub fn open() -> Result<Core> {
        if !sys::may_host() {
            return Err(Error::Denied {
                action: "using events",
                privilege: NEEDED,
            });
        }
        let lock = lock()?;
        match Core::join(&lock)? {
            Some(core) => Ok(core),
            None => load(&lock, Alive::open(Subject::Core)?, 0),
        }
    }

    /// Loads the machine's core for a daemon: programs reach the core through the daemon, and do
    /// not join it.
    ///
    /// # Errors
    /// [`Error::Hosted`] if a daemon or other programs run a core already; and those of
    /// [`Core::open`].
    pub fn open_for_daemon() -> Result<Core> {
        let core = {
            let lock = lock()?;
            let alive = Alive::open(Subject::Core)?;
            if alive.others()? {
                return Err(Error::Hosted {
                    pid: lock.loader().unwrap_or(0),
                });
            }
            load(&lock, alive, HOST_DAEMON)?
        };
        core.preload()?;
        Ok(core)
    }
}

/// Loads a core; `flags`: `HOST_*`. The caller holds the lock and found no core to join.
fn load(lock: &Lock, alive: Alive, flags: u32) -> Result<Core> {
    let cpus =
        libbpf_rs::num_possible_cpus().map_err(|error| Error::from_bpf("counting CPUs", &error))?;
    let cpus = u32::try_from(cpus).expect("fewer CPUs than 2^32");
    let mut loaded = Loaded::default();
    for spec in OBJECTS.iter().filter(|spec| !spec.is_part) {
        let brought = object(spec, cpus, &loaded.maps)?;
        loaded.add(brought);
    }
    let links = attach_always(&loaded)?;
    finish(lock, alive, cpus, flags, loaded, links)
}

/// Prints libbpf's own messages on request; our errors say the same in fewer words.
pub(crate) fn print_log(_: PrintLevel, text: String) {
    verdict::note(&text);
    if std::env::var_os("ECALLS_LIBBPF_LOG").is_some() {
        eprint!("{text}");
    }
}

/// Translates a refusal into the feature that the kernel lacks, where that is known.
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

/// Loads one object file, its programs and new maps, with the maps that exist already.
///
/// # Errors
/// [`Error::Refused`] if the verifier refused it; for an optional one [`Error::Unsupported`] if the
/// kernel lacks a feature.
pub(crate) fn object(
    spec: &'static objects::Object,
    cpus: u32,
    maps: &HashMap<&'static str, MapHandle>,
) -> Result<Loaded> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, print_log)));
    let result = try_object(spec, cpus, maps);
    match (result, verdict::take()) {
        (Ok(loaded), _) => Ok(loaded),
        (Err(_), Some(why)) => Err(Error::Refused {
            what: spec.name,
            why,
        }),
        (Err(source), None) if spec.optional && !is_passing(&source) => Err(Error::Unsupported {
            feature: spec.name,
            since: "a newer kernel",
        }),
        (Err(source), None) => Err(explain(spec.name, source)),
    }
}

/// Loads an object file that is no part of the core, once `prepare` has changed it.
///
/// # Errors
/// [`Error::Refused`] if the verifier refused it; else [`Error::Load`], and those of `prepare`.
pub(crate) fn alone(
    name: &'static str,
    bytes: &[u8],
    prepare: impl FnOnce(&mut OpenObject) -> Result<()>,
) -> Result<Object> {
    let failed = |source| Error::Load {
        object: name,
        source,
    };
    libbpf_rs::set_print(Some((PrintLevel::Warn, print_log)));
    let mut open = ObjectBuilder::default()
        .name(name)
        .and_then(|builder| builder.open_memory(bytes))
        .map_err(failed)?;
    prepare(&mut open)?;
    match (open.load(), verdict::take()) {
        (Ok(object), _) => Ok(object),
        (Err(_), Some(why)) => Err(Error::Refused { what: name, why }),
        (Err(source), None) => Err(failed(source)),
    }
}

/// Whether a loading error is temporary, such as a lack of memory, and says nothing about the
/// kernel. An error of libbpf-rs hides its number (`kind` is `Other`, `source` is none), errno may
/// have changed since, and descriptors are free again: only the text tells, which is the standard
/// library's for that number.
fn is_passing(error: &libbpf_rs::Error) -> bool {
    use libbpf_rs::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};

    let text = error.to_string();
    let says = |number| text.contains(&std::io::Error::from_raw_os_error(number).to_string());
    matches!(error.kind(), Interrupted | OutOfMemory | WouldBlock)
        || says(libc::EMFILE)
        || says(libc::ENFILE)
}

fn try_object(
    spec: &'static objects::Object,
    cpus: u32,
    maps: &HashMap<&'static str, MapHandle>,
) -> libbpf_rs::Result<Loaded> {
    let mut open = ObjectBuilder::default()
        .name(spec.name)?
        .open_memory(spec.bytes)?;
    prepare_maps(&mut open, cpus, maps)?;
    choose_programs(&mut open);
    let object = open.load()?;
    let mut loaded = Loaded::default();
    for program in object.progs() {
        if !program.autoload() {
            continue;
        }
        let name = program.name().to_string_lossy().into_owned();
        let pair = PINNED.iter().find(|(_, pinned)| *pinned == name);
        let name = pair.map_or(name.as_str(), |(other, _)| other);
        let known = PROGRAMS
            .iter()
            .find(|known| known.object == spec.name && known.name == name);
        if let Some(known) = known {
            let fd = program.as_fd().try_clone_to_owned();
            let fd = fd.map_err(libbpf_rs::Error::from)?;
            loaded.programs.insert(known.name, fd);
        }
    }
    for map in object.maps() {
        let name = map.name().to_string_lossy().into_owned();
        if name.contains('.') || maps.contains_key(name.as_str()) {
            continue;
        }
        let known = MAPS.iter().chain([&HOST_MAP]).find(|known| **known == name);
        let known = known.unwrap_or_else(|| panic!("{name} is missing in the table MAPS"));
        loaded.maps.insert(known, MapHandle::try_from(&map)?);
    }
    Ok(loaded)
}

/// Of two programs for the same purpose, loads the one for this kernel.
fn choose_programs(open: &mut OpenObject) {
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if PINNED.iter().any(|(_, pinned)| *pinned == name) {
            program.set_autoload(!has_resilient_lock());
        } else if PINNED.iter().any(|(other, _)| *other == name) {
            program.set_autoload(has_resilient_lock());
        }
    }
}

fn prepare_maps(
    open: &mut OpenObject,
    cpus: u32,
    maps: &HashMap<&'static str, MapHandle>,
) -> libbpf_rs::Result<()> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == CONSTANTS {
            set_cpus(&mut map, cpus);
        } else if let Some(shared) = maps.get(name.as_str()) {
            map.reuse_fd(shared.as_fd())?;
        } else if name == queues_map() {
            map.set_max_entries(cpus + 2)?;
        } else if name == "fates" {
            map.set_max_entries(cpus * FATES as u32)?;
        } else if name == "queue_timers" {
            map.set_max_entries(cpus + 1)?;
        } else if name == "rests" {
            map.set_max_entries(cpus * RESTS)?;
        } else if name == "rest_uses" {
            map.set_max_entries(cpus)?;
        }
    }
    Ok(())
}

/// The map of the event queues: the two differ in the type of the lock (bpf/event/maps.h).
pub(crate) fn queues_map() -> &'static str {
    if has_resilient_lock() {
        "queues"
    } else {
        "spin_queues"
    }
}

/// Permanent attachments, by the program's name.
type NamedLinks = Vec<(&'static str, OwnedFd)>;

fn attach_always(loaded: &Loaded) -> Result<NamedLinks> {
    let always = PROGRAMS
        .iter()
        .filter(|program| program.role == Role::Always);
    always
        .map(|program| {
            let fd = loaded.programs.get(program.name);
            let fd = fd.ok_or(Error::Closed("a program"))?;
            let link = sys::attach(fd.as_fd(), libbpf_sys::BPF_TRACE_RAW_TP)?;
            Ok((program.name, link))
        })
        .collect()
}

fn finish(
    lock: &Lock,
    alive: Alive,
    cpus: u32,
    flags: u32,
    mut loaded: Loaded,
    links: NamedLinks,
) -> Result<Core> {
    let map = loaded.maps.remove(HOST_MAP);
    let map = map.ok_or(Error::Closed("the host map"))?;
    let mut host = service::Host::new_zeroed();
    loaded.write_ids(&mut host)?;
    for (name, link) in &links {
        if let Some(at) = PROGRAMS.iter().position(|program| program.name == *name) {
            host.link_ids[at] = sys::link_ids(link.as_fd())?.0;
        }
    }
    host.version = ABI_VERSION;
    host.pid = std::process::id();
    host.cpus = cpus;
    host.flags = flags;
    host.start_ns = sys::now_ns();
    for cpu in 0..=cpus {
        run_indexed(&loaded, "queue_setup", cpu)?;
    }
    let mut core = Core::assemble(
        alive,
        MapHandle::try_from(&map).map_err(|e| Error::from_bpf("opening a map", &e))?,
        &host,
        loaded,
        links.into_iter().map(|(_, link)| link).collect(),
        true,
    )?;
    builtin::describe(&core)?;
    host.ready = objects::tables_checksum();
    map.update(&0u32.to_ne_bytes(), host.as_bytes(), MapFlags::ANY)
        .map_err(|error| Error::from_bpf("completing the core", &error))?;
    core.give_sign()?;
    lock.set_core(sys::map_id(map.as_fd())?)?;
    core.hold_pinned()?;
    Ok(core)
}

/// Runs the programs that set up a part's timers and threads. Those in maps of the core may have
/// been set up by a former instance of the part: their callbacks are replaced.
pub(crate) fn set_up(part: &str, loaded: &Loaded) -> Result<()> {
    match part {
        "thread" => {
            for index in 0..objects::THREADS {
                run_indexed(loaded, "thread_setup", index)?;
            }
            run_indexed(loaded, "pump_setup", 0)
        }
        "signal_task" => run_indexed(loaded, "watch_setup", 0),
        "downcall_run" => run_range(loaded, "delay_setup", CHANNELS_MAX),
        "timer" => run_range(loaded, "timer_setup", TIMERS_MAX),
        _ => Ok(()),
    }
}

/// Sets up elements 0 to `count` - 1; the context is {first, count, result} of the kernel side.
fn run_range(loaded: &Loaded, program: &'static str, count: usize) -> Result<()> {
    let count = u32::try_from(count).expect("a small limit");
    let mut context = [0; 12];
    context[4..8].copy_from_slice(&count.to_ne_bytes());
    match loaded.run(program, &mut context)? {
        0 => Ok(()),
        error => Err(Error::from_errno("setting the core up", i64::from(error))),
    }
}

fn run_indexed(loaded: &Loaded, program: &'static str, index: u32) -> Result<()> {
    match loaded.run(program, &mut index.to_ne_bytes())? {
        0 => Ok(()),
        error => Err(Error::from_errno("setting the core up", i64::from(error))),
    }
}

/// The section of an object with the loader's constants: the number of CPUs (bpf/event/maps.h).
pub(crate) const CONSTANTS: &str = ".rodata.core";

/// Writes the number of CPUs into an object's constants; it is their only member.
pub(crate) fn set_cpus(map: &mut OpenMapMut<'_>, cpus: u32) {
    if let Some(constants) = map.initial_value_mut()
        && let Some(first) = constants.get_mut(..4)
    {
        first.copy_from_slice(&cpus.to_ne_bytes());
    }
}
