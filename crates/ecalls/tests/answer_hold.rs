//! Cells that a holder lends to a program without privileges, and what such a program may try.
//! Each test has a network namespace of its own. Needs root; no core.

#![allow(
    unsafe_code,
    reason = "threads of other users, and system calls that no library makes"
)]

mod harness;

use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use ecalls::answer::AnswerCount;
use ecalls::{AnswerHolder, AnswerPlan, Answers, Error};
use ecalls_abi::answer::{ANSWER_NAME, AnswerCell, AnswerLease};
use harness::{PATIENCE, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketType, connect, recvmsg, socket,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

const USER: u32 = 64012;
const OTHER: u32 = 64013;
/// The cell of a request is its first byte.
const FIRST: &str = "data[0] < 16 ? data[0] : UP";
const CELLS: u32 = 16;

/// Moves this thread into a new network namespace, which ends with it. False: not here.
fn own_network() -> bool {
    if !harness::may_load() {
        return false;
    }
    // SAFETY: a thread's network namespace concerns no memory.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may");
    let mut ip = Command::new("ip");
    let ended = limit::ended(ip.args(["link", "set", "lo", "up"]), PATIENCE);
    assert_eq!(ended.code, 0, "{ended:?}");
    true
}

/// Runs `work` on a thread whose user is `uid`, in this network.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: takes numbers only; the call itself, unlike the C library's function, changes
            // this thread alone.
            let error = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
            assert_eq!(error, 0, "root becomes anybody");
            work()
        });
        thread.join().expect("the thread's work")
    })
}

struct Scene {
    holder: AnswerHolder,
    service: UdpSocket,
    client: UdpSocket,
    at: SocketAddr,
}

impl Scene {
    fn of(per_second: u64) -> Scene {
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a port");
        let (service, client) = (bind(), bind());
        let at = service.local_addr().expect("it is bound");
        client.connect(at).expect("an address");
        for socket in [&service, &client] {
            socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        }
        let plan = AnswerPlan {
            interface: "lo",
            at,
            cells: CELLS,
            echo: 0,
            per_second,
        };
        Scene {
            holder: AnswerHolder::start(&plan, FIRST, USER).expect("root may"),
            service,
            client,
            at,
        }
    }

    /// What the kernel replies; `None`: the service gets it.
    fn ask(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = [0; 2000];
        self.client.send(request).expect("sent");
        let mut both = [&self.service, &self.client].map(|one| PollFd::new(one, PollFlags::IN));
        let patience = Timespec::try_from(PATIENCE).expect("a short time");
        let ready = rustix::event::poll(&mut both, Some(&patience)).expect("sockets");
        assert_eq!(ready, 1, "it is answered or goes up");
        self.service.set_nonblocking(true).expect("a socket");
        let up = self.service.recv(&mut bytes);
        self.service.set_nonblocking(false).expect("a socket");
        match up {
            Ok(count) => {
                assert_eq!(&bytes[..count], request);
                None
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                let count = self.client.recv(&mut bytes).expect("a reply");
                Some(bytes[..count].to_vec())
            }
        }
    }

    fn borrow_at(&self, user: u32) -> ecalls::Result<Answers> {
        as_user(user, || Answers::borrow_at(self.at.port()))
    }

    fn counts(&self) -> AnswerCount {
        self.holder.counts().expect("counts")
    }

    /// Until the holder has seen that the borrower has gone.
    fn wait_until_empty(&self, request: &[u8]) {
        wait_until("the cells are emptied", || self.ask(request).is_none());
    }
}

#[test]
fn user_without_privileges_has_its_requests_answered() {
    if !own_network() {
        return;
    }
    let scene = Scene::of(1_000_000);
    as_user(USER, || {
        let plan = AnswerPlan {
            interface: "lo",
            at: scene.at,
            cells: 1,
            echo: 0,
            per_second: 1,
        };
        let denied = Answers::start(&plan, FIRST).expect_err("it has no privilege");
        assert!(matches!(denied, Error::Denied { .. }), "{denied}");
        let mut answers = Answers::borrow_at(scene.at.port()).expect("it is this user's");
        assert_eq!(scene.ask(b"\x01 first"), None);
        assert!(answers.put(b"\x01 first", b"reply"));
        assert_eq!(scene.ask(b"\x01 first").as_deref(), Some(&b"reply"[..]));
        assert_eq!(scene.ask(b"\x01 other"), None);
        assert!(!answers.put(b"\x10 first", b"reply"), "the text says UP");
        assert!(answers.remove(b"\x01 first"));
        assert_eq!(scene.ask(b"\x01 first"), None);
        let counts = answers.counts().expect("it may read them");
        assert_eq!(counts, scene.counts());
        assert_eq!((counts.answered, counts.other), (1, 1), "{counts:?}");
        assert!(!answers.have_ended());
    });
}

