//! The configuration: what the administrator decides, read once from a TOML file and again at
//! SIGHUP.
//!
//! Everything has a default, and a missing file is equivalent to an empty one. A mistake is refused
//! with its place and with what is permitted there; nothing is ignored or rounded. The output of
//! `ecallsd --check-config` is itself a complete configuration file. The types of the values
//! (ranges, sizes, rates) are in [`value`], users and groups by name in [`names`].

pub mod names;
pub mod value;

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ecalls_abi::message::SOCKET_PATH;
use ecalls_abi::version::{CHANNELS_MAX, SUBSCRIPTIONS_MAX, TIMERS_MAX};
use serde::{Deserialize, Serialize};
use toml::Spanned;

pub use self::names::{Names, Who};
pub use self::value::{Bytes, Count, Endpoint, HandlerTime, Mode, SocketPath};

/// The default path of the file.
pub const DEFAULT_PATH: &str = "/etc/ecalls/ecallsd.toml";

/// The longest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Application services of one core.
const SERVICES: u64 = 56;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub socket: Socket,
    /// The limits of each user.
    pub limits: Limits,
    /// The limits of all users together.
    pub machine: Machine,
    /// Whether and where counters are served.
    pub metrics: Metrics,
    /// Which messages are logged.
    pub log: Log,
    /// Rights beyond the default, by which users have access only to what is their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Allow>,
}

/// `[socket]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Socket {
    /// The socket's path; not used when systemd passes the socket.
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
            path: SocketPath(socket_path()),
            mode: Mode(0o666),
            group: None,
        }
    }
}

/// The instance's. A name that is not possible is refused when the core is loaded.
fn socket_path() -> PathBuf {
    ecalls_kernel::socket_path().map_or_else(|_| SOCKET_PATH.into(), Path::to_owned)
}

/// Declares [`Limits`] and [`LimitsChange`] from one row per limit: its name, the permitted values,
/// and the default.
macro_rules! limits {
    ($($(#[$doc:meta])+ $name:ident: $values:ty = $default:expr;)+) => {
        /// `[limits]`: what one user may use at the same time, or in each second.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Limits {
            $($(#[$doc])+ pub $name: $values,)+
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: $default,)+ }
            }
        }

        /// The limits of a rule: those that it names.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct LimitsChange {
            $($(#[$doc])+ pub $name: Option<$values>,)+
        }

        impl LimitsChange {
            /// `to` with the limits that this rule sets.
            pub fn apply(&self, to: Limits) -> Limits {
                Limits { $($name: self.$name.unwrap_or(to.$name),)+ }
            }
        }
    };
}

limits! {
    /// Connections to the daemon: about one per process.
    connections: Count<1, 1024> = Count(64);
    /// Channels.
    channels: Count<0, { CHANNELS_MAX as u64 }> = Count(64);
    /// Subscriptions.
    subscriptions: Count<0, { SUBSCRIPTIONS_MAX as u64 }> = Count(128);
    /// Application services.
    services: Count<0, SERVICES> = Count(8);
    /// Timers that are set.
    timers: Count<1, { TIMERS_MAX as u64 }> = Count(64);
    /// Times that its timers are set, or expire again.
    timer_expiries_per_s: Count<1, 1_000_000> = Count(2000);
    /// Shared memory of its channels, also what it holds after closing them.
    bytes: Bytes = Bytes(64 << 20);
    /// Descriptors that the daemon holds for it.
    descriptors: Count<8, 65536> = Count(512);
    /// Events that wait in queues.
    queued_events: Count<1, 65536> = Count(256);
    /// Events offered to its subscriptions.
    events_up_per_s: Count<1, 100_000_000> = Count(1_000_000);
    /// How many of those at once.
    events_up_burst: Count<1, 65536> = Count(16384);
    /// Events that it raises, by calls and by timers.
    events_raised_per_s: Count<1, 100_000_000> = Count(500_000);
    /// How many of those at once.
    events_raised_burst: Count<1, 65536> = Count(16384);
    /// Time of its kernel handlers.
    handler_time: HandlerTime = HandlerTime(100_000_000);
    /// Requests to the daemon, connecting included.
    requests_per_s: Count<1, 1_000_000> = Count(1000);
    /// How many of those at once.
    requests_burst: Count<1, 1_000_000> = Count(1000);
    /// Texts in E-code.
    uploads_per_s: Count<1, 100_000> = Count(20);
    /// How many of those at once.
    uploads_burst: Count<1, 100_000> = Count(64);
    /// Time of the daemon for those texts.
    upload_time: HandlerTime = HandlerTime(100_000_000);
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

/// The levels of log messages; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Failures.
    Error,
    /// Events that an administrator should look at: refusals, throttling.
    Warn,
    /// Start, reload and stop.
    #[default]
    Info,
    /// Each connection.
    Debug,
    /// Each request.
    Trace,
}

/// Whose events a user sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum See {
    /// Events of its own processes and sockets.
    #[default]
    Own,
    /// Events of all users.
    All,
}

/// `[[allow]]`: a rule. It grants and never takes away; limits are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Allow {
    /// The users that the rule is for,
    pub users: Vec<Spanned<Who>>,
    /// and the groups. Neither: it is for everybody.
    pub groups: Vec<Spanned<Who>>,
    /// The services that it is for; none: every service.
    pub services: Vec<String>,
    /// The events that these users see.
    pub see: See,
    /// May subscribe to application services of other users.
    pub application_services: bool,
    /// May send events to the other hosts of the channels that `services` names.
    pub publish: bool,
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

/// An error in a configuration, and its place.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// Something in it is invalid.
    Text {
        /// Which file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in characters.
        column: usize,
        /// The error, and what is permitted.
        message: String,
        /// The line's text.
        source: String,
        /// The number of characters to mark.
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
    /// Reads the file. A missing file is an error only if its path was given explicitly.
    ///
    /// # Errors
    /// Errors in it, with their places.
    pub fn load(path: &Path, must_exist: bool) -> Result<Config, Error> {
        let text = match read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => String::new(),
            Err(error) => return Err(Error::Read(path.to_owned(), error)),
        };
        Config::parse(&text, path, &Names::of_system())
    }

    /// The configuration that `text` describes. `path` appears in messages only.
    ///
    /// # Errors
    /// Errors in it, with their places.
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

    /// Checks values against each other and against this machine.
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
