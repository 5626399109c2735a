//! The running scheduler's records of threads that use it, of their groups, and of the greatest
//! delays.
//!
//! The records are read while the scheduler writes them. A row may lack one sample; a record of a
//! delay is used if two consecutive reads are equal.

use ecalls_abi::sched::{ASK_FORGET, SEEN_FREE, SchedSeen, SchedWatch, SchedWorst};
use libbpf_rs::{MapCore, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use super::record::{self, Record};
use super::trace;
use crate::error::{Error, Result};
use crate::kernel::table::lookup;

/// The threads and groups that the scheduler knows now: a group on two CPUs appears twice.
///
/// # Errors
/// [`Error::Closed`] if ours does not run, [`Error::Denied`] without privileges.
pub fn seen() -> Result<Vec<SchedSeen>> {
    let map = Record::look()?.map(record::SEEN)?;
    let mut seen = Vec::new();
    for at in 0..map.max_entries() {
        let row: SchedSeen = element(&map, at)?;
        if row.state != SEEN_FREE {
            seen.push(row);
        }
    }
    Ok(seen)
}

/// The greatest delays since the scheduler began or [`forget`] was called, in descending order.
///
/// # Errors
/// [`Error::Closed`] if ours does not run, [`Error::Denied`] without privileges.
pub fn worst() -> Result<Vec<SchedWorst>> {
    let record = Record::look()?;
    let map = record.map(record::WATCH)?;
    // `asked` of bpf/sched/trace.h. A CPU's own copy of it is as old as the last release there.
    let [_, forgotten_ns]: [u64; 2] = element(&record.map(record::ASKED)?, 0)?;
    let mut all: Vec<SchedWorst> = Vec::new();
    for cpu in 0..map.max_entries() {
        let first: SchedWatch = element(&map, cpu)?;
        let again: SchedWatch = element(&map, cpu)?;
        let notes = first.worst.iter().zip(&again.worst);
        let complete = notes.filter(|(a, b)| a.as_bytes() == b.as_bytes());
        let counts = complete.map(|(note, _)| note);
        all.extend(counts.filter(|note| note.at_ns > forgotten_ns));
    }
    all.sort_by_key(|note| std::cmp::Reverse(note.tardy_ns));
    Ok(all)
}

/// Resets the records that [`worst`] returns.
///
/// # Errors
/// [`Error::Closed`] if ours does not run, [`Error::Denied`] without privileges.
pub fn forget() -> Result<()> {
    trace::ask(&Record::look()?, ASK_FORGET)
}

fn element<T: FromBytes>(map: &MapHandle, at: u32) -> Result<T> {
    let row = lookup(
        map,
        &at.to_ne_bytes(),
        "reading what the scheduler has seen",
    )?;
    row.ok_or(Error::Closed("what the scheduler has seen"))
}
