//! The privileges that the daemon's processes drop before they serve clients, so that neither a
//! mistake in them nor an attacker who exploits it can harm the machine.
//!
//! | | broker | door | compiler |
//! |---|---|---|---|
//! | capabilities | CAP_BPF, CAP_PERFMON | none | none |
//! | files | configuration, users, groups, lock, list of CPUs, kernel's types | none | none |
//! | network | none (the counters' socket is open before) | none | none |
//! | memory | | | 128 MiB ([`cap::MEMORY`]) |
//! | system calls | [`syscalls::broker`] | [`syscalls::door`] | [`syscalls::keeper`] |
//!
//! The compiler's workers drop more: [`syscalls::worker`].
//!
//! None of them can gain privileges again, be traced, or leave a core file. The order matters:
//! limits, then capabilities, then files, and finally the system calls, which forbid the rest. This
//! happens before the first thread starts, so that all threads inherit it.
//!
//! It works in the same way for root and for the unit's own user with ambient capabilities. A
//! feature that the kernel lacks is reported ([`Report`]), and all others are applied.

pub mod syscalls;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior};

pub use self::syscalls::Enforce;

use crate::compiler::cap;
use crate::subordinate;

/// Descriptors of the compiler: its two sockets, standard error, its worker's process, and a few
/// more.
const KEEPER_DESCRIPTORS: u64 = 32;

/// The kernel's types, by which a part of the core is fitted to this kernel when it is loaded.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The newest version of Landlock that is used; an older kernel enforces what it supports.
const LANDLOCK: ABI = ABI::V6;

/// The step that failed.
#[derive(Debug, thiserror::Error)]
#[error("dropping {what}: {why}")]
pub struct Error {
    what: &'static str,
    why: String,
}

impl Error {
    fn new(what: &'static str, why: impl fmt::Display) -> Error {
        Error {
            what,
            why: why.to_string(),
        }
    }
}

/// The features of the sandbox that this kernel lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub lacks: Vec<&'static str>,
}

/// The privileges that a process keeps.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub capabilities: Vec<Capability>,
    /// Files and folders that it may read.
    pub read: Vec<PathBuf>,
    /// Files that it may write.
    pub write: Vec<PathBuf>,
    /// Folders in which it may remove its sockets.
    pub remove: Vec<PathBuf>,
    /// The limit of descriptors.
    pub descriptors: u64,
    /// The permitted system calls.
    pub syscalls: syscalls::List,
    /// The reaction to other system calls.
    pub enforce: Enforce,
    /// Whether it may use abstract sockets of, and send signals to, other processes.
    pub reach: bool,
    /// The limit of its own memory, bytes.
    pub memory: Option<u64>,
}

impl Sandbox {
    /// The broker's: with it the broker can still load parts of the core. `lock` and `sockets` are
    /// its paths.
    pub fn broker(descriptors: u64, lock: &Path, sockets: Vec<PathBuf>, config: &Path) -> Sandbox {
        let mut read: Vec<PathBuf> = [
            "/etc/passwd",
            "/etc/group",
            subordinate::PATH,
            "/sys/devices/system/cpu",
            KERNEL_TYPES,
        ]
        .map(PathBuf::from)
        .into();
        // The rule is for the folder: editors replace the file, and a rule for the old one would
        // not apply.
        read.extend(config.parent().map(Path::to_owned));
        Sandbox {
            capabilities: vec![Capability::CAP_BPF, Capability::CAP_PERFMON],
            read,
            write: vec![lock.to_owned()],
            remove: sockets,
            descriptors,
            syscalls: syscalls::broker(),
            enforce: Enforce::Kill,
            // The service manager's socket may be an abstract one.
            reach: true,
            memory: None,
        }
    }

    /// The door's.
    pub fn door(descriptors: u64) -> Sandbox {
        Sandbox {
            capabilities: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
            remove: Vec::new(),
            descriptors,
            syscalls: syscalls::door(),
            enforce: Enforce::Kill,
            reach: false,
            memory: None,
        }
    }

    /// That of the compiler's keeper. Its workers drop more.
    pub fn keeper() -> Sandbox {
        Sandbox {
            syscalls: syscalls::keeper(),
            memory: Some(cap::MEMORY),
            ..Sandbox::door(KEEPER_DESCRIPTORS)
        }
    }

