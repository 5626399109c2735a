//! What takes longer, for `make nightly`, with user-level threads: SQLite's own test of threads,
//! the Open POSIX Test Suite, and MariaDB's server under sysbench.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use limit::Running;
use rustix::process::{Pid, Signal, kill_process_group};

use super::{LIMIT, Sees, both, output, threaded};

/// Set: what takes long runs, too.
const NIGHTLY: &str = "ECALLS_NIGHTLY";
/// To fetch and to compile what others have written.
const MAKE_LIMIT: Duration = Duration::from_secs(900);
/// SQLite's test runs four minutes on a machine that does nothing else.
const SQLITE_LIMIT: Duration = Duration::from_secs(1200);
/// A script's status: it cannot do its work here.
const CANNOT: i32 = 77;
/// How often it is asked whether the server is there.
const ASK_AGAIN: Duration = Duration::from_millis(100);

const CONNECTIONS: u32 = 32;
const TRANSACTIONS: u32 = 3000;

/// Whether it is the time for what takes long. Says so if not.
fn is_night() -> bool {
    let is_night = std::env::var_os(NIGHTLY).is_some();
    if !is_night {
        println!("not run: it takes minutes; make nightly does, which sets {NIGHTLY}");
    }
    is_night
}

/// An empty folder of one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// What a script of this folder has made of the sources of others; `None`: it cannot, here.
fn made(script: &str) -> Option<PathBuf> {
    let folder = folder(script);
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let made = limit::output(Command::new(scripts.join(script)).arg(&folder), MAKE_LIMIT);
    let errors = String::from_utf8_lossy(&made.stderr);
    if made.status.code() == Some(CANNOT) {
        println!("not run: {errors}");
        return None;
    }
    assert!(made.status.success(), "{errors}");
    Some(folder)
}

/// SQLite's threadtest3: writers, readers, checkpoints, vacuums and shared caches in 15 tests, some
/// of which count on the threads' real parallelism and time.
#[test]
fn sqlite_passes_its_own_test_of_threads() {
    if !is_night() {
        return;
    }
    let Some(folder) = made("sqlite-threadtest") else {
        return;
    };
    both(|sees| {
        let mut test = Command::new(folder.join("threadtest3"));
        let ended = limit::output(
            threaded(test.current_dir(&folder), sees).arg("*"),
            SQLITE_LIMIT,
        );
        let said = String::from_utf8_lossy(&ended.stdout);
        let passed = ended.status.success() && said.contains("0 errors out of 15 tests");
        assert!(passed, "{sees:?}: {}\n{said}", ended.status);
    });
    fs::remove_dir_all(folder).expect("it is there");
}

/// What is not compared, by what the names begin with: what the tests expect and doc/threads.md
/// says is not so, and what is a matter of luck on kernel threads, too.
const NOT_SO: &[(&str, &str)] = &[
    ("pthread_attr_setinheritsched.2-", "real-time policies"),
    ("pthread_attr_setschedpolicy.2-1", "real-time policies"),
    ("pthread_getschedparam.1-2", "real-time policies"),
    ("pthread_setschedparam.", "real-time policies"),
    ("pthread_setschedprio.", "real-time policies"),
    ("pthread_rwlock_rdlock.2-", "real-time policies"),
    ("sigaction.16-1", "real-time policies"),
    ("pthread_attr_setstacksize.2-1", "a stack is larger"),
    ("pthread_create.1-5", "a stack is larger"),
    ("pthread_create.3-2", "a stack is larger"),
    ("pthread_create.11-1", "a thread has no clock"),
    ("pthread_getcpuclockid.", "a thread has no clock"),
    ("sigpause.2-1", "sighold"),
    ("pthread_cond_init.4-2", FIRST),
    ("pthread_mutex_init.5-3", FIRST),
    ("pthread_mutex_lock.3-1", FIRST),
    // They detach threads that have a stack of the program's, and give that to another thread after
    // 33 others, whether the first one has ended or not.
    ("pthread_create.14-1", "two threads on one stack"),
    ("pthread_detach.4-3", "two threads on one stack"),
    (
        "sigpause.3-1",
        "hangs if the thread is faster than who wakes it",
    ),
    ("sem_post.8-1", "which of two processes is first"),
];

/// A signal that is sent to a new thread ends the process if the thread has no handler yet.
const FIRST: &str = "which of two new threads is first";

/// How long one of those tests may take; most sleep for some seconds, five philosophers for 60.
const POSIX_LIMIT: Duration = Duration::from_secs(150);
const AT_A_TIME: usize = 4;

