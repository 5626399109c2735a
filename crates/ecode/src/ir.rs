//! The intermediate representation: the output of lowering, from which the program for the kernel
//! and the one for user space are made. It is a single function, the body: local functions have
//! been expanded where they are called.
//!
//! Values are 64-bit words in registers without number limit; narrower types are kept extended by
//! explicit [`Op::Extend`]. Control is structured, as in WebAssembly: [`Op::Exit`] leaves blocks
//! outwards, and the only way back is [`Op::Loop`], whose body repeats until something leaves it.
//! So every loop is marked as a loop, which the kernel's verifier needs, and there are no other
//! jumps backwards.
//!
//! Registers are 0 when a run begins, though lowering writes each register before it reads it.
//!
//! Memory is a few regions ([`Region`]); an access is a region, a fixed offset, and at most one
//! register, which [`Op::Bound`] has bounded before. Lowering ensures that each access is aligned
//! to its size and inside the region.

pub mod counting;
pub mod early;
pub mod facts;
mod invariant;
pub mod print;
pub mod verify;

use std::fmt;

use crate::source::Span;
use crate::tree::BinaryOperator;
pub use crate::tree::Fault;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub body: Vec<Instruction>,
    /// Registers in use: 0..registers.
    pub registers: u32,
    /// Bytes of [`Region::Locals`] in use.
    pub locals: u32,
    /// The number of bytes at the beginning of the input that the program may read. A run on an
    /// event with fewer bytes fails at its beginning ([`Fault::Input`]).
    pub input: u32,
    /// Bytes of the output. A run begins by setting them, up to a multiple of 8, to 0.
    pub output: u32,
    /// The state: its initial content, and the names of the variables in it.
    pub state: State,
    /// Iterations allowed.
    pub fuel: u32,
    /// The largest number of iterations of a run, if it is known and not beyond `fuel`.
    pub fuel_most: Option<u32>,
    /// The largest number of iterations of a run, if it is known and exceeds `fuel`.
    pub fuel_wanted: Option<u64>,
    /// The depth of nested loops; 1 if no loop is within another.
    pub loop_depth: u32,
    /// Whether the text accepts sinks (`accept`, `best`): then those that it does not accept get
    /// nothing. Otherwise those that it does not reject get the event.
    pub accepts: bool,
}

impl Program {
    /// Whether the fuel always suffices, so that no [`Op::Burn`] needs a check.
    pub fn never_lacks_fuel(&self) -> bool {
        self.fuel_most.is_some_and(|most| most <= self.fuel)
    }
}

/// The statics, which are kept from run to run, and the constant tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The initial content; its length is a multiple of 8.
    pub bytes: Vec<u8>,
    /// The variables in it. When a program replaces another, variables of the same name and type
    /// keep their bytes.
    pub entries: Vec<StateEntry>,
}

impl State {
    /// The initial content of a program that replaces another one, whose state is described by
    /// `former` and has the content `now`: variables of the same name and type keep their bytes.
    pub fn carry(&self, former: &State, now: &[u8]) -> Vec<u8> {
        let range = |entry: &StateEntry| {
            let begin = entry.offset as usize;
            begin..begin + entry.bytes as usize
        };
        let mut bytes = self.bytes.clone();
        for entry in self.entries.iter().filter(|entry| !entry.constant) {
            let same = former.entries.iter().find(|other| {
                !other.constant
                    && other.name == entry.name
                    && other.ty == entry.ty
                    && other.bytes == entry.bytes
            });
            let from = same.and_then(|same| now.get(range(same)));
            if let (Some(from), Some(to)) = (from, bytes.get_mut(range(entry))) {
                to.copy_from_slice(from);
            }
        }
        bytes
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct StateEntry {
    /// The variable's name.
    pub name: String,
    /// The type with the types of its parts, as text: equal texts mean equal types.
    pub ty: String,
    pub offset: u32,
    /// Its size.
    pub bytes: u32,
    /// Whether it is a constant table, which a replacing program does not keep.
    pub constant: bool,
}

/// A register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub u32);

/// A register or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// A constant.
    Constant(i64),
}

/// An instruction with the text it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// The operation.
    pub op: Op,
    /// Where it came from.
    pub span: Span,
}

