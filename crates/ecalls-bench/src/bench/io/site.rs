//! Servers that wait by poll or select if they are told to, each with what it is asked.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::timing::os;
use crate::exit::{Code, Failure};
use crate::stop::Stop;
use crate::web::Folder;
use crate::web::program::{Running, find};

const PATIENCE: Duration = Duration::from_secs(10);
const LIBRARY: &str = "libecalls_io.so";

/// How a server waits for sockets.
pub(super) struct Mode {
    pub(super) name: &'static str,
    /// Variables of its environment, as `NAME=VALUE`.
    environment: &'static [&'static str],
    /// Words of its command line or its configuration.
    words: &'static [&'static str],
    /// The most idle connections with which it works.
    pub(super) idle_max: usize,
}

pub(super) struct Site {
    pub(super) server: &'static str,
    pub(super) request: &'static str,
    pub(super) modes: &'static [Mode],
    /// Its arguments; they may need a file in the folder.
    arguments: fn(folder: &Path, port: u16, mode: &Mode) -> std::io::Result<Vec<String>>,
}

const HTTP: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

pub(super) const SITES: [Site; 3] = [
    Site {
        server: "lighttpd",
        request: HTTP,
        modes: &[
            Mode {
                name: "poll",
                environment: &[],
                words: &["poll"],
                idle_max: usize::MAX,
            },
            Mode {
                name: "epoll",
                environment: &[],
                words: &["linux-sysepoll"],
                idle_max: usize::MAX,
            },
        ],
        arguments: lighttpd,
    },
    Site {
        server: "haproxy",
        request: HTTP,
        modes: &[
            Mode {
                name: "poll",
                environment: &[],
                words: &["-de"],
                idle_max: usize::MAX,
            },
            Mode {
                name: "epoll",
                environment: &[],
                words: &["-dp"],
                idle_max: usize::MAX,
            },
        ],
        arguments: haproxy,
    },
    Site {
        server: "memcached",
        request: "get x\r\n",
        modes: &[
            Mode {
                name: "poll",
                environment: &["EVENT_NOEPOLL=1"],
                words: &[],
                idle_max: usize::MAX,
            },
            Mode {
                name: "select",
                environment: &["EVENT_NOEPOLL=1", "EVENT_NOPOLL=1"],
                words: &[],
                // It ends with more than 1024 descriptors.
                idle_max: 900,
            },
            Mode {
                name: "epoll",
                environment: &[],
                words: &[],
                idle_max: usize::MAX,
            },
        ],
        arguments: memcached,
    },
];

/// A server that runs; it ends before its folder is removed.
#[derive(Debug)]
pub(super) struct Server {
    running: Running,
    _folder: Folder,
    pub(super) name: &'static str,
    pub(super) port: u16,
}

impl Server {
    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
    }
}

impl Site {
    /// Starts it on a processor; `None`: it is not installed.
    pub(super) fn start(
        &self,
        mode: &Mode,
        with_library: bool,
        cpu: usize,
        stop: &Stop,
    ) -> Result<Option<Server>, Failure> {
        let Some(program) = find(self.server) else {
            return Ok(None);
        };
        let failed = |error| os(&format!("preparing {}", self.server), error);
        let folder = Folder::create().map_err(failed)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        drop(listener);
        let mut words: Vec<String> = mode.environment.iter().map(ToString::to_string).collect();
        if with_library {
            // The user nobody may not read where it was built.
            let copy = folder.www().join(LIBRARY);
            let library = ecalls_cli::preload::io(program.as_os_str())?;
            fs::copy(library, &copy).map_err(failed)?;
            words.push(format!("LD_PRELOAD={}", copy.display()));
        }
        words.push(program.display().to_string());
        words.extend((self.arguments)(&folder.www(), port, mode).map_err(failed)?);
        let env = find("env").unwrap_or_else(|| "/usr/bin/env".into());
        let mut running = Running::start(&env, &words, None)?;
        running.pin(cpu);
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = running.ended();
            if ended.is_some() || Instant::now() > end {
                let message = format!("{} ({}) does not answer", self.server, mode.name);
                return Err(Failure::new(Code::Failed, message));
            }
            if stop.sleep(Duration::from_millis(5)) {
                break;
            }
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", running.pid()));
        if maps.is_ok_and(|maps| maps.contains(LIBRARY) != with_library) {
            let message = format!("{} has not loaded {LIBRARY}", self.server);
            return Err(Failure::new(Code::Failed, message));
        }
        Ok(Some(Server {
            running,
            _folder: folder,
            name: self.server,
            port,
        }))
    }
}

fn lighttpd(folder: &Path, port: u16, mode: &Mode) -> std::io::Result<Vec<String>> {
    let config = folder.join("config");
    let text = format!(
        "server.document-root = \"{}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
         index-file.names = ( \"index.html\" )\nserver.event-handler = \"{}\"\n\
         server.max-connections = 8000\nserver.max-fds = 10000\n\
         server.max-keep-alive-requests = 100000000\nserver.max-keep-alive-idle = 600\n\
         server.max-read-idle = 600\n",
        folder.display(),
        mode.words.join(" "),
    );
    fs::write(&config, text)?;
    Ok(vec![
        "-D".to_owned(),
        "-f".to_owned(),
        config.display().to_string(),
    ])
}

/// It answers itself, so that there is no second server to measure.
fn haproxy(folder: &Path, port: u16, mode: &Mode) -> std::io::Result<Vec<String>> {
    let config = folder.join("config");
    let text = format!(
        "global\n nbthread 1\n maxconn 8000\ndefaults\n mode http\n timeout client 600s\n \
         timeout connect 5s\n timeout server 5s\n timeout http-request 600s\nfrontend f\n \
         bind 127.0.0.1:{port}\n http-request return status 200 content-type text/plain \
         string {}\n",
        "x".repeat(1024),
    );
    fs::write(&config, text)?;
    let mut words: Vec<String> = mode.words.iter().map(ToString::to_string).collect();
    words.extend([
        "-db".to_owned(),
        "-f".to_owned(),
        config.display().to_string(),
    ]);
    Ok(words)
}

fn memcached(_: &Path, port: u16, _: &Mode) -> std::io::Result<Vec<String>> {
    let text = format!("-l 127.0.0.1 -p {port} -U 0 -t 1 -c 8000 -u nobody");
    Ok(text.split(' ').map(str::to_owned).collect())
}
