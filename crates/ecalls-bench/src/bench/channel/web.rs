//! KECho's Figures 8 and 9: a cluster of eight web servers, those of examples/cluster-web.
//!
//! Each host is a network namespace with a core, a server and a manager. A request occupies its
//! host for 38 ms, in which it computes for 4: this machine's processors have to do for all eight.
//!
//! - **Figure 8**: all requests arrive at one host, and 2.5 s is the longest that they wait there
//!   before they are forwarded to the best other one (`fig8_local_*`, `fig8_remote_*`), beside the
//!   same without balancing (`fig8_alone_*`). What balancing takes of that host in a second, in
//!   three parts: its manager, which looks at its load, tells it and lends (`fig8_tell_*`), the
//!   kernel's receiving of what others tell (`fig8_hear_*`), and the choice of a host
//!   (`fig8_choose_*`). Without requests (`*_0`) the first two are the paper's: with them, the
//!   manager lends, too, and the kernel receives what managers ask and answer.
//! - **Figure 9**: requests arrive at all hosts, half of them at one, 0.8 of what the hosts can do.
//!   They go to the best host, to three of which the first to begin does it and the others are
//!   cancelled, to two at random, or to one host after the other as a simple balancer has it
//!   (`fig9_turn`). Loads are told once a second. `fig9_cost_*`: processor time of managers and
//!   clients for each request; `fig9_told_*`: of a manager in a second, by how often it tells.

#[path = "../../../../../examples/cluster-web/load.rs"]
mod load;
#[allow(dead_code, reason = "the example uses more of it")]
#[path = "../../../../../examples/cluster-web/net.rs"]
pub(in crate::bench) mod net;
#[path = "../../../../../examples/cluster-web/serve.rs"]
mod serve;

use std::time::{Duration, Instant};

use ecalls_kernel::enable_statistics;

use self::net::{Net, Started};
use self::serve::Policy;
use crate::bench::Bench;
use crate::bench::rows::Section;
use crate::bench::timing::Value;
use crate::exit::{Code, Failure};

/// As the example has it.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, Error>;

/// What went wrong with hosts.
#[allow(
    clippy::needless_pass_by_value,
    reason = "it is the argument of map_err"
)]
pub(super) fn failed(error: Error) -> Failure {
    Failure::new(Code::Failed, format!("hosts of a measurement: {error}"))
}

/// Hosts' cores are named so, with the host's number.
pub(super) const INSTANCE: &str = "ecalls-bench";
const HOSTS: u8 = 8;
const PORT: u16 = 8080;
const WORK: Duration = Duration::from_millis(38);
const COMPUTES: Duration = Duration::from_millis(4);

const POLICIES: [(&str, Policy); 7] = [
    ("alone", Policy::Alone),
    ("after", Policy::After),
    ("turn", Policy::Turn),
    ("best_1", Policy::Best(1, false)),
    ("best_3", Policy::Best(3, false)),
    ("best_5", Policy::Best(5, false)),
    ("random_2", Policy::Random(2, false)),
];

fn address(host: u8) -> String {
    format!("10.81.0.{host}")
}

pub(super) const SECTION: Section = Section {
    rows: &[
        "fig8_alone_20",
        "fig8_local_20",
        "fig8_alone_33",
        "fig8_local_33",
        "fig8_remote_33",
        "fig8_alone_50",
        "fig8_local_50",
        "fig8_remote_50",
        "fig8_tell_0",
        "fig8_hear_0",
        "fig8_tell_20",
        "fig8_hear_20",
        "fig8_choose_20",
        "fig8_tell_33",
        "fig8_hear_33",
        "fig8_choose_33",
        "fig8_tell_50",
        "fig8_hear_50",
        "fig8_choose_50",
        "fig9_turn",
        "fig9_best_1",
        "fig9_best_3",
        "fig9_best_5",
        "fig9_random_2",
        "fig9_cost_best_1",
        "fig9_cost_best_3",
        "fig9_cost_best_5",
        "fig9_told_1",
        "fig9_told_5",
    ],
    slow: true,
    measure,
};

