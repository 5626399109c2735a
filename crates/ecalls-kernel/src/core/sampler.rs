//! Starts what measures control groups from time to time (bpf/service/cgroup.bpf.c).
//!
//! It goes on by itself while somebody is subscribed. Who subscribes starts it, which does no harm
//! if it runs.

use ecalls_abi::service::{SERVICE_CPU, SERVICE_MEMORY};

use crate::core::Core;
use crate::core::builtin;
use crate::error::{Error, Result};
use crate::kernel::objects::Role;

/// Starts the sampler of a service that has one. The caller holds the lock, and has made the
/// subscription active.
///
/// # Errors
/// [`Error::Unsupported`] for a service that is nothing without it.
pub(crate) fn start(core: &Core, service: u32) -> Result<()> {
    if !matches!(service, SERVICE_CPU | SERVICE_MEMORY) {
        return Ok(());
    }
    if let Err(error) = core.program("sample_start") {
        let needs = builtin::find(service).and_then(|builtin| builtin.needs);
        return match needs {
            Some((feature, since)) if service == SERVICE_CPU => Err(match error {
                Error::Refused { .. } => error,
                _ => Error::Unsupported { feature, since },
            }),
            // The memory service has more to tell than pressure.
            _ => Ok(()),
        };
    }
    let _links = core.attached(Role::Moment)?;
    match core.run("sample_start", &mut service.to_ne_bytes())? {
        0 => Ok(()),
        error => Err(Error::from_errno("starting to measure", i64::from(error))),
    }
}
