//! Counting loops, `loop L { if !(r < N) exit L; ...; r = r + c }`: the range of the counter r at
//! the head of the loop, and the largest number of rounds.
//!
//! The loop writes the counter once per round, and begins with a comparison of the counter with a
//! limit that the loop does not change. So before the write the counter is within the limit, and
//! after it the counter exceeds the limit by one step at most.

use super::{Instruction, Label, Op, Operand, Operator, Register, Relation};
use crate::range::Range;

/// A loop that counts in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// The counter.
    pub register: Register,
    /// The step of each round.
    pub by: i64,
    /// The range of the counter before the loop.
    pub first: Range,
    /// The range of the counter at the head.
    pub at_head: Range,
    /// The largest number of rounds that reach the end of the body.
    pub rounds: u64,
    /// Whether that is the exact number, unless the loop is left from within.
    pub is_exact: bool,
}

/// Instructions through which the written value is traced: a sum that is extended and copied.
const FAR: u32 = 4;

/// Finds the register by which a loop counts; `range`: the range of an operand before it.
pub fn counting(
    label: Label,
    body: &[Instruction],
    range: &dyn Fn(Operand) -> Range,
) -> Option<Counting> {
    let (relation, a, b) = goes_on(label, &body.first()?.op)?;
    let below = |register, limit, strict| bound(body, register, (limit, strict), true, range);
    let above = |register, limit, strict| bound(body, register, (limit, strict), false, range);
    // In a comparison without sign, a limit that is not negative implies a counter that is not.
    let natural = |limit: Operand| range(limit).low >= 0;
    match (relation, a, b) {
        (Relation::LessSigned, Operand::Register(r), limit) => {
            below(r, limit, 1).or_else(|| b.register().and_then(|r| above(r, a, 1)))
        }
        (Relation::LessEqualSigned, Operand::Register(r), limit) => {
            below(r, limit, 0).or_else(|| b.register().and_then(|r| above(r, a, 0)))
        }
        (Relation::LessSigned, limit, Operand::Register(r)) => above(r, limit, 1),
        (Relation::LessEqualSigned, limit, Operand::Register(r)) => above(r, limit, 0),
        (Relation::Less, Operand::Register(r), limit) if natural(limit) => below(r, limit, 1),
        (Relation::LessEqual, Operand::Register(r), limit) if natural(limit) => below(r, limit, 0),
        _ => None,
    }
}

/// The relation that holds where the loop continues after this instruction.
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

/// `register < limit` (or `<=`, if `strict` is 0), and it grows; or, downwards, `limit < register`,
/// and it shrinks.
fn bound(
    body: &[Instruction],
    register: Register,
    (limit, strict): (Operand, i64),
    grows: bool,
    range: &dyn Fn(Operand) -> Range,
) -> Option<Counting> {
    let (by, fits) = step(body, register)?;
    if by == 0 || (by > 0) != grows {
        return None;
    }
    let first = range(Operand::Register(register));
    let limit = fixed(body, limit, range)?;
    let last = match grows {
        true => limit.high.checked_sub(strict)?,
        false => limit.low.checked_add(strict)?,
    };
    let end = last.checked_add(by)?;
    let (at_head, distance) = match grows {
        true => (
            Range::new(first.low, first.high.max(end)),
            i128::from(last) - i128::from(first.low),
        ),
        false => (
            Range::new(first.low.min(end), first.high),
            i128::from(first.high) - i128::from(last),
        ),
    };
    let counting = Counting {
        register,
        by,
        first,
        at_head,
        rounds: rounds(distance, by)?,
        is_exact: first.only().and(limit.only()).is_some(),
    };
    fits.holds(at_head).then_some(counting)
}

fn rounds(distance: i128, by: i64) -> Option<u64> {
    let rounds = match distance {
        ..0 => 0,
        _ => distance / i128::from(by.unsigned_abs()) + 1,
    };
    u64::try_from(rounds).ok()
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

/// The step of a register in each round, and the range in which it does not wrap.
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
