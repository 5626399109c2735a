//! The kernel's own services on real activity: sockets, processes, the scheduler. Needs root.

mod harness;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use ecalls::socket::Interest;
use ecalls::{Event, SlotUse};
use ecalls_abi::service::{
    SERVICE_SCHED, SERVICE_SOCKET, SOCKET_CONNECTION, SOCKET_DATA, SchedEvent, SocketEvent,
    TASK_EXEC, TASK_EXIT, TASK_FORK, TaskEvent,
};
use harness::{PATIENCE, core, find, take_until_quiet, wait_until};
use limit::Running;

#[test]
fn listener_tells_connections_and_its_connections_tell_data() {
    let Some(ecalls) = core() else { return };
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls
        .subscribe("socket")
        .expect("the service")
        .memory(&channel);
    let _subscription = builder.install().expect("a subscription");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    ecalls
        .watch_socket(&listener, &Interest::default().slot_type(7))
        .expect("registered");
    let port = listener.local_addr().expect("its address").port();
    // Another test's sockets are heard here, too: they are this process's.
    let own = |event: &Event| event.r#type == 7;
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let ready = find(&mut channel, "a connection", |e| {
        e.kind == SOCKET_CONNECTION && own(e)
    });
    let data: SocketEvent = ready.data_as().expect("a socket event");
    assert_eq!((ready.r#type, data.local_port, data.backlog), (7, port, 1));
    let (mut server, _) = listener.accept().expect("the connection");
    server.set_read_timeout(Some(PATIENCE)).expect("an option");
    client.write_all(b"twelve bytes").expect("sent");
    let arrived = find(&mut channel, "data", |e| e.kind == SOCKET_DATA && own(e));
    let data: SocketEvent = arrived.data_as().expect("a socket event");
    assert_eq!(
        (data.bytes, data.inherited),
        (12, 1),
        "through its listener"
    );
    assert_eq!(
        data.remote_port,
        client.local_addr().expect("its address").port()
    );
    server.read_exact(&mut [0; 12]).expect("what was sent");
    // A socket of one's own, without inheritance: only what was registered.
    ecalls
        .forget_socket(std::os::fd::AsFd::as_fd(&server))
        .expect("forgotten");
    client.write_all(b"more").expect("sent");
    take_until_quiet(&mut channel, |event| {
        assert!(!own(event), "forgotten sockets are silent: {event:?}");
    });
    let wrong = ecalls.watch_socket(std::io::stdin(), &Interest::default());
    if let Err(error) = wrong {
        assert!(error.to_string().contains("an open socket"), "{error}");
    }
    harness::assert_all_adds_up(&ecalls, SERVICE_SOCKET);
}

#[test]
fn ready_sockets_are_bits_of_their_slots() {
    let Some(ecalls) = core() else { return };
    let mut channel = ecalls
        .channel()
        .slots(1024, SlotUse::Type)
        .open()
        .expect("a channel");
    let builder = ecalls
        .subscribe("socket")
        .expect("the service")
        .memory(&channel);
    let _subscription = builder.install().expect("a subscription");
    let mut pairs: Vec<_> = (0..100)
        .map(|_| UnixStream::pair().expect("sockets"))
        .collect();
    for (slot, (here, _)) in (500u32..).zip(&pairs) {
        ecalls
            .watch_socket(here, &Interest::default().slot_type(slot))
            .expect("registered");
    }
    for at in [3, 77, 78] {
        pairs[at].1.write_all(b"x").expect("sent");
    }
    let mut ready = Vec::new();
    channel.take_ready(|slot| ready.push(slot));
    assert_eq!(ready, [503, 577, 578]);
    let mut again = Vec::new();
    channel.take_ready(|slot| again.push(slot));
    assert!(again.is_empty(), "taken once");
    pairs[3].1.write_all(b"y").expect("sent");
    channel.for_each_ready(|slot| again.push(slot));
    assert_eq!(again, [503], "set again by new data");
}

#[test]
fn process_that_starts_executes_and_ends_is_told() {
    let Some(ecalls) = core() else { return };
    let mut channel = ecalls.channel().ring(16384).open().expect("a channel");
    let builder = ecalls
        .subscribe("task")
        .expect("the service")
        .memory(&channel);
    let _subscription = builder.install().expect("a subscription");
    let mut child = Running::start(Command::new("sh").args(["-c", "exit 3"]));
    let pid = child.id();
    child.wait(PATIENCE);
    let data = |event: &Event| event.data_as::<TaskEvent>().expect("a task event");
    find(&mut channel, "its fork", |e| {
        e.kind == TASK_FORK && data(e).child == pid
    });
    let exec = find(&mut channel, "its exec", |e| {
        e.kind == TASK_EXEC && data(e).pid == pid
    });
    assert_eq!(data(&exec).comm(), "sh");
    let exit = find(&mut channel, "its exit", |e| {
        e.kind == TASK_EXIT && data(e).pid == pid
    });
    assert_eq!(data(&exit).code >> 8, 3, "its status");
}

#[test]
fn thread_that_waited_for_a_cpu_is_told() {
    let Some(ecalls) = core() else { return };
    let mut channel = ecalls.channel().ring(16384).open().expect("a channel");
    let before = ecalls
        .core()
        .expect("hosted here")
        .service_stat(SERVICE_SCHED)
        .expect("the service");
    ecalls
        .core()
        .expect("hosted here")
        .set_parameter(SERVICE_SCHED, 200_000)
        .expect("a threshold");
    let builder = ecalls
        .subscribe("sched")
        .expect("the service")
        .memory(&channel);
    let subscription = builder.install().expect("a subscription");
    // Two busy loops on one CPU wait for each other.
    let loops = [(); 2].map(|()| {
        let busy = ["-c", "0", "sh", "-c", "while :; do :; done"];
        Running::start(Command::new("taskset").args(busy))
    });
    let pids: Vec<u32> = loops.iter().map(Running::id).collect();
    let data = |event: &Event| event.data_as::<SchedEvent>().expect("a sched event");
    let told = find(&mut channel, "a delay of theirs", |e| {
        pids.contains(&data(e).pid)
    });
    assert!(data(&told).delay_ns >= 200_000, "{:?}", data(&told));
    drop((loops, subscription));
    ecalls
        .core()
        .expect("hosted here")
        .set_parameter(SERVICE_SCHED, 1_000_000)
        .expect("a threshold");
    assert_eq!(before.index, SERVICE_SCHED);
    wait_until("nothing is under way", || {
        let count = ecalls
            .core()
            .expect("hosted here")
            .service_stat(SERVICE_SCHED)
            .expect("it")
            .count;
        count.raised == count.dispatched + count.late + count.dropped.iter().sum::<u64>()
    });
}

#[test]
fn service_without_subscriptions_is_not_attached() {
    let Some(ecalls) = core() else { return };
    let attached = |name: &str| {
        let index = ecalls
            .core()
            .expect("hosted here")
            .find_service(name)
            .expect("the service");
        ecalls
            .core()
            .expect("hosted here")
            .is_attached(index)
            .expect("the core's record")
    };
    let channel = ecalls.channel().open().expect("a channel");
    let subscription = ecalls
        .subscribe("socket")
        .expect("it")
        .memory(&channel)
        .install()
        .expect("one");
    assert!(attached("socket"));
    drop(subscription);
    let start = std::time::Instant::now();
    while attached("socket") && start.elapsed() < PATIENCE {
        // Another test of this process may hold it for a moment.
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!attached("socket"), "detached with its last subscription");
}
