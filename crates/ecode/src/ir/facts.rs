//! Facts about registers at a point of a program: the range of each value, and whether a register
//! is a copy of another one or the outcome of a comparison. The simplifier uses them, and with them
//! the verifier of the IR proves that addresses stay inside their regions.
//!
//! A forward walk through a program calls [`Facts::apply`] for each plain instruction, and for the
//! others:
//!
//! - before a loop's body [`Facts::enter_loop`], since the body is reached from its end, too;
//! - for each branch of an `if` [`Facts::mark`], [`Facts::assume`], and then
//!   [`Facts::end_branch`]; behind both [`Facts::join`];
//! - after a block or loop [`Facts::end_block`], since an exit may have come from anywhere inside.
//!
//! A register has a version, new with each write. A fact that refers to a register names its
//! version, and is void once the version has changed. Undoing a branch restores the versions as
//! well.

use std::marker::PhantomData;
use std::num::NonZeroU32;

use super::counting::counting;
use super::invariant::invariant;
use super::{Address, Instruction, Label, Op, Operand, Operator, Region, Register, Relation};
use crate::range::Range;

/// An operand with its version at the time of a fact.
type Then = (Operand, u32);

/// An odd number with half of its bits set.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Slots for computations by their hash: unrolled loops add computations.
const HASHES_LEAST: usize = 256;
/// Writes that may be examined for invariants of loops: about a millisecond.
const EFFORT: usize = 20_000;
/// Computations with one hash that are compared: a hostile text can give all the same hash.
const SAME_HASH: u32 = 64;

/// How a register was computed, if the same computation always has the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computation {
    Binary(Operator, Operand, Operand),
    /// A load from memory that does not change during a run.
    Load(Address, u8, bool),
}

impl Computation {
    fn of(op: &Op) -> Option<Computation> {
        match *op {
            Op::Binary { operator, a, b, .. } => Some(Computation::Binary(operator, a, b)),
            Op::Load {
                from, bits, signed, ..
            } if matches!(from.region, Region::Input | Region::Event) => {
                Some(Computation::Load(from, bits, signed))
            }
            _ => None,
        }
    }

    /// Equal for equal computations; spread over all 32 bits.
    fn hash(self) -> u32 {
        let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(MIX);
        let of_operand = |hash, operand| match operand {
            Operand::Register(register) => mix(hash, u64::from(register.0)),
            Operand::Constant(value) => mix(!hash, value as u64),
        };
        let [a, b] = self.operands();
        let kind = match self {
            Computation::Binary(operator, ..) => operator as u64,
            Computation::Load(from, bits, signed) => {
                let offset = u64::from(from.offset) << 32;
                offset | u64::from(bits) << 8 | (from.region as u64) << 1 | u64::from(signed)
            }
        };
        (of_operand(of_operand(mix(0, kind), a), b) >> 32) as u32
    }

    fn operands(self) -> [Operand; 2] {
        let nothing = Operand::Constant(0);
        match self {
            Computation::Binary(_, a, b) => [a, b],
            Computation::Load(from, ..) => {
                let index = from.index.map(|index| Operand::Register(index.register));
                [index.unwrap_or(nothing), nothing]
            }
        }
    }
}

/// The facts about one register. There is one for each register, and another one for each change
/// that may be undone; so large and rare facts are in lists, and their numbers are here.
#[derive(Clone, Copy, Debug)]
struct Known {
    range: Range,
    /// The operand of which it is a copy.
    same: Number<Then>,
    /// The comparison of which it is the outcome, 1 or 0.
    outcome: Number<(Relation, Then, Then)>,
    /// The computation of which it is the result.
    computed: Number<Computed>,
    version: u32,
}

const _: () = assert!(size_of::<Known>() <= 40, "copied at each change");

impl Known {
    const UNWRITTEN: Known = Known {
        range: Range::of(0),
        same: Number::NONE,
        outcome: Number::NONE,
        computed: Number::NONE,
        version: 0,
    };
}

