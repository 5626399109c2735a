//! What attackers do beneath the library: messages of any form, bpf(2) on the descriptors that they
//! were given, the shared memory as words, and the fast call with numbers of their choice.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ecalls_abi::ABI_VERSION;
use ecalls_abi::channel::UP_ELEMENT_BYTES;
use ecalls_abi::downcall::{DOWN_ELEMENT_BYTES, DOWN_ELEMENTS};
use ecalls_abi::message::{
    Answer, Done, Hello, MESSAGE_DESCRIPTORS, MESSAGE_MAX, OpenChannel, Refused, Request, Welcome,
};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::daemon;

/// How long an answer may take. The daemon lets a user who asks too fast wait.
const ANSWER: Duration = Duration::from_secs(15);

/// How long a forked child may live, seconds.
const FORKED_S: u32 = 90;

/// The prctl option of the fast call.
const PRCTL: libc::c_int = 0x4543_0001;

/// A connection that says what it likes.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) socket: OwnedFd,
    serial: u32,
}

/// A channel as descriptors.
#[derive(Debug)]
pub(crate) struct RawChannel {
    pub(crate) id: u32,
    pub(crate) up: OwnedFd,
    pub(crate) down: OwnedFd,
    pub(crate) wake: OwnedFd,
}

/// The answer.
pub(crate) type Reply = (Answer, Vec<OwnedFd>);

