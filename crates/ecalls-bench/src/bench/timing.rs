//! Batches and statistics.
//!
//! Other work on the machine can only worsen a value, so the best of several batches, in several
//! passes over all rows, is the most informative. Within a batch the mean counts where rounds
//! follow each other without a break, and the median where two threads communicate, because there a
//! single round in which one of them did not run would change the mean by orders of magnitude.

use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};

/// The mean of the best batch.
pub(crate) const MEAN: &str = "best batch mean";
/// The median of the best batch.
pub(crate) const MEDIAN: &str = "best batch median";

/// One value of the output.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) row: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) statistic: &'static str,
    /// A description of the measurement.
    pub(crate) what: &'static str,
    /// p50 and p99, where single rounds count.
    pub(crate) percentiles_us: Option<[f64; 2]>,
    /// Processor time of one request, for rows about a server.
    pub(crate) cpu: Option<RequestCpu>,
    /// The same rows, under a load that does not wait for the server.
    pub(crate) open: Option<OpenLoop>,
    /// System calls of one, by all threads of the program.
    pub(crate) calls: Option<f64>,
    /// The part of the requests that were refused.
    pub(crate) refused: Option<f64>,
    /// The 99th percentile of what the value is the mean of.
    pub(crate) p99_ms: Option<f64>,
}

/// Processor time in us, divided by the requests of the same time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RequestCpu {
    pub(crate) server_us: f64,
    /// With what the kernel does in its name: on the loopback interface, the server's arrivals.
    pub(crate) generator_us: f64,
    pub(crate) reader_us: f64,
}

/// Requests at a fixed rate, half of what the server answers: how long each took from when it was
/// due, and its processor time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct OpenLoop {
    pub(crate) open_p50_us: f64,
    pub(crate) open_p99_us: f64,
    pub(crate) open_server_us: f64,
    pub(crate) open_generator_us: f64,
    pub(crate) open_reader_us: f64,
}

impl Value {
    /// A time in ns.
    pub(crate) fn ns(
        row: &'static str,
        value: f64,
        statistic: &'static str,
        what: &'static str,
    ) -> Value {
        Value {
            row,
            value,
            unit: "ns",
            statistic,
            what,
            percentiles_us: None,
            cpu: None,
            open: None,
            calls: None,
            refused: None,
            p99_ms: None,
        }
    }

    /// A time with its percentiles; `times_us` are in the order of the rounds.
    pub(crate) fn percentiles(row: &'static str, times_us: &[f64], what: &'static str) -> Value {
        let at = |part: usize| {
            let last = times_us.len().saturating_sub(1);
            times_us.get(last * part / 100).copied().unwrap_or(f64::NAN)
        };
        Value {
            percentiles_us: Some([at(50), at(99)]),
            ..Value::ns(row, at(50) * 1e3, "p50", what)
        }
    }

    /// A value that cannot be measured here, with the reason.
    pub(crate) fn missing(row: &'static str, why: &'static str) -> Value {
        Value::ns(row, f64::NAN, "not measured", why)
    }
}

impl Value {
    /// Whether it is more per second, or less of anything else.
    pub(crate) fn is_better_than(&self, other: &Value) -> bool {
        match self.unit.ends_with("/s") {
            true => self.value > other.value,
            false => self.value < other.value,
        }
    }
}

/// The number of repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Passes over all rows.
    pub(crate) passes: u32,
    /// Batches of each pass, in addition to one for warming up.
    pub(crate) batches: u32,
    /// The divisor of every number of rounds.
    pub(crate) divisor: u32,
}

impl Effort {
    /// For precise values.
    pub(crate) const FULL: Effort = Effort {
        passes: 4,
        batches: 5,
        divisor: 1,
    };
    /// For a verdict on each row, which needs further passes only if the machine was busy.
    pub(crate) const CHECK: Effort = Effort {
        passes: 8,
        ..Effort::FULL
    };
    /// For a quick estimate beside other work.
    pub(crate) const SHORT: Effort = Effort {
        passes: 1,
        batches: 4,
        divisor: 4,
    };
    /// Only to test that everything works.
    pub(crate) const QUICK: Effort = Effort {
        passes: 1,
        batches: 1,
        divisor: 100,
    };

    /// The number of rounds that are executed.
    pub(crate) fn rounds(self, rounds: u32) -> u32 {
        (rounds / self.divisor).max(2)
    }

    /// The least result of the batches, after one for warming up.
    pub(crate) fn best(
        self,
        mut batch: impl FnMut() -> Result<f64, Failure>,
    ) -> Result<f64, Failure> {
        batch()?;
        let mut best = f64::INFINITY;
        for _ in 0..self.batches {
            best = best.min(batch()?);
        }
        Ok(best)
    }

