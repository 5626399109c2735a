//! Makes a program smaller without changing its behaviour, for the kernel and for user space: a
//! forward pass replaces constants and copies and removes checks by the known [`Facts`] about
//! registers; then [`prune`](super::prune) goes backwards and removes unused instructions. Both run
//! twice, because each finds more after the other. The first time short loops are unrolled
//! ([`unroll`](super::unroll)). Finally registers are renumbered.
//!
//! Fuel, stores, requests and faults stay, in their order; only a check that cannot fail is
//! removed.

use super::unroll::Unroll;
use super::{fold, fuel, prune};
use crate::ir::facts::{Facts, Mark};
use crate::ir::{
    Address, Dynamic, Fault, Instruction, Label, Op, Operand, Operator, Program, Register, Relation,
};
use crate::range::Range;
use crate::source::Span;

/// See the head of this file.
pub(super) fn simplify(program: &mut Program) {
    let mut rounds = ByLabel::default();
    for pass in 0..2 {
        let unroll = match pass {
            0 => Unroll::new(program),
            _ => Unroll::never(program),
        };
        let mut simplifier = Simplifier {
            facts: Facts::new(program.registers),
            exits: ByLabel::default(),
            rounds_of: ByLabel::default(),
            unroll,
        };
        let body = std::mem::take(&mut program.body);
        program.body = simplifier.list(body).0;
        program.registers = program.registers.max(simplifier.unroll.registers());
        prune::prune(program);
        rounds = simplifier.rounds_of;
    }
    fuel::settle(program, &rounds);
    number_registers(program);
    number_labels(&mut program.body, &mut 0, &mut Vec::new());
    program.loop_depth = loop_depth(&program.body);
}

/// Something about each label.
#[derive(Clone, Debug, Default)]
pub(super) struct ByLabel<T>(Vec<T>);

impl<T: Copy + Default> ByLabel<T> {
    pub(super) fn get(&self, label: Label) -> T {
        self.0.get(label.0 as usize).copied().unwrap_or_default()
    }

    fn get_mut(&mut self, label: Label) -> &mut T {
        let at = label.0 as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, T::default());
        }
        &mut self.0[at]
    }
}

pub(super) struct Simplifier {
    pub(super) facts: Facts,
    /// The number of exits of each label so far.
    pub(super) exits: ByLabel<u32>,
    /// The largest number of rounds of each loop, if it is known.
    pub(super) rounds_of: ByLabel<Option<u64>>,
    pub(super) unroll: Unroll,
}

/// Instructions, and whether their end can be reached.
type List = (Vec<Instruction>, bool);

impl Simplifier {
    pub(super) fn list(&mut self, body: Vec<Instruction>) -> List {
        let mut out = Vec::with_capacity(body.len());
        for instruction in body {
            if !self.instruction(instruction, &mut out) {
                return (out, false);
            }
        }
        (out, true)
    }

    /// Appends the simplified instruction; returns whether its end is reached.
    fn instruction(&mut self, instruction: Instruction, out: &mut Vec<Instruction>) -> bool {
        let Instruction { mut op, span } = instruction;
        self.operands(&mut op);
        match op {
            Op::If {
                relation,
                a,
                b,
                then,
                otherwise,
            } => {
                return self.choice((relation, a, b), then, otherwise, span, out);
            }
            Op::Block { label, body } => return self.block(label, body, span, out),
            Op::Loop { label, body } => return self.repeat(label, body, span, out),
            Op::Exit(label) => {
                *self.exits.get_mut(label) += 1;
                out.push(Instruction { op, span });
                return false;
            }
            Op::Bound { index, count } => return self.bound(index, count, span, out),
            _ => {}
        }
        let op = self.plain(op);
        let goes_on = !matches!(op, Op::Return(_) | Op::Fail(_));
        self.facts.apply(&op);
        out.push(Instruction { op, span });
        goes_on
    }

    /// Replaces operands by simpler ones.
    fn operands(&mut self, op: &mut Op) {
        let facts = &self.facts;
        match op {
            Op::Load { from: at, .. }
            | Op::Store { to: at, .. }
            | Op::Atomic { to: at, .. }
            | Op::Zero { to: at, .. } => constant_index(facts, at),
            Op::Copy { to, from, .. } => {
                constant_index(facts, to);
                constant_index(facts, from);
            }
            _ => {}
        }
        op.reads_mut(&mut |operand| *operand = facts.resolve(*operand));
    }

