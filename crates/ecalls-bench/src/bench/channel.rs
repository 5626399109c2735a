//! `ecalls bench channel`: what it costs a host to send an event to other hosts.
//!
//! The values are processor time of this process for each event, whichever of its threads takes
//! it, with what the kernel does in their name until the packet is on the wire: the interface is
//! one end of a cable (veth) in a network of its own, whose other end drops what arrives, since it
//! is for other hosts. So the sinks cost nothing.
//!
//! Ours: an event of a service whose chain ends in `remote` (KECho's submit), and a
//! [`Publisher`]'s. Theirs: the same bytes by a UDP socket, sent once to each sink. Both send in
//! bursts, and sleep in between.

mod filters;
mod mqtt;
mod peer;
pub(super) mod plot;
mod scale;
mod table;
mod web;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use ecalls::{Ecalls, Raise, Service, Subscription};
use ecalls_abi::wire::{WIRE_PORT, Wire};
use ecalls_channel::frame::Submission;
use ecalls_channel::{Channel, Publisher, source};
use rustix::time::{ClockId, clock_gettime};

use super::Bench;
use super::network::{self, ip};
use super::rows::Section;
use super::timing::{Effort, MEAN, Value, silent};
use crate::exit::{Failure, Outcome};
pub(super) use web::net;

/// Our end of the cable, and the other one.
const NEAR: &str = "ecb0";
const FAR: &str = "ecb1";
const SINKS: u8 = 8;
const NAME: &str = "bench-channel";
const SOURCE: &str = "bench-source";
/// Events of a burst, and how long it is left alone.
const BURST: u32 = 32;
const REST: Duration = Duration::from_millis(2);
/// How often that is waited for the last frame of a batch.
const LOOKS: u32 = 100;
/// Bursts of a batch.
const BURSTS: u32 = 40;

/// The sections of this measurement.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        rows: &[
            "send_1",
            "send_8",
            "lane_submit_1",
            "lane_submit_8",
            "lane_publish_8",
            "lane_out_8",
            "lane_out_1",
            "lane_out_0",
        ],
        slow: false,
        measure: fan_out,
    },
    Section {
        rows: &[
            "send_100",
            "fig6_100",
            "send_500",
            "fig6_500",
            "send_1000",
            "fig6_1000",
            "send_2000",
            "fig6_2000",
        ],
        slow: false,
        measure: sizes,
    },
    filters::SECTION,
    table::SECTION,
    web::SECTION,
    scale::SECTION,
];

/// The hidden subcommand that is one of several hosts: what it does, in words.
pub(crate) const PART: &str = "channel-part";

/// Does the part of a host.
pub(crate) fn part(words: &[String]) -> Outcome {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["table", ref rest @ ..] => table::part(rest),
        ["web", ref rest @ ..] => web::part(rest),
        _ => Err(Failure::usage(format!("no such part: {words:?}"))),
    }
}

/// The filters at the source, and the sinks that they let each event go to.
const FILTERS: &[(&str, &str, u8, &str)] = &[
    (
        "lane_out_8",
        "return 1;",
        8,
        "the same, a filter at the source lets all 8 have it",
    ),
    (
        "lane_out_1",
        "for (s in sinks) if (s.id != 0) reject(s);",
        1,
        "... one of the 8",
    ),
    ("lane_out_0", "return 0;", 0, "... none: there is no packet"),
];

const SIZES: &[(usize, &str, &str)] = &[
    (100, "send_100", "fig6_100"),
    (500, "send_500", "fig6_500"),
    (1000, "send_1000", "fig6_1000"),
    (2000, "send_2000", "fig6_2000"),
];

/// Enters a network of its own, with a cable.
pub(crate) fn enter_network() -> Outcome {
    network::enter("channel")?;
    lay_cable()
}

/// The cable, and the hardware addresses of hosts that are not there.
fn lay_cable() -> Outcome {
    ip(&format!(
        "link add {NEAR} mtu 9000 type veth peer name {FAR} mtu 9000"
    ))?;
    for end in ["lo", NEAR, FAR] {
        ip(&format!("link set {end} up"))?;
    }
    ip(&format!("address add 10.77.0.1/24 dev {NEAR}"))?;
    (0..SINKS).try_for_each(|number| {
        ip(&format!(
            "neighbour add {} lladdr 02:00:00:00:77:{number:02x} dev {NEAR} nud permanent",
            sink(number)
        ))
    })
}

fn sink(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 2 + number)
}

/// A channel with sinks, and a service whose events go there.
struct Stage {
    ecalls: Ecalls,
    channel: Channel,
    service: Service,
    _subscription: Subscription,
    data: Vec<u8>,
}

impl Stage {
    fn set(ecalls: &Ecalls, sinks: u8, size: usize) -> Result<Stage, Failure> {
        let format = format!("u8 data[{size}]");
        let channel = Channel::open(ecalls, NAME, &format, "", NEAR)?;
        for number in 0..sinks {
            channel.add_sink(IpAddr::V4(sink(number)))?;
        }
        let service = ecalls.register_service(SOURCE, &format, "")?;
        let chain = ecalls.subscribe(SOURCE)?.remote(NAME);
        Ok(Stage {
            _subscription: chain.install()?,
            ecalls: ecalls.clone(),
            channel,
            service,
            data: vec![7; size],
        })
    }

