//! Handlers in E-code of ordinary users while things around them end and begin: a daemon that is
//! killed with handlers in the kernel, and kernel threads in which they run.

use std::time::{Duration, Instant};

use ecalls::{Channel, Ecalls};

use crate::actor::{Roles, Stage, start};
use crate::daemon::{self, await_end_of_core};
use crate::running::{PATIENCE, wait_until};
use crate::scene::{Scene, clear, new_user};
use crate::tests;
use crate::upload::{filtered, handlers, raise, received, service};

tests! {
    handlers_begin_anew_with_a_new_daemon
    handlers_of_clients_run_in_kernel_threads
}

pub(crate) const ROLES: Roles = &[("counts", count), ("in a thread", run_in_thread)];

/// Daemons that are killed under one client.
const DAEMONS: u32 = 3;

/// Handlers in E-code that are in the kernel when those of tests before have gone: the kernel frees
/// them later.
pub(crate) fn handlers_at_rest() -> usize {
    let begin = Instant::now();
    while handlers() > 0 && begin.elapsed() < PATIENCE / 3 {
        std::thread::sleep(Duration::from_millis(20));
    }
    handlers()
}

fn handlers_begin_anew_with_a_new_daemon() {
    clear();
    let (before, none) = (ecalls_kernel::residue(), handlers_at_rest());
    let mut daemon = daemon::start("");
    let mut client = start("counts", new_user(), &[]);
    for _ in 0..DAEMONS {
        client.expect("counted");
        assert_eq!(handlers(), none + 1);
        daemon.kill();
        wait_until("no handler stays", || handlers() == none);
        daemon = daemon::start("");
        client.say("again");
    }
    client.expect("counted");
    client.end();
    daemon.stop();
    await_end_of_core(&before);
}

/// With each daemon a handler that counts from 1 on.
fn count(stage: &mut Stage) {
    loop {
        let ecalls = Ecalls::open_within(PATIENCE).expect("the daemon");
        let (own, name) = service(&ecalls, "counts");
        let text = "struct output { u64 seen; }; static u64 n; output.seen = ++n; return 1;";
        let (_subscription, mut channel) = filtered(&ecalls, &name, text).expect("a handler");
        for value in 7..10 {
            assert!(raise(&own, value));
        }
        assert_eq!(
            received(&mut channel),
            [1, 2, 3],
            "not the former one's state"
        );
        stage.say("counted");
        if stage.hear().is_none() {
            return;
        }
    }
}

fn handlers_of_clients_run_in_kernel_threads() {
    Scene::begin().attack("in a thread", &[]);
}

fn run_in_thread(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (own, name) = service(&ecalls, "thread");
    let mut channel: Channel = ecalls.channel().ring(1024).open().expect("a channel");
    let subscription = ecalls
        .subscribe(&name)
        .expect("the service")
        .ecode_thread("static u64 n; n++; count(5); return value % 2 == n % 2;")
        .memory(&channel)
        .install()
        .expect("a handler");
    for value in 1..=6 {
        assert!(raise(&own, value));
        // One at a time: threads on several processors may change their order.
        wait_until("its thread ran", || channel.histogram()[5] == value);
    }
    wait_until("all are counted", || {
        let count = subscription.count().expect("its count");
        count.delivered + count.filtered == 6
    });
    assert_eq!(received(&mut channel), [1, 2, 3, 4, 5, 6]);
    stage.done();
}