    /// The simpler form of an instruction that contains no others.
    fn plain(&self, op: Op) -> Op {
        match op {
            Op::Binary { to, operator, a, b } => match fold::binary(operator, a, b) {
                Some(from) => Op::Set { to, from },
                None => {
                    let (operator, a, b) = self.cheaper(operator, a, b);
                    let (operator, a, b) = self.product(operator, a, b);
                    self.known(Op::Binary { to, operator, a, b }, to)
                }
            },
            Op::Compare { to, relation, a, b } => {
                let (relation, a, b) = self.relation(relation, a, b);
                match self.decide(relation, a, b) {
                    Some(known) => {
                        let from = Operand::Constant(i64::from(known));
                        Op::Set { to, from }
                    }
                    None => Op::Compare { to, relation, a, b },
                }
            }
            Op::Extend {
                to,
                from,
                bits,
                signed,
            } => {
                let all = Range::of_bits(bits, signed);
                match from {
                    Operand::Constant(value) => {
                        let from = Operand::Constant(crate::ir::extend(value, bits, signed));
                        Op::Set { to, from }
                    }
                    Operand::Register(_) if all.holds(self.facts.range(from)) => {
                        Op::Set { to, from }
                    }
                    Operand::Register(_) => Op::Extend {
                        to,
                        from,
                        bits,
                        signed,
                    },
                }
            }
            Op::Load { to, .. } => self.known(op, to),
            other => other,
        }
    }

    /// `(a + 3) * 4` becomes `a * 4 + 12`, if a register already holds `a * 4`.
    fn product(&self, operator: Operator, a: Operand, b: Operand) -> (Operator, Operand, Operand) {
        let as_it_is = (operator, a, b);
        let (Operator::Multiply, Operand::Register(sum), Operand::Constant(by)) = as_it_is else {
            return as_it_is;
        };
        let Some((base, plus)) = self.facts.sum(sum) else {
            return as_it_is;
        };
        let product = Op::Binary {
            to: sum,
            operator,
            a: Operand::Register(base),
            b,
        };
        match self.facts.result(&product) {
            Some(product) => {
                let plus = Operand::Constant(plus.wrapping_mul(by));
                (Operator::Add, product, plus)
            }
            None => as_it_is,
        }
    }

    /// A copy, if another register has the result already.
    fn known(&self, op: Op, to: Register) -> Op {
        match self.facts.result(&op) {
            Some(from) => Op::Set { to, from },
            None => op,
        }
    }

    /// The same operation with a constant on the right, and a shift or mask instead of a division.
    fn cheaper(&self, operator: Operator, a: Operand, b: Operand) -> (Operator, Operand, Operand) {
        let not_negative = self.facts.range(a).low >= 0;
        match (operator, a, b) {
            (_, Operand::Constant(_), Operand::Register(_)) if operator.commutes() => {
                self.cheaper(operator, b, a)
            }
            (Operator::Divide | Operator::DivideSigned, _, Operand::Constant(by))
                if by > 0
                    && by & (by - 1) == 0
                    && (not_negative || operator == Operator::Divide) =>
            {
                let by = Operand::Constant(i64::from(by.trailing_zeros()));
                (Operator::ShiftRight, a, by)
            }
            (Operator::Remainder | Operator::RemainderSigned, _, Operand::Constant(by))
                if by > 0
                    && by & (by - 1) == 0
                    && (not_negative || operator == Operator::Remainder) =>
            {
                (Operator::And, a, Operand::Constant(by - 1))
            }
            _ => (operator, a, b),
        }
    }

    /// Of a comparison of another comparison's outcome with a constant: that other one, or its
    /// negation.
    fn relation(&self, relation: Relation, a: Operand, b: Operand) -> (Relation, Operand, Operand) {
        let (a, b) = match (relation, a, b) {
            (Relation::Equal | Relation::NotEqual, Operand::Constant(_), _) => (b, a),
            _ => (a, b),
        };
        let holds = match (relation, b) {
            (Relation::NotEqual, Operand::Constant(0)) => true,
            (Relation::Equal, Operand::Constant(1)) => true,
            (Relation::Equal, Operand::Constant(0)) => false,
            (Relation::NotEqual, Operand::Constant(1)) => false,
            _ => return (relation, a, b),
        };
        match self.facts.outcome(a) {
            None => (relation, a, b),
            Some((inner, a, b)) if holds => self.relation(inner, a, b),
            Some((inner, a, b)) => {
                let (relation, a, b) = opposite(inner, a, b);
                self.relation(relation, a, b)
            }
        }
    }

