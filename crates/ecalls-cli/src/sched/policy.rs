//! The policy options of `start` and `try`, and the line that shows them.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use ecalls_kernel::scheduler::{Options, WindowOrder};
use serde::Serialize;

use crate::duration::{parse, parse_positive, show_ns};
use crate::exit::Failure;

/// Bounds of the times. With shorter ones a CPU would spend its time on decisions; with longer ones
/// threads would wait for so long that the kernel ends the scheduler.
const PERIOD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));
const SLICE_LEAST: Duration = Duration::from_micros(10);
const SLACK: (Duration, Duration) = (Duration::from_micros(1), Duration::from_millis(100));
const AHEAD: (Duration, Duration) = (Duration::from_micros(1), Duration::from_secs(1));
/// The most is the kernel's own bound.
const WATCHDOG: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(30));

/// The order in which windows are served.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// Serve a window that may miss X of Y periods in evenly spaced ones; gives guarantees for
    /// windows with different parameters, too
    Spread,
    /// Dynamic window-constrained scheduling as published; gives guarantees only for windows with
    /// equal parameters
    Dwcs,
}

impl Policy {
    /// The name on the command line and in the output.
    fn name(self) -> String {
        let value = self.to_possible_value().expect("none is hidden");
        value.get_name().to_owned()
    }
}

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Order in which windows are served
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Policy::Spread)]
    policy: Policy,
    /// With --policy dwcs: service time per period of the task server, by which events get CPU time
    /// beside windows; windows then have no guarantee. 0s: no task server
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse)]
    server: Duration,
    /// Part of each CPU that windows leave to other threads, in percent
    #[arg(long, value_name = "PERCENT", default_value = "5",
          value_parser = clap::value_parser!(u32).range(0..=100))]
    reserve: u32,
    /// Time in which each runnable thread of a CPU runs once; 1ms to 1s
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_positive)]
    period: Duration,
    /// Shortest time slice; 10us to the period
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse_positive)]
    slice_min: Duration,
    /// Time by which a cooperative thread may overrun its slice; at most 100ms
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_positive)]
    slack: Duration,
    /// CPU time that a cooperative thread may use beyond its fair share to run at its release
    /// times; at most 1s
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_positive)]
    ahead: Duration,
    /// The kernel takes all threads back if one waits for so long; 3s to 30s. Ours gives a thread a
    /// turn after a third of that
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_positive)]
    watchdog: Duration,
}

impl Args {
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let windows = match self.policy {
            Policy::Spread => WindowOrder::Spread,
            Policy::Dwcs => WindowOrder::Dwcs,
        };
        if windows == WindowOrder::Spread && !self.server.is_zero() {
            return Err(Failure::usage(
                "--server needs --policy dwcs: with --policy spread, events use CPU time that no \
                 window claims",
            ));
        }
        for (option, time, (least, most)) in [
            ("--period", self.period, PERIOD),
            ("--slice-min", self.slice_min, (SLICE_LEAST, self.period)),
            ("--slack", self.slack, SLACK),
            ("--ahead", self.ahead, AHEAD),
            ("--watchdog", self.watchdog, WATCHDOG),
        ] {
            if time < least || time > most {
                let [least, most, time] = [least, most, time].map(show);
                let message = format!("{option} {time} is out of range: {least} to {most}");
                return Err(Failure::usage(message));
            }
        }
        Ok(Options {
            period: self.period,
            slice_min: self.slice_min,
            slack: self.slack,
            ahead: self.ahead,
            reserve_percent: self.reserve,
            windows,
            server: self.server,
            watchdog: self.watchdog,
        })
    }
}

/// The options as `ecalls sched status` shows them.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    policy: String,
    server_us: u64,
    reserve_percent: u32,
    period_us: u64,
    slice_min_us: u64,
    slack_us: u64,
    ahead_us: u64,
    watchdog_us: u64,
}

impl From<Options> for Shown {
    fn from(options: Options) -> Shown {
        let policy = match options.windows {
            WindowOrder::Spread => Policy::Spread,
            WindowOrder::Dwcs => Policy::Dwcs,
        };
        Shown {
            policy: policy.name(),
            server_us: microseconds(options.server),
            reserve_percent: options.reserve_percent,
            period_us: microseconds(options.period),
            slice_min_us: microseconds(options.slice_min),
            slack_us: microseconds(options.slack),
            ahead_us: microseconds(options.ahead),
            watchdog_us: microseconds(options.watchdog),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |us: u64| show_ns(us.saturating_mul(1000));
        write!(f, "policy    {}, ", self.policy)?;
        if self.server_us > 0 {
            write!(f, "server {}, ", show(self.server_us))?;
        }
        write!(
            f,
            "reserve {} %, period {}, slice {} at least, slack {}, ahead {}, watchdog {}",
            self.reserve_percent,
            show(self.period_us),
            show(self.slice_min_us),
            show(self.slack_us),
            show(self.ahead_us),
            show(self.watchdog_us),
        )
    }
}

fn show(time: Duration) -> String {
    show_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn shown(arguments: &[&str]) -> Result<String, String> {
        let words = [&["start"], arguments].concat();
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        let options = command.args.options();
        let options = options.map_err(|failure| format!("{failure:?}"))?;
        Ok(Shown::from(options).to_string())
    }

    #[test]
    fn what_is_not_said_is_usual() {
        let command = Command::try_parse_from(["start"]).expect("nothing is required");
        assert_eq!(command.args.options().ok(), Some(Options::default()));
    }

    #[test]
    fn what_was_chosen_is_shown() {
        let text = shown(&["--policy", "dwcs", "--server", "250us", "--reserve", "10"]);
        let expected = "policy    dwcs, server 250us, reserve 10 %, period 20.0ms, \
                        slice 100us at least, slack 1.00ms, ahead 20.0ms, watchdog 30.0s";
        assert_eq!(text.as_deref(), Ok(expected));
    }

    #[test]
    fn times_that_nobody_means_are_refused() {
        for (option, time) in [
            ("--period", "1us"),
            ("--period", "1h"),
            ("--slice-min", "1us"),
            ("--slice-min", "21ms"),
            ("--slack", "1s"),
            ("--ahead", "1m"),
            ("--watchdog", "2s"),
            ("--watchdog", "31s"),
        ] {
            let error = shown(&[option, time]).expect_err("refused");
            assert!(error.contains(option), "{error}");
        }
        assert!(shown(&["--period", "1ms", "--slice-min", "1ms"]).is_ok());
    }

    #[test]
    fn a_server_needs_the_order_that_has_one() {
        let error = shown(&["--server", "1ms"]).expect_err("refused");
        assert!(error.contains("--policy dwcs"), "{error}");
        let error = shown(&["--reserve", "101"]).expect_err("refused");
        assert!(error.contains("101"), "{error}");
    }
}
