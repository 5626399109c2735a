//! The lane: channels among hosts. Frames (abi/wire.h) of other hosts become events in the kernel,
//! on the interfaces that their programs name; events of this host become frames
//! (bpf/net/lane.bpf.c).
//!
//! A channel is open on this host while a program holds it: its row in `lane_channels`, its name in
//! `lane_ids` and the attachment to the interface. If the program is killed, the attachment ends at
//! once and the row is removed when another channel is opened; until then its frames, which a
//! further program on the interface can still see, are refused as CLOSED.
//!
//! A channel whose frames go by the relay has no interface: its frames are given to the same
//! programs' code by hand ([`HostedLane::arrive`]), and so pass the same checks, windows and
//! counters.
//!
//! Every sender of this host takes the numbers of its frames from the sink's row (`sink`), so that
//! one host is one source for the others, whatever number of programs publish.

mod carry;
mod filter;
mod packet;
mod sink;

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ::ecode::data_format;
use ecalls_abi::lane::{LANE_CHANNELS, LaneChannel, LaneCount, LaneKey, LaneSource, WAY_RELAY};
use ecalls_abi::sink::{LaneOut, Sink};
use ecalls_abi::version::DATA_MAX;
use ecalls_abi::wire::text_id;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

pub use self::carry::Transport;
pub use self::filter::Kept;
use crate::core::lane::carry::Carrier;
use crate::core::lane::sink::Sinks;
use crate::core::owner::Owner;
use crate::core::{Core, Cost};
use crate::error::{Error, Result};
use crate::kernel::instance;
use crate::kernel::interface::{self, Interface, Way};
use crate::kernel::lock::lock;
use crate::kernel::sys;
use crate::kernel::table::{Mapped, Table, lookup};

/// The object file with the lane's maps and program.
const PART: &str = "lane";

/// The channels of a core, as far as frames concern them.
#[derive(Debug)]
struct Rows {
    table: Table<LaneChannel>,
    view: Mapped<LaneChannel>,
}

impl Rows {
    fn of(core: &Core) -> Result<Rows> {
        let map = core.map("lane_channels")?;
        let copy = MapHandle::try_from(map);
        Ok(Rows {
            table: Table::new(copy.map_err(|error| Error::from_bpf("opening a table", &error))?),
            view: Mapped::map(map, LANE_CHANNELS)?,
        })
    }
}

/// A channel that this process has opened. Dropping it closes the channel on this host.
#[derive(Debug)]
pub struct HostedLane {
    /// The first fields, so that no frame is sent or arrives any more when the row is removed.
    carrier: Option<Carrier>,
    _links: Option<[OwnedFd; 2]>,
    /// `None`: its frames go by the relay.
    interface: Option<Interface>,
    numbers: Numbers,
    owner: Owner,
    /// The process that opened it.
    host: u32,
}

/// The numbers of this host's frames on a channel, for every program that publishes there.
#[derive(Debug)]
pub struct Numbers {
    core: Arc<Core>,
    rows: Rows,
    sinks: Sinks,
    index: u32,
    channel: LaneChannel,
}

impl Numbers {
    /// Those of the channel of that name, which a program of this host has opened.
    ///
    /// # Errors
    /// [`Error::Unknown`] if none has.
    pub fn of(core: Arc<Core>, name: &str) -> Result<Numbers> {
        let (index, channel) = opened(&core, text_id(name))?.ok_or_else(|| Error::Unknown {
            what: "channel",
            name: name.to_owned(),
            hint: "a program of this host opens it: `ecalls channel open`".to_owned(),
        })?;
        Ok(Numbers {
            rows: Rows::of(&core)?,
            sinks: Sinks::of(&core)?,
            core,
            index,
            channel,
        })
    }

    /// That the channel has not been closed and its row given to another one. The caller holds the
    /// lock.
    fn check(&self) -> Result<()> {
        let now = self.rows.table.get(self.index)?;
        match (now.id, now.epoch) == (self.channel.id, self.channel.epoch) {
            true => Ok(()),
            false => Err(Error::Closed("the channel")),
        }
    }

