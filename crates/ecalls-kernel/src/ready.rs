//! The kernel side of readiness through shared memory (bpf/ready/ready.bpf.c).
//!
//! It is an object of its own and needs no core. A process that may load it does so for itself,
//! once for all its maps: then threads that share a listener are told in turn. The programs see
//! data arrive at each socket of the machine, so they are attached only while there is a map.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ecalls_abi::downcall::SETSOCKOPT;
use ecalls_abi::ready::{READY_REMOVE, READY_SEATS, READY_WORDS, Readiness, ReadyCall};
use ecalls_abi::version::CHANNELS_MAX;
use libbpf_rs::libbpf_sys::{BPF_CGROUP_SETSOCKOPT, BPF_TRACE_RAW_TP};
use libbpf_rs::{MapCore, MapFlags, Object};
use zerocopy::IntoBytes;

use crate::access::memory::Wake;
use crate::core::channel::{array, wake_buffer};
use crate::core::fast_call::cgroup_root;
use crate::core::load;
use crate::error::{Error, Result};
use crate::kernel::segment::Segment;
use crate::kernel::sys;

const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ready.bpf.o"));
const NAME: &str = "ready";
const MAPS: &str = "ready_maps";
const WAKES: &str = "ready_wakes";
const KEYS: &str = "ready_keys";

/// Its object file, for the test that compares the contract with what was compiled.
#[doc(hidden)]
pub fn compiled() -> (&'static str, &'static [u8]) {
    (NAME, BYTES)
}

/// The object of this process.
static HOST: Mutex<Weak<Host>> = Mutex::new(Weak::new());

/// The loaded object, attached.
#[derive(Debug)]
struct Host {
    object: Object,
    /// Rows in use.
    used: Mutex<BTreeSet<u32>>,
    _links: [OwnedFd; 3],
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    fn shared() -> Result<Arc<Host>> {
        let mut shared = locked(&HOST);
        if let Some(host) = shared.upgrade() {
            return Ok(host);
        }
        let host = Arc::new(Host::load()?);
        *shared = Arc::downgrade(&host);
        Ok(host)
    }

    fn load() -> Result<Host> {
        if !sys::may_host() {
            return Err(Error::Denied {
                action: "being told which sockets are ready",
                privilege: "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, or root",
            });
        }
        let object = load::alone(NAME, BYTES, |_| Ok(()))?;
        let group = cgroup_root()?;
        let links = [
            sys::attach(program(&object, "ready_data")?, BPF_TRACE_RAW_TP)?,
            sys::attach(program(&object, "ready_error")?, BPF_TRACE_RAW_TP)?,
            sys::attach_cgroup(
                program(&object, "ready_call")?,
                group.as_fd(),
                BPF_CGROUP_SETSOCKOPT,
            )?,
        ];
        Ok(Host {
            object,
            used: Mutex::default(),
            _links: links,
        })
    }

    fn take_row(&self) -> Result<u32> {
        let mut used = locked(&self.used);
        let free = (0..CHANNELS_MAX as u32).find(|row| !used.contains(row));
        let row = free.ok_or(Error::LimitReached {
            which: "maps of ready sockets",
            limit: CHANNELS_MAX,
        })?;
        used.insert(row);
        Ok(row)
    }

    fn write(&self, map: &str, row: u32, value: &[u8]) -> Result<()> {
        let found = self.object.maps().find(|found| found.name() == map);
        let found = found.ok_or(Error::Closed("a map of the ready sockets"))?;
        found
            .update(&row.to_ne_bytes(), value, MapFlags::ANY)
            .map_err(|error| Error::from_bpf("handing memory to the kernel", &error))
    }
}

fn program<'a>(object: &'a Object, name: &str) -> Result<BorrowedFd<'a>> {
    let found = object.progs().find(|program| program.name() == name);
    let found = found.ok_or(Error::Closed("a program of the ready sockets"))?;
    // SAFETY: the object holds the program's descriptor as long as it lives.
    Ok(unsafe { BorrowedFd::borrow_raw(found.as_fd().as_raw_fd()) })
}

