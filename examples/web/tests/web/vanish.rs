//! Clients that vanish, as their cable is cut: no packet tells the server (half-open connections).
//! It gives them up by its own times, or as soon as the kernel does, in each mode; and so does
//! lighttpd by select and poll, as it is and with `libecalls_io.so`. Needs root, for two hosts.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use limit::net::Net;

use crate::clients::{GET, read_page, until};
use crate::server::{MODES, Server, connect, rest};
use crate::site::{KINDS, Site};

/// Servers that end each connection after some seconds, in which all are there, and servers that
/// never do by themselves.
const SHORT: &str = "6";
const LONG: &str = "600";
const IP: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const REQUEST_BIG: &[u8] = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n";

enum Program {
    Ours(Server),
    Other(Site),
}

/// A server, and how many descriptors it had before.
struct Scene {
    what: String,
    program: Program,
    before: usize,
    waits_long: bool,
}

impl Scene {
    fn new(what: &str, seconds: &str, program: Program) -> Scene {
        let mut scene = Scene {
            what: format!("{what}, {seconds} s"),
            program,
            before: 0,
            waits_long: seconds == LONG,
        };
        // A connection of who has looked whether it listens.
        assert!(scene.is_served(), "{}", scene.what);
        let mut last = scene.open_files();
        let rests = || last == std::mem::replace(&mut last, scene.open_files());
        assert!(until(rests), "{}", scene.what);
        scene.before = scene.open_files();
        scene
    }

    fn address(&self) -> SocketAddr {
        match &self.program {
            Program::Ours(server) => server.addresses[0],
            Program::Other(site) => site.address,
        }
    }

    fn open_files(&self) -> usize {
        match &self.program {
            Program::Ours(server) => server.open_files(),
            Program::Other(site) => site.files().count(),
        }
    }

    fn is_served(&self) -> bool {
        let mut client = connect(self.address());
        client
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("it reads");
        rest(&mut client).ends_with("<p>small</p>\n")
    }

    /// Clients in all states: silent ones; amid their request; between requests; and who does not
    /// read an answer. Of the last, the kernel learns by what it sends again; of the others only
    /// who waits no longer.
    fn clients(&self) -> Vec<TcpStream> {
        let states = (0..24).map(|number| if self.waits_long { 3 } else { number % 4 });
        let clients = states.map(|state| {
            let mut stream = connect(self.address());
            let request = [b"", &b"GET / HT"[..], GET.as_bytes(), REQUEST_BIG][state];
            stream.write_all(request).expect("it reads");
            if state == 2 {
                read_page(&mut stream);
            }
            stream
        });
        clients.collect()
    }
}

/// In each mode, and lighttpd, bare and with the library; with either time.
fn scenes() -> Vec<Scene> {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/ecalls-io");
    let library = limit::library::build(package, "libecalls_io.so");
    let mut scenes = Vec::new();
    for seconds in [SHORT, LONG] {
        for mode in MODES {
            let words = [
                "--timeout",
                seconds,
                "--idle",
                seconds,
                "--listen",
                "10.9.0.1:0",
            ];
            let server = Server::start(mode, &words).map(Program::Ours);
            scenes.extend(server.map(|server| Scene::new(mode, seconds, server)));
        }
        for kind in KINDS
            .iter()
            .filter(|kind| kind.server == "lighttpd" && kind.polls)
        {
            for library in [None, Some(&*library)] {
                let what = format!("{}, {library:?}", kind.name);
                let site = Site::at(kind, library, Some(IP), seconds);
                scenes.extend(site.map(|site| {
                    assert!(library.is_none_or(|library| site.has_loaded(library)));
                    Scene::new(&what, seconds, Program::Other(site))
                }));
            }
        }
    }
    scenes
}

#[test]
fn clients_whose_cable_is_cut_are_given_up_and_others_are_served() {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return;
    }
    let Some((net, far)) = Net::pair() else {
        return;
    };
    net.within(|| {
        // So soon the kernel gives up what nobody confirms: after some two seconds.
        std::fs::write("/proc/sys/net/ipv4/tcp_retries2", "3").expect("root may");
        let scenes = scenes();
        let clients = |scene: &Scene| far.within(|| scene.clients());
        let all: Vec<Vec<TcpStream>> = scenes.iter().map(clients).collect();
        for (scene, clients) in scenes.iter().zip(&all) {
            let come = || scene.open_files() >= scene.before + clients.len();
            assert!(scene.waits_long || until(come), "{}", scene.what);
        }
        far.ip("link set eth down");
        drop(all);
        for scene in &scenes {
            // By the loopback interface.
            assert!(scene.is_served(), "{}", scene.what);
        }
        for scene in &scenes {
            let ended = until(|| scene.open_files() <= scene.before);
            let left = scene.open_files().saturating_sub(scene.before);
            assert!(ended, "{}: {left} are left", scene.what);
        }
        far.ip("link set eth up");
        for scene in &scenes {
            assert!(far.within(|| scene.is_served()), "{}", scene.what);
        }
    });
}
