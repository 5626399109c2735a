//! The configuration: what the administrator decides, read once from a TOML file and again at
//! SIGHUP.
//!
//! Everything has a default, and an absent file is the same as an empty one. A mistake is refused
//! with its place and with what is allowed there; nothing is ignored or rounded. What is printed by
//! `ecallsd --check-config` is a whole configuration file again. What the values are made of
//! (ranges, sizes, rates) is in [`value`], users and groups by name in [`names`].

pub mod names;
pub mod value;

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ecalls_abi::version::{CHANNELS_MAX, SUBSCRIPTIONS_MAX, TIMERS_MAX};
use serde::{Deserialize, Serialize};
use toml::Spanned;

pub use self::names::{Names, Who};
pub use self::value::{Bytes, Count, Endpoint, HandlerTime, Mode, SocketPath};

/// Where the configuration is unless the command line says otherwise.
pub const DEFAULT_PATH: &str = "/etc/ecalls/ecallsd.toml";

/// The longest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Application services of one core.
const SERVICES: u64 = 56;

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where clients connect.
    pub socket: Socket,
    /// What each user may use.
    pub limits: Limits,
    /// What all users together may use.
    pub machine: Machine,
    /// Whether and where counters are served.
    pub metrics: Metrics,
    /// What is told.
    pub log: Log,
    /// What is allowed beyond the default, which is a user's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Allow>,
}

/// `[socket]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Socket {
    /// Its path; not used when systemd hands the socket over.
    pub path: SocketPath,
    /// Its permissions, octal.
    pub mode: Mode,
    /// Its group, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Spanned<Who>>,
}

impl Default for Socket {
    fn default() -> Socket {
        Socket {
            path: SocketPath(PathBuf::from("/run/ecalls/socket")),
            mode: Mode(0o666),
            group: None,
        }
    }
}

/// `[limits]`: what one user may use at the same time, or in each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections to the daemon: about one per process.
    pub connections: Count<1, 1024>,
    /// Channels.
    pub channels: Count<0, { CHANNELS_MAX as u64 }>,
    /// Subscriptions.
    pub subscriptions: Count<0, { SUBSCRIPTIONS_MAX as u64 }>,
    /// Application services.
    pub services: Count<0, SERVICES>,
    /// Timers that are set.
    pub timers: Count<1, { TIMERS_MAX as u64 }>,
    /// Times that its timers are set, or expire again.
    pub timer_expiries_per_s: Count<1, 1_000_000>,
    /// Shared memory of its channels, also what it holds after closing them.
    pub bytes: Bytes,
    /// Descriptors that the daemon holds for it.
    pub descriptors: Count<8, 65536>,
    /// Events that wait in queues.
    pub queued_events: Count<1, 65536>,
    /// Events offered to its subscriptions.
    pub events_up_per_s: Count<1, 100_000_000>,
    /// How many of those at once.
    pub events_up_burst: Count<1, 65536>,
    /// Events that it raises, by calls and by timers.
    pub events_raised_per_s: Count<1, 100_000_000>,
    /// How many of those at once.
    pub events_raised_burst: Count<1, 65536>,
    /// Time of its kernel handlers.
    pub handler_time: HandlerTime,
    /// Requests to the daemon, connecting included.
    pub requests_per_s: Count<1, 1_000_000>,
    /// How many of those at once.
    pub requests_burst: Count<1, 1_000_000>,
    /// Texts in E-code.
    pub uploads_per_s: Count<1, 100_000>,
    /// How many of those at once.
    pub uploads_burst: Count<1, 100_000>,
    /// Time of the daemon for those texts.
    pub upload_time: HandlerTime,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: Count(64),
            channels: Count(64),
            subscriptions: Count(128),
            services: Count(8),
            timers: Count(64),
            timer_expiries_per_s: Count(2000),
            bytes: Bytes(64 << 20),
            descriptors: Count(512),
            queued_events: Count(256),
            events_up_per_s: Count(1_000_000),
            events_up_burst: Count(16384),
            events_raised_per_s: Count(500_000),
            events_raised_burst: Count(16384),
            handler_time: HandlerTime(100_000_000),
            requests_per_s: Count(1000),
            requests_burst: Count(1000),
            uploads_per_s: Count(20),
            uploads_burst: Count(64),
            upload_time: HandlerTime(100_000_000),
        }
    }
}