/// The operation of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `to = from`
    Set {
        to: Register,
        /// Value.
        from: Operand,
    },
    /// `to = a OP b`
    Binary {
        to: Register,
        operator: Operator,
        a: Operand,
        b: Operand,
    },
    /// `to = a OP b ? 1 : 0`
    Compare {
        to: Register,
        relation: Relation,
        a: Operand,
        b: Operand,
    },
    /// `to` = the lower `bits` of `from`, extended to 64 bits.
    Extend {
        to: Register,
        /// Value.
        from: Operand,
        /// 8, 16 or 32.
        bits: u8,
        /// Whether it is extended by its sign; else by zeros.
        signed: bool,
    },
    /// Ends the run with [`Fault::Index`] unless `index` < `count`, compared without sign.
    /// Afterwards, until the register is written, it is known to be less than `count`. The
    /// simplifier removes a check that it can prove.
    Bound {
        /// The index.
        index: Register,
        /// Elements of the array.
        count: u32,
    },
    /// `to = memory`
    Load {
        to: Register,
        /// Where from.
        from: Address,
        /// 8, 16, 32 or 64.
        bits: u8,
        /// Whether the value is extended by its sign; else by zeros.
        signed: bool,
    },
    /// `memory = value`, its lower `bits`.
    Store {
        to: Address,
        /// Value.
        value: Operand,
        /// 8, 16, 32 or 64.
        bits: u8,
    },
    /// `memory OP= value`, atomically; only [`Operator::Add`], And, Or, Xor; 32 or 64 bits.
    Atomic {
        /// The register that receives the former value, extended by zeros, if the program uses it.
        old: Option<Register>,
        to: Address,
        operator: Operator,
        /// Value.
        value: Operand,
        /// 32 or 64.
        bits: u8,
    },
    /// Copies; both addresses and `bytes` are multiples of `align` (1, 2, 4, 8). At most
    /// [`crate::limits::REGION_BYTES`]. The two ranges are equal or do not overlap.
    Copy {
        to: Address,
        /// Where from.
        from: Address,
        /// How many.
        bytes: u32,
        /// The alignment of both addresses.
        align: u8,
    },
    /// Sets to 0; like [`Op::Copy`].
    Zero {
        to: Address,
        /// How many.
        bytes: u32,
        /// The alignment of the address.
        align: u8,
    },
    If {
        relation: Relation,
        a: Operand,
        b: Operand,
        /// Executed if the relation holds.
        then: Vec<Instruction>,
        /// Executed if it does not hold.
        otherwise: Vec<Instruction>,
    },
    /// A list of instructions. [`Op::Exit`] with its label continues after it.
    Block {
        /// Its label, unique in the program.
        label: Label,
        /// The instructions in it.
        body: Vec<Instruction>,
    },
    /// A loop: the end of the body starts the next iteration, [`Op::Exit`] with its label continues
    /// after the loop.
    Loop {
        /// Its label, unique in the program.
        label: Label,
        body: Vec<Instruction>,
    },
    /// Leaves the enclosing block or loop of that label.
    Exit(Label),
    /// Takes so many units of fuel. With less fuel the run ends with [`Fault::Fuel`], and none is
    /// left.
    Burn(u32),
    /// `to` = the lowest bit set in `mask` above position `after`, or -1.
    NextBit {
        to: Register,
        mask: Operand,
        /// -1..63
        after: Operand,
    },
    /// Adds a request; if there are too many, the run ends with [`Fault::Effects`] and without it.
    Effect {
        /// [`crate::frame::effect`]
        kind: u32,
        number: Operand,
        values: [Operand; 3],
    },
    /// Ends the run with this result.
    Return(Operand),
    /// Ends the run with a fault; the result is then 1.
    Fail(Fault),
}

/// The label of a [`Op::Block`] or [`Op::Loop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(pub u32);

