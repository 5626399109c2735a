//! The guard of a TCP port against overload (bpf/guard/guard.bpf.c): loading it, and its counts.
//!
//! It is an object of its own and needs no core. The process that starts it holds it, and it acts
//! in that process's network namespace until the process drops it or ends, however that happens.
//! The server knows nothing of it.

pub mod policy;
mod sorry;
mod told;

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ecalls_abi::guard::{GUARD_PAGE_TOLD, GuardPage};
use libbpf_rs::libbpf_sys::{BPF_SK_LOOKUP, BPF_TRACE_RAW_TP};
use libbpf_rs::{Map, MapCore, MapFlags, MapHandle, MapType, Object, Program, ProgramType};
use rustix::time::{ClockId, clock_getres};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::core::handler::Handler;
use crate::core::load;
use crate::error::{Error, Result};
use crate::kernel::table::lookup;
use crate::kernel::worker::Worker;
use crate::kernel::{namespace, sys};
use sorry::Sorry;

pub use sorry::SORRY_MAX;

const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guard.bpf.o"));
const NAME: &str = "guard";
const SETTING: &str = ".rodata.guard";
const TABLE: &str = "guard_table";
const OWN: &str = "guard_own";
const MARK: &str = "guard_mark";
const PAGE: &str = "guard_page";
const STATE: &str = "guard_state";
const BEGIN: &str = "guard_begin";
const LOOKUP: &str = "guard_lookup";

/// Places in `guard_own`.
const VOID: u32 = 0;
const SORRY: u32 = 2;

/// Of the listeners at a port the guard sees so many: `LISTENERS_MAX`.
pub const LISTENERS_MAX: usize = 64;

/// Its object file, for the test that compares the contract with what was compiled.
#[doc(hidden)]
pub fn compiled() -> (&'static str, &'static [u8]) {
    (NAME, BYTES)
}

/// What becomes of a connection that the server has no time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Its first packet is dropped: the client's kernel tries again after a second.
    Drop,
    /// It is refused by a reset: the client knows at once.
    Refuse,
    /// A listener of the guard's answers by HTTP that the server is busy. It has at most
    /// [`SORRY_MAX`] connections at a time; what comes beyond that is dropped.
    Sorry,
}

/// `guard` of the object: what it is to do.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
struct Setting {
    net_cookie: u64,
    target_ns: u64,
    tick_ns: u64,
    port: u32,
    turn: u32,
    sorry_max: u32,
    fuel: u32,
}

/// `struct counts`: since the guard began, but for what is said to be now.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Counts {
    /// SYNs that went on to the server,
    pub admitted: u64,
    /// and those that did not.
    pub refused: u64,
    /// Connections that were established, or queued when the guard began.
    pub established: u64,
    /// Connections that are open now, accepted or not.
    pub open: i64,
    /// The sum over all SYNs of how long the head of the queue had waited.
    pub age_ns_sum: u64,
    /// The sum over all SYNs of how long each would have waited.
    pub wait_ns_sum: u64,
    /// The time between two accepts of the busy server; 0: unknown.
    pub pace_ns: u64,
    /// How often refusing began.
    pub turns: u64,
    /// Of those that did not: SYNs that went to the listener that answers,
    pub sorry: u64,
    /// and its connections now.
    pub sorry_open: i64,
    /// Runs of the policy that ended in a fault, so that the rule decided,
    pub failed: u64,
    /// and the last one's reason and place, as the second argument of an action in E-code.
    pub fault: u64,
    /// Whether it refuses now, IPv4 and IPv6.
    pub refuses: [u32; 2],
    /// Listeners at the port now,
    pub listeners: u32,
    /// and those, ever, of which the guard knows nothing: there were [`LISTENERS_MAX`].
    pub unseen: u32,
}

/// `struct state`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct State {
    counts: Counts,
    pace: [u64; 6],
    lost: u64,
    used: u32,
    owner: u32,
    ruled: [u32; 2],
    listener: [u64; LISTENERS_MAX],
}

/// A guard that works. When it is dropped, the server gets all connections again.
#[derive(Debug)]
pub struct Guard {
    // The first field: SYNs go to the server before there is nobody to take them.
    _links: Vec<OwnedFd>,
    object: Object,
    _void: Vec<OwnedFd>,
    sorry: Option<Sorry>,
    told: Option<Worker>,
}

impl Guard {
    /// Guards `port` of this network namespace, so that the server accepts a connection at about
    /// `target_ns` after it was established, at the latest; or as a policy decides, which was
    /// compiled for [`policy::environment`].
    ///
    /// # Errors
    /// [`Error::Unknown`] if nobody listens at the port, [`Error::Denied`] without privileges,
    /// [`Error::Unsupported`] if the kernel lacks a feature, [`Error::Refused`] if its verifier
    /// does not accept the guard, [`Error::Ecode`] if it does not accept the policy.
    pub fn start(port: u16, mode: Mode, target_ns: u64, policy: Option<&Handler>) -> Result<Guard> {
        if !namespace::may_attach() {
            return Err(Error::Denied {
                action: "guarding a port",
                privilege: "root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
            });
        }
        let tick = clock_getres(ClockId::MonotonicCoarse);
        let setting = Setting {
            net_cookie: namespace::cookie()?,
            target_ns,
            tick_ns: u64::try_from(tick.tv_nsec).unwrap_or_default(),
            port: u32::from(port),
            turn: match mode {
                Mode::Refuse => 0,
                Mode::Drop => 1,
                Mode::Sorry => 2,
            },
            sorry_max: SORRY_MAX,
            fuel: policy.map_or(0, |policy| policy.fuel),
        };
        let object = load(&setting)?;
        let mut guard = Guard {
            _links: Vec::new(),
            object,
            _void: Vec::new(),
            sorry: None,
            told: None,
        };
        if let Some(policy) = policy {
            guard.set_policy(policy)?;
        }
        if mode != Mode::Refuse {
            guard._void = guard.add_own(VOID, None)?;
        }
        if mode == Mode::Sorry {
            let listeners = guard.add_own(SORRY, Some(port))?;
            guard.mark(&listeners)?;
            guard.sorry = Some(sorry::start(listeners)?);
        }
        let state = sys::attach(guard.program(STATE)?.as_fd(), BPF_TRACE_RAW_TP)?;
        guard._links.push(state);
        guard.find_sockets()?;
        if guard.counts()?.listeners == 0 {
            return Err(Error::Unknown {
                what: "listener",
                name: port.to_string(),
                hint: "no server listens at this TCP port of this network namespace; start it \
                       first (`ss -ltn` lists those that there are)"
                    .to_owned(),
            });
        }
        let lookup = namespace::attach(guard.program(LOOKUP)?.as_fd(), BPF_SK_LOOKUP)?;
        guard._links.push(lookup);
        guard.told = told::start(port, guard.handle(TABLE)?, guard.handle(PAGE)?)?;
        Ok(guard)
    }

