//! Ordinary programs, which know nothing of the scheduler: hogs, sleepers, chains of threads that
//! wake each other, servers with workers, kernel threads that are bound to a CPU.

use sched_sim::ordinary;

const SECOND: u64 = 1_000_000_000;

/// `sched-sim` runs many more seeds.
#[test]
fn ordinary_threads_run_soon_and_lose_nothing_by_moving() {
    for seed in 1..100 {
        let first = ordinary::run(seed, 2 * SECOND);
        assert!(first.is_ok(), "{first:?}");
        if seed % 20 == 0 {
            assert_eq!(first, ordinary::run(seed, 2 * SECOND), "seed {seed}");
        }
    }
}
