//! Random programs run in user space, and as instructions of the kernel's, as the judge says: 2,000
//! of them, or as many as `ECALLS_PROGRAMS` says, from the seed `ECALLS_SEED` (0) on.

use std::env;

use ecode_judge::differential::{User, Way, compare};
use ecode_judge::instructions::Interpreted;

fn number(name: &str, otherwise: u64) -> u64 {
    let given = env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().expect("a number"))
}

fn compare_many(count: u64) {
    let first = number("ECALLS_SEED", 0);
    let (plain, hardened) = (Interpreted::default(), Interpreted { secret: Some(77) });
    let ways: [&dyn Way; 3] = [&User, &plain, &hardened];
    let tally = compare(first..first + count, &ways).unwrap_or_else(|what| panic!("{what}"));
    println!("{tally:?}");
    assert!(
        tally.passed_over * 20 <= count,
        "too many beyond a limit: {tally:?}"
    );
    assert!(tally.faults * 3 <= tally.runs, "too many fail: {tally:?}");
}

#[test]
fn random_programs_do_what_the_judge_says() {
    compare_many(number("ECALLS_PROGRAMS", 2_000));
}

#[test]
#[ignore = "minutes: 100,000 programs"]
fn very_many_random_programs_do_what_the_judge_says() {
    compare_many(number("ECALLS_PROGRAMS", 100_000));
}
