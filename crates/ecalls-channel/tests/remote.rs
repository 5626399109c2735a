//! The action `remote`: events of a service go to other hosts as frames that the kernel builds, and
//! each one is counted. Needs root.
//!
//! Each test has a network namespace of its own with nothing but its loopback interface. A tap
//! there shows the packets; hosts.rs has several hosts.

#![allow(
    unsafe_code,
    reason = "the harness moves threads between namespaces; the tap is a raw socket"
)]

mod harness;
#[path = "harness/tap.rs"]
mod tap;

use std::net::IpAddr;

use ecalls::{Ecalls, Raise, Subscription};
use ecalls_abi::channel::DropReason;
use ecalls_abi::lane::{FRAME_OWN, LaneChannel};
use ecalls_abi::sink::{LaneOut, REMOTE_CLOSED, REMOTE_FAILED, REMOTE_FULL, REMOTE_SIZE, Sink};
use ecalls_abi::wire::text_id;
use ecalls_channel::Channel;
use ecalls_channel::frame::{self, Origin, Submission};
use ecalls_channel::source::{LaneStat, channels};
use harness::{FORMAT, core, hex, ip, judged, own_network, stat_of, wait_until};
use serde_json::json;
use tap::Tap;

const SECOND_NS: u64 = 1_000_000_000;

/// A channel on the loopback interface, and a service whose events go to its sinks.
struct Stage {
    ecalls: Ecalls,
    channel: Channel,
    name: String,
    tap: Tap,
    subscription: Subscription,
    _service: ecalls::Service,
    source: String,
}

fn sink(number: u8) -> IpAddr {
    [127, 0, 0, number].into()
}

impl Stage {
    /// `format`: of the service; the data that it becomes in `ecode` have the channel's.
    fn set(name: &str, format: &str, ecode: Option<&str>) -> Option<Stage> {
        let ecalls = core()?;
        own_network();
        let name = format!("{name}-{}", std::process::id());
        let source = format!("{name}-src");
        let kept = if ecode.is_some() { FORMAT } else { format };
        let channel = Channel::open(&ecalls, &name, kept, "", "lo").expect("it");
        let service = ecalls.register_service(&source, format, "normal high");
        let mut builder = ecalls.subscribe(&source).expect("it");
        if let Some(text) = ecode {
            builder = builder.ecode(text);
        }
        let subscription = builder.remote(&name).install().expect("a subscription");
        Some(Stage {
            tap: Tap::open(),
            subscription,
            _service: service.expect("a service"),
            ecalls,
            channel,
            name,
            source,
        })
    }

    fn raise(&self, raise: &Raise<'_>) {
        let offered = self.ecalls.raise(&self.source, raise).expect("raised");
        assert_eq!(offered, 1);
    }

    fn stat(&self) -> LaneStat {
        stat_of(&self.ecalls, &self.name)
    }

    /// The counts once so many events have come to `remote` and have left the buffer.
    fn out(&self, events: u64) -> LaneOut {
        let left =
            |out: &LaneOut| out.none + out.filtered + out.fanned + out.refused.iter().sum::<u64>();
        wait_until("the events have left the buffer", || {
            let out = self.stat().out;
            // An event is counted before its frames have been sent.
            let is_sent = out.frames == out.sent + out.late + out.gone;
            out.events >= events && left(&out) >= events && is_sent
        });
        let out = self.stat().out;
        assert_eq!(
            (out.events, left(&out)),
            (events, events),
            "each has one fate: {out:?}"
        );
        assert_eq!(out.frames, out.sent + out.late + out.gone, "{out:?}");
        out
    }

    /// What the frame with this number must be.
    fn expected(&self, sequence: u64, submission: &Submission) -> Vec<u8> {
        let row: LaneChannel = self.stat().channel;
        let origin = Origin {
            channel: text_id(&self.name),
            format: row.format,
            host: self.channel.host(),
            epoch: row.epoch,
            sequence,
        };
        frame::write(&origin, submission).expect("a frame")
    }
}

/// The frame of a packet that begins with its IPv4 header, which is checked.
fn frame_in(packet: &[u8], to: IpAddr) -> &[u8] {
    let (header, rest) = packet.split_at(20);
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    assert_eq!(
        (sum & 0xffff) + (sum >> 16),
        0xffff,
        "the header's checksum"
    );
    let number = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    assert_eq!(number(2), packet.len());
    assert_eq!(number(6), 0x4000, "never in parts");
    assert_eq!(header[12..16], [127, 0, 0, 1], "from this host");
    assert_eq!(
        IpAddr::from([header[16], header[17], header[18], header[19]]),
        to
    );
    assert_eq!((number(20), number(22)), (914, 914));
    assert_eq!((number(24), number(26)), (packet.len() - 20, 0));
    &rest[8..]
}

fn data(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 + size) as u8).collect()
}