    fn decide(&self, relation: Relation, a: Operand, b: Operand) -> Option<bool> {
        fold::relation(relation, a, b).or_else(|| self.facts.decide(relation, a, b))
    }

    fn bound(
        &mut self,
        index: Register,
        count: u32,
        span: Span,
        out: &mut Vec<Instruction>,
    ) -> bool {
        let below = Operand::Constant(i64::from(count));
        let operand = Operand::Register(index);
        let op = match self.decide(Relation::Less, operand, below) {
            Some(true) => return true,
            Some(false) => Op::Fail(Fault::Index),
            None => Op::Bound { index, count },
        };
        let goes_on = !matches!(op, Op::Fail(_));
        self.facts.apply(&op);
        out.push(Instruction { op, span });
        goes_on
    }

    fn choice(
        &mut self,
        (relation, a, b): (Relation, Operand, Operand),
        then: Vec<Instruction>,
        otherwise: Vec<Instruction>,
        span: Span,
        out: &mut Vec<Instruction>,
    ) -> bool {
        let (relation, a, b) = self.relation(relation, a, b);
        if let Some(known) = self.decide(relation, a, b) {
            let (mut taken, reached) = self.list(if known { then } else { otherwise });
            out.append(&mut taken);
            return reached;
        }
        let mark = self.facts.mark();
        self.facts.assume(relation, a, b);
        let (then, then_reached) = self.list(then);
        let then_facts = self.facts.end_branch(mark);
        let not = opposite(relation, a, b);
        let mark = self.facts.mark();
        self.facts.assume(not.0, not.1, not.2);
        let (otherwise, reached) = self.list(otherwise);
        match (then_reached, reached) {
            (false, _) => {}
            (true, false) => {
                self.facts.end_branch(mark);
                self.facts.assume(relation, a, b);
                self.facts.take(&then_facts);
            }
            (true, true) => {
                let facts = self.facts.end_branch(mark);
                self.facts.join(&then_facts, &facts);
            }
        }
        let (mut then, mut otherwise) = (then, otherwise);
        self.take_out(&mut then, &mut otherwise, out);
        let store = self.sink_store(&mut then, &mut otherwise);
        let op = if then.is_empty() {
            let (relation, a, b) = not;
            Op::If {
                relation,
                a,
                b,
                then: otherwise,
                otherwise: then,
            }
        } else {
            Op::If {
                relation,
                a,
                b,
                then,
                otherwise,
            }
        };
        // Instructions after an `if` follow the branch that does not end the run.
        out.push(Instruction { op, span });
        out.extend(store);
        then_reached || reached
    }

    fn block(
        &mut self,
        label: Label,
        body: Vec<Instruction>,
        span: Span,
        out: &mut Vec<Instruction>,
    ) -> bool {
        let mark = self.facts.mark();
        let (body, reached) = self.list(body);
        self.end_block((label, mark), body, reached, span, out)
    }

    /// Appends the simplified block with this body, which began at that mark.
    fn end_block(
        &mut self,
        (label, mark): (Label, Mark),
        mut body: Vec<Instruction>,
        reached: bool,
        span: Span,
        out: &mut Vec<Instruction>,
    ) -> bool {
        let all = self.exits.get(label);
        // An exit at the end of its block has no effect.
        let is_last =
            matches!(body.last(), Some(Instruction { op: Op::Exit(to), .. }) if *to == label);
        if all == 1 && is_last {
            body.pop();
            *self.exits.get_mut(label) = 0;
            out.append(&mut body);
            return true;
        }
        if all == 0 {
            out.append(&mut body);
            return reached;
        }
        self.facts.end_block(mark);
        out.push(Instruction {
            op: Op::Block { label, body },
            span,
        });
        true
    }