/// Whether a test of POSIX passes. Whatever it starts ends with it: some leave processes behind.
fn passes(test: &Path, sees: Option<Sees>) -> bool {
    let mut command = Command::new(test);
    command.current_dir(env!("CARGO_TARGET_TMPDIR"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).process_group(0);
    if let Some(sees) = sees {
        threaded(&mut command, sees);
    }
    let mut running = Running::start(&mut command);
    let group = Pid::from_raw(running.id().cast_signed()).expect("it is not 0");
    let start = Instant::now();
    let status = loop {
        match running.ended() {
            None if start.elapsed() < POSIX_LIMIT => std::thread::sleep(Duration::from_millis(5)),
            status => break status,
        }
    };
    // It fails if there is nobody any more.
    let _ = kill_process_group(group, Signal::KILL);
    status.is_some_and(|status| status.success())
}

/// Each test of the Open POSIX Test Suite that kernel threads pass.
#[test]
fn the_open_posix_test_suite_passes() {
    if !is_night() {
        return;
    }
    let Some(folder) = made("posix-testsuite") else {
        return;
    };
    let tests = fs::read_dir(folder.join("bin")).expect("the tests");
    let mut tests: Vec<_> = tests.map(|entry| entry.expect("a test").path()).collect();
    tests.sort();
    let next = AtomicUsize::new(0);
    let (passed, differ) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let judge = |test: &Path| {
        let name = test.file_name().expect("a name").to_string_lossy();
        if NOT_SO.iter().any(|(begin, _)| name.starts_with(begin)) || !passes(test, None) {
            return;
        }
        passed.fetch_add(1, Ordering::Relaxed);
        both(|sees| {
            if !passes(test, Some(sees)) {
                let line = format!("{name} {sees:?}");
                differ.lock().expect("no panic").push(line);
            }
        });
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    judge(test);
                }
            });
        }
    });
    let differ = differ.into_inner().expect("no panic");
    let passed = passed.into_inner();
    println!("kernel threads pass {passed} tests of {}", tests.len());
    assert!(passed > 500, "kernel threads pass {passed} tests only");
    assert!(differ.is_empty(), "of {passed} tests: {differ:?}");
    fs::remove_dir_all(folder).expect("it is there");
}

/// A database server on a socket in a folder of its own.
struct Server {
    folder: PathBuf,
    process: Running,
}

impl Server {
    /// Starts it, and waits until it answers.
    fn start(folder: PathBuf, sees: Sees) -> Self {
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--skip-networking", &of_this_user()]);
        command.args([data_of(&folder), socket_of(&folder)]);
        let process = Running::start(threaded(&mut command, sees));
        let server = Self { folder, process };
        let begun = Instant::now();
        while !limit::output(server.client("mariadb-admin").arg("ping"), LIMIT)
            .status
            .success()
        {
            assert!(begun.elapsed() < LIMIT, "the server answers");
            std::thread::sleep(ASK_AGAIN);
        }
        server
    }

    fn client(&self, program: &str) -> Command {
        let mut client = Command::new(program);
        client.args(["--no-defaults", &socket_of(&self.folder), "--user=root"]);
        client
    }

    /// Transactions of sysbench, whose threads are user-level threads, too.
    fn sysbench(&self, what: &str, sees: Sees) -> String {
        let mut sysbench = Command::new("sysbench");
        let socket = socket_of(&self.folder).replace("--", "--mysql-");
        sysbench.args(["oltp_read_write", "--db-driver=mysql", &socket]);
        sysbench.args(["--mysql-user=root", "--tables=2", "--table-size=1000"]);
        sysbench
            .arg("--time=0")
            .arg(format!("--events={TRANSACTIONS}"));
        sysbench.arg(format!("--threads={CONNECTIONS}")).arg(what);
        output(threaded(&mut sysbench, sees))
    }
}

fn data_of(folder: &Path) -> String {
    format!("--datadir={}", folder.join("data").display())
}

/// The server runs as root only if it is told to.
fn of_this_user() -> String {
    let user = output(Command::new("id").arg("-un"));
    format!("--user={}", user.trim())
}

fn socket_of(folder: &Path) -> String {
    format!("--socket={}", folder.join("socket").display())
}

/// Each transaction is made, and the tables have the rows that they began with.
#[test]
fn mariadb_serves_sysbench() {
    if !is_night() {
        return;
    }
    for program in ["mariadbd", "mariadb-install-db", "mariadb", "sysbench"] {
        if !limit::output(Command::new("which").arg(program), LIMIT)
            .status
            .success()
        {
            println!("not run: {program} is not installed (mariadb-server, sysbench)");
            return;
        }
    }
    both(|sees| {
        let folder = folder("mariadb");
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
        output(install.args([data_of(&folder), of_this_user()]));
        let mut server = Server::start(folder, sees);
        let ask = |what: &str| output(server.client("mariadb").args(["--batch", "-Ne", what]));
        ask("CREATE DATABASE sbtest");
        server.sysbench("prepare", sees);
        let said = server.sysbench("run", sees);
        let made = said
            .lines()
            .find(|line| line.contains("total number of events:"));
        assert!(
            made.is_some_and(|line| line.ends_with(&format!(" {TRANSACTIONS}"))),
            "{said}"
        );
        for table in ["sbtest1", "sbtest2"] {
            assert_eq!(
                ask(&format!("SELECT COUNT(*) FROM sbtest.{table}")),
                "1000\n"
            );
        }
        output(server.client("mariadb-admin").arg("shutdown"));
        let status = server.process.wait(LIMIT);
        assert!(status.success(), "{sees:?}: {status}");
        fs::remove_dir_all(&server.folder).expect("it is there");
    });
}
