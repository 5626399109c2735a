//! The observers of the server.
//!
//! Ours read at their leisure: a thread takes the events every 100 ms without a system
//! call, so no event wakes anybody. The ring buffer of a plain BPF program is read likewise.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ecalls::socket::Interest;
use ecalls::{ChannelBuilder, Ecalls, Event, SlotUse, Subscription, SubscriptionBuilder};
use ecalls_kernel::baseline::Ringbuf;
use rustix::process::{Pid, Signal, kill_process};

use crate::exit::Failure;
use crate::web::Server;
use crate::web::watch::{Reader, Threshold};

/// Something that observes the server during a turn.
pub(super) struct Observer {
    pub(super) row: &'static str,
    pub(super) what: &'static str,
    /// Starts it.
    pub(super) start: fn(&Ecalls, &Server) -> Started,
}

/// A running observer. The inner error is the reason why this machine cannot have it.
pub(super) type Started = Result<Result<Running, &'static str>, Failure>;

/// The observers, in the order of the rows.
pub(super) const OBSERVERS: &[Observer] = &[
    Observer {
        row: "server_memory",
        what: "every event of the server's sockets into a ring, which is read every 100 ms",
        start: memory,
    },
    Observer {
        row: "server_coalesced",
        what: "the same, where an event that was not read stands for all later ones",
        start: coalesced,
    },
    Observer {
        row: "server_filter",
        what: "a filter in E-code passes one event in a hundred",
        start: filter,
    },
    Observer {
        row: "server_readiness",
        what: "one slot per descriptor: an event that was not read stands for later ones",
        start: readiness,
    },
    Observer {
        row: "server_sched",
        what: "delays of more than 100 ms in the scheduler, of which there are none",
        start: sched,
    },
    Observer {
        row: "server_ringbuf",
        what: "a plain BPF program: the same events into a ring buffer, which is read every 100 ms",
        start: ringbuf,
    },
    Observer {
        row: "server_bpftrace",
        what: "bpftrace counts the events of all sockets, and prints the number every second",
        start: bpftrace,
    },
    Observer {
        row: "server_perf",
        what: "perf record writes the events of all sockets to a pipe",
        start: perf,
    },
];

/// The service of the server's events.
const SOCKET: &str = "socket";
const RING: u32 = 16_384;
const SLOTS: u32 = 1024;
/// The interval between two looks of a reader. A look costs it some 15,000 instructions, of which a
/// request has 40,000; so readers that look more often would be measured themselves where the
/// server answers few.
const PACE: Duration = Duration::from_millis(100);
/// No thread waits so long for a processor here.
const DELAY_NS: u64 = 100_000_000;

/// A running observer; it ends when this is dropped.
pub(super) enum Running {
    Ours {
        _subscription: Box<Subscription>,
        _reader: Reader,
        _threshold: Option<Threshold>,
    },
    Ringbuf {
        _reader: Reader,
    },
    Program(Child),
}

impl Running {
    /// The process, if it is one of its own.
    pub(super) fn process(&self) -> Option<u32> {
        match self {
            Running::Ours { .. } | Running::Ringbuf { .. } => None,
            Running::Program(child) => Some(child.id()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Running::Program(child) = self {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            // A process that has ended already needs no signal.
            let _ = pid.map(|pid| kill_process(pid, Signal::INT));
            let _ = child.wait();
        }
    }
}

/// Registers the server's sockets, and reads what one subscription to them brings.
fn sockets(
    ecalls: &Ecalls,
    server: &Server,
    channel: ChannelBuilder,
    build: impl FnOnce(SubscriptionBuilder) -> SubscriptionBuilder,
) -> Started {
    // Connections inherit the registration of the listening socket; a second one changes nothing.
    // Only this program receives the events.
    ecalls.watch_sockets_of(server.pid(), &Interest::default())?;
    ours(ecalls, SOCKET, channel, build, None)
}

fn ours(
    ecalls: &Ecalls,
    service: &str,
    channel: ChannelBuilder,
    build: impl FnOnce(SubscriptionBuilder) -> SubscriptionBuilder,
    threshold: Option<Threshold>,
) -> Started {
    let mut channel = channel.open()?;
    let builder = build(ecalls.subscribe(service)?);
    let subscription = builder.memory(&channel).install()?;
    let mut event = Event::default();
    let reader = Reader::start(
        service,
        PACE,
        move || {
            while channel.try_recv_into(&mut event) {}
        },
    )?;
    Ok(Ok(Running::Ours {
        _subscription: Box::new(subscription),
        _reader: reader,
        _threshold: threshold,
    }))
}

fn memory(ecalls: &Ecalls, server: &Server) -> Started {
    sockets(ecalls, server, ecalls.channel().ring(RING), |plain| plain)
}

fn coalesced(ecalls: &Ecalls, server: &Server) -> Started {
    let channel = ecalls.channel().ring(RING);
    sockets(ecalls, server, channel, SubscriptionBuilder::coalesce)
}

fn filter(ecalls: &Ecalls, server: &Server) -> Started {
    let text = "static long events; return ++events % 100 == 0;";
    let channel = ecalls.channel().ring(RING);
    sockets(ecalls, server, channel, |plain| plain.ecode(text))
}

fn readiness(ecalls: &Ecalls, server: &Server) -> Started {
    let channel = ecalls.channel().slots(SLOTS, SlotUse::Ready);
    sockets(ecalls, server, channel, |plain| plain)
}

fn sched(ecalls: &Ecalls, _server: &Server) -> Started {
    let threshold = Threshold::set(ecalls, DELAY_NS)?;
    let channel = ecalls.channel().ring(RING);
    ours(ecalls, "sched", channel, |plain| plain, Some(threshold))
}

/// perf says nothing when it has begun. It writes its head before; a moment later events come.
const PERF_BEGINS: Duration = Duration::from_millis(100);

fn perf(_ecalls: &Ecalls, _server: &Server) -> Started {
    let program = Command::new("perf")
        .args(["record", "-q", "-a", "-e", "sock:sk_data_ready", "-o", "-"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = program else {
        return Ok(Err("perf is not installed"));
    };
    let mut out = child.stdout.take().expect("it is piped");
    let mut head = [0; 8];
    if out.read_exact(&mut head).is_err() {
        let _ = child.wait();
        return Ok(Err("perf cannot record this tracepoint here"));
    }
    thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    thread::sleep(PERF_BEGINS);
    Ok(Ok(Running::Program(child)))
}

fn ringbuf(_ecalls: &Ecalls, server: &Server) -> Started {
    let mut ring = Ringbuf::attach(server.port)?;
    let reader = Reader::start("ringbuf", PACE, move || {
        ring.take();
    })?;
    Ok(Ok(Running::Ringbuf { _reader: reader }))
}

fn bpftrace(_ecalls: &Ecalls, _server: &Server) -> Started {
    const READY: &str = "ready";
    let text = format!(
        "BEGIN {{ printf(\"{READY}\\n\") }} tracepoint:sock:sk_data_ready {{ @ = count(); }} \
         interval:s:1 {{ print(@) }}"
    );
    let program = Command::new("bpftrace")
        .args(["-B", "line", "-e", &text])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = program else {
        return Ok(Err("bpftrace is not installed"));
    };
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while out.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if line.trim_end() == READY {
            // Someone must read what it prints.
            thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
            return Ok(Ok(Running::Program(child)));
        }
        line.clear();
    }
    let _ = child.wait();
    Ok(Err("bpftrace cannot count this tracepoint here"))
}