/// A rate of Figure 8, and its rows.
struct Rate {
    per_s: u32,
    alone: &'static str,
    local: &'static str,
    remote: Option<&'static str>,
    /// What is told, heard and chosen.
    costs: [&'static str; 3],
}
const RATES: [Rate; 3] = [
    Rate {
        per_s: 20,
        alone: "fig8_alone_20",
        local: "fig8_local_20",
        remote: None,
        costs: ["fig8_tell_20", "fig8_hear_20", "fig8_choose_20"],
    },
    Rate {
        per_s: 33,
        alone: "fig8_alone_33",
        local: "fig8_local_33",
        remote: Some("fig8_remote_33"),
        costs: ["fig8_tell_33", "fig8_hear_33", "fig8_choose_33"],
    },
    Rate {
        per_s: 50,
        alone: "fig8_alone_50",
        local: "fig8_local_50",
        remote: Some("fig8_remote_50"),
        costs: ["fig8_tell_50", "fig8_hear_50", "fig8_choose_50"],
    },
];
/// The same without requests: nobody chooses.
const IDLE: [&str; 2] = ["fig8_tell_0", "fig8_hear_0"];
/// How long that lasts, s.
const SECONDS_IDLE: (u32, u32) = (10, 0);
/// What balancing takes, as in `costs`.
const COSTS: [&str; 3] = [
    "processor time of the host's manager in a second: it tells, and lends",
    "... of the kernel, which receives what others tell, ask and answer",
    "... of choosing a host for each request, and asking it",
];
/// Rows of Figure 9: the policy, and the row of its cost.
const BALANCES: [(&str, &str, Option<&str>, &str); 5] = [
    ("turn", "fig9_turn", None, "to one host after the other"),
    (
        "best_1",
        "fig9_best_1",
        Some("fig9_cost_best_1"),
        "to the best host",
    ),
    (
        "best_3",
        "fig9_best_3",
        Some("fig9_cost_best_3"),
        "to the 3 best, done by the first, cancelled at the others",
    ),
    (
        "best_5",
        "fig9_best_5",
        Some("fig9_cost_best_5"),
        "to the 5 best",
    ),
    ("random_2", "fig9_random_2", None, "to 2 hosts at random"),
];
/// Requests in a second of Figure 9: 0.8 of what eight hosts can do.
const LOAD: u32 = 168;
/// How long each load of Figure 8 lasts, s, and the part of it before the queue is as long as it
/// gets.
const SECONDS_8: [(u32, u32); 3] = [(12, 2), (28, 20), (16, 8)];
const SECONDS_9: (u32, u32) = (12, 2);
const STATISTIC: &str = "mean of the requests";

/// The cluster, as long as it is measured.
struct Cluster {
    _servers: Vec<Started>,
    _hosts: Vec<Net>,
    switch: Net,
}

/// What a load has seen, times in ms.
struct Seen {
    here_ms: f64,
    there_ms: f64,
    refused: f64,
    mean_ms: f64,
    p99_ms: f64,
    requests: f64,
}

/// Processor time that has been spent on a host, ns.
struct Cost {
    manager: f64,
    client: f64,
    /// As in [`COSTS`].
    parts: [f64; 3],
}

impl Cluster {
    fn start() -> Outcome<Cluster> {
        let switch = Net::switch(&address(254))?;
        let hosts: Vec<Net> = (1..=HOSTS)
            .map(|host| switch.host(host, &address(host)))
            .collect::<Outcome<_>>()?;
        let servers = (1..=HOSTS)
            .zip(&hosts)
            .map(|(host, net)| {
                let number = host.to_string();
                net.start_own(&[super::PART, "web", "serve", &number], host)
            })
            .collect::<Outcome<_>>()?;
        Ok(Cluster {
            _servers: servers,
            _hosts: hosts,
            switch,
        })
    }

    /// GET of a path at each host.
    fn ask(&self, path: &str) -> Outcome<Vec<String>> {
        let words = [super::PART, "web", "ask", path];
        let said = self.switch.run_own(&words)?;
        let said: Vec<String> = said.lines().map(str::to_owned).collect();
        match said.len() == usize::from(HOSTS) {
            true => Ok(said),
            false => Err("not all hosts have answered".into()),
        }
    }