/// The number of an entry of a [`List`], or none.
#[derive(Debug)]
struct Number<T>(Option<NonZeroU32>, PhantomData<T>);

impl<T> Number<T> {
    const NONE: Number<T> = Number(None, PhantomData);
}

impl<T> Clone for Number<T> {
    fn clone(&self) -> Number<T> {
        *self
    }
}

impl<T> Copy for Number<T> {}

/// A list that only grows.
#[derive(Debug)]
struct List<T>(Vec<T>);

impl<T: Copy> List<T> {
    fn add(&mut self, one: T) -> Number<T> {
        self.0.push(one);
        let count = u32::try_from(self.0.len()).ok();
        Number(count.and_then(NonZeroU32::new), PhantomData)
    }

    fn get(&self, number: Number<T>) -> Option<T> {
        let at = number.0?.get() as usize - 1;
        self.0.get(at).copied()
    }
}

/// A computation with its operands as they were then.
#[derive(Clone, Copy, Debug)]
struct Computed {
    computation: Computation,
    operands: [Then; 2],
    /// The register that was computed.
    to: Register,
    /// The former one with the same hash.
    before: Number<Computed>,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Facts {
    known: Vec<Known>,
    sames: List<Then>,
    outcomes: List<(Relation, Then, Then)>,
    computations: List<Computed>,
    /// The last computation with each hash; its length is a power of two.
    last: Vec<Number<Computed>>,
    versions: u32,
    /// The former state of each changed register, for going back.
    undo: Vec<(u32, Known)>,
    /// Each write: the register and its range.
    writes: Vec<(u32, Range)>,
    /// Writes in loops that may still be examined for invariants.
    pub(super) effort: usize,
}

/// A point to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    undo: usize,
    writes: usize,
}

/// The registers that a branch of an `if` wrote, with their ranges at its end.
#[derive(Debug)]
pub struct Branch {
    written: Vec<(u32, Range)>,
}

impl Branch {
    /// Keeps the registers that both branches have written, each with the hull of both ranges.
    pub(super) fn or(&mut self, other: &Branch) {
        let mut others = other.written.iter().peekable();
        self.written.retain_mut(|(register, range)| {
            while others.next_if(|(there, _)| there < register).is_some() {}
            match others.next_if(|(there, _)| there == register) {
                Some((_, there)) => *range = range.hull(*there),
                None => return false,
            }
            true
        });
    }
}

impl Facts {
    /// Of the beginning of a run: all registers are 0.
    pub fn new(registers: u32) -> Facts {
        // Most registers are written once, with what is computed. Growing would cost more.
        let most = registers as usize;
        Facts {
            known: vec![Known::UNWRITTEN; most],
            sames: List(Vec::new()),
            outcomes: List(Vec::new()),
            computations: List(Vec::with_capacity(most)),
            last: vec![Number::NONE; most.next_power_of_two().max(HASHES_LEAST)],
            versions: 0,
            undo: Vec::new(),
            writes: Vec::new(),
            effort: EFFORT,
        }
    }

    /// Extends the facts to so many registers.
    pub fn grow(&mut self, registers: u32) {
        self.known.resize(registers as usize, Known::UNWRITTEN);
    }

    /// Bounds of an operand.
    pub fn range(&self, operand: Operand) -> Range {
        match operand {
            Operand::Constant(value) => Range::of(value),
            Operand::Register(register) => self.known[register.0 as usize].range,
        }
    }

    /// The simplest operand with the same value: a constant, or the register that this one is a
    /// copy of.
    pub fn resolve(&self, operand: Operand) -> Operand {
        let Operand::Register(register) = operand else {
            return operand;
        };
        let known = &self.known[register.0 as usize];
        match (known.range.only(), self.sames.get(known.same)) {
            (Some(value), _) => Operand::Constant(value),
            (None, Some(same)) if self.still(same) => same.0,
            _ => operand,
        }
    }