    /// The arguments of the kernel handler `remote` by which events go to this channel.
    pub fn remote(&self) -> [u64; 3] {
        arguments(self.index, &self.channel)
    }

    /// The channel's row as it was opened.
    pub fn channel(&self) -> &LaneChannel {
        &self.channel
    }

    /// The core.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl HostedLane {
    /// Opens the channel `name` on the interface: frames that arrive there become events of the
    /// application service at index `service`, which belongs to the same owner.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown interface and for a channel that is open already,
    /// [`Error::Denied`] without CAP_NET_ADMIN, [`Error::Unsupported`] before Linux 6.6,
    /// [`Error::LimitReached`].
    pub fn open(
        core: Arc<Core>,
        owner: &Owner,
        name: &str,
        service: u32,
        interface: &str,
    ) -> Result<HostedLane> {
        let interface = Interface::named(interface)?;
        let row = Row::new(&core, owner, name, service, Some(interface))?;
        row.open(core, owner, name, |core, index| {
            let (links, carrier) = attach(core, interface, index)?;
            Ok((Some(links), carrier))
        })
    }

    /// Opens the channel `name` of the application service at index `service` for frames that go by
    /// the relay: `transport` sends them, and those that arrive are given to
    /// [`HostedLane::arrive`]. The host is identified by the interface, if one is named.
    ///
    /// # Errors
    /// As [`HostedLane::open`].
    pub fn open_relayed(
        core: Arc<Core>,
        owner: &Owner,
        name: &str,
        service: u32,
        interface: Option<&str>,
        transport: Arc<dyn Transport>,
    ) -> Result<HostedLane> {
        let interface = interface.map(Interface::named).transpose()?;
        let mut row = Row::new(&core, owner, name, service, interface)?;
        row.channel.way = WAY_RELAY;
        row.interface = None;
        row.open(core, owner, name, |core, index| {
            let carrier = Carrier::to_relay(sink::outs(core)?, Sinks::of(core)?, index, transport)?;
            hand_over(core, index, &carrier)?;
            Ok((None, carrier))
        })
    }

    /// A frame has arrived by the relay. Whether the kernel side took it: it raised it, or refused
    /// and counted it. Else it is none of a channel of this core.
    ///
    /// The frame is given to the program that an interface's frames come to: as a packet, in a run
    /// by hand. A second copy of its checks in user space could not use its windows, whose lock is
    /// the kernel side's; a packet sent on the loopback interface could be dropped uncounted.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more bytes than a frame has.
    pub fn arrive(&self, frame: &[u8]) -> Result<bool> {
        let packet = packet::of(frame)?;
        let program = self.numbers.core.program("lane_ingress")?;
        Ok(sys::run_with_packet(program, &packet)? == packet::TAKEN)
    }

    /// Makes the host with this IPv4 address one to which the kernel handler `remote` sends.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if the channel has 64 others, [`Error::Unsupported`] for an IPv6
    /// address and on an interface without Ethernet headers, and those of finding a route.
    pub fn add_sink(&self, address: IpAddr) -> Result<()> {
        let interface = self.interface.ok_or(Error::Unsupported {
            feature: "sending to an address from a channel whose frames go by the relay",
            since: "a channel with an interface",
        })?;
        self.numbers.join(address, interface).map(|_| ())
    }

    /// `remote` does not send to it any more. Whether it did.
    ///
    /// # Errors
    /// Those of the lock.
    pub fn remove_sink(&self, address: IpAddr) -> Result<bool> {
        self.numbers.leave(&Sink::new(address))
    }

    /// Makes this host one to which `remote` sends by the relay.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if the channel has 64 others.
    pub fn add_host(&self, host: u64) -> Result<()> {
        self.numbers.join_host(host).map(|_| ())
    }

    /// `remote` does not send to it any more. Whether it did.
    ///
    /// # Errors
    /// Those of the lock.
    pub fn remove_host(&self, host: u64) -> Result<bool> {
        self.numbers.leave(&Sink::of_host(host))
    }

    /// The numbers of its frames.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }
}

/// A channel that is to be opened.
struct Row {
    channel: LaneChannel,
    interface: Option<Interface>,
}

