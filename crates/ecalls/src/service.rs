//! Services of the program (ECalls-05 §3): it registers a unique name and raises events for others.

use ::ecode::source::Source;
pub use ecalls_kernel::handle::Service;
pub use ecalls_kernel::raise::Raise;

use crate::Result;
use crate::host::Ecalls;

/// A service added from a BPF object file or from a text in E-code, whose programs raise its events
/// in the kernel. It ends when this is dropped, and with the process. See bpf/ecalls/service.bpf.h
/// and `man 7 ecode`.
#[derive(Debug)]
pub struct Provider(ecalls_kernel::provider::Provider);

impl Provider {
    pub(crate) fn add(ecalls: &Ecalls, object: &[u8]) -> Result<Provider> {
        ecalls_kernel::provider::Provider::add(ecalls.access(), object).map(Provider)
    }

    pub(crate) fn add_ecode(ecalls: &Ecalls, source: &Source) -> Result<Provider> {
        let (tracepoint, compiled) = crate::ecode::compile_service(source)?;
        let access = ecalls.access();
        ecalls_kernel::provider::Provider::add_ecode(access, &tracepoint, &compiled, source)
            .map(Provider)
    }

    /// Number of runs that the kernel skipped because the service's programs, or others of their
    /// kind, were active on that CPU.
    ///
    /// # Errors
    /// [`crate::Error::Os`].
    pub fn skipped(&self) -> Result<u64> {
        self.0.skipped()
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.0.index()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.name()
    }
}
