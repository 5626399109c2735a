//! Relays on the loopback address, without a core: what programs and other hosts may say, and what
//! becomes of it.

mod harness;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use ecalls_abi::relay::{
    RELAY_ASK, RELAY_COUNT, RELAY_DIFFERS, RELAY_ENTER, RELAY_ENTERED, RELAY_FOUND, RELAY_FRAME,
    RELAY_IMPOSSIBLE, RELAY_INVALID, RELAY_JOINED, RELAY_LEFT, RELAY_LIST, RELAY_LOST, RELAY_MAX,
    RELAY_NONE, RELAY_OTHER, RELAY_OWN, RELAY_REFUSED, RELAY_RELIABLE, RELAY_SECOND, RELAY_SEND,
    RELAY_SETTLED, RELAY_TAKEN, RelayChannel, RelayMessage,
};
use ecalls_abi::text;
use ecalls_abi::wire::{Wire, text_id};
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};
use harness::node::{LEASE_MS, Node, Program, channel, header, stranger};
use harness::{PATIENCE, wait_until};
use limit::{Running, ended};
use serde_json::{Value, json};
use zenoh::{Session, Wait};

/// Lists the channels of the cluster: this one is there.
fn list_of_channels_ends(asks: &Program, of: &RelayChannel) {
    asks.say(RELAY_LIST, 0, of);
    let mut listed = Vec::new();
    loop {
        let (message, channel) = asks.told(PATIENCE).expect("it is told");
        if message.kind == RELAY_NONE {
            break;
        }
        assert_eq!(message.kind, RELAY_FOUND);
        listed.push(channel.expect("a channel").name);
    }
    assert_eq!(listed, [of.name]);
}

#[test]
fn a_channel_is_found_by_its_name_and_lives_as_long_as_one_host_has_it() {
    let one = Node::start("found-1", &[]);
    let two = Node::start("found-2", &[one.port]);
    let load = channel("load", "u32 cpu");
    let asks = one.program();
    asks.say(RELAY_ASK, 0, &load);
    let (_, none) = asks.hears(RELAY_NONE);
    assert_eq!(text::read(&none.expect("a channel").interface), "eth7");

    let first = one.program();
    first.say(RELAY_ENTER, 1, &load);
    first.hears(RELAY_ENTERED);
    let second = two.program();
    let mut found = None;
    wait_until("the other host has heard of it", || {
        second.say(RELAY_ASK, 0, &channel("load", ""));
        let (message, channel) = second.told(PATIENCE).expect("an answer");
        found = channel.filter(|_| message.kind == RELAY_FOUND);
        found.is_some()
    });
    let found = found.expect("a channel");
    assert_eq!(text::read(&found.format), "u32 cpu");
    assert_eq!(found.creator, 1);
    second.say(RELAY_ENTER, 2, &found);
    second.hears(RELAY_ENTERED);
    let (joined, _) = second.hears(RELAY_JOINED);
    assert_eq!(
        (joined.host, joined.address, joined.format),
        (1, [10, 0, 0, 1], text_id("u32 cpu"))
    );
    assert_eq!(first.hears(RELAY_JOINED).0.host, 2);

    drop(first);
    assert_eq!(second.hears(RELAY_LEFT).0.host, 1);
    list_of_channels_ends(&asks, &load);
    asks.say(RELAY_ASK, 0, &channel("load", ""));
    let (_, found) = asks.hears(RELAY_FOUND);
    assert_eq!(found.expect("a channel").creator, 1);
    drop(second);
    wait_until("nobody has it", || {
        asks.say(RELAY_ASK, 0, &channel("load", ""));
        let (message, _) = asks.told(PATIENCE).expect("it is told");
        message.kind == RELAY_NONE
    });
}

