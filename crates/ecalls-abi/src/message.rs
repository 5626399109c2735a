//! `abi/message.h`: the messages between an application and the daemon.
//!
//! [`Request`] and [`Answer`] are whole messages; [`Request::parse`] and [`Answer::parse`] check
//! the form of an untrusted packet: version, kind, exact size. The values in it are checked by the
//! code that uses them. [`Packet`] is the conversion to bytes.

use core::fmt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::channel::Channel;
use crate::ecode::HANDLER_ECODE;
pub use crate::fate::{
    FATE_DROPPED, FATE_FILTERED, FATE_FILTERED_FOR, FATE_LATE, STAGE_CHAIN, STAGE_OFFER,
    STAGE_QUEUE, STAGE_RAISE, STAGE_TIMER,
};
use crate::service::{ServiceCount, ServiceInfo, SubscriptionCount};
use crate::subscription::{ACTION_HANDLER, ACTION_THREAD, Action, Subscription};
use crate::text;
use crate::version::{ACTIONS_MAX, NAME_MAX};

/// Path of the daemon's socket.
pub const SOCKET_PATH: &str = "/run/ecalls/socket";
/// Version of the messages.
pub const MESSAGE_VERSION: u32 = 1;
/// Bytes of the largest message.
pub const MESSAGE_MAX: usize = 2048;
/// The most descriptors of one message.
pub const MESSAGE_DESCRIPTORS: usize = 4;
/// The kinds of requests are below this number.
pub const MESSAGE_REQUESTS: u32 = 21;

/// `struct ecalls_message`: the header of every packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Message {
    /// [`MESSAGE_VERSION`].
    pub version: u32,
    /// `MESSAGE_*`.
    pub kind: u32,
    /// Chosen by the application; the answer has the same.
    pub serial: u32,
    /// Bytes of the whole message, this header included.
    pub size: u32,
}

/// Bytes of the header.
const HEADER: usize = size_of::<Message>();

/// `struct ecalls_hello`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Hello {
    /// `ABI_VERSION` of the application's library.
    pub abi_version: u32,
    /// 0.
    pub pad: u32,
}

/// `struct ecalls_number`: an id, an index, or the first index of a search.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Number {
    /// The number.
    pub number: u32,
    /// 0.
    pub pad: u32,
}

/// `struct ecalls_name`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Name {
    /// As a C text.
    pub name: [u8; NAME_MAX],
}

/// `struct ecalls_open_channel`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OpenChannel {
    /// `LAYOUT_*` of [`crate::channel`].
    pub layout: u32,
    /// Entries of a ring, or slots.
    pub capacity: u32,
    /// `SLOT_*` of [`crate::channel`].
    pub slot_use: u32,
    /// `DEFER_*` of [`crate::downcall`].
    pub defer: u32,
    /// With `DEFER_DELAY`: the longest time that calls wait.
    pub delay_ns: u64,
    /// Entries of a slot, see [`crate::event::entries`]; 0 counts as 1. Ring: 1.
    pub width: u32,
    /// Zero.
    pub pad: u32,
}

/// [`Subscribe::flags`]: what is not read stands for further events.
pub const SUBSCRIBE_COALESCE: u32 = 0x1;

/// `struct ecalls_subscribe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Subscribe {
    /// Index of the service.
    pub service: u32,
    /// Process that receives; 0: the caller.
    pub receiver: u32,
    /// Bit k: wants kind k; 0: all.
    pub kinds: u32,
    /// 0, or only events raised in this process.
    pub pid: u32,
    /// Relative; 0: none.
    pub deadline_ns: u64,
    /// Channel that counts undelivered events; 0: none.
    pub channel: u32,
    /// Entries of `action` in use.
    pub actions: u32,
    /// [`SUBSCRIBE_COALESCE`].
    pub flags: u32,
    /// Zero.
    pub pad: u32,
    /// The actions, in order.
    pub action: [Action; ACTIONS_MAX],
}

