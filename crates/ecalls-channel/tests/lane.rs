//! The lane in the kernel: good frames become events, all others are counted with their reasons and
//! become none. Needs root.
//!
//! Each test has a network namespace of its own with nothing but its loopback interface, on which
//! it is both this host and the others, whose frames it writes itself.

#![allow(unsafe_code, reason = "the harness moves threads between namespaces")]

mod harness;

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use ecalls::{Channel as Memory, Ecalls, Event};
use ecalls_abi::lane::{
    FRAME_CLOSED, FRAME_DUPLICATE, FRAME_FORMAT, FRAME_MALFORMED, FRAME_OWN, FRAME_REASONS,
    FRAME_SIZE, FRAME_STALE, FRAME_VERSION, LaneCount,
};
use ecalls_abi::version::DATA_MAX;
use ecalls_abi::wire::{WIRE_PORT, text_id};
use ecalls_channel::frame::{self, Origin, Submission};
use ecalls_channel::source::{LaneStat, channels};
use ecalls_channel::{Channel, Publisher};
use ecalls_kernel::lane::HostedLane;
use ecalls_kernel::owner::Owner;
use harness::{FORMAT, OTHER, PATIENCE, QUIET, core, origin_of, own_network, stat_of, wait_until};

/// A channel on the loopback interface, and a reader of its events.
struct Stage {
    ecalls: Ecalls,
    channel: Channel,
    memory: Memory,
    name: String,
    socket: UdpSocket,
    _subscription: ecalls::Subscription,
}

impl Stage {
    fn set(name: &str) -> Option<Stage> {
        Stage::with_format(name, FORMAT)
    }

    fn with_format(name: &str, format: &str) -> Option<Stage> {
        let ecalls = core()?;
        own_network();
        let name = format!("{name}-{}", std::process::id());
        let channel = Channel::open(&ecalls, &name, format, "normal high", "lo").expect("it");
        let memory = ecalls.channel().open().expect("a channel");
        let subscription = ecalls
            .subscribe(&name)
            .expect("a service")
            .memory(&memory)
            .install();
        Some(Stage {
            _subscription: subscription.expect("a subscription"),
            socket: ecalls_kernel::sender(WIRE_PORT, [127, 0, 0, 1].into()).expect("root may"),
            ecalls,
            channel,
            memory,
            name,
        })
    }

    fn origin(&self, sequence: u64) -> Origin {
        origin_of(&self.name, sequence)
    }

    /// A good frame of another host, whose data is its number.
    fn frame(&self, sequence: u64) -> Vec<u8> {
        let data = sequence.to_ne_bytes().to_vec();
        let submission = Submission {
            data,
            ..Submission::default()
        };
        frame::write(&self.origin(sequence), &submission).expect("a frame")
    }

    fn send(&self, bytes: &[u8]) {
        self.socket
            .send_to(bytes, ("127.0.0.1", WIRE_PORT))
            .expect("sent");
    }

    fn stat(&self) -> LaneStat {
        stat_of(&self.ecalls, &self.name)
    }

    /// The counts once so many frames have arrived.
    fn arrived(&self, frames: u64) -> LaneCount {
        wait_until("the frames have arrived", || {
            self.stat().count.frames >= frames
        });
        let count = self.stat().count;
        assert_eq!(count.frames, frames);
        let refused: u64 = count.refused.iter().sum();
        assert_eq!(count.frames, count.raised + refused, "{count:?}");
        count
    }

    fn next(&mut self) -> Event {
        let event = self.memory.recv_timeout(PATIENCE).expect("a living core");
        event.expect("an event")
    }

    fn nothing_comes(&mut self) {
        let event = self.memory.recv_timeout(QUIET).expect("a living core");
        assert!(event.is_none(), "{event:?}");
    }

    /// Sends a frame that must be refused for this reason, and for no other.
    fn refused(&mut self, bytes: &[u8], reason: usize) {
        let before = self.stat().count;
        self.send(bytes);
        let after = self.arrived(before.frames + 1);
        let mut expected = [0; FRAME_REASONS];
        expected[reason] = 1;
        let refused: Vec<_> = after
            .refused
            .iter()
            .zip(before.refused)
            .map(|(a, b)| a - b)
            .collect();
        assert_eq!(refused, expected, "of {bytes:02x?}");
    }
}

