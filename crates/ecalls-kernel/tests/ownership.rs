//! What outlives its owner, or would reach beyond its user, and must not: registrations of sockets,
//! rows of services, channels of processes that end meanwhile, and what events tell of others.
//! Needs root.

#![allow(unsafe_code, reason = "threads of other users, kept on one CPU")]

mod harness;

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ecalls_abi::Event;
use ecalls_abi::event::TARGET_ALL;
use ecalls_abi::handler::HANDLER_COUNT;
use ecalls_abi::service::{SERVICE_SCHED, SERVICE_SOCKET, SchedEvent, SocketInterest};
use ecalls_abi::subscription::{ACTION_MEMORY, Action, SCOPE_ALL, SCOPE_OWN};
use ecalls_kernel::Error;
use ecalls_kernel::channel::{HostedChannel, Shape};
use ecalls_kernel::owner::Owner;
use ecalls_kernel::service::{self, HostedService};
use ecalls_kernel::subscription::{HostedSubscription, Request};
use ecalls_kernel::user::Limits;
use harness::{Stage, as_user, handler, request, stage};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, FromZeros};

const ANNA: u32 = 61_001;
const BERT: u32 = 61_002;
const ROW: u32 = 201;

/// Rows of application services.
const SERVICES: u32 = 240;

fn register(stage: &Stage, uid: u32, name: &str) -> ecalls_kernel::Result<HostedService> {
    let info = service::describe(name, "", "").expect("a name");
    HostedService::register(Arc::clone(&stage.core), &stage.owner(uid, 0), &info)
}

fn subscribe(stage: &Stage, uid: u32, service: u32) -> HostedSubscription {
    let wanted = Request {
        service,
        ..request(vec![handler(HANDLER_COUNT)])
    };
    let owner = stage.owner(uid, 0);
    HostedSubscription::install(Arc::clone(&stage.core), &owner, &wanted).expect("room for it")
}

/// Rows of services that have ended are kept for what subscribed to them, and nobody is charged for
/// that: so nobody may keep them all.
#[test]
fn rows_that_subscriptions_keep_are_given_back_when_others_need_them() {
    let Some(stage) = stage() else { return };
    let berts = register(&stage, BERT, "berts-own").expect("a free row");
    let (index, kept) = (berts.index(), subscribe(&stage, BERT, berts.index()));
    drop(berts);
    let mut held = Vec::new();
    for number in 0..SERVICES + 10 {
        let service = register(&stage, ANNA, &format!("annas-{number}")).expect("a row");
        held.push(subscribe(&stage, ANNA, service.index()));
    }
    register(&stage, 0, "roots-own").expect("a row for everybody else");
    // Who had one row kept has it still; the subscription sees its service come back.
    let berts = register(&stage, BERT, "berts-own").expect("its own row");
    assert_eq!(berts.index(), index);
    let stat = stage.core.service_stat(index).expect("its row");
    assert_eq!(stat.subscriptions, 1, "which still is subscribed to it");
    drop((kept, held));
}

/// An event that arrives at a socket of Anna's.
fn arrive(receiver: &UdpSocket) {
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = receiver.local_addr().expect("an address");
    sender.send_to(&[1], to).expect("a datagram");
    let mut bytes = [0; 8];
    receiver.recv(&mut bytes).expect("the datagram");
}

/// A registration lives as long as its socket, a user's row only as long as the user's clients.
#[test]
fn registration_of_a_socket_ends_when_its_row_is_another_users() {
    let Some(stage) = stage() else { return };
    let core = &stage.core;
    core.set_user(ROW, ANNA, &Limits::default()).expect("a row");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let interest = SocketInterest {
        target: TARGET_ALL,
        kinds: 1,
        pid: std::process::id(),
        uid: ANNA,
        user: ROW,
        ..SocketInterest::default()
    };
    let subscription = {
        let wanted = Request {
            service: SERVICE_SOCKET,
            ..request(vec![handler(HANDLER_COUNT)])
        };
        let owner = stage.owner(0, 0);
        HostedSubscription::install(Arc::clone(core), &owner, &wanted).expect("room for it")
    };
    ecalls_kernel::socket::register(core, socket.as_fd(), &interest).expect("a socket");
    arrive(&socket);
    assert_eq!(stage.count(&subscription).offered, 1);
    core.free_user(ROW).expect("a row");
    arrive(&socket);
    assert_eq!(stage.count(&subscription).offered, 1, "nobody's row");
    core.set_user(ROW, BERT, &Limits::default()).expect("a row");
    arrive(&socket);
    assert_eq!(stage.count(&subscription).offered, 1, "Bert's row");
    core.set_user(ROW, ANNA, &Limits::default()).expect("a row");
    arrive(&socket);
    assert_eq!(stage.count(&subscription).offered, 2);
}

