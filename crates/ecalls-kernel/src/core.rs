//! The core: the loaded kernel side, and the tables that control it.
//!
//! A machine has one core. The first privileged program that opens the core loads it; the next ones
//! find its record (the map `ecalls_host`) through the lock's file and join by ids. Each program
//! that has joined holds the core's maps, programs and links, so the core lives until the last of
//! these programs ends, for whatever reason, and then disappears completely: nothing is pinned.
//! What not every program needs is loaded on first use (`part`).
//!
//! A daemon has its core for itself. Programs with the same rights can be its guests, for tables
//! that the daemon leaves to them (`lane`): they open what the daemon has loaded, load and attach
//! nothing, and do not keep the core alive, so that the next daemon can start.

pub(crate) mod audience;
pub mod builtin;
pub mod channel;
pub(crate) mod fast_call;
mod fate;
pub mod handler;
pub mod lane;
pub(crate) mod load;
pub mod look;
pub mod measure;
pub mod owner;
mod part;
mod sampler;
pub mod service;
pub mod socket;
pub mod stat;
pub mod subscription;
pub mod user;

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use ecalls_abi::ABI_VERSION;
use ecalls_abi::service::{
    Host, Service, ServiceCount, ServiceInfo, ServiceLatency, SubscriptionCount,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::core::part::{Lack, Loaded, Parts};
use crate::error::{Error, Result};
use crate::kernel::link::{Link, Links};
use crate::kernel::lock::{Alive, Lock, Subject, hold_record, lock};
use crate::kernel::objects::{self, MAPS, OBJECTS, PROGRAMS, Role, part_with, tables_checksum};
use crate::kernel::sys;
use crate::kernel::table::{Lazy, Table};

/// Map that identifies a core.
pub(crate) const HOST_MAP: &str = "ecalls_host";

/// A core in which this program takes part.
#[derive(Debug)]
pub struct Core {
    /// The first field, so that it ends before the maps are closed.
    alive: Alive,
    pub(crate) maps: HashMap<&'static str, MapHandle>,
    pub(crate) programs: HashMap<&'static str, OwnedFd>,
    /// The permanent attachments; held so that they remain when the loader ends.
    _links: Vec<OwnedFd>,
    host: MapHandle,
    fast_call: OnceLock<fast_call::Chosen>,
    _pinned: Vec<Link>,
    cpus: u32,
    loaded_here: bool,
    /// A daemon's core, which no other program hosts.
    daemon: bool,
    links: Links,
    /// Object files that are loaded on first use.
    pub(crate) parts: Parts,
    pub(crate) views: Views,
    pub(crate) tables: Tables,
    /// This process knows of no free channel with a smaller index.
    pub(crate) free_channel: AtomicU32,
}

/// The shared tables.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) services: Table<Service>,
    pub(crate) infos: Table<ServiceInfo>,
    pub(crate) service_counts: Table<ServiceCount>,
    pub(crate) latencies: Table<ServiceLatency>,
    pub(crate) subscriptions: Table<ecalls_abi::subscription::Subscription>,
    pub(crate) subscription_counts: Table<SubscriptionCount>,
    pub(crate) audience_rows: Table<ecalls_abi::audience::Audience>,
    pub(crate) channels: Table<ecalls_abi::channel::Channel>,
    pub(crate) handler_states: Table<[u64; 2]>,
    pub(crate) attributes: Table<[u64; ecalls_abi::downcall::ATTRIBUTES]>,
}

/// Tables that are mapped as well, for searching or for writing single words.
#[derive(Debug, Default)]
pub(crate) struct Views {
    pub(crate) subscriptions: Lazy<ecalls_abi::subscription::Subscription>,
    pub(crate) services: Lazy<Service>,
    pub(crate) audiences: Lazy<ecalls_abi::audience::Audience>,
    pub(crate) users: Lazy<ecalls_abi::user::User>,
    pub(crate) fates: Lazy<ecalls_abi::fate::Fate>,
}

