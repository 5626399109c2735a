//! `--policy`: a text in E-code decides which connections are turned away. Each test has a network
//! namespace of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;

use limit::{Running, ended};

use crate::fault::in_net;
use crate::load::listener;
use crate::{IP4, IP6, PATIENCE, connect_until_refused, guard, start, wait_for};

/// A text in a file.
struct Text(PathBuf);

impl Text {
    fn new(name: &str, text: &str) -> Text {
        let name = format!("ecalls-{name}-{}.ec", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("a file");
        Text(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn clients_whom_the_recipe_prefers_are_never_turned_away() {
    in_net(|net| {
        let other = Ipv4Addr::new(10, 0, 0, 1);
        net.ip("addr add 10.0.0.1/32 dev lo");
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let stuck = listener(any, 4096);
        let port = stuck.local_addr().expect("it is bound").port();
        let recipe = include_str!("../../../../examples/ecode/guard.ec");
        let text = Text::new("recipe", recipe);
        let (_guard, mut lines) = start(port, &["--mode", "refuse", "--policy", text.path()]);
        // Who connects to an address of this machine has the same one.
        let connect = |ip: IpAddr| TcpStream::connect_timeout(&SocketAddr::new(ip, port), PATIENCE);
        let mut connected = connect_until_refused(SocketAddr::new(other.into(), port));
        for _ in 0..3 {
            connected.push(connect(IP4).expect("it is admitted"));
            connect(other.into()).expect_err("it is refused");
        }
        let line = wait_for(&mut lines, "all are counted", |line| {
            line["refused_total"].as_u64() >= Some(4)
        });
        assert_eq!(line["admitted_total"], connected.len(), "{line}");
        assert_eq!(line["policy_failed"], 0, "{line}");
    });
}

/// The first three are admitted, if the policy sees what there is.
const FACTS: &str = "static u64 came;
bool is_own = remote_ip[15] == 1 && remote_port >= 1024;
is_own = is_own && (family == AF_INET6
    ? remote_ip4 == 0 && remote_ip[0] == 0
    : remote_ip4 == 0x0100007f && remote_ip[11] == 0xff && remote_ip[12] == 127);
came++;
return is_own && target_ns == 60000000000 && numconnects + response_ns == 0 &&
    admitted + refused + 1 == came && open <= admitted && queued <= open && came <= 3;";

#[test]
fn policy_sees_what_the_guard_knows() {
    in_net(|_| {
        for ip in [IP4, IP6] {
            let stuck = listener(SocketAddr::new(ip, 0), 4096);
            let address = stuck.local_addr().expect("it is bound");
            let text = Text::new("facts", FACTS);
            let arguments = [
                "--mode",
                "refuse",
                "--target-delay",
                "60s",
                "--policy",
                text.path(),
            ];
            let (_guard, mut lines) = start(address.port(), &arguments);
            assert_eq!(connect_until_refused(address).len(), 3);
            let line = wait_for(&mut lines, "all are counted", |line| {
                line["refused_total"] == 1
            });
            assert_eq!(line["turns"], 1, "{line}");
        }
    });
}

#[test]
fn where_the_policy_fails_the_rule_decides() {
    in_net(|_| {
        let stuck = listener(SocketAddr::new(IP4, 0), 4096);
        let address = stuck.local_addr().expect("it is bound");
        let text = Text::new("fault", "static u32 table[2];\nreturn table[open + 2];\n");
        let mut command = guard(
            address.port(),
            &["--mode", "refuse", "--policy", text.path()],
        );
        command.args(["--json", "--every", "100ms"]);
        let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut complaints = running.complaints();
        complaints.find("guards port", PATIENCE);
        let mut lines = running.lines();
        let connected = connect_until_refused(address);
        assert!(!connected.is_empty(), "the first one has an empty queue");
        let came = connected.len() as u64 + 1;
        wait_for(&mut lines, "all are counted", |line| {
            line["policy_failed"] == came
        });
        let told = complaints.find(text.path(), PATIENCE);
        assert!(told.contains(":2:14: "), "{told}");
    });
}

#[test]
fn policy_that_is_none_is_refused() {
    for (name, text, told) in [
        ("name", "return nothing;", "nothing"),
        (
            "effect",
            "signal(34, 1);\nreturn 1;",
            "a policy only decides",
        ),
        (
            "output",
            "struct output {\n    u64 open;\n};\noutput.open = open;\nreturn 1;",
            "error",
        ),
        ("type", "return \"text\";", ":1:8: error"),
    ] {
        let text = Text::new(name, text);
        let ended = ended(&mut guard(80, &["--policy", text.path()]), PATIENCE);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.err.contains(told), "{ended:?}");
        assert!(ended.err.contains(text.path()), "{ended:?}");
    }
}
