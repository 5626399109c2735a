//! The running daemon, with the test as its clients: what they get, what they are refused, and that
//! everything they had is gone when they are. Every system call outside the lists ends the daemon,
//! so each of these tests is also one of the lists.

#![allow(unsafe_code, reason = "a thread becomes another user by a system call")]
#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test fails, also in its harness"
)]

#[path = "../../ecalls/tests/harness/cgroup.rs"]
mod cgroup;
mod harness;

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use ecalls_abi::handler::{HANDLER_COPY_USER, HANDLER_REMOTE};
use ecalls_abi::message::{
    Answer, LookFate, Name, OWNER_UNTOLD, OpenChannel, QUOTA_BYTES, QUOTA_CHANNELS,
    QUOTA_CONNECTIONS, QUOTA_REQUESTS, QUOTA_SERVICES, QUOTA_SUBSCRIPTIONS, REFUSED_CLOSED,
    REFUSED_DENIED, REFUSED_INVALID, REFUSED_QUOTA, Request, SUBSCRIBE_COALESCE, SetParameter,
    Subscribe, UserView, WatchSocket,
};
use ecalls_abi::service::{SERVICE_SCHED, ServiceInfo};
use ecalls_abi::subscription::{ACTION_HANDLER, ACTION_SIGNAL, ACTION_THREAD};
use ecalls_abi::text;
use rustix::process::Signal;
use zerocopy::FromZeros;

use cgroup::Group;
use harness::running::command;
use harness::running::wait_until;
use harness::{ALICE, BOB, Client, PATIENCE, as_user, daemon, folder, number, ring, to_task};
use limit::Running;

fn info(name: &str) -> ServiceInfo {
    let mut info = ServiceInfo::new_zeroed();
    text::write(&mut info.name, name).unwrap();
    text::write(&mut info.format, "u64 value").unwrap();
    info
}

fn has_nothing(view: &UserView) -> bool {
    view.used[..QUOTA_BYTES].iter().all(|used| *used == 0)
}

#[test]
fn every_request_is_answered_and_the_daemon_ends_cleanly() {
    let Some(mut daemon) = daemon("") else { return };
    let client = daemon.client(ALICE);
    let channel = client.channel();
    let subscription = client.subscribe(channel);
    let service = client.value(&Request::RegisterService(info("alices")));
    let mut name = Name::new_zeroed();
    text::write(&mut name.name, "alices").unwrap();
    for request in [
        Request::FindService(name),
        Request::LookService(number(0)),
        Request::LookSubscription(number(0)),
        Request::LookChannel(number(0)),
        Request::LookQueue(number(0)),
        Request::LookUser(number(0)),
    ] {
        let answer = client.ask(&request).unwrap().0;
        let fits = !matches!(
            answer,
            Answer::Refused(_) | Answer::Done(_) | Answer::End(_)
        );
        assert!(fits, "{}: {answer:?}", request.name());
    }
    assert!(client.ask(&Request::LookFate(LookFate::default())).is_ok());
    let view = daemon.user(ALICE).unwrap();
    for quota in [
        QUOTA_CONNECTIONS,
        QUOTA_CHANNELS,
        QUOTA_SUBSCRIPTIONS,
        QUOTA_SERVICES,
    ] {
        assert_eq!(view.used[quota], 1, "quota {quota}");
    }
    let (socket, _other) = UnixStream::pair().unwrap();
    let socket = OwnedFd::from(socket);
    let watch = WatchSocket {
        target: i32::try_from(std::process::id()).unwrap(),
        kinds: 1,
        ..WatchSocket::default()
    };
    for request in [
        Request::WatchSocket(watch),
        Request::ForgetSocket(number(0)),
    ] {
        client
            .say(request.packet(1).as_bytes(), &[&socket])
            .unwrap();
        assert!(
            matches!(client.hear().unwrap().0, Answer::Done(_)),
            "{}",
            request.name()
        );
    }
    client.value(&Request::Unsubscribe(number(subscription)));
    client.value(&Request::CloseChannel(number(channel)));
    client.value(&Request::UnregisterService(number(service)));
    let again = client.refused(&Request::CloseChannel(number(channel)));
    assert_eq!(again.error, REFUSED_CLOSED);
    drop(client);
    daemon.wait_for(ALICE, has_nothing);
    daemon.stop();
    assert!(!daemon.folder().join("socket").exists());
}

