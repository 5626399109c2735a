//! The daemon's log: lines on standard error, for a terminal or for the journal.
//!
//! Under systemd each line begins with `<N>`, from which the journal takes its priority, and has no
//! time, because the journal adds it. Lines that a client can cause pass through a [`Limiter`]: a
//! number of lines per key and period, and then the number of omitted ones. So a client cannot fill
//! a disk.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::io;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::{Layer, Registry, layer::SubscriberExt};

use crate::config;

/// Keys that a [`Limiter`] remembers; further ones share one entry.
const KEYS_MAX: usize = 1024;

/// How a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// With the journal's priority.
    Journal,
    /// With the time and the level's name.
    Terminal,
}

impl Style {
    /// The journal announces itself in the environment by the file from which it reads.
    fn of_environment() -> Style {
        let stderr = rustix::fs::fstat(io::stderr().as_fd());
        let here = stderr.map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
        match (std::env::var("JOURNAL_STREAM"), here) {
            (Ok(stream), Ok(here)) if stream == here => Style::Journal,
            _ => Style::Terminal,
        }
    }
}

/// Changes the log's level while the daemon runs.
#[derive(Clone, Debug)]
pub struct Handle(reload::Handle<LevelFilter, Registry>);

impl Handle {
    /// The least urgent level that is written from now on.
    pub fn set_level(&self, level: config::Level) {
        // The other end lives as long as the process.
        let _ = self.0.modify(|filter| *filter = filter_of(level));
    }
}

/// Starts the log; once per process.
pub fn start(level: config::Level) -> Handle {
    let (filter, handle) = reload::Layer::new(filter_of(level));
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Lines(Style::of_environment()))
        .with_writer(io::stderr);
    // A second start, in a test, has no effect.
    let _ = tracing::subscriber::set_global_default(
        Registry::default().with(lines.with_filter(filter)),
    );
    Handle(handle)
}

fn filter_of(level: config::Level) -> LevelFilter {
    match level {
        config::Level::Error => LevelFilter::ERROR,
        config::Level::Warn => LevelFilter::WARN,
        config::Level::Info => LevelFilter::INFO,
        config::Level::Debug => LevelFilter::DEBUG,
        config::Level::Trace => LevelFilter::TRACE,
    }
}

/// The format of a line.
#[derive(Debug)]
struct Lines(Style);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = Text::default();
        event.record(&mut text);
        write_line(&mut writer, self.0, *event.metadata().level(), &text, now())
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

fn write_line(
    writer: &mut impl fmt::Write,
    style: Style,
    level: Level,
    text: &Text,
    seconds: u64,
) -> fmt::Result {
    match style {
        Style::Journal => write!(writer, "<{}>", priority(level))?,
        Style::Terminal => {
            let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
            write!(writer, "{h:02}:{m:02}:{s:02}Z {level} ")?;
        }
    }
    // One event is one line, whatever bytes a client has put into it.
    for part in [&text.message, &text.fields] {
        for character in part.chars() {
            match character {
                c if c.is_control() => write!(writer, "{}", c.escape_default())?,
                c => writer.write_char(c)?,
            }
        }
    }
    writeln!(writer)
}

/// Priorities of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// An event's message, and its fields as " name=value".
#[derive(Debug, Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields
                .push_str(&format!(" {}={value:?}", field.name()));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.fields.push_str(&format!(" {}={value}", field.name()));
        }
    }
}

/// Lets a number of lines per key pass in each period.
#[derive(Debug)]
pub struct Limiter<K> {
    keys: HashMap<K, Seen>,
    most: u32,
    period_ns: u64,
    swept_ns: u64,
}

#[derive(Debug, Default)]
struct Seen {
    since_ns: u64,
    written: u32,
    left_out: u64,
}

impl<K: Eq + Hash> Limiter<K> {
    /// `most` lines of each key in `period_ns`.
    pub fn new(most: u32, period_ns: u64) -> Limiter<K> {
        Limiter {
            keys: HashMap::new(),
            most,
            period_ns,
            swept_ns: 0,
        }
    }

    /// Whether to write a line for `key` now; if so, the number of lines omitted before it.
    pub fn admit(&mut self, key: K, now_ns: u64) -> Option<u64> {
        if now_ns.saturating_sub(self.swept_ns) >= self.period_ns {
            let period_ns = self.period_ns;
            self.keys.retain(|_, seen| {
                seen.left_out > 0 || now_ns.saturating_sub(seen.since_ns) < period_ns
            });
            self.swept_ns = now_ns;
        }
        if self.keys.len() >= KEYS_MAX && !self.keys.contains_key(&key) {
            return None;
        }
        let seen = self.keys.entry(key).or_default();
        if now_ns.saturating_sub(seen.since_ns) >= self.period_ns {
            seen.since_ns = now_ns;
            seen.written = 0;
        }
        if seen.written >= self.most {
            seen.left_out += 1;
            return None;
        }
        seen.written += 1;
        Some(std::mem::take(&mut seen.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(style: Style, message: &str) -> String {
        let text = Text {
            message: message.to_owned(),
            fields: " uid=7".to_owned(),
        };
        let mut line = String::new();
        write_line(&mut line, style, Level::WARN, &text, 3661).unwrap();
        line
    }

    #[test]
    fn the_journal_gets_a_priority_and_a_terminal_the_time() {
        assert_eq!(line(Style::Journal, "refused"), "<4>refused uid=7\n");
        assert_eq!(
            line(Style::Terminal, "refused"),
            "01:01:01Z WARN refused uid=7\n"
        );
    }

    #[test]
    fn nothing_that_a_client_says_makes_a_second_line() {
        let line = line(Style::Journal, "name \"a\n<0>panic\u{1b}[2J\"");
        assert_eq!(line, "<4>name \"a\\n<0>panic\\u{1b}[2J\" uid=7\n");
    }

    #[test]
    fn what_is_left_out_is_counted_and_told_with_the_next_line() {
        let mut limiter = Limiter::new(2, 1000);
        assert_eq!(limiter.admit(1, 5000), Some(0));
        assert_eq!(limiter.admit(1, 5001), Some(0));
        assert_eq!(limiter.admit(1, 5002), None);
        assert_eq!(limiter.admit(2, 5002), Some(0));
        assert_eq!(limiter.admit(1, 5999), None);
        assert_eq!(limiter.admit(1, 6000), Some(2));
    }

    #[test]
    fn many_keys_take_a_bounded_place() {
        let mut limiter = Limiter::new(1, 1000);
        for key in 0..100_000 {
            limiter.admit(key, 5000);
        }
        assert!(limiter.keys.len() <= KEYS_MAX);
        assert_eq!(limiter.admit(1_000_000, 7000), Some(0));
    }
}
