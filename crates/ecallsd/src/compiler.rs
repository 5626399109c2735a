//! The compiler: the process in which the texts of clients become programs.
//!
//! A compiler reads what strangers wrote, and reads it closely. So it has no capability, no file
//! and no network, little memory and little time, and what it makes is not trusted: the broker
//! looks at each program ([`ecode::bpf::inspect`]) before the kernel does.
//!
//! Two processes, one of which never looks at a text. The *keeper* starts a *worker*, waits until
//! it has ended, tells the broker how, and starts the next one. A worker takes one text ([`job`]),
//! compiles it (`work`), answers and ends: nothing of a text is there when the next one comes.
//! That one's worker is there already, so nobody waits for it to start.
//!
//! | between | what |
//! |---|---|
//! | broker, worker | `jobs`: a [`job::Job`], and its [`job::Answer`] |
//! | broker, keeper | `control`: any byte: end the worker; back: how one ended ([`Ended`]) |
//!
//! One text at a time. A worker that needs more of the processor than [`cap::CPU`] is ended by the
//! kernel, one that does not end for another reason by the keeper, when the broker says so. The
//! broker goes by the word of the keeper alone: a worker that has ended has answered before, or
//! never will. So a worker, which a text may have taken over, has no `control` (it could say that
//! it has ended, and meet the next text), and what it leaves in `jobs` ends with it: nothing of it
//! is taken for the answer to the next text.

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

/// After a worker that failed the next one starts so much later.
const REST: Duration = Duration::from_millis(20);

/// More messages than fit into the way for answers, however small.
const MESSAGES: usize = 4096;

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has answered.
    Well = 0,
    /// It used more time than it may.
    TimeOver = 1,
    /// Another way: it was killed, or had no memory left.
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

/// The compiler as the broker has it.
#[derive(Debug)]
pub struct Compiler {
    jobs: OwnedFd,
    control: OwnedFd,
}

/// What the compiler's process is started with.
#[derive(Debug)]
pub struct Ends {
    /// Where texts come from.
    pub jobs: OwnedFd,
    /// Where the keeper hears the broker.
    pub control: OwnedFd,
}

impl Compiler {
    /// Both sides.
    ///
    /// # Errors
    /// Those of the system.
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

    /// Gives it something to do.
    ///
    /// # Errors
    /// Those of the system; it may be gone.
    pub fn send(&self, job: &Job) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::send(&self.jobs, &job.to_bytes(), flags)?;
        Ok(())
    }

    /// Ends the worker, whatever it does.
    ///
    /// # Errors
    /// Those of the system; the keeper may be gone.
    pub fn end_worker(&self) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::send(&self.control, &[0], flags)?;
        Ok(())
    }

    /// How a worker has ended since this was asked last. None: none has.
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

    /// What a worker that has ended has answered: whatever it says, it is not trusted. None: it
    /// has not answered once, in one message of the form. Nothing of it is left for the next one.
    pub fn answer(&self) -> Option<Answer> {
        let mut bytes = vec![0; ANSWER_MAX];
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let mut receive = || rustix::net::recv(&self.jobs, &mut bytes[..], flags);
        let (count, size) = receive().ok()?;
        let answer = (size == count).then(|| Answer::of_bytes(&bytes[..count]));
        // An empty message looks like a way that has ended; so they are counted.
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

/// Does what workers cannot do any more: the first look at a clock asks the kernel where it is.
pub fn prepare() {
    work::time_spent();
}

/// Keeps a worker until the broker is gone. What a worker does with its text and the way for its
/// answer is `work`: it [`compile`]s, unless a test wants to see what one could do that was taken
/// over. `enforce`: what happens when it makes a system call that is not in its list.
///
/// # Errors
/// Those of the system.
pub fn serve(ends: &Ends, enforce: Enforce, work: impl Fn(&Job, &OwnedFd) -> u8) -> io::Result<()> {
    // The keeper was started with its `control` as its standard output.
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

/// Waits until a worker has ended, and ends it when the broker says so. None: the broker is gone.
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
            // That it has ended by itself by now is as good.
            let _ = rustix::process::kill_process(worker, Signal::KILL);
        }
        if process || is_over {
            let ended = rustix::process::waitpid(Some(worker), WaitOptions::empty())?;
            let ended = ended.map_or(Ended::Otherwise, |(_, status)| Ended::of(status));
            return Ok((!is_over).then_some(ended));
        }
    }
}
