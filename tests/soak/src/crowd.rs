//! The clients of a run: those that stay, and those that come and go.
//!
//! Their users are far above those of a machine's people. This program is copied into a
//! folder that all users may read, since the place where it was built may be nobody else's.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Run;
use crate::client::{self, Account, Report};
use crate::daemon::Daemon;

/// Users from here on belong to nobody on usual machines; containers get others.
const FIRST_UID: u32 = 61_000;
const GID: u32 = 65_534;

/// Those that come and go take turns with so many users.
const PASSING_USERS: u32 = 16;

/// How long a client that comes and goes stays, and how much longer the next one does.
const STAY: Duration = Duration::from_millis(20);
const STAY_MORE: Duration = Duration::from_millis(7);
const STAYS: u32 = 40;

/// A client's process. It ends when its input does, or at once when this is dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What became of a user's events: what its first client raised was offered to all subscriptions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserAccount {
    pub(crate) uid: u32,
    pub(crate) subscriptions: u64,
    pub(crate) all: Account,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Crowd {
    program: PathBuf,
    socket: PathBuf,
    /// Those that stay, by user.
    staying: Vec<Vec<Process>>,
    subscriptions: u32,
    passing: Option<(Process, Instant)>,
    passed: u32,
    passing_period: Duration,
    passing_next: Instant,
}

/// Lets one client come and go in order.
pub(crate) fn pass_once(daemon: &Daemon) -> Result<(), String> {
    let mut crowd = Crowd::empty(1, 1, daemon)?;
    crowd.let_one_come()?;
    match crowd.passing.take() {
        Some((client, _)) => client.leave(false),
        None => Ok(()),
    }
}

impl Crowd {
    fn empty(subscriptions: u32, passing: u32, daemon: &Daemon) -> Result<Crowd, String> {
        Ok(Crowd {
            program: daemon.place_program()?,
            socket: daemon.socket(),
            staying: Vec::new(),
            subscriptions,
            passing: None,
            passed: 0,
            passing_period: Duration::from_secs(1) / passing.max(1),
            passing_next: Instant::now(),
        })
    }

    /// Starts those that stay, and waits until all are at work.
    pub(crate) fn gather(run: &Run, daemon: &Daemon) -> Result<Crowd, String> {
        let mut crowd = Crowd::empty(run.subscriptions, run.passing, daemon)?;
        for user in 0..run.users {
            let clients = crowd.start_user(run, user)?;
            crowd.staying.push(clients);
        }
        for client in crowd.staying.iter_mut().flatten() {
            client.tell()?;
        }
        Ok(crowd)
    }

    /// The clients of one user, ready but not yet raising.
    fn start_user(&self, run: &Run, user: u32) -> Result<Vec<Process>, String> {
        let mut clients = Vec::new();
        for number in 0..run.clients.max(1) {
            let client = client::Args {
                service: format!("soak{user}"),
                subscriptions: run.subscriptions,
                rate: if number == 0 { run.rate.max(1) } else { 0 },
            };
            let mut process = self.start(&client, FIRST_UID + user)?;
            process.expect_ready()?;
            clients.push(process);
        }
        Ok(clients)
    }

    fn start(&self, client: &client::Args, uid: u32) -> Result<Process, String> {
        let mut child = Command::new(&self.program)
            .arg("client")
            .arg(&client.service)
            .args([client.subscriptions, client.rate].map(|number| number.to_string()))
            .env("ECALLS_SOCKET", &self.socket)
            .current_dir("/")
            .uid(uid)
            .gid(GID)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("starting a client: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("starting a client: it has no input or no output".to_owned());
        };
        Ok(Process {
            child,
            input: Some(input),
            output: BufReader::new(output),
        })
    }

    /// Until then, lets clients come and go.
    pub(crate) fn pass_until(&mut self, end: Instant) -> Result<(), String> {
        loop {
            let leaves = self
                .passing
                .as_ref()
                .map_or(self.passing_next, |(_, leaves)| *leaves);
            let next = leaves.min(end);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            if Instant::now() >= end {
                return Ok(());
            }
            match self.passing.take() {
                Some((client, _)) => client.leave(self.passed.is_multiple_of(2))?,
                None => self.let_one_come()?,
            }
        }
    }