#[test]
fn hosts_come_and_go_with_their_relay() {
    let one = Node::start("come-1", &[]);
    let first = one.program();
    first.say(RELAY_ENTER, 1, &channel("load", "u32 cpu"));
    first.hears(RELAY_ENTERED);
    first.hears(RELAY_SETTLED);
    for _ in 0..3 {
        let mut two = Node::start("come-2", &[one.port]);
        let second = two.program();
        second.say(RELAY_ENTER, 2, &channel("load", "u64 cpu"));
        second.hears(RELAY_ENTERED);
        let (joined, _) = first.hears(RELAY_JOINED);
        assert_eq!((joined.host, joined.format), (2, text_id("u64 cpu")));
        assert_eq!(second.hears(RELAY_JOINED).0.host, 1);
        two.process.running.kill(PATIENCE);
        assert_eq!(first.hears(RELAY_LEFT).0.host, 2);
        assert!(second.is_disconnected());
    }
}

#[test]
fn relays_that_listen_nowhere_meet_at_the_one_that_they_name() {
    let hub = Node::start("hub", &[]);
    let clients = [1, 2].map(|number| Node::client(&format!("hub-client-{number}"), hub.port));
    let load = channel("load", "u32 cpu");
    let [first, second] = [1, 2].map(|number| {
        let program = clients[number - 1].program();
        program.say(RELAY_ENTER, number as u64, &load);
        program.hears(RELAY_ENTERED);
        program
    });
    assert_eq!(first.hears(RELAY_JOINED).0.host, 2);
    assert_eq!(second.hears(RELAY_JOINED).0.host, 1);
    let third = hub.program();
    third.say(RELAY_ENTER, 3, &load);
    for program in [&first, &second] {
        assert_eq!(program.hears(RELAY_JOINED).0.host, 3);
    }
    drop(first);
    assert_eq!(second.hears(RELAY_LEFT).0.host, 1);
}

#[test]
fn frames_of_a_reliable_channel_arrive_in_order_and_what_is_no_frame_does_not() {
    let one = Node::start("frames-1", &[]);
    let two = Node::start("frames-2", &[one.port]);
    let mut load = channel("load", "u32 cpu");
    load.policy = RELAY_RELIABLE;
    let (first, second) = (one.program(), two.program());
    first.say(RELAY_ENTER, 1, &load);
    first.hears(RELAY_ENTERED);
    second.say(RELAY_ENTER, 2, &load);
    second.hears(RELAY_ENTERED);
    first.hears(RELAY_JOINED);
    second.hears(RELAY_JOINED);
    // Another program of the host publishes.
    let publisher = one.program();
    let frame = |host: u64, sequence: u64| Wire {
        channel: text_id("load"),
        host,
        sequence,
        ..Wire::default()
    };
    let send = |to: u64, wire: &Wire| {
        let message = RelayMessage {
            host: to,
            ..RelayMessage::new(RELAY_SEND, size_of::<Wire>())
        };
        let packet = [message.as_bytes(), wire.as_bytes()].concat();
        assert!(publisher.send(&packet));
    };
    // Of another host, to one that is not there, of another channel, too short.
    send(2, &frame(7, 1000));
    send(3, &frame(1, 1001));
    let other = Wire {
        channel: 9,
        ..frame(1, 1002)
    };
    send(2, &other);
    assert!(publisher.send(RelayMessage::new(RELAY_SEND, 0).as_bytes()));
    // It reads while they are sent: one that does not read for two seconds misses frames.
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=5000).for_each(|sequence| send(2, &frame(1, sequence))));
        let mut next = 1;
        while next <= 5000 {
            let (message, rest) = second.packet(PATIENCE).expect("it is told");
            if message.kind == RELAY_FRAME {
                let wire = Wire::read_from_bytes(&rest).expect("a frame");
                assert_eq!((wire.host, wire.sequence), (1, next));
                next += 1;
            }
        }
    });
}

/// The interpreter of Python: one that has the package `eclipse-zenoh`.
const PYTHON: &str = "ECALLS_TEST_PYTHON";

