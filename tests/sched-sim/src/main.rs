//! Runs worlds by chance until enough decisions were taken: of each seed one of threads that know
//! the scheduler, and one of ordinary ones; the seeds take turns at the weights of `NICE_0`.
//!
//!     sched-sim [DECISIONS [SEED]]
//!
//! The first seed is SEED, else $ECALLS_SEED, else the time; each world takes the next. What fails
//! is printed with its seed, and repeats with it. Exit status 1 then.

use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sched_sim::thread::NICE_0;
use sched_sim::{ordinary, world};

/// How long each world lives, in its own time.
const WORLD_NS: u64 = 2_000_000_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let decisions = arguments.next().map_or(Ok(10_000_000), |text| text.parse());
    let seed = arguments
        .next()
        .or_else(|| std::env::var("ECALLS_SEED").ok());
    let seed = seed.map_or(Ok(seed_of_the_time()), |text| text.parse());
    let (Ok(decisions), Ok(first)) = (decisions, seed) else {
        eprintln!("usage: sched-sim [DECISIONS [SEED]]");
        return ExitCode::from(2);
    };
    let began = Instant::now();
    let (mut taken, mut seed) = (0_u64, first);
    while taken < decisions {
        let nice_0 = NICE_0[(seed % 3) as usize];
        for run in [world::run, ordinary::run] {
            match run(seed, nice_0, WORLD_NS) {
                Ok(run) => taken += run.decisions,
                Err(wrong) => {
                    eprintln!("{wrong}\nrepeat it with: sched-sim 1 {seed}");
                    return ExitCode::FAILURE;
                }
            }
        }
        seed = seed.wrapping_add(1);
    }
    let worlds = seed.wrapping_sub(first);
    let per_second = taken as f64 / began.elapsed().as_secs_f64();
    println!("{taken} decisions in {worlds} worlds from seed {first}: {per_second:.0} a second");
    ExitCode::SUCCESS
}

fn seed_of_the_time() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |since| since.as_secs())
}
