//! `ecalls ecode fmt`: formats texts.

use std::path::PathBuf;

use super::text;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{self, note};

/// Format texts
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The texts; - reads standard input and prints the result
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Change no file; fail if the layout of one differs
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
            Failure::usage(format!("{}: has errors and was not changed", source.name))
        })?;
        if file.as_os_str() == "-" && !args.check {
            output::write_all(laid.as_bytes())?;
        } else if laid != source.text {
            others += 1;
            if args.check {
                note(format_args!("{}: its layout differs", source.name));
            } else {
                write(file, &laid)?;
            }
        }
    }
    if args.check && others > 0 {
        let advice = "`ecalls ecode fmt` changes it";
        return Err(Failure::new(
            Code::Failed,
            format!(
                "the layout of {others} of {} texts differs: {advice}",
                args.files.len()
            ),
        ));
    }
    Ok(())
}

/// Writes a new file beside the old one and renames it, so that a full disk destroys nothing.
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
