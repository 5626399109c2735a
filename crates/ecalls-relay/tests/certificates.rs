//! Relays whose hosts have certificates: who finds whom, and who may do what.

mod harness;

use std::path::PathBuf;
use std::process::Command;

use ecalls_abi::relay::{
    RELAY_ASK, RELAY_ENTER, RELAY_ENTERED, RELAY_FOUND, RELAY_FRAME, RELAY_IMPOSSIBLE,
    RELAY_JOINED, RELAY_NO_ANSWER, RELAY_NO_FRAME, RELAY_NO_PRESENCE, RELAY_NO_QUESTION,
    RELAY_NONE, RELAY_REASONS, RELAY_RELIABLE, RELAY_SETTLED,
};
use ecalls_abi::wire::Wire;
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};
use harness::node::{Node, Program, channel, client, header};
use harness::{PATIENCE, QUIET, folder, wait_until};
use limit::ended;
use serde_json::json;
use zenoh::{Session, Wait};

/// An authority, and hosts to which it gave certificates of these names.
struct Authority(PathBuf);

impl Authority {
    fn new(name: &str, hosts: &[&str]) -> Authority {
        let authority = Authority(folder(name));
        let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        authority.make(&format!(
            "{new} -keyout ca.key -out ca.pem -subj /CN={name}"
        ));
        for host in hosts {
            authority.make(&format!(
                "{new} -keyout {host}.key -out {host}.pem -subj /CN={host} -CA ca.pem \
                 -CAkey ca.key -addext basicConstraints=critical,CA:FALSE \
                 -addext subjectAltName=DNS:{host}"
            ));
        }
        authority
    }

    fn make(&self, arguments: &str) {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(&self.0).args(arguments.split(' '));
        let made = ended(&mut openssl, PATIENCE);
        assert_eq!(made.code, 0, "openssl {arguments}: {made:?}");
    }

    /// The configuration of a relay on such a host.
    fn host(&self, host: &str) -> String {
        let at = self.0.display();
        format!(
            "[tls]\nauthority = \"{at}/ca.pem\"\ncertificate = \"{at}/{host}.pem\"\n\
             key = \"{at}/{host}.key\"\n"
        )
    }

