//! Shows: a web server with a thread for each connection, in blocking calls: read, open, read,
//! write. Where a connection is idle its thread waits for the descriptor, which needs no kernel
//! thread. The threads are user-level ones, and `system` executes the same code on kernel threads.
//! Needs: nothing; as root, or beside the daemon, the kernel side sees the threads block by itself.
//! Run:   cargo run --release -p ecalls-threads --example connections -- PORT [FOLDER [system]]
//! Expect: the port and the kind of threads. `curl localhost:PORT/NAME` gets FOLDER's file NAME;
//! connections stay open, and idle ones cost a thread each, and no processor.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ecalls_threads::{Interest, Runtime, blocking, spawn, wait_ready};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 100_000;
/// The longest line of a request.
const LINE_MAX: u64 = 8192;

/// The same functions on user-level threads and on kernel threads: there `blocking` only calls.
#[derive(Clone, Copy)]
struct Threads {
    system: bool,
}

impl Threads {
    fn start(self, body: impl FnOnce() + Send + 'static) {
        if self.system {
            std::thread::spawn(body);
        } else {
            spawn(body);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let port: u16 = words.first().ok_or("which port?")?.parse()?;
    let folder = PathBuf::from(words.get(1).map_or(".", String::as_str));
    let threads = Threads {
        system: words.get(2).is_some_and(|word| word == "system"),
    };
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let kind = if threads.system {
        "kernel"
    } else {
        "user-level"
    };
    println!("port {}: {kind} threads", listener.local_addr()?.port());
    let serve = move || accept(threads, &listener, &Arc::new(folder));
    if threads.system {
        return Ok(serve()?);
    }
    let runtime = Runtime::builder().threads_max(CONNECTIONS_MAX);
    Ok(runtime.run(serve)??)
}

fn accept(threads: Threads, listener: &TcpListener, folder: &Arc<PathBuf>) -> io::Result<()> {
    loop {
        wait_ready(listener, Interest::Read)?;
        let (stream, _) = listener.accept()?;
        let folder = Arc::clone(folder);
        threads.start(move || {
            // A client that closes its connection ends its thread.
            let _ = serve(&stream, &folder);
        });
    }
}

/// Answers the requests of one connection, one after the other.
fn serve(stream: &TcpStream, folder: &Path) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    loop {
        if lines.buffer().is_empty() {
            // An idle connection waits here, and costs a stack of a page or two.
            wait_ready(stream, Interest::Read)?;
        }
        let Some(target) = request(&mut lines)? else {
            return Ok(());
        };
        let (status, body) = match blocking(|| std::fs::read(folder.join(&target))) {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", b"no such file\n".to_vec()),
        };
        let length = body.len();
        let mut answer =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        answer.extend(body);
        let mut stream = stream;
        blocking(|| stream.write_all(&answer))?;
    }
}

/// The path of the next request, below the folder; `None`: the client has no more.
fn request(lines: &mut BufReader<&TcpStream>) -> io::Result<Option<PathBuf>> {
    let mut target = None;
    loop {
        let mut line = String::new();
        let mut limited = io::Read::take(&mut *lines, LINE_MAX);
        if blocking(|| limited.read_line(&mut line))? == 0 {
            return Ok(None);
        }
        if line.trim_end().is_empty() {
            return Ok(target);
        }
        if target.is_none() {
            let path = line.split(' ').nth(1).unwrap_or("/");
            let parts = Path::new(path).components();
            let below = parts.filter(|part| matches!(part, Component::Normal(_)));
            target = Some(below.collect());
        }
    }
}
