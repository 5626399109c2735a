//! The users in the kernel side's table: the row of each uid, and the counters of its subscriptions
//! that have ended.
//!
//! A uid gets a row with its first client, and keeps it after the last one, so that its counters
//! remain readable. When no row is free, the one that has been unused for the longest time is
//! reused. Root is row 0, which has no limits.

use std::collections::HashMap;
use std::sync::Arc;

use ecalls_abi::channel::Id;
use ecalls_abi::message::{
    QUOTA_BYTES, QUOTA_CHANNELS, QUOTA_COMPILE, QUOTA_CONNECTIONS, QUOTA_DESCRIPTORS,
    QUOTA_EXPIRIES, QUOTA_HANDLER, QUOTA_QUEUED, QUOTA_RAISED, QUOTA_REQUESTS, QUOTA_SERVICES,
    QUOTA_SUBSCRIPTIONS, QUOTA_TIMERS, QUOTA_UP, QUOTA_UPLOADS, UserView,
};
use ecalls_abi::service::SubscriptionCount;
use ecalls_abi::user::UNLIMITED;
use ecalls_kernel::core::Core;
use ecalls_kernel::user::{BURST_MAX, Limits as KernelLimits};
use ecalls_kernel::{Result, now_ns};

use crate::config::Limits;
use crate::quota::{Amounts, Ledger, Resource, USERS};

/// The state of one user.
#[derive(Clone, Debug)]
pub struct User {
    pub row: u32,
    pub limits: Limits,
    /// Number of its clients.
    clients: u32,
    /// When its last client ended.
    idle_ns: u64,
    /// Requests that had to wait.
    slow: u64,
    /// Counters of its subscriptions that have ended.
    ended: SubscriptionCount,
}

/// A subscription that has ended, of whose events some were under way: a kernel thread, for
/// example, counts the end of a chain when it gets there.
#[derive(Clone, Copy, Debug)]
struct Ending {
    uid: u32,
    id: Id,
    count: SubscriptionCount,
}

#[derive(Debug)]
pub struct Users {
    core: Arc<Core>,
    users: HashMap<u32, User>,
    ending: Vec<Ending>,
}

impl Users {
    pub fn new(core: Arc<Core>) -> Users {
        Users {
            core,
            users: HashMap::new(),
            ending: Vec::new(),
        }
    }

    /// Adds a client of this user, and returns the user's row. The ledger guarantees that there is
    /// one ([`USERS`]).
    pub fn enter(&mut self, uid: u32, limits: &Limits) -> Result<u32> {
        let row = match self.users.get(&uid) {
            Some(user) => user.row,
            None if uid == 0 => UNLIMITED,
            None => self.free_row()?,
        };
        let user = self.users.entry(uid).or_insert_with(|| User {
            row,
            limits: *limits,
            clients: 0,
            idle_ns: 0,
            slow: 0,
            ended: SubscriptionCount::default(),
        });
        user.clients += 1;
        user.limits = *limits;
        self.store(uid)?;
        Ok(row)
    }

