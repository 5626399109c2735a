//! Load on the server, by wrk or httperf.

use std::path::PathBuf;

use super::program::{Running, find};
use crate::exit::{Code, Failure};
use crate::stop::Stop;

/// Connections of wrk that stay open, and connections of a second wrk that opens one per request.
const CONNECTIONS: u32 = 16;
const NEW_CONNECTIONS: u32 = 2;
/// For httperf, which has no option for a duration: connections per second, and requests on each.
const HTTPERF_CONNECTIONS: u64 = 200;
const HTTPERF_REQUESTS: u64 = 20;

const NONE_FOUND: &str = "there is no program that makes load: install wrk (on Debian, \
                          `make demo` does)";

/// A load generator for one port.
#[derive(Debug)]
pub(crate) struct Load {
    program: PathBuf,
    is_wrk: bool,
    port: u16,
    cpu: Option<usize>,
}

impl Load {
    /// Finds an installed one; it runs on processor `cpu`, if given.
    ///
    /// # Errors
    /// None is installed.
    pub(crate) fn find(port: u16, cpu: Option<usize>) -> Result<Load, Failure> {
        let wrk = find("wrk");
        let is_wrk = wrk.is_some();
        let program = wrk
            .or_else(|| find("httperf"))
            .ok_or_else(|| Failure::new(Code::Failed, NONE_FOUND))?;
        Ok(Load {
            program,
            is_wrk,
            port,
            cpu,
        })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        if self.is_wrk { "wrk" } else { "httperf" }
    }

    /// Requests per second in a run of about this many seconds. `None`: the user requested the end.
    pub(crate) fn requests_per_s(&self, seconds: u64, stop: &Stop) -> Result<Option<f64>, Failure> {
        let run = self.run(seconds, false)?;
        let Some(text) = run.output(stop)? else {
            return Ok(None);
        };
        requests_per_s(&text).map(Some).ok_or_else(|| {
            let message = format!("{} did not say how many requests it made", self.name());
            Failure::new(Code::Failed, message)
        })
    }

    /// Starts load on lasting and on new connections; it ends when the result is dropped.
    pub(crate) fn start(&self, seconds: u64) -> Result<[Running; 2], Failure> {
        Ok([self.run(seconds, false)?, self.run(seconds, true)?])
    }

    fn run(&self, seconds: u64, new: bool) -> Result<Running, Failure> {
        let running = Running::start(&self.program, &self.arguments(seconds, new), None)?;
        if let Some(cpu) = self.cpu {
            running.pin(cpu);
        }
        Ok(running)
    }

    fn arguments(&self, seconds: u64, new: bool) -> Vec<String> {
        if self.is_wrk {
            wrk(self.port, seconds, new)
        } else {
            httperf(self.port, seconds, new)
        }
    }
}

fn wrk(port: u16, seconds: u64, new: bool) -> Vec<String> {
    let connections = if new { NEW_CONNECTIONS } else { CONNECTIONS };
    let mut words = vec![
        "-t1".to_owned(),
        format!("-c{connections}"),
        format!("-d{seconds}s"),
    ];
    if new {
        words.extend(["-H", "Connection: close"].map(str::to_owned));
    }
    words.push(format!("http://127.0.0.1:{port}/"));
    words
}

fn httperf(port: u16, seconds: u64, new: bool) -> Vec<String> {
    let requests = if new { 1 } else { HTTPERF_REQUESTS };
    let connections = HTTPERF_CONNECTIONS * seconds;
    vec![
        "--hog".to_owned(),
        "--uri=/".to_owned(),
        "--server=127.0.0.1".to_owned(),
        format!("--port={port}"),
        format!("--rate={HTTPERF_CONNECTIONS}"),
        format!("--num-conns={connections}"),
        format!("--num-calls={requests}"),
    ]
}

/// The rate from the output of wrk or httperf.
pub(crate) fn requests_per_s(text: &str) -> Option<f64> {
    let after = |label: &str| {
        let (_, rest) = text.split_once(label)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    after("Requests/sec:").or_else(|| after("Request rate:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_either_program_says() {
        let wrk = "  90368 requests in 1.00s\nRequests/sec:  90323.20\nTransfer/sec: 186.49MB\n";
        assert_eq!(requests_per_s(wrk), Some(90323.2));
        let httperf = "Request rate: 1234.5 req/s (0.8 ms/req)\nRequest size [B]: 62.0\n";
        assert_eq!(requests_per_s(httperf), Some(1234.5));
        assert_eq!(requests_per_s("unable to connect"), None);
    }
}
