//! The programs, small ones that wait, wake and compute as usual ones do. Each function makes the
//! threads of one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ecalls::now_ns;
use rustix::event::epoll;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::thread::{futex, sched_yield};
use rustix::time::{ClockId, Timespec};

use super::load::{Body, Seen, cpus};
use crate::bench::sched::work::{Span, Work};
use crate::exit::{Code, Failure, Outcome};
use crate::output;

/// What a thread of a program can end with.
type Ended = Result<Seen, Failure>;
type Bodies = Result<Vec<Body>, Failure>;

fn body(run: impl FnOnce(Span) -> Ended + Send + 'static) -> Body {
    Box::new(run)
}

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Failed, format!("{what}: {error}"))
}

/// A counting semaphore: a waiter sleeps in the kernel at once.
#[derive(Debug)]
struct Semaphore(AtomicU32);

impl Semaphore {
    fn of(count: u32) -> Arc<Semaphore> {
        Arc::new(Semaphore(AtomicU32::new(count)))
    }

    fn wait(&self) {
        let take = |count: u32| count.checked_sub(1);
        while self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_err()
        {
            // Posted since, or interrupted: it tries again.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, 0, None);
        }
    }

    fn post(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
        // It fails for addresses that are none.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }
}

/// Threads that sleep until the next multiple of a period, like cyclictest's.
pub(super) fn sleepers(count: usize) -> Bodies {
    /// No multiple of a tick, so that they wake at all times between two.
    const PERIOD_NS: u64 = 1_030_000;
    let sleeper = |_| {
        body(|span| {
            let mut seen = Seen::new();
            let mut due_ns = span.begin_ns;
            loop {
                due_ns += PERIOD_NS * (1 + now_ns().saturating_sub(due_ns) / PERIOD_NS);
                let until = Timespec::try_from(Duration::from_nanos(due_ns))
                    .map_err(|error| failed("a time", error))?;
                rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until)
                    .map_err(|error| failed("sleeping", error))?;
                if !seen.waited(span, due_ns) {
                    return Ok(seen);
                }
            }
        })
    };
    Ok((0..count).map(sleeper).collect())
}

/// A worker of [`server`].
struct Worker {
    wake: Arc<Semaphore>,
    woken_ns: AtomicU64,
}

/// A thread that hands requests to workers, like schbench: each asks for the next when it has
/// finished one.
pub(super) fn server(work: Work, count: usize) -> Bodies {
    const SLEEP: Duration = Duration::from_micros(100);
    const WORK_NS: u64 = 500_000;
    let worker = |_| Worker {
        wake: Semaphore::of(0),
        woken_ns: AtomicU64::new(0),
    };
    let workers: Arc<Vec<Worker>> = Arc::new((0..count).map(worker).collect());
    let asks = Semaphore::of(0);
    let idle = Arc::new(Mutex::new(Vec::<usize>::new()));
    let run = |number: usize| {
        let (workers, asks, idle) = (Arc::clone(&workers), Arc::clone(&asks), Arc::clone(&idle));
        body(move |span| {
            let (me, mut seen) = (&workers[number], Seen::new());
            loop {
                let mut list = idle.lock().unwrap_or_else(PoisonError::into_inner);
                list.push(number);
                drop(list);
                asks.post();
                me.wake.wait();
                let is_over = !seen.waited(span, me.woken_ns.load(Ordering::Acquire));
                thread::sleep(SLEEP);
                work.spend(WORK_NS);
                if !seen.count(span) || is_over {
                    asks.post();
                    return Ok(seen);
                }
            }
        })
    };
    let mut bodies: Vec<Body> = (0..count).map(run).collect();
    bodies.push(body(move |span| {
        while now_ns() < span.end_ns {
            asks.wait();
            let mut list = idle.lock().unwrap_or_else(PoisonError::into_inner);
            let ready = std::mem::take(&mut *list);
            drop(list);
            for number in ready {
                workers[number].woken_ns.store(now_ns(), Ordering::Release);
                workers[number].wake.post();
            }
        }
        // Whoever still waits, or will.
        workers.iter().for_each(|worker| worker.wake.post());
        Ok(Seen::new())
    }));
    Ok(bodies)
}

/// A way from senders to a receiver: what the former write, what the latter reads.
type Ends = Result<(OwnedFd, OwnedFd), Failure>;