#[test]
fn a_host_in_another_language_takes_part() {
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
    let has_zenoh = Command::new(&python).args(["-c", "import zenoh"]).output();
    if !has_zenoh.is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: {python} has no package eclipse-zenoh ({PYTHON} names another one)");
        return;
    }
    let node = Node::start("python", &[]);
    let mut load = channel("load", "u32 cpu");
    load.policy = RELAY_RELIABLE;
    let program = node.program();
    program.say(RELAY_ENTER, 1, &load);
    program.hears(RELAY_ENTERED);

    let mut host = Command::new(python);
    host.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host.py"));
    host.args([&format!("127.0.0.1:{}", node.port), "0000000000000009"]);
    host.arg("u32 cpu").stdin(Stdio::piped());
    let mut host = Running::start(host.stdout(Stdio::piped()));
    let mut lines = host.lines();
    let mut next = |what: &str| -> Value {
        let line = lines.find(what, PATIENCE);
        serde_json::from_str(&line).expect("JSON")
    };
    let info = json!([{
        "version": 1, "format": "u32 cpu", "kinds": "event", "policy": "reliable", "creator": 1,
    }]);
    assert_eq!(next("info")["info"], info);
    let hosts = json!(["0000000000000001", "0000000000000009"]);
    assert_eq!(next("hosts")["hosts"], hosts);
    let (joined, _) = program.hears(RELAY_JOINED);
    assert_eq!((joined.host, joined.address), (9, [0; 4]));
    assert_eq!(joined.format, text_id("u32 cpu"));

    let message = RelayMessage {
        host: 9,
        ..RelayMessage::new(RELAY_SEND, size_of::<Wire>() + 4)
    };
    let packet = [
        message.as_bytes(),
        header("load", "u32 cpu").as_bytes(),
        &[95, 0, 0, 0],
    ]
    .concat();
    assert!(program.send(&packet));
    let seen = &next("frame")["frame"];
    assert_eq!(seen["data"], json!("5f000000"));
    for (field, value) in [("host", 1), ("epoch", 77), ("sequence", 3), ("kind", 2)] {
        assert_eq!(seen[field], json!(value), "{seen}");
    }

    let given = json!({
        "to": "0000000000000001", "name": "load", "format": "u32 cpu", "host": 9, "epoch": 5,
        "sequence": 1, "left_ns": 0, "kind": 0, "type": 0, "priority": 0,
        "attributes": [[3, 40]], "data": "07000000",
    });
    let mut input = host.input().expect("a pipe");
    writeln!(input, "{given}").expect("it reads");
    let rest = loop {
        let (message, rest) = program.packet(PATIENCE).expect("it is told");
        if message.kind == RELAY_FRAME {
            break rest;
        }
    };
    let (arrived, data) = Wire::read_from_prefix(&rest).expect("a frame");
    assert_eq!((arrived.host, arrived.epoch, arrived.sequence), (9, 5, 1));
    assert_eq!((arrived.number[0], arrived.value[0]), (3, 40));
    assert_eq!(data, [7, 0, 0, 0]);
    drop(input);
    assert_eq!(program.hears(RELAY_LEFT).0.host, 9);
}

