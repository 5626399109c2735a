//! `ecalls ecode fmt`: lays texts out as all of ours are.

use std::path::PathBuf;

use super::text;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{self, note};

/// Lay texts out in one style
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The texts; - reads standard input and prints the result
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Change nothing; fail if something would be
    #[arg(long)]
    check: bool,
}

const HELP: &str = "\
Files are rewritten in place, and only if their layout differs. Comments are kept. A file with
errors is not changed (exit code 2). With --check, the exit code is 1 if the layout of a file
differs.";

pub(crate) fn run(args: &Args) -> Outcome {
    let mut others = 0;
    for file in &args.files {
        let source = text::read(file)?;
        let laid = ::ecode::format::format(&source).map_err(|diagnostics| {
            note(diagnostics.render(&source).trim_end());
            Failure::usage(format!("{}: left alone", source.name))
        })?;
        if file.as_os_str() == "-" && !args.check {
            output::write_all(laid.as_bytes())?;
        } else if laid != source.text {
            others += 1;
            if args.check {
                note(format_args!("{}: not laid out", source.name));
            } else {
                write(file, &laid)?;
            }
        }
    }
    if args.check && others > 0 {
        let advice = "run ecalls ecode fmt";
        return Err(Failure::new(
            Code::Failed,
            format!("{others} of {} texts: {advice}", args.files.len()),
        ));
    }
    Ok(())
}

/// Beside the old one first, so that a full disk takes nothing away.
fn write(file: &PathBuf, text: &str) -> Outcome {
    let failed =
        |error: std::io::Error| Failure::new(Code::Failed, format!("{}: {error}", file.display()));
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    std::fs::write(&beside, text).map_err(failed)?;
    let mode = std::fs::metadata(file).map_err(failed)?.permissions();
    std::fs::set_permissions(&beside, mode).map_err(failed)?;
    std::fs::rename(&beside, file).map_err(failed)
}
