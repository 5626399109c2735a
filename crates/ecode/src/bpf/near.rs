//! Addresses that have been computed already: base plus a computed distance. Programs go to several
//! fields of one element, and to the same element again.
//!
//! The list of steps is walked from its beginning, and an address is remembered from where it is
//! computed until the register with its distance is written. At a place that is jumped to, all is
//! forgotten that has been computed behind the first of those jumps: whatever is older has been
//! there on every way. At the head of a loop, what the loop writes is forgotten.

use super::flat::{Flat, Step};
use super::machine::V;
use crate::ir::Register;

/// So many may be kept at most: each may come to lie on the stack.
const MOST: u32 = 32;

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Near {
    /// The distance.
    pub register: Register,
    /// Its largest value.
    pub largest: u32,
    /// The power of two that divides the distance, as far as the verifier sees.
    pub unit: u32,
    /// Where it is counted from.
    pub base: V,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct AllNear {
    known: Vec<(Near, V, usize)>,
    /// By place: the step of the first jump to it.
    first_jump: Vec<Option<usize>>,
    /// The step that is at its turn.
    at: usize,
    left: u32,
}

impl AllNear {
    pub(super) fn new(flat: &Flat<'_>) -> AllNear {
        let mut first_jump = vec![None; flat.places as usize];
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

    /// Before a step is turned into instructions.
    pub(super) fn enter(&mut self, at: usize, step: &Step<'_>) {
        self.at = at;
        if let Step::Place(place) = step
            && let Some(jump) = self.first_jump[place.0 as usize]
        {
            self.known.retain(|(_, _, since)| *since < jump);
        }
    }

    /// A register is written.
    pub(super) fn written(&mut self, register: Register) {
        self.known.retain(|(near, _, _)| near.register != register);
    }

    /// Where an address is.
    pub(super) fn find(&self, near: &Near) -> Option<V> {
        let known = self.known.iter().find(|(known, _, _)| known == near);
        known.map(|(_, place, _)| *place)
    }

    /// Whether one more may be kept.
    pub(super) fn may_keep(&self) -> bool {
        self.left > 0
    }

    /// Keeps it.
    pub(super) fn keep(&mut self, near: Near, place: V) {
        self.left = self.left.saturating_sub(1);
        self.known.push((near, place, self.at));
    }
}
