//! `ecalls demo`: demonstrates events on this machine with a real web server under load.
//!
//! It starts a server and a load generator, and receives the kernel's events of the server's
//! sockets, of processes and of scheduling delays, each with a deadline. In order:
//!
//! 1. the cost for the server: requests per second without and with ECalls, alternately;
//! 2. the events, live: their number and latency, what was late or dropped and why; the server's
//!    sockets again, through a filter in E-code;
//! 3. the costs of epoll, pipes and signals on this machine now, beside those of ECalls;
//! 4. the accounts: every event that was raised is in exactly one counter.
//!
//! - [`attach`], [`seen`]: subscriptions, the reader, and its counts;
//! - [`live`], [`summary`]: the output.

mod attach;
mod live;
mod seen;
mod summary;

use std::time::Duration;

use ecalls::Ecalls;
use ecalls::socket::Interest;
use ecalls_cli::arguments::DemoArguments;

use self::attach::Attached;
use self::live::Live;
use self::seen::Ours;
use self::summary::{Account, Cost};
use crate::bench::timing::{Effort, Value, two_cpus};
use crate::bench::{baselines, readers, signals};
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::stop::Stop;
use crate::web::{Load, Server};

/// Older events are discarded.
const DEADLINE: Duration = Duration::from_millis(5);
/// Turns without and with ECalls; the best ones count.
const TURNS: u64 = 7;
/// The parts of the whole time for half a turn and for the live part; the comparison uses the rest.
const TURN_SHARE: f64 = 1.0 / 60.0;
const LIVE_SHARE: f64 = 0.6;

/// The state of the demonstration.
struct Stage {
    ecalls: Ecalls,
    server: Server,
    load: Load,
    stop: Stop,
    out: Output,
    seconds: f64,
}

/// Runs the demonstration.
pub(crate) fn run(args: &DemoArguments) -> Outcome {
    let stop = Stop::on_signals()?;
    // The demonstration measures the core as well, so it hosts one itself.
    let ecalls = Ecalls::host()?;
    let server = Server::start(args.server.as_deref(), &stop)?;
    // With one processor no binding is possible.
    let cpus = two_cpus().ok();
    if let Some((cpu, _)) = cpus {
        server.pin(cpu);
    }
    let mut stage = Stage {
        load: Load::find(server.port, cpus.map(|(_, cpu)| cpu))?,
        ecalls,
        server,
        stop,
        out: Output::new(args.json),
        seconds: args.seconds as f64,
    };
    // Connections inherit the registration of the listening socket.
    let sockets = stage
        .ecalls
        .watch_sockets_of(stage.server.pid(), &Interest::default().everyone())?;
    live::open(&mut stage.out, &stage.server, &stage.load, sockets)?;
    let cost = stage.cost()?;
    let accounts = stage.live()?;
    let values = stage.compare()?;
    stage.server.check()?;
    let whole = summary::print(&mut stage.out, cost.as_ref(), &accounts, &values)?;
    stage.out.flush()?;
    if whole {
        Ok(())
    } else {
        Err(summary::unbalanced())
    }
}

impl Stage {
    fn ours(&self) -> Ours {
        Ours {
            port: self.server.port,
            server: self.server.pid(),
            demo: std::process::id(),
        }
    }

    fn attach(&self) -> Result<Attached, Failure> {
        Attached::new(&self.ecalls, DEADLINE, self.ours())
    }

    /// The cost for the server. `None`: the user requested the end.
    fn cost(&mut self) -> Result<Option<Cost>, Failure> {
        let seconds = (self.seconds * TURN_SHARE).round().max(1.0) as u64;
        let turns = TURNS.min((self.seconds / 8.0) as u64).max(1);
        let mut cost = Cost::default();
        for _ in 0..turns {
            let Some(without) = self.load.requests_per_s(seconds, &self.stop)? else {
                return Ok(None);
            };
            let attached = self.attach()?;
            let with = self.load.requests_per_s(seconds, &self.stop)?;
            drop(attached);
            let Some(with) = with else { return Ok(None) };
            cost.turns.push((without, with));
        }
        live::cost(&mut self.out, &cost)?;
        Ok(Some(cost))
    }

    /// Shows the events as they arrive.
    fn live(&mut self) -> Result<Vec<Account>, Failure> {
        let seconds = (self.seconds * LIVE_SHARE).max(2.0);
        let attached = self.attach()?;
        live::filters(&mut self.out, &attached)?;
        let mut live = Live::new(&attached, seconds, self.out.is_json());
        let mut load = self.load.start(seconds.ceil() as u64 + 1)?;
        while !self.stop.is_set() && !live.is_over() {
            for running in &mut load {
                // Load with a fixed number of requests can end early.
                if running.ended().is_some() {
                    load = self.load.start(seconds.ceil() as u64)?;
                    break;
                }
            }
            live.help()?;
            live.tick(&attached, &mut self.out)?;
            self.server.check()?;
        }
        drop(load);
        live.last(&attached, &mut self.out)?;
        let accounts = attached.services.iter();
        accounts
            .map(|watched| Account::take(watched, &attached.reader))
            .collect()
    }

    /// The costs of notification at the moment, by ECalls and by the kernel's own means.
    fn compare(&self) -> Result<Vec<Value>, Failure> {
        if self.stop.is_set() {
            return Ok(Vec::new());
        }
        let effort = Effort::SHORT;
        Ok(vec![
            readers::awake(&self.ecalls, effort)?,
            readers::asleep(&self.ecalls, effort)?,
            baselines::eventfd_epoll(effort)?,
            baselines::pipes(effort)?,
            signals::baseline(effort)?,
        ])
    }
}
