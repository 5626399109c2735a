//! The schedulers of the workloads: each is started here, and ended when it is dropped.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ecalls::Ecalls;
use ecalls_kernel::scheduler::{self, Options, Scheduler};
use rustix::process::{Pid, Signal, kill_process};

use super::rows::Polling;
use super::stage::{Class, Demotions};
use super::{ECALLS, EEVDF, RR};
use crate::exit::{Code, Failure, Outcome};

/// The longest time that another scheduler may take to start or to end.
const PEER_LIMIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);
/// The period in the row about short periods (Coop §5.7).
const SHORT_PERIOD: Duration = Duration::from_millis(1);

/// A scheduler.
#[derive(Clone, Debug)]
pub(super) enum Which {
    Ecalls,
    Eevdf,
    RoundRobin,
    Peer(PathBuf),
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Ecalls => f.write_str(ECALLS),
            Which::Eevdf => f.write_str(EEVDF),
            Which::RoundRobin => f.write_str(RR),
            Which::Peer(path) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                f.write_str(&name.to_string_lossy())
            }
        }
    }
}

/// A running scheduler.
pub(super) enum Under {
    Ours {
        ecalls: Box<Ecalls>,
        running: Option<(Polling, Scheduler)>,
    },
    Kernel {
        is_round_robin: bool,
    },
    Peer(Peer),
}

impl Under {
    /// Starts a scheduler.
    ///
    /// # Errors
    /// It cannot run here, or another one is active.
    pub(super) fn start(which: &Which) -> Result<Under, Failure> {
        let running = scheduler::state().and_then(|state| state.running);
        if let Some(name) = running {
            let message = format!("{name} schedules this machine: end it first, for a comparison");
            return Err(Failure::new(Code::Failed, message));
        }
        Ok(match which {
            Which::Ecalls => {
                let mut ours = Under::Ours {
                    ecalls: Box::new(Ecalls::open()?),
                    running: None,
                };
                // Missing features are reported before the first run.
                ours.prepare(Polling::Usual)?;
                ours
            }
            Which::Eevdf => Under::Kernel {
                is_round_robin: false,
            },
            Which::RoundRobin => Under::Kernel {
                is_round_robin: true,
            },
            Which::Peer(path) => Under::Peer(Peer::start(path)?),
        })
    }

    /// Prepares the scheduler for a run.
    pub(super) fn prepare(&mut self, polling: Polling) -> Outcome {
        if let Under::Ours { ecalls, running } = self
            && running.as_ref().is_none_or(|(by, _)| *by != polling)
        {
            // The previous one ends first, because there can be only one.
            *running = None;
            let scheduler = Scheduler::start(ecalls.access(), &options(polling))?;
            *running = Some((polling, scheduler));
        }
        Ok(())
    }

    /// What its holder does regularly: the kernel's timers are watched while threads are timed.
    pub(super) fn attend(&mut self) -> Outcome {
        match self {
            Under::Ours {
                running: Some((_, scheduler)),
                ..
            } => Ok(scheduler.attend()?),
            _ => Ok(()),
        }
    }

    /// How players use it.
    pub(super) fn class(&self, polling: Polling) -> Class<'_> {
        match (self, polling) {
            (Under::Kernel { is_round_robin }, _) if *is_round_robin => Class::RoundRobin,
            (Under::Ours { ecalls, .. }, Polling::Usual | Polling::Handing) => {
                Class::Cooperative(ecalls)
            }
            _ => Class::Plain,
        }
    }

    /// The demotions so far by rule, if it counts them.
    pub(super) fn demotions(&self) -> Result<Demotions, Failure> {
        let Under::Ours {
            running: Some((_, scheduler)),
            ..
        } = self
        else {
            return Ok(None);
        };
        let mut sum = [0.0; 3];
        for count in scheduler.counts()? {
            for (sum, count) in sum
                .iter_mut()
                .zip([count.overran, count.slept, count.ahead])
            {
                *sum += count as f64;
            }
        }
        Ok(Some(sum))
    }

    /// Fails if the scheduler has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let ended = match self {
            Under::Kernel { .. } => None,
            Under::Ours { running, .. } => {
                let ended = running.as_ref().and_then(|(_, ours)| ours.ended());
                ended.map(|ended| format!("{} {}", ended.reason, ended.message))
            }
            Under::Peer(peer) => peer.ended(),
        };
        let failed = |why| Failure::new(Code::Failed, format!("the scheduler has ended: {why}"));
        ended.map_or(Ok(()), |why| Err(failed(why)))
    }
}

fn options(polling: Polling) -> Options {
    match polling {
        Polling::Usual | Polling::Never | Polling::Handing | Polling::Unmodified(_) => {
            Options::default()
        }
        Polling::ShortPeriod => Options {
            period: SHORT_PERIOD,
            ..Options::default()
        },
    }
}

/// Another project's scheduler: a program that schedules while it runs.
#[derive(Debug)]
pub(super) struct Peer(Child);

impl Peer {
    fn start(path: &Path) -> Result<Peer, Failure> {
        let failed = |why: String| {
            let path = path.display();
            Failure::new(
                Code::Failed,
                format!("starting the scheduler {path}: {why}"),
            )
        };
        let child = Command::new(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let mut peer = Peer(child);
        let since = Instant::now();
        while !schedules() {
            if let Some(why) = peer.ended() {
                return Err(failed(why));
            }
            if since.elapsed() > PEER_LIMIT {
                return Err(failed("it does not schedule".to_owned()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(peer)
    }

    /// A message about its end, if it has ended.
    fn ended(&mut self) -> Option<String> {
        match self.0.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        // It may have ended already; and it gets time to end by itself.
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        let since = Instant::now();
        while (self.ended().is_none() || schedules()) && since.elapsed() < PEER_LIMIT {
            std::thread::sleep(LOOK);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a sched_ext scheduler is active.
fn schedules() -> bool {
    scheduler::state().is_some_and(|state| state.running.is_some())
}