#[test]
fn cells_are_for_one_user_and_one_program_at_a_time() {
    if !own_network() {
        return;
    }
    let scene = Scene::of(1_000_000);
    let denied = scene.borrow_at(OTHER).expect_err("it is another user");
    assert!(matches!(denied, Error::Denied { .. }), "{denied}");
    let mut first = scene.borrow_at(USER).expect("it is the user");
    assert!(first.put(b"\x02 mine", b"first"));
    // A second one waits, and gets empty cells when the first one has gone.
    let (mut second, reply) = std::thread::scope(|scope| {
        let second = scope.spawn(|| scene.borrow_at(USER).expect("in its turn"));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!second.is_finished());
        let reply = scene.ask(b"\x02 mine");
        drop(first);
        (second.join().expect("it waits"), reply)
    });
    assert_eq!(reply.as_deref(), Some(&b"first"[..]));
    assert_eq!(scene.ask(b"\x02 mine"), None);
    assert!(second.put(b"\x02 mine", b"second"));
    assert_eq!(scene.ask(b"\x02 mine").as_deref(), Some(&b"second"[..]));
    drop(second);
    scene.wait_until_empty(b"\x02 mine");
    // Root may have them as well.
    let root = scene.borrow_at(0).expect("it is root");
    drop(scene.holder);
    // A child that another test starts has a copy of the holder's socket until it executes.
    wait_until("the holder's end is seen", || root.have_ended());
}

#[test]
fn holder_of_another_user_is_not_believed() {
    if !own_network() {
        return;
    }
    let service = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = service.local_addr().expect("it is bound");
    let port = at.port();
    let none = Answers::borrow_at(port).expect_err("there is none");
    assert!(matches!(none, Error::Unknown { .. }), "{none}");
    // One of the kind that the library connects to, which std has not.
    let listener = as_user(OTHER, || {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        rustix::net::bind(&socket, &name(port)).expect("the name is free");
        rustix::net::listen(&socket, 1).expect("a socket");
        socket
    });
    let denied = as_user(USER, || Answers::borrow_at(port)).expect_err("it is not root's");
    assert!(matches!(denied, Error::Denied { .. }), "{denied}");
    // Nor does a holder begin that nobody could reach.
    let plan = AnswerPlan {
        interface: "lo",
        at,
        cells: 1,
        echo: 0,
        per_second: 1,
    };
    let taken = AnswerHolder::start(&plan, FIRST, USER).expect_err("the name is taken");
    assert!(matches!(taken, Error::Invalid { .. }), "{taken}");
    drop(listener);
    // A child that another test starts has a copy of it until it executes.
    let is_free = || AnswerHolder::start(&plan, FIRST, USER).is_ok();
    wait_until("the name is free again", is_free);
}

fn name(port: u16) -> SocketAddrUnix {
    let name = format!("{ANSWER_NAME}{port}");
    SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a short name")
}

/// What a holder gives: its lease, the cells, the counts, and the connection.
fn take(port: u16) -> (AnswerLease, OwnedFd, OwnedFd, OwnedFd) {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    connect(&socket, &name(port)).expect("a holder");
    let mut lease = [0; size_of::<AnswerLease>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut place = [IoSliceMut::new(&mut lease)];
    recvmsg(&socket, &mut place, &mut control, RecvFlags::empty()).expect("a lease");
    let fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let mut fds = fds.collect::<Vec<_>>().into_iter();
    let mut next = || fds.next().expect("two descriptors");
    let (cells, counts) = (next(), next());
    let lease = ecalls_abi::zerocopy::transmute!(lease);
    (lease, cells, counts, socket)
}

/// bpf(2) on an element of a map, or the map; the error.
fn bpf(command: i64, map: &OwnedFd, key: &u32, value: &mut [u8]) -> i32 {
    #[repr(C)]
    struct Attributes {
        map: u64,
        key: u64,
        value: u64,
        flags: u64,
    }
    let attributes = Attributes {
        map: map.as_raw_fd() as u64,
        key: std::ptr::from_ref(key).expose_provenance() as u64,
        value: value.as_mut_ptr().expose_provenance() as u64,
        flags: 0,
    };
    // SAFETY: key and value are alive, and as long as those of the map.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    match result {
        0.. => 0,
        _ => std::io::Error::last_os_error()
            .raw_os_error()
            .expect("an error"),
    }
}

const UPDATE: i64 = 2;
const DELETE: i64 = 3;
const FREEZE: i64 = 22;

