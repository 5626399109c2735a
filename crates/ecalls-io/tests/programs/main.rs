//! Programs that poll and select, bare and under the library: what they say must be the same.
//! c/check.c has one check for each thing that an array in a lasting set could get wrong,
//! c/differ.c compares random sequences with the system call; [`judges`] and [`loops`] are tests of
//! others.

#![forbid(unsafe_code)]
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod judges;
mod loops;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Steps of a random sequence.
const STEPS: &str = "20000";
const SEEDS: u64 = 5;
const SEEDS_NIGHTLY: u64 = 200;
/// Set: what takes long runs, too.
const NIGHTLY: &str = "ECALLS_NIGHTLY";

fn is_night() -> bool {
    std::env::var_os(NIGHTLY).is_some()
}

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let package = env!("CARGO_MANIFEST_DIR");
    LIBRARY.get_or_init(|| limit::library::build(package, "libecalls_io.so"))
}

/// What a program writes to standard output.
fn output(command: &mut Command) -> String {
    let output = limit::output(command.stdin(Stdio::null()), LIMIT);
    let out = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{command:?}: {status}\n{out}\n{errors}");
    out
}

fn under_library(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", library())
}

/// With a set for each array from the first call on.
fn eager(command: &mut Command) -> &mut Command {
    under_library(command.env("ECALLS_IO_EAGER", "1"))
}

/// Compiles a program of tests/c.
fn compile(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("io-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    compiler
        .arg("-o")
        .arg(&program)
        .arg(source.with_extension("c"));
    output(&mut compiler);
    program
}

fn check_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("check"))
}

/// A check says the same bare and under the library.
fn same(name: &str) {
    let bare = output(Command::new(check_program()).arg(name));
    assert!(!bare.is_empty());
    let ours = output(under_library(Command::new(check_program()).arg(name)));
    assert_eq!(ours, bare, "{name}: left under the library, right bare");
    // The kernel's own limit of an array is asked for by kernel's polls only.
    if name != "limit" {
        let eager = output(eager(Command::new(check_program()).arg(name)));
        assert_eq!(
            eager, bare,
            "{name}: left under the library at once, right bare"
        );
    }
}

macro_rules! checks {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            same($name);
        }
    )*};
}

checks! {
    what_is_ready_is_told_until_it_is_read: "level";
    a_descriptor_may_be_in_the_array_more_than_once: "duplicates";
    files_that_cannot_be_waited_for_are_ready: "files";
    bits_mean_what_they_mean_to_poll: "bits";
    a_number_of_no_file_is_invalid_until_it_is_a_files: "invalid";
    a_number_that_is_closed_and_opened_is_another_file: "reuse";
    a_number_that_is_closed_unseen_is_late_and_not_lost: "unseen";
    another_thread_may_close_and_open: "threads";
    a_file_that_lives_on_elsewhere_is_not_told: "lives_on";
    a_descriptor_may_be_passed_on: "passing";
    who_closes_all_does_not_close_the_set: "close_all";
    limits_of_descriptors_are_as_they_were: "limit";
    a_child_has_a_set_of_its_own: "fork";
    a_child_of_vfork_may_close: "vfork";
    a_program_that_is_executed_inherits_no_set: "exec";
    signals_interrupt_and_a_stop_does_not: "interrupts";
    masks_of_signals_hold_for_the_call: "mask";
    handlers_of_signals_may_poll: "handler";
    a_handler_may_jump_out_of_poll: "jump";
    poll_is_a_point_of_cancellation: "cancel";
    times_pass_as_they_should: "times";
    select_is_what_it_was: "select";
}

#[test]
fn a_large_array_is_a_set_with_a_high_number() {
    assert_eq!(output(Command::new(check_program()).arg("set")), "0 sets\n");
    let ours = output(under_library(Command::new(check_program()).arg("set")));
    assert_eq!(ours, "1 sets\n");
}

/// Other ones than each time: `ECALLS_SEED`, of which the failure tells.
#[test]
fn random_sequences_are_answered_as_by_the_kernel() {
    let program = compile("differ");
    let seed = std::env::var("ECALLS_SEED").ok();
    let first = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let seeds = if is_night() { SEEDS_NIGHTLY } else { SEEDS };
    for seed in first..first + seeds {
        for under in [under_library, eager] {
            let mut differ = Command::new(&program);
            differ.arg(seed.to_string()).arg(STEPS);
            let said = output(under(&mut differ));
            assert_eq!(said, format!("{STEPS} steps\n"));
        }
    }
}