    /// The comparison whose outcome, 1 or 0, a register is.
    pub fn outcome(&self, operand: Operand) -> Option<(Relation, Operand, Operand)> {
        let Operand::Register(register) = operand else {
            return None;
        };
        let outcome = self.known[register.0 as usize].outcome;
        let (relation, a, b) = self.outcomes.get(outcome)?;
        (self.still(a) && self.still(b)).then_some((relation, a.0, b.0))
    }

    /// Whether the relation holds, if the ranges decide it.
    pub fn decide(&self, relation: Relation, a: Operand, b: Operand) -> Option<bool> {
        self.range(a).related(relation, self.range(b))
    }

    /// A register that already holds the result of this instruction.
    pub fn result(&self, op: &Op) -> Option<Operand> {
        let computation = Computation::of(op)?;
        let to = self.last_to(computation)?;
        let computed = self.known[to.0 as usize].computed;
        let there = self.computations.get(computed)?;
        let same = there.computation == computation
            && there.operands == computation.operands().map(|one| self.then(one));
        same.then_some(Operand::Register(to))
    }

    /// The register that was last computed in this way. It may have changed since.
    fn last_to(&self, computation: Computation) -> Option<Register> {
        let mut at = self.last[self.place(computation)];
        for _ in 0..SAME_HASH {
            let one = self.computations.get(at)?;
            if one.computation == computation {
                return Some(one.to);
            }
            at = one.before;
        }
        None
    }

    /// The slot of a computation in `last`.
    fn place(&self, computation: Computation) -> usize {
        computation.hash() as usize & (self.last.len() - 1)
    }

    /// The register and the constant whose sum a register is.
    pub fn sum(&self, of: Register) -> Option<(Register, i64)> {
        let computed = self.known[of.0 as usize].computed;
        let Computed {
            computation,
            operands: [then, _],
            ..
        } = self.computations.get(computed)?;
        match computation {
            Computation::Binary(
                Operator::Add,
                Operand::Register(base),
                Operand::Constant(plus),
            ) if self.still(then) => Some((base, plus)),
            _ => None,
        }
    }

    fn compute(&mut self, op: &Op, to: Register, range: Range) {
        let Some(computation) = Computation::of(op) else {
            return self.write(to, range);
        };
        let operands = computation.operands().map(|one| self.then(one));
        let place = self.place(computation);
        let computed = self.computations.add(Computed {
            computation,
            operands,
            to,
            before: self.last[place],
        });
        self.last[place] = computed;
        self.write(to, range);
        self.known[to.0 as usize].computed = computed;
    }

    fn then(&self, operand: Operand) -> Then {
        match operand {
            Operand::Constant(_) => (operand, 0),
            Operand::Register(register) => (operand, self.known[register.0 as usize].version),
        }
    }

    fn still(&self, then: Then) -> bool {
        self.then(then.0) == then
    }

    fn change(&mut self, register: u32, new: Known) {
        let slot = &mut self.known[register as usize];
        self.undo.push((register, *slot));
        *slot = new;
    }

    fn write(&mut self, to: Register, range: Range) {
        self.versions += 1;
        let version = self.versions;
        self.writes.push((to.0, range));
        self.change(
            to.0,
            Known {
                range,
                version,
                ..Known::UNWRITTEN
            },
        );
    }

    /// Updates the facts for this instruction, which contains no others.
    pub fn apply(&mut self, op: &Op) {
        let range = written(op, &|operand| self.range(operand));
        match *op {
            Op::Set { to, from } => {
                let same = self.then(self.resolve(from));
                let outcome = match from {
                    Operand::Register(from) => self.known[from.0 as usize].outcome,
                    Operand::Constant(_) => Number::NONE,
                };
                self.write(to, range);
                let known = &mut self.known[to.0 as usize];
                known.outcome = outcome;
                if same.0 != Operand::Register(to) {
                    known.same = self.sames.add(same);
                }
            }
            Op::Binary { to, .. } | Op::Load { to, .. } => self.compute(op, to, range),
            Op::Compare { to, relation, a, b } => {
                let outcome = (relation, self.then(a), self.then(b));
                self.write(to, range);
                self.known[to.0 as usize].outcome = self.outcomes.add(outcome);
            }
            Op::Bound { index, count } => {
                let below = Range::new(0, i64::from(count) - 1);
                self.narrow(Operand::Register(index), below);
            }
            _ => {
                if let Some(to) = op.writes() {
                    self.write(to, range);
                }
            }
        }
    }

