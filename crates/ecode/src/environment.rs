//! The names that a program can use besides its own, and the requests that it may make. They are
//! all that the compiler knows about where the program will run.

use crate::tree::Builtin;

/// Where a program is to run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The format of the event's data ([`crate::data_format`]). `None`: the text declares its own
    /// `struct input`, or has none.
    pub input: Option<String>,
    /// Names of the service's kinds in order: constants, compared with `event.kind`.
    pub kinds: Vec<String>,
    /// Names of the channel's attributes, in order of their numbers.
    pub attributes: Vec<String>,
    /// Names of the sinks' attributes; `None`: there are no sinks here.
    pub sinks: Option<Vec<String>>,
    /// Services that may be raised: name and index.
    pub services: Vec<(String, u32)>,
    /// Constants (`NUM_RESOURCES`), of type `int` or, if too large, `long`.
    pub constants: Vec<(String, i64)>,
    /// Requests that the subscription has no right to.
    pub denied: Vec<Denied>,
    /// Whether the text is a service: it begins with the service's head, and its result decides
    /// whether an event is raised.
    pub service: bool,
    /// Fields that the input would have if they could be read: name, and why they cannot.
    pub unreadable: Vec<(String, String)>,
    /// Bytes that `output` may have, if it is to take the place of an event's data.
    pub output_most: Option<u32>,
    /// The result of a run that returns none; `None`: 1, after which the chain goes on.
    pub unsaid: Option<i64>,
    /// Hints for names that do not exist here.
    pub naming: Naming,
}

#[derive(Clone, Copy, Debug)]
pub struct Naming {
    /// Attributes of the channel.
    pub attributes: &'static str,
    /// Sinks and their attributes.
    pub sinks: &'static str,
    /// Services whose events can be raised.
    pub services: &'static str,
    /// Fields of the event's data, where no service is named; empty: no hint.
    pub input: &'static str,
}

impl Default for Naming {
    fn default() -> Naming {
        Naming {
            attributes: "whoever subscribes names the attributes of its channel",
            sinks: "only the filters of channels choose among sinks",
            services: "a text raises events of services that applications have registered",
            input: "",
        }
    }
}

/// A request that the subscription may not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The built-in; a number in it is ignored.
    pub builtin: Builtin,
    /// The reason, for the message: "signals need ...".
    pub reason: &'static str,
}

/// Constants of the kernel that occur in events, by their names in C. A declaration of the text
/// with the same name has priority.
pub const NUMBERS: &[(&str, i64)] = &[
    ("AF_UNIX", 1),
    ("AF_INET", 2),
    ("AF_INET6", 10),
    ("IPPROTO_TCP", 6),
    ("IPPROTO_UDP", 17),
    ("TCP_ESTABLISHED", 1),
    ("TCP_SYN_SENT", 2),
    ("TCP_SYN_RECV", 3),
    ("TCP_FIN_WAIT1", 4),
    ("TCP_FIN_WAIT2", 5),
    ("TCP_TIME_WAIT", 6),
    ("TCP_CLOSE", 7),
    ("TCP_CLOSE_WAIT", 8),
    ("TCP_LAST_ACK", 9),
    ("TCP_LISTEN", 10),
    ("TCP_CLOSING", 11),
];
