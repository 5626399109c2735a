//! Mechanisms of a stock kernel for the same work: the other side of the comparisons of `ecalls
//! bench`. They are here because `ecalls-bench` forbids `unsafe`, and because this is the only
//! crate that uses libbpf and compiles BPF programs.

use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};

use crate::error::{Error, Result};

/// Sends this process real-time signal `signal` with a value, by sigqueue(3).
///
/// # Errors
/// [`Error::Os`] for a number that is not a signal, or if too many signals are queued.
pub fn queue_signal(signal: i32, value: usize) -> Result<()> {
    let process = i32::try_from(std::process::id()).expect("a process id");
    let value = libc::sigval {
        sival_ptr: without_provenance_mut(value),
    };
    // SAFETY: takes numbers only; the value is never used as an address.
    if unsafe { libc::sigqueue(process, signal, value) } < 0 {
        return Err(Error::last_os("queueing a signal"));
    }
    Ok(())
}

/// Data that arrives at the sockets of a local port, in a BPF ring buffer
/// (tests/baseline/ringbuf.bpf.c). It ends when this is dropped.
#[derive(Debug)]
pub struct Ringbuf {
    ring: RingBuffer<'static>,
    read: Arc<AtomicU64>,
    _link: Link,
    _object: Object,
}

impl Ringbuf {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// Those of the system.
    pub fn attach(port: u16) -> Result<Ringbuf> {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/ringbuf.bpf.o"));
        let failed = |error| Error::from_bpf("loading a program with a ring buffer", &error);
        let mut open = ObjectBuilder::default()
            .open_memory(bytes)
            .map_err(failed)?;
        for mut map in open.maps_mut() {
            if map.name() == ".rodata.port"
                && let Some(value) = map.initial_value_mut()
                && let Some(place) = value.get_mut(..4)
            {
                place.copy_from_slice(&u32::from(port).to_ne_bytes());
            }
        }
        let object = open.load().map_err(failed)?;
        let program = object.progs_mut().next();
        let program = program.ok_or(Error::Closed("the program"))?;
        let link = program.attach().map_err(failed)?;
        let map = object.maps().find(|map| map.name() == "ring");
        let map = map.ok_or(Error::Closed("the ring buffer"))?;
        let read = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&read);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                0
            })
            .map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        Ok(Ringbuf {
            ring,
            read,
            _link: link,
            _object: object,
        })
    }

    /// Takes what has come, and returns how much that was.
    pub fn take(&mut self) -> u64 {
        let before = self.read.load(Ordering::Relaxed);
        self.ring.consume_raw();
        self.read.load(Ordering::Relaxed) - before
    }
}
