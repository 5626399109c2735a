//! The scheduler's counters: their sums over all CPUs, and differences between two samples.

use std::fmt;

use ecalls_abi::sched::SchedCount;
use ecalls_kernel::scheduler;
use serde::Serialize;

/// The sum over all CPUs. `None`: our scheduler does not run, or this user may not read it.
pub(crate) fn all() -> Option<SchedCount> {
    sum(&scheduler::counts().ok()?)
}

/// The sum.
pub(crate) fn sum(all: &[SchedCount]) -> Option<SchedCount> {
    let (first, others) = all.split_first()?;
    let mut sum = *first;
    for one in others {
        sum.add(one);
    }
    Some(sum)
}

/// The lower bound of the bucket that holds the given percentile.
pub(crate) fn quantile(counts: &[u64; 64], hundredth: u64) -> u64 {
    let all: u64 = counts.iter().sum();
    let mut left = (all * hundredth).div_ceil(100);
    for (bucket, &count) in counts.iter().enumerate() {
        left = left.saturating_sub(count);
        if left == 0 {
            return crate::watch::bucket_from(bucket);
        }
    }
    0
}

/// How late threads received the CPU after their release times. The maximum is missing because the
/// scheduler keeps only that of its whole life.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Tardiness {
    releases: u64,
    tardy_p50_us: u64,
    tardy_p99_us: u64,
}

/// The releases between two samples. `None`: the scheduler did not run, or no thread polled.
pub(crate) fn since(before: Option<SchedCount>, after: Option<SchedCount>) -> Option<Tardiness> {
    let after = after?;
    // Fewer releases than before: this is another scheduler, started since.
    let before = before.filter(|before| before.releases <= after.releases);
    let base = before.map_or([0; 64], |before| before.tardiness);
    let mut tardiness = after.tardiness;
    for (count, base) in tardiness.iter_mut().zip(base) {
        *count = count.saturating_sub(base);
    }
    let releases = tardiness.iter().sum();
    (releases > 0).then(|| Tardiness {
        releases,
        tardy_p50_us: quantile(&tardiness, 50),
        tardy_p99_us: quantile(&tardiness, 99),
    })
}

impl fmt::Display for Tardiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} times; late by {} us (half of them), {} us (99 %)",
            self.releases, self.tardy_p50_us, self.tardy_p99_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecalls_abi::zerocopy::FromZeros;

    #[test]
    fn quantiles_are_those_of_the_buckets() {
        let mut counts = [0; 64];
        assert_eq!(quantile(&counts, 50), 0);
        (counts[2], counts[5], counts[7]) = (50, 48, 2);
        assert_eq!(quantile(&counts, 50), 2);
        assert_eq!(quantile(&counts, 98), 6);
        assert_eq!(quantile(&counts, 99), 12);
    }

    #[test]
    fn only_what_came_between_two_looks_counts() {
        let mut before = SchedCount::new_zeroed();
        (before.releases, before.tardiness[7]) = (100, 100);
        let mut after = before;
        (after.releases, after.tardiness[2]) = (110, 10);
        let seen = since(Some(before), Some(after)).expect("releases");
        assert_eq!((seen.releases, seen.tardy_p99_us), (10, 2));
        assert!(since(Some(after), Some(after)).is_none());
        // Another scheduler than before: all its releases count.
        let seen = since(Some(after), Some(before)).expect("releases");
        assert_eq!(seen.releases, 100);
    }
}
