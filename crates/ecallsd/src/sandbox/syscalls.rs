//! The system calls that each process needs; the kernel refuses all others.
//!
//! The lists contain the permitted calls by number, with conditions on arguments of calls that can
//! do both harmless and harmful things. They were determined by reading the libraries' code, and by
//! running the whole test suite with `--seccomp log`, which permits every call and writes it to the
//! kernel's log; a test repeats that.

use std::collections::BTreeMap;

use libc::c_long;
use rustix::process::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// The reaction to a call that is not in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Enforce {
    /// The process is killed: it does something that its source does not contain.
    #[default]
    Kill,
    /// The call fails with EPERM.
    Deny,
    /// The call is executed, and written to the kernel's log.
    Log,
    /// Nothing is filtered.
    Off,
}

impl Enforce {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Enforce::Kill => "kill",
            Enforce::Deny => "deny",
            Enforce::Log => "log",
            Enforce::Off => "off",
        }
    }
}

/// Calls by number; if there are conditions, one of them must hold.
pub type List = Vec<(c_long, Vec<Only>)>;

/// A condition: argument `0` has one of these values.
#[derive(Clone, Copy, Debug)]
pub struct Only {
    argument: u8,
    value: u64,
}

/// Calls of every program of Rust and glibc.
const RUNTIME: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
];

/// The error of a refused call.
const EPERM: u32 = libc::EPERM.unsigned_abs();

/// Older forms of calls that exist only on some architectures.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[libc::SYS_poll, libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Calls of both processes for sockets.
const SOCKETS: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_fcntl,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Further calls of the broker.
const BROKER: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_connect,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_faccessat2,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_getdents64,
    libc::SYS_geteuid,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mlock,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_statx,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_waitid,
    libc::SYS_wait4,
];

#[cfg(target_arch = "x86_64")]
const BROKER_OLDER: &[c_long] = &[libc::SYS_unlink, libc::SYS_readlink];
#[cfg(not(target_arch = "x86_64"))]
const BROKER_OLDER: &[c_long] = &[];

/// Commands of bpf(2) that the broker needs after the core is loaded: maps of channels and
/// handlers, loading handlers and parts of the core, running the core's programs, attaching and
/// describing. Pinning is not permitted, nor is opening objects of others by id: libbpf tries to
/// list the types of modules, which the kernel refuses without CAP_SYS_ADMIN.
const BPF_COMMANDS: &[u32] = &[
    libbpf::MAP_CREATE,
    libbpf::MAP_LOOKUP_ELEM,
    libbpf::MAP_UPDATE_ELEM,
    libbpf::MAP_DELETE_ELEM,
    libbpf::MAP_GET_NEXT_KEY,
    libbpf::PROG_LOAD,
    libbpf::PROG_TEST_RUN,
    libbpf::OBJ_GET_INFO_BY_FD,
    libbpf::RAW_TRACEPOINT_OPEN,
    libbpf::BTF_LOAD,
    libbpf::MAP_FREEZE,
    libbpf::BTF_GET_NEXT_ID,
    libbpf::LINK_CREATE,
    libbpf::ITER_CREATE,
    libbpf::LINK_DETACH,
    libbpf::PROG_BIND_MAP,
];

/// Numbers from linux/bpf.h, which never change.
mod libbpf {
    pub(super) const MAP_CREATE: u32 = 0;
    pub(super) const MAP_LOOKUP_ELEM: u32 = 1;
    pub(super) const MAP_UPDATE_ELEM: u32 = 2;
    pub(super) const MAP_DELETE_ELEM: u32 = 3;
    pub(super) const MAP_GET_NEXT_KEY: u32 = 4;
    pub(super) const PROG_LOAD: u32 = 5;
    pub(super) const PROG_TEST_RUN: u32 = 10;
    pub(super) const OBJ_GET_INFO_BY_FD: u32 = 15;
    pub(super) const RAW_TRACEPOINT_OPEN: u32 = 17;
    pub(super) const BTF_LOAD: u32 = 18;
    pub(super) const MAP_FREEZE: u32 = 22;
    pub(super) const BTF_GET_NEXT_ID: u32 = 23;
    pub(super) const LINK_CREATE: u32 = 28;
    pub(super) const ITER_CREATE: u32 = 33;
    pub(super) const LINK_DETACH: u32 = 34;
    pub(super) const PROG_BIND_MAP: u32 = 35;
}

/// prctl: the name of a thread, and the name of memory that glibc maps.
const PRCTL: &[u64] = &[15, 0x5356_4d41];

/// prctl: no new privileges, before a further filter.
const NO_NEW_PRIVS: u64 = 38;

/// Flags of clone for fork(2): a process, not a thread.
const FORK: u64 = 0x0120_0011;

/// Further calls of the compiler's keeper: starting and killing workers, and the calls of workers
/// before they drop their privileges.
const KEEPER: &[c_long] = &[
    libc::SYS_fcntl,
    libc::SYS_getuid,
    libc::SYS_kill,
    libc::SYS_pidfd_open,
    libc::SYS_recvfrom,
    libc::SYS_seccomp,
    libc::SYS_sendto,
    libc::SYS_setitimer,
    libc::SYS_wait4,
];

/// Further calls of a worker.
const WORKER: &[c_long] = &[libc::SYS_recvfrom, libc::SYS_sendto];

fn plain(calls: &[&[c_long]]) -> List {
    let calls = calls.iter().flat_map(|list| list.iter());
    calls.map(|call| (*call, Vec::new())).collect()
}

