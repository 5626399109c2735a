//! The possible contents of each register at each place of a program, as far as addresses matter.
//!
//! For each register and place of the stack there is a set of kinds, the union over all paths that
//! lead there, so it is never too small. The program is walked until no set changes any more: sets
//! only grow, and there are few kinds.

use std::collections::BTreeSet;

use super::{Foreign, Form, KEY_OFFSET, LOOKUP, Map, Object, Parts, STACK, STACK_BYTES, foreign};
use crate::frame::at;

/// Kinds, as bits of a set. The empty set means that nothing was written there.
mod kind {
    pub(super) const NUMBER: u16 = 1;
    /// The beginning of the frame,
    pub(super) const FRAME: u16 = 1 << 1;
    /// and an address within it.
    pub(super) const IN_FRAME: u16 = 1 << 2;
    pub(super) const EVENT: u16 = 1 << 3;
    pub(super) const STATE: u16 = 1 << 4;
    pub(super) const ATTRIBUTES: u16 = 1 << 5;
    pub(super) const SINKS: u16 = 1 << 6;
    /// The number of the channel, as the dispatcher put it into the frame: also a NUMBER.
    pub(super) const CHANNEL: u16 = 1 << 7;
    /// The arguments with which the kernel calls a program.
    pub(super) const CONTEXT: u16 = 1 << 8;
    /// As the key of a lookup: 0.
    pub(super) const ZERO: u16 = 1 << 9;

    pub(super) const ADDRESS: u16 = FRAME | IN_FRAME | EVENT | STATE | ATTRIBUTES | SINKS;
    pub(super) const WRITABLE: u16 = FRAME | IN_FRAME | STATE;
}

/// Places of the stack, 8 bytes each.
const PLACES: usize = STACK_BYTES as usize / 8;

/// Walks per instruction, on average, that no program of the compiler exceeds.
const WALKS: usize = 64;

/// The possible contents of registers and stack.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    register: [u16; 10],
    stack: [u16; PLACES],
    /// The value that was stored as the key of the next lookup.
    key: u16,
}

impl State {
    fn first() -> State {
        let mut state = State {
            register: [0; 10],
            stack: [0; PLACES],
            key: 0,
        };
        state.register[1] = kind::CONTEXT;
        state
    }

    /// Adds the state of another path. Returns whether that changed anything.
    fn merge(&mut self, other: &State) -> bool {
        let before = self.clone();
        let pairs = self.register.iter_mut().zip(other.register);
        pairs.for_each(|(mine, theirs)| *mine |= theirs);
        let pairs = self.stack.iter_mut().zip(other.stack);
        pairs.for_each(|(mine, theirs)| *mine |= theirs);
        self.key |= other.key;
        *self != before
    }
}

/// Where a walk goes on.
enum Next {
    On,
    Jump(usize),
    Either(usize),
    End,
}

/// Follows all paths through a program whose forms have been checked.
pub(super) fn follow(object: &Object, forms: &[Form]) -> Result<(), Foreign> {
    let mut states: Vec<Option<State>> = vec![None; forms.len()];
    let mut heads = vec![false; forms.len()];
    for form in forms {
        if let Form::Jump(to) | Form::Branch { to, .. } | Form::MayGoto(to) = form {
            heads[*to] = true;
        }
    }
    let mut waiting = BTreeSet::from([0]);
    states[0] = Some(State::first());
    let mut left = WALKS * forms.len();
    while let Some(begin) = waiting.pop_first() {
        let Some(mut state) = states[begin].clone() else {
            continue;
        };
        let mut at = begin;
        loop {
            left = match left.checked_sub(1) {
                Some(left) => left,
                None => return foreign(at, "too many ways lead there"),
            };
            let Some(form) = forms.get(at) else {
                return foreign(at, "no end");
            };
            let next =
                step(&mut state, Parts::of(object.instructions[at]), *form).map_err(|why| {
                    Foreign {
                        instruction: at,
                        why,
                    }
                })?;
            let mut join = |to: usize, state: &State| {
                let news = match &mut states[to] {
                    Some(known) => known.merge(state),
                    empty @ None => {
                        *empty = Some(state.clone());
                        true
                    }
                };
                if news {
                    waiting.insert(to);
                }
            };
            let behind = at + length(*form);
            match next {
                Next::End => break,
                Next::Jump(to) => {
                    join(to, &state);
                    break;
                }
                Next::Either(to) => join(to, &state),
                Next::On => {}
            }
            if heads.get(behind) == Some(&true) {
                join(behind, &state);
                break;
            }
            at = behind;
        }
    }
    Ok(())
}

