//! `abi/event.h`: an event (ECalls-05 §3).
//!
//! An event is the record that a service raises, the queue orders, the dispatcher delivers and an
//! application reads. All records have one size, so that an entry of a ring, a slot and an entry of
//! the queue have one layout, and a copy has a constant bound. Data beyond [`DATA_INLINE`] bytes is
//! in further entries behind the record ([`entries`]); `ecalls-ring` reads and writes them.
//!
//! Writers: the service sets `service`, `kind`, `type`, `target`, `flags`, `priority`, the times,
//! `size` and `data`; raise sets `id`, `raise_ns`, `pid`, `tid`, `uid` and `cpu`; the dispatcher
//! sets `subscription` and `sequence`.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::version::DATA_INLINE;

/// `target`: every subscription of the service.
pub const TARGET_ALL: i32 = -1;
/// `target`: one subscription of the service, in turn (round robin).
pub const TARGET_WAKE_ONE: i32 = -2;

/// `flags`: request event-aware scheduling of its sink ([`crate::coop::COOP_SINK`]).
pub const EVENT_CPU: u32 = 0x1;
/// `flags`, kernel side only: continue the chain of one subscription, at `action`.
pub const EVENT_RESUME: u32 = 0x100;
/// `flags`, kernel side only: `deadline_ns` is the subscriptions' earliest: order, no limit.
pub const EVENT_SOFT: u32 = 0x400;
/// `flags`, kernel side only: the chain's next handler must run in a thread.
pub const EVENT_THREAD: u32 = 0x200;
/// `flags`, only while queued: shift of the row of [`crate::user`] in whose `queued` the event
/// counts; 0: none.
pub const EVENT_USER_SHIFT: u32 = 24;

/// `flags`, in a ring: the event's data could not be read; a reader skips it.
pub const EVENT_VOID: u32 = 0x800;
/// `flags`: its subscription coalesces; until this event is read, it stands for further ones, which
/// are only counted ([`crate::channel::DropReason::Coalesced`]).
pub const EVENT_COALESCES: u32 = 0x1000;
/// `flags`, kernel side only: it was a frame of another host ([`Event::host`]).
pub const EVENT_HOST: u32 = 0x2000;

/// Bytes of data in a further entry, whose first word is 0.
pub const ENTRY_DATA: usize = 248;

/// Entries that an event with `size` bytes of data takes in a ring or slot.
#[inline]
pub const fn entries(size: usize) -> usize {
    // Nearly all events: no division.
    if size <= DATA_INLINE {
        return 1;
    }
    1 + (size - DATA_INLINE).div_ceil(ENTRY_DATA)
}

/// `struct ecalls_event`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Event {
    /// Ring: position + 1 once complete; slots: odd while written.
    pub sequence: u64,
    /// Unique per core: `cpu << 48 | count`.
    pub id: u64,
    /// Time of the raise.
    pub raise_ns: u64,
    /// Absolute; 0: none. A later event is discarded and counted.
    pub deadline_ns: u64,
    /// Absolute; 0: at once. The event is not delivered before.
    pub release_ns: u64,
    /// Index of the service.
    pub service: u32,
    /// The kind of event, 0..31, per service; see [`crate::service`].
    pub kind: u32,
    /// The typed slot to which it belongs (fd, timer number, ...).
    pub r#type: u32,
    /// Process id, or `TARGET_*`; see [`Event::target`].
    pub target: i32,
    /// `EVENT_*`.
    pub flags: u32,
    /// The priority slot to which it belongs; 0 is the most urgent.
    pub priority: u32,
    /// Process that raised it; of a timer, a deferred call or sched the process concerned, of a
    /// socket the one that registered it; 0: none is known. With [`EVENT_HOST`] a part of
    /// [`Event::host`]; see [`Event::process`].
    pub pid: u32,
    /// Thread that raised it; where `pid` is the process concerned, `pid` again; with
    /// [`EVENT_HOST`] a part of [`Event::host`].
    pub tid: u32,
    /// Its user; 0 if its real, effective and saved user differ: what a setuid program does is not
    /// its caller's.
    pub uid: u32,
    /// CPU on which it was raised.
    pub cpu: u32,
    /// Bytes of data, at most [`DATA_LARGE`](crate::version::DATA_LARGE).
    pub size: u32,
    /// In a ring or slot: id of the subscription to which it was delivered.
    pub subscription: u32,
    /// The service's own data; see [`Event::data_bytes`] and [`Event::data_as`].
    pub data: [u64; DATA_INLINE / 8],
}

const _: () = assert!(size_of::<Event>() == 256, "a record is 256 bytes");

/// The data does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataTooLong {
    /// Bytes of the data that was given.
    pub size: usize,
}

impl fmt::Display for DataTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of data do not fit into an event", self.size)
    }
}

impl core::error::Error for DataTooLong {}

impl Event {
    /// The host from which it came as a frame, as this host's kernel has counted that one; `None`:
    /// it was raised here.
    pub fn host(&self) -> Option<u64> {
        let host = u64::from(self.tid) << 32 | u64::from(self.pid);
        (self.flags & EVENT_HOST != 0).then_some(host)
    }

    /// The process and the thread that raised it, zeros: none is known, or it came from another
    /// host.
    pub fn process(&self) -> (u32, u32) {
        match self.host() {
            Some(_) => (0, 0),
            None => (self.pid, self.tid),
        }
    }

    /// The data in the record, as bytes: at most [`DATA_INLINE`].
    pub fn data_bytes(&self) -> &[u8] {
        let size = usize::try_from(self.size).map_or(DATA_INLINE, |size| size.min(DATA_INLINE));
        &self.data.as_bytes()[..size]
    }

