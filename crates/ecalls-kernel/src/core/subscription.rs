//! Installs and removes subscriptions, and keeps each service's list of them in order.
//!
//! The order (ECalls-05 §3) is by the CPU scheduling priority of the receiver when the subscription
//! was made, then by registration. The list is double: the inactive list is written and becomes the
//! active one by a single store, so the kernel side always sees a complete list. A list that was
//! active may still be read for a short time, which must pass before the list is written again.

use std::mem::offset_of;
use std::sync::{Arc, Mutex, PoisonError};

use ecalls_abi::channel::{Id, Layout, STATE_ACTIVE, STATE_DEAD, STATE_FREE, STATE_SETUP, SlotUse};
use ecalls_abi::downcall::DEFER_SWITCH;
use ecalls_abi::ecode::HANDLER_ECODE;
use ecalls_abi::event::EVENT_COALESCES;
use ecalls_abi::handler::HANDLER_REMOTE;
use ecalls_abi::service::{SERVICE_TIMER, SLOW_CHAIN, Service};
use ecalls_abi::subscription::{
    ACTION_HANDLER, ACTION_MEMORY, ACTION_SIGNAL, ACTION_THREAD, ACTION_USER, Action, SOLE_FILTER,
    SOLE_NONE, SOLE_PUT, Subscription,
};
use ecalls_abi::version::{ACTIONS_MAX, CHANNELS_MAX, SUBSCRIBERS_MAX, SUBSCRIPTIONS_MAX};
use zerocopy::FromZeros;

use crate::core::audience::InTable;
use crate::core::builtin::BUILTINS;
use crate::core::handler::{self, Handler, Handlers};
use crate::core::owner::{self, Owner};
use crate::core::{Core, Identity};
use crate::core::{audience, sampler};
use crate::error::{Error, Result};
use crate::kernel::link::Link;
use crate::kernel::lock::lock;
use crate::kernel::objects::Role;
use crate::kernel::reader::{is_read, wait_for_readers};
use crate::kernel::sys;

/// The longest relative deadline, ns, so that the sum with a time does not overflow: 146 years.
const DEADLINE_NS_MAX: u64 = 1 << 62;

/// A request for a subscription: its service and its actions for each event.
#[derive(Clone, Debug)]
pub struct Request {
    /// Index of the service.
    pub service: u32,
    /// Process that receives (`process_id` of `struct ecalls`); usually the owner.
    pub receiver: u32,
    /// Bit k: kind k is wanted; 0: all kinds.
    pub kinds: u32,
    /// 0, or the process whose events are wanted.
    pub pid: u32,
    /// Relative deadline, ns; 0: none.
    pub deadline_ns: u64,
    /// Channel that counts undelivered events; `None`: no channel.
    pub channel: Option<Id>,
    /// While an event is not read, further ones are only counted.
    pub coalesce: bool,
    /// `SCOPE_*` of `ecalls_abi::subscription`: whose events it sees.
    pub scope: u32,
    /// The actions, in order.
    pub actions: Vec<Action>,
}

/// A subscription in the core, created by this process for its owner. Dropping it ends it.
#[derive(Debug)]
pub struct HostedSubscription {
    core: Arc<Core>,
    id: Id,
    service: u32,
    channel: Option<Id>,
    /// Its attachments; shared with others by the kernel's count of references.
    _links: Vec<Link>,
    handlers: Mutex<Handlers>,
    pump: bool,
    /// The process that created it.
    host: u32,
}

impl HostedSubscription {
    /// Installs a subscription of `owner`; from then on events arrive.
    ///
    /// # Errors
    /// [`Error::Closed`] if the receiver does not exist, [`Error::LimitReached`] if the service has
    /// its maximum of subscriptions, [`Error::Invalid`] for an invalid chain.
    pub fn install(
        core: Arc<Core>,
        owner: &Owner,
        request: &Request,
    ) -> Result<HostedSubscription> {
        HostedSubscription::install_with(core, owner, request, &[])
    }