fn only(argument: u8, values: impl IntoIterator<Item = u64>) -> Vec<Only> {
    let only = |value| Only { argument, value };
    values.into_iter().map(only).collect()
}

/// The calls of the broker while it serves.
pub fn broker() -> List {
    let mut list = plain(&[RUNTIME, OLDER, SOCKETS, BROKER, BROKER_OLDER]);
    let commands = BPF_COMMANDS.iter().map(|command| u64::from(*command));
    list.push((libc::SYS_bpf, only(0, commands)));
    list.push((libc::SYS_prctl, only(0, PRCTL.iter().copied())));
    // The service manager is notified over a datagram socket.
    let unix = u64::try_from(libc::AF_UNIX).unwrap_or(1);
    list.push((libc::SYS_socket, only(0, [unix])));
    list
}

/// The calls of the door while it serves.
pub fn door() -> List {
    let mut list = plain(&[RUNTIME, OLDER, SOCKETS]);
    list.push((libc::SYS_prctl, only(0, PRCTL.iter().copied())));
    list
}

/// The calls of [`RUNTIME`] that start a process or a thread.
const STARTING: &[c_long] = &[libc::SYS_clone, libc::SYS_clone3];

/// The calls of a process with one thread.
fn single() -> List {
    let mut list = plain(&[RUNTIME, OLDER]);
    list.retain(|(call, _)| !STARTING.contains(call));
    list
}

/// The calls of the compiler's keeper.
pub fn keeper() -> List {
    let mut list = single();
    list.extend(plain(&[KEEPER]));
    list.push((libc::SYS_clone, only(0, [FORK])));
    let prctl = PRCTL.iter().copied().chain([NO_NEW_PRIVS]);
    list.push((libc::SYS_prctl, only(0, prctl)));
    list
}

/// The calls of a worker of the compiler. It starts no process, and kills no other: see
/// [`end_only`].
pub fn worker() -> List {
    let mut list = single();
    list.extend(plain(&[WORKER]));
    list.push((libc::SYS_prctl, only(0, PRCTL.iter().copied())));
    list
}

/// Calls that system libraries attempt but do not need (opening a configuration file): they fail
/// with EPERM unless they are in the list.
const TRIED: &[c_long] = &[libc::SYS_openat];

/// A compiled list.
#[derive(Clone, Debug, Default)]
pub struct Filter(Vec<BpfProgram>);

impl Filter {
    /// Installs the filter for this thread and all that it starts.
    pub fn install(&self) -> Result<(), seccompiler::Error> {
        self.0.iter().try_for_each(|program| apply_filter(program))
    }
}

/// The reaction to a refused call; `None`: nothing is filtered.
fn refusal(enforce: Enforce) -> Option<SeccompAction> {
    match enforce {
        Enforce::Kill => Some(SeccompAction::KillProcess),
        Enforce::Deny => Some(SeccompAction::Errno(EPERM)),
        Enforce::Log => Some(SeccompAction::Log),
        Enforce::Off => None,
    }
}

/// Restricts this thread to killing the process `own`, as the C library does in abort(3). A list
/// that is compiled before the process exists cannot contain its id.
pub fn end_only(own: Pid, enforce: Enforce) -> Result<(), seccompiler::Error> {
    let Some(refusal) = refusal(enforce) else {
        return Ok(());
    };
    let own = u64::try_from(own.as_raw_pid()).unwrap_or(0);
    let (size, other) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Ne);
    let rule = SeccompRule::new(vec![SeccompCondition::new(0, size, other, own)?])?;
    let rules = BTreeMap::from([(libc::SYS_tgkill, vec![rule])]);
    let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, architecture)?;
    apply_filter(&BpfProgram::try_from(filter)?)
}

/// Installs a filter for this thread and all that it starts.
pub fn apply(list: &List, enforce: Enforce) -> Result<(), seccompiler::Error> {
    filter(list, enforce)?.install()
}

/// Compiles a list.
pub fn filter(list: &List, enforce: Enforce) -> Result<Filter, seccompiler::Error> {
    let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
    let is_listed = |call: &&c_long| list.iter().any(|(listed, _)| listed == *call);
    let tried: Vec<c_long> = TRIED
        .iter()
        .filter(|call| !is_listed(call))
        .copied()
        .collect();
    let refused: BTreeMap<i64, Vec<SeccompRule>> =
        tried.iter().map(|call| (*call, Vec::new())).collect();
    let Some(otherwise) = refusal(enforce) else {
        return Ok(Filter::default());
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (call, conditions) in list {
        let mut of_call = Vec::new();
        for Only { argument, value } in conditions {
            let condition = SeccompCondition::new(
                *argument,
                SeccompCmpArgLen::Dword,
                SeccompCmpOp::Eq,
                *value,
            )?;
            of_call.push(SeccompRule::new(vec![condition])?);
        }
        rules.insert(*call, of_call);
    }
    // Of two filters the stricter result applies: the first one permits these calls, the second one
    // makes them fail.
    rules.extend(tried.iter().map(|call| (*call, Vec::new())));
    let allow = SeccompAction::Allow;
    let deny = SeccompAction::Errno(EPERM);
    let mut filters = Vec::new();
    if !refused.is_empty() {
        filters.push(SeccompFilter::new(
            refused,
            allow.clone(),
            deny,
            architecture,
        )?);
    }
    filters.push(SeccompFilter::new(rules, otherwise, allow, architecture)?);
    let programs = filters
        .into_iter()
        .map(|filter| Ok(BpfProgram::try_from(filter)?));
    let programs: Result<Vec<BpfProgram>, seccompiler::Error> = programs.collect();
    Ok(Filter(programs?))
}
