//! A server on one processor, clients on another, and a guard between them: one measurement.
//!
//! The network is one of our own: its settings can be changed, and nobody else uses its ports.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use ecalls_kernel::guard::{Guard, Mode};

use super::super::network::ip;
use super::super::timing::os;
use super::Run;
use super::httperf::Httperf;
use super::load::{self, Answers, Clients};
use crate::exit::{Failure, Outcome};
use crate::output::note;
use crate::stop::Stop;
use crate::web::program::{Running, find};
use crate::web::{Folder, Server};

/// The hidden command by which this program starts itself as the server of examples/web.
pub(crate) const SERVER: &str = "web-part";

/// Of the first server; each has one of its own, since the kernel may still take down the last one.
/// They are below those that clients get (SETTINGS).
const PORT: u16 = 8080;
/// The delay that the guard is to keep: its default.
const TARGET_NS: u64 = 50_000_000;
/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);
/// Clients that are begun later than this are slower than what they measure.
const LATE_MS: f64 = 20.0;
/// A server that waits longer for its processor is slower than what is measured.
const KEPT_FROM: f64 = 0.1;
/// What the kernel's settings of our network are set to, so that they do not limit the clients.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv4/ip_local_port_range", "10000 65535"),
    ("ipv4/tcp_fin_timeout", "1"),
    ("ipv4/tcp_max_syn_backlog", "4096"),
    ("core/somaxconn", "4096"),
];
const ABORT: &str = "ipv4/tcp_abort_on_overflow";

/// What one run found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) answers: Answers,
    pub(super) cpu_us_per_request: Option<f64>,
    pub(super) calls_per_request: Option<f64>,
    /// The part of the time in which the server could have run and did not.
    pub(super) kept_from: f64,
}

#[derive(Debug)]
pub(super) struct Stage {
    pub(super) server_cpu: usize,
    pub(super) clients_cpu: usize,
    pub(super) stop: Stop,
    pub(super) counts_calls: bool,
    /// Runs until the clients were not late.
    pub(super) attempts: u32,
    /// How many servers there were.
    pub(super) servers: AtomicU16,
}

/// A server that runs, and where.
enum Site {
    /// It ends before its folder is removed.
    Ours {
        running: Running,
        _folder: Folder,
        port: u16,
    },
    Other(Server),
}

impl Site {
    fn pid(&self) -> u32 {
        match self {
            Site::Ours { running, .. } => running.pid(),
            Site::Other(server) => server.pid(),
        }
    }

    fn port(&self) -> u16 {
        match self {
            Site::Ours { port, .. } => *port,
            Site::Other(server) => server.port,
        }
    }
}

/// Our own network's settings.
pub(super) fn prepare() -> Outcome {
    ip("link set lo up")?;
    for (name, value) in SETTINGS {
        set(name, value)?;
    }
    Ok(())
}

fn set(name: &str, value: &str) -> Outcome {
    let path = format!("/proc/sys/net/{name}");
    fs::write(&path, value).map_err(|error| os(&format!("writing {value} to {path}"), error))
}

impl Stage {
    /// `None`: the server is not installed, or this kernel lacks what it waits by, or the user
    /// wants the end. If other work kept one side from its processor, the run is repeated.
    pub(super) fn measure(
        &self,
        run: &Run,
        per_s: f64,
        seconds: f64,
    ) -> Result<Option<Found>, Failure> {
        let mut best: Option<Found> = None;
        for _ in 0..self.attempts {
            let Some(found) = self.attempt(run, per_s, seconds)? else {
                return Ok(None);
            };
            if best.is_none_or(|best| found.kept_from < best.kept_from) {
                best = Some(found);
            }
            if found.kept_from <= KEPT_FROM && found.answers.late_ms <= LATE_MS {
                return Ok(Some(found));
            }
        }
        note(format_args!(
            "{} {} at {per_s:.0}/s: other work kept server or clients from their processors",
            run.server, run.mode
        ));
        Ok(best)
    }

    fn attempt(&self, run: &Run, per_s: f64, seconds: f64) -> Result<Option<Found>, Failure> {
        let Some(site) = self.start(run)? else {
            return Ok(None);
        };
        set(ABORT, if run.aborts { "1" } else { "0" })?;
        let _guard = match run.guard {
            None => None,
            Some(mode) => Some(Guard::start(site.port(), mode, TARGET_NS, None)?),
        };
        let before = times(&site.pid().to_string())?;
        let begin = Instant::now();
        let Some((answers, calls)) = self.ask(run, &site, per_s, seconds)? else {
            return Ok(None);
        };
        let after = times(&site.pid().to_string())?;
        let cpu_us = (after.ran_ns - before.ran_ns) / 1e3;
        let elapsed_ns = begin.elapsed().as_secs_f64() * 1e9;
        let per_request = |total: f64| (answers.served > 0).then(|| total / answers.served as f64);
        let all_per_s = answers.served as f64 / seconds;
        let calls = calls.filter(|_| answers.served > 0);
        Ok(Some(Found {
            answers,
            cpu_us_per_request: per_request(cpu_us),
            calls_per_request: calls.map(|calls| calls / all_per_s),
            kept_from: (after.waited_ns - before.waited_ns) / elapsed_ns,
        }))
    }

