//! What `ecalls run` asks of our scheduler for a program that knows nothing of it: a group, or a
//! window.
//!
//! A thread's place in the scheduler survives execve(2). So the program is begun as this command
//! (`--waits`), which stops itself; its parent then hands it a slot of a channel of its own and
//! lets it go on; it yields, by which the scheduler sees it, and stops again; and only if the
//! parent has read an answer that it likes does it become the program. So nothing of the program
//! has run when a window is refused, and the program inherits no descriptor.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::CommandExt;
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

/// What tells a program the number of its group.
const GROUP_VARIABLE: &str = "ECALLS_GROUP";
/// Between two looks whether the program-to-be has stopped.
const LOOK: Duration = Duration::from_millis(1);

/// `X/Y`: of Y periods X may be missed.
pub(crate) fn parse_window(text: &str) -> Result<(u16, u16), String> {
    let numbers = text.split_once('/');
    let numbers = numbers.and_then(|(x, y)| Some((x.parse().ok()?, y.parse().ok()?)));
    numbers.ok_or_else(|| "of Y periods X may be missed: X/Y, as 1/5".to_owned())
}

/// Whether there can be such a window at all.
pub(crate) fn check_bounds(window: &Window) -> Outcome {
    let least = Duration::from_nanos(WINDOW_PERIOD_MIN_NS);
    let most = Duration::from_nanos(WINDOW_PERIOD_MAX_NS);
    let wrong = match window {
        _ if window.period < least || window.period > most => "--period is 100us to 10s",
        _ if window.service > window.period => "--service is at most the period",
        _ if window.x >= window.y || u32::from(window.y) > WINDOW_Y_MAX => {
            "--window is X/Y, X below Y, and Y at most 1024"
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(wrong))
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Group(Group),
    Window(Window),
}

/// The program's place, as this process sees it.
#[derive(Debug)]
pub(crate) struct Place {
    wish: Wish,
    child: ChildSlot,
    /// What the group had had before.
    group_before: Duration,
    _channel: Channel,
}

/// What came of it, for the report.
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

/// Starts the program with what is asked for, or says why not.
pub(crate) fn start(
    program: &[OsString],
    wish: Wish,
    signals: &Signals,
) -> Result<(Child, Place), Failure> {
    can_place()?;
    let wish = match wish {
        Wish::Group(group) => Wish::Group(group.claimed()?),
        wish @ Wish::Window(_) => wish,
    };
    let ecalls = Ecalls::open()?;
    let channel = ecalls.channel().open()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["run", "--waits"])
        .arg(std::process::id().to_string());
    command.arg("--").args(program);
    if let Wish::Group(group) = &wish {
        command.env(GROUP_VARIABLE, group.number.to_string());
    }
    let mut child = command
        .spawn()
        .map_err(|error| Failure::new(Code::Failed, format!("starting this command: {error}")))?;
    let placed = take_place(&child, channel, wish, signals);
    if placed.is_err() {
        // It has not begun. Killed or not: there is nothing to do about it.
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok((child, placed?))
}

/// Whether there is anybody to ask.
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
    signals: &Signals,
) -> Result<Place, Failure> {
    let pid = pid_of(child)?;
    await_stop(pid, signals)?;
    let (group, window) = match &wish {
        Wish::Group(group) => (group.number, None),
        Wish::Window(window) => (0, Some(window)),
    };
    let slot = channel.caller().hand_slot(0, group, window, child.id())?;
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

/// Waits until the program-to-be has stopped itself.
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
            let text = "the program ended before it began";
            return Err(Failure::new(Code::Failed, text));
        }
        signals.pass_on(pid);
        std::thread::sleep(LOOK);
    }
}

fn go_on(pid: Pid) -> Outcome {
    kill_process(pid, Signal::CONT)
        .map_err(|error| Failure::new(Code::Failed, format!("starting the program: {error}")))
}

/// The program-to-be, a child of process `parent`: waits for its place, and becomes the program.
pub(crate) fn become_program(parent: i32, program: &[OsString]) -> Outcome {
    let failed = |error: rustix::io::Errno| {
        Failure::new(Code::Failed, format!("waiting for a place: {error}"))
    };
    // If its parent is killed meanwhile, nobody else would let it go on.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return Err(Failure::usage("--waits is between this command and itself"));
    }
    kill_process(getpid(), Signal::STOP).map_err(failed)?;
    // The scheduler looks at it here.
    sched_yield();
    kill_process(getpid(), Signal::STOP).map_err(failed)?;
    set_parent_process_death_signal(None).map_err(failed)?;
    let (name, arguments) = super::name_of(program)?;
    let error = Command::new(name).args(arguments).exec();
    Err(super::cannot_start(name, &error))
}

impl Place {
    /// Whether the scheduler has given it what it was asked for.
    fn check(&self) -> Outcome {
        let untold = || {
            let text = "our scheduler did not answer: it has ended, or the program is real-time";
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
            (Wish::Group(_), _) => match self.child.standing() {
                Standing::Unknown => return Err(untold()),
                Standing::NoPlace => Admission::NoPlace,
                _ => return Ok(()),
            },
        };
        let what = match self.wish {
            Wish::Group(_) => "the group",
            Wish::Window(_) => "the window",
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
                            // Moved to another CPU since, or by another scheduler.
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
