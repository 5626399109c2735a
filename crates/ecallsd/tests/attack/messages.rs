//! At the socket: packets that are no messages, messages out of order, descriptors that nobody
//! asked for, answers that nobody reads.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use ecalls_abi::ABI_VERSION;
use ecalls_abi::message::{
    Answer, LookFate, Name, Number, OpenChannel, REFUSED_INVALID, REFUSED_VERSION, Request,
    SetParameter, Subscribe, WatchSocket,
};
use ecalls_abi::service::ServiceInfo;
use rustix::net::SendFlags;

use crate::actor::{Roles, Stage};
use crate::raw::{Raw, describe, hello, ring};
use crate::running::PATIENCE;
use crate::scene::{Scene, is_emulated};
use crate::tests;

tests! {
    packet_that_is_no_message_ends_its_own_connection_and_no_other
    messages_out_of_order_are_refused
    things_of_other_clients_cannot_be_ended
    descriptors_that_nobody_asked_for_are_closed
    sockets_in_flight_to_the_daemon_leave_nothing_behind
    answers_that_nobody_reads_hold_up_nobody
    messages_of_random_content_hurt_nobody
}

pub(crate) const ROLES: Roles = &[
    ("malformed", malformed),
    ("out of order", out_of_order),
    ("ends others' things", end_others_things),
    ("descriptors", descriptors),
    ("in flight", in_flight),
    ("never reads answers", never_read),
    ("random messages", random),
];

fn packet_that_is_no_message_ends_its_own_connection_and_no_other() {
    Scene::begin().attack("malformed", &[]);
}

fn messages_out_of_order_are_refused() {
    Scene::begin().attack("out of order", &[]);
}

fn things_of_other_clients_cannot_be_ended() {
    Scene::begin().attack("ends others' things", &[]);
}

fn descriptors_that_nobody_asked_for_are_closed() {
    Scene::begin().attack("descriptors", &[]);
}

fn sockets_in_flight_to_the_daemon_leave_nothing_behind() {
    Scene::begin().attack("in flight", &[]);
}

fn answers_that_nobody_reads_hold_up_nobody() {
    let scene = Scene::begin();
    let mut attacker = scene.attacker("never reads answers", &[]);
    attacker.expect("asks");
    // Another client still gets its answers.
    let (mut other, ..) = Raw::open().expect("the daemon");
    let start = Instant::now();
    let mut asked = 0;
    while start.elapsed() < Duration::from_secs(1) || asked < 2 && start.elapsed() < PATIENCE {
        let before = Instant::now();
        let answer = other.ask(&Request::LookQueue(Number::default()), &[]);
        answer.expect("an answer");
        let took = before.elapsed();
        assert!(
            took < Duration::from_secs(1) + scene.slack() || is_emulated(),
            "an answer took {took:?}"
        );
        asked += 1;
    }
    assert!(
        asked > 1 || is_emulated(),
        "only {asked} answers in {:?}",
        start.elapsed()
    );
    drop(other);
    attacker.say("end");
    attacker.expect("done");
    attacker.end();
    scene.end();
}

fn messages_of_random_content_hurt_nobody() {
    let scene = Scene::begin();
    let mut attackers: Vec<_> = (0..4)
        .map(|seed: u32| scene.attacker("random messages", &[&seed.to_string()]))
        .collect();
    for attacker in &mut attackers {
        attacker.expect("done");
    }
    for attacker in attackers {
        attacker.end();
    }
    scene.end();
}

