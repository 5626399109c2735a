//! Handlers written in E-code, as actions of subscriptions (ECalls-05 §3.3).
//!
//! A [`Handler`] is the compiled form of a text (`compiled`). Each action of a subscription has two
//! entries in the core's map `ecodes`, and a word in the subscription's row that says which entry
//! has its program, how many iterations the program may make and how large its output is
//! (abi/ecode.h). So a running handler is replaced by filling the other entry and storing that
//! word: every event is handled entirely by the former program or entirely by the new one. Its
//! variables are a map (`variables`).
//!
//! An entry is filled before the subscription becomes active and emptied when it ends. The entry of
//! a subscription whose owner was killed is emptied when the next subscription begins or ends
//! (`sweep`).

mod compiled;
mod variables;

use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::ecode::bpf::Object;
use ::ecode::ir::State;
use ecalls_abi::channel::STATE_DEAD;
use ecalls_abi::ecode::{HANDLER_ECODE, call};
use ecalls_abi::service::SERVICE_SOCKET;
use ecalls_abi::subscription::{ACTION_HANDLER, ACTION_THREAD, Action, SOLE_FILTER, Subscription};
use ecalls_abi::version::{ACTIONS_MAX, SUBSCRIPTIONS_MAX};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

pub use self::compiled::{Handler, Parts, asks, early_word};
pub(crate) use self::variables::{STATE_NAME, Variables, take_over};
use crate::core::Core;
use crate::ecode::{DISPATCHER, Maps, Refusal, SOCKET, load_early, load_handler};
use crate::error::{Error, Result};
use crate::kernel::link::Link;
use crate::kernel::objects::Role;
use crate::kernel::reader::wait_for_readers;
use crate::kernel::sys;

/// Whether an action is a handler in E-code.
pub(crate) fn is_ecode(action: &Action) -> bool {
    matches!(action.kind, ACTION_HANDLER | ACTION_THREAD) && action.handler == HANDLER_ECODE
}

/// The handlers of one subscription.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    running: Vec<Running>,
    /// The program that executes their effects, while one of them requests some.
    effects: Vec<Link>,
    /// Whether the first handler is a filter that may run early.
    may_be_early: bool,
}

/// The handler of one action.
#[derive(Debug)]
struct Running {
    action: u32,
    /// Which of the two entries has its program.
    place: u32,
    /// The word by which it is called.
    call: u64,
    /// When the program was put there.
    since_ns: u64,
    state: State,
    memory: Option<Arc<Variables>>,
}

