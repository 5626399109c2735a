//! The parts of the core: object files that are loaded when they are first needed, because the
//! kernel's verifier takes most of the time in which a core starts.
//!
//! A part is loaded with the core's maps and with maps of its own
//! ([`PART_MAPS`](crate::kernel::objects::PART_MAPS)), and is set up. The core's record then has
//! the ids of its programs and maps, so that other programs which host the core join it instead of
//! loading it a second time. A program that needs a part holds it until the program ends, so a part
//! lives as long as such a program. A part that no program holds any more is loaded again: as for
//! the core itself, a sign of life shows that it is held ([`Alive`]), and the set-up programs take
//! over what the former part has left in the core's maps.
//!
//! One thread of one process loads at a time ([`hold_parts`]); the others then find the part
//! loaded. The ids are recorded before the sign is given: a sign never belongs to a part which is
//! still being loaded, and a process that ends meanwhile leaves ids without a sign.
//!
//! A daemon loads a part when a client first needs it, as other hosts do. Before it gives up its
//! privileges it loads what it could not load later ([`Core::preload`]). Its guests open what the
//! daemon has loaded, load nothing, and give no sign.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ecalls_abi::service::Host;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::core::{Core, load};
use crate::error::{Error, Result};
use crate::kernel::lock::{Alive, Subject, hold_parts};
use crate::kernel::objects::{
    self, FastCall, MAP_LIST, MAPS, OBJECTS, Object, PROGRAMS, Role, part_with,
};
use crate::kernel::sys;
use crate::probe::has_resilient_lock;

/// Programs and maps of one or several object files.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The first field, so that it ends before the maps are closed.
    alive: Option<Alive>,
    pub(crate) maps: HashMap<&'static str, MapHandle>,
    pub(crate) programs: HashMap<&'static str, OwnedFd>,
}

impl Loaded {
    /// Adds the programs and maps of another object file.
    pub(crate) fn add(&mut self, other: Loaded) {
        self.maps.extend(other.maps);
        self.programs.extend(other.programs);
    }

    /// Runs one of its system call programs on `context`, and returns its result.
    pub(crate) fn run(&self, name: &'static str, context: &mut [u8]) -> Result<i32> {
        let program = self.programs.get(name);
        let program = program.ok_or(Error::Closed("a program of the core"))?;
        sys::run(program.as_fd(), context)
    }

    /// Writes the ids of the maps here into the core's record.
    pub(crate) fn write_ids(&self, host: &mut Host) -> Result<()> {
        for (id, name) in host.map_ids.iter_mut().zip(MAPS) {
            if let Some(map) = self.maps.get(name) {
                *id = sys::map_id(map.as_fd())?;
            }
        }
        for (id, program) in host.prog_ids.iter_mut().zip(PROGRAMS) {
            if let Some(fd) = self.programs.get(program.name) {
                *id = sys::program_info(fd.as_fd())?.id;
            }
        }
        Ok(())
    }

    /// Shows that this program holds the part until the program ends.
    fn give_sign(&mut self, mut alive: Alive) -> Result<()> {
        let maps = self.maps.values().map(|map| map.as_fd().as_raw_fd());
        let programs = self.programs.values().map(AsRawFd::as_raw_fd);
        alive.give(maps.chain(programs).max().unwrap_or(0))?;
        self.alive = Some(alive);
        Ok(())
    }
}

/// The reason for which this kernel has no such part.
#[derive(Clone, Debug)]
pub(crate) enum Lack {
    /// Its verifier refused the object file, for this reason.
    Refused(String),
    /// It lacks the feature that the object file is for.
    Unsupported,
}

impl Lack {
    /// The permanent reason in a loading error; `None`: the next attempt may succeed.
    pub(crate) fn of(error: &Error) -> Option<Lack> {
        match error {
            Error::Refused { why, .. } => Some(Lack::Refused(why.clone())),
            Error::Unsupported { .. } => Some(Lack::Unsupported),
            _ => None,
        }
    }

    fn error(&self, part: &'static str) -> Error {
        match self {
            Lack::Refused(why) => Error::Refused {
                what: part,
                why: why.clone(),
            },
            Lack::Unsupported => Error::Unsupported {
                feature: part,
                since: "a newer kernel",
            },
        }
    }
}

