//! The filter of a channel at the source (OUT): E-code that sees an event and all sinks, and
//! chooses those that get it, before there is a packet. Needs root.
//!
//! Each test has a network namespace of its own with nothing but its loopback interface, on which
//! the sinks are addresses.

#![allow(unsafe_code, reason = "the harness moves threads between namespaces")]

mod harness;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use ecalls::{Ecalls, Raise};
use ecalls_abi::sink::{LaneOut, REMOTE_FULL};
use ecalls_abi::wire::{WIRE_PORT, text_id};
use ecalls_channel::frame::{self, Origin, Submission};
use ecalls_channel::source::LaneStat;
use ecalls_channel::{Channel, Publisher};
use harness::{FORMAT, PATIENCE, core, own_network, stat_of, wait_until};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, socket};

/// The number of the attribute `load` in the frames of sinks.
const LOAD: u8 = 3;
const NAMES: [&str; 4] = ["a", "b", "c", "load"];

/// A channel with the sinks 127.0.0.2 and 127.0.0.3, and a service whose events go there.
struct Stage {
    ecalls: Ecalls,
    channel: Channel,
    name: String,
    source: String,
    sinks: [UdpSocket; 2],
    told: u64,
    events: u64,
    _service: ecalls::Service,
    _subscription: ecalls::Subscription,
}

/// A socket at the lane's port of this address, beside that of a publisher of this host.
fn socket_of(address: IpAddr) -> UdpSocket {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
    set_socket_reuseaddr(&socket, true).expect("it may");
    bind(&socket, &SocketAddr::new(address, WIRE_PORT)).expect("root may");
    UdpSocket::from(socket)
}

impl Stage {
    fn set(name: &str) -> Option<Stage> {
        let ecalls = core()?;
        own_network();
        let name = format!("{name}-{}", std::process::id());
        let source = format!("{name}-src");
        let channel = Channel::open(&ecalls, &name, FORMAT, "", "lo").expect("it");
        let service = ecalls.register_service(&source, FORMAT, "low high");
        let builder = ecalls.subscribe(&source).expect("it").remote(&name);
        let sinks = [2, 3].map(|number| {
            let address = IpAddr::from([127, 0, 0, number]);
            channel.add_sink(address).expect("it");
            socket_of(address)
        });
        Some(Stage {
            _subscription: builder.install().expect("a subscription"),
            _service: service.expect("a service"),
            ecalls,
            channel,
            name,
            source,
            sinks,
            told: 0,
            events: 0,
        })
    }

    fn stat(&self) -> LaneStat {
        stat_of(&self.ecalls, &self.name)
    }

    /// The sink tells its load, with a frame of its own on the channel.
    fn tell(&mut self, sink: usize, load: u64) {
        self.told += 1;
        let origin = Origin {
            channel: text_id(&self.name),
            format: text_id(FORMAT),
            host: 0x0200_0000_0000 + sink as u64,
            epoch: 1,
            sequence: self.told,
        };
        let submission = Submission {
            data: vec![0; 8],
            attributes: vec![(LOAD, load)],
            ..Submission::default()
        };
        let bytes = frame::write(&origin, &submission).expect("a frame");
        let raised = self.stat().count.raised;
        self.sinks[sink]
            .send_to(&bytes, ("127.0.0.1", WIRE_PORT))
            .expect("sent");
        wait_until("it has arrived", || self.stat().count.raised == raised + 1);
    }

    /// Frames so far to each sink, once everything that was raised has left the buffer.
    fn sent(&self) -> [u64; 2] {
        let left =
            |out: &LaneOut| out.none + out.filtered + out.fanned + out.refused.iter().sum::<u64>();
        wait_until("the events have left the buffer", || {
            let out = self.stat().out;
            // An event is counted before its frames have been sent.
            left(&out) >= self.events && out.frames == out.sent + out.late + out.gone
        });
        let stat = self.stat();
        let out = stat.out;
        assert_eq!((out.events, left(&out)), (self.events, self.events));
        assert_eq!(out.frames, out.sent + out.late + out.gone, "{out:?}");
        let sent = [0, 1].map(|sink: usize| stat.sinks[sink].sent);
        assert_eq!(sent[0] + sent[1], out.sent, "{out:?}");
        sent
    }

