//! A channel: shared memory from which a program reads its events (ECalls-01 §2.3, ECalls-05 §3.2).
//!
//! There are two layouts: a ring, read in order; or slots with a bit pattern, used as the next free
//! slot, one slot per priority, or one slot per type. Reading makes no system call. With nothing to
//! read, [`Channel::recv`] polls for a moment and then sleeps on one descriptor; only a reader that
//! has announced its sleep is woken, so a busy one costs the kernel nothing.
//!
//! When several events wait, they are returned by deadline, earliest first; an event whose deadline
//! has passed by then is discarded and counted ([`Channel::late`]).

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ecalls_abi::channel::{Id, Layout, Lost, SlotUse};
use ecalls_abi::downcall::{DEFER_DELAY, DEFER_SWITCH};
use ecalls_abi::event::entries;
use ecalls_kernel::channel::Shape;
use ecalls_kernel::handle::ChannelHandle;
use ecalls_kernel::now_ns;
use ecalls_ring::{EdfQueue, Event, RingReader, SlotsReader, Words, words};

use crate::downcall::Caller;
use crate::host::Ecalls;
use crate::{Error, Result};

/// Events that are ordered by deadline at a time.
const ORDERED_MAX: usize = 256;

/// Polls of an empty channel before the reader sleeps.
const SPINS: u32 = 200;

/// The `up` words of a channel.
#[derive(Clone, Debug)]
pub(crate) struct Up(pub(crate) Arc<ChannelHandle>);

impl Words for Up {
    fn words(&self) -> &[AtomicU64] {
        self.0.up()
    }
}

#[derive(Debug)]
enum Reader {
    Ring(RingReader<Up>),
    Slots(SlotsReader<Up>),
}

/// Shapes and opens a [`Channel`].
#[derive(Debug)]
pub struct ChannelBuilder {
    ecalls: Ecalls,
    shape: Shape,
    keep_late: bool,
    bounds: Option<Bounds>,
}

/// How long a sleeping reader lets events gather.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    events: usize,
    delay_ns: u64,
}

impl ChannelBuilder {
    pub(crate) fn new(ecalls: Ecalls) -> ChannelBuilder {
        ChannelBuilder {
            ecalls,
            shape: Shape::default(),
            keep_late: false,
            bounds: None,
        }
    }

    /// A ring of `capacity` entries, a power of two from 64 to 65536 (the default: 1024). An event
    /// takes one entry; one with more than 168 bytes of data takes another one per 248 bytes. A
    /// reader that falls further behind loses events, which are counted.
    #[must_use]
    pub fn ring(mut self, capacity: u32) -> ChannelBuilder {
        self.shape.layout = Layout::Ring;
        self.shape.capacity = capacity;
        self
    }

    /// `capacity` slots, a power of two up to 1024, used as `slot_use` says (ECalls-01 §2.3).
    #[must_use]
    pub fn slots(mut self, capacity: u32, slot_use: SlotUse) -> ChannelBuilder {
        self.shape.layout = Layout::Slots;
        self.shape.capacity = capacity;
        self.shape.slot_use = slot_use;
        self
    }

    /// With slots: each has room for events with up to `bytes` of data, 2152 at most (the default:
    /// 168). Events with more are not delivered, and counted ([`DropReason::Size`]).
    ///
    /// [`DropReason::Size`]: ecalls_abi::channel::DropReason::Size
    #[must_use]
    pub fn data_max(mut self, bytes: usize) -> ChannelBuilder {
        self.shape.width = u32::try_from(entries(bytes)).unwrap_or(u32::MAX);
        self
    }

