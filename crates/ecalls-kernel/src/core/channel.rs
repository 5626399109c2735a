//! Channels in the core: the pair of shared segments between one application and the core, and the
//! descriptor on which the owner sleeps. The protocol inside is `ecalls-ring`; the application's
//! side is `access/memory.rs`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use ecalls_abi::channel::{
    CAPACITY_MAX, CAPACITY_MIN, Id, Layout, STATE_ACTIVE, STATE_DEAD, STATE_FREE, STATE_SETUP,
    SlotUse, UP_ELEMENT_BYTES, UP_EVENTS, WAKE_BYTES,
};
use ecalls_abi::downcall::{ATTRIBUTES, DEFER_SWITCH, DOWN_ELEMENT_BYTES, DOWN_ELEMENTS};
use ecalls_abi::event::entries;
use ecalls_abi::version::{CHANNELS_MAX, DATA_MAX};
use ecalls_abi::{ABI_VERSION, channel};
use libbpf_rs::libbpf_sys::{bpf_map_create_opts, size_t};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use zerocopy::FromZeros;

use crate::core::Core;
use crate::core::owner::{self, Owner};
use crate::error::{Error, Result};
use crate::kernel::link::Link;
use crate::kernel::lock::lock;
use crate::kernel::objects::Role;
use crate::kernel::segment::{PAGE, Segment};
use crate::kernel::sys;

/// The layout of a channel's `up` segment.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Ring or slots.
    pub layout: Layout,
    /// Entries of a ring, or slots; a power of two.
    pub capacity: u32,
    /// Entries of a slot ([`entries`]), that is, the data that it has room for; ring: 1.
    pub width: u32,
    /// With slots: the rule by which an event gets its slot.
    pub slot_use: SlotUse,
    /// `DEFER_*` of `ecalls_abi::downcall`.
    pub defer: u32,
    /// With `DEFER_DELAY`: how long deferred calls may wait, ns.
    pub delay_ns: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            layout: Layout::Ring,
            capacity: 1024,
            width: 1,
            slot_use: SlotUse::Free,
            defer: 0,
            delay_ns: 0,
        }
    }
}

impl Shape {
    /// Elements of the segment from kernel to application.
    pub(crate) fn up_elements(&self) -> usize {
        UP_EVENTS + self.capacity as usize * self.width as usize
    }
}

/// The descriptors of a channel's memory, which its owner maps.
#[derive(Debug)]
pub struct ChannelFds {
    /// The segment from kernel to application.
    pub up: OwnedFd,
    /// The segment from application to kernel.
    pub down: OwnedFd,
    /// The descriptor on which the application sleeps.
    pub wake: OwnedFd,
}

/// A channel in the core, created by this process for its owner. Dropping it closes the channel:
/// the kernel side then no longer accesses its memory, even if a process still has it mapped.
#[derive(Debug)]
pub struct HostedChannel {
    core: Arc<Core>,
    id: Id,
    row: channel::Channel,
    fds: ChannelFds,
    /// A writable mapping of each segment: while it exists, no process can freeze the segment.
    _mapped: [Segment; 2],
    /// The attachments for its deferred calls.
    _links: Vec<Link>,
    /// The process that created it.
    host: u32,
}

impl HostedChannel {
    /// Opens a channel for `owner`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity that is not a power of two or is out of range,
    /// [`Error::LimitReached`] if all channels are in use, [`Error::Closed`] if the owner has
    /// ended.
    pub fn open(core: Arc<Core>, owner: &Owner, shape: &Shape) -> Result<HostedChannel> {
        check(shape)?;
        let lock = lock()?;
        let (index, previous) = find_free(&core)?;
        let id = Id::from_raw(previous.id)
            .map_or_else(|| Id::new(index, 1), |id| Some(id.next()))
            .ok_or(Error::Closed("a channel id"))?;
        let fds = ChannelFds {
            up: array(SEGMENT, UP_ELEMENT_BYTES, shape.up_elements(), true)?,
            down: array(SEGMENT, DOWN_ELEMENT_BYTES, DOWN_ELEMENTS, false)?,
            wake: wake_buffer()?,
        };
        let mapped = [Segment::map(&fds.up, PAGE)?, Segment::map(&fds.down, PAGE)?];
        write_header(&mapped[0], id, shape);
        let row = new_row(id, shape, owner);
        core.tables.channels.set(index, &row)?;
        core.tables.attributes.set(index, &[0; ATTRIBUTES])?;
        let inner = [&fds.up, &fds.down, &fds.wake].map(|fd| fd.as_raw_fd().to_ne_bytes());
        in_outer_maps(&core, |map, at| {
            map.update(&index.to_ne_bytes(), &inner[at], MapFlags::ANY)
        })?;
        let links = activate(&core, index, &row)?;
        let hosted = HostedChannel {
            core,
            id,
            row,
            fds,
            _mapped: mapped,
            _links: links,
            host: std::process::id(),
        };
        drop(lock);
        // If the owner exited before that, the reaper's state was overwritten.
        owner.check(&hosted.core)?;
        Ok(hosted)
    }

