//! Reuse of addresses, base plus a computed offset: programs access several fields of one element,
//! and the same element again.
//!
//! An address is remembered from its computation until the register with its offset is written. At
//! the target of jumps, all addresses are forgotten that were computed after the first of these
//! jumps: older ones were computed on every path. At the head of a loop, addresses are forgotten
//! whose registers the loop writes.

use super::flat::{Flat, Step};
use super::machine::V;
use crate::ir::Register;

/// Addresses that are remembered at the same time: each may need space on the stack.
const MOST: u32 = 32;

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Near {
    /// The offset.
    pub register: Register,
    /// Its largest value.
    pub largest: u32,
    /// The power of two that divides the offset, as far as the verifier can see.
    pub unit: u32,
    /// The address of the memory.
    pub base: V,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct AllNear {
    known: Vec<(Near, V, usize)>,
    /// By point: the first step that jumps to it.
    first_jump: Vec<Option<usize>>,
    /// The current step.
    at: usize,
    left: u32,
}

impl AllNear {
    pub(super) fn new(flat: &Flat<'_>) -> AllNear {
        let mut first_jump = vec![None; flat.points as usize];
        for (at, item) in flat.items.iter().enumerate() {
            if let Step::Branch { to, .. } | Step::Jump(to) = item.step {
                first_jump[to.0 as usize].get_or_insert(at);
            }
        }
        AllNear {
            known: Vec::new(),
            first_jump,
            at: 0,
            left: MOST,
        }
    }

    /// Called before a step is turned into instructions.
    pub(super) fn enter(&mut self, at: usize, step: &Step<'_>) {
        self.at = at;
        if let Step::Point(point) = step
            && let Some(jump) = self.first_jump[point.0 as usize]
        {
            self.known.retain(|(_, _, since)| *since < jump);
        }
    }

    /// Called when a register is written.
    pub(super) fn written(&mut self, register: Register) {
        self.known.retain(|(near, _, _)| near.register != register);
    }

    /// The register that holds an address.
    pub(super) fn find(&self, near: &Near) -> Option<V> {
        let known = self.known.iter().find(|(known, _, _)| known == near);
        known.map(|(_, place, _)| *place)
    }

    /// Whether one more address may be remembered.
    pub(super) fn may_keep(&self) -> bool {
        self.left > 0
    }

    pub(super) fn keep(&mut self, near: Near, place: V) {
        self.left = self.left.saturating_sub(1);
        self.known.push((near, place, self.at));
    }
}
