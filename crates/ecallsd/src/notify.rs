//! What the daemon tells systemd, if that started it: ready, stopping, alive, and one line of
//! status. Without systemd all of it is nothing.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The way to the service manager.
#[derive(Debug)]
pub struct Notify {
    /// How often to say that we live; None: nobody asks.
    period: Option<Duration>,
    last: Instant,
    status: String,
}

impl Notify {
    /// As the environment says.
    pub fn of_environment() -> Notify {
        // Twice as often as asked: one may be late.
        let period = sd_notify::watchdog_enabled().map(|period| period / 2);
        Notify {
            period,
            last: Instant::now(),
            status: String::new(),
        }
    }

    /// The daemon serves.
    pub fn ready(&self) {
        tell(&[NotifyState::Ready]);
    }

    /// The daemon ends.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// What `systemctl status` shows.
    pub fn status(&mut self, status: String) {
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    /// Says that the daemon lives, if it is time for that. The main loop calls this, so a loop
    /// that hangs is noticed.
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
    // A manager that does not listen is no reason to stop serving.
    let _ = sd_notify::notify(states);
}
