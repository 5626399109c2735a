//! What the door lets pass, with the test as client on a socket pair.

use ecalls_abi::message::{Hello, MESSAGE_HELLO, Number, WatchSocket};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SocketType};

use super::*;

/// A client's end and the door's.
fn connection() -> (OwnedFd, OwnedFd, UCred) {
    let (client, door) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    sockopt::set_socket_passcred(&door, true).unwrap();
    sockopt::set_socket_timeout(&door, Timeout::Recv, Some(HELLO_TIME)).unwrap();
    let cred = sockopt::socket_peercred(&door).unwrap();
    (client, door, cred)
}

fn say(client: &OwnedFd, bytes: &[u8], fds: &[&OwnedFd]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    let parts = [io::IoSlice::new(bytes)];
    rustix::net::sendmsg(client, &parts, &mut control, SendFlags::empty()).unwrap();
}

/// What the client is told before the end.
fn told(client: &OwnedFd) -> Refused {
    let mut bytes = [0; MESSAGE_MAX];
    let (count, _) = rustix::net::recv(client, &mut bytes, RecvFlags::empty()).unwrap();
    match Answer::parse(&bytes[..count]) {
        Ok((_, Answer::Refused(refused))) => refused,
        other => panic!("{other:?}"),
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_message_of_the_right_form_passes() {
    let (client, door, cred) = connection();
    let hello = Request::Hello(Hello::default());
    say(&client, hello.packet(9).as_bytes(), &[]);
    let heard = hear(&door, cred).unwrap().unwrap();
    assert_eq!((heard.serial, heard.request), (9, hello));
    let watch = Request::WatchSocket(WatchSocket::default());
    say(&client, watch.packet(10).as_bytes(), &[&client]);
    assert_eq!(hear(&door, cred).unwrap().unwrap().fds.len(), 1);
    drop(client);
    assert!(hear(&door, cred).unwrap().is_none());
}

#[test]
fn what_is_no_message_ends_the_connection_with_a_word() {
    let good = Request::Hello(Hello::default()).packet(3);
    let good = good.as_bytes();
    let mut other_version = good.to_vec();
    other_version[0] = 77;
    let cases: [(&[u8], u32); 5] = [
        (&good[..good.len() - 1], REFUSED_INVALID),
        (&[&good[..4], &[99; 20]].concat(), REFUSED_INVALID),
        (&[0xff; 2048], REFUSED_VERSION),
        (&vec![1; 4000], REFUSED_INVALID),
        (&other_version, REFUSED_VERSION),
    ];
    for (bytes, error) in cases {
        let (client, door, cred) = connection();
        say(&client, bytes, &[]);
        assert_eq!(hear(&door, cred).unwrap_err(), Why::Malformed);
        assert_eq!(told(&client).error, error, "{} bytes", bytes.len());
        let end = rustix::net::recv(&client, &mut [0u8; 8], RecvFlags::empty()).unwrap();
        assert_eq!(end.0, 0, "the connection has ended");
    }
}

#[test]
fn answers_are_not_for_the_daemon() {
    let (client, door, cred) = connection();
    let answer = Answer::Refused(Refused::default());
    say(&client, answer.packet(1).as_bytes(), &[]);
    assert_eq!(hear(&door, cred).unwrap_err(), Why::Malformed);
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed_and_end_the_connection() {
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let hello = Request::Hello(Hello::default()).packet(1);
    let forget = Request::ForgetSocket(Number::default()).packet(1);
    let cases: [(&[u8], usize); 5] = [
        (hello.as_bytes(), 1),
        (hello.as_bytes(), 60),
        (forget.as_bytes(), 0),
        (forget.as_bytes(), 2),
        (forget.as_bytes(), 1), // a file and no socket
    ];
    for (bytes, count) in cases {
        let (client, door, cred) = connection();
        let before = descriptors();
        say(&client, bytes, &vec![&file; count]);
        assert_eq!(hear(&door, cred).unwrap_err(), Why::Descriptors, "{count}");
        // Other tests of this process open and close at the same time.
        let left = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(5));
            descriptors() <= before
        });
        assert!(left, "{count} descriptors are still open");
    }
}

#[test]
fn a_process_that_did_not_connect_is_not_heard() {
    let (client, door, cred) = connection();
    let other = UCred {
        pid: rustix::process::Pid::from_raw(1).unwrap(),
        ..cred
    };
    say(
        &client,
        Request::Hello(Hello::default()).packet(1).as_bytes(),
        &[],
    );
    assert_eq!(hear(&door, other).unwrap_err(), Why::Sender);
    assert_eq!(told(&client).error, REFUSED_INVALID);
}

#[test]
fn a_fast_user_waits_and_root_does_not() {
    let mut state = State::default();
    let rate = |uid, per_s, burst| UserRate {
        uid,
        connections: 1,
        per_s,
        burst,
    };
    let now = 10_000_000_000;
    state.set_rate(&rate(UserRate::EVERYBODY, 1000, 2));
    assert_eq!(state.take_token(5, now), (0, None));
    assert_eq!(state.take_token(5, now), (0, None));
    assert_eq!(state.take_token(5, now), (1_000_000, Some(1)));
    assert_eq!(state.take_token(5, now), (2_000_000, None));
    assert_eq!(state.take_token(6, now).0, 0, "another user does not wait");
    state.set_rate(&rate(5, 0, 0));
    assert_eq!(state.take_token(5, now).0, 0, "no limit for this one");
    for _ in 0..10 {
        assert_eq!(state.take_token(0, now), (0, None));
    }
    let later = now + SLOW_PERIOD_NS;
    state.set_rate(&rate(5, 1000, 1));
    assert_eq!(
        state.take_token(5, later),
        (0, Some(1)),
        "what was not told yet"
    );
}

#[test]
fn users_that_are_forgotten_were_not_waiting() {
    let mut state = State::default();
    for uid in 1..10_000 {
        state.take_token(uid, u64::from(uid) * 1_000_000_000);
    }
    assert!(state.users.len() <= USERS_KEPT);
}

#[test]
fn a_header_alone_is_too_short_for_every_kind() {
    for kind in [MESSAGE_HELLO, 2, 10, 18, 19, 0x100, u32::MAX] {
        let (client, door, cred) = connection();
        let mut bytes = [0u8; 16];
        bytes[0] = 1;
        bytes[4..8].copy_from_slice(&kind.to_ne_bytes());
        bytes[12] = 16;
        say(&client, &bytes, &[]);
        assert_eq!(hear(&door, cred).unwrap_err(), Why::Malformed, "{kind}");
    }
}

#[test]
fn ids_that_count_for_a_user_have_its_places_together() {
    let mut state = State::default();
    let names = crate::config::Names::parse("alice:x:1000:1000:::", "");
    state.subordinates = Subordinates::parse("alice:100000:65536", &names);
    let mut taken = 0;
    for uid in 100_000..165_536 {
        let account = state.subordinates.account(uid);
        taken += u32::from(state.take_place(account));
    }
    assert!(taken <= 260, "{taken} places for one user");
    assert!(!state.take_place(1000) && state.take_place(1001));
}
