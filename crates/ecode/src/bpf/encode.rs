//! The kernel's instructions: registers filled in, moves put in front where an instruction needs
//! its left operand in its result's register, distances of jumps computed.
//!
//! A program has fewer instructions than a jump reaches ([`crate::limits::BPF_INSTRUCTIONS`]), so
//! no jump needs a longer form.

use super::machine::{Code, Inst, Label, Test, V, Value};
use super::{Map, MapUse};
use crate::ir::Operator;
use crate::source::Span;

/// An encoded program.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    pub instructions: Vec<u64>,
    pub maps: Vec<MapUse>,
    pub spans: Vec<(u32, Span)>,
    /// Conditional jumps on the longest path that the verifier walks. Those in a loop count twice,
    /// since the verifier walks a second round; in nested loops four times, and so on.
    pub branches: usize,
    /// Instructions on that path, counted in the same way.
    pub walk: usize,
}

/// Parts of an instruction's first byte.
pub(super) mod code {
    pub(crate) const ALU32: u8 = 0x04;
    pub(crate) const ALU64: u8 = 0x07;
    pub(crate) const JUMP: u8 = 0x05;
    /// The operand is a register.
    pub(crate) const REGISTER: u8 = 0x08;
    pub(crate) const MOVE: u8 = 0xb0;
    pub(crate) const NEGATE: u8 = 0x80;
    pub(crate) const LOAD: u8 = 0x61;
    pub(crate) const LOAD_SIGNED: u8 = 0x81;
    pub(crate) const STORE_CONSTANT: u8 = 0x62;
    pub(crate) const STORE: u8 = 0x63;
    pub(crate) const ATOMIC: u8 = 0xc3;
    /// With the operator of an atomic operation: the register receives the former value.
    pub(crate) const FETCH: i32 = 1;
    pub(crate) const WIDE: u8 = 0x18;
    pub(crate) const CALL: u8 = 0x85;
    pub(crate) const EXIT: u8 = 0x95;
    pub(crate) const MAY_GOTO: u8 = 0xe5;
    /// bpf_map_lookup_elem
    pub(crate) const LOOKUP: i32 = 1;
    /// Instead of the source register of a wide constant: it is a map, or the value of its element
    /// 0.
    pub(crate) const SOURCE_MAP: u8 = 1;
    pub(crate) const SOURCE_MAP_VALUE: u8 = 2;
}

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const STACK: u8 = 10;

struct Encoder<'a> {
    out: Encoded,
    registers: &'a [u8],
    /// Where labels are, and jumps to them.
    labels: Vec<usize>,
    jumps: Vec<(usize, Label)>,
    span: Span,
    /// The number of loops around.
    depth: u8,
    /// Whether the key 0 is on the stack already.
    has_key: bool,
}

/// Encodes; `registers`: the kernel's register of each virtual one.
pub(super) fn encode(code: &Code, registers: &[u8]) -> Encoded {
    let mut encoder = Encoder {
        out: Encoded::default(),
        registers,
        labels: vec![0; code.labels as usize],
        jumps: Vec::new(),
        span: Span::default(),
        depth: 0,
        has_key: false,
    };
    for line in &code.lines {
        encoder.mark(line.span);
        encoder.depth = line.depth;
        let before = encoder.out.instructions.len();
        encoder.instruction(&line.inst);
        let many = encoder.out.instructions.len() - before;
        encoder.out.walk += many << line.depth.min(6);
    }
    encoder.resolve();
    encoder.out
}

