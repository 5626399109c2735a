//! The scheduler (bpf/sched): loading it, and reading its state.
//!
//! The process that starts the scheduler holds it: the kernel schedules all tasks itself again when
//! the holder ends, for whatever reason, or when our scheduler makes a mistake. A machine has one
//! sched_ext scheduler, ours or another; the kernel refuses a second one.
//!
//! The holder records its process and the readable maps in a file (record.rs), by which other
//! processes find the scheduler.

mod haste;
mod options;
mod record;
mod seen;
mod trace;

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ecalls_abi::sched::SchedCount;
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, OpenObject};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use zerocopy::FromBytes;

pub use haste::Haste;
pub use options::{Options, WindowOrder};
use record::{COUNTS, Record, SEEN, SETTING, WATCH};
pub use seen::{forget, seen, worst};
pub use trace::Trace;

use crate::access::Access;
use crate::core::load;
use crate::error::{Error, Result};
use crate::kernel::sys;
use crate::kernel::table::lookup;
use crate::provider;

const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/scheduler.bpf.o"));

/// The kernel's files about sched_ext.
const KERNEL: &str = "/sys/kernel/sched_ext";

/// Its object file, for the test that compares the contract with what was compiled.
#[doc(hidden)]
pub fn compiled() -> (&'static str, &'static [u8]) {
    ("scheduler", BYTES)
}

/// Its name in the kernel, which may be followed by the version of its table.
const NAME: &str = "ecalls";

/// The largest number of CPUs: `CPUS_MAX` in bpf/sched/state.h.
const CPUS_MAX: usize = 1024;

/// `SCX_ECODE_ACT_RESTART` of the kernel.
const ACT_RESTART: i64 = 1 << 48;

/// Names within the object.
const OPS: &str = "ecalls_sched";
const ENDED: &str = ".bss.ended";
/// What is known of timed threads, the program that sees their timers, and the one that is told
/// which thread shows it a timer descriptor (bpf/sched/timed.h).
const TIMED: &str = ".bss.timed";
const SLEEPS: &str = "timed_sleeps";
const LEARNS: &str = "timed_learns";
/// For how long a timer descriptor is armed that shows how such timers are known: until it is
/// closed.
const LESSON: Duration = Duration::from_secs(3600);
/// Maps with one element per CPU.
const PER_CPU: [&str; 3] = ["sched_cpus", COUNTS, WATCH];
/// This map has an element per group; there are at most half as many groups as entities.
const GROUPS: &str = "sched_groups";
/// Entities of a CPU's table, each with an element of [`SEEN`].
const ENTITIES: u32 = 64;

/// The running scheduler. When it is dropped, the kernel schedules all tasks itself again.
#[derive(Debug)]
pub struct Scheduler {
    // The first field: scheduling ends before the maps are freed.
    link: Option<Link>,
    /// Attached while timed threads exist.
    sleeps: Option<Link>,
    object: Object,
    _record: File,
}

/// The kernel's information about its schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The name of the active sched_ext scheduler; `None`: the kernel's own schedules.
    pub running: Option<String>,
    /// Number of schedulers started since the machine booted; `None`: this kernel does not report
    /// it.
    pub begun: Option<u64>,
    /// The process that holds ours.
    pub holder: Option<u32>,
}

/// The kernel's information. `None`: it has no sched_ext.
pub fn state() -> Option<State> {
    let folder = Path::new(KERNEL);
    let enabled = fs::read_to_string(folder.join("state")).ok()?;
    let name = fs::read_to_string(folder.join("root/ops")).ok();
    let name = name.filter(|_| enabled.trim() != "disabled");
    let begun = fs::read_to_string(folder.join("enable_seq")).ok();
    Some(State {
        begun: begun.and_then(|count| count.trim().parse().ok()),
        running: name.map(|name| name.trim().to_owned()),
        holder: Record::read().map(|record| record.pid),
    })
}

/// Whether the scheduler of this name ([`State::running`]) is ours.
pub fn is_ours(name: &str) -> bool {
    name.starts_with(NAME)
}

/// The counters of the running scheduler, per CPU.
///
/// # Errors
/// [`Error::Closed`] if ours does not run, [`Error::Denied`] without privileges.
pub fn counts() -> Result<Vec<SchedCount>> {
    read_counts(&Record::look()?.map(COUNTS)?)
}

/// The options of the running scheduler.
///
/// # Errors
/// [`Error::Closed`] if ours does not run, [`Error::Denied`] without privileges.
pub fn options() -> Result<Options> {
    let map = Record::look()?.map(SETTING)?;
    let bytes = map
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::from_bpf("reading the scheduler's options", &error))?;
    let words = bytes.as_deref().and_then(Options::from_words);
    words.ok_or(Error::Closed("the scheduler's options"))
}

