//! A web server with a thread for each connection, in blocking calls, beside the same on kernel
//! threads, in Tokio and in Go. For each request a file is opened and read.
//!
//! A server is a process of its own on this program's CPU (`bench threads --part http-...`), and
//! ends with its standard input. The clients are wrk, on another CPU; all connections are busy.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ecalls_cli::preload;
use ecalls_threads::{Builder, Interest, KernelSide, Runtime, blocking, spawn, wait_ready};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ECALLS, ECALLS_TOLD, Effort, GO, POSIX, PTHREADS, TOKIO, Values, failed};
use crate::bench::timing::two_cpus;
use crate::exit::{Failure, Outcome};
use crate::output::note;
use crate::stop::Stop;
use crate::web::Folder;
use crate::web::load::requests_per_s;
use crate::web::program::{Running, find};

/// A part `http-SYSTEM=FILE` is a server.
const PART: &str = "http-";
const FILE_BYTES: usize = 4096;
/// The longest request.
const REQUEST_MAX: usize = 4096;
/// Rows, connections, and seconds of load.
const ROWS: [(&str, u32, u32); 2] = [("http_64", 64, 2), (BYTES_OF, 10_000, 4)];
const BYTES_OF: &str = "http_10000";
const BYTES_ROW: &str = "http_10000_bytes";
/// What the kernel allocates for each kernel thread to execute on, on x86-64 and arm64.
const KERNEL_STACK_BYTES: u64 = 16 << 10;

/// What the clients need.
pub(super) struct Clients {
    wrk: PathBuf,
    cpu: usize,
    stop: Stop,
}

impl Clients {
    /// Before this process is bound to one CPU. `None`: there is no wrk, or no CPU for it.
    pub(super) fn find() -> Result<Option<Self>, Failure> {
        let Some((wrk, (cpu, _))) = find("wrk").zip(two_cpus().ok()) else {
            note("without the rows http_*: they need the program wrk, and two CPUs");
            return Ok(None);
        };
        let stop = Stop::on_signals()?;
        Ok(Some(Self { wrk, cpu, stop }))
    }

    /// Requests per second, and the server's memory for each connection that it has accepted by
    /// then. `None`: the user requested the end.
    fn load(
        &self,
        server: &Server,
        connections: u32,
        seconds: u32,
    ) -> Result<Option<(f64, f64)>, Failure> {
        let before = server.descriptors();
        let arguments = [
            "-t1".to_owned(),
            format!("-c{connections}"),
            format!("-d{seconds}s"),
            "--timeout=10s".to_owned(),
            format!("http://127.0.0.1:{}/", server.port),
        ];
        let wrk = Running::start(&self.wrk, &arguments, None)?;
        wrk.pin(self.cpu);
        thread::sleep(Duration::from_secs(seconds.into()) * 3 / 4);
        let bytes = server.bytes()? as f64;
        let accepted = server.descriptors().saturating_sub(before).max(1);
        let Some(text) = wrk.output(&self.stop)? else {
            return Ok(None);
        };
        let refused = ["Non-2xx", "Socket errors"];
        match requests_per_s(&text) {
            Some(rate) if !refused.iter().any(|what| text.contains(what)) => {
                Ok(Some((rate, bytes / accepted as f64)))
            }
            _ => Err(failed(format_args!("wrk said: {}", text.trim()))),
        }
    }
}

/// Which rows are wanted.
pub(super) fn is_wanted(wanted: impl Fn(&str) -> bool) -> bool {
    ROWS.iter().any(|(row, ..)| wanted(row)) || wanted(BYTES_ROW)
}

/// Measures all systems; `go` is the program that [`super::peers`] has built.
pub(super) fn measure(
    values: &mut Values,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
    clients: &Clients,
    go: Option<&Path>,
) -> Outcome {
    let rows = ROWS
        .into_iter()
        .filter(|(row, ..)| wanted(row) || *row == BYTES_OF && wanted(BYTES_ROW))
        .filter(|(_, connections, _)| effort.divisor == 1 || *connections < 1000);
    allow_descriptors();
    let folder = Folder::create().map_err(failed)?;
    let path = folder.www().join("page");
    std::fs::write(&path, [b'x'; FILE_BYTES]).map_err(failed)?;
    for (row, connections, seconds) in rows {
        for system in [ECALLS, ECALLS_TOLD, POSIX, PTHREADS, TOKIO, GO] {
            if system == GO && go.is_none() {
                continue;
            }
            let seconds = if effort.divisor == 1 { seconds } else { 1 };
            let mut server = Server::start(system, &path, go)?;
            let Some((rate, bytes)) = clients.load(&server, connections, seconds)? else {
                return Err(failed("it was interrupted"));
            };
            values.add(row, system, rate);
            if row == BYTES_OF {
                values.add(BYTES_ROW, system, bytes);
            }
            server.check()?;
        }
    }
    Ok(())
}

/// Children inherit it.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If it is refused, the server says so when its descriptors end.
    let _ = setrlimit(Resource::Nofile, all);
}