/// By a pipe.
pub(super) fn a_pipe() -> Ends {
    let (from, to) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed("making a pipe", error))?;
    Ok((to, from))
}

/// By a Unix socket.
pub(super) fn a_socket() -> Ends {
    let (from, to) = UnixStream::pair().map_err(|error| failed("making a socket", error))?;
    Ok((to.into(), from.into()))
}

/// Who sends or receives.
pub(super) enum Part {
    Sender([OwnedFd; RECEIVERS]),
    Receiver(OwnedFd),
}

/// Of a group; it has as many senders, each of which sends to all of them.
const RECEIVERS: usize = 2;
const GROUPS: usize = 5;
const MESSAGE_BYTES: usize = 100;

/// Groups of senders and receivers, like hackbench's.
pub(super) fn messages(run: fn(Part) -> Body, way: fn() -> Ends) -> Bodies {
    let clone = |end: &OwnedFd| {
        end.try_clone()
            .map_err(|error| failed("copying an end", error))
    };
    let mut bodies = Vec::new();
    for _ in 0..GROUPS {
        let ((one, first), (other, second)) = (way()?, way()?);
        bodies.push(run(Part::Sender([clone(&one)?, clone(&other)?])));
        bodies.push(run(Part::Sender([one, other])));
        bodies.extend([first, second].map(|end| run(Part::Receiver(end))));
    }
    Ok(bodies)
}

/// It is a thread.
pub(super) fn thread(part: Part) -> Body {
    body(move |span| {
        Ok(match part {
            Part::Sender(ends) => {
                send(ends.each_ref(), span.end_ns);
                Seen::new()
            }
            Part::Receiver(end) => Seen::done(receive(&end, span.from_ns, span.end_ns)),
        })
    })
}

/// It is a process of its own.
pub(super) fn process(part: Part) -> Body {
    body(move |span| {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(SUBCOMMAND);
        command.args([span.from_ns, span.end_ns].map(|ns| ns.to_string()));
        match part {
            Part::Sender([one, other]) => {
                command.stdin(Stdio::null()).stdout(one).stderr(other);
                command.spawn()?.wait()?;
                Ok(Seen::new())
            }
            Part::Receiver(end) => {
                command.arg(RECEIVES).stdin(end).stdout(Stdio::piped());
                let child = command.spawn()?;
                // The end that it reads is the child's alone.
                drop(command);
                let text = String::from_utf8_lossy(&child.wait_with_output()?.stdout).into_owned();
                let done = text.trim().parse();
                Ok(Seen::done(
                    done.map_err(|error| failed("a receiver's count", error))?,
                ))
            }
        }
    })
}

/// The hidden subcommand that is a sender, or with this argument a receiver.
pub(crate) const SUBCOMMAND: &str = "message-part";
const RECEIVES: &str = "--receives";

/// That process: a sender writes to its standard output and error in turns, a receiver reads its
/// standard input and prints the number of messages.
pub(crate) fn message_part(from_ns: u64, end_ns: u64, receives: bool) -> Outcome {
    if receives {
        let done = receive(std::io::stdin(), from_ns, end_ns);
        return output::write_all(format!("{done}\n").as_bytes());
    }
    send(
        [&std::io::stdout() as &dyn AsFd, &std::io::stderr()],
        end_ns,
    );
    Ok(())
}

fn send<E: AsFd>(ends: [E; RECEIVERS], end_ns: u64) {
    while now_ns() < end_ns {
        for end in &ends {
            // Who receives has ended.
            if rustix::io::write(end, &[1; MESSAGE_BYTES]).is_err() {
                return;
            }
        }
    }
}

/// Reads until all senders have ended. How many messages came in the span.
fn receive(end: impl AsFd, from_ns: u64, end_ns: u64) -> u64 {
    let (mut bytes, mut buffer) = (0, [0; MESSAGE_BYTES]);
    while let Ok(read @ 1..) = rustix::io::read(&end, &mut buffer) {
        if (from_ns..end_ns).contains(&now_ns()) {
            bytes += read;
        }
    }
    (bytes / MESSAGE_BYTES) as u64
}