/// The result of `identify` (bpf/event/process.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct Identity {
    pub pid: u32,
    /// Kernel priority: 0..99 real time, 100..139 fair; smaller is more urgent.
    pub priority: i32,
    /// Start time since boot, ns.
    pub start_ns: u64,
    pub uid: u32,
    is_local: u32,
    /// Identifies the program that the process runs: changes with each execve.
    pub program: u64,
    /// Name of its first thread.
    pub comm: [u8; 16],
}

impl Core {
    /// Joins a running core; `Ok(None)` if there is none. It never loads anything.
    pub fn join_running() -> Result<Option<Core>> {
        Core::join(&lock()?)
    }

    /// Joins the core that the lock's file names, if it is alive.
    fn join(lock: &Lock) -> Result<Option<Core>> {
        let Some((alive, map, host)) = Core::running(lock)? else {
            return Ok(None);
        };
        if host.is_daemon() {
            return Err(Error::Hosted { pid: host.pid });
        }
        check_build(&host)?;
        // Opening fails here if the core is being torn down; then there is none.
        match Core::from_host(alive, map, &host) {
            Ok(Some(core)) if core.is_healthy() => Ok(Some(core)),
            _ => Ok(None),
        }
    }

    /// Opens the core of the daemon that is process `daemon`, as a guest.
    ///
    /// # Errors
    /// [`Error::Denied`] without the right to open maps by their ids; [`Error::Hosted`] if the core
    /// of this instance is another program's; [`Error::DaemonGone`].
    pub(crate) fn visit(daemon: u32) -> Result<Core> {
        let (alive, map, host) = Core::running(&lock()?)?.ok_or(Error::DaemonGone)?;
        if !host.is_daemon() || host.pid != daemon {
            return Err(Error::Hosted { pid: host.pid });
        }
        check_build(&host)?;
        Core::from_host(alive, map, &host)?.ok_or(Error::DaemonGone)
    }

    /// Whether this program is a guest in the core of a daemon.
    pub(crate) fn is_guest(&self) -> bool {
        self.daemon && !self.loaded_here
    }

    /// The record of the core that the lock's file names, if it is alive.
    fn running(lock: &Lock) -> Result<Option<(Alive, MapHandle, Host)>> {
        let alive = Alive::open(Subject::Core)?;
        if !alive.others()? {
            return Ok(None);
        }
        let map = lock.core_id().map(MapHandle::from_map_id);
        let Some(Ok(map)) = map else { return Ok(None) };
        let Some(host) = read_host(&map).filter(Host::is_ready) else {
            return Ok(None);
        };
        Ok((map.name() == HOST_MAP).then_some((alive, map, host)))
    }

    /// Opens everything of a core except its parts; `None` when no program holds it any more.
    fn from_host(alive: Alive, map: MapHandle, host: &Host) -> Result<Option<Core>> {
        let links = PROGRAMS
            .iter()
            .zip(host.link_ids)
            .filter(|(program, id)| *id != 0 && program.role == Role::Always && !host.is_daemon())
            .map(|(_, id)| sys::link_by_id(id))
            .collect::<Result<Vec<_>>>()?;
        let mut loaded = Loaded::default();
        for (name, id) in MAPS.iter().zip(host.map_ids) {
            if id != 0 && part_with(name).is_none() {
                let map = MapHandle::from_map_id(id)
                    .map_err(|error| Error::from_bpf("joining the core", &error))?;
                loaded.maps.insert(*name, map);
            }
        }
        for (program, id) in PROGRAMS.iter().zip(host.prog_ids) {
            if !objects::find(program.object).is_part {
                let fd = sys::program_by_id(id)?;
                loaded.programs.insert(program.name, fd);
            }
        }
        let mut core = Core::assemble(alive, map, host, loaded, links, false)?;
        if !core.alive.others()? {
            return Ok(None);
        }
        if !core.is_guest() {
            core.give_sign()?;
            core.hold_pinned()?;
        }
        Ok(Some(core))
    }

