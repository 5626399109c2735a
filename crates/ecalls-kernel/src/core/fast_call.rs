//! The fast call: the best mechanism that this kernel supports, chosen when a program makes its
//! first call. A program that only receives events needs none, and starts faster.
//!
//! From then on the core's record names the mechanism. Other programs that host the core use the
//! same one, because two attached mechanisms would both execute each call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ecalls_abi::text;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::kernel::link::Link;
use crate::kernel::lock::lock;
use crate::kernel::objects::{FastCall, Role};
use crate::kernel::sys;

/// A mechanism, which stays attached as long as this object exists here or in another program.
#[derive(Debug)]
pub(crate) struct Chosen {
    mechanism: FastCall,
    _links: Vec<Link>,
}

impl Core {
    /// The mechanism of the fast call, attached from now on.
    ///
    /// # Errors
    /// Those of loading a part of the core.
    pub fn fast_call(&self) -> Result<FastCall> {
        if let Some(chosen) = self.fast_call.get() {
            return Ok(chosen.mechanism);
        }
        let _lock = lock()?;
        if self.fast_call.get().is_none() {
            let chosen = match FastCall::from_name(self.host()?.mechanism()) {
                Some(mechanism) => self.take_fast_call(mechanism)?,
                None => self.choose_fast_call()?,
            };
            // The lock is held, so no other thread has set it.
            let _ = self.fast_call.set(chosen);
        }
        let chosen = self.fast_call.get().expect("it was set just now");
        Ok(chosen.mechanism)
    }

    /// The first mechanism that can be loaded and attached. The last one needs no attachment.
    fn choose_fast_call(&self) -> Result<Chosen> {
        let mut better = FastCall::ALL
            .into_iter()
            .filter(|one| *one != FastCall::Run);
        let chosen = match better.find_map(|mechanism| self.take_fast_call(mechanism).ok()) {
            Some(chosen) => chosen,
            None => self.take_fast_call(FastCall::Run)?,
        };
        let name = chosen.mechanism.name();
        self.note(|host| text::write(&mut host.mechanism, name).expect("a short name"))?;
        Ok(chosen)
    }

    fn take_fast_call(&self, mechanism: FastCall) -> Result<Chosen> {
        self.part(mechanism.object())?;
        Ok(Chosen {
            mechanism,
            _links: self.attached(Role::FastCall(mechanism))?,
        })
    }
}

impl FastCall {
    /// Attaches the program of the mechanism.
    pub(crate) fn attach(self, program: BorrowedFd<'_>) -> Result<OwnedFd> {
        match self {
            FastCall::Security => sys::attach(program, libbpf_sys::BPF_MODIFY_RETURN),
            FastCall::Setsockopt => {
                let root = cgroup_root()?;
                sys::attach_cgroup(program, root.as_fd(), libbpf_sys::BPF_CGROUP_SETSOCKOPT)
            }
            FastCall::Prctl | FastCall::Run => sys::attach(program, libbpf_sys::BPF_TRACE_RAW_TP),
        }
    }
}

/// The mount point of the control group hierarchy (version 2), opened.
pub(crate) fn cgroup_root() -> Result<std::fs::File> {
    let failed = |error| Error::from_io("opening the root of the control groups", error);
    let mounts = std::fs::read_to_string("/proc/mounts").map_err(failed)?;
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    let path = mounts.find_map(|mut fields| {
        let path = fields.nth(1);
        path.filter(|_| fields.next() == Some("cgroup2"))
    });
    let path = path.ok_or(Error::Unsupported {
        feature: "control groups (version 2), mounted",
        since: "Linux 4.5",
    })?;
    std::fs::File::open(path).map_err(failed)
}
