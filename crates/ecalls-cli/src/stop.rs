//! SIGINT and SIGTERM as requests to end cleanly, with a summary.
//!
//! The signal sets a flag that every wait checks at least ten times a second. A second signal ends
//! the command at once, in case it blocks in a write to a reader that does not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::{Code, Failure};

/// The longest wait between two checks of the flag.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// A shell's status of a command that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Whether the user requested the end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From this call on, the two signals request the end instead of enforcing it.
    pub fn on_signals() -> Result<Stop, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first signal finds the flag unset, and then sets it.
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, flag.clone())
                .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
                .map_err(|error| {
                    Failure::new(Code::Failed, format!("catching signals: {error}"))
                })?;
        }
        Ok(Stop(flag))
    }

    /// Whether the end was requested.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps for `time`, or until the end is requested, which is the result.
    pub fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now().checked_add(time);
        loop {
            let left = until.map_or(PATIENCE, |at| at.saturating_duration_since(Instant::now()));
            if self.is_set() || left.is_zero() {
                return self.is_set();
            }
            std::thread::sleep(left.min(PATIENCE));
        }
    }
}
