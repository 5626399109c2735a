//! A connection to the daemon: one request and one answer at a time, over the socket that
//! abi/message.h describes.
//!
//! The connection represents the client to the daemon: the objects that were created over it end
//! with it. It belongs to the process that opened it; a forked child has the descriptor, but the
//! daemon does not accept requests from the child, and this file does not send any.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ecalls_abi::ABI_VERSION;
use ecalls_abi::channel::Id;
use ecalls_abi::message::{
    Answer, Hello, MESSAGE_DESCRIPTORS, MESSAGE_MAX, Number, OpenChannel, Request, Welcome,
};
use ecalls_abi::service::ServiceInfo;
use rustix::event::epoll;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::access::refusal::to_error;
use crate::core::channel::{ChannelFds, Shape};
use crate::error::{Error, Result};
use crate::kernel::instance;

/// The most time that the daemon may take for an answer. It waits for the kernel some milliseconds
/// at most.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// How long a service's description is cached.
const INFO_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Connection {
    /// Number of the last request; held while one is under way.
    serial: Mutex<u32>,
    socket: OwnedFd,
    welcome: Welcome,
    /// The process that opened it, by its own process id.
    process: u32,
    /// Names and formats of services, cached for [`INFO_TIME`].
    infos: Mutex<HashMap<u32, (Instant, ServiceInfo)>>,
}

impl Connection {
    /// Connects to the daemon that listens at `path`. Also returns the descriptor that the daemon
    /// may send: the program of the generic call. `None` if no daemon listens there.
    ///
    /// # Errors
    /// [`Error::Version`] if the daemon has another version, [`Error::Quota`] if this user has used
    /// up its connections.
    pub(crate) fn open(path: &Path) -> Result<Option<(Connection, Option<OwnedFd>)>> {
        let Some(socket) = connect(path)? else {
            return Ok(None);
        };
        let hello = Request::Hello(Hello {
            abi_version: ABI_VERSION,
            pad: 0,
        });
        let (answer, mut fds) = exchange(socket.as_fd(), 0, &hello, &[])?;
        let Answer::Welcome(welcome) = answer else {
            return Err(unexpected(&answer));
        };
        if welcome.abi_version != ABI_VERSION {
            return Err(Error::Version {
                theirs: welcome.abi_version,
                ours: ABI_VERSION,
                pid: welcome.daemon,
            });
        }
        let connection = Connection {
            serial: Mutex::new(0),
            socket,
            welcome,
            process: std::process::id(),
            infos: Mutex::default(),
        };
        Ok(Some((connection, fds.pop())))
    }

    /// The daemon's first message.
    pub(crate) fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Sends a request, and waits for the answer. A refusal is an error.
    pub(crate) fn ask(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>)> {
        if self.process != std::process::id() {
            return Err(Error::Closed("the connection of the parent process"));
        }
        let mut serial = self
            .serial
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *serial = serial.wrapping_add(1);
        exchange(self.socket.as_fd(), *serial, request, fds)
    }

    /// A service's description, at most [`INFO_TIME`] old: code that prints events needs it for
    /// each.
    pub(crate) fn info(&self, index: u32) -> Result<ServiceInfo> {
        let mut infos = self
            .infos
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((since, info)) = infos.get(&index)
            && since.elapsed() < INFO_TIME
        {
            return Ok(*info);
        }
        let request = Request::LookService(Number {
            number: index,
            pad: 0,
        });
        match self.ask(&request, &[])?.0 {
            Answer::Service(view) if view.index == index => {
                infos.insert(index, (Instant::now(), view.info));
                Ok(view.info)
            }
            _ => Err(Error::Closed("the service")),
        }
    }

    /// Sends a request whose answer is a number.
    pub(crate) fn value(&self, request: &Request) -> Result<u64> {
        self.value_with(request, &[])
    }

    /// The same, with descriptors.
    pub(crate) fn value_with(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<u64> {
        match self.ask(request, fds)?.0 {
            Answer::Done(done) => Ok(done.value),
            other => Err(unexpected(&other)),
        }
    }

    /// Requests a new object, and returns its id.
    pub(crate) fn made(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<Id> {
        as_id(self.value_with(request, fds)?)
    }

    /// Opens a channel: its id and its memory.
    pub(crate) fn open_channel(&self, shape: &Shape) -> Result<(Id, ChannelFds)> {
        let request = OpenChannel {
            layout: shape.layout.raw(),
            capacity: shape.capacity,
            slot_use: shape.slot_use.raw(),
            defer: shape.defer,
            delay_ns: shape.delay_ns,
            width: shape.width,
            pad: 0,
        };
        let (answer, fds) = self.ask(&Request::OpenChannel(request), &[])?;
        let Answer::Done(done) = answer else {
            return Err(unexpected(&answer));
        };
        let [up, down, wake] = fds
            .try_into()
            .map_err(|_| Error::Closed("the channel's memory"))?;
        Ok((as_id(done.value)?, ChannelFds { up, down, wake }))
    }

    /// Fails if the daemon is gone.
    ///
    /// # Errors
    /// [`Error::DaemonGone`]
    pub(crate) fn check(&self) -> Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut socket = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut socket, Some(&now)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
            Ok(_) => Err(Error::DaemonGone),
            Err(error) => Err(Error::from_io("looking at the daemon", error.into())),
        }
    }