/// Arithmetic on 64 bits, which wraps; [`crate::tree`] defines each operator. Narrower arithmetic
/// is this followed by [`Op::Extend`], except for shifts to the right, divisions and remainders,
/// whose operands are extended already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    /// `/` without sign; by 0: 0
    Divide,
    /// `/` with sign; by 0: 0
    DivideSigned,
    /// `%` without sign; by 0: the left operand
    Remainder,
    /// `%` with sign; by 0: the left operand
    RemainderSigned,
    And,
    Or,
    Xor,
    /// `<<`; the count modulo 64 (lowering masks it for narrower types)
    ShiftLeft,
    /// `>>` without sign
    ShiftRight,
    /// `>>` with sign
    ShiftRightSigned,
}

impl Operator {
    /// All of them.
    pub const ALL: [Operator; 13] = [
        Operator::Add,
        Operator::Subtract,
        Operator::Multiply,
        Operator::Divide,
        Operator::DivideSigned,
        Operator::Remainder,
        Operator::RemainderSigned,
        Operator::And,
        Operator::Or,
        Operator::Xor,
        Operator::ShiftLeft,
        Operator::ShiftRight,
        Operator::ShiftRightSigned,
    ];
}

/// A comparison of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    Equal,
    NotEqual,
    /// `<` without sign
    Less,
    /// `<=` without sign
    LessEqual,
    /// `<` with sign
    LessSigned,
    /// `<=` with sign
    LessEqualSigned,
}

impl Operand {
    /// The register, if it is one.
    pub fn register(self) -> Option<Register> {
        match self {
            Operand::Register(register) => Some(register),
            Operand::Constant(_) => None,
        }
    }
}

impl Operator {
    /// The operator for this operation on integers; `None` for a comparison.
    pub fn of_integers(operator: BinaryOperator, signed: bool) -> Option<Operator> {
        Some(match (operator, signed) {
            (BinaryOperator::Add, _) => Operator::Add,
            (BinaryOperator::Subtract, _) => Operator::Subtract,
            (BinaryOperator::Multiply, _) => Operator::Multiply,
            (BinaryOperator::Divide, false) => Operator::Divide,
            (BinaryOperator::Divide, true) => Operator::DivideSigned,
            (BinaryOperator::Remainder, false) => Operator::Remainder,
            (BinaryOperator::Remainder, true) => Operator::RemainderSigned,
            (BinaryOperator::And, _) => Operator::And,
            (BinaryOperator::Or, _) => Operator::Or,
            (BinaryOperator::Xor, _) => Operator::Xor,
            (BinaryOperator::ShiftLeft, _) => Operator::ShiftLeft,
            (BinaryOperator::ShiftRight, false) => Operator::ShiftRight,
            (BinaryOperator::ShiftRight, true) => Operator::ShiftRightSigned,
            _ => return None,
        })
    }

    /// Whether the operands may be exchanged.
    pub fn commutes(self) -> bool {
        matches!(
            self,
            Operator::Add | Operator::Multiply | Operator::And | Operator::Or | Operator::Xor
        )
    }

    /// Whether the lower 32 bits of the result depend only on the lower 32 bits of the operands.
    pub fn is_modular(self) -> bool {
        self.commutes() || self == Operator::Subtract
    }

    /// The result for two numbers.
    pub fn apply(self, a: i64, b: i64) -> i64 {
        let (ua, ub) = (a as u64, b as u64);
        match self {
            Operator::Add => a.wrapping_add(b),
            Operator::Subtract => a.wrapping_sub(b),
            Operator::Multiply => a.wrapping_mul(b),
            Operator::Divide => ua.checked_div(ub).unwrap_or(0) as i64,
            Operator::DivideSigned if b == 0 => 0,
            Operator::DivideSigned => a.wrapping_div(b),
            Operator::Remainder => ua.checked_rem(ub).unwrap_or(ua) as i64,
            Operator::RemainderSigned if b == 0 => a,
            Operator::RemainderSigned => a.wrapping_rem(b),
            Operator::And => a & b,
            Operator::Or => a | b,
            Operator::Xor => a ^ b,
            Operator::ShiftLeft => a.wrapping_shl(b as u32),
            Operator::ShiftRight => ua.wrapping_shr(b as u32) as i64,
            Operator::ShiftRightSigned => a.wrapping_shr(b as u32),
        }
    }
}