    /// The same with the programs of the actions that are handlers in E-code.
    ///
    /// # Errors
    /// [`Error::Ecode`] if the kernel refuses one, and those of [`HostedSubscription::install`].
    pub fn install_with(
        core: Arc<Core>,
        owner: &Owner,
        request: &Request,
        handlers: &[(usize, Handler)],
    ) -> Result<HostedSubscription> {
        check(request)?;
        check_handlers(request, handlers)?;
        let receiver = core.identify(request.receiver)?;
        let hosted = {
            let _lock = lock()?;
            install_locked(core, owner, request, &receiver, handlers)?
        };
        // The reaper did not see the exit of a process before the row was active.
        owner.check(&hosted.core)?;
        match hosted.core.identify(request.receiver) {
            Ok(now) if now.start_ns == receiver.start_ns => Ok(hosted),
            _ => Err(Error::Closed("the receiver")),
        }
    }

    /// Its id, which events contain.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Index of the service.
    pub fn service(&self) -> u32 {
        self.service
    }

    /// The channel that counts undelivered events.
    pub fn channel(&self) -> Option<Id> {
        self.channel
    }

    /// Replaces the handler in E-code of an action. No event is lost, and each is handled either by
    /// the former handler or by this one.
    ///
    /// # Errors
    /// [`Error::Closed`] for an action that is no such handler, [`Error::Ecode`] if the kernel
    /// refuses this one; then the former one remains.
    pub fn replace_handler(&self, action: usize, handler: &Handler) -> Result<()> {
        let _lock = lock()?;
        let row = self.core.mapped_subscriptions()?.get(self.id.index());
        if row.id != self.id.raw() || row.state != STATE_ACTIVE {
            return Err(Error::Closed("the subscription"));
        }
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        handlers.replace(&self.core, self.id.index(), action, handler)
    }
}

impl Drop for HostedSubscription {
    fn drop(&mut self) {
        // A forked child has a copy; the subscription belongs to its parent.
        if self.host != std::process::id() {
            return;
        }
        let Ok(_lock) = lock() else { return };
        let index = self.id.index();
        let Ok(mut row) = self.core.tables.subscriptions.get(index) else {
            return;
        };
        if row.id != self.id.raw() {
            return;
        }
        row.state = STATE_FREE;
        row.ended_ns = sys::now_ns();
        // A failure leaves a row that the next change of the service's list removes from it.
        let _ = self.core.tables.subscriptions.set(index, &row);
        let _ = relist(&self.core, &row);
        handler::clear(&self.core, index, &row);
        let _ = handler::sweep(&self.core);
        let _ = own(&self.core, &row, owner::remove);
        if self.pump {
            let _ = set_pump(&self.core);
        }
    }
}

/// Writes a subscription's row and activates it. The caller holds the lock.
fn install_locked(
    core: Arc<Core>,
    owner: &Owner,
    request: &Request,
    receiver: &Identity,
    handlers: &[(usize, Handler)],
) -> Result<HostedSubscription> {
    handler::sweep(&core)?;
    let service = core.tables.services.get(request.service)?;
    if service.state != STATE_ACTIVE {
        return Err(Error::Closed("the service"));
    }
    let (index, previous) = find_free(&core)?;
    retire(&core, index, &previous)?;
    let id = Id::from_raw(previous.id)
        .map_or_else(|| Id::new(index, 1), |id| Some(id.next()))
        .ok_or(Error::Closed("a subscription id"))?;
    let mut row = new_row(id, owner, request, receiver);
    coalesce(&core, request, &mut row)?;
    row.sole = sole_of(&row);
    row.order = place_of(&core, &row, &service)?;
    let handlers = Handlers::place(&core, &mut row, index, &previous, handlers)?;
    let links = match activate(&core, request, &mut row, index) {
        Ok(links) => links,
        Err(error) => {
            handler::clear(&core, index, &row);
            return Err(error);
        }
    };
    Ok(HostedSubscription {
        id,
        service: request.service,
        channel: request.channel,
        _links: links,
        handlers: Mutex::new(handlers),
        pump: may_wait(&row),
        core,
        host: std::process::id(),
    })
}

