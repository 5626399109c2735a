//! `ecalls bench web`: a web server from light load to several times what it has time for, as in
//! ECalls-01 §3.4.
//!
//! - `fig6` and `fig7`: replies per second and their times for a small page, with examples/web in
//!   each of its modes, beside 0, 1,000 and 5,000 idle connections;
//! - `fig9` and `fig10`: the same for a costly page, without and with the guard, and beside it what
//!   stock Linux has: backlogs that are set by hand, `tcp_abort_on_overflow`, TCP_DEFER_ACCEPT, and
//!   a limit of the server's own (`maxconn`);
//! - `file`: a small file under light load, beside servers that others wrote;
//! - `answer_hit`, `answer_miss`: a cache over UDP, whose hot keys the kernel answers ([`answer`]).
//!
//! A run gives both figures of a pair: each is printed as an object of its own. Loads are relative
//! to what the server has time for, which the processor time of a request under light load tells.
//!
//! - [`stage`]: server, guard and clients of one run; [`load`]: the clients; [`httperf`]: those of
//!   the papers, beside them;
//! - [`plot`]: the four figures as a drawing.

mod answer;
mod httperf;
mod load;
mod plot;
mod stage;

use ecalls_cli::arguments::BenchArguments;
use ecalls_kernel::guard::Mode;
use serde::Serialize;

use super::{is_wanted, network, timing};
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, Table, note};
use crate::stop::Stop;
pub(crate) use load::{Clients, SUBCOMMAND as CLIENTS_PART, run as clients_part};
pub(crate) use stage::SERVER as SERVER_PART;
use stage::{Found, Stage};

const ROWS: [&str; 7] = [
    "fig6",
    "fig7",
    "fig9",
    "fig10",
    "file",
    answer::ROWS[0],
    answer::ROWS[1],
];

/// The small page computes a little: a file of 1 KiB costs a server 30 us, and its client as much,
/// so the clients would be what is overloaded.
const SMALL: &str = "/cpu?us=200";
/// A file, for servers that have no page that computes: beside a server of ours with the same.
const FILE: &str = "/";
/// The costly page; of the papers' the server had time for 140 in a second.
const COSTLY: &str = "/cpu?us=5000";

/// A backlog beyond which nobody waits for a second: that of servers in Go.
const LONG: i32 = 4096;

/// A server in one of its modes, and what is around it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    /// `web`, or the name of a program.
    server: &'static str,
    /// `--events` of examples/web; `None`: another server.
    events: Option<&'static str>,
    /// As printed: how it waits for sockets, or what is set by hand.
    mode: &'static str,
    path: &'static str,
    backlog: i32,
    /// Connections that the server accepts at a time (HAProxy's `maxconn`).
    connections: u32,
    idle: u32,
    guard: Option<Mode>,
    /// `tcp_abort_on_overflow`.
    aborts: bool,
    /// TCP_DEFER_ACCEPT.
    defers: bool,
    /// `ours`, or `httperf`.
    clients: &'static str,
}

const WEB: Run = Run {
    server: "web",
    events: Some("epoll"),
    mode: "epoll",
    path: SMALL,
    backlog: LONG,
    connections: 20_000,
    idle: 0,
    guard: None,
    aborts: false,
    defers: false,
    clients: "ours",
};

/// How much is measured.
struct Effort {
    seconds: f64,
    answer: answer::Effort,
    /// Loads relative to what the server has time for.
    small: &'static [f64],
    costly: &'static [f64],
    idle: &'static [u32],
    modes: &'static [&'static str],
    /// Whether servers and settings are measured that no bound is about.
    has_peers: bool,
}

const FULL: Effort = Effort {
    seconds: 3.0,
    answer: answer::Effort {
        rounds: 5,
        seconds: 1.0,
        under_way: &[1, 16, 64],
    },
    small: &[0.3, 1.0, 3.0],
    costly: &[0.5, 1.0, 2.0, 4.0],
    idle: &[0, 1000, 5000],
    modes: &["select", "poll", "epoll", "io_uring", "ecalls"],
    has_peers: true,
};
/// What `--check` needs.
const CHECKED: Effort = Effort {
    seconds: 3.0,
    answer: answer::Effort {
        rounds: 1,
        seconds: 0.6,
        under_way: &[1, 16],
    },
    small: &[0.3],
    costly: &[3.0],
    idle: &[5000],
    modes: &["select", "epoll"],
    has_peers: false,
};
const QUICK: Effort = Effort {
    seconds: 1.2,
    answer: answer::Effort {
        rounds: 1,
        seconds: 0.1,
        under_way: &[1, 16],
    },
    small: &[0.5],
    costly: &[2.0],
    idle: &[0, 50],
    modes: &["select", "poll", "epoll", "io_uring"],
    has_peers: false,
};