#[test]
fn every_service_of_the_kernel_can_be_subscribed_to() {
    let Some(daemon) = daemon("") else { return };
    let client = daemon.client(ALICE);
    let channel = client.channel();
    let mut from = 0;
    let mut tried = 0;
    while let Answer::Service(view) = client.ask(&Request::LookService(number(from))).unwrap().0 {
        let request = Subscribe {
            service: view.index,
            ..to_task(channel)
        };
        // A kernel may lack one; that is not the daemon's to decide, and it lives on.
        match client.ask(&Request::Subscribe(request)).unwrap().0 {
            Answer::Done(_) => tried += 1,
            Answer::Refused(refused) => eprintln!("{}: {refused:?}", view.info.name()),
            other => panic!("{other:?}"),
        }
        from = view.index + 1;
    }
    assert!(tried >= 5, "only {tried} services");
}

#[test]
fn quotas_hold_at_n_and_are_given_back() {
    let limits = "[limits]\nconnections = 2\nchannels = 3\nsubscriptions = 2\nservices = 1";
    let Some(daemon) = daemon(limits) else { return };
    let client = daemon.client(ALICE);
    let channels: Vec<u32> = (0..3).map(|_| client.channel()).collect();
    let refused = client.refused(&ring());
    assert_eq!(
        (refused.error, refused.subject(), refused.number),
        (REFUSED_QUOTA, "channels", 3)
    );
    for _ in 0..2 {
        client.subscribe(channels[0]);
    }
    let refused = client.refused(&Request::Subscribe(to_task(channels[0])));
    assert_eq!((refused.subject(), refused.number), ("subscriptions", 2));
    client.value(&Request::RegisterService(info("one")));
    let refused = client.refused(&Request::RegisterService(info("two")));
    assert_eq!(
        (refused.subject(), refused.number),
        ("application services", 1)
    );
    let second = daemon.client(ALICE);
    let third = as_user(ALICE, || Client::connect(daemon.folder()).unwrap());
    let refused = third.hello().unwrap().unwrap_err();
    assert_eq!(
        (refused.error, refused.subject()),
        (REFUSED_QUOTA, "connections")
    );
    assert!(third.hear().is_err(), "and its connection is closed");
    // Others are not concerned, and what is closed can be had again.
    daemon.client(BOB).channel();
    client.value(&Request::CloseChannel(number(channels[1])));
    second.channel();
    drop((client, second));
    daemon.wait_for(ALICE, has_nothing);
}

#[test]
fn memory_is_charged_as_long_as_somebody_holds_it() {
    let Some(daemon) = daemon("") else { return };
    let client = daemon.client(ALICE);
    let bytes = |view: &UserView| view.used[QUOTA_BYTES];
    let (answer, held) = client.ask(&ring()).unwrap();
    let Answer::Done(done) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(held.len(), 3);
    let full = bytes(&daemon.user(ALICE).unwrap());
    let id = u32::try_from(done.value).unwrap();
    client.value(&Request::CloseChannel(number(id)));
    drop(client);
    thread::sleep(Duration::from_millis(1500));
    let view = daemon.user(ALICE).unwrap();
    assert_eq!(
        (bytes(&view), view.used[QUOTA_CHANNELS]),
        (full, 0),
        "still held"
    );
    drop(held);
    daemon.wait_for(ALICE, |view| bytes(view) == 0);
}

