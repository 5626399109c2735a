//! What is known of registers, each over the whole program:
//!
//! - between which numbers its values lie;
//! - whether anything looks at its upper 32 bits. Where nothing does they may hold anything, and
//!   the extensions that C's `int` needs after each operator go away: the kernel compares and
//!   divides lower halves as well as whole registers;
//! - how often it is written.
//!
//! Both analyses go through the list until nothing changes. Ranges that keep growing are given up
//! after a few rounds, so the number of rounds is limited.

use super::flat::{Flat, Item, Step, operands};
use crate::ir::{Op, Operand, Operator, Register, Relation};

/// Between which numbers values lie, both included. Empty: there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub low: i64,
    pub high: i64,
}

impl Range {
    const ALL: Range = Range {
        low: i64::MIN,
        high: i64::MAX,
    };
    const NONE: Range = Range {
        low: i64::MAX,
        high: i64::MIN,
    };

    fn new(low: i64, high: i64) -> Range {
        Range { low, high }
    }

    fn one(value: i64) -> Range {
        Range::new(value, value)
    }

    /// The values of an integer type.
    pub(super) fn of_bits(bits: u8, signed: bool) -> Range {
        match (bits, signed) {
            (64.., _) => Range::ALL,
            (_, true) => Range::new(-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            (_, false) => Range::new(0, (1 << bits) - 1),
        }
    }

    fn join(self, other: Range) -> Range {
        Range::new(self.low.min(other.low), self.high.max(other.high))
    }

    pub(super) fn is_within(self, other: Range) -> bool {
        self.low >= other.low && self.high <= other.high
    }

    pub(super) fn is_signed_half(self) -> bool {
        self.is_within(Range::of_bits(32, true))
    }

    pub(super) fn is_unsigned_half(self) -> bool {
        self.is_within(Range::of_bits(32, false))
    }

    /// The smallest of a few usual ranges around this one.
    fn widened(self) -> Range {
        let usual = [(31, false), (32, false), (32, true)];
        let around = usual
            .iter()
            .map(|(bits, signed)| Range::of_bits(*bits, *signed));
        around
            .into_iter()
            .find(|range| self.is_within(*range))
            .unwrap_or(Range::ALL)
    }
}

/// See the head of this file; by number of register.
#[derive(Debug)]
pub(super) struct Facts {
    ranges: Vec<Range>,
    whole: Vec<bool>,
    /// Writes.
    pub writes: Vec<u32>,
    /// Reads.
    pub reads: Vec<u32>,
    /// Written in a loop.
    pub in_loop: Vec<bool>,
}

/// Rounds after which a range that still grows is widened, and then given up.
const WIDEN: u32 = 3;
const GIVE_UP: u32 = 8;

impl Facts {
    /// Finds them out.
    pub(super) fn of(flat: &Flat<'_>, registers: u32) -> Facts {
        let count = registers as usize;
        let mut facts = Facts {
            // Registers are 0 at first.
            ranges: vec![Range::one(0); count],
            whole: vec![false; count],
            writes: vec![0; count],
            reads: vec![0; count],
            in_loop: vec![false; count],
        };
        for item in &flat.items {
            facts.count(item);
        }
        let mut round = 0;
        while facts.ranges_round(&flat.items, round) {
            round += 1;
        }
        while facts.whole_round(&flat.items) {}
        facts
    }

    fn count(&mut self, item: &Item<'_>) {
        each_read(&item.step, &mut |register| {
            self.reads[register.0 as usize] += 1;
        });
        if let Some(to) = written(&item.step) {
            self.writes[to.0 as usize] += 1;
            self.in_loop[to.0 as usize] |= item.depth > 0;
        }
    }

    /// Between which numbers an operand's values lie.
    pub(super) fn range(&self, operand: Operand) -> Range {
        match operand {
            Operand::Constant(value) => Range::one(value),
            Operand::Register(register) => self.ranges[register.0 as usize],
        }
    }

    /// Whether the upper half of a register counts.
    pub(super) fn is_whole(&self, register: Register) -> bool {
        self.whole[register.0 as usize]
    }

