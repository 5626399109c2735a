//! The state of a handler: a map of its own.
//!
//! A handler that replaces another one keeps the variables that have the same name and type: in the
//! same map, if both have the same variables; else in a copy, which lacks what events change
//! between the copy and the replacement.

use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::ecode::ir::State;
use libbpf_rs::libbpf_sys::{self, bpf_map_create_opts, size_t};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::error::{Error, Result};
use crate::kernel::segment::Segment;

/// Name of the map of a handler's variables.
pub(crate) const STATE_NAME: &str = "ecode_state";

/// The variables of a handler. This process accesses them only when another handler takes them
/// over, so they are mapped only then.
#[derive(Debug)]
pub(crate) struct Variables {
    pub(crate) map: MapHandle,
    bytes: usize,
}

impl Variables {
    /// Variables with these bytes, whose number is a multiple of 8.
    pub(crate) fn new(bytes: &[u8]) -> Result<Variables> {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let size = u32::try_from(bytes.len()).expect("the compiler's limit");
        let map = MapHandle::create(MapType::Array, Some(STATE_NAME), 4, size, 1, &options)
            .map_err(|error| Error::from_bpf("making memory for a handler", &error))?;
        // The kernel initializes the map with zeros.
        if bytes.iter().any(|byte| *byte != 0) {
            map.update(&0u32.to_ne_bytes(), bytes, MapFlags::ANY)
                .map_err(|error| Error::from_bpf("filling the memory of a handler", &error))?;
        }
        let bytes = bytes.len();
        Ok(Variables { map, bytes })
    }

    /// The current values; no variable is read in the middle of a change.
    fn read(&self) -> Result<Vec<u8>> {
        let memory = Segment::map(&self.map, self.bytes)?;
        let words = memory.words().iter();
        let bytes = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        Ok(bytes.collect())
    }
}

/// The memory of a new handler: that of the former one, if its content is the same; else its own,
/// with the values of the variables that both have.
pub(crate) fn take_over(
    state: &State,
    kept: Option<(State, Option<Arc<Variables>>)>,
) -> Result<Option<Arc<Variables>>> {
    if state.bytes.is_empty() {
        return Ok(None);
    }
    let Some((former, Some(memory))) = kept else {
        return Ok(Some(Arc::new(Variables::new(&state.bytes)?)));
    };
    if is_same(state, &former) {
        return Ok(Some(memory));
    }
    let bytes = state.carry(&former, &memory.read()?);
    Ok(Some(Arc::new(Variables::new(&bytes)?)))
}

/// Whether all variables are the same at the same offsets, and all constants are the same.
fn is_same(state: &State, former: &State) -> bool {
    let constants = |of: &State| -> Vec<u8> {
        let entries = of.entries.iter().filter(|entry| entry.constant);
        let bytes = entries.filter_map(|entry| of.bytes.get(range(entry.offset, entry.bytes)));
        bytes.flatten().copied().collect()
    };
    state.entries == former.entries
        && state.bytes.len() == former.bytes.len()
        && constants(state) == constants(former)
}

fn range(offset: u32, bytes: u32) -> std::ops::Range<usize> {
    offset as usize..offset as usize + bytes as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::ecode::ir::StateEntry;

    fn entry(name: &str, ty: &str, offset: u32, constant: bool) -> StateEntry {
        StateEntry {
            name: name.into(),
            ty: ty.into(),
            offset,
            bytes: 8,
            constant,
        }
    }

    #[test]
    fn state_is_kept_where_name_and_type_are_the_same() {
        let former = State {
            bytes: vec![0; 24],
            entries: vec![
                entry("a", "long", 0, false),
                entry("b", "long", 8, false),
                entry("table", "long", 16, true),
            ],
        };
        let now: Vec<u8> = (1..=24).collect();
        let state = State {
            bytes: vec![9; 32],
            entries: vec![
                entry("new", "long", 0, false),
                entry("b", "unsigned long", 8, false),
                entry("a", "long", 16, false),
                entry("table", "long", 24, true),
            ],
        };
        let bytes = state.carry(&former, &now);
        assert_eq!(bytes[..16], [9; 16], "another name, another type");
        assert_eq!(bytes[16..24], now[..8]);
        assert_eq!(bytes[24..], [9; 8], "a constant");
        assert!(!is_same(&state, &former));
        let mut other = former.clone();
        other.bytes[0] = 1;
        assert!(
            is_same(&other, &former),
            "another first value of a variable"
        );
        other.bytes[16] = 1;
        assert!(!is_same(&other, &former), "another constant");
    }
}