#[test]
fn nobody_gets_what_belongs_to_another() {
    let Some(daemon) = daemon("") else { return };
    let (alice, bob) = (daemon.client(ALICE), daemon.client(BOB));
    let own = bob.channel();
    let foreign = alice.channel();
    let subscription = alice.subscribe(foreign);
    let service = alice.value(&Request::RegisterService(info("alices")));
    for request in [
        Request::CloseChannel(number(foreign)),
        Request::Unsubscribe(number(subscription)),
        Request::UnregisterService(number(service)),
    ] {
        assert_eq!(
            bob.refused(&request).error,
            REFUSED_CLOSED,
            "{}",
            request.name()
        );
    }
    let refused = bob.refused(&Request::Subscribe(to_task(foreign)));
    assert_eq!(refused.error, REFUSED_INVALID, "another's channel");
    let denied = |request: Subscribe| bob.refused(&Request::Subscribe(request)).error;
    // The parent process is root's, and is not the client.
    let mut of_root = to_task(own);
    of_root.receiver = std::os::unix::process::parent_id();
    assert_eq!(denied(of_root), REFUSED_DENIED, "another process");
    of_root.action[0].kind = ACTION_SIGNAL;
    of_root.action[0].signal = 40;
    assert_eq!(denied(of_root), REFUSED_DENIED, "a signal to it");
    let mut sleeping = to_task(own);
    sleeping.action[0].kind = ACTION_THREAD;
    sleeping.action[0].handler = HANDLER_COPY_USER;
    assert_eq!(
        denied(sleeping),
        REFUSED_DENIED,
        "a handler that reads memory"
    );
    let mut remote = to_task(own);
    remote.action[0].kind = ACTION_HANDLER;
    remote.action[0].handler = HANDLER_REMOTE;
    assert_eq!(denied(remote), REFUSED_DENIED, "sending to other hosts");
    remote.action[0].kind = ACTION_THREAD;
    assert_eq!(denied(remote), REFUSED_INVALID, "doing so in a thread");
    let to_service = Subscribe {
        service,
        ..to_task(own)
    };
    assert_eq!(denied(to_service), REFUSED_DENIED, "another's service");
    let parameter = Request::SetParameter(SetParameter {
        service: SERVICE_SCHED,
        pad: 0,
        value: 1_000_000,
    });
    assert_eq!(bob.refused(&parameter).error, REFUSED_DENIED);
    assert_eq!(
        bob.refused(&Request::TakeMap(number(0))).error,
        REFUSED_DENIED
    );
    let taken = daemon.client(0).ask(&Request::TakeMap(number(0)));
    assert_eq!(taken.unwrap().1.len(), 1);
}

#[test]
fn a_user_sees_its_own_things_only() {
    let Some(daemon) = daemon("") else { return };
    let (alice, bob) = (daemon.client(ALICE), daemon.client(BOB));
    bob.channel();
    let foreign = alice.channel();
    alice.subscribe(foreign);
    let sees = bob.ask(&Request::LookSubscription(number(0))).unwrap().0;
    assert!(matches!(sees, Answer::End(_)), "{sees:?}");
    match bob.ask(&Request::LookChannel(number(0))).unwrap().0 {
        Answer::Channel(view) => assert_eq!(view.row.uid, BOB),
        other => panic!("{other:?}"),
    }
    match bob.ask(&Request::LookUser(number(0))).unwrap().0 {
        Answer::User(view) => assert_eq!(view.uid, BOB),
        other => panic!("{other:?}"),
    }
}

#[test]
fn whose_a_service_is_and_what_is_counted_of_it_is_told_to_its_user() {
    let Some(daemon) = daemon("") else { return };
    let (alice, bob, root) = (daemon.client(ALICE), daemon.client(BOB), daemon.client(0));
    let index = alice.value(&Request::RegisterService(info("alices-own")));
    let look = |client: &Client| match client.ask(&Request::LookService(number(index))) {
        Ok((Answer::Service(view), _)) => view,
        other => panic!("{other:?}"),
    };
    let (hers, foreign) = (look(&alice), look(&bob));
    assert_eq!(hers.owner, look(&root).owner);
    assert!(hers.owner != 0 && hers.owner != OWNER_UNTOLD);
    assert_eq!((foreign.index, foreign.info.name()), (index, "alices-own"));
    assert_eq!(foreign.owner, OWNER_UNTOLD);
    assert_eq!(
        (foreign.subscriptions, foreign.count),
        (0, FromZeros::new_zeroed())
    );
}

