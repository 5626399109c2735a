//! `make soak`: a daemon under many unprivileged clients for a long time. Does anything grow?
//!
//! The clients are this binary again, as several users ([`client`]): most stay from the beginning
//! to the end, and one of each user's raises events that all of them receive; others come and go
//! all the time, half of them killed in the middle of it. At intervals everything that could grow
//! is measured ([`machine`]): the daemon's memory, descriptors and threads, what it has in the
//! kernel, and how long events take. In the end a late part of the time is compared with an early
//! one ([`verdict`]), every event must be accounted for, the daemon must be back at what it had
//! before them, and when it has ended nothing of it may be left.
//!
//! Needs root, to be other users. Exit status: 0 nothing grew, 1 something did or went wrong.

#![forbid(unsafe_code)]

mod client;
mod crowd;
mod daemon;
mod machine;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use crate::crowd::{Crowd, UserAccount};
use crate::daemon::Daemon;
use crate::machine::{Held, Sample};

/// Let many unprivileged clients use the daemon for a long time, and see whether anything grows
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Be one of the clients (what this program calls itself as)
    #[command(hide = true)]
    Client(client::Args),
}

#[derive(Debug, Args)]
struct Run {
    /// How long, in seconds
    #[arg(long, default_value_t = 3600, value_parser = clap::value_parser!(u64).range(10..))]
    seconds: u64,
    /// The daemon's program
    #[arg(long, default_value = "target/release/ecallsd")]
    daemon: PathBuf,
    /// Users
    #[arg(long, default_value_t = 8)]
    users: u32,
    /// Clients of each of them
    #[arg(long, default_value_t = 4)]
    clients: u32,
    /// Subscriptions of each client
    #[arg(long, default_value_t = 4)]
    subscriptions: u32,
    /// Events that a user's first client raises in a second
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Clients that come and go in a second
    #[arg(long, default_value_t = 2)]
    passing: u32,
}

/// Measurements of one run.
const SAMPLES: u32 = 60;

/// How long clients and the kernel may take to give back what they had.
const SETTLE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.role {
        Some(Role::Client(args)) => client::run(&args).map_err(|error| error.to_string()),
        None => soak(&cli.run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("soak: {message}");
            ExitCode::FAILURE
        }
    }
}

/// What is wrong with a run, as one message; the table is on standard output.
fn soak(run: &Run) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("needs root, to be other users".to_owned());
    }
    let mut daemon = Daemon::start(&run.daemon)?;
    // What the daemon makes for its first client and keeps is not the client's.
    crowd::pass_once(&daemon)?;
    let before = machine::look(&daemon, &client::histogram())?;
    let (samples, accounts) = watch(run, &daemon)?;
    let after = settled(&daemon, &before)?;
    let held = machine::held(&daemon)?;
    daemon.stop()?;

    let mut findings = verdict::growth(&samples, run.seconds);
    verdict::print(&samples);
    findings.extend(accounts.iter().filter_map(UserAccount::mistake));
    findings.extend(verdict::not_given_back(&before, &after));
    findings.extend(left_in_kernel(&held));
    let offered: u64 = accounts.iter().map(UserAccount::offered).sum();
    let received: u64 = accounts.iter().map(|user| user.all.received).sum();
    let lost: u64 = accounts.iter().map(|user| user.all.lost).sum();
    println!("\n{offered} events offered, {received} received, {lost} lost and counted");
    if findings.is_empty() {
        println!("nothing grew in {} s", run.seconds);
        return Ok(());
    }
    Err(findings.join("\nsoak: "))
}

/// Lets the clients run, and measures.
fn watch(run: &Run, daemon: &Daemon) -> Result<(Vec<Sample>, Vec<UserAccount>), String> {
    let mut crowd = Crowd::gather(run, daemon)?;
    let begin = Instant::now();
    let whole = Duration::from_secs(run.seconds);
    let mut samples = Vec::new();
    for number in 1..=SAMPLES {
        crowd.pass_until(begin + whole * number / SAMPLES)?;
        let latency = crowd.take_latency()?;
        samples.push(machine::look(daemon, &latency)?);
        verdict::progress(begin.elapsed(), samples.last());
    }
    let accounts = crowd.disperse()?;
    Ok((samples, accounts))
}

/// What the daemon has when all clients are gone; as soon as that is what it had before them.
fn settled(daemon: &Daemon, before: &Sample) -> Result<Sample, String> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let sample = machine::look(daemon, &client::histogram())?;
        if verdict::not_given_back(before, &sample).is_empty() || Instant::now() > deadline {
            return Ok(sample);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What the kernel still has of what the daemon held. It frees maps a moment after their last user
/// has ended.
fn left_in_kernel(held: &Held) -> Vec<String> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let mut residue = ecalls_kernel::residue();
        residue.retain(|(id, _)| held.has(*id));
        if residue.is_empty() || Instant::now() > deadline {
            let name = |(id, name)| format!("left in the kernel: {name} (id {id})");
            return residue.into_iter().map(name).collect();
        }
    }
}
