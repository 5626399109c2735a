//! Shows:  what plain Zenoh needs for the work of a channel: the peer of `ecalls bench channel`.
//! Needs:  nothing; it uses the loopback interface of its network namespace.
//! Run:    cargo run --release --example zenoh-peer -- submit 8 16
//! Expect: one line of JSON: processor time of one put that goes to 8 subscribers, ns.
//!
//! The sessions of the sinks are those of a second process (`sinks`), as other hosts would have
//! them: so their time is not in the source's. They are clients of the source's session, which is
//! the shortest way that Zenoh has: no router is between.

mod scale;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use zenoh::bytes::ZBytes;
use zenoh::qos::CongestionControl;
use zenoh::{Config, Session, Wait};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const KEY: &str = "peer/events";
const TOKENS: &str = "peer/sink/*";
/// As ours: events of a burst, bursts of a batch, batches, and how long each burst is left alone.
const BURST: u32 = 32;
const BURSTS: u32 = 40;
const BATCHES: u32 = 6;
const REST: Duration = Duration::from_millis(2);
/// How long sinks may take to come.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["submit", sinks, size] => submit(sinks.parse()?, size.parse()?),
        ["table"] => table(),
        ["relays", count, local, hubs] => {
            scale::relays(count.parse()?, local.parse()?, hubs.parse()?)
        }
        ["sessions", count] => scale::sessions(count.parse()?),
        ["sinks", port, count] => sinks(port, count.parse()?),
        _ => Err(
            "usage: zenoh-peer submit SINKS BYTES | table | sessions COUNT \
                  | relays COUNT MEMBERS HUBS"
                .into(),
        ),
    }
}

/// A session that others connect to, or that connects to one.
fn session(mode: &str, endpoints: &str, port: &str) -> Outcome<Session> {
    let mut config = Config::default();
    config.insert_json5("mode", &format!("{mode:?}"))?;
    config.insert_json5("scouting/multicast/enabled", "false")?;
    config.insert_json5("transport/shared_memory/enabled", "false")?;
    config.insert_json5("transport/unicast/max_sessions", "4096")?;
    config.insert_json5("listen/endpoints", "[]")?;
    config.insert_json5(endpoints, &format!("[\"tcp/127.0.0.1:{port}\"]"))?;
    zenoh::open(config).wait()
}

fn free_port() -> Outcome<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port().to_string())
}

/// The process of the sinks, which ends with this.
struct Sinks(Child);

impl Sinks {
    fn start(port: &str, count: u32) -> Outcome<Sinks> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["sinks", port, &count.to_string()]);
        // It ends when its input does, however this process ends.
        Ok(Sinks(command.stdin(Stdio::piped()).spawn()?))
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sinks, each with a session of its own, until the input ends.
fn sinks(port: &str, count: u32) -> Outcome<()> {
    let mut kept = Vec::new();
    for number in 0..count {
        let session = session("client", "connect/endpoints", port)?;
        let subscriber = session.declare_subscriber(KEY).callback(|_| ()).wait()?;
        let token = session.liveliness();
        let token = token.declare_token(format!("peer/sink/{number}")).wait()?;
        kept.push((session, subscriber, token));
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Waits until so many sinks are there.
fn wait_for(session: &Session, count: u32) -> Outcome<()> {
    let begin = Instant::now();
    loop {
        let (told, heard) = channel();
        let get = session.liveliness().get(TOKENS);
        get.callback(move |_| told.send(()).unwrap_or(())).wait()?;
        if heard.into_iter().count() >= count as usize {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err("the sinks did not come".into());
        }
        std::thread::sleep(REST);
    }
}

/// Processor time of all threads of this process.
fn processor_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Puts to so many subscribers.
fn submit(count: u32, size: usize) -> Outcome<()> {
    let port = free_port()?;
    let source = session("peer", "listen/endpoints", &port)?;
    let _sinks = Sinks::start(&port, count)?;
    wait_for(&source, count)?;
    let publisher = source.declare_publisher(KEY);
    let publisher = publisher.congestion_control(CongestionControl::Block);
    let publisher = publisher.express(true).wait()?;
    let bytes = ZBytes::from(vec![7u8; size]);
    let mut best = f64::INFINITY;
    for _ in 0..BATCHES {
        let before = processor_ns();
        for _ in 0..BURSTS {
            for _ in 0..BURST {
                publisher.put(bytes.clone()).wait()?;
            }
            std::thread::sleep(REST);
        }
        best = best.min((processor_ns() - before) / f64::from(BURST * BURSTS));
    }
    println!("{{\"submit_ns\":{best:.0}}}");
    Ok(())
}

/// A moment that `strace` sees: it counts the system calls between two.
fn mark(name: &str) {
    let _ = std::fs::metadata(format!("/ecalls-bench/{name}"));
}

/// One call of each kind, with its time in ns.
fn table() -> Outcome<()> {
    const EVENTS: u32 = 100;
    let port = free_port()?;
    let timed = |name: &str, events: u32, call: &mut dyn FnMut() -> Outcome<()>| {
        mark(&format!("{name}-begin"));
        let begin = Instant::now();
        call()?;
        let took = begin.elapsed().as_nanos() as f64;
        mark(&format!("{name}-end"));
        Outcome::Ok(format!("\"{name}\":{:.0}", took / f64::from(events)))
    };
    let (mut source, mut sink) = (None, None);
    let create = timed("create", 1, &mut || {
        let session = session("peer", "listen/endpoints", &port)?;
        let publisher = session.declare_publisher(KEY);
        let publisher = publisher.congestion_control(CongestionControl::Block);
        source = Some((publisher.express(true).wait()?, session));
        Ok(())
    })?;
    let (publisher, source) = source.ok_or("no source")?;
    // Until the source knows it, as with us.
    let open = timed("open", 1, &mut || {
        let session = session("client", "connect/endpoints", &port)?;
        let subscriber = session.declare_subscriber(KEY).wait()?;
        let token = session.liveliness().declare_token("peer/sink/0").wait()?;
        wait_for(&source, 1)?;
        sink = Some((subscriber, token, session));
        Ok(())
    })?;
    let (subscriber, _token, _session) = sink.ok_or("no sink")?;
    let bytes = ZBytes::from(vec![7u8; 16]);
    let submit = timed("submit", EVENTS, &mut || {
        (0..EVENTS).try_for_each(|_| publisher.put(bytes.clone()).wait())
    })?;
    std::thread::sleep(Duration::from_millis(200));
    let poll = timed("poll", EVENTS, &mut || {
        for _ in 0..EVENTS {
            subscriber.try_recv()?.ok_or("an event is lost")?;
        }
        Ok(())
    })?;
    println!("{{{create},{open},{submit},{poll}}}");
    Ok(())
}
