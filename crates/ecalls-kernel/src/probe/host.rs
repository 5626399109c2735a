//! Facts of the host at present, read once. A file that cannot be read leaves its fact empty.

use std::ffi::{CStr, c_long};
use std::fs;

use rustix::process::{Resource, getrlimit};

use super::options::Options;
use crate::kernel::sys;

/// Capabilities by their numbers in linux/capability.h.
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

/// A limit of the process; `None`: unlimited.
pub(super) type Limit = Option<u64>;

/// The facts, most of them in the kernel's own format.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Release of the kernel, such as "6.18.44-cloud".
    pub(super) release: String,
    /// How and when it was built (`uname -v`).
    pub(super) build: String,
    /// /sys/kernel/security/lockdown: the modes, the current one in brackets.
    pub(super) lockdown: Option<String>,
    /// The kernel's command line.
    pub(super) command_line: Option<String>,
    /// /proc/sys/kernel/unprivileged_bpf_disabled.
    pub(super) unprivileged: Option<String>,
    /// /proc/sys/net/core/bpf_jit_enable.
    pub(super) jit: Option<String>,
    /// /proc/self/status.
    pub(super) status: Option<String>,
    /// /proc/mounts.
    pub(super) mounts: Option<String>,
    /// Options with which the kernel was built.
    pub(super) options: Option<Options>,
    /// The errno of bpf(2) for a command that does not exist.
    pub(super) bpf_errno: i32,
    /// Commands of membarrier(2), or a negative number.
    pub(super) barriers: i64,
    /// Whether the caller is root.
    pub(super) is_root: bool,
    /// Memory that the caller may lock, bytes.
    pub(super) memory_lock: Limit,
    /// Signals that may be queued for all processes of the caller's user.
    pub(super) signals: Limit,
}

impl Host {
    /// Reads all facts.
    pub(super) fn read() -> Host {
        let (release, build) = names();
        Host {
            lockdown: text("/sys/kernel/security/lockdown"),
            command_line: text("/proc/cmdline"),
            unprivileged: text("/proc/sys/kernel/unprivileged_bpf_disabled"),
            jit: text("/proc/sys/net/core/bpf_jit_enable"),
            status: text("/proc/self/status"),
            mounts: text("/proc/mounts"),
            options: Options::read(&release),
            bpf_errno: bpf_errno(),
            barriers: barriers(),
            is_root: sys::is_root(),
            memory_lock: limit(Resource::Memlock),
            signals: limit(Resource::Sigpending),
            release,
            build,
        }
    }

    /// Major and minor version; `None` if the release has another format.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        version_of(&self.release)
    }

    /// Whether the caller has the capabilities to load tracing programs.
    pub(super) fn may_load(&self) -> bool {
        let capabilities = self
            .status_field("CapEff")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .unwrap_or(0);
        let both = CAP_BPF | CAP_PERFMON;
        capabilities & both == both || capabilities & CAP_SYS_ADMIN != 0
    }

    /// A line of /proc/self/status.
    pub(super) fn status_field(&self, name: &str) -> Option<&str> {
        self.status
            .as_deref()?
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    }

    /// The mount point of the control groups (version 2).
    pub(super) fn control_groups(&self) -> Option<&str> {
        let fields = |line: &'_ str| -> Option<(usize, usize)> {
            let mut ends = line.match_indices(' ').map(|(at, _)| at);
            let (path, kind) = (ends.next()? + 1, ends.next()? + 1);
            line[kind..]
                .starts_with("cgroup2 ")
                .then_some((path, kind - 1))
        };
        self.mounts
            .as_deref()?
            .lines()
            .find_map(|line| fields(line).map(|(from, to)| &line[from..to]))
    }

    /// The option's value, "n" if it is off; `None` if the options are not known.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.as_ref().map(|options| options.value(name))
    }
}

fn text(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim_end().to_owned())
}

/// Major and minor version of the running kernel.
pub(super) fn running() -> Option<(u32, u32)> {
    version_of(&names().0)
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Release and build of the kernel.
fn names() -> (String, String) {
    let names = rustix::system::uname();
    let text = |name: &CStr| name.to_string_lossy().into_owned();
    (text(names.release()), text(names.version()))
}

fn bpf_errno() -> i32 {
    const NO_COMMAND: c_long = -1;
    // SAFETY: an attribute of 0 bytes at no address; the command does not exist.
    let result = unsafe { libc::syscall(libc::SYS_bpf, NO_COMMAND, 0, 0) };
    if result >= 0 {
        return 0;
    }
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn barriers() -> i64 {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) }
}

fn limit(which: Resource) -> Limit {
    getrlimit(which).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_first_two_numbers_of_the_release() {
        let version = |release: &str| {
            Host {
                release: release.to_owned(),
                ..Host::default()
            }
            .version()
        };
        assert_eq!(version("6.18.44-cloud-amd64"), Some((6, 18)));
        assert_eq!(version("7.2-rc1"), Some((7, 2)));
        assert_eq!(version("mainline"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn capabilities_are_read_from_the_status() {
        let may = |set: &str| {
            let status = Some(format!("Name:\tx\nCapEff:\t{set}\n"));
            Host {
                status,
                ..Host::default()
            }
            .may_load()
        };
        assert!(may("000001ffffffffff"));
        assert!(may("000000c000000000"));
        assert!(!may("0000008000000000"), "CAP_BPF alone");
        assert!(!may("0000000000000000"));
        assert!(!Host::default().may_load());
    }

    #[test]
    fn control_groups_are_found_among_the_mounts() {
        let mounts = "proc /proc proc rw 0 0\nnone /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let host = Host {
            mounts: Some(mounts.to_owned()),
            ..Host::default()
        };
        assert_eq!(host.control_groups(), Some("/sys/fs/cgroup/unified"));
        assert_eq!(Host::default().control_groups(), None);
    }
}