#[test]
fn an_event_goes_to_each_sink_as_a_frame_with_the_sinks_next_number() {
    let Some(stage) = Stage::set("remote", "u8 byte[2152]", None) else {
        return;
    };
    stage.channel.add_sink(sink(2)).expect("it");
    stage.channel.add_sink(sink(3)).expect("it");
    let sizes = [0, 1, 8, 167, 168, 169, 416, 1000, 2152];
    for (sequence, size) in (1..).zip(sizes) {
        let bytes = data(size);
        let raise = Raise::new(&bytes).kind(1).slot_type(7).priority(3);
        stage.raise(&raise);
        let submission = Submission {
            data: bytes.clone(),
            kind: 1,
            slot_type: 7,
            priority: 3,
            ..Submission::default()
        };
        for number in [2, 3] {
            let packet = stage.tap.next();
            let found = frame_in(&packet, sink(number));
            let expected = stage.expected(sequence, &submission);
            assert_eq!(hex(found), hex(&expected), "{size} bytes to {number}");
        }
    }
    let out = stage.out(sizes.len() as u64);
    assert_eq!((out.fanned, out.sent), (9, 18));
    // Here the sinks are this host itself, which does not take its own frames.
    wait_until("they have arrived", || {
        stage.stat().count.refused[FRAME_OWN] == 18
    });
    let sinks = stage.stat().sinks;
    assert!(sinks.iter().all(|sink| (sink.sent, sink.failed) == (9, 0)));
    let count = stage.subscription.count().expect("its counts");
    assert_eq!((count.offered, count.delivered), (9, 9));
    assert_eq!(stage.tap.rest(), 0, "nothing else was sent");
}

#[test]
fn frames_that_the_kernel_builds_are_what_the_judge_writes() {
    let Some(stage) = Stage::set("judged", FORMAT, None) else {
        return;
    };
    if std::process::Command::new("python3")
        .arg("-V")
        .output()
        .is_err()
    {
        eprintln!("skipped: there is no python3");
        return;
    }
    stage.channel.add_sink(sink(2)).expect("it");
    let row = stage.stat().channel;
    for (sequence, value) in (1u64..).zip([0, 1, u64::MAX]) {
        stage.raise(&Raise::new(&value.to_ne_bytes()).priority(9));
        let packet = stage.tap.next();
        let written = json!({
            "name": stage.name, "format": FORMAT, "host": row.host, "epoch": row.epoch,
            "sequence": sequence, "left_ns": 0, "kind": 0, "type": 0, "priority": 9,
            "attributes": [], "data": hex(&value.to_ne_bytes()),
        });
        let answers = judged(&[written]);
        assert_eq!(answers[0], json!(hex(frame_in(&packet, sink(2)))));
    }
}

#[test]
fn a_deadline_goes_on_as_the_time_that_is_left() {
    let Some(stage) = Stage::set("left", FORMAT, None) else {
        return;
    };
    stage.channel.add_sink(sink(2)).expect("it");
    let deadline = std::time::Duration::from_secs(60);
    stage.raise(&Raise::new(&[1; 8]).deadline(deadline));
    let packet = stage.tap.next();
    let (_, found) = frame::read(frame_in(&packet, sink(2))).expect("a frame");
    assert!(found.left_ns <= 60 * SECOND_NS, "{}", found.left_ns);
    assert!(found.left_ns > 30 * SECOND_NS, "{}", found.left_ns);
}

#[test]
fn handlers_before_it_choose_and_change_what_is_sent() {
    let ecode = "struct output { u64 value; }; output.value = a + b; return a != 7;";
    let Some(stage) = Stage::set("chosen", "u32 a; u32 b", Some(ecode)) else {
        return;
    };
    stage.channel.add_sink(sink(2)).expect("it");
    for (a, b) in [(1u32, 2u32), (7, 7), (10, 20)] {
        stage.raise(&Raise::new(&[a.to_ne_bytes(), b.to_ne_bytes()].concat()));
    }
    for (sequence, value) in [(1, 3u64), (2, 30)] {
        let packet = stage.tap.next();
        let submission = Submission {
            data: value.to_ne_bytes().to_vec(),
            ..Submission::default()
        };
        let expected = stage.expected(sequence, &submission);
        assert_eq!(hex(frame_in(&packet, sink(2))), hex(&expected));
    }
    assert_eq!(stage.out(2).sent, 2);
    let count = stage.subscription.count().expect("its counts");
    assert_eq!((count.offered, count.delivered, count.filtered), (3, 2, 1));
}

#[test]
fn data_of_another_format_than_the_channels_are_refused() {
    let Some(stage) = Stage::set("format", FORMAT, None) else {
        return;
    };
    let other = format!("{}-other", stage.name);
    let _service = stage.ecalls.register_service(&other, "u32 value", "");
    let builder = stage.ecalls.subscribe(&other).expect("it");
    let error = builder.remote(&stage.name).install();
    let text = error.expect_err("another format").to_string();
    assert!(
        text.contains("u32 value") && text.contains(FORMAT),
        "{text}"
    );
    let builder = stage.ecalls.subscribe(&other).expect("it");
    assert!(builder.remote("no-such-channel").install().is_err());
}