    /// Before Linux 6.15: attaches the program that other programs fire instead of turning
    /// preemption off (bpf/event/pinned.h). The caller holds the lock.
    pub(crate) fn hold_pinned(&mut self) -> Result<()> {
        if !crate::probe::has_resilient_lock() {
            self._pinned = self.attached(Role::Pinned)?;
        }
        Ok(())
    }

    /// Shows that this program takes part in the core until it ends.
    pub(crate) fn give_sign(&mut self) -> Result<()> {
        let maps = self.maps.values().map(AsFd::as_fd);
        let programs = self.programs.values().chain(&self._links).map(AsFd::as_fd);
        let all = maps.chain(programs).chain([self.host.as_fd()]);
        let above = all.map(|fd| fd.as_raw_fd()).max().unwrap_or(0);
        self.alive.give(above)
    }

    pub(crate) fn assemble(
        alive: Alive,
        host_map: MapHandle,
        host: &Host,
        loaded: Loaded,
        links: Vec<OwnedFd>,
        loaded_here: bool,
    ) -> Result<Core> {
        let Loaded { maps, programs, .. } = loaded;
        let tables = Tables {
            services: table(&maps, "services")?,
            infos: table(&maps, "service_infos")?,
            service_counts: table(&maps, "service_counts")?,
            latencies: table(&maps, "latencies")?,
            subscriptions: table(&maps, "subscriptions")?,
            subscription_counts: table(&maps, "sub_counts")?,
            audience_rows: table(&maps, "audience_rows")?,
            channels: table(&maps, "channels")?,
            handler_states: table(&maps, "handler_states")?,
            attributes: table(&maps, "attributes")?,
        };
        Ok(Core {
            alive,
            maps,
            programs,
            _links: links,
            host: host_map,
            fast_call: OnceLock::new(),
            _pinned: Vec::new(),
            cpus: host.cpus,
            loaded_here,
            daemon: host.is_daemon(),
            links: Links::default(),
            parts: Parts::new(),
            views: Views::default(),
            tables,
            free_channel: AtomicU32::new(0),
        })
    }

    fn is_healthy(&self) -> bool {
        let mut context = [0u8; 8];
        self.run("health", &mut context)
            .is_ok_and(|_| context[4..8] == [0; 4])
    }

    /// The core's record: the process that loaded it, when, and the mechanism of its fast call.
    pub fn host(&self) -> Result<Host> {
        read_host(&self.host).ok_or(Error::Closed("the core"))
    }

    /// CPUs for which the queues were made.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Whether this program loaded the core, and did not join it.
    pub fn loaded_here(&self) -> bool {
        self.loaded_here
    }

    /// A map of the core; a part that has it is loaded.
    pub(crate) fn map(&self, name: &'static str) -> Result<&MapHandle> {
        let map = match part_with(name) {
            Some(part) => self.part(part)?.maps.get(name),
            None => self.maps.get(name),
        };
        map.ok_or(Error::Closed("a map of the core"))
    }

    /// A program of the core; a part that has it is loaded.
    pub(crate) fn program(&self, name: &'static str) -> Result<BorrowedFd<'_>> {
        if let Some(program) = self.programs.get(name) {
            return Ok(program.as_fd());
        }
        let known = PROGRAMS.iter().find(|program| program.name == name);
        let known = known.ok_or(Error::Closed("a program of the core"))?;
        let program = self.part(known.object)?.programs.get(name);
        program
            .map(AsFd::as_fd)
            .ok_or(Error::Closed("a program of the core"))
    }

    /// The parts that the kernel's verifier refused when this program needed them, and the reasons.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.parts.refused()
    }

