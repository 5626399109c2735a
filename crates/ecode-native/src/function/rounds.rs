//! Whether each round of a loop takes fuel, whatever way it goes.

use ecode::ir::{Instruction, Label, Op};

/// Whether every way from the beginning of these instructions to their end takes fuel. A way that
/// leads out of the loop needs none.
pub(super) fn takes_fuel(body: &[Instruction]) -> bool {
    body.iter().any(|instruction| match &instruction.op {
        Op::Burn(units) => *units > 0,
        Op::If {
            then, otherwise, ..
        } => takes_fuel(then) && takes_fuel(otherwise),
        Op::Block { label, body } => takes_fuel(before_exit(body, *label)),
        _ => false,
    })
}

/// The instructions before the first in which the block may be left.
fn before_exit(body: &[Instruction], label: Label) -> &[Instruction] {
    let first = body.iter().position(|one| leaves(&one.op, label));
    &body[..first.unwrap_or(body.len())]
}

fn leaves(op: &Op, label: Label) -> bool {
    let inside = |body: &[Instruction]| body.iter().any(|one| leaves(&one.op, label));
    matches!(op, Op::Exit(to) if *to == label) || op.bodies().any(inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecode::ir::{Operand, Relation};
    use ecode::source::Span;

    fn of(ops: Vec<Op>) -> Vec<Instruction> {
        let span = Span::default();
        ops.into_iter().map(|op| Instruction { op, span }).collect()
    }

    fn branch(then: Vec<Op>, otherwise: Vec<Op>) -> Op {
        Op::If {
            relation: Relation::Equal,
            a: Operand::Constant(0),
            b: Operand::Constant(0),
            then: of(then),
            otherwise: of(otherwise),
        }
    }

    fn block(body: Vec<Op>) -> Op {
        Op::Block {
            label: Label(7),
            body: of(body),
        }
    }

    #[test]
    fn fuel_on_every_way_is_seen_and_fuel_on_one_is_not_enough() {
        assert!(takes_fuel(&of(vec![Op::Burn(1)])));
        assert!(!takes_fuel(&of(vec![Op::Burn(0)])));
        let both = branch(vec![Op::Burn(1)], vec![Op::Burn(2)]);
        assert!(takes_fuel(&of(vec![both])));
        assert!(!takes_fuel(&of(vec![branch(vec![Op::Burn(1)], vec![])])));
        assert!(takes_fuel(&of(vec![block(vec![Op::Burn(1)])])));
    }

    #[test]
    fn a_way_around_the_fuel_is_seen() {
        let exit = || branch(vec![Op::Exit(Label(7))], vec![]);
        assert!(!takes_fuel(&of(vec![block(vec![exit(), Op::Burn(1)])])));
        assert!(takes_fuel(&of(vec![block(vec![Op::Burn(1), exit()])])));
        let after = vec![block(vec![exit()]), Op::Burn(1)];
        assert!(takes_fuel(&of(after)));
        let out = branch(vec![Op::Exit(Label(9))], vec![]);
        assert!(takes_fuel(&of(vec![out, Op::Burn(1)])));
    }
}
