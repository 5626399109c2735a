//! Nobody who can run waits forever: how long a wait may last, which the machine checks.
//!
//! What counts is the CPU time that others have had meanwhile by virtual time, since windows have
//! been promised theirs: while a thread waits, each of the others has what brings it to where the
//! waiting one is, and once more what the policy allows beyond that. Of a member of a group both
//! counts: how far it is ahead within the group, and how far the group is.
//!
//! Not bound so: a thread with a window, which has that; and a member that divides by importance
//! what its group gets, since the others' importance may always be less.

use crate::policy::{Cpu, ENTITIES, NEVER, Options};

/// A wait, from its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wait {
    /// CPU time that the CPU's threads had had by virtual time.
    pub(crate) passed_ns: u64,
    /// How far ahead of the least virtual time the thread was, or its group.
    outer: u64,
    /// The same within the group.
    inner: u64,
}

/// A thread, as far as it makes others wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rival {
    pub(crate) weight: u32,
    /// It is in the group of the waiting thread.
    pub(crate) is_fellow: bool,
    /// It may run before its turn: by a release, or by an event.
    pub(crate) may_be_early: bool,
}

/// How far `vtime` is beyond `least`.
fn beyond(vtime: u64, least: u64) -> u64 {
    vtime
        .wrapping_sub(least)
        .cast_signed()
        .max(0)
        .unsigned_abs()
}

impl Wait {
    /// A thread begins to wait: its virtual time, its group's place in the CPU's table.
    pub(crate) fn begin(policy: &Cpu, vtime: u64, group: u32, passed_ns: u64) -> Self {
        let (outer, inner) = match (group as usize) < ENTITIES {
            true => {
                let group = policy.entity(group);
                (group.vtime, beyond(vtime, group.inner_vtime))
            }
            false => (vtime, 0),
        };
        Self {
            passed_ns,
            outer: beyond(outer, policy.vtime),
            inner,
        }
    }

    /// CPU time that the others have at most before a thread of this weight has its turn.
    pub(crate) fn most_ns(
        &self,
        options: &Options,
        weight: u32,
        rivals: impl Iterator<Item = Rival> + Clone,
    ) -> u64 {
        let more = |rival: &Rival, vtime: u64| {
            let beyond = options.period_ns + 2 * options.slack_ns;
            let early = if rival.may_be_early {
                options.ahead_ns
            } else {
                0
            };
            vtime.saturating_mul(rival.weight.into()) / 100 + beyond + early
        };
        let fellows = rivals.clone().filter(|rival| rival.is_fellow);
        let within: u64 = fellows.map(|rival| more(&rival, self.inner)).sum();
        let outer = self.outer + within * 100 / u64::from(weight);
        let others = rivals.filter(|rival| !rival.is_fellow);
        within + others.map(|rival| more(&rival, outer)).sum::<u64>()
    }
}

/// Whether the wait of this entity is bound.
pub(crate) fn binds(policy: &Cpu, i: u32) -> bool {
    let (entity, bit) = (policy.entity(i), 1 << i);
    let shares = policy.inside & bit != 0 && entity.importance != NEVER;
    policy.windowed & bit == 0 && !shares
}
