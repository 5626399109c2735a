//! Fuel is counted in as few steps as possible, and checked only where it may run out.
//!
//! The largest number of iterations of a run is known where all loops count
//! ([`crate::ir::counting`]). If the fuel suffices for it, no [`Op::Burn`] fails, and only the sum
//! at the end of the run is visible: steps are merged at the next point where the run may end or
//! branch. Otherwise a step may only move past instructions that change nothing but registers,
//! because the run may end at the step.

use super::simplify::ByLabel;
use crate::ir::{Instruction, Op, Program};

/// Sets [`Program::fuel_most`], and merges steps. `rounds`: the largest number of rounds per loop.
pub(super) fn settle(program: &mut Program, rounds: &ByLabel<Option<u64>>) {
    let most = burnt(&program.body, rounds);
    program.fuel_wanted = most.filter(|most| *most > u64::from(program.fuel));
    let most = most.and_then(|most| u32::try_from(most).ok());
    program.fuel_most = most.filter(|most| *most <= program.fuel);
    gather(&mut program.body, program.fuel_most.is_some());
}

/// The largest number of iterations that these instructions make.
fn burnt(body: &[Instruction], rounds: &ByLabel<Option<u64>>) -> Option<u64> {
    let mut all = 0_u64;
    for Instruction { op, .. } in body {
        let one = match op {
            Op::Burn(units) => u64::from(*units),
            Op::If {
                then, otherwise, ..
            } => burnt(then, rounds)?.max(burnt(otherwise, rounds)?),
            Op::Block { body, .. } => burnt(body, rounds)?,
            Op::Loop { label, body } => match burnt(body, rounds)? {
                0 => 0,
                // One more round, which is left before its end.
                each => each.checked_mul(rounds.get(*label)?.checked_add(1)?)?,
            },
            _ => 0,
        };
        all = all.checked_add(one)?;
    }
    Some(all)
}

/// Merges each step with the one before it.
fn gather(body: &mut Vec<Instruction>, never_fails: bool) {
    let mut last: Option<usize> = None;
    // The kept instructions are before this index.
    let mut kept = 0;
    for at in 0..body.len() {
        let op = &mut body[at].op;
        op.bodies_mut(&mut |inner| gather(inner, never_fails));
        if let Op::Burn(units) = *op {
            if let Some(Op::Burn(sum)) = last.map(|last| &mut body[last].op)
                && let Some(both) = sum.checked_add(units)
            {
                *sum = both;
                continue;
            }
            last = Some(kept);
        } else if !may_pass(op, never_fails) {
            last = None;
        }
        body.swap(kept, at);
        kept += 1;
    }
    body.truncate(kept);
}

/// Whether a step may move from after this instruction to before it.
fn may_pass(op: &Op, never_fails: bool) -> bool {
    match op {
        Op::Set { .. }
        | Op::Binary { .. }
        | Op::Compare { .. }
        | Op::Extend { .. }
        | Op::Load { .. }
        | Op::NextBit { .. } => true,
        Op::Store { .. } | Op::Atomic { .. } | Op::Copy { .. } | Op::Zero { .. } => never_fails,
        Op::If {
            then, otherwise, ..
        } => then
            .iter()
            .chain(otherwise)
            .all(|one| !matches!(one.op, Op::Burn(_)) && may_pass(&one.op, never_fails)),
        Op::Bound { .. }
        | Op::Block { .. }
        | Op::Loop { .. }
        | Op::Exit(_)
        | Op::Burn(_)
        | Op::Effect { .. }
        | Op::Return(_)
        | Op::Fail(_) => false,
    }
}
