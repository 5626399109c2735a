//! Counters for Prometheus over minimal HTTP: `GET /metrics`, one request per connection. Off
//! unless the configuration names a unix socket or a loopback address.
//!
//! A thread serves one connection at a time, so that a slow or silent reader delays only other
//! readers, and for a short time. The figures are taken from the core's tables for each request
//! ([`figures`]).

pub mod figures;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::config::Endpoint;

/// The longest head of a request, bytes.
const HEAD_MAX: usize = 4096;

/// How long one connection may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause when no connection can be accepted.
const REST: Duration = Duration::from_millis(100);

/// The content type of the format.
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The listening socket.
#[derive(Debug)]
pub enum Listener {
    Unix(UnixListener),
    Loopback(TcpListener),
}

impl Listener {
    /// Opens the configured socket; `None`: none is configured.
    pub fn open(endpoint: &Endpoint) -> io::Result<Option<Listener>> {
        match endpoint {
            Endpoint::Off => Ok(None),
            Endpoint::Unix(path) => {
                remove_stale(path)?;
                UnixListener::bind(path).map(|listener| Some(Listener::Unix(listener)))
            }
            Endpoint::Loopback(address) => {
                TcpListener::bind(address).map(|listener| Some(Listener::Loopback(listener)))
            }
        }
    }

    /// Serves forever on a new thread. `text` returns the figures.
    pub fn serve(self, text: impl Fn() -> String + Send + 'static) -> io::Result<()> {
        let serve = move || {
            loop {
                if self.accept(&text).is_err() {
                    thread::sleep(REST);
                }
            }
        };
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(serve)?;
        Ok(())
    }

    /// Answers one reader. Only errors of accepting are returned.
    fn accept(&self, text: &impl Fn() -> String) -> io::Result<()> {
        match self {
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let _ = answer(&stream, text);
            }
            Listener::Loopback(listener) => {
                let (stream, _) = listener.accept()?;
                let _ = answer(&stream, text);
            }
        }
        Ok(())
    }
}

/// Removes a socket that a former daemon left; other files are not removed.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::from(io::ErrorKind::AddrInUse)),
            Err(_) => fs::remove_file(path),
        },
        Ok(_) => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The common operations of both kinds of stream.
trait Stream {
    fn within(&self, time: Duration) -> io::Result<()>;
}

impl Stream for &TcpStream {
    fn within(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Stream for &UnixStream {
    fn within(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

fn answer(mut stream: impl Stream + Read + Write, text: &impl Fn() -> String) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut buffer = [0; 512];
    let reply = loop {
        stream.within(left(until)?)?;
        let count = stream.read(&mut buffer)?;
        head.extend_from_slice(&buffer[..count]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            break reply(&head, text);
        }
        if head.len() > HEAD_MAX {
            break status("431 Request Header Fields Too Large");
        }
        if count == 0 {
            break status("400 Bad Request");
        }
    };
    let mut rest = reply.as_bytes();
    while !rest.is_empty() {
        stream.within(left(until)?)?;
        let count = stream.write(rest)?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::WriteZero));
        }
        rest = &rest[count..];
    }
    Ok(())
}

/// The time that is left; a reader that exceeds its time is dropped.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::from(io::ErrorKind::TimedOut));
    }
    Ok(left)
}

/// The answer to a complete head.
fn reply(head: &[u8], text: &impl Fn() -> String) -> String {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|version| version.starts_with(b"HTTP/1.")) || words.next().is_some() {
        return status("400 Bad Request");
    }
    if method != Some(b"GET") {
        return status("405 Method Not Allowed");
    }
    if path != Some(b"/metrics") {
        return status("404 Not Found");
    }
    let body = text();
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {CONTENT}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

fn status(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to a reader that sends these pieces.
    fn ask(pieces: &[&[u8]]) -> String {
        let (mut here, there) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || {
            let _ = answer(&there, &|| "a 1\n".to_owned());
        });
        for piece in pieces {
            let _ = here.write_all(piece);
        }
        let _ = here.shutdown(std::net::Shutdown::Write);
        let mut reply = String::new();
        let _ = here.read_to_string(&mut reply);
        server.join().unwrap();
        reply
    }

    #[test]
    fn the_counters_are_at_their_path_and_nothing_else_is() {
        let reply = ask(&[b"GET /metrics HT", b"TP/1.1\r\nHost: x\r\n\r\n"]);
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
        assert!(reply.contains("Content-Length: 4\r\n") && reply.ends_with("\r\n\r\na 1\n"));
        for (request, expected) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics/../x HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1\r\n", "400"),
            (b"", "400"),
        ] {
            assert!(ask(&[request]).starts_with(&format!("HTTP/1.1 {expected}")));
        }
    }

    #[test]
    fn an_endless_head_is_refused() {
        let reply = ask(&[&[b'a'; 8192]]);
        assert!(
            reply.is_empty() || reply.starts_with("HTTP/1.1 431"),
            "{reply}"
        );
    }

    #[test]
    fn a_silent_reader_is_given_up() {
        let (_here, there) = UnixStream::pair().unwrap();
        let start = Instant::now();
        assert!(answer(&there, &String::new).is_err());
        assert!(start.elapsed() < PATIENCE * 2);
    }

    #[test]
    fn a_stale_socket_is_removed_and_a_file_is_not() {
        let folder = std::env::temp_dir().join(format!("ecallsd-metrics-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("metrics");
        drop(UnixListener::bind(&path).unwrap());
        let endpoint = Endpoint::Unix(path.clone());
        let listener = Listener::open(&endpoint).unwrap();
        assert!(Listener::open(&endpoint).is_err(), "somebody serves there");
        drop(listener);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(Listener::open(&endpoint).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_dir_all(&folder).unwrap();
    }
}
