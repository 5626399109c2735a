//! What happens to an unmodified program amid blocks: limits of memory and kernel threads, exec,
//! SIGSTOP, a debugger, and SIGKILL (c/fault.c).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use limit::{Lines, Running};

use super::{Sees, both, compile, output, threaded};

const LIMIT: Duration = Duration::from_secs(60);
const KILLS: u64 = 20;

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("fault"))
}

fn said(what: &str, sees: Sees) -> String {
    output(threaded(Command::new(program()).arg(what), sees))
}

#[test]
fn memory_that_is_refused_is_eagain() {
    let plain = output(Command::new(program()).arg("memory"));
    assert!(plain.starts_with("went on"), "{plain}");
    both(|sees| {
        let said = said("memory", sees);
        assert!(said.starts_with("went on"), "{sees:?}: {said}");
    });
}

#[test]
fn at_a_limit_of_kernel_threads_a_program_goes_on() {
    both(|sees| assert_eq!(said("processes", sees), "went on\n"));
}

#[test]
fn a_thread_replaces_the_program_while_others_block() {
    both(|sees| {
        let said = said("exec", sees);
        assert!(said.ends_with("replaced\n"), "{sees:?}: {said}");
    });
}

fn start(sees: Sees) -> (Running, Lines) {
    let mut command = Command::new(program());
    threaded(command.arg("blocks"), sees).stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    let lines = running.lines();
    (running, lines)
}

/// Reads until threads have blocked and come back so often that each has, probably.
fn go_on(lines: &mut Lines) {
    let mut first = None;
    let start = Instant::now();
    loop {
        let line = lines.find("rounds ", LIMIT);
        let number = line.rsplit(' ').next().expect("a number");
        let now: u64 = number.parse().expect("a number");
        if now > *first.get_or_insert(now) + 50 {
            return;
        }
        assert!(start.elapsed() < LIMIT, "threads stand still: {line}");
    }
}

fn kill(running: &mut Running) {
    let pid = running.id();
    running.kill(LIMIT);
    assert!(!std::fs::exists(format!("/proc/{pid}")).expect("/proc"));
}

fn signal(running: &Running, name: &str) {
    output(Command::new("kill").args([name, &running.id().to_string()]));
}

#[test]
fn a_stopped_program_goes_on_where_it_was() {
    both(|sees| {
        let (mut running, mut lines) = start(sees);
        for _ in 0..5 {
            go_on(&mut lines);
            signal(&running, "-STOP");
            std::thread::sleep(Duration::from_millis(20));
            signal(&running, "-CONT");
        }
        go_on(&mut lines);
        kill(&mut running);
    });
}

#[test]
fn a_program_that_is_traced_goes_on() {
    let strace = Command::new("strace").arg("-V").output();
    if strace.is_err() {
        println!("not run: there is no strace");
        return;
    }
    both(|sees| {
        let (mut running, mut lines) = start(sees);
        go_on(&mut lines);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o", "/dev/null", "-p", &running.id().to_string()]);
        let tracer = Running::start(strace.stderr(Stdio::null()));
        let status = format!("/proc/{}/status", running.id());
        let start = Instant::now();
        let is_traced = || {
            let status = std::fs::read_to_string(&status).expect("it runs");
            !status.contains("TracerPid:\t0\n")
        };
        while !is_traced() {
            assert!(start.elapsed() < LIMIT, "strace does not attach");
            std::thread::sleep(Duration::from_millis(10));
        }
        go_on(&mut lines);
        output(Command::new("kill").args(["-INT", &tracer.id().to_string()]));
        // It detaches, and ends by the signal.
        tracer.output(LIMIT);
        go_on(&mut lines);
        kill(&mut running);
    });
}

#[test]
fn a_program_can_be_killed_at_any_instant() {
    both(|sees| {
        let mut random = u64::from(std::process::id());
        for _ in 0..KILLS {
            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            let (mut running, _lines) = start(sees);
            std::thread::sleep(Duration::from_micros((random >> 33) % 60_000));
            kill(&mut running);
        }
    });
}