impl Relation {
    /// Whether it holds.
    pub fn holds(self, a: i64, b: i64) -> bool {
        match self {
            Relation::Equal => a == b,
            Relation::NotEqual => a != b,
            Relation::Less => (a as u64) < b as u64,
            Relation::LessEqual => a as u64 <= b as u64,
            Relation::LessSigned => a < b,
            Relation::LessEqualSigned => a <= b,
        }
    }

    /// The negated relation, and whether its operands have to be swapped.
    pub fn opposite(self) -> (Relation, bool) {
        match self {
            Relation::Equal => (Relation::NotEqual, false),
            Relation::NotEqual => (Relation::Equal, false),
            Relation::Less => (Relation::LessEqual, true),
            Relation::LessEqual => (Relation::Less, true),
            Relation::LessSigned => (Relation::LessEqualSigned, true),
            Relation::LessEqualSigned => (Relation::LessSigned, true),
        }
    }
}

/// The result of [`Op::NextBit`].
pub fn next_bit(mask: u64, after: i64) -> i64 {
    let above = match after {
        63.. => 0,
        0.. => mask & (u64::MAX << (after + 1)),
        _ => mask,
    };
    if above == 0 {
        -1
    } else {
        i64::from(above.trailing_zeros())
    }
}

/// The result of [`Op::Extend`].
pub fn extend(value: i64, bits: u8, signed: bool) -> i64 {
    crate::types::Int::new(bits, signed).wrap(value)
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Which memory.
    pub region: Region,
    /// Bytes from its beginning.
    pub offset: u32,
    /// A computed offset in addition.
    pub index: Option<Dynamic>,
}

/// An offset that is computed in the run, in bytes. Its register is a sum of bounded indices times
/// strides and is at most `largest`; the back end for the kernel may check this again where the
/// verifier cannot derive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dynamic {
    pub register: Register,
    /// Its largest value.
    pub largest: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// The event's header (abi/event.h): read-only, [`crate::frame::at::EVENT_DATA`] bytes.
    Event,
    /// The event's data: read-only, [`Program::input`] bytes.
    Input,
    /// The frame's head ([`crate::frame::at`], up to `EFFECT`).
    Frame,
    /// [`Program::output`] bytes.
    Output,
    /// [`Program::locals`] bytes, with the content that the former run left.
    Locals,
    /// [`Program::state`]. Other CPUs may use it at the same time.
    State,
    /// The channel's attributes: s64 [`crate::limits::ATTRIBUTES`]; read-only.
    Attributes,
    /// The table of sinks ([`crate::frame::at::SINK_BYTES`] each); read-only.
    Sinks,
}

impl Op {
    /// The lists of instructions in this instruction.
    pub fn bodies(&self) -> impl Iterator<Item = &[Instruction]> {
        let (one, other): (&[Instruction], &[Instruction]) = match self {
            Op::If {
                then, otherwise, ..
            } => (then, otherwise),
            Op::Block { body, .. } | Op::Loop { body, .. } => (body, &[]),
            _ => (&[], &[]),
        };
        [one, other].into_iter().filter(|list| !list.is_empty())
    }

    /// The lists of instructions in this instruction, to be changed.
    pub fn bodies_mut(&mut self, visit: &mut dyn FnMut(&mut Vec<Instruction>)) {
        match self {
            Op::If {
                then, otherwise, ..
            } => {
                visit(then);
                visit(otherwise);
            }
            Op::Block { body, .. } | Op::Loop { body, .. } => visit(body),
            _ => {}
        }
    }

    /// The register that this instruction itself writes, to be changed.
    pub fn target(&mut self) -> Option<&mut Register> {
        match self {
            Op::Set { to, .. }
            | Op::Binary { to, .. }
            | Op::Compare { to, .. }
            | Op::Extend { to, .. }
            | Op::Load { to, .. }
            | Op::Atomic { old: Some(to), .. }
            | Op::NextBit { to, .. } => Some(to),
            _ => None,
        }
    }

