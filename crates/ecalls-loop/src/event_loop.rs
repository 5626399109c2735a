//! The loop: `submit`, `cancel`, `run`, `stop` (Coop §2.1), and the order in which events run.
//!
//! `run` repeats these steps: take the events that other threads submitted, poll, queue the events
//! of ready sources, and [`Loop::dispatch`]. All state is in one cell that is borrowed only for
//! short times and never while a callback runs or a payload is dropped, so both may use the loop
//! without restriction.
//!
//! Not `Send`: a loop belongs to its thread. Other threads use a [`Remote`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ecalls::downcall::Caller;

use crate::bare::no_slack;
use crate::clock::{Clock, Monotonic};
use crate::coop::{Cooperative, Slot};
use crate::descriptors::Descriptors;
use crate::error::{Error, Result};
use crate::event::{Event, Turn, When};
use crate::mailbox::Mailbox;
use crate::plain::Plain;
use crate::poll::{Answer, NONE, Poll, Timing, Wants, report_plain};
use crate::queue::{Queue, Taken};
use crate::remote::{Letter, Remote};
use crate::source::{As, Body, Interest, Pair, Ready, Source, Sources, Watch, Watched};
use crate::tardiness::{Recorder, Tardiness};

/// The most events that run between two polls, so that a flood of due timers does not block other
/// work forever.
const ROUND_MAX: usize = 1024;

/// How long a busy loop runs before it checks its descriptors, ns.
const LOOK_NS: u64 = 250_000;

/// The work of an event.
enum Work {
    Callback(Box<dyn FnMut(&Turn<'_>)>),
    /// A source is ready.
    Source(u64),
}

/// The state that a callback may use while it runs, borrowed only for short times.
struct Core {
    queue: Queue<Work>,
    sources: Sources,
    descriptors: Descriptors,
    /// Events that other threads submitted, while the queue has no room for them.
    mail: VecDeque<Letter>,
    taken: Vec<Letter>,
    recorder: Recorder,
}

/// When another event loop must call [`Loop::turn`] next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once: there is work.
    Now,
    /// When its descriptor is readable, which is at this time of CLOCK_MONOTONIC at the latest.
    At(u64),
    /// When its descriptor is readable. No timer is queued.
    Ready,
    /// Never: it was stopped, or can never have work again.
    Over,
}

/// An event loop. It belongs to the thread that created it.
pub struct Loop {
    core: RefCell<Core>,
    poll: RefCell<Box<dyn Poll>>,
    clock: Box<dyn Clock>,
    epoll: Rc<OwnedFd>,
    mailbox: Arc<Mailbox<Letter>>,
    stopped: Cell<bool>,
    running: Cell<bool>,
    /// The number of the loop: the same event number means another event in another loop.
    number: u32,
    /// Marks that the thread has a loop; `None` for a loop with a poll of the caller's.
    _place: Option<ThreadPlace>,
}

impl Loop {
    /// The calling thread's loop. A thread has one at a time.
    ///
    /// # Errors
    /// [`Error::SecondLoop`], or [`Error::Os`] if the system has no descriptors left.
    pub fn new() -> Result<Loop> {
        let place = ThreadPlace::take()?;
        no_slack();
        report_plain();
        Loop::build(Box::new(Monotonic), Box::new(Plain), Some(place))
    }

    /// The calling thread's loop, which polls cooperatively by slot `slot` (0 to 15) of a channel
    /// of the program, in `group` (0: none; threads of one user that name the same number share
    /// their CPU time by the user virtual times of their events). While no scheduler answers, its
    /// timing is that of [`Loop::new`]: [`Loop::timing`] reports this, and a `tracing` event of
    /// level INFO says so once per process.
    ///
    /// # Errors
    /// [`Error::Slot`], and those of [`Loop::new`].
    pub fn by_slot(caller: &Caller, slot: usize, group: u32) -> Result<Loop> {
        let place = ThreadPlace::take()?;
        no_slack();
        let poll = Cooperative::new(Slot::of(caller, slot, group)?);
        Loop::build(Box::new(Monotonic), Box::new(poll), Some(place))
    }

