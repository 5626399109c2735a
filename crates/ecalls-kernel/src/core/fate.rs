//! The fates of events that were not delivered: reads the records of the kernel side (abi/fate.h).
//!
//! Records are read in place while they are written: a record that changed during its reading is
//! left out, and its successor is read the next time.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use ecalls_abi::channel::DropReason;
use ecalls_abi::fate::{
    FATE_DROPPED, FATES, Fate, STAGE_CHAIN, STAGE_OFFER, STAGE_RAISE, STAGE_TIMER,
};
use ecalls_abi::message::{
    FateView, QUOTA_EXPIRIES, QUOTA_HANDLER, QUOTA_QUEUED, QUOTA_RAISED, QUOTA_UP,
};
use zerocopy::FromZeros;

use crate::core::Core;
use crate::error::Result;
use crate::kernel::table::Mapped;

impl Core {
    /// The fates of an event that was not delivered, newest first; `event` 0: of all such events.
    /// At most `most` records.
    pub fn fates(&self, event: u64, most: usize) -> Result<Vec<FateView>> {
        self.fates_where(|fate| event == 0 || fate.event == event, most)
    }

    /// The same for the events of user `uid`, including those that it failed to raise.
    pub fn fates_of(&self, uid: u32, most: usize) -> Result<Vec<FateView>> {
        self.fates_where(|fate| fate.uid == uid, most)
    }

    fn fates_where(&self, wanted: impl Fn(&Fate) -> bool, most: usize) -> Result<Vec<FateView>> {
        let rows = FATES * self.cpus() as usize;
        let table = self
            .views
            .fates
            .get_or_map(|| Mapped::map(self.map("fates")?, rows))?;
        let mut found: Vec<Fate> = (0..u32::try_from(rows).expect("a small table"))
            .filter_map(|index| read(table, index))
            .filter(|fate| wanted(fate))
            .collect();
        found.sort_by_key(|fate| std::cmp::Reverse(fate.when_ns));
        found.truncate(most);
        found.iter().map(|fate| self.view(fate)).collect()
    }

    fn view(&self, fate: &Fate) -> Result<FateView> {
        let mut view = FateView::new_zeroed();
        view.event = fate.event;
        view.when_ns = fate.when_ns;
        view.raise_ns = fate.raise_ns;
        view.release_ns = fate.release_ns;
        view.deadline_ns = fate.deadline_ns;
        view.service = u32::from(fate.service);
        view.kind = u32::from(fate.kind);
        view.subscription = fate.subscription;
        view.uid = fate.uid;
        view.pid = fate.pid;
        view.what = u32::from(fate.what);
        view.reason = u32::from(fate.reason);
        view.stage = u32::from(fate.stage);
        if view.stage == STAGE_CHAIN {
            view.stage |= u32::from(fate.action) << 8;
        }
        view.quota = quota(fate);
        view.name = self.tables.infos.get(view.service)?.name;
        Ok(view)
    }
}

/// A complete record; `None` if there is none, or if it is being written.
fn read(table: &Mapped<Fate>, index: u32) -> Option<Fate> {
    let sequence = table.word(index, offset_of!(Fate, sequence));
    let before = sequence.load(Ordering::Acquire);
    if before == 0 {
        return None;
    }
    let fate = table.get(index);
    fence(Ordering::Acquire);
    (sequence.load(Ordering::Relaxed) == before && fate.sequence == before).then_some(fate)
}

/// The limit that was reached, by the place of its check.
fn quota(fate: &Fate) -> u64 {
    let is_quota = u32::from(fate.what) == FATE_DROPPED
        && usize::from(fate.reason) == DropReason::Quota.index();
    let quota = match u32::from(fate.stage) {
        _ if !is_quota => 0,
        STAGE_RAISE => QUOTA_RAISED,
        STAGE_TIMER => QUOTA_EXPIRIES,
        STAGE_OFFER => QUOTA_UP,
        STAGE_CHAIN => QUOTA_HANDLER,
        _ => QUOTA_QUEUED,
    };
    quota as u64
}
