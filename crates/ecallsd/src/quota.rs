//! The accounting: what each user holds, whether it may hold more, and that everything is released
//! exactly once.
//!
//! Every object that the daemon creates for a client is charged first, completely or not at all,
//! and the [`Charge`] is kept with the object: dropping it releases the amount. Memory that a
//! client keeps after closing (its programs may still map it) is split off the charge and released
//! later.
//!
//! A user may hold up to its limit, and of the machine's total no more than its share:
//! - Half of the total is reserved in equal parts, one for each possible user ([`USERS`]). Nobody
//!   else can take a user's part.
//! - Of the other half a user may hold at most what the other users left, divided by one more than
//!   the number of users that want some of it, itself included. So a single user gets half of it,
//!   the second a third of the rest, and so on; the last one still gets something.
//!
//! Root is counted and limited by the second half as a whole, not by a share.
//!
//! Rates, as opposed to held amounts, are in [`upload`].
//!
//! Invariants: the users' amounts add up to the totals; no total exceeds the machine's; nothing is
//! negative.

pub mod upload;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::{Limits, Machine};
use crate::quota::upload::Uploads;

/// Users that can hold something at the same time, without root: the rows of the kernel side's
/// table.
pub const USERS: usize = 255;

/// A resource that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    Connections,
    Channels,
    Subscriptions,
    Services,
    /// Bytes of shared memory.
    Bytes,
    /// Descriptors of the daemon.
    Descriptors,
}

/// All resources, in the order in which amounts are stored.
pub const RESOURCES: [Resource; 6] = [
    Resource::Connections,
    Resource::Channels,
    Resource::Subscriptions,
    Resource::Services,
    Resource::Bytes,
    Resource::Descriptors,
];

impl Resource {
    /// Its name in messages: "... of your user".
    pub fn name(self) -> &'static str {
        match self {
            Resource::Connections => "connections",
            Resource::Channels => "channels",
            Resource::Subscriptions => "subscriptions",
            Resource::Services => "application services",
            Resource::Bytes => "bytes of shared memory",
            Resource::Descriptors => "descriptors of the daemon",
        }
    }
}

/// An amount of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts([u64; RESOURCES.len()]);

impl Amounts {
    pub const NONE: Amounts = Amounts([0; RESOURCES.len()]);

    /// These amounts with `amount` added to one of them.
    #[must_use]
    pub fn and(mut self, resource: Resource, amount: u64) -> Amounts {
        self.0[resource as usize] = amount;
        self
    }

    pub fn of(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    pub fn is_none(&self) -> bool {
        *self == Amounts::NONE
    }

    pub fn of_limits(limits: &Limits) -> Amounts {
        Amounts::NONE
            .and(Resource::Connections, limits.connections.get())
            .and(Resource::Channels, limits.channels.get())
            .and(Resource::Subscriptions, limits.subscriptions.get())
            .and(Resource::Services, limits.services.get())
            .and(Resource::Bytes, limits.bytes.0)
            .and(Resource::Descriptors, limits.descriptors.get())
    }

    pub fn of_machine(machine: &Machine) -> Amounts {
        Amounts::NONE
            .and(Resource::Connections, machine.connections.get())
            .and(Resource::Channels, machine.channels.get())
            .and(Resource::Subscriptions, machine.subscriptions.get())
            .and(Resource::Services, machine.services.get())
            .and(Resource::Bytes, machine.bytes.0)
            .and(Resource::Descriptors, machine.descriptors.get())
    }
}

/// The reason for which a charge was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The resource that is exhausted; `None`: there are more users than the core has rows.
    pub resource: Option<Resource>,
    /// The amount that the user may hold.
    pub limit: u64,
    /// Whether this is the user's share of the machine, not its own limit.
    pub shared: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { limit, .. } = self;
        match (self.resource, self.shared) {
            (None, _) => write!(f, "users at the same time (at most {limit})"),
            (Some(resource), false) => {
                write!(f, "{} of one user (at most {limit})", resource.name())
            }
            (Some(resource), true) => {
                write!(f, "{} (this user's share is now {limit})", resource.name())
            }
        }
    }
}

/// The amounts of all users. Clones share them.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Mutex<Books>>);

#[derive(Debug)]
struct Books {
    machine: Amounts,
    users: HashMap<u32, Amounts>,
    uploads: Uploads,
}

/// An amount that is charged to a user. Dropping it releases the amount.
#[derive(Debug)]
pub struct Charge {
    ledger: Ledger,
    uid: u32,
    amounts: Amounts,
}

impl Ledger {
    /// An empty ledger of a machine.
    pub fn new(machine: &Machine) -> Ledger {
        Ledger(Arc::new(Mutex::new(Books {
            machine: Amounts::of_machine(machine),
            users: HashMap::new(),
            uploads: Uploads::default(),
        })))
    }