impl Subscribe {
    /// The indices of its actions that are handlers in E-code: each needs an
    /// [`crate::upload::Upload`].
    pub fn uploads(&self) -> impl Iterator<Item = usize> {
        let count = usize::try_from(self.actions).unwrap_or(usize::MAX);
        let actions = self.action.iter().take(count).enumerate();
        actions
            .filter(|(_, action)| {
                matches!(action.kind, ACTION_HANDLER | ACTION_THREAD)
                    && action.handler == HANDLER_ECODE
            })
            .map(|(at, _)| at)
    }
}

/// `struct ecalls_replace_handler`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ReplaceHandler {
    /// Id.
    pub subscription: u32,
    /// Index of the action.
    pub action: u32,
}

/// `flags` of [`WatchSocket`]: an existing registration is not changed.
pub const WATCH_IF_ABSENT: u32 = 0x1;

/// `struct ecalls_watch_socket`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct WatchSocket {
    /// The caller's own process, or `TARGET_*` of [`crate::event`].
    pub target: i32,
    /// The typed slot of its events.
    pub r#type: u32,
    /// Bit k: raise kind k.
    pub kinds: u32,
    /// 1: accepted connections are registered too.
    pub inherit: u32,
    /// Relative; 0: none.
    pub deadline_ns: u64,
    /// [`WATCH_IF_ABSENT`].
    pub flags: u32,
    /// 0.
    pub pad: u32,
}

/// `struct ecalls_set_parameter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SetParameter {
    /// Index of the service.
    pub service: u32,
    /// 0.
    pub pad: u32,
    /// Its new parameter.
    pub value: u64,
}

/// `struct ecalls_look_fate`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LookFate {
    /// Id of an event; 0: of any.
    pub event: u64,
    /// Only fates before this time; 0: the newest.
    pub older_ns: u64,
}

/// `struct ecalls_done`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Done {
    /// The value that the request's kind defines.
    pub value: u64,
}

/// `struct ecalls_welcome`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Welcome {
    /// `ABI_VERSION` of the core.
    pub abi_version: u32,
    /// The caller's process id in the kernel's initial namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// CPUs for which the queues were made.
    pub cpus: u32,
    /// The daemon's process.
    pub daemon: u32,
    /// Indices of services are below this.
    pub services: u32,
    /// When the core was loaded.
    pub start_ns: u64,
    /// The mechanism of the fast call, as a C text.
    pub mechanism: [u8; NAME_MAX],
}

/// `error` of [`Refused`]: `subject` is what the kernel lacks, `text` what provides it.
pub const REFUSED_UNSUPPORTED: u32 = 1;
/// `subject` is the action, `text` the privilege that it needs.
pub const REFUSED_DENIED: u32 = 2;
/// `subject` is the limit, `number` its value.
pub const REFUSED_LIMIT: u32 = 3;
/// `subject` is the kind of object, `given` its name, `text` a hint.
pub const REFUSED_UNKNOWN: u32 = 4;
/// `subject` is the argument, `given` its value, `text` the valid values.
pub const REFUSED_INVALID: u32 = 5;
/// `subject` is the object that is gone.
pub const REFUSED_CLOSED: u32 = 6;
/// `number` is the daemon's version of the contract.
pub const REFUSED_VERSION: u32 = 7;
/// `subject` is the operation, `number` the errno.
pub const REFUSED_OS: u32 = 8;
/// `subject` is the user's quota, `number` its value.
pub const REFUSED_QUOTA: u32 = 9;
/// `text` has the errors of a text in E-code.
pub const REFUSED_ECODE: u32 = 10;

/// `struct ecalls_refused`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Refused {
    /// `REFUSED_*`.
    pub error: u32,
    /// 0.
    pub pad: u32,
    /// As `error` says.
    pub number: u64,
    /// As `error` says.
    pub subject: [u8; 96],
    /// As `error` says.
    pub given: [u8; 64],
    /// As `error` says.
    pub text: [u8; 256],
}