#[test]
fn numbers_without_a_meaning_are_refused_and_harm_nobody() {
    let Some(daemon) = daemon("") else { return };
    let client = daemon.client(ALICE);
    let channel = client.channel();
    let numbers = [0, 1, 7, 63, 64, 65, 4095, 4096, 1 << 12, 1 << 31, u32::MAX];
    for at in 0..numbers.len() {
        let (one, other) = (numbers[at], numbers[(at + 3) % numbers.len()]);
        let mut subscribe = to_task(channel);
        subscribe.service = one;
        subscribe.actions = other;
        subscribe.deadline_ns = u64::MAX;
        subscribe.action[0].kind = one;
        subscribe.action[0].handler = other;
        subscribe.action[0].argument = [u64::MAX; 3];
        let mut open = OpenChannel::default();
        (open.layout, open.capacity, open.slot_use) = (other, one, one);
        (open.defer, open.delay_ns) = (other, u64::MAX);
        for request in [
            Request::Subscribe(subscribe),
            Request::OpenChannel(open),
            Request::LookService(number(one)),
            Request::LookSubscription(number(one)),
            Request::LookChannel(number(one)),
            Request::LookQueue(number(one)),
            Request::LookUser(number(one)),
            Request::CloseChannel(number(one)),
            Request::RegisterService(ServiceInfo {
                name: [u8::try_from(one & 0xff).unwrap(); 32],
                ..info("x")
            }),
        ] {
            assert!(
                client.ask(&request).is_ok(),
                "{}: {one} {other}",
                request.name()
            );
        }
    }
    let unknown = Subscribe {
        flags: SUBSCRIBE_COALESCE << 1,
        ..to_task(channel)
    };
    let refused = client.refused(&Request::Subscribe(unknown));
    assert_eq!(refused.error, REFUSED_INVALID, "a flag");
    assert!(daemon.client(BOB).hello().is_ok());
}

#[test]
fn a_client_that_breaks_the_form_is_told_and_disconnected_and_others_are_not() {
    let Some(daemon) = daemon("") else { return };
    let (client, other) = (daemon.client(ALICE), daemon.client(ALICE));
    client.channel();
    client.say(&[0xff; 100], &[]).unwrap();
    match client.hear().unwrap().0 {
        Answer::Refused(_) => {}
        told => panic!("{told:?}"),
    }
    assert!(client.hear().is_err());
    daemon.wait_for(ALICE, |view| view.used[QUOTA_CHANNELS] == 0);
    other.channel();
}

#[test]
fn a_client_that_does_not_read_is_disconnected_and_others_are_served() {
    let Some(daemon) = daemon("") else { return };
    let (deaf, other) = (daemon.client(ALICE), daemon.client(ALICE));
    deaf.channel();
    rustix::io::ioctl_fionbio(&deaf.0, true).unwrap();
    let request = Request::LookService(number(0)).packet(1);
    let start = Instant::now();
    loop {
        match deaf.say(request.as_bytes(), &[]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(_) => break, // disconnected
        }
        assert!(start.elapsed() < PATIENCE, "still connected");
        let asked = Instant::now();
        other.ask(&Request::LookQueue(number(0))).unwrap();
        assert!(asked.elapsed() < Duration::from_secs(3));
    }
    daemon.wait_for(ALICE, |view| view.used[QUOTA_CHANNELS] == 0);
}

#[test]
fn a_user_that_floods_waits_and_others_do_not() {
    let Some(daemon) = daemon("[limits]\nrequests_per_s = 200\nrequests_burst = 20") else {
        return;
    };
    let flood = || {
        let client = daemon.client(ALICE);
        let start = Instant::now();
        let mut answers = 0u32;
        while start.elapsed() < Duration::from_secs(2) {
            client.ask(&Request::LookQueue(number(0))).unwrap();
            answers += 1;
        }
        answers
    };
    thread::scope(|scope| {
        let floods: Vec<_> = (0..8).map(|_| scope.spawn(flood)).collect();
        let victim = daemon.client(BOB);
        let mut waits: Vec<_> = (0..100)
            .map(|_| {
                thread::sleep(Duration::from_millis(10));
                let start = Instant::now();
                victim.ask(&Request::LookQueue(number(0))).unwrap();
                start.elapsed()
            })
            .collect();
        waits.sort();
        let answers: u32 = floods.into_iter().map(|flood| flood.join().unwrap()).sum();
        assert!(answers < 600, "{answers} answers in two seconds");
        assert!(
            waits[waits.len() / 2] < Duration::from_millis(20),
            "the victim waited {waits:?}"
        );
    });
    assert!(daemon.user(ALICE).unwrap().used[QUOTA_REQUESTS] > 0);
}

