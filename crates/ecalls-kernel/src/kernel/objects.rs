//! The compiled kernel side: its object files, their programs, where these attach, and the maps
//! that user space knows by number.
//!
//! The order of [`MAPS`] and [`PROGRAMS`] is part of the contract (`struct ecalls_host` lists ids
//! in it): append, never insert, and raise the ABI version when an entry is removed.

use ecalls_abi::service;

/// The purpose of a program: when it is attached, and to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Attached as long as the core lives.
    Always,
    /// Attached while the service has subscriptions.
    Service(u32),
    /// Attached while a subscription has a signal action.
    Signals,
    /// Attached while a handler in E-code requests effects.
    Effects,
    /// Attached while a channel's calls are executed before its owner's next scheduling.
    Switch,
    /// A kernel handler, in the slot of this number.
    Handler(u32),
    /// Attached as long as the core lives, before Linux 6.15 (bpf/event/pinned.h).
    Pinned,
    /// Attached for a short time, to start periodic work.
    Moment,
    /// Attached to a network interface while a channel is open on it.
    Interface,
    /// Run by system call.
    Run,
    /// A mechanism of the fast call.
    FastCall(FastCall),
}

/// The mechanisms of a fast call, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FastCall {
    /// A trampoline on the kernel's security hook of prctl: the result is prctl's own.
    Security,
    /// A tracepoint on prctl options that are unknown to the kernel.
    Prctl,
    /// A control group's hook of setsockopt.
    Setsockopt,
    /// A BPF program run by bpf(2).
    Run,
}

impl FastCall {
    /// All mechanisms, best first.
    pub(crate) const ALL: [FastCall; 4] = [
        FastCall::Security,
        FastCall::Prctl,
        FastCall::Setsockopt,
        FastCall::Run,
    ];

    /// Its name, as `ecalls doctor` and `struct ecalls_host` write it.
    pub fn name(self) -> &'static str {
        match self {
            FastCall::Security => "security",
            FastCall::Prctl => "prctl",
            FastCall::Setsockopt => "setsockopt",
            FastCall::Run => "run",
        }
    }

    /// The mechanism of that name.
    pub fn from_name(name: &str) -> Option<FastCall> {
        let mut all = FastCall::ALL.into_iter();
        all.find(|mechanism| mechanism.name() == name)
    }
}

pub(crate) struct Object {
    pub(crate) name: &'static str,
    pub(crate) bytes: &'static [u8],
    /// Whether the core works without it.
    pub(crate) optional: bool,
    /// Whether it is a part of the core, loaded on first use (core/part.rs).
    pub(crate) is_part: bool,
}

#[derive(Debug)]
pub struct Program {
    /// Its name in the object file.
    pub name: &'static str,
    /// The object file.
    pub object: &'static str,
    /// Its purpose.
    pub role: Role,
}

macro_rules! object {
    ($name:literal, optional: $optional:literal, part: $part:literal) => {
        Object {
            name: $name,
            bytes: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")),
            optional: $optional,
            is_part: $part,
        }
    };
}

/// Places of one CPU for the data of queued events: `RESTS` of bpf/event/maps.h.
pub(crate) const RESTS: u32 = 128;

/// Work items for kernel handler threads: `THREADS` of bpf/event/thread.h.
pub(crate) const THREADS: u32 = 8;

/// The object, and its program, that lists the machine's maps.
pub(crate) const MAP_LIST: &str = "map_list";

/// Every object file. That of the core itself, the first, is loaded at its start and creates the
/// shared maps. A part's maps are its own ([`PART_MAPS`]) or among the shared ones.
pub(crate) const OBJECTS: &[Object] = &[
    object!("deliver", optional: false, part: false),
    object!("handler", optional: false, part: true),
    object!("thread", optional: false, part: true),
    object!("signal", optional: false, part: true),
    object!("socket", optional: false, part: true),
    object!("timer", optional: false, part: true),
    object!("task", optional: false, part: true),
    object!("sched", optional: false, part: true),
    object!("downcall_run", optional: false, part: true),
    object!("measure", optional: false, part: true),
    object!("pinned", optional: true, part: true),
    object!("signal_task", optional: true, part: true),
    object!("downcall_prctl", optional: true, part: true),
    object!("downcall_setsockopt", optional: true, part: true),
    object!("downcall_security", optional: true, part: true),
    object!("downcall_switch", optional: false, part: true),
    object!("net", optional: true, part: true),
    object!("disk", optional: true, part: true),
    object!("memory", optional: true, part: true),
    object!("cgroup", optional: true, part: true),
    object!("map_list", optional: true, part: true),
    object!("effect", optional: true, part: true),
    object!("lane", optional: true, part: true),
];