/// Packets that are no requests.
fn broken_packets() -> Vec<Vec<u8>> {
    let good = Request::OpenChannel(ring(64)).packet(7).as_bytes().to_vec();
    let with = |at: usize, value: u32| {
        let mut packet = good.clone();
        packet[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        packet
    };
    let mut packets: Vec<_> = (1..good.len()).map(|end| good[..end].to_vec()).collect();
    for more in [1, 8, 2048 - good.len(), 4096, 60_000] {
        let mut packet = good.clone();
        packet.resize(good.len() + more, 0);
        packets.push(packet);
    }
    // version, kind, size
    packets.extend([0, 2, u32::MAX].map(|version| with(0, version)));
    packets.extend([0, 19, 20, 0xff, 0x100, 0x101, 0x103, u32::MAX].map(|kind| with(4, kind)));
    packets.extend([0, 15, 16, 39, 41, u32::MAX].map(|size| with(12, size)));
    packets.push(
        Answer::End(Default::default())
            .packet(7)
            .as_bytes()
            .to_vec(),
    );
    packets
}

/// A connection, of many that end: each is of the user's quota until the daemon has put away what
/// it had, which is after its end.
fn open_when_possible() -> Raw {
    let end = Instant::now() + PATIENCE;
    loop {
        match Raw::open() {
            Ok((raw, ..)) => return raw,
            Err(error) if error.to_string().contains("quota") && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("the daemon: {error}"),
        }
    }
}

fn malformed(stage: &mut Stage) {
    let (mut good, ..) = Raw::open().expect("the daemon");
    for packet in broken_packets() {
        for greeted in [false, true] {
            let raw = match greeted {
                true => open_when_possible(),
                false => Raw::connect().expect("the daemon"),
            };
            // Packets beyond the socket's buffer never leave.
            if raw.send(&packet, &[]).is_err() {
                continue;
            }
            // Told, and disconnected.
            match raw.receive().expect("no wait") {
                Some((_, (Answer::Refused(_), _))) => {}
                Some((_, (other, _))) => panic!("{} bytes: {}", packet.len(), describe(&other)),
                None => panic!("{} bytes: not told why", packet.len()),
            }
            assert!(raw.is_ended(), "{} bytes", packet.len());
        }
    }
    // The same process' other connection has not noticed.
    let channel = good.open_channel(&ring(64)).expect("a channel");
    assert_ne!(channel.id, 0);
    stage.say("done");
}

fn out_of_order(stage: &mut Stage) {
    for request in every_request().into_iter().skip(1) {
        let mut raw = Raw::connect().expect("the daemon");
        let (answer, _) = raw.ask(&request, &[]).expect("an answer");
        assert!(matches!(answer, Answer::Refused(_)), "{}", request.name());
        assert!(raw.is_ended(), "{} before HELLO", request.name());
    }
    // A second HELLO is one too many.
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let (answer, _) = raw.ask(&hello(), &[]).expect("an answer");
    let Answer::Refused(refused) = answer else {
        panic!("a second HELLO: {}", describe(&answer));
    };
    assert_eq!(refused.error, REFUSED_INVALID);
    // A library of another version is told so.
    let mut raw = Raw::connect().expect("the daemon");
    let old = Request::Hello(ecalls_abi::message::Hello {
        abi_version: ABI_VERSION - 1,
        pad: 0,
    });
    let (answer, _) = raw.ask(&old, &[]).expect("an answer");
    let Answer::Refused(refused) = answer else {
        panic!("an old library: {}", describe(&answer));
    };
    let told = (refused.error, refused.number);
    assert_eq!(told, (REFUSED_VERSION, u64::from(ABI_VERSION)));
    // Half a conversation: one request after the other, and nobody waits for the answers.
    for _ in 0..20 {
        let raw = Raw::connect().expect("the daemon");
        for (serial, request) in every_request().iter().enumerate().take(8) {
            let serial = u32::try_from(serial).expect("a few");
            let _ = raw.send(request.packet(serial).as_bytes(), &[]);
        }
    }
    stage.say("done");
}

/// One message of each kind, HELLO first.
fn every_request() -> Vec<Request> {
    let number = Number::default();
    vec![
        hello(),
        Request::OpenChannel(ring(64)),
        Request::CloseChannel(number),
        Request::Subscribe(Subscribe::default()),
        Request::Unsubscribe(number),
        Request::RegisterService(ServiceInfo::default()),
        Request::UnregisterService(number),
        Request::SetParameter(SetParameter::default()),
        Request::LookService(number),
        Request::FindService(Name::default()),
        Request::LookSubscription(number),
        Request::LookChannel(number),
        Request::LookQueue(number),
        Request::LookUser(number),
        Request::LookFate(LookFate::default()),
        Request::TakeMap(number),
    ]
}

fn end_others_things(stage: &mut Stage) {
    let (mut raw, ..) = Raw::open().expect("the daemon");
    // Ids are small numbers with a small generation: it guesses those of the victim, too.
    for index in 0..24u32 {
        for id in [index, index | 1 << 12, index | 2 << 12, index | 3 << 12] {
            let number = Number { number: id, pad: 0 };
            for request in [
                Request::CloseChannel(number),
                Request::Unsubscribe(number),
                Request::UnregisterService(number),
            ] {
                let refused = raw.value(&request);
                assert!(refused.is_err(), "{} {id}", request.name());
            }
        }
    }
    // Nor may it deliver into others' channels, or look at them.
    for id in (0..24).map(|index| index | 1 << 12) {
        let mut subscribe = Subscribe {
            service: 2,
            channel: id,
            actions: 1,
            ..Subscribe::default()
        };
        subscribe.action[0].kind = ecalls_abi::subscription::ACTION_MEMORY;
        subscribe.action[0].channel = id;
        assert!(raw.value(&Request::Subscribe(subscribe)).is_err());
    }
    for look in [
        Request::LookChannel,
        Request::LookSubscription,
        Request::TakeMap,
    ] {
        let (answer, fds) = raw.ask(&look(Number::default()), &[]).expect("an answer");
        assert!(
            matches!(answer, Answer::End(_) | Answer::Refused(_)),
            "{}",
            describe(&answer)
        );
        assert!(fds.is_empty());
    }
    stage.say("done");
}

fn descriptors(stage: &mut Stage) {
    let null = File::open("/dev/null").expect("a file");
    let socket = UnixDatagram::unbound().expect("a socket");
    // Beside a message that takes none, in every number up to what the kernel passes.
    for request in [
        hello(),
        Request::OpenChannel(ring(64)),
        Request::LookUser(Number::default()),
    ] {
        for count in [1, 2, 4, 5, 63, 253] {
            let fds: Vec<BorrowedFd<'_>> = vec![null.as_fd(); count];
            let raw = match request {
                Request::Hello(_) => Raw::connect().expect("the daemon"),
                _ => Raw::open().expect("the daemon").0,
            };
            match raw.send(request.packet(3).as_bytes(), &fds) {
                // The kernel keeps them out before HELLO (Linux 6.16).
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
                _ => {}
            }
            match raw.receive().expect("no wait") {
                Some((_, (Answer::Refused(_), fds))) => assert!(fds.is_empty()),
                Some((_, (other, _))) => panic!("{count} descriptors: {}", describe(&other)),
                None => {}
            }
            assert!(raw.is_ended(), "{count} descriptors");
        }
    }
    // Beside one that takes a socket: none, a file, two.
    let watch = Request::WatchSocket(WatchSocket::default());
    for fds in [&[][..], &[null.as_fd()], &[socket.as_fd(), socket.as_fd()]] {
        let raw = Raw::open().expect("the daemon").0;
        let _ = raw.send(watch.packet(3).as_bytes(), fds);
        let answer = raw.receive().expect("no wait");
        assert!(!matches!(answer, Some((_, (Answer::Done(_), _)))));
    }
    stage.say("done");
}

/// Sockets whose queues hold each other: only the kernel's collector frees them.
fn in_flight(stage: &mut Stage) {
    for _ in 0..200 {
        let (one, other) = UnixDatagram::pair().expect("sockets");
        let raw = Raw::connect().expect("the daemon");
        let ends = [
            one.as_fd(),
            other.as_fd(),
            raw.socket.as_fd(),
            raw.socket.as_fd(),
        ];
        // As many as the daemon's queue takes; nobody waits for what comes back.
        for _ in 0..4 {
            let sent = raw.send_with(hello().packet(1).as_bytes(), &ends, SendFlags::DONTWAIT);
            if sent.is_err() {
                break;
            }
        }
    }
    stage.say("done");
}

fn never_read(stage: &mut Stage) {
    let mut connections = Vec::new();
    for _ in 0..16 {
        connections.push(Raw::open().expect("the daemon").0);
    }
    let request = Request::LookService(Number::default()).packet(9);
    let open = Request::OpenChannel(OpenChannel {
        capacity: 64,
        ..OpenChannel::default()
    });
    for (at, raw) in connections.iter().enumerate() {
        loop {
            let packet = if at % 2 == 0 {
                &request
            } else {
                &open.packet(9)
            };
            match raw.send_with(
                packet.as_bytes(),
                &[],
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The daemon has closed the connection.
                Err(_) => break,
            }
        }
    }
    stage.say("asks");
    stage.hear();
    drop(connections);
    stage.say("done");
}

/// Small, repeatable, and good enough to hit odd values.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A word as attackers like them: small, an extreme, one bit, anything.
    pub(crate) fn odd(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(20),
            1 => u64::MAX - self.below(20),
            2 => 1 << self.below(64),
            3 => u64::from(u32::MAX) - self.below(3),
            4 => 0,
            _ => self.next(),
        }
    }
}

