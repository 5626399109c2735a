//! The built-in services: their names, the format of their data, their kinds.
//!
//! A format is written as the fields of the C struct in abi/service.h that it describes; a test
//! compares both. Application services give theirs when they register.

use ecalls_abi::service::{
    SERVICE_CORE, SERVICE_SCHED, SERVICE_SOCKET, SERVICE_TASK, SERVICE_TIMER, ServiceInfo,
};
use ecalls_abi::{channel, text};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::FromZeros;

use crate::core::Core;
use crate::error::{Error, Result};

/// One built-in service.
#[derive(Debug)]
pub struct Builtin {
    /// Its index, the same in every core.
    pub index: u32,
    /// Its name.
    pub name: &'static str,
    /// Fields of its data, in order.
    pub format: &'static str,
    /// Names of its kinds, in order.
    pub kinds: &'static str,
    /// It raises under a scheduler lock, so that threads are started by the pump.
    pub locked: bool,
}

/// All of them.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        index: SERVICE_SOCKET,
        name: "socket",
        format: "u64 cookie; u32 bytes; u32 backlog; u16 family; u16 local_port; \
                 u16 remote_port; u16 inherited; u32 remote_ip4; u32 pad",
        kinds: "data connection",
        locked: false,
    },
    Builtin {
        index: SERVICE_TIMER,
        name: "timer",
        format: "u64 expiry_ns; u64 count; u64 overrun; u32 timer; u32 pad",
        kinds: "expiry",
        locked: false,
    },
    Builtin {
        index: SERVICE_TASK,
        name: "task",
        format: "u32 pid; u32 tid; u32 parent; u32 child; u32 code; u32 thread; char comm[16]",
        kinds: "fork exec exit",
        locked: false,
    },
    Builtin {
        index: SERVICE_SCHED,
        name: "sched",
        format: "u64 delay_ns; u32 pid; u32 tid; u32 priority; u32 previous; char comm[16]",
        kinds: "delay",
        locked: true,
    },
    Builtin {
        index: SERVICE_CORE,
        name: "core",
        format: "u64 value",
        kinds: "test",
        locked: false,
    },
];

/// Run-queue delay from which the sched service reports, unless told otherwise, ns.
pub const SCHED_THRESHOLD_NS: u64 = 1_000_000;

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
        if builtin.index == SERVICE_SCHED {
            service.parameter = SCHED_THRESHOLD_NS;
        }
        core.tables.services.set(builtin.index, &service)?;
        core.map("service_names")?
            .update(&info.name, &builtin.index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::from_bpf("naming a service", &error))?;
    }
    Ok(())
}