impl Refused {
    /// A refusal; texts that are too long are cut at a character boundary.
    pub fn new(error: u32, number: u64, subject: &str, given: &str, text: &str) -> Refused {
        let mut refused = Refused {
            error,
            number,
            ..Refused::default()
        };
        for (place, whole) in [
            (&mut refused.subject[..], subject),
            (&mut refused.given[..], given),
            (&mut refused.text[..], text),
        ] {
            let whole = whole.split('\0').next().unwrap_or("");
            let most = place.len() - 1;
            let end = (0..=most.min(whole.len()))
                .rev()
                .find(|at| whole.is_char_boundary(*at))
                .unwrap_or(0);
            place[..end].copy_from_slice(&whole.as_bytes()[..end]);
        }
        refused
    }

    /// `subject` as text.
    pub fn subject(&self) -> &str {
        text::read(&self.subject)
    }

    /// `given` as text.
    pub fn given(&self) -> &str {
        text::read(&self.given)
    }

    /// `text` as text.
    pub fn text(&self) -> &str {
        text::read(&self.text)
    }
}

/// `struct ecalls_service_view`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ServiceView {
    /// Its index.
    pub index: u32,
    /// Process of an application service; 0: built in; [`OWNER_UNTOLD`]: another user's, whose
    /// process and counters are not shown.
    pub owner: u32,
    /// Number of its subscriptions.
    pub subscriptions: u32,
    /// 1: its programs are attached.
    pub attached: u32,
    /// As [`crate::Service`] says.
    pub parameter: u64,
    /// Name, format, kinds.
    pub info: ServiceInfo,
    /// Sum over CPUs.
    pub count: ServiceCount,
    /// Runs of its programs that the kernel skipped.
    pub skipped: u64,
}

/// `struct ecalls_subscription_view`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SubscriptionView {
    /// The index with which to continue.
    pub next: u32,
    /// 0.
    pub pad: u32,
    /// The row.
    pub row: Subscription,
    /// Sum over CPUs.
    pub count: SubscriptionCount,
}

/// `struct ecalls_channel_view`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ChannelView {
    /// The index with which to continue.
    pub next: u32,
    /// 0.
    pub pad: u32,
    /// The row.
    pub row: Channel,
}

/// `struct ecalls_queue_view`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct QueueView {
    /// The index with which to continue.
    pub next: u32,
    /// A CPU; then the kernel threads; then waiting signals.
    pub owner: u32,
    /// Events that wait for delivery.
    pub ready: u32,
    /// Events that wait for their release time.
    pub held: u32,
}

/// Owner of a service of which the caller may only know that it exists.
pub const OWNER_UNTOLD: u32 = u32::MAX;

/// Connections to the daemon.
pub const QUOTA_CONNECTIONS: usize = 0;
/// Channels.
pub const QUOTA_CHANNELS: usize = 1;
/// Subscriptions.
pub const QUOTA_SUBSCRIPTIONS: usize = 2;
/// Application services.
pub const QUOTA_SERVICES: usize = 3;
/// Timers.
pub const QUOTA_TIMERS: usize = 4;
/// Bytes of shared memory, including memory that is still held after closing.
pub const QUOTA_BYTES: usize = 5;
/// Descriptors that the daemon holds for the user.
pub const QUOTA_DESCRIPTORS: usize = 6;
/// Events that wait in queues.
pub const QUOTA_QUEUED: usize = 7;
/// Events per second to the user; used: refused so far.
pub const QUOTA_UP: usize = 8;
/// Events per second of the user; used: refused so far.
pub const QUOTA_RAISED: usize = 9;
/// Nanoseconds per second of the user's handlers; used: refused so far.
pub const QUOTA_HANDLER: usize = 10;
/// Requests per second; used: refused so far.
pub const QUOTA_REQUESTS: usize = 11;
/// Settings and repeated expiries of timers per second; used: refused or delayed so far.
pub const QUOTA_EXPIRIES: usize = 12;
/// Texts in E-code per second; used: refused so far.
pub const QUOTA_UPLOADS: usize = 13;
/// Nanoseconds per second that the daemon spends on these texts; used: refused so far.
pub const QUOTA_COMPILE: usize = 14;
/// Number of quotas.
pub const QUOTAS: usize = 15;