impl Row {
    fn new(
        core: &Core,
        owner: &Owner,
        name: &str,
        service: u32,
        interface: Option<Interface>,
    ) -> Result<Row> {
        interface::check_interrupts("frames that become events in the kernel")?;
        core.part(PART)?;
        let info = core.service_info(service)?;
        let bytes = data_format::bytes(info.format());
        let channel = LaneChannel {
            id: text_id(name),
            format: text_id(info.format()),
            // A channel without a format takes all data.
            data_max: bytes.unwrap_or(DATA_MAX as u32),
            host: host_id(interface)?,
            epoch: now(),
            owner_start: owner.start_ns,
            owner: owner.pid,
            uid: owner.uid,
            service,
            ..LaneChannel::default()
        };
        Ok(Row { channel, interface })
    }

    /// Takes a row, and connects it with the ways of its frames.
    fn open(
        self,
        core: Arc<Core>,
        owner: &Owner,
        name: &str,
        connect: impl FnOnce(&Core, u32) -> Result<(Option<[OwnedFd; 2]>, Carrier)>,
    ) -> Result<HostedLane> {
        let Row { channel, interface } = self;
        let (rows, sinks) = (Rows::of(&core)?, Sinks::of(&core)?);
        let _lock = lock()?;
        let index = take_row(&core, &rows, name, &channel)?;
        let connected = connect(&core, index).inspect_err(|_| {
            let _ = forget(&core, &rows, index);
        });
        let (links, carrier) = connected?;
        Ok(HostedLane {
            carrier: Some(carrier),
            _links: links,
            interface,
            numbers: Numbers {
                sinks,
                core,
                rows,
                index,
                channel,
            },
            owner: *owner,
            host: std::process::id(),
        })
    }
}

impl Drop for HostedLane {
    fn drop(&mut self) {
        // A forked child has a copy; the channel belongs to its parent.
        if self.host != std::process::id() {
            return;
        }
        // Not with the lock: its thread may still have frames to send.
        self.carrier = None;
        let Ok(_lock) = lock() else { return };
        let Numbers {
            core, rows, index, ..
        } = &self.numbers;
        let Ok(row) = rows.table.get(*index) else {
            return;
        };
        if row.owner == self.owner.pid && row.owner_start == self.owner.start_ns {
            let _ = forget(core, rows, *index);
        }
    }
}

/// Attaches the programs to the interface, and starts to send what `remote` puts into the channel's
/// buffer. The caller holds the lock.
fn attach(core: &Core, interface: Interface, index: u32) -> Result<([OwnedFd; 2], Carrier)> {
    let ingress = interface.attach(core.program("lane_ingress")?, Way::In)?;
    let egress = interface.attach(core.program("lane_egress")?, Way::Out)?;
    let carrier = Carrier::to_interface(sink::outs(core)?, index, interface)?;
    hand_over(core, index, &carrier)?;
    Ok(([ingress, egress], carrier))
}

/// Gives the kernel side the channel's buffer, the table of what its sinks tell, and that of what
/// users have in the buffer.
fn hand_over(core: &Core, index: u32, carrier: &Carrier) -> Result<()> {
    let buffer = carrier.buffer().as_fd().as_raw_fd().to_ne_bytes();
    let table = filter::table()?;
    let inner = [
        ("lane_rings", buffer),
        ("lane_tables", table.as_fd().as_raw_fd().to_ne_bytes()),
        (
            "lane_shares",
            carrier.shares().as_fd().as_raw_fd().to_ne_bytes(),
        ),
    ];
    for (outer, inner) in inner {
        core.map(outer)?
            .update(&index.to_ne_bytes(), &inner, MapFlags::ANY)
            .map_err(|error| Error::from_bpf("handing a buffer to the kernel", &error))?;
    }
    Ok(())
}

