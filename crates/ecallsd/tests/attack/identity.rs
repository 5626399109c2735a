//! Pretending to be somebody else: a message of another process over an inherited or passed
//! connection, forged credentials, a process number that is used again, other users' processes as
//! receivers, and programs that run as another user than who started them.

use std::fs;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ecalls::Ecalls;
use ecalls_abi::downcall::{DOWN_ELEMENT_BYTES, DOWN_FRAMES, Downcall, Op};
use ecalls_abi::message::{Answer, Number, Request, Subscribe, WatchSocket};
use ecalls_abi::subscription::{ACTION_MEMORY, ACTION_SIGNAL};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred};

use crate::actor::{Roles, Stage, binary, command, start};
use crate::memory::Loop;
use crate::raw::{self, Raw, fast_call, hello};
use crate::running::wait_until;
use crate::scene::{Scene, new_user, user};
use crate::tests;

tests! {
    child_that_writes_to_its_parents_connection_ends_it
    connection_that_was_passed_on_is_of_no_use
    credentials_cannot_be_forged
    process_that_gets_a_number_again_gets_nothing_of_the_former_one
    signals_and_events_go_to_no_process_of_another_user
    services_of_others_cannot_be_raised
    sockets_cannot_be_watched_for_others
    channel_of_another_process_takes_no_calls
    program_of_another_user_gives_its_starter_nothing
}

pub(crate) const ROLES: Roles = &[
    ("forks", forks),
    ("passes on", pass_on),
    ("forges", forge),
    ("signalled", be_signalled),
    ("bystander", stand_by),
    ("reaches out", reach_out),
    ("has a service", have_a_service),
    ("raises for others", raise_for_others),
    ("watches for others", watch_for_others),
    ("calls for others", call_for_others),
    ("watches tasks", watch_tasks),
];

fn child_that_writes_to_its_parents_connection_ends_it() {
    Scene::begin().attack("forks", &[]);
}

fn connection_that_was_passed_on_is_of_no_use() {
    Scene::begin().attack("passes on", &[]);
}

fn credentials_cannot_be_forged() {
    Scene::begin().attack("forges", &[]);
}

fn signals_and_events_go_to_no_process_of_another_user() {
    let scene = Scene::begin();
    let mut other = scene.attacker("bystander", &[]);
    other.expect("here");
    let mut attacker = scene.attacker("reaches out", &[&other.pid().to_string()]);
    attacker.expect("done");
    attacker.end();
    assert_eq!(other.ask("well?"), "well");
    other.end();
    scene.end();
}

/// Of another user, and of another process of the same one.
fn services_of_others_cannot_be_raised() {
    let scene = Scene::begin();
    let (uid, other_uid) = (new_user(), new_user());
    let mut owner = start("has a service", uid, &[]);
    let said = owner.hear();
    let (name, index) = said.split_once(' ').expect("its name and its index");
    for uid in [uid, other_uid] {
        let mut attacker = start("raises for others", uid, &[name, index]);
        attacker.expect("done");
        attacker.end();
    }
    assert_eq!(owner.ask("how many came?"), "0");
    owner.end();
    scene.end();
}

fn sockets_cannot_be_watched_for_others() {
    let scene = Scene::begin();
    let mut other = scene.attacker("bystander", &[]);
    other.expect("here");
    let mut attacker = scene.attacker("watches for others", &[&other.pid().to_string()]);
    attacker.expect("done");
    attacker.end();
    other.end();
    scene.end();
}

fn channel_of_another_process_takes_no_calls() {
    Scene::begin().attack("calls for others", &[]);
}

/// A client is killed; the next process has its number and another user. The kernel is told which
/// number to give next.
fn process_that_gets_a_number_again_gets_nothing_of_the_former_one() {
    let scene = Scene::begin();
    let mut reused = 0;
    for _ in 0..10 {
        let (first, second) = (new_user(), new_user());
        let mut client = start("signalled", first, &[]);
        let name = client.hear();
        let pid = client.pid();
        client.kill();
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("root may");
        let mut next = start("bystander", second, &[]);
        next.expect("here");
        if next.pid() == pid {
            reused += 1;
            let root = Ecalls::open().expect("the daemon");
            // Its service is gone, or at least nobody's: nothing is raised, nobody is told.
            let raised = root.raise(&name, &ecalls::Raise::new(&[0; 8]));
            assert!(raised.is_err(), "{raised:?}");
            assert_eq!(next.ask("well?"), "well");
            let user = user(second);
            assert!(user.is_none_or(|user| user.used.iter().all(|used| *used == 0)));
        }
        next.end();
    }
    assert!(reused >= 3, "the number came again in {reused} of 10 tries");
    scene.end();
}