#[test]
fn borrower_may_write_its_cells_and_nothing_else() {
    if !own_network() {
        return;
    }
    let scene = Scene::of(1_000_000);
    as_user(USER, || {
        let (lease, cells, counts, connection) = take(scene.at.port());
        assert_eq!(lease.cells, CELLS);
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible").expect("/sys");
        let last: usize = cpus
            .trim()
            .rsplit(['-', ','])
            .next()
            .expect("a CPU")
            .parse()
            .expect("it");
        let mut all = vec![0xff; (last + 1) * size_of::<AnswerCount>()];
        let refused = [libc::EPERM, libc::EACCES];
        assert!(
            refused.contains(&bpf(UPDATE, &counts, &0, &mut all)),
            "counts are for reading"
        );
        assert_ne!(bpf(DELETE, &cells, &0, &mut []), 0, "cells stay");
        let frozen = bpf(FREEZE, &cells, &0, &mut []);
        assert_ne!(frozen, 0, "the holder writes them, too");
        let mut cell = vec![0xff; size_of::<AnswerCell>()];
        assert_ne!(
            bpf(UPDATE, &cells, &CELLS, &mut cell),
            0,
            "there is no such cell"
        );
        assert_eq!(scene.counts().answered, 0);
        drop(connection);
    });
}

/// Numbers that look random (xorshift).
fn noise(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn whatever_a_borrower_writes_is_no_more_than_its_own_replies() {
    if !own_network() {
        return;
    }
    let scene = Scene::of(1_000_000);
    let (_, cells, _, connection) = as_user(USER, || take(scene.at.port()));
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let mut reply = [0; 2000];
    let wait = Duration::from_millis(1);
    scene.client.set_read_timeout(Some(wait)).expect("a socket");
    for round in 0..200 {
        for key in 0..CELLS {
            let mut cell = vec![0; size_of::<AnswerCell>()];
            for word in cell.chunks_mut(8) {
                word.copy_from_slice(&noise(&mut seed).to_ne_bytes());
            }
            // Often what passes the first looks: an even sequence, any request, some length.
            if round % 2 == 0 {
                cell[0] &= 0xfe;
                cell[8..12].fill(0);
                let bytes = (noise(&mut seed) % 1400) as u32;
                cell[12..16].copy_from_slice(&bytes.to_ne_bytes());
            }
            assert_eq!(bpf(UPDATE, &cells, &key, &mut cell), 0);
        }
        let length = 1 + (noise(&mut seed) % 500) as usize;
        for key in 0..CELLS {
            let mut request = vec![0; length];
            request[0] = key as u8;
            scene.client.send(&request).expect("sent");
        }
        while let Ok(bytes) = scene.client.recv(&mut reply) {
            assert!(bytes <= 3 * length && bytes <= 1200, "{bytes} to {length}");
        }
    }
    let counts = scene.counts();
    assert!(counts.answered > 0 && counts.too_long > 0, "{counts:?}");
    assert_eq!(
        counts.failed + counts.unsent + counts.unproven,
        0,
        "{counts:?}"
    );
    drop(connection);
    // Its last words are no longer there, and the next one has cells as new.
    scene
        .client
        .set_read_timeout(Some(PATIENCE))
        .expect("a socket");
    while scene.service.set_nonblocking(true).is_ok() && scene.service.recv(&mut reply).is_ok() {}
    scene.service.set_nonblocking(false).expect("a socket");
    let mut next = scene.borrow_at(USER).expect("it is free");
    for key in 0..CELLS as u8 {
        assert_eq!(scene.ask(&[key, 1, 2]), None, "cell {key}");
        assert!(next.put(&[key, 1, 2], b"reply"));
        assert_eq!(scene.ask(&[key, 1, 2]).as_deref(), Some(&b"reply"[..]));
    }
}

#[test]
fn rate_is_the_holders() {
    if !own_network() {
        return;
    }
    // A tenth of a second's at once, and the rest go up.
    let scene = Scene::of(50);
    let mut answers = scene.borrow_at(USER).expect("it is the user");
    assert!(answers.put(b"\x03", b"abc"));
    let replies = (0..1000).filter(|_| scene.ask(b"\x03").is_some()).count();
    let counts = scene.counts();
    assert_eq!(counts.answered, replies as u64);
    assert!(replies >= 5 && counts.limited > 500, "{counts:?}");
}

#[test]
fn borrower_that_is_killed_leaves_nothing() {
    if !own_network() {
        return;
    }
    let scene = Scene::of(1_000_000);
    for _ in 0..20 {
        // A child that keeps them until it is killed, wherever it is.
        // SAFETY: the child makes system calls and stores only, and is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop_as_borrower(scene.at.port());
        }
        wait_until("it answers", || scene.ask(b"\x04").is_some());
        let child = Pid::from_raw(child).expect("a process");
        kill_process(child, Signal::KILL).expect("a child");
        waitpid(Some(child), WaitOptions::empty()).expect("a child");
        scene.wait_until_empty(b"\x04");
    }
}

/// Writes one cell for ever.
fn loop_as_borrower(port: u16) -> ! {
    if let Ok(mut answers) = Answers::borrow_at(port) {
        loop {
            answers.put(b"\x04", b"abc");
        }
    }
    std::process::abort()
}