/// One value of all figures, as printed with `--json`.
#[derive(Clone, Debug, Serialize)]
struct Line {
    row: &'static str,
    server: &'static str,
    mode: &'static str,
    offered_per_s: f64,
    idle: u32,
    guard: &'static str,
    clients: &'static str,
    replies_per_s: f64,
    refused_per_s: f64,
    /// null: there was no reply.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    cpu_us_per_request: Option<f64>,
    /// null: perf is not there to count them.
    calls_per_request: Option<f64>,
    /// Requests that wait for their replies at any time; null: they come regardless of that.
    under_way: Option<u16>,
    /// The part of the time in which the server could have run and did not.
    kept_from: f64,
}

/// Measures and prints.
pub(super) fn run(args: &BenchArguments) -> Outcome {
    args.sched.refuse_all_but_report()?;
    let filter = args.row.as_deref().unwrap_or("");
    let wanted = |row: &str| is_wanted(filter, row, &ROWS);
    if !ROWS.iter().any(|row| wanted(row)) {
        let known = ROWS.join(", ");
        return Err(Failure::usage(format!(
            "no row contains {filter:?}: there are {known}"
        )));
    }
    network::enter("web")?;
    stage::prepare()?;
    let (server_cpu, clients_cpu) = timing::two_cpus()?;
    let stage = Stage {
        server_cpu,
        clients_cpu,
        stop: Stop::on_signals()?,
        counts_calls: !args.quick,
        attempts: if args.quick { 1 } else { 2 },
        servers: std::sync::atomic::AtomicU16::new(0),
    };
    let effort = match (args.quick, args.check) {
        (true, _) => &QUICK,
        (_, true) => &CHECKED,
        _ => &FULL,
    };
    let mut out = Output::new(args.json);
    let mut lines = Vec::new();
    let files = if effort.has_peers {
        file(effort)
    } else {
        Vec::new()
    };
    for (pair, runs, loads) in [
        (&["fig6", "fig7"][..], small(effort), effort.small),
        (&["fig9", "fig10"], costly(effort), effort.costly),
        (&["file"], files, &[0.1, 0.3]),
    ] {
        if pair.iter().any(|row| wanted(row)) {
            series(&stage, effort, pair, &runs, loads, &mut |line| {
                if out.is_json() && wanted(line.row) {
                    out.object(&line)?;
                    out.flush()?;
                }
                lines.push(line);
                Ok(())
            })?;
        }
    }
    if answer::ROWS.iter().any(|row| wanted(row)) {
        let found = answer::lines(&stage, effort.answer)?;
        for line in found.into_iter().filter(|line| wanted(line.row)) {
            if out.is_json() {
                out.object(&line)?;
            }
            lines.push(line);
        }
    }
    if !out.is_json() {
        print(&mut out, &lines, wanted)?;
    }
    if let Some(path) = &args.sched.report {
        std::fs::write(path, plot::drawing(&lines))
            .map_err(|error| timing::os(&format!("writing {}", path.display()), error))?;
    }
    let missed = missed(&lines);
    if args.check && !missed.is_empty() {
        return Err(Failure::new(Code::Failed, missed.join("; ")));
    }
    out.flush()
}

fn small(effort: &Effort) -> Vec<Run> {
    let mut runs = Vec::new();
    for idle in effort.idle {
        for mode in effort.modes {
            runs.push(Run {
                events: Some(mode),
                mode,
                idle: *idle,
                ..WEB
            });
        }
    }
    runs.extend(by_httperf(effort, &runs, |run| run.idle == 0));
    runs
}

/// The same runs again, as far as they are of that kind, with the papers' clients.
fn by_httperf(effort: &Effort, runs: &[Run], is_wanted: fn(&Run) -> bool) -> Vec<Run> {
    if !effort.has_peers {
        return Vec::new();
    }
    if !httperf::is_there() {
        note("not measured: httperf is not installed");
        return Vec::new();
    }
    let runs = runs.iter().filter(|run| is_wanted(run));
    runs.map(|run| Run {
        clients: "httperf",
        ..*run
    })
    .collect()
}

