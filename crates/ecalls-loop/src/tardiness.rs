//! The lateness of timers: time of the call minus release time.

use hdrhistogram::Histogram;

/// The longest tardiness that is distinguished; a longer one counts as this.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant digits that are stored.
const DIGITS: u8 = 2;

/// Figures of the timers that a loop has run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tardiness {
    /// Timers that ran.
    pub timers: u64,
    /// Half of them were at most this late (with a precision of 1 %).
    pub p50_ns: u64,
    /// 99 of 100 were at most this late.
    pub p99_ns: u64,
    /// The greatest lateness.
    pub max_ns: u64,
}

/// Records the figures, without allocations.
#[derive(Debug)]
pub(crate) struct Recorder {
    histogram: Histogram<u64>,
    max_ns: u64,
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Recorder {
            histogram: histogram.expect("bounds that hdrhistogram allows"),
            max_ns: 0,
        }
    }

    pub(crate) fn record(&mut self, tardiness_ns: u64) {
        self.histogram.saturating_record(tardiness_ns);
        self.max_ns = self.max_ns.max(tardiness_ns);
    }

    pub(crate) fn figures(&self) -> Tardiness {
        let at = |percentile| {
            self.histogram
                .value_at_percentile(percentile)
                .min(self.max_ns)
        };
        Tardiness {
            timers: self.histogram.len(),
            p50_ns: at(50.0),
            p99_ns: at(99.0),
            max_ns: self.max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_what_was_recorded() {
        let mut recorder = Recorder::new();
        assert_eq!(recorder.figures(), Tardiness::default());
        for us in 1..=1000_u64 {
            recorder.record(us * 1000);
        }
        let figures = recorder.figures();
        assert_eq!((figures.timers, figures.max_ns), (1000, 1_000_000));
        assert!(figures.p50_ns.abs_diff(500_000) <= 5_000, "{figures:?}");
        assert!(figures.p99_ns.abs_diff(990_000) <= 10_000, "{figures:?}");
        recorder.record(u64::MAX);
        assert_eq!(recorder.figures().max_ns, u64::MAX);
    }
}
