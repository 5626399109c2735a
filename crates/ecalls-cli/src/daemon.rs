//! `ecalls daemon`: the daemon `ecallsd` in the foreground.

use crate::exit::{Code, Failure, Outcome};

/// Host the core and let programs without privileges use it, until interrupted
///
/// This command is ecallsd(8), which `systemctl start ecallsd` starts under systemd. It needs root,
/// or CAP_BPF and CAP_PERFMON, and drops all other privileges.
#[derive(Debug, clap::Args)]
#[group(skip)] // the arguments of the daemon form a group of the same name
pub(crate) struct Args {
    #[command(flatten)]
    daemon: ecallsd::Args,
}

pub(crate) fn run(args: &Args) -> Outcome {
    // The daemon starts its other processes from this file, with these arguments.
    ecallsd::run(&args.daemon, &["daemon"]).map_err(|error| {
        let code = match error.exit_code() {
            2 => Code::Usage,
            3 => Code::Denied,
            4 => Code::Unsupported,
            _ => Code::Failed,
        };
        Failure::new(code, error)
    })
}
