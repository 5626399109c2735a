//! The range in which a register stays in all rounds of a loop: `at = (at + 1) % 8` never exceeds
//! 7, however often it is executed.
//!
//! The result holds the register's range before the loop and the results of all writes in the body,
//! in whatever order they run. It is computed by iteration, which begins with the range before the
//! loop. A bound that has moved twice is widened to its value if nothing at all is known of the
//! registers that the loop changes. Since a bound is widened only once, the iteration soon ends.
//! The caller limits the number of writes that are examined, so no text takes long.

use super::facts::written;
use super::{Instruction, Op, Operand, Register};
use crate::range::Range;

/// After so many rounds, bounds that still move are widened.
const GROWING: u32 = 2;
/// The largest number of rounds; if more are needed, there is no result.
const ROUNDS: u32 = 8;

/// A register that the loop writes.
#[derive(Clone, Copy)]
struct Bounds {
    register: Register,
    now: Range,
    /// Its range if nothing is known of the registers that the loop writes.
    widest: Range,
}

/// The registers that these instructions write, each with its range at the beginning and the end of
/// every round; none if that takes more than `effort`. `range`: the ranges before the first round.
pub(super) fn invariant(
    body: &[Instruction],
    range: &dyn Fn(Operand) -> Range,
    effort: &mut usize,
) -> Vec<(Register, Range)> {
    let mut all = Vec::new();
    each_write(body, &mut |register, _| {
        let before = range(Operand::Register(register));
        all.push(Bounds {
            register,
            now: before,
            widest: before,
        });
    });
    let writes = all.len();
    match effort.checked_sub(2 * writes) {
        Some(left) => *effort = left,
        None => return Vec::new(),
    }
    all.sort_unstable_by_key(|one| one.register);
    all.dedup_by_key(|one| one.register);
    let unknown = |operand: Operand, all: &[Bounds]| match find(all, operand) {
        Some(_) => Range::ALL,
        None => range(operand),
    };
    let known = |operand: Operand, all: &[Bounds]| match find(all, operand) {
        Some(at) => all[at].now,
        None => range(operand),
    };
    write_all(body, &mut all, &unknown, &|one| &mut one.widest);
    for round in 0..ROUNDS {
        match effort.checked_sub(writes) {
            Some(left) => *effort = left,
            None => return Vec::new(),
        }
        let former: Vec<Range> = all.iter().map(|one| one.now).collect();
        write_all(body, &mut all, &known, &|one| &mut one.now);
        let mut moved = false;
        for (one, former) in all.iter_mut().zip(former) {
            moved |= one.now != former;
            if round >= GROWING {
                one.now = one.now.given_up(former, one.widest);
            }
        }
        if !moved {
            return all.iter().map(|one| (one.register, one.now)).collect();
        }
    }
    Vec::new()
}

impl Range {
    /// This range, with each bound that exceeds the former range replaced by that of the widest
    /// one.
    fn given_up(self, former: Range, widest: Range) -> Range {
        Range {
            low: if self.low < former.low {
                widest.low.min(self.low)
            } else {
                self.low
            },
            high: if self.high > former.high {
                widest.high.max(self.high)
            } else {
                self.high
            },
        }
    }
}

fn find(all: &[Bounds], operand: Operand) -> Option<usize> {
    let Operand::Register(register) = operand else {
        return None;
    };
    all.binary_search_by_key(&register, |one| one.register).ok()
}

/// Adds the results of the writes to a register to its range, for each register.
fn write_all(
    body: &[Instruction],
    all: &mut [Bounds],
    range: &dyn Fn(Operand, &[Bounds]) -> Range,
    which: &dyn Fn(&mut Bounds) -> &mut Range,
) {
    each_write(body, &mut |register, op| {
        let given = written(op, &|operand| range(operand, all));
        if let Some(at) = find(all, Operand::Register(register)) {
            let bounds = which(&mut all[at]);
            *bounds = bounds.hull(given);
        }
    });
}

fn each_write<'i>(body: &'i [Instruction], visit: &mut dyn FnMut(Register, &'i Op)) {
    for Instruction { op, .. } in body {
        if let Some(register) = op.writes() {
            visit(register, op);
        }
        op.bodies().for_each(|inner| each_write(inner, visit));
    }
}
