//! The clients of the papers: httperf, a process of its own. It counts from its first second on,
//! and of the replies only those that come in time.
//!
//! The kernel chooses its ports: with its option `--hog` it takes those of servers, too.
//!
//! It waits by `select`, for 1,024 descriptors: so it cannot offer more than some thousand requests
//! a second to a server that lets them wait for a second. Such runs are left out, which is said.

use super::super::timing::os;
use super::load::Answers;
use crate::exit::Failure;
use crate::output::note;
use crate::stop::Stop;
use crate::web::program::{Running, find};

const NAME: &str = "httperf";

/// What it is to ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Httperf<'a> {
    pub(super) port: u16,
    pub(super) path: &'a str,
    pub(super) per_s: f64,
    pub(super) seconds: f64,
}

pub(super) fn is_there() -> bool {
    find(NAME).is_some()
}

impl Httperf<'_> {
    /// Starts it on that processor.
    pub(super) fn start(&self, cpu: usize) -> Result<Running, Failure> {
        let program = find(NAME).ok_or_else(|| os("starting httperf", "it is not installed"))?;
        let connections = (self.per_s * self.seconds).round();
        let words = [
            "--timeout=1".to_owned(),
            "--server=127.0.0.1".to_owned(),
            format!("--port={}", self.port),
            format!("--uri={}", self.path),
            format!("--rate={:.1}", self.per_s),
            format!("--num-conns={connections}"),
        ];
        let running = Running::start(&program, &words, None)?;
        running.pin(cpu);
        Ok(running)
    }

    /// What it has found; `None`: the user wants the end, or it could not offer so much.
    pub(super) fn found(&self, running: Running, stop: &Stop) -> Result<Option<Answers>, Failure> {
        let Some(text) = running.output(stop)? else {
            return Ok(None);
        };
        let found = self.read(&text);
        let (answers, short) = found.ok_or_else(|| os("reading what httperf says", text))?;
        if short > 0.0 {
            note(format_args!(
                "not measured: httperf at {:.0}/s lacked descriptors for {short} connections",
                self.per_s
            ));
        }
        Ok((short == 0.0).then_some(answers))
    }

    /// And how many connections it had no descriptors for.
    fn read(&self, text: &str) -> Option<(Answers, f64)> {
        let after = |line: &str, label: &str| -> Option<f64> {
            let line = text.lines().find(|one| one.starts_with(line))?;
            let (_, rest) = line.split_once(label)?;
            rest.split_whitespace().next()?.parse().ok()
        };
        let asked = after("Total:", "connections")?;
        let replies = after("Reply status:", "2xx=")?;
        let elapsed_s = after("Total:", "test-duration")?;
        // The guard's page is a reply, too, whose time is among those of the server's.
        let sorry = after("Reply status:", "5xx=")?;
        let refused = after("Errors: total", "connrefused")? + after("Errors: total", "connreset")?;
        let answers = Answers {
            due_per_s: asked / self.seconds,
            replies_per_s: replies / elapsed_s.max(self.seconds),
            p50_ms: after("Connection time [ms]: min", "median")
                .filter(|_| replies > 0.0 && sorry == 0.0),
            p99_ms: None,
            refused_per_s: (refused + sorry) / elapsed_s,
            late_ms: 0.0,
            served: 0,
        };
        Some((answers, after("Errors: fd-unavail", "fd-unavail")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
Total: connections 600 requests 580 replies 500 test-duration 4.000 s

Connection rate: 150.0 conn/s (6.7 ms/conn, <=151 concurrent connections)
Connection time [ms]: min 5.1 avg 60.0 max 900.0 median 45.5 stddev 30.0
Connection time [ms]: connect 3.0

Reply status: 1xx=0 2xx=500 3xx=0 4xx=0 5xx=0

Errors: total 100 client-timo 60 socket-timo 0 connrefused 30 connreset 10
Errors: fd-unavail 2 addrunavail 0 ftab-full 0 other 0
";

    #[test]
    fn numbers_are_those_that_it_says() {
        let clients = Httperf {
            port: 1,
            path: "/",
            per_s: 200.0,
            seconds: 3.0,
        };
        let (found, short) = clients.read(SAID).expect("it is whole");
        let rates = [found.due_per_s, found.replies_per_s, found.refused_per_s];
        assert_eq!(rates, [200.0, 125.0, 10.0]);
        assert_eq!((found.p50_ms, short), (Some(45.5), 2.0));
        // And a guard's pages are none of the server's replies.
        let sorry = SAID
            .replace("2xx=500", "2xx=300")
            .replace("5xx=0", "5xx=200");
        let (found, _) = clients.read(&sorry).expect("it is whole");
        assert_eq!((found.replies_per_s, found.refused_per_s), (75.0, 60.0));
        assert_eq!(found.p50_ms, None);
        assert!(clients.read("unable to connect").is_none());
    }
}
