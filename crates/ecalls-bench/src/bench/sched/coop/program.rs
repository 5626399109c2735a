//! The programs of the rows coop_*, and the part of this program that waits until it may become one
//! of them.
//!
//! Each says when it has begun, sleeps until a time 10 ms later, computes, again and again, and
//! prints at its end how late it was: p50 and p99 of the times after the first ones, in us. Python,
//! ffplay and mpv are found by PATH, and the last two say nothing. The Go program
//! ([late.go](late.go)) is compiled where there is a compiler, or found by `ECALLS_BENCH_GO`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ecalls::now_ns;
use rustix::process::{Signal, getpid, kill_process};
use rustix::thread::{sched_yield, set_current_timer_slack};

use super::{SETTLE_MS, Subject, failed};
use crate::bench::sched::histogram;
use crate::bench::sched::work::Work;
use crate::exit::{Failure, Outcome};
use crate::output;

/// The hidden subcommand.
pub(crate) const SUBCOMMAND: &str = "timed-part";
/// What a program prints when it has begun.
pub(super) const READY: &str = "ready";
/// Its first word: what it is.
const PLAYERS: &str = "players";
const LOOP: &str = "loop";
/// The Go program, already compiled.
const GO: &str = "ECALLS_BENCH_GO";

const MS: u64 = 1_000_000;
const SLEEP: Duration = Duration::from_millis(10);
/// How long it computes, each time but the fourth, and then.
const WORK_NS: [u64; 2] = [MS, 3 * MS];
/// Eight threads of 25 to 32 ms.
const THREADS: u64 = 8;
const FRAME_MS: u64 = 25;

pub(super) struct Program {
    pub(super) command: Command,
    /// It prints how late it was.
    pub(super) tells: bool,
    /// Removed when the program has ended.
    _made: Option<Go>,
}

impl Program {
    /// An error says what is missing.
    pub(super) fn of(subject: Subject, seconds: u64) -> Result<Program, String> {
        let found = |name: &str| {
            let paths = std::env::var_os("PATH").unwrap_or_default();
            let mut all = std::env::split_paths(&paths).map(|folder| folder.join(name));
            all.find(|path| path.is_file())
                .ok_or_else(|| format!("there is no {name}"))
        };
        let mut command = Program::stopping();
        let mut made = None;
        match subject {
            Subject::Loop | Subject::Hook => {
                command.arg(LOOP);
            }
            Subject::Python => {
                let source = include_str!("late.py");
                command.arg(found("python3")?).args(["-c", source]);
            }
            Subject::Go => {
                let go = Go::find()?;
                command.arg(&go.1);
                made = Some(go);
            }
            Subject::Ffplay => {
                let input = "testsrc2=size=176x144:rate=30";
                command.arg(found("ffplay")?);
                command.args(["-loglevel", "quiet", "-an", "-f", "lavfi", input]);
                command.env("SDL_VIDEODRIVER", "dummy");
                command.stdout(Stdio::null()).stderr(Stdio::null());
                return Ok(Program::silent(command));
            }
            Subject::Mpv => {
                let input = "av://lavfi:testsrc2=size=176x144:rate=30";
                command.arg(found("mpv")?);
                command.args([
                    "--no-config",
                    "--really-quiet",
                    "--load-scripts=no",
                    "--no-audio",
                ]);
                command.args(["--vo=null", "--ao=null", input]);
                command.stdout(Stdio::null()).stderr(Stdio::null());
                return Ok(Program::silent(command));
            }
        }
        let times = [SETTLE_MS, 1000 * seconds].map(|ms| ms.to_string());
        command.args(times).stdout(Stdio::piped());
        Ok(Program {
            command,
            tells: true,
            _made: made,
        })
    }

    fn silent(command: Command) -> Program {
        Program {
            command,
            tells: false,
            _made: None,
        }
    }

    /// The players, which play until they are ended.
    pub(super) fn players() -> Program {
        let mut command = Program::stopping();
        command.arg(PLAYERS);
        Program::silent(command)
    }

    /// This program, which stops itself and then is what follows.
    pub(super) fn stopping() -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args([SUBCOMMAND, "--"]);
        command
    }
}

/// Where the Go program was compiled, and its path.
struct Go(Option<PathBuf>, PathBuf);

impl Go {
    fn find() -> Result<Go, String> {
        if let Some(path) = std::env::var_os(GO) {
            return Ok(Go(None, path.into()));
        }
        let name = format!("ecalls-bench-{}-{}", std::process::id(), now_ns());
        let folder = std::env::temp_dir().join(name);
        // Nobody else has made it.
        std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let (source, made) = (folder.join("late.go"), folder.join("late"));
        let go = Go(Some(folder), made);
        std::fs::write(&source, include_str!("late.go")).map_err(|error| error.to_string())?;
        let mut command = Command::new("go");
        command.args(["build", "-o"]).args([&go.1, &source]);
        match command.env("CGO_ENABLED", "0").output() {
            Ok(built) if built.status.success() => Ok(go),
            Ok(built) => Err(String::from_utf8_lossy(&built.stderr).trim().to_owned()),
            Err(_) => Err(format!("there is no compiler of Go, and no {GO}")),
        }
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// The hidden subcommand: stops itself, so that its parent can make it timed, and is the program
/// then.
pub(crate) fn part(words: &[OsString]) -> Outcome {
    kill_process(getpid(), Signal::STOP).map_err(|error| failed("stopping", error))?;
    // The scheduler sees what it was given.
    sched_yield();
    set_current_timer_slack(std::num::NonZeroU64::new(1))
        .map_err(|error| failed("setting the timer slack", error))?;
    let [role, rest @ ..] = words else {
        return Err(Failure::usage("no program"));
    };
    let ms = |at: usize| {
        let number = rest
            .get(at)
            .and_then(|word| word.to_str()?.parse::<u64>().ok());
        number.unwrap_or(0) * MS
    };
    match role.to_str() {
        Some(PLAYERS) => play(),
        Some(LOOP) => sleep_and_compute(ms(0), ms(1)),
        _ => Err(failed(
            "executing a program",
            Command::new(role).args(rest).exec(),
        )),
    }
}

fn sleep_and_compute(settle_ns: u64, counted_ns: u64) -> Outcome {
    let work = Work::measure();
    output::write_all(format!("{READY}\n").as_bytes())?;
    let from_ns = now_ns() + settle_ns;
    let mut late = histogram();
    for round in 1_u64.. {
        let due_ns = now_ns() + SLEEP.as_nanos() as u64;
        thread::sleep(SLEEP);
        let now_ns = now_ns();
        if now_ns >= from_ns + counted_ns {
            break;
        }
        if now_ns >= from_ns {
            late.saturating_record(now_ns.saturating_sub(due_ns));
        }
        work.spend(WORK_NS[usize::from(round % 4 == 0)]);
    }
    let [p50, p99] = [0.5, 0.99].map(|part| late.value_at_quantile(part) / 1000);
    output::write_all(format!("{p50} {p99}\n").as_bytes())
}

/// Threads that wait for the time of each frame.
fn play() -> Outcome {
    let work = Work::measure();
    thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                let period_ns = (FRAME_MS + number) * MS;
                let mut due_ns = now_ns();
                loop {
                    due_ns += period_ns;
                    thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
                    work.spend(MS);
                }
            });
        }
    });
    Ok(())
}
