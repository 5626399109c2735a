//! Handlers written in E-code, as actions of subscriptions (ECalls-05 §3.3).
//!
//! A [`Handler`] is the compiled form of a text. Each action of a subscription has two entries in
//! the core's map `ecodes`, and a word in the subscription's row that says which entry has its
//! program, how many iterations the program may make and how large its output is (abi/ecode.h). So
//! a running handler is replaced by filling the other entry and storing that word: every event is
//! handled entirely by the former program or entirely by the new one.
//!
//! The state of a handler is a map of its own. A handler that replaces another one keeps the
//! variables that have the same name and type: in the same map, if both have the same variables;
//! else in a copy, which lacks what events change between the copy and the replacement.
//!
//! An entry is filled before the subscription becomes active and emptied when it ends. The entry of
//! a subscription whose owner was killed is emptied when the next subscription begins or ends
//! (`sweep`).

use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::ecode::bpf::{Map, Object, inspect};
use ::ecode::frame::at;
use ::ecode::ir::{Instruction, Op, Program, State};
use ::ecode::limits;
use ::ecode::source::Source;
use ecalls_abi::channel::STATE_DEAD;
use ecalls_abi::ecode::{Frame, HANDLER_ECODE, call};
use ecalls_abi::subscription::{ACTION_HANDLER, ACTION_THREAD, Action, Subscription};
use ecalls_abi::version::{ACTIONS_MAX, DATA_MAX, SUBSCRIPTIONS_MAX};
use libbpf_rs::libbpf_sys::{self, bpf_map_create_opts, size_t};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::core::Core;
use crate::ecode::{Maps, load_handler};
use crate::error::{Error, Result};
use crate::kernel::link::Link;
use crate::kernel::objects::Role;
use crate::kernel::reader::wait_for_readers;
use crate::kernel::segment::Segment;
use crate::kernel::sys;

const _: () = assert!(
    size_of::<Frame>() == at::BYTES as usize
        && offset_of!(Frame, now_ns) == at::NOW as usize
        && offset_of!(Frame, random) == at::RANDOM as usize
        && offset_of!(Frame, result) == at::RESULT as usize
        && offset_of!(Frame, fuel) == at::FUEL as usize
        && offset_of!(Frame, fault) == at::FAULT as usize
        && offset_of!(Frame, effects) == at::EFFECT_COUNT as usize
        && offset_of!(Frame, drop) == at::DROP as usize
        && offset_of!(Frame, channel) == at::CHANNEL as usize
        && offset_of!(Frame, sinks_present) == at::SINKS_PRESENT as usize
        && offset_of!(Frame, accepted) == at::ACCEPTED as usize
        && offset_of!(Frame, rejected) == at::REJECTED as usize
        && offset_of!(Frame, zero) == at::ZERO as usize
        && offset_of!(Frame, fault_place) == at::FAULT_PLACE as usize
        && offset_of!(Frame, effect) == at::EFFECT as usize
        && offset_of!(Frame, output) == at::OUTPUT as usize
        && offset_of!(Frame, locals) == at::LOCALS as usize,
    "the compiler and the dispatcher mean the same frame"
);

/// A compiled handler.
#[derive(Clone, Debug)]
pub struct Handler {
    /// `None`: the daemon compiles the text.
    object: Option<Object>,
    state: State,
    fuel: u32,
    output_bytes: u32,
    effects: bool,
    source: Source,
    attributes: Vec<String>,
}

/// The result of a compiler that is not trusted ([`Handler::of_untrusted`]).
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The program.
    pub object: Object,
    /// Its variables.
    pub state: State,
    /// The most iterations that it may make.
    pub fuel: u32,
    /// Bytes of its output.
    pub output_bytes: u32,
    /// Whether it requests effects.
    pub effects: bool,
}

impl Handler {
    /// The compiled form of `source`: the program for user space, which has the handler's
    /// requirements, and the one for the kernel, unless the daemon is to compile the text.
    ///
    /// # Errors
    /// [`Error::LimitReached`] for an input or output that is larger than an event's data.
    pub fn new(program: &Program, object: Option<Object>, source: Source) -> Result<Handler> {
        let limits = [
            ("bytes of an event's data, which are `input`", program.input),
            (
                "bytes of an event's data, which `output` becomes",
                program.output,
            ),
        ];
        for (which, bytes) in limits {
            if bytes as usize > DATA_MAX {
                return Err(Error::LimitReached {
                    which,
                    limit: DATA_MAX,
                });
            }
        }
        Ok(Handler {
            object,
            state: program.state.clone(),
            fuel: program.fuel.max(1),
            output_bytes: program.output,
            effects: asks(&program.body),
            source,
            attributes: Vec::new(),
        })
    }

