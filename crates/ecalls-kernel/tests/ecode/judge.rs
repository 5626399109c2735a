//! The judge: what an IR program does, straight from the words of ir.rs.

use ecalls_kernel::ecode::Memory;
use ecode::frame::at;
use ecode::ir::{
    Address, Fault, Instruction, Label, Op, Operand, Operator, Program, Region, Register, Relation,
};
use ecode::limits;

/// Why a list of instructions is left.
enum Way {
    Exit(Label),
    Return(i64),
    Fail(Fault),
}

struct Judge<'m> {
    registers: Vec<i64>,
    memory: &'m mut Memory,
    fuel: u32,
}

/// Runs a program on this memory.
pub(crate) fn run(program: &Program, memory: &mut Memory) {
    let mut judge = Judge {
        registers: vec![0; program.registers as usize],
        memory,
        fuel: 0,
    };
    judge.fuel = judge.word(at::FUEL);
    let way = judge.all(program);
    match way {
        Err(Way::Return(value)) => judge.put(at::RESULT, &value.to_le_bytes()),
        Err(Way::Fail(fault)) => judge.put(at::FAULT, &(fault as u32).to_le_bytes()),
        Ok(()) | Err(Way::Exit(_)) => {}
    }
    let fuel = judge.fuel;
    judge.put(at::FUEL, &fuel.to_le_bytes());
}