    pub fn id(&self) -> Id {
        self.id
    }

    /// From now on no event is delivered to the channel, and no call of its owner is executed.
    /// Dropping it, which waits for the kernel, may follow later.
    pub fn revoke(&self) {
        let Ok(_lock) = lock() else { return };
        let index = self.id.index();
        let Ok(mut row) = self.core.tables.channels.get(index) else {
            return;
        };
        if row.id == self.id.raw() && row.state == STATE_ACTIVE {
            row.state = STATE_DEAD;
            // If this fails, the drop does it.
            let _ = self.core.tables.channels.set(index, &row);
        }
    }

    /// Its descriptors: a process that has them can use the channel's memory.
    pub fn fds(&self) -> &ChannelFds {
        &self.fds
    }

    /// Ids of its maps: each map exists as long as a process holds it, even after the channel is
    /// closed.
    pub fn map_ids(&self) -> Result<[u32; 3]> {
        Ok([
            sys::map_id(self.fds.up.as_fd())?,
            sys::map_id(self.fds.down.as_fd())?,
            sys::map_id(self.fds.wake.as_fd())?,
        ])
    }

    /// Kernel memory that a channel of this shape takes, bytes.
    pub fn bytes(shape: &Shape) -> u64 {
        let up = UP_ELEMENT_BYTES * shape.up_elements();
        let down = DOWN_ELEMENT_BYTES * DOWN_ELEMENTS;
        let pages = |bytes: usize| bytes.next_multiple_of(PAGE);
        // A ring buffer: its data, two pages of positions, one page of its own.
        let wake = WAKE_BYTES + 3 * PAGE;
        (pages(up) + pages(down) + wake) as u64
    }
}

impl Drop for HostedChannel {
    fn drop(&mut self) {
        // A forked child has a copy; the channel belongs to its parent.
        if self.host != std::process::id() {
            return;
        }
        let Ok(_lock) = lock() else { return };
        let index = self.id.index();
        let Ok(mut row) = self.core.tables.channels.get(index) else {
            return;
        };
        // Otherwise it was revoked before, and the row belongs to another channel.
        if row.id == self.id.raw() {
            row.state = STATE_FREE;
            self.core.free_channel.fetch_min(index, Ordering::Relaxed);
            // A failure cannot be handled here; the next owner of the row finds it dead.
            let _ = self.core.tables.channels.set(index, &row);
            reclaim(&self.core, index, &row);
        }
        let _ = owner::remove(&self.core, self.row.owner);
    }
}

/// Makes a channel active, as its row says, and returns its attachments.
fn activate(core: &Core, index: u32, row: &channel::Channel) -> Result<Vec<Link>> {
    // The owner is first: once the channel is active, the reaper must see the owner's exit.
    owner::add(core, row.owner)?;
    let active = || {
        let mut links = Vec::new();
        if row.defer & DEFER_SWITCH != 0 {
            links = core.attached(Role::Switch)?;
            let id = Id::from_raw(row.id).ok_or(Error::Closed("a channel id"))?;
            owner::defer_at_switch(core, row.owner, id)?;
        }
        let state = STATE_ACTIVE;
        let active = channel::Channel { state, ..*row };
        core.tables.channels.set(index, &active)?;
        if row.defer & DEFER_SWITCH != 0 {
            crate::core::subscription::set_pump(core)?;
        }
        Ok(links)
    };
    active().inspect_err(|_| {
        let state = STATE_FREE;
        let free = channel::Channel { state, ..*row };
        let _ = core.tables.channels.set(index, &free);
        reclaim(core, index, row);
        let _ = owner::remove(core, row.owner);
    })
}

/// A row that is not active yet.
fn new_row(id: Id, shape: &Shape, owner: &Owner) -> channel::Channel {
    channel::Channel {
        state: STATE_SETUP,
        id: id.raw(),
        owner: owner.pid,
        uid: owner.uid,
        layout: shape.layout.raw(),
        capacity: shape.capacity,
        slot_use: shape.slot_use.raw(),
        defer: shape.defer,
        owner_start: owner.start_ns,
        delay_ns: shape.delay_ns,
        user: owner.user,
        width: shape.width,
    }
}

/// Removes everything of a channel that is no longer active from the kernel side's maps.
fn reclaim(core: &Core, index: u32, row: &channel::Channel) {
    if row.defer & DEFER_SWITCH != 0 {
        let _ = owner::forget_switch(core, row.owner, row.id);
        let _ = crate::core::subscription::set_pump(core);
    }
    // An absent entry is no error.
    let _ = in_outer_maps(core, |map, _| map.delete(&index.to_ne_bytes()));
}

/// The maps that hold the segments and the wake descriptor of each channel.
const OUTER: [&str; 3] = ["ups", "downs", "wakes"];