/// Below what the clients have time for.
fn file(effort: &Effort) -> Vec<Run> {
    let ours = |mode| Run {
        events: Some(mode),
        mode,
        path: FILE,
        ..WEB
    };
    let other = |server| Run {
        server,
        events: None,
        ..ours("epoll")
    };
    let mut runs: Vec<Run> = effort.modes.iter().copied().map(ours).collect();
    runs.extend([other("lighttpd"), other("nginx")]);
    runs
}

fn costly(effort: &Effort) -> Vec<Run> {
    let web = Run {
        path: COSTLY,
        ..WEB
    };
    let by_hand = |mode, backlog| Run {
        mode,
        backlog,
        ..web
    };
    let guarded = |mode| Run {
        guard: Some(mode),
        ..web
    };
    let limited = |mode, connections, guard| Run {
        mode,
        connections,
        guard,
        ..web
    };
    let guards = [Mode::Drop, Mode::Refuse, Mode::Sorry].map(guarded);
    let mut runs = vec![web];
    runs.extend(guards);
    runs.extend([by_hand("backlog 16", 16), by_hand("backlog 4", 4)]);
    if effort.has_peers {
        runs.extend([
            by_hand("backlog 256", 256),
            by_hand("backlog 64", 64),
            Run {
                aborts: true,
                ..by_hand("backlog 16, abort_on_overflow", 16)
            },
            Run {
                defers: true,
                ..by_hand("defer_accept", LONG)
            },
            limited("maxconn 16", 16, None),
            limited("maxconn 16", 16, Some(Mode::Refuse)),
            limited("maxconn 4", 4, None),
        ]);
    }
    runs.extend(by_httperf(effort, &runs, |_| true));
    runs
}

/// Measures each run at each load.
fn series(
    stage: &Stage,
    effort: &Effort,
    pair: &[&'static str],
    runs: &[Run],
    loads: &[f64],
    take: &mut dyn FnMut(Line) -> Outcome,
) -> Outcome {
    // What the server has time for: the same for all, so that they are offered the same.
    let Some(most_per_s) = capacity(stage, effort, runs)? else {
        let none = || {
            timing::os(
                "measuring what the server has time for",
                "there is no reply",
            )
        };
        return if stage.stop.is_set() || runs.is_empty() {
            Ok(())
        } else {
            Err(none())
        };
    };
    for run in runs {
        for load in loads {
            let offered_per_s = load * most_per_s;
            let Some(found) = stage.measure(run, offered_per_s, effort.seconds)? else {
                if stage.stop.is_set() {
                    return Ok(());
                }
                break;
            };
            for row in pair.iter().copied() {
                take(line(row, run, &found))?;
            }
        }
    }
    Ok(())
}

/// Requests per second that take the server's processor wholly, of the first run without a guard
/// and without idle connections.
fn capacity(stage: &Stage, effort: &Effort, runs: &[Run]) -> Result<Option<f64>, Failure> {
    /// Light for both pages.
    const PER_S: f64 = 50.0;
    let Some(first) = runs.first() else {
        return Ok(None);
    };
    let plain = Run {
        events: WEB.events,
        idle: 0,
        ..*first
    };
    let found = stage.measure(&plain, PER_S, effort.seconds)?;
    let light_us = found.and_then(|found| found.cpu_us_per_request);
    // Under load a turn of the loop serves several: so once more, with half of that.
    let Some(rough) = light_us.map(|us| 1e6 / us) else {
        return Ok(None);
    };
    let found = stage.measure(&plain, rough * 0.7, effort.seconds)?;
    Ok(found
        .and_then(|found| found.cpu_us_per_request)
        .map(|us| 1e6 / us))
}

fn line(row: &'static str, run: &Run, found: &Found) -> Line {
    let answers = &found.answers;
    Line {
        row,
        server: run.server,
        mode: run.mode,
        offered_per_s: answers.due_per_s,
        idle: run.idle,
        guard: stage::name(run.guard),
        clients: run.clients,
        replies_per_s: answers.replies_per_s,
        refused_per_s: answers.refused_per_s,
        p50_ms: answers.p50_ms,
        p99_ms: answers.p99_ms,
        cpu_us_per_request: found.cpu_us_per_request,
        calls_per_request: found.calls_per_request,
        under_way: None,
        kept_from: found.kept_from,
    }
}

fn print(out: &mut Output, lines: &[Line], wanted: impl Fn(&str) -> bool) -> Outcome {
    let mut table = Table::new(&[
        "row",
        "server",
        "mode",
        ">idle",
        "guard",
        "clients",
        ">offered/s",
        ">replies/s",
        ">p50 ms",
        ">p99 ms",
        ">cpu us",
        ">calls",
        ">under way",
        ">kept from",
    ]);
    let number = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if value < 1.0 => format!("{value:.4}"),
        Some(value) => format!("{value:.1}"),
    };
    for line in lines.iter().filter(|line| wanted(line.row)) {
        table.row([
            line.row.to_owned(),
            line.server.to_owned(),
            line.mode.to_owned(),
            line.idle.to_string(),
            line.guard.to_owned(),
            line.clients.to_owned(),
            format!("{:.0}", line.offered_per_s),
            format!("{:.0}", line.replies_per_s),
            number(line.p50_ms),
            number(line.p99_ms),
            number(line.cpu_us_per_request),
            number(line.calls_per_request),
            line.under_way
                .map_or("-".to_owned(), |many| many.to_string()),
            format!("{:.2}", line.kept_from),
        ]);
    }
    out.table(&table)
}