fn random(stage: &mut Stage) {
    let mut random = Random(stage.number(0) + 1);
    let until = Instant::now() + Duration::from_millis(1000);
    let mut raw = Raw::open().expect("the daemon").0;
    let socket = UnixDatagram::unbound().expect("a socket");
    while Instant::now() < until {
        let requests = every_request();
        let at = usize::try_from(random.below(requests.len() as u64 - 1)).expect("small") + 1;
        let mut packet = match random.below(12) {
            0 => Request::WatchSocket(WatchSocket::default())
                .packet(1)
                .as_bytes()
                .to_vec(),
            _ => requests[at].packet(1).as_bytes().to_vec(),
        };
        for _ in 0..random.below(6) {
            let body = packet.len() - 16;
            let place = 16 + 4 * usize::try_from(random.below(body as u64 / 4)).expect("small");
            let word = random.odd() as u32;
            packet[place..place + 4].copy_from_slice(&word.to_ne_bytes());
        }
        let fds = match packet[4] {
            8 => vec![socket.as_fd()],
            _ => Vec::new(),
        };
        if raw.send(&packet, &fds).is_err() || !matches!(raw.receive(), Ok(Some(_))) {
            raw = Raw::open().expect("the daemon").0;
        }
    }
    stage.say("done");
}
