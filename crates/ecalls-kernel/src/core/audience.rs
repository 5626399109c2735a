//! Audiences: lists of subscriptions that receive only one user's events (abi/audience.h).
//!
//! A subscription with scope OWN of a built-in service is in the audience of its receiver's process
//! and in that of its owner's user. An audience is written anew whenever one of its subscriptions
//! begins or ends: new rows are written, the map `audiences` then names the first of them, and the
//! former rows are reused once no program can read them any more. So no program waits for that,
//! unless all rows are in use.
//!
//! Every change happens under the lock of the core.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use ecalls_abi::audience::{
    AUDIENCE_FREE, AUDIENCE_MAX, AUDIENCE_PID, AUDIENCE_RETIRED, AUDIENCE_ROWS, AUDIENCE_UID,
    AUDIENCE_USED, Audience, AudienceKey,
};
use ecalls_abi::channel::STATE_ACTIVE;
use ecalls_abi::service::SERVICE_USER;
use ecalls_abi::subscription::{SCOPE_OWN, Subscription};
use ecalls_abi::version::{SUBSCRIBERS_MAX, SUBSCRIPTIONS_MAX};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::{FromZeros, IntoBytes};

use crate::core::Core;
use crate::core::subscription::slow;
use crate::error::{Error, Result};
use crate::kernel::reader::{is_read, wait_for_readers};
use crate::kernel::sys;
use crate::kernel::table::{Mapped, lookup};

/// Whether a subscription is in audiences, and not in its service's list. Those of application
/// services are in the list: the kernel side does not decide who may subscribe to them.
pub(crate) fn holds(row: &Subscription) -> bool {
    row.scope == SCOPE_OWN && row.service < SERVICE_USER
}

/// The two audiences of a subscription.
fn keys(row: &Subscription) -> [AudienceKey; 2] {
    let service = u16::try_from(row.service).expect("below SERVICES_MAX");
    let key = |sort, who| AudienceKey { service, sort, who };
    [
        key(AUDIENCE_PID, row.receiver),
        key(AUDIENCE_UID, row.owner_uid),
    ]
}

fn is_in(row: &Subscription, key: AudienceKey) -> bool {
    row.state == STATE_ACTIVE && holds(row) && keys(row).contains(&key)
}

/// The subscriptions in an audience, in order of delivery.
fn members(core: &Core, key: AudienceKey) -> Result<Vec<(u32, Subscription)>> {
    let who = match key.sort {
        AUDIENCE_PID => offset_of!(Subscription, receiver),
        _ => offset_of!(Subscription, owner_uid),
    };
    let mut members: Vec<_> = active(core, key.service.into())?
        .filter(|found| found.is_own() && found.field(who) == key.who)
        .map(|found| (found.index, found.row()))
        .filter(|(_, row)| is_in(row, key))
        .collect();
    members.sort_by_key(|(_, row)| (std::cmp::Reverse(row.cpu_priority), row.order));
    Ok(members)
}

/// A subscription in its table, of which only those words are read that are asked for: a search
/// looks at up to thousands of rows of half a KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InTable<'a> {
    table: &'a Mapped<Subscription>,
    pub(crate) index: u32,
}

impl InTable<'_> {
    /// The 32-bit field at byte `offset`.
    pub(crate) fn field(&self, offset: usize) -> u32 {
        self.table.field(self.index, offset)
    }

    /// [`holds`].
    pub(crate) fn is_own(&self) -> bool {
        self.field(offset_of!(Subscription, scope)) == SCOPE_OWN
            && self.field(offset_of!(Subscription, service)) < SERVICE_USER
    }

    /// The whole row.
    pub(crate) fn row(&self) -> Subscription {
        self.table.get(self.index)
    }

    fn is_active(&self, service: u32) -> bool {
        self.field(offset_of!(Subscription, service)) == service
            && self.field(offset_of!(Subscription, state)) == STATE_ACTIVE
    }
}

/// The active subscriptions to a service, in order of their indices.
pub(crate) fn active(core: &Core, service: u32) -> Result<impl Iterator<Item = InTable<'_>>> {
    let table = core.mapped_subscriptions()?;
    Ok((0..SUBSCRIPTIONS_MAX as u32)
        .map(|index| InTable { table, index })
        // From the first row that was never used on, none was.
        .take_while(|found| found.field(offset_of!(Subscription, id)) != 0)
        .filter(move |found| found.is_active(service)))
}

/// Fails unless there is room for one more subscription like this one.
///
/// # Errors
/// [`Error::LimitReached`] if one of its audiences is full.
pub(crate) fn check_room(core: &Core, row: &Subscription) -> Result<()> {
    for key in keys(row) {
        if members(core, key)?.len() >= AUDIENCE_MAX {
            return Err(Error::LimitReached {
                which: "subscriptions of one user to one service",
                limit: AUDIENCE_MAX,
            });
        }
    }
    Ok(())
}