/// Names of the quotas, for people, in order.
pub const QUOTA_NAMES: [&str; QUOTAS] = [
    "connections",
    "channels",
    "subscriptions",
    "services",
    "timers",
    "bytes of shared memory",
    "descriptors",
    "queued events",
    "events per second",
    "raised events per second",
    "handler time",
    "requests per second",
    "timer expiries per second",
    "E-code uploads per second",
    "time for E-code uploads",
];

/// `struct ecalls_user_view`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct UserView {
    /// The index with which to continue.
    pub next: u32,
    /// The user.
    pub uid: u32,
    /// Events it raised.
    pub raised: u64,
    /// Its present use, by `QUOTA_*`.
    pub used: [u64; QUOTAS],
    /// Its limits; 0: no limit.
    pub limit: [u64; QUOTAS],
    /// Of all its subscriptions, including ended ones.
    pub count: SubscriptionCount,
}

/// `struct ecalls_fate_view`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FateView {
    /// Id of the event.
    pub event: u64,
    /// When it happened.
    pub when_ns: u64,
    /// When the event was raised.
    pub raise_ns: u64,
    /// The event is not delivered before; 0: at once.
    pub release_ns: u64,
    /// 0: none.
    pub deadline_ns: u64,
    /// Index of the service.
    pub service: u32,
    /// The kind of event.
    pub kind: u32,
    /// Id; 0: all subscriptions.
    pub subscription: u32,
    /// User that raised it.
    pub uid: u32,
    /// Process that raised it.
    pub pid: u32,
    /// `FATE_*`.
    pub what: u32,
    /// With [`FATE_DROPPED`]: a drop reason; with [`FATE_FILTERED_FOR`]: the argument of `drop()`.
    pub reason: u32,
    /// `STAGE_*`; with [`STAGE_CHAIN`] the action `<< 8`.
    pub stage: u32,
    /// With a quota as the reason: the quota, `QUOTA_*`.
    pub quota: u64,
    /// Name of the service, as a C text.
    pub name: [u8; NAME_MAX],
}

macro_rules! bodies {
    ($($name:ident)*) => {
        $(
            const _: () = assert!(HEADER + size_of::<$name>() <= MESSAGE_MAX);

            impl Default for $name {
                fn default() -> $name {
                    $name::new_zeroed()
                }
            }
        )*
    };
}

// A body consists of plain bytes that are initially 0.
bodies! {
    Hello Number Name OpenChannel Subscribe ReplaceHandler WatchSocket SetParameter LookFate
    Done Welcome Refused ServiceView SubscriptionView ChannelView QueueView UserView FateView
}

/// The reason why a packet is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It is shorter than a header, or its size differs from that in its header or of its kind.
    Size {
        /// Bytes of the packet.
        given: usize,
        /// Expected bytes; 0: unknown.
        expected: usize,
    },
    /// It has another version.
    Version(u32),
    /// Its kind is not allowed in this direction.
    Kind(u32),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Size { given, expected: 0 } => write!(f, "a message of {given} bytes"),
            Malformed::Size { given, expected } => {
                write!(f, "a message of {given} bytes instead of {expected}")
            }
            Malformed::Version(version) => {
                write!(f, "messages of version {version}, not {MESSAGE_VERSION}")
            }
            Malformed::Kind(kind) => write!(f, "a message of unknown kind {kind}"),
        }
    }
}

impl core::error::Error for Malformed {}

/// A message as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    bytes: [u8; MESSAGE_MAX],
    size: usize,
}

