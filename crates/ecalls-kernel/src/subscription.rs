//! Installs and removes subscriptions, and keeps each service's list of them in order.
//!
//! Order (ECalls-05 §3): by the CPU scheduling priority of the receiver when the subscription was
//! made, then by registration. The list is double: the one not in use is written and made the one
//! in use by a single store, so the kernel side always sees a whole list. A list that was in use
//! may still be read for a moment; before it is written again that moment is waited for.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ecalls_abi::channel::{Id, STATE_ACTIVE, STATE_DEAD, STATE_FREE, STATE_SETUP};
use ecalls_abi::subscription::{ACTION_SIGNAL, ACTION_THREAD, Action, Subscription};
use ecalls_abi::version::{ACTIONS_MAX, SUBSCRIBERS_MAX, SUBSCRIPTIONS_MAX};
use zerocopy::FromZeros;

use crate::builtin::BUILTINS;
use crate::core::{Core, Identity};
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::objects::Place;
use crate::{owner, sys};

/// How long no running program may take, ns; they take microseconds.
const PROGRAM_NS_MAX: u64 = 100_000_000;

/// What is subscribed to, and what shall be done with each event.
#[derive(Clone, Debug)]
pub struct Request {
    /// Index of the service.
    pub service: u32,
    /// Process that receives (`process_id` of `struct ecalls`); usually this one.
    pub receiver: u32,
    /// Bit k: wants kind k; 0: all.
    pub kinds: u32,
    /// 0, or only events raised in this process.
    pub pid: u32,
    /// Relative deadline, ns; 0: none.
    pub deadline_ns: u64,
    /// Channel that shows what was not delivered; None: none.
    pub channel: Option<Id>,
    /// What is done, in order.
    pub actions: Vec<Action>,
}

/// An installed subscription. Dropping it ends it.
#[derive(Debug)]
pub struct SubscriptionHandle {
    core: Arc<Core>,
    id: Id,
    service: u32,
    receiver: u32,
    /// What is attached for it; shared with others by the kernel's count of references.
    _links: Vec<OwnedFd>,
    pump: bool,
}

impl SubscriptionHandle {
    /// Installs a subscription; from then on events arrive.
    ///
    /// # Errors
    /// [`Error::Closed`] when the receiver does not exist, [`Error::LimitReached`] when the service
    /// has all the subscriptions it can have, [`Error::Invalid`] for a chain that makes no sense.
    pub fn install(core: Arc<Core>, request: &Request) -> Result<SubscriptionHandle> {
        check(request)?;
        let receiver = core.identify(request.receiver)?;
        let handle = {
            let _lock = lock()?;
            install_locked(core, request, &receiver)?
        };
        // A receiver that exited before its row was active was not seen by the reaper.
        match handle.core.identify(request.receiver) {
            Ok(now) if now.start_ns == receiver.start_ns => Ok(handle),
            _ => Err(Error::Closed("the receiver")),
        }
    }

    /// Its id, as events name it.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Index of the service.
    pub fn service(&self) -> u32 {
        self.service
    }

    /// The core it belongs to.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for SubscriptionHandle {
    fn drop(&mut self) {
        let Ok(_lock) = lock() else { return };
        let index = self.id.index();
        let Ok(mut row) = self.core.tables.subscriptions.get(index) else {
            return;
        };
        if row.id != self.id.raw() {
            return;
        }
        row.state = STATE_FREE;
        // A failure leaves a row that the next change of the service's list sorts out.
        let _ = self.core.tables.subscriptions.set(index, &row);
        let _ = publish(&self.core, self.service);
        let _ = owner::remove(&self.core, row.owner);
        if self.receiver != row.owner {
            let _ = owner::remove(&self.core, self.receiver);
        }
        if self.pump {
            let _ = set_pump(&self.core);
        }
    }
}

/// Makes a subscription's row and lets the kernel side see it. The caller holds the lock.
fn install_locked(
    core: Arc<Core>,
    request: &Request,
    receiver: &Identity,
) -> Result<SubscriptionHandle> {
    let service = core.tables.services.get(request.service)?;
    if service.state != STATE_ACTIVE {
        return Err(Error::Closed("the service"));
    }
    let living = living(&core, &service)?;
    if living.len() >= SUBSCRIBERS_MAX {
        return Err(Error::LimitReached {
            which: "subscriptions of one service",
            limit: SUBSCRIBERS_MAX,
        });
    }
    let (index, previous) = find_free(&core)?;
    let id = Id::from_raw(previous.id)
        .map_or_else(|| Id::new(index, 1), |id| Some(id.next()))
        .ok_or(Error::Closed("a subscription id"))?;
    let order = living.iter().map(|(_, row)| row.order + 1).max();
    let mut row = new_row(id, request, receiver, order.unwrap_or(0));
    core.tables.subscriptions.set(index, &row)?;
    core.tables
        .subscription_counts
        .set_per_cpu(index, &FromZeros::new_zeroed())?;
    for action in 0..ACTIONS_MAX as u32 {
        core.tables
            .handler_states
            .set(index * ACTIONS_MAX as u32 + action, &[0; 2])?;
    }
    let links = attach(&core, request)?;
    row.state = STATE_ACTIVE;
    core.tables.subscriptions.set(index, &row)?;
    if let Err(error) = announce(&core, &row) {
        row.state = STATE_FREE;
        core.tables.subscriptions.set(index, &row)?;
        return Err(error);
    }
    Ok(SubscriptionHandle {
        id,
        service: request.service,
        receiver: request.receiver,
        _links: links,
        pump: needs_pump(&row),
        core,
    })
}