fn read_counts(map: &impl MapCore) -> Result<Vec<SchedCount>> {
    let mut all = Vec::new();
    for cpu in 0..map.max_entries() {
        let count = lookup(map, &cpu.to_ne_bytes(), "reading the scheduler's counters")?;
        all.push(count.ok_or(Error::Closed("the scheduler's counters"))?);
    }
    Ok(all)
}

fn running_already(name: &str) -> Error {
    Error::Invalid {
        what: "the machine's scheduler",
        given: format!("'{name}' already"),
        expected: if is_ours(name) {
            "stop that one first (`ecalls sched stop`)"
        } else {
            "stop that one first, by what started it"
        },
    }
}

/// `ended` of bpf/sched/scheduler.bpf.c.
#[repr(C)]
#[derive(FromBytes)]
struct End {
    kind: i32,
    pad: i32,
    code: i64,
    reason: [u8; 64],
    message: [u8; 192],
}

/// `timed` of bpf/sched/timed.h.
#[repr(C)]
#[derive(FromBytes)]
struct Timed {
    threads: u64,
    /// By which a timer descriptor is known; 0: it is not.
    timerfd: u64,
    learner: u64,
    lesson: u64,
}

/// The reason for which a scheduler ended that its holder did not stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The kernel's reason: `runnable task stall`.
    pub reason: String,
    /// The details.
    pub message: String,
    /// This is no error: the holder should stop the scheduler and start it again.
    pub again: bool,
}

impl Scheduler {
    /// Loads and starts it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a kernel without sched_ext, [`Error::Denied`] without privileges,
    /// [`Error::Refused`] if its verifier does not accept it, [`Error::Invalid`] if one runs, or if
    /// the machine has more CPUs than it can schedule.
    pub fn start(access: &Arc<dyn Access>, options: &Options) -> Result<Scheduler> {
        if !Path::new(KERNEL).exists() {
            return Err(Error::Unsupported {
                feature: "sched_ext (CONFIG_SCHED_CLASS_EXT)",
                since: "7.0, if built with it, as Debian's are",
            });
        }
        if let Some(name) = state().and_then(|state| state.running) {
            return Err(running_already(&name));
        }
        let failed = |source| Error::Load {
            object: "scheduler",
            source,
        };
        let cpus = libbpf_rs::num_possible_cpus().map_err(failed)?;
        let cpus = within_limit(cpus)?;
        let haste = Haste::begin();
        let shared = provider::maps_of(&**access)?;
        let mut object = load::alone("scheduler", BYTES, |open| {
            prepare(open, &shared, options, cpus).map_err(failed)
        })?;
        let record = record::write(&object)?;
        let mut ops = object
            .maps_mut()
            .find(|map| map.name() == OPS)
            .ok_or(Error::Closed("the scheduler's table"))?;
        drop(haste);
        let link = ops.attach_struct_ops().map_err(failed)?;
        Ok(Scheduler {
            link: Some(link),
            sleeps: None,
            object,
            _record: record,
        })
    }

