//! Random programs run in user space as the judge says: 2,000 of them, or as many as
//! `ECALLS_PROGRAMS` says, from the seed `ECALLS_SEED` (0) on.

use std::env;

use ecode_judge::differential::{User, compare};

fn number(name: &str, otherwise: u64) -> u64 {
    let given = env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().expect("a number"))
}

fn compare_many(count: u64) {
    let first = number("ECALLS_SEED", 0);
    let tally = compare(first..first + count, &[&User]).unwrap_or_else(|what| panic!("{what}"));
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