/// Two threads that pass a byte to and fro.
pub(super) fn pipes() -> Bodies {
    let ((to_far, far), (to_near, near)) = (a_pipe()?, a_pipe()?);
    let pass = |end: &OwnedFd| rustix::io::write(end, &[1]).is_ok();
    let take = |end: &OwnedFd| rustix::io::read(end, &mut [0; 1]).is_ok_and(|bytes| bytes == 1);
    let begins = body(move |span| {
        let mut seen = Seen::new();
        while pass(&to_far) && take(&near) && seen.count(span) {}
        Ok(seen)
    });
    let answers = body(move |_| {
        while take(&far) && pass(&to_near) {}
        Ok(Seen::new())
    });
    Ok(vec![begins, answers])
}

/// For each CPU a thread that sends messages to another one, which holds one at a time, like
/// stress-ng's switch.
pub(super) fn switches() -> Bodies {
    let mut bodies = Vec::new();
    for _ in 0..cpus() {
        // With DIRECT each message takes a page of its own.
        let flags = PipeFlags::CLOEXEC | PipeFlags::DIRECT;
        let of = |error| failed("making a pipe of one message", error);
        let (from, to) = pipe_with(flags).map_err(of)?;
        fcntl_setpipe_size(&to, rustix::param::page_size()).map_err(of)?;
        bodies.push(thread(Part::Receiver(from)));
        bodies.push(body(move |span| {
            while now_ns() < span.end_ns && rustix::io::write(&to, &[1; MESSAGE_BYTES]).is_ok() {}
            Ok(Seen::new())
        }));
    }
    Ok(bodies)
}

/// Two threads that wake each other.
pub(super) fn futexes() -> Bodies {
    let (near, far) = (Semaphore::of(0), Semaphore::of(0));
    let (to_near, to_far) = (Arc::clone(&near), Arc::clone(&far));
    // Only one of them looks at the clock: else the other could leave it waiting.
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let begins = body(move |span| {
        let mut seen = Seen::new();
        loop {
            to_far.post();
            near.wait();
            if !seen.count(span) {
                over.store(true, Ordering::Release);
                to_far.post();
                return Ok(seen);
            }
        }
    });
    let answers = body(move |_| {
        loop {
            far.wait();
            if is_over.load(Ordering::Acquire) {
                return Ok(Seen::new());
            }
            to_near.post();
        }
    });
    Ok(vec![begins, answers])
}

/// Pairs of a thread whose waits end soon, and one that tries to wake it while it waits.
pub(super) fn timed_futexes(pairs: usize) -> Bodies {
    const LIMIT: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 5000,
    };
    let pair = |_| {
        let word = Arc::new(AtomicU32::new(0));
        let waited = Arc::clone(&word);
        let waits = body(move |span| {
            while now_ns() < span.end_ns {
                // Woken, or not in time.
                let _ = futex::wait(&waited, futex::Flags::PRIVATE, 0, Some(&LIMIT));
            }
            Ok(Seen::new())
        });
        let wakes = body(move |span| {
            let mut seen = Seen::new();
            while now_ns() < span.end_ns {
                if futex::wake(&word, futex::Flags::PRIVATE, 1).is_ok_and(|woken| woken > 0) {
                    seen.count(span);
                }
            }
            Ok(seen)
        });
        [waits, wakes]
    };
    Ok((0..pairs).flat_map(pair).collect())
}

/// Threads that take turns with a semaphore.
pub(super) fn semaphore(work: Work, count: usize) -> Bodies {
    const WORK_NS: u64 = 20_000;
    let shared = Semaphore::of(1);
    let run = |_| {
        let shared = Arc::clone(&shared);
        body(move |span| {
            let mut seen = Seen::new();
            loop {
                shared.wait();
                work.spend(WORK_NS);
                shared.post();
                work.spend(WORK_NS);
                if !seen.count(span) {
                    return Ok(seen);
                }
            }
        })
    };
    Ok((0..count).map(run).collect())
}

/// Threads that only compute, one more than there are CPUs.
pub(super) fn hogs(work: Work) -> Bodies {
    const WORK_NS: u64 = 20_000;
    let run = |_| {
        body(move |span| {
            let mut seen = Seen::new();
            while seen.count(span) {
                work.spend(WORK_NS);
            }
            Ok(seen)
        })
    };
    Ok((0..=cpus()).map(run).collect())
}

/// Threads that yield.
pub(super) fn yields() -> Bodies {
    let run = |_| {
        body(|span| {
            let mut seen = Seen::new();
            while seen.count(span) {
                sched_yield();
            }
            Ok(seen)
        })
    };
    Ok((0..2 * cpus()).map(run).collect())
}

