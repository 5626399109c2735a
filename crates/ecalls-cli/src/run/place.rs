//! A group or window of our scheduler for a program that does not use the scheduler itself.
//!
//! A thread's place in the scheduler survives execve(2). So the child first runs this command again
//! (`--waits`) and stops itself; the parent hands it a slot of one of its channels and continues
//! it; the child yields, so that the scheduler reads the slot, and stops again; only if the parent
//! accepts the scheduler's answer, the child executes the program. So nothing of the program has
//! run when a window is refused, and the program inherits no descriptor.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use ecalls::child::ChildSlot;
use ecalls::coop::Standing;
use ecalls::window::{Admission, Periods, Window};
use ecalls::{Channel, Ecalls};
use ecalls_abi::coop::{WINDOW_PERIOD_MAX_NS, WINDOW_PERIOD_MIN_NS, WINDOW_Y_MAX};
use ecalls_kernel::scheduler;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process,
    set_parent_process_death_signal, waitid,
};
use rustix::thread::sched_yield;
use serde::Serialize;

use super::group::Group;
use super::{Signals, failed_wait, pid_of};
use crate::exit::{Code, Failure, Outcome};
use crate::sched::{no_sched_ext, not_started};

/// The environment variable that holds the number of the group.
const GROUP_VARIABLE: &str = "ECALLS_GROUP";
/// The interval at which the parent looks whether the child has stopped.
const LOOK: Duration = Duration::from_millis(1);

/// Parses `X/Y`: of Y periods X may be missed.
pub(crate) fn parse_window(text: &str) -> Result<(u16, u16), String> {
    let numbers = text.split_once('/');
    let numbers = numbers.and_then(|(x, y)| Some((x.parse().ok()?, y.parse().ok()?)));
    numbers.ok_or_else(|| "expected X/Y, such as 1/5: of Y periods X may be missed".to_owned())
}

/// Fails if no window can have these values.
pub(crate) fn check_bounds(window: &Window) -> Outcome {
    let least = Duration::from_nanos(WINDOW_PERIOD_MIN_NS);
    let most = Duration::from_nanos(WINDOW_PERIOD_MAX_NS);
    let wrong = match window {
        _ if window.period < least || window.period > most => "--period must be 100us to 10s",
        _ if window.service > window.period => "--service must not exceed --period",
        _ if window.x >= window.y || u32::from(window.y) > WINDOW_Y_MAX => {
            "--window X/Y needs X below Y, and Y at most 1024"
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(wrong))
}

/// The request to the scheduler.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Group(Group),
    Window(Window),
    /// Nothing but that it is timed.
    Timed,
}

/// The program's place in the scheduler, as the parent sees it.
#[derive(Debug)]
pub(crate) struct Place {
    wish: Wish,
    child: ChildSlot,
    /// CPU time of the group's members before the program began.
    group_before: Duration,
    _channel: Channel,
}

/// The results, for the report.
#[derive(Debug, Serialize)]
pub(crate) struct Placed {
    #[serde(flatten)]
    group: Option<GroupHad>,
    #[serde(flatten)]
    window: Option<WindowHad>,
}

#[derive(Debug, Serialize)]
struct GroupHad {
    group: String,
    group_number: u32,
    group_ns: u64,
    group_share: f64,
}

#[derive(Debug, Serialize)]
struct WindowHad {
    window: &'static str,
    met: u64,
    missed: u64,
    violated: u64,
}

/// Starts the program with the requested place, or says why this is not possible.
pub(crate) fn start(
    program: &[OsString],
    wish: Wish,
    is_timed: bool,
    preload: Option<&Path>,
    signals: &Signals,
) -> Result<(Child, Place), Failure> {
    can_place()?;
    let wish = match wish {
        Wish::Group(group) => Wish::Group(group.claimed()?),
        wish => wish,
    };
    let ecalls = Ecalls::open()?;
    let channel = ecalls.channel().open()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["run", "--waits"])
        .arg(std::process::id().to_string());
    command.arg("--").args(program);
    if let Some(library) = preload {
        crate::preload::set(&mut command, library);
    }
    if let Wish::Group(group) = &wish {
        command.env(GROUP_VARIABLE, group.number.to_string());
    }
    let mut child = command
        .spawn()
        .map_err(|error| Failure::new(Code::Failed, format!("starting this command: {error}")))?;
    let placed = take_place(&child, channel, wish, is_timed, signals);
    if placed.is_err() {
        // The program was not executed. A failure to kill the child has no consequence.
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok((child, placed?))
}

/// Fails unless our scheduler runs.
fn can_place() -> Outcome {
    let state = scheduler::state().ok_or_else(no_sched_ext)?;
    match state.running {
        Some(name) if scheduler::is_ours(&name) => Ok(()),
        _ => Err(not_started()),
    }
}

fn take_place(
    child: &Child,
    channel: Channel,
    wish: Wish,
    is_timed: bool,
    signals: &Signals,
) -> Result<Place, Failure> {
    let pid = pid_of(child)?;
    await_stop(pid, signals)?;
    let (group, window) = match &wish {
        Wish::Group(group) => (group.number, None),
        Wish::Window(window) => (0, Some(window)),
        Wish::Timed => (0, None),
    };
    let caller = channel.caller();
    let slot = match is_timed {
        true => caller.hand_timed_slot(0, group, child.id())?,
        false => caller.hand_slot(0, group, window, child.id())?,
    };
    go_on(pid)?;
    await_stop(pid, signals)?;
    let place = Place {
        group_before: slot.group_time(),
        wish,
        child: slot,
        _channel: channel,
    };
    place.check()?;
    go_on(pid)?;
    Ok(place)
}