/// What is opened for a process that has just ended would be nobody's to end.
#[test]
fn nothing_becomes_active_for_a_process_that_has_ended() {
    let Some(stage) = stage() else { return };
    let mut child = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .spawn()
        .expect("a process");
    let identity = stage.core.identify(child.id()).expect("it lives");
    let owner = Owner::new(&identity, 0);
    child.kill().expect("a child");
    child.wait().expect("a child");
    let channel = HostedChannel::open(Arc::clone(&stage.core), &owner, &Shape::default());
    assert!(matches!(channel, Err(Error::Closed(_))), "{channel:?}");
    let wanted = request(vec![handler(HANDLER_COUNT)]);
    let subscription = HostedSubscription::install(Arc::clone(&stage.core), &owner, &wanted);
    assert!(
        matches!(subscription, Err(Error::Closed(_))),
        "{subscription:?}"
    );
    let open = stage.core.channels().expect("a table");
    assert!(open.iter().all(|row| row.owner != owner.pid), "{open:?}");
}

/// The first thread runs so often, the second whenever the first does not.
fn sleeper_and_other(turns: u32) {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stay_on_cpu_0();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        as_user(ANNA, || {
            stay_on_cpu_0();
            for _ in 0..turns {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

fn stay_on_cpu_0() {
    let set = [1u64; 1];
    // SAFETY: a set of bits that the call reads, as many bytes as it is told; 0 is this thread.
    let error = unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) };
    assert_eq!(error, 0);
}

/// What a subscription to `sched` was told of Anna's threads: which ones ran before them.
fn threads_before(stage: &Stage, scope: u32) -> Vec<u32> {
    let (core, owner) = (Arc::clone(&stage.core), stage.owner(ANNA, 0));
    // Room for the events of all threads of a busy machine.
    let shape = Shape {
        capacity: 1 << 14,
        ..Shape::default()
    };
    let channel = HostedChannel::open(core, &owner, &shape).expect("a channel");
    let mut memory = Action::new_zeroed();
    memory.kind = ACTION_MEMORY;
    memory.channel = channel.id().raw();
    let wanted = Request {
        service: SERVICE_SCHED,
        channel: Some(channel.id()),
        coalesce: false,
        scope,
        ..request(vec![memory])
    };
    let core = Arc::clone(&stage.core);
    let subscription = HostedSubscription::install(core, &owner, &wanted).expect("room for it");
    sleeper_and_other(400);
    drop(subscription);
    let [up, ..] = channel.map_ids().expect("its maps");
    let up = MapHandle::from_map_id(up).expect("a descriptor of its own");
    let elements = 4..4 + shape.capacity;
    let events = elements.filter_map(|at| {
        let bytes = up.lookup(&at.to_ne_bytes(), MapFlags::ANY).ok()??;
        Event::read_from_bytes(&bytes).ok()
    });
    let hers = events.filter(|event| event.sequence != 0 && event.uid == ANNA);
    hers.map(|event| event.data_as::<SchedEvent>().expect("its data").previous)
        .collect()
}

/// Which thread had the CPU before is another user's matter.
#[test]
fn event_of_the_scheduler_tells_a_user_nothing_of_others_threads() {
    let Some(stage) = stage() else { return };
    let parameter = stage
        .core
        .service_stat(SERVICE_SCHED)
        .expect("it")
        .parameter_ns;
    stage
        .core
        .set_parameter(SERVICE_SCHED, 1)
        .expect("a threshold");
    let (all, own) = (
        threads_before(&stage, SCOPE_ALL),
        threads_before(&stage, SCOPE_OWN),
    );
    let parameter = parameter.expect("it has one");
    stage
        .core
        .set_parameter(SERVICE_SCHED, parameter)
        .expect("a threshold");
    assert!(all.iter().any(|thread| *thread != 0), "{all:?}");
    assert!(
        !own.is_empty() && own.iter().all(|thread| *thread == 0),
        "{own:?}"
    );
}
