//! Programs whose threads are user-level threads: checks in C (c/posix.c, c/signals.c), Rust's
//! standard library, and programs of others, whose output must be what it is without. And what
//! happens to them amid blocks (c/fault.c). [`judges`] are those that take longer.
//!
//! Each runs twice: with the kernel side, if this user may load it, and without.

#![forbid(unsafe_code)]
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod faults;
mod judges;
mod std_threads;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(120);

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let package = env!("CARGO_MANIFEST_DIR");
    LIBRARY.get_or_init(|| limit::library::build(package, "libecalls_pthread.so"))
}

/// What a program writes to standard output.
fn output(command: &mut Command) -> String {
    let output = limit::output(command, LIMIT);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{errors}",
        output.status
    );
    String::from_utf8(output.stdout).expect("text")
}

/// How the library learns that a thread blocks.
#[derive(Clone, Copy, Debug)]
enum Sees {
    /// By the kernel side, if this user may load it.
    All,
    /// By the C library's calls.
    Calls,
}

/// The program with user-level threads.
fn threaded(command: &mut Command, sees: Sees) -> &mut Command {
    command.env("LD_PRELOAD", library());
    command.env("ECALLS_THREADS_PROCESSORS", "2");
    match sees {
        Sees::All => command.env_remove("ECALLS_THREADS_NO_KERNEL"),
        Sees::Calls => command.env("ECALLS_THREADS_NO_KERNEL", "1"),
    }
}

fn both(mut each: impl FnMut(Sees)) {
    each(Sees::All);
    each(Sees::Calls);
}

/// Compiles a program of tests/c.
fn compile(name: &str) -> PathBuf {
    compile_as(name, name, &[])
}

fn compile_as(to: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(to);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=gnu11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
    ]);
    output(
        compiler
            .arg(&program)
            .args(flags)
            .arg(sources.join(name).with_extension("c")),
    );
    program
}

fn posix() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("posix"))
}

/// A check of posix.c with user-level threads, and what it says.
fn check(name: &str, number: &str, sees: Sees) -> String {
    output(threaded(Command::new(posix()).args([name, number]), sees))
}

/// The checks are right: kernel threads pass them, too.
#[test]
fn kernel_threads_do_what_is_checked() {
    for name in [
        "locks",
        "kinds",
        "cancel",
        "slices",
        "signals",
        "forks",
        "last",
        "descriptors",
    ] {
        output(Command::new(posix()).args([name, "50"]));
    }
}

#[test]
fn locks_conditions_barriers_and_keys_do_what_they_should() {
    both(|sees| {
        for number in ["3", "50", "400"] {
            check("locks", number, sees);
        }
    });
}

#[test]
fn attributes_and_answers_are_those_of_posix() {
    both(|sees| drop(check("kinds", "1", sees)));
}

/// POSIX leaves that undefined, and kernel threads read what the C library has freed.
#[test]
fn a_thread_that_was_joined_is_no_thread() {
    both(|sees| drop(check("gone", "100", sees)));
}

#[test]
fn a_thread_is_cancelled_wherever_it_waits() {
    both(|sees| drop(check("cancel", "140", sees)));
}

#[test]
fn a_thread_that_computes_does_not_stop_others() {
    both(|sees| drop(check("slices", "1", sees)));
}

/// It has no `malloc` of its own, only a stub that jumps to it.
#[test]
fn a_program_at_a_fixed_address_has_time_slices() {
    let program = compile_as("fixed", "posix", &["-fno-pie", "-no-pie"]);
    both(|sees| {
        let mut command = Command::new(&program);
        output(threaded(command.args(["slices", "1"]), sees));
    });
}

/// A mask is a thread's own, and what is sent to a thread is handled in it and ends its wait.
#[test]
fn a_thread_has_its_signal_mask_and_the_signals_sent_to_it() {
    let program = compile("signals");
    for name in [
        "masks",
        "blocked",
        "sent",
        "restarted",
        "waited",
        "storm",
        "cancelled",
    ] {
        let of = |program: &Path| {
            let mut command = Command::new(program);
            command.args([name, "60"]);
            command
        };
        output(&mut of(&program));
        both(|sees| drop(output(threaded(&mut of(&program), sees))));
    }
}

/// What a handler waits for, and a time slice, put its thread aside nowhere: it might have a lock.
/// A signal of the process finds a thread, and not a switch between two; that of a cancellation
/// finds its thread in whatever kernel thread it waits.
#[test]
fn a_thread_stays_where_it_is_while_a_handler_runs() {
    let program = compile("handlers");
    let of = |name: &str, processors: &str, sees| {
        let mut command = Command::new(&program);
        threaded(command.args([name, "20"]), sees);
        command.env("ECALLS_THREADS_PROCESSORS", processors);
        output(&mut command)
    };
    for name in [
        "waits",
        "interrupted",
        "jumps",
        "left_amid_switches",
        "amid_switches",
        "amid_work",
        "amid_waits",
        "cancelled",
    ] {
        output(Command::new(&program).args([name, "20"]));
        both(|sees| {
            for processors in ["1", "2"] {
                of(name, processors, sees);
            }
        });
    }
    both(|sees| drop(of("undisturbed", "1", sees)));
}

