//! `fixed` against exact integers ([`ecode_judge::fixed`]): folded, and computed by programs in
//! user space. The same programs run in the kernel (crates/ecalls-kernel/tests/ecode.rs).

use ecode_judge::differential::{User, number};
use ecode_judge::fixed::{compare_folded, compare_running};
use ecode_judge::instructions::Interpreted;

#[test]
fn folded_operations_on_fixed_are_exact() {
    let compared = compare_folded(number("ECALLS_SEED", 1), 1_500);
    println!("{compared} results");
}

#[test]
fn operations_on_fixed_are_exact_when_they_run() {
    let compared = compare_running(
        number("ECALLS_SEED", 1),
        30_000,
        &[&User, &Interpreted::default()],
    );
    println!("{compared} results");
}
