//! A network of one's own: a measurement that lays cables or changes settings disturbs nobody.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::timing::os;
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
