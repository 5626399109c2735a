//! The attackers: programs of ordinary users that do their worst to the daemon and to each other.
//! Needs root and `ECALLS_TEST_ROOT`.
//!
//! This binary starts the daemon and, as other users, itself again in a *role*: an attacker, or the
//! victim, an ordinary client that raises and receives events all the time and knows of each one
//! what became of it. A test is a [`scene::Scene`]: the victim in peace, then the attack, then
//! that nobody but the attacker has lost anything. doc/security.md names the tests.

#![allow(
    unsafe_code,
    reason = "attackers do what no safe library offers: raw.rs"
)]

mod activations;
mod actor;
mod daemon;
mod flood;
mod identity;
mod liar;
mod life;
mod load;
mod maps;
mod memory;
mod messages;
mod own;
mod quotas;
mod raw;
mod remote;
mod revocation;
#[path = "../harness/running.rs"]
mod running;
mod scene;
mod together;
mod upload;
mod upload_life;
mod victim;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A test's name and what it does.
type Test = (&'static str, fn());

/// The tests of a file under their names.
macro_rules! tests {
    ($($name:ident)*) => {
        pub(crate) const TESTS: &[crate::Test] = &[$((stringify!($name), $name)),*];
    };
}
use tests;

const THEMES: &[&[Test]] = &[
    messages::TESTS,
    memory::TESTS,
    maps::TESTS,
    flood::TESTS,
    identity::TESTS,
    revocation::TESTS,
    quotas::TESTS,
    upload::TESTS,
    upload_life::TESTS,
    liar::TESTS,
    together::TESTS,
    life::TESTS,
    load::TESTS,
    own::TESTS,
    activations::TESTS,
    remote::TESTS,
];

const ROLES: &[actor::Roles] = &[
    victim::ROLES,
    messages::ROLES,
    memory::ROLES,
    maps::ROLES,
    flood::ROLES,
    identity::ROLES,
    revocation::ROLES,
    quotas::ROLES,
    upload::ROLES,
    upload_life::ROLES,
    liar::ROLES,
    life::ROLES,
    load::ROLES,
    own::ROLES,
    activations::ROLES,
    remote::ROLES,
];

fn main() -> ExitCode {
    if let Some(code) = liar::stand_in() {
        return code;
    }
    if let Some(code) = actor::play(ROLES) {
        return code;
    }
    let may_run = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    if may_run {
        assert!(
            ecalls_kernel::is_root(),
            "ECALLS_TEST_ROOT is set, but this is not root"
        );
        daemon::choose_socket();
    } else {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
    }
    let mut arguments = Arguments::from_args();
    // One daemon, one core, and times are measured.
    arguments.test_threads = Some(1);
    let trials = THEMES.iter().flat_map(|theme| theme.iter());
    let trials = trials.map(|(name, test)| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(*name, run).with_ignored_flag(!may_run)
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if may_run {
        scene::finish();
    }
    conclusion.exit_code()
}