    /// A loop with a given clock and way of waiting: for tests, and for threads whose slot the
    /// caller owns. Its thread may have other loops.
    ///
    /// # Errors
    /// [`Error::Os`] if the system has no descriptors left.
    pub fn with_poll(clock: impl Clock + 'static, poll: impl Poll + 'static) -> Result<Loop> {
        Loop::build(Box::new(clock), Box::new(poll), None)
    }

    fn build(
        clock: Box<dyn Clock>,
        poll: Box<dyn Poll>,
        place: Option<ThreadPlace>,
    ) -> Result<Loop> {
        static LOOPS: AtomicU32 = AtomicU32::new(0);
        let descriptors = Descriptors::new()?;
        Ok(Loop {
            epoll: descriptors.epoll(),
            core: RefCell::new(Core {
                queue: Queue::new(),
                sources: Sources::new(),
                descriptors,
                mail: VecDeque::new(),
                taken: Vec::new(),
                recorder: Recorder::new(),
            }),
            poll: RefCell::new(poll),
            clock,
            mailbox: Arc::new(Mailbox::new()),
            stopped: Cell::new(false),
            running: Cell::new(false),
            number: LOOPS.fetch_add(1, Ordering::Relaxed),
            _place: place,
        })
    }

    /// Submits an event. Its callback runs once, or again if it requests that ([`Turn::again`]).
    ///
    /// # Errors
    /// [`Error::LimitReached`] beyond [`crate::EVENTS_MAX`] events.
    pub fn submit(&self, when: When, callback: impl FnMut(&Turn<'_>) + 'static) -> Result<Event> {
        let work = Work::Callback(Box::new(callback));
        let id = self.core.borrow_mut().queue.insert(when, work)?;
        Ok(self.event(id))
    }

    /// Gives a submitted event another time, or its running callback a further run. Returns false
    /// if it has run or was cancelled.
    pub fn resubmit(&self, event: Event, when: When) -> bool {
        self.owns(event.owner) && self.core.borrow_mut().queue.resubmit(event.id, when)
    }

    /// Cancels an event, so that it does not run any more. Returns false if it has run, is running,
    /// or was cancelled before.
    pub fn cancel(&self, event: Event) -> bool {
        if !self.owns(event.owner) {
            return false;
        }
        let withdrawn = self.core.borrow_mut().queue.remove(event.id);
        // Dropped here, with nothing borrowed.
        withdrawn.is_some()
    }

    /// Makes an event of the given type whenever `source` is ready. The callback receives the
    /// source, and is called again while the source remains ready.
    ///
    /// # Errors
    /// [`Error::LimitReached`] beyond [`crate::SOURCES_MAX`] sources; [`Error::Os`] for a kind of
    /// descriptor that cannot be waited for.
    pub fn watch<S, F>(&self, source: S, interest: Interest, kind: As, callback: F) -> Result<Watch>
    where
        S: Source + 'static,
        F: FnMut(&Turn<'_>, &mut S, Ready) + 'static,
    {
        let mut body: Box<dyn Body> = Box::new(Pair { source, callback });
        let is_ready = !body.arm();
        let mut core = self.core.borrow_mut();
        let id = core.sources.next_name()?;
        core.descriptors.add(body.fd(), id, interest)?;
        core.sources.insert(Watched {
            kind,
            event: None,
            ready: Ready::default(),
            body: Some(body),
        })?;
        if is_ready {
            core.queue_source(id, Ready::READABLE, self.clock.now_ns());
        }
        let owner = self.number;
        Ok(Watch { owner, id })
    }

    /// Ends watching a source and drops it, after its callback has returned if it is running.
    /// Returns false if this was done before.
    pub fn unwatch(&self, watch: Watch) -> bool {
        if !self.owns(watch.owner) {
            return false;
        }
        let mut core = self.core.borrow_mut();
        let Some(watched) = core.sources.remove(watch.id) else {
            return false;
        };
        let withdrawn = watched.event.and_then(|id| core.queue.remove(id));
        if let Some(body) = &watched.body {
            core.descriptors.remove(body.fd());
        }
        drop(core);
        // Both are dropped with nothing borrowed.
        drop((watched, withdrawn));
        true
    }

    /// Makes another type of event of a source from now on; a queued event is not changed. Returns
    /// false if the source is no longer watched.
    pub fn watch_as(&self, watch: Watch, kind: As) -> bool {
        if !self.owns(watch.owner) {
            return false;
        }
        let mut core = self.core.borrow_mut();
        let Some(watched) = core.sources.get(watch.id) else {
            return false;
        };
        watched.kind = kind;
        true
    }

    /// A handle by which other threads submit events. While one exists, the loop waits for it.
    pub fn remote(&self) -> Remote {
        let bell = self.core.borrow().descriptors.bell();
        Remote::new(Arc::clone(&self.mailbox), bell)
    }

    /// Runs events until one of them stops the loop, or until nothing is left that could run: no
    /// event, no source, no [`Remote`].
    ///
    /// # Errors
    /// [`Error::Running`] from within a callback, or what the system refuses.
    pub fn run(&self) -> Result<()> {
        let _running = Running::begin(self)?;
        while !self.stopped.replace(false) && !self.is_over() {
            let answer = self.poll(true)?;
            self.dispatch(&answer)?;
        }
        Ok(())
    }

    /// Runs the events that are due and returns instead of sleeping, for a thread that sleeps in
    /// another event loop. That loop watches this loop's descriptor ([`AsFd`]) for reading.
    ///
    /// # Errors
    /// As of [`Loop::run`].
    pub fn turn(&self) -> Result<Next> {
        let _running = Running::begin(self)?;
        if !self.stopped.get() {
            let answer = self.poll(false)?;
            self.dispatch(&answer)?;
        }
        if self.stopped.replace(false) || self.is_over() {
            return Ok(Next::Over);
        }
        let wants = self.wants(false);
        if wants.has_work() || !self.mailbox.may_sleep() {
            return Ok(Next::Now);
        }
        let core = &mut *self.core.borrow_mut();
        self.poll.borrow_mut().rest(&wants, &mut core.descriptors)?;
        Ok(match wants.release_ns {
            NONE => Next::Ready,
            release_ns => Next::At(release_ns),
        })
    }

    /// Ends [`Loop::run`] when the running callback returns. Before `run`: it returns at once.
    pub fn stop(&self) {
        self.stopped.set(true);
    }

    /// The current time of the loop's clock, which release times refer to.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Events that are queued or run.
    pub fn len(&self) -> usize {
        let core = self.core.borrow();
        core.queue.len() + core.mail.len()
    }

    /// No event is queued or runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What determines the times at which this loop's timers run, as of the last poll.
    pub fn timing(&self) -> Timing {
        self.poll.borrow().timing()
    }

    /// Lateness of all timers so far.
    pub fn tardiness(&self) -> Tardiness {
        self.core.borrow().recorder.figures()
    }

    /// Runs events in the order of Coop §2.1 and §3.1, until the next poll is due:
    ///
    /// 1. timers that are due, earliest release first, late ones too;
    /// 2. then best-effort events, least user virtual time first, but only until the slice ends or
    ///    another thread's release comes, and, after the first, only while no other thread of the
    ///    group has something more important.
    ///
    /// The first one runs whatever the others' importance is: the scheduler knew that when it chose
    /// this thread. So the program makes progress with each poll that gives it a slice.
    ///
    /// The slice is the current one: a thread that was stopped in its slice, by a promised window
    /// or by the kernel, continues with a shorter one.
    fn dispatch(&self, answer: &Answer) -> Result<()> {
        let mut answer = *answer;
        let mut has_run_best_effort = false;
        let mut look_ns = None;
        for _ in 0..ROUND_MAX {
            self.take_mail();
            if self.stopped.get() {
                return Ok(());
            }
            let now_ns = self.clock.now_ns();
            self.look_again(&mut look_ns, now_ns)?;
            let mut core = self.core.borrow_mut();
            let mut next = core.queue.pop_due(now_ns);
            if next.is_none() {
                let Some(importance) = core.queue.importance() else {
                    return Ok(());
                };
                if has_run_best_effort {
                    answer = self.poll.borrow().renewed(answer);
                }
                let is_less = has_run_best_effort && answer.least_importance < importance;
                if now_ns >= answer.until_ns() || is_less {
                    return Ok(());
                }
                next = core.queue.pop_best_effort();
                has_run_best_effort = true;
            }
            drop(core);
            if let Some(taken) = next {
                self.call(taken, now_ns);
            }
        }
        Ok(())
    }

    /// Checks the descriptors, if any are watched, every [`LOOK_NS`] of one round.
    fn look_again(&self, look_ns: &mut Option<u64>, now_ns: u64) -> Result<()> {
        let is_time = look_ns.is_some_and(|look_ns| now_ns >= look_ns);
        if is_time || look_ns.is_none() {
            *look_ns = Some(now_ns.saturating_add(LOOK_NS));
        }
        let core = &mut *self.core.borrow_mut();
        if is_time && core.descriptors.is_watching() {
            core.descriptors.look()?;
            core.queue_found(now_ns);
        }
        Ok(())
    }

    /// Runs one event.
    fn call(&self, taken: Taken<Work>, start_ns: u64) {
        let Taken { id, when, payload } = taken;
        let turn = Turn {
            events: self,
            event: self.event(id),
            when,
            start_ns,
        };
        match payload {
            Work::Callback(mut callback) => {
                if let When::Timer { .. } = when {
                    let late_ns = turn.tardiness_ns();
                    self.core.borrow_mut().recorder.record(late_ns);
                }
                callback(&turn);
                let work = Work::Callback(callback);
                let done = self.core.borrow_mut().queue.finish(id, work);
                // Dropped here, with nothing borrowed.
                drop(done);
            }
            Work::Source(source) => self.call_source(&turn, source),
        }
    }

    /// Runs the event of a source, which becomes an event again if it is still ready.
    fn call_source(&self, turn: &Turn<'_>, id: u64) {
        let mut core = self.core.borrow_mut();
        let taken = core.sources.get(id).and_then(|watched| {
            let ready = std::mem::take(&mut watched.ready);
            Some((watched.body.take()?, ready))
        });
        drop(core);
        let Some((mut body, ready)) = taken else {
            return;
        };
        body.call(turn, ready);
        let is_ready = !body.arm();
        let mut core = self.core.borrow_mut();
        core.queue.remove(turn.event.id);
        core.queue.finish(turn.event.id, Work::Source(id));
        let Some(watched) = core.sources.get(id) else {
            // The callback ended the watch.
            core.descriptors.remove(body.fd());
            drop(core);
            drop(body);
            return;
        };
        watched.event = None;
        watched.body = Some(body);
        if is_ready {
            core.queue_source(id, Ready::READABLE, self.clock.now_ns());
        }
    }

    /// Polls; before that it takes the events that other threads submitted, and afterwards it
    /// queues the events of ready sources.
    fn poll(&self, may_sleep: bool) -> Result<Answer> {
        self.take_mail();
        let mut wants = self.wants(may_sleep);
        if !wants.has_work() && may_sleep && !self.mailbox.may_sleep() {
            self.take_mail();
            wants = self.wants(may_sleep);
            // In any case, only the next poll may sleep.
            wants.may_sleep = false;
        }
        let core = &mut *self.core.borrow_mut();
        let answer = self.poll.borrow_mut().poll(&wants, &mut core.descriptors);
        core.queue_found(self.clock.now_ns());
        answer
    }

    fn wants(&self, may_sleep: bool) -> Wants {
        // The largest number means "none": an event with it counts as the next smaller number.
        let or_none = |key: Option<u64>| key.map_or(NONE, |key| key.min(NONE - 1));
        let queue = &self.core.borrow().queue;
        Wants {
            now_ns: self.clock.now_ns(),
            release_ns: or_none(queue.release_ns()),
            importance: or_none(queue.importance()),
            may_sleep,
        }
    }

    /// Queues the events that other threads submitted, as far as there is room.
    fn take_mail(&self) {
        if !self.mailbox.is_filled() && self.core.borrow().mail.is_empty() {
            return;
        }
        let core = &mut *self.core.borrow_mut();
        self.mailbox.take(&mut core.taken);
        core.mail.extend(core.taken.drain(..));
        while core.queue.len() < crate::EVENTS_MAX {
            let Some(letter) = core.mail.pop_front() else {
                return;
            };
            let work = Work::Callback(letter.callback);
            if core.queue.insert(letter.when, work).is_err() {
                return; // there is room
            }
        }
    }

    /// Whether no event can ever run again. Writers are counted first: the last event of a writer
    /// that has gone is then visible.
    fn is_over(&self) -> bool {
        self.take_mail();
        let core = self.core.borrow();
        core.queue.len() == 0
            && core.mail.is_empty()
            && core.sources.len() == 0
            && !self.mailbox.has_writers()
            && !self.mailbox.is_filled()
    }

    /// The event of this loop that has this number ([`Event::raw`]).
    pub fn event(&self, id: u64) -> Event {
        let owner = self.number;
        Event { owner, id }
    }

    /// The source of this loop that has this number ([`Watch::raw`]).
    pub fn source(&self, id: u64) -> Watch {
        let owner = self.number;
        Watch { owner, id }
    }

    fn owns(&self, owner: u32) -> bool {
        owner == self.number
    }
}

impl Core {
    /// Queues an event for each source that was found ready.
    fn queue_found(&mut self, now_ns: u64) {
        while let Some((id, ready)) = self.descriptors.next_found() {
            self.queue_source(id, ready, now_ns);
        }
    }

    /// Queues a source's event, if it is not queued yet. If the queue is full, the source remains
    /// ready, and is found again.
    fn queue_source(&mut self, id: u64, ready: Ready, now_ns: u64) {
        let Some(watched) = self.sources.get(id) else {
            return;
        };
        watched.found(ready);
        if watched.event.is_some() {
            return;
        }
        let Ok(event) = self
            .queue
            .insert(watched.kind.when(now_ns), Work::Source(id))
        else {
            return;
        };
        watched.event = Some(event);
        if let Some(body) = &mut watched.body {
            body.disarm();
        }
    }
}

impl AsFd for Loop {
    /// Readable when [`Loop::turn`] has to be called.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Waiting events are dropped here, without the lock.
        drop(self.mailbox.close());
    }
}

impl fmt::Debug for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loop")
            .field("number", &self.number)
            .field("running", &self.running.get())
            .finish_non_exhaustive()
    }
}

/// Marks the loop as running until this is dropped, also by a panic of a callback.
struct Running<'a>(&'a Loop);

impl Running<'_> {
    fn begin(events: &Loop) -> Result<Running<'_>> {
        if events.running.replace(true) {
            return Err(Error::Running);
        }
        Ok(Running(events))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(false);
    }
}

/// The thread's single loop.
struct ThreadPlace;

thread_local! {
    static TAKEN: Cell<bool> = const { Cell::new(false) };
}

impl ThreadPlace {
    fn take() -> Result<ThreadPlace> {
        match TAKEN.replace(true) {
            true => Err(Error::SecondLoop),
            false => Ok(ThreadPlace),
        }
    }
}

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        // Without the thread's storage (the thread is ending) no loop can be created.
        let _ = TAKEN.try_with(|taken| taken.set(false));
    }
}