/// Somebody subscribes to what processes do and starts a program that runs as root: its end is
/// root's and not shown.
fn program_of_another_user_gives_its_starter_nothing() {
    let scene = Scene::begin();
    let program = crate::daemon::folder().join("setuid");
    fs::copy(binary(), &program).expect("a copy");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("our file");
    let mut attacker = scene.attacker("watches tasks", &[&program.display().to_string()]);
    attacker.expect("done");
    attacker.end();
    fs::remove_file(&program).expect("our file");
    scene.end();
}

fn forks(stage: &mut Stage) {
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let request = Request::LookQueue(Number::default());
    // Its own request is answered; that of its child is not, and ends the connection.
    raw.ask(&request, &[]).expect("an answer");
    let child = raw::fork(|| i32::from(raw.send(request.packet(77).as_bytes(), &[]).is_err()));
    raw::wait_for(child);
    match raw.receive().expect("no wait") {
        Some((_, (Answer::Refused(_), _))) => assert!(raw.is_ended()),
        Some((_, (other, _))) => panic!("a child was answered: {}", raw::describe(&other)),
        None => {}
    }
    // Nor does a connection whose HELLO was another process'.
    let raw = Raw::connect().expect("the daemon");
    let child = raw::fork(|| i32::from(raw.send(hello().packet(1).as_bytes(), &[]).is_err()));
    raw::wait_for(child);
    let answer = raw.receive().expect("no wait");
    assert!(
        !matches!(answer, Some((_, (Answer::Welcome(_), _)))),
        "welcomed"
    );
    stage.say("done");
}

/// Passes its connection to a process that has none, over a socket between the two.
fn pass_on(stage: &mut Stage) {
    let (raw, ..) = Raw::open().expect("the daemon");
    let (one, other) = std::os::unix::net::UnixDatagram::pair().expect("sockets");
    let child = raw::fork(|| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 8];
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        let flags = rustix::net::RecvFlags::empty();
        if rustix::net::recvmsg(&other, &mut parts, &mut control, flags).is_err() {
            return 1;
        }
        for message in control.drain() {
            if let rustix::net::RecvAncillaryMessage::ScmRights(mut fds) = message {
                let Some(socket) = fds.next() else { return 2 };
                let packet = Request::OpenChannel(raw::ring(64)).packet(5);
                let sent = rustix::net::send(&socket, packet.as_bytes(), SendFlags::NOSIGNAL);
                return i32::from(sent.is_err());
            }
        }
        3
    });
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [raw.socket.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let bytes = [io::IoSlice::new(b"take it")];
    rustix::net::sendmsg(&one, &bytes, &mut control, SendFlags::empty()).expect("passed");
    assert_eq!(raw::wait_for(child), 0);
    match raw.receive().expect("no wait") {
        Some((_, (Answer::Refused(_), fds))) => assert!(fds.is_empty() && raw.is_ended()),
        Some((_, (other, _))) => panic!("answered: {}", raw::describe(&other)),
        None => {}
    }
    stage.say("done");
}

/// Names another process beside a message. The kernel lets nobody do that who is not root.
fn forge(stage: &mut Stage) {
    let (raw, ..) = Raw::open().expect("the daemon");
    let own = rustix::process::getpid();
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let root = rustix::process::Uid::from_raw(0);
    let parent = rustix::process::getppid().expect("a parent");
    for forged in [
        UCred {
            pid: parent,
            uid,
            gid,
        },
        UCred {
            pid: own,
            uid: root,
            gid,
        },
    ] {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmCredentials(forged)));
        let packet = Request::LookUser(Number::default()).packet(1);
        let bytes = [io::IoSlice::new(packet.as_bytes())];
        let flags = SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(&raw.socket, &bytes, &mut control, flags);
        assert_eq!(sent, Err(rustix::io::Errno::PERM));
    }
    stage.say("done");
}

/// A client with a service whose events come to it as signals.
fn be_signalled(stage: &mut Stage) {
    let mut client = Loop::open(&raw::ring(64));
    let mut subscribe = Subscribe {
        service: client.service,
        actions: 1,
        ..Subscribe::default()
    };
    subscribe.action[0].kind = ACTION_SIGNAL;
    subscribe.action[0].signal = 40;
    client
        .raw
        .value(&Request::Subscribe(subscribe))
        .expect("to itself");
    stage.say(&client.name);
    stage.hear();
}

/// A process that is not involved. A real-time signal would end it.
fn stand_by(stage: &mut Stage) {
    stage.say("here");
    while stage.hear().is_some() {
        std::thread::sleep(Duration::from_millis(20));
        stage.say("well");
    }
}

