//! An open-loop load generator: requests are due at a fixed rate, however long the server takes for
//! them, and the time of each counts from when it was due. So a server that stops for a moment is
//! charged for all requests of that moment, which a generator that waits for answers hides.
//!
//! It is a process of its own, so its processor time is known. There are [`CONNECTIONS`] that stay
//! open, with one request on each at a time; a request that finds none free waits for one. Servers
//! end a connection after some hundred requests: then a new one takes its place, and a request that
//! was on its way is sent again.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};

use super::super::timing::os;
use crate::exit::{Code, Failure, Outcome};
use crate::output::Output;
use crate::stop::Stop;
use crate::web::program::Running;

/// The hidden command by which this program starts itself as the generator.
pub(crate) const SUBCOMMAND: &str = "load-part";

const CONNECTIONS: usize = 16;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Bytes that are read at once.
const PART: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;
/// The number of the timer among the connections' numbers.
const TIMER: u64 = u64::MAX;

/// What the generator found out.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Answers {
    pub(crate) requests: u64,
    /// From when a request was due until its answer was complete.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time of the generator.
    pub(crate) cpu_ns: f64,
}

/// Lets the generator run on processor `cpu`. `None`: the user requested the end.
pub(super) fn load(
    port: u16,
    per_s: u64,
    seconds: u64,
    cpu: usize,
    stop: &Stop,
) -> Result<Option<Answers>, Failure> {
    let numbers = [u64::from(port), per_s, seconds].map(|number| number.to_string());
    let mut arguments = vec![SUBCOMMAND.to_owned()];
    arguments.extend(numbers);
    let running = Running::this(&arguments)?;
    running.pin(cpu);
    let Some(text) = running.output(stop)? else {
        return Ok(None);
    };
    let answers = serde_json::from_str(&text);
    answers
        .map(Some)
        .map_err(|error| os("reading the generator's output", error))
}

/// The generator's process.
pub(crate) fn generate(port: u16, per_s: u64, seconds: u64) -> Outcome {
    let mut load = Load::connect(port, per_s)?;
    let before_ns = clock_ns(ClockId::ProcessCPUTime);
    let (begin_ns, interval_ns) = (clock_ns(ClockId::Monotonic), load.interval_ns);
    let end_ns = begin_ns + seconds * SECOND_NS;
    load.start_timer()?;
    let (mut due, mut sent) = (0, 0);
    let mut times_ns = Vec::new();
    while clock_ns(ClockId::Monotonic) < end_ns {
        due += load.wait(&mut times_ns)?;
        while sent < due
            && let Some(free) = load.free.pop()
        {
            sent += 1;
            load.connections[free].send(begin_ns + sent * interval_ns)?;
        }
    }
    times_ns.sort_unstable();
    let at_us = |part: usize| {
        let at = times_ns.len().saturating_sub(1) * part / 100;
        times_ns.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    };
    let answers = Answers {
        requests: times_ns.len() as u64,
        p50_us: at_us(50),
        p99_us: at_us(99),
        cpu_ns: (clock_ns(ClockId::ProcessCPUTime) - before_ns) as f64,
    };
    let mut out = Output::new(true);
    out.object(&answers)?;
    out.flush()
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * SECOND_NS + time.tv_nsec.cast_unsigned()
}

/// The connections, and the timer that expires whenever a request is due.
struct Load {
    port: u16,
    connections: Vec<Connection>,
    free: Vec<usize>,
    poll: OwnedFd,
    timer: OwnedFd,
    interval_ns: u64,
}

struct Connection {
    stream: TcpStream,
    /// When the request that is on its way was due.
    due_ns: u64,
    /// Bytes of the answer that are still to come, and of a whole one.
    left: usize,
    answer: usize,
}

impl Load {
    fn connect(port: u16, per_s: u64) -> Result<Load, Failure> {
        let failed = |error| os("preparing the connections", error);
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        watch(&poll, &timer, TIMER)?;
        let mut connections = Vec::new();
        for number in 0..CONNECTIONS {
            let connection = Connection::open(port)?;
            watch(&poll, &connection.stream, number as u64)?;
            connections.push(connection);
        }
        Ok(Load {
            port,
            connections,
            free: (0..CONNECTIONS).collect(),
            poll,
            timer,
            interval_ns: SECOND_NS / per_s.max(1),
        })
    }

    fn start_timer(&self) -> Outcome {
        let interval = Timespec {
            tv_sec: (self.interval_ns / SECOND_NS).cast_signed(),
            tv_nsec: (self.interval_ns % SECOND_NS).cast_signed(),
        };
        let setting = Itimerspec {
            it_interval: interval,
            it_value: interval,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)
            .map(|_| ())
            .map_err(|error| os("starting the timer", error))
    }