/// The object that each service in E-code loads for itself (bpf/ecode/meeting.h).
pub const MEET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/meet.bpf.o"));
/// The second object, whose program is attached to the first one.
pub const TELL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tell.bpf.o"));

macro_rules! programs {
    ($($name:literal in $object:literal: $role:expr;)*) => {
        &[$(Program { name: $name, object: $object, role: $role }),*]
    };
}

/// Every program that user space attaches, runs or puts into a slot.
pub const PROGRAMS: &[Program] = programs! {
    "deliver" in "deliver": Role::Always;
    "queue_setup" in "deliver": Role::Run;
    "identify" in "deliver": Role::Run;
    "health" in "deliver": Role::Run;
    "handler_sample" in "handler": Role::Handler(0);
    "handler_limit" in "handler": Role::Handler(1);
    "handler_thresh" in "handler": Role::Handler(2);
    "handler_hist" in "handler": Role::Handler(3);
    "handler_count" in "handler": Role::Handler(4);
    "timer_setup" in "timer": Role::Run;
    "delay_setup" in "downcall_run": Role::Run;
    "call_generic" in "downcall_run": Role::Run;
    "measure_raise" in "measure": Role::Run;
    "measure_push" in "measure": Role::Run;
    "measure_pop" in "measure": Role::Run;
    "measure_trigger" in "measure": Role::Run;
    "thread_setup" in "thread": Role::Run;
    "pump_setup" in "thread": Role::Run;
    "pump_run" in "thread": Role::Run;
    "signal_verdict" in "signal": Role::Signals;
    "signal_wait" in "signal_task": Role::Signals;
    "watch_setup" in "signal_task": Role::Run;
    "reap_exit" in "deliver": Role::Always;
    "reap_exec" in "deliver": Role::Always;
    "sched_woken" in "sched": Role::Service(service::SERVICE_SCHED);
    "sched_woken_new" in "sched": Role::Service(service::SERVICE_SCHED);
    "sched_switched" in "sched": Role::Service(service::SERVICE_SCHED);
    "socket_ready" in "socket": Role::Service(service::SERVICE_SOCKET);
    "task_fork" in "task": Role::Service(service::SERVICE_TASK);
    "task_exec" in "task": Role::Service(service::SERVICE_TASK);
    "task_exit" in "task": Role::Service(service::SERVICE_TASK);
    "downcall_secure" in "downcall_security": Role::FastCall(FastCall::Security);
    "downcall_setopt" in "downcall_setsockopt": Role::FastCall(FastCall::Setsockopt);
    "downcall_prctl" in "downcall_prctl": Role::FastCall(FastCall::Prctl);
    "downcall_switch" in "downcall_switch": Role::Switch;
    "net_retransmit" in "net": Role::Service(service::SERVICE_NET);
    "net_round_trip" in "net": Role::Service(service::SERVICE_NET);
    "net_state" in "net": Role::Service(service::SERVICE_NET);
    "disk_start" in "disk": Role::Service(service::SERVICE_DISK);
    "disk_issue" in "disk": Role::Service(service::SERVICE_DISK);
    "disk_complete" in "disk": Role::Service(service::SERVICE_DISK);
    "reclaim_begin" in "memory": Role::Service(service::SERVICE_MEMORY);
    "reclaim_end" in "memory": Role::Service(service::SERVICE_MEMORY);
    "limit_begin" in "memory": Role::Service(service::SERVICE_MEMORY);
    "limit_end" in "memory": Role::Service(service::SERVICE_MEMORY);
    "memory_victim" in "memory": Role::Service(service::SERVICE_MEMORY);
    "sample_begin" in "cgroup": Role::Moment;
    "sample_start" in "cgroup": Role::Run;
    "map_list" in "map_list": Role::Run;
    "effects" in "effect": Role::Effects;
    "pinned" in "pinned": Role::Pinned;
    "lane_ingress" in "lane": Role::Interface;
    "handler_remote" in "lane": Role::Handler(5);
    "lane_egress" in "lane": Role::Interface;
};

/// Programs, and those that take their place and name before Linux 6.15 (bpf/event/pinned.h).
pub const PINNED: &[(&str, &str)] = &[
    ("call_generic", "call_pinned"),
    ("downcall_secure", "secure_pinned"),
    ("downcall_setopt", "setopt_pinned"),
];