fn reach_out(stage: &mut Stage) {
    let other = u32::try_from(stage.number(0)).expect("a process");
    let mut client = Loop::open(&raw::ring(64));
    let parent = std::os::unix::process::parent_id();
    for receiver in [other, parent, 1, 2] {
        for kind in [ACTION_SIGNAL, ACTION_MEMORY] {
            let mut subscribe = Subscribe {
                service: client.service,
                receiver,
                actions: 1,
                ..Subscribe::default()
            };
            subscribe.action[0].kind = kind;
            subscribe.action[0].signal = 40;
            subscribe.action[0].channel = client.channel.id;
            let refused = client.raw.value(&Request::Subscribe(subscribe));
            assert!(refused.is_err(), "delivers to process {receiver}");
        }
    }
    for receiver in [u32::MAX, 4_194_304] {
        let subscribe = Subscribe {
            service: client.service,
            receiver,
            actions: 1,
            ..Subscribe::default()
        };
        assert!(
            client.raw.value(&Request::Subscribe(subscribe)).is_err(),
            "{receiver}"
        );
    }
    client.raise(1);
    stage.say("done");
}

fn have_a_service(stage: &mut Stage) {
    let client = Loop::open(&raw::ring(64));
    let up = client.up();
    stage.say(format_args!("{} {}", client.name, client.service));
    while stage.hear().is_some() {
        stage.say(up.words()[0].load(Ordering::Acquire));
    }
}

fn raise_for_others(stage: &mut Stage) {
    let client = Loop::open(&raw::ring(64));
    let all = u64::from(u32::MAX) << 32 | u64::from(u32::MAX);
    let frame = DOWN_FRAMES * DOWN_ELEMENT_BYTES + offset_of!(Downcall, result);
    let down = client.down();
    let result = || {
        down.words()[frame / 8]
            .load(Ordering::Acquire)
            .cast_signed()
    };
    let raise = |service: u64| {
        let _ = fast_call(client.channel.id, 0, Op::Raise as u16, [service, all, 1]);
        result()
    };
    assert_eq!(raise(u64::from(client.service)), 1, "its own");
    assert_eq!(raise(stage.number(1)), -i64::from(libc::EPERM));
    let ecalls = Ecalls::open().expect("the daemon");
    let refused = ecalls.raise(stage.argument(0), &ecalls::Raise::new(&[0; 8]));
    assert!(refused.is_err(), "{refused:?}");
    stage.say("done");
}

fn watch_for_others(stage: &mut Stage) {
    let other = i32::try_from(stage.number(0)).expect("a process");
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let socket = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    for target in [other, 1, 0, -3, i32::MIN] {
        let watch = WatchSocket {
            target,
            ..WatchSocket::default()
        };
        let answer = raw.ask(&Request::WatchSocket(watch), &[socket.as_fd()]);
        let (answer, _) = answer.expect("an answer");
        assert!(matches!(answer, Answer::Refused(_)), "watches for {target}");
    }
    stage.say("done");
}

/// Its parent's channel: the memory is shared by the fork, the calls are not.
fn call_for_others(stage: &mut Stage) {
    let client = Loop::open(&raw::ring(64));
    let (up, down) = (client.up(), client.down());
    let _ = fast_call(client.channel.id, 0, Op::Getpid as u16, [0; 3]);
    let frame = &down.words()[4 * 8..5 * 8];
    let taken = frame[5].load(Ordering::Acquire);
    let child = raw::fork(|| {
        let _ = fast_call(client.channel.id, 0, Op::Getpid as u16, [0; 3]);
        client.raise(1);
        0
    });
    assert_eq!(raw::wait_for(child), 0);
    assert_eq!(
        frame[5].load(Ordering::Acquire),
        taken,
        "a call of another process was taken"
    );
    assert_eq!(
        up.words()[0].load(Ordering::Acquire),
        0,
        "another process raised"
    );
    stage.say("done");
}

fn watch_tasks(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let mut channel = ecalls.channel().ring(1024).open().expect("a channel");
    let subscription = ecalls
        .subscribe("task")
        .expect("it")
        .memory(&channel)
        .install();
    let _subscription = subscription.expect("a subscription");
    let own = rustix::process::getuid().as_raw();
    let run = |program: &str| {
        let mut other = command("bystander", own, &[]);
        // As it is, without becoming anybody: it becomes its file's owner.
        let mut other = match program {
            "" => other.spawn().expect("a program"),
            _ => {
                let mut other = Command::new(program);
                let role = other.env("ECALLS_ATTACK_ROLE", "bystander");
                role.stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .current_dir("/");
                role.process_group(0);
                other.spawn().expect("a program")
            }
        };
        drop(other.stdin.take());
        let pid = other.id();
        other.wait().expect("a child");
        pid
    };
    let program = stage.argument(0).to_owned();
    let (foreign, ours) = (run(&program), run(""));
    // The end of one's own program is shown, so that of the other would have been, too.
    let mut seen = Vec::new();
    wait_until("one's own program is seen", || {
        seen.extend(
            channel
                .recv_timeout(Duration::from_millis(50))
                .expect("the daemon"),
        );
        seen.iter().any(|event| event.pid == ours)
    });
    for event in seen.iter().filter(|event| event.pid == foreign) {
        assert_eq!(
            event.uid,
            own,
            "an event of root's: {}",
            ecalls.describe(event)
        );
    }
    let _ = channel.as_fd().as_raw_fd();
    stage.say("done");
}