/// Writes the two audiences of a subscription anew, which has begun or ended, and notes in the
/// service's row whether it has any. The caller holds the lock.
pub(crate) fn publish(core: &Core, row: &Subscription) -> Result<()> {
    for key in keys(row) {
        publish_one(core, key)?;
    }
    let mut service = core.tables.services.get(row.service)?;
    (service.own, service.slow_own) = (0, 0);
    for found in active(core, row.service)?.filter(InTable::is_own) {
        service.own += 1;
        service.slow_own += slow(
            found.field(offset_of!(Subscription, plain)),
            found.field(offset_of!(Subscription, actions)),
        );
    }
    core.tables.services.set(row.service, &service)
}

fn publish_one(core: &Core, key: AudienceKey) -> Result<()> {
    let members = members(core, key)?;
    let former = first_row(core, key)?;
    let audiences = core.map("audiences")?;
    if members.is_empty() {
        if former != 0 {
            audiences
                .delete(key.as_bytes())
                .map_err(|error| Error::from_bpf("ending an audience", &error))?;
        }
    } else {
        let first = write_rows(core, &members)?;
        audiences
            .update(key.as_bytes(), &first.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("writing an audience", &error))?;
    }
    retire(core, former)
}

/// First row of an audience; 0: the audience does not exist.
fn first_row(core: &Core, key: AudienceKey) -> Result<u32> {
    let row = lookup(
        core.map("audiences")?,
        key.as_bytes(),
        "reading an audience",
    )?;
    Ok(row.unwrap_or(0))
}

/// Writes a chain of rows that names the members, and returns its first row.
fn write_rows(core: &Core, members: &[(u32, Subscription)]) -> Result<u32> {
    let parts: Vec<_> = members.chunks(SUBSCRIBERS_MAX).collect();
    let places = free_rows(core, parts.len())?;
    let deadlines = members.iter().map(|(_, row)| row.deadline_ns);
    let deadline_ns = deadlines.filter(|ns| *ns != 0).min().unwrap_or(0);
    let mut next = 0;
    // From the last to the first, so that each row can name the next one.
    for (part, &place) in parts.iter().zip(&places).rev() {
        let mut audience = Audience::new_zeroed();
        audience.state = AUDIENCE_USED;
        audience.next = next;
        audience.deadline_ns = deadline_ns;
        audience.count = u32::try_from(part.len()).expect("a row's worth");
        for (to, (index, _)) in audience.list.iter_mut().zip(*part) {
            *to = *index;
        }
        core.tables.audience_rows.set(place, &audience)?;
        next = place;
    }
    Ok(next)
}

/// Takes the rows of a former chain out of use.
fn retire(core: &Core, first: u32) -> Result<()> {
    let now_ns = sys::now_ns();
    let mut at = first;
    while at != 0 {
        let mut row = core.tables.audience_rows.get(at)?;
        row.state = AUDIENCE_RETIRED;
        row.retired_ns = now_ns;
        core.tables.audience_rows.set(at, &row)?;
        at = row.next;
    }
    Ok(())
}

/// Rows that no program reads.
fn free_rows(core: &Core, count: usize) -> Result<Vec<u32>> {
    let table = core.mapped_audiences()?;
    let mut free = find_rows(table, count, |row| !is_read(row.retired_ns));
    if free.len() < count {
        wait_for_readers(sys::now_ns())?;
        free = find_rows(table, count, |_| true);
    }
    if free.len() < count {
        return Err(Error::LimitReached {
            which: "rows of audiences",
            limit: AUDIENCE_ROWS,
        });
    }
    Ok(free)
}

fn find_rows(
    table: &Mapped<Audience>,
    count: usize,
    usable: impl Fn(&Audience) -> bool,
) -> Vec<u32> {
    let state = |row| {
        let word = table.word(row, offset_of!(Audience, state));
        word.load(Ordering::Relaxed).to_ne_bytes()[0]
    };
    (1..AUDIENCE_ROWS as u32)
        .filter(|&row| match u32::from(state(row)) {
            AUDIENCE_FREE => true,
            AUDIENCE_RETIRED => usable(&table.get(row)),
            _ => false,
        })
        .take(count)
        .collect()
}

impl Core {
    pub(crate) fn mapped_subscriptions(&self) -> Result<&Mapped<Subscription>> {
        self.views
            .subscriptions
            .get_or_map(|| Mapped::map(self.map("subscriptions")?, SUBSCRIPTIONS_MAX))
    }

    fn mapped_audiences(&self) -> Result<&Mapped<Audience>> {
        self.views
            .audiences
            .get_or_map(|| Mapped::map(self.map("audience_rows")?, AUDIENCE_ROWS))
    }
}
