//! The compiler: the process in which the texts of clients become programs.
//!
//! A compiler parses the input of strangers in detail. So it has no capability, no file and no
//! network, little memory and little time, and its output is not trusted: the broker inspects each
//! program ([`ecode::bpf::inspect`]) before the kernel does.
//!
//! It consists of two processes, one of which never sees a text. The *keeper* starts a *worker*,
//! waits for its end, reports it to the broker, and starts the next one. A worker takes one text
//! ([`job`]), compiles it (`work`), answers and ends, so nothing of a text is left when the next
//! one comes. The next worker is started in advance.
//!
//! | between | what |
//! |---|---|
//! | broker, worker | `jobs`: a [`job::Job`], and its [`job::Answer`] |
//! | broker, keeper | `control`: any byte: end the worker; back: how one ended ([`Ended`]) |
//!
//! The compiler handles one text at a time. The kernel ends a worker that needs more CPU time than
//! [`cap::CPU`]; the keeper ends one that does not end for another reason, when the broker tells it
//! to. The broker relies on the keeper's report only: a worker that has ended has answered before,
//! or never will. A worker, which a text may have taken over, has no `control` (by which it could
//! report its own end, and receive the next text), and data that it leaves in `jobs` are discarded
//! at its end: nothing of it is taken for the answer to the next text.

pub mod cap;
pub mod job;
mod work;

use std::io::{self, stdout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ecalls_kernel::confined;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};

use self::job::{ANSWER_MAX, Answer, Job};
use crate::sandbox::{Enforce, syscalls};

pub use self::work::{answer, compile};

/// After a worker that failed, the next one is started after this pause.
const REST: Duration = Duration::from_millis(20);

/// More messages than fit into the socket for answers, however small.
const MESSAGES: usize = 4096;

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has answered.
    Well = 0,
    /// It exceeded its CPU time.
    TimeOver = 1,
    /// For another reason: it was killed, or was out of memory.
    Otherwise = 2,
}

impl Ended {
    fn of(status: WaitStatus) -> Ended {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => Ended::Well,
            (_, Some(signal)) if signal == confined::TIME_OVER.as_raw() => Ended::TimeOver,
            _ => Ended::Otherwise,
        }
    }

    fn of_byte(byte: u8) -> Ended {
        match byte {
            0 => Ended::Well,
            1 => Ended::TimeOver,
            _ => Ended::Otherwise,
        }
    }
}

/// The broker's side of the compiler.
#[derive(Debug)]
pub struct Compiler {
    jobs: OwnedFd,
    control: OwnedFd,
}

/// The descriptors with which the compiler's process is started.
#[derive(Debug)]
pub struct Ends {
    /// The socket for texts.
    pub jobs: OwnedFd,
    /// The socket between keeper and broker.
    pub control: OwnedFd,
}

impl Compiler {
    pub fn pair() -> io::Result<(Compiler, Ends)> {
        let pair = || {
            rustix::net::socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )
        };
        let ((ours, jobs), (control, theirs)) = (pair()?, pair()?);
        let compiler = Compiler {
            jobs: ours,
            control,
        };
        let ends = Ends {
            jobs,
            control: theirs,
        };
        Ok((compiler, ends))
    }

    /// Sends a job.
    ///
    /// # Errors
    /// The compiler may be gone.
    pub fn send(&self, job: &Job) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::send(&self.jobs, &job.to_bytes(), flags)?;
        Ok(())
    }

    /// Ends the current worker.
    ///
    /// # Errors
    /// The keeper may be gone.
    pub fn end_worker(&self) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::send(&self.control, &[0], flags)?;
        Ok(())
    }

    /// How a worker has ended since the last call. `None`: none has.
    ///
    /// # Errors
    /// BrokenPipe: the keeper is gone.
    pub fn hear(&self) -> io::Result<Option<Ended>> {
        let mut byte = [0];
        match rustix::net::recv(&self.control, &mut byte[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
            Ok(_) => Ok(Some(Ended::of_byte(byte[0]))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The answer of a worker that has ended; its contents are not trusted. `None`: it has not sent
    /// exactly one well-formed message. All its messages are removed.
    pub fn answer(&self) -> Option<Answer> {
        let mut bytes = vec![0; ANSWER_MAX];
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let mut receive = || rustix::net::recv(&self.jobs, &mut bytes[..], flags);
        let (count, size) = receive().ok()?;
        let answer = (size == count).then(|| Answer::of_bytes(&bytes[..count]));
        // An empty message looks like the end of the socket, so the messages are counted.
        let mut rest = [0];
        let mut next = || rustix::net::recv(&self.jobs, &mut rest[..], RecvFlags::DONTWAIT);
        let more = (0..MESSAGES).take_while(|_| next().is_ok()).count();
        answer.flatten().filter(|_| more == 0)
    }
}

impl AsFd for Compiler {
    /// Readable when a worker has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// Does what workers are not permitted to do: the first reading of a clock maps the kernel's vDSO.
pub fn prepare() {
    work::time_spent();
}

/// Keeps a worker until the broker is gone. `work` handles the text and sends the answer: it is
/// [`compile`], except in tests of a worker that was taken over. `enforce`: the reaction to a
/// system call that is not in the worker's list.
pub fn serve(ends: &Ends, enforce: Enforce, work: impl Fn(&Job, &OwnedFd) -> u8) -> io::Result<()> {
    // The keeper was started with `control` as its standard output.
    let stdout = stdout();
    let without = [ends.control.as_fd(), stdout.as_fd()];
    let filter = syscalls::filter(&syscalls::worker(), enforce).map_err(io::Error::other)?;
    loop {
        let worker = confined::start(&without, || work::one(&ends.jobs, &filter, enforce, &work));
        let Some(ended) = wait_for(worker.map_err(io::Error::other)?, &ends.control)? else {
            return Ok(());
        };
        if ended != Ended::Well {
            std::thread::sleep(REST);
        }
        match rustix::net::send(&ends.control, &[ended as u8], SendFlags::NOSIGNAL) {
            Ok(_) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for the end of a worker, and kills it when the broker says so. `None`: the broker is gone.
fn wait_for(worker: Pid, control: &OwnedFd) -> io::Result<Option<Ended>> {
    let process = rustix::process::pidfd_open(worker, PidfdFlags::empty())?;
    let mut is_over = false;
    loop {
        let mut both = [
            PollFd::new(&process, PollFlags::IN),
            PollFd::new(control, PollFlags::IN),
        ];
        match poll(&mut both, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let [process, said] = both.map(|one| !one.revents().is_empty());
        if said {
            let mut byte = [0];
            let heard = rustix::net::recv(control, &mut byte[..], RecvFlags::DONTWAIT);
            is_over = matches!(heard, Ok((0, _)));
            // It may have ended by itself meanwhile.
            let _ = rustix::process::kill_process(worker, Signal::KILL);
        }
        if process || is_over {
            let ended = rustix::process::waitpid(Some(worker), WaitOptions::empty())?;
            let ended = ended.map_or(Ended::Otherwise, |(_, status)| Ended::of(status));
            return Ok((!is_over).then_some(ended));
        }
    }
}
