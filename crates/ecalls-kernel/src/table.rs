//! Typed access to the shared tables: a BPF map whose value is a plain struct of the contract.

use std::marker::PhantomData;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Error, Result};

/// A map from a number to a `T`.
#[derive(Debug)]
pub(crate) struct Table<T> {
    map: MapHandle,
    value: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Immutable> Table<T> {
    pub(crate) fn new(map: MapHandle) -> Table<T> {
        Table {
            map,
            value: PhantomData,
        }
    }

    /// The value at `index`.
    pub(crate) fn get(&self, index: u32) -> Result<T> {
        let bytes = self
            .map
            .lookup(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("reading a table", &error))?
            .ok_or(Error::Closed("a table's row"))?;
        read(&bytes)
    }

    /// Writes the value at `index`; not atomic for readers in the kernel.
    pub(crate) fn set(&self, index: u32, value: &T) -> Result<()> {
        self.map
            .update(&index.to_ne_bytes(), value.as_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("writing a table", &error))
    }

    /// The values of every CPU at `index` (per-CPU maps).
    pub(crate) fn per_cpu(&self, index: u32) -> Result<Vec<T>> {
        self.map
            .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("reading a table", &error))?
            .unwrap_or_default()
            .iter()
            .map(|bytes| read(bytes))
            .collect()
    }

    /// Writes the same value for every CPU at `index` (per-CPU maps).
    pub(crate) fn set_per_cpu(&self, index: u32, value: &T) -> Result<()> {
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| Error::from_bpf("counting CPUs", &error))?;
        let values = vec![value.as_bytes().to_vec(); cpus];
        self.map
            .update_percpu(&index.to_ne_bytes(), &values, MapFlags::ANY)
            .map_err(|error| Error::from_bpf("writing a table", &error))
    }
}

fn read<T: FromBytes>(bytes: &[u8]) -> Result<T> {
    T::read_from_prefix(bytes)
        .map(|(value, _)| value)
        .map_err(|_| Error::Closed("a table of this version"))
}
