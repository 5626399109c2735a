//! Instructions as the kernel has them, with virtual registers instead of its ten: what selection
//! makes and register allocation rewrites.
//!
//! They have three addresses where the kernel has two (`to = a + b`): encoding puts a move in
//! front where `to` and `a` have not been given the same register, which allocation tries. A
//! register may be written many times. Labels stand in the code.

use super::Map;
use crate::ir::Operator;
use crate::source::Span;

/// A virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct V(pub u32);

impl V {
    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Label(pub u32);

/// A register, or a constant that fits an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Register(V),
    Immediate(i32),
}

/// The condition of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    LessSigned,
    LessEqualSigned,
    GreaterSigned,
    GreaterEqualSigned,
}

impl Test {
    /// The opposite condition.
    pub(super) fn opposite(self) -> Test {
        match self {
            Test::Equal => Test::NotEqual,
            Test::NotEqual => Test::Equal,
            Test::Less => Test::GreaterEqual,
            Test::LessEqual => Test::Greater,
            Test::Greater => Test::LessEqual,
            Test::GreaterEqual => Test::Less,
            Test::LessSigned => Test::GreaterEqualSigned,
            Test::LessEqualSigned => Test::GreaterSigned,
            Test::GreaterSigned => Test::LessEqualSigned,
            Test::GreaterEqualSigned => Test::LessSigned,
        }
    }

    /// The same with its operands exchanged.
    pub(super) fn exchanged(self) -> Test {
        match self {
            Test::Less => Test::Greater,
            Test::LessEqual => Test::GreaterEqual,
            Test::Greater => Test::Less,
            Test::GreaterEqual => Test::LessEqual,
            Test::LessSigned => Test::GreaterSigned,
            Test::LessEqualSigned => Test::GreaterEqualSigned,
            Test::GreaterSigned => Test::LessSigned,
            Test::GreaterEqualSigned => Test::LessEqualSigned,
            Test::Equal | Test::NotEqual => self,
        }
    }
}

/// One instruction. `narrow`: on the lower 32 bits; a result is extended by zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inst {
    Move {
        to: V,
        from: Value,
        narrow: bool,
    },
    /// A constant that fits no other instruction.
    Wide {
        to: V,
        value: i64,
    },
    Alu {
        operator: Operator,
        to: V,
        a: V,
        b: Value,
        narrow: bool,
    },
    Negate {
        to: V,
        a: V,
        narrow: bool,
    },
    /// To 64 bits.
    SignExtend {
        to: V,
        from: V,
        bits: u8,
    },
    Load {
        to: V,
        base: V,
        offset: i16,
        bits: u8,
        signed: bool,
    },
    Store {
        base: V,
        offset: i16,
        value: Value,
        bits: u8,
    },
    /// `old`: gets the former value.
    Atomic {
        old: Option<V>,
        base: V,
        offset: i16,
        operator: Operator,
        value: V,
        bits: u8,
    },
    Jump(Label),
    Branch {
        test: Test,
        a: V,
        b: Value,
        to: Label,
    },
    /// The head of a loop: goes on, unless the kernel has had enough of it. It tells the verifier
    /// that this point may be reached again and again.
    MayGoto(Label),
    Label(Label),
    /// The address of an element (0 if `key` is none) of a map, or 0. A call: the kernel's
    /// registers 0 to 5 are lost.
    Lookup {
        to: V,
        map: Map,
        key: Option<V>,
    },
    /// The address of the only element of a map.
    Direct {
        to: V,
        map: Map,
    },
    /// From the stack, which addresses only are kept on.
    Fill {
        to: V,
        offset: i16,
    },
    /// To the stack.
    Keep {
        value: V,
        offset: i16,
    },
    /// Ends the program.
    Exit,
}

/// An instruction with where it came from and how many loops are around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub inst: Inst,
    pub span: Span,
    pub depth: u8,
}

/// A program on its way.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub lines: Vec<Line>,
    /// Virtual registers in use, and what each is for.
    pub kinds: Vec<Kind>,
    /// Labels in use.
    pub labels: u32,
    /// The address of the frame.
    pub frame: Option<V>,
}

/// What a register is for, and so where it is kept when the kernel's registers do not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number: in the frame, where the verifier knows nothing of it and so has nothing to tell
    /// states apart by.
    Number,
    /// The address of a memory: on the stack, where the verifier knows it.
    Address,
    /// Needed for a few instructions, at times as a number, at times as an address: stays where it
    /// is. No instruction of the IR needs more than five of them.
    Place,
}

impl Code {
    pub(super) fn register(&mut self) -> V {
        self.add(Kind::Number)
    }

    pub(super) fn add(&mut self, kind: Kind) -> V {
        self.kinds.push(kind);
        V(self.kinds.len() as u32 - 1)
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }
}

