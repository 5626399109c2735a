//! Answers for a program without privileges: a holder, which has them, lends its cells by a socket
//! (abi/answer.h); and the borrower's side.
//!
//! Who may answer where, at what rate, and by which text is thus decided by who starts the holder.
//! A borrower gets memory and nothing else: no program of its own comes into the kernel.
//!
//! Both sides look whom they talk to: the holder lends to one user, and root; the borrower takes
//! what root gives, for anybody may listen at a name that is free.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use ecalls_abi::answer::{ANSWER_CELLS, ANSWER_NAME, AnswerCell, AnswerCount, AnswerLease};
use ecalls_abi::version::ABI_VERSION;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with, sockopt,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{Answer, Plan};
use crate::error::{Error, Result};
use crate::kernel::segment::Segment;
use crate::kernel::sys;
use crate::kernel::worker::{Worker, wait_for};

/// Borrowers that may wait while another one has the cells.
const BACKLOG: i32 = 16;
/// Bytes of a text, at most: those of the compiler.
const TEXT_BYTES: usize = ecode::limits::TEXT_BYTES;
/// How long a borrower waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

fn address(port: u16) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("{ANSWER_NAME}{port}").as_bytes())
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Who lends the cells of its answers until it is dropped.
#[derive(Debug)]
pub struct Holder {
    // The first field: nobody borrows any more when the rest ends.
    _worker: Worker,
    answer: Arc<Answer>,
}

/// What its thread has.
struct Lender {
    listener: OwnedFd,
    user: u32,
    answer: Arc<Answer>,
    cells: OwnedFd,
    counts: OwnedFd,
    /// The struct, and the text.
    lease: Vec<u8>,
}

impl Holder {
    /// Lends to programs of that user, and of root. `text`: that of the program.
    ///
    /// # Errors
    /// [`Error::Invalid`] if somebody else has the name of this port; those of the system.
    pub fn start(answer: Answer, plan: &Plan<'_>, text: &str, user: u32) -> Result<Holder> {
        let failed = |error: Errno| Error::from_io("listening for a borrower", error.into());
        let listener = socket().map_err(failed)?;
        let port = plan.at.port();
        match bind(&listener, &address(port).map_err(failed)?) {
            Err(Errno::ADDRINUSE) => {
                return Err(Error::Invalid {
                    what: "the port to answer at",
                    given: port.to_string(),
                    expected: "one whose name no other program of this network has",
                });
            }
            bound => bound.map_err(failed)?,
        }
        listen(&listener, BACKLOG).map_err(failed)?;
        let lease = AnswerLease {
            version: ABI_VERSION,
            cells: plan.cells,
            echo_bytes: plan.echo as u32,
            text_bytes: text.len() as u32,
        };
        let lender = Lender {
            listener,
            user,
            cells: copy(answer.cells_fd.as_fd())?,
            counts: copy(answer.counts_fd.as_fd())?,
            lease: [lease.as_bytes(), text.as_bytes()].concat(),
            answer: Arc::new(answer),
        };
        let answer = Arc::clone(&lender.answer);
        let action = "starting the thread that lends cells";
        let worker = Worker::start("answer-lend", action, move |stop| lender.run(stop))?;
        Ok(Holder {
            _worker: worker,
            answer,
        })
    }

    /// What it lends.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }
}