#[test]
fn a_program_that_does_not_read_keeps_no_frame_of_another_one_waiting() {
    let one = Node::start("clogged-1", &[]);
    let two = Node::start("clogged-2", &[one.port]);
    let enter = |node: &Node, host: u64, name: &str| {
        let mut entered = channel(name, "u32 cpu");
        entered.policy = RELAY_RELIABLE;
        let program = node.program();
        program.say(RELAY_ENTER, host, &entered);
        program.hears(RELAY_ENTERED);
        program
    };
    let (from_a, from_b) = (enter(&one, 1, "a"), enter(&one, 1, "b"));
    let (_sleeps, reads) = (enter(&two, 2, "a"), enter(&two, 2, "b"));
    from_a.hears(RELAY_JOINED);
    from_b.hears(RELAY_JOINED);
    reads.hears(RELAY_JOINED);
    let send = |program: &Program, name: &str, sequence: u64| {
        let wire = Wire {
            channel: text_id(name),
            host: 1,
            sequence,
            ..Wire::default()
        };
        let message = RelayMessage {
            host: 2,
            ..RelayMessage::new(RELAY_SEND, size_of::<Wire>())
        };
        assert!(program.send(&[message.as_bytes(), wire.as_bytes()].concat()));
    };
    // More than all queues on the way hold.
    for sequence in 1..=20_000 {
        send(&from_a, "a", sequence);
    }
    for sequence in 1..=100 {
        send(&from_b, "b", sequence);
    }
    let mut next = 1;
    while next <= 100 {
        let (message, rest) = reads.packet(PATIENCE).expect("it is told");
        if message.kind == RELAY_FRAME {
            let wire = Wire::read_from_bytes(&rest).expect("a frame");
            assert_eq!((wire.channel, wire.sequence), (text_id("b"), next));
            next += 1;
        }
    }
}

#[test]
fn another_user_cannot_connect() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let mut node = Node::start("user", &[]);
    let path = node.folder.join("socket");
    let connects = || {
        let text = format!(
            "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); \
             s.connect({path:?}); print(len(s.recv(1)))"
        );
        let mut python = Command::new("python3");
        ended(python.args(["-c", &text]).uid(65_534).gid(65_534), PATIENCE)
    };
    assert!(connects().err.contains("PermissionError"));
    // And if the socket's permissions were wrong.
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&path, all).expect("it is ours");
    let done = connects();
    assert!(
        done.out == "0\n" || done.err.contains("ConnectionReset"),
        "{done:?}"
    );
    node.process.complaints.find("may not connect", PATIENCE);
    let root = node.program();
    root.say(RELAY_ASK, 0, &channel("load", ""));
    root.hears(RELAY_NONE);
}

#[test]
fn a_program_that_breaks_a_rule_harms_only_itself() {
    let node = Node::start("rules", &[]);
    let load = channel("load", "u32 cpu");
    let good = node.program();
    good.say(RELAY_ENTER, 1, &load);
    good.hears(RELAY_ENTERED);

    let whole = size_of::<RelayMessage>() + size_of::<RelayChannel>();
    let message = RelayMessage::new(RELAY_ASK, size_of::<RelayChannel>());
    let mut packet = message.as_bytes().to_vec();
    packet.extend_from_slice(load.as_bytes());
    let mut other_version = packet.clone();
    other_version[0] = 9;
    let mut other_kind = packet.clone();
    other_kind[4] = RELAY_FOUND as u8;
    let mut longer = packet.clone();
    longer.push(0);
    let mut counts = packet.clone();
    counts[4] = RELAY_COUNT as u8;
    // It learns which version the relay has.
    let newer = node.program();
    assert!(newer.send(&other_version));
    newer.is_refused(RELAY_INVALID);
    assert!(newer.is_disconnected());
    for bad in [
        &packet[..whole - 1],
        &other_kind,
        &counts,
        &longer,
        &[0],
        &[0xff; RELAY_MAX],
        &[0xff; RELAY_MAX + 1],
        &vec![0xff; 100_000],
    ] {
        let program = node.program();
        assert!(program.send(bad));
        assert!(program.is_disconnected(), "{} bytes", bad.len());
    }

    let program = node.program();
    program.say(RELAY_ENTER, 2, &load);
    program.is_refused(RELAY_TAKEN);
    program.say(RELAY_ENTER, 0, &channel("other", "u32 cpu"));
    program.is_refused(RELAY_INVALID);
    for name in [&b"a/b"[..], b"*", b"", b"\xff", b"a$*", b"?"] {
        let mut named = load;
        named.name.fill(0);
        named.name[..name.len()].copy_from_slice(name);
        program.say(RELAY_ASK, 0, &named);
        program.is_refused(RELAY_INVALID);
    }
    program.say(RELAY_ENTER, 2, &channel("other", "u32 \x1b[2J"));
    program.is_refused(RELAY_INVALID);
    let mut slow = channel("other", "u32 cpu");
    slow.policy = 77;
    program.say(RELAY_ENTER, 2, &slow);
    program.is_refused(RELAY_INVALID);
    program.say(RELAY_ENTER, 2, &channel("other", "u32 cpu"));
    program.hears(RELAY_ENTERED);
    program.say(RELAY_ENTER, 2, &channel("third", "u32 cpu"));
    program.is_refused(RELAY_INVALID);

    // More programs than there is room for wait, and take nobody's place.
    let many: Vec<Program> = (0..100).map(|_| node.program()).collect();
    good.say(RELAY_ASK, 0, &load);
    good.hears(RELAY_FOUND);
    drop(many);
    let next = node.program();
    next.say(RELAY_ASK, 0, &load);
    next.hears(RELAY_FOUND);
}

