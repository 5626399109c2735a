//! A channel whose frames go by the relay: frames that are given to the kernel side by hand pass
//! the same checks as those of the lane, and events of the kernel become frames for each sink.
//! Needs root, and no network: the relay is a list.

#![allow(unsafe_code, reason = "the harness moves threads between namespaces")]

mod harness;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ecalls::{Ecalls, Raise};
use ecalls_abi::lane::{
    FRAME_CLOSED, FRAME_DUPLICATE, FRAME_FORMAT, FRAME_MALFORMED, FRAME_OWN, FRAME_REASONS,
    FRAME_SIZE, FRAME_STALE, FRAME_VERSION,
};
use ecalls_abi::version::DATA_MAX;
use ecalls_channel::frame::{self, Origin, Submission};
use ecalls_channel::set_out;
use ecalls_channel::source::{LaneStat, channels};
use ecalls_kernel::lane::{HostedLane, Transport};
use ecalls_kernel::owner::Owner;
use harness::{FORMAT, OTHER, PATIENCE, core, origin_of, stat_of, wait_until};

const THIRD: u64 = 0x0200_0000_0008;

/// What was sent, and to whom.
#[derive(Debug, Default)]
struct List {
    sent: Mutex<Vec<(u64, Vec<u8>)>>,
    is_gone: AtomicBool,
}

impl Transport for List {
    fn send(&self, host: u64, frame: &[u8]) -> io::Result<()> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.sent
            .lock()
            .expect("no test has failed")
            .push((host, frame.to_vec()));
        Ok(())
    }
}

struct Stage {
    lane: HostedLane,
    list: Arc<List>,
    service: ecalls::Service,
    ecalls: Ecalls,
    name: String,
}

impl Stage {
    fn set(name: &str) -> Option<Stage> {
        let ecalls = core()?;
        let name = format!("{name}-{}", std::process::id());
        let service = ecalls.register_service(&name, FORMAT, "").expect("it");
        let core = Arc::clone(ecalls.core().expect("it is hosted here"));
        let owner = Owner::current(&core).expect("it");
        let list = Arc::new(List::default());
        let transport = Arc::clone(&list) as Arc<dyn Transport>;
        let index = service.index();
        let lane = HostedLane::open_relayed(core, &owner, &name, index, None, transport);
        Some(Stage {
            lane: lane.expect("it"),
            list,
            service,
            ecalls,
            name,
        })
    }

    fn origin(&self, sequence: u64) -> Origin {
        origin_of(&self.name, sequence)
    }

    fn frame(&self, origin: &Origin, attributes: &[(u8, u64)]) -> Vec<u8> {
        let submission = Submission {
            data: origin.sequence.to_ne_bytes().to_vec(),
            attributes: attributes.to_vec(),
            ..Submission::default()
        };
        frame::write(origin, &submission).expect("a frame")
    }

    fn stat(&self) -> LaneStat {
        stat_of(&self.ecalls, &self.name)
    }

    /// A frame that must be taken, and refused for this reason only.
    fn is_refused(&self, bytes: &[u8], reason: usize) {
        let before = self.stat().count;
        assert!(self.lane.arrive(bytes).expect("it is run"));
        let after = self.stat().count;
        let mut expected = [0; FRAME_REASONS];
        expected[reason] = 1;
        let refused = after.refused.iter().zip(before.refused);
        let refused: Vec<u64> = refused.map(|(after, before)| after - before).collect();
        assert_eq!(refused, expected, "of {bytes:02x?}");
        assert_eq!(after.frames, before.frames + 1);
    }

    fn sent(&self, count: usize) -> Vec<(u64, Origin, Submission)> {
        let sent = || self.list.sent.lock().expect("no test has failed");
        wait_until("so many have been sent", || sent().len() >= count);
        let sent = std::mem::take(&mut *sent());
        assert_eq!(sent.len(), count);
        let read = sent.into_iter().map(|(host, bytes)| {
            let (origin, submission) = frame::read(&bytes).expect("a frame");
            (host, origin, submission)
        });
        read.collect()
    }
}

