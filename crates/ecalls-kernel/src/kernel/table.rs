//! Typed access to the shared tables: a BPF map whose value is a plain struct of the contract.

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Error, Result};
use crate::kernel::segment::Segment;

/// A map from an index to a `T`.
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

    pub(crate) fn get(&self, index: u32) -> Result<T> {
        lookup(&self.map, &index.to_ne_bytes(), "reading a table")?
            .ok_or(Error::Closed("a table's row"))
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

/// A table whose rows are read in place, so that a search needs no system call. Rows are written
/// through a [`Table`] of the same map.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    segment: Segment,
    value: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes> Mapped<T> {
    const WORDS: usize = size_of::<T>() / 8;

    /// Maps the first `rows` rows.
    pub(crate) fn map(map: &MapHandle, rows: usize) -> Result<Mapped<T>> {
        Ok(Mapped {
            segment: Segment::map(map, rows * size_of::<T>())?,
            value: PhantomData,
        })
    }

    /// The row at `index`, read word by word: it may change during the read.
    pub(crate) fn get(&self, index: u32) -> T {
        let mut value = T::new_zeroed();
        let from = self.segment.words()[index as usize * Mapped::<T>::WORDS..].iter();
        for (to, from) in value.as_mut_bytes().chunks_exact_mut(8).zip(from) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
        }
        value
    }

    /// The 32-bit field at byte `offset` of a row.
    pub(crate) fn field(&self, index: u32, offset: usize) -> u32 {
        let word = self.word(index, offset).load(Ordering::Relaxed);
        let halves: [u32; 2] = zerocopy::transmute!(word);
        halves[offset % 8 / 4]
    }

    /// The word at byte `offset` of a row.
    pub(crate) fn word(&self, index: u32, offset: usize) -> &AtomicU64 {
        &self.segment.words()[index as usize * Mapped::<T>::WORDS + offset / 8]
    }
}

/// A view that is mapped on first use.
#[derive(Debug)]
pub(crate) struct Lazy<T>(OnceLock<Mapped<T>>);

impl<T> Default for Lazy<T> {
    fn default() -> Lazy<T> {
        Lazy(OnceLock::new())
    }
}

impl<T> Lazy<T> {
    pub(crate) fn get_or_map(&self, map: impl FnOnce() -> Result<Mapped<T>>) -> Result<&Mapped<T>> {
        if let Some(view) = self.0.get() {
            return Ok(view);
        }
        let view = map()?;
        Ok(self.0.get_or_init(|| view))
    }
}

/// The value of a map at `key`, if it has one, while doing `action`.
pub(crate) fn lookup<T: FromBytes>(
    map: &impl MapCore,
    key: &[u8],
    action: &'static str,
) -> Result<Option<T>> {
    let bytes = map
        .lookup(key, MapFlags::ANY)
        .map_err(|error| Error::from_bpf(action, &error))?;
    bytes.map(|bytes| read(&bytes)).transpose()
}

fn read<T: FromBytes>(bytes: &[u8]) -> Result<T> {
    T::read_from_prefix(bytes)
        .map(|(value, _)| value)
        .map_err(|_| Error::Closed("a table of this version"))
}
