//! The tests of libevent, of libuv and of the kernel's epoll, which others wrote, bare and under
//! the library: the same ones are there, and under the library none fails that does not fail bare.
//! By `make nightly`, where tools/judges has built them.
//!
//! libevent waits by poll, then by select; libuv by epoll alone, so that it shows what the library
//! does to a program that has no use for it; the kernel's polls sets of epoll, nested ones too.
//! What fails under the library only is run alone again: the tests measure times, and other work
//! takes some.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{LIMIT, eager, is_night, library};

/// The folder that tools/judges has filled.
const JUDGES: &str = "ECALLS_JUDGES";
/// How often a test that fails under the library only is run again.
const AGAIN: u32 = 3;

/// Names of tests.
#[derive(Debug, Default)]
struct Verdicts {
    all: BTreeSet<String>,
    skipped: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// What a program of tests says.
fn said(command: &mut Command) -> String {
    let output = limit::output(command.stdin(Stdio::null()), LIMIT * 5);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("cannot be preloaded"), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &errors
}

/// A program that was built; `None`: it was not, or it is not the time for it.
fn built(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(JUDGES).filter(|_| is_night());
    let path = folder.map(|folder| Path::new(&folder).join(path));
    let path = path.filter(|path| path.exists());
    if path.is_none() {
        println!("not run: {path:?}: tools/judges builds it, and {JUDGES} names its folder");
    }
    path
}

/// Compares, and runs again what fails under the library only; `passes`: whether a test does so.
fn compare(what: &str, bare: &Verdicts, ours: &Verdicts, passes: impl Fn(&str) -> bool) {
    assert!(bare.all.len() > 50, "{what}: {bare:?}");
    assert_eq!(ours.all, bare.all, "{what}: left under the library");
    assert_eq!(ours.skipped, bare.skipped, "{what}: left under the library");
    for name in ours.failed.difference(&bare.failed) {
        println!("{what}: {name} failed under the library only, and is run again");
        assert!((0..AGAIN).any(|_| passes(name)), "{what}: {name}");
    }
    let (all, skipped) = (ours.all.len(), ours.skipped.len());
    println!("{what}: {all} tests, {skipped} of them skipped, say the same");
}

/// `main/methods: [forking] OK`, or further lines, with `[methods FAILED]` at last.
fn of_libevent(text: &str) -> Verdicts {
    let (mut verdicts, mut name) = (Verdicts::default(), String::new());
    for line in text.lines() {
        let first = line.split(": ").next().unwrap_or_default();
        if line.contains(": ") && first.contains('/') && !first.contains(' ') {
            first.clone_into(&mut name);
            verdicts.all.insert(name.clone());
        }
        if line.contains(" FAILED]") {
            verdicts.failed.insert(name.clone());
        }
        if line.ends_with("SKIPPED") || line.ends_with("DISABLED") {
            verdicts.skipped.insert(name.clone());
        }
    }
    verdicts
}

#[test]
fn libevents_tests_say_the_same() {
    let Some(program) = built("libevent/test/regress") else {
        return;
    };
    let regress = |without: &[&str]| {
        let mut command = Command::new(&program);
        command.envs(without.iter().map(|name| (name, "1")));
        command
    };
    // Nearly all of their time they sleep.
    std::thread::scope(|scope| {
        for (what, without) in [
            ("libevent, poll", &["EVENT_NOEPOLL"][..]),
            ("libevent, select", &["EVENT_NOEPOLL", "EVENT_NOPOLL"]),
        ] {
            let bare = scope.spawn(move || of_libevent(&said(&mut regress(without))));
            scope.spawn(move || {
                let ours = of_libevent(&said(eager(&mut regress(without))));
                let passes = |name: &str| {
                    let text = said(eager(regress(without).arg(name)));
                    !text.contains("FAILED")
                };
                compare(what, &bare.join().expect("verdicts"), &ours, passes);
            });
        }
    });
}

/// `ok 7 - name`, `not ok 7 - name`, `ok 7 - name # SKIP why`.
fn of_libuv(text: &str) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for line in text.lines() {
        let Some((verdict, told)) = line.split_once(" - ") else {
            continue;
        };
        let is_failed = verdict.starts_with("not ok ");
        if !is_failed && !verdict.starts_with("ok ") {
            continue;
        }
        let (name, told) = told.split_once(' ').unwrap_or((told, ""));
        verdicts.all.insert(name.to_owned());
        if is_failed {
            verdicts.failed.insert(name.to_owned());
        }
        if told.starts_with("# SKIP") {
            verdicts.skipped.insert(name.to_owned());
        }
    }
    verdicts
}

/// libuv's program with what it needs, where any user may use it: it does not run as root.
struct Libuv(PathBuf);

const COPY: &str = "mkdir -p test && cp -r \"$1/test/fixtures\" test && \
                    cp \"$1/build/uv_run_tests_a\" \"$2\" . && \
                    { [ \"$(id -u)\" != 0 ] || chown -R 65534 .; }";
/// Root has a network of its own for it, in which nobody else has its ports.
const RUN: &str = "[ \"$(id -u)\" = 0 ] || exec ./uv_run_tests_a \"$@\"; exec unshare --net sh -c '\
                   ip link set lo up && exec setpriv --reuid=65534 --regid=65534 --clear-groups \
                   ./uv_run_tests_a \"$@\"' sh \"$@\"";

impl Libuv {
    fn new(program: &Path) -> Libuv {
        let folder = std::env::temp_dir().join(format!("ecalls-libuv-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let libuv = Libuv(folder);
        let tree = program.ancestors().nth(2).expect("it is in a tree");
        let mut copy = libuv.shell(COPY);
        let copied = limit::ended(copy.arg(tree).arg(library()), LIMIT);
        assert_eq!(copied.code, 0, "{copied:?}");
        libuv
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.current_dir(&self.0).args(["-c", script, "sh"]);
        command
    }

    fn ours(&self) -> Command {
        let mut command = self.shell(RUN);
        eager(&mut command).env("LD_PRELOAD", self.0.join("libecalls_io.so"));
        command
    }
}

impl Drop for Libuv {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn libuvs_tests_say_the_same() {
    let Some(program) = built("libuv1/build/uv_run_tests_a") else {
        return;
    };
    let libuv = Libuv::new(&program);
    // Not at once: their names of files are the same.
    let bare = of_libuv(&said(&mut libuv.shell(RUN)));
    let ours = of_libuv(&said(&mut libuv.ours()));
    compare("libuv", &bare, &ours, |name| {
        of_libuv(&said(libuv.ours().arg(name))).failed.is_empty()
    });
}

/// `ok 1 global.epoll1`; older ones say ` ok 1 global.epoll1`.
fn of_kernel(text: &str) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (is_failed, name) = match *words.as_slice() {
            ["ok", _, name, ..] => (false, name),
            ["not", "ok", _, name, ..] => (true, name),
            _ => continue,
        };
        verdicts.all.insert(name.to_owned());
        if is_failed {
            verdicts.failed.insert(name.to_owned());
        }
    }
    verdicts
}

#[test]
fn kernels_tests_of_epoll_say_the_same() {
    let Some(program) = built("kernel/epoll_wakeup_test") else {
        return;
    };
    let test = || Command::new(&program);
    std::thread::scope(|scope| {
        let bare = scope.spawn(|| of_kernel(&said(&mut test())));
        let ours = of_kernel(&said(eager(&mut test())));
        let passes = |name: &str| {
            let again = of_kernel(&said(eager(&mut test())));
            !again.failed.contains(name)
        };
        compare("epoll", &bare.join().expect("verdicts"), &ours, passes);
    });
}
