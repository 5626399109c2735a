//! Instructions as the kernel has them, with virtual registers instead of its ten: what selection
//! makes and register allocation rewrites.
//!
//! They have three addresses where the kernel has two (`to = a + b`): encoding puts a move in
//! front where `to` and `a` have not been given the same register, which allocation tries. A
//! register may be written many times. Labels stand in the code.

use super::Map;
use crate::ir::Operator;
use crate::source::Span;

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

impl Value {
    fn register_mut(&mut self) -> Option<&mut V> {
        match self {
            Value::Register(v) => Some(v),
            Value::Immediate(_) => None,
        }
    }
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

    /// The equivalent condition with exchanged operands.
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
    /// Extends by the sign to 64 bits.
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
    /// An atomic operation on memory; `old` receives the former value.
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
    /// The head of a loop. It jumps only if the loop has taken too long; it tells the verifier that
    /// this point is reached repeatedly.
    MayGoto(Label),
    Label(Label),
    /// The address of a map's element (element 0 without `key`), or 0. This is a call, which
    /// overwrites the registers 0 to 5.
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
    /// Loads an address from the stack, which holds only addresses.
    Fill {
        to: V,
        offset: i16,
    },
    /// Stores an address on the stack.
    Keep {
        value: V,
        offset: i16,
    },
    /// Ends the program.
    Exit,
}

/// An instruction with its part of the text and the number of loops around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub inst: Inst,
    pub span: Span,
    pub depth: u8,
}

/// A program in this form.
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
    /// A number: kept in the frame, where the verifier does not track it and so cannot distinguish
    /// states by it.
    Number,
    /// The address of a memory: kept on the stack, where the verifier tracks it.
    Address,
    /// Live for a few instructions, as a number or as an address: never moved to memory. No
    /// instruction of the IR needs more than five of them.
    Scratch,
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
        let mut copy = *self;
        copy.written_mut().copied()
    }

    /// Makes it write another register.
    pub(super) fn rename_written(&mut self, other: V) {
        if let Some(to) = self.written_mut() {
            *to = other;
        }
    }

    fn written_mut(&mut self) -> Option<&mut V> {
        match self {
            Inst::Move { to, .. }
            | Inst::Wide { to, .. }
            | Inst::Alu { to, .. }
            | Inst::Negate { to, .. }
            | Inst::SignExtend { to, .. }
            | Inst::Load { to, .. }
            | Inst::Lookup { to, .. }
            | Inst::Fill { to, .. }
            | Inst::Direct { to, .. } => Some(to),
            Inst::Atomic { old, .. } => old.as_mut(),
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
        let mut copy = *self;
        copy.read_mut().map(Option::<&mut V>::copied)
    }

    /// Calls `rename` on every register that is read.
    pub(super) fn rename_read(&mut self, mut rename: impl FnMut(V) -> V) {
        for v in self.read_mut().into_iter().flatten() {
            *v = rename(*v);
        }
    }

    fn read_mut(&mut self) -> [Option<&mut V>; 2] {
        match self {
            Inst::Move { from, .. } => [from.register_mut(), None],
            Inst::Alu { a, b, .. } | Inst::Branch { a, b, .. } => [Some(a), b.register_mut()],
            Inst::Store { base, value, .. } => [Some(base), value.register_mut()],
            Inst::Atomic { base, value, .. } => [Some(base), Some(value)],
            Inst::Negate { a: v, .. }
            | Inst::SignExtend { from: v, .. }
            | Inst::Load { base: v, .. }
            | Inst::Keep { value: v, .. } => [Some(v), None],
            Inst::Lookup { key, .. } => [key.as_mut(), None],
            Inst::Fill { .. }
            | Inst::Wide { .. }
            | Inst::Direct { .. }
            | Inst::Jump(_)
            | Inst::MayGoto(_)
            | Inst::Label(_)
            | Inst::Exit => [None, None],
        }
    }

    /// The label to which it may jump.
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

    /// Whether it changes nothing but a register.
    pub(super) fn is_pure(&self) -> bool {
        self.written().is_some() && !matches!(self, Inst::Lookup { .. } | Inst::Atomic { .. })
    }
}
