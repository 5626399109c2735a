//! Random IR programs: every instruction, every way out of blocks and loops, more values alive at
//! once than there are registers, and numbers from the edges of all types.

use ecode::ir::{
    Address, Dynamic, Fault, Instruction, Label, Op, Operand, Operator, Program, Region, Register,
    Relation, State, StateEntry,
};
use ecode::source::Span;

/// Numbers at which something changes.
const EDGES: [i64; 28] = [
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    16,
    31,
    32,
    63,
    64,
    127,
    128,
    255,
    256,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX,
    i64::MIN,
    -1,
    -128,
    -0x8000_0000,
];

/// xorshift64: the same programs every time.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = ecode::frame::random(self.0);
        self.0
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub(crate) fn edge(&mut self) -> i64 {
        match self.below(4) {
            0 => self.next() as i64,
            1 => self.one(&EDGES).wrapping_neg(),
            _ => self.one(&EDGES),
        }
    }
}

const INPUT: u32 = 128;
const OUTPUT: u32 = 256;
const LOCALS: u32 = 512;
const STATE: u32 = 256;

/// Builds one program.
struct Generator<'r> {
    random: &'r mut Random,
    /// Registers that may be read and written: the more, the more spills.
    variables: u32,
    registers: u32,
    labels: u32,
    /// Labels of blocks around, and of loops around (with the register that counts).
    around: Vec<Label>,
    loops: u32,
    budget: i32,
}

/// A program of about `size` instructions.
pub(crate) fn program(random: &mut Random, size: i32) -> Program {
    let variables = [2, 5, 9, 14, 30][random.below(5)];
    let mut generator = Generator {
        random,
        variables,
        registers: variables,
        labels: 0,
        around: Vec::new(),
        loops: 0,
        budget: size,
    };
    let mut body = generator.beginning();
    while generator.budget > 0 {
        generator.statement(&mut body, 0);
    }
    for at in 0..variables {
        let address = fixed(Region::Output, at * 8 % OUTPUT);
        let value = Operand::Register(Register(at));
        body.push(op(Op::Store {
            to: address,
            value,
            bits: 64,
        }));
    }
    body.push(op(Op::Copy {
        to: fixed(Region::Output, OUTPUT),
        from: fixed(Region::Locals, 0),
        bytes: LOCALS,
        align: 8,
    }));
    let value = generator.operand();
    if generator.random.below(4) > 0 {
        body.push(op(Op::Return(value)));
    }
    let bytes = (0..STATE).map(|at| at as u8).collect();
    let entry = StateEntry {
        name: "state".to_owned(),
        ty: "char[]".to_owned(),
        offset: 0,
        bytes: STATE,
        constant: false,
    };
    Program {
        body,
        registers: generator.registers,
        locals: LOCALS,
        input: INPUT,
        output: OUTPUT + LOCALS,
        state: State {
            bytes,
            entries: vec![entry],
        },
        fuel: 200,
        fuel_most: None,
        fuel_wanted: None,
        loop_depth: 6,
        accepts: false,
    }
}

fn op(op: Op) -> Instruction {
    Instruction {
        op,
        span: Span::default(),
    }
}

fn fixed(region: Region, offset: u32) -> Address {
    Address {
        region,
        offset,
        index: None,
    }
}

