//! The scheduler (bpf/sched): loading it, and what it tells of itself.
//!
//! Whoever starts it holds it: the kernel gives every task back to its own scheduler when the
//! holder ends, however that happens, or when ours makes a mistake. There is one per machine, ours
//! or another's; the kernel refuses a second one.
//!
//! The holder notes in a file who it is and what others may look at (record.rs): so others find
//! it.

mod record;
mod seen;
mod trace;

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use ecalls_abi::coop::WINDOW_WHOLE;
use ecalls_abi::sched::SchedCount;
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel};
use zerocopy::FromBytes;

use record::{COUNTS, Record, SEEN, WATCH};
pub use seen::{forget, seen, worst};
pub use trace::Trace;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::{load, provider, verdict};

const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/scheduler.bpf.o"));

/// Where the kernel tells of sched_ext.
const KERNEL: &str = "/sys/kernel/sched_ext";

/// Its object file, for the test that compares the contract with what was compiled.
#[doc(hidden)]
pub fn compiled() -> (&'static str, &'static [u8]) {
    ("scheduler", BYTES)
}

/// What the kernel calls it; the version of its table may stand behind.
const NAME: &str = "ecalls";

/// Names within the object.
const OPS: &str = "ecalls_sched";
const SETTING: &str = ".rodata.setting";
const ENDED: &str = ".bss.ended";
/// Maps with one element per CPU.
const PER_CPU: [&str; 5] = ["sched_cpus", "sched_timers", "sched_places", COUNTS, WATCH];
/// Entities of a CPU's table, each with an element of [`SEEN`].
const ENTITIES: u32 = 64;

/// How it decides (Coop §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// In which each runnable thread of a CPU runs once.
    pub period: Duration,
    /// A time slice is not shorter.
    pub slice_min: Duration,
    /// By which a cooperative thread may overrun its slice (the paper's `coop_slack`).
    pub slack: Duration,
    /// CPU time that timely dispatch may bring a cooperative thread beyond its fair share.
    pub ahead: Duration,
    /// Of each CPU, what windows leave to all others.
    pub reserve_percent: u32,
    /// In which order windows are served.
    pub windows: WindowOrder,
    /// Service time of the task server (ECalls-05 §4.2) per period, in [`WindowOrder::Dwcs`]; zero:
    /// there is none.
    pub server: Duration,
}

/// In which order windows are served (ECalls-05 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowOrder {
    /// Dynamic window-constrained scheduling as published: it promises for equal windows.
    Dwcs,
    /// Of y periods those that count are spread evenly: it promises for different ones, too.
    Spread,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            period: Duration::from_millis(20),
            slice_min: Duration::from_micros(100),
            slack: Duration::from_millis(1),
            ahead: Duration::from_millis(20),
            reserve_percent: 5,
            windows: WindowOrder::Spread,
            server: Duration::ZERO,
        }
    }
}

/// The running scheduler. Dropping it gives every task back to the kernel's own.
#[derive(Debug)]
pub struct Scheduler {
    // First: nothing schedules any more when the maps go.
    link: Option<Link>,
    object: Object,
    _record: File,
}

/// What the kernel says of its schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The name of the one that schedules through sched_ext; None: the kernel's own does.
    pub running: Option<String>,
    /// The process that holds ours.
    pub holder: Option<u32>,
}

/// What the kernel says. None: it has no sched_ext.
pub fn state() -> Option<State> {
    let folder = Path::new(KERNEL);
    let enabled = fs::read_to_string(folder.join("state")).ok()?;
    let name = fs::read_to_string(folder.join("root/ops")).ok();
    let name = name.filter(|_| enabled.trim() != "disabled");
    Some(State {
        running: name.map(|name| name.trim().to_owned()),
        holder: Record::read().map(|record| record.pid),
    })
}

/// What the running scheduler has counted, per CPU.
///
/// # Errors
/// [`Error::Closed`] if ours does not run, [`Error::Denied`] without privileges.
pub fn counts() -> Result<Vec<SchedCount>> {
    read_counts(&Record::look()?.map(COUNTS)?)
}

fn read_counts(map: &impl MapCore) -> Result<Vec<SchedCount>> {
    let mut all = Vec::new();
    for cpu in 0..map.max_entries() {
        let bytes = map
            .lookup(&cpu.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("reading the scheduler's counters", &error))?
            .ok_or(Error::Closed("the scheduler's counters"))?;
        let count = SchedCount::read_from_bytes(&bytes);
        all.push(count.map_err(|_| Error::Closed("the scheduler's counters"))?);
    }
    Ok(all)
}

