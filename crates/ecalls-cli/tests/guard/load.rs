//! Servers and clients for the guard's tests: a server of one thread, and clients that come
//! whatever becomes of those before them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport, socket_error};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};

/// How long a client waits for its reply, as in the papers.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);

/// What a client asks, and a server replies.
pub(crate) const PAGE: &[u8] = b"GET /page HTTP/1.0\r\n\r\n";
pub(crate) const REPLY: &[u8] = b"HTTP/1.0 200 OK\r\n\r\n";

/// Another one at the same port gets its share of the connections.
pub(crate) fn listener(address: SocketAddr, backlog: i32) -> TcpListener {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    set_socket_reuseaddr(&socket, true).expect("a socket takes it");
    set_socket_reuseport(&socket, true).expect("a socket takes it");
    bind(&socket, &address).expect("a free port");
    listen(&socket, backlog).expect("it listens");
    socket.into()
}

/// A server of one thread: one connection after another.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(ip: IpAddr, page: Duration, backlog: i32) -> Server {
        Server::at(listener(SocketAddr::new(ip, 0), backlog), page)
    }

    pub(crate) fn at(listener: TcpListener, page: Duration) -> Server {
        let address = listener.local_addr().expect("it is bound");
        let end = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let (client, _) = listener.accept().expect("a connection");
                serve(client, page);
            }
        });
        Server {
            address,
            end,
            thread: Some(thread),
        }
    }
}

/// Reads a request, takes its time, replies, and closes.
pub(crate) fn serve(mut client: TcpStream, page: Duration) {
    // What a client that has gone does not send or take, nobody misses.
    let _ = client.set_read_timeout(Some(TIMEOUT));
    let _ = client.read(&mut [0; 64]);
    std::thread::sleep(page);
    let _ = client.write_all(REPLY);
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // It may wait for a connection; or the guard refuses this one, and others are queued.
        let _ = TcpStream::connect_timeout(&self.address, TIMEOUT);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

/// What became of the clients.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Time from each connect to its reply, within [`TIMEOUT`], in ascending order.
    pub(crate) replies: Vec<Duration>,
    /// How many of them there were when the last client came.
    pub(crate) until_last: usize,
    pub(crate) refused: usize,
    pub(crate) late: usize,
}

impl Outcome {
    pub(crate) fn quantile(&self, of_100: usize) -> Duration {
        let last = self.replies.len().saturating_sub(1);
        let at = (self.replies.len() * of_100 / 100).min(last);
        self.replies.get(at).copied().unwrap_or_default()
    }
}

/// A client's connection.
struct Client {
    socket: OwnedFd,
    since: Instant,
    has_asked: bool,
}

/// Clients that come at the times `at` of the first `total` numbers, whatever becomes of those
/// before them (an open loop).
pub(crate) fn clients(server: SocketAddr, total: u32, at: impl Fn(u32) -> Duration) -> Outcome {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll set");
    let mut live: Vec<Option<Client>> = Vec::new();
    let (mut outcome, begin, mut oldest) = (Outcome::default(), Instant::now(), 0);
    let mut events = Vec::with_capacity(1024);
    while live.len() < total as usize || oldest < live.len() {
        while live.len() < total as usize && at(live.len() as u32) <= begin.elapsed() {
            let key = epoll::EventData::new_u64(live.len() as u64);
            live.push(begin_one(server, &poll, key));
            outcome.until_last = outcome.replies.len();
        }
        while let Some(first) = live.get(oldest) {
            match first {
                Some(client) if client.since.elapsed() < TIMEOUT => break,
                Some(_) => outcome.late += 1,
                None => {}
            }
            live[oldest] = None;
            oldest += 1;
        }
        events.clear();
        let wait = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 500_000,
        };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&poll, buffer, Some(&wait)).expect("events");
        for event in &events {
            let key = event.data.u64() as usize;
            if let Some(client) = live[key].take() {
                live[key] = step(client, &poll, event.data, &mut outcome);
            }
        }
    }
    outcome.replies.sort_unstable();
    outcome
}

pub(crate) fn steady(server: SocketAddr, per_s: u32, time: Duration) -> Outcome {
    let total = (f64::from(per_s) * time.as_secs_f64()) as u32;
    clients(server, total, |number| {
        Duration::from_secs(1) * number / per_s
    })
}

/// A number of clients at once, four times a second.
pub(crate) fn bursts(server: SocketAddr, size: u32, time: Duration) -> Outcome {
    let gap = Duration::from_millis(250);
    let total = size * (time.as_millis() / gap.as_millis()) as u32;
    clients(server, total, |number| gap * (number / size))
}

fn begin_one(server: SocketAddr, poll: &OwnedFd, key: epoll::EventData) -> Option<Client> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None).expect("a socket");
    let since = Instant::now();
    // In progress, or refused: the first event tells.
    let _ = connect(&socket, &server);
    epoll::add(poll, &socket, key, epoll::EventFlags::OUT).expect("a place in the set");
    Some(Client {
        socket,
        since,
        has_asked: false,
    })
}

/// Its next event; `None`: it is done.
fn step(
    mut client: Client,
    poll: &OwnedFd,
    key: epoll::EventData,
    outcome: &mut Outcome,
) -> Option<Client> {
    if !client.has_asked {
        let is_connected = socket_error(&client.socket).is_ok_and(|error| error.is_ok());
        if !is_connected || rustix::io::write(&client.socket, PAGE).is_err() {
            outcome.refused += 1;
            return None;
        }
        client.has_asked = true;
        epoll::modify(poll, &client.socket, key, epoll::EventFlags::IN).expect("it is in the set");
        return Some(client);
    }
    let mut reply = [0; 64];
    match rustix::io::read(&client.socket, &mut reply) {
        // Of either version.
        Ok(bytes) if bytes > 12 && reply[8..12] == REPLY[8..12] => {
            outcome.replies.push(client.since.elapsed());
        }
        _ => outcome.refused += 1,
    }
    None
}
