//! Several cores on one machine, by their instances' names: each has its own services, events,
//! calls and accounting. Needs root.
//!
//! The hosts are this test binary again, told by an environment variable to be one.

#![allow(unsafe_code, reason = "a test makes the system call itself")]

mod harness;

use std::io::Write;
use std::process::{Command, Stdio};

use ecalls::downcall::Call;
use ecalls::{Ecalls, Raise};
use ecalls_abi::channel::Id;
use ecalls_abi::downcall::{self, Op};
use ecalls_kernel::objects::FastCall;
use harness::{PATIENCE, assert_comes_to_rest, may_load, take_until_quiet};
use limit::Running;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Set: this process is a host of the instance that ECALLS_INSTANCE names, or (`nest`) starts one
/// in a PID namespace of its own.
const ROLE: &str = "ECALLS_TEST_ROLE";
const INSTANCE: &str = "ECALLS_INSTANCE";

const NAMES: [&str; 3] = ["test-one", "test-two", "test-three"];
const EVENTS: u64 = 200;
const CALLS: i64 = 2000;

/// This binary again, in a role.
fn again(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "host", "--nocapture"]);
    command.env(ROLE, role);
    command
}

fn start(instance: &str, role: &str) -> Running {
    let mut command = again(role);
    command
        .env(INSTANCE, instance)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Running::start(&mut command)
}

/// Whether the kernel finds processes by their ids in a PID namespace (Linux 6.15).
fn knows_namespaces() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("it has one");
    let mut numbers = release.split(['.', '-']).map_while(|one| one.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(6u32), Some(15u32))
}

/// Starts a host in a PID namespace of its own, in which other processes have its id.
fn nest() {
    // SAFETY: a PID namespace for children concerns no memory.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.expect("root may");
    let ended = again("host").status().expect("it starts");
    assert!(ended.success(), "{ended}");
}

/// Not a test: what a host does. Every host's service has the same name, its channel the same
/// number, and its events another number.
#[test]
fn host() {
    let role = std::env::var(ROLE).unwrap_or_default();
    match &*role {
        "" => return,
        "nest" => return nest(),
        _ => {}
    }
    let ecalls = Ecalls::host().expect("a core");
    let mut channel = ecalls.channel().open().expect("a channel");
    let service = ecalls
        .register_service("same", "u64 value", "")
        .expect("a name that nobody has in this instance");
    let _subscription = ecalls
        .subscribe("same")
        .expect("it")
        .memory(&channel)
        .install()
        .expect("one");
    let pid = u64::from(ecalls.pid());
    println!("\nready {:?} {}", channel.id(), service.index());
    let _ = std::io::stdin().lines().next();
    let caller = channel.caller();
    for value in 0..CALLS {
        let word = value.cast_unsigned() ^ pid << 32;
        let set = caller.fast(Call::Set {
            attribute: 3,
            value: word,
        });
        assert_eq!(set.expect("a call"), 0, "{:?}", ecalls.access().fast_call());
        hook_answers(&ecalls, channel.id());
        let got = caller.fast(Call::Get { attribute: 3 }).expect("a call");
        assert_eq!(got.cast_unsigned(), word, "another core answered");
    }
    for _ in 0..EVENTS {
        service
            .raise(&Raise::new(&pid.to_ne_bytes()))
            .expect("raised");
    }
    let mut own = 0;
    take_until_quiet(&mut channel, |event| {
        assert_eq!(
            event.data_bytes(),
            pid.to_ne_bytes(),
            "another host's event"
        );
        own += 1;
    });
    assert_eq!(own, EVENTS);
    assert_comes_to_rest(&ecalls, service.index());
    let count = ecalls.access().service_stat(service.index());
    assert_eq!(count.expect("it").count.raised, EVENTS, "of this core only");
    println!("\ngood");
    let _ = std::io::stdin().lines().next();
}

/// The library would call by another mechanism if the hook did not answer, so that only the time
/// would tell.
fn hook_answers(ecalls: &Ecalls, channel: Id) {
    if ecalls.access().fast_call().expect("one") != FastCall::Security {
        return;
    }
    let op = u16::try_from(Op::Getpid.raw()).expect("small");
    let call = downcall::call(channel.raw(), 0, op);
    // SAFETY: the arguments are numbers.
    let returned = unsafe { libc::prctl(downcall::PRCTL, call, 0u64, 0u64, 0u64) };
    assert_eq!(
        returned.cast_unsigned(),
        ecalls.pid(),
        "another core refused it"
    );
}

fn tell(host: &mut Running) {
    let mut input = host.input().expect("a pipe");
    input.write_all(b"go\ngo\n").expect("it reads");
}

#[test]
fn instances_share_no_service_no_event_and_no_call() {
    if std::env::var_os(ROLE).is_some() || !may_load() {
        return;
    }
    // One after the other: each loads a core, which takes seconds on an emulated machine.
    let started = NAMES.map(|name| {
        let is_nested = name == NAMES[2] && knows_namespaces();
        let mut host = start(name, if is_nested { "nest" } else { "host" });
        let mut lines = host.lines();
        let place = lines.find("ready", PATIENCE);
        (host, lines, place)
    });
    let places = started.each_ref().map(|(_, _, place)| place);
    assert!(
        places.iter().all(|place| *place == places[0]),
        "the same numbers, so that mixing them up would show: {places:?}"
    );
    let mut hosts = started.map(|(host, lines, _)| (host, lines));
    hosts.iter_mut().for_each(|(host, _)| tell(host));
    for (_, lines) in &mut hosts {
        lines.find("good", PATIENCE);
    }
    for (host, _) in &mut hosts {
        host.kill(PATIENCE);
    }
    for name in NAMES {
        let _ = std::fs::remove_file(format!("/run/ecalls@{name}.lock"));
    }
}

#[test]
fn impossible_name_of_an_instance_is_refused() {
    let mut command = again("host");
    command.env(INSTANCE, "../etc/passwd");
    let ended = limit::output(&mut command, PATIENCE);
    let text = String::from_utf8_lossy(&ended.stdout).into_owned()
        + &String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{text}");
    assert!(
        text.contains("ECALLS_INSTANCE") || text.contains("Denied"),
        "{text}"
    );
}
