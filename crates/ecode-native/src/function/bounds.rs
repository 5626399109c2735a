//! Which registers the code has compared with a bound on every way to here, so that it need not do
//! so again: `v[i].a` and `v[i].b` need one comparison.
//!
//! What is learnt inside of a branch, block or loop ends with it, since another way may lead
//! around.

use std::collections::HashMap;

use ecode::ir::{Instruction, Register};

/// See the head of this file.
#[derive(Default)]
pub(super) struct Bounds {
    most: HashMap<Register, u32>,
    /// What was learnt, in order.
    learnt: Vec<Register>,
}

impl Bounds {
    pub(super) fn is_within(&self, register: Register, largest: u32) -> bool {
        self.most
            .get(&register)
            .is_some_and(|most| *most <= largest)
    }

    pub(super) fn learn(&mut self, register: Register, largest: u32) {
        self.most.insert(register, largest);
        self.learnt.push(register);
    }

    /// The register is written.
    pub(super) fn forget(&mut self, register: Register) {
        self.most.remove(&register);
    }

    /// Everything that these instructions write, before a loop of them: the way back leads from
    /// their end to their beginning.
    pub(super) fn forget_written(&mut self, body: &[Instruction]) {
        for Instruction { op, .. } in body {
            if let Some(register) = op.writes() {
                self.forget(register);
            }
            op.bodies().for_each(|inner| self.forget_written(inner));
        }
    }

    pub(super) fn mark(&self) -> usize {
        self.learnt.len()
    }

    /// Ends what was learnt since the mark.
    pub(super) fn back_to(&mut self, mark: usize) {
        for register in self.learnt.split_off(mark) {
            self.most.remove(&register);
        }
    }
}
