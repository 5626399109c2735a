//! The record of a run that ends early: the reason, and the place in the text.
//!
//! A check that fails jumps out of the code that a successful run executes, so the place costs such
//! a run nothing. In a program with very many places only the first [`PLACES`] are recorded, so
//! that they hardly add to the program's size; for the others only the reason is recorded.

use super::machine::{Inst, Label, Value};
use super::select::Select;
use crate::frame::at;
use crate::ir::Fault;
use crate::source::Span;

/// Places that a program notes at most.
const PLACES: usize = 64;

/// Where faults are noted.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Wherever they happen,
    anywhere: Vec<(Fault, Label)>,
    /// and there.
    here: Vec<(Fault, Span, Label)>,
}

impl Faults {
    /// Of each fault one label.
    pub(super) fn new(labels: impl Iterator<Item = (Fault, Label)>) -> Faults {
        let mut anywhere: Vec<_> = labels.collect();
        anywhere.sort_unstable_by_key(|(fault, _)| *fault as u32);
        Faults {
            anywhere,
            here: Vec::new(),
        }
    }
}

impl Select<'_> {
    /// Where to go for a fault that cannot happen, or in no particular place.
    pub(super) fn fault(&self, fault: Fault) -> Label {
        let mut known = self.faults.anywhere.iter();
        let found = known.find(|(known, _)| *known == fault);
        found.map_or(self.end, |(_, label)| *label)
    }

    /// The label to jump to for a fault of the instruction that is compiled now.
    pub(super) fn fault_here(&mut self, fault: Fault) -> Label {
        let span = self.span;
        let mut known = self.faults.here.iter().rev();
        let found = known.find(|(of, at, _)| (*of, at.start) == (fault, span.start));
        if let Some((_, _, label)) = found {
            return *label;
        }
        if self.faults.here.len() == PLACES {
            return self.fault(fault);
        }
        let label = self.label();
        self.faults.here.push((fault, span, label));
        label
    }

    /// Notes all of them and goes on at `end`, or at `nothing` where nothing is to be done.
    pub(super) fn note_faults(&mut self, end: Label, nothing: Label) {
        let faults = std::mem::take(&mut self.faults);
        for (fault, label) in faults.anywhere {
            let noted = self.label();
            for (_, span, label) in faults.here.iter().filter(|(of, ..)| *of == fault) {
                self.span = *span;
                self.emit(Inst::Label(*label));
                let place = self.constant(i64::from(span.start) + 1);
                self.store(self.frame, at::FAULT_PLACE, place, 32);
                self.emit(Inst::Jump(noted));
            }
            self.emit(Inst::Label(label));
            if fault != Fault::Input {
                self.store(self.frame, at::FAULT_PLACE, Value::Immediate(0), 32);
            }
            self.emit(Inst::Label(noted));
            self.store(self.frame, at::FAULT, Value::Immediate(fault as i32), 32);
            if fault == Fault::Fuel {
                self.store(self.frame, at::FUEL, Value::Immediate(0), 32);
            }
            // Before anything else was done, the fuel is still where it was.
            self.emit(Inst::Jump(match fault {
                Fault::Input | Fault::Fuel => nothing,
                Fault::Index | Fault::Effects => end,
            }));
        }
    }
}