/// Writes the channel into a free row, and its id into the map of ids. The caller holds the lock.
fn take_row(core: &Core, rows: &Rows, name: &str, channel: &LaneChannel) -> Result<u32> {
    let mut free = None;
    for index in 1..LANE_CHANNELS as u32 {
        let row = rows.table.get(index)?;
        if row.id != 0 && !is_held(core, &row) {
            forget(core, rows, index)?;
        } else if row.id == channel.id {
            return Err(Error::Invalid {
                what: "the channel",
                given: name.to_owned(),
                expected: "one that is not open on this host yet",
            });
        } else if row.id != 0 {
            continue;
        }
        free = free.or(Some(index));
    }
    let index = free.ok_or(Error::LimitReached {
        which: "channels among hosts of one core",
        limit: LANE_CHANNELS - 1,
    })?;
    let zeros = LaneCount::default();
    counts(core)?.set_per_cpu(index, &zeros)?;
    sink::clear(core, index)?;
    rows.table.set(index, channel)?;
    core.map("lane_ids")?
        .update(channel.id.as_bytes(), &index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::from_bpf("opening a channel", &error))?;
    Ok(index)
}

/// Removes a channel, and what is known of its sources. The caller holds the lock.
fn forget(core: &Core, rows: &Rows, index: u32) -> Result<()> {
    let row = rows.table.get(index)?;
    let failed = |error| Error::from_bpf("closing a channel", &error);
    core.map("lane_ids")?
        .delete(row.id.as_bytes())
        .map_err(failed)?;
    rows.table.set(index, &LaneChannel::default())?;
    // An absent entry is no error.
    for inner in ["lane_rings", "lane_shares"] {
        let _ = core.map(inner)?.delete(&index.to_ne_bytes());
    }
    filter::clear(core, index)?;
    let sources = core.map("lane_sources")?;
    for (key, _) in sources_of(core, row.id)? {
        sources.delete(key.as_bytes()).map_err(failed)?;
    }
    Ok(())
}

/// What the program that receives frames takes, as the kernel counts it while its statistics are
/// enabled ([`crate::enable_statistics`]): with what the events' subscriptions do there.
///
/// # Errors
/// Those of the kernel.
pub fn receiving(core: &Core) -> Result<Cost> {
    let name = "lane_ingress";
    let info = sys::program_info(core.program(name)?)?;
    Ok(Cost {
        program: name,
        runs: info.run_cnt,
        total_ns: info.run_time_ns,
        skipped: info.recursion_misses,
    })
}

/// Whether the program that opened the channel lives.
fn is_held(core: &Core, row: &LaneChannel) -> bool {
    let identity = core.identify(row.owner);
    identity.is_ok_and(|identity| identity.start_ns == row.owner_start)
}

/// The row of the channel with this id, if a living program has it open.
fn opened(core: &Core, id: u64) -> Result<Option<(u32, LaneChannel)>> {
    if core.living_part(PART)?.is_none() {
        return Ok(None);
    }
    let ids = core.map("lane_ids")?;
    let index: Option<u32> = lookup(ids, id.as_bytes(), "looking a channel up")?;
    let Some(index) = index else { return Ok(None) };
    let row = lookup(
        core.map("lane_channels")?,
        &index.to_ne_bytes(),
        "reading a channel",
    )?;
    let row = row.filter(|row: &LaneChannel| row.id == id && is_held(core, row));
    Ok(row.map(|row| (index, row)))
}

/// The arguments of the kernel handler `remote` by which events go to the channel with this id, and
/// the format that their data must have; `None`: no program of this host has it open.
///
/// # Errors
/// Those of reading the tables.
pub fn remote(core: &Core, id: u64) -> Result<Option<([u64; 3], String)>> {
    let Some((index, row)) = opened(core, id)? else {
        return Ok(None);
    };
    let info = core.service_info(row.service)?;
    Ok(Some((arguments(index, &row), info.format().to_owned())))
}

fn arguments(index: u32, row: &LaneChannel) -> [u64; 3] {
    [u64::from(index), row.id, row.epoch]
}

fn counts(core: &Core) -> Result<Table<LaneCount>> {
    let map = MapHandle::try_from(core.map("lane_counts")?);
    map.map(Table::new)
        .map_err(|error| Error::from_bpf("opening a table", &error))
}

