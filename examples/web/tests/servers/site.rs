//! Web servers as programs, each with a folder of its own and an address that no other test has.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use limit::Running;

/// The size of the file `big`.
pub(crate) const BIG: usize = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(30);
/// The program of this crate.
pub(crate) const OURS: &str = "ecalls-web";

/// A server, and how it waits for sockets.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) server: &'static str,
    /// For messages.
    pub(crate) name: &'static str,
    mode: &'static [&'static str],
    /// It waits by poll or select of the C library alone.
    pub(crate) polls: bool,
    /// Not only by night.
    pub(crate) is_short: bool,
}

const fn kind(
    [server, name]: [&'static str; 2],
    mode: &'static [&'static str],
    [polls, is_short]: [bool; 2],
) -> Kind {
    Kind {
        server,
        name,
        mode,
        polls,
        is_short,
    }
}

pub(crate) const KINDS: [Kind; 10] = [
    kind(["lighttpd", "lighttpd, poll"], &["poll"], [true, true]),
    kind(["lighttpd", "lighttpd, select"], &["select"], [true, false]),
    kind(
        ["lighttpd", "lighttpd, epoll"],
        &["linux-sysepoll"],
        [false, false],
    ),
    kind(["nginx", "nginx, epoll"], &["epoll"], [false, true]),
    kind(["haproxy", "haproxy, poll"], &["-de"], [true, true]),
    kind(
        ["haproxy", "haproxy, select"],
        &["-de", "-dp"],
        [true, false],
    ),
    kind(["haproxy", "haproxy, epoll"], &["-dp"], [false, false]),
    // Its system calls are its own, so a library changes nothing.
    kind([OURS, "examples/web, select"], &["select"], [false, true]),
    kind([OURS, "examples/web, poll"], &["poll"], [false, false]),
    kind([OURS, "examples/web, epoll"], &["epoll"], [false, false]),
];
/// What stands behind HAProxy.
const BEHIND: &Kind = &KINDS[9];

/// It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Site {
    running: Running,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
    _behind: Option<Box<Site>>,
}

/// Folders of servers that an ordinary user may not have in PATH.
const FOLDERS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

fn find(name: &str) -> Option<PathBuf> {
    if name == OURS {
        return Some(env!("CARGO_BIN_EXE_ecalls-web").into());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let all = format!("{path}:{FOLDERS}");
    let mut places = all.split(':').map(|folder| Path::new(folder).join(name));
    places.find(|place| place.is_file())
}

/// A loopback address that other tests do not use.
fn own_address(number: u8) -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 + number % 128, high, low.clamp(1, 254))
}

fn free_port(ip: Ipv4Addr) -> SocketAddr {
    let listener = TcpListener::bind((ip, 0)).expect("an address of this host");
    listener.local_addr().expect("it is bound")
}

impl Site {
    /// `None`: it is not installed.
    pub(crate) fn start(kind: &Kind, library: Option<&Path>) -> Option<Site> {
        Site::at(kind, library, None, "60")
    }