impl Generator<'_> {
    /// Fills what is read later: what a program does not write is left from the run before.
    fn beginning(&mut self) -> Vec<Instruction> {
        let mut body = vec![op(Op::Zero {
            to: fixed(Region::Locals, 0),
            bytes: LOCALS,
            align: 8,
        })];
        for at in 0..self.variables {
            let to = Register(at);
            let from = match self.random.below(2) {
                0 => self.random.edge(),
                _ => 0,
            };
            let from = Operand::Constant(from);
            body.push(op(Op::Set { to, from }));
        }
        for at in 0..self.variables {
            if self.random.below(3) == 0 {
                self.load(&mut body, Register(at));
            }
        }
        body
    }

    fn variable(&mut self) -> Register {
        Register(self.random.below(self.variables as usize) as u32)
    }

    fn fresh(&mut self) -> Register {
        self.registers += 1;
        Register(self.registers - 1)
    }

    fn operand(&mut self) -> Operand {
        match self.random.below(3) {
            0 => Operand::Constant(self.random.edge()),
            _ => Operand::Register(self.variable()),
        }
    }

    fn relation(&mut self) -> Relation {
        self.random.one(&[
            Relation::Equal,
            Relation::NotEqual,
            Relation::Less,
            Relation::LessEqual,
            Relation::LessSigned,
            Relation::LessEqualSigned,
        ])
    }

    fn operator(&mut self) -> Operator {
        self.random.one(&Operator::ALL)
    }

    /// An address for `bytes`, fixed or computed from a checked index.
    fn address(&mut self, body: &mut Vec<Instruction>, bytes: u32, written: bool) -> Address {
        let mut regions = vec![
            (Region::Output, OUTPUT),
            (Region::Locals, LOCALS),
            (Region::State, STATE),
        ];
        if !written {
            regions.extend([
                (Region::Input, INPUT),
                (Region::Event, 80),
                (Region::Attributes, 256),
                (Region::Sinks, 4096),
            ]);
        }
        let (region, size) = self.random.one(&regions);
        let room = size - bytes;
        if self.random.below(3) > 0 {
            let offset = self.random.below(room as usize + 1) as u32 / bytes * bytes;
            return fixed(region, offset);
        }
        let stride = bytes * self.random.one(&[1, 1, 2, 3, 8]);
        let count = (room / stride + 1).min(self.random.below(20) as u32 + 1);
        let index = self.fresh();
        let from = self.operand();
        // Most are inside.
        let from = if self.random.below(8) > 0 {
            let inside = self.fresh();
            let (operator, b) = (Operator::Remainder, Operand::Constant(i64::from(count)));
            body.push(op(Op::Binary {
                to: inside,
                operator,
                a: from,
                b,
            }));
            Operand::Register(inside)
        } else {
            from
        };
        body.push(op(Op::Set { to: index, from }));
        body.push(op(Op::Bound { index, count }));
        let register = self.fresh();
        body.push(op(Op::Binary {
            to: register,
            operator: Operator::Multiply,
            a: Operand::Register(index),
            b: Operand::Constant(i64::from(stride)),
        }));
        let largest = (count - 1) * stride;
        let offset = self.random.below((room - largest) as usize + 1) as u32 / bytes * bytes;
        Address {
            region,
            offset,
            index: Some(Dynamic { register, largest }),
        }
    }

    fn load(&mut self, body: &mut Vec<Instruction>, to: Register) {
        let bits = self.random.one(&[8u8, 16, 32, 64]);
        let signed = self.random.below(2) == 0;
        let from = self.address(body, u32::from(bits / 8), false);
        body.push(op(Op::Load {
            to,
            from,
            bits,
            signed,
        }));
    }

    fn list(&mut self, depth: u32) -> Vec<Instruction> {
        let mut body = Vec::new();
        for _ in 0..self.random.below(5) {
            self.statement(&mut body, depth + 1);
        }
        body
    }

    fn statement(&mut self, body: &mut Vec<Instruction>, depth: u32) {
        self.budget -= 1;
        let to = self.variable();
        let (a, b) = (self.operand(), self.operand());
        let choice = self
            .random
            .below(if depth < 6 && self.budget > 0 { 32 } else { 20 });
        match choice {
            0 | 1 => body.push(op(Op::Set { to, from: a })),
            2..=6 => {
                let operator = self.operator();
                body.push(op(Op::Binary { to, operator, a, b }));
                if self.random.below(2) == 0 {
                    self.extend(body, to);
                }
            }
            7 => {
                let relation = self.relation();
                body.push(op(Op::Compare { to, relation, a, b }));
            }
            8 | 9 => self.extend(body, to),
            10..=12 => self.load(body, to),
            13..=15 => {
                let bits = self.random.one(&[8u8, 16, 32, 64]);
                let to = self.address(body, u32::from(bits / 8), true);
                body.push(op(Op::Store { to, value: a, bits }));
            }
            16 => {
                let old = (self.random.below(2) == 0).then_some(to);
                let bits = self.random.one(&[32u8, 64]);
                let to = self.address(body, u32::from(bits / 8), true);
                let operator =
                    self.random
                        .one(&[Operator::Add, Operator::And, Operator::Or, Operator::Xor]);
                body.push(op(Op::Atomic {
                    old,
                    to,
                    operator,
                    value: a,
                    bits,
                }));
            }
            17 => self.block_of_memory(body),
            18 => {
                let after = Operand::Constant(self.random.below(65) as i64 - 1);
                body.push(op(Op::NextBit { to, mask: a, after }));
            }
            19 => {
                if self.random.below(4) == 0 {
                    let values = [a, b, self.operand()];
                    body.push(op(Op::Effect {
                        kind: 1,
                        number: a,
                        values,
                    }));
                }
            }
            _ => self.control(body, depth, choice),
        }
    }

    fn control(&mut self, body: &mut Vec<Instruction>, depth: u32, choice: usize) {
        let (a, b) = (self.operand(), self.operand());
        match choice {
            20..=25 => {
                let relation = self.relation();
                let then = self.list(depth);
                let otherwise = if self.random.below(2) == 0 {
                    self.list(depth)
                } else {
                    vec![]
                };
                body.push(op(Op::If {
                    relation,
                    a,
                    b,
                    then,
                    otherwise,
                }));
            }
            26 | 27 => {
                let label = self.label();
                self.around.push(label);
                let inner = self.list(depth);
                self.around.pop();
                body.push(op(Op::Block { label, body: inner }));
            }
            28 | 29 if self.loops < 6 => self.counted(body, depth),
            30 if !self.around.is_empty() => {
                let label = self.random.one(&self.around.clone());
                let relation = self.relation();
                let then = vec![op(Op::Exit(label))];
                body.push(op(Op::If {
                    relation,
                    a,
                    b,
                    then,
                    otherwise: vec![],
                }));
            }
            31 if self.random.below(6) == 0 => {
                let relation = self.relation();
                let end = if self.random.below(2) == 0 {
                    Op::Return(a)
                } else {
                    Op::Fail(Fault::Index)
                };
                body.push(op(Op::If {
                    relation,
                    a,
                    b,
                    then: vec![op(end)],
                    otherwise: vec![],
                }));
            }
            _ => {}
        }
    }

    fn extend(&mut self, body: &mut Vec<Instruction>, to: Register) {
        let bits = self.random.one(&[8u8, 16, 32, 32, 32]);
        let signed = self.random.below(2) == 0;
        let from = Operand::Register(if self.random.below(2) == 0 {
            to
        } else {
            self.variable()
        });
        body.push(op(Op::Extend {
            to,
            from,
            bits,
            signed,
        }));
    }

    fn block_of_memory(&mut self, body: &mut Vec<Instruction>) {
        let bytes = self.random.one(&[1u32, 3, 8, 17, 64, 250]);
        // Apart: one in the locals' first half, one in their second.
        let to = fixed(Region::Locals, self.random.below(6) as u32);
        let from = fixed(Region::Locals, 256 + self.random.below(6) as u32);
        if self.random.below(2) == 0 {
            body.push(op(Op::Copy {
                to,
                from,
                bytes,
                align: 1,
            }));
        } else {
            body.push(op(Op::Zero {
                to,
                bytes,
                align: 1,
            }));
        }
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// A loop with a counter of its own, which may be an ordinary variable's copy.
    fn counted(&mut self, body: &mut Vec<Instruction>, depth: u32) {
        let (label, count) = (self.label(), self.fresh());
        let most = self.random.below(6) as i64;
        body.push(op(Op::Set {
            to: count,
            from: Operand::Constant(0),
        }));
        let mut inner = vec![
            op(Op::If {
                relation: Relation::LessSigned,
                a: Operand::Register(count),
                b: Operand::Constant(most),
                then: vec![],
                otherwise: vec![op(Op::Exit(label))],
            }),
            op(Op::Burn(1 + self.random.below(3) as u32)),
        ];
        self.around.push(label);
        self.loops += 1;
        // Inside, the counter may be used like any variable.
        let to = self.variable();
        inner.push(op(Op::Set {
            to,
            from: Operand::Register(count),
        }));
        inner.extend(self.list(depth + 1));
        self.loops -= 1;
        self.around.pop();
        inner.push(op(Op::Binary {
            to: count,
            operator: Operator::Add,
            a: Operand::Register(count),
            b: Operand::Constant(1),
        }));
        if self.random.below(2) == 0 {
            let from = Operand::Register(count);
            inner.push(op(Op::Extend {
                to: count,
                from,
                bits: 32,
                signed: true,
            }));
        }
        body.push(op(Op::Loop { label, body: inner }));
    }
}
