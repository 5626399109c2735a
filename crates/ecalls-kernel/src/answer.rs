//! Datagrams that are answered where they arrive (bpf/answer/answer.bpf.c): loading the object, its
//! cells and its counts.
//!
//! What answers on the machine is seen by [`running`];
//! programs without privileges borrow cells of a [`Holder`].
//!
//! It needs no core. The process that starts it holds it, with the attachment to the interface,
//! until the process drops it or ends, however that happens.

mod hold;
mod look;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use ecalls_abi::answer::{ANSWER_CELLS, ANSWER_ECHO, AnswerCell, AnswerCount};
use libbpf_rs::{MapCore, MapHandle, Object, OpenObject};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::core::handler::{Apart, Handler};
use crate::core::load;
use crate::ecode::load_answer;
use crate::error::{Error, Result};
use crate::kernel::interface::{Interface, Way, check_interrupts};
use crate::kernel::namespace;
use crate::kernel::segment::Segment;
use crate::kernel::sys;
use crate::kernel::table::Table;

pub use hold::{Holder, Lent};
pub use look::{Running, running};

const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/answer.bpf.o"));
const NAME: &str = "answer";
const SETTING: &str = ".rodata.answer";
const PROGRAM: &str = "answer_ingress";
const CELLS: &str = "answer_cells";
const COUNTS: &str = "answer_counts";
const EVENTS: &str = "answer_events";
const FRAMES: &str = "answer_frames";
const PLACE: &str = "answer_ecode";
const SECOND_NS: u64 = 1_000_000_000;
/// So much of a second's replies may come at once.
const BURST: u64 = 10;

/// Its object file, for the test that compares the contract with what was compiled.
#[doc(hidden)]
pub fn compiled() -> (&'static str, &'static [u8]) {
    (NAME, BYTES)
}

/// What is answered, and how much.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The name of the interface.
    pub interface: &'a str,
    /// The service's address and port. `0.0.0.0` is any of this host of IPv4, `::` any of either.
    pub at: SocketAddr,
    /// The number of cells.
    pub cells: u32,
    /// The first bytes of a reply that are its request's.
    pub echo: usize,
    /// Replies in a second.
    pub per_second: u64,
}

/// `answer` of the object: what it is to do.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
struct Setting {
    echo: [u8; ANSWER_ECHO],
    interval_ns: u64,
    burst: u64,
    echo_bytes: u32,
    fuel: u32,
    address: [u8; 16],
    family: u16,
    port: [u8; 2],
    pad: u32,
}

impl Plan<'_> {
    fn check(&self) -> Result<()> {
        let invalid = |what, given: String, expected| {
            Err(Error::Invalid {
                what,
                given,
                expected,
            })
        };
        if self.at.port() == 0 {
            return invalid("the port", "0".to_owned(), "the UDP port of the service");
        }
        if !(1..=ANSWER_CELLS).contains(&self.cells) {
            let expected = "1 to 65536";
            return invalid("the number of cells", self.cells.to_string(), expected);
        }
        if self.echo > ANSWER_ECHO || !self.echo.is_multiple_of(2) {
            let expected = "an even number, at most 16";
            return invalid(
                "the number of echoed bytes",
                self.echo.to_string(),
                expected,
            );
        }
        if !(1..=SECOND_NS).contains(&self.per_second) {
            let expected = "1 to 1000000000";
            return invalid("replies in a second", self.per_second.to_string(), expected);
        }
        Ok(())
    }

    fn setting(&self, fuel: u32) -> Setting {
        let mut address = [0; 16];
        let family = match self.at.ip() {
            IpAddr::V4(ip) => {
                address[..4].copy_from_slice(&ip.octets());
                libc::AF_INET
            }
            IpAddr::V6(ip) if ip.is_unspecified() => libc::AF_UNSPEC,
            IpAddr::V6(ip) => {
                address = ip.octets();
                libc::AF_INET6
            }
        };
        let mut echo = [0; ANSWER_ECHO];
        echo[..self.echo].fill(u8::MAX);
        Setting {
            echo,
            interval_ns: SECOND_NS / self.per_second,
            burst: (self.per_second / BURST).max(1),
            echo_bytes: self.echo as u32,
            fuel: fuel.max(1),
            address,
            family: family as u16,
            port: self.at.port().to_be_bytes(),
            pad: 0,
        }
    }
}

