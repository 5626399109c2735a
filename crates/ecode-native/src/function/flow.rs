//! Control: branches, loops, faults, fuel.
//!
//! A loop that begins with its condition checks the condition again at its end, so a round has one
//! jump. Where the fuel is said to suffice, the code looks at it only at the end of each round: if
//! that were wrong, the run would end there. A loop of which a round may take no fuel counts its
//! rounds: all together are bounded by `limits::ROUNDS_WITHOUT_FUEL`, whatever the rest of the
//! compiler thinks of it.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{Block, InstBuilder, InstructionData, Opcode, Value};
use ecode::ir::{Instruction, Label, Op, Operand, Register, Relation};
use ecode::tree::Fault;

use super::rounds::takes_fuel;
use super::{GoesOn, Translator};
use crate::error::Error;

type Condition = (Relation, Operand, Operand);

/// A number of 32 bits.
#[derive(Clone, Copy)]
enum Half {
    Value(Value),
    Number(i32),
}

impl Translator<'_> {
    pub(super) fn exit(&self, label: Label) -> Result<Block, Error> {
        let exit = self.exits.get(&label).copied();
        exit.ok_or(Error::Malformed("it leaves a block that is not around it"))
    }

    /// Numbers that were extended by their sign compare as before they were. That saves the
    /// extensions: of a load, one takes as long as all else here on some processors.
    pub(super) fn condition(&mut self, condition: Condition) -> Result<Value, Error> {
        let (relation, a, b) = condition;
        let code = match relation {
            Relation::Equal => IntCC::Equal,
            Relation::NotEqual => IntCC::NotEqual,
            Relation::Less => IntCC::UnsignedLessThan,
            Relation::LessEqual => IntCC::UnsignedLessThanOrEqual,
            Relation::LessSigned => IntCC::SignedLessThan,
            Relation::LessEqualSigned => IntCC::SignedLessThanOrEqual,
        };
        let (mut a, mut b) = (self.value(a)?, self.value(b)?);
        if let (Some(low_a), Some(low_b)) = (self.extended(a), self.extended(b)) {
            (a, b) = (self.low_half(low_a), self.low_half(low_b));
        }
        Ok(self.builder.ins().icmp(code, a, b))
    }

    /// The 32 bits whose extension by their sign this value is.
    fn extended(&self, value: Value) -> Option<Half> {
        let dfg = &self.builder.func.dfg;
        let inst = dfg.value_def(dfg.resolve_aliases(value)).inst()?;
        match dfg.insts[inst] {
            InstructionData::Unary {
                opcode: Opcode::Sextend,
                arg,
            } if dfg.value_type(arg) == I32 => Some(Half::Value(arg)),
            InstructionData::UnaryImm {
                opcode: Opcode::Iconst,
                imm,
            } => i32::try_from(imm.bits()).ok().map(Half::Number),
            _ => None,
        }
    }

    fn low_half(&mut self, half: Half) -> Value {
        match half {
            Half::Value(value) => value,
            Half::Number(number) => {
                let bits = i64::from(number.cast_unsigned());
                self.builder.ins().iconst(I32, bits)
            }
        }
    }

    pub(super) fn is_at_least(&mut self, value: Value, number: i64) -> Value {
        let number = self.number(number);
        let code = IntCC::UnsignedGreaterThanOrEqual;
        self.builder.ins().icmp(code, value, number)
    }

    pub(super) fn choice(
        &mut self,
        condition: Condition,
        then: &[Instruction],
        otherwise: &[Instruction],
    ) -> GoesOn {
        if let (Some(label), []) = (only_exits(then), otherwise) {
            self.exit_if(condition, label)?;
            return Ok(true);
        }
        let holds = self.condition(condition)?;
        if self.choose(holds, then, otherwise)? {
            return Ok(true);
        }
        let [yes, no, after] = [(); 3].map(|()| self.builder.create_block());
        self.builder.ins().brif(holds, yes, &[], no, &[]);
        let mut goes_on = false;
        for (block, body) in [(yes, then), (no, otherwise)] {
            self.begin(block);
            let mark = self.bounds.mark();
            if self.list(body)? {
                self.builder.ins().jump(after, &[]);
                goes_on = true;
            }
            self.bounds.back_to(mark);
        }
        self.begin(after);
        Ok(self.is_reached(goes_on))
    }

    /// Two numbers between which the condition chooses, without a jump: of a register, each made by
    /// at most one instruction.
    fn choose(&mut self, holds: Value, then: &[Instruction], otherwise: &[Instruction]) -> GoesOn {
        let writes = |body: &[Instruction]| match body {
            [one] if is_cheap(&one.op) => one.op.writes(),
            _ => None,
        };
        let Some(to) = writes(then) else {
            return Ok(false);
        };
        if !otherwise.is_empty() && writes(otherwise) != Some(to) {
            return Ok(false);
        }
        let yes = self.only_value(to, then)?;
        let no = self.only_value(to, otherwise)?;
        let chosen = self.builder.ins().select(holds, yes, no);
        self.set(to, chosen)?;
        Ok(true)
    }

    /// The value that a register has after one instruction or none. (A register that is not read
    /// here need not be kept until here.)
    fn only_value(&mut self, to: Register, body: &[Instruction]) -> Result<Value, Error> {
        let computed = body.first().map(|one| self.computed(&one.op));
        match computed.transpose()?.flatten() {
            Some((_, value)) => Ok(value),
            None => self.register(to),
        }
    }

    pub(super) fn block(&mut self, label: Label, body: &[Instruction]) -> GoesOn {
        let after = self.builder.create_block();
        self.exits.insert(label, after);
        let mark = self.bounds.mark();
        if self.list(body)? {
            self.builder.ins().jump(after, &[]);
        }
        self.close(label, after, mark)
    }

    pub(super) fn repeat(&mut self, label: Label, body: &[Instruction]) -> GoesOn {
        let [again, after] = [(); 2].map(|()| self.builder.create_block());
        self.exits.insert(label, after);
        self.bounds.forget_written(body);
        let mark = self.bounds.mark();
        let takes_fuel = takes_fuel(body);
        let (first, rest) = match first_condition(label, body) {
            Some(condition) => (Some(condition), &body[1..]),
            None => (None, body),
        };
        if let Some(condition) = first {
            let holds = self.condition(condition)?;
            self.builder.ins().brif(holds, after, &[], again, &[]);
        } else {
            self.builder.ins().jump(again, &[]);
        }
        self.builder.switch_to_block(again);
        if self.list(rest)? {
            self.end_round(takes_fuel);
            if let Some(condition) = first {
                let holds = self.condition(condition)?;
                self.builder.ins().brif(holds, after, &[], again, &[]);
            } else {
                self.builder.ins().jump(again, &[]);
            }
        }
        self.builder.seal_block(again);
        self.close(label, after, mark)
    }

    /// After a block or loop, which goes on if anything leads there.
    fn close(&mut self, label: Label, after: Block, mark: usize) -> GoesOn {
        self.exits.remove(&label);
        self.bounds.back_to(mark);
        self.begin(after);
        let goes_on = !self.builder.is_unreachable();
        Ok(self.is_reached(goes_on))
    }

    /// A block that nothing leads to has an end all the same.
    fn is_reached(&mut self, goes_on: bool) -> bool {
        if !goes_on {
            self.leave(0);
        }
        goes_on
    }

    /// Ends the run with a fault if the condition holds.
    pub(super) fn fail_if(&mut self, condition: Value, fault: Fault) {
        let fails = self.builder.create_block();
        self.go_on_unless(condition, fails);
        let here = self.builder.current_block();
        self.builder.set_cold_block(fails);
        self.begin(fails);
        let place = self.place(fault);
        if fault == Fault::Fuel {
            let none = self.number(0);
            self.builder.def_var(self.fuel, none);
        }
        self.leave(place);
        if let Some(here) = here {
            self.builder.switch_to_block(here);
        }
    }

    /// Leaves a block or loop if the condition holds. By a block of its own: what only is needed
    /// there, as the fuel, is computed only there. (The code generator lays it out behind what
    /// follows here, since it is the first of the two.)
    fn exit_if(&mut self, condition: Condition, label: Label) -> Result<(), Error> {
        let exit = self.exit(label)?;
        let holds = self.condition(condition)?;
        let [leaves, next] = [(); 2].map(|()| self.builder.create_block());
        self.builder.ins().brif(holds, leaves, &[], next, &[]);
        self.begin(leaves);
        self.builder.ins().jump(exit, &[]);
        self.begin(next);
        Ok(())
    }

    /// Goes there if the condition holds; the code goes on here otherwise.
    fn go_on_unless(&mut self, condition: Value, there: Block) {
        let next = self.builder.create_block();
        self.builder.ins().brif(condition, there, &[], next, &[]);
        self.begin(next);
    }

    /// The next instructions are those of this block, to which nothing else will lead.
    pub(super) fn begin(&mut self, block: Block) {
        self.builder.seal_block(block);
        self.builder.switch_to_block(block);
    }

    pub(super) fn burn(&mut self, units: u32) {
        let fuel = self.builder.use_var(self.fuel);
        let units = self.number(i64::from(units));
        if !self.never_lacks_fuel {
            let code = IntCC::UnsignedLessThan;
            let lacks = self.builder.ins().icmp(code, fuel, units);
            self.fail_if(lacks, Fault::Fuel);
        }
        let left = self.builder.ins().isub(fuel, units);
        self.builder.def_var(self.fuel, left);
    }

    /// Before the next round of a loop: ends a run that would not end by itself.
    fn end_round(&mut self, takes_fuel: bool) {
        if !takes_fuel {
            return self.count_round();
        }
        if self.never_lacks_fuel {
            let fuel = self.builder.use_var(self.fuel);
            let none = self.number(0);
            let code = IntCC::SignedLessThan;
            let lacks = self.builder.ins().icmp(code, fuel, none);
            self.fail_if(lacks, Fault::Fuel);
        }
    }

    fn count_round(&mut self) {
        let rounds = self.builder.use_var(self.rounds);
        let one = self.number(1);
        let left = self.builder.ins().isub(rounds, one);
        self.builder.def_var(self.rounds, left);
        let none = self.number(0);
        let ended = self.builder.ins().icmp(IntCC::Equal, left, none);
        self.fail_if(ended, Fault::Fuel);
    }
}

/// The label, if leaving it is all that there is.
fn only_exits(body: &[Instruction]) -> Option<Label> {
    match body {
        [
            Instruction {
                op: Op::Exit(label),
                ..
            },
        ] => Some(*label),
        _ => None,
    }
}

/// The condition under which a loop ends before anything else in a round happens.
fn first_condition(label: Label, body: &[Instruction]) -> Option<Condition> {
    match body.first().map(|first| &first.op) {
        Some(Op::If {
            relation,
            a,
            b,
            then,
            otherwise,
        }) if otherwise.is_empty() && only_exits(then) == Some(label) => Some((*relation, *a, *b)),
        _ => None,
    }
}

/// Whether it costs less than a jump, and cannot fail.
fn is_cheap(op: &Op) -> bool {
    use ecode::ir::Operator;
    match op {
        Op::Set { .. } | Op::Compare { .. } | Op::Extend { .. } => true,
        Op::Binary { operator, .. } => !matches!(
            operator,
            Operator::Divide
                | Operator::DivideSigned
                | Operator::Remainder
                | Operator::RemainderSigned
        ),
        _ => false,
    }
}
