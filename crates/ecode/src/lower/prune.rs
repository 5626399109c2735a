//! Removes instructions whose result is not read, going backwards with the set of registers that
//! are still needed. A value that is computed only to be copied into another register is computed
//! there.
//!
//! The end of a loop needs the registers that its beginning needs. A first walk through the body,
//! which changes nothing, finds these ([`Pruner::needed`]). One walk is enough: a register needed
//! at the beginning only because the end needs it was needed there already.

use crate::ir::{Instruction, Label, Op, Operand, Program, Register};

/// See the head of this file.
pub(super) fn prune(program: &mut Program) {
    let mut pruner = Pruner {
        at_exit: Vec::new(),
        words: program.registers.div_ceil(64) as usize,
    };
    let nothing = pruner.none();
    pruner.list(&mut program.body, nothing);
}

/// A set of registers.
#[derive(Clone, Debug)]
struct Set(Vec<u64>);

impl Set {
    fn add(&mut self, register: Register) {
        self.0[register.0 as usize / 64] |= 1 << (register.0 % 64);
    }

    fn remove(&mut self, register: Register) {
        self.0[register.0 as usize / 64] &= !(1 << (register.0 % 64));
    }

    fn has(&self, register: Register) -> bool {
        self.0[register.0 as usize / 64] >> (register.0 % 64) & 1 != 0
    }

    fn add_all(&mut self, other: &Set) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(word, other)| *word |= other);
    }
}

struct Pruner {
    /// The registers needed at the targets of the exits of the surrounding blocks and loops,
    /// outermost first.
    at_exit: Vec<(Label, Set)>,
    words: usize,
}

impl Pruner {
    fn none(&self) -> Set {
        Set(vec![0; self.words])
    }

    /// Prunes a list at whose end `needed` is needed; returns the registers needed at its
    /// beginning.
    fn list(&mut self, body: &mut Vec<Instruction>, mut needed: Set) -> Set {
        // The kept instructions begin at this index.
        let mut kept = body.len();
        for at in (0..body.len()).rev() {
            let (before, rest) = body.split_at_mut(at);
            let op = &mut rest[0].op;
            let moved = is_moved(op, before, &needed);
            if !moved && self.instruction(op, &mut needed) {
                kept -= 1;
                body.swap(at, kept);
            }
        }
        body.drain(..kept);
        needed
    }

    /// Whether the instruction stays; `needed` becomes the set of registers needed before it.
    fn instruction(&mut self, op: &mut Op, needed: &mut Set) -> bool {
        match op {
            Op::If {
                then, otherwise, ..
            } => {
                let before_otherwise = self.list(otherwise, needed.clone());
                let after = std::mem::replace(needed, self.none());
                *needed = self.list(then, after);
                needed.add_all(&before_otherwise);
                if then.is_empty() && otherwise.is_empty() {
                    return false;
                }
            }
            Op::Block { label, body } => {
                self.at_exit.push((*label, needed.clone()));
                let after = std::mem::replace(needed, self.none());
                *needed = self.list(body, after);
                self.at_exit.pop();
                return !body.is_empty();
            }
            Op::Loop { label, body } => {
                let after = std::mem::replace(needed, self.none());
                self.at_exit.push((*label, after));
                let at_end = self.needed(body, self.none());
                *needed = self.list(body, at_end);
                self.at_exit.pop();
            }
            _ => {
                if let Some(to) = op.writes() {
                    let is_needed = needed.has(to);
                    match op {
                        Op::Atomic { old, .. } if !is_needed => *old = None,
                        _ if !is_needed => return false,
                        _ => needed.remove(to),
                    }
                }
                self.leaving(op, needed);
            }
        }
        add_reads(op, needed);
        true
    }

    /// After an instruction that does not continue, only its target needs registers.
    fn leaving(&self, op: &Op, needed: &mut Set) {
        match op {
            Op::Exit(label) => {
                let mut around = self.at_exit.iter().rev();
                let there = around.find(|(known, _)| known == label);
                *needed = there.map_or_else(|| self.none(), |(_, there)| there.clone());
            }
            Op::Return(_) | Op::Fail(_) => *needed = self.none(),
            _ => {}
        }
    }

    /// The registers needed before a list at whose end `needed` are.
    fn needed(&mut self, body: &[Instruction], mut needed: Set) -> Set {
        for Instruction { op, .. } in body.iter().rev() {
            match op {
                Op::If {
                    then, otherwise, ..
                } => {
                    let before_otherwise = self.needed(otherwise, needed.clone());
                    needed = self.needed(then, needed);
                    needed.add_all(&before_otherwise);
                }
                Op::Block { label, body } => {
                    self.at_exit.push((*label, needed.clone()));
                    needed = self.needed(body, needed);
                    self.at_exit.pop();
                }
                Op::Loop { label, body } => {
                    self.at_exit.push((*label, needed));
                    needed = self.needed(body, self.none());
                    self.at_exit.pop();
                }
                plain => {
                    if let Some(to) = plain.writes() {
                        needed.remove(to);
                    }
                    self.leaving(plain, &mut needed);
                }
            }
            add_reads(op, &mut needed);
        }
        needed
    }
}

/// Whether this instruction is superfluous: it copies a register to itself, or it copies a register
/// that the instruction before computes for no other use. Then that one computes the target itself.
fn is_moved(op: &Op, before: &mut [Instruction], needed: &Set) -> bool {
    let Op::Set {
        to,
        from: Operand::Register(from),
    } = *op
    else {
        return false;
    };
    if to == from {
        return true;
    }
    let before = before.last_mut().filter(|_| !needed.has(from));
    match before.and_then(|before| before.op.target()) {
        Some(target) if *target == from => {
            *target = to;
            true
        }
        _ => false,
    }
}

fn add_reads(op: &Op, needed: &mut Set) {
    op.reads().for_each(|register| needed.add(register));
}
