//! The kernel side of scheduler activations without sched_ext (bpf/threads/activation.bpf.c).
//!
//! It is an object of its own and needs no core. A process that may load it does so for itself;
//! other ones are clients of the daemon, which holds one [`Host`] for all of them. A client gets
//! two descriptors: its page, and the program by which a thread becomes an activation. What the
//! kernel side relies on is in maps that no client has.
//!
//! The program sees each context switch of the machine, so it is attached only while a runtime uses
//! it.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ecalls_abi::activation as abi;
use ecalls_abi::message::{Answer, Number, Request};
use ecalls_abi::version::CHANNELS_MAX;
use libbpf_rs::libbpf_sys::BPF_TRACE_RAW_TP;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, Program};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::access::connection::{Connection, socket_path, unexpected};
use crate::core::channel::array;
use crate::core::load;
use crate::error::{Error, Result};
use crate::kernel::link::Link;
use crate::kernel::segment::Segment;
use crate::kernel::sys;
use crate::kernel::table::lookup;

const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/activation.bpf.o"));
const NAME: &str = "activation";
const PAGES: &str = "activations";
const ROWS: &str = "activation_rows";
const SUMS: &str = "activation_sums";
const SWITCH: &str = "thread_blocks";
const JOIN: &str = "activation_join";

/// Its object file, for the test that compares the contract with what was compiled.
#[doc(hidden)]
pub fn compiled() -> (&'static str, &'static [u8]) {
    (NAME, BYTES)
}

/// `struct row`: whose a page is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Row {
    pid: u32,
    generation: u32,
    start_ns: u64,
}

/// `struct counts`: blocks of the activations of all pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Blocks {
    /// Those upon which a processor was taken from its activation,
    pub told: u64,
    /// and those upon which it was not.
    pub untold: u64,
}

/// `ANYBODY`: who may run the programs.
const ANYBODY: u32 = u32::MAX;

/// The loaded object.
#[derive(Debug)]
pub struct Host {
    object: Object,
    /// Indexes of pages in use.
    used: Mutex<BTreeSet<u32>>,
    /// The attachment, which the pages' owners share.
    link: Mutex<Weak<OwnedFd>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Loads it.
    ///
    /// # Errors
    /// [`Error::Denied`] without CAP_BPF and CAP_PERFMON; [`Error::Refused`] if the kernel's
    /// verifier does not accept it.
    pub fn load() -> Result<Host> {
        if !sys::may_host() {
            return Err(Error::Denied {
                action: "seeing threads block",
                privilege: "the daemon ecallsd, or CAP_BPF and CAP_PERFMON, or root",
            });
        }
        let object = load::alone(NAME, BYTES, |_| Ok(()))?;
        Ok(Host {
            object,
            used: Mutex::default(),
            link: Mutex::default(),
        })
    }

    /// A page for the process `pid` that started at `start_ns`, or the only one for any.
    fn add(self: &Arc<Self>, pid: u32, start_ns: u64) -> Result<HostedActivations> {
        let (link, join) = (self.attached()?, self.join_program()?);
        let index = self.take_index()?;
        let made = array("ecalls_activs", size_of::<abi::Activations>(), 1, false);
        let hosted = HostedActivations {
            index,
            page: made.inspect_err(|_| self.give_index(index))?,
            join,
            host: Arc::clone(self),
            _link: link,
        };
        let page = hosted.page.as_raw_fd().to_ne_bytes();
        self.map(PAGES)?
            .update(&index.to_ne_bytes(), &page, MapFlags::ANY)
            .map_err(|error| Error::from_bpf("handing a page to the kernel", &error))?;
        self.set_owner(index, pid, start_ns)?;
        Ok(hosted)
    }

    /// A page for a client of the daemon.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if all are in use, and what the kernel refuses.
    pub fn add_client(
        self: &Arc<Self>,
        owner: &crate::core::owner::Owner,
    ) -> Result<HostedActivations> {
        self.add(owner.pid, owner.start_ns)
    }

    /// How many pages are in use.
    pub fn runtimes(&self) -> usize {
        locked(&self.used).len()
    }

    /// Blocks since it was loaded.
    ///
    /// # Errors
    /// Those of the system.
    pub fn blocks(&self) -> Result<Blocks> {
        let (key, action) = (0_u32.to_ne_bytes(), "reading the counts of blocks");
        let found = lookup(&self.map(SUMS)?, &key, action)?;
        Ok(found.unwrap_or_default())
    }

    fn take_index(&self) -> Result<u32> {
        let mut used = locked(&self.used);
        let free = (0..CHANNELS_MAX as u32).find(|index| !used.contains(index));
        let index = free.ok_or(Error::LimitReached {
            which: "runtimes of threads",
            limit: CHANNELS_MAX,
        })?;
        used.insert(index);
        Ok(index)
    }

    fn give_index(&self, index: u32) {
        locked(&self.used).remove(&index);
    }

    /// Whoever is an activation of the former owner is none from now on.
    fn set_owner(&self, index: u32, pid: u32, start_ns: u64) -> Result<()> {
        let rows = self.map(ROWS)?;
        let key = index.to_ne_bytes();
        let row: Row = lookup(&rows, &key, "reading the owner of a page")?.unwrap_or_default();
        let row = Row {
            pid,
            generation: row.generation.wrapping_add(1),
            start_ns,
        };
        rows.update(&key, row.as_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("writing the owner of a page", &error))
    }