fn sources_of(core: &Core, channel: u64) -> Result<Vec<(LaneKey, LaneSource)>> {
    let map = core.map("lane_sources")?;
    let mut found = Vec::new();
    for key in map.keys() {
        let Ok(key) = LaneKey::read_from_bytes(&key) else {
            continue;
        };
        if key.channel != channel {
            continue;
        }
        // With the lock of the kernel side, so that the numbers belong together. One that has just
        // been removed is left out.
        let bytes = map
            .lookup(key.as_bytes(), MapFlags::LOCK)
            .map_err(|error| Error::from_bpf("reading a source", &error))?;
        let source = bytes.and_then(|bytes| LaneSource::read_from_bytes(&bytes).ok());
        found.extend(source.map(|source| (key, source)));
    }
    found.sort_by_key(|(key, _)| key.host);
    Ok(found)
}

/// A channel that is open on this host, with its counters.
#[derive(Clone, Debug)]
pub struct LaneStat {
    /// The name of its service, which is its own.
    pub name: String,
    /// Its row.
    pub channel: LaneChannel,
    /// Its frames, summed over CPUs.
    pub count: LaneCount,
    /// Other hosts that have sent frames.
    pub sources: Vec<(u64, LaneSource)>,
    /// Events by the kernel handler `remote`.
    pub out: LaneOut,
    /// Hosts to which frames were sent, or are.
    pub sinks: Vec<Sink>,
}

/// The channels that are open on this host; the count of frames that named none of them, and of
/// events that came to `remote` when theirs had been closed.
///
/// # Errors
/// Those of reading the tables.
pub fn lanes(core: &Core) -> Result<(Vec<LaneStat>, LaneCount, LaneOut)> {
    if core.living_part(PART)?.is_none() {
        return Ok((Vec::new(), LaneCount::default(), LaneOut::default()));
    }
    let (rows, counts) = (Rows::of(core)?, counts(core)?);
    let (outs, sinks) = (sink::outs(core)?, Sinks::of(core)?);
    let mut found = Vec::new();
    for index in 1..LANE_CHANNELS as u32 {
        let channel = rows.view.get(index);
        if channel.id == 0 || !is_held(core, &channel) {
            continue;
        }
        found.push(LaneStat {
            name: core.service_info(channel.service)?.name().to_owned(),
            channel,
            count: sum(&counts, index)?,
            sources: hosts_of(core, channel.id)?,
            out: outs.get(index),
            sinks: sinks.of_channel(index),
        });
    }
    Ok((found, sum(&counts, 0)?, outs.get(0)))
}

/// The other hosts that have sent frames of the channel of that name, and what each has told;
/// `None`: no program of this host has it open.
///
/// # Errors
/// Those of reading the tables.
pub fn sources(core: &Core, name: &str) -> Result<Option<Vec<(u64, LaneSource)>>> {
    let opened = opened(core, text_id(name))?;
    opened
        .map(|(_, channel)| hosts_of(core, channel.id))
        .transpose()
}

fn hosts_of(core: &Core, channel: u64) -> Result<Vec<(u64, LaneSource)>> {
    let sources = sources_of(core, channel)?.into_iter();
    Ok(sources.map(|(key, source)| (key.host, source)).collect())
}

fn sum(counts: &Table<LaneCount>, index: u32) -> Result<LaneCount> {
    let mut sum = LaneCount::default();
    for one in counts.per_cpu(index)? {
        sum.frames += one.frames;
        sum.raised += one.raised;
        for (to, from) in sum.refused.iter_mut().zip(one.refused) {
            *to += from;
        }
    }
    Ok(sum)
}

/// This host as others know it: the interface's hardware address, which no other host of the
/// network has, and above it 16 bits of the instance's name. Without an address: what identifies
/// the machine.
fn host_id(interface: Option<Interface>) -> Result<u64> {
    let name = instance::name()?.map_or(0, text_id);
    let address = interface.map_or([0; 6], |interface| interface.address);
    let mut bytes = [0; 8];
    bytes[2..].copy_from_slice(&address);
    if address != [0; 6] {
        return Ok(u64::from_be_bytes(bytes) | (name & 0xffff) << 48);
    }
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Ok((text_id(machine.trim()) ^ name).max(1))
}

/// The time of the real-time clock, ns: never 0.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ns = now.map_or(0, |time| time.as_nanos());
    u64::try_from(ns).unwrap_or(u64::MAX).max(1)
}