/// Waits until the child has stopped itself.
fn await_stop(pid: Pid, signals: &Signals) -> Outcome {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        let look = |options| match waitid(WaitId::Pid(pid), options | WaitIdOptions::NOHANG) {
            Ok(status) => Ok(status.is_some()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(failed_wait(&error.into())),
        };
        if look(WaitIdOptions::STOPPED)? {
            return Ok(());
        }
        if look(ended)? {
            let text = "the process ended before it could execute the program";
            return Err(Failure::new(Code::Failed, text));
        }
        signals.pass_on(pid);
        std::thread::sleep(LOOK);
    }
}

fn go_on(pid: Pid) -> Outcome {
    kill_process(pid, Signal::CONT).map_err(|error| {
        Failure::new(
            Code::Failed,
            format!("continuing the child process: {error}"),
        )
    })
}

/// The child, started by process `parent`: waits for its place, and executes the program.
pub(crate) fn become_program(parent: i32, program: &[OsString]) -> Outcome {
    let failed = |error: rustix::io::Errno| {
        Failure::new(
            Code::Failed,
            format!("waiting for a place in the scheduler: {error}"),
        )
    };
    // Nobody else would continue the child if its parent were killed.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return Err(Failure::usage(
            "--waits is internal: only `ecalls run` itself uses it",
        ));
    }
    kill_process(getpid(), Signal::STOP).map_err(failed)?;
    // The scheduler reads the slot here.
    sched_yield();
    kill_process(getpid(), Signal::STOP).map_err(failed)?;
    set_parent_process_death_signal(None).map_err(failed)?;
    let (name, arguments) = super::name_of(program)?;
    let error = Command::new(name).args(arguments).exec();
    Err(super::cannot_start(name, &error))
}

impl Place {
    /// Fails unless the scheduler granted the request.
    fn check(&self) -> Outcome {
        let untold = || {
            let text =
                "our scheduler did not answer: it has ended, or the program has a real-time policy";
            Failure::new(Code::Failed, text)
        };
        let refused = match (&self.wish, self.child.admission()) {
            (Wish::Window(_), None) => return Err(untold()),
            (Wish::Window(_), Some(Admission::Promised)) => return Ok(()),
            (Wish::Window(_), Some(Admission::Unpromised)) => {
                crate::output::note("ecalls run: the window is admitted without guarantee");
                return Ok(());
            }
            (Wish::Window(_), Some(refused)) => refused,
            (Wish::Group(_) | Wish::Timed, _) => match self.child.standing() {
                Standing::Unknown => return Err(untold()),
                Standing::NoPlace => Admission::NoPlace,
                _ => return Ok(()),
            },
        };
        let what = match self.wish {
            Wish::Group(_) => "the group",
            Wish::Window(_) => "the window",
            Wish::Timed => "--coop",
        };
        Err(Failure::new(Code::Denied, format!("{what} is {refused}")))
    }

    /// How it went; since our scheduler began anew, if it did.
    pub(crate) fn placed(&self, wall_ns: u64, anew: bool) -> Placed {
        match &self.wish {
            Wish::Group(group) => {
                let before = if anew {
                    Duration::ZERO
                } else {
                    self.group_before
                };
                let had = self.child.group_time().saturating_sub(before);
                let group_ns = u64::try_from(had.as_nanos()).unwrap_or(u64::MAX);
                Placed {
                    group: Some(GroupHad {
                        group: group.name.clone(),
                        group_number: group.number,
                        group_ns,
                        group_share: group_ns as f64 / wall_ns.max(1) as f64,
                    }),
                    window: None,
                }
            }
            Wish::Timed => Placed {
                group: None,
                window: None,
            },
            Wish::Window(_) => {
                let Periods {
                    met,
                    missed,
                    violated,
                } = self.child.periods();
                Placed {
                    group: None,
                    window: Some(WindowHad {
                        window: match self.child.admission() {
                            Some(Admission::Promised) => "promised",
                            Some(Admission::Unpromised) => "without guarantee",
                            // The thread was moved to another CPU, or another scheduler was
                            // started.
                            _ => "refused meanwhile",
                        },
                        met,
                        missed,
                        violated,
                    }),
                }
            }
        }
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(had) = &self.group {
            write!(
                f,
                "group     {} (number {}): {} for all members, {:.2} of a CPU",
                had.group,
                had.group_number,
                crate::duration::show_ns(had.group_ns),
                had.group_share
            )?;
        }
        if let Some(had) = &self.window {
            write!(
                f,
                "window    {}: {} periods met, {} missed, {} violated",
                had.window, had.met, had.missed, had.violated
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_two_numbers() {
        assert_eq!(parse_window("1/5"), Ok((1, 5)));
        for wrong in ["1", "1/", "/5", "1/5/2", "-1/5", "70000/2"] {
            assert!(parse_window(wrong).is_err(), "{wrong}");
        }
    }
}
