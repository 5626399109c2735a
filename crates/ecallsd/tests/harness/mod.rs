//! What the tests of the running daemon share: a daemon of its own socket and configuration, and
//! clients of any user that say exactly what they are told to.

#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
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
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Some users without a name.
pub(crate) const ALICE: u32 = 64001;
pub(crate) const BOB: u32 = 64002;

/// One daemon at a time: a machine has one core.
static TURN: Mutex<()> = Mutex::new(());

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) process: Child,
    pub(crate) folder: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// None, with a word about it, unless tests may load programs into this kernel.
pub(crate) fn daemon(config: &str) -> Option<Daemon> {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() || !ecalls_kernel::is_root() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return None;
    }
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = std::env::temp_dir().join(format!("ecallsd-test-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("ecallsd.toml");
    let socket = folder.join("socket");
    let text = format!(
        "[socket]\npath = {:?}\n{config}\n",
        socket.to_str().unwrap()
    );
    fs::write(&path, text).unwrap();
    let process = command(&path).stderr(Stdio::piped()).spawn().unwrap();
    let mut daemon = Daemon {
        process,
        folder,
        _turn: turn,
    };
    let start = Instant::now();
    while Client::connect(&daemon).is_none_or(|client| client.hello().is_err()) {
        if let Some(status) = daemon.process.try_wait().unwrap() {
            panic!("the daemon ended: {status}: {}", daemon.told());
        }
        assert!(start.elapsed() < PATIENCE, "the daemon does not answer");
        thread::sleep(Duration::from_millis(20));
    }
    Some(daemon)
}

/// The daemon's command line.
pub(crate) fn command(config: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecallsd"));
    command.arg("--config").arg(config);
    command
}

impl Daemon {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Ends it. How it ended, and what it has told.
    pub(crate) fn stop(&mut self) -> (ExitStatus, String) {
        self.signal(rustix::process::Signal::TERM);
        self.ended()
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return (status, self.told());
            }
            assert!(start.elapsed() < PATIENCE, "the daemon does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has told; only once it has ended.
    fn told(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            stderr.read_to_string(&mut text).unwrap();
        }
        text
    }

    /// The door's process.
    pub(crate) fn door(&self) -> rustix::process::Pid {
        let pid = self.process.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        // The kernel may leave a child out while processes come and go.
        let door = (0..1000).find_map(|_| {
            let text = fs::read_to_string(&children).unwrap();
            let door = text.trim().parse().ok();
            if door.is_none() {
                thread::sleep(Duration::from_millis(5));
            }
            door
        });
        rustix::process::Pid::from_raw(door.expect("the door is a child")).unwrap()
    }

    /// A connection of user `uid` that has said HELLO.
    pub(crate) fn client(&self, uid: u32) -> Client {
        as_user(uid, || {
            let client = Client::connect(self).expect("the daemon listens");
            client.hello().unwrap().expect("the daemon welcomes");
            client
        })
    }

    /// What a user has, as root sees it.
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
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
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
    pub(crate) fn connect(daemon: &Daemon) -> Option<Client> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let address = SocketAddrUnix::new(daemon.folder.join("socket")).unwrap();
        rustix::net::connect(&socket, &address).ok()?;
        let timeout = rustix::net::sockopt::Timeout::Recv;
        rustix::net::sockopt::set_socket_timeout(&socket, timeout, Some(PATIENCE)).unwrap();
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

/// What happens to processes, into that channel.
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