fn number_after(text: &str, label: &str) -> Option<u64> {
    let (_, rest) = text.split_once(label)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A server that runs, and ends with its standard input.
struct Server {
    child: Child,
    port: u16,
    system: &'static str,
}

impl Server {
    fn start(system: &'static str, file: &Path, go: Option<&Path>) -> Result<Self, Failure> {
        let mut command = match go {
            Some(program) if system == GO => {
                let mut command = Command::new(program);
                command.arg("http").arg(file);
                command
            }
            _ => {
                let this = std::env::current_exe().map_err(failed)?;
                let mut command = Command::new(&this);
                let part = if system == POSIX { PTHREADS } else { system };
                command.args(["bench", "threads", "--part"]);
                command.arg(format!("{PART}{part}={}", file.display()));
                if system == POSIX {
                    command.env("ECALLS_THREADS_PROCESSORS", "1");
                    preload::set(&mut command, &preload::threads(this.as_os_str())?);
                }
                command
            }
        };
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut server = Self {
            child,
            port: 0,
            system,
        };
        let mut line = String::new();
        if let Some(out) = &mut server.child.stdout {
            BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        server.port = line
            .trim()
            .parse()
            .map_err(|_| failed(format_args!("the server of {system} said no port")))?;
        Ok(server)
    }

    /// Its resident memory, page tables, and what its kernel threads execute on in the kernel.
    fn bytes(&self) -> Result<u64, Failure> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let number = |label| number_after(&text, label);
        let kib = number("VmRSS:").zip(number("VmPTE:"));
        kib.zip(number("Threads:"))
            .map(|((rss, tables), threads)| ((rss + tables) << 10) + threads * KERNEL_STACK_BYTES)
            .ok_or_else(|| failed("the kernel does not tell a process's memory"))
    }

    fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(path).map_or(0, Iterator::count)
    }

    fn check(&mut self) -> Outcome {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            ended => {
                let system = self.system;
                Err(failed(format_args!(
                    "{system}: the server ended: {ended:?}"
                )))
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is the server of that part; `None`: the part is none.
pub(super) fn serve(part: &str) -> Option<Outcome> {
    let (system, file) = part.strip_prefix(PART)?.split_once('=')?;
    let file = Arc::new(PathBuf::from(file));
    Some(serve_as(system, file).map_err(failed))
}

fn serve_as(system: &str, file: Arc<PathBuf>) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let told = if system == ECALLS_TOLD {
        KernelSide::IfPossible
    } else {
        KernelSide::Never
    };
    match system {
        TOKIO => in_tokio(listener, &file),
        PTHREADS => loop {
            let (stream, _) = listener.accept()?;
            let file = Arc::clone(&file);
            thread::spawn(move || answer(&stream, &file, |_| Ok(())));
        },
        _ => builder(told)
            .run(move || -> io::Result<()> {
                loop {
                    wait_ready(&listener, Interest::Read)?;
                    let (stream, _) = listener.accept()?;
                    let file = Arc::clone(&file);
                    spawn(move || {
                        answer(&stream, &file, |stream| wait_ready(stream, Interest::Read))
                    });
                }
            })
            .map_err(io::Error::other)?,
    }
}

fn builder(kernel: KernelSide) -> Builder {
    let builder = Runtime::builder().processors(1).threads_max(100_000);
    builder.kernel(kernel)
}

/// The requests of one connection; `ready` waits for the next bytes, if the thread should not wait
/// in the call.
fn answer(
    mut stream: &TcpStream,
    file: &Path,
    ready: impl Fn(&TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    let mut request = [0; REQUEST_MAX];
    let mut length = 0;
    loop {
        ready(stream)?;
        let rest = request.get_mut(length..).unwrap_or_default();
        let read = blocking(|| stream.read(rest))?;
        if read == 0 {
            return Ok(());
        }
        length += read;
        if request[..length].ends_with(b"\r\n\r\n") {
            length = 0;
            let page = blocking(|| std::fs::read(file))?;
            let answer = head_and(&page);
            blocking(|| stream.write_all(&answer))?;
        }
    }
}

fn head_and(page: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
    answer.reserve(page.len());
    let mut answer = answer.into_bytes();
    answer.extend(page);
    answer
}

/// As Tokio's manual says: files by its own functions, which have threads for them.
fn in_tokio(listener: TcpListener, file: &Arc<PathBuf>) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_io().build()?;
    listener.set_nonblocking(true)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            let file = Arc::clone(file);
            tokio::spawn(async move {
                let mut request = [0; REQUEST_MAX];
                let mut length = 0;
                loop {
                    let rest = request.get_mut(length..).unwrap_or_default();
                    let read = stream.read(rest).await?;
                    if read == 0 {
                        return io::Result::Ok(());
                    }
                    length += read;
                    if request[..length].ends_with(b"\r\n\r\n") {
                        length = 0;
                        let page = tokio::fs::read(&*file).await?;
                        stream.write_all(&head_and(&page)).await?;
                    }
                }
            });
        }
    })
}