/// Determines what of a subscription stands for further events until it is read: all in slots of
/// use READY; in a ring what a subscription stores that coalesces.
///
/// # Errors
/// [`Error::Invalid`] if it coalesces, but does not store its events once, at the end of the chain.
fn coalesce(core: &Core, request: &Request, row: &mut Subscription) -> Result<()> {
    let stores = |action: &Action| matches!(action.kind, ACTION_MEMORY | ACTION_USER);
    let (before, last) = match row.chain() {
        [before @ .., last] if stores(last) => (before, last),
        _ if request.coalesce => return Err(cannot_coalesce("a chain that does not end so")),
        _ => return Ok(()),
    };
    let (alone, id) = (before.is_empty(), last.channel);
    if request.coalesce && before.iter().any(stores) {
        return Err(cannot_coalesce("a chain that stores an event twice"));
    }
    let Some(channel) = Id::from_raw(id) else {
        return Ok(());
    };
    let channel = core.tables.channels.get(channel.index())?;
    let is_ring = channel.layout == Layout::Ring.raw();
    let is_ready = !is_ring && channel.slot_use == SlotUse::Ready.raw();
    if request.coalesce && !is_ring && !is_ready {
        return Err(cannot_coalesce("slots of another use"));
    }
    if request.coalesce && is_ring {
        row.event_flags = EVENT_COALESCES;
    }
    if alone && channel.id == id && (is_ready || row.event_flags != 0) {
        row.ready = id;
    }
    Ok(())
}

fn cannot_coalesce(given: &str) -> Error {
    Error::Invalid {
        what: "the subscription that coalesces",
        given: given.to_owned(),
        expected: "a chain whose last action alone stores the event, in a ring or in slots of use \
                   READY",
    }
}

/// How an event that this subscription alone may want comes to it.
fn sole_of(row: &Subscription) -> u32 {
    let short = row.plain != 0 && row.user == 0 && !audience::holds(row);
    match row.actions {
        1 if short => SOLE_PUT,
        2 if short => SOLE_FILTER,
        _ => SOLE_NONE,
    }
}

/// Activates a complete row, and returns its attachments.
fn activate(
    core: &Core,
    request: &Request,
    row: &mut Subscription,
    index: u32,
) -> Result<Vec<Link>> {
    core.tables.subscriptions.set(index, row)?;
    core.tables
        .subscription_counts
        .set_per_cpu(index, &FromZeros::new_zeroed())?;
    for action in 0..ACTIONS_MAX as u32 {
        core.tables
            .handler_states
            .set(index * ACTIONS_MAX as u32 + action, &[0; 2])?;
    }
    let links = attach(core, request)?;
    // The owners are first: once the row is active, the reaper must see their exit.
    own(core, row, owner::add)?;
    row.state = STATE_ACTIVE;
    core.tables.subscriptions.set(index, row)?;
    let announced = announce(core, row).and_then(|()| sampler::start(core, row.service));
    if let Err(error) = announced {
        row.state = STATE_FREE;
        core.tables.subscriptions.set(index, row)?;
        let _ = publish(core, row.service);
        let _ = own(core, row, owner::remove);
        return Err(error);
    }
    Ok(links)
}

