//! The door as a process, in its sandbox, with the test as broker and as clients. Needs neither
//! root nor the core: a call outside the door's list ends it, and with it the test.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test fails, also in its helpers"
)]

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ecalls_abi::ABI_VERSION;
use ecalls_abi::message::{Hello, Number, Request};
use ecallsd::relay::{Kind, Packet, Relay};
use limit::Running;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A door, and where clients reach it.
struct Door {
    process: Running,
    relay: Relay,
    path: PathBuf,
}

fn socket() -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
}

/// Reads of this socket have a time limit.
fn limit_waits(socket: &impl AsFd) {
    for side in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(socket, side, Some(PATIENCE)).unwrap();
    }
}

fn door(name: &str) -> Door {
    let path = std::env::temp_dir().join(format!("ecallsd-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = socket();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 128).unwrap();
    let (relay, theirs) = Relay::pair().unwrap();
    limit_waits(&relay);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecallsd"));
    command
        .arg("--door")
        .stdin(Stdio::from(theirs.into_descriptor()))
        .stdout(Stdio::from(listener));
    Door {
        process: Running::start(&mut command),
        relay,
        path,
    }
}

impl Door {
    fn client(&self) -> io::Result<OwnedFd> {
        let client = socket();
        limit_waits(&client);
        rustix::net::connect(&client, &SocketAddrUnix::new(&self.path)?)?;
        Ok(client)
    }

    /// The next packet of this kind; the door goes on with its connection.
    fn hear(&self, kind: Kind) -> Packet {
        loop {
            let packet = self.relay.receive(true).unwrap().unwrap();
            if packet.kind != Kind::Slow {
                self.relay
                    .send(Kind::Done, packet.connection, 0, &[], &[])
                    .unwrap();
            }
            if packet.kind == kind {
                return packet;
            }
        }
    }

    /// Ends with its broker, and by itself.
    fn end(mut self) {
        drop(self.relay);
        let status = self.process.wait(PATIENCE);
        let _ = std::fs::remove_file(&self.path);
        assert!(status.success(), "{status}");
    }
}

fn say(client: &OwnedFd, bytes: &[u8]) {
    let parts = [IoSlice::new(bytes)];
    let mut control = SendAncillaryBuffer::new(&mut []);
    // A client that was disconnected meanwhile is what some tests want.
    let _ = rustix::net::sendmsg(client, &parts, &mut control, SendFlags::NOSIGNAL);
}

fn hello() -> Vec<u8> {
    let body = Hello {
        abi_version: ABI_VERSION,
        pad: 0,
    };
    Request::Hello(body).packet(1).as_bytes().to_vec()
}

#[test]
fn messages_pass_in_order_and_the_end_is_told() {
    let door = door("order");
    let client = door.client().unwrap();
    say(&client, &hello());
    let open = door.hear(Kind::Open);
    assert_eq!((open.fds.len(), &open.body[..]), (1, &hello()[..]));
    for number in 0..10 {
        let request = Request::LookQueue(Number { number, pad: 0 }).packet(number);
        say(&client, request.as_bytes());
        let packet = door.hear(Kind::Request);
        assert_eq!(packet.connection, open.connection);
        assert_eq!(packet.body, request.as_bytes());
    }
    drop(client);
    assert_eq!(door.hear(Kind::Gone).connection, open.connection);
    door.end();
}

#[test]
fn many_at_once_are_all_heard_and_the_door_stays_within_its_list() {
    const CLIENTS: usize = 200;
    const REQUESTS: usize = 5;
    let door = door("many");
    thread::scope(|scope| {
        for at in 0..CLIENTS {
            let door = &door;
            scope.spawn(move || {
                let client = door.client().unwrap();
                say(&client, &hello());
                for number in 0..REQUESTS {
                    let number = u32::try_from(number).unwrap();
                    let request = Request::LookQueue(Number { number, pad: 0 });
                    say(&client, request.packet(number).as_bytes());
                }
                if at % 3 == 0 {
                    say(&client, &[0xff; 64]);
                }
                // Read to the end, so that nothing is thrown away: the door ends it or the test.
                let mut bytes = [0u8; 2048];
                if at % 3 == 0 {
                    let _ = rustix::net::recv(&client, &mut bytes, rustix::net::RecvFlags::empty());
                }
            });
        }
        let (mut opened, mut requests, mut gone) = (0, 0, 0);
        while gone < CLIENTS {
            let packet = door.relay.receive(true).unwrap().unwrap();
            match packet.kind {
                Kind::Open => opened += 1,
                Kind::Request => requests += 1,
                Kind::Gone => gone += 1,
                _ => continue,
            }
            door.relay
                .send(Kind::Done, packet.connection, 0, &[], &[])
                .unwrap();
        }
        assert_eq!((opened, requests), (CLIENTS, CLIENTS * REQUESTS));
    });
    door.end();
}

#[test]
fn connections_that_come_and_go_without_a_word_are_no_business_of_the_broker() {
    let door = door("silent");
    for _ in 0..500 {
        drop(door.client());
    }
    let client = door.client().unwrap();
    say(&client, &hello());
    assert_eq!(door.hear(Kind::Open).body, hello());
    door.end();
}