/// A row that is not active yet.
fn new_row(id: Id, request: &Request, receiver: &Identity, order: u32) -> Subscription {
    let mut row = Subscription::new_zeroed();
    row.state = STATE_SETUP;
    row.id = id.raw();
    row.service = request.service;
    row.owner = std::process::id();
    row.receiver = request.receiver;
    row.uid = receiver.uid;
    row.kinds = request.kinds;
    row.pid = request.pid;
    row.receiver_start = receiver.start_ns;
    row.deadline_ns = request.deadline_ns;
    row.cpu_priority = u32::try_from(139 - receiver.priority.clamp(-1, 139)).unwrap_or(0);
    row.order = order;
    row.channel = request.channel.map_or(0, Id::raw);
    row.actions = u32::try_from(request.actions.len()).expect("checked");
    row.action[..request.actions.len()].copy_from_slice(&request.actions);
    row
}

/// Tells everyone who must know of an active row: the pump, the reaper, the service's list.
fn announce(core: &Core, row: &Subscription) -> Result<()> {
    if needs_pump(row) {
        set_pump(core)?;
    }
    owner::add(core, row.owner)?;
    if row.receiver != row.owner {
        owner::add(core, row.receiver)?;
    }
    publish(core, row.service)
}

fn check(request: &Request) -> Result<()> {
    let count = request.actions.len();
    if count == 0 || count > ACTIONS_MAX {
        return Err(Error::Invalid {
            what: "the number of actions",
            given: count.to_string(),
            expected: "1 to 8 actions per subscription",
        });
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
    Ok(())
}

fn find_free(core: &Core) -> Result<(u32, Subscription)> {
    for index in 0..SUBSCRIPTIONS_MAX as u32 {
        let row = core.tables.subscriptions.get(index)?;
        // SETUP: whoever installed it died on the way; nobody else can hold the lock now.
        if matches!(row.state, STATE_FREE | STATE_DEAD | STATE_SETUP) {
            return Ok((index, row));
        }
    }
    Err(Error::LimitReached {
        which: "subscriptions of one core",
        limit: SUBSCRIPTIONS_MAX,
    })
}

/// The active subscriptions in a service's list.
fn living(core: &Core, service: &ecalls_abi::service::Service) -> Result<Vec<(u32, Subscription)>> {
    let mut rows = Vec::new();
    for &index in service.subscriptions() {
        let row = core.tables.subscriptions.get(index)?;
        if row.state == STATE_ACTIVE {
            rows.push((index, row));
        }
    }
    Ok(rows)
}

/// Rewrites a service's list from the table: what is active, in order. The caller holds the lock.
pub(crate) fn publish(core: &Core, index: u32) -> Result<()> {
    let mut service = core.tables.services.get(index)?;
    let mut rows = Vec::new();
    for at in 0..SUBSCRIPTIONS_MAX as u32 {
        let row = core.tables.subscriptions.get(at)?;
        if row.id == 0 {
            break; // rows are used from the front: nobody ever had this one or a later one
        }
        if row.state == STATE_ACTIVE && row.service == index {
            rows.push((at, row));
        }
    }
    rows.sort_by_key(|(_, row)| (std::cmp::Reverse(row.cpu_priority), row.order));
    if sys::now_ns().saturating_sub(service.flip_ns) < PROGRAM_NS_MAX {
        sys::wait_for_readers()?;
    }
    let unused = usize::from(service.active == 0);
    service.count[unused] = u32::try_from(rows.len()).expect("at most the limit");
    for (place, (at, _)) in service.list[unused].iter_mut().zip(&rows) {
        *place = *at;
    }
    service.deadline_ns = rows
        .iter()
        .map(|(_, row)| row.deadline_ns)
        .filter(|ns| *ns != 0)
        .min()
        .unwrap_or(0);
    core.write_service(index, &service, unused)
}

/// Attaches a service's programs, or takes part in their attachment.
fn attach(core: &Core, request: &Request) -> Result<Vec<OwnedFd>> {
    let mut links = core.attached(Place::Service(request.service))?;
    if request
        .actions
        .iter()
        .any(|action| action.kind == ACTION_SIGNAL)
    {
        links.append(&mut core.attached(Place::Signals)?);
    }
    Ok(links)
}

/// Whether chains of this subscription may wait for a thread under a scheduler lock.
fn needs_pump(row: &Subscription) -> bool {
    let locked = BUILTINS
        .iter()
        .any(|builtin| builtin.index == row.service && builtin.locked);
    let waits = |action: &Action| matches!(action.kind, ACTION_THREAD | ACTION_SIGNAL);
    locked && row.state == STATE_ACTIVE && row.chain().iter().any(waits)
}

/// Lets the pump run while some subscription needs it. The caller holds the lock.
fn set_pump(core: &Core) -> Result<()> {
    let mut runs = false;
    for index in 0..SUBSCRIPTIONS_MAX as u32 {
        let row = core.tables.subscriptions.get(index)?;
        if row.id == 0 {
            break;
        }
        runs |= needs_pump(&row);
    }
    match core.run("pump_run", &mut u32::from(runs).to_ne_bytes())? {
        0 => Ok(()),
        error => Err(Error::from_errno("starting the pump", i64::from(error))),
    }
}
