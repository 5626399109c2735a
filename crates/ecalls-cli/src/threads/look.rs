//! Runtimes of user-level threads as /proc shows them.
//!
//! A runtime keeps a file in memory open in which it counts (abi/runtime.h). Whoever may inspect
//! its process finds the file among the descriptors. Its content, and even that it is such a file,
//! is a program's word: the descriptor is opened only if it is a file in memory of the right size,
//! numbers are used within limits, and a kernel thread counts only if the process has it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ecalls_abi::ABI_VERSION;
use ecalls_abi::activation::{ACTIVATIONS_MAX, PROCESSORS_MAX};
use ecalls_abi::runtime::{
    NAME, RUNTIME_NONE, RUNTIME_RUNS, RUNTIME_SPARE, RUNTIME_STORAGE, RUNTIME_TOLD, Runtime,
    RuntimeProcessor, RuntimeTurns,
};
use ecalls_abi::zerocopy::{FromZeros, IntoBytes};
use rustix::fs::{Mode, OFlags, fstat, fstatfs, open};
use serde::{Serialize, Serializer};

use crate::output::safe;

/// Runtimes of a process that are looked at.
const RUNTIMES_MAX: usize = 64;

/// The kernel's number of the file system in which files in memory are.
const TMPFS: u64 = 0x0102_1994;

/// A runtime at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Look {
    pub(super) pid: u32,
    pub(super) name: String,
    /// The number of its descriptor.
    pub(super) runtime: u32,
    pub(super) kernel_side: bool,
    pub(super) own_storage: bool,
    pub(super) processors: u32,
    pub(super) threads: u64,
    #[serde(flatten)]
    pub(super) counts: Counts,
    pub(super) refused: u64,
    #[serde(skip)]
    pub(super) activations: Vec<Activation>,
}

/// What it has counted: sums over its processors.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Counts {
    switches: u64,
    left: u64,
    told: u64,
    untold: u64,
    reclaimed: u64,
    unblocked: u64,
    restarts: u64,
}

impl Counts {
    fn add(&mut self, of: &RuntimeProcessor) {
        self.switches = self.switches.wrapping_add(of.switches);
        self.left = self.left.wrapping_add(of.left);
        self.told = self.told.wrapping_add(of.told);
        self.untold = self.untold.wrapping_add(of.untold);
        self.reclaimed = self.reclaimed.wrapping_add(of.reclaimed);
        self.unblocked = self.unblocked.wrapping_add(of.unblocked);
        self.restarts = self.restarts.wrapping_add(of.restarts);
    }

    /// Threads that came back and wait to be chosen. The words are not of one moment.
    pub(super) fn waiting(&self) -> u64 {
        self.unblocked.saturating_sub(self.restarts)
    }

    /// By name.
    pub(super) fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("switches", self.switches),
            ("left", self.left),
            ("told", self.told),
            ("untold", self.untold),
            ("reclaimed", self.reclaimed),
            ("restarts", self.restarts),
        ]
    }
}

/// What an activation does, in the order in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Running,
    Blocked,
    /// By a signal or a debugger.
    Stopped,
    Spare,
    /// The process says what cannot be.
    Unknown,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Blocked => "blocked",
            State::Stopped => "stopped",
            State::Spare => "spare",
            State::Unknown => "unknown",
        }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// An activation at one moment.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Activation {
    /// The kernel thread, as the caller sees it.
    pub(super) tid: u32,
    pub(super) processor: u32,
    pub(super) state: State,
    /// The number of the thread that it executes, or that has blocked.
    pub(super) thread: Option<u32>,
    pub(super) thread_name: Option<String>,
    /// The kernel function in which it has blocked.
    #[serde(rename = "where")]
    pub(super) place: Option<String>,
    pub(super) sleeps: u64,
}

impl Activation {
    /// The thread's name, or its number.
    pub(super) fn shown_thread(&self) -> String {
        let number = || self.thread.map(|number| number.to_string());
        self.thread_name.clone().or_else(number).unwrap_or_default()
    }
}

/// All processes.
pub(super) fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    pids
}

/// Those of all processes that the caller may inspect.
pub(super) fn all() -> Vec<Look> {
    let found = processes()
        .into_iter()
        .map(|pid| of_process(pid).unwrap_or_default());
    found.flatten().collect()
}

