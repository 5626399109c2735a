//! The filter of a channel at the source (OUT, KECho §2.2): a handler in E-code that chooses among
//! the channel's sinks for each event of `remote`, before there is a packet (bpf/net/remote.h).
//!
//! It belongs to the channel, and any program that hosts the core can set it. Its program is in one
//! of the channel's two places, and one word of the channel's row names the place; so a filter is
//! replaced atomically while events pass. The sinks' attributes that it reads are a map of the
//! channel's (`lane_tables`), which the receiving side writes.

use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::ecode::ir::State;
use ecalls_abi::lane::LaneChannel;
use ecalls_abi::sink::{OUT_ACCEPTS_SHIFT, OUT_PLACE_SHIFT, OUT_SET_SHIFT, SINKS_MAX, SinkTold};
use libbpf_rs::libbpf_sys::{bpf_map_create_opts, size_t};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::core::handler::{Handler, Variables, load, take_over};
use crate::core::lane::Numbers;
use crate::error::{Error, Result};
use crate::kernel::lock::lock;
use crate::kernel::reader::wait_for_readers;
use crate::kernel::sys;
use crate::kernel::table::lookup;

/// The table of a channel's sinks, in which none has told anything.
pub(crate) fn table() -> Result<MapHandle> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as size_t,
        ..Default::default()
    };
    let failed = |error| Error::from_bpf("making a table of sinks", &error);
    let mut sinks = [SinkTold::default(); SINKS_MAX];
    for (id, sink) in (0..).zip(&mut sinks) {
        sink.id = id;
    }
    let bytes = sinks.as_bytes();
    let size = bytes.len() as u32;
    let map = MapHandle::create(MapType::Array, Some("lane_table"), 4, size, 1, &options)
        .map_err(failed)?;
    map.update(&0u32.to_ne_bytes(), bytes, MapFlags::ANY)
        .map_err(failed)?;
    Ok(map)
}

/// The variables of a filter that is set, for the next one.
#[derive(Debug, Default)]
pub struct Kept(Option<(State, Option<Arc<Variables>>)>);

impl Numbers {
    /// Makes this handler the channel's filter, or `None`: then each event goes to all sinks. An
    /// event is filtered either by the former one or by this one. Variables of the same name and
    /// type keep the values that they have in `kept`, which becomes the new filter's.
    ///
    /// # Errors
    /// [`Error::Ecode`] if the kernel refuses it, or if it does more than choose; then the former
    /// one remains. [`Error::Closed`] if the channel has been closed.
    pub fn set_out(&self, handler: Option<&Handler>, kept: &mut Kept) -> Result<()> {
        let _lock = lock()?;
        self.check()?;
        let word = self.out();
        let Some(handler) = handler else {
            word.store(0, Ordering::Release);
            kept.0 = None;
            return Ok(());
        };
        if handler.effects || handler.output_bytes > 0 {
            return Err(Error::Ecode(format!(
                "{}: error: a filter of sinks only chooses\n    hint: `output` and requests \
                 (signal, raise, defer, count, ...) belong to a handler before `remote`",
                handler.source().name
            )));
        }
        let place = 1 - (word.load(Ordering::Relaxed) >> OUT_PLACE_SHIFT);
        // A program may still use the word that named this place.
        wait_for_readers(sys::now_ns())?;
        let memory = take_over(&handler.state, kept.0.take())?;
        let map = table_of(&self.core, self.index)?;
        let program = load(&self.core, handler, memory.as_deref(), Some(map.as_fd()))?;
        let key = (2 * self.index + place as u32).to_ne_bytes();
        self.core
            .map("lane_filters")?
            .update(&key, &program.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("putting a filter into its place", &error))?;
        let called = u64::from(handler.fuel)
            | 1 << OUT_SET_SHIFT
            | u64::from(handler.accepts) << OUT_ACCEPTS_SHIFT
            | place << OUT_PLACE_SHIFT;
        word.store(called, Ordering::Release);
        kept.0 = Some((handler.state.clone(), memory));
        Ok(())
    }

    /// Whether the channel has a filter at this moment.
    pub fn has_out(&self) -> bool {
        self.out().load(Ordering::Acquire) != 0
    }

    /// The word that says which filter the channel has.
    fn out(&self) -> &AtomicU64 {
        let at = offset_of!(LaneChannel, out);
        self.rows.view.word(self.index, at)
    }
}

fn table_of(core: &Core, row: u32) -> Result<MapHandle> {
    let tables = core.map("lane_tables")?;
    let id: Option<u32> = lookup(tables, &row.to_ne_bytes(), "looking a table of sinks up")?;
    let id = id.ok_or(Error::Closed("the channel"))?;
    MapHandle::from_map_id(id).map_err(|error| Error::from_bpf("opening a table of sinks", &error))
}

/// Empties the places of a channel. The caller holds the lock.
pub(crate) fn clear(core: &Core, row: u32) -> Result<()> {
    let filters = core.map("lane_filters")?;
    for place in 0..2 {
        // An empty place is no error.
        let _ = filters.delete(&(2 * row + place).to_ne_bytes());
    }
    let _ = core.map("lane_tables")?.delete(&row.to_ne_bytes());
    Ok(())
}
