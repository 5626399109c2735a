//! `ecalls service`: registers a service and holds it, so that others can raise and watch its
//! events. A service lives as long as the process that registered it.

use std::path::PathBuf;
use std::time::Duration;

use ecalls::Ecalls;

use crate::duration;
use crate::exit::{Failure, Outcome};
use crate::output::{Output, note};
use crate::services::{self, Row};
use crate::stop::Stop;

/// Register a service and hold it until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Its unique name, at most 31 bytes without blanks
    #[arg(required = true)]
    name: Option<String>,
    /// Its data, as fields of a C struct
    #[arg(long, default_value = "u64 value")]
    format: String,
    /// Names of its kinds of events
    #[arg(long, default_value = "event")]
    kinds: String,
    /// Ends after this time
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse_positive)]
    time: Option<Duration>,
    /// Print what was counted as one JSON object, at the end
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Add(AddArgs),
}

/// Add a service whose events are raised by programs in the kernel, and hold it until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = ADD_HELP)]
struct AddArgs {
    /// A BPF object file, compiled with the header ecalls/service.bpf.h
    file: PathBuf,
    /// Ends after this time
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse_positive)]
    time: Option<Duration>,
    /// Print what was counted as one JSON object, at the end
    #[arg(long)]
    json: bool,
}

const ADD_HELP: &str = "\
Needs root. The file names the service, the format of its data and its kinds. Its programs are
attached at once; while nobody subscribes, each only finds that out. All of it ends with this
command, however that ends. examples/service/rename.bpf.c is a file that can be added.";

const HELP: &str = "\
A format has fields of the types u8 u16 u32 u64, s8 s16 s32 s64 and char, or arrays of them, at most
168 bytes in total: 'u64 load; u32 threads; char host[16]'.

At its end (SIGINT, SIGTERM or --for) the command prints what was counted of the service, with
--json by the keys of `ecalls services --json`.";

/// Registers the service, waits, and prints what was counted.
pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(Command::Add(args)) = &args.command {
        return add(args);
    }
    let name = args.name.as_deref().unwrap_or_default();
    let stop = Stop::on_signals()?;
    let ecalls = Ecalls::open()?;
    let service = ecalls.register_service(name, &args.format, &args.kinds)?;
    note(format!(
        "registered {name}; watch it with `ecalls watch {name}`, raise it with \
         `ecalls raise {name} ...`"
    ));
    hold(&ecalls, &stop, service.index(), args.time, args.json)
}

/// Adds the service, waits, and prints what was counted.
fn add(args: &AddArgs) -> Outcome {
    let object = std::fs::read(&args.file).map_err(|error| {
        let file = args.file.display();
        Failure::usage(format!("{file} cannot be read: {error}"))
    })?;
    let stop = Stop::on_signals()?;
    let ecalls = Ecalls::open()?;
    let provider = ecalls.provide(&object)?;
    let name = provider.name();
    note(format!("added {name}; watch it with `ecalls watch {name}`"));
    hold(&ecalls, &stop, provider.index(), args.time, args.json)
}

fn hold(ecalls: &Ecalls, stop: &Stop, index: u32, time: Option<Duration>, json: bool) -> Outcome {
    stop.sleep(time.unwrap_or(Duration::MAX));
    let mut out = Output::new(json);
    let stat = ecalls.access().service_stat(index)?;
    services::print(&mut out, &[Row::new(&stat)])?;
    out.flush()
}