    /// Changes the core's record. Only one program at a time does so: another one may have loaded a
    /// part or attached a program since this one read the record.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Host)) -> Result<()> {
        // No other program changes a daemon's record.
        let _held = (!self.daemon).then(hold_record).transpose()?;
        let mut host = self.host()?;
        change(&mut host);
        self.host
            .update(&0u32.to_ne_bytes(), host.as_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("writing the core's record", &error))
    }

    /// A copy of the map at index `number` of [`MAPS`]; `None` after the last one, and for a map
    /// that only a part of the core has.
    pub fn copy_map(&self, number: u32) -> Result<Option<OwnedFd>> {
        let Some(name) = MAPS.get(number as usize).copied() else {
            return Ok(None);
        };
        if part_with(name).is_some() {
            return Ok(None);
        }
        self.map(name)?
            .as_fd()
            .try_clone_to_owned()
            .map(Some)
            .map_err(|error| Error::from_io("copying a descriptor", error))
    }

    /// A copy of the program of the generic call, which any process may run: the program checks its
    /// caller. The holder of the copy can bind maps of its own to it, which then live as long as
    /// the core.
    pub fn generic_program(&self) -> Result<OwnedFd> {
        self.program("call_generic")?
            .try_clone_to_owned()
            .map_err(|error| Error::from_io("copying a descriptor", error))
    }

    /// Runs one of the core's system call programs on `context`, and returns its result.
    pub(crate) fn run(&self, name: &'static str, context: &mut [u8]) -> Result<i32> {
        sys::run(self.program(name)?, context)
    }

    /// The attachments for `role`: new ones, or existing ones of another program, which are then
    /// shared. They exist as long as a program holds them. The caller holds the lock.
    pub(crate) fn attached(&self, role: Role) -> Result<Vec<Link>> {
        let mut found = Vec::new();
        for program in PROGRAMS.iter().filter(|program| program.role == role) {
            match self.program(program.name) {
                Ok(fd) => found.push((program.name, fd)),
                // An optional part that this kernel does not support is left out.
                Err(error)
                    if objects::find(program.object).optional && Lack::of(&error).is_some() =>
                {
                    lacks_service(role, error)?;
                }
                Err(error) => return Err(error),
            }
        }
        let host = self.host()?;
        let (mut links, mut fresh) = (Vec::new(), Vec::new());
        for (name, fd) in found {
            if let Some(link) = self.links.get(name) {
                links.push(link);
                continue;
            }
            let at = PROGRAMS.iter().position(|program| program.name == name);
            let at = at.ok_or(Error::Closed("a program of the core"))?;
            let theirs = if self.daemon { 0 } else { host.link_ids[at] };
            let attach = || match role {
                Role::FastCall(mechanism) => mechanism.attach(fd),
                _ => sys::attach(fd, libbpf_sys::BPF_TRACE_RAW_TP),
            };
            let (link, new) = self.links.attach(name, fd, theirs, attach)?;
            fresh.extend(new.map(|id| (at, id)));
            links.push(link);
        }
        if !fresh.is_empty() {
            self.note(|host| {
                for (at, id) in fresh {
                    host.link_ids[at] = id;
                }
            })?;
        }
        Ok(links)
    }

    /// Whether a service's programs are attached now.
    pub fn is_attached(&self, service: u32) -> Result<bool> {
        let host = self.host()?;
        let links = PROGRAMS.iter().zip(host.link_ids);
        Ok(links
            .filter(|(program, _)| program.role == Role::Service(service))
            .any(|(program, id)| {
                let theirs = !self.daemon && id != 0 && sys::link_by_id(id).is_ok();
                theirs || self.links.get(program.name).is_some()
            }))
    }

    /// Writes a service's row with a new list, and then makes that list the current one.
    pub(crate) fn write_service(&self, index: u32, service: &Service, list: usize) -> Result<()> {
        let mut row = *service;
        self.tables.services.set(index, &row)?;
        row.active = u32::from(list == 1);
        row.flip_ns = sys::now_ns();
        self.tables.services.set(index, &row)
    }

    /// The identity of process `pid`.
    ///
    /// # Errors
    /// [`Error::Closed`] if there is no such process.
    pub fn identify(&self, pid: u32) -> Result<Identity> {
        self.ask(pid, false)
    }

    /// The identity of the process whose id in this process's PID namespace is `pid`. That of the
    /// result is the kernel's own, by which the core knows it.
    ///
    /// # Errors
    /// [`Error::Closed`] if there is no such process; in a PID namespace other than the machine's,
    /// [`Error::Unsupported`] before Linux 6.15.
    pub fn identify_here(&self, pid: u32) -> Result<Identity> {
        self.ask(pid, !owner::is_in_first_namespace())
    }

    fn ask(&self, pid: u32, is_local: bool) -> Result<Identity> {
        let mut identity = Identity {
            pid,
            is_local: is_local.into(),
            ..Identity::default()
        };
        match self.run("identify", identity.as_mut_bytes())? {
            0.. => Ok(identity),
            error if error == -libc::ENOSYS => Err(Error::Unsupported {
                feature: "core, or daemon, in a PID namespace of its own",
                since: "Linux 6.15, or to run in the machine's, or as a client of its daemon",
            }),
            _ => Err(Error::Closed("the process")),
        }
    }

    /// This process's id as the kernel side knows it.
    pub(crate) fn own_pid(&self) -> u32 {
        let own = std::process::id();
        match owner::is_in_first_namespace() {
            true => own,
            false => self.identify_here(own).map_or(own, |identity| identity.pid),
        }
    }

    /// The number of instructions that the kernel's verifier processed to load each program.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn verified(&self) -> Result<Vec<(String, u32)>> {
        for object in OBJECTS {
            if object.is_part {
                match self.part(object.name) {
                    Err(error) if !object.optional => return Err(error),
                    _ => {}
                }
            }
        }
        let own = self.programs.iter().map(|(name, fd)| (*name, fd));
        sys::verified(own.chain(self.parts.programs()))
    }

    /// The kernel's own figures of each program of service `index`: runs, ns, skipped runs. There
    /// are none for a program that is not loaded.
    pub fn costs(&self, index: u32) -> Result<Vec<Cost>> {
        let mut costs = Vec::new();
        let role = Role::Service(index);
        for program in PROGRAMS.iter().filter(|program| program.role == role) {
            let part = self.living_part(program.object)?;
            let Some(fd) = part.and_then(|part| part.programs.get(program.name)) else {
                continue;
            };
            let info = sys::program_info(fd.as_fd())?;
            costs.push(Cost {
                program: program.name,
                runs: info.run_cnt,
                total_ns: info.run_time_ns,
                skipped: info.recursion_misses,
            });
        }
        Ok(costs)
    }
}

