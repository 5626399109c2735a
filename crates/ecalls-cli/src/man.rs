//! `ecalls man DIR` (hidden): writes the man pages, one per command, for packaging.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::Cli;
use crate::exit::{Code, Failure, Outcome};
use crate::workshop;

/// Write the man pages, one per command
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for the pages; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the pages. `ecalls-bench` writes those of `bench` and `demo`.
pub(crate) fn run(args: &Args) -> Outcome {
    let ours = workshop::NAMES
        .iter()
        .fold(Cli::command(), |command, name| {
            command.mut_subcommand(name, |other| other.hide(true))
        });
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(ours, &args.folder))
        .and_then(|()| clap_mangen::Man::new(Cli::command()).generate_to(&args.folder))
        .map(drop)
        .map_err(|error| {
            let folder = args.folder.display();
            Failure::new(
                Code::Failed,
                format!("writing man pages into {folder}: {error}"),
            )
        })
}
