//! The built-in services: their names, the format of their data, their kinds.
//!
//! A format lists the fields of the C struct in abi/service.h that it describes; a test compares
//! both. Application services supply theirs when they register.

use ecalls_abi::service::{
    SERVICE_CORE, SERVICE_CPU, SERVICE_DISK, SERVICE_MEMORY, SERVICE_NET, SERVICE_SCHED,
    SERVICE_SOCKET, SERVICE_TASK, SERVICE_TIMER, ServiceInfo,
};
use ecalls_abi::{channel, text};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::FromZeros;

use crate::core::Core;
use crate::error::{Error, Result};

#[derive(Debug)]
pub struct Builtin {
    /// Its index, the same in every core.
    pub index: u32,
    pub name: &'static str,
    /// Fields of its data, in order.
    pub format: &'static str,
    /// Names of its kinds, in order.
    pub kinds: &'static str,
    /// Whether it raises events under a scheduler lock, so that the pump has to start threads.
    pub locked: bool,
    pub parameter: Option<Parameter>,
    /// The feature that a kernel lacks if it cannot load the service's programs, and what provides
    /// that feature; `None`: every core has the service.
    pub needs: Option<(&'static str, &'static str)>,
}

/// A parameter of a service: one time that applies to all its subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The meaning of the time.
    pub what: &'static str,
    /// Its initial value, ns.
    pub default_ns: u64,
    pub limits_ns: (u64, u64),
}

/// All built-in services.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        index: SERVICE_SOCKET,
        name: "socket",
        format: "u64 cookie; u32 bytes; u32 backlog; u16 family; u16 local_port; \
                 u16 remote_port; u16 inherited; u32 remote_ip4; u32 pad",
        kinds: "data connection",
        locked: false,
        parameter: None,
        needs: None,
    },
    Builtin {
        index: SERVICE_TIMER,
        name: "timer",
        format: "u64 expiry_ns; u64 count; u64 overrun; u32 timer; u32 pad",
        kinds: "expiry",
        locked: false,
        parameter: None,
        needs: None,
    },
    Builtin {
        index: SERVICE_TASK,
        name: "task",
        format: "u32 pid; u32 tid; u32 parent; u32 child; u32 code; u32 thread; char comm[16]",
        kinds: "fork exec exit",
        locked: false,
        parameter: None,
        needs: None,
    },
    Builtin {
        index: SERVICE_SCHED,
        name: "sched",
        format: "u64 delay_ns; u32 pid; u32 tid; u32 priority; u32 previous; char comm[16]",
        kinds: "delay",
        locked: true,
        parameter: Some(Parameter {
            what: "the smallest delay to report",
            default_ns: MILLISECOND,
            limits_ns: THRESHOLDS,
        }),
        needs: None,
    },
    Builtin {
        index: SERVICE_CORE,
        name: "core",
        format: "u64 value",
        kinds: "test",
        locked: false,
        parameter: None,
        needs: None,
    },
    Builtin {
        index: SERVICE_NET,
        name: "net",
        format: "u64 cookie; u32 round_trip_us; u32 retransmits; u32 window; u16 local_port; \
                 u16 remote_port; u8 local_ip[16]; u8 remote_ip[16]; u32 state; u32 former",
        kinds: "retransmit round_trip state",
        locked: false,
        parameter: Some(Parameter {
            what: "the smallest round-trip time to report",
            default_ns: 100 * MILLISECOND,
            limits_ns: THRESHOLDS,
        }),
        needs: Some(("TCP tracepoints", "CONFIG_INET, CONFIG_BPF_EVENTS")),
    },
    Builtin {
        index: SERVICE_DISK,
        name: "disk",
        format: "u64 latency_ns; u64 device_ns; u64 sector; u32 bytes; u32 status; u32 major; \
                 u32 minor; char disk[16]; char comm[16]",
        kinds: "read write flush discard other",
        locked: false,
        parameter: Some(Parameter {
            what: "the smallest latency to report",
            default_ns: 10 * MILLISECOND,
            limits_ns: THRESHOLDS,
        }),
        needs: Some((
            "block device tracepoints",
            "Linux 6.5, CONFIG_BLOCK, CONFIG_BPF_EVENTS",
        )),
    },
    Builtin {
        index: SERVICE_MEMORY,
        name: "memory",
        format: "u64 duration_ns; u64 full_ns; u64 interval_ns; u64 pages; u64 cgroup; \
                 u32 limited; u32 pid; s32 score; u32 pad; char comm[16]; char name[48]",
        kinds: "reclaim victim pressure",
        locked: false,
        parameter: Some(Parameter {
            what: "the smallest duration to report",
            default_ns: 10 * MILLISECOND,
            limits_ns: THRESHOLDS,
        }),
        needs: Some((
            "memory tracepoints",
            "Linux 6.8, CONFIG_MEMCG, CONFIG_BPF_EVENTS",
        )),
    },
    Builtin {
        index: SERVICE_CPU,
        name: "cpu",
        format: "u64 cgroup; u64 parent; u64 period_ns; u64 usage_ns; u32 utilization; \
                 u32 pressure_some; u32 pressure_full; u32 pad; char name[72]",
        kinds: "utilization pressure",
        locked: false,
        parameter: Some(Parameter {
            what: "the period",
            default_ns: 1000 * MILLISECOND,
            limits_ns: (10 * MILLISECOND, 3_600_000 * MILLISECOND),
        }),
        needs: Some(("walking over control groups", "Linux 6.7, CONFIG_CGROUPS")),
    },
];

const MILLISECOND: u64 = 1_000_000;

/// A threshold may have any value; 0 reports every event.
const THRESHOLDS: (u64, u64) = (0, u64::MAX);

/// The built-in service with this index.
pub fn find(index: u32) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.index == index)
}

/// The parameter of a built-in service.
///
/// # Errors
/// [`Error::Invalid`] for a service that has none.
pub fn parameter(index: u32) -> Result<Parameter> {
    find(index)
        .and_then(|builtin| builtin.parameter)
        .ok_or_else(|| Error::Invalid {
            what: "the service",
            given: find(index).map_or(index.to_string(), |builtin| builtin.name.to_owned()),
            expected: "a built-in one with a threshold or a period",
        })
}

/// Writes the built-in services into a new core's tables.
pub(crate) fn describe(core: &Core) -> Result<()> {
    for builtin in BUILTINS {
        let mut info = ServiceInfo::new_zeroed();
        text::write(&mut info.name, builtin.name).expect("a short name");
        text::write(&mut info.format, builtin.format).expect("a short format");
        text::write(&mut info.kinds, builtin.kinds).expect("short kinds");
        core.tables.infos.set(builtin.index, &info)?;
        let mut service = core.tables.services.get(builtin.index)?;
        service.state = channel::STATE_ACTIVE;
        service.parameter = builtin
            .parameter
            .map_or(0, |parameter| parameter.default_ns);
        core.tables.services.set(builtin.index, &service)?;
        core.map("service_names")?
            .update(&info.name, &builtin.index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("naming a service", &error))?;
    }
    Ok(())
}