/// The state of a part in this program.
#[derive(Debug, Default)]
struct Part {
    loaded: OnceLock<Loaded>,
    lack: OnceLock<Lack>,
}

/// The parts of a core, by the name of the object file.
#[derive(Debug)]
pub(crate) struct Parts {
    all: HashMap<&'static str, Part>,
    /// Processor time that this program has taken to load parts, ns.
    loading_ns: AtomicU64,
}

impl Parts {
    /// No part is loaded yet.
    pub(crate) fn new() -> Parts {
        let parts = OBJECTS.iter().filter(|object| object.is_part);
        Parts {
            all: parts.map(|part| (part.name, Part::default())).collect(),
            loading_ns: AtomicU64::new(0),
        }
    }

    /// Records the reason for which this kernel has no such part.
    fn lacks(&self, part: &'static str, lack: Lack) {
        if let Some(part) = self.all.get(part) {
            let _ = part.lack.set(lack);
        }
    }

    /// The parts that the verifier refused, with its reasons.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.all
            .iter()
            .filter_map(|(name, part)| match part.lack.get() {
                Some(Lack::Refused(why)) => Some((*name, why.as_str())),
                _ => None,
            })
    }

    /// The programs of the loaded parts.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&'static str, &OwnedFd)> {
        let here = self.all.values().filter_map(|part| part.loaded.get());
        here.flat_map(|loaded| loaded.programs.iter().map(|(name, fd)| (*name, fd)))
    }
}

impl Core {
    /// The part of that name: joined if another program that hosts the core holds it, else loaded.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Unsupported`] if this kernel does not support it.
    pub(crate) fn part(&self, name: &'static str) -> Result<&Loaded> {
        self.take_part(name, true)?
            .ok_or(Error::Closed("a part of the core"))
    }

    /// The same if this program or another one holds it; it is never loaded.
    pub(crate) fn living_part(&self, name: &'static str) -> Result<Option<&Loaded>> {
        self.take_part(name, false)
    }

    fn take_part(&self, name: &'static str, may_load: bool) -> Result<Option<&Loaded>> {
        let part = self.parts.all.get(name);
        let part = part.ok_or(Error::Closed("a part of the core"))?;
        if let Some(loaded) = part.loaded.get() {
            return Ok(Some(loaded));
        }
        if let Some(lack) = part.lack.get() {
            return if may_load {
                Err(lack.error(name))
            } else {
                Ok(None)
            };
        }
        let _held = hold_parts()?;
        if let Some(loaded) = part.loaded.get() {
            return Ok(Some(loaded)); // another thread has loaded it
        }
        let number = OBJECTS.iter().position(|object| object.name == name);
        let subject = Subject::Part(number.ok_or(Error::Closed("a part of the core"))?);
        let alive = Alive::open(subject)?;
        let mut loaded = match self.join_part(name, &alive)? {
            Some(loaded) => loaded,
            None if !may_load => return Ok(None),
            None if self.is_guest() => {
                return Err(Error::Denied {
                    action: "using a part of the core that the daemon has not loaded",
                    privilege: "a daemon that starts with CAP_NET_ADMIN, as its unit has it, and \
                                a kernel that supports the part (`ecalls doctor`)",
                });
            }
            None => self.load_part(objects::find(name)).inspect_err(|error| {
                if let Some(lack) = Lack::of(error) {
                    let _ = part.lack.set(lack);
                }
            })?,
        };
        if !self.is_guest() {
            loaded.give_sign(alive)?;
        }
        Ok(Some(part.loaded.get_or_init(|| loaded)))
    }

    /// Opens a part that another program holds; `None` if no program holds it.
    fn join_part(&self, name: &'static str, alive: &Alive) -> Result<Option<Loaded>> {
        if !alive.others()? {
            return Ok(None);
        }
        let host = self.host()?;
        // Opening fails here if the part is being torn down; then there is none.
        match open_part(name, &host) {
            Ok(loaded) if alive.others()? => Ok(Some(loaded)),
            _ => Ok(None),
        }
    }

