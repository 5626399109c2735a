//! Random programs run in user space, and as instructions of the kernel's, as the judge says: 700
//! of them, or as many as `ECALLS_PROGRAMS` says (`make nightly`: 100,000), from the seed
//! `ECALLS_SEED` (0) on. In the kernel itself: crates/ecalls-kernel/tests/ecode.rs.

use ecode_judge::differential::{User, Way, compare, number};
use ecode_judge::instructions::Interpreted;

#[test]
fn random_programs_do_what_the_judge_says() {
    let (first, count) = (number("ECALLS_SEED", 0), number("ECALLS_PROGRAMS", 700));
    let (plain, hardened) = (Interpreted::default(), Interpreted { secret: Some(77) });
    let ways: [&dyn Way; 3] = [&User, &plain, &hardened];
    let tally = compare(first..first + count, &ways).unwrap_or_else(|what| panic!("{what}"));
    println!("{tally:?}");
    assert!(tally.says_much(), "{tally:?}");
}
