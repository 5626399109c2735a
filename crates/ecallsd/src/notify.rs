//! Messages to systemd, if it started the daemon: ready, stopping, alive, and one line of status.
//! Without systemd they do nothing.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The way to the service manager.
#[derive(Debug)]
pub struct Notify {
    /// The interval of the watchdog's messages; `None`: there is no watchdog.
    period: Option<Duration>,
    last: Instant,
    status: String,
}

impl Notify {
    /// The service manager that the environment names.
    pub fn of_environment() -> Notify {
        // Twice as often as requested: one message may be late.
        let period = sd_notify::watchdog_enabled().map(|period| period / 2);
        Notify {
            period,
            last: Instant::now(),
            status: String::new(),
        }
    }

    /// The daemon is ready.
    pub fn ready(&self) {
        tell(&[NotifyState::Ready]);
    }

    /// The daemon is stopping.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Sets the line that `systemctl status` shows.
    pub fn status(&mut self, status: String) {
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    /// Tells the watchdog that the daemon is alive, if that is due. The main loop calls this, so
    /// that a loop that hangs is noticed.
    pub fn alive(&mut self) {
        let Some(period) = self.period else { return };
        if self.last.elapsed() >= period {
            tell(&[NotifyState::Watchdog]);
            self.last = Instant::now();
        }
    }

    /// The longest the main loop may wait.
    pub fn patience(&self) -> Option<Duration> {
        self.period
            .map(|period| period.saturating_sub(self.last.elapsed()))
    }
}

fn tell(states: &[NotifyState<'_>]) {
    // If the manager does not read, the daemon serves nevertheless.
    let _ = sd_notify::notify(states);
}
