//! Rows that are used again: what one process leaves behind, killed at any moment, is nothing to
//! the next one. Needs root.
//!
//! The processes that are killed are this test binary again, told by an environment variable what
//! to do.

mod harness;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ecalls::downcall::Call;
use ecalls::socket::Interest;
use ecalls::{Channel, DropReason, Ecalls, Handler, Raise, Service};
use ecalls_abi::service::SERVICE_SOCKET;
use harness::{PATIENCE, QUIET, assert_all_adds_up, core, own_service};
use limit::Running;
use limit::calm::measured;

/// What the child does, and the name of the service with which it does it.
const ROLE: &str = "ECALLS_TEST_ROLE";
const NAME: &str = "ECALLS_TEST_NAME";

/// Kills of each of the tests that kill at random moments.
const KILLS: u32 = 40;

/// One test at a time: each wants the rows that its own children leave.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(role: &str, name: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args(["--exact", "child", "--nocapture"])
        .env(ROLE, role)
        .env(NAME, name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Running::start(&mut command)
}

/// The same, and waits until the child says that it is where it wants to be.
fn start_ready(role: &str, name: &str) -> Running {
    let mut running = start(role, name);
    running.lines().find("ready", PATIENCE);
    running
}

fn until_killed() {
    println!("\nready");
    let _ = std::io::stdin().lines().next();
}

/// Not a test: what a child does.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let name = std::env::var(NAME).expect("a name");
    let ecalls = Ecalls::join().expect("a core").expect("its parent's core");
    match role.as_str() {
        "subscribe" => {
            let channel = ecalls.channel().open().expect("a channel");
            let builder = ecalls.subscribe(&name).expect("the service");
            let _subscription = builder.memory(&channel).install().expect("one");
            until_killed();
        }
        "show its signs of life" => assert_signs_enclose(),
        "register" => {
            let _service = ecalls.register_service(&name, "u64 value", "").expect("it");
            until_killed();
        }
        "watch sockets in turn" => watch_in_turn(&ecalls, &name),
        "register again and again" => loop {
            drop(ecalls.register_service(&name, "u64 value", "").expect("it"));
        },
        "defer" | "defer again" => {
            let _channel = ecalls.channel().defer_switch().open().expect("a channel");
            if role == "defer" {
                let mut next = Command::new(std::env::current_exe().expect("this binary"));
                next.args(["--exact", "child", "--nocapture"]);
                panic!("{}", next.env(ROLE, "defer again").exec());
            }
            until_killed();
        }
        other => panic!("{other}?"),
    }
}

/// Subscribes to sockets, each time in another of the ways that have a short one.
fn watch_in_turn(ecalls: &Ecalls, name: &str) {
    let channel = ecalls.channel().open().expect("a channel");
    let subscribe = || ecalls.subscribe(name).expect("the service");
    for turn in 0.. {
        let builder = match turn % 4 {
            0 => subscribe(),
            1 => subscribe().ecode("bytes % 2 == 0"),
            2 => subscribe().coalesce(),
            _ => subscribe().ecode("event.time > 0").deadline(PATIENCE),
        };
        let _subscription = builder.memory(&channel).install().expect("one");
        if turn == 0 {
            println!("\nready");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn raise(service: &Service, value: u64) -> i64 {
    service
        .raise(&Raise::new(&value.to_ne_bytes()))
        .expect("raised")
}

#[test]
fn killed_subscribers_row_brings_the_next_one_no_events_of_another_service() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (first, first_name) = own_service(&ecalls);
    let (second, second_name) = own_service(&ecalls);
    drop(start_ready("subscribe", &first_name));
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&second_name).expect("the service");
    let subscription = builder.memory(&channel).install().expect("one");
    assert_eq!(raise(&first, 1), 0, "nobody subscribes to it any more");
    assert_eq!(raise(&second, 2), 1);
    let got: Vec<_> = std::iter::from_fn(|| channel.try_recv())
        .map(|event| event.data_word())
        .collect();
    assert_eq!(got, [2]);
    assert_eq!(subscription.count().expect("its count").offered, 1);
    assert_all_adds_up(&ecalls, first.index());
    assert_all_adds_up(&ecalls, second.index());
}

#[test]
fn name_of_a_killed_service_leads_to_no_other_and_can_be_registered_again() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (probe, name) = own_service(&ecalls);
    drop(probe);
    drop(start_ready("register", &name));
    let (next, _) = own_service(&ecalls);
    assert!(ecalls.subscribe(&name).is_err(), "it is gone");
    assert_eq!(raise(&next, 1), 0);
    let back = ecalls.register_service(&name, "u64 value", "");
    let back = back.expect("a name that no living service has");
    assert_ne!(back.index(), next.index());
}