    fn repeat(
        &mut self,
        label: Label,
        body: Vec<Instruction>,
        span: Span,
        out: &mut Vec<Instruction>,
    ) -> bool {
        let mark = self.facts.mark();
        if let Some(body) = self.rounds(&body) {
            return self.end_block((label, mark), body, false, span, out);
        }
        let body = self.several(label, &body).unwrap_or(body);
        if let Some(rounds) = self.facts.enter_loop(label, &body) {
            *self.rounds_of.get_mut(label) = Some(rounds);
        }
        let mark = self.facts.mark();
        let (body, _) = self.list(body);
        self.facts.end_block(mark);
        out.push(Instruction {
            op: Op::Loop { label, body },
            span,
        });
        self.exits.get(label) > 0
    }
}

fn opposite(relation: Relation, a: Operand, b: Operand) -> (Relation, Operand, Operand) {
    match relation.opposite() {
        (relation, false) => (relation, a, b),
        (relation, true) => (relation, b, a),
    }
}

/// Moves the constant part of a computed offset into the address, and lowers the offset's bound.
fn constant_index(facts: &Facts, address: &mut Address) {
    fixed_index(facts, address);
    while let Some(index) = address.index
        && let Some((register, plus)) = facts.sum(index.register)
        && let Ok(plus) = u32::try_from(plus)
        && let Some(largest) = index.largest.checked_sub(plus)
        && is_at_most(facts, register, largest)
    {
        address.offset += plus;
        address.index = Some(Dynamic { register, largest });
    }
    if let Some(index) = &mut address.index {
        let Range { low, high } = facts.range(Operand::Register(index.register));
        if let (0.., Ok(high)) = (low, u32::try_from(high)) {
            index.largest = index.largest.min(high);
        }
    }
}

fn is_at_most(facts: &Facts, register: Register, largest: u32) -> bool {
    let range = facts.range(Operand::Register(register));
    range.low >= 0 && range.high <= i64::from(largest)
}

fn fixed_index(facts: &Facts, address: &mut Address) {
    let Some(index) = address.index else {
        return;
    };
    if let Operand::Constant(known) = facts.resolve(Operand::Register(index.register))
        && (0..=i64::from(index.largest)).contains(&known)
    {
        address.offset += known as u32;
        address.index = None;
    }
}

/// The deepest loop in a loop.
fn loop_depth(body: &[Instruction]) -> u32 {
    let depth_of = |op: &Op| {
        let inside = op.bodies().map(loop_depth).max().unwrap_or(0);
        inside + u32::from(matches!(op, Op::Loop { .. }))
    };
    body.iter()
        .map(|instruction| depth_of(&instruction.op))
        .max()
        .unwrap_or(0)
}

/// Numbers registers in the order in which the text meets them.
fn number_registers(program: &mut Program) {
    let mut numbers = vec![None; program.registers as usize];
    let mut next = 0;
    renumber(&mut program.body, &mut |register| {
        let number = numbers[register.0 as usize].get_or_insert_with(|| {
            next += 1;
            Register(next - 1)
        });
        *register = *number;
    });
    program.registers = next;
}

/// Numbers labels in that order too, from `next` on. `around`: blocks and loops around, outermost
/// first, each with its new label.
pub(super) fn number_labels(
    body: &mut [Instruction],
    next: &mut u32,
    around: &mut Vec<(Label, Label)>,
) {
    for Instruction { op, .. } in body {
        match op {
            Op::Block { label, .. } | Op::Loop { label, .. } => {
                around.push((*label, Label(*next)));
                *label = Label(*next);
                *next += 1;
                op.bodies_mut(&mut |inner| number_labels(inner, next, around));
                around.pop();
            }
            Op::Exit(label) => {
                let there = around.iter().rev().find(|(known, _)| known == label);
                *label = there.map_or(*label, |(_, new)| *new);
            }
            _ => op.bodies_mut(&mut |inner| number_labels(inner, next, around)),
        }
    }
}

fn renumber(body: &mut [Instruction], number: &mut dyn FnMut(&mut Register)) {
    for Instruction { op, .. } in body {
        op.reads_mut(&mut |operand| {
            if let Operand::Register(register) = operand {
                number(register);
            }
        });
        if let Some(to) = op.target() {
            number(to);
        }
        op.bodies_mut(&mut |inner| renumber(inner, number));
    }
}