    /// The data as one of the services' structs, or `None` if there is less data than `T` has.
    ///
    /// Data may be longer than `T`: services append fields, and old readers ignore them.
    pub fn data_as<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.data_bytes())
            .ok()
            .map(|(value, _rest)| value)
    }

    /// The first data word, which is the default value of a real-time signal.
    pub fn data_word(&self) -> u64 {
        self.data[0]
    }

    /// Stores `bytes` as the data and sets `size`; the unused rest becomes 0.
    ///
    /// # Errors
    /// [`DataTooLong`] above [`DATA_INLINE`] bytes; the event is then unchanged.
    pub fn set_data(&mut self, bytes: &[u8]) -> Result<(), DataTooLong> {
        let error = DataTooLong { size: bytes.len() };
        if bytes.len() > DATA_INLINE {
            return Err(error);
        }
        self.size = u32::try_from(bytes.len()).map_err(|_| error)?;
        let (used, rest) = self.data.as_mut_bytes().split_at_mut(bytes.len());
        used.copy_from_slice(bytes);
        rest.fill(0);
        Ok(())
    }

    /// The absolute deadline in ns of `CLOCK_MONOTONIC`, if the event has one.
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline_ns != 0).then_some(self.deadline_ns)
    }

    /// The absolute release time in ns of `CLOCK_MONOTONIC`, if the event has one.
    pub fn release(&self) -> Option<u64> {
        (self.release_ns != 0).then_some(self.release_ns)
    }

    /// Whether the deadline has passed at `now_ns`; without a deadline an event is never late.
    pub fn is_late(&self, now_ns: u64) -> bool {
        self.deadline()
            .is_some_and(|deadline_ns| now_ns > deadline_ns)
    }

    /// The receivers, or `None` for a number without a meaning.
    pub fn target(&self) -> Option<Target> {
        Target::from_raw(self.target)
    }

    /// Whether the raiser asked for event-aware scheduling.
    pub fn wants_cpu(&self) -> bool {
        self.flags & EVENT_CPU != 0
    }
}

/// The receivers of an event (ECalls-05 §3): `target`, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The process with this id (tgid).
    Process(u32),
    /// Every subscription of the service.
    All,
    /// One of them, in turn (round robin).
    WakeOne,
}

impl Target {
    /// The target of the value `raw`; `None` for negative numbers without a meaning.
    pub fn from_raw(raw: i32) -> Option<Target> {
        match raw {
            TARGET_ALL => Some(Target::All),
            TARGET_WAKE_ONE => Some(Target::WakeOne),
            pid => u32::try_from(pid).ok().map(Target::Process),
        }
    }

    /// The value in the record; `None` for a process id that Linux cannot have (above `i32::MAX`).
    pub fn raw(self) -> Option<i32> {
        match self {
            Target::All => Some(TARGET_ALL),
            Target::WakeOne => Some(TARGET_WAKE_ONE),
            Target::Process(pid) => i32::try_from(pid).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::TimerEvent;

    #[test]
    fn data_comes_back_as_bytes_and_as_struct() {
        let timer = TimerEvent {
            expiry_ns: 7,
            count: 3,
            overrun: 1,
            timer: 12,
            ..TimerEvent::default()
        };
        let mut event = Event::default();
        event.set_data(timer.as_bytes()).unwrap();
        assert_eq!(event.size, 32);
        assert_eq!(event.data_bytes(), timer.as_bytes());
        assert_eq!(event.data_as::<TimerEvent>(), Some(timer));
        assert_eq!(event.data_word(), 7);
        event.size = 31;
        assert_eq!(event.data_as::<TimerEvent>(), None);
    }

    #[test]
    fn data_that_does_not_fit_is_refused() {
        let mut event = Event::default();
        assert!(event.set_data(&[1; DATA_INLINE]).is_ok());
        let before = event;
        assert_eq!(
            event.set_data(&[2; DATA_INLINE + 1]),
            Err(DataTooLong { size: 169 })
        );
        assert_eq!(event, before);
    }

    #[test]
    fn shorter_data_leaves_nothing_of_the_longer_behind() {
        let mut event = Event::default();
        event.set_data(&[0xff; DATA_INLINE]).unwrap();
        event.set_data(&[1]).unwrap();
        assert_eq!(event.data[0].to_ne_bytes()[0], 1);
        assert!(event.data.as_bytes()[1..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn size_that_lies_is_clamped() {
        let event = Event {
            size: u32::MAX,
            ..Event::default()
        };
        assert_eq!(event.data_bytes().len(), DATA_INLINE);
    }

    #[test]
    fn zero_means_no_deadline_and_no_release() {
        let mut event = Event::default();
        assert_eq!((event.deadline(), event.release()), (None, None));
        assert!(!event.is_late(u64::MAX));
        event.deadline_ns = 5;
        event.release_ns = 4;
        assert_eq!((event.deadline(), event.release()), (Some(5), Some(4)));
        assert!(!event.is_late(5));
        assert!(event.is_late(6));
    }

    #[test]
    fn target_survives_the_way_to_a_number_and_back() {
        for target in [
            Target::All,
            Target::WakeOne,
            Target::Process(0),
            Target::Process(4711),
        ] {
            assert_eq!(target.raw().and_then(Target::from_raw), Some(target));
        }
        assert_eq!(Target::from_raw(-3), None);
        assert_eq!(Target::Process(u32::MAX).raw(), None);
    }
}
