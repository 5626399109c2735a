//! Starts the periodic sampling of control groups (bpf/service/cgroup.bpf.c).
//!
//! The sampler continues by itself while the service has subscriptions. Each new subscription
//! starts it; if it runs already, this has no effect.

use ecalls_abi::service::{SERVICE_CPU, SERVICE_MEMORY};

use crate::core::Core;
use crate::core::builtin;
use crate::error::{Error, Result};
use crate::kernel::objects::Role;

/// Starts the sampler of a service that has one. The caller holds the lock, and has made the
/// subscription active.
///
/// # Errors
/// [`Error::Unsupported`] for a service that has no events without it.
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
            // The memory service also has events other than pressure.
            _ => Ok(()),
        };
    }
    let _links = core.attached(Role::Moment)?;
    match core.run("sample_start", &mut service.to_ne_bytes())? {
        0 => Ok(()),
        error => Err(Error::from_errno("starting to measure", i64::from(error))),
    }
}