#[test]
fn an_id_is_the_host_s_that_was_there_first_until_it_leaves() {
    let node = Node::start("second", &[]);
    let program = node.program();
    program.say(RELAY_ENTER, 1, &channel("load", "u32 cpu"));
    program.hears(RELAY_ENTERED);
    let (honest, other) = (stranger(node.port), stranger(node.port));
    let says = |session: &Session, address: &str| {
        let key = format!("ecalls/lab/ch/load/host/{:016x}/{address}/{:016x}", 2, 7);
        session
            .liveliness()
            .declare_token(key)
            .wait()
            .expect("it is told")
    };
    let first = says(&honest, "10.0.0.2");
    assert_eq!(program.hears(RELAY_JOINED).0.address, [10, 0, 0, 2]);
    let _second = says(&other, "10.0.0.9");
    wait_until("it is refused", || {
        node.counts()[RELAY_SECOND as usize] >= 1
    });
    assert!(program.hears_nothing());
    let counts = node.counts();
    assert_eq!(counts[RELAY_LOST as usize], 0, "{counts:?}");
    drop(first);
    assert_eq!(program.hears(RELAY_LEFT).0.address, [10, 0, 0, 2]);
    // The next review finds the other one.
    assert_eq!(program.hears(RELAY_JOINED).0.address, [10, 0, 0, 9]);
    let before = node.counts()[RELAY_SECOND as usize];
    assert!(program.hears_nothing());
    assert_eq!(node.counts()[RELAY_SECOND as usize], before);
}

#[test]
fn a_channel_of_relays_of_another_version_is_told_to_be_one() {
    let node = Node::start("versions", &[]);
    let stranger = stranger(node.port);
    let answer = "{\"version\":2,\"format\":{\"fields\":[\"u64 x\"]}}";
    let _answers = stranger
        .declare_queryable("ecalls/lab/ch/load/info")
        .callback(move |query| {
            let _ = query.reply(query.key_expr().clone(), answer).wait();
        })
        .wait()
        .expect("a queryable");
    let program = node.program();
    wait_until("its answer is there", || {
        program.say(RELAY_ASK, 0, &channel("load", ""));
        let (told, _) = program.told(PATIENCE).expect("an answer");
        (told.kind, told.reason) == (RELAY_REFUSED, RELAY_OTHER)
    });
    // Those of this version are found nevertheless.
    let own = node.program();
    own.say(RELAY_ENTER, 1, &channel("load", "u32 cpu"));
    own.hears(RELAY_ENTERED);
    program.say(RELAY_ASK, 0, &channel("load", ""));
    program.hears(RELAY_FOUND);
}

