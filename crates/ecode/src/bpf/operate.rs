//! Operators and comparisons: on whole registers or on their lower halves, by constants where
//! something cheaper does it, and so that the verifier is left in the dark where it should be
//! (see the head of `select`).

use super::facts::Range;
use super::machine::{Inst, Label, Test, V, Value};
use super::select::Select;
use crate::ir::{Operand, Operator, Register, Relation};

impl Select<'_> {
    pub(super) fn extend(&mut self, to: Register, from: Operand, bits: u8, signed: bool) {
        let range = self.facts.range(from);
        let Operand::Register(source) = from else {
            return self.set(to, Operand::Constant(range_of_constant(from, bits, signed)));
        };
        let (to, from) = (Self::named(to), Self::named(source));
        let whole = self.facts.is_whole(Register(to.0));
        let copy = |narrow| Inst::Move {
            to,
            from: Value::Register(from),
            narrow,
        };
        let inst = if range.is_within(Range::of_bits(bits, signed)) {
            copy(whole && !self.facts.is_whole(source))
        } else if bits == 32 && !(signed && whole) {
            copy(whole)
        } else if signed {
            Inst::SignExtend { to, from, bits }
        } else {
            let b = Value::Immediate((1 << bits) - 1);
            Inst::Alu {
                operator: Operator::And,
                to,
                a: from,
                b,
                narrow: true,
            }
        };
        self.emit(inst);
    }

    pub(super) fn compare_and_branch(
        &mut self,
        relation: Relation,
        (a, b): (Operand, Operand),
        unless: bool,
        to: Label,
        meets: bool,
    ) {
        let half = self.facts.half_compare(relation, a, b);
        let mut test = test_of(half.unwrap_or(relation));
        let (mut a, mut b) = (a, b);
        if matches!(a, Operand::Constant(_)) {
            (a, b, test) = (b, a, test.exchanged());
        }
        if unless {
            test = test.opposite();
        }
        let narrow = half.is_some();
        if let (Operand::Constant(a), Operand::Constant(b)) = (a, b) {
            if holds(test, a, b) {
                self.emit(Inst::Jump(to));
            }
            return;
        }
        let hides = meets && self.careful;
        let left = self.register(a);
        let left = if hides && self.feeds.twice(a) && !self.is_done(a, to) {
            self.hidden(left)
        } else {
            left
        };
        let mut right = if narrow { self.half(b) } else { self.value(b) };
        if let (Value::Register(v), true) =
            (right, hides && self.feeds.twice(b) && !self.is_done(b, to))
        {
            right = Value::Register(self.hidden(v));
        }
        self.emit(Inst::Branch {
            test,
            a: left,
            b: right,
            narrow,
            to,
        });
    }

    /// A copy that is compared in its place.
    fn hidden(&mut self, v: V) -> V {
        if let Some(Inst::Load { to, .. }) = self.code.lines.last().map(|line| line.inst)
            && to == v
            && self.facts.reads.get(v.at()) == Some(&1)
        {
            return v;
        }
        let to = self.code.register();
        self.set_hidden(to, Value::Register(v));
        to
    }

    pub(super) fn compare(&mut self, to: Register, relation: Relation, a: Operand, b: Operand) {
        let range = self.facts.range(a);
        let target = Self::named(to);
        if let (Relation::NotEqual, Operand::Register(a), Operand::Constant(0)) = (relation, a, b)
            && range.is_within(Range::of_bits(1, false))
        {
            let from = Value::Register(Self::named(a));
            return self.emit(Inst::Move {
                to: target,
                from,
                narrow: true,
            });
        }
        let over = self.label();
        let used = |operand| operand == Operand::Register(to);
        let result = if used(a) || used(b) {
            self.code.register()
        } else {
            target
        };
        let (yes, no) = (Value::Immediate(1), Value::Immediate(0));
        self.emit(Inst::Move {
            to: result,
            from: yes,
            narrow: false,
        });
        self.compare_and_branch(relation, (a, b), false, over, true);
        self.emit(Inst::Move {
            to: result,
            from: no,
            narrow: false,
        });
        self.emit(Inst::Label(over));
        if result != target {
            let from = Value::Register(result);
            self.emit(Inst::Move {
                to: target,
                from,
                narrow: false,
            });
        }
        if self.careful && !self.is_merged(to) && self.feeds.any(to) {
            self.hide(target);
        }
    }

    pub(super) fn binary(&mut self, to: Register, operator: Operator, a: Operand, b: Operand) {
        let narrow = self.facts.is_half(operator, to, a, b);
        let target = Self::named(to);
        let (a, b) = match (a, b) {
            (Operand::Constant(_), Operand::Register(_)) if operator.commutes() => (b, a),
            other => other,
        };
        if let (Operator::Subtract, Operand::Constant(0), Operand::Register(b)) = (operator, a, b) {
            return self.emit(Inst::Negate {
                to: target,
                a: Self::named(b),
                narrow,
            });
        }
        let left = self.register(a);
        if let Operand::Constant(b) = b
            && self.with_constant(operator, target, left, b, narrow)
        {
            return;
        }
        let right = if narrow { self.half(b) } else { self.value(b) };
        if right == Value::Register(target) && left != target && !operator.commutes() {
            let result = self.code.register();
            self.alu(operator, result, left, right, narrow);
            let from = Value::Register(result);
            self.emit(Inst::Move {
                to: target,
                from,
                narrow: false,
            });
        } else {
            self.alu(operator, target, left, right, narrow);
        }
    }

    /// By a constant, where something cheaper does it or the kernel has no such instruction.
    fn with_constant(&mut self, operator: Operator, to: V, a: V, b: i64, narrow: bool) -> bool {
        let copy = |from| Inst::Move { to, from, narrow };
        let bits = if narrow { 32 } else { 64 };
        let power = (b > 0 && b.count_ones() == 1).then(|| b.trailing_zeros() as i32);
        let power = power.filter(|power| *power < bits);
        let mut replaced = |operator, b| {
            self.emit(Inst::Alu {
                operator,
                to,
                a,
                b: Value::Immediate(b),
                narrow,
            });
        };
        match (operator, b, power) {
            (Operator::ShiftLeft | Operator::ShiftRight | Operator::ShiftRightSigned, _, _) => {
                match b & 63 {
                    0 => self.emit(copy(Value::Register(a))),
                    count => replaced(operator, count as i32),
                }
            }
            (Operator::Divide | Operator::DivideSigned | Operator::Multiply, 0, _) => {
                self.emit(copy(Value::Immediate(0)));
            }
            (Operator::Remainder | Operator::RemainderSigned, 0, _)
            | (Operator::Divide | Operator::DivideSigned | Operator::Multiply, 1, _) => {
                self.emit(copy(Value::Register(a)));
            }
            (Operator::Multiply, _, Some(power)) => replaced(Operator::ShiftLeft, power),
            (Operator::Divide, _, Some(power)) => replaced(Operator::ShiftRight, power),
            (Operator::Remainder, _, Some(power)) if power < 31 => {
                replaced(Operator::And, (1 << power) - 1);
            }
            (Operator::DivideSigned, _, Some(power)) => self.divide_by_power(to, a, power, narrow),
            (Operator::Subtract, _, _) if b != i64::MIN && i32::try_from(-b).is_ok() => {
                let b = self.constant(-b);
                self.alu(Operator::Add, to, a, b, narrow);
            }
            _ => return false,
        }
        true
    }

    /// Towards zero: a negative number is first made larger by what the shift would round off.
    fn divide_by_power(&mut self, to: V, a: V, power: i32, narrow: bool) {
        let bits = if narrow { 32 } else { 64 };
        let sum = self.code.register();
        let (sign, rest) = (Value::Immediate(bits - 1), Value::Immediate(bits - power));
        self.alu(Operator::ShiftRightSigned, sum, a, sign, narrow);
        self.alu(Operator::ShiftRight, sum, sum, rest, narrow);
        self.alu(Operator::Add, sum, sum, Value::Register(a), narrow);
        self.alu(
            Operator::ShiftRightSigned,
            to,
            sum,
            Value::Immediate(power),
            narrow,
        );
    }
}

fn range_of_constant(from: Operand, bits: u8, signed: bool) -> i64 {
    match from {
        Operand::Constant(value) => crate::types::Int::new(bits, signed).wrap(value),
        Operand::Register(_) => 0,
    }
}

fn test_of(relation: Relation) -> Test {
    match relation {
        Relation::Equal => Test::Equal,
        Relation::NotEqual => Test::NotEqual,
        Relation::Less => Test::Less,
        Relation::LessEqual => Test::LessEqual,
        Relation::LessSigned => Test::LessSigned,
        Relation::LessEqualSigned => Test::LessEqualSigned,
    }
}

fn holds(test: Test, a: i64, b: i64) -> bool {
    let (x, y) = (a as u64, b as u64);
    match test {
        Test::Equal => a == b,
        Test::NotEqual => a != b,
        Test::Less => x < y,
        Test::LessEqual => x <= y,
        Test::Greater => x > y,
        Test::GreaterEqual => x >= y,
        Test::LessSigned => a < b,
        Test::LessEqualSigned => a <= b,
        Test::GreaterSigned => a > b,
        Test::GreaterEqualSigned => a >= b,
    }
}