    /// Such a host that speaks Zenoh and is no relay.
    fn stranger(&self, host: &str, port: u16) -> Session {
        let mut config = client("tls", port);
        let pem = json!({
            "root_ca_certificate": self.0.join("ca.pem"),
            "connect_certificate": self.0.join(format!("{host}.pem")),
            "connect_private_key": self.0.join(format!("{host}.key")),
            "enable_mtls": true,
            "verify_name_on_connect": false,
        });
        let set = config.insert_json5("transport/link/tls", &pem.to_string());
        set.expect("a setting");
        zenoh::open(config).wait().expect("it connects")
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn has_openssl() -> bool {
    let has = Command::new("openssl").arg("version").output().is_ok();
    if !has {
        eprintln!("skipped: openssl is not installed");
    }
    has
}

#[test]
fn with_certificates_only_hosts_of_the_same_authority_find_each_other() {
    if !has_openssl() {
        return;
    }
    let of_ours = Authority::new("ours", &["host"]);
    let of_theirs = Authority::new("theirs", &["host"]);
    let (ours, theirs) = (of_ours.host("host"), of_theirs.host("host"));
    let one = Node::start_with("tls-1", &[], &ours);
    let two = Node::start_with("tls-2", &[one.port], &ours);
    let foreign = Node::start_with("tls-3", &[one.port, two.port], &theirs);
    let plain = Node::start("tls-4", &[one.port, two.port]);
    let programs: Vec<Program> = [&one, &two, &foreign, &plain]
        .iter()
        .zip(1..)
        .map(|(node, host)| {
            let program = node.program();
            program.say(RELAY_ENTER, host, &channel("load", "u32 cpu"));
            program.hears(RELAY_ENTERED);
            program
        })
        .collect();
    assert_eq!(programs[0].hears(RELAY_JOINED).0.host, 2);
    assert_eq!(programs[1].hears(RELAY_JOINED).0.host, 1);
    for program in &programs {
        assert!(program.hears_nothing());
    }
}

#[test]
fn a_host_may_what_the_entries_for_its_certificate_allow_and_nothing_else() {
    if !has_openssl() {
        return;
    }
    let authority = Authority::new("names", &["maker", "sender", "guest"]);
    let access = "[[access]]\nhosts = [\"maker\"]\nchannels = [\"lab/*\"]\n\
                  may = [\"create\", \"subscribe\"]\n\
                  [[access]]\nhosts = [\"sender\"]\nchannels = [\"lab/load\"]\n\
                  may = [\"publish\"]\n";
    let with = |host: &str| authority.host(host) + access;
    let node = Node::start_with("names-1", &[], &with("maker"));
    let mut load = channel("load", "u32 cpu");
    load.policy = RELAY_RELIABLE;
    let program = node.program();
    program.say(RELAY_ENTER, 1, &load);
    program.hears(RELAY_ENTERED);
    program.hears(RELAY_SETTLED);

    let frames = |from: u64| format!("ecalls/lab/ch/load/to/{:016x}/{from:016x}", 1);
    let info = "ecalls/lab/ch/load/info";
    let token = |host: u64| format!("ecalls/lab/ch/load/host/{host:016x}/-/{:016x}", 7);
    let of = |host: u64| Wire {
        host,
        ..header("load", "u32 cpu")
    };
    let answers = |session: &Session, key: &str| {
        let replies = session.get(key).timeout(PATIENCE).wait().expect("it asks");
        replies
            .into_iter()
            .filter(|reply| reply.result().is_ok())
            .count()
    };
    let [maker, sender, guest] =
        ["maker", "sender", "guest"].map(|host| authority.stranger(host, node.port));
    // Of these, the guest may nothing, and the sender may not become a host.
    let tokens = [(&guest, 3), (&sender, 2), (&maker, 4)].map(|(session, host)| {
        let declared = session.liveliness().declare_token(token(host)).wait();
        std::thread::sleep(QUIET);
        declared.expect("it is told")
    });
    assert_eq!(program.hears(RELAY_JOINED).0.host, 4);
    for (session, host) in [(&guest, 3), (&maker, 4), (&sender, 2)] {
        session
            .put(frames(host), of(host).as_bytes())
            .wait()
            .expect("it is sent");
        std::thread::sleep(QUIET);
    }
    let (message, frame) = program.packet(PATIENCE).expect("it is told");
    assert_eq!(message.kind, RELAY_FRAME);
    assert_eq!(Wire::read_from_bytes(&frame).expect("a frame").host, 2);
    assert_eq!(answers(&maker, info), 1);
    assert_eq!(answers(&sender, info), 1);
    assert_eq!(answers(&guest, info), 0);

    // What the guest says of a channel is not believed; what the maker says is.
    for (session, found) in [(&guest, RELAY_NONE), (&maker, RELAY_FOUND)] {
        let key = "ecalls/lab/ch/other/info";
        let text = json!({
            "version": 1, "format": "u8 x", "kinds": "event", "policy": "fast", "creator": 3,
        });
        let answer = text.to_string();
        let queryable = session.declare_queryable(key).complete(true);
        let queryable = queryable.callback(move |query| {
            let _ = query.reply(key, answer.as_str()).wait();
        });
        let _queryable = queryable.wait().expect("it answers");
        // It takes a moment until the relay knows that there is somebody to ask.
        std::thread::sleep(QUIET);
        wait_until("the answer is there", || {
            program.say(RELAY_ASK, 0, &channel("other", ""));
            let (told, _) = program.told(PATIENCE).expect("an answer");
            assert!([RELAY_NONE, RELAY_FOUND].contains(&told.kind), "{told:?}");
            told.kind == found
        });
    }
    drop(tokens);

    // All that was refused is counted: two frames, the guest's question, and what the guest and the
    // sender said of themselves. The guest's answers were not asked for.
    wait_until("it is counted", || {
        let counts = node.counts();
        let of = |reason: u32| counts[reason as usize];
        of(RELAY_NO_FRAME) >= 2 && of(RELAY_NO_QUESTION) >= 1 && of(RELAY_NO_PRESENCE) >= 3
    });
    let counts = node.counts();
    let of = |reason: u32| counts[reason as usize];
    assert_eq!(of(RELAY_NO_FRAME), 2, "{counts:?}");
    assert_eq!(of(RELAY_NO_ANSWER), 0, "{counts:?}");
    // Counts of hosts that have gone stay, and another host may not ask for them.
    guest.close().wait().expect("it ends");
    let asks = "@/*/*/metrics";
    assert_eq!(answers(&maker, asks), 0);
    let after = node.counts();
    assert!(
        counts.iter().zip(after).all(|(was, is)| *was <= is),
        "{counts:?} {after:?}"
    );
}

#[test]
fn hosts_that_may_everything_are_refused_nothing() {
    if !has_openssl() {
        return;
    }
    let authority = Authority::new("all", &["host"]);
    let access = "[[access]]\nhosts = [\"host\"]\nchannels = [\"*/*\"]\n\
                  may = [\"create\", \"publish\", \"subscribe\"]\n";
    let with = authority.host("host") + access;
    let one = Node::start_with("all-1", &[], &with);
    let two = Node::start_with("all-2", &[one.port], &with);
    let mut load = channel("load", "u32 cpu");
    load.policy = RELAY_RELIABLE;
    let programs = [(&one, 1), (&two, 2)].map(|(node, host)| {
        let program = node.program();
        program.say(RELAY_ENTER, host, &load);
        program.hears(RELAY_ENTERED);
        program
    });
    for (program, other) in programs.iter().zip([2, 1]) {
        assert_eq!(program.hears(RELAY_JOINED).0.host, other);
    }
    let asks = two.program();
    asks.say(RELAY_ASK, 0, &channel("load", ""));
    asks.hears(RELAY_FOUND);
    for node in [&one, &two] {
        assert_eq!(node.counts(), [0; RELAY_REASONS]);
    }
}

#[test]
fn a_host_is_only_whom_the_entry_for_its_certificate_names() {
    if !has_openssl() {
        return;
    }
    let authority = Authority::new("bound", &["one", "two"]);
    let entry = |host: &str, id: u8| {
        format!(
            "[[access]]\nhosts = [\"{host}\"]\nids = [\"0000:00-00-00-00-00-{id:02}\"]\n\
             channels = [\"lab/*\"]\nmay = [\"create\", \"publish\", \"subscribe\"]\n"
        )
    };
    let access = entry("one", 1) + &entry("two", 2);
    let node = Node::start_with("bound-1", &[], &(authority.host("one") + &access));
    let mut load = channel("load", "u32 cpu");
    load.policy = RELAY_RELIABLE;
    let program = node.program();
    program.say(RELAY_ENTER, 1, &load);
    program.hears(RELAY_ENTERED);
    program.hears(RELAY_SETTLED);

    let two = authority.stranger("two", node.port);
    let base = "ecalls/lab/ch/load";
    let token = |host: u64| {
        let key = format!("{base}/host/{host:016x}/-/{:016x}", 7);
        two.liveliness()
            .declare_token(key)
            .wait()
            .expect("it is told")
    };
    let _other = token(3);
    assert!(program.hears_nothing());
    let _own = token(2);
    assert_eq!(program.hears(RELAY_JOINED).0.host, 2);

    let put = |from: u64, says: u64| {
        let wire = Wire {
            host: says,
            ..header("load", "u32 cpu")
        };
        let key = format!("{base}/to/{:016x}/{from:016x}", 1);
        two.put(key, wire.as_bytes()).wait().expect("it is sent");
    };
    put(3, 3);
    put(2, 3);
    put(2, 2);
    let (message, frame) = program.packet(PATIENCE).expect("it is told");
    assert_eq!(message.kind, RELAY_FRAME);
    assert_eq!(Wire::read_from_bytes(&frame).expect("a frame").host, 2);
    wait_until("two are refused", || {
        let counts = node.counts();
        counts[RELAY_NO_FRAME as usize] + counts[RELAY_IMPOSSIBLE as usize] >= 2
    });
    assert!(program.hears_nothing());
    let counts = node.counts();
    let of = |reason: u32| counts[reason as usize];
    assert_eq!(
        (of(RELAY_NO_FRAME), of(RELAY_IMPOSSIBLE)),
        (1, 1),
        "{counts:?}"
    );

    // Nor does it get what is for another one.
    let before = of(RELAY_NO_PRESENCE);
    let wants = |host: u64| {
        let key = format!("{base}/to/{host:016x}/*");
        two.declare_subscriber(key).wait().expect("it is told")
    };
    let (_others, _own) = (wants(3), wants(2));
    wait_until("one of them is refused", || {
        node.counts()[RELAY_NO_PRESENCE as usize] > before
    });
}