/// The files of a process that may be runtimes', by their descriptors.
///
/// # Errors
/// The caller may not inspect it, or it has ended.
pub(super) fn files_of(pid: u32) -> io::Result<Vec<(u32, File)>> {
    let link = format!("/memfd:{NAME} (deleted)");
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        // A descriptor can be closed meanwhile.
        if fs::read_link(&path).is_ok_and(|to| to == Path::new(&link))
            && let Some(file) = open_file(&path)
            && let Some(number) = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok())
        {
            found.push((number, file));
        }
        if found.len() == RUNTIMES_MAX {
            break;
        }
    }
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found)
}

/// Those of a process.
///
/// # Errors
/// The caller may not inspect it, or it has ended.
pub(super) fn of_process(pid: u32) -> io::Result<Vec<Look>> {
    let files = files_of(pid)?.into_iter();
    let found: Vec<_> = files
        .filter_map(|(number, file)| Some((number, read(&file)?)))
        .collect();
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let tasks = tasks(&folder)?;
    let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    let looks = found.iter().map(|(number, runtime)| {
        let mut look = look(runtime, &tasks, &folder);
        (look.pid, look.runtime) = (pid, *number);
        look.name = safe(name.trim_end());
        look
    });
    // After a fork, a child has the descriptor of its parent's.
    Ok(looks.filter(|look| !look.activations.is_empty()).collect())
}

/// Opens the file, if it is one.
fn open_file(path: &Path) -> Option<File> {
    // Nothing happens to what is opened so: a device, a pipe, a file on another host.
    let held = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let is_in_memory = u64::try_from(fstatfs(&held).ok()?.f_type) == Ok(TMPFS);
    let size = usize::try_from(fstat(&held).ok()?.st_size);
    if !is_in_memory || size != Ok(size_of::<Runtime>() + size_of::<RuntimeTurns>()) {
        return None;
    }
    let mut options = File::options();
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    options.read(true).write(true).open(path).ok()
}

/// Reads the file's beginning, if it is a runtime's.
pub(super) fn read(file: &File) -> Option<Box<Runtime>> {
    let mut runtime = Box::new(Runtime::new_zeroed());
    file.read_exact_at(runtime.as_mut_bytes(), 0).ok()?;
    (runtime.version == ABI_VERSION).then_some(runtime)
}

/// A kernel thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) tid: u32,
    /// As in /proc/PID/status.
    state: char,
    sleeps: u64,
}

/// The kernel threads of a process, by the number that they have for themselves: it can be in a
/// namespace of its own.
pub(super) fn tasks(folder: &Path) -> io::Result<HashMap<u32, Task>> {
    let entries = fs::read_dir(folder.join("task"))?.flatten();
    let read = |entry: fs::DirEntry| {
        let tid = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        task(tid, &status)
    };
    Ok(entries.filter_map(read).collect())
}

/// From /proc/PID/task/TID/status.
fn task(tid: u32, status: &str) -> Option<(u32, Task)> {
    let value = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    };
    let inner = value("NSpid")?.split_whitespace().last()?.parse().ok()?;
    let task = Task {
        tid,
        state: value("State")?.chars().next()?,
        sleeps: value("voluntary_ctxt_switches")?.parse().ok()?,
    };
    Some((inner, task))
}

fn look(runtime: &Runtime, tasks: &HashMap<u32, Task>, folder: &Path) -> Look {
    let processors = runtime.processors.min(PROCESSORS_MAX);
    let mut counts = Counts::default();
    for processor in runtime.processor.iter().take(processors as usize) {
        counts.add(processor);
    }
    let most = runtime.activations_max.min(ACTIVATIONS_MAX - 1) as usize;
    let numbered = runtime.activation.iter().skip(1).take(most);
    let names = names(runtime);
    let activations = numbered.filter_map(|shown| {
        let task = tasks.get(&shown.tid)?;
        let state = state(shown.state, task.state)?;
        let place = match state {
            State::Blocked => place(&folder.join(format!("task/{}/wchan", task.tid))),
            _ => None,
        };
        // A spare has executed it before.
        let thread = Some(shown.thread).filter(|number| *number != 0 && state != State::Spare);
        Some(Activation {
            tid: task.tid,
            processor: shown.processor.min(PROCESSORS_MAX - 1),
            state,
            thread,
            thread_name: thread.and_then(|thread| names.get(&thread).cloned()),
            place,
            sleeps: task.sleeps,
        })
    });
    Look {
        pid: 0,
        name: String::new(),
        runtime: 0,
        kernel_side: runtime.flags & RUNTIME_TOLD != 0,
        own_storage: runtime.flags & RUNTIME_STORAGE != 0,
        processors,
        threads: runtime.begun.saturating_sub(runtime.ended),
        counts,
        refused: runtime.refused,
        activations: activations.collect(),
    }
}

