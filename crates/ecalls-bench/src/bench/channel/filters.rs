//! KECho's Figure 7: what filters at the source and at the sink save, with 8 sinks.
//!
//! - **OUT**: an event that goes to 8, 1 or none of 8 hosts, as in the rows `lane_out_*`; beside
//!   one `sendmmsg` to 8, Zenoh with 8 subscribers, and MQTT with a broker and 8 subscribers.
//! - **IN**: a frame that arrives on a host with 8 subscriptions, of which 8, 1 or none let it pass
//!   to their programs, which take it; beside one packet to a group of which 8 sockets are members.
//!   The values are processor time with the sending: sender, kernel and readers are one process.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use ecalls::Subscription;
use ecalls_abi::wire::{WIRE_PORT, Wire, text_id};
use ecalls_channel::Channel;
use ecalls_channel::frame::{self, Origin, Submission};

use super::web::failed;
use super::web::net::Net;
use super::{SINKS, Stage, burst_ns, mqtt, peer, sink};
use crate::bench::Bench;
use crate::bench::network::within;
use crate::bench::rows::Section;
use crate::bench::timing::{MEAN, Value, silent};
use crate::exit::{Failure, Outcome};

pub(super) const SECTION: Section = Section {
    rows: &[
        "sendmmsg_8",
        "fig7_zenoh_8",
        "fig7_mqtt_source",
        "fig7_mqtt_8",
        "fig7_out_8",
        "fig7_out_1",
        "fig7_out_0",
        "group_recv_8",
        "fig7_in_8",
        "fig7_in_1",
        "fig7_in_0",
    ],
    slow: false,
    measure,
};

const SIZE: usize = 16;
/// The filter of Figure 7: if and else for each sink, by what it has told.
const OUT: &[(&str, u8, &str, &str)] = &[
    (
        "fig7_out_8",
        SINKS,
        "for (s in sinks) { if (s.load > 80) reject(s); else if (age(s) == 0) reject(s); }",
        "an event to 8 hosts, by a filter that asks what each has told",
    ),
    (
        "fig7_out_1",
        1,
        "for (s in sinks) { if (s.load > 80) reject(s); else if (s.id > 0) reject(s); }",
        "... that lets 1 of 8 have it",
    ),
    (
        "fig7_out_0",
        0,
        "for (s in sinks) { if (s.load > 80) reject(s); else reject(s); }",
        "... that lets none have it",
    ),
];
const IN: &[(&str, u8, &str)] = &[
    (
        "fig7_in_8",
        SINKS,
        "a frame that arrives, for 8 subscriptions whose filters let it pass",
    ),
    ("fig7_in_1", 1, "... of which 1 lets it pass"),
    ("fig7_in_0", 0, "... of which none does"),
];
/// The channel whose frames arrive, and the addresses of its cable.
const NAME: &str = "bench-in";
const FORMAT: &str = "u8 data[16]";
const HERE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 78, 0, 1);
const GROUP_PORT: u16 = 7800;

fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let mut values = out(bench)?;
    values.extend(arrive(bench)?);
    Ok(values)
}

fn out(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let all: Vec<Ipv4Addr> = (0..SINKS).map(sink).collect();
    let sent = peer::send_all(bench.effort, &all, SIZE)?;
    let what = "16 bytes to 8 hosts by one sendmmsg";
    let mut values = vec![Value::ns("sendmmsg_8", sent, MEAN, what)];
    let what = "a put of plain Zenoh that goes to 8 hosts";
    let zenoh = peer::ask_zenoh(&["submit", "8", "16"])?;
    values.push(match zenoh.and_then(|said| said["submit_ns"].as_f64()) {
        Some(ns) => Value::ns("fig7_zenoh_8", ns, MEAN, what),
        None => Value::missing("fig7_zenoh_8", peer::NO_ZENOH),
    });
    let mqtt = mqtt::publish(bench.effort, SINKS, SIZE)?;
    for (row, what, ns) in [
        (
            "fig7_mqtt_source",
            "a publish of MQTT: what its source does",
            mqtt.map(|cost| cost.source_ns),
        ),
        (
            "fig7_mqtt_8",
            "... and the broker, which sends it to 8 subscribers",
            mqtt.map(|cost| cost.both_ns),
        ),
    ] {
        values.push(match ns {
            Some(ns) => Value::ns(row, ns, MEAN, what),
            None => Value::missing(row, mqtt::NO_BROKER),
        });
    }
    let stage = Stage::set(&bench.ecalls, SINKS, SIZE)?;
    for (row, sinks, text, what) in OUT {
        stage.channel.set_out(text, &["load"])?;
        values.push(Value::ns(
            row,
            stage.submit(bench.effort, *sinks)?,
            MEAN,
            what,
        ));
    }
    Ok(values)
}