#[test]
fn what_strangers_say_is_checked_and_does_no_harm() {
    let lease = format!("lease_ms = {LEASE_MS}");
    let node = Node::start_with("strangers", &[], &lease);
    let program = node.program();
    program.say(RELAY_ENTER, 1, &channel("load", "u32 cpu"));
    program.hears(RELAY_ENTERED);
    let stranger = stranger(node.port);
    let base = "ecalls/lab/ch/load";
    let mut tokens = Vec::new();
    for key in [
        "host/x/y/z",
        "host/0000000000000000/10.0.0.9/0000000000000001",
        "host/0000000000000002/10.0.0.999/0000000000000001",
        "host/0000000000000002/10.0.0.9/1",
        "host/2/10.0.0.9/0000000000000001",
        "host/0000000000000002/10.0.0.9/0000000000000001/more",
        // Another host says that it is this one.
        "host/0000000000000001/10.0.0.9/0000000000000001",
    ] {
        let token = stranger.liveliness().declare_token(format!("{base}/{key}"));
        tokens.push(token.wait().expect("a token"));
        for payload in [&b""[..], &[0xff; 60_000]] {
            let put = stranger.put(format!("{base}/{key}"), payload);
            put.wait().expect("it is sent");
        }
    }
    wait_until("they are refused", || {
        let counts = node.counts();
        counts[RELAY_IMPOSSIBLE as usize] >= 5 && counts[RELAY_OWN as usize] >= 1
    });
    assert!(program.hears_nothing());
    drop(tokens);
    assert!(program.hears_nothing());

    // Answers of other hosts: what is no answer is ignored, another format is told.
    for answer in ["", "{}", "{\"format\":1}", "\u{1b}[2J", &"[".repeat(50_000)] {
        let answer = answer.to_owned();
        let answers = stranger
            .declare_queryable(format!("{base}/info"))
            .callback(move |query| {
                let _ = query
                    .reply(query.key_expr().clone(), answer.as_str())
                    .wait();
            })
            .wait()
            .expect("a queryable");
        // It takes a moment until the relay knows that there is somebody to ask.
        let impossible = || node.counts()[RELAY_IMPOSSIBLE as usize];
        let before = impossible();
        wait_until("the answer was ignored", || {
            program.say(RELAY_ASK, 0, &channel("load", ""));
            program.hears(RELAY_FOUND);
            impossible() > before
        });
        answers.undeclare().wait().expect("it ends");
    }
    let counts = node.counts();
    assert_eq!(counts[..RELAY_OWN as usize], [0; 4]);
    let other = "{\"version\":1,\"creator\":7,\"kinds\":\"event\",\
                 \"format\":\"u64 x\",\"policy\":\"fast\"}";
    let answers = stranger
        .declare_queryable(format!("{base}/info"))
        .callback(move |query| {
            let _ = query.reply(query.key_expr().clone(), other).wait();
        })
        .wait()
        .expect("a queryable");
    wait_until("the other answer is there", || {
        program.say(RELAY_ASK, 0, &channel("load", ""));
        let (told, _) = program.told(PATIENCE).expect("an answer");
        (told.kind, told.reason) == (RELAY_REFUSED, RELAY_DIFFERS)
    });
    drop(answers);
    more_hosts_than_may_be_do_no_harm(&program, &stranger);
}

/// More hosts than a channel may have, and all of them leave.
fn more_hosts_than_may_be_do_no_harm(program: &Program, stranger: &Session) {
    let base = "ecalls/lab/ch/load";
    let many: Vec<_> = (10..4210u64)
        .map(|id| {
            let key = format!("{base}/host/{id:016x}/-/0000000000000001");
            stranger.liveliness().declare_token(key).wait()
        })
        .collect();
    let mut known = BTreeSet::new();
    let hear = |known: &mut BTreeSet<u64>| {
        let told = program.told(PATIENCE).expect("it is told").0;
        match told.kind {
            RELAY_JOINED => assert!(known.insert(told.host)),
            RELAY_LEFT => assert!(known.remove(&told.host)),
            _ => assert_eq!(told.kind, RELAY_SETTLED, "{told:?}"),
        }
    };
    while known.len() < 4096 {
        hear(&mut known);
    }
    assert!(program.hears_nothing());
    drop(many);
    // For one that leaves there is room for another one.
    while !known.is_empty() {
        hear(&mut known);
    }
}
