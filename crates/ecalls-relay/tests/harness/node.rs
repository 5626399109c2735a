//! A relay without a core, programs that are connected to it, and hosts that are no relays.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ecalls_abi::relay::{
    RELAY_COUNT, RELAY_COUNTED, RELAY_FAST, RELAY_MAX, RELAY_REASONS, RELAY_REFUSED, RELAY_SETTLED,
    RelayChannel, RelayCounts, RelayMessage,
};
use ecalls_abi::text;
use ecalls_abi::wire::{WIRE_MAGIC, WIRE_VERSION, Wire, text_id};
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use zenoh::{Config, Session, Wait};

use super::{PATIENCE, Process, QUIET, folder, relay, start};

/// The longest lease that a relay takes, for hosts of tests that a busy machine may stop for long.
pub const LEASE_MS: u64 = 60_000;

/// A relay and where it is.
pub struct Node {
    pub process: Process,
    pub folder: PathBuf,
    pub port: u16,
}

impl Node {
    /// Starts one that connects to these ports.
    pub fn start(name: &str, others: &[u16]) -> Node {
        Node::start_with(name, others, "")
    }

    /// The same, with further lines in its configuration.
    pub fn start_with(name: &str, others: &[u16], more: &str) -> Node {
        Node::start_as(name, true, others, more)
    }

    /// One that connects to this port, and to which nobody can connect.
    pub fn client(name: &str, hub: u16) -> Node {
        Node::start_as(name, false, &[hub], "")
    }

    fn start_as(name: &str, listens: bool, others: &[u16], more: &str) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it has one").port();
        drop(listener);
        let folder = folder(name);
        let connect: Vec<String> = others
            .iter()
            .map(|port| format!("\"127.0.0.1:{port}\""))
            .collect();
        let listen = match listens {
            true => format!("\"127.0.0.1:{port}\""),
            false => String::new(),
        };
        let configuration = format!(
            "[socket]\npath = \"{}\"\n[lane]\ninterface = \"eth7\"\n[network]\nscouting = false\n\
             listen = [{listen}]\nconnect = [{}]\nreview_ms = 500\n{more}",
            folder.join("socket").display(),
            connect.join(", ")
        );
        let file = folder.join("relay.toml");
        std::fs::write(&file, configuration).expect("it is written");
        Node {
            process: start(relay(), &file),
            folder,
            port,
        }
    }

    pub fn program(&self) -> Program {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        let address = SocketAddrUnix::new(self.folder.join("socket")).expect("a short path");
        connect(&socket, &address).expect("it listens");
        Program(socket)
    }
}

impl Node {
    /// What its relay has counted of other hosts.
    pub fn counts(&self) -> [u64; RELAY_REASONS] {
        let program = self.program();
        assert!(program.send(RelayMessage::new(RELAY_COUNT, 0).as_bytes()));
        let (message, rest) = program.packet(PATIENCE).expect("it is told");
        assert_eq!(message.kind, RELAY_COUNTED);
        RelayCounts::read_from_bytes(&rest).expect("counts").count
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program that is connected to a relay.
pub struct Program(pub OwnedFd);

impl Program {
    pub fn send(&self, packet: &[u8]) -> bool {
        send(&self.0, packet, SendFlags::NOSIGNAL).is_ok()
    }

    pub fn say(&self, kind: u32, host: u64, channel: &RelayChannel) {
        let message = RelayMessage {
            host,
            address: [10, 0, 0, host as u8],
            ..RelayMessage::new(kind, size_of::<RelayChannel>())
        };
        let mut packet = message.as_bytes().to_vec();
        packet.extend_from_slice(channel.as_bytes());
        assert!(self.send(&packet));
    }

    /// What it is told next; `None`: it has been disconnected.
    pub fn told(&self, limit: Duration) -> Option<(RelayMessage, Option<RelayChannel>)> {
        let (message, rest) = self.packet(limit)?;
        Some((message, RelayChannel::read_from_bytes(&rest).ok()))
    }

    pub fn packet(&self, limit: Duration) -> Option<(RelayMessage, Vec<u8>)> {
        set_socket_timeout(&self.0, Timeout::Recv, Some(limit)).expect("a time");
        let mut packet = [0u8; RELAY_MAX];
        let received = recv(&self.0, &mut packet[..], RecvFlags::empty());
        let length = received.ok().map(|(length, _)| length)?;
        let (message, rest) = RelayMessage::parse(&packet[..length])?;
        Some((message, rest.to_vec()))
    }

    /// Waits for a message of this kind.
    pub fn hears(&self, kind: u32) -> (RelayMessage, Option<RelayChannel>) {
        loop {
            let told = self.told(PATIENCE).expect("it is told");
            if told.0.kind == kind {
                return told;
            }
            assert_eq!(told.0.kind, RELAY_SETTLED, "{:?} instead of {kind}", told.0);
        }
    }

    pub fn is_refused(&self, reason: u32) {
        assert_eq!(self.hears(RELAY_REFUSED).0.reason, reason);
    }

    /// Whether it is told nothing about hosts.
    pub fn hears_nothing(&self) -> bool {
        let until = Instant::now() + QUIET;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            match self.told(left) {
                Some((message, _)) if message.kind != RELAY_SETTLED => return false,
                _ => {}
            }
        }
    }

    pub fn is_disconnected(&self) -> bool {
        set_socket_timeout(&self.0, Timeout::Recv, Some(PATIENCE)).expect("a time");
        let received = recv(&self.0, &mut [0u8; RELAY_MAX][..], RecvFlags::empty());
        matches!(received, Ok((0, _)) | Err(rustix::io::Errno::CONNRESET))
    }
}

pub fn channel(name: &str, format: &str) -> RelayChannel {
    let mut channel = RelayChannel::named("lab", name).expect("a name");
    text::write(&mut channel.format, format).expect("it fits");
    text::write(&mut channel.kinds, "event").expect("it fits");
    channel.policy = RELAY_FAST;
    channel
}

/// A host that speaks Zenoh and is no relay.
pub fn stranger(port: u16) -> Session {
    zenoh::open(client("tcp", port))
        .wait()
        .expect("it connects")
}

pub fn client(protocol: &str, port: u16) -> Config {
    let mut config = Config::default();
    for (key, value) in [
        ("mode", "\"client\"".to_owned()),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("transport/link/tx/lease", LEASE_MS.to_string()),
        (
            "connect/endpoints",
            format!("[\"{protocol}/127.0.0.1:{port}\"]"),
        ),
    ] {
        config.insert_json5(key, &value).expect("a setting");
    }
    config
}

/// A frame's header that the other language must read.
pub fn header(channel: &str, format: &str) -> Wire {
    Wire {
        magic: WIRE_MAGIC,
        version: WIRE_VERSION,
        size: 4,
        channel: text_id(channel),
        host: 1,
        epoch: 77,
        sequence: 3,
        format: text_id(format),
        left_ns: 1_000_000,
        kind: 2,
        ..Wire::default()
    }
}