#[test]
fn frames_given_by_hand_pass_the_checks_of_the_lane() {
    let Some(stage) = Stage::set("relayed-in") else {
        return;
    };
    let mut memory = stage.ecalls.channel().open().expect("a channel");
    let builder = stage.ecalls.subscribe(&stage.name).expect("a service");
    let _subscription = builder.memory(&memory).install().expect("it");
    let mut next = || {
        let event = memory.recv_timeout(PATIENCE).expect("a living core");
        let event = event.expect("an event");
        u64::from_ne_bytes(event.data_bytes().try_into().expect("a number"))
    };
    for sequence in [100, 102, 101] {
        let frame = stage.frame(&stage.origin(sequence), &[]);
        assert!(stage.lane.arrive(&frame).expect("it is run"));
        assert_eq!(next(), sequence);
    }
    let good = stage.frame(&stage.origin(103), &[]);
    let at = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        bytes
    };
    stage.is_refused(&stage.frame(&stage.origin(101), &[]), FRAME_DUPLICATE);
    stage.is_refused(&stage.frame(&stage.origin(1), &[]), FRAME_STALE);
    let own = Origin {
        host: stage.lane.numbers().channel().host,
        ..stage.origin(103)
    };
    stage.is_refused(&stage.frame(&own, &[]), FRAME_OWN);
    let other = Origin {
        format: 1,
        ..stage.origin(103)
    };
    stage.is_refused(&stage.frame(&other, &[]), FRAME_FORMAT);
    stage.is_refused(&good[..good.len() - 1], FRAME_SIZE);
    stage.is_refused(&at(4, 9), FRAME_VERSION);
    stage.is_refused(&at(75, 1), FRAME_MALFORMED);
    // Of another channel, without a mark, empty, too long.
    let unknown = Origin {
        channel: 1,
        ..stage.origin(103)
    };
    for bytes in [&stage.frame(&unknown, &[])[..], &at(0, 0), &[]] {
        assert!(
            !stage.lane.arrive(bytes).expect("it is run"),
            "{bytes:02x?}"
        );
    }
    let long = vec![0; 160 + DATA_MAX + 1];
    assert!(stage.lane.arrive(&long).is_err());

    let count = stage.stat().count;
    let refused: u64 = count.refused.iter().sum();
    assert_eq!((count.raised, refused), (3, 7), "{count:?}");
    let (host, source) = &stage.stat().sources[0];
    assert_eq!((*host, source.window.fresh), (OTHER, 3));

    // The largest frame, which its format does not describe, and one for a service that has ended.
    let largest = Submission {
        data: vec![7; DATA_MAX],
        ..Submission::default()
    };
    let largest = frame::write(&stage.origin(104), &largest).expect("a frame");
    stage.is_refused(&largest, FRAME_FORMAT);
    drop(stage.service);
    let (all, ..) = channels(&stage.ecalls).expect("the channels");
    drop(all);
    assert!(stage.lane.arrive(&good).expect("it is run"));
    let (all, ..) = channels(&stage.ecalls).expect("the channels");
    let closed = all.iter().map(|stat| stat.count.refused[FRAME_CLOSED]);
    assert_eq!(closed.sum::<u64>(), 1);
}

#[test]
fn events_of_the_kernel_become_a_frame_for_each_sink_that_the_filter_chooses() {
    let Some(stage) = Stage::set("relayed-out") else {
        return;
    };
    let source = format!("{}-src", stage.name);
    let _service = stage.ecalls.register_service(&source, FORMAT, "");
    let builder = stage.ecalls.subscribe(&source).expect("a service");
    let _subscription = builder.remote(&stage.name).install().expect("it");
    let raise = |value: u64| {
        let data = value.to_ne_bytes();
        let raised = stage.ecalls.raise(&source, &Raise::new(&data));
        assert_eq!(raised.expect("raised"), 1);
    };
    raise(1);
    wait_until("nobody gets it", || stage.stat().out.none == 1);
    stage.lane.add_host(OTHER).expect("there is room");
    stage.lane.add_host(THIRD).expect("there is room");
    raise(2);
    let sent = stage.sent(2);
    for (host, origin, submission) in &sent {
        let own = stage.lane.numbers().channel();
        assert_eq!((origin.host, origin.epoch), (own.host, own.epoch));
        assert_eq!(origin.sequence, 1, "to {host:x}");
        assert_eq!(submission.data, 2u64.to_ne_bytes());
    }
    assert_eq!((sent[0].0, sent[1].0), (OTHER, THIRD));

    // A sink tells its load by the relay.
    let text = ("out", "for (s in sinks) if (s.load > 80) reject(s);");
    let load = ["load".to_owned()];
    set_out(&stage.ecalls, &stage.name, Some(text), &load).expect("a filter");
    let told = stage.frame(&stage.origin(1), &[(0, 90)]);
    assert!(stage.lane.arrive(&told).expect("it is run"));
    raise(3);
    let [(host, origin, _)] = &stage.sent(1)[..] else {
        panic!("one was chosen");
    };
    assert_eq!((*host, origin.sequence), (THIRD, 2));

    // The relay is gone: what fails has a number.
    stage.list.is_gone.store(true, Ordering::Relaxed);
    raise(4);
    wait_until("it has failed", || stage.stat().sinks[1].failed == 1);
    stage.list.is_gone.store(false, Ordering::Relaxed);
    raise(5);
    assert_eq!(stage.sent(1)[0].1.sequence, 4);
    assert!(stage.lane.remove_host(THIRD).expect("it"));
    raise(6);
    wait_until("nobody gets it", || stage.stat().out.filtered == 1);
    assert_eq!(stage.sent(0), []);

    let data = 7u64.to_ne_bytes();
    let late = Raise::new(&data).deadline(Duration::from_secs(60));
    stage.lane.add_host(THIRD).expect("there is room");
    stage.ecalls.raise(&source, &late).expect("raised");
    let left_ns = stage.sent(1)[0].2.left_ns;
    assert!((1..=60_000_000_000).contains(&left_ns), "{left_ns}");

    wait_until("the last one is counted", || stage.stat().out.sent == 6);
    let LaneStat { out, sinks, .. } = stage.stat();
    assert_eq!((out.events, out.none, out.filtered), (7, 1, 1));
    assert_eq!((out.fanned, out.frames, out.sent), (5, 6, 6));
    assert_eq!(sinks[0].host(), Some(OTHER));
    assert_eq!((sinks[0].sent, sinks[1].sent), (1, 5));
}
