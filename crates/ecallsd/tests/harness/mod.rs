//! What the tests of the running daemon share: a daemon of its own socket and configuration, and
//! clients of any user that say exactly what they are told to.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod running;

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ecalls_abi::ABI_VERSION;
use ecalls_abi::message::{
    Answer, Hello, MESSAGE_DESCRIPTORS, MESSAGE_MAX, Number, OpenChannel, Refused, Request,
    Subscribe, UserView, Welcome,
};
use ecalls_abi::service::SERVICE_TASK;
use ecalls_abi::subscription::ACTION_MEMORY;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

pub(crate) use running::PATIENCE;

/// Some users without a name.
pub(crate) const ALICE: u32 = 64001;
pub(crate) const BOB: u32 = 64002;

/// One daemon at a time: a machine has one core.
static TURN: Mutex<()> = Mutex::new(());

/// A running daemon, and its turn.
#[derive(Debug)]
pub(crate) struct Daemon {
    running: running::Daemon,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Daemon {
    type Target = running::Daemon;

    fn deref(&self) -> &running::Daemon {
        &self.running
    }
}

impl DerefMut for Daemon {
    fn deref_mut(&mut self) -> &mut running::Daemon {
        &mut self.running
    }
}

/// None, with a word about it, unless tests may load programs into this kernel.
pub(crate) fn daemon(config: &str) -> Option<Daemon> {
    daemon_by(running::program(), config)
}

/// The same with the command that starts it.
pub(crate) fn daemon_by(command: Command, config: &str) -> Option<Daemon> {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() || !ecalls_kernel::is_root() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return None;
    }
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = fs::remove_dir_all(folder());
    fs::create_dir_all(folder()).unwrap();
    let mut running = running::Daemon::spawn(command, &folder(), config);
    running.await_answer(|daemon| {
        Client::connect(daemon.folder()).is_some_and(|client| client.hello().is_ok())
    });
    Some(Daemon {
        running,
        _turn: turn,
    })
}

/// The folder of this run's daemons, one after the other.
pub(crate) fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("ecallsd-test-{}", std::process::id()))
}

impl Daemon {
    /// A connection of user `uid` that has said HELLO.
    pub(crate) fn client(&self, uid: u32) -> Client {
        as_user(uid, || {
            let client = Client::connect(self.folder()).expect("the daemon listens");
            client.hello().unwrap().expect("the daemon welcomes");
            client
        })
    }

    /// The resources of a user, as root sees them.
    pub(crate) fn user(&self, uid: u32) -> Option<UserView> {
        let root = self.client(0);
        let mut from = 0;
        loop {
            match root.ask(&Request::LookUser(Number {
                number: from,
                pad: 0,
            })) {
                Ok((Answer::User(view), _)) if view.uid == uid => return Some(view),
                Ok((Answer::User(view), _)) => from = view.next,
                Ok((Answer::End(_), _)) => return None,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until a user's figures are so.
    pub(crate) fn wait_for(&self, uid: u32, what: impl Fn(&UserView) -> bool) {
        let start = Instant::now();
        loop {
            let view = self.user(uid).unwrap();
            if what(&view) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "still {view:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.running.kill();
        let _ = fs::remove_dir_all(folder());
    }
}

/// Runs `work` on a thread whose user is `uid`; so the kernel names that user to the daemon.
pub(crate) fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
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

/// A connection.
#[derive(Debug)]
pub(crate) struct Client(pub(crate) OwnedFd);

impl Client {
    pub(crate) fn connect(folder: &Path) -> Option<Client> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        // Also for connecting: a queue of connections may be full.
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, Some(PATIENCE)).unwrap();
        }
        let address = SocketAddrUnix::new(folder.join("socket")).unwrap();
        rustix::net::connect(&socket, &address).ok()?;
        Some(Client(socket))
    }

    pub(crate) fn hello(&self) -> io::Result<Result<Welcome, Refused>> {
        let hello = Hello {
            abi_version: ABI_VERSION,
            pad: 0,
        };
        match self.ask(&Request::Hello(hello))? {
            (Answer::Welcome(welcome), _) => Ok(Ok(welcome)),
            (Answer::Refused(refused), _) => Ok(Err(refused)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn say(&self, bytes: &[u8], fds: &[&OwnedFd]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let parts = [io::IoSlice::new(bytes)];
        rustix::net::sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    pub(crate) fn hear(&self) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let mut bytes = [0; MESSAGE_MAX];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags)?;
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        match received.bytes {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            count => Ok((Answer::parse(&bytes[..count]).unwrap().1, fds)),
        }
    }

    pub(crate) fn ask(&self, request: &Request) -> io::Result<(Answer, Vec<OwnedFd>)> {
        self.say(request.packet(1).as_bytes(), &[])?;
        self.hear()
    }

    /// The value of a request that is done.
    pub(crate) fn value(&self, request: &Request) -> u32 {
        match self.ask(request).unwrap().0 {
            Answer::Done(done) => u32::try_from(done.value).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The refusal of a request.
    pub(crate) fn refused(&self, request: &Request) -> Refused {
        match self.ask(request).unwrap().0 {
            Answer::Refused(refused) => refused,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn channel(&self) -> u32 {
        self.value(&ring())
    }

    /// Subscribes to the forks of processes, into that channel.
    pub(crate) fn subscribe(&self, channel: u32) -> u32 {
        self.value(&Request::Subscribe(to_task(channel)))
    }
}

/// A request for a ring of the smallest size.
pub(crate) fn ring() -> Request {
    Request::OpenChannel(OpenChannel {
        capacity: 64,
        ..OpenChannel::default()
    })
}

/// A subscription to the events of processes, delivered to that channel.
pub(crate) fn to_task(channel: u32) -> Subscribe {
    let mut body = Subscribe {
        service: SERVICE_TASK,
        channel,
        actions: 1,
        ..Subscribe::default()
    };
    body.action[0].kind = ACTION_MEMORY;
    body.action[0].channel = channel;
    body
}

pub(crate) fn number(number: u32) -> Number {
    Number { number, pad: 0 }
}