fn copy(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd> {
    let copied = fd.try_clone_to_owned();
    copied.map_err(|error| Error::from_io("copying a descriptor", error))
}

impl Lender {
    fn run(&self, stop: &OwnedFd) {
        while wait_for(stop, &self.listener) {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.listener, flags) {
                // Whoever may not have them, or has gone, is closed at once.
                Ok(borrower) if self.lend(&borrower).is_ok() => {
                    // It says nothing: what comes is its end.
                    let goes_on = wait_for(stop, &borrower);
                    self.empty();
                    if !goes_on {
                        return;
                    }
                }
                Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // Without descriptors, a moment later.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn lend(&self, borrower: &OwnedFd) -> io::Result<()> {
        let peer = sockopt::socket_peercred(borrower)?;
        if !peer.uid.is_root() && peer.uid.as_raw() != self.user {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let both = [self.cells.as_fd(), self.counts.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&both));
        let packet = [IoSlice::new(&self.lease)];
        sendmsg(borrower, &packet, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Takes all replies away, as the next borrower would (ecalls-ring, cells.rs): the last one may
    /// have been killed at any moment, and have written anything.
    fn empty(&self) {
        const WORDS: usize = size_of::<AnswerCell>() / 8;
        for cell in self.answer.words().chunks_exact(WORDS) {
            let [sequence, bytes, ..] = cell else {
                continue;
            };
            let odd = sequence.load(Ordering::Relaxed) | 1;
            sequence.store(odd, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            bytes.store(0, Ordering::Relaxed);
            let even = odd.wrapping_add(1);
            sequence.store(if even == 0 { 2 } else { even }, Ordering::Release);
        }
    }
}

/// The cells of a holder, until this is dropped.
#[derive(Debug)]
pub struct Lent {
    cells: Segment,
    counts: OwnedFd,
    /// Ours, which the holder watches.
    socket: OwnedFd,
    /// The first bytes of a reply that are its request's.
    pub echo: usize,
    /// In E-code: says the cell of a request.
    pub text: String,
}

impl Lent {
    /// Borrows the cells of the holder at that port, in this network namespace; waits for at most
    /// five seconds while another program has them.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no holder, [`Error::Denied`] if it does not lend to this
    /// user, or is not root's, [`Error::Version`], [`Error::LimitReached`] if another program keeps
    /// them.
    pub fn borrow_at(port: u16) -> Result<Lent> {
        let failed = |error: Errno| Error::from_io("borrowing cells for replies", error.into());
        let socket = socket().map_err(failed)?;
        match connect(&socket, &address(port).map_err(failed)?) {
            Err(Errno::CONNREFUSED) => {
                return Err(Error::Unknown {
                    what: "holder of answers",
                    name: port.to_string(),
                    hint: "root starts one for this port with `ecalls answer hold`".to_owned(),
                });
            }
            Err(Errno::AGAIN) => return Err(TAKEN),
            connected => connected.map_err(failed)?,
        }
        let holder = sockopt::socket_peercred(&socket).map_err(failed)?;
        if !holder.uid.is_root() {
            return Err(Error::Denied {
                action: "taking cells from a holder of another user",
                privilege: "a holder that root has started (`ecalls answer hold`)",
            });
        }
        let patience_ns = u64::try_from(PATIENCE.as_nanos()).ok();
        if !sys::wait_readable(socket.as_fd(), patience_ns)? {
            return Err(TAKEN);
        }
        receive(socket, holder.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// The words of the cells.
    pub fn words(&self) -> &[AtomicU64] {
        self.cells.words()
    }

    /// What each CPU has counted.
    ///
    /// # Errors
    /// Those of the system.
    pub fn counts(&self) -> Result<Vec<AnswerCount>> {
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| Error::from_bpf("counting CPUs", &error))?;
        let mut counts = vec![AnswerCount::default(); cpus];
        sys::read_row(self.counts.as_fd(), 0, counts.as_mut_slice().as_mut_bytes())?;
        Ok(counts)
    }

    /// Whether the holder has ended: then nothing is answered any more.
    pub fn has_ended(&self) -> bool {
        !matches!(sys::wait_readable(self.socket.as_fd(), Some(0)), Ok(false))
    }
}

const TAKEN: Error = Error::LimitReached {
    which: "programs that answer at this port",
    limit: 1,
};

/// What that process sends.
fn receive(socket: OwnedFd, holder: u32) -> Result<Lent> {
    let denied = Error::Denied {
        action: "answering at this port",
        privilege: "to be root, or the user that the holder lends to",
    };
    let mut bytes = vec![0; size_of::<AnswerLease>() + TEXT_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = {
        let mut place = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut place, &mut control, RecvFlags::CMSG_CLOEXEC)
    };
    let count = match received {
        Ok(received) => received.bytes,
        Err(Errno::CONNRESET) => 0,
        Err(error) => return Err(Error::from_io("borrowing cells for replies", error.into())),
    };
    let mut fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let (Some(cells), Some(counts)) = (fds.next(), fds.next()) else {
        return Err(denied);
    };
    let (lease, text) = AnswerLease::read_from_prefix(&bytes[..count])
        .map_err(|_| Error::Closed("the holder's lease"))?;
    if lease.version != ABI_VERSION || !(1..=ANSWER_CELLS).contains(&lease.cells) {
        return Err(Error::Version {
            theirs: lease.version,
            ours: ABI_VERSION,
            pid: holder,
        });
    }
    let text = String::from_utf8_lossy(text).into_owned();
    Ok(Lent {
        cells: Segment::map(&cells, lease.cells as usize * size_of::<AnswerCell>())?,
        counts,
        socket,
        echo: lease.echo_bytes as usize,
        text,
    })
}
