//! `ecalls sched start` holds our scheduler in the foreground; `ecalls sched stop` asks the holder
//! to end.

use std::time::{Duration, Instant};

use ecalls::Ecalls;
use ecalls_kernel::scheduler::{self, Ended, Haste, Scheduler};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::count::sum;
use super::{Counts, Shown, policy, print};
use crate::duration::parse_positive;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, note};
use crate::stop::{PATIENCE, Stop};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    policy: policy::Args,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive)]
    time: Option<Duration>,
    /// Print the counters as one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// Starts the scheduler and waits for the end.
pub(super) fn run(args: &Args) -> Outcome {
    let options = args.policy.options()?;
    let stop = Stop::on_signals()?;
    super::check_free()?;
    let haste = Haste::begin();
    let mut ecalls = Ecalls::open()?;
    drop(haste);
    let mut scheduler = Scheduler::start(ecalls.access(), &options)?;
    note("the scheduler runs; interrupt this command to return to the kernel's own scheduler");
    // Timers cannot be seen, and it has been said: a program that asks for it ends no scheduler.
    let mut is_blind = false;
    let until = args.time.and_then(|time| Instant::now().checked_add(time));
    loop {
        let left = until.map_or(PATIENCE, |at| at.saturating_duration_since(Instant::now()));
        if left.is_zero() || stop.sleep(left.min(PATIENCE)) {
            break;
        }
        if let Err(error) = scheduler.attend()
            && !std::mem::replace(&mut is_blind, true)
        {
            let what = match scheduler.is_attending() {
                true => "timer descriptors",
                false => "sleeps",
            };
            note(format_args!(
                "{what} of programs under `ecalls run --coop` are as those of others: {error}"
            ));
        }
        if let Some(ended) = scheduler.ended() {
            if !ended.again {
                return Err(failure(&ended));
            }
            scheduler.stop();
            scheduler = Scheduler::start(ecalls.access(), &options)?;
            note(format_args!(
                "the scheduler was started again: {}",
                ended.message
            ));
            continue;
        }
        if let Some(next) = next_daemon(&ecalls)? {
            scheduler.stop();
            ecalls = next;
            scheduler = Scheduler::start(ecalls.access(), &options)?;
            note("the daemon was restarted, so the scheduler was started again for its clients");
        }
    }
    let counts = sum(&scheduler.counts()?);
    scheduler.stop();
    let mut out = Output::new(args.json);
    print(
        &mut out,
        &Shown {
            kernel: true,
            counts: counts.map(|counts| Counts::new(&counts)),
            ..Shown::default()
        },
    )
}

/// The daemon that has replaced ours, if one has. Until then the scheduler continues: threads that
/// have slots keep them, and the others are scheduled by fair share.
fn next_daemon(ecalls: &Ecalls) -> Result<Option<Ecalls>, Failure> {
    match ecalls.check() {
        Ok(()) => Ok(None),
        // This process never hosts the core itself: the next daemon does.
        Err(ecalls::Error::DaemonGone) => Ok(Ecalls::open_within(Duration::ZERO).ok()),
        Err(error) => Err(error.into()),
    }
}

/// Fails if the kernel has ended the scheduler.
pub(super) fn ended_by_kernel(scheduler: &Scheduler) -> Outcome {
    scheduler
        .ended()
        .map_or(Ok(()), |ended| Err(failure(&ended)))
}

fn failure(ended: &Ended) -> Failure {
    let Ended {
        reason, message, ..
    } = ended;
    let text = if ended.again {
        format!("the scheduler ended: {message} (this is no error: start it again)")
    } else {
        format!("the kernel ended the scheduler: {reason} {message} (please report it)")
    };
    Failure::new(Code::Failed, text)
}

/// Asks the holder to end.
pub(super) fn stop() -> Outcome {
    let holder = scheduler::state().and_then(|state| state.holder);
    let nobody = || {
        Failure::new(
            Code::Unknown,
            "our scheduler does not run, so there is nothing to stop",
        )
    };
    let pid = holder.ok_or_else(nobody)?;
    let failed = |error| Failure::new(Code::Failed, format!("ending process {pid}: {error}"));
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(id.ok_or_else(nobody)?, PidfdFlags::empty()).map_err(failed)?;
    // The holder is still the same, so the descriptor belongs to it and not to a process that
    // reuses its id.
    if scheduler::state().and_then(|state| state.holder) != holder {
        return Err(nobody());
    }
    pidfd_send_signal(&process, Signal::TERM).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(again: bool, reason: &str, message: &str) -> String {
        let ended = Ended {
            reason: reason.to_owned(),
            message: message.to_owned(),
            again,
        };
        format!("{:?}", failure(&ended))
    }

    #[test]
    fn only_what_is_wrong_is_to_be_reported() {
        let offline = told(true, "unregistered from BPF", "a CPU goes offline");
        let expected = "the scheduler ended: a CPU goes offline (this is no error: start it again)";
        assert!(offline.contains(expected), "{offline}");
        let stall = told(false, "runnable task stall", "cat[17] failed to run");
        let expected = "the kernel ended the scheduler: runnable task stall cat[17] failed to run \
                        (please report it)";
        assert!(stall.contains(expected), "{stall}");
    }
}