    /// The same with the names of the attributes that the text uses, by number, for a process that
    /// compiles the text again.
    #[must_use]
    pub fn with_attributes(mut self, names: &[String]) -> Handler {
        self.attributes = names.to_vec();
        self
    }

    /// The compiled form of `source` by a compiler that is not trusted: in any case the handler
    /// reads and writes only its own data. `has_channel`: whether it has attributes.
    ///
    /// # Errors
    /// [`Error::Ecode`] if the program cannot be one of the compiler; see [`inspect`].
    pub fn of_untrusted(parts: Parts, source: Source, has_channel: bool) -> Result<Handler> {
        let mut maps = vec![Map::Frame, Map::Event];
        if has_channel {
            maps.push(Map::Attributes);
        }
        if !parts.state.bytes.is_empty() {
            maps.push(Map::State);
        }
        let state = &parts.state;
        let output = parts.output_bytes as usize;
        let fits = output <= DATA_MAX
            && output.is_multiple_of(8)
            && parts.object.input_bytes as usize <= DATA_MAX
            && parts.object.state_bytes as usize == state.bytes.len()
            && state.bytes.len() <= limits::STATE_BYTES as usize
            && state.bytes.len().is_multiple_of(8);
        let checked = match fits {
            true => inspect(&parts.object, &maps).map_err(|foreign| foreign.to_string()),
            false => Err("its memory does not fit".to_owned()),
        };
        if let Err(why) = checked {
            let name = &source.name;
            let told = format!("{name}: the compiler's program is none that it can make: {why}");
            return Err(Error::Ecode(told));
        }
        Ok(Handler {
            object: Some(parts.object),
            state: parts.state,
            fuel: parts.fuel.max(1),
            output_bytes: parts.output_bytes,
            effects: parts.effects,
            source,
            attributes: Vec::new(),
        })
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Names of attributes.
    pub(crate) fn attributes(&self) -> &[String] {
        &self.attributes
    }
}

/// Whether an instruction requests an effect.
pub fn asks(body: &[Instruction]) -> bool {
    body.iter().any(|instruction| {
        let op = &instruction.op;
        matches!(op, Op::Effect { .. }) || op.bodies().any(asks)
    })
}

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
}

/// The handler of one action.
#[derive(Debug)]
struct Running {
    action: u32,
    /// Which of the two entries has its program.
    place: u32,
    /// When the program was put there.
    since_ns: u64,
    state: State,
    memory: Option<Arc<Variables>>,
}

/// Name of the map of a handler's variables.
pub(crate) const STATE_NAME: &str = "ecode_state";

/// The variables of a handler. This process accesses them only when another handler takes them
/// over, so they are mapped only then.
#[derive(Debug)]
pub(crate) struct Variables {
    pub(crate) map: MapHandle,
    bytes: usize,
}

impl Variables {
    /// Variables with these bytes, whose number is a multiple of 8.
    pub(crate) fn new(bytes: &[u8]) -> Result<Variables> {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let size = u32::try_from(bytes.len()).expect("the compiler's limit");
        let map = MapHandle::create(MapType::Array, Some(STATE_NAME), 4, size, 1, &options)
            .map_err(|error| Error::from_bpf("making memory for a handler", &error))?;
        // The kernel initializes the map with zeros.
        if bytes.iter().any(|byte| *byte != 0) {
            map.update(&0u32.to_ne_bytes(), bytes, MapFlags::ANY)
                .map_err(|error| Error::from_bpf("filling the memory of a handler", &error))?;
        }
        let bytes = bytes.len();
        Ok(Variables { map, bytes })
    }