    /// Waits for the timer or an answer. Returns how many requests have become due.
    fn wait(&mut self, times_ns: &mut Vec<u64>) -> Result<u64, Failure> {
        let mut ready = Vec::with_capacity(CONNECTIONS + 1);
        let room = rustix::buffer::spare_capacity(&mut ready);
        epoll::wait(&self.poll, room, None).map_err(|error| os("waiting for answers", error))?;
        let mut due = 0;
        for event in ready {
            let number = event.data.u64();
            if number == TIMER {
                let mut count = [0; 8];
                rustix::io::read(&self.timer, &mut count)
                    .map_err(|error| os("reading the timer", error))?;
                due = u64::from_ne_bytes(count);
                continue;
            }
            let at = number as usize;
            let connection = &mut self.connections[at];
            match connection.receive()? {
                Received::Part => {}
                Received::All => {
                    let now_ns = clock_ns(ClockId::Monotonic);
                    times_ns.push(now_ns.saturating_sub(connection.due_ns));
                    self.free.push(at);
                }
                Received::End => {
                    connection.open_again(self.port)?;
                    watch(&self.poll, &connection.stream, number)?;
                }
            }
        }
        Ok(due)
    }
}

/// A closed descriptor is no longer watched.
fn watch(poll: &OwnedFd, fd: &impl AsFd, number: u64) -> Outcome {
    let data = epoll::EventData::new_u64(number);
    epoll::add(poll, fd, data, epoll::EventFlags::IN)
        .map_err(|error| os("watching a connection", error))
}

/// What has come on a connection.
enum Received {
    Part,
    All,
    /// The server has ended it.
    End,
}

impl Connection {
    /// The first request tells how long an answer is: the server has one page.
    fn open(port: u16) -> Result<Connection, Failure> {
        let mut connection = Connection {
            stream: stream(port)?,
            due_ns: 0,
            left: 0,
            answer: 0,
        };
        let failed = |error| os("asking the server for its page", error);
        connection.send(0)?;
        let mut answer = Vec::new();
        while connection.answer == 0 || answer.len() < connection.answer {
            let mut part = [0; PART];
            match connection.stream.read(&mut part).map_err(failed)? {
                0 => return Err(Failure::new(Code::Failed, "the server does not answer")),
                bytes => answer.extend_from_slice(&part[..bytes]),
            }
            connection.answer = whole(&answer).unwrap_or(0);
        }
        connection.left = 0;
        connection.stream.set_nonblocking(true).map_err(failed)?;
        Ok(connection)
    }

    fn open_again(&mut self, port: u16) -> Outcome {
        self.stream = stream(port)?;
        let set = self.stream.set_nonblocking(true);
        set.map_err(|error| os("connecting with the server", error))?;
        match self.left {
            0 => Ok(()),
            _ => self.send(self.due_ns),
        }
    }

    fn send(&mut self, due_ns: u64) -> Outcome {
        self.due_ns = due_ns;
        self.left = self.answer;
        match self.stream.write_all(REQUEST) {
            Err(error) if !is_end(&error) => Err(os("sending a request", error)),
            _ => Ok(()),
        }
    }

    /// Takes what has come of the answer.
    fn receive(&mut self) -> Result<Received, Failure> {
        let mut part = [0; PART];
        match self.stream.read(&mut part) {
            Ok(0) => Ok(Received::End),
            // The last answer on a connection says so, and is a little longer.
            Ok(_) if self.left == 0 => Ok(Received::Part),
            Ok(bytes) => {
                self.left = self.left.saturating_sub(bytes);
                let is_all = self.left == 0;
                Ok(if is_all {
                    Received::All
                } else {
                    Received::Part
                })
            }
            Err(error) if is_end(&error) => Ok(Received::End),
            Err(error) => Err(os("reading an answer", error)),
        }
    }
}

fn stream(port: u16) -> Result<TcpStream, Failure> {
    let failed = |error| os("connecting with the server", error);
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// Whether the other side has ended the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// The length of the answer that begins so; `None`: its head is not complete.
fn whole(begin: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(begin);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let (_, length) = head.split_once("Content-Length: ")?;
    let length: usize = length.split("\r\n").next()?.parse().ok()?;
    Some(head.len() + 4 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_after_the_length_that_its_head_names() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: x\r\n\r\nhe";
        assert_eq!(whole(answer), Some(answer.len() + 3));
        assert_eq!(whole(&answer[..30]), None);
    }
}
