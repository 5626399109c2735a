//! A trace of the running scheduler: the records that it writes while a process reads them.
//!
//! The scheduler writes records until a time that the reader moves forward, so they end soon if the
//! reader dies; the trace's programs are attached by links, which end with it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ecalls_abi::sched::{ASK_END, ASK_TRACE, SchedNote};
use libbpf_rs::{MapHandle, RingBufferBuilder};
use zerocopy::FromBytes;

use super::record::{self, Record};
use crate::error::{Error, Result};
use crate::kernel::sys;

/// The interval in which the reader moves that time: a part of TRACE_LIFE_NS of bpf/sched/trace.h.
const RENEW: Duration = Duration::from_millis(500);

/// An active trace. There is only one at a time.
#[derive(Debug)]
pub struct Trace {
    record: Record,
    ring: MapHandle,
    _links: Vec<OwnedFd>,
    _only: File,
}

/// Sends the scheduler a request, `ASK_*`.
pub(super) fn ask(record: &Record, what: u32) -> Result<()> {
    let program = record.program(record::ASK)?;
    match sys::run(program.as_fd(), &mut what.to_ne_bytes())? {
        0 => Ok(()),
        error => Err(Error::from_errno("asking the scheduler", error.into())),
    }
}

impl Trace {
    /// Begins a trace.
    ///
    /// # Errors
    /// [`Error::Closed`] if ours does not run, [`Error::Denied`] without privileges,
    /// [`Error::LimitReached`] if another process traces already.
    pub fn start() -> Result<Trace> {
        let record = Record::look()?;
        let only = record::trace()?;
        let ring = record.map(record::RING)?;
        ask(&record, ASK_TRACE)?;
        let mut links = Vec::new();
        for name in record::TRACED {
            let program = record.program(name)?;
            links.push(sys::attach(program.as_fd(), libbpf_sys::BPF_TRACE_RAW_TP)?);
        }
        Ok(Trace {
            record,
            ring,
            _links: links,
            _only: only,
        })
    }

    /// Passes each record to `note`, in the order of each CPU, while `go_on` returns true; `go_on`
    /// also waits between two reads.
    ///
    /// # Errors
    /// What the kernel refuses; [`Error::Closed`] if the scheduler has ended.
    pub fn follow(
        &self,
        mut note: impl FnMut(SchedNote),
        mut go_on: impl FnMut() -> bool,
    ) -> Result<()> {
        let failed = |error| Error::from_bpf("reading the trace", &error);
        let mut builder = RingBufferBuilder::new();
        let take = |bytes: &[u8]| {
            if let Ok(taken) = SchedNote::read_from_bytes(bytes) {
                note(taken);
            }
            0
        };
        builder.add(&self.ring, take).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        let mut renewed = Instant::now();
        loop {
            let more = go_on();
            ring.consume().map_err(failed)?;
            if !more {
                return Ok(());
            }
            if renewed.elapsed() >= RENEW {
                renewed = Instant::now();
                if Record::look()?.pid != self.record.pid {
                    return Err(Error::Closed("the scheduler"));
                }
                ask(&self.record, ASK_TRACE)?;
            }
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // If this fails, the trace ends by itself.
        let _ = ask(&self.record, ASK_END);
    }
}
