//! The service `memory` on control groups whose memory is limited. Needs root.
//!
//! `dd` with a block larger than the limit is what wants too much: it looks for memory, finds none,
//! and is killed. What is slowed down instead of killed (`memory.high`), or reads a file over and
//! over that does not fit, is under pressure.

mod harness;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use ecalls::{Channel, Ecalls, Event, Subscription};
use ecalls_abi::service::{
    MEMORY_PRESSURE, MEMORY_RECLAIM, MEMORY_VICTIM, MemoryEvent, SERVICE_MEMORY,
};
use harness::cgroup::{Group, measures_pressure};
use harness::{Parameter, core, find};

/// The threshold is one for all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const NOBODY: u32 = 65534;
const LIMIT: u64 = 16 << 20;
const TOO_MUCH: &str = "exec dd if=/dev/zero of=/dev/null bs=64M count=1";

fn watch(ecalls: &Ecalls) -> (Channel, Subscription) {
    let channel = ecalls.channel().ring(65536).open().expect("a channel");
    let builder = ecalls.subscribe("memory").expect("the service");
    let subscription = builder.memory(&channel).install().expect("a subscription");
    (channel, subscription)
}

fn data(event: &Event) -> MemoryEvent {
    event.data_as().expect("a memory event")
}

#[test]
fn process_that_wants_more_than_its_limit_looks_for_memory_and_is_killed() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let Some(mut group) = Group::new() else {
        return;
    };
    if !group.limit_memory(LIMIT, false) {
        return;
    }
    let _threshold = Parameter::set(&ecalls, SERVICE_MEMORY, Duration::ZERO);
    let (mut channel, subscription) = watch(&ecalls);
    let pid = group.run(TOO_MUCH, |command| {
        command.uid(NOBODY);
    });
    let (id, _) = group.ids();
    let mut reclaims = 0;
    let event = find(&mut channel, "the victim", |event| {
        if event.kind == MEMORY_RECLAIM && event.pid == pid {
            let told = data(event);
            assert_eq!((event.uid, told.pid), (NOBODY, pid));
            assert_eq!((told.limited, told.cgroup), (1, id), "{told:?}");
            assert_eq!(told.comm(), "dd");
            assert!(told.duration_ns > 0 && told.duration_ns < 20_000_000_000);
            reclaims += 1;
        }
        event.kind == MEMORY_VICTIM && data(event).pid == pid
    });
    assert!(reclaims > 0, "it looked for memory before");
    let told = data(&event);
    assert_eq!((event.pid, event.uid), (pid, NOBODY));
    assert_eq!((told.comm(), told.name()), ("dd", group.name()));
    assert_eq!((told.cgroup, told.score), (id, 0));
    assert!(
        told.pages > 0 && told.pages <= 2 * LIMIT / 4096,
        "about its limit: {told:?}"
    );
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_MEMORY);
}

#[test]
fn short_search_for_memory_raises_nothing() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let Some(mut group) = Group::new() else {
        return;
    };
    if !group.limit_memory(LIMIT, false) {
        return;
    }
    let _threshold = Parameter::set(&ecalls, SERVICE_MEMORY, Duration::from_secs(60));
    let (mut channel, subscription) = watch(&ecalls);
    let pid = group.run(TOO_MUCH, |_| ());
    find(&mut channel, "the victim", |event| {
        assert_ne!(event.kind, MEMORY_RECLAIM, "{:?}", data(event));
        assert_ne!(event.kind, MEMORY_PRESSURE, "{:?}", data(event));
        event.kind == MEMORY_VICTIM && data(event).pid == pid
    });
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_MEMORY);
}

/// Removed in the end.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn group_that_never_has_the_memory_it_needs_is_under_pressure() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    if !measures_pressure() {
        return;
    }
    let Some(mut group) = Group::new() else {
        return;
    };
    if !group.limit_memory(LIMIT, true) {
        return;
    }
    group.give_to(NOBODY);
    let _threshold = Parameter::set(&ecalls, SERVICE_MEMORY, Duration::from_millis(1));
    let (mut channel, subscription) = watch(&ecalls);
    // Version 1 does not slow down: there, a file that does not fit.
    let file = File(std::env::temp_dir().join(group.name()));
    if group.is_unified() {
        group.run(&format!("while :; do ({TOO_MUCH}); done"), |_| ());
    } else {
        // Made inside the group, for it is charged to whoever reads it into memory first.
        let path = file.0.display();
        let make = format!("dd if=/dev/zero of={path} bs=1M count=64");
        let read = format!("dd if={path} of=/dev/null bs=1M");
        group.run(&format!("{make}; while :; do {read}; done"), |_| ());
    }
    let (id, _) = group.ids();
    let event = find(&mut channel, "its pressure", |event| {
        event.kind == MEMORY_PRESSURE && data(event).cgroup == id
    });
    let told = data(&event);
    assert!(told.duration_ns >= 1_000_000, "{told:?}");
    assert!(told.full_ns <= told.duration_ns && told.duration_ns <= told.interval_ns);
    assert!(
        (1_000_000_000..10_000_000_000).contains(&told.interval_ns),
        "{told:?}"
    );
    assert_eq!((event.pid, event.uid), (0, NOBODY), "it is his group");
    assert_eq!((told.name(), told.limited, told.pid), (group.name(), 1, 0));
    find(&mut channel, "the machine's pressure", |event| {
        event.kind == MEMORY_PRESSURE && data(event).cgroup == 1 && data(event).limited == 0
    });
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_MEMORY);
}
