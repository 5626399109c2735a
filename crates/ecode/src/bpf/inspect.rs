//! Checks that this compiler can have made a program for the kernel: for a process that loads
//! programs from a process that it does not trust.
//!
//! The kernel's verifier ensures that a program ends and stays within its memory. It permits much
//! more than a handler needs, though: calls of the kernel's functions, reads of its memory,
//! disclosure of addresses. So before a program is loaded, it is compared with the few forms that
//! the compiler emits:
//!
//! 1. *forms* ([`inspect`]): each instruction is one of a closed list, with nothing in the places
//!    that it does not use; jumps go to instructions; the only call is the lookup of a listed map,
//!    with everything around it as `encode` writes it;
//! 2. *beginning*: all lookups come first, in one row, before anything is stored in a map. So the
//!    key of the attributes is what the dispatcher has put into the frame;
//! 3. *addresses* (`flow`): for each place in the program and each register, what may be in it. An
//!    address is moved by numbers, compared with 0, and kept on the stack. It is never stored
//!    elsewhere, computed with otherwise, or told apart from another one. What the context is, a
//!    program does not look at. Only the frame and the state are written to, and of the frame's
//!    first part only what is a program's to write.
//!
//! Not checked: whether the fuel is counted (the kernel ends a loop after a quarter of a second,
//! and the budget of the user's handlers comes after that), and where within the frame and the
//! state a computed distance leads.

mod flow;

use std::fmt;

use super::encode::code;
use super::{Map, Object};

/// The first instruction that this compiler would not emit, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    pub instruction: usize,
    /// The reason for which a program is refused.
    pub why: &'static str,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}: {}", self.instruction, self.why)
    }
}

impl std::error::Error for Foreign {}

/// The fields of an instruction, `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) code: u8,
    pub(super) to: u8,
    pub(super) from: u8,
    pub(super) offset: i16,
    pub(super) constant: i32,
}

impl Parts {
    pub(super) fn of(word: u64) -> Parts {
        Parts {
            code: word as u8,
            to: (word >> 8) as u8 & 15,
            from: (word >> 12) as u8 & 15,
            offset: (word >> 16) as u16 as i16,
            constant: (word >> 32) as u32 as i32,
        }
    }

    fn class(self) -> u8 {
        self.code & 7
    }
}

const STACK: u8 = 10;
const KEY_OFFSET: i16 = -4;
/// Bytes of the stack that a program may keep addresses in, from its end.
const STACK_BYTES: i16 = 512;

/// The code of the second half of a wide constant.
const HALF: u8 = 0;

/// The meaning of an instruction, once its form is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `to = from`, all 64 bits, where `from` is a register.
    Copy,
    /// `to = ` a number, or `from` in a form that cannot be an address.
    Number,
    /// `to += from`, 64 bits, a register.
    Add,
    /// `to += constant`, 64 bits.
    Shift,
    /// `to` becomes a number made of itself and, if `with`, of `from`.
    Compute {
        with: bool,
    },
    /// The first half of a wide constant.
    Wide,
    /// The address of the value of a map.
    Direct(Map),
    /// The second half of a wide constant.
    Half,
    /// The first half of the map of a lookup; the call is [`LOOKUP`] instructions later.
    Lookup(Map),
    /// An instruction between the map of a lookup and its call.
    Within,
    /// Reads memory.
    Load {
        bytes: u8,
    },
    /// Writes a register to memory.
    Store {
        bytes: u8,
    },
    /// Writes a constant to memory.
    StoreConstant,
    /// `memory op= from`, and whether `from` receives the former value.
    Atomic {
        fetch: bool,
    },
    Jump(usize),
    /// The target, and whether it tests for (in)equality with the constant 0.
    Branch {
        to: usize,
        with: bool,
        zero: bool,
    },
    MayGoto(usize),
    Exit,
}

/// Instructions from the map's first half to the call.
const LOOKUP: usize = 4;

/// Checks a program. `allowed`: maps that it may use.
///
/// # Errors
/// The first instruction that this compiler would not emit.
pub fn inspect(object: &Object, allowed: &[Map]) -> Result<(), Foreign> {
    let forms = forms(object, allowed)?;
    beginning(object, &forms)?;
    flow::follow(object, &forms)
}

fn foreign<T>(instruction: usize, why: &'static str) -> Result<T, Foreign> {
    Err(Foreign { instruction, why })
}