/// One map: the memory, and the descriptor to sleep on. Dropping it ends all introductions.
#[derive(Debug)]
pub struct ReadyMap {
    memory: Segment,
    wake: Wake,
    key: u64,
    row: u32,
    host: Arc<Host>,
}

impl ReadyMap {
    /// Loads the kernel side, if this process has not yet, and adds a map.
    ///
    /// # Errors
    /// [`Error::Denied`] if the process may not; [`Error::Refused`] if the kernel's verifier does
    /// not accept it; [`Error::LimitReached`]; and those of the system.
    pub fn open() -> Result<ReadyMap> {
        let host = Host::shared()?;
        let memory = array("ecalls_ready", size_of::<Readiness>(), 1, false)?;
        let buffer = wake_buffer()?;
        let map = ReadyMap {
            memory: Segment::map(&memory, size_of::<Readiness>())?,
            key: sys::secret()?,
            row: host.take_row()?,
            wake: Wake::map(
                buffer
                    .try_clone()
                    .map_err(|error| Error::from_io("copying a descriptor", error))?,
            )?,
            host,
        };
        let number = |fd: &OwnedFd| fd.as_raw_fd().to_ne_bytes();
        map.host.write(MAPS, map.row, &number(&memory))?;
        map.host.write(WAKES, map.row, &number(&buffer))?;
        map.host.write(KEYS, map.row, map.key.as_bytes())?;
        Ok(map)
    }

    /// The words of `struct ecalls_readiness`.
    pub fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// From now on the map is told when the socket may be ready, by the descriptor's number. One
    /// system call.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is not an IPv4 or IPv6 socket, or for a number above the map's;
    /// [`Error::LimitReached`] if the socket has been introduced to too many maps.
    pub fn introduce(&self, socket: BorrowedFd<'_>) -> Result<()> {
        let descriptor = socket.as_raw_fd();
        self.call(socket, descriptor.cast_unsigned())
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENOSPC) => Error::LimitReached {
                    which: "maps of one socket",
                    limit: READY_SEATS as usize,
                },
                Some(libc::ENOTSOCK | libc::EAFNOSUPPORT | libc::EBADF | libc::EINVAL) => {
                    Error::Invalid {
                        what: "the descriptor",
                        given: descriptor.to_string(),
                        expected: "an open socket of IPv4 or IPv6, below 65536",
                    }
                }
                _ => Error::from_io("introducing a socket", error),
            })
    }

    /// Ends that; without an introduction it does nothing.
    ///
    /// # Errors
    /// Those of the system.
    pub fn dismiss(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.call(socket, READY_REMOVE)
            .map_err(|error| Error::from_io("dismissing a socket", error))
    }

    fn call(&self, socket: BorrowedFd<'_>, number: u32) -> std::io::Result<()> {
        let call = ReadyCall {
            key: self.key,
            row: self.row,
            number,
        };
        sys::set_option(
            socket,
            SETSOCKOPT,
            ecalls_abi::ready::SETSOCKOPT_READY,
            call.as_bytes(),
        )
    }

    /// Waits for a wake-up, at most `timeout_ns`. False: the time is over.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait(&self, timeout_ns: Option<u64>) -> Result<bool> {
        sys::wait_readable(self.wake.as_fd(), timeout_ns)
    }

    /// Makes the descriptor unreadable until the next wake-up.
    pub fn clear_wake(&self) {
        self.wake.clear();
    }
}

/// The descriptors of a map are below this.
pub const DESCRIPTORS: u32 = READY_WORDS * 64;

impl AsFd for ReadyMap {
    /// The descriptor for sleeping.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for ReadyMap {
    fn drop(&mut self) {
        // Seats with the former key are free from now on; if this fails, the row stays unused.
        if self.host.write(KEYS, self.row, &[0; 8]).is_ok() {
            locked(&self.host.used).remove(&self.row);
        }
    }
}