fn running_already(name: &str) -> Error {
    Error::Invalid {
        what: "the machine's scheduler",
        given: format!("'{name}' already"),
        expected: if name.starts_with(NAME) {
            "stop that one first (`ecalls sched stop`)"
        } else {
            "stop that one first, by what started it"
        },
    }
}

/// Why a scheduler ended that its holder did not stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The kernel's reason: `runnable task stall`.
    pub reason: String,
    /// The details.
    pub message: String,
}

impl Scheduler {
    /// Loads and starts it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a kernel without sched_ext, [`Error::Denied`] without privileges,
    /// [`Error::Refused`] if its verifier does not accept it, [`Error::Invalid`] if one runs.
    pub fn start(access: &Access, options: &Options) -> Result<Scheduler> {
        if !Path::new(KERNEL).exists() {
            return Err(Error::Unsupported {
                feature: "sched_ext (CONFIG_SCHED_CLASS_EXT)",
                since: "7.0, if built with it, as Debian's are",
            });
        }
        if let Some(name) = state().and_then(|state| state.running) {
            return Err(running_already(&name));
        }
        libbpf_rs::set_print(Some((PrintLevel::Warn, load::print_log)));
        let failed = |source| Error::Load {
            object: "scheduler",
            source,
        };
        let mut open = ObjectBuilder::default()
            .name("scheduler")
            .and_then(|builder| builder.open_memory(BYTES))
            .map_err(failed)?;
        let shared = provider::maps_of(access)?;
        prepare(&mut open, &shared, options).map_err(failed)?;
        let loaded = open.load();
        let verdict = verdict::take();
        let mut object = match (loaded, verdict) {
            (Ok(object), _) => object,
            (Err(_), Some(why)) => {
                let what = "scheduler";
                return Err(Error::Refused { what, why });
            }
            (Err(source), None) => return Err(failed(source)),
        };
        let record = record::write(&object)?;
        let mut ops = object
            .maps_mut()
            .find(|map| map.name() == OPS)
            .ok_or(Error::Closed("the scheduler's table"))?;
        let link = ops.attach_struct_ops().map_err(failed)?;
        Ok(Scheduler {
            link: Some(link),
            object,
            _record: record,
        })
    }

    /// What it has counted, per CPU.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn counts(&self) -> Result<Vec<SchedCount>> {
        read_counts(&find(&self.object, COUNTS)?)
    }

    /// Why it has ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        let map = self.object.maps().find(|map| map.name() == ENDED)?;
        let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        let kind = i32::from_ne_bytes(*bytes.first_chunk()?);
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
        };
        (kind != 0).then(|| Ended {
            reason: text(&bytes[16..80]),
            message: text(&bytes[80..272]),
        })
    }

    /// Stops it. Every task is its kernel's again when this returns.
    pub fn stop(mut self) {
        self.link = None;
    }
}

fn find<'a>(object: &'a Object, name: &str) -> Result<Map<'a>> {
    let mut maps = object.maps();
    maps.find(|map| map.name() == name)
        .ok_or(Error::Closed("a map of the scheduler"))
}

/// Sizes the tables, and says how it is to decide.
fn prepare(
    open: &mut OpenObject,
    shared: &HashMap<&'static str, OwnedFd>,
    options: &Options,
) -> libbpf_rs::Result<()> {
    let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?).unwrap_or(u32::MAX);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(core) = shared.get(name.as_str()) {
            map.reuse_fd(core.as_fd())?;
        } else if name == load::CONSTANTS {
            load::set_cpus(&mut map, cpus);
        } else if PER_CPU.contains(&name.as_str()) {
            map.set_max_entries(cpus)?;
        } else if name == SEEN {
            map.set_max_entries(cpus * ENTITIES)?;
        } else if name == SETTING {
            let words = setting(cpus, options);
            if let Some(value) = map.initial_value_mut() {
                for (place, word) in value.chunks_exact_mut(8).zip(words) {
                    place.copy_from_slice(&word.to_ne_bytes());
                }
            }
        }
    }
    Ok(())
}

/// `setting` of bpf/sched/state.h.
fn setting(cpus: u32, options: &Options) -> [u64; 8] {
    [
        u64::from(cpus),
        nanoseconds(options.period),
        nanoseconds(options.slice_min),
        nanoseconds(options.slack),
        nanoseconds(options.ahead),
        u64::from(options.reserve_percent.min(100)) * WINDOW_WHOLE / 100,
        nanoseconds(options.server),
        match options.windows {
            WindowOrder::Dwcs => 0,
            WindowOrder::Spread => 1,
        },
    ]
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