    /// Tells each manager how often to tell its load.
    fn tell(&self, bench: &Bench, ms: u32) -> Outcome<()> {
        self.ask(&format!("/tell/{ms}"))?;
        // Each has told the others.
        let (seconds, _) = lasting(bench, (3, 0));
        std::thread::sleep(Duration::from_secs(seconds.into()));
        Ok(())
    }

    /// What has been spent on each host so far.
    fn costs(&self) -> Outcome<Vec<Cost>> {
        let said = self.ask("/cost")?;
        let cost = |line: &String| {
            let numbers = line.split(' ').map(str::parse::<f64>);
            let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
            let [manager, client, choosing, receiving] = numbers[..] else {
                return Err(format!("a host has said {line:?}").into());
            };
            Ok(Cost {
                manager,
                client,
                parts: [manager, receiving, choosing],
            })
        };
        said.iter().map(cost).collect()
    }

    /// Processor time of all managers, and of all clients, ns.
    fn cost(&self) -> Outcome<(f64, f64)> {
        let all = self.costs()?;
        let sum = |of: fn(&Cost) -> f64| -> f64 { all.iter().map(of).sum() };
        Ok((sum(|one| one.manager), sum(|one| one.client)))
    }

    /// What each part takes of the host at which requests arrive, in a second of what is done
    /// meanwhile.
    fn parts<T>(&self, meanwhile: impl FnOnce() -> Outcome<T>) -> Outcome<([f64; 3], T)> {
        let (begin, before) = (Instant::now(), self.costs()?);
        let done = meanwhile()?;
        let (after, seconds) = (self.costs()?, begin.elapsed().as_secs_f64());
        let [before, after] = [before, after].map(|all| all[0].parts);
        let parts = std::array::from_fn(|at| (after[at] - before[at]) / seconds);
        Ok((parts, done))
    }