fn value(event: &Event) -> u64 {
    u64::from_ne_bytes(event.data_bytes().try_into().expect("a number"))
}

#[test]
fn frame_of_another_host_becomes_an_event() {
    let Some(mut stage) = Stage::set("event") else {
        return;
    };
    let submission = Submission {
        data: 77u64.to_ne_bytes().to_vec(),
        kind: 1,
        slot_type: 5,
        priority: 3,
        left_ns: 60_000_000_000,
        attributes: vec![(4, 40), (31, u64::MAX)],
    };
    let before_ns = ecalls_kernel::now_ns();
    stage.send(&frame::write(&stage.origin(9), &submission).expect("a frame"));
    let event = stage.next();
    assert_eq!(value(&event), 77);
    assert_eq!((event.kind, event.r#type, event.priority), (1, 5, 3));
    assert_eq!(event.service, stage.channel.service().index());
    assert_eq!(event.host(), Some(OTHER));
    assert_eq!(
        (event.process(), event.uid),
        ((0, 0), 0),
        "of no process here, and root's channel"
    );
    let left_ns = event.deadline_ns - event.raise_ns;
    assert!(event.raise_ns >= before_ns);
    // The time between the program's clock and raise()'s is not the frame's.
    assert!(
        left_ns <= 60_000_000_000 && left_ns > 59_000_000_000,
        "{left_ns}"
    );
    let stat = stage.stat();
    let [(host, source)] = stat.sources[..] else {
        panic!("{stat:?}")
    };
    assert_eq!(host, OTHER);
    assert_eq!(
        (source.value[4], source.value[31], source.value[0]),
        (40, u64::MAX, 0)
    );
    assert!(source.told_ns >= before_ns);
    assert_eq!((source.window.first, source.window.highest), (9, 9));
    assert_eq!((source.window.fresh, source.window.missing()), (1, 0));
    assert_eq!(stage.arrived(1).raised, 1);
}

#[test]
fn number_of_another_host_is_no_process_of_this_one() {
    let Some(mut stage) = Stage::set("process") else {
        return;
    };
    let memory = stage.ecalls.channel().open().expect("a channel");
    let builder = stage.ecalls.subscribe(&stage.name).expect("it");
    let subscription = builder.pid(OTHER as u32).memory(&memory).install();
    let subscription = subscription.expect("a subscription");
    for (sequence, high) in [(1, 0), (2, 0xffff_ffff)] {
        let origin = Origin {
            host: OTHER | high << 32,
            ..stage.origin(sequence)
        };
        let submission = Submission {
            data: vec![0; 8],
            ..Submission::default()
        };
        stage.send(&frame::write(&origin, &submission).expect("a frame"));
        assert_eq!(stage.next().host(), Some(origin.host));
    }
    assert_eq!(subscription.count().expect("its count").offered, 0);
}

#[test]
fn frames_with_much_and_with_few_data_in_turn_arrive_with_their_own_only() {
    let format = format!("u64 word[{}]", DATA_MAX / 8);
    let Some(mut stage) = Stage::with_format("large", &format) else {
        return;
    };
    for (sequence, size) in (1..).zip([DATA_MAX, 8, 169, 0, 1000, 168, 416]) {
        let data: Vec<u8> = (0..size).map(|at| (at * 3 + size) as u8).collect();
        let submission = Submission {
            data: data.clone(),
            ..Submission::default()
        };
        let origin = Origin {
            format: text_id(&format),
            ..stage.origin(sequence)
        };
        stage.send(&frame::write(&origin, &submission).expect("a frame"));
        let event = stage.next();
        assert_eq!(event.data_bytes(), data, "{size} bytes");
    }
    assert_eq!(stage.arrived(7).raised, 7);
}

#[test]
fn late_frame_is_discarded_by_its_time_left() {
    let Some(mut stage) = Stage::set("late") else {
        return;
    };
    let submission = Submission {
        data: vec![1; 8],
        left_ns: 1,
        ..Submission::default()
    };
    stage.send(&frame::write(&stage.origin(1), &submission).expect("a frame"));
    stage.arrived(1);
    stage.nothing_comes();
    let service = stage.channel.service().index();
    let count = stage
        .ecalls
        .access()
        .service_stat(service)
        .expect("it")
        .count;
    assert_eq!((count.raised, count.late), (1, 1));
}

#[test]
fn damaged_and_forged_frames_are_refused_with_their_reasons() {
    let Some(mut stage) = Stage::set("forged") else {
        return;
    };
    let good = stage.frame(1);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    // Truncated in the data, longer than it says, saying more than it has, too much for an event.
    stage.refused(&good[..good.len() - 1], FRAME_SIZE);
    stage.refused(&good[..160], FRAME_SIZE);
    stage.refused(&[&good[..], &[0]].concat(), FRAME_SIZE);
    stage.refused(&with(6, &9u16.to_le_bytes()), FRAME_SIZE);
    stage.refused(&with(6, &u16::MAX.to_le_bytes()), FRAME_SIZE);
    let mut large = good[..160].to_vec();
    large.resize(160 + DATA_MAX + 1, 7);
    large[6..8].copy_from_slice(&(DATA_MAX as u16 + 1).to_le_bytes());
    stage.refused(&large, FRAME_SIZE);
    // More than the format describes.
    for bytes in [9, DATA_MAX] {
        let longer = Submission {
            data: vec![7; bytes],
            ..Submission::default()
        };
        let longer = frame::write(&stage.origin(1), &longer).expect("a frame");
        stage.refused(&longer, FRAME_FORMAT);
    }
    stage.refused(&with(4, &2u16.to_le_bytes()), FRAME_VERSION);
    // No host, no epoch, no number; fields of later versions; a kind, attributes and their numbers.
    for at in [16, 24, 32] {
        stage.refused(&with(at, &[0; 8]), FRAME_MALFORMED);
    }
    for at in [48, 56] {
        stage.refused(&with(at, &[0, 0, 0, 0, 0, 0, 0, 1]), FRAME_MALFORMED);
    }
    stage.refused(&with(72, &32u32.to_le_bytes()), FRAME_MALFORMED);
    stage.refused(&with(84, &9u32.to_le_bytes()), FRAME_MALFORMED);
    stage.refused(&with(84, &u32::MAX.to_le_bytes()), FRAME_MALFORMED);
    stage.refused(&with(88, &[32]), FRAME_MALFORMED);
    stage.refused(&with(95, &[0xff]), FRAME_MALFORMED);
    stage.refused(&with(40, &[1; 8]), FRAME_FORMAT);
    stage.refused(&with(16, &stage.channel.host().to_le_bytes()), FRAME_OWN);
    stage.nothing_comes();
    assert!(
        stage.stat().sources.is_empty(),
        "no refused frame leaves a source"
    );
    stage.send(&good);
    assert_eq!(
        value(&stage.next()),
        1,
        "none of these has shifted the window"
    );
}

#[test]
fn frame_that_is_cut_in_its_header_is_counted_for_no_channel() {
    let Some(mut stage) = Stage::set("cut") else {
        return;
    };
    let good = stage.frame(1);
    let unnamed = |stage: &Stage| channels(&stage.ecalls).expect("the counts").1;
    let before = unnamed(&stage);
    for bytes in [4, 8, 100, 159] {
        stage.send(&good[..bytes]);
    }
    wait_until("they have arrived", || {
        unnamed(&stage).frames >= before.frames + 4
    });
    let refused = unnamed(&stage).refused[FRAME_SIZE] - before.refused[FRAME_SIZE];
    assert!(refused >= 4, "{refused}");
    stage.nothing_comes();
    assert_eq!(stage.stat().count, LaneCount::default());
}

#[test]
fn what_is_no_frame_of_a_channel_goes_on_to_the_network_stack() {
    let Some(mut stage) = Stage::set("stranger") else {
        return;
    };
    stage
        .socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout");
    let mut other = stage.origin(1);
    other.channel ^= 1;
    let other = frame::write(&other, &Submission::default()).expect("a frame");
    for bytes in [&other[..], b"no frame", &[], &[0x45, 0x43, 0x4c]] {
        stage.send(bytes);
        let mut received = [0; 512];
        let (size, _) = stage.socket.recv_from(&mut received).expect("it went on");
        assert_eq!(&received[..size], bytes);
    }
    // A frame from a port from which every user may send.
    let anybody = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    anybody
        .send_to(&stage.frame(1), ("127.0.0.1", WIRE_PORT))
        .expect("sent");
    let mut received = [0; 512];
    stage.socket.recv_from(&mut received).expect("it went on");
    stage.nothing_comes();
    assert_eq!(stage.stat().count, LaneCount::default());
}

#[test]
fn replayed_and_reordered_frames_are_counted_and_each_is_raised_once() {
    let Some(mut stage) = Stage::set("replay") else {
        return;
    };
    for sequence in [10, 12, 11, 12, 10, 80, 9, 17, 80, 16] {
        stage.send(&stage.frame(sequence));
    }
    let count = stage.arrived(10);
    let events: Vec<u64> = (0..count.raised).map(|_| value(&stage.next())).collect();
    stage.nothing_comes();
    // 9 and 16 are more than 63 before 80.
    assert_eq!(events, [10, 12, 11, 80, 17]);
    assert_eq!(count.refused[FRAME_DUPLICATE], 3);
    assert_eq!(count.refused[FRAME_STALE], 2);
    let window = stage.stat().sources[0].1.window;
    assert_eq!((window.first, window.highest, window.fresh), (10, 80, 5));
    assert_eq!(window.missing(), 71 - 5);
    assert_eq!((window.duplicate, window.stale), (3, 2));
}

#[test]
fn a_host_that_opens_its_channel_again_begins_anew_and_its_old_frames_are_stale() {
    let Some(mut stage) = Stage::set("epoch") else {
        return;
    };
    let frame = |epoch: u64, sequence: u64| {
        let origin = Origin {
            epoch,
            ..stage.origin(sequence)
        };
        let data = sequence.to_ne_bytes().to_vec();
        frame::write(
            &origin,
            &Submission {
                data,
                ..Submission::default()
            },
        )
        .expect("a frame")
    };
    let frames = [
        frame(5, 100),
        frame(5, 104),
        frame(6, 1),
        frame(5, 105),
        frame(6, 2),
        frame(6, 4),
    ];
    for bytes in frames {
        stage.send(&bytes);
    }
    let count = stage.arrived(6);
    assert_eq!(count.refused[FRAME_STALE], 1);
    let events: Vec<u64> = (0..count.raised).map(|_| value(&stage.next())).collect();
    assert_eq!(events, [100, 104, 1, 2, 4]);
    let window = stage.stat().sources[0].1.window;
    assert_eq!((window.epoch, window.fresh), (6, 5));
    assert_eq!(window.missing(), 3 + 1, "of both epochs");
}

#[test]
fn a_filter_at_the_sink_runs_where_the_frame_arrives() {
    let Some(stage) = Stage::set("filter") else {
        return;
    };
    let filtered = stage.ecalls.channel().open().expect("a channel");
    let subscription = stage
        .ecalls
        .subscribe(&stage.name)
        .expect("it")
        .ecode("return value % 3 == 0;")
        .memory(&filtered)
        .install()
        .expect("a filter");
    for sequence in 1..=9 {
        stage.send(&stage.frame(sequence));
    }
    stage.arrived(9);
    let count = subscription.count().expect("its counts");
    assert_eq!((count.delivered, count.filtered), (3, 6));
}

#[test]
fn own_frames_are_numbered_by_sink_and_go_to_sinks_and_own_subscriptions() {
    let Some(mut stage) = Stage::set("publish") else {
        return;
    };
    let sinks = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
    let first = Publisher::new(&stage.ecalls, &stage.name, sinks).expect("it is open");
    let second = Publisher::new(&stage.ecalls, &stage.name, sinks).expect("it is open");
    let submission = Submission {
        data: vec![3; 8],
        ..Submission::default()
    };
    for (number, publisher) in (1..=6).zip([&first, &second].into_iter().cycle()) {
        let sent = publisher.submit(&submission).expect("submitted");
        assert_eq!((sent.sinks, sent.offered), (2, 1));
        let sinks = stage.stat().sinks;
        assert_eq!(sinks.len(), 2);
        assert!(
            sinks.iter().all(|sink| sink.sent == number),
            "{number}: {sinks:?}"
        );
        assert!(sent.failed.is_empty(), "{sent:?}");
        assert_eq!(value(&stage.next()), 0x0303_0303_0303_0303);
    }
    // Here the sinks are this host itself, which does not take its own frames.
    let count = stage.arrived(12);
    assert_eq!(count.refused[FRAME_OWN], 12);
    stage.nothing_comes();
    let longer = Submission {
        data: vec![3; 9],
        ..Submission::default()
    };
    let refused = first.submit(&longer).expect_err("longer than its format");
    assert!(refused.to_string().contains("format"), "{refused}");
    assert_eq!(stage.stat().sinks[0].sent, 6, "it takes no number");
    assert!(
        first
            .submit(&Submission {
                data: vec![0; DATA_MAX + 1],
                ..submission
            })
            .is_err()
    );
    assert_eq!(
        stage.stat().sinks[0].sent,
        6,
        "what cannot be sent has no number"
    );
}

#[test]
fn channel_that_is_closed_is_free_again_and_its_frames_go_on() {
    let Some(stage) = Stage::set("close") else {
        return;
    };
    stage.send(&stage.frame(1));
    stage.arrived(1);
    let Stage {
        ecalls,
        channel,
        name,
        socket,
        _subscription,
        ..
    } = stage;
    let again = Channel::open(&ecalls, &name, FORMAT, "", "lo");
    assert!(again.is_err(), "it is open");
    let nowhere = Channel::open(&ecalls, "elsewhere", FORMAT, "", "no-such-if");
    let text = nowhere.expect_err("no interface").to_string();
    assert!(text.contains("no-such-if"), "{text}");
    drop(channel);
    let (open, ..) = channels(&ecalls).expect("the channels");
    assert!(open.iter().all(|stat| stat.name != name));
    assert!(Publisher::new(&ecalls, &name, []).is_err());
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a timeout");
    let origin = Origin {
        channel: text_id(&name),
        format: 1,
        host: 2,
        epoch: 3,
        sequence: 4,
    };
    let bytes = frame::write(&origin, &Submission::default()).expect("a frame");
    socket
        .send_to(&bytes, ("127.0.0.1", WIRE_PORT))
        .expect("sent");
    let mut received = [0; 512];
    assert!(
        socket.recv_from(&mut received).is_ok(),
        "no program takes it any more"
    );
    let reopened = Channel::open(&ecalls, &name, FORMAT, "", "lo").expect("it is free");
    let (open, ..) = channels(&ecalls).expect("the channels");
    let stat = open
        .iter()
        .find(|stat| stat.name == name)
        .expect("it is open");
    assert_eq!(stat.count, LaneCount::default());
    assert!(stat.sources.is_empty(), "the sources are those since then");
    drop(reopened);
}

#[test]
fn frames_of_a_channel_whose_service_has_ended_are_refused() {
    let Some(mut stage) = Stage::set("ended") else {
        return;
    };
    let name = format!("without-{}", std::process::id());
    let core = stage.ecalls.core().expect("hosted here");
    let owner = Owner::current(core).expect("this process");
    let service = stage
        .ecalls
        .register_service(&name, FORMAT, "")
        .expect("a service");
    let index = service.index();
    let lane = HostedLane::open(Arc::clone(core), &owner, &name, index, "lo").expect("it");
    drop(service);
    let origin = Origin {
        channel: text_id(&name),
        ..stage.origin(1)
    };
    let bytes = frame::write(&origin, &Submission::default()).expect("a frame");
    stage.send(&bytes);
    let refused = |stage: &Stage| {
        let (open, ..) = channels(&stage.ecalls).expect("the channels");
        let stat = open.iter().find(|stat| stat.channel.id == text_id(&name));
        stat.expect("it is open").count.refused[FRAME_CLOSED]
    };
    wait_until("it has arrived", || refused(&stage) == 1);
    stage.nothing_comes();
    drop(lane);
    stage.send(&stage.frame(1));
    assert_eq!(
        value(&stage.next()),
        1,
        "the other channel on the interface goes on"
    );
}