/// A row that is not active yet.
fn new_row(id: Id, owner: &Owner, request: &Request, receiver: &Identity) -> Subscription {
    let mut row = Subscription::new_zeroed();
    row.state = STATE_SETUP;
    row.id = id.raw();
    row.service = request.service;
    row.owner = owner.pid;
    row.owner_start = owner.start_ns;
    row.owner_uid = owner.uid;
    row.user = owner.user;
    row.scope = request.scope;
    row.receiver = request.receiver;
    row.uid = receiver.uid;
    row.kinds = request.kinds;
    row.pid = request.pid;
    row.receiver_start = receiver.start_ns;
    row.deadline_ns = request.deadline_ns.min(DEADLINE_NS_MAX);
    row.cpu_priority = u32::try_from(139 - receiver.priority.clamp(-1, 139)).unwrap_or(0);
    row.channel = request.channel.map_or(0, Id::raw);
    row.actions = u32::try_from(request.actions.len()).expect("checked");
    row.action[..request.actions.len()].copy_from_slice(&request.actions);
    let is_filter = |before: &[Action]| match before {
        [] => true,
        [one] => one.kind == ACTION_HANDLER && one.handler == HANDLER_ECODE,
        _ => false,
    };
    if let [before @ .., last] = &request.actions[..]
        && matches!(last.kind, ACTION_MEMORY | ACTION_USER)
        && is_filter(before)
    {
        row.plain = last.channel;
    }
    row
}

/// Reports an active row to its users: the pump, the service's list.
fn announce(core: &Core, row: &Subscription) -> Result<()> {
    if may_wait(row) {
        set_pump(core)?;
    }
    relist(core, row)
}

/// Writes the lists of a subscription anew, which has begun or ended.
fn relist(core: &Core, row: &Subscription) -> Result<()> {
    if audience::holds(row) {
        audience::publish(core, row)
    } else {
        publish(core, row.service)
    }
}

/// The position of a new subscription in the order of registration.
///
/// # Errors
/// [`Error::LimitReached`] if its lists have no room for it.
fn place_of(core: &Core, row: &Subscription, service: &Service) -> Result<u32> {
    if audience::holds(row) {
        audience::check_room(core, row)?;
    } else if living(core, service)?.len() >= SUBSCRIBERS_MAX {
        return Err(Error::LimitReached {
            which: "subscriptions of one service",
            limit: SUBSCRIBERS_MAX,
        });
    }
    let order = |other: InTable<'_>| other.field(offset_of!(Subscription, order)) + 1;
    let last = audience::active(core, row.service)?.map(order).max();
    Ok(last.unwrap_or(0))
}

/// Increments or decrements the counts of the processes to which a subscription belongs.
fn own(core: &Core, row: &Subscription, change: fn(&Core, u32) -> Result<()>) -> Result<()> {
    change(core, row.owner)?;
    if row.receiver != row.owner {
        change(core, row.receiver)?;
    }
    Ok(())
}

/// Makes sure that a row is no longer used. The list of its former service may still name it, if
/// its owner was killed; and a program that has read the list may still run.
fn retire(core: &Core, index: u32, previous: &Subscription) -> Result<()> {
    if previous.id == 0 {
        return Ok(());
    }
    if audience::holds(previous) {
        if previous.state == STATE_FREE {
            return wait_for_readers(previous.ended_ns);
        }
        audience::publish(core, previous)?;
        return wait_for_readers(sys::now_ns());
    }
    let former = core.tables.services.get(previous.service)?;
    if former.subscriptions().contains(&index) {
        publish(core, previous.service)?;
    }
    wait_for_readers(core.tables.services.get(previous.service)?.flip_ns)
}

fn check(request: &Request) -> Result<()> {
    let count = request.actions.len();
    if count == 0 || count > ACTIONS_MAX {
        return Err(wrong_count(count));
    }
    for action in &request.actions {
        let real_time = (34..=64).contains(&action.signal);
        if action.kind == ACTION_SIGNAL && !real_time {
            return Err(Error::Invalid {
                what: "the signal",
                given: action.signal.to_string(),
                expected: "a real-time signal, SIGRTMIN (34) to SIGRTMAX (64)",
            });
        }
    }
    // Each may call its channel's filter, and the kernel allows so many tail calls in a run.
    let remotes = request.actions.iter().filter(|action| is_remote(action));
    match remotes.count() {
        0 | 1 => Ok(()),
        more => Err(Error::Invalid {
            what: "the number of channels to which a chain sends",
            given: more.to_string(),
            expected: "one in a chain: further channels take further subscriptions",
        }),
    }
}

