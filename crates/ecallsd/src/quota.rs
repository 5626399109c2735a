//! The one accounting: what each user holds, whether it may hold more, and that everything is given
//! back exactly once.
//!
//! Whatever the daemon makes for a client is charged first, all of it or nothing, and the
//! [`Charge`] lives with the thing: dropping it gives back. What a client keeps after closing (its
//! programs may still map the memory) is split off its charge and lives on.
//!
//! A user may hold up to its limit, and of the machine's total no more than its share:
//!
//! - Half of the total is kept in equal parts, one for each user there can be ([`USERS`]). A user's
//!   part is its own: nobody can take it.
//! - Of the other half a user may have at most what the other users left, divided by the number of
//!   users that want some of it, itself included, and one. So a single user gets half of it, the
//!   second a third of what remains, and so on; the last one finds something too.
//!
//! Root is counted and limited by the second half as a whole, not by a share.
//!
//! What is counted by time, not held, is in [`upload`].
//!
//! Always: what users hold adds up to the totals; no total is above the machine's; nothing is below
//! zero.

pub mod upload;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::{Limits, Machine};
use crate::quota::upload::Uploads;

/// Users that can hold something at the same time, root aside: the rows of the kernel side's table.
pub const USERS: usize = 255;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Connections to the daemon.
    Connections,
    /// Channels.
    Channels,
    /// Subscriptions.
    Subscriptions,
    /// Application services.
    Services,
    /// Shared memory.
    Bytes,
    /// The daemon's descriptors.
    Descriptors,
}

/// All of them, in the order in which amounts are kept.
pub const RESOURCES: [Resource; 6] = [
    Resource::Connections,
    Resource::Channels,
    Resource::Subscriptions,
    Resource::Services,
    Resource::Bytes,
    Resource::Descriptors,
];

impl Resource {
    /// As messages name it: "... of your user".
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
    /// Nothing.
    pub const NONE: Amounts = Amounts([0; RESOURCES.len()]);

    /// And so much of that.
    #[must_use]
    pub fn and(mut self, resource: Resource, amount: u64) -> Amounts {
        self.0[resource as usize] = amount;
        self
    }

    /// How much of that.
    pub fn of(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// Whether it is nothing at all.
    pub fn is_none(&self) -> bool {
        *self == Amounts::NONE
    }

    /// A user's limits as amounts.
    pub fn of_limits(limits: &Limits) -> Amounts {
        Amounts::NONE
            .and(Resource::Connections, limits.connections.get())
            .and(Resource::Channels, limits.channels.get())
            .and(Resource::Subscriptions, limits.subscriptions.get())
            .and(Resource::Services, limits.services.get())
            .and(Resource::Bytes, limits.bytes.0)
            .and(Resource::Descriptors, limits.descriptors.get())
    }

    /// The machine's totals as amounts.
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

/// Why something was not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What there was too little of; None: more users than the core can tell apart.
    pub resource: Option<Resource>,
    /// How much the user may hold.
    pub limit: u64,
    /// Whether that is its share of the machine, and not its own limit.
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

/// What everybody holds. Cheap to clone: all clones are the same books.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Mutex<Books>>);

#[derive(Debug)]
struct Books {
    machine: Amounts,
    users: HashMap<u32, Amounts>,
    uploads: Uploads,
}

/// Something that was charged to a user. Dropping it gives it back.
#[derive(Debug)]
pub struct Charge {
    ledger: Ledger,
    uid: u32,
    amounts: Amounts,
}

impl Ledger {
    /// Empty books of a machine.
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
    /// What there was too little of.
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

    /// Runs `act` with what users have uploaded.
    pub fn uploads<T>(&self, act: impl FnOnce(&mut Uploads) -> T) -> T {
        act(&mut self.books().uploads)
    }

    /// Other totals from now on. What is held beyond them stays until it is given back.
    pub fn set_machine(&self, machine: &Machine) {
        self.books().machine = Amounts::of_machine(machine);
    }

    /// What a user holds.
    pub fn held(&self, uid: u32) -> Amounts {
        self.books().users.get(&uid).copied().unwrap_or_default()
    }

    /// Users that hold something, with what they hold.
    pub fn users(&self) -> Vec<(u32, Amounts)> {
        let mut users: Vec<_> = self.books().users.iter().map(|(k, v)| (*k, *v)).collect();
        users.sort_unstable_by_key(|(uid, _)| *uid);
        users
    }

    /// What all users hold.
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
        // Nobody panics between the first and the last write of a change.
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

    /// How much a user may hold of the machine's total, as things are.
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

/// The part of a total that each user has for itself.
pub fn own_part(total: u64) -> u64 {
    total / (2 * USERS as u64)
}

impl Charge {
    /// Whose it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// What it is.
    pub fn amounts(&self) -> Amounts {
        self.amounts
    }

    /// Takes all of one resource out of it, to be given back by itself.
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