#[test]
fn without_a_sink_the_chain_ends_and_a_removed_sink_keeps_its_numbers() {
    let Some(stage) = Stage::set("without", FORMAT, None) else {
        return;
    };
    let raise = || stage.raise(&Raise::new(&[1; 8]));
    raise();
    assert_eq!(stage.out(1).none, 1);
    let count = stage.subscription.count().expect("its counts");
    assert_eq!((count.delivered, count.filtered), (0, 1));
    stage.channel.add_sink(sink(2)).expect("it");
    stage.channel.add_sink(sink(2)).expect("it is one already");
    raise();
    assert_eq!(stage.out(2).sent, 1);
    assert!(stage.channel.remove_sink(sink(2)).expect("it was one"));
    assert!(!stage.channel.remove_sink(sink(2)).expect("it is none"));
    assert!(!stage.channel.remove_sink(sink(9)).expect("it never was"));
    raise();
    let out = stage.out(3);
    assert_eq!((out.none, out.sent), (2, 1));
    stage.channel.add_sink(sink(2)).expect("it");
    raise();
    stage.out(4);
    let sinks: Vec<Sink> = stage.stat().sinks;
    assert_eq!((sinks.len(), sinks[0].sent), (1, 2));
    let six = stage.channel.add_sink("::1".parse().expect("an address"));
    assert!(six.expect_err("IPv6").to_string().contains("IPv6"));
}

#[test]
fn sinks_of_a_channel_are_limited_and_the_last_one_gets_its_frames() {
    let Some(stage) = Stage::set("limit", FORMAT, None) else {
        return;
    };
    for number in 1..=64 {
        stage.channel.add_sink(sink(number)).expect("there is room");
    }
    assert!(stage.channel.add_sink(sink(65)).is_err());
    stage.raise(&Raise::new(&[1; 8]));
    for number in 1..=64 {
        frame_in(&stage.tap.next(), sink(number));
    }
    assert_eq!(stage.out(1).sent, 64);
}

#[test]
fn what_the_interface_does_not_take_is_counted_by_its_reason() {
    let Some(stage) = Stage::set("refused", "u8 byte[2152]", None) else {
        return;
    };
    stage.channel.add_sink(sink(2)).expect("it");
    ip("link set lo mtu 1000");
    stage.raise(&Raise::new(&data(2152)));
    stage.raise(&Raise::new(&data(100)));
    let out = stage.out(2);
    assert_eq!((out.refused[REMOTE_SIZE], out.sent), (1, 1), "{out:?}");
    ip("link set lo down");
    stage.raise(&Raise::new(&data(100)));
    let out = stage.out(3);
    assert_eq!((out.refused[REMOTE_FAILED], out.sent), (1, 1), "{out:?}");
    ip("link set lo up");
    stage.raise(&Raise::new(&data(100)));
    assert_eq!(stage.out(4).sent, 2);
    assert_eq!(
        stage.stat().sinks[0].sent,
        2,
        "what was refused has no number"
    );
}

#[test]
fn each_event_of_a_flood_is_sent_or_counted() {
    const EVENTS: u64 = 5000;
    let Some(stage) = Stage::set("flood", "u8 byte[2152]", None) else {
        return;
    };
    stage.channel.add_sink(sink(2)).expect("it");
    stage.channel.add_sink(sink(3)).expect("it");
    for at in 0..EVENTS {
        stage.raise(&Raise::new(&data(2152 - at as usize % 2)));
    }
    let out = stage.out(EVENTS);
    assert_eq!(out.fanned + out.refused[REMOTE_FULL], EVENTS, "{out:?}");
    assert_eq!(out.sent, 2 * out.fanned);
    let count = stage.subscription.count().expect("its counts");
    let full = count.dropped[DropReason::RingFull as usize];
    assert_eq!((count.offered, count.delivered + full), (EVENTS, EVENTS));
    assert_eq!(full, out.refused[REMOTE_FULL]);
}

#[test]
fn events_for_a_channel_that_is_closed_are_counted_and_reach_no_later_one() {
    let Some(stage) = Stage::set("closed", FORMAT, None) else {
        return;
    };
    stage.channel.add_sink(sink(2)).expect("it");
    let closed = |stage: &Ecalls| channels(stage).expect("the counts").2.refused[REMOTE_CLOSED];
    let holder = Channel::open(&stage.ecalls, "remote-holder", FORMAT, "", "lo").expect("it");
    let before = closed(&stage.ecalls);
    let Stage {
        ecalls,
        channel,
        name,
        tap,
        subscription,
        _service,
        source,
    } = stage;
    drop(channel);
    let raise = || ecalls.raise(&source, &Raise::new(&[1; 8])).expect("raised");
    raise();
    let again = Channel::open(&ecalls, &name, FORMAT, "", "lo").expect("it is free");
    again.add_sink(sink(2)).expect("it");
    raise();
    wait_until("they are counted", || closed(&ecalls) == before + 2);
    let count = subscription.count().expect("its counts");
    assert_eq!(count.dropped[DropReason::ChannelGone as usize], 2);
    let (all, ..) = channels(&ecalls).expect("the channels");
    let now = all
        .iter()
        .find(|stat| stat.name == name)
        .expect("it is open");
    assert_eq!(now.out, LaneOut::default());
    assert_eq!(tap.rest(), 0);
    drop(holder);
}