fn is_remote(action: &Action) -> bool {
    action.kind == ACTION_HANDLER && action.handler == HANDLER_REMOTE
}

/// Checks that each action that is a handler in E-code has its program, and that no other has one.
fn check_handlers(request: &Request, handlers: &[(usize, Handler)]) -> Result<()> {
    let actions = request.actions.iter().enumerate();
    let wanted = actions.filter(|(_, action)| handler::is_ecode(action));
    if wanted
        .map(|(at, _)| at)
        .eq(handlers.iter().map(|(at, _)| *at))
    {
        return Ok(());
    }
    Err(Error::Invalid {
        what: "the kernel handler",
        given: HANDLER_ECODE.to_string(),
        expected: "a handler in E-code with its program",
    })
}

/// The error for a chain of that length.
pub(crate) fn wrong_count(count: usize) -> Error {
    Error::Invalid {
        what: "the number of actions",
        given: count.to_string(),
        expected: "1 to 8 actions per subscription",
    }
}

/// A free row; if possible one that no program can still be using, so that no wait is needed.
fn find_free(core: &Core) -> Result<(u32, Subscription)> {
    let table = core.mapped_subscriptions()?;
    let mut recent = None;
    for index in 0..SUBSCRIPTIONS_MAX as u32 {
        if table.field(index, offset_of!(Subscription, state)) == STATE_ACTIVE {
            continue;
        }
        let row = table.get(index);
        // SETUP: the installing process died; no other process can hold the lock now.
        match row.state {
            STATE_FREE if row.id == 0 || !is_read(row.ended_ns) => return Ok((index, row)),
            STATE_FREE | STATE_DEAD | STATE_SETUP => recent = recent.or(Some((index, row))),
            _ => {}
        }
    }
    recent.ok_or(Error::LimitReached {
        which: "subscriptions of one core",
        limit: SUBSCRIPTIONS_MAX,
    })
}

/// The active subscriptions in a service's list.
pub(crate) fn living(core: &Core, service: &Service) -> Result<Vec<(u32, Subscription)>> {
    let mut rows = Vec::new();
    for &index in service.subscriptions() {
        let row = core.tables.subscriptions.get(index)?;
        if row.state == STATE_ACTIVE {
            rows.push((index, row));
        }
    }
    Ok(rows)
}

/// Rewrites a service's list from the table: the active subscriptions, in order. The caller holds
/// the lock.
pub(crate) fn publish(core: &Core, index: u32) -> Result<()> {
    let mut service = core.tables.services.get(index)?;
    let mut rows: Vec<_> = audience::active(core, index)?
        .filter(|found| !found.is_own())
        .map(|found| (found.index, found.row()))
        .filter(|(_, row)| row.state == STATE_ACTIVE && row.service == index)
        .collect();
    rows.sort_by_key(|(_, row)| (std::cmp::Reverse(row.cpu_priority), row.order));
    wait_for_readers(service.flip_ns)?;
    let unused = usize::from(service.active == 0);
    service.count[unused] = u32::try_from(rows.len()).expect("at most the limit");
    service.slow[unused] = rows
        .iter()
        .map(|(_, row)| slow(row.plain, row.actions))
        .sum();
    for (place, (at, _)) in service.list[unused].iter_mut().zip(&rows) {
        *place = *at;
    }
    service.deadline_ns = rows
        .iter()
        .map(|(_, row)| row.deadline_ns)
        .filter(|ns| *ns != 0)
        .min()
        .unwrap_or(0);
    service.sole = match &rows[..] {
        [(at, row)] if row.sole != SOLE_NONE => at + 1,
        _ => 0,
    };
    core.write_service(index, &service, unused)?;
    bury(core, index, &service)
}