    /// A descriptor that is readable when `fd` is, or when the daemon is gone.
    pub(crate) fn with_end(&self, fd: BorrowedFd<'_>) -> Result<OwnedFd> {
        let action = "making a descriptor to sleep on";
        let error = |errno: rustix::io::Errno| Error::from_io(action, errno.into());
        let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(error)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&both, fd, data, epoll::EventFlags::IN).map_err(error)?;
        epoll::add(&both, &self.socket, data, epoll::EventFlags::RDHUP).map_err(error)?;
        Ok(both)
    }
}

/// The path of the daemon's socket: `ECALLS_SOCKET` in the environment, or the instance's.
pub(crate) fn socket_path() -> Result<PathBuf> {
    match std::env::var_os("ECALLS_SOCKET") {
        Some(path) => Ok(path.into()),
        None => instance::socket_path().map(Path::to_owned),
    }
}

fn connect(path: &Path) -> Result<Option<OwnedFd>> {
    use rustix::io::Errno;
    let action = "connecting to the daemon";
    let error = |errno: Errno| Error::from_io(action, errno.into());
    let address = SocketAddrUnix::new(path).map_err(error)?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(error)?;
    for side in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, side, Some(ANSWER_TIME)).map_err(error)?;
    }
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) => Ok(None),
        Err(Errno::ACCESS) => Err(Error::Denied {
            action: "connecting to the daemon",
            privilege: "membership in the group of its socket (/run/ecalls/socket)",
        }),
        Err(errno) => Err(error(errno)),
    }
}

/// Sends a request and receives its answer.
fn exchange(
    socket: BorrowedFd<'_>,
    serial: u32,
    request: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<(Answer, Vec<OwnedFd>)> {
    send(socket, request, serial, fds)?;
    loop {
        let (bytes, size, fds) = receive(socket)?;
        let (answered, answer) = Answer::parse(&bytes[..size]).map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            Error::from_io("reading the daemon's answer", error)
        })?;
        // This is the answer to a request that was given up.
        if answered != serial {
            continue;
        }
        return match answer {
            Answer::Refused(refused) => Err(to_error(&refused)),
            answer => Ok((answer, fds)),
        };
    }
}

fn send(
    socket: BorrowedFd<'_>,
    request: &Request,
    serial: u32,
    fds: &[BorrowedFd<'_>],
) -> Result<()> {
    let packet = request.packet(serial);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Error::LimitReached {
            which: "descriptors of one message",
            limit: MESSAGE_DESCRIPTORS,
        });
    }
    let bytes = [io::IoSlice::new(packet.as_bytes())];
    loop {
        match rustix::net::sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(broken(errno)),
        }
    }
}

fn receive(socket: BorrowedFd<'_>) -> Result<([u8; MESSAGE_MAX], usize, Vec<OwnedFd>)> {
    let mut bytes = [0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let size = loop {
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) if received.bytes == 0 => return Err(Error::DaemonGone),
            Ok(received) => break received.bytes,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(broken(errno)),
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok((bytes, size, fds))
}

/// The error of a failed system call on the connection.
fn broken(errno: rustix::io::Errno) -> Error {
    use rustix::io::Errno;
    match errno {
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Error::DaemonGone,
        Errno::AGAIN => Error::from_io(
            "asking the daemon",
            io::Error::new(
                io::ErrorKind::TimedOut,
                "no answer for 10 s (systemctl status ecallsd)",
            ),
        ),
        errno => Error::from_io("asking the daemon", errno.into()),
    }
}

fn as_id(value: u64) -> Result<Id> {
    u32::try_from(value)
        .ok()
        .and_then(Id::from_raw)
        .ok_or(Error::Closed("the daemon's id"))
}

/// The error for an answer that does not match its request.
pub(crate) fn unexpected(answer: &Answer) -> Error {
    let text = format!("the answer {} does not fit", answer.name());
    Error::from_io(
        "asking the daemon",
        io::Error::new(io::ErrorKind::InvalidData, text),
    )
}
