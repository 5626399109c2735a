//! A thread's CPU time and decoded frames over time, in intervals of the measured span.
//!
//! The thread records them itself whenever it reads the clock anyway. The difference between two
//! readings counts for the interval of the later one, so a thread that does not run for a while
//! shows a gap and then a peak.

use super::work::{Span, cpu_ns};

/// An interval, ns.
pub(super) const INTERVAL_NS: u64 = 250_000_000;

/// CPU time and frames of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) cpu_ns: u64,
    pub(super) frames: u64,
}

/// The records of a thread.
#[derive(Debug)]
pub(super) struct Track {
    span: Span,
    /// Up to the interval that has not ended yet.
    steps: Vec<Step>,
    /// The totals at the last reading that was recorded.
    before: Option<Step>,
    /// The end of the current interval.
    end_ns: u64,
}

impl Track {
    pub(super) fn new(span: Span) -> Track {
        let length_ns = span.end_ns.saturating_sub(span.from_ns);
        let intervals = usize::try_from(length_ns.div_ceil(INTERVAL_NS)).unwrap_or(0);
        Track {
            span,
            steps: Vec::with_capacity(intervals),
            before: None,
            end_ns: span.from_ns,
        }
    }

    /// Records the frames decoded so far at this time. This costs nothing until an interval ends.
    pub(super) fn look(&mut self, now_ns: u64, frames: u64) {
        if now_ns < self.end_ns {
            return;
        }
        self.note(
            now_ns,
            Step {
                cpu_ns: cpu_ns(),
                frames,
            },
        );
    }

    fn note(&mut self, now_ns: u64, now: Step) {
        if let Some(before) = self.before {
            let passed_ns = now_ns
                .min(self.span.end_ns)
                .saturating_sub(self.span.from_ns);
            // The reading is a little later than the end of the interval.
            let at = usize::try_from(passed_ns / INTERVAL_NS).unwrap_or(0);
            let at = at.saturating_sub(1).max(self.steps.len());
            self.steps.resize(at, Step::default());
            self.steps.push(Step {
                cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
                frames: now.frames.saturating_sub(before.frames),
            });
        }
        self.before = Some(now);
        let since_ns = now_ns - self.span.from_ns;
        self.end_ns = self.span.from_ns + (since_ns / INTERVAL_NS + 1) * INTERVAL_NS;
    }

    /// The intervals that have ended.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_has_what_was_done_up_to_its_end() {
        let span = Span {
            begin_ns: 0,
            from_ns: 1000,
            end_ns: 1000 + 4 * INTERVAL_NS,
        };
        let at = |intervals: u64| 1000 + intervals * INTERVAL_NS + 5;
        let step = |cpu_ns, frames| Step { cpu_ns, frames };
        let mut track = Track::new(span);
        track.note(at(0), step(10, 1));
        track.note(at(1), step(30, 2));
        // Two intervals passed without a reading.
        track.note(at(3), step(40, 2));
        track.note(at(4), step(45, 4));
        let steps = [step(20, 1), step(0, 0), step(10, 0), step(5, 2)];
        assert_eq!(track.steps(), steps);
    }
}
