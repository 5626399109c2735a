//! Operators and comparisons on whole registers. Some operations with constants have cheaper
//! instructions; and numbers are hidden from the verifier as the head of `select` describes.

use super::machine::{Inst, Label, Test, V, Value};
use super::select::Select;
use crate::ir::{Operand, Operator, Register, Relation};

impl Select<'_> {
    pub(super) fn extend(&mut self, to: Register, from: Operand, bits: u8, signed: bool) {
        let Operand::Register(from) = from else {
            return self.set(to, Operand::Constant(extended(from, bits, signed)));
        };
        let (to, from) = (Self::named(to), Self::named(from));
        self.emit(match (bits, signed) {
            (32, false) => Inst::Move {
                to,
                from: Value::Register(from),
                narrow: true,
            },
            (_, true) => Inst::SignExtend { to, from, bits },
            (_, false) => Inst::Alu {
                operator: Operator::And,
                to,
                a: from,
                b: Value::Immediate((1 << bits) - 1),
                narrow: true,
            },
        });
    }

    pub(super) fn compare_and_branch(
        &mut self,
        relation: Relation,
        (a, b): (Operand, Operand),
        unless: bool,
        to: Label,
        meets: bool,
    ) {
        let (mut a, mut b, mut test) = (a, b, test_of(relation));
        if let (Operand::Constant(a), Operand::Constant(b)) = (a, b) {
            if relation.holds(a, b) != unless {
                self.emit(Inst::Jump(to));
            }
            return;
        }
        if matches!(a, Operand::Constant(_)) {
            (a, b, test) = (b, a, test.exchanged());
        }
        if unless {
            test = test.opposite();
        }
        let hides = meets && self.careful;
        let mut left = self.register(a);
        if hides && !self.is_done(a, to) {
            left = self.hidden(left);
        }
        let mut right = self.value(b);
        if let (Operand::Register(_), Value::Register(v)) = (b, right)
            && hides
            && !self.is_done(b, to)
        {
            right = Value::Register(self.hidden(v));
        }
        self.branch(test, left, right, to);
    }

    /// A hidden copy, which is compared instead of the number itself.
    fn hidden(&mut self, v: V) -> V {
        let to = self.code.register();
        self.set_hidden(to, Value::Register(v));
        to
    }

    pub(super) fn compare(&mut self, to: Register, relation: Relation, a: Operand, b: Operand) {
        let target = Self::named(to);
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
        if self.careful && !self.is_merged(to) {
            self.hide(target);
        }
    }

    pub(super) fn binary(&mut self, to: Register, operator: Operator, a: Operand, b: Operand) {
        let target = Self::named(to);
        let (a, b) = match (a, b) {
            (Operand::Constant(_), Operand::Register(_)) if operator.commutes() => (b, a),
            other => other,
        };
        if let (Operator::Subtract, Operand::Constant(0), Operand::Register(b)) = (operator, a, b) {
            return self.emit(Inst::Negate {
                to: target,
                a: Self::named(b),
                narrow: false,
            });
        }
        let left = self.register(a);
        if let Operand::Constant(b) = b
            && self.with_constant(operator, target, left, b)
        {
            return;
        }
        let right = self.value(b);
        if right == Value::Register(target) && left != target && !operator.commutes() {
            let result = self.code.register();
            self.alu(operator, result, left, right, false);
            let from = Value::Register(result);
            self.emit(Inst::Move {
                to: target,
                from,
                narrow: false,
            });
        } else {
            self.alu(operator, target, left, right, false);
        }
    }

    /// An operation with a constant for which there is a cheaper instruction, or for which the
    /// kernel has none.
    fn with_constant(&mut self, operator: Operator, to: V, a: V, b: i64) -> bool {
        let copy = |from| Inst::Move {
            to,
            from,
            narrow: false,
        };
        match (operator, b) {
            (Operator::ShiftLeft | Operator::ShiftRight | Operator::ShiftRightSigned, _) => {
                match b & 63 {
                    0 => self.emit(copy(Value::Register(a))),
                    count => self.alu(operator, to, a, Value::Immediate(count as i32), false),
                }
            }
            (Operator::Divide | Operator::DivideSigned | Operator::Multiply, 0) => {
                self.emit(copy(Value::Immediate(0)));
            }
            (Operator::Remainder | Operator::RemainderSigned, 0) => {
                self.emit(copy(Value::Register(a)));
            }
            (Operator::Subtract, _) if b != i64::MIN && i32::try_from(-b).is_ok() => {
                let b = self.constant(-b);
                self.alu(Operator::Add, to, a, b, false);
            }
            _ => return false,
        }
        true
    }
}

fn extended(from: Operand, bits: u8, signed: bool) -> i64 {
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
