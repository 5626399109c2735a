//! What takes longer, for `make nightly`: SQLite's own test of threads, and MariaDB's server under
//! sysbench, with user-level threads in both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use limit::Running;

use super::{LIMIT, Sees, both, output, threaded};

/// Set: what takes long runs, too.
const NIGHTLY: &str = "ECALLS_NIGHTLY";
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

/// SQLite's threadtest3: writers, readers, checkpoints, vacuums and shared caches in 15 tests, some
/// of which count on the threads' real parallelism and time.
#[test]
fn sqlite_passes_its_own_test_of_threads() {
    if !is_night() {
        return;
    }
    let folder = folder("sqlite");
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/programs/sqlite-threadtest"
    );
    let made = limit::output(Command::new(script).arg(&folder), LIMIT * 3);
    let errors = String::from_utf8_lossy(&made.stderr);
    if made.status.code() == Some(CANNOT) {
        println!("not run: {errors}");
        return;
    }
    assert!(made.status.success(), "{errors}");
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