impl Raw {
    /// Connects and says nothing. Not close-on-exec, so that children have it, too.
    pub(crate) fn connect() -> io::Result<Raw> {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::empty(),
            None,
        )?;
        for side in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, side, Some(ANSWER))?;
        }
        let path = std::env::var_os("ECALLS_SOCKET").map_or_else(daemon::socket, Into::into);
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Raw { socket, serial: 0 })
    }

    /// Connects and says HELLO. The generic call's program comes only on a kernel without a fast
    /// call.
    pub(crate) fn open() -> io::Result<(Raw, Welcome, Option<OwnedFd>)> {
        let mut raw = Raw::connect()?;
        match raw.ask(&hello(), &[])? {
            (Answer::Welcome(welcome), mut fds) => Ok((raw, welcome, fds.pop())),
            (other, _) => Err(io::Error::other(describe(&other))),
        }
    }

    /// Sends any bytes with any descriptors.
    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(bytes, fds, SendFlags::NOSIGNAL)
    }

    /// The same, with flags.
    pub(crate) fn send_with(
        &self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        rustix::net::sendmsg(
            &self.socket,
            &[io::IoSlice::new(bytes)],
            &mut control,
            flags,
        )?;
        Ok(())
    }

    /// The next answer. None: the daemon has closed the connection.
    pub(crate) fn receive(&self) -> io::Result<Option<(u32, Reply)>> {
        let mut bytes = [0; MESSAGE_MAX];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = match rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags) {
            Ok(received) => received,
            Err(Errno::CONNRESET | Errno::PIPE) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        let (serial, answer) = Answer::parse(&bytes[..received.bytes]).map_err(io::Error::other)?;
        Ok(Some((serial, (answer, fds))))
    }

    /// A number that it has not given before.
    pub(crate) fn next_number(&mut self) -> u32 {
        self.serial += 1;
        self.serial
    }

    /// A request and its answer.
    pub(crate) fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<Reply> {
        self.serial += 1;
        self.send(request.packet(self.serial).as_bytes(), fds)?;
        let (serial, reply) = self.receive()?.ok_or(io::ErrorKind::ConnectionReset)?;
        assert_eq!(serial, self.serial, "the answer to another request");
        Ok(reply)
    }

    /// The same, for requests that are answered with a number.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn value(&mut self, request: &Request) -> Result<u64, Box<Refused>> {
        match self.ask(request, &[]).expect("an answer") {
            (Answer::Done(Done { value }), _) => Ok(value),
            (Answer::Refused(refused), _) => Err(Box::new(refused)),
            (other, _) => panic!("{}", describe(&other)),
        }
    }

    /// Opens a channel.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn open_channel(
        &mut self,
        request: &OpenChannel,
    ) -> Result<RawChannel, Box<Refused>> {
        let (answer, fds) = self
            .ask(&Request::OpenChannel(*request), &[])
            .expect("an answer");
        match answer {
            Answer::Done(Done { value }) => {
                let [up, down, wake] = fds.try_into().expect("three descriptors");
                let id = u32::try_from(value).expect("an id");
                Ok(RawChannel { id, up, down, wake })
            }
            Answer::Refused(refused) => Err(Box::new(refused)),
            other => panic!("{}", describe(&other)),
        }
    }

    /// Whether the daemon ends this connection, reading whatever comes before that.
    pub(crate) fn is_ended(&self) -> bool {
        loop {
            match self.receive() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// The first request.
pub(crate) fn hello() -> Request {
    Request::Hello(Hello {
        abi_version: ABI_VERSION,
        pad: 0,
    })
}

/// A ring of so many events.
pub(crate) fn ring(capacity: u32) -> OpenChannel {
    OpenChannel {
        capacity,
        ..OpenChannel::default()
    }
}

/// An answer for people.
pub(crate) fn describe(answer: &Answer) -> String {
    match answer {
        Answer::Refused(refused) => tell(refused),
        other => other.name().to_owned(),
    }
}

/// A refusal for people.
pub(crate) fn tell(refused: &Refused) -> String {
    ecalls_kernel::refusal::to_error(refused).to_string()
}

/// Memory of a map, as words.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping is the process's and only accessed by atomics.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `bytes` of a map from byte `offset` on.
    pub(crate) fn map(fd: impl AsFd, bytes: usize, offset: i64, write: bool) -> io::Result<Pages> {
        let write = if write { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | write,
                libc::MAP_SHARED,
                fd.as_fd().as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Pages {
            start: NonNull::new(address.cast()).expect("not the address 0"),
            words: bytes / 8,
        })
    }

    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped there as long as self lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; nobody holds a reference any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// Bytes of `up` with so many events.
pub(crate) fn up_bytes(capacity: u32) -> usize {
    UP_ELEMENT_BYTES * (4 + capacity as usize)
}

/// Bytes of `down`.
pub(crate) const DOWN_BYTES: usize = DOWN_ELEMENT_BYTES * DOWN_ELEMENTS;

/// Calls bpf(2) with these bytes as its argument.
pub(crate) fn bpf(command: u32, argument: &mut [u64]) -> io::Result<i64> {
    // SAFETY: the argument is as long as said; what it points to is the caller's to answer for,
    // and the kernel checks it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            libc::c_long::from(command),
            argument.as_mut_ptr(),
            size_of_val(argument),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Two 32-bit fields of bpf(2)'s argument.
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// A descriptor as bpf(2) wants it.
pub(crate) fn number(fd: &impl AsRawFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// The fast call with any numbers, by prctl.
pub(crate) fn fast_call(channel: u32, frame: u16, op: u16, argument: [u64; 3]) -> io::Result<i32> {
    let call = u64::from(channel) << 32 | u64::from(frame) << 16 | u64::from(op);
    // SAFETY: the kernel takes these numbers as numbers.
    let result = unsafe { libc::prctl(PRCTL, call, argument[0], argument[1], argument[2]) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Lets a process and the threads it starts run before ordinary ones.
pub(crate) fn make_urgent(pid: u32) {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one struct that lives here.
    let result = unsafe {
        libc::sched_setscheduler(pid.cast_signed(), libc::SCHED_FIFO, &raw const parameter)
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Forks. The child runs `child` and ends with its result as exit status.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> u32 {
    // SAFETY: the callers have one thread, and the child only runs what it is given.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: takes a number. Ends a child that hangs, so that nobody need wait for it.
        unsafe { libc::alarm(FORKED_S) };
        let code = child();
        // SAFETY: ends the child without running what its parent would run at exit.
        unsafe { libc::_exit(code) };
    }
    pid.cast_unsigned()
}

/// Waits for a child. Its exit status, or -1 for one that was killed.
pub(crate) fn wait_for(pid: u32) -> i32 {
    let mut status = 0;
    // SAFETY: the kernel writes one number that lives here.
    let waited = unsafe { libc::waitpid(pid.cast_signed(), &raw mut status, 0) };
    assert_eq!(waited, pid.cast_signed(), "{}", io::Error::last_os_error());
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        -1
    }
}

/// Enters new namespaces (`CLONE_NEW*`).
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: takes a number.
    if unsafe { libc::unshare(flags) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Mounts a file system.
pub(crate) fn mount(source: &CStr, target: &CStr, kind: &CStr) -> io::Result<()> {
    // SAFETY: three texts that live here, and no data.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