    /// At an address of this host, by default one that no other test has; lighttpd ends connections
    /// on which nothing moves for so many seconds.
    pub(crate) fn at(
        kind: &Kind,
        library: Option<&Path>,
        ip: Option<Ipv4Addr>,
        seconds: &str,
    ) -> Option<Site> {
        static NUMBER: AtomicU8 = AtomicU8::new(0);
        let program = find(kind.server)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let address = free_port(ip.unwrap_or(own_address(number)));
        let name = format!("web-server-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let (www, config) = (folder.join("www"), folder.join("config"));
        fs::create_dir_all(&www).expect("a folder");
        // Root's server may serve as another user.
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&folder, all).expect("it is ours");
        fs::write(www.join("index.html"), "<p>small</p>\n").expect("a file");
        let big: Vec<u8> = (0..BIG).map(|at| (at % 251) as u8).collect();
        fs::write(www.join("big"), big).expect("a file");
        let behind = (kind.server == "haproxy").then(|| Site::start(BEHIND, None));
        let behind = behind.flatten().map(Box::new);
        let text = match kind.server {
            "lighttpd" => lighttpd(&www, address, kind.mode[0], seconds),
            "nginx" => nginx(&folder, address, kind.mode[0]),
            _ => behind
                .as_ref()
                .map_or_else(String::new, |site| haproxy(address, site.address)),
        };
        fs::write(&config, text).expect("a file");
        let mut command = Command::new(program);
        match kind.server {
            "lighttpd" => command.arg("-D").arg("-f").arg(&config),
            "nginx" => command.arg("-c").arg(&config),
            "haproxy" => command.args(kind.mode).args(["-db", "-f"]).arg(&config),
            _ => command
                .arg(&www)
                .args(["--events", kind.mode[0], "--listen"])
                .arg(address.to_string()),
        };
        if let Some(library) = library {
            command.env("LD_PRELOAD", library);
        }
        command
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut site = Site {
            running: Running::start(&mut command),
            folder,
            address,
            _behind: behind,
        };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = site.running.ended();
            assert!(ended.is_none(), "{}: {ended:?}", kind.name);
            assert!(
                begin.elapsed() < PATIENCE,
                "{}: it does not listen",
                kind.name
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(site)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The one whose files are served.
    pub(crate) fn folder(&self) -> PathBuf {
        self._behind
            .as_ref()
            .map_or_else(|| self.folder.join("www"), |site| site.folder())
    }

    fn of_process(&self, name: &str) -> PathBuf {
        Path::new("/proc")
            .join(self.running.id().to_string())
            .join(name)
    }

    pub(crate) fn has_loaded(&self, library: &Path) -> bool {
        let maps = fs::read_to_string(self.of_process("maps")).expect("it runs");
        maps.contains(&library.display().to_string())
    }

    /// What its descriptors are of.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let files = fs::read_dir(self.of_process("fd")).expect("it runs");
        files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok())
    }

    /// How many sets of epoll it has.
    pub(crate) fn epoll_sets(&self) -> usize {
        let is_set = |file: &PathBuf| file.to_string_lossy().contains("eventpoll");
        self.files().filter(is_set).count()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.running.kill(PATIENCE);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn lighttpd(www: &Path, address: SocketAddr, mode: &str, seconds: &str) -> String {
    format!(
        "server.document-root = \"{}\"\nserver.bind = \"{}\"\nserver.port = {}\n\
         index-file.names = ( \"index.html\" )\nserver.event-handler = \"{mode}\"\n\
         mimetype.assign = ( \".html\" => \"text/html\", \".css\" => \"text/css\", \
         \".js\" => \"text/javascript\", \".svg\" => \"image/svg+xml\" )\n\
         server.max-keep-alive-requests = 1000000\nserver.max-keep-alive-idle = {seconds}\n\
         server.errorlog = \"{}\"\nserver.max-read-idle = {seconds}\n\
         server.max-write-idle = {seconds}\n",
        www.display(),
        address.ip(),
        address.port(),
        www.with_file_name("log").display(),
    )
}

/// One process, in the foreground, whose files are in the folder.
fn nginx(folder: &Path, address: SocketAddr, mode: &str) -> String {
    let folder = folder.display();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|name| format!("{name}_temp_path {folder}/{name}; "));
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/log;\n\
         events {{ use {mode}; worker_connections 1000; }}\n\
         http {{ access_log off; keepalive_requests 1000000; {}\n\
         types {{ text/html html; text/css css; text/javascript js; image/svg+xml svg; }}\n\
         server {{ listen {address}; root {folder}/www; }} }}\n",
        paths.concat(),
    )
}

fn haproxy(address: SocketAddr, behind: SocketAddr) -> String {
    format!(
        "global\n nbthread 1\n maxconn 400\ndefaults\n mode http\n timeout client 60s\n \
         timeout connect 5s\n timeout server 60s\nfrontend f\n bind {address}\n \
         default_backend b\nbackend b\n server s {behind}\n",
    )
}
