//! One turn: the requests of two generators, and the processor time that they took: wrk's for a
//! second, as many as the server answers; then those of an open loop.

use std::fs;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use super::super::timing::{OpenLoop, RequestCpu, os};
use super::observer::Running;
use super::open_loop;
use crate::exit::{Code, Failure};
use crate::stop::Stop;
use crate::web::{Load, Server};

const SECONDS: u64 = 1;
const NS_PER_US: f64 = 1e3;

/// The result of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Time per request.
    pub(super) request_ns: f64,
    pub(super) cpu: RequestCpu,
    /// Of the open loop; `None`: there was none.
    pub(super) open: Option<OpenLoop>,
}

/// What makes the load of a turn.
#[derive(Clone, Copy)]
pub(super) struct Generators<'a> {
    pub(super) load: &'a Load,
    /// Requests per second of the open loop, which is on processor `cpu`; 0: there is none.
    pub(super) open_per_s: u64,
    pub(super) cpu: usize,
}

/// Runs one.
pub(super) fn take(
    server: &Server,
    generators: Generators<'_>,
    stop: &Stop,
    observer: Option<&Running>,
) -> Result<Turn, Failure> {
    let interrupted = || Failure::new(Code::Failed, "interrupted");
    let before = Spent::now(server, observer)?;
    let rate = generators.load.requests_per_s(SECONDS, stop)?;
    let between = Spent::now(server, observer)?;
    let rate = rate.ok_or_else(interrupted)?;
    let mut turn = Turn {
        request_ns: 1e9 / rate,
        cpu: between.since(&before, rate * SECONDS as f64),
        open: None,
    };
    if generators.open_per_s > 0 {
        let Generators {
            open_per_s, cpu, ..
        } = generators;
        let answers = open_loop::load(server.port, open_per_s, SECONDS, cpu, stop)?;
        let answers = answers.ok_or_else(interrupted)?;
        let requests = answers.requests as f64;
        let spent = Spent::now(server, observer)?.since(&between, requests);
        turn.open = Some(OpenLoop {
            open_p50_us: answers.p50_us,
            open_p99_us: answers.p99_us,
            open_server_us: spent.server_us,
            open_generator_us: answers.cpu_ns / NS_PER_US / requests,
            open_reader_us: spent.reader_us,
        });
    }
    Ok(turn)
}

/// Processor time so far.
struct Spent {
    server_ns: f64,
    generator_ns: f64,
    reader_ns: f64,
}

impl Spent {
    /// What was spent on each of so many requests since `before`.
    fn since(&self, before: &Spent, requests: f64) -> RequestCpu {
        let us = |of: fn(&Spent) -> f64| (of(self) - of(before)) / NS_PER_US / requests;
        RequestCpu {
            server_us: us(|spent| spent.server_ns),
            generator_us: us(|spent| spent.generator_ns),
            reader_us: us(|spent| spent.reader_ns),
        }
    }

    fn now(server: &Server, observer: Option<&Running>) -> Result<Spent, Failure> {
        let reader = observer.and_then(Running::process);
        Ok(Spent {
            server_ns: process_ns(server.pid())?,
            generator_ns: children_ns()?,
            // Our own readers are threads of this process, which does nothing else meanwhile.
            reader_ns: match reader {
                Some(pid) => process_ns(pid)?,
                None => own_ns(),
            },
        })
    }
}

/// Time that a process with one thread has run.
fn process_ns(pid: u32) -> Result<f64, Failure> {
    let text = read(&format!("/proc/{pid}/schedstat"))?;
    field(&text, 0).ok_or_else(|| os("reading a process's time", text))
}

/// Time of this process.
fn own_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Time of this process's children that have ended, in the kernel's ticks. The load generator is
/// the only one that ends within a turn.
fn children_ns() -> Result<f64, Failure> {
    let text = read("/proc/self/stat")?;
    // The name in parentheses may contain spaces; `cutime` and `cstime` are the 13th and 14th
    // fields behind it.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = field(fields, 13).zip(field(fields, 14));
    let (user, system) = ticks.ok_or_else(|| os("reading the children's time", &text))?;
    Ok((user + system) * 1e9 / clock_ticks_per_second() as f64)
}

fn read(path: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| os(&format!("reading {path}"), error))
}

fn field(text: &str, number: usize) -> Option<f64> {
    text.split_whitespace().nth(number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_and_of_its_children_is_found() {
        let pid = std::process::id();
        let before = children_ns().expect("it is there");
        // Other tests of this process have had time, too.
        let end = own_ns() + 2e7;
        while own_ns() < end {}
        assert!(process_ns(pid).expect("it is there") >= 0.0);
        // Two ticks at least.
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let ended = std::process::Command::new("sh").args(["-c", spin]).status();
        assert!(ended.expect("sh is everywhere").success());
        assert!(children_ns().expect("it is there") > before);
    }
}
