//! From the structured IR to flat code. Blocks and loops become targets of jumps. A loop that
//! begins with its condition checks the condition again at its end, so it jumps once in each
//! iteration instead of twice.

use std::collections::HashMap;

use super::code::{Code, CopyRow, EffectRow, Slot, Target, There};
use super::memory::Layout;
use crate::ir::{Address, Instruction, Label, Op, Operand, Operator, Program, Register, Relation};
use crate::source::Span;

/// The code that a machine executes.
#[derive(Debug, Default)]
pub(super) struct Flat {
    pub(super) code: Vec<Code>,
    /// The part of the text of each instruction.
    pub(super) spans: Vec<Span>,
    pub(super) copies: Vec<CopyRow>,
    pub(super) effects: Vec<EffectRow>,
    /// Constants and the slots that they are in.
    pub(super) constants: Vec<(Slot, i64)>,
    /// Slots in use.
    pub(super) slots: usize,
}

/// Flattens a program.
pub(super) fn flatten(program: &Program, layout: &Layout) -> Flat {
    let mut flattener = Flattener {
        flat: Flat::default(),
        layout,
        // The first registers after the IR's hold intermediate values of one instruction.
        spares: [0, 1].map(|at| Register(program.registers + at)),
        registers: program.registers + 2,
        constants: HashMap::new(),
        exits: HashMap::new(),
        aimed: 0,
        span: Span::default(),
    };
    flattener.list(&program.body);
    let mut flat = flattener.flat;
    for (value, slot) in flattener.constants {
        flat.constants.push((slot, value));
    }
    flat.slots = flattener.registers as usize + flat.constants.len();
    flat
}

struct Flattener<'p> {
    flat: Flat,
    layout: &'p Layout,
    spares: [Register; 2],
    registers: u32,
    constants: HashMap<i64, Slot>,
    /// Jumps to the end of each surrounding block or loop.
    exits: HashMap<Label, Vec<usize>>,
    /// The last target of a jump.
    aimed: Target,
    /// Where the next instructions come from.
    span: Span,
}

