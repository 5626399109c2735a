//! Loops that count: `loop L { if !(r < N) exit L; ...; r = r + c }`. What is known of such a
//! register at the head of the loop, and how often the loop goes round at most.
//!
//! The register is written once in the loop, on the way to its end, and the first thing that the
//! loop does is to compare it with something that the loop does not change. So wherever the write
//! is reached the register has not gone beyond that limit, and is one step beyond it at most
//! behind the write.

use super::{Instruction, Label, Op, Operand, Operator, Register, Relation};
use crate::range::Range;

/// A loop that counts in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// By which register.
    pub register: Register,
    /// The step of each round.
    pub by: i64,
    /// The range of the register before the loop.
    pub first: Range,
    /// The range of the register at the head.
    pub at_head: Range,
    /// How often the end of the body is passed at most.
    pub rounds: u64,
    /// Just so often, unless something else leaves the loop.
    pub is_exact: bool,
}

/// How deep the value that is written is looked for: a sum that is extended and copied.
const FAR: u32 = 4;

/// Finds the register by which a loop counts; `range`: the range of an operand before it.
pub fn counting(
    label: Label,
    body: &[Instruction],
    range: &dyn Fn(Operand) -> Range,
) -> Option<Counting> {
    let (relation, a, b) = goes_on(label, &body.first()?.op)?;
    let below = |register, limit, strict| bound_above(body, register, limit, strict, range);
    let above = |register, limit, strict| bound_below(body, register, limit, strict, range);
    // Without sign, a limit that is not negative says that the register is not, either.
    let natural = |limit: Operand| range(limit).low >= 0;
    match (relation, a, b) {
        (Relation::LessSigned, Operand::Register(r), limit) => {
            below(r, limit, 1).or_else(|| other(b).and_then(|r| above(r, a, 1)))
        }
        (Relation::LessEqualSigned, Operand::Register(r), limit) => {
            below(r, limit, 0).or_else(|| other(b).and_then(|r| above(r, a, 0)))
        }
        (Relation::LessSigned, limit, Operand::Register(r)) => above(r, limit, 1),
        (Relation::LessEqualSigned, limit, Operand::Register(r)) => above(r, limit, 0),
        (Relation::Less, Operand::Register(r), limit) if natural(limit) => below(r, limit, 1),
        (Relation::LessEqual, Operand::Register(r), limit) if natural(limit) => below(r, limit, 0),
        _ => None,
    }
}

fn other(operand: Operand) -> Option<Register> {
    match operand {
        Operand::Register(register) => Some(register),
        Operand::Constant(_) => None,
    }
}

/// The relation that holds where the loop goes on behind this instruction.
fn goes_on(label: Label, op: &Op) -> Option<(Relation, Operand, Operand)> {
    let Op::If {
        relation,
        a,
        b,
        then,
        otherwise,
    } = op
    else {
        return None;
    };
    let leaves =
        |list: &[Instruction]| list.len() == 1 && list.iter().all(|one| one.op == Op::Exit(label));
    if leaves(otherwise) && then.is_empty() {
        return Some((*relation, *a, *b));
    }
    if !leaves(then) || !otherwise.is_empty() {
        return None;
    }
    Some(match relation.opposite() {
        (relation, false) => (relation, *a, *b),
        (relation, true) => (relation, *b, *a),
    })
}

/// `register < limit` (or `<=`, if `strict` is 0), and it grows.
fn bound_above(
    body: &[Instruction],
    register: Register,
    limit: Operand,
    strict: i64,
    range: &dyn Fn(Operand) -> Range,
) -> Option<Counting> {
    let (by, fits) = step(body, register)?;
    let (first, limit) = (
        range(Operand::Register(register)),
        fixed(body, limit, range)?,
    );
    let last = limit.high.checked_sub(strict)?;
    let end = last.checked_add(by).filter(|_| by > 0)?;
    let at_head = Range {
        low: first.low,
        high: first.high.max(end),
    };
    let distance = i128::from(last) - i128::from(first.low);
    counted(
        Counting {
            register,
            by,
            first,
            at_head,
            rounds: rounds(distance, by)?,
            is_exact: first.only().and(limit.only()).is_some(),
        },
        fits,
    )
}

/// `limit < register` (or `<=`), and it shrinks.
fn bound_below(
    body: &[Instruction],
    register: Register,
    limit: Operand,
    strict: i64,
    range: &dyn Fn(Operand) -> Range,
) -> Option<Counting> {
    let (by, fits) = step(body, register)?;
    let (first, limit) = (
        range(Operand::Register(register)),
        fixed(body, limit, range)?,
    );
    let last = limit.low.checked_add(strict)?;
    let end = last.checked_add(by).filter(|_| by < 0)?;
    let at_head = Range {
        low: first.low.min(end),
        high: first.high,
    };
    let distance = i128::from(first.high) - i128::from(last);
    counted(
        Counting {
            register,
            by,
            first,
            at_head,
            rounds: rounds(distance, by)?,
            is_exact: first.only().and(limit.only()).is_some(),
        },
        fits,
    )
}

fn rounds(distance: i128, by: i64) -> Option<u64> {
    let rounds = match distance {
        ..0 => 0,
        _ => distance / i128::from(by.unsigned_abs()) + 1,
    };
    u64::try_from(rounds).ok()
}

fn counted(counting: Counting, fits: Range) -> Option<Counting> {
    fits.holds(counting.at_head).then_some(counting)
}

/// The range of an operand that the loop does not change.
fn fixed(
    body: &[Instruction],
    operand: Operand,
    range: &dyn Fn(Operand) -> Range,
) -> Option<Range> {
    match operand {
        Operand::Register(register) if writes(body, register) > 0 => None,
        _ => Some(range(operand)),
    }
}

/// The step of a register in each round, and the range in which that is right.
fn step(body: &[Instruction], register: Register) -> Option<(i64, Range)> {
    if writes(body, register) != 1 {
        return None;
    }
    let mut wanted = register;
    let mut fits = Range::ALL;
    // Backwards from where it is written to the sum.
    let mut rest = body;
    for _ in 0..FAR {
        let at = rest
            .iter()
            .rposition(|one| one.op.writes() == Some(wanted))?;
        if writes(body, wanted) != 1 {
            return None;
        }
        let next = match rest.get(at)?.op {
            Op::Binary {
                operator,
                a: Operand::Register(of),
                b: Operand::Constant(by),
                ..
            } if of == register => {
                return match operator {
                    Operator::Add => Some((by, fits)),
                    Operator::Subtract => Some((by.checked_neg()?, fits)),
                    _ => None,
                };
            }
            Op::Set {
                from: Operand::Register(from),
                ..
            } => from,
            Op::Extend {
                from: Operand::Register(from),
                bits,
                signed,
                ..
            } => {
                fits = Range::of_bits(bits, signed).within(fits)?;
                from
            }
            _ => return None,
        };
        (wanted, rest) = (next, &rest[..at]);
    }
    None
}

fn writes(body: &[Instruction], register: Register) -> u32 {
    let one = |instruction: &Instruction| {
        let own = u32::from(instruction.op.writes() == Some(register));
        let inner = instruction.op.bodies();
        own + inner.map(|inner| writes(inner, register)).sum::<u32>()
    };
    body.iter().map(one).sum()
}
