//! The scheduler's options, as its starter gives them, and as the kernel side reads them (`setting`
//! of bpf/sched/state.h).

use std::time::Duration;

use ecalls_abi::coop::WINDOW_WHOLE;

/// Words of `setting`.
const WORDS: usize = 9;

/// The options of the scheduler's decisions (Coop §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time in which each runnable thread of a CPU runs once.
    pub period: Duration,
    /// The shortest time slice.
    pub slice_min: Duration,
    /// Time by which a cooperative thread may overrun its slice (the paper's `coop_slack`).
    pub slack: Duration,
    /// CPU time that a cooperative thread may use beyond its fair share to run at its release
    /// times.
    pub ahead: Duration,
    /// Part of each CPU that windows leave to other threads.
    pub reserve_percent: u32,
    /// Order in which windows are served.
    pub windows: WindowOrder,
    /// Service time of the task server (ECalls-05 §4.2) per period, in [`WindowOrder::Dwcs`]; zero:
    /// no task server.
    pub server: Duration,
    /// The kernel ends the scheduler if a thread waits for so long; at most 30 s. A thread that has
    /// waited for a third of that has a turn, whatever its share is.
    pub watchdog: Duration,
}

/// The order in which windows are served (ECalls-05 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowOrder {
    /// Dynamic window-constrained scheduling as published: gives guarantees only for windows with
    /// equal parameters.
    Dwcs,
    /// Serves a window that may miss x of y periods in evenly spaced ones: gives guarantees for
    /// windows with different parameters, too.
    Spread,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            period: Duration::from_millis(20),
            slice_min: Duration::from_micros(100),
            slack: Duration::from_millis(1),
            ahead: Duration::from_millis(20),
            reserve_percent: 5,
            windows: WindowOrder::Spread,
            server: Duration::ZERO,
            watchdog: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// `setting` of bpf/sched/state.h.
    pub(super) fn words(&self, cpus: u32) -> [u64; WORDS] {
        [
            u64::from(cpus),
            nanoseconds(self.period),
            nanoseconds(self.slice_min),
            nanoseconds(self.slack),
            nanoseconds(self.ahead),
            // Rounded down, so that a window that needs exactly the rest is promised.
            u64::from(self.reserve_percent.min(100)) * WINDOW_WHOLE / 100,
            nanoseconds(self.server),
            match self.windows {
                WindowOrder::Dwcs => 0,
                WindowOrder::Spread => 1,
            },
            nanoseconds(self.watchdog),
        ]
    }

    /// `timeout_ms` of the kernel's table of a scheduler.
    pub(super) fn timeout_ms(&self) -> u32 {
        u32::try_from(self.watchdog.as_millis()).unwrap_or(u32::MAX)
    }

    /// The options from `setting`. `None`: it is of another version.
    pub(super) fn from_words(bytes: &[u8]) -> Option<Options> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: [[u8; 8]; WORDS] = words.try_into().ok().filter(|_| rest.is_empty())?;
        let [
            _,
            period,
            slice_min,
            slack,
            ahead,
            reserve,
            server,
            order,
            watchdog,
        ] = words.map(u64::from_ne_bytes);
        Some(Options {
            period: Duration::from_nanos(period),
            slice_min: Duration::from_nanos(slice_min),
            slack: Duration::from_nanos(slack),
            ahead: Duration::from_nanos(ahead),
            reserve_percent: u32::try_from((reserve * 100).div_ceil(WINDOW_WHOLE)).ok()?,
            windows: match order {
                0 => WindowOrder::Dwcs,
                _ => WindowOrder::Spread,
            },
            server: Duration::from_nanos(server),
            watchdog: Duration::from_nanos(watchdog),
        })
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_read_back_as_they_were() {
        for reserve_percent in 0..=100 {
            let options = Options {
                reserve_percent,
                windows: WindowOrder::Dwcs,
                server: Duration::from_micros(250),
                watchdog: Duration::from_secs(5),
                ..Options::default()
            };
            let bytes: Vec<u8> = options
                .words(4)
                .into_iter()
                .flat_map(u64::to_ne_bytes)
                .collect();
            assert_eq!(Options::from_words(&bytes), Some(options));
            assert_eq!(Options::from_words(&bytes[8..]), None);
        }
    }
}