/// The number of words of an instruction of this form.
fn length(form: Form) -> usize {
    match form {
        Form::Wide | Form::Direct(_) => 2,
        Form::Lookup(_) => 1 + LOOKUP,
        _ => 1,
    }
}

type Step = Result<Next, &'static str>;

/// The effect of one instruction.
fn step(state: &mut State, parts: Parts, form: Form) -> Step {
    let to = usize::from(parts.to);
    match form {
        Form::Copy => write(state, to, read(state, parts.from)?),
        Form::Number => {
            if parts.operand() == Some(true) {
                number(state, parts.from)?;
            }
            write(state, to, kind::NUMBER)
        }
        Form::Wide => write(state, to, kind::NUMBER),
        Form::Direct(map) => write(state, to, kind_of(map)),
        Form::Add => {
            let (a, b) = (read(state, parts.to)?, read(state, parts.from)?);
            if a & kind::ADDRESS != 0 && b & kind::ADDRESS != 0 {
                return Err("a sum of addresses");
            }
            write(state, to, moved(a | b))
        }
        Form::Shift => write(state, to, moved(read(state, parts.to)?)),
        Form::Compute { with } => {
            number(state, parts.to)?;
            if with {
                number(state, parts.from)?;
            }
            write(state, to, kind::NUMBER)
        }
        Form::Lookup(map) => lookup(state, map),
        Form::Load { bytes } => load(state, parts, bytes),
        Form::Store { bytes } => store(state, parts, bytes),
        Form::StoreConstant => match parts.to {
            STACK if parts.constant == 0 => keep(state, parts, kind::ZERO),
            STACK => keep(state, parts, kind::NUMBER),
            _ => writable(state, parts),
        },
        Form::Atomic { fetch } => {
            number(state, parts.from)?;
            writable(state, parts)?;
            match fetch {
                true => write(state, usize::from(parts.from), kind::NUMBER),
                false => Ok(Next::On),
            }
        }
        Form::Jump(to) => Ok(Next::Jump(to)),
        Form::MayGoto(to) => Ok(Next::Either(to)),
        Form::Branch { to, with, zero } => {
            if zero {
                read(state, parts.to)?;
            } else {
                number(state, parts.to)?;
            }
            if with {
                number(state, parts.from)?;
            }
            Ok(Next::Either(to))
        }
        Form::Exit => number(state, 0).map(|_| Next::End),
        Form::Half | Form::Within => Err("no instruction begins there"),
    }
}

fn kind_of(map: Map) -> u16 {
    match map {
        Map::Frame => kind::FRAME,
        Map::Event => kind::EVENT,
        Map::State => kind::STATE,
        Map::Attributes => kind::ATTRIBUTES,
        Map::Sinks => kind::SINKS,
    }
}

fn write(state: &mut State, to: usize, kinds: u16) -> Step {
    match state.register.get_mut(to) {
        Some(register) => *register = kinds,
        None => return Err("it changes where the stack is"),
    }
    Ok(Next::On)
}

/// The content of a register that may be read.
fn read(state: &State, from: u8) -> Result<u16, &'static str> {
    match state.register.get(usize::from(from)).copied() {
        None => Err("it takes the address of the stack"),
        Some(0) => Err("it reads what nobody wrote"),
        Some(kinds) if kinds & kind::CONTEXT != 0 => Err("it looks at its context"),
        Some(kinds) => Ok(kinds),
    }
}