    /// Assumes that the relation holds from here on.
    pub fn assume(&mut self, relation: Relation, a: Operand, b: Operand) {
        let (of_a, of_b) = (self.range(a), self.range(b));
        match relation {
            Relation::Equal => {
                self.narrow(a, of_b);
                self.narrow(b, of_a);
            }
            Relation::NotEqual => {
                self.narrow(a, of_a.without(of_b));
                self.narrow(b, of_b.without(of_a));
            }
            Relation::Less | Relation::LessEqual if of_b.low < 0 => {}
            Relation::Less | Relation::LessSigned => {
                let least = if relation == Relation::Less {
                    0
                } else {
                    i64::MIN
                };
                self.narrow(a, Range::new(least, of_b.high.saturating_sub(1)));
                if relation == Relation::LessSigned || of_a.low >= 0 {
                    self.narrow(b, Range::new(of_a.low.saturating_add(1), i64::MAX));
                }
            }
            Relation::LessEqual | Relation::LessEqualSigned => {
                let least = if relation == Relation::LessEqual {
                    0
                } else {
                    i64::MIN
                };
                self.narrow(a, Range::new(least, of_b.high));
                if relation == Relation::LessEqualSigned || of_a.low >= 0 {
                    self.narrow(b, Range::new(of_a.low, i64::MAX));
                }
            }
        }
    }

    /// Narrows the range of a register, and of the register that it is a copy of.
    fn narrow(&mut self, operand: Operand, range: Range) {
        let Operand::Register(register) = operand else {
            return;
        };
        let known = self.known[register.0 as usize];
        let range = known.range.meet(range);
        if range == known.range {
            return;
        }
        self.change(register.0, Known { range, ..known });
        if let Some(same) = self.sames.get(known.same)
            && self.still(same)
        {
            self.narrow(same.0, range);
        }
    }

    /// Forgets all facts about a register.
    pub fn forget(&mut self, register: Register) {
        self.write(register, Range::ALL);
    }

    /// At the head of a loop with this body: forgets the registers that the loop writes, except for
    /// their invariant ranges and the range of the loop's counter. Returns the largest number of
    /// times that the end of the body is reached, if it is known.
    pub fn enter_loop(&mut self, label: Label, body: &[Instruction]) -> Option<u64> {
        let counting = counting(label, body, &|operand| self.range(operand));
        let mut effort = self.effort;
        let stays = invariant(body, &|operand| self.range(operand), &mut effort);
        self.effort = effort;
        self.forget_written(body);
        for (register, range) in stays {
            self.narrow(Operand::Register(register), range);
        }
        let counting = counting?;
        self.narrow(Operand::Register(counting.register), counting.at_head);
        Some(counting.rounds)
    }

    /// Forgets the registers that these instructions write.
    fn forget_written(&mut self, body: &[Instruction]) {
        for instruction in body {
            if let Some(register) = instruction.op.writes() {
                self.forget(register);
            }
            instruction
                .op
                .bodies()
                .for_each(|inner| self.forget_written(inner));
        }
    }

    /// Remembers this point.
    pub fn mark(&self) -> Mark {
        Mark {
            undo: self.undo.len(),
            writes: self.writes.len(),
        }
    }

    /// Ends a branch that began at this mark, and restores the facts there.
    pub fn end_branch(&mut self, mark: Mark) -> Branch {
        let branch = self.since(mark);
        self.back(mark);
        branch
    }