    /// The sinks to which an event with this value goes.
    fn chosen(&mut self, value: u64) -> [u64; 2] {
        let before = self.sent();
        self.raise(value);
        let after = self.sent();
        [0, 1].map(|sink: usize| after[sink] - before[sink])
    }

    fn raise(&mut self, value: u64) {
        let data = value.to_ne_bytes();
        let offered = self.ecalls.raise(&self.source, &Raise::new(&data));
        assert_eq!(offered.expect("raised"), 1);
        self.events += 1;
    }

    fn filter(&self, text: &str) {
        let warnings = self.channel.set_out(text, &NAMES).expect("a filter");
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

#[test]
fn a_filter_sees_the_event_and_what_the_sinks_have_told() {
    let Some(mut stage) = Stage::set("told") else {
        return;
    };
    stage.filter(
        "for (s in sinks)
             if (s.load > 0 && s.load <= (long)value && age(s) < 60000000000)
                 accept(s);",
    );
    assert_eq!(stage.chosen(100), [0, 0], "nobody has told anything");
    stage.tell(0, 10);
    stage.tell(1, 20);
    assert_eq!(stage.chosen(9), [0, 0]);
    assert_eq!(stage.chosen(15), [1, 0]);
    assert_eq!(stage.chosen(20), [1, 1]);
    stage.tell(0, 30);
    assert_eq!(stage.chosen(20), [0, 1]);
    let out = stage.stat().out;
    assert_eq!((out.filtered, out.fanned, out.failed), (2, 3, 0));
}

#[test]
fn without_accept_those_that_are_not_rejected_get_it_and_best_accepts() {
    let Some(mut stage) = Stage::set("modes") else {
        return;
    };
    stage.tell(0, 10);
    stage.tell(1, 20);
    assert_eq!(stage.chosen(1), [1, 1], "without a filter all");
    stage.filter("for (s in sinks) if (s.load > (long)value) reject(s);");
    assert_eq!(stage.chosen(15), [1, 0]);
    assert_eq!(stage.chosen(25), [1, 1]);
    stage.filter("best(1, -sink.load);");
    assert_eq!(stage.chosen(0), [1, 0]);
    stage.tell(0, 90);
    assert_eq!(stage.chosen(0), [0, 1]);
    stage.filter("for (s in sinks) if (s.id == value) accept(s);");
    assert_eq!(stage.chosen(1), [0, 1]);
    assert_eq!(stage.chosen(7), [0, 0]);
    stage.filter("return value > 5;");
    assert_eq!(stage.chosen(5), [0, 0]);
    assert_eq!(stage.chosen(6), [1, 1]);
    stage.channel.clear_out().expect("it is open");
    assert_eq!(stage.chosen(5), [1, 1]);
}

/// A recipe, which accepts one instead of `many` of its two sinks.
fn recipe(text: &str, many: u32) -> String {
    let best = format!("best({many},");
    assert!(text.contains(&best));
    text.replace(&best, "best(1,")
}

#[test]
fn recipes_balance_by_load_or_at_random_and_send_nothing_to_the_silent() {
    let Some(mut stage) = Stage::set("recipes") else {
        return;
    };
    // As managers tell, but for the numbers: `busy` is what `tell` tells.
    let names = "waiting memory_mib net_kib busy disk_kib cpu_free job_free address";
    let names: Vec<&str> = names.split(' ').collect();
    let least_busy = recipe(include_str!("../../../examples/ecode/least_busy.ec"), 3);
    stage
        .channel
        .set_out(&least_busy, &names)
        .expect("a filter");
    assert_eq!(stage.chosen(0), [0, 0], "all are silent");
    stage.tell(1, 900);
    assert_eq!(stage.chosen(0), [0, 1], "the other one is silent");
    stage.tell(0, 100);
    assert_eq!(stage.chosen(0), [1, 0]);
    stage.tell(1, 50);
    assert_eq!(stage.chosen(0), [0, 1]);

    let random_two = recipe(include_str!("../../../examples/ecode/random_two.ec"), 2);
    stage
        .channel
        .set_out(&random_two, &NAMES)
        .expect("a filter");
    let mut sent = [0, 0];
    for _ in 0..40 {
        let chosen = stage.chosen(0);
        assert_eq!(chosen[0] + chosen[1], 1);
        sent = [sent[0] + chosen[0], sent[1] + chosen[1]];
    }
    assert!(sent[0] > 5 && sent[1] > 5, "{sent:?}");
    assert_eq!(stage.stat().out.failed, 0);
}

fn submission(value: u64) -> Submission {
    Submission {
        data: value.to_ne_bytes().to_vec(),
        ..Submission::default()
    }
}

#[test]
fn what_a_program_submits_goes_to_those_that_the_filter_chooses_and_what_it_tells_to_all() {
    let Some(mut stage) = Stage::set("submit") else {
        return;
    };
    let memory = stage.ecalls.channel().ring(64).open().expect("memory");
    let own = stage.ecalls.subscribe(&stage.name).expect("it");
    let _own = own.memory(&memory).install().expect("a subscription");
    let publisher = Publisher::to_sinks(&stage.ecalls, &stage.name).expect("it is open");
    stage.tell(0, 10);
    stage.tell(1, 20);
    stage.filter("static u64 seen; seen++; for (s in sinks) if (s.load <= (long)value) accept(s);");
    let chosen = |stage: &mut Stage, value: u64| {
        let before = stage.sent();
        let sent = publisher.submit(&submission(value)).expect("submitted");
        assert!(sent.is_filtered && sent.failed.is_empty());
        assert_eq!((sent.sinks, sent.offered), (0, 1), "and to this host");
        stage.events += 1;
        let after = stage.sent();
        [0, 1].map(|sink: usize| after[sink] - before[sink])
    };
    assert_eq!(chosen(&mut stage, 15), [1, 0]);
    assert_eq!(chosen(&mut stage, 20), [1, 1]);
    assert_eq!(chosen(&mut stage, 5), [0, 0]);
    // Programs and the kernel share the filter, and its variables.
    assert_eq!(stage.chosen(15), [1, 0]);
    stage.filter("static u64 seen; return seen == 4;");
    assert_eq!(chosen(&mut stage, 0), [1, 1]);
    let fates = publisher.fates(PATIENCE).expect("counted");
    let fates = fates.map(|fate| (fate.delivered, fate.filtered));
    assert_eq!(fates, Some((3, 1)));

    stage.filter("return 0;");
    let before = stage.stat();
    let told = Submission {
        attributes: vec![(LOAD, 7)],
        ..submission(1)
    };
    let refused = publisher.submit(&told).expect_err("not by the kernel");
    assert!(refused.to_string().contains("tell"), "{refused}");
    let sent = publisher.tell(&told).expect("told");
    assert_eq!((sent.is_filtered, sent.sinks), (false, 2));
    let named = Publisher::new(&stage.ecalls, &stage.name, [IpAddr::from([127, 0, 0, 3])]);
    let sent = named.expect("it is open").submit(&submission(1));
    assert_eq!(sent.expect("submitted").sinks, 1, "which it names");
    stage.channel.clear_out().expect("it is open");
    let sent = publisher.submit(&submission(1)).expect("submitted");
    assert_eq!((sent.is_filtered, sent.sinks), (false, 2));
    let after = stage.stat();
    assert_eq!(after.out.events, before.out.events, "past the kernel side");
    let sent = [0, 1].map(|sink: usize| after.sinks[sink].sent - before.sinks[sink].sent);
    assert_eq!(sent, [2, 3]);
}

#[test]
fn a_filter_that_is_replaced_keeps_its_variables() {
    let Some(mut stage) = Stage::set("kept") else {
        return;
    };
    stage.filter("static u64 seen; seen++; return seen <= 2;");
    let sent: Vec<_> = (0..3).map(|_| stage.chosen(0)[0]).collect();
    assert_eq!(sent, [1, 1, 0]);
    stage.filter("static u64 seen; seen++; return seen > 4;");
    let sent: Vec<_> = (0..3).map(|_| stage.chosen(0)[0]).collect();
    assert_eq!(sent, [0, 1, 1], "seen goes on from 3");
}

#[test]
fn a_filter_that_fails_loses_no_event() {
    let Some(mut stage) = Stage::set("fails") else {
        return;
    };
    let text = "u32 a[2]; a[0] = 0; a[1] = 0; for (s in sinks) reject(s); return a[value & 7] + 1;";
    let warnings = stage.channel.set_out(text, &NAMES).expect("a filter");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(stage.chosen(1), [0, 0]);
    assert_eq!(stage.chosen(5), [1, 1]);
    let out = stage.stat().out;
    assert_eq!((out.failed, out.filtered), (1, 1));
    assert_ne!(out.fault, 0);
}

#[test]
fn what_is_no_filter_is_refused_and_the_former_one_remains() {
    let Some(mut stage) = Stage::set("refused") else {
        return;
    };
    stage.filter("for (s in sinks) if (s.id == 0) accept(s);");
    for text in [
        "return no_such_name;",
        "for (s in sinks) if (s.nothing > 1) reject(s);",
        "struct output { u64 x; }; output.x = 1;",
        "signal(40, 1);",
        "defer(10);",
    ] {
        let refused = stage.channel.set_out(text, &NAMES);
        assert!(refused.is_err(), "{text}");
    }
    assert_eq!(stage.chosen(0), [1, 0]);
}

#[test]
fn each_event_of_a_flood_is_filtered_by_the_former_filter_or_by_the_new_one() {
    let Some(mut stage) = Stage::set("flood") else {
        return;
    };
    let texts = [0, 1].map(|id| format!("for (s in sinks) if (s.id == {id}) accept(s);"));
    stage.filter(&texts[0]);
    let done = AtomicBool::new(false);
    let (ecalls, source) = (stage.ecalls.clone(), stage.source.clone());
    let raised = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut raised = 0;
            while !done.load(Ordering::Relaxed) {
                ecalls.raise(&source, &Raise::new(&[0; 8])).expect("raised");
                raised += 1;
            }
            raised
        });
        for turn in 1..=20 {
            stage.filter(&texts[turn % 2]);
        }
        done.store(true, Ordering::Relaxed);
        flood.join().expect("it does not panic")
    });
    stage.events += raised;
    let sent = stage.sent();
    let out = stage.stat().out;
    assert_eq!((out.filtered, out.failed), (0, 0), "{out:?}");
    assert_eq!(out.fanned + out.refused[REMOTE_FULL], raised);
    assert_eq!(out.sent, out.fanned, "each to one sink: {sent:?}");
}

#[test]
fn chains_of_one_event_never_make_more_tail_calls_than_the_kernel_permits() {
    const CHAINS: usize = 40;
    let Some(mut stage) = Stage::set("out-chains") else {
        return;
    };
    let subscribe = || stage.ecalls.subscribe(&stage.source).expect("it");
    let twice = subscribe().remote(&stage.name).remote(&stage.name);
    let error = twice.install().expect_err("two").to_string();
    assert!(error.contains("one in a chain"), "{error}");
    let more = (1..CHAINS).map(|_| subscribe().remote(&stage.name).install());
    let more: Vec<_> = more.map(|one| one.expect("a subscription")).collect();
    stage.filter("return 0;");
    let data = 1u64.to_ne_bytes();
    let offered = stage.ecalls.raise(&stage.source, &Raise::new(&data));
    assert_eq!(offered.expect("raised"), CHAINS as i64);
    stage.events += CHAINS as u64;
    assert_eq!(
        stage.sent(),
        [0, 0],
        "a filter that is not called chooses all"
    );
    assert_eq!(
        (stage.stat().out.filtered, stage.stat().out.failed),
        (CHAINS as u64, 0)
    );
    drop(more);
}