/// Limits of a rule: those that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are those of Limits")]
pub struct LimitsChange {
    pub connections: Option<Count<1, 1024>>,
    pub channels: Option<Count<0, { CHANNELS_MAX as u64 }>>,
    pub subscriptions: Option<Count<0, { SUBSCRIPTIONS_MAX as u64 }>>,
    pub services: Option<Count<0, SERVICES>>,
    pub timers: Option<Count<1, { TIMERS_MAX as u64 }>>,
    pub timer_expiries_per_s: Option<Count<1, 1_000_000>>,
    pub bytes: Option<Bytes>,
    pub descriptors: Option<Count<8, 65536>>,
    pub queued_events: Option<Count<1, 65536>>,
    pub events_up_per_s: Option<Count<1, 100_000_000>>,
    pub events_up_burst: Option<Count<1, 65536>>,
    pub events_raised_per_s: Option<Count<1, 100_000_000>>,
    pub events_raised_burst: Option<Count<1, 65536>>,
    pub handler_time: Option<HandlerTime>,
    pub requests_per_s: Option<Count<1, 1_000_000>>,
    pub requests_burst: Option<Count<1, 1_000_000>>,
    pub uploads_per_s: Option<Count<1, 100_000>>,
    pub uploads_burst: Option<Count<1, 100_000>>,
    pub upload_time: Option<HandlerTime>,
}

impl LimitsChange {
    /// The limits with what this names put in their place.
    pub fn apply(&self, to: Limits) -> Limits {
        Limits {
            connections: self.connections.unwrap_or(to.connections),
            channels: self.channels.unwrap_or(to.channels),
            subscriptions: self.subscriptions.unwrap_or(to.subscriptions),
            services: self.services.unwrap_or(to.services),
            timers: self.timers.unwrap_or(to.timers),
            timer_expiries_per_s: self.timer_expiries_per_s.unwrap_or(to.timer_expiries_per_s),
            bytes: self.bytes.unwrap_or(to.bytes),
            descriptors: self.descriptors.unwrap_or(to.descriptors),
            queued_events: self.queued_events.unwrap_or(to.queued_events),
            events_up_per_s: self.events_up_per_s.unwrap_or(to.events_up_per_s),
            events_up_burst: self.events_up_burst.unwrap_or(to.events_up_burst),
            events_raised_per_s: self.events_raised_per_s.unwrap_or(to.events_raised_per_s),
            events_raised_burst: self.events_raised_burst.unwrap_or(to.events_raised_burst),
            handler_time: self.handler_time.unwrap_or(to.handler_time),
            requests_per_s: self.requests_per_s.unwrap_or(to.requests_per_s),
            requests_burst: self.requests_burst.unwrap_or(to.requests_burst),
            uploads_per_s: self.uploads_per_s.unwrap_or(to.uploads_per_s),
            uploads_burst: self.uploads_burst.unwrap_or(to.uploads_burst),
            upload_time: self.upload_time.unwrap_or(to.upload_time),
        }
    }
}

/// `[machine]`: what all users together may use. One user gets a share of it ([`crate::quota`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Machine {
    /// Connections to the daemon.
    pub connections: Count<1, 4096>,
    /// Channels.
    pub channels: Count<1, { CHANNELS_MAX as u64 }>,
    /// Subscriptions.
    pub subscriptions: Count<1, { SUBSCRIPTIONS_MAX as u64 }>,
    /// Application services.
    pub services: Count<0, SERVICES>,
    /// Shared memory.
    pub bytes: Bytes,
    /// Descriptors of the daemon.
    pub descriptors: Count<256, 500_000>,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            connections: Count(2048),
            channels: Count(CHANNELS_MAX as u64),
            subscriptions: Count(SUBSCRIPTIONS_MAX as u64),
            services: Count(SERVICES),
            bytes: Bytes(1 << 30),
            descriptors: Count(32768),
        }
    }
}

/// `[metrics]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// "off", a path, or a loopback address with its port.
    pub listen: Endpoint,
}

/// `[log]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// The least urgent messages that are written.
    pub level: Level,
}

/// How much is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What failed.
    Error,
    /// And what an administrator should look at: refusals, throttling.
    Warn,
    /// And when it starts, is reloaded and stops.
    #[default]
    Info,
    /// And each connection.
    Debug,
    /// And each request.
    Trace,
}

/// Whose events a user sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum See {
    /// Those of its own processes and sockets.
    #[default]
    Own,
    /// Everybody's.
    All,
}