#[test]
fn connections_that_say_nothing_leave_room_for_others() {
    let Some(daemon) = daemon("") else { return };
    let silent: Vec<Client> = as_user(ALICE, || {
        (0..400)
            .map(|_| Client::connect(daemon.folder()).unwrap())
            .collect()
    });
    daemon.client(BOB).channel();
    // A share of the places is not all of them; who has one loses it after a while.
    let has_none = |one: &&Client| matches!(one.hear(), Ok((Answer::Refused(_), _)));
    let turned_away = silent.iter().filter(has_none).count();
    assert!(turned_away >= 100, "{turned_away} of 400 found no place");
    assert!(silent.iter().all(|one| one.hear().is_err()), "all end");
}

#[test]
fn hundreds_of_clients_come_and_go_and_leave_nothing() {
    let Some(daemon) = daemon("[limits]\nrequests_per_s = 100000\nrequests_burst = 10000") else {
        return;
    };
    let open = |pid: u32| {
        std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .count()
    };
    let first = daemon.client(ALICE);
    first.subscribe(first.channel());
    drop(first);
    daemon.wait_for(ALICE, has_nothing);
    let before = open(daemon.pid());
    for round in 0..200 {
        let client = daemon.client(ALICE);
        if round % 4 == 0 {
            let channel = client.channel();
            client.subscribe(channel);
        }
    }
    daemon.wait_for(ALICE, |view| {
        has_nothing(view) && view.used[QUOTA_BYTES] == 0
    });
    let start = Instant::now();
    while open(daemon.pid()) > before + 4 {
        assert!(start.elapsed() < PATIENCE, "descriptors stay open");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_descriptor_that_blocks_who_closes_it_blocks_nobody_else() {
    let Some(daemon) = daemon("") else { return };
    // A connection with data that its peer does not take, and that waits for that when closed.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_peer, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    let stream = OwnedFd::from(stream);
    let linger = Some(Duration::from_secs(60));
    rustix::net::sockopt::set_socket_linger(&stream, linger).unwrap();
    rustix::io::ioctl_fionbio(&stream, false).unwrap();
    let client = daemon.client(ALICE);
    let forget = Request::ForgetSocket(number(0)).packet(1);
    client.say(forget.as_bytes(), &[&stream]).unwrap();
    client.hear().unwrap();
    // The door has the last one, and not this test, which would have to wait.
    let door = daemon.door();
    rustix::process::kill_process(door, Signal::STOP).unwrap();
    client.say(forget.as_bytes(), &[&stream]).unwrap();
    drop(stream);
    rustix::process::kill_process(door, Signal::CONT).unwrap();
    let start = Instant::now();
    daemon.client(BOB).channel();
    // It would be a minute.
    assert!(start.elapsed() < Duration::from_secs(15));
}

/// The values of one field of /proc/PID/task/TID/status, for each thread of a process.
fn of_threads(pid: u32, name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let values = tasks.map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap().trim().to_owned()
    });
    values.collect()
}

/// The lists are tested by themselves; here, that the running processes are held to them.
#[test]
fn the_running_daemon_has_given_up_what_its_lists_say() {
    let Some(mut daemon) = daemon("") else { return };
    let _client = daemon.client(ALICE);
    let of_broker = "000000c000000000"; // CAP_BPF, CAP_PERFMON
    let nothing = "0000000000000000";
    // Broker, door, keeper of the compiler, and its worker.
    let mut processes = Vec::new();
    wait_until("all have started", || {
        processes = daemon.processes();
        processes.len() == 4 && of_threads(processes[3], "Seccomp_filters") == ["5"]
    });
    let of_each = [of_broker, nothing, nothing, nothing];
    for (pid, capabilities) in processes.into_iter().zip(of_each) {
        for (name, wanted) in [
            ("CapEff", capabilities),
            ("CapPrm", capabilities),
            ("CapBnd", capabilities),
            ("CapInh", nothing),
            ("CapAmb", nothing),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"), // by a list
        ] {
            let threads = of_threads(pid, name);
            let given_up = threads.iter().all(|value| value == wanted);
            assert!(given_up && !threads.is_empty(), "{pid} {name}: {threads:?}");
        }
    }
    // Files of other folders cannot be read, whoever leads there.
    if daemon.log().contains("Landlock") {
        eprintln!("not tested: this kernel has no Landlock");
        return;
    }
    let path = daemon.folder().join("ecallsd.toml");
    let elsewhere = folder().with_extension("toml");
    std::fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    daemon.signal(Signal::HUP);
    wait_until("it has tried", || daemon.log().contains("reloaded"));
    let told = daemon.stop();
    std::fs::remove_file(&elsewhere).unwrap();
    assert!(
        told.contains("not reloaded") && told.contains("ermission denied"),
        "{told}"
    );
}