impl Handlers {
    /// Puts the handlers of a subscription that is not active yet into their entries, and writes
    /// into its row how they are called. `previous` is the former content of the row.
    pub(crate) fn place(
        core: &Core,
        row: &mut Subscription,
        index: u32,
        previous: &Subscription,
        handlers: &[(usize, Handler)],
    ) -> Result<Handlers> {
        clear(core, index, previous);
        let mut all = Handlers {
            may_be_early: is_early_place(row),
            ..Handlers::default()
        };
        for (action, handler) in handlers {
            let number = u32::try_from(*action).expect("a small number");
            match all.start(core, index, number, 0, handler, None) {
                Ok(running) => {
                    row.action[*action].argument = [running.call, 0, 0];
                    all.running.push(running);
                }
                Err(error) => {
                    clear(core, index, row);
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// Replaces the handler of an action. The caller holds the lock, and has checked that the
    /// subscription is active.
    pub(crate) fn replace(
        &mut self,
        core: &Core,
        index: u32,
        action: usize,
        handler: &Handler,
    ) -> Result<()> {
        let at = self
            .running
            .iter()
            .position(|running| running.action as usize == action);
        let at = at.ok_or(Error::Closed("the handler"))?;
        let former = &self.running[at];
        let (number, place) = (former.action, 1 - former.place);
        // A program may still use the word that named that entry.
        wait_for_readers(former.since_ns)?;
        let kept = Some((former.state.clone(), former.memory.clone()));
        let running = self.start(core, index, number, place, handler, kept)?;
        let argument = offset_of!(Subscription, action)
            + action * size_of::<Action>()
            + offset_of!(Action, argument);
        let table = core.mapped_subscriptions()?;
        table
            .word(index, argument)
            .store(running.call, Ordering::Release);
        let fault = argument + size_of::<u64>();
        table.word(index, fault).store(0, Ordering::Release);
        self.running[at] = running;
        Ok(())
    }

    /// Loads a handler and puts it into an entry. `kept` is the state that it takes over.
    fn start(
        &mut self,
        core: &Core,
        index: u32,
        action: u32,
        place: u32,
        handler: &Handler,
        kept: Option<(State, Option<Arc<Variables>>)>,
    ) -> Result<Running> {
        if handler.effects && self.effects.is_empty() {
            self.effects = core.attached(Role::Effects)?;
        }
        let memory = take_over(&handler.state, kept)?;
        let variables = memory.as_deref();
        let program = load(core, handler, variables, None)?;
        put(core, "ecodes", place_of(index, action, place), &program)?;
        // A kernel that refuses the second program has the first one.
        let early = match self.may_be_early && handler.early != 0 {
            true => place_early(core, index, place, handler, variables).is_ok(),
            false => false,
        };
        let early = if early { handler.early } else { 0 };
        Ok(Running {
            action,
            place,
            call: call(handler.fuel, handler.output_bytes, early, place),
            since_ns: sys::now_ns(),
            state: handler.state.clone(),
            memory,
        })
    }
}

/// Index in the map `ecodes`.
fn place_of(index: u32, action: u32, place: u32) -> u32 {
    2 * (index * ACTIONS_MAX as u32 + action) + place
}

/// Whether the handlers of a row are one filter of a service whose program calls some early.
fn is_early_place(row: &Subscription) -> bool {
    row.service == SERVICE_SOCKET && row.sole == SOLE_FILTER
}

/// Loads a filter once more, for the service's own program, and puts it into its place there.
fn place_early(
    core: &Core,
    index: u32,
    place: u32,
    handler: &Handler,
    memory: Option<&Variables>,
) -> Result<()> {
    SOCKET.learn(core.program("socket_ready")?);
    let program = load_by(core, handler, memory, None, load_early)?;
    put(core, EARLY, 2 * index + place, &program)
}

/// The map of filters that run early.
const EARLY: &str = "early_filters";

fn put(core: &Core, map: &'static str, key: u32, program: &OwnedFd) -> Result<()> {
    core.map(map)?
        .update(
            &key.to_ne_bytes(),
            &program.as_raw_fd().to_ne_bytes(),
            MapFlags::ANY,
        )
        .map_err(|error| Error::from_bpf("putting a handler into its place", &error))
}

/// Loads a handler. `sinks`: the table of those that it chooses among.
pub(crate) fn load(
    core: &Core,
    handler: &Handler,
    memory: Option<&Variables>,
    sinks: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd> {
    DISPATCHER.learn(core.program("deliver")?);
    load_by(core, handler, memory, sinks, load_handler)
}

/// `load_handler` or another one of its kind.
pub(crate) type Loader = fn(&Object, &Maps<'_>) -> Result<std::result::Result<OwnedFd, Refusal>>;

fn load_by(
    core: &Core,
    handler: &Handler,
    memory: Option<&Variables>,
    sinks: Option<BorrowedFd<'_>>,
    loader: Loader,
) -> Result<OwnedFd> {
    let maps = Maps {
        frame: core.map("frames")?.as_fd(),
        event: core.map("current_events")?.as_fd(),
        state: memory.map(|memory| memory.map.as_fd()),
        attributes: Some(core.map("attributes")?.as_fd()),
        sinks,
    };
    handler.load(&maps, loader)
}

/// The maps of an object of its own that calls a program in E-code.
pub(crate) struct Apart<'a> {
    pub(crate) frames: &'a MapHandle,
    pub(crate) events: &'a MapHandle,
    /// Of one program.
    pub(crate) place: &'a MapHandle,
}

impl Apart<'_> {
    /// Loads the program and puts it into its place. The kernel keeps its variables with it.
    pub(crate) fn put(&self, handler: &Handler, loader: Loader) -> Result<()> {
        let variables = take_over(&handler.state, None)?;
        let maps = Maps {
            frame: self.frames.as_fd(),
            event: self.events.as_fd(),
            state: variables.as_ref().map(|variables| variables.map.as_fd()),
            attributes: None,
            sinks: None,
        };
        let program = handler.load(&maps, loader)?;
        let value = program.as_raw_fd().to_ne_bytes();
        self.place
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|error| Error::from_bpf("putting a program into its place", &error))
    }
}

/// Empties the entries of a row's handlers.
pub(crate) fn clear(core: &Core, index: u32, row: &Subscription) {
    let Ok(places) = core.map("ecodes") else {
        return;
    };
    let actions = (0u32..).zip(row.chain());
    for (action, _) in actions.filter(|(_, action)| is_ecode(action)) {
        for place in 0..2 {
            // An empty entry is no error.
            let _ = places.delete(&place_of(index, action, place).to_ne_bytes());
        }
    }
    let Some(places) = is_early_place(row).then(|| core.map(EARLY).ok()).flatten() else {
        return;
    };
    for place in 0..2 {
        let _ = places.delete(&(2 * index + place).to_ne_bytes());
    }
}

/// Empties the entries of subscriptions whose owners were killed. The caller holds the lock.
pub(crate) fn sweep(core: &Core) -> Result<()> {
    let table = core.mapped_subscriptions()?;
    for index in 0..SUBSCRIPTIONS_MAX as u32 {
        if table.field(index, offset_of!(Subscription, id)) == 0 {
            break;
        }
        if table.field(index, offset_of!(Subscription, state)) != STATE_DEAD {
            continue; // as nearly all: they are not read whole
        }
        let mut row = table.get(index);
        // The word is 0 if the entries are empty.
        let called = |action: &Action| is_ecode(action) && action.argument[0] != 0;
        if row.state != STATE_DEAD || !row.chain().iter().any(called) {
            continue;
        }
        clear(core, index, &row);
        for action in row.action.iter_mut().filter(|action| is_ecode(action)) {
            action.argument[0] = 0;
        }
        core.tables.subscriptions.set(index, &row)?;
    }
    Ok(())
}
