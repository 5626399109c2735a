//! `ecalls daemon`: the daemon by hand, in the foreground. The same as `ecallsd`.

use crate::exit::{Code, Failure, Outcome};

/// Host the core and let programs without privileges use it, until interrupted
///
/// The same as ecallsd(8), which systemd starts: `systemctl start ecallsd`. By hand it is run as
/// root, or with CAP_BPF and CAP_PERFMON; it gives up what else it may do.
#[derive(Debug, clap::Args)]
#[group(skip)] // the daemon's own has the same name
pub(crate) struct Args {
    #[command(flatten)]
    daemon: ecallsd::Args,
}

pub(crate) fn run(args: &Args) -> Outcome {
    // It starts itself a second time, and then is `ecalls daemon` again.
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
