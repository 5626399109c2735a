//! A network of one's own: a measurement that lays cables or changes settings disturbs nobody.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::timing::{os, silent};
use crate::exit::{Code, Failure, Outcome};

/// Set in the process that has a network of its own.
const NETWORK: &str = "ECALLS_BENCH_NETWORK";

/// Starts this program again with a network of its own, unless it has one; its interfaces are down.
pub(super) fn enter(what: &str) -> Outcome {
    if std::env::var_os(NETWORK).is_some() {
        return Ok(());
    }
    if !ecalls_kernel::is_root() {
        let why = format!(
            "`ecalls bench {what}` needs root: it makes a network of its own, and loads programs \
             into the kernel"
        );
        return Err(Failure::new(Code::Denied, why));
    }
    let mut command = Command::new("unshare");
    command.arg("--net").arg(std::env::current_exe()?);
    let error = command
        .args(std::env::args_os().skip(1))
        .env(NETWORK, "1")
        .exec();
    Err(os("starting unshare (package util-linux)", error))
}

/// Executes ip(8).
pub(super) fn ip(arguments: &str) -> Outcome {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| os("starting ip (package iproute2)", error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::new(
            Code::Unsupported,
            format!(
                "ip {arguments}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        )),
    }
}

/// Does something in the network of that process, by a thread that is there.
pub(super) fn within<T: Send>(
    pid: u32,
    does: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let enter = || {
        let file = File::open(format!("/proc/{pid}/ns/net"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| os("entering a network", error))?;
        does()
    };
    std::thread::scope(|scope| {
        let done = scope.spawn(enter).join();
        done.map_err(|_| silent("what a thread did in another network"))?
    })
}
