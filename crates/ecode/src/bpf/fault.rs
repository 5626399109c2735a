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

/// Places of the text that a program can record.
const PLACES: usize = 64;

/// The labels where faults are recorded.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Without a place in the text,
    anywhere: Vec<(Fault, Label)>,
    /// and with one.
    here: Vec<(Fault, Span, Label)>,
}

impl Faults {
    /// One label for each fault.
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
    /// The label for a fault without a place in the text.
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

    /// The code that records faults. It continues at `end`, or at `nothing` if the run changed
    /// nothing.
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
            // At the beginning of a run the fuel in the frame is unchanged.
            self.emit(Inst::Jump(match fault {
                Fault::Input | Fault::Fuel => nothing,
                Fault::Index | Fault::Effects => end,
            }));
        }
    }
}