impl Packet {
    fn new(kind: u32, serial: u32, body: &[u8]) -> Packet {
        let size = HEADER + body.len();
        let mut bytes = [0; MESSAGE_MAX];
        let header = Message {
            version: MESSAGE_VERSION,
            kind,
            serial,
            size: u32::try_from(size).unwrap_or(0),
        };
        bytes[..HEADER].copy_from_slice(header.as_bytes());
        bytes[HEADER..size].copy_from_slice(body);
        Packet { bytes, size }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

/// Checks a packet's header.
fn header(packet: &[u8]) -> Result<(Message, &[u8]), Malformed> {
    let size = Malformed::Size {
        given: packet.len(),
        expected: 0,
    };
    let (header, body) = Message::read_from_prefix(packet).map_err(|_| size)?;
    if header.version != MESSAGE_VERSION {
        return Err(Malformed::Version(header.version));
    }
    Ok((header, body))
}

/// Checks a body's size, and the size in the header.
fn body<T: FromBytes>(header: &Message, body: &[u8]) -> Result<T, Malformed> {
    let expected = HEADER + size_of::<T>();
    let size = Malformed::Size {
        given: HEADER + body.len(),
        expected,
    };
    if usize::try_from(header.size) != Ok(expected) {
        return Err(size);
    }
    T::read_from_bytes(body).map_err(|_| size)
}

macro_rules! messages {
    ($(#[$doc:meta])* $enum:ident {
        $($(#[$kind_doc:meta])* $name:ident($body:ty) = $constant:ident $number:literal,)*
    }) => {
        $($(#[$kind_doc])* pub const $constant: u32 = $number;)*

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(clippy::large_enum_variant, reason = "one lives at a time, on the stack")]
        pub enum $enum {
            $($(#[$kind_doc])* $name($body),)*
        }

        impl $enum {
            /// Checks a packet's form, and returns its serial and the message.
            ///
            /// # Errors
            /// [`Malformed`]
            pub fn parse(packet: &[u8]) -> Result<(u32, $enum), Malformed> {
                let (header, bytes) = header(packet)?;
                let message = match header.kind {
                    $($constant => $enum::$name(body(&header, bytes)?),)*
                    kind => return Err(Malformed::Kind(kind)),
                };
                Ok((header.serial, message))
            }

            /// The message as bytes.
            pub fn packet(&self, serial: u32) -> Packet {
                match self {
                    $($enum::$name(body) => Packet::new($constant, serial, body.as_bytes()),)*
                }
            }

            /// The number of its kind.
            pub fn kind(&self) -> u32 {
                match self {
                    $($enum::$name(_) => $constant,)*
                }
            }

            /// The name of its kind, for people.
            pub fn name(&self) -> &'static str {
                match self {
                    $($enum::$name(_) => stringify!($name),)*
                }
            }
        }
    };
}

messages! {
    /// A request of an application.
    Request {
        /// The first request. Answer: [`Welcome`]; with the mechanism `run` also the program of the
        /// generic call.
        Hello(Hello) = MESSAGE_HELLO 1,
        /// Answer: its id, and the segments up and down and the wake descriptor.
        OpenChannel(OpenChannel) = MESSAGE_OPEN_CHANNEL 2,
        /// By its id.
        CloseChannel(Number) = MESSAGE_CLOSE_CHANNEL 3,
        /// With the texts of its handlers in E-code. Answer: its id.
        Subscribe(Subscribe) = MESSAGE_SUBSCRIBE 4,
        /// By its id.
        Unsubscribe(Number) = MESSAGE_UNSUBSCRIBE 5,
        /// Answer: its index.
        RegisterService(ServiceInfo) = MESSAGE_REGISTER_SERVICE 6,
        /// By its index.
        UnregisterService(Number) = MESSAGE_UNREGISTER_SERVICE 7,
        /// With the socket.
        WatchSocket(WatchSocket) = MESSAGE_WATCH_SOCKET 8,
        /// With the socket.
        ForgetSocket(Number) = MESSAGE_FORGET_SOCKET 9,
        /// Of a built-in service.
        SetParameter(SetParameter) = MESSAGE_SET_PARAMETER 10,
        /// The first service from an index on.
        LookService(Number) = MESSAGE_LOOK_SERVICE 11,
        /// The service with this name.
        FindService(Name) = MESSAGE_FIND_SERVICE 12,
        /// The first subscription from an index on.
        LookSubscription(Number) = MESSAGE_LOOK_SUBSCRIPTION 13,
        /// The first channel from an index on.
        LookChannel(Number) = MESSAGE_LOOK_CHANNEL 14,
        /// The first queue from an index on.
        LookQueue(Number) = MESSAGE_LOOK_QUEUE 15,
        /// The first user from an index on.
        LookUser(Number) = MESSAGE_LOOK_USER 16,
        /// The newest fate of an event before a time.
        LookFate(LookFate) = MESSAGE_LOOK_FATE 17,
        /// A map of the core, by its index in the loader's table.
        TakeMap(Number) = MESSAGE_TAKE_MAP 18,
        /// With the new text of a handler in E-code.
        ReplaceHandler(ReplaceHandler) = MESSAGE_REPLACE_HANDLER 19,
        /// Answer: the index of its page, the page, and the program that makes the calling thread
        /// an activation.
        OpenActivations(Number) = MESSAGE_OPEN_ACTIVATIONS 20,
    }
}

messages! {
    /// An answer of the daemon.
    Answer {
        /// The request is refused.
        Refused(Refused) = MESSAGE_REFUSED 0x100,
        /// The request is executed.
        Done(Done) = MESSAGE_DONE 0x101,
        /// There is no further one.
        End(Done) = MESSAGE_END 0x102,
        /// To the first request.
        Welcome(Welcome) = MESSAGE_WELCOME 0x103,
        /// A service.
        Service(ServiceView) = MESSAGE_SERVICE 0x104,
        /// A subscription.
        Subscription(SubscriptionView) = MESSAGE_SUBSCRIPTION 0x105,
        /// A channel.
        Channel(ChannelView) = MESSAGE_CHANNEL 0x106,
        /// A queue.
        Queue(QueueView) = MESSAGE_QUEUE 0x107,
        /// A user.
        User(UserView) = MESSAGE_USER 0x108,
        /// The fate of an event.
        Fate(FateView) = MESSAGE_FATE 0x109,
    }
}

impl Request {
    /// Number of descriptors that must accompany it, at most [`MESSAGE_DESCRIPTORS`].
    pub fn descriptors(&self) -> usize {
        match self {
            Request::WatchSocket(_) | Request::ForgetSocket(_) | Request::ReplaceHandler(_) => 1,
            Request::Subscribe(body) => body.uploads().count(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let said = Request::Subscribe(Subscribe {
            service: 3,
            deadline_ns: 5,
            ..Subscribe::default()
        });
        assert_eq!(Request::parse(said.packet(7).as_bytes()), Ok((7, said)));
        let said = Answer::Done(Done { value: 9 });
        assert_eq!(Answer::parse(said.packet(0).as_bytes()), Ok((0, said)));
    }

    #[test]
    fn a_request_is_no_answer() {
        let packet = Request::Hello(Hello::default()).packet(1);
        let parsed = Answer::parse(packet.as_bytes());
        assert_eq!(parsed, Err(Malformed::Kind(MESSAGE_HELLO)));
    }

    #[test]
    fn every_cut_and_every_growth_is_refused() {
        let packet = Request::OpenChannel(OpenChannel::default()).packet(1);
        for end in 0..packet.size {
            assert!(Request::parse(&packet.bytes[..end]).is_err(), "{end}");
        }
        assert!(Request::parse(&packet.bytes[..=packet.size]).is_err());
    }

    #[test]
    fn a_header_that_lies_about_its_size_is_refused() {
        for lie in [0, 15, 16, 39, 41, u32::MAX] {
            let mut packet = Request::OpenChannel(OpenChannel::default()).packet(1);
            packet.bytes[12..16].copy_from_slice(&lie.to_ne_bytes());
            assert!(Request::parse(packet.as_bytes()).is_err(), "{lie}");
        }
    }

    #[test]
    fn long_texts_of_a_refusal_are_cut_at_a_character() {
        let long = "\u{e9}".repeat(60);
        let refused = Refused::new(REFUSED_UNKNOWN, 0, "service", &long, "a hint");
        assert_eq!(refused.given(), "\u{e9}".repeat(31));
        assert_eq!((refused.subject(), refused.text()), ("service", "a hint"));
    }
}
