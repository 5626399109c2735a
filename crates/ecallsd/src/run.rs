//! The command line, and the order in which the daemon starts.

use std::path::PathBuf;

use crate::config::{self, Config};

/// Arguments of `ecallsd` and `ecalls daemon`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Configuration file; by default /etc/ecalls/ecallsd.toml, if there is one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the configuration that is in effect, or what is wrong with it, and end
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "config")]
    check_config: Option<Option<PathBuf>>,
}

/// Why the daemon ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration has a mistake.
    #[error("{0}")]
    Config(#[from] config::Error),
}

impl Error {
    /// The exit code, as `ecalls --help` explains them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_) => 2,
        }
    }
}

/// Does what the arguments say; a daemon runs until it is told to end.
///
/// # Errors
/// What keeps it from that.
pub fn run(args: &Args) -> Result<(), Error> {
    if let Some(file) = &args.check_config {
        let config = load(file.as_ref())?;
        print!("{}", config.to_toml());
        return Ok(());
    }
    load(args.config.as_ref())?;
    Ok(())
}

/// A file that is named must exist.
fn load(file: Option<&PathBuf>) -> Result<Config, config::Error> {
    match file {
        Some(path) => Config::load(path, true),
        None => Config::load(config::DEFAULT_PATH.as_ref(), false),
    }
}
