//! How connections to the running daemon begin and end when something is in their way: descriptors
//! that do not close, descriptors on their way, too few descriptors, and another program.

#![allow(unsafe_code, reason = "a descriptor is inherited by its number")]
#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test fails, also in its harness"
)]

mod harness;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ecalls_abi::message::{Answer, REFUSED_LIMIT, Request, WatchSocket};
use rustix::net::sockopt;
use rustix::process::{Pid, Resource, Rlimit};

use harness::{ALICE, BOB, Client, as_user, daemon, number, ring};

/// For longer than the tests need, and not for ever: a thread of this process waits if the daemon
/// has closed its copy first.
const LINGER: Duration = Duration::from_secs(60);

/// A connection with data that its peer does not take, and that waits for that when it is closed.
/// Its peer comes with it.
fn lingering(listener: &TcpListener) -> (OwnedFd, TcpStream) {
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sockopt::set_socket_send_buffer_size(&stream, 4096).unwrap();
    let (peer, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 4096]).is_ok() {}
    sockopt::set_socket_linger(&stream, Some(LINGER)).unwrap();
    stream.set_nonblocking(false).unwrap();
    (OwnedFd::from(stream), peer)
}

fn threads(pid: Pid) -> usize {
    let folder = format!("/proc/{}/task", pid.as_raw_nonzero());
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn connections_that_do_not_close_count_for_their_user_and_leave_room_for_others() {
    let limits = "[limits]\nconnections = 8\nrequests_per_s = 100000\nrequests_burst = 10000";
    let Some(daemon) = daemon(limits) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let look = Request::LookQueue(number(0)).packet(1);
    let forget = Request::ForgetSocket(number(0)).packet(2);
    let mut peers = Vec::new();
    let mut closing = Vec::new();
    let taken = as_user(ALICE, || {
        (0..500).find(|_| {
            let client = Client::connect(daemon.folder()).unwrap();
            if !matches!(client.hello(), Ok(Ok(_))) {
                return true;
            }
            let (stream, peer) = lingering(&listener);
            peers.push(peer);
            for _ in 0..8 {
                client.say(look.as_bytes(), &[]).unwrap();
            }
            // The door has the last copy when it comes to this one: it answered eight before.
            let forget = forget.as_bytes().to_vec();
            let close = thread::spawn(move || {
                client.say(&forget, &[&stream]).unwrap();
                drop((client, stream));
            });
            let begun = Instant::now();
            while !close.is_finished() && begun.elapsed() < Duration::from_millis(50) {
                thread::sleep(Duration::from_micros(100));
            }
            closing.push(close);
            false
        })
    });
    let taken = taken.expect("a user's connections that do not close end somewhere");
    // Unless this process had it, because the kernel had kept it from closing its own for long.
    let own = closing.iter().filter(|thread| !thread.is_finished());
    let taken = taken - own.count();
    // 8 of the broker's, its 4 places, and half of the others' 512.
    assert!((200..=8 + 4 + 256).contains(&taken), "{taken} connections");
    assert!(threads(daemon.door()) <= 8 + 4 + 256 + 8);
    let start = Instant::now();
    daemon.client(BOB).channel();
    assert!(start.elapsed() < LINGER / 4);
    // Connections without a waiting client are closed, and there is room again.
    drop(peers);
    let again = || {
        as_user(ALICE, || {
            Client::connect(daemon.folder()).unwrap().hello().is_ok()
        })
    };
    while !again() {
        assert!(start.elapsed() < harness::PATIENCE, "no place came back");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn descriptors_before_hello_are_refused_by_the_kernel_where_it_can() {
    let Some(daemon) = daemon("") else { return };
    let (probe, other) = UnixStream::pair().unwrap();
    let known = ecalls_kernel::take_descriptors(probe.as_fd(), false).unwrap();
    let other = OwnedFd::from(other);
    let client = as_user(ALICE, || Client::connect(daemon.folder()).unwrap());
    let watch = Request::WatchSocket(WatchSocket::default()).packet(1);
    let sent = client.say(watch.as_bytes(), &[&other]);
    assert_eq!(sent.is_err(), known, "{sent:?}");
    if known {
        client.hello().unwrap().unwrap();
        client.say(watch.as_bytes(), &[&other]).unwrap();
        client.hear().unwrap();
    }
}

const STAGE: &str = "ECALLSD_TEST_STAGE";

/// The test of that name in this program again, in another role.
fn again(name: &str, stage: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]);
    command.env(STAGE, stage);
    command
}

#[test]
fn another_program_of_the_same_process_is_not_answered() {
    const SOCKET: &str = "ECALLSD_TEST_SOCKET";
    let name = "another_program_of_the_same_process_is_not_answered";
    match std::env::var(STAGE).as_deref() {
        Ok("first") => {
            let path = std::env::var(SOCKET).unwrap();
            let client = Client::connect(path.as_ref()).unwrap();
            client.hello().unwrap().unwrap();
            client.channel();
            rustix::io::fcntl_setfd(&client.0, rustix::io::FdFlags::empty()).unwrap();
            let number = client.0.as_raw_fd().to_string();
            let error = again(name, "second").env(SOCKET, number).exec();
            panic!("{error}");
        }
        Ok(_) => {
            let number = std::env::var(SOCKET).unwrap().parse().unwrap();
            // SAFETY: the program before this one left it open, and nobody else here knows it.
            let client = Client(unsafe { OwnedFd::from_raw_fd(number) });
            let answer = client.ask(&ring());
            assert!(answer.is_err(), "{answer:?}");
            println!("it was not answered");
            return;
        }
        Err(_) => {}
    }
    let Some(daemon) = daemon("") else { return };
    let mut first = again(name, "first");
    let output = first.env(SOCKET, daemon.folder()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("it was not answered"), "{told}{error}");
}

#[test]
fn descriptors_of_one_answer_at_most_are_on_their_way_to_a_client() {
    let Some(daemon) = daemon("") else { return };
    let client = daemon.client(ALICE);
    for _ in 0..6 {
        client.say(ring().packet(1).as_bytes(), &[]).unwrap();
    }
    let path = format!("/proc/self/fdinfo/{}", client.0.as_raw_fd());
    let count = || -> u32 {
        let info = std::fs::read_to_string(&path).unwrap();
        let count = info.lines().find_map(|line| line.strip_prefix("scm_fds:"));
        count.unwrap().trim().parse().unwrap()
    };
    harness::running::wait_until("one answer is on its way", || count() > 0);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(count(), 3, "descriptors of one channel");
    for _ in 0..6 {
        assert_eq!(client.hear().unwrap().1.len(), 3);
    }
}

#[test]
fn a_connection_counts_until_its_descriptors_are_received() {
    let Some(daemon) = daemon("[limits]\nconnections = 2") else {
        return;
    };
    let deaf: Vec<Client> = (0..2).map(|_| daemon.client(ALICE)).collect();
    for client in &deaf {
        client.say(ring().packet(1).as_bytes(), &[]).unwrap();
        client.say(&[0xff; 100], &[]).unwrap();
    }
    daemon.wait_for(ALICE, |view| {
        view.used[ecalls_abi::message::QUOTA_CHANNELS] == 0
    });
    let connections =
        |view: &ecalls_abi::message::UserView| view.used[ecalls_abi::message::QUOTA_CONNECTIONS];
    assert_eq!(connections(&daemon.user(ALICE).unwrap()), 2);
    drop(deaf);
    daemon.wait_for(ALICE, |view| connections(view) == 0);
}

/// This number of descriptors in flight: they count for root, as the daemon's do.
fn crowd(count: usize) -> (OwnedFd, OwnedFd) {
    let (one, other) = UnixStream::pair().unwrap();
    let (one, other) = (Client(one.into()), OwnedFd::from(other));
    let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    for _ in 0..count / 60 {
        one.say(&[1], &[&null; 60]).unwrap();
    }
    (one.0, other)
}

#[test]
fn a_client_waits_while_too_many_descriptors_of_others_are_on_their_way() {
    let Some(daemon) = daemon("[machine]\ndescriptors = 256\nconnections = 64") else {
        return;
    };
    let client = daemon.client(ALICE);
    let crowd = crowd(4800);
    client.say(ring().packet(1).as_bytes(), &[]).unwrap();
    // Longer than a client may take that does not read.
    let heard = ecalls_kernel::wait_readable(client.0.as_fd(), Some(6_500_000_000)).unwrap();
    assert!(!heard, "{:?}", client.hear());
    drop(crowd);
    let (answer, fds) = client.hear().unwrap();
    assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    assert_eq!(fds.len(), 3);
}

#[test]
fn a_client_that_the_daemon_has_no_descriptor_for_is_told() {
    let Some(daemon) = daemon("") else { return };
    let client = daemon.client(ALICE);
    let pid = Pid::from_raw(daemon.pid().cast_signed());
    let none = Rlimit {
        current: Some(3),
        ..rustix::process::getrlimit(Resource::Nofile)
    };
    let before = rustix::process::prlimit(pid, Resource::Nofile, none).unwrap();
    // The limit that stays is the one it had.
    let none = Rlimit {
        maximum: before.maximum,
        ..none
    };
    rustix::process::prlimit(pid, Resource::Nofile, none).unwrap();
    let start = Instant::now();
    let other = as_user(BOB, || Client::connect(daemon.folder()).unwrap());
    let refused = other.hello().unwrap().unwrap_err();
    let told = (refused.error, refused.subject(), refused.number);
    assert_eq!(told, (REFUSED_LIMIT, "descriptors of the daemon", 3));
    assert!(other.hear().is_err(), "and its connection is closed");
    let (socket, _other) = UnixStream::pair().unwrap();
    let watch = Request::WatchSocket(WatchSocket::default()).packet(1);
    client
        .say(watch.as_bytes(), &[&OwnedFd::from(socket)])
        .unwrap();
    match client.hear().unwrap().0 {
        Answer::Refused(refused) => assert_eq!(refused.error, REFUSED_LIMIT),
        other => panic!("{other:?}"),
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    rustix::process::prlimit(pid, Resource::Nofile, before).unwrap();
    daemon.client(BOB).channel();
}

#[test]
fn a_cheap_request_does_not_wait_for_channels_of_another_user() {
    let limits = "[limits]\nrequests_per_s = 100000\nrequests_burst = 10000\nchannels = 512\n\
                  descriptors = 8192";
    let Some(daemon) = daemon(limits) else { return };
    // Sixteen connections that open channels all the time, and end with what they have.
    let until = Instant::now() + Duration::from_secs(3);
    let open = || {
        while Instant::now() < until {
            let client = daemon.client(ALICE);
            for _ in 0..3 {
                client.channel();
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(open);
        }
        let cheap = daemon.client(BOB);
        let mut took = Vec::new();
        while Instant::now() < until {
            let start = Instant::now();
            cheap.ask(&Request::LookQueue(number(0))).unwrap();
            took.push(start.elapsed());
            thread::sleep(Duration::from_millis(5));
        }
        took.sort_unstable();
        let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
        eprintln!("median {median:?}, at most {most:?}");
        assert!(
            median < Duration::from_millis(150),
            "the median took {median:?}"
        );
    });
}

#[test]
fn subordinate_ids_of_a_user_share_what_it_may_have() {
    let etc = std::env::temp_dir().join(format!("ecallsd-etc-{}", std::process::id()));
    std::fs::create_dir_all(&etc).unwrap();
    std::fs::write(
        etc.join("passwd"),
        "root:x:0:0:::\nalice:x:64001:64001:::\n",
    )
    .unwrap();
    std::fs::write(etc.join("group"), "root:x:0:\n").unwrap();
    std::fs::write(etc.join("subuid"), "alice:7000000:65536\n").unwrap();
    let mut command = Command::new("unshare");
    let shell = "mount --bind \"$0\" /etc && exec \"$@\"";
    command.args(["--mount", "sh", "-c", shell]).arg(&etc);
    command.arg(env!("CARGO_BIN_EXE_ecallsd"));
    let Some(daemon) = harness::daemon_by(command, "[limits]\nconnections = 3") else {
        return;
    };
    let contained: Vec<Client> = (7_000_000..7_000_003)
        .map(|uid| daemon.client(uid))
        .collect();
    for uid in [ALICE, 7_000_009] {
        let another = as_user(uid, || Client::connect(daemon.folder()).unwrap());
        let refused = another.hello().unwrap().unwrap_err();
        assert_eq!(refused.subject(), "connections", "user {uid}");
    }
    daemon.client(7_065_536).channel();
    contained[0].channel();
    let view = daemon.user(ALICE).unwrap();
    assert_eq!(view.used[ecalls_abi::message::QUOTA_CHANNELS], 1);
    assert!(daemon.user(7_000_000).is_none(), "it has no row of its own");
    // It may see its own events.
    let other = contained[1]
        .ask(&Request::LookChannel(number(0)))
        .unwrap()
        .0;
    assert!(matches!(other, Answer::End(_)), "{other:?}");
    std::fs::remove_dir_all(&etc).unwrap();
}
