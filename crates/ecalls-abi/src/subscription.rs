//! `abi/subscription.h`: the service, the filters and the actions of a subscription, in order.
//!
//! The papers' `struct ecalls` (ECalls-05 §3). An action's result decides whether the next one runs
//! (ECalls-05 §3.1). The host writes the record while `state` is SETUP; then only `state` changes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::version::ACTIONS_MAX;

/// `kind`: kernel handler: continues or ends the chain.
pub const ACTION_HANDLER: u32 = 1;
/// `kind`: kernel handler in a kernel thread; the rest of the chain there.
pub const ACTION_THREAD: u32 = 2;
/// `kind`: real-time signal with a 64-bit value.
pub const ACTION_SIGNAL: u32 = 3;
/// `kind`: user handler: upcall on a thread of the library.
pub const ACTION_USER: u32 = 4;
/// `kind`: shared memory of `channel`.
pub const ACTION_MEMORY: u32 = 5;

/// `flags`: a signal's value is `argument[0]` instead of the event's first data word.
pub const ACTION_FIXED_VALUE: u32 = 0x1;

/// `scope`: the events of all users.
pub const SCOPE_ALL: u32 = 0;
/// `scope`: the events whose `uid` is the subscription's `owner_uid`.
pub const SCOPE_OWN: u32 = 1;

/// An event has no short way.
pub const SOLE_NONE: u32 = 0;
/// The short way of an event: one put into memory.
pub const SOLE_PUT: u32 = 1;
/// The short way of an event: a filter before it.
pub const SOLE_FILTER: u32 = 2;

/// `ECALLS_ACTION_*`: the kind of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ActionKind {
    /// Kernel handler: continues or ends the chain.
    Handler = ACTION_HANDLER,
    /// Kernel handler in a kernel thread; the rest of the chain there.
    Thread = ACTION_THREAD,
    /// Real-time signal with a 64-bit value.
    Signal = ACTION_SIGNAL,
    /// User handler: upcall on a thread of the library.
    User = ACTION_USER,
    /// Shared memory of a channel.
    Memory = ACTION_MEMORY,
}

impl ActionKind {
    /// Every kind.
    pub const ALL: [ActionKind; 5] = [
        ActionKind::Handler,
        ActionKind::Thread,
        ActionKind::Signal,
        ActionKind::User,
        ActionKind::Memory,
    ];

    /// The kind of the value `raw`.
    pub fn from_raw(raw: u32) -> Option<ActionKind> {
        ActionKind::ALL.into_iter().find(|kind| kind.raw() == raw)
    }

    /// The value in the record.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// The name in every output: `handler`.
    pub const fn name(self) -> &'static str {
        match self {
            ActionKind::Handler => "handler",
            ActionKind::Thread => "thread",
            ActionKind::Signal => "signal",
            ActionKind::User => "user",
            ActionKind::Memory => "memory",
        }
    }
}

/// `struct ecalls_action`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Action {
    /// `ACTION_*`.
    pub kind: u32,
    /// [`ACTION_FIXED_VALUE`].
    pub flags: u32,
    /// HANDLER, THREAD: number of the kernel handler.
    pub handler: u32,
    /// USER, MEMORY: id of the channel.
    pub channel: u32,
    /// SIGNAL: number, SIGRTMIN..SIGRTMAX.
    pub signal: u32,
    /// Zero.
    pub pad: u32,
    /// HANDLER, THREAD: its parameters; SIGNAL: the fixed value.
    pub argument: [u64; 3],
}

const _: () = assert!(size_of::<Action>() == 48, "action");

impl Action {
    /// The kind of the action, or `None` for a number without a meaning.
    pub fn kind(&self) -> Option<ActionKind> {
        ActionKind::from_raw(self.kind)
    }
}