fn forms(object: &Object, allowed: &[Map]) -> Result<Vec<Form>, Foreign> {
    let count = object.instructions.len();
    let mut maps = vec![None; count];
    for used in &object.maps {
        let at = used.instruction as usize;
        match maps.get_mut(at) {
            Some(place @ None) if allowed.contains(&used.map) => *place = Some(used.map),
            _ => return foreign(at, "a map that is not there for it"),
        }
    }
    let mut forms = vec![Form::Within; count];
    let mut at = 0;
    while at < count {
        let parts = Parts::of(object.instructions[at]);
        let form = form(object, &maps, at, parts)?;
        forms[at] = form;
        at += match form {
            Form::Lookup(_) => 1 + LOOKUP,
            Form::Wide | Form::Direct(_) => {
                forms[at + 1] = Form::Half;
                2
            }
            _ => {
                if maps[at].is_some() {
                    return foreign(at, "a map in an instruction that has none");
                }
                1
            }
        };
    }
    for (at, form) in forms.iter().enumerate() {
        if let Form::Jump(to) | Form::Branch { to, .. } | Form::MayGoto(to) = form
            && matches!(forms.get(*to), None | Some(Form::Half | Form::Within))
        {
            return foreign(at, "a jump to where no instruction begins");
        }
    }
    match forms.last() {
        Some(Form::Exit | Form::Jump(_)) => Ok(forms),
        _ => foreign(count, "no end"),
    }
}

fn form(object: &Object, maps: &[Option<Map>], at: usize, parts: Parts) -> Result<Form, Foreign> {
    let Parts { code, to, .. } = parts;
    if parts.to > STACK || parts.from > STACK {
        return foreign(at, "a register that does not exist");
    }
    let form = match parts.class() {
        0 => return wide(object, maps, at, parts),
        1 => load(parts),
        2 | 3 => store(parts),
        4 | 7 => arithmetic(parts),
        _ if code == code::EXIT => parts.is(code, 0, 0, 0, 0).then_some(Form::Exit),
        5 => jump(at, parts),
        _ => None,
    };
    let Some(form) = form else {
        return foreign(at, "no instruction of E-code");
    };
    let writes = !matches!(
        form,
        Form::Store { .. } | Form::StoreConstant | Form::Atomic { .. } | Form::Branch { .. }
    );
    if writes && to == STACK {
        return foreign(at, "it changes where the stack is");
    }
    Ok(form)
}

impl Parts {
    fn is(self, code: u8, to: u8, from: u8, offset: i16, constant: i32) -> bool {
        let wanted = Parts {
            code,
            to,
            from,
            offset,
            constant,
        };
        self == wanted
    }

    /// Whether the second operand is a register; `None` if the field of the other form is not
    /// empty.
    fn operand(self) -> Option<bool> {
        match self.code & code::REGISTER != 0 {
            true => (self.constant == 0).then_some(true),
            false => (self.from == 0).then_some(false),
        }
    }
}

fn wide(object: &Object, maps: &[Option<Map>], at: usize, parts: Parts) -> Result<Form, Foreign> {
    let half = |at: usize| object.instructions.get(at).map(|word| Parts::of(*word));
    let Some(high) = half(at + 1) else {
        return foreign(at, "half a constant");
    };
    if parts.code != code::WIDE || parts.offset != 0 || !high.is(HALF, 0, 0, 0, high.constant) {
        return foreign(at, "no instruction of E-code");
    }
    if maps[at + 1].is_some() {
        return foreign(at, "a map in half a constant");
    }
    let empty = parts.constant == 0 && high.constant == 0;
    match (parts.from, maps[at]) {
        (0, None) => Ok(Form::Wide),
        (code::SOURCE_MAP_VALUE, Some(map @ Map::State)) if empty => Ok(Form::Direct(map)),
        (code::SOURCE_MAP, Some(map)) if empty && parts.to == 1 => {
            let copy = code::ALU64 | code::MOVE | code::REGISTER;
            let is_lookup = half(at + 2).is_some_and(|two| two.is(copy, 2, STACK, 0, 0))
                && half(at + 3).is_some_and(|two| two.is(code::ALU64, 2, 0, 0, -4))
                && half(at + 4).is_some_and(|two| two.is(code::CALL, 0, 0, 0, code::LOOKUP))
                && (at + 1..=at + LOOKUP).all(|at| maps[at].is_none());
            match is_lookup {
                true => Ok(Form::Lookup(map)),
                false => foreign(at, "a map that is not looked up"),
            }
        }
        _ => foreign(at, "a constant that is neither a number nor a listed map"),
    }
}