/// Names of threads, by their numbers modulo 2^32, as activations have them.
pub(super) fn names(runtime: &Runtime) -> HashMap<u32, String> {
    let named = runtime.name.iter().filter(|name| name.thread != 0);
    let named = named.map(|name| {
        let bytes = name.name.split(|byte| *byte == 0).next();
        let text = safe(&String::from_utf8_lossy(bytes.unwrap_or_default()));
        let number = u32::try_from(name.thread & u64::from(u32::MAX)).unwrap_or(0);
        (number, text)
    });
    named.filter(|(_, text)| !text.is_empty()).collect()
}

/// What an activation does, by its own word and by the kernel's; `None`: it does not run yet.
fn state(shown: u32, task: char) -> Option<State> {
    let state = match (shown, task) {
        (RUNTIME_NONE, _) => return None,
        (_, 'T' | 't') => State::Stopped,
        (RUNTIME_RUNS, 'R') => State::Running,
        (RUNTIME_RUNS, _) => State::Blocked,
        (RUNTIME_SPARE, _) => State::Spare,
        _ => State::Unknown,
    };
    Some(state)
}

/// The function in which a thread sleeps; the kernel tells it to whoever may inspect the thread.
fn place(path: &Path) -> Option<String> {
    let place = fs::read_to_string(path).ok()?;
    let place = place.trim();
    (!place.is_empty() && place != "0").then(|| safe(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks() -> HashMap<u32, Task> {
        let status = "Name:\tx\nState:\tS (sleeping)\nNSpid:\t4711\t7\n\
                      voluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t9\n";
        HashMap::from([task(4711, status).expect("a status")])
    }

    #[test]
    fn an_activation_is_a_kernel_thread_of_the_process_and_blocked_when_that_sleeps() {
        let mut runtime = Box::new(Runtime::new_zeroed());
        (runtime.processors, runtime.activations_max) = (1, 3);
        for (number, tid) in [(1, 7), (2, 1), (3, 0)] {
            runtime.activation[number].tid = tid;
            runtime.activation[number].state = RUNTIME_RUNS;
            runtime.activation[number].thread = 5;
        }
        runtime.name[9].thread = (1 << 32) + 5;
        runtime.name[9].name[..4].copy_from_slice(b"a\x1bb!");
        let look = look(&runtime, &tasks(), Path::new("/nowhere"));
        let states: Vec<_> = look
            .activations
            .iter()
            .map(|one| (one.tid, one.state))
            .collect();
        assert_eq!(states, [(4711, State::Blocked)]);
        assert_eq!(look.activations[0].sleeps, 3);
        assert_eq!(look.activations[0].thread, Some(5));
        assert_eq!(look.activations[0].thread_name.as_deref(), Some("a?b!"));
    }

    #[test]
    fn lies_are_shown_within_limits() {
        let mut runtime = Box::new(Runtime::new_zeroed());
        runtime.as_mut_bytes().fill(0xff);
        runtime.activation[1].tid = 7;
        let look = look(&runtime, &tasks(), Path::new("/nowhere"));
        assert_eq!((look.processors, look.threads), (PROCESSORS_MAX, 0));
        let [one] = &look.activations[..] else {
            panic!("{look:?}");
        };
        assert_eq!(
            (one.state, one.processor),
            (State::Unknown, PROCESSORS_MAX - 1)
        );
    }

    #[test]
    fn another_file_of_that_name_is_none() {
        assert!(open_file(Path::new("/dev/null")).is_none());
        assert!(open_file(Path::new("/proc/self/exe")).is_none());
    }
}