    fn ranges_round(&mut self, items: &[Item<'_>], round: u32) -> bool {
        let mut changed = false;
        for item in items {
            let Some((to, range)) = self.result(&item.step) else {
                continue;
            };
            let before = self.ranges[to.0 as usize];
            let mut after = before.join(range);
            if after == before {
                continue;
            }
            if round >= GIVE_UP {
                after = Range::ALL;
            } else if round >= WIDEN {
                after = after.widened();
            }
            self.ranges[to.0 as usize] = after;
            changed = true;
        }
        changed
    }

    /// What a step writes, and between which numbers that lies.
    pub(super) fn result(&self, step: &Step<'_>) -> Option<(Register, Range)> {
        Some(match step {
            Step::Bound { to, from, count } => {
                // Where it is checked in place, others may read it before that.
                let all = self.range(Operand::Register(*from));
                let below = Range::new(0, i64::from(*count) - 1);
                (*to, if to == from { all } else { below })
            }
            Step::Do(op) => match op {
                Op::Set { to, from } => (*to, self.range(*from)),
                Op::Binary { to, operator, a, b } => {
                    (*to, self.binary(*operator, self.range(*a), self.range(*b)))
                }
                Op::Compare { to, .. } => (*to, Range::new(0, 1)),
                Op::Extend {
                    to,
                    from,
                    bits,
                    signed,
                } => {
                    let all = Range::of_bits(*bits, *signed);
                    let from = self.range(*from);
                    (*to, if from.is_within(all) { from } else { all })
                }
                Op::Load {
                    to, bits, signed, ..
                } => (*to, Range::of_bits(*bits, *signed)),
                Op::NextBit { to, .. } => (*to, Range::new(-1, 63)),
                _ => return None,
            },
            _ => return None,
        })
    }

    fn binary(&self, operator: Operator, a: Range, b: Range) -> Range {
        let corners = |op: fn(i64, i64) -> Option<i64>| {
            let all = [
                (a.low, b.low),
                (a.low, b.high),
                (a.high, b.low),
                (a.high, b.high),
            ];
            let mut range = Range::NONE;
            for (a, b) in all {
                match op(a, b) {
                    Some(value) => range = range.join(Range::one(value)),
                    None => return Range::ALL,
                }
            }
            range
        };
        let not_negative = a.low >= 0 && b.low >= 0;
        match operator {
            Operator::Add => corners(i64::checked_add),
            Operator::Subtract => corners(i64::checked_sub),
            Operator::Multiply => corners(i64::checked_mul),
            Operator::And if b.low >= 0 => Range::new(0, b.high),
            Operator::And if a.low >= 0 => Range::new(0, a.high),
            Operator::Or | Operator::Xor if not_negative => {
                let bits = 64 - (a.high | b.high).leading_zeros();
                if bits < 63 {
                    Range::new(0, (1 << bits) - 1)
                } else {
                    Range::new(0, i64::MAX)
                }
            }
            Operator::Remainder | Operator::RemainderSigned if a.low >= 0 && b.low > 0 => {
                Range::new(0, a.high.min(b.high - 1))
            }
            Operator::ShiftRight | Operator::Divide | Operator::Remainder if not_negative => {
                Range::new(0, a.high)
            }
            // By a constant that leaves the sign bit clear.
            Operator::ShiftRight if b.low == b.high && b.low & 63 != 0 => {
                Range::new(0, (u64::MAX >> (b.low & 63)) as i64)
            }
            Operator::ShiftRightSigned => {
                Range::new(a.low.min(0), if a.high < 0 { -1 } else { a.high })
            }
            // All but the least number / -1 is between the operand and its negative.
            Operator::DivideSigned | Operator::RemainderSigned if a.low > i64::MIN => {
                let most = a.low.abs().max(a.high.abs());
                Range::new(-most, most)
            }
            _ => Range::ALL,
        }
    }

    fn whole_round(&mut self, items: &[Item<'_>]) -> bool {
        let mut changed = false;
        for item in items.iter().rev() {
            self.wanted(&item.step, &mut |facts, operand| {
                if let Operand::Register(register) = operand {
                    let whole = &mut facts.whole[register.0 as usize];
                    changed |= !*whole;
                    *whole = true;
                }
            });
        }
        changed
    }

    /// Calls `want` with every operand whose upper half this step looks at.
    fn wanted(&mut self, step: &Step<'_>, want: &mut impl FnMut(&mut Self, Operand)) {
        match step {
            Step::Bound { to, from, .. } => {
                if !self.is_half_index(*from) || (to == from && self.is_whole(*to)) {
                    want(self, Operand::Register(*from));
                }
            }
            Step::Branch { relation, a, b, .. } => {
                if self.half_compare(*relation, *a, *b).is_none() {
                    want(self, *a);
                    want(self, *b);
                }
            }
            Step::Return(value) => want(self, *value),
            Step::Do(op) => self.wanted_by(op, want),
            Step::Jump(_) | Step::Place(_) | Step::Head(_) | Step::Fail(_) => {}
        }
    }

    fn wanted_by(&mut self, op: &Op, want: &mut impl FnMut(&mut Self, Operand)) {
        match op {
            Op::Set { to, from } if self.is_whole(*to) => want(self, *from),
            Op::Extend {
                to,
                from,
                bits,
                signed,
            } => {
                // One that changes nothing is a copy.
                let range = self.range(*from);
                let fits = range.is_within(Range::of_bits(*bits, *signed));
                if self.is_whole(*to) && fits && !range.is_unsigned_half() {
                    want(self, *from);
                }
            }
            Op::Binary { to, operator, a, b } => {
                let whole = self.is_whole(*to);
                if self.is_half(*operator, *to, *a, *b) {
                    return;
                }
                match operator {
                    Operator::ShiftLeft if !whole => {}
                    Operator::ShiftLeft | Operator::ShiftRight | Operator::ShiftRightSigned => {
                        want(self, *a);
                    }
                    Operator::Divide
                    | Operator::DivideSigned
                    | Operator::Remainder
                    | Operator::RemainderSigned => {
                        want(self, *a);
                        want(self, *b);
                    }
                    _ if whole => {
                        want(self, *a);
                        want(self, *b);
                    }
                    _ => {}
                }
            }
            Op::Compare { relation, a, b, .. }
                if self.half_compare(*relation, *a, *b).is_none() =>
            {
                want(self, *a);
                want(self, *b);
            }
            Op::Store {
                value, bits: 64, ..
            }
            | Op::Atomic {
                value, bits: 64, ..
            } => {
                want(self, *value);
            }
            Op::NextBit { mask, after, .. } => {
                want(self, *mask);
                want(self, *after);
            }
            Op::Effect { values, .. } => {
                for value in values {
                    want(self, *value);
                }
            }
            _ => {}
        }
    }

    /// Whether an index can be compared by its lower half: it is extended either way, so that none
    /// below a count becomes one.
    pub(super) fn is_half_index(&self, index: Register) -> bool {
        let range = self.range(Operand::Register(index));
        range.is_signed_half() || range.is_unsigned_half()
    }

    /// Whether two numbers can be compared by their lower halves, and by which relation then.
    pub(super) fn half_compare(
        &self,
        relation: Relation,
        a: Operand,
        b: Operand,
    ) -> Option<Relation> {
        let (a, b) = (self.range(a), self.range(b));
        if a.is_signed_half() && b.is_signed_half() {
            return Some(relation);
        }
        if !a.is_unsigned_half() || !b.is_unsigned_half() {
            return None;
        }
        Some(match relation {
            Relation::LessSigned => Relation::Less,
            Relation::LessEqualSigned => Relation::LessEqual,
            other => other,
        })
    }

    /// Whether an operator can be done on lower halves: extended by zeros, that is the result, or
    /// nobody looks at more than its lower half.
    pub(super) fn is_half(&self, operator: Operator, to: Register, a: Operand, b: Operand) -> bool {
        let (a, b) = (self.range(a), self.range(b));
        let both = a.is_unsigned_half() && b.is_unsigned_half();
        let count = b.is_within(Range::new(0, 31));
        match operator {
            Operator::Divide | Operator::Remainder | Operator::Or | Operator::Xor => both,
            Operator::And => a.is_unsigned_half() || b.is_unsigned_half(),
            Operator::Add | Operator::Subtract | Operator::Multiply => {
                self.binary(operator, a, b).is_unsigned_half()
            }
            Operator::DivideSigned | Operator::RemainderSigned => {
                a.is_signed_half() && b.is_signed_half() && !self.is_whole(to)
            }
            Operator::ShiftRight => a.is_unsigned_half() && count,
            Operator::ShiftRightSigned => a.is_signed_half() && count && !self.is_whole(to),
            Operator::ShiftLeft => false,
        }
    }
}

/// Calls `see` with every register that a step reads.
pub(super) fn each_read(step: &Step<'_>, see: &mut impl FnMut(Register)) {
    let mut operand = |operand: &Operand| {
        if let Operand::Register(register) = operand {
            see(*register);
        }
    };
    match step {
        Step::Do(op) => operands(op, see),
        Step::Bound { from, .. } => see(*from),
        Step::Branch { a, b, .. } => {
            operand(a);
            operand(b);
        }
        Step::Return(value) => operand(value),
        Step::Jump(_) | Step::Place(_) | Step::Head(_) | Step::Fail(_) => {}
    }
}

/// The register that a step writes.
pub(super) fn written(step: &Step<'_>) -> Option<Register> {
    match step {
        Step::Bound { to, from, .. } => (to != from).then_some(*to),
        Step::Do(
            Op::Set { to, .. }
            | Op::Binary { to, .. }
            | Op::Compare { to, .. }
            | Op::Extend { to, .. }
            | Op::Load { to, .. }
            | Op::NextBit { to, .. },
        ) => Some(*to),
        _ => None,
    }
}
