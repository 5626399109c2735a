//! The file in which the scheduler's holder records its process, and the ids of the maps and
//! programs that others may use. The holder has the file locked while it lives: so the record of a
//! dead holder is ignored.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use libbpf_rs::{MapCore, MapHandle, Object};

use super::{NAME, running_already};
use crate::error::{Error, Result};
use crate::kernel::{lock, sys};

/// Only root can open the file, so no other user can lock it.
const PATH: &str = "/run/ecalls-sched";
/// The byte that the holder has locked.
const HOLDER: i64 = 0;
/// The byte that the tracing process has locked.
const TRACER: i64 = 1;

/// Maps whose ids are recorded, in this order.
const MAPS: [&str; 6] = [COUNTS, SEEN, WATCH, RING, SETTING, ASKED];
pub(super) const COUNTS: &str = "sched_counts";
pub(super) const SEEN: &str = "sched_seen";
pub(super) const WATCH: &str = "sched_watch";
pub(super) const RING: &str = "sched_ring";
pub(super) const SETTING: &str = ".rodata.setting";
pub(super) const ASKED: &str = ".bss.asked";

/// Programs whose ids are recorded after those of the maps. A trace attaches the first ones.
const PROGRAMS: [&str; 4] = ["trace_switch", "trace_wake", "trace_event", ASK];
pub(super) const TRACED: &[&str] = &["trace_switch", "trace_wake", "trace_event"];
pub(super) const ASK: &str = "trace_ask";

/// The record.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) pid: u32,
    ids: Vec<u32>,
}

impl Record {
    /// The holder's record. `None`: no process holds the scheduler, or this user may not read it.
    pub(super) fn read() -> Option<Record> {
        Record::look().ok()
    }

    /// The same, with the reason if there is none.
    pub(super) fn look() -> Result<Record> {
        let gone = Error::Closed("the scheduler");
        let mut file = File::open(PATH).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => Error::Denied {
                action: "looking at the scheduler",
                privilege: "root",
            },
            _ => Error::Closed("the scheduler"),
        })?;
        if !lock::is_locked(&file, HOLDER).unwrap_or(false) {
            return Err(gone);
        }
        let mut text = String::new();
        let failed = |error| Error::from_io("reading /run/ecalls-sched", error);
        file.read_to_string(&mut text).map_err(failed)?;
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        let pid = numbers.next().ok_or(gone)?;
        Ok(Record {
            pid,
            ids: numbers.collect(),
        })
    }

    fn id(&self, name: &str) -> Result<u32> {
        let at = MAPS.iter().chain(&PROGRAMS).position(|one| *one == name);
        let id = at.and_then(|at| self.ids.get(at));
        id.copied().ok_or(Error::Closed("a part of the scheduler"))
    }

    pub(super) fn map(&self, name: &str) -> Result<MapHandle> {
        MapHandle::from_map_id(self.id(name)?)
            .map_err(|error| Error::from_bpf("opening a map of the scheduler", &error))
    }

    pub(super) fn program(&self, name: &str) -> Result<OwnedFd> {
        sys::program_by_id(self.id(name)?)
    }
}

/// Writes the record. It is valid until the file is closed, for whatever reason.
pub(super) fn write(object: &Object) -> Result<File> {
    let failed = |error| Error::from_io("writing /run/ecalls-sched", error);
    let mut text = std::process::id().to_string();
    for id in ids(object)? {
        text += &format!(" {id}");
    }
    text.push('\n');
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(PATH)
        .map_err(failed)?;
    lock::lock_byte(&file, libc::F_WRLCK, HOLDER).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => running_already(NAME),
        _ => failed(error),
    })?;
    file.set_len(0).map_err(failed)?;
    file.write_all_at(text.as_bytes(), 0).map_err(failed)?;
    Ok(file)
}

fn ids(object: &Object) -> Result<Vec<u32>> {
    let missing = Error::Closed("a part of the scheduler");
    let mut ids = Vec::new();
    for name in MAPS {
        let map = object.maps().find(|map| map.name() == name);
        let map = map.ok_or(Error::Closed("a map of the scheduler"))?;
        ids.push(sys::map_id(map.as_fd())?);
    }
    for name in PROGRAMS {
        let program = object.progs().find(|program| program.name() == name);
        let Some(program) = program else {
            return Err(missing);
        };
        ids.push(sys::program_info(program.as_fd())?.id);
    }
    Ok(ids)
}

/// Makes this process the only one that traces, until the file is closed.
pub(super) fn trace() -> Result<File> {
    let failed = |error| Error::from_io("locking /run/ecalls-sched", error);
    let file = OpenOptions::new().write(true).open(PATH).map_err(failed)?;
    lock::lock_byte(&file, libc::F_WRLCK, TRACER).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Error::LimitReached {
            which: "traces of the scheduler at a time",
            limit: 1,
        },
        _ => failed(error),
    })?;
    Ok(file)
}