/// The number of bytes that a load or store accesses.
fn bytes(code: u8) -> u8 {
    match code & 0x18 {
        0x10 => 1,
        0x08 => 2,
        0x00 => 4,
        _ => 8,
    }
}

fn load(parts: Parts) -> Option<Form> {
    let bytes = bytes(parts.code);
    let plain = parts.code & !0x18 == code::LOAD;
    let signed = parts.code & !0x18 == code::LOAD_SIGNED && bytes < 8;
    ((plain || signed) && parts.constant == 0).then_some(Form::Load { bytes })
}

fn store(parts: Parts) -> Option<Form> {
    let bytes = bytes(parts.code);
    match parts.code & !0x18 {
        code::STORE_CONSTANT if parts.from == 0 => Some(Form::StoreConstant),
        code::STORE if parts.constant == 0 => Some(Form::Store { bytes }),
        // Exchanges are not emitted.
        code::ATOMIC if bytes >= 4 => {
            let fetch = parts.constant & code::FETCH != 0;
            matches!(parts.constant & !code::FETCH, 0x00 | 0x40 | 0x50 | 0xa0)
                .then_some(Form::Atomic { fetch })
        }
        _ => None,
    }
}

fn arithmetic(parts: Parts) -> Option<Form> {
    let register = parts.operand()?;
    let wide = parts.class() == code::ALU64;
    let operator = parts.code & 0xf0;
    if operator == code::MOVE {
        return match (register, wide, parts.offset) {
            (true, true, 0) => Some(Form::Copy),
            (true, true, 8 | 16 | 32) => Some(Form::Number),
            (_, _, 0) => Some(Form::Number),
            _ => None,
        };
    }
    if operator == code::NEGATE {
        let plain = !register && parts.offset == 0 && parts.constant == 0;
        return plain.then_some(Form::Compute { with: false });
    }
    let divides = matches!(operator, 0x30 | 0x90);
    let known = matches!(
        operator,
        0x00 | 0x10 | 0x20 | 0x30 | 0x40 | 0x50 | 0x60 | 0x70 | 0x90 | 0xa0 | 0xc0
    );
    if !known || !(parts.offset == 0 || divides && parts.offset == 1) {
        return None;
    }
    Some(match (operator, wide, register) {
        (0x00, true, true) => Form::Add,
        (0x00, true, false) => Form::Shift,
        _ => Form::Compute { with: register },
    })
}

fn jump(at: usize, parts: Parts) -> Option<Form> {
    let to = usize::try_from(at as i64 + 1 + i64::from(parts.offset)).ok()?;
    let nothing_else = parts.to == 0 && parts.from == 0 && parts.constant == 0;
    match parts.code {
        code::JUMP => return nothing_else.then_some(Form::Jump(to)),
        code::MAY_GOTO => return nothing_else.then_some(Form::MayGoto(to)),
        _ => {}
    }
    let with = parts.operand()?;
    let question = parts.code & 0xf0;
    let known = matches!(
        question,
        0x10 | 0x20 | 0x30 | 0x40 | 0x50 | 0x60 | 0x70 | 0xa0 | 0xb0 | 0xc0 | 0xd0
    );
    let equality = matches!(question, 0x10 | 0x50);
    known.then_some(Form::Branch {
        to,
        with,
        zero: equality && !with && parts.constant == 0,
    })
}

/// Only after the last lookup may a program jump backwards or write to a map.
fn beginning(object: &Object, forms: &[Form]) -> Result<(), Foreign> {
    let is_lookup = |form: &Form| matches!(form, Form::Lookup(_));
    let Some(last) = forms.iter().rposition(is_lookup) else {
        return foreign(0, "it looks up nothing");
    };
    for (at, form) in forms.iter().enumerate() {
        match form {
            Form::Jump(to) | Form::Branch { to, .. } | Form::MayGoto(to) if *to <= last => {
                return foreign(at, "a jump to before a lookup");
            }
            // The branch of a lookup that found nothing leads to the end.
            Form::Jump(_) | Form::MayGoto(_) | Form::Atomic { .. } | Form::Exit if at < last => {
                return foreign(at, "something else before a lookup");
            }
            Form::Store { .. } | Form::StoreConstant if at < last => {
                let parts = Parts::of(object.instructions[at]);
                if parts.to != STACK {
                    return foreign(at, "a store before a lookup");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