impl Encoder<'_> {
    fn mark(&mut self, span: Span) {
        if self.span == span && !self.out.spans.is_empty() {
            return;
        }
        self.span = span;
        let at = self.out.instructions.len() as u32;
        if self.out.spans.last().is_some_and(|(last, _)| *last == at) {
            self.out.spans.pop();
        }
        self.out.spans.push((at, span));
    }

    fn resolve(&mut self) {
        for (at, label) in &self.jumps {
            let target = self
                .labels
                .get(label.0 as usize)
                .copied()
                .unwrap_or_default();
            let distance = (target as i64 - *at as i64 - 1) as i16;
            self.out.instructions[*at] |= u64::from(distance as u16) << 16;
        }
    }

    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, constant: i32) {
        let registers = u64::from(to) << 8 | u64::from(from) << 12;
        let offset = u64::from(offset as u16) << 16;
        let constant = u64::from(constant as u32) << 32;
        self.out
            .instructions
            .push(u64::from(code) | registers | offset | constant);
    }

    fn wide(&mut self, to: u8, source: u8, low: i32, high: i32) {
        self.push(code::WIDE, to, source, 0, low);
        self.push(0, 0, 0, 0, high);
    }

    fn r(&self, v: V) -> u8 {
        self.registers.get(v.at()).copied().unwrap_or(R0)
    }

    /// An instruction whose second operand is a register or a constant.
    fn push_value(&mut self, code: u8, to: u8, value: Value, offset: i16) {
        match value {
            Value::Register(v) => self.push(code | code::REGISTER, to, self.r(v), offset, 0),
            Value::Immediate(value) => self.push(code, to, 0, offset, value),
        }
    }

    fn copy(&mut self, to: u8, from: u8, narrow: bool) {
        if to != from || narrow {
            self.push(class(narrow) | code::MOVE | code::REGISTER, to, from, 0, 0);
        }
    }

    fn jump(&mut self, label: Label) {
        self.jumps.push((self.out.instructions.len(), label));
    }

    fn instruction(&mut self, inst: &Inst) {
        match *inst {
            Inst::Move {
                to,
                from: Value::Register(from),
                narrow,
            } => {
                self.copy(self.r(to), self.r(from), narrow);
            }
            Inst::Move { to, from, narrow } => {
                self.push_value(class(narrow) | code::MOVE, self.r(to), from, 0);
            }
            Inst::Wide { to, value } => {
                self.wide(self.r(to), 0, value as i32, (value >> 32) as i32);
            }
            Inst::Alu {
                operator,
                to,
                a,
                b,
                narrow,
            } => self.alu(operator, to, a, b, narrow),
            Inst::Negate { to, a, narrow } => {
                self.copy(self.r(to), self.r(a), false);
                self.push(class(narrow) | code::NEGATE, self.r(to), 0, 0, 0);
            }
            Inst::SignExtend { to, from, bits } => {
                let code = code::ALU64 | code::MOVE | code::REGISTER;
                self.push(code, self.r(to), self.r(from), i16::from(bits), 0);
            }
            Inst::Load { .. }
            | Inst::Store { .. }
            | Inst::Atomic { .. }
            | Inst::Fill { .. }
            | Inst::Keep { .. } => self.memory(inst),
            Inst::Direct { to, map } => {
                self.map(map);
                self.wide(self.r(to), code::SOURCE_MAP_VALUE, 0, 0);
            }
            Inst::Lookup { to, map, key } => self.lookup(self.r(to), map, key),
            Inst::Exit => {
                self.push(code::ALU64 | code::MOVE, R0, 0, 0, 0);
                self.push(code::EXIT, 0, 0, 0, 0);
            }
            Inst::Jump(_) | Inst::Branch { .. } | Inst::MayGoto(_) | Inst::Label(_) => {
                self.control(inst);
            }
        }
    }

    fn memory(&mut self, inst: &Inst) {
        match *inst {
            Inst::Load {
                to,
                base,
                offset,
                bits,
                signed,
            } => {
                let code = if signed {
                    code::LOAD_SIGNED
                } else {
                    code::LOAD
                };
                self.push(code | size(bits), self.r(to), self.r(base), offset, 0);
            }
            Inst::Store {
                base,
                offset,
                value,
                bits,
            } => {
                let base = self.r(base);
                match value {
                    Value::Register(v) => {
                        self.push(code::STORE | size(bits), base, self.r(v), offset, 0);
                    }
                    Value::Immediate(value) => {
                        self.push(code::STORE_CONSTANT | size(bits), base, 0, offset, value);
                    }
                }
            }
            Inst::Atomic {
                old,
                base,
                offset,
                operator,
                value,
                bits,
            } => {
                let mut operator = i32::from(code_and_offset(operator).0);
                let (mut value, code) = (self.r(value), code::ATOMIC | size(bits));
                if let Some(old) = old {
                    self.copy(self.r(old), value, false);
                    value = self.r(old);
                    operator |= code::FETCH;
                }
                self.push(code, self.r(base), value, offset, operator);
            }
            Inst::Fill { to, offset } => {
                self.push(code::LOAD | size(64), self.r(to), STACK, offset, 0);
            }
            Inst::Keep { value, offset } => {
                self.push(code::STORE | size(64), STACK, self.r(value), offset, 0);
            }
            _ => {}
        }
    }

    fn control(&mut self, inst: &Inst) {
        match *inst {
            Inst::Label(label) => {
                let at = self.out.instructions.len();
                if let Some(position) = self.labels.get_mut(label.0 as usize) {
                    *position = at;
                }
            }
            Inst::Jump(to) => {
                self.jump(to);
                self.push(code::JUMP, 0, 0, 0, 0);
            }
            Inst::MayGoto(to) => {
                self.out.branches += 1 << self.depth.min(6);
                self.jump(to);
                self.push(code::MAY_GOTO, 0, 0, 0, 0);
            }
            Inst::Branch { test, a, b, to } => {
                self.out.branches += 1 << self.depth.min(6);
                self.jump(to);
                self.push_value(code::JUMP | question(test), self.r(a), b, 0);
            }
            _ => {}
        }
    }

    fn alu(&mut self, operator: Operator, to: V, a: V, b: Value, narrow: bool) {
        let (to, a) = (self.r(to), self.r(a));
        let (mut number, offset) = code_and_offset(operator);
        let class = class(narrow);
        match b {
            Value::Register(b) if self.r(b) == to && a != to => {
                if operator == Operator::Subtract {
                    // a - to = -to + a
                    self.push(class | code::NEGATE, to, 0, 0, 0);
                    number = operator_code(Operator::Add);
                }
                // The other operators for which this can happen are commutative.
                self.push(class | number | code::REGISTER, to, a, offset, 0);
            }
            _ => {
                self.copy(to, a, false);
                self.push_value(class | number, to, b, offset);
            }
        }
    }

    fn map(&mut self, map: Map) {
        let instruction = self.out.instructions.len() as u32;
        self.out.maps.push(MapUse { instruction, map });
    }

    fn lookup(&mut self, to: u8, map: Map, key: Option<V>) {
        match key {
            Some(key) => self.push(code::STORE | size(32), STACK, self.r(key), -4, 0),
            None if self.has_key => {}
            None => self.push(code::STORE_CONSTANT | size(32), STACK, 0, -4, 0),
        }
        // Lookups are consecutive at the beginning of the program.
        self.has_key = key.is_none();
        self.map(map);
        self.wide(R1, code::SOURCE_MAP, 0, 0);
        self.copy(R2, STACK, false);
        self.push(code::ALU64 | operator_code(Operator::Add), R2, 0, 0, -4);
        self.push(code::CALL, 0, 0, 0, code::LOOKUP);
        self.copy(to, R0, false);
    }
}