    /// The current values; no variable is read in the middle of a change.
    fn read(&self) -> Result<Vec<u8>> {
        let memory = Segment::map(&self.map, self.bytes)?;
        let words = memory.words().iter();
        let bytes = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        Ok(bytes.collect())
    }
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
        let mut all = Handlers::default();
        for (action, handler) in handlers {
            let number = u32::try_from(*action).expect("a small number");
            match all.start(core, index, number, 0, handler, None) {
                Ok(running) => all.running.push(running),
                Err(error) => {
                    clear(core, index, row);
                    return Err(error);
                }
            }
            row.action[*action].argument = [call(handler.fuel, handler.output_bytes, 0), 0, 0];
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
        table.word(index, argument).store(
            call(handler.fuel, handler.output_bytes, place),
            Ordering::Release,
        );
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
        let memory = variables_for(&handler.state, kept)?;
        let program = load(core, handler, memory.as_deref())?;
        let key = place_of(index, action, place).to_ne_bytes();
        core.map("ecodes")?
            .update(&key, &program.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("putting a handler into its place", &error))?;
        Ok(Running {
            action,
            place,
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

fn load(core: &Core, handler: &Handler, memory: Option<&Variables>) -> Result<OwnedFd> {
    let maps = Maps {
        frame: core.map("frames")?.as_fd(),
        event: core.map("current_events")?.as_fd(),
        state: memory.map(|memory| memory.map.as_fd()),
        attributes: Some(core.map("attributes")?.as_fd()),
        sinks: None,
    };
    let object = handler.object.as_ref().ok_or_else(|| Error::Invalid {
        what: "a handler in E-code",
        given: format!("{}, checked only", handler.source.name),
        expected: "one with its program: the daemon alone compiles texts for others",
    })?;
    load_handler(object, &maps)?
        .map_err(|refusal| Error::Ecode(refusal.render(object, &handler.source)))
}

/// The memory of a new handler: that of the former one, if its content is the same; else its own,
/// with the values of the variables that both have.
fn variables_for(
    state: &State,
    kept: Option<(State, Option<Arc<Variables>>)>,
) -> Result<Option<Arc<Variables>>> {
    if state.bytes.is_empty() {
        return Ok(None);
    }
    let Some((former, Some(memory))) = kept else {
        return Ok(Some(Arc::new(Variables::new(&state.bytes)?)));
    };
    if is_same(state, &former) {
        return Ok(Some(memory));
    }
    let bytes = state.carry(&former, &memory.read()?);
    Ok(Some(Arc::new(Variables::new(&bytes)?)))
}

/// Whether all variables are the same at the same offsets, and all constants are the same.
fn is_same(state: &State, former: &State) -> bool {
    let constants = |of: &State| -> Vec<u8> {
        let entries = of.entries.iter().filter(|entry| entry.constant);
        let bytes = entries.filter_map(|entry| of.bytes.get(range(entry.offset, entry.bytes)));
        bytes.flatten().copied().collect()
    };
    state.entries == former.entries
        && state.bytes.len() == former.bytes.len()
        && constants(state) == constants(former)
}

fn range(offset: u32, bytes: u32) -> std::ops::Range<usize> {
    offset as usize..offset as usize + bytes as usize
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
}

/// Empties the entries of subscriptions whose owners were killed. The caller holds the lock.
pub(crate) fn sweep(core: &Core) -> Result<()> {
    let table = core.mapped_subscriptions()?;
    for index in 0..SUBSCRIPTIONS_MAX as u32 {
        let mut row = table.get(index);
        if row.id == 0 {
            break;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ::ecode::ir::StateEntry;

    fn entry(name: &str, ty: &str, offset: u32, constant: bool) -> StateEntry {
        StateEntry {
            name: name.into(),
            ty: ty.into(),
            offset,
            bytes: 8,
            constant,
        }
    }

    #[test]
    fn state_is_kept_where_name_and_type_are_the_same() {
        let former = State {
            bytes: vec![0; 24],
            entries: vec![
                entry("a", "long", 0, false),
                entry("b", "long", 8, false),
                entry("table", "long", 16, true),
            ],
        };
        let now: Vec<u8> = (1..=24).collect();
        let state = State {
            bytes: vec![9; 32],
            entries: vec![
                entry("new", "long", 0, false),
                entry("b", "unsigned long", 8, false),
                entry("a", "long", 16, false),
                entry("table", "long", 24, true),
            ],
        };
        let bytes = state.carry(&former, &now);
        assert_eq!(bytes[..16], [9; 16], "another name, another type");
        assert_eq!(bytes[16..24], now[..8]);
        assert_eq!(bytes[24..], [9; 8], "a constant");
        assert!(!is_same(&state, &former));
        let mut other = former.clone();
        other.bytes[0] = 1;
        assert!(
            is_same(&other, &former),
            "another first value of a variable"
        );
        other.bytes[16] = 1;
        assert!(!is_same(&other, &former), "another constant");
    }
}