    /// The register that this instruction itself writes, not the instructions in it.
    pub fn writes(&self) -> Option<Register> {
        match self {
            Op::Set { to, .. }
            | Op::Binary { to, .. }
            | Op::Compare { to, .. }
            | Op::Extend { to, .. }
            | Op::Load { to, .. }
            | Op::Atomic { old: Some(to), .. }
            | Op::NextBit { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// The memory that this instruction itself accesses.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        let both = match self {
            Op::Load { from, .. } => [Some(from), None],
            Op::Store { to, .. } | Op::Atomic { to, .. } | Op::Zero { to, .. } => [Some(to), None],
            Op::Copy { to, from, .. } => [Some(to), Some(from)],
            _ => [None, None],
        };
        both.into_iter().flatten()
    }

    /// The registers that this instruction itself reads, including those in addresses.
    pub fn reads(&self) -> impl Iterator<Item = Register> {
        let index = |address: &Address| {
            let register = |index: Dynamic| Operand::Register(index.register);
            address.index.map(register)
        };
        let all = match self {
            Op::Set { from, .. } | Op::Extend { from, .. } | Op::Return(from) => {
                [Some(*from), None, None, None]
            }
            Op::Binary { a, b, .. } | Op::Compare { a, b, .. } | Op::If { a, b, .. } => {
                [Some(*a), Some(*b), None, None]
            }
            Op::Bound { index, .. } => [Some(Operand::Register(*index)), None, None, None],
            Op::Load { from: at, .. } | Op::Zero { to: at, .. } => [index(at), None, None, None],
            Op::Store { to, value, .. } | Op::Atomic { to, value, .. } => {
                [index(to), Some(*value), None, None]
            }
            Op::Copy { to, from, .. } => [index(to), index(from), None, None],
            Op::NextBit { mask, after, .. } => [Some(*mask), Some(*after), None, None],
            Op::Effect { number, values, .. } => {
                let [first, second, third] = values.map(Some);
                [Some(*number), first, second, third]
            }
            Op::Block { .. } | Op::Loop { .. } | Op::Exit(_) | Op::Burn(_) | Op::Fail(_) => {
                [None; 4]
            }
        };
        all.into_iter().flatten().filter_map(Operand::register)
    }

    /// The operands that this instruction itself reads, to be changed.
    pub fn reads_mut(&mut self, visit: &mut dyn FnMut(&mut Operand)) {
        let in_address = |address: &mut Address, visit: &mut dyn FnMut(&mut Operand)| {
            if let Some(index) = &mut address.index {
                let mut operand = Operand::Register(index.register);
                visit(&mut operand);
                if let Operand::Register(register) = operand {
                    index.register = register;
                }
            }
        };
        match self {
            Op::Set { from, .. } | Op::Extend { from, .. } => visit(from),
            Op::Binary { a, b, .. } | Op::Compare { a, b, .. } | Op::If { a, b, .. } => {
                visit(a);
                visit(b);
            }
            Op::Bound { index, .. } => {
                let mut operand = Operand::Register(*index);
                visit(&mut operand);
                if let Operand::Register(register) = operand {
                    *index = register;
                }
            }
            Op::Load { from, .. } => in_address(from, visit),
            Op::Store { to, value, .. } | Op::Atomic { to, value, .. } => {
                in_address(to, visit);
                visit(value);
            }
            Op::Copy { to, from, .. } => {
                in_address(to, visit);
                in_address(from, visit);
            }
            Op::Zero { to, .. } => in_address(to, visit),
            Op::NextBit { mask, after, .. } => {
                visit(mask);
                visit(after);
            }
            Op::Effect { number, values, .. } => {
                visit(number);
                values.iter_mut().for_each(visit);
            }
            Op::Return(value) => visit(value),
            Op::Block { .. } | Op::Loop { .. } | Op::Exit(_) | Op::Burn(_) | Op::Fail(_) => {}
        }
    }
}

impl fmt::Debug for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}