    /// Mean time of one call in the best batch of `rounds` calls.
    pub(crate) fn best_mean(
        self,
        rounds: u32,
        mut call: impl FnMut() -> Outcome,
    ) -> Result<f64, Failure> {
        let rounds = self.rounds(rounds);
        self.best(|| {
            let start_ns = ecalls::now_ns();
            for _ in 0..rounds {
                call()?;
            }
            Ok((ecalls::now_ns() - start_ns) as f64 / f64::from(rounds))
        })
    }

    /// Median of the samples (ns) in the best batch of `rounds` samples.
    pub(crate) fn best_median(
        self,
        rounds: u32,
        mut sample: impl FnMut() -> Result<u64, Failure>,
    ) -> Result<f64, Failure> {
        let rounds = self.rounds(rounds) as usize;
        let mut samples = Vec::with_capacity(rounds);
        self.best(|| {
            samples.clear();
            for _ in 0..rounds {
                samples.push(sample()?);
            }
            samples.sort_unstable();
            Ok(samples[rounds / 2] as f64)
        })
    }

    /// The same with a second thread that takes part in every sample: `near` and `far` run on two
    /// processors. `far` is called once per sample; both must give up at some time if the other one
    /// does.
    pub(crate) fn best_median_of_two(
        self,
        rounds: u32,
        near: impl FnMut() -> Result<u64, Failure> + Send,
        mut far: impl FnMut() -> Outcome + Send,
    ) -> Result<f64, Failure> {
        let calls = (self.batches + 1) * self.rounds(rounds);
        let (value, end) = on_two_cpus(
            || self.best_median(rounds, near),
            || (0..calls).try_for_each(|_| far()),
        )?;
        let value = value?;
        end.map(|()| value)
    }
}

/// Runs two functions at the same time, each on a processor of its own.
pub(crate) fn on_two_cpus<A: Send, B: Send>(
    near: impl FnOnce() -> A + Send,
    far: impl FnOnce() -> B + Send,
) -> Result<(A, B), Failure> {
    let (one, other) = two_cpus()?;
    Ok(thread::scope(|scope| {
        let far = scope.spawn(move || {
            pin(other);
            far()
        });
        let near = scope.spawn(move || {
            pin(one);
            near()
        });
        let near = near.join().expect("the thread did not panic");
        (near, far.join().expect("the thread did not panic"))
    }))
}

/// Two processors that this process may use.
pub(crate) fn two_cpus() -> Result<(usize, usize), Failure> {
    let set = sched_getaffinity(None).map_err(|error| os("asking for processors", error))?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    match (cpus.next(), cpus.next()) {
        (Some(one), Some(other)) => Ok((one, other)),
        _ => Err(Failure::new(
            Code::Unsupported,
            "this measurement needs two processors: name rows that do not, with --row",
        )),
    }
}

/// Binds the calling thread to one processor.
pub(crate) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // If the processor was just taken offline, the measurement continues on another one.
    let _ = sched_setaffinity(None, &set);
}

/// A failed system call as a failure.
pub(crate) fn os(action: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Failed, format!("{action}: {error}"))
}

/// The failure of a thread that waited in vain for the other one.
pub(crate) fn silent(what: &str) -> Failure {
    Failure::new(Code::Failed, format!("{what} did not arrive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_batch_counts_and_the_first_only_warms_up() {
        let effort = Effort {
            passes: 1,
            batches: 3,
            divisor: 1,
        };
        let mut values = [1.0, 5.0, 4.0, 6.0].into_iter();
        let best = effort.best(|| Ok(values.next().expect("four batches")));
        assert_eq!(best.expect("no failure"), 4.0);
        assert_eq!(values.next(), None);
    }

    #[test]
    fn a_median_ignores_a_single_slow_round() {
        let effort = Effort {
            passes: 1,
            batches: 1,
            divisor: 1,
        };
        let mut samples = [7, 9_000_000, 8].into_iter().cycle();
        let median = effort.best_median(3, || Ok(samples.next().expect("endless")));
        assert_eq!(median.expect("no failure"), 8.0);
    }

    #[test]
    fn a_failure_of_either_thread_is_reported() {
        let near = Effort::QUICK.best_median_of_two(2, || Err(silent("near")), || Ok(()));
        assert!(near.is_err());
        let far = Effort::QUICK.best_median_of_two(2, || Ok(1), || Err(silent("far")));
        assert!(far.is_err());
    }
}