    /// Removes a client of this user.
    pub fn leave(&mut self, uid: u32) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.clients = user.clients.saturating_sub(1);
            user.idle_ns = now_ns();
        }
    }

    /// Sets other limits.
    pub fn set_limits(&mut self, uid: u32, limits: &Limits) -> Result<()> {
        if let Some(user) = self.users.get_mut(&uid) {
            user.limits = *limits;
            self.store(uid)?;
        }
        Ok(())
    }

    pub fn limits(&self, uid: u32) -> Option<Limits> {
        self.users.get(&uid).map(|user| user.limits)
    }

    /// Adds the counters of a subscription that has ended.
    pub fn add_ended(&mut self, uid: u32, id: Id) {
        let count = SubscriptionCount::default();
        self.ending.push(Ending { uid, id, count });
        self.settle();
    }

    /// Reads the counters of those that have ended again, until no event of theirs is under way, or
    /// another subscription has the row.
    pub fn settle(&mut self) {
        let (core, users) = (&self.core, &mut self.users);
        self.ending.retain_mut(|ending| {
            let stat = core.subscription(ending.id.index()).ok();
            let stat = stat.filter(|stat| stat.row.id == ending.id.raw());
            ending.count = stat.as_ref().map_or(ending.count, |stat| stat.count);
            let waits = stat.is_some() && ending.count.under_way() > 0;
            if !waits && let Some(user) = users.get_mut(&ending.uid) {
                user.ended.add(&ending.count);
            }
            waits
        });
    }

    /// Adds requests that had to wait.
    pub fn add_slow(&mut self, uid: u32, count: u32) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.slow += u64::from(count);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (u32, &User)> {
        self.users.iter().map(|(uid, user)| (*uid, user))
    }

    /// A user's amounts and limits, without the counters of living subscriptions.
    pub fn view(&self, uid: u32, user: &User, ledger: &Ledger) -> Result<UserView> {
        let kernel = self.core.user(user.row)?;
        let held = ledger.held(uid);
        let uploads = ledger.uploads(|uploads| uploads.of(uid));
        let mut view = UserView {
            next: user.row + 1,
            uid,
            raised: kernel.raised,
            count: user.ended,
            ..UserView::default()
        };
        for ending in self.ending.iter().filter(|ending| ending.uid == uid) {
            view.count.add(&ending.count);
        }
        for (quota, resource) in HELD {
            view.used[quota] = held.of(resource);
        }
        for (quota, used) in [
            (QUOTA_TIMERS, u64::from(kernel.timers)),
            (QUOTA_QUEUED, u64::from(kernel.queued)),
            (QUOTA_UP, kernel.up_throttled),
            (QUOTA_RAISED, kernel.raise_throttled),
            (QUOTA_EXPIRIES, kernel.timer_throttled),
            (QUOTA_HANDLER, kernel.handler_throttled),
            (QUOTA_REQUESTS, user.slow),
            (QUOTA_UPLOADS, uploads.too_many),
            (QUOTA_COMPILE, uploads.too_long),
        ] {
            view.used[quota] = used;
        }
        if uid == 0 {
            return Ok(view);
        }
        let limits = Amounts::of_limits(&user.limits);
        for (quota, resource) in HELD {
            view.limit[quota] = limits.of(resource);
        }
        let limits = &user.limits;
        for (quota, limit) in [
            (QUOTA_TIMERS, limits.timers.get()),
            (QUOTA_QUEUED, limits.queued_events.get()),
            (QUOTA_UP, limits.events_up_per_s.get()),
            (QUOTA_RAISED, limits.events_raised_per_s.get()),
            (QUOTA_EXPIRIES, limits.timer_expiries_per_s.get()),
            (QUOTA_HANDLER, limits.handler_time.0),
            (QUOTA_REQUESTS, limits.requests_per_s.get()),
            (QUOTA_UPLOADS, limits.uploads_per_s.get()),
            (QUOTA_COMPILE, limits.upload_time.0),
        ] {
            view.limit[quota] = limit;
        }
        Ok(view)
    }

    /// Stores a user's limits in the kernel side's table.
    fn store(&self, uid: u32) -> Result<()> {
        match self.users.get(&uid) {
            Some(user) if user.row != UNLIMITED => {
                self.core.set_user(user.row, uid, &of_kernel(&user.limits))
            }
            _ => Ok(()),
        }
    }

    /// A free row, or that of the user who has been away for the longest time.
    fn free_row(&mut self) -> Result<u32> {
        let used: Vec<u32> = self.users.values().map(|user| user.row).collect();
        let rows = 1..=u32::try_from(USERS).unwrap_or(u32::MAX);
        if let Some(free) = rows.into_iter().find(|index| !used.contains(index)) {
            return Ok(free);
        }
        let idle = self
            .users
            .iter()
            .filter(|(_, user)| user.clients == 0 && user.row != UNLIMITED);
        let oldest = idle
            .min_by_key(|(_, user)| user.idle_ns)
            .map(|(uid, user)| (*uid, user.row));
        let Some((uid, index)) = oldest else {
            return Err(ecalls_kernel::Error::LimitReached {
                which: "users at the same time",
                limit: USERS,
            });
        };
        self.users.remove(&uid);
        self.core.free_user(index)?;
        Ok(index)
    }
}

const HELD: [(usize, Resource); 6] = [
    (QUOTA_CONNECTIONS, Resource::Connections),
    (QUOTA_CHANNELS, Resource::Channels),
    (QUOTA_SUBSCRIPTIONS, Resource::Subscriptions),
    (QUOTA_SERVICES, Resource::Services),
    (QUOTA_BYTES, Resource::Bytes),
    (QUOTA_DESCRIPTORS, Resource::Descriptors),
];

/// The limits that the kernel side enforces. The configuration's ranges fit.
fn of_kernel(limits: &Limits) -> KernelLimits {
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    KernelLimits {
        up_per_s: limits.events_up_per_s.get(),
        up_burst: small(limits.events_up_burst.get()),
        raise_per_s: limits.events_raised_per_s.get(),
        raise_burst: small(limits.events_raised_burst.get()),
        handler_ns_per_s: limits.handler_time.0,
        queued_max: small(limits.queued_events.get()),
        timers_max: small(limits.timers.get()),
        timer_per_s: limits.timer_expiries_per_s.get(),
        // A program with many timers sets them one after the other.
        timer_burst: small(
            limits
                .timers
                .get()
                .max(limits.timer_expiries_per_s.get() / 10),
        )
        .min(BURST_MAX),
    }
}