    /// Its counters, per CPU.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn counts(&self) -> Result<Vec<SchedCount>> {
        read_counts(&find(&self.object, COUNTS)?)
    }

    /// The number of instructions that the kernel's verifier processed to load each program.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn verified(&self) -> Result<Vec<(String, u32)>> {
        let programs = self.object.progs();
        let named = programs.map(|one| (one.name().to_string_lossy().into_owned(), one));
        sys::verified(named)
    }

    /// Attaches the program that sees timers while there are timed threads. The holder calls this
    /// regularly; until then, and after it, the sleeps of timed threads are as those of others.
    ///
    /// # Errors
    /// What the kernel refuses. If the program is attached nevertheless
    /// ([`is_attending`](Self::is_attending)), timer descriptors do not count, and all else does.
    pub fn attend(&mut self) -> Result<()> {
        let timed = self.timed()?;
        if timed.threads == 0 {
            self.sleeps = None;
        } else if self.sleeps.is_none() {
            let mut programs = self.object.progs_mut();
            let program = programs.find(|one| one.name() == SLEEPS);
            let program = program.ok_or(Error::Closed("the program that sees timers"))?;
            let link = program.attach();
            let failed = |error| Error::from_bpf("attaching to the kernel's timers", &error);
            self.sleeps = Some(link.map_err(failed)?);
            if timed.timerfd == 0 {
                self.teach()?;
            }
        }
        Ok(())
    }

    fn timed(&self) -> Result<Timed> {
        let action = "reading the number of timed threads";
        let timed = lookup(&find(&self.object, TIMED)?, &0u32.to_ne_bytes(), action)?;
        timed.ok_or(Error::Closed("the number of timed threads"))
    }

    /// Arms a timer descriptor, by which the program that sees timers knows all of them.
    fn teach(&self) -> Result<()> {
        let action = "showing a timer descriptor to know others by it";
        let failed = |errno: rustix::io::Errno| Error::from_io(action, errno.into());
        // Of this clock, also where a process has other times than the kernel.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let lesson = now.unwrap_or_default() + LESSON;
        let it_value = Timespec::try_from(lesson).map_err(|_| failed(rustix::io::Errno::INVAL))?;
        let timer =
            timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC).map_err(failed)?;
        let mut programs = self.object.progs();
        let learns = programs.find(|one| one.name() == LEARNS);
        let learns = learns.ok_or(Error::Closed("the program that learns of a timer"))?;
        let mut lesson_ns = options::nanoseconds(lesson).to_ne_bytes();
        sys::run(learns.as_fd(), &mut lesson_ns)?;
        let at = Itimerspec {
            it_interval: Timespec::default(),
            it_value,
        };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &at).map_err(failed)?;
        if self.timed()?.timerfd == 0 {
            return Err(failed(rustix::io::Errno::NOENT));
        }
        Ok(())
    }

    /// Whether the program that sees timers is attached.
    pub fn is_attending(&self) -> bool {
        self.sleeps.is_some()
    }

    /// The reason for which it has ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        let map = self.object.maps().find(|map| map.name() == ENDED)?;
        let end: End = lookup(&map, &0u32.to_ne_bytes(), "reading how it ended").ok()??;
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
        };
        (end.kind != 0).then(|| Ended {
            reason: text(&end.reason),
            message: text(&end.message),
            again: end.code & ACT_RESTART != 0,
        })
    }

    /// Stops it. All tasks are the kernel's again when this returns.
    pub fn stop(mut self) {
        self.link = None;
    }
}

fn find<'a>(object: &'a Object, name: &str) -> Result<Map<'a>> {
    let mut maps = object.maps();
    maps.find(|map| map.name() == name)
        .ok_or(Error::Closed("a map of the scheduler"))
}

/// The number of CPUs, unless some would have no table: threads on them would not run.
fn within_limit(cpus: usize) -> Result<u32> {
    let few = u32::try_from(cpus).ok().filter(|_| cpus <= CPUS_MAX);
    few.ok_or_else(|| Error::Invalid {
        what: "the machine's number of possible CPUs",
        given: cpus.to_string(),
        expected: "the scheduler's limit CPUS_MAX is 1024",
    })
}

/// Sets the sizes of the tables, and the options.
fn prepare(
    open: &mut OpenObject,
    shared: &HashMap<&'static str, OwnedFd>,
    options: &Options,
    cpus: u32,
) -> libbpf_rs::Result<()> {
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
        } else if name == GROUPS {
            // Each group has a member, which needs a place of its own.
            map.set_max_entries(cpus * ENTITIES / 2)?;
        } else if name == OPS {
            // Its first member (bpf/sched/scx.h).
            let first = map.initial_value_mut().and_then(|table| table.get_mut(..4));
            if let Some(timeout) = first {
                timeout.copy_from_slice(&options.timeout_ms().to_ne_bytes());
            }
        } else if name == SETTING {
            let words = options.words(cpus);
            if let Some(value) = map.initial_value_mut() {
                for (place, word) in value.chunks_exact_mut(8).zip(words) {
                    place.copy_from_slice(&word.to_ne_bytes());
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cpus_than_it_has_tables_for_are_refused_with_the_limit() {
        let told = include_str!("../../../bpf/sched/state.h");
        assert!(told.contains(&format!("#define CPUS_MAX {CPUS_MAX}u\n")));
        for cpus in [1, CPUS_MAX] {
            assert_eq!(
                within_limit(cpus).expect("as many as it takes"),
                cpus as u32
            );
        }
        for cpus in [CPUS_MAX + 1, 1 << 40] {
            let refused = within_limit(cpus).expect_err("too many").to_string();
            assert!(refused.contains(&format!("is {cpus}:")), "{refused}");
            assert!(
                refused.contains(&format!("CPUS_MAX is {CPUS_MAX}")),
                "{refused}"
            );
        }
    }

    #[test]
    fn ours_is_known_by_its_name_whatever_its_version() {
        assert!(["ecalls", "ecalls_1.0"].iter().all(|name| is_ours(name)));
        assert!(
            ["simple", "", "scx_ecalls"]
                .iter()
                .all(|name| !is_ours(name))
        );
    }
}