impl Flattener<'_> {
    fn emit(&mut self, code: Code) {
        self.flat.code.push(code);
        self.flat.spans.push(self.span);
    }

    fn here(&self) -> Target {
        self.flat.code.len() as Target
    }

    fn slot(&mut self, operand: Operand) -> Slot {
        match operand {
            Operand::Register(register) => register.0 as Slot,
            Operand::Constant(value) => {
                let next = self.registers + self.constants.len() as u32;
                *self.constants.entry(value).or_insert(next as Slot)
            }
        }
    }

    fn address(&mut self, address: Address) -> There {
        let at = self.layout.section(address.region).start as u32 + address.offset;
        let distance = match address.index {
            Some(index) => Operand::Register(index.register),
            None => Operand::Constant(0),
        };
        There {
            at,
            index: self.slot(distance),
        }
    }

    fn list(&mut self, body: &[Instruction]) {
        for instruction in body {
            self.span = instruction.span;
            self.instruction(&instruction.op);
        }
    }

    fn instruction(&mut self, op: &Op) {
        match op {
            Op::If {
                relation,
                a,
                b,
                then,
                otherwise,
            } => {
                self.choice((*relation, *a, *b), then, otherwise);
            }
            Op::Block { label, body } => {
                self.exits.insert(*label, Vec::new());
                self.list(body);
                self.arrive(*label);
            }
            Op::Loop { label, body } => self.repeat(*label, body),
            Op::Exit(label) => {
                let jump = Code::Jump(0);
                self.leave(*label, jump);
            }
            _ => self.plain(op),
        }
    }

    /// Emits a jump to the end of a block or loop.
    fn leave(&mut self, label: Label, jump: Code) {
        let at = self.flat.code.len();
        self.exits.entry(label).or_default().push(at);
        self.emit(jump);
    }

    /// The place after a label, to which the exits lead.
    fn arrive(&mut self, label: Label) {
        let here = self.here();
        for at in self.exits.remove(&label).unwrap_or_default() {
            self.aim(at, here);
        }
    }

    fn aim(&mut self, jump: usize, to: Target) {
        self.aimed = to;
        self.flat.code[jump].aim(to);
    }

    fn jump(&mut self, relation: Relation, a: Operand, b: Operand) -> Code {
        let (a, b, target) = (self.slot(a), self.slot(b), 0);
        match relation {
            Relation::Equal => Code::IfEqual(a, b, target),
            Relation::NotEqual => Code::IfNotEqual(a, b, target),
            Relation::Less => Code::IfLess(a, b, target),
            Relation::LessEqual => Code::IfLessEqual(a, b, target),
            Relation::LessSigned => Code::IfLessSigned(a, b, target),
            Relation::LessEqualSigned => Code::IfLessEqualSigned(a, b, target),
        }
    }

    fn choice(
        &mut self,
        (relation, a, b): (Relation, Operand, Operand),
        then: &[Instruction],
        otherwise: &[Instruction],
    ) {
        if let (
            [
                Instruction {
                    op: Op::Exit(label),
                    ..
                },
            ],
            [],
        ) = (then, otherwise)
        {
            let jump = self.jump(relation, a, b);
            return self.leave(*label, jump);
        }
        let not = self.opposite(relation, a, b);
        let over = self.flat.code.len();
        self.emit(not);
        self.list(then);
        if otherwise.is_empty() {
            let here = self.here();
            self.aim(over, here);
            return;
        }
        let end = self.flat.code.len();
        let falls_through = self.goes_on();
        if falls_through {
            self.emit(Code::Jump(0));
        }
        let here = self.here();
        self.aim(over, here);
        self.list(otherwise);
        if falls_through {
            let here = self.here();
            self.aim(end, here);
        }
    }

    /// Whether the next instruction can be reached from the last one.
    fn goes_on(&self) -> bool {
        let ends = |code: &Code| matches!(code, Code::Jump(_) | Code::Return(_) | Code::Fail(_));
        self.aimed == self.here() || !self.flat.code.last().is_some_and(ends)
    }

    fn opposite(&mut self, relation: Relation, a: Operand, b: Operand) -> Code {
        match relation.opposite() {
            (relation, false) => self.jump(relation, a, b),
            (relation, true) => self.jump(relation, b, a),
        }
    }

    fn repeat(&mut self, label: Label, body: &[Instruction]) {
        self.exits.insert(label, Vec::new());
        let first = match body.first().map(|first| &first.op) {
            Some(Op::If {
                relation,
                a,
                b,
                then,
                otherwise,
            }) if otherwise.is_empty() => match &then[..] {
                [
                    Instruction {
                        op: Op::Exit(to), ..
                    },
                ] if *to == label => Some((*relation, *a, *b)),
                _ => None,
            },
            _ => None,
        };
        let Some((relation, a, b)) = first else {
            let target = self.here();
            self.list(body);
            self.emit(Code::Jump(target));
            return self.arrive(label);
        };
        let jump = self.jump(relation, a, b);
        self.leave(label, jump);
        let again = self.here();
        self.list(&body[1..]);
        let mut back = self.opposite(relation, a, b);
        back.aim(again);
        self.emit(back);
        self.arrive(label);
    }

    fn plain(&mut self, op: &Op) {
        match *op {
            Op::Set { to, from } => {
                let (to, from) = (to.0 as Slot, self.slot(from));
                self.emit(Code::Set(to, from));
            }
            Op::Binary { to, operator, a, b } => self.binary(to, operator, a, b),
            Op::Compare { to, relation, a, b } => self.compare(to, relation, a, b),
            Op::Extend {
                to,
                from,
                bits,
                signed,
            } => {
                let (to, from) = (to.0 as Slot, self.slot(from));
                self.emit(match (bits, signed) {
                    (8, true) => Code::Signed8(to, from),
                    (16, true) => Code::Signed16(to, from),
                    (_, true) => Code::Signed32(to, from),
                    (8, false) => Code::Unsigned8(to, from),
                    (16, false) => Code::Unsigned16(to, from),
                    (_, false) => Code::Unsigned32(to, from),
                });
            }
            Op::Bound { index, count } => {
                let count = self.slot(Operand::Constant(i64::from(count)));
                self.emit(Code::Bound(index.0 as Slot, count));
            }
            Op::NextBit { to, mask, after } => {
                let (to, mask, after) = (to.0 as Slot, self.slot(mask), self.slot(after));
                self.emit(Code::NextBit(to, mask, after));
            }
            Op::Effect {
                kind,
                number,
                values,
            } => {
                let number = self.slot(number);
                let values = values.map(|value| self.slot(value));
                let row = self.flat.effects.len() as u16;
                self.flat.effects.push(EffectRow {
                    kind,
                    number,
                    values,
                });
                self.emit(Code::Effect(row));
            }
            Op::Burn(units) => self.emit(Code::Burn(units)),
            Op::Return(value) => {
                let value = self.slot(value);
                self.emit(Code::Return(value));
            }
            Op::Fail(fault) => self.emit(Code::Fail(fault)),
            _ => self.access(op),
        }
    }

    fn access(&mut self, op: &Op) {
        match *op {
            Op::Load {
                to,
                from,
                bits,
                signed,
            } => self.load(to, from, bits, signed),
            Op::Store { to, value, bits } => self.store(to, value, bits),
            Op::Atomic {
                old,
                to,
                operator,
                value,
                bits,
            } => {
                // No other run uses this memory.
                let [before, after] = self.spares;
                self.load(before, to, bits, false);
                self.binary(after, operator, Operand::Register(before), value);
                self.store(to, Operand::Register(after), bits);
                if let Some(Register(old)) = old {
                    self.emit(Code::Set(old as Slot, before.0 as Slot));
                }
            }
            Op::Copy {
                to, from, bytes, ..
            } => {
                let (to, from) = (self.address(to), self.address(from));
                let row = self.flat.copies.len() as u16;
                self.flat.copies.push(CopyRow { to, from, bytes });
                self.emit(Code::Copy(row));
            }
            Op::Zero { to, bytes, .. } => {
                let there = self.address(to);
                let row = self.flat.copies.len() as u16;
                self.flat.copies.push(CopyRow {
                    to: there,
                    from: there,
                    bytes,
                });
                self.emit(Code::Zero(row));
            }
            _ => {}
        }
    }

    fn load(&mut self, to: Register, from: Address, bits: u8, signed: bool) {
        let (to, there) = (to.0 as Slot, self.address(from));
        self.emit(match (bits, signed) {
            (8, false) => Code::LoadU8(to, there),
            (8, true) => Code::LoadS8(to, there),
            (16, false) => Code::LoadU16(to, there),
            (16, true) => Code::LoadS16(to, there),
            (32, false) => Code::LoadU32(to, there),
            (32, true) => Code::LoadS32(to, there),
            _ => Code::Load64(to, there),
        });
    }

    fn store(&mut self, to: Address, value: Operand, bits: u8) {
        let (value, there) = (self.slot(value), self.address(to));
        self.emit(match bits {
            8 => Code::Store8(there, value),
            16 => Code::Store16(there, value),
            32 => Code::Store32(there, value),
            _ => Code::Store64(there, value),
        });
    }

    fn binary(&mut self, to: Register, operator: Operator, a: Operand, b: Operand) {
        let (to, a, b) = (to.0 as Slot, self.slot(a), self.slot(b));
        self.emit(match operator {
            Operator::Add => Code::Add(to, a, b),
            Operator::Subtract => Code::Subtract(to, a, b),
            Operator::Multiply => Code::Multiply(to, a, b),
            Operator::And => Code::And(to, a, b),
            Operator::Or => Code::Or(to, a, b),
            Operator::Xor => Code::Xor(to, a, b),
            Operator::ShiftLeft => Code::ShiftLeft(to, a, b),
            Operator::ShiftRight => Code::ShiftRight(to, a, b),
            Operator::Divide
            | Operator::DivideSigned
            | Operator::Remainder
            | Operator::RemainderSigned
            | Operator::ShiftRightSigned => Code::Rare(operator, to, a, b),
        });
    }

    fn compare(&mut self, to: Register, relation: Relation, a: Operand, b: Operand) {
        let (to, a, b) = (to.0 as Slot, self.slot(a), self.slot(b));
        self.emit(match relation {
            Relation::Equal => Code::Equal(to, a, b),
            Relation::NotEqual => Code::NotEqual(to, a, b),
            Relation::Less => Code::Less(to, a, b),
            Relation::LessEqual => Code::LessEqual(to, a, b),
            Relation::LessSigned => Code::LessSigned(to, a, b),
            Relation::LessEqualSigned => Code::LessEqualSigned(to, a, b),
        });
    }
}

impl Code {
    /// Sets where a jump leads.
    fn aim(&mut self, to: Target) {
        if let Code::Jump(target)
        | Code::IfEqual(_, _, target)
        | Code::IfNotEqual(_, _, target)
        | Code::IfLess(_, _, target)
        | Code::IfLessEqual(_, _, target)
        | Code::IfLessSigned(_, _, target)
        | Code::IfLessEqualSigned(_, _, target) = self
        {
            *target = to;
        }
    }
}