/// The bounds of `--check` that these lines do not keep.
fn missed(lines: &[Line]) -> Vec<String> {
    let mut missed = Vec::new();
    let mut bound = |what: &str, value: Option<f64>, base: Option<f64>, most: f64| {
        let (Some(value), Some(base)) = (value, base) else {
            return;
        };
        let ratio = value / base;
        // Without any reply there is none.
        if ratio.is_nan() || ratio > most {
            missed.push(format!("{what}: {ratio:.2}, at most {most}"));
        }
    };
    let of = |row: &str, mode: &str, guard: &str| {
        lines
            .iter()
            .rfind(|line| (line.row, line.mode, line.guard) == (row, mode, guard))
    };
    let cpu = |mode| of("fig6", mode, "none").and_then(|line| line.cpu_us_per_request);
    bound(
        "processor time of a request beside idle connections, epoll to select",
        cpu("epoll"),
        cpu("select"),
        0.9,
    );
    let replies = |mode, guard| of("fig9", mode, guard).map(|line| line.replies_per_s);
    let hand = lines
        .iter()
        .filter(|line| line.row == "fig9" && line.mode.starts_with("backlog"));
    let best = hand.map(|line| line.replies_per_s).max_by(f64::total_cmp);
    for guard in ["drop", "refuse", "sorry"] {
        let guarded = replies("epoll", guard);
        bound(
            &format!("replies without a guard, to those with --mode {guard}"),
            replies("epoll", "none"),
            guarded,
            0.75,
        );
        bound(
            &format!("replies with the best backlog, to those with --mode {guard}"),
            best,
            guarded,
            1.25,
        );
    }
    for (what, value, base, most) in answer::bounds(lines) {
        bound(what, value, base, most);
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(row: &'static str, mode: &'static str, guard: &'static str, value: f64) -> Line {
        Line {
            row,
            server: "web",
            mode,
            offered_per_s: 100.0,
            idle: 0,
            guard,
            clients: "ours",
            replies_per_s: value,
            refused_per_s: 0.0,
            p50_ms: Some(1.0),
            p99_ms: None,
            cpu_us_per_request: Some(value),
            calls_per_request: None,
            under_way: None,
            kept_from: 0.0,
        }
    }

    #[test]
    fn bounds_are_kept_or_named() {
        let lines = |guarded: f64, epoll: f64| {
            [
                one("fig6", "select", "none", 100.0),
                one("fig6", "epoll", "none", epoll),
                one("fig9", "epoll", "none", 50.0),
                one("fig9", "backlog 16", "none", 100.0),
                one("fig9", "epoll", "drop", guarded),
            ]
        };
        assert_eq!(missed(&lines(100.0, 50.0)).len(), 0);
        assert_eq!(missed(&lines(60.0, 95.0)).len(), 3);
        assert_eq!(missed(&lines(0.0, 50.0)).len(), 2, "no reply at all");
        assert_eq!(missed(&[]).len(), 0, "rows that were not measured");
    }

    #[test]
    fn each_pair_begins_with_a_run_that_tells_the_capacity() {
        for effort in [&FULL, &CHECKED, &QUICK] {
            for runs in [small(effort), costly(effort)] {
                assert!(runs[0].guard.is_none() && runs[0].events.is_some());
            }
        }
    }
}
