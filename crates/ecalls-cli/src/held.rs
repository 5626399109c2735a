//! What commands have in common that make something and hold it until they end.

use std::time::{Duration, Instant};

use ecalls::Ecalls;

use crate::duration;
use crate::exit::Outcome;
use crate::stop::Stop;

/// How often the daemon is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The events of what is made.
#[derive(Debug, clap::Args)]
pub(crate) struct EventArgs {
    /// Format of its data, as fields of a C struct; for a channel the same on each host
    #[arg(long, default_value = "u64 value")]
    pub(crate) format: String,
    /// Names of its kinds of events, separated by blanks
    #[arg(long, default_value = "event")]
    pub(crate) kinds: String,
}

/// How long it is held, and what is printed then.
#[derive(Debug, clap::Args)]
pub(crate) struct HeldArgs {
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse_positive)]
    time: Option<Duration>,
    /// Print the counters as one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

impl HeldArgs {
    /// Whether what is held since `begin` has ended.
    pub(crate) fn is_over(&self, stop: &Stop, begin: Instant) -> bool {
        stop.is_set() || self.time.is_some_and(|time| begin.elapsed() >= time)
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// [`ecalls::Error::DaemonGone`]: with the daemon, what it holds for this command has ended.
    pub(crate) fn wait(&self, stop: &Stop, ecalls: &Ecalls) -> Outcome {
        let begin = Instant::now();
        while !self.is_over(stop, begin) {
            ecalls.check()?;
            let left = self.time.map(|time| time.saturating_sub(begin.elapsed()));
            stop.sleep(left.unwrap_or(LOOK).min(LOOK));
        }
        Ok(())
    }
}