/// Makes a change to each of [`OUTER`]; `change` gets the map and its index there. The kernel waits
/// for running programs in each change, some 10 ms; so the changes are made concurrently.
fn in_outer_maps(
    core: &Core,
    change: impl Fn(&MapHandle, usize) -> libbpf_rs::Result<()> + Sync,
) -> Result<()> {
    let maps = [
        core.map(OUTER[0])?,
        core.map(OUTER[1])?,
        core.map(OUTER[2])?,
    ];
    let change = &|at: usize| change(maps[at], at);
    let results = thread::scope(|scope| {
        let others = [1, 2].map(|at| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || change(at));
            (at, thread)
        });
        let first = change(0);
        let others = others.map(|(at, thread)| match thread {
            Ok(thread) => thread.join().expect("it does not panic"),
            // This process may start no thread.
            Err(_) => change(at),
        });
        [first].into_iter().chain(others).collect::<Vec<_>>()
    });
    results.into_iter().try_for_each(|result| {
        result.map_err(|error| Error::from_bpf("handing a channel to the kernel", &error))
    })
}

/// The capacities that a channel may have.
pub const CAPACITIES: &str = "a power of two from 64 to 65536; slots: 1 to 1024";

fn check(shape: &Shape) -> Result<()> {
    let most = match shape.layout {
        Layout::Ring => CAPACITY_MAX,
        Layout::Slots => channel::SLOTS_MAX as u32,
    };
    let least = match shape.layout {
        Layout::Ring => CAPACITY_MIN,
        Layout::Slots => 1,
    };
    if !shape.capacity.is_power_of_two() || shape.capacity < least || shape.capacity > most {
        return Err(Error::Invalid {
            what: "a channel's capacity",
            given: shape.capacity.to_string(),
            expected: CAPACITIES,
        });
    }
    let widest = match shape.layout {
        Layout::Ring => 1,
        Layout::Slots => entries(DATA_MAX) as u32,
    };
    if shape.width == 0 || shape.width > widest {
        return Err(Error::Invalid {
            what: "the data of a slot",
            given: format!("{} entries", shape.width),
            expected: "room for at most 2152 bytes; a ring has no slots",
        });
    }
    Ok(())
}

/// A row that is free, or whose owner has exited. The rows below the first that may be free are
/// searched only if there is no other: the kernel side closes channels without notice.
fn find_free(core: &Core) -> Result<(u32, channel::Channel)> {
    let first = core.free_channel.load(Ordering::Relaxed);
    for index in (first..CHANNELS_MAX as u32).chain(0..first) {
        let row = core.tables.channels.get(index)?;
        core.free_channel.store(index, Ordering::Relaxed);
        // SETUP: its owner died while it opened the channel; no other process can hold the lock
        // now.
        if matches!(row.state, STATE_DEAD | STATE_SETUP) {
            reclaim(core, index, &row);
            return Ok((index, row));
        }
        if row.state == STATE_FREE {
            return Ok((index, row));
        }
    }
    Err(Error::LimitReached {
        which: "channels of one core",
        limit: CHANNELS_MAX,
    })
}

/// The name of its maps.
const SEGMENT: &str = "ecalls_segment";

/// An array that a process can map. `inner`: it may have another size than others in an outer map.
pub(crate) fn array(
    name: &'static str,
    value_bytes: usize,
    entries: usize,
    inner: bool,
) -> Result<OwnedFd> {
    let mut flags = libbpf_sys::BPF_F_MMAPABLE;
    if inner {
        flags |= libbpf_sys::BPF_F_INNER_MAP;
    }
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as size_t,
        map_flags: flags,
        ..Default::default()
    };
    let bytes = u32::try_from(value_bytes).expect("a small element");
    let entries = u32::try_from(entries).expect("a checked capacity");
    let map = MapHandle::create(MapType::Array, Some(name), 4, bytes, entries, &options);
    descriptor(map, "making a segment of shared memory")
}

pub(crate) fn wake_buffer() -> Result<OwnedFd> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as size_t,
        ..Default::default()
    };
    let map = MapHandle::create(
        MapType::RingBuf,
        Some("ecalls_wake"),
        0,
        0,
        WAKE_BYTES as u32,
        &options,
    );
    descriptor(map, "making a wake descriptor")
}

/// A new map's descriptor.
fn descriptor(map: libbpf_rs::Result<MapHandle>, action: &'static str) -> Result<OwnedFd> {
    let map = map.map_err(|error| Error::from_bpf(action, &error))?;
    map.as_fd()
        .try_clone_to_owned()
        .map_err(|error| Error::from_io(action, error))
}

/// Writes the header's constant fields; the rest is 0.
fn write_header(up: &Segment, id: Id, shape: &Shape) {
    let mut header = channel::Up::new_zeroed();
    header.version = ABI_VERSION;
    header.layout = shape.layout.raw();
    header.capacity = shape.capacity;
    header.width = shape.width;
    header.slot_use = shape.slot_use.raw();
    header.channel = id.raw();
    let words: [u64; size_of::<channel::Up>() / 8] = zerocopy::transmute!(header);
    for (word, value) in up.words().iter().zip(words) {
        word.store(value, Ordering::Relaxed);
    }
}