    /// Frames that have been sent to all sinks.
    fn sent(&self) -> Result<u64, Failure> {
        let (channels, ..) = source::channels(&self.ecalls)?;
        let own = channels.iter().find(|channel| channel.name == NAME);
        Ok(own.map_or(0, |own| own.out.sent))
    }

    /// The time of one event that goes to so many sinks.
    fn submit(&self, effort: Effort, sinks: u8) -> Result<f64, Failure> {
        let mut before = self.sent()?;
        let raise = || {
            self.service.raise(&Raise::new(&self.data))?;
            Ok(())
        };
        let all_sent = |events: u32| {
            let frames = u64::from(events) * u64::from(sinks);
            let mut sent = self.sent()? - before;
            for _ in 0..LOOKS {
                if sent >= frames {
                    break;
                }
                std::thread::sleep(REST);
                sent = self.sent()? - before;
            }
            before += sent;
            Ok(sent == frames)
        };
        burst_ns(effort, raise, all_sent)
    }
}

/// Processor time of one call, in the best batch of bursts after which so many events `are_sent`:
/// on a busy machine the channel's thread can be late, and its buffer full.
fn burst_ns(
    effort: Effort,
    mut call: impl FnMut() -> Outcome,
    mut are_sent: impl FnMut(u32) -> Result<bool, Failure>,
) -> Result<f64, Failure> {
    let bursts = effort.rounds(BURSTS);
    let best = effort.best(|| {
        let before = processor_ns();
        for _ in 0..bursts {
            for _ in 0..BURST {
                call()?;
            }
            std::thread::sleep(REST);
        }
        let took = processor_ns() - before;
        Ok(match are_sent(bursts * BURST)? {
            true => took / f64::from(bursts * BURST),
            false => f64::INFINITY,
        })
    })?;
    match best.is_finite() {
        true => Ok(best),
        false => Err(silent(
            "all frames of a batch, because the channel's buffer was full,",
        )),
    }
}

/// Processor time of all threads of this process.
fn processor_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The same bytes by a socket, once to each sink.
fn send(effort: Effort, sinks: u8, size: usize) -> Result<f64, Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 77, 0, 1), 0))?;
    let frame = vec![7; size_of::<Wire>() + size];
    let sinks: Vec<SocketAddr> = (0..sinks)
        .map(|number| (sink(number), WIRE_PORT).into())
        .collect();
    let send = || {
        for sink in &sinks {
            socket.send_to(&frame, sink)?;
        }
        Ok(())
    };
    burst_ns(effort, send, |_| Ok(true))
}

/// To one sink and to eight, with and without a filter at the source.
fn fan_out(bench: &Bench) -> Result<Vec<Value>, Failure> {
    const SIZE: usize = 16;
    let ns = |row, value, what| Value::ns(row, value, MEAN, what);
    let what = ["16 bytes by one UDP packet", "by 8 UDP packets"];
    let mut values = vec![
        ns("send_1", send(bench.effort, 1, SIZE)?, what[0]),
        ns("send_8", send(bench.effort, 8, SIZE)?, what[1]),
    ];
    for (row, sinks, what) in [
        (
            "lane_submit_1",
            1,
            "an event of 16 bytes to one sink of a channel",
        ),
        ("lane_submit_8", 8, "to 8 sinks"),
    ] {
        let stage = Stage::set(&bench.ecalls, sinks, SIZE)?;
        values.push(ns(row, stage.submit(bench.effort, sinks)?, what));
    }
    let stage = Stage::set(&bench.ecalls, SINKS, SIZE)?;
    let sinks = (0..SINKS).map(|number| IpAddr::V4(sink(number)));
    let publisher = Publisher::new(&bench.ecalls, NAME, sinks)?;
    let submission = Submission {
        data: stage.data.clone(),
        ..Submission::default()
    };
    let publish = || {
        publisher.submit(&submission)?;
        Ok(())
    };
    let published = burst_ns(bench.effort, publish, |_| Ok(true))?;
    values.push(ns(
        "lane_publish_8",
        published,
        "a program's event to 8 sinks",
    ));
    for (row, text, sinks, what) in FILTERS {
        stage.channel.set_out(text, &[])?;
        values.push(ns(row, stage.submit(bench.effort, *sinks)?, what));
    }
    Ok(values)
}

/// KECho's Figure 6: by the size of the data, to one sink.
fn sizes(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let mut values = Vec::new();
    for (size, theirs, ours) in SIZES {
        let sent = send(bench.effort, 1, *size)?;
        values.push(Value::ns(
            theirs,
            sent,
            MEAN,
            "so many bytes by one UDP packet",
        ));
        let stage = Stage::set(&bench.ecalls, 1, *size)?;
        let submitted = stage.submit(bench.effort, 1)?;
        let what = "an event with so many bytes to one sink";
        values.push(Value::ns(ours, submitted, MEAN, what));
    }
    Ok(values)
}
