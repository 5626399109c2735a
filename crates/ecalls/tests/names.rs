//! The name service of `examples/names.rs`, as cargo has built it, judged by dig. Needs root.

#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use limit::{Running, ended};

const PATIENCE: Duration = Duration::from_secs(30);

const HOSTS: &str = "# a comment\n\
    192.0.2.1 one.example One # its name twice\n\
    2001:db8::1 one.example\n\
    192.0.2.2 two.example\n";

/// Cargo builds it unless it is told to build this test alone.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let names = test.parent()?.parent()?.join("examples/names");
    names.is_file().then_some(names)
}

#[test]
fn questions_that_come_again_are_answered_by_the_kernel() {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return;
    }
    if Command::new("dig").arg("-v").output().is_err() {
        eprintln!("skipped: dig is not installed");
        return;
    }
    let Some(program) = program() else {
        assert!(std::env::var_os("CI").is_none(), "cargo has not built it");
        eprintln!("skipped: the example is not built");
        return;
    };
    let file = std::env::temp_dir().join(format!("ecalls-names-{}", std::process::id()));
    std::fs::write(&file, HOSTS).expect("a file");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = socket.local_addr().expect("it is bound");
    drop(socket);
    let mut command = Command::new(program);
    command.args(["lo", &at.to_string()]).arg(&file);
    let mut names = Running::start(command.stdout(Stdio::piped()));
    let mut said = names.lines();
    assert_eq!(said.next(PATIENCE), Some(format!("3 names at {at}")));
    let dig = |arguments: &[&str]| {
        let mut dig = Command::new("dig");
        dig.args(["@127.0.0.1", "-p", &at.port().to_string(), "+tries=1"]);
        let told = ended(dig.args(arguments), PATIENCE);
        assert_eq!(told.code, 0, "{arguments:?}: {told:?}");
        told.out
    };
    // Each twice, and the second one by the kernel, but for the last: of cookies each is another.
    for (arguments, wanted) in [
        (
            &["+short", "+nocookie", "one.example", "A"][..],
            "192.0.2.1\n",
        ),
        (
            &["+short", "+noedns", "one.example", "AAAA"],
            "2001:db8::1\n",
        ),
        (&["+short", "+noedns", "TWO.example", "A"], "192.0.2.2\n"),
        (&["+short", "+noedns", "two.example", "AAAA"], ""),
    ] {
        for _ in 0..2 {
            assert_eq!(dig(arguments), wanted, "{arguments:?}");
        }
        let line = said.next(PATIENCE).expect("it goes on");
        assert!(line.ends_with(", now by the kernel"), "{line}");
    }
    for _ in 0..2 {
        let told = dig(&["+noedns", "three.example"]);
        assert!(told.contains("status: NXDOMAIN"), "{told}");
        assert_eq!(said.next(PATIENCE).as_deref(), Some("1 three.example"));
    }
    // What is no question changes nothing.
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for junk in [
        &[][..],
        &[0; 12],
        &[0xff; 40],
        b"\0\0\0\0\0\x01\0\0\0\0\0\0\x3fabc",
    ] {
        client.send_to(junk, at).expect("sent");
    }
    assert_eq!(
        dig(&["+short", "+noedns", "two.example", "A"]),
        "192.0.2.2\n"
    );
    let line = said.next(PATIENCE).expect("it goes on");
    assert_eq!(line, "1 two.example, now by the kernel");
    std::fs::remove_file(file).expect("it was there");
}