/// What a subscription has to do beside one put into memory, by its words `plain` and `actions`.
pub(crate) fn slow(plain: u32, actions: u32) -> u32 {
    match plain {
        0 => SLOW_CHAIN,
        _ => actions.saturating_sub(1),
    }
}

/// Ends a service whose owner has exited since its row was read: the reaper has ended it, and a
/// later write has restored it.
fn bury(core: &Core, index: u32, service: &Service) -> Result<()> {
    if service.owner == 0 || service.state != STATE_ACTIVE {
        return Ok(());
    }
    match core.identify(service.owner) {
        Ok(now) if now.start_ns == service.owner_start => Ok(()),
        _ => {
            let mut row = core.tables.services.get(index)?;
            row.state = STATE_DEAD;
            core.tables.services.set(index, &row)
        }
    }
}

/// Loads the parts that the actions need, and attaches the service's programs, or shares their
/// attachment.
fn attach(core: &Core, request: &Request) -> Result<Vec<Link>> {
    let has = |kind| request.actions.iter().any(|action| action.kind == kind);
    if has(ACTION_SIGNAL) && !crate::probe::sends_signals() {
        return Err(Error::Unsupported {
            feature: "signals with a value",
            since: "Linux 6.13",
        });
    }
    let mut links = core.attached(Role::Service(request.service))?;
    if request.service == SERVICE_TIMER {
        core.part("timer")?;
    }
    if has(ACTION_HANDLER) || has(ACTION_THREAD) {
        core.part("handler")?;
    }
    if has(ACTION_THREAD) {
        core.part("thread")?;
    }
    if has(ACTION_SIGNAL) {
        links.append(&mut core.attached(Role::Signals)?);
    }
    Ok(links)
}

/// Whether chains of this subscription may have to wait for a thread or for their receiver.
fn may_wait(row: &Subscription) -> bool {
    let waits = |action: &Action| matches!(action.kind, ACTION_THREAD | ACTION_SIGNAL);
    row.chain().iter().any(waits)
}

/// Runs the pump while an event that is raised under a scheduler lock may have to wait: those of
/// some built-in services, and all that applications raise by calls which they defer to their next
/// scheduling. The caller holds the lock.
pub(crate) fn set_pump(core: &Core) -> Result<()> {
    let deferred = defers_to_scheduling(core)?;
    let mut runs = false;
    let table = core.mapped_subscriptions()?;
    for index in 0..SUBSCRIPTIONS_MAX as u32 {
        if table.field(index, offset_of!(Subscription, id)) == 0 {
            break;
        }
        if table.field(index, offset_of!(Subscription, state)) != STATE_ACTIVE {
            continue;
        }
        let row = table.get(index);
        let locked = BUILTINS
            .iter()
            .any(|builtin| builtin.index == row.service && builtin.locked);
        runs |= row.state == STATE_ACTIVE && may_wait(&row) && (locked || deferred);
    }
    // If no program has loaded the pump, it does not run.
    let part = match runs {
        true => Some(core.part("thread")?),
        false => core.living_part("thread")?,
    };
    let Some(part) = part else { return Ok(()) };
    match part.run("pump_run", &mut u32::from(runs).to_ne_bytes())? {
        0 => Ok(()),
        error => Err(Error::from_errno("starting the pump", i64::from(error))),
    }
}

/// Whether the deferred calls of any channel are handled before its owner's next scheduling.
fn defers_to_scheduling(core: &Core) -> Result<bool> {
    for index in 0..CHANNELS_MAX as u32 {
        let row = core.tables.channels.get(index)?;
        if row.id == 0 {
            break;
        }
        if row.state == STATE_ACTIVE && row.defer & DEFER_SWITCH != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
