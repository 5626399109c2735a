//! Processes by id: whether one exists, and its name for display.

use std::fs;
use std::path::PathBuf;

use crate::exit::{Code, Failure, Outcome};
use crate::output::safe;

fn folder(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Fails if there is no such process.
pub(crate) fn check(pid: u32) -> Outcome {
    if folder(pid).is_dir() {
        return Ok(());
    }
    let message = format!("no process with id {pid}: `ps -e` lists them");
    Err(Failure::new(Code::Unknown, message))
}

/// The name of a process; `None`: it has ended.
pub(crate) fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(folder(pid).join("comm")).ok()?;
    Some(safe(name.trim_end()))
}

/// A process for display: `4711 (nginx)`, or only the number when the process has ended.
pub(crate) fn show(pid: u32) -> String {
    match name(pid) {
        Some(name) => format!("{pid} ({name})"),
        None => pid.to_string(),
    }
}