/// `[[allow]]`: a rule. It grants and never takes away; limits are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Allow {
    /// For these users,
    pub users: Vec<Spanned<Who>>,
    /// and the members of these groups. Neither: for everybody.
    pub groups: Vec<Spanned<Who>>,
    /// For these services; none: for every service.
    pub services: Vec<String>,
    /// Whose events.
    pub see: See,
    /// May subscribe to application services of other users.
    pub application_services: bool,
    /// May use handlers that read the receiver's memory.
    pub sleeping_handlers: bool,
    /// May load services into the kernel. This is as good as being root.
    pub add_services: bool,
    /// May set the parameters of services, which hold for everybody.
    pub set_parameters: bool,
    /// Limits of these users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Spanned<LimitsChange>>,
}

/// What is wrong with a configuration, and where.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// Something in it has no meaning.
    Text {
        /// Which file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in characters.
        column: usize,
        /// What is wrong, and what is allowed.
        message: String,
        /// The line as it stands there, and how many characters of it are meant.
        source: String,
        /// Characters to mark.
        width: usize,
    },
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read(path, error) => write!(f, "reading {}: {error}", path.display()),
            Error::Text {
                path,
                line,
                column,
                message,
                source,
                width,
            } => {
                writeln!(f, "{}:{line}:{column}: {message}", path.display())?;
                writeln!(f, "{line:5} | {source}")?;
                let (before, marks) = (" ".repeat(column - 1), "^".repeat(*width));
                write!(f, "      | {before}{marks}")
            }
        }
    }
}

impl Config {
    /// Reads the file; that there is none is no error unless it was asked for by name.
    ///
    /// # Errors
    /// What is wrong in it, and where.
    pub fn load(path: &Path, must_exist: bool) -> Result<Config, Error> {
        let text = match read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => String::new(),
            Err(error) => return Err(Error::Read(path.to_owned(), error)),
        };
        Config::parse(&text, path, &Names::of_system())
    }

    /// The configuration that `text` describes. `path` is only told.
    ///
    /// # Errors
    /// What is wrong in it, and where.
    pub fn parse(text: &str, path: &Path, names: &Names) -> Result<Config, Error> {
        let config: Config = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            place(text, path, span, error.message().trim().to_owned())
        })?;
        match config.find_mistake(names) {
            Some((span, message)) => Err(place(text, path, span, message)),
            None => Ok(config),
        }
    }

    /// The whole configuration as a file.
    pub fn to_toml(&self) -> String {
        // Every type here has a form in TOML: numbers fit, and no key is anything but a name.
        toml::to_string(self).unwrap_or_else(|error| format!("# cannot be printed: {error}\n"))
    }

    /// What is not wrong in itself, but with the rest of the file or with this machine.
    fn find_mistake(&self, names: &Names) -> Option<(Range<usize>, String)> {
        if let Some(group) = &self.socket.group
            && names.group(group.as_ref()).is_none()
        {
            return Some((group.span(), unknown("group", group.as_ref())));
        }
        for rule in &self.allow {
            for user in &rule.users {
                if names.user(user.as_ref()).is_none() {
                    return Some((user.span(), unknown("user", user.as_ref())));
                }
            }
            for group in &rule.groups {
                if names.group(group.as_ref()).is_none() {
                    return Some((group.span(), unknown("group", group.as_ref())));
                }
            }
            if let Some(limits) = &rule.limits
                && !rule.services.is_empty()
            {
                let message = "limits are a user's, not a service's: leave out `services`, or \
                               make two rules";
                return Some((limits.span(), message.to_owned()));
            }
        }
        None
    }
}

fn unknown(what: &str, who: &Who) -> String {
    let file = if what == "user" { "passwd" } else { "group" };
    format!("there is no {what} {who} in /etc/{file}: give its number if it is known elsewhere")
}

fn read(path: &Path) -> io::Result<String> {
    let length = fs::metadata(path)?.len();
    if length > FILE_BYTES_MAX {
        let message = format!("{length} bytes; a configuration has at most {FILE_BYTES_MAX}");
        return Err(io::Error::other(message));
    }
    fs::read_to_string(path)
}

/// An error at a span of bytes.
fn place(text: &str, path: &Path, span: Range<usize>, message: String) -> Error {
    let start = floor(text, span.start);
    let end = floor(text, span.end).max(start);
    let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let finish = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let marked = text[start..end.min(finish).max(start)].chars().count();
    Error::Text {
        path: path.to_owned(),
        line: text[..start].matches('\n').count() + 1,
        column: text[begin..start].chars().count() + 1,
        // Lines of the parser's message become one.
        message: message
            .lines()
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(": "),
        source: text[begin..finish].trim_end().replace('\t', " "),
        width: marked.max(1),
    }
}

/// The largest boundary of characters that is not above `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