    /// Charges all of `amounts` to a user, or nothing.
    ///
    /// # Errors
    /// The resource that is exhausted.
    pub fn charge(&self, uid: u32, limits: &Limits, amounts: Amounts) -> Result<Charge, Refusal> {
        let mut books = self.books();
        books.check(uid, limits, &amounts)?;
        if !amounts.is_none() {
            let held = books.users.entry(uid).or_default();
            for (held, more) in held.0.iter_mut().zip(amounts.0) {
                *held += more;
            }
        }
        Ok(Charge {
            ledger: self.clone(),
            uid,
            amounts,
        })
    }

    /// Calls `act` with the users' uploads.
    pub fn uploads<T>(&self, act: impl FnOnce(&mut Uploads) -> T) -> T {
        act(&mut self.books().uploads)
    }

    /// Sets other totals. Amounts beyond them stay until they are released.
    pub fn set_machine(&self, machine: &Machine) {
        self.books().machine = Amounts::of_machine(machine);
    }

    pub fn held(&self, uid: u32) -> Amounts {
        self.books().users.get(&uid).copied().unwrap_or_default()
    }

    /// Users that hold something, with their amounts.
    pub fn users(&self) -> Vec<(u32, Amounts)> {
        let mut users: Vec<_> = self.books().users.iter().map(|(k, v)| (*k, *v)).collect();
        users.sort_unstable_by_key(|(uid, _)| *uid);
        users
    }

    pub fn total(&self) -> Amounts {
        let mut total = Amounts::NONE;
        for (_, held) in self.users() {
            for (sum, held) in total.0.iter_mut().zip(held.0) {
                *sum += held;
            }
        }
        total
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // No code panics between the first and the last write of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn check(&self, uid: u32, limits: &Limits, amounts: &Amounts) -> Result<(), Refusal> {
        let others = self.users.keys().filter(|user| **user != 0).count();
        if uid != 0 && !self.users.contains_key(&uid) && others >= USERS {
            return Err(Refusal {
                resource: None,
                limit: USERS as u64,
                shared: true,
            });
        }
        let limits = Amounts::of_limits(limits);
        let held = self.users.get(&uid).copied().unwrap_or_default();
        for resource in RESOURCES.into_iter().filter(|one| amounts.of(*one) > 0) {
            let wanted = held.of(resource).saturating_add(amounts.of(resource));
            let refuse = |limit, shared| {
                Err(Refusal {
                    resource: Some(resource),
                    limit,
                    shared,
                })
            };
            if uid != 0 && wanted > limits.of(resource) {
                return refuse(limits.of(resource), false);
            }
            let share = self.share(uid, resource);
            if wanted > share {
                return refuse(share, true);
            }
        }
        Ok(())
    }

    /// The amount that a user may hold of the machine's total at present.
    fn share(&self, uid: u32, resource: Resource) -> u64 {
        let total = self.machine.of(resource);
        let part = own_part(total);
        let common = total - part * USERS as u64;
        // Root has no part of its own.
        let beyond = |user: u32, held: &Amounts| match user {
            0 => held.of(resource),
            _ => held.of(resource).saturating_sub(part),
        };
        let others = self.users.iter().filter(|(user, _)| **user != uid);
        let (mut taken, mut wanting) = (0, 1);
        for (user, held) in others {
            let more = beyond(*user, held);
            taken += more;
            wanting += u64::from(more > 0);
        }
        let left = common.saturating_sub(taken);
        match uid {
            0 => left,
            _ => part + left / (wanting + 1),
        }
    }
}

/// The part of a total that is reserved for each user.
pub fn own_part(total: u64) -> u64 {
    total / (2 * USERS as u64)
}

impl Charge {
    pub fn uid(&self) -> u32 {
        self.uid
    }

    pub fn amounts(&self) -> Amounts {
        self.amounts
    }

    /// Splits the whole amount of one resource off, to be released separately.
    #[must_use]
    pub fn split(&mut self, resource: Resource) -> Charge {
        let amount = std::mem::take(&mut self.amounts.0[resource as usize]);
        Charge {
            ledger: self.ledger.clone(),
            uid: self.uid,
            amounts: Amounts::NONE.and(resource, amount),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.amounts.is_none() {
            return;
        }
        let mut books = self.ledger.books();
        let Some(held) = books.users.get_mut(&self.uid) else {
            debug_assert!(false, "user {} holds less than it was charged", self.uid);
            return;
        };
        for (held, less) in held.0.iter_mut().zip(self.amounts.0) {
            debug_assert!(*held >= less, "given back more than was charged");
            *held = held.saturating_sub(less);
        }
        if held.is_none() {
            books.users.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests;