impl Judge<'_> {
    fn all(&mut self, program: &Program) -> Result<(), Way> {
        let size = u32::from_le_bytes(self.memory.event[80..84].try_into().expect("4 bytes"));
        if size < program.input {
            return Err(Way::Fail(Fault::Input));
        }
        let (start, end) = (at::OUTPUT as usize, (at::OUTPUT + program.output) as usize);
        self.memory.frame[start..end].fill(0);
        self.list(&program.body)
    }

    fn word(&self, offset: u32) -> u32 {
        let bytes = &self.memory.frame[offset as usize..][..4];
        u32::from_le_bytes(bytes.try_into().expect("4 bytes"))
    }

    fn put(&mut self, offset: u32, bytes: &[u8]) {
        self.memory.frame[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn get(&self, operand: Operand) -> i64 {
        match operand {
            Operand::Register(register) => self.registers[register.0 as usize],
            Operand::Constant(value) => value,
        }
    }

    fn set(&mut self, to: Register, value: i64) {
        self.registers[to.0 as usize] = value;
    }

    fn list(&mut self, list: &[Instruction]) -> Result<(), Way> {
        for instruction in list {
            self.one(&instruction.op)?;
        }
        Ok(())
    }

    fn bytes(&mut self, address: &Address) -> &mut [u8] {
        let index = address.index.map_or(0, |index| {
            let value = self.registers[index.register.0 as usize] as u64;
            assert!(
                value <= u64::from(index.largest),
                "a distance beyond its largest"
            );
            value as usize
        });
        let (memory, offset) = match address.region {
            Region::Event => (&mut self.memory.event, 0),
            Region::Input => (&mut self.memory.event, at::EVENT_DATA),
            Region::Frame => (&mut self.memory.frame, 0),
            Region::Output => (&mut self.memory.frame, at::OUTPUT),
            Region::Locals => (&mut self.memory.frame, at::LOCALS),
            Region::State => (&mut self.memory.state, 0),
            Region::Attributes => (&mut self.memory.attributes, 0),
            Region::Sinks => (&mut self.memory.sinks, 0),
        };
        &mut memory[(offset + address.offset) as usize + index..]
    }

    fn read(&mut self, address: &Address, bits: u8, signed: bool) -> i64 {
        let mut word = [0; 8];
        let bytes = usize::from(bits / 8);
        word[..bytes].copy_from_slice(&self.bytes(address)[..bytes]);
        extend(i64::from_le_bytes(word), bits, signed)
    }

    fn write(&mut self, address: &Address, bits: u8, value: i64) {
        let bytes = usize::from(bits / 8);
        self.bytes(address)[..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }

    fn one(&mut self, op: &Op) -> Result<(), Way> {
        match op {
            Op::Set { to, from } => self.set(*to, self.get(*from)),
            Op::Binary { to, operator, a, b } => {
                self.set(*to, binary(*operator, self.get(*a), self.get(*b)));
            }
            Op::Compare { to, relation, a, b } => {
                self.set(*to, i64::from(holds(*relation, self.get(*a), self.get(*b))));
            }
            Op::Extend {
                to,
                from,
                bits,
                signed,
            } => {
                self.set(*to, extend(self.get(*from), *bits, *signed));
            }
            Op::Bound { index, count } => {
                if self.registers[index.0 as usize] as u64 >= u64::from(*count) {
                    return Err(Way::Fail(Fault::Index));
                }
            }
            Op::Load {
                to,
                from,
                bits,
                signed,
            } => {
                let value = self.read(from, *bits, *signed);
                self.set(*to, value);
            }
            Op::Store { to, value, bits } => self.write(to, *bits, self.get(*value)),
            Op::Atomic {
                to,
                operator,
                value,
                bits,
            } => {
                let old = self.read(to, *bits, false);
                self.write(to, *bits, binary(*operator, old, self.get(*value)));
            }
            Op::Copy {
                to, from, bytes, ..
            } => {
                let copied = self.bytes(from)[..*bytes as usize].to_vec();
                self.bytes(to)[..copied.len()].copy_from_slice(&copied);
            }
            Op::Zero { to, bytes, .. } => self.bytes(to)[..*bytes as usize].fill(0),
            _ => return self.control(op),
        }
        Ok(())
    }

    fn control(&mut self, op: &Op) -> Result<(), Way> {
        match op {
            Op::If {
                relation,
                a,
                b,
                then,
                otherwise,
            } => {
                let way = holds(*relation, self.get(*a), self.get(*b));
                self.list(if way { then } else { otherwise })?;
            }
            Op::Block { label, body } => match self.list(body) {
                Err(Way::Exit(left)) if left == *label => {}
                other => other?,
            },
            Op::Loop { label, body } => loop {
                match self.list(body) {
                    Err(Way::Exit(left)) if left == *label => break,
                    other => other?,
                }
            },
            Op::Exit(label) => return Err(Way::Exit(*label)),
            Op::Burn(units) => match self.fuel.checked_sub(*units) {
                Some(left) => self.fuel = left,
                None => {
                    self.fuel = 0;
                    return Err(Way::Fail(Fault::Fuel));
                }
            },
            Op::NextBit { to, mask, after } => {
                let (mask, after) = (self.get(*mask) as u64, self.get(*after));
                let next = (after + 1..64).find(|bit| mask >> bit & 1 != 0);
                self.set(*to, next.unwrap_or(-1));
            }
            Op::Effect {
                kind,
                number,
                values,
            } => return self.effect(*kind, *number, values),
            Op::Return(value) => return Err(Way::Return(self.get(*value))),
            Op::Fail(fault) => return Err(Way::Fail(*fault)),
            _ => {}
        }
        Ok(())
    }

    fn effect(&mut self, kind: u32, number: Operand, values: &[Operand; 3]) -> Result<(), Way> {
        let count = self.word(at::EFFECT_COUNT);
        if count >= limits::EFFECTS {
            return Err(Way::Fail(Fault::Effects));
        }
        let base = at::EFFECT + count * at::EFFECT_BYTES;
        self.put(base, &kind.to_le_bytes());
        let number = self.get(number) as u32;
        self.put(base + 4, &number.to_le_bytes());
        for (value, offset) in values.iter().zip([8, 16, 24]) {
            let value = self.get(*value);
            self.put(base + offset, &value.to_le_bytes());
        }
        self.put(at::EFFECT_COUNT, &(count + 1).to_le_bytes());
        Ok(())
    }
}

fn extend(value: i64, bits: u8, signed: bool) -> i64 {
    let unused = 64 - u32::from(bits);
    if signed {
        value << unused >> unused
    } else {
        ((value as u64) << unused >> unused) as i64
    }
}

fn binary(operator: Operator, a: i64, b: i64) -> i64 {
    let (x, y) = (a as u64, b as u64);
    match operator {
        Operator::Add => a.wrapping_add(b),
        Operator::Subtract => a.wrapping_sub(b),
        Operator::Multiply => a.wrapping_mul(b),
        Operator::Divide => x.checked_div(y).unwrap_or(0) as i64,
        Operator::DivideSigned => {
            if b == 0 {
                0
            } else {
                a.wrapping_div(b)
            }
        }
        Operator::Remainder => x.checked_rem(y).unwrap_or(x) as i64,
        Operator::RemainderSigned => {
            if b == 0 {
                a
            } else {
                a.wrapping_rem(b)
            }
        }
        Operator::And => a & b,
        Operator::Or => a | b,
        Operator::Xor => a ^ b,
        Operator::ShiftLeft => a.wrapping_shl(b as u32),
        Operator::ShiftRight => x.wrapping_shr(b as u32) as i64,
        Operator::ShiftRightSigned => a.wrapping_shr(b as u32),
    }
}

fn holds(relation: Relation, a: i64, b: i64) -> bool {
    let (x, y) = (a as u64, b as u64);
    match relation {
        Relation::Equal => a == b,
        Relation::NotEqual => a != b,
        Relation::Less => x < y,
        Relation::LessEqual => x <= y,
        Relation::LessSigned => a < b,
        Relation::LessEqualSigned => a <= b,
    }
}