impl Inst {
    /// The register that is written.
    pub(super) fn written(&self) -> Option<V> {
        match *self {
            Inst::Move { to, .. }
            | Inst::Wide { to, .. }
            | Inst::Alu { to, .. }
            | Inst::Negate { to, .. }
            | Inst::SignExtend { to, .. }
            | Inst::Load { to, .. }
            | Inst::Lookup { to, .. }
            | Inst::Fill { to, .. }
            | Inst::Direct { to, .. } => Some(to),
            Inst::Atomic { old, .. } => old,
            Inst::Store { .. }
            | Inst::Keep { .. }
            | Inst::Jump(_)
            | Inst::Branch { .. }
            | Inst::MayGoto(_)
            | Inst::Label(_)
            | Inst::Exit => None,
        }
    }

    /// The registers that are read.
    pub(super) fn read(&self) -> [Option<V>; 2] {
        let register = |value: Value| match value {
            Value::Register(v) => Some(v),
            Value::Immediate(_) => None,
        };
        match *self {
            Inst::Move { from, .. } => [register(from), None],
            Inst::Alu { a, b, .. } | Inst::Branch { a, b, .. } => [Some(a), register(b)],
            Inst::Negate { a, .. } => [Some(a), None],
            Inst::SignExtend { from, .. } => [Some(from), None],
            Inst::Load { base, .. } => [Some(base), None],
            Inst::Store { base, value, .. } => [Some(base), register(value)],
            Inst::Atomic { base, value, .. } => [Some(base), Some(value)],
            Inst::Lookup { key, .. } => [key, None],
            Inst::Keep { value, .. } => [Some(value), None],
            Inst::Fill { .. }
            | Inst::Wide { .. }
            | Inst::Direct { .. }
            | Inst::Jump(_)
            | Inst::MayGoto(_)
            | Inst::Label(_)
            | Inst::Exit => [None, None],
        }
    }

    /// Calls `rename` on every register that is read.
    pub(super) fn rename_read(&mut self, mut rename: impl FnMut(V) -> V) {
        let mut value = |value: &mut Value| {
            if let Value::Register(v) = value {
                *v = rename(*v);
            }
        };
        match self {
            Inst::Move { from, .. } => value(from),
            Inst::Alu { a, b, .. } | Inst::Branch { a, b, .. } => {
                value(b);
                *a = rename(*a);
            }
            Inst::Negate { a: v, .. }
            | Inst::SignExtend { from: v, .. }
            | Inst::Load { base: v, .. }
            | Inst::Keep { value: v, .. }
            | Inst::Lookup { key: Some(v), .. } => *v = rename(*v),
            Inst::Store {
                base,
                value: stored,
                ..
            } => {
                value(stored);
                *base = rename(*base);
            }
            Inst::Atomic { base, value, .. } => {
                *base = rename(*base);
                *value = rename(*value);
            }
            Inst::Lookup { key: None, .. }
            | Inst::Fill { .. }
            | Inst::Wide { .. }
            | Inst::Direct { .. }
            | Inst::Jump(_)
            | Inst::MayGoto(_)
            | Inst::Label(_)
            | Inst::Exit => {}
        }
    }

    /// Makes it write another register.
    pub(super) fn rename_written(&mut self, other: V) {
        match self {
            Inst::Move { to, .. }
            | Inst::Wide { to, .. }
            | Inst::Alu { to, .. }
            | Inst::Negate { to, .. }
            | Inst::SignExtend { to, .. }
            | Inst::Load { to, .. }
            | Inst::Lookup { to, .. }
            | Inst::Fill { to, .. }
            | Inst::Atomic { old: Some(to), .. }
            | Inst::Direct { to, .. } => *to = other,
            Inst::Store { .. }
            | Inst::Keep { .. }
            | Inst::Atomic { old: None, .. }
            | Inst::Jump(_)
            | Inst::Branch { .. }
            | Inst::MayGoto(_)
            | Inst::Label(_)
            | Inst::Exit => {}
        }
    }

    /// Where it may go besides the next instruction.
    pub(super) fn target(&self) -> Option<Label> {
        match *self {
            Inst::Jump(to) | Inst::MayGoto(to) | Inst::Branch { to, .. } => Some(to),
            _ => None,
        }
    }

    /// Whether the next instruction is not reached from here.
    pub(super) fn ends(&self) -> bool {
        matches!(self, Inst::Jump(_) | Inst::Exit)
    }

    /// Whether nothing but a register is changed.
    pub(super) fn is_pure(&self) -> bool {
        self.written().is_some() && !matches!(self, Inst::Lookup { .. } | Inst::Atomic { .. })
    }
}
