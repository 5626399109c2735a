//! The same event by MQTT: a publish that a broker passes on to 8 subscribers (Debian's packages
//! `mosquitto` and `mosquitto-clients`), on the loopback interface.
//!
//! The publisher is this process, and knows of MQTT 3.1.1 what it needs: to connect, and to publish
//! without an acknowledgement. The time of the subscribers is in no value; what each has printed is
//! counted, so that a message that was lost is noticed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{LOOKS, burst_ns};
use crate::bench::timing::{Effort, os, silent};
use crate::exit::{Failure, Outcome};

/// Why there is no value without it.
pub(super) const NO_BROKER: &str = "the packages mosquitto and mosquitto-clients have it";

const BROKER: &str = "mosquitto";
const SUBSCRIBER: &str = "mosquitto_sub";
const TOPIC: &str = "load";
/// A session without a name that keeps alive for ever: CONNECT, and the answer that it is accepted.
const CONNECT: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00";
const ACCEPTED: &[u8] = b"\x20\x02\x00\x00";
/// Between two looks at what another process has done.
const LOOK: Duration = Duration::from_millis(20);

/// What an event takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Of its source.
    pub(super) source_ns: f64,
    /// And of the broker.
    pub(super) both_ns: f64,
}

/// A process, and a folder, that end with this.
struct Peers {
    children: Vec<Child>,
    folder: PathBuf,
}

impl Drop for Peers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Peers {
    fn start(&mut self, command: &mut Command) -> Result<u32, Failure> {
        let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = quiet
            .spawn()
            .map_err(|error| os("starting a peer", error))?;
        let id = child.id();
        self.children.push(child);
        Ok(id)
    }

    /// What the subscribers have got, in all.
    fn received(&self, subscribers: u8) -> u64 {
        let lines = |path: PathBuf| std::fs::read(path).unwrap_or_default();
        let files = (0..subscribers).map(|number| lines(self.file(number)));
        files
            .map(|text| text.iter().filter(|byte| **byte == b'\n').count() as u64)
            .sum()
    }

    fn file(&self, number: u8) -> PathBuf {
        self.folder.join(number.to_string())
    }
}

/// One event of so many bytes to so many subscribers; `None`: the programs are not there.
pub(super) fn publish(
    effort: Effort,
    subscribers: u8,
    size: usize,
) -> Result<Option<Cost>, Failure> {
    let Some((broker, subscriber)) = program(BROKER).zip(program(SUBSCRIBER)) else {
        return Ok(None);
    };
    let folder = std::env::temp_dir().join(format!("ecalls-bench-mqtt-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let mut peers = Peers {
        children: Vec::new(),
        folder,
    };
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let configuration = peers.folder.join("configuration");
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n");
    std::fs::write(&configuration, text)?;
    let broker = peers.start(Command::new(broker).arg("-c").arg(&configuration))?;
    let mut source = connect(port)?;
    for number in 0..subscribers {
        let mut command = Command::new(&subscriber);
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-t",
            TOPIC,
            "-F",
            "%l",
        ]);
        peers.start(command.stdout(std::fs::File::create(peers.file(number))?))?;
    }
    let message = message(size);
    let mut sent = 0u64;
    wait_until(|| {
        // Until all have subscribed, some get what others do not.
        let before = peers.received(subscribers);
        source.write_all(&message)?;
        std::thread::sleep(LOOK);
        Ok(peers.received(subscribers) - before == u64::from(subscribers))
    })?;
    let (first, before) = (peers.received(subscribers), time_of(broker)?);
    let source_ns = burst_ns(
        effort,
        || {
            sent += 1;
            Ok(source.write_all(&message)?)
        },
        |_| Ok(true),
    )?;
    let wanted = first + sent * u64::from(subscribers);
    wait_until(|| Ok(peers.received(subscribers) == wanted))?;
    let broker_ns = (time_of(broker)? - before) / sent as f64;
    Ok(Some(Cost {
        source_ns,
        both_ns: source_ns + broker_ns,
    }))
}

/// Where that program is; Debian's broker is not in every user's path.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut programs = folders.map(|folder| folder.join(name));
    programs.find(|program| program.is_file())
}

fn wait_until(mut done: impl FnMut() -> Result<bool, Failure>) -> Outcome {
    for _ in 0..LOOKS {
        if done()? {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    Err(silent("each message at each subscriber of MQTT"))
}

fn connect(port: u16) -> Result<TcpStream, Failure> {
    let mut stream = None;
    wait_until(|| {
        stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
        Ok(stream.is_some())
    })?;
    let mut stream = stream.ok_or_else(|| silent("a broker of MQTT"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(CONNECT)?;
    let mut answer = [0; ACCEPTED.len()];
    stream.read_exact(&mut answer)?;
    match answer == ACCEPTED {
        true => Ok(stream),
        false => Err(silent("a broker of MQTT that accepts")),
    }
}

/// PUBLISH without an acknowledgement. `size` and the topic together have fewer than 126 bytes.
fn message(size: usize) -> Vec<u8> {
    let mut bytes = vec![0x30, (2 + TOPIC.len() + size) as u8, 0, TOPIC.len() as u8];
    bytes.extend_from_slice(TOPIC.as_bytes());
    bytes.resize(bytes.len() + size, 7);
    bytes
}

/// Processor time of a process with one thread, ns.
fn time_of(pid: u32) -> Result<f64, Failure> {
    let file = format!("/proc/{pid}/schedstat");
    let text = std::fs::read_to_string(Path::new(&file))?;
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.ok_or_else(|| silent("the processor time of a broker of MQTT"))
}