/// The compiler of the kernel side and the folder of libbpf's headers, for tests that compile.
#[doc(hidden)]
pub const COMPILER: (&str, &str) = (env!("ECALLS_BPF_CLANG"), env!("ECALLS_BPF_INCLUDE"));

/// Name and contents of each object file, for the test that compares them with these tables.
#[doc(hidden)]
pub fn compiled() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    OBJECTS.iter().map(|object| (object.name, object.bytes))
}

/// Checksum of the tables, never 0: cores and programs of builds with different tables are
/// incompatible, even if they have the same version of the contract.
pub(crate) const fn tables_checksum() -> u32 {
    let mut sum = 0x811c_9dc5; // FNV-1a
    let mut at = 0;
    while at < MAPS.len() {
        sum = checksum(sum, MAPS[at].as_bytes());
        at += 1;
    }
    at = 0;
    while at < PROGRAMS.len() {
        sum = checksum(sum, PROGRAMS[at].name.as_bytes());
        at += 1;
    }
    at = 0;
    while at < OBJECTS.len() {
        sum = checksum(sum, &[OBJECTS[at].is_part as u8]);
        at += 1;
    }
    sum | 1
}

const fn checksum(mut sum: u32, bytes: &[u8]) -> u32 {
    let mut at = 0;
    while at < bytes.len() {
        sum = (sum ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    sum
}

/// Every map of the kernel side. The host holds all of them, even those that it never accesses: the
/// kernel frees the timers and work items in a map that no process has open any more.
pub const MAPS: &[&str] = &[
    "services",
    "service_infos",
    "service_counts",
    "subscriptions",
    "sub_counts",
    "channels",
    "ups",
    "wakes",
    "queues",
    "queue_timers",
    "current_events",
    "handlers",
    "handler_states",
    "attributes",
    "threads",
    "downs",
    "owners",
    "service_names",
    "socket_interest",
    "timers",
    "switch_owners",
    "down_states",
    "pumps",
    "signal_works",
    "signal_watches",
    "sched_waits",
    "users",
    "net_told",
    "disk_requests",
    "audiences",
    "audience_rows",
    "reclaims",
    "samplers",
    "group_states",
    "latencies",
    "fates",
    "generic_calls",
    "ecodes",
    "frames",
    "coop_threads",
    "coop_changes",
    "event_sinks",
    "spin_queues",
    "pinned_calls",
    "lane_channels",
    "lane_ids",
    "lane_sources",
    "lane_counts",
    "lane_buffers",
    "rests",
    "rest_uses",
    "lane_sinks",
    "lane_outs",
    "lane_packets",
    "lane_rings",
    "lane_filters",
    "lane_tables",
    "lane_shares",
    "early_filters",
];

/// The maps that only one part has, and that part.
pub const PART_MAPS: &[(&str, &str)] = &[
    ("pumps", "thread"),
    ("signal_works", "signal_task"),
    ("socket_interest", "socket"),
    ("early_filters", "socket"),
    ("sched_waits", "sched"),
    ("switch_owners", "downcall_switch"),
    ("net_told", "net"),
    ("disk_requests", "disk"),
    ("reclaims", "memory"),
    ("samplers", "cgroup"),
    ("group_states", "cgroup"),
    ("lane_channels", "lane"),
    ("lane_ids", "lane"),
    ("lane_sources", "lane"),
    ("lane_counts", "lane"),
    ("lane_buffers", "lane"),
    ("lane_sinks", "lane"),
    ("lane_outs", "lane"),
    ("lane_packets", "lane"),
    ("lane_rings", "lane"),
    ("lane_filters", "lane"),
    ("lane_tables", "lane"),
    ("lane_shares", "lane"),
];

/// The part that has this map; `None`: the map belongs to the core.
pub(crate) fn part_with(map: &str) -> Option<&'static str> {
    let found = PART_MAPS.iter().find(|(name, _)| *name == map);
    found.map(|(_, part)| *part)
}

impl FastCall {
    /// The object file of the mechanism.
    pub(crate) fn object(self) -> &'static str {
        match self {
            FastCall::Security => "downcall_security",
            FastCall::Prctl => "downcall_prctl",
            FastCall::Setsockopt => "downcall_setsockopt",
            FastCall::Run => "downcall_run",
        }
    }
}

/// The object file of that name.
///
/// # Panics
/// If there is none.
pub(crate) fn find(name: &str) -> &'static Object {
    let found = OBJECTS.iter().find(|object| object.name == name);
    found.expect("an object file of the table")
}
