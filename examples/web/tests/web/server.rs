//! The program with a folder of its own, in each of its modes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) const MODES: [&str; 5] = ["select", "poll", "epoll", "io_uring", "ecalls"];
/// The size of the file `big`.
pub(crate) const BIG: usize = 3_000_000;
/// A test that waits for so long has failed.
const HANGS: Duration = Duration::from_secs(60);

/// It ends when it is dropped.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Server {
    /// `None`: this machine cannot have this mode.
    pub(crate) fn start(mode: &str, arguments: &[&str]) -> Option<Server> {
        Server::with(
            Command::new(env!("CARGO_BIN_EXE_ecalls-web")),
            mode,
            arguments,
        )
    }

    /// With at most so many descriptors.
    pub(crate) fn with_files(files: u32, mode: &str, arguments: &[&str]) -> Option<Server> {
        let mut shell = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_ecalls-web");
        let text = format!("ulimit -n {files}; exec '{program}' \"$@\"");
        shell.args(["-c", &text, "sh"]);
        Server::with(shell, mode, arguments)
    }

    fn with(mut command: Command, mode: &str, arguments: &[&str]) -> Option<Server> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("web-test-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("index.html"), "<p>small</p>\n").expect("a file");
        let big: Vec<u8> = (0..BIG).map(|at| (at % 251) as u8).collect();
        std::fs::write(folder.join("big"), big).expect("a file");
        let mut child = command
            .arg(&folder)
            .args(["--events", mode])
            .args(arguments)
            .args(["--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let wanted = arguments.iter().filter(|word| **word == "--listen").count() + 1;
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let address = |line: &str| {
            line.strip_prefix("http://")?
                .split('/')
                .next()?
                .parse()
                .ok()
        };
        let lines = out.lines().map_while(Result::ok).take(wanted);
        let addresses: Vec<_> = lines.filter_map(|line| address(&line)).collect();
        let server = Server {
            child,
            folder,
            addresses,
        };
        if server.addresses.len() == wanted {
            return Some(server);
        }
        let mut server = server;
        let mut text = String::new();
        let errors = server.child.stderr.as_mut().expect("it is piped");
        errors.read_to_string(&mut text).expect("text");
        let lacks_root = mode == "ecalls" && std::env::var_os("ECALLS_TEST_ROOT").is_none();
        assert!(mode == "io_uring" || lacks_root, "{mode}: {text}");
        eprintln!("not tested: {text}");
        None
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.addresses[0])
    }

    /// Sends all, and returns what comes until the server ends the connection.
    pub(crate) fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect();
        // It may end the connection before it has all.
        let _ = stream.write_all(bytes.as_ref());
        rest(&mut stream)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses[0])
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Its processor time so far.
    pub(crate) fn cpu(&self) -> Duration {
        let path = format!("/proc/{}/schedstat", self.child.id());
        let text = std::fs::read_to_string(path).expect("it runs");
        let ns = text.split(' ').next().and_then(|word| word.parse().ok());
        Duration::from_nanos(ns.expect("a number"))
    }

    pub(crate) fn open_files(&self) -> usize {
        self.open_files_below(u32::MAX)
    }

    /// It inherits some that have higher numbers than its limit allows.
    pub(crate) fn open_files_below(&self, limit: u32) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        let names = files.expect("it runs").map_while(Result::ok);
        let number = |name: std::ffi::OsString| name.to_str().and_then(|text| text.parse().ok());
        let numbers = names.filter_map(|entry| number(entry.file_name()));
        numbers.filter(|number: &u32| *number < limit).count()
    }

    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").arg(&pid).status().expect("it starts");
        assert!(done.success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it is ours")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A connection whose calls fail after a time in which the test has failed.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(HANGS)).expect("not zero");
    stream.set_write_timeout(Some(HANGS)).expect("not zero");
    stream
}

/// What still comes.
pub(crate) fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        panic!("{error} after {:?}", String::from_utf8_lossy(&bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The same test with a server in each mode, one beside the other: most of its time is waiting.
pub(crate) fn each(arguments: &[&str], test: impl Fn(&mut Server, &str) + Sync) {
    std::thread::scope(|scope| {
        for mode in MODES {
            let test = &test;
            scope.spawn(move || {
                if let Some(mut server) = Server::start(mode, arguments) {
                    test(&mut server, mode);
                }
            });
        }
    });
}