/// Another host, and a socket there that sends to this one.
struct Other {
    _net: Net,
    lane: UdpSocket,
}

impl Other {
    fn connect() -> Result<Other, Failure> {
        let net = Net::new().map_err(failed)?;
        let pid = net.pid();
        super::ip(&format!(
            "link add ecb2 type veth peer name eth netns {pid}"
        ))?;
        super::ip("link set ecb2 up")?;
        super::ip(&format!("address add {HERE}/24 dev ecb2"))?;
        for arguments in [
            "address add 10.78.0.2/24 dev eth",
            "link set eth up",
            "route add 224.0.0.0/4 dev eth",
        ] {
            net.ip(arguments).map_err(failed)?;
        }
        let lane = within(pid, || {
            Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, WIRE_PORT))?)
        })?;
        Ok(Other { _net: net, lane })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // With its other end.
        let _ = super::ip("link delete ecb2");
    }
}

/// Frames that arrive.
fn arrive(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let other = Other::connect()?;
    let mut values = vec![Value::ns(
        "group_recv_8",
        group(bench, &other)?,
        MEAN,
        "a packet to a group: 8 sockets of a host take it",
    )];
    let _channel = Channel::open(&bench.ecalls, NAME, FORMAT, "", "ecb2")?;
    let mut origin = Origin {
        channel: text_id(NAME),
        format: text_id(FORMAT),
        host: 0x0200_0000_7802,
        epoch: 1,
        sequence: 0,
    };
    for (row, passing, what) in IN {
        let sinks: Vec<(ecalls::Channel, Subscription)> = (0..SINKS)
            .map(|number| {
                let memory = bench.ecalls.channel().ring(256).open()?;
                let text = if number < *passing {
                    "return event.data[0] == 7;"
                } else {
                    "return event.data[0] != 7;"
                };
                let builder = bench.ecalls.subscribe(NAME)?.ecode(text).memory(&memory);
                Ok((memory, builder.install()?))
            })
            .collect::<Result<_, Failure>>()?;
        let submission = Submission {
            data: vec![7; SIZE],
            ..Submission::default()
        };
        let (mut sinks, mut taken) = (sinks, 0u64);
        let first = origin.sequence;
        let send = || -> Outcome {
            origin.sequence += 1;
            let frame = frame::write(&origin, &submission)?;
            other.lane.send_to(&frame, (HERE, WIRE_PORT))?;
            for (memory, _) in &mut sinks {
                taken += u64::from(memory.try_recv().is_some());
            }
            Ok(())
        };
        let value = burst_ns(bench.effort, send, |_| Ok(true))?;
        let frames = origin.sequence - first;
        if taken != frames * u64::from(*passing) {
            return Err(silent("an event of each frame, at each subscription,"));
        }
        values.push(Value::ns(row, value, MEAN, what));
    }
    Ok(values)
}

/// The same bytes to sockets.
fn group(bench: &Bench, other: &Other) -> Result<f64, Failure> {
    let group = SocketAddr::from((GROUP, GROUP_PORT));
    let members: Vec<UdpSocket> = (0..SINKS)
        .map(|_| peer::member(group, HERE))
        .collect::<Result<_, _>>()?;
    let bytes = vec![7; size_of::<Wire>() + SIZE];
    let mut buffer = vec![0; bytes.len()];
    let send = || {
        other.lane.send_to(&bytes, group)?;
        for member in &members {
            member.recv(&mut buffer)?;
        }
        Ok(())
    };
    burst_ns(bench.effort, send, |_| Ok(true))
}
