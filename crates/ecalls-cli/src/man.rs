//! `ecalls man DIR` (hidden): writes the man pages, one per command, for packaging.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::Cli;
use crate::exit::{Code, Failure, Outcome};

/// Write the man pages, one per command
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder to write them into; made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the pages.
pub(crate) fn run(args: &Args) -> Outcome {
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.folder))
        .map_err(|error| {
            let folder = args.folder.display();
            Failure::new(
                Code::Failed,
                format!("writing man pages into {folder}: {error}"),
            )
        })
}