    /// Whether a server can tell of the queue within it: no other program has the name.
    pub fn hears(&self) -> bool {
        self.told.is_some()
    }

    /// What the server tells; `None`: it tells nothing.
    ///
    /// # Errors
    /// Those of the system.
    pub fn told(&self) -> Result<Option<GuardPage>> {
        let page: Option<GuardPage> =
            lookup(&self.map(PAGE)?, &0u32.to_ne_bytes(), "reading the page")?;
        Ok(page.filter(|page| page.told == GUARD_PAGE_TOLD))
    }

    /// Its counts.
    ///
    /// # Errors
    /// Those of the system.
    pub fn counts(&self) -> Result<Counts> {
        Ok(state(&self.map(TABLE)?)?.counts)
    }

    /// How often the listener that answers could not accept a connection; `None`: it is not that
    /// mode.
    pub fn sorry_failed(&self) -> Option<u64> {
        self.sorry.as_ref().map(Sorry::failed)
    }

    /// Without a descriptor of its own: there may be none left.
    fn map(&self, name: &str) -> Result<Map<'_>> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or(Error::Closed("a map of the guard"))
    }

    fn handle(&self, name: &str) -> Result<MapHandle> {
        MapHandle::try_from(&self.map(name)?)
            .map_err(|error| Error::from_bpf("taking a map", &error))
    }

    /// Listeners in those places of the kernel side, which take what is for that port, or nothing;
    /// without IPv6 in this kernel only one.
    fn add_own(&self, places: u32, port: Option<u16>) -> Result<Vec<OwnedFd>> {
        let timeout_ms = sorry::TIME.as_millis() as u32;
        let mut sockets = vec![namespace::own_listener(false, port, timeout_ms)?];
        sockets.extend(namespace::own_listener(true, port, timeout_ms).ok());
        for (place, socket) in (places..).zip(&sockets) {
            let value = u64::try_from(socket.as_raw_fd()).unwrap_or_default();
            self.store(OWN, &place.to_ne_bytes(), &value.to_ne_bytes())?;
        }
        Ok(sockets)
    }

    /// Their connections are not the server's.
    fn mark(&self, listeners: &[OwnedFd]) -> Result<()> {
        let mark = |one: &OwnedFd| self.store(MARK, &one.as_raw_fd().to_ne_bytes(), &[1, 0, 0, 0]);
        listeners.iter().try_for_each(mark)
    }

    fn store(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let stored = self.map(map)?.update(key, value, MapFlags::ANY);
        stored.map_err(|error| Error::from_bpf("storing what the guard uses", &error))
    }

    /// The program finds them: its output is empty.
    fn find_sockets(&self) -> Result<()> {
        let iterator = sys::iterator(self.program(BEGIN)?.as_fd())?;
        let read = File::from(iterator).read_to_end(&mut Vec::new());
        read.map(drop)
            .map_err(|error| Error::from_io("finding the port's sockets", error))
    }

    fn program(&self, name: &str) -> Result<Program<'_>> {
        let mut programs = self.object.progs();
        let found = programs.find(|program| program.name() == name);
        found.ok_or(Error::Closed("a program of the guard"))
    }
}

fn state(table: &impl MapCore) -> Result<State> {
    let state: Option<State> = lookup(table, &0u32.to_ne_bytes(), "reading the counts")?;
    state.ok_or(Error::Closed("the guard's counts"))
}

fn load(setting: &Setting) -> Result<Object> {
    let loaded = load::alone(NAME, BYTES, |open| {
        let mut maps = open.maps_mut();
        let found = maps.find(|map| map.name() == SETTING);
        let mut constants = found.ok_or(Error::Closed("the guard's setting"))?;
        if let Some(place) = constants.initial_value_mut() {
            place[..size_of::<Setting>()].copy_from_slice(setting.as_bytes());
        }
        Ok(())
    });
    loaded.map_err(|error| match error {
        Error::Load { .. } => lacking().unwrap_or(error),
        error => error,
    })
}

/// What this kernel lacks of what the guard needs.
fn lacking() -> Option<Error> {
    let missing = |feature, since| Some(Error::Unsupported { feature, since });
    match (
        ProgramType::SkLookup.is_supported(),
        MapType::Sockmap.is_supported(),
    ) {
        (Ok(false), _) => missing("programs that choose a listener (sk_lookup)", "5.9"),
        (_, Ok(false)) => missing("map of sockets (sockmap)", "the option CONFIG_NET_SOCK_MSG"),
        _ => None,
    }
}