#[test]
fn descriptors_of_the_daemon_are_limited_per_user_at_n() {
    // Four for the connection, and eight for each channel.
    for (limit, channels) in [(27, 2), (28, 3), (29, 3)] {
        let Some(daemon) = daemon(&format!("[limits]\ndescriptors = {limit}")) else {
            return;
        };
        let client = daemon.client(ALICE);
        let held: Vec<u32> = (0..channels).map(|_| client.channel()).collect();
        let refused = client.refused(&ring());
        assert_eq!(
            (refused.error, refused.subject(), refused.number),
            (REFUSED_QUOTA, "descriptors of the daemon", limit)
        );
        daemon.client(BOB).channel();
        client.value(&Request::CloseChannel(number(held[0])));
        client.channel();
    }
}

/// The daemon may have little more memory than it has. A large channel then fails, and nothing
/// else does: small things go on, for everybody.
#[test]
fn memory_that_is_not_there_is_a_clear_refusal_and_costs_nobody_else() {
    let limits = "[limits]\nbytes = \"256M\"";
    let Some(mut daemon) = daemon(limits) else {
        return;
    };
    let Some(mut group) = Group::new() else {
        return;
    };
    let bob = daemon.client(BOB);
    bob.subscribe(bob.channel());
    if !group.limit_memory(40 << 20, false) {
        return;
    }
    group.adopt(daemon.pid());
    let alice = daemon.client(ALICE);
    // 16 MiB of events each.
    let large = Request::OpenChannel(OpenChannel {
        capacity: 65536,
        ..OpenChannel::default()
    });
    let mut held = Vec::new();
    let refused = loop {
        match alice.ask(&large).unwrap() {
            (Answer::Done(done), _) => held.push(u32::try_from(done.value).unwrap()),
            (Answer::Refused(refused), _) => break refused,
            other => panic!("{other:?}"),
        }
        assert!(held.len() < 10, "there is no limit");
    };
    let error = ecalls_kernel::refusal::to_error(&refused).to_string();
    assert!(error.contains("memory"), "{error}");
    let view = daemon.user(ALICE).unwrap();
    assert_eq!(view.used[QUOTA_CHANNELS], held.len() as u64);
    bob.subscribe(bob.channel());
    alice.channel();
    for channel in &held {
        alice.value(&Request::CloseChannel(number(*channel)));
    }
    wait_until("there is memory again", || {
        matches!(alice.ask(&large).unwrap().0, Answer::Done(_))
    });
    drop((alice, bob));
    for uid in [ALICE, BOB] {
        daemon.wait_for(uid, |view| has_nothing(view) && view.used[QUOTA_BYTES] == 0);
    }
    daemon.stop();
}

#[test]
fn the_daemon_ends_with_its_door_and_says_so() {
    let Some(mut daemon) = daemon("") else { return };
    let client = daemon.client(ALICE);
    client.channel();
    rustix::process::kill_process(daemon.door(), Signal::KILL).unwrap();
    let (status, told) = daemon.ended();
    assert_eq!(status.code(), Some(1));
    assert!(told.contains("the door has ended"), "{told}");
    assert!(client.hear().is_err(), "its clients notice");
}

#[test]
fn clients_of_a_killed_daemon_notice_and_its_door_ends() {
    let Some(mut daemon) = daemon("") else { return };
    let client = daemon.client(ALICE);
    let door = daemon.door();
    daemon.kill();
    assert!(client.hear().is_err());
    assert!(rustix::process::test_kill_process(door).is_err());
}