    /// Deferred calls of this channel are handled at most `delay` after the first (ECalls-01
    /// §2.3.1 b).
    #[must_use]
    pub fn defer_delay(mut self, delay: Duration) -> ChannelBuilder {
        self.shape.defer |= DEFER_DELAY;
        self.shape.delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Deferred calls of this channel are handled before this process' next scheduling (ECalls-01
    /// §2.3.1 c).
    #[must_use]
    pub fn defer_switch(mut self) -> ChannelBuilder {
        self.shape.defer |= DEFER_SWITCH;
        self
    }

    /// With a ring: [`Channel::recv`] lets events gather while it sleeps. Those who raise them wake
    /// it when `events` of them wait, and not for each; it takes what there is `delay` after the
    /// first, or at once if one has a deadline before that. In a quiet time the first event wakes
    /// it, too. Then it does not poll before it sleeps. `prepare_wait` has no such bounds.
    #[must_use]
    pub fn wake_bounds(mut self, events: u32, delay: Duration) -> ChannelBuilder {
        self.bounds = Some(Bounds {
            events: events.max(1) as usize,
            delay_ns: u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
        });
        self
    }

    /// Returns late events too, instead of discarding them.
    #[must_use]
    pub fn keep_late(mut self) -> ChannelBuilder {
        self.keep_late = true;
        self
    }

    /// Opens the channel.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity out of range, [`Error::LimitReached`].
    pub fn open(self) -> Result<Channel> {
        if self.bounds.is_some() && self.shape.layout != Layout::Ring {
            return Err(Error::Invalid {
                what: "the bounds of wake-ups",
                given: "slots".to_owned(),
                expected: "a ring",
            });
        }
        let handle = Arc::new(ChannelHandle::open(
            Arc::clone(self.ecalls.access()),
            self.shape,
        )?);
        let up = Up(Arc::clone(&handle));
        let closed = |_| Error::Closed("the channel's segment");
        let reader = match self.shape.layout {
            Layout::Ring => Reader::Ring(RingReader::new(up).map_err(closed)?),
            Layout::Slots => Reader::Slots(SlotsReader::new(up).map_err(closed)?),
        };
        let caller = Caller::new(Arc::clone(&handle))?;
        Ok(Channel {
            handle,
            reader,
            ordered: EdfQueue::new(ORDERED_MAX),
            taken: VecDeque::new(),
            keep_late: self.keep_late,
            bounds: self.bounds,
            gathered: false,
            late: 0,
            caller,
        })
    }
}

/// An open channel. Dropping it closes it. It has one reader: `&mut self`.
#[derive(Debug)]
pub struct Channel {
    handle: Arc<ChannelHandle>,
    reader: Reader,
    /// Events that were taken together, by deadline.
    ordered: EdfQueue<Event>,
    /// Slots taken together, in slot order: the slot is their priority or type.
    taken: VecDeque<Event>,
    keep_late: bool,
    bounds: Option<Bounds>,
    /// With bounds: the last sleep ended with events, so more are expected.
    gathered: bool,
    late: u64,
    caller: Caller,
}

impl Channel {
    /// Its id.
    pub fn id(&self) -> Id {
        self.handle.id()
    }

    /// Calls to the kernel over this channel: fast and deferred. Clone it for other threads.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The next event, without waiting and without a system call. `None`: there is none.
    pub fn try_recv(&mut self) -> Option<Event> {
        // One variable, as in RingReader::next.
        let mut next = Some(Event::default());
        if !next.as_mut().is_some_and(|event| self.try_recv_into(event)) {
            next = None;
        }
        next
    }

    /// The same, into `event` in place of what that held, and returns whether there was one. If
    /// not, the content of `event` has no meaning. A program that keeps one event for all gets each
    /// by one copy.
    pub fn try_recv_into(&mut self, event: &mut Event) -> bool {
        while self.next_waiting(event) {
            if self.keep_late || event.deadline().is_none() || !event.is_late(now_ns()) {
                return true;
            }
            self.late += 1;
        }
        false
    }

    /// The next event; sleeps while there is none.
    pub fn recv(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.recv_until(None)? {
                return Ok(event);
            }
        }
    }