    /// The registers written since this mark, with their ranges here.
    pub(super) fn since(&self, mark: Mark) -> Branch {
        let mut written: Vec<u32> = self.writes[mark.writes..]
            .iter()
            .map(|(register, _)| *register)
            .collect();
        written.sort_unstable();
        written.dedup();
        let at_end = |register: u32| (register, self.known[register as usize].range);
        let written = written.into_iter().map(at_end).collect();
        Branch { written }
    }

    fn back(&mut self, mark: Mark) {
        for (register, before) in self.undo.drain(mark.undo..).rev() {
            self.known[register as usize] = before;
        }
    }

    /// After an `if` of which either branch may have been taken.
    pub fn join(&mut self, then: &Branch, otherwise: &Branch) {
        for (one, other) in [(then, otherwise), (otherwise, then)] {
            for (register, range) in &one.written {
                let there = other
                    .written
                    .binary_search_by_key(register, |(other, _)| *other);
                let range = match there {
                    Ok(at) => range.hull(other.written[at].1),
                    Err(_) => range.hull(self.known[*register as usize].range),
                };
                if there.is_err() || std::ptr::eq(one, then) {
                    self.write(Register(*register), range);
                }
            }
        }
    }

    /// After an `if` of which only this branch continues.
    pub fn take(&mut self, branch: &Branch) {
        for (register, range) in &branch.written {
            self.write(Register(*register), *range);
        }
    }

    /// Narrows each register that a branch has written to its range at the branch's end.
    pub(super) fn narrow_all(&mut self, branch: &Branch) {
        for (register, range) in &branch.written {
            self.narrow(Operand::Register(Register(*register)), *range);
        }
    }

    /// After a block or loop that began at this mark: at its exits a register may have any of the
    /// values written inside, or the one from before.
    pub fn end_block(&mut self, mark: Mark) {
        self.back(mark);
        let mut inside: Vec<(u32, Range)> = self.writes.drain(mark.writes..).collect();
        inside.sort_unstable_by_key(|(register, _)| *register);
        for same in inside.chunk_by(|(a, _), (b, _)| a == b) {
            let register = same[0].0;
            let before = self.known[register as usize].range;
            let range = same.iter().fold(before, |all, (_, range)| all.hull(*range));
            self.write(Register(register), range);
        }
    }
}

/// The range of the value that an instruction writes; `range`: that of an operand before it.
pub(super) fn written(op: &Op, range: &dyn Fn(Operand) -> Range) -> Range {
    match *op {
        Op::Set { from, .. } => range(from),
        Op::Binary { operator, a, b, .. } => Range::combined(operator, range(a), range(b)),
        Op::Compare { relation, a, b, .. } => match range(a).related(relation, range(b)) {
            Some(known) => Range::of(i64::from(known)),
            None => Range::BOOL,
        },
        Op::Extend {
            from, bits, signed, ..
        } => {
            let (all, of) = (Range::of_bits(bits, signed), range(from));
            if all.holds(of) { of } else { all }
        }
        Op::Load { bits, signed, .. } => Range::of_bits(bits, signed),
        Op::Atomic { bits, .. } => Range::of_bits(bits, false),
        Op::NextBit { .. } => Range::new(-1, 63),
        _ => Range::ALL,
    }
}

impl Range {
    /// Whether a relation holds for all registers with these ranges; `None`: for some only.
    fn related(self, relation: Relation, b: Range) -> Option<bool> {
        match relation {
            Relation::Equal => self.equal(b),
            Relation::NotEqual => self.equal(b).map(|equal| !equal),
            Relation::Less => self.unsigned().less(b.unsigned()),
            Relation::LessEqual => b.unsigned().less(self.unsigned()).map(|less| !less),
            Relation::LessSigned => self.less(b),
            Relation::LessEqualSigned => b.less(self).map(|less| !less),
        }
    }
}