    fn attached(&self) -> Result<Link> {
        let mut shared = locked(&self.link);
        if let Some(link) = shared.upgrade() {
            return Ok(link);
        }
        let link = Arc::new(sys::attach(
            self.program(SWITCH)?.as_fd(),
            BPF_TRACE_RAW_TP,
        )?);
        *shared = Arc::downgrade(&link);
        Ok(link)
    }

    fn map(&self, name: &str) -> Result<MapHandle> {
        let found = self.object.maps().find(|map| map.name() == name);
        let found = found.ok_or(Error::Closed("a map of the activations"))?;
        MapHandle::try_from(&found).map_err(|error| Error::from_bpf("copying a descriptor", &error))
    }

    fn program(&self, name: &str) -> Result<Program<'_>> {
        let mut programs = self.object.progs();
        let found = programs.find(|program| program.name() == name);
        found.ok_or(Error::Closed("a program of the activations"))
    }

    /// The program for one owner. Whoever has it can bind maps to it (`BPF_PROG_BIND_MAP`), which
    /// then live as long as it does: so there is one for each.
    fn join_program(&self) -> Result<OwnedFd> {
        sys::load_again(c"activation_join", self.program(JOIN)?.insns())
    }
}

fn copy(fd: impl AsFd) -> Result<OwnedFd> {
    let copied = fd.as_fd().try_clone_to_owned();
    copied.map_err(|error| Error::from_io("copying a descriptor", error))
}

/// The page of one process's activations. Dropping it ends them, which waits for the kernel.
#[derive(Debug)]
pub struct HostedActivations {
    index: u32,
    page: OwnedFd,
    join: OwnedFd,
    host: Arc<Host>,
    _link: Link,
}

impl HostedActivations {
    /// Kernel memory that the page takes, bytes.
    pub const BYTES: u64 = size_of::<abi::Activations>() as u64;

    pub fn index(&self) -> u32 {
        self.index
    }

    /// Copies of what its owner gets: the page, and the program to join it.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn copies(&self) -> Result<[OwnedFd; 2]> {
        Ok([copy(&self.page)?, copy(&self.join)?])
    }

    /// The id of the page's map, which exists as long as a process holds it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn map_id(&self) -> Result<u32> {
        sys::map_id(self.page.as_fd())
    }

    /// From now on no block is told.
    pub fn revoke(&self) {
        // If this fails, the page is the former owner's still, and nobody else's.
        let _ = self.host.set_owner(self.index, 0, 0);
    }
}

impl Drop for HostedActivations {
    fn drop(&mut self) {
        self.revoke();
        let Ok(pages) = self.host.map(PAGES) else {
            return;
        };
        match pages.delete(&self.index.to_ne_bytes()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {}
            // If it is still there, the next owner of the index would share it.
            _ => self.host.give_index(self.index),
        }
    }
}

/// The kernel side for one process's activations.
#[derive(Debug)]
pub struct Activations {
    page: Segment,
    join: OwnedFd,
    index: u32,
    /// Blocks are told as long as it lives.
    source: Source,
}

#[derive(Debug)]
enum Source {
    Own { _hosted: HostedActivations },
    Daemon(Connection),
}

impl Activations {
    /// Loads the kernel side, if this process may; else the daemon has it for this process.
    ///
    /// # Errors
    /// [`Error::Denied`] if the process may not, and there is no daemon; [`Error::Refused`] if the
    /// kernel's verifier does not accept it; [`Error::Quota`].
    pub fn open() -> Result<Activations> {
        match Host::load() {
            Ok(host) => {
                let hosted = Arc::new(host).add(ANYBODY, 0)?;
                let [page, join] = hosted.copies()?;
                let index = hosted.index;
                Activations::new(&page, join, index, Source::Own { _hosted: hosted })
            }
            Err(denied @ Error::Denied { .. }) => match Connection::open(&socket_path()?)? {
                Some((connection, _)) => Activations::of_daemon(connection),
                None => Err(denied),
            },
            Err(error) => Err(error),
        }
    }

    fn of_daemon(connection: Connection) -> Result<Activations> {
        let request = Request::OpenActivations(Number { number: 0, pad: 0 });
        let (answer, fds) = connection.ask(&request, &[])?;
        let Answer::Done(done) = answer else {
            return Err(unexpected(&answer));
        };
        let [page, join] = fds
            .try_into()
            .map_err(|_| Error::Closed("the activations' page"))?;
        let index = u32::try_from(done.value).map_err(|_| Error::Closed("the daemon"))?;
        Activations::new(&page, join, index, Source::Daemon(connection))
    }

    fn new(page: &OwnedFd, join: OwnedFd, index: u32, source: Source) -> Result<Activations> {
        Ok(Activations {
            page: Segment::map(page, size_of::<abi::Activations>())?,
            join,
            index,
            source,
        })
    }

    /// Whether blocks are told still: not if the daemon has ended.
    pub fn is_alive(&self) -> bool {
        match &self.source {
            Source::Own { .. } => true,
            Source::Daemon(connection) => connection.check().is_ok(),
        }
    }

    /// The page: `struct ecalls_activations`.
    pub fn page(&self) -> &[AtomicU64] {
        self.page.words()
    }

    /// The calling thread is activation `number` (from 1) from now on, until it ends.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn join(&self, number: u32) -> Result<()> {
        let mut join: [u32; 2] = [self.index, number];
        let result = sys::run(self.join.as_fd(), join.as_mut_bytes())?;
        if result < 0 {
            return Err(Error::from_errno(
                "becoming an activation",
                i64::from(result),
            ));
        }
        Ok(())
    }
}