/// A thread that starts programs.
pub(super) fn forks() -> Bodies {
    Ok(vec![body(|span| {
        let mut seen = Seen::new();
        while seen.count(span) {
            Command::new("true").status()?;
        }
        Ok(seen)
    })])
}

/// A thread that starts threads.
pub(super) fn threads() -> Bodies {
    Ok(vec![body(|span| {
        let mut seen = Seen::new();
        while seen.count(span) {
            let ended = thread::spawn(|| ()).join();
            ended.map_err(|_| failed("a thread", "it ended by a panic"))?;
        }
        Ok(seen)
    })])
}

/// Blocks from a reader to workers in turns, and in the same order to a writer.
pub(super) fn compress(work: Work, count: usize) -> Bodies {
    const WORK_NS: u64 = 2_000_000;
    const AHEAD: usize = 2;
    let (mut bodies, mut to_workers, mut from_workers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let (to_worker, blocks) = sync_channel::<()>(AHEAD);
        let (to_writer, packed) = sync_channel::<()>(AHEAD);
        to_workers.push(to_worker);
        from_workers.push(packed);
        bodies.push(body(move |_| {
            // The writer ends last.
            while blocks.recv().is_ok() {
                work.spend(WORK_NS);
                let _ = to_writer.send(());
            }
            Ok(Seen::new())
        }));
    }
    bodies.push(body(move |span| {
        let mut turns = to_workers.iter().cycle();
        while now_ns() < span.end_ns && turns.next().is_some_and(|to| to.send(()).is_ok()) {}
        Ok(Seen::new())
    }));
    bodies.push(body(move |span| {
        let mut seen = Seen::new();
        let mut turns = from_workers.iter().cycle();
        while turns.next().is_some_and(|from| from.recv().is_ok()) {
            seen.count(span);
        }
        Ok(seen)
    }));
    Ok(bodies)
}

const REQUEST_BYTES: usize = 64;
const CLIENTS: usize = 16;

/// A server with one thread, and one that is all of its clients.
pub(super) fn store(work: Work) -> Bodies {
    const WORK_NS: u64 = 20_000;
    let of = |error| failed("connecting a server and its clients", error);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(of)?;
    let address = listener.local_addr().map_err(of)?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let stream = TcpStream::connect(address).map_err(of)?;
        let accepted = listener.accept().map_err(of)?.0;
        stream.set_nodelay(true).map_err(of)?;
        accepted.set_nodelay(true).map_err(of)?;
        near.push(stream);
        far.push(accepted);
    }
    let serves = body(move |_| {
        let ended = each_message(&far, |mut stream, _| {
            work.spend(WORK_NS);
            stream.write_all(&[2; REQUEST_BYTES]).is_ok()
        });
        ended.map(|()| Seen::new())
    });
    let asks = body(move |span| {
        let mut seen = Seen::new();
        let mut sent_ns = vec![now_ns(); near.len()];
        for mut stream in &near {
            stream.write_all(&[1; REQUEST_BYTES])?;
        }
        each_message(&near, |mut stream, number| {
            seen.waited(span, sent_ns[number]);
            let goes_on = seen.count(span);
            sent_ns[number] = now_ns();
            goes_on && stream.write_all(&[1; REQUEST_BYTES]).is_ok()
        })?;
        Ok(seen)
    });
    Ok(vec![serves, asks])
}

/// Calls `then` for each message of a stream, with its number, until it says no or the other side
/// has ended.
fn each_message(
    streams: &[TcpStream],
    mut then: impl FnMut(&TcpStream, usize) -> bool,
) -> Result<(), Failure> {
    let of = |error: rustix::io::Errno| failed("waiting for requests", error);
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(of)?;
    for (stream, number) in streams.iter().zip(0..) {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&ready, stream, data, epoll::EventFlags::IN).map_err(of)?;
    }
    let mut events = Vec::with_capacity(streams.len());
    loop {
        events.clear();
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&ready, room, None).map_err(of)?;
        for event in &events {
            let number = event.data.u64() as usize;
            let mut stream = &streams[number];
            let is_read = stream.read_exact(&mut [0; REQUEST_BYTES]).is_ok();
            if !is_read || !then(stream, number) {
                return Ok(());
            }
        }
    }
}