    fn load(&self, policy: &str, rate: u32, time: (u32, u32), spread: bool) -> Outcome<Seen> {
        let number = POLICIES.iter().position(|(name, _)| *name == policy);
        let number = number.ok_or("no such policy")?;
        let numbers = [number as u32, rate, time.0, time.1].map(|number| number.to_string());
        let mut words = vec![super::PART, "web", "load"];
        words.extend(numbers.iter().map(String::as_str));
        words.push(if spread { "true" } else { "false" });
        let said = self.switch.run_own(&words)?;
        let numbers = said.split(' ').map(str::parse::<f64>);
        let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
        let [here, here_ms, there, there_ms, refused, mean_ms, p99_ms] = numbers[..] else {
            return Err(format!("a load has said {said:?}").into());
        };
        Ok(Seen {
            here_ms,
            there_ms,
            refused,
            mean_ms,
            p99_ms,
            requests: here + there + refused,
        })
    }
}

/// One of the hosts, or who sends them requests.
pub(super) fn part(words: &[&str]) -> crate::exit::Outcome {
    let done = match words {
        ["serve", host] => serve::serve(host),
        ["load", words @ ..] => load::load(words),
        ["ask", path] => (1..=HOSTS).try_for_each(|host| {
            println!("{}", load::get(&address(host), path)?);
            Ok(())
        }),
        _ => Err("no such part".into()),
    };
    done.map_err(failed)
}

fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let cluster = Cluster::start().map_err(failed)?;
    let some = |rows: &[&'static str]| rows.iter().any(|row| needs(bench, [Some(row)]));
    let (eight, nine): (Vec<_>, Vec<_>) = SECTION
        .rows
        .iter()
        .partition(|row| row.starts_with("fig8_"));
    let mut values = Vec::new();
    if some(&eight) {
        values.extend(figure_8(bench, &cluster).map_err(failed)?);
    }
    if some(&nine) {
        values.extend(figure_9(bench, &cluster).map_err(failed)?);
    }
    Ok(values)
}

/// A time in ms as a value, with the share of refused requests.
fn response(row: &'static str, ms: f64, seen: &Seen, what: &'static str) -> Value {
    Value {
        refused: Some(seen.refused / seen.requests),
        ..Value::ns(row, ms * 1e6, STATISTIC, what)
    }
}

/// So long, or a second if it is only to be seen that it works.
fn lasting(bench: &Bench, time: (u32, u32)) -> (u32, u32) {
    match bench.effort.divisor > 10 {
        true => (1, 0),
        false => time,
    }
}

/// Whether one of these rows is measured.
fn needs<const N: usize>(bench: &Bench, rows: [Option<&'static str>; N]) -> bool {
    let mut rows = rows.into_iter().flatten();
    rows.any(|row| bench.needed.contains(&row))
}

fn figure_8(bench: &Bench, cluster: &Cluster) -> Outcome<Vec<Value>> {
    cluster.tell(bench, 1000)?;
    // So that the kernel counts its part.
    let _counted = enable_statistics()?;
    let mut values = Vec::new();
    if needs(bench, IDLE.map(Some)) {
        let (seconds, _) = lasting(bench, SECONDS_IDLE);
        let pause = || {
            std::thread::sleep(Duration::from_secs(seconds.into()));
            Ok(())
        };
        let (spent, ()) = cluster.parts(pause)?;
        values.extend(spent_on(&IDLE, &spent));
    }
    for (rate, time) in RATES.into_iter().zip(SECONDS_8) {
        let time = lasting(bench, time);
        if needs(bench, [Some(rate.alone)]) {
            let seen = cluster.load("alone", rate.per_s, time, false)?;
            let what = "so many requests in a second, without balancing";
            values.push(response(rate.alone, seen.mean_ms, &seen, what));
        }
        if needs(bench, [Some(rate.local), rate.remote]) || needs(bench, rate.costs.map(Some)) {
            values.extend(balanced(cluster, &rate, time)?);
        }
    }
    Ok(values)
}

/// Requests of a rate with balancing: how long they take, and what that takes.
fn balanced(cluster: &Cluster, rate: &Rate, time: (u32, u32)) -> Outcome<Vec<Value>> {
    let load = || cluster.load("after", rate.per_s, time, false);
    let (spent, seen) = cluster.parts(load)?;
    let what = "with it: those that were done where they arrived";
    let mut values = vec![response(rate.local, seen.here_ms, &seen, what)];
    if let Some(remote) = rate.remote {
        let what = "... those that another host did";
        values.push(response(remote, seen.there_ms, &seen, what));
    }
    values.extend(spent_on(&rate.costs, &spent));
    Ok(values)
}

/// Rows of what the parts of [`COSTS`] take in a second.
fn spent_on(rows: &[&'static str], spent: &[f64]) -> Vec<Value> {
    let statistic = "of the host at which they arrive";
    rows.iter()
        .zip(spent)
        .zip(COSTS)
        .map(|((row, ns), what)| Value::ns(row, *ns, statistic, what))
        .collect()
}

fn figure_9(bench: &Bench, cluster: &Cluster) -> Outcome<Vec<Value>> {
    let mut values = Vec::new();
    for (row, ms, times) in [("fig9_told_1", 1000, 1), ("fig9_told_5", 200, 5)] {
        if !needs(bench, [Some(row)]) {
            continue;
        }
        cluster.tell(bench, ms)?;
        let (before, _) = cluster.cost()?;
        let (seconds, _) = lasting(bench, (5, 0));
        std::thread::sleep(Duration::from_secs(seconds.into()));
        let spent = cluster.cost()?.0 - before;
        let what = match times {
            1 => "a manager in a second in which it tells once",
            _ => "... tells five times",
        };
        let per_host = spent / f64::from(seconds) / f64::from(HOSTS);
        values.push(Value::ns(row, per_host, "mean of the hosts", what));
    }
    cluster.tell(bench, 1000)?;
    for (policy, row, cost_row, what) in BALANCES {
        if !needs(bench, [Some(row), cost_row]) {
            continue;
        }
        let before = cluster.cost()?;
        let time = lasting(bench, SECONDS_9);
        let seen = cluster.load(policy, LOAD, time, true)?;
        let after = cluster.cost()?;
        values.push(Value {
            percentiles_us: None,
            p99_ms: Some(seen.p99_ms),
            ..response(row, seen.mean_ms, &seen, what)
        });
        if let Some(row) = cost_row {
            let spent = after.0 + after.1 - before.0 - before.1;
            // Also of those before the part that counts.
            let requests = f64::from(LOAD * time.0);
            let what = "processor time of managers and clients for each request";
            values.push(Value::ns(row, spent / requests, STATISTIC, what));
        }
    }
    Ok(values)
}