/// The error for a service whose programs cannot be loaded: without them it raises no events, so
/// nothing can subscribe to it. `error` is the reason.
fn lacks_service(role: Role, error: Error) -> Result<()> {
    let Role::Service(index) = role else {
        return Ok(());
    };
    match builtin::find(index).and_then(|builtin| builtin.needs) {
        Some((feature, since)) => Err(match error {
            Error::Refused { .. } => error,
            _ => Error::Unsupported { feature, since },
        }),
        None => Ok(()),
    }
}

/// The cost of a program of a service, as the kernel counts it.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub program: &'static str,
    /// Runs while BPF statistics were enabled.
    pub runs: u64,
    /// Time in those runs, ns.
    pub total_ns: u64,
    /// Runs that the kernel skipped because the program was active on that CPU: lost events.
    pub skipped: u64,
}

fn table<T: FromBytes + IntoBytes + Immutable>(
    maps: &HashMap<&'static str, MapHandle>,
    name: &'static str,
) -> Result<Table<T>> {
    let map = maps.get(name).ok_or(Error::Closed("a table of the core"))?;
    let map =
        MapHandle::try_from(map).map_err(|error| Error::from_bpf("opening a table", &error))?;
    Ok(Table::new(map))
}

/// That a core was loaded by a program of this build.
fn check_build(host: &Host) -> Result<()> {
    if host.version != ABI_VERSION {
        return Err(Error::Version {
            theirs: host.version,
            ours: ABI_VERSION,
            pid: host.pid,
        });
    }
    match host.ready == tables_checksum() {
        true => Ok(()),
        false => Err(Error::OtherBuild { pid: host.pid }),
    }
}

fn read_host(map: &MapHandle) -> Option<Host> {
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    Host::read_from_bytes(&bytes).ok()
}