#[test]
fn services_subscribers_wait_for_it_and_for_no_other() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let _subscription = builder.memory(&channel).install().expect("one");
    drop(service);
    let (other, _) = own_service(&ecalls);
    assert_eq!(raise(&other, 1), 0, "that is another service");
    let service = ecalls.register_service(&name, "u64 value", "").expect("it");
    assert_eq!(raise(&service, 2), 1, "it has come back");
    let got = channel.try_recv().map(|event| event.data_word());
    assert_eq!((got, channel.try_recv().is_none()), (Some(2), true));
}

#[test]
fn event_that_waits_for_its_release_is_not_the_next_services() {
    measured(Duration::from_millis(50), || {
        let Some(ecalls) = core() else { return };
        let _alone = alone();
        let (first, first_name) = own_service(&ecalls);
        let index = first.index();
        let mut channel = ecalls.channel().open().expect("a channel");
        let builder = ecalls.subscribe(&first_name).expect("the service");
        let subscription = builder.memory(&channel).install().expect("one");
        let later = Raise::new(&[1; 8]).release(Duration::from_millis(300));
        assert_eq!(first.raise(&later).expect("raised"), 1);
        drop((subscription, first));
        let (second, second_name) = own_service(&ecalls);
        if second.index() != index {
            eprintln!("skipped: another program took the row");
            return;
        }
        let builder = ecalls.subscribe(&second_name).expect("the service");
        let _subscription = builder.memory(&channel).install().expect("one");
        let event = channel
            .recv_timeout(Duration::from_millis(500))
            .expect("a living core");
        assert_eq!(event.map(|event| event.data_word()), None);
        assert_all_adds_up(&ecalls, second.index());
    });
}

#[test]
fn event_that_waits_for_its_release_is_delivered_if_its_service_comes_back() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let _subscription = builder.memory(&channel).install().expect("one");
    let later = Raise::new(&[1; 8]).release(Duration::from_millis(300));
    assert_eq!(service.raise(&later).expect("raised"), 1);
    drop(service);
    let service = ecalls.register_service(&name, "u64 value", "").expect("it");
    let event = channel.recv_timeout(PATIENCE).expect("a living core");
    assert!(event.is_some());
    assert_all_adds_up(&ecalls, service.index());
}

/// No service is left of a process that is no more.
fn assert_no_orphan(ecalls: &Ecalls, pid: u32) {
    let services = ecalls.services().expect("the services");
    let orphan = services.iter().find(|service| service.owner == pid);
    let name = orphan.map(|service| service.info.name().to_owned());
    assert_eq!(name, None, "its owner {pid} was killed");
}

#[test]
fn service_ends_with_its_process_whenever_that_is_killed() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (probe, name) = own_service(&ecalls);
    drop(probe);
    for kill in 0..KILLS {
        let child = start("register again and again", &name);
        std::thread::sleep(Duration::from_millis(8) + Duration::from_micros(371) * kill);
        let pid = child.id();
        drop(child);
        assert_no_orphan(&ecalls, pid);
    }
}

#[test]
fn subscribing_does_not_bring_a_killed_service_back() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (probe, name) = own_service(&ecalls);
    drop(probe);
    let channel = ecalls.channel().open().expect("a channel");
    for kill in 0..KILLS {
        let child = start_ready("register", &name);
        let (pid, stop) = (child.id(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(builder) = ecalls.subscribe(&name) {
                        let _ = builder.memory(&channel).install();
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(5) + Duration::from_micros(533) * kill);
            drop(child);
            stop.store(true, Ordering::Relaxed);
        });
        assert_no_orphan(&ecalls, pid);
    }
}

#[test]
fn program_that_a_process_executes_may_defer_to_its_scheduling() {
    let Some(_ecalls) = core() else { return };
    let _alone = alone();
    drop(start_ready("defer", ""));
}

/// Whether a channel has the place that one had before; not if another program was faster.
fn is_same_place(channel: &Channel, place: u32) -> bool {
    if channel.id().index() != place {
        eprintln!("skipped: another program took the place");
    }
    channel.id().index() == place
}

#[test]
fn losses_of_a_closed_channel_are_not_shown_in_the_next_one() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let histogram = Handler::Histogram {
        field: "value".into(),
        shift: 0,
    };
    let closed = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let builder = builder.handler(&histogram).memory(&closed);
    let subscription = builder.install().expect("one");
    let place = closed.id().index();
    drop(closed);
    let next = ecalls.channel().open().expect("a channel");
    if !is_same_place(&next, place) {
        return;
    }
    raise(&service, 5);
    let count = subscription.count().expect("its count");
    assert_eq!(count.dropped(DropReason::ChannelGone), 1);
    assert_eq!(next.lost().dropped(DropReason::ChannelGone), 0);
    assert_eq!(next.histogram().iter().sum::<u64>(), 0);
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn long_delay_of_a_closed_channel_does_not_hold_up_the_next_one() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let set = |value| Call::Set {
        attribute: 0,
        value,
    };
    let long = ecalls.channel().defer_delay(Duration::from_secs(3600));
    let long = long.open().expect("a channel");
    long.caller().defer(set(1)).expect("deferred");
    let place = long.id().index();
    drop(long);
    let short = ecalls.channel().defer_delay(Duration::from_millis(1));
    let short = short.open().expect("a channel");
    if !is_same_place(&short, place) {
        return;
    }
    short.caller().defer(set(2)).expect("deferred");
    let handled = || short.caller().pending() == 0;
    harness::wait_until("it is handled after its own delay", handled);
}

