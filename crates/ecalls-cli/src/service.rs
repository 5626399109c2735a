//! `ecalls service`: registers a service and holds it, so that other programs can raise and watch
//! its events. A service lives as long as the process that registered it.

use std::path::{Path, PathBuf};

use ::ecode::source::Source;
use ecalls::Ecalls;

use crate::ecode::text;
use crate::exit::{Failure, Outcome};
use crate::held::{EventArgs, HeldArgs};
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
    /// Unique name of the service, at most 31 bytes without blanks
    #[arg(required = true)]
    name: Option<String>,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    held: HeldArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Add(AddArgs),
}

/// Add a service whose events are raised by programs in the kernel, and hold it until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = ADD_HELP)]
struct AddArgs {
    /// A text in E-code (see ecode(7)), or a BPF object file compiled with the header
    /// ecalls/service.bpf.h; - reads a text from standard input
    file: PathBuf,
    #[command(flatten)]
    held: HeldArgs,
}

const ADD_HELP: &str = "\
This command needs root. The file contains the name of the service, the format of its data and its
kinds. Its programs are attached at once; without a subscription they return early. The service ends
when this command ends, for whatever reason. A name that is in use is refused.

An E-code program names the kernel tracepoint on which it runs. A result other than 0 raises an
event, with `output` as its data:

  service \"shells\" on tracepoint \"sched:sched_process_exec\" { kind started; }
  struct output { char file[64]; };
  output.file = filename;
  return filename == \"/bin/sh\" || filename == \"/bin/bash\";

examples/ecode/started.ec is such a text; examples/service/rename.bpf.c becomes an object file.";

const HELP: &str = "\
A format has fields of the types u8 u16 u32 u64, s8 s16 s32 s64 and char, or arrays of them, at most
2152 bytes in total: 'u64 load; u32 threads; char host[16]'.

When it ends (SIGINT, SIGTERM or --for), the command prints the counters of the service, with --json
under the keys of `ecalls services --json`.";

/// Registers the service, waits, and prints its counters.
pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(Command::Add(args)) = &args.command {
        return add(args);
    }
    let name = args.name.as_deref().unwrap_or_default();
    let stop = Stop::on_signals()?;
    let ecalls = Ecalls::open()?;
    let service = ecalls.register_service(name, &args.events.format, &args.events.kinds)?;
    note(format!(
        "registered {name}; watch it with `ecalls watch {name}`, raise it with \
         `ecalls raise {name} ...`"
    ));
    hold(&ecalls, &stop, service.index(), &args.held)
}

/// Adds the service, waits, and prints its counters.
fn add(args: &AddArgs) -> Outcome {
    let file = args.file.display().to_string();
    let unreadable =
        |error: std::io::Error| Failure::usage(format!("{file} cannot be read: {error}"));
    let given = match file.as_str() {
        "-" => Given::Text(text::read(&args.file)?),
        _ => Given::new(&args.file, std::fs::read(&args.file).map_err(unreadable)?)?,
    };
    let stop = Stop::on_signals()?;
    let ecalls = Ecalls::open()?;
    let provider = match &given {
        Given::Object(bytes) => ecalls.provide(bytes)?,
        Given::Text(source) => ecalls.provide_ecode(&source.name, &source.text)?,
    };
    let name = provider.name();
    note(format!("added {name}; watch it with `ecalls watch {name}`"));
    hold(&ecalls, &stop, provider.index(), &args.held)?;
    let skipped = provider.skipped()?;
    if skipped > 0 {
        note(format!(
            "the kernel skipped {skipped} runs of the service's program, because another program \
             on a tracepoint was active on that CPU"
        ));
    }
    Ok(())
}

/// The source of a service.
enum Given {
    Object(Vec<u8>),
    Text(Source),
}

impl Given {
    /// A text in E-code is recognised by the file's name or contents.
    fn new(file: &Path, bytes: Vec<u8>) -> Result<Given, Failure> {
        const OBJECT: &[u8] = b"\x7fELF";
        let named = file.extension().is_some_and(|extension| extension == "ec");
        let is_text = !bytes.starts_with(OBJECT) && std::str::from_utf8(&bytes).is_ok();
        match named || is_text {
            true => Ok(Given::Text(text::read(file)?)),
            false => Ok(Given::Object(bytes)),
        }
    }
}

fn hold(ecalls: &Ecalls, stop: &Stop, index: u32, held: &HeldArgs) -> Outcome {
    held.wait(stop, ecalls)?;
    let mut out = Output::new(held.json);
    let stat = ecalls.access().service_stat(index)?;
    services::print(&mut out, &[Row::new(&stat)])?;
    out.flush()
}