    /// Drops all other privileges, for this thread and all that it starts.
    ///
    /// # Errors
    /// The step that failed although the kernel supports it.
    pub fn enter(&self) -> Result<Report, Error> {
        let mut report = Report::default();
        limit_resources(self.descriptors)?;
        if let Some(memory) = self.memory {
            limit(Resource::Data, memory, "more memory")?;
        }
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|error| Error::new("being traced", error))?;
        keep_capabilities(&self.capabilities)?;
        rustix::thread::set_no_new_privs(true)
            .map_err(|error| Error::new("new privileges", error))?;
        self.restrict_files(&mut report)?;
        syscalls::apply(&self.syscalls, self.enforce)
            .map_err(|error| Error::new("system calls", error))?;
        Ok(report)
    }

    fn restrict_files(&self, report: &mut Report) -> Result<(), Error> {
        let failed = |error: landlock::RulesetError| Error::new("files and the network", error);
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(LANDLOCK))
            .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(LANDLOCK)))
            .map_err(failed)?;
        if !self.reach {
            ruleset = ruleset
                .scope(Scope::AbstractUnixSocket | Scope::Signal)
                .map_err(failed)?;
        }
        let mut ruleset = ruleset.create().map_err(failed)?;
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let write = AccessFs::ReadFile | AccessFs::WriteFile;
        for (paths, access) in [
            (&self.read, read),
            (&self.write, write),
            (&self.remove, AccessFs::RemoveFile.into()),
        ] {
            for path in paths {
                // A path that does not exist needs no rule.
                let Ok(fd) = PathFd::new(path) else { continue };
                let fits = match path.is_dir() {
                    true => access,
                    false => access & AccessFs::from_file(LANDLOCK),
                };
                ruleset = ruleset
                    .add_rule(PathBeneath::new(fd, fits))
                    .map_err(failed)?;
            }
        }
        match ruleset.restrict_self().map_err(failed)?.ruleset {
            RulesetStatus::FullyEnforced => {}
            RulesetStatus::PartiallyEnforced => report
                .lacks
                .push("parts of Landlock (network: Linux 6.7; scopes: 6.12)"),
            RulesetStatus::NotEnforced => report.lacks.push(
                "Landlock (Linux 5.13 with CONFIG_SECURITY_LANDLOCK, and \"landlock\" in lsm=)",
            ),
        }
        Ok(())
    }
}

/// Core files would contain clients' data; the number of descriptors must be the one that the
/// quotas assume.
fn limit_resources(descriptors: u64) -> Result<(), Error> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::setrlimit(Resource::Core, none)
        .map_err(|error| Error::new("core files", error))?;
    limit(Resource::Nofile, descriptors, "more descriptors")
}

/// Sets a limit, but does not raise a lower one.
fn limit(resource: Resource, most: u64, what: &'static str) -> Result<(), Error> {
    let now = rustix::process::getrlimit(resource).maximum;
    let most = now.map_or(most, |now| now.min(most));
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    rustix::process::setrlimit(resource, limit).map_err(|error| Error::new(what, error))
}

/// Keeps those of `wanted` that the process has, and no others, in every set.
fn keep_capabilities(wanted: &[Capability]) -> Result<(), Error> {
    let failed = |error: caps::errors::CapsError| Error::new("capabilities", error);
    let wanted: CapsHashSet = wanted.iter().copied().collect();
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    // Only a process with CAP_SETPCAP can reduce the bounding set; the systemd unit reduces it
    // otherwise.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).map_err(failed)? {
        for capability in caps::read(None, CapSet::Bounding).map_err(failed)? {
            if !wanted.contains(&capability) {
                caps::drop(None, CapSet::Bounding, capability).map_err(failed)?;
            }
        }
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    let has = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let kept: CapsHashSet = has.intersection(&wanted).copied().collect();
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)
}

/// The capability that the process lacks to host the core, if any.
pub fn missing_capability() -> io::Result<Option<&'static str>> {
    for (capability, name) in [
        (Capability::CAP_BPF, "CAP_BPF"),
        (Capability::CAP_PERFMON, "CAP_PERFMON"),
    ] {
        let has = caps::has_cap(None, CapSet::Effective, capability).map_err(io::Error::other)?;
        if !has {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
