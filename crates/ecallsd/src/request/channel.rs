//! Opening and closing channels: kernel memory for a client, by descriptors that only the client
//! gets.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ecalls_abi::channel::{Layout, SlotUse};
use ecalls_abi::downcall::{DEFER_DELAY, DEFER_SWITCH};
use ecalls_abi::event::entries;
use ecalls_abi::message::{Answer, Done, OpenChannel};
use ecalls_abi::version::DATA_MAX;
use ecalls_kernel::channel::{CAPACITIES, HostedChannel, Shape};

use super::{Context, No, Result, done};
use crate::client::{Held, Reply};
use crate::quota::{Amounts, Resource};
use crate::retired::Retired;

/// Descriptors that the broker holds for a channel: its maps, its attachments, and copies in
/// transit to the client.
const DESCRIPTORS: u64 = 8;

/// The longest time that deferred calls may wait, ns; the kernel side adds it to a time.
const DELAY_NS_MAX: u64 = 1 << 62;

/// Opens a channel.
pub fn open(context: &mut Context<'_>, body: &OpenChannel) -> Result<Reply> {
    let shape = shape(body)?;
    let amounts = Amounts::NONE
        .and(Resource::Channels, 1)
        .and(Resource::Bytes, HostedChannel::bytes(&shape))
        .and(Resource::Descriptors, DESCRIPTORS);
    let charge = context.charge(amounts)?;
    let thing = HostedChannel::open(Arc::clone(context.core), &context.client.owner, &shape)?;
    let id = thing.id().raw();
    let copies: std::io::Result<Vec<_>> = [&thing.fds().up, &thing.fds().down, &thing.fds().wake]
        .map(OwnedFd::try_clone)
        .into_iter()
        .collect();
    let fds = copies.map_err(|error| {
        No::from(ecalls_kernel::Error::Os {
            action: "copying a descriptor",
            source: error,
        })
    })?;
    context.client.channels.insert(id, Held { thing, charge });
    Ok(Reply {
        answer: Answer::Done(Done { value: id.into() }),
        fds,
    })
}

/// Closes a channel.
///
/// # Errors
/// The channel does not belong to this client.
pub fn close(context: &mut Context<'_>, id: u32) -> Result<Reply> {
    let Some(held) = context.client.channels.remove(&id) else {
        return Err(No::from(ecalls_kernel::Error::Closed("the channel")));
    };
    retire(context.retired, held);
    Ok(done(0u32))
}

/// Closes a channel whose memory the client may still hold.
pub fn retire(retired: &mut Retired, held: Held<HostedChannel>) {
    let maps = held.thing.map_ids().map(Vec::from);
    retired.close(held, maps);
}

/// A channel's layout from a client's numbers. The core checks the values when it opens the
/// channel.
fn shape(body: &OpenChannel) -> Result<Shape> {
    let Some(layout) = Layout::from_raw(body.layout) else {
        return Err(No::invalid("a channel's layout", body.layout, "0 or 1"));
    };
    let Some(slot_use) = SlotUse::from_raw(body.slot_use) else {
        return Err(No::invalid("the use of slots", body.slot_use, "0 to 2"));
    };
    if body.defer & !(DEFER_DELAY | DEFER_SWITCH) != 0 {
        return Err(No::invalid("how calls are deferred", body.defer, "0 to 3"));
    }
    if body.capacity > ecalls_abi::channel::CAPACITY_MAX {
        return Err(No::invalid(
            "a channel's capacity",
            body.capacity,
            CAPACITIES,
        ));
    }
    if body.width > entries(DATA_MAX) as u32 {
        return Err(No::invalid(
            "the entries of a slot",
            body.width,
            "at most 9",
        ));
    }
    Ok(Shape {
        layout,
        capacity: body.capacity,
        width: body.width.max(1),
        slot_use,
        defer: body.defer,
        delay_ns: body.delay_ns.min(DELAY_NS_MAX),
    })
}
