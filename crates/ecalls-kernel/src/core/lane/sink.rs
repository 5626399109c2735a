//! The sinks of this host's channels, and the numbers of the frames to each (abi/sink.h).
//!
//! Whoever sends a frame to a sink takes its number from the sink's row, whether it is a publisher
//! or the kernel side. So a row stays with its address until the channel is closed, even if the
//! sink is no member any more: if its numbers began again, the sink would take them for duplicates.

use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use ecalls_abi::lane::{LANE_CHANNELS, LaneChannel};
use ecalls_abi::sink::{LaneOut, SINKS_MAX, Sink};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::core::lane::Numbers;
use crate::error::{Error, Result};
use crate::kernel::interface::Interface;
use crate::kernel::lock::lock;
use crate::kernel::table::{Mapped, Table};

/// The counts of all channels' events by `remote`.
pub(crate) type Outs = Mapped<LaneOut>;

pub(crate) fn outs(core: &Core) -> Result<Outs> {
    Mapped::map(core.map("lane_outs")?, LANE_CHANNELS)
}

/// The table of all channels' sinks.
#[derive(Debug)]
pub(crate) struct Sinks {
    table: Table<Sink>,
    view: Mapped<Sink>,
}

impl Sinks {
    pub(crate) fn of(core: &Core) -> Result<Sinks> {
        let map = core.map("lane_sinks")?;
        let copy = MapHandle::try_from(map);
        Ok(Sinks {
            table: Table::new(copy.map_err(|error| Error::from_bpf("opening a table", &error))?),
            view: Mapped::map(map, LANE_CHANNELS * SINKS_MAX)?,
        })
    }

    /// Those of the channel in row `row`, by number.
    pub(crate) fn of_channel(&self, row: u32) -> Vec<Sink> {
        let all = (0..SINKS_MAX as u32).map(|number| self.view.get(at(row, number)));
        all.take_while(|sink| sink.family != 0).collect()
    }

    /// The number of the sink with this address, which gets a row if it has none yet. The caller
    /// holds the lock.
    fn take(&self, row: u32, sink: &Sink) -> Result<u32> {
        let all = self.of_channel(row);
        if let Some(found) = all.iter().position(|other| is_same(other, sink)) {
            return Ok(found as u32);
        }
        if all.len() == SINKS_MAX {
            return Err(Error::LimitReached {
                which: "sinks of one channel",
                limit: SINKS_MAX,
            });
        }
        let number = all.len() as u32;
        self.table.set(at(row, number), sink)?;
        Ok(number)
    }

    /// The number of the next frame to the sink.
    pub(crate) fn next(&self, row: u32, number: u32) -> u64 {
        self.add(row, number, 1, offset_of!(Sink, sent))
            .wrapping_add(1)
    }

    /// The frame of the last number could not be sent.
    pub(crate) fn failed(&self, row: u32, number: u32) {
        self.add(row, number, 1, offset_of!(Sink, failed));
    }

    fn add(&self, row: u32, number: u32, by: u32, field: usize) -> u64 {
        // Relaxed: nobody learns anything else from the number.
        let word = self.view.word(at(row, number), field);
        word.fetch_add(u64::from(by), Ordering::Relaxed)
    }
}

/// Whether they are one host.
fn is_same(one: &Sink, other: &Sink) -> bool {
    (one.family, one.address) == (other.family, other.address)
}

fn at(row: u32, number: u32) -> u32 {
    row * SINKS_MAX as u32 + number
}

/// Clears what a former channel has left in the row. The caller holds the lock.
pub(crate) fn clear(core: &Core, row: u32) -> Result<()> {
    let failed = |error| Error::from_bpf("clearing a channel's sinks", &error);
    let zeros = LaneOut::default();
    let outs = core.map("lane_outs")?;
    outs.update(&row.to_ne_bytes(), zeros.as_bytes(), MapFlags::ANY)
        .map_err(failed)?;
    let sinks = Sinks::of(core)?;
    for number in 0..sinks.of_channel(row).len() as u32 {
        sinks.table.set(at(row, number), &Sink::default())?;
    }
    Ok(())
}

impl Numbers {
    /// The sink with this address, whose frames are numbered from then on.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if the channel has 64 others.
    pub fn sink(&self, address: IpAddr) -> Result<u32> {
        let _lock = lock()?;
        self.check()?;
        self.sinks.take(self.index, &Sink::new(address))
    }

    /// The number of the next frame to the sink, which the caller then sends.
    pub fn next(&self, sink: u32) -> u64 {
        self.sinks.next(self.index, sink)
    }

    /// The frame of the last number could not be sent.
    pub fn failed(&self, sink: u32) {
        self.sinks.failed(self.index, sink);
    }

    /// The channel's sinks, by number.
    pub fn sinks(&self) -> Vec<Sink> {
        self.sinks.of_channel(self.index)
    }

    /// Makes the host with this address, behind this interface, one to which `remote` sends.
    pub(crate) fn join(&self, address: IpAddr, interface: Interface) -> Result<u32> {
        let IpAddr::V4(ip) = address else {
            return Err(Error::Unsupported {
                feature: "sending to an IPv6 address in the kernel",
                since: "a publisher sends to one",
            });
        };
        let source = interface.source(ip)?;
        let place = [u32::from_ne_bytes(source.octets()), interface.index];
        self.add_member(&Sink::new(address), place)
    }

    /// Makes this host one to which `remote` sends by the relay.
    pub(crate) fn join_host(&self, host: u64) -> Result<u32> {
        self.add_member(&Sink::of_host(host), [0; 2])
    }

    /// Makes it a member. `place`: our address towards it, and the interface.
    fn add_member(&self, sink: &Sink, place: [u32; 2]) -> Result<u32> {
        let _lock = lock()?;
        self.check()?;
        let number = self.sinks.take(self.index, sink)?;
        let row = at(self.index, number);
        // First where it is: the kernel side reads that once `member` is set.
        self.sinks.put(row, offset_of!(Sink, source), place);
        self.sinks
            .put(row, offset_of!(Sink, family), [sink.family, 1]);
        let members = offset_of!(LaneChannel, sinks);
        let members = self.rows.view.word(self.index, members);
        members.fetch_or(1 << number, Ordering::Release);
        Ok(number)
    }

    /// `remote` does not send to it any more. Whether it did.
    pub(crate) fn leave(&self, sink: &Sink) -> Result<bool> {
        let _lock = lock()?;
        self.check()?;
        let all = self.sinks();
        let found = all.iter().position(|other| is_same(other, sink));
        let Some(number) = found.filter(|number| all[*number].member != 0) else {
            return Ok(false);
        };
        let members = offset_of!(LaneChannel, sinks);
        let members = self.rows.view.word(self.index, members);
        members.fetch_and(!(1 << number), Ordering::Relaxed);
        let row = at(self.index, number as u32);
        let family = self.sinks.view.field(row, offset_of!(Sink, family));
        self.sinks.put(row, offset_of!(Sink, family), [family, 0]);
        Ok(true)
    }
}

impl Sinks {
    /// Writes two neighbouring fields of a row as one word.
    fn put(&self, row: u32, field: usize, halves: [u32; 2]) {
        let [low, high] = halves.map(u64::from);
        let word = self.view.word(row, field);
        word.store(low | high << 32, Ordering::Release);
    }
}
