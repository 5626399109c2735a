//! How many tables a command prints that shows them again and again, and whether each takes the
//! place of the one before.

use std::io::IsTerminal;

#[derive(Debug, clap::Args)]
pub(crate) struct Tables {
    /// End after this number of tables
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after one table
    #[arg(long, conflicts_with = "count")]
    once: bool,
}

impl Tables {
    /// Whether another one is wanted after so many.
    pub(crate) fn go_on_after(&self, printed: u64) -> bool {
        let most = if self.once { Some(1) } else { self.count };
        most.is_none_or(|most| printed < most)
    }

    /// Whether each takes the place of the one before, on a terminal.
    pub(crate) fn is_live(&self, json: bool) -> bool {
        !json && !self.once && std::io::stdout().is_terminal()
    }
}