    /// What the clients found, and the server's system calls per second.
    fn ask(
        &self,
        run: &Run,
        site: &Site,
        per_s: f64,
        seconds: f64,
    ) -> Result<Option<(Answers, Option<f64>)>, Failure> {
        if run.clients == "httperf" {
            let clients = Httperf {
                port: site.port(),
                path: run.path,
                per_s,
                seconds,
            };
            let running = clients.start(self.clients_cpu)?;
            let found = clients.found(running, &self.stop)?;
            return Ok(found.map(|answers| (answers, None)));
        }
        let running = self.clients(&Clients {
            port: site.port(),
            per_s,
            seconds,
            path: run.path.to_owned(),
            idle: run.idle,
        })?;
        let calls = self.counts_calls.then(|| calls_per_s(site.pid(), seconds));
        let Some(text) = running.output(&self.stop)? else {
            return Ok(None);
        };
        let answers: Answers = serde_json::from_str(&text)
            .map_err(|error| os("reading the clients' output", error))?;
        Ok(Some((answers, calls.flatten())))
    }

    fn clients(&self, what: &Clients) -> Result<Running, Failure> {
        let mut arguments = vec![load::SUBCOMMAND.to_owned()];
        arguments.extend([
            what.port.to_string(),
            what.per_s.to_string(),
            what.seconds.to_string(),
            what.path.clone(),
            what.idle.to_string(),
        ]);
        let running = Running::this(&arguments)?;
        running.pin(self.clients_cpu);
        Ok(running)
    }

    fn start(&self, run: &Run) -> Result<Option<Site>, Failure> {
        let Some(mode) = run.events else {
            if find(run.server).is_none() {
                note(format_args!(
                    "not measured: {} is not installed",
                    run.server
                ));
                return Ok(None);
            }
            let server = Server::named(run.server, &self.stop)?;
            server.pin(self.server_cpu);
            return Ok(Some(Site::Other(server)));
        };
        let folder = Folder::create().map_err(|error| os("making a folder", error))?;
        let mut arguments = vec![SERVER.to_owned(), folder.www().display().to_string()];
        let port = PORT + self.servers.fetch_add(1, Ordering::Relaxed);
        let listen = format!("0.0.0.0:{port}");
        let backlog = run.backlog.to_string();
        let words = ["--events", mode, "--listen", &listen, "--backlog", &backlog];
        arguments.extend(words.map(str::to_owned));
        // Idle connections are to stay.
        let most = run.connections.to_string();
        let words = ["--timeout", "600", "--idle", "600", "--connections", &most];
        arguments.extend(words.map(str::to_owned));
        if run.defers {
            arguments.push("--defer".to_owned());
        }
        let mut running = Running::this(&arguments)?;
        running.pin(self.server_cpu);
        let address = (std::net::Ipv4Addr::LOCALHOST, port);
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = running.ended() {
                note(format_args!(
                    "not measured: --events {mode} cannot start: {status}"
                ));
                return Ok(None);
            }
            if self.stop.sleep(Duration::from_millis(20)) {
                return Ok(None);
            }
            if Instant::now() > end {
                return Err(os("waiting for the server", "it does not listen"));
            }
        }
        Ok(Some(Site::Ours {
            running,
            _folder: folder,
            port,
        }))
    }
}

/// The times of a thread: on a processor, and waiting for one.
pub(super) struct Times {
    ran_ns: f64,
    pub(super) waited_ns: f64,
}

/// Of a process's first thread, or of the one that `PID/task/TID` names.
pub(super) fn times(thread: &str) -> Result<Times, Failure> {
    let path = format!("/proc/{thread}/schedstat");
    let text = fs::read_to_string(&path).map_err(|error| os(&format!("reading {path}"), error))?;
    let mut words = text.split(' ').map_while(|word| word.parse().ok());
    match (words.next(), words.next()) {
        (Some(ran_ns), Some(waited_ns)) => Ok(Times { ran_ns, waited_ns }),
        _ => Err(os("reading a process's times", text)),
    }
}

/// System calls per second, in the middle of a run; `None`: perf is not installed or may not count.
fn calls_per_s(pid: u32, seconds: f64) -> Option<f64> {
    let time = Duration::from_secs_f64((seconds - load::WARM_UP.as_secs_f64()).max(0.4) / 2.0);
    std::thread::sleep(load::WARM_UP.mul_f64(0.8));
    let output = Command::new("perf")
        .args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p"])
        .arg(pid.to_string())
        .args(["--", "sleep", &time.as_secs_f64().to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("raw_syscalls"))?;
    let count: f64 = line.split(',').next()?.parse().ok()?;
    Some(count / time.as_secs_f64())
}

/// The guard's name in objects.
pub(super) fn name(guard: Option<Mode>) -> &'static str {
    match guard {
        None => "none",
        Some(Mode::Drop) => "drop",
        Some(Mode::Refuse) => "refuse",
        Some(Mode::Sorry) => "sorry",
    }
}