/// The loaded object, attached. When it is dropped, all datagrams go to the socket again.
#[derive(Debug)]
pub struct Answer {
    // The first field: no datagram comes any more when the rest ends.
    link: OwnedFd,
    cells: Segment,
    cells_fd: OwnedFd,
    counts: Table<AnswerCount>,
    counts_fd: OwnedFd,
    _object: Object,
}

impl Answer {
    /// Answers datagrams as the program in E-code says.
    ///
    /// # Errors
    /// [`Error::Denied`] without privileges, [`Error::Invalid`] for an interface that there is not
    /// or a number out of range, [`Error::Unsupported`] on an interface without Ethernet headers or
    /// a kernel with PREEMPT_RT, [`Error::Refused`] and [`Error::Ecode`] if the kernel's verifier
    /// does not accept one of the programs.
    pub fn start(plan: &Plan<'_>, handler: &Handler) -> Result<Answer> {
        if !namespace::may_attach() {
            return Err(Error::Denied {
                action: "answering datagrams in the kernel",
                privilege: "root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
            });
        }
        plan.check()?;
        check_interrupts("datagrams that are answered in the kernel")?;
        let interface = Interface::named(plan.interface)?;
        if !interface.ethernet {
            return Err(Error::Unsupported {
                feature: "answers on an interface without Ethernet headers",
                since: "the socket gets its datagrams",
            });
        }
        let setting = plan.setting(handler.fuel);
        let object = load::alone(NAME, BYTES, |open| prepare(open, &setting, plan.cells))?;
        let apart = Apart {
            frames: &map(&object, FRAMES)?,
            events: &map(&object, EVENTS)?,
            place: &map(&object, PLACE)?,
        };
        apart.put(handler, load_answer)?;
        let (cells, counts) = (map(&object, CELLS)?, map(&object, COUNTS)?);
        let failed = |error| Error::from_io("copying a descriptor", error);
        let link = {
            let mut programs = object.progs();
            let program = programs.find(|program| program.name() == PROGRAM);
            let program = program.ok_or(Error::Closed("the program that answers"))?;
            interface.attach(program.as_fd(), Way::In)?
        };
        Ok(Answer {
            link,
            cells: Segment::map(&cells, plan.cells as usize * size_of::<AnswerCell>())?,
            cells_fd: cells.as_fd().try_clone_to_owned().map_err(failed)?,
            counts_fd: counts.as_fd().try_clone_to_owned().map_err(failed)?,
            counts: Table::new(counts),
            _object: object,
        })
    }

    /// The words of the cells.
    pub fn words(&self) -> &[AtomicU64] {
        self.cells.words()
    }

    /// Whether the interface is there: if it is removed, nothing is answered any more.
    pub fn is_attached(&self) -> bool {
        !matches!(sys::link_interface(self.link.as_fd()), Ok(None))
    }

    /// What each CPU has counted.
    ///
    /// # Errors
    /// Those of the system.
    pub fn counts(&self) -> Result<Vec<AnswerCount>> {
        self.counts.per_cpu(0)
    }
}

fn prepare(open: &mut OpenObject, setting: &Setting, cells: u32) -> Result<()> {
    for mut map in open.maps_mut() {
        let name = map.name().to_owned();
        if name == CELLS {
            map.set_max_entries(cells)
                .map_err(|error| Error::from_bpf("making cells for replies", &error))?;
        } else if name == SETTING
            && let Some(place) = map.initial_value_mut()
        {
            place[..size_of::<Setting>()].copy_from_slice(setting.as_bytes());
        }
    }
    Ok(())
}

fn map(object: &Object, name: &str) -> Result<MapHandle> {
    let found = object.maps().find(|map| map.name() == name);
    let found = found.ok_or(Error::Closed("a map of the answers"))?;
    MapHandle::try_from(&found).map_err(|error| Error::from_bpf("taking a map", &error))
}