/// `struct ecalls_subscription`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Subscription {
    /// `STATE_*` of [`crate::channel`].
    pub state: u32,
    /// Index and generation; see [`crate::Id`].
    pub id: u32,
    /// Index of the service.
    pub service: u32,
    /// Process that subscribed.
    pub owner: u32,
    /// Process that receives (`process_id` of the papers' `struct ecalls`).
    pub receiver: u32,
    /// User of the receiver.
    pub uid: u32,
    /// Bit k: events of kind k are wanted; 0: all kinds.
    pub kinds: u32,
    /// 0, or the process whose events are wanted.
    pub pid: u32,
    /// `SCOPE_*`.
    pub scope: u32,
    /// User of the owner, which determines the events that it may see, and the processes that it
    /// may signal.
    pub owner_uid: u32,
    /// Row of [`crate::user`] by which it is counted.
    pub user: u32,
    /// Channel whose `lost` element counts undelivered events; 0: none.
    pub channel: u32,
    /// Relative; 0: none. The earlier one of this and the event's deadline applies.
    pub deadline_ns: u64,
    /// Entries of `action` in use.
    pub actions: u32,
    /// Id of the channel if the last action is MEMORY or USER, and the only one (a plain
    /// subscription: an event takes one put) or behind one handler in E-code (a filter); 0:
    /// otherwise.
    pub plain: u32,
    /// Start time of the receiver (since boot, ns), against pid reuse.
    pub receiver_start: u64,
    /// Start time of the owner, 0: not compared.
    pub owner_start: u64,
    /// CPU scheduling priority of the receiver, higher first.
    pub cpu_priority: u32,
    /// Registration order; host only.
    pub order: u32,
    /// When it was removed from its lists; host only.
    pub ended_ns: u64,
    /// `plain`, if that is its only action and what is not read stands for further events.
    pub ready: u32,
    /// `SOLE_*`: how an event that it alone may want comes to it.
    pub sole: u32,
    /// [`crate::event::EVENT_COALESCES`], or 0: what its events have in addition.
    pub event_flags: u32,
    /// Zero.
    pub pad1: u32,
    /// With it: position + 1 of the last event that was stored; 0: none. Kernel side only.
    pub stored: u64,
    /// Zero.
    pub pad2: [u32; 2],
    /// The actions, in order; see [`Subscription::chain`].
    pub action: [Action; ACTIONS_MAX],
}

const _: () = assert!(size_of::<Subscription>() == 512, "subscription");

impl Subscription {
    /// The actions in use, in order. A count above [`ACTIONS_MAX`] counts as [`ACTIONS_MAX`].
    pub fn chain(&self) -> &[Action] {
        let count = usize::try_from(self.actions).map_or(ACTIONS_MAX, |n| n.min(ACTIONS_MAX));
        &self.action[..count]
    }

    /// The relative deadline in ns, if there is one.
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline_ns != 0).then_some(self.deadline_ns)
    }

    /// Whether events of `kind` are wanted. Kinds above 31 do not exist and are not wanted.
    pub fn wants(&self, kind: u32) -> bool {
        kind < u32::BITS && (self.kinds == 0 || self.kinds & (1 << kind) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_holds_the_actions_in_use() {
        let mut subscription = Subscription {
            actions: 2,
            ..Subscription::default()
        };
        subscription.action[1].kind = ACTION_MEMORY;
        assert_eq!(subscription.chain().len(), 2);
        assert_eq!(subscription.chain()[1].kind(), Some(ActionKind::Memory));
        assert_eq!(subscription.chain()[0].kind(), None);
        subscription.actions = u32::MAX;
        assert_eq!(subscription.chain().len(), ACTIONS_MAX);
    }

    #[test]
    fn no_kinds_means_every_kind() {
        let mut subscription = Subscription::default();
        assert!(subscription.wants(0) && subscription.wants(31));
        subscription.kinds = 1 << 31;
        assert!(!subscription.wants(0) && subscription.wants(31) && !subscription.wants(32));
    }
}