/// The content of a register that must be a number.
fn number(state: &State, from: u8) -> Result<u16, &'static str> {
    match read(state, from)? {
        kinds if kinds & kind::ADDRESS == 0 => Ok(kinds),
        _ => Err("it takes an address for a number"),
    }
}

/// The result of adding a number to an address or number.
fn moved(kinds: u16) -> u16 {
    let frame = match kinds & kind::FRAME {
        0 => 0,
        _ => kind::IN_FRAME,
    };
    let address = kinds & kind::ADDRESS & !kind::FRAME | frame;
    match address {
        0 => kind::NUMBER,
        address => address,
    }
}

fn lookup(state: &mut State, map: Map) -> Step {
    match (map, state.key) {
        (Map::Attributes, key) if key != kind::NUMBER | kind::CHANNEL => {
            return Err("attributes of another channel");
        }
        (Map::Attributes, _) | (_, kind::ZERO) => {}
        _ => return Err("a lookup without its key"),
    }
    state.register[..6].fill(0);
    write(state, 0, kind_of(map))
}

/// The address that a load or store goes by.
fn base(state: &State, register: u8) -> Result<u16, &'static str> {
    let kinds = read(state, register)?;
    match kinds & !kind::ADDRESS {
        0 => Ok(kinds),
        _ => Err("it takes a number for an address"),
    }
}

fn load(state: &mut State, parts: Parts, bytes: u8) -> Step {
    let to = usize::from(parts.to);
    if parts.from == STACK {
        let at = place(parts, bytes).ok_or("it reads what nobody keeps there")?;
        return match state.stack[at] {
            0 => Err("it reads what nobody wrote"),
            kinds => write(state, to, kinds),
        };
    }
    let from = base(state, parts.from)?;
    let is_channel =
        from == kind::FRAME && bytes == 4 && i64::from(parts.offset) == i64::from(at::CHANNEL);
    let channel = if is_channel { kind::CHANNEL } else { 0 };
    write(state, to, kind::NUMBER | channel)
}

/// The place on the stack that a load or store accesses as a whole; the key's place excluded.
fn place(parts: Parts, bytes: u8) -> Option<usize> {
    let from_end = -i32::from(parts.offset);
    let is_place =
        bytes == 8 && from_end % 8 == 0 && (16..=i32::from(STACK_BYTES)).contains(&from_end);
    is_place.then(|| from_end as usize / 8 - 1)
}

fn store(state: &mut State, parts: Parts, bytes: u8) -> Step {
    if parts.to == STACK {
        let kinds = read(state, parts.from)?;
        return match place(parts, bytes) {
            Some(at) => {
                state.stack[at] = kinds;
                Ok(Next::On)
            }
            None => keep(state, parts, number(state, parts.from)?),
        };
    }
    number(state, parts.from)?;
    writable(state, parts)
}

/// Stores the key of a lookup.
fn keep(state: &mut State, parts: Parts, kinds: u16) -> Step {
    if parts.offset != KEY_OFFSET || super::bytes(parts.code) != 4 {
        return Err("it keeps something else than an address or a key");
    }
    state.key = kinds;
    Ok(Next::On)
}

/// The fields at the beginning of the frame that a program may write: begin and end of each.
const OWN: [(u32, u32); 4] = [
    (at::RANDOM, at::DROP + 4),
    (at::ACCEPTED, at::REJECTED + 8),
    (at::FAULT_PLACE, at::FAULT_PLACE + 4),
    (at::EFFECT, at::BYTES),
];

/// Whether a program may store there.
fn writable(state: &State, parts: Parts) -> Step {
    let to = base(state, parts.to)?;
    if to & !kind::WRITABLE != 0 {
        return Err("it writes what is there to be read");
    }
    if to & kind::FRAME != 0 {
        let begin = i64::from(parts.offset);
        let end = begin + i64::from(super::bytes(parts.code));
        let within = |(from, to): &(u32, u32)| begin >= i64::from(*from) && end <= i64::from(*to);
        if !OWN.iter().any(within) {
            return Err("it writes what the dispatcher tells");
        }
    }
    Ok(Next::On)
}