#[test]
fn handlers_of_signals_post_semaphores() {
    both(|sees| drop(check("signals", "300", sees)));
}

#[test]
fn the_child_of_a_fork_has_threads_of_its_own() {
    both(|sees| drop(check("forks", "1", sees)));
}

#[test]
fn what_a_program_closes_is_not_the_runtime_s() {
    both(|sees| drop(check("descriptors", "1", sees)));
}

#[test]
fn a_process_ends_with_its_last_thread() {
    both(|sees| assert_eq!(check("last", "1", sees), "said\n"));
}

/// 10,000 threads that wait for a condition, and 500 that read.
#[test]
fn threads_that_wait_are_no_kernel_threads() {
    both(|sees| {
        for (name, number) in [("many", "10000"), ("connections", "500")] {
            let said = check(name, number, sees);
            let kernel_threads: u32 = said.trim().parse().expect("a number");
            assert!(
                kernel_threads < 50,
                "{name}: {kernel_threads} kernel threads"
            );
        }
    });
}

/// Polls of one descriptor answer as the kernel's, and 500 threads that poll are no kernel threads.
#[test]
fn threads_that_poll_are_no_kernel_threads() {
    let program = compile("polls");
    output(Command::new(&program).arg("50"));
    both(|sees| {
        let said = output(threaded(Command::new(&program).arg("500"), sees));
        let kernel_threads: u32 = said.trim().parse().expect("a number");
        assert!(kernel_threads < 50, "{kernel_threads} kernel threads");
    });
}

/// Also if it is executed by a function whose arguments are a list, or after vfork.
#[test]
fn what_a_thread_executes_has_the_cpus_of_the_process_and_a_name_is_the_thread_s() {
    let program = compile("starts");
    output(&mut Command::new(&program));
    both(|sees| drop(output(threaded(&mut Command::new(&program), sees))));
}

/// A program's own malloc, as jemalloc, locks mutexes: who waits for one must not come there again.
#[test]
fn a_malloc_of_the_program_may_lock_mutexes() {
    let program = compile("memory");
    output(Command::new(&program).arg("300"));
    both(|sees| {
        let said = output(threaded(Command::new(&program).arg("300"), sees));
        assert_eq!(said, "32 threads ended\n");
    });
}

/// Runs a program with kernel threads and with user-level threads.
fn same(program: &str, arguments: &[&str]) {
    let plain = output(Command::new(program).args(arguments));
    assert!(!plain.is_empty(), "{program} says something");
    both(|sees| {
        let threaded = output(threaded(Command::new(program).args(arguments), sees));
        assert_eq!(plain, threaded, "{program} {sees:?}");
    });
}

#[test]
fn python_runs_threads_sockets_processes_and_forks() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/threads.py");
    same("python3", &[script]);
}

#[test]
fn xz_compresses_in_threads() {
    let command = "head -c 9000000 \"$0\" | xz -T3 --block-size=1MiB -1 | sha256sum";
    same(
        "bash",
        &[
            "-c",
            command,
            &std::env::current_exe().expect("a path").to_string_lossy(),
        ],
    );
}

#[test]
fn stress_ng_creates_thousands_of_threads() {
    let command = "stress-ng --pthread 2 --pthread-ops 2000 2>/dev/null && echo passed";
    same("sh", &["-c", command]);
}

/// The tests of std_threads.rs, in a process with user-level threads.
#[test]
fn the_standard_library_of_rust_works() {
    let this = std::env::current_exe().expect("a path");
    both(|sees| {
        let mut command = Command::new(&this);
        command.args(["std_threads::", "--include-ignored", "--test-threads=8"]);
        let said = output(threaded(&mut command, sees));
        assert!(said.contains("6 passed"), "{said}");
    });
}

/// What the library says of itself names the processors and what they see.
#[test]
fn the_library_says_how_it_works() {
    let mut command = Command::new(posix());
    command.args(["last", "1"]).env("ECALLS_THREADS_SAY", "1");
    let said = limit::output(threaded(&mut command, Sees::Calls), LIMIT).stderr;
    let said = String::from_utf8_lossy(&said);
    let sees = "on 2 processors, which see calls of the C library that block; with time slices";
    assert!(said.contains(sees), "{said}");
}