fn class(narrow: bool) -> u8 {
    if narrow { code::ALU32 } else { code::ALU64 }
}

fn size(bits: u8) -> u8 {
    match bits {
        8 => 0x10,
        16 => 0x08,
        32 => 0x00,
        _ => 0x18,
    }
}

fn operator_code(operator: Operator) -> u8 {
    code_and_offset(operator).0
}

/// The operator's code, and the value of the instruction's offset field.
fn code_and_offset(operator: Operator) -> (u8, i16) {
    match operator {
        Operator::Add => (0x00, 0),
        Operator::Subtract => (0x10, 0),
        Operator::Multiply => (0x20, 0),
        Operator::Divide => (0x30, 0),
        Operator::DivideSigned => (0x30, 1),
        Operator::Or => (0x40, 0),
        Operator::And => (0x50, 0),
        Operator::ShiftLeft => (0x60, 0),
        Operator::ShiftRight => (0x70, 0),
        Operator::Remainder => (0x90, 0),
        Operator::RemainderSigned => (0x90, 1),
        Operator::Xor => (0xa0, 0),
        Operator::ShiftRightSigned => (0xc0, 0),
    }
}

fn question(test: Test) -> u8 {
    match test {
        Test::Equal => 0x10,
        Test::Greater => 0x20,
        Test::GreaterEqual => 0x30,
        Test::NotEqual => 0x50,
        Test::GreaterSigned => 0x60,
        Test::GreaterEqualSigned => 0x70,
        Test::Less => 0xa0,
        Test::LessEqual => 0xb0,
        Test::LessSigned => 0xc0,
        Test::LessEqualSigned => 0xd0,
    }
}