    /// Processor time that this program has taken so far to load parts, whoever needed them, ns.
    pub fn loading_ns(&self) -> u64 {
        self.parts.loading_ns.load(Ordering::Relaxed)
    }

    fn load_part(&self, object: &'static Object) -> Result<Loaded> {
        let begin_ns = sys::thread_ns();
        let loaded = self.load_and_set_up(object);
        let spent_ns = sys::thread_ns().saturating_sub(begin_ns);
        let total = &self.parts.loading_ns;
        total.fetch_add(spent_ns, Ordering::Relaxed);
        loaded
    }

    fn load_and_set_up(&self, object: &'static Object) -> Result<Loaded> {
        let loaded = load::object(object, self.cpus(), &self.maps)?;
        assert!(
            loaded
                .maps
                .keys()
                .all(|map| part_with(map) == Some(object.name)),
            "maps of {} that are missing in the table PART_MAPS: {:?}",
            object.name,
            loaded.maps.keys()
        );
        load::set_up(object.name, &loaded)?;
        self.fill_handlers(&loaded)?;
        let mut written = Ok(());
        self.note(|host| written = loaded.write_ids(host))?;
        written.map(|()| loaded)
    }

    /// Puts kernel handlers into their slots.
    fn fill_handlers(&self, loaded: &Loaded) -> Result<()> {
        for program in PROGRAMS {
            let (Role::Handler(slot), Some(fd)) = (program.role, loaded.programs.get(program.name))
            else {
                continue;
            };
            let (slot, fd) = (slot.to_ne_bytes(), fd.as_raw_fd().to_ne_bytes());
            self.map("handlers")?
                .update(&slot, &fd, MapFlags::ANY)
                .map_err(|error| Error::from_bpf("registering a kernel handler", &error))?;
        }
        Ok(())
    }

    /// Loads what a daemon cannot load once it has only CAP_BPF and CAP_PERFMON: the best mechanism
    /// of the fast call, and the lane, which needs CAP_NET_ADMIN and which guests open; and what
    /// the daemon itself needs, the list of the machine's maps.
    ///
    /// # Errors
    /// Those of the fast call.
    pub(crate) fn preload(&self) -> Result<()> {
        self.fast_call()?;
        self.need(objects::find("lane"))?;
        self.need(objects::find(MAP_LIST))
    }

    /// Loads all parts that subscribers can need, and the best mechanism of the fast call: for a
    /// process that gives up the privileges which loading needs.
    ///
    /// # Errors
    /// Those of a part that the core needs.
    pub fn complete(&self) -> Result<()> {
        self.fast_call()?;
        let mechanism = [FastCall::Security, FastCall::Prctl, FastCall::Setsockopt];
        for object in OBJECTS.iter().filter(|object| object.is_part) {
            let is_mechanism = mechanism.iter().any(|call| call.object() == object.name);
            // No subscriber can measure, and its programs are a fifth of the verifier's work.
            let is_useless = object.name == "measure";
            if is_mechanism || is_useless || (object.name == "pinned" && has_resilient_lock()) {
                continue;
            }
            self.need(object)?;
        }
        Ok(())
    }

    /// Loads a part if this kernel supports it; its lack is an error unless the part is optional.
    fn need(&self, object: &'static Object) -> Result<()> {
        match self.part(object.name) {
            Ok(_) => Ok(()),
            Err(_) if object.optional => {
                self.parts.lacks(object.name, Lack::Unsupported);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Opens a part's maps and programs by the ids in the core's record.
fn open_part(name: &'static str, host: &Host) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    for (map, id) in MAPS.iter().zip(host.map_ids) {
        if part_with(map) == Some(name) {
            let opened = MapHandle::from_map_id(id)
                .map_err(|error| Error::from_bpf("joining a part of the core", &error))?;
            loaded.maps.insert(*map, opened);
        }
    }
    for (program, id) in PROGRAMS.iter().zip(host.prog_ids) {
        if program.object == name {
            let opened = sys::program_by_id(id)?;
            loaded.programs.insert(program.name, opened);
        }
    }
    Ok(loaded)
}