#[test]
fn a_second_daemon_is_refused_and_the_first_goes_on() {
    let Some(daemon) = daemon("") else { return };
    let mut second = command(&daemon.folder().join("ecallsd.toml"));
    let second = limit::output(&mut second, PATIENCE);
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        !second.status.success() && told.contains("another daemon serves there"),
        "{told}"
    );
    let elsewhere = daemon.folder().join("other.toml");
    let socket = daemon.folder().join("other");
    std::fs::write(
        &elsewhere,
        format!("[socket]\npath = {:?}", socket.to_str().unwrap()),
    )
    .unwrap();
    let second = limit::output(&mut command(&elsewhere), PATIENCE);
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    let pid = format!("process {} hosts the core", daemon.pid());
    assert!(!second.status.success() && told.contains(&pid), "{told}");
    daemon.client(ALICE).channel();
}

#[test]
fn a_daemon_that_finds_a_core_says_who_has_it() {
    let Some(mut daemon) = daemon("") else { return };
    daemon.stop();
    let core = ecalls_kernel::core::Core::open().unwrap();
    let config = daemon.folder().join("ecallsd.toml");
    let refused = limit::output(&mut command(&config), PATIENCE);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    let says = [
        &format!("process {} hosts the core", std::process::id())[..],
        "started while no daemon ran",
        "fuser -v /run/ecalls",
    ];
    assert!(!refused.status.success(), "{told}");
    assert!(says.iter().all(|one| told.contains(one)), "{told}");
    drop(core);
    let mut next = Running::start(command(&config).stderr(std::process::Stdio::null()));
    wait_until("it serves", || {
        Client::connect(daemon.folder()).is_some_and(|client| client.hello().is_ok())
    });
    next.kill(PATIENCE);
}

#[test]
fn limits_are_reloaded_and_a_mistake_changes_nothing() {
    let Some(mut daemon) = daemon("[limits]\nchannels = 1") else {
        return;
    };
    let client = daemon.client(ALICE);
    client.channel();
    assert_eq!(client.refused(&ring()).number, 1);
    let path = daemon.folder().join("ecallsd.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("channels = 1", "channels = 2")).unwrap();
    daemon.signal(Signal::HUP);
    let start = Instant::now();
    while matches!(client.ask(&ring()).unwrap().0, Answer::Refused(_)) {
        assert!(start.elapsed() < PATIENCE, "not reloaded");
        thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(&path, "[limits]\nchannels = many").unwrap();
    daemon.signal(Signal::HUP);
    wait_until("the mistake is told", || {
        daemon.log().contains("not reloaded: ")
    });
    assert_eq!(client.refused(&ring()).number, 2);
    let told = daemon.stop();
    assert!(
        told.contains("not reloaded: ") && told.contains(":2:12"),
        "{told}"
    );
}

#[test]
fn counters_are_served_on_a_unix_socket() {
    let path = folder().join("metrics");
    let config = format!("[metrics]\nlisten = {:?}", path.to_str().unwrap());
    let Some(daemon) = daemon(&config) else {
        return;
    };
    let client = daemon.client(ALICE);
    client.channel();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("ecalls_user_held{uid=\"64001\",quota=\"channels\"} 1\n"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn the_service_manager_hears_when_the_daemon_is_ready_and_when_it_ends() {
    let Some(mut daemon) = daemon("") else { return };
    let config = daemon.folder().join("ecallsd.toml");
    let path = daemon.folder().join("notify");
    // Its turn lasts on, for the next one.
    daemon.kill();
    let folder = path.parent().unwrap();
    let socket = folder.join("socket");
    std::fs::write(
        &config,
        format!("[socket]\npath = {:?}", socket.to_str().unwrap()),
    )
    .unwrap();
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = command(&config);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "400000");
    let mut process = Running::start(&mut command);
    let heard = |wanted: &str| {
        let (start, mut bytes) = (Instant::now(), [0; 256]);
        while start.elapsed() < PATIENCE {
            let count = manager.recv(&mut bytes).unwrap();
            if String::from_utf8_lossy(&bytes[..count]).contains(wanted) {
                return;
            }
        }
        panic!("the manager never hears {wanted}");
    };
    heard("READY=1");
    heard("WATCHDOG=1");
    heard("WATCHDOG=1");
    let pid = rustix::process::Pid::from_raw(process.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    heard("STOPPING=1");
    assert!(process.wait(PATIENCE).success());
}