    /// The next event; sleeps for at most `timeout`. `None`: no event arrived in this time.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Event>> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.recv_until(Some(now_ns().saturating_add(timeout_ns)))
    }

    fn recv_until(&mut self, until_ns: Option<u64>) -> Result<Option<Event>> {
        let polls = if self.bounds.is_some() { 1 } else { SPINS };
        for _ in 0..polls {
            if let Some(event) = self.try_recv() {
                return Ok(Some(event));
            }
            std::hint::spin_loop();
        }
        loop {
            // Within bounds the first event of a batch wakes only who has not seen one lately.
            if !self.gathered && self.prepare_wait() {
                self.handle
                    .wait(until_ns.map(|until| until.saturating_sub(now_ns())))?;
                self.end_wait();
            }
            if let Some(by_ns) = self.prepare_gather(until_ns) {
                self.handle.wait(Some(by_ns.saturating_sub(now_ns())))?;
                self.end_gather();
            }
            if let Some(event) = self.try_recv() {
                return Ok(Some(event));
            }
            if until_ns.is_some_and(|until| now_ns() >= until) {
                return Ok(None);
            }
        }
    }

    /// With [`ChannelBuilder::wake_bounds`], for a wait of one's own as [`Channel::recv`] does it:
    /// if an event waits or more are expected, requests a wake-up within the bounds, and returns
    /// the time until which to wait on [`Channel::as_fd`]; then call [`Channel::end_gather`] and
    /// read. `None`: do not wait.
    pub fn prepare_gather(&mut self, until_ns: Option<u64>) -> Option<u64> {
        let bounds = self.bounds?;
        let Reader::Ring(ring) = &self.reader else {
            return None;
        };
        if self.gathered || ring.is_ready() {
            let delayed_ns = now_ns().saturating_add(bounds.delay_ns);
            let by_ns = until_ns.map_or(delayed_ns, |until| until.min(delayed_ns));
            if ring.may_sleep_until(bounds.events, by_ns) {
                return Some(by_ns);
            }
        }
        self.gathered = ring.is_ready();
        None
    }

    /// Ends a wait that [`Channel::prepare_gather`] has begun.
    pub fn end_gather(&mut self) {
        self.end_wait();
        self.gathered = match &self.reader {
            Reader::Ring(ring) => ring.is_ready(),
            Reader::Slots(_) => false,
        };
    }

    /// Whether the last batch had events, so that more are expected: then the next wait is that of
    /// [`Channel::prepare_gather`] alone.
    pub fn is_gathering(&self) -> bool {
        self.gathered
    }

    /// Requests a wake-up before waiting on [`Channel::as_fd`] with epoll or tokio. Returns false
    /// if an event is available already: then do not wait. After the wait, call
    /// [`Channel::end_wait`] and read.
    pub fn prepare_wait(&mut self) -> bool {
        if !self.ordered.is_empty() || !self.taken.is_empty() {
            return false;
        }
        match &self.reader {
            Reader::Ring(ring) => ring.sleep().may_sleep(|| ring.is_ready()),
            Reader::Slots(slots) => slots.sleep().may_sleep(|| slots.is_ready()),
        }
    }

    /// Ends a wait: the descriptor becomes unreadable again, and no wake-up is requested.
    pub fn end_wait(&mut self) {
        match &self.reader {
            Reader::Ring(ring) => ring.sleep().cancel_sleep(),
            Reader::Slots(slots) => slots.sleep().cancel_sleep(),
        };
        self.handle.clear_wake();
    }

    /// Calls `f` with each slot whose bit is set, without copying or clearing anything: the
    /// readiness of many descriptors in a few ns. No calls for a ring.
    pub fn for_each_ready(&self, f: impl FnMut(usize)) {
        if let Reader::Slots(slots) = &self.reader {
            slots.for_each_ready(f);
        }
    }

    /// The same, but clears the bits: a later event sets its bit again.
    pub fn take_ready(&mut self, f: impl FnMut(usize)) {
        if let Reader::Slots(slots) = &mut self.reader {
            slots.take_ready(f);
        }
    }

    /// The counts of events that the kernel side did not deliver to this channel, by reason.
    pub fn lost(&self) -> Lost {
        words::lost(self.handle.up()).unwrap_or_default()
    }

    /// The 64 counters of the histogram handler ([`crate::Handler::Histogram`]).
    pub fn histogram(&self) -> [u64; 64] {
        words::histogram(self.handle.up()).unwrap_or([0; 64])
    }

    /// Events that were delivered in time, but were late when this reader read them.
    pub fn late(&self) -> u64 {
        self.late
    }

    #[inline]
    fn next_waiting(&mut self, event: &mut Event) -> bool {
        // The usual case: most events have no deadline, or the same relative one.
        if let Reader::Ring(ring) = &mut self.reader
            && self.ordered.is_empty()
            && ring.is_in_order(ORDERED_MAX)
        {
            return ring.take_into(event);
        }
        self.next_collected().is_some_and(|next| {
            *event = next;
            true
        })
    }

    /// The next of several events that are taken together.
    #[inline(never)]
    fn next_collected(&mut self) -> Option<Event> {
        match &mut self.reader {
            Reader::Slots(slots) => {
                if self.taken.is_empty() {
                    self.taken
                        .extend(slots.take_pending().map(|(_, event)| event));
                }
                self.taken.pop_front()
            }
            Reader::Ring(ring) => {
                while self.ordered.len() < self.ordered.capacity() {
                    let Some(event) = ring.next() else { break };
                    self.ordered.push(event.deadline(), event);
                }
                self.ordered.pop()
            }
        }
    }
}

impl AsFd for Channel {
    /// Readable after a wake-up that [`Channel::prepare_wait`] requested.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.wake_fd()
    }
}