#[test]
fn chain_goes_on_in_a_thread_for_an_event_raised_before_a_scheduling() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let mut channel = ecalls.channel().defer_switch().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let builder = builder.thread(&Handler::Count { end: false });
    let _subscription = builder.memory(&channel).install().expect("one");
    let call = Call::Raise {
        service: service.index(),
        kind: 0,
        target: -1,
        data: 7,
    };
    channel.caller().defer(call).expect("deferred");
    std::thread::sleep(QUIET); // a scheduling
    let event = channel.recv_timeout(PATIENCE).expect("a living core");
    assert_eq!(event.map(|event| event.data_word()), Some(7));
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn longest_deadline_is_not_late() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let builder = builder.deadline(Duration::MAX).memory(&channel);
    let _subscription = builder.install().expect("one");
    raise(&service, 1);
    assert_eq!(channel.try_recv().map(|event| event.data_word()), Some(1));
    assert_all_adds_up(&ecalls, service.index());
}

/// Numbers of this process' descriptors whose target starts with `target`.
fn descriptors(target: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc/self/fd").expect("its descriptors");
    all.filter_map(|entry| {
        let entry = entry.ok()?;
        let path = std::fs::read_link(entry.path()).ok()?;
        let own = path.to_string_lossy().starts_with(target);
        own.then(|| entry.file_name().to_string_lossy().parse().ok())?
    })
    .collect()
}

/// Of a process that has opened a core once, so that no number is used again.
fn assert_signs_enclose() {
    let lock = ecalls_kernel::lock_path().expect("the usual one");
    let maps = descriptors("anon_inode:bpf-map");
    let signs = descriptors(&lock.to_string_lossy());
    // The largest numbers are copies, which close nothing.
    let programs = descriptors("anon_inode:bpf-prog");
    let enclosed =
        signs.iter().min() < maps.iter().min() && signs.iter().max() > programs.iter().max();
    assert!(
        enclosed && !maps.is_empty(),
        "{signs:?} {maps:?} {programs:?}"
    );
}

#[test]
fn signs_of_life_enclose_all_maps_of_a_core() {
    let Some(_ecalls) = core() else { return };
    let status = start("show its signs of life", "").wait(PATIENCE);
    assert!(status.success(), "{status}");
}

/// Bytes arrive all the time, while whoever wants to know of them is killed and comes again: alone,
/// and beside one that stays and gets each event.
#[test]
fn killed_subscribers_of_a_socket_cost_the_others_no_event() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let mut there = TcpStream::connect(address).expect("a connection");
    let (mut here, _) = listener.accept().expect("the connection");
    let interest = Interest::default().everyone();
    ecalls.watch_socket(&here, &interest).expect("registered");
    let raised = || {
        let stat = ecalls.access().service_stat(SERVICE_SOCKET);
        stat.expect("the service").count.raised
    };
    let mut channel = ecalls.channel().ring(65536).open().expect("a channel");
    for stays in [false, true] {
        let before = raised();
        let subscribe = || ecalls.subscribe("socket").expect("the service");
        let mine = stays.then(|| subscribe().memory(&channel).install().expect("one"));
        let (mut read, stop) = (0, AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = [0];
                while !stop.load(Ordering::Relaxed) {
                    there.write_all(&byte).expect("sent");
                    here.read_exact(&mut byte).expect("read");
                }
            });
            for kill in 0..KILLS {
                let child = start_ready("watch sockets in turn", "socket");
                std::thread::sleep(Duration::from_micros(371) * kill);
                drop(child);
                read += std::iter::from_fn(|| channel.try_recv()).count() as u64;
            }
            stop.store(true, Ordering::Relaxed);
        });
        read += std::iter::from_fn(|| channel.try_recv()).count() as u64;
        assert!(raised() > before, "none was raised");
        if let Some(mine) = mine {
            let count = mine.count().expect("its count");
            let full = count.dropped(DropReason::RingFull);
            assert_eq!((count.offered, count.delivered), (raised() - before, read));
            assert_eq!(full + read, count.offered);
        }
        assert_all_adds_up(&ecalls, SERVICE_SOCKET);
    }
}
