//! Reads the core's tables one row at a time, for a daemon: its clients ask for the next row that
//! they may see, and one question must not read a whole table.

use std::collections::HashSet;
use std::mem::offset_of;

use ecalls_abi::Channel;
use ecalls_abi::channel::{STATE_ACTIVE, STATE_FREE};
use ecalls_abi::service::{Service, SubscriptionCount};
use ecalls_abi::subscription::Subscription;
use ecalls_abi::version::{CHANNELS_MAX, SERVICES_MAX, SUBSCRIPTIONS_MAX};

use crate::core::Core;
use crate::core::stat::SubscriptionStat;
use crate::error::Result;
use crate::kernel::sys;
use crate::kernel::table::Mapped;

/// The owners to which a search is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Any owner.
    Anybody,
    /// Processes of this uid.
    User(u32),
    /// The owners that this row of the table of quotas limits.
    Row(u32),
}

impl Core {
    /// Index of the first active service from `from` on.
    pub fn next_service(&self, from: u32) -> Result<Option<u32>> {
        let table = self
            .views
            .services
            .get_or_map(|| Mapped::map(self.map("services")?, SERVICES_MAX))?;
        let is_active =
            |index: &u32| table.field(*index, offset_of!(Service, state)) == STATE_ACTIVE;
        Ok((from..SERVICES_MAX as u32).find(is_active))
    }

    /// Process and user of a service's owner; `None` if it is built in, or if there is none.
    pub fn service_owner(&self, index: u32) -> Result<Option<(u32, u32)>> {
        if index as usize >= SERVICES_MAX {
            return Ok(None);
        }
        let row = self.tables.services.get(index)?;
        Ok((row.owner != 0).then_some((row.owner, row.owner_uid)))
    }

    /// The first subscription from `from` on with such an owner: its index and its counters.
    pub fn next_subscription(
        &self,
        from: u32,
        whose: Whose,
    ) -> Result<Option<(u32, SubscriptionStat)>> {
        let table = self.mapped_subscriptions()?;
        for index in from..SUBSCRIPTIONS_MAX as u32 {
            let field = |offset| table.field(index, offset);
            if field(offset_of!(Subscription, id)) == 0 {
                break; // rows are used from the front: this one and all later ones were never used
            }
            // Only the host writes these fields, under its lock, and only while the row is free.
            let is_asked_for = match whose {
                Whose::Anybody => true,
                Whose::User(uid) => field(offset_of!(Subscription, owner_uid)) == uid,
                Whose::Row(row) => field(offset_of!(Subscription, user)) == row,
            };
            if field(offset_of!(Subscription, state)) == STATE_FREE || !is_asked_for {
                continue;
            }
            let row = table.get(index);
            if row.state != STATE_FREE {
                let count: SubscriptionCount = self.subscription_count(index)?;
                return Ok(Some((index, SubscriptionStat { row, count })));
            }
        }
        Ok(None)
    }

    /// The first channel from `from` on for which `may` is true, with its index.
    pub fn next_channel(
        &self,
        from: u32,
        may: impl Fn(&Channel) -> bool,
    ) -> Result<Option<(u32, Channel)>> {
        for index in from..CHANNELS_MAX as u32 {
            let row = self.tables.channels.get(index)?;
            if row.id == 0 {
                break;
            }
            if row.state != STATE_FREE && may(&row) {
                return Ok(Some((index, row)));
            }
        }
        Ok(None)
    }
}

impl Core {
    /// Ids of all maps of the machine: among them those of channels that a process still holds,
    /// closed ones included.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) on a kernel that cannot list maps to
    /// programs.
    pub fn living_maps(&self) -> Result<HashSet<u32>> {
        let maps = sys::list_maps(self.program("map_list")?)?;
        Ok(maps.into_iter().map(|(id, _)| id).collect())
    }
}