    fn let_one_come(&mut self) -> Result<(), String> {
        let now = Instant::now();
        self.passed += 1;
        let users = u32::try_from(self.staying.len()).unwrap_or(0);
        let client = client::Args {
            service: format!("soak.{}", self.passed),
            subscriptions: 2,
            rate: 200,
        };
        let uid = FIRST_UID + users + self.passed % PASSING_USERS;
        let mut process = self.start(&client, uid)?;
        process.tell()?;
        let stay = STAY + STAY_MORE * (self.passed % STAYS);
        self.passing = Some((process, now + stay));
        self.passing_next = now + self.passing_period;
        Ok(())
    }

    /// The latencies that all staying clients saw since the last time.
    pub(crate) fn take_latency(&mut self) -> Result<Histogram<u64>, String> {
        let mut all = client::histogram();
        for client in self.staying.iter_mut().flatten() {
            client.tell()?;
            let report: Report = client.line()?.parse()?;
            all.add(report.0).map_err(|error| error.to_string())?;
        }
        Ok(all)
    }

    /// Ends all of them; what became of the events of those that stayed.
    pub(crate) fn disperse(mut self) -> Result<Vec<UserAccount>, String> {
        if let Some((client, _)) = self.passing.take() {
            client.leave(true)?;
        }
        // Once those that raise have ended, the others get nothing new.
        let mut accounts = Vec::new();
        for clients in &mut self.staying {
            let (raising, _) = clients.split_at_mut(1);
            accounts.push(account(raising)?);
        }
        for (clients, raised) in self.staying.iter_mut().zip(&mut accounts) {
            let others = account(&mut clients[1..])?;
            raised.received += others.received;
            raised.lost += others.lost;
        }
        let of_users = (FIRST_UID..).zip(&self.staying).zip(accounts);
        let of_users = of_users.map(|((uid, clients), all)| UserAccount {
            uid,
            subscriptions: u64::from(self.subscriptions) * clients.len() as u64,
            all,
        });
        Ok(of_users.collect())
    }
}

/// Ends some clients; what became of their events.
fn account(clients: &mut [Process]) -> Result<Account, String> {
    for client in clients.iter_mut() {
        client.input = None;
    }
    let mut all = Account::default();
    for client in clients {
        let one: Account = client.line()?.parse()?;
        all.raised += one.raised;
        all.received += one.received;
        all.lost += one.lost;
    }
    Ok(all)
}

impl UserAccount {
    /// Events offered to its subscriptions.
    pub(crate) fn offered(&self) -> u64 {
        self.all.raised * self.subscriptions
    }

    /// What does not add up.
    pub(crate) fn mistake(&self) -> Option<String> {
        let Account { received, lost, .. } = self.all;
        let (uid, offered) = (self.uid, self.offered());
        (offered != received + lost).then(|| {
            format!("user {uid}: {offered} events offered, but {received} received and {lost} lost")
        })
    }
}

impl Process {
    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("a client ended by itself; its reason stands above".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(format!("reading from a client: {error}")),
        }
    }

    fn expect_ready(&mut self) -> Result<(), String> {
        match self.line()?.as_str() {
            "ready" => Ok(()),
            other => Err(format!("a client said {other:?} instead of being ready")),
        }
    }

    /// To begin, or to report.
    fn tell(&mut self) -> Result<(), String> {
        match &mut self.input {
            Some(input) => writeln!(input).map_err(|error| format!("telling a client: {error}")),
            None => Ok(()),
        }
    }

    /// Leaves in order, or is killed at whatever it does.
    fn leave(mut self, killed: bool) -> Result<(), String> {
        if killed {
            return Ok(());
        }
        self.input = None;
        let end = self.child.wait().map_err(|error| error.to_string())?;
        if end.success() {
            return Ok(());
        }
        Err(format!("a client that came and went: {end}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_neither_received_nor_lost_is_a_mistake() {
        let mut account = UserAccount {
            uid: 1000,
            subscriptions: 2,
            all: Account {
                raised: 5,
                received: 9,
                lost: 1,
            },
        };
        assert_eq!(account.mistake(), None);
        account.all.received -= 1;
        assert!(account.mistake().is_some());
    }
}
