//! The system calls that libbpf-rs has no safe name for, each as one small safe function.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::error::{Error, Result};

/// Takes a descriptor that the kernel just gave us.
fn owned(fd: RawFd, action: &'static str) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(Error::from_errno(action, i64::from(fd)));
    }
    // SAFETY: `fd` was returned by the call whose result the caller passes on, so it is open and
    // belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a tracing program by a link; closing the descriptor detaches it.
pub(crate) fn attach(program: BorrowedFd<'_>, kind: u32) -> Result<OwnedFd> {
    // SAFETY: no options are passed; the program descriptor is open.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, kind, std::ptr::null()) };
    owned(fd, "attaching a program")
}

/// Runs an iterator: a descriptor from which its output is read once.
pub(crate) fn iterator(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    let link = attach(program, libbpf_sys::BPF_TRACE_ITER)?;
    // SAFETY: the link's descriptor is open.
    let fd = unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) };
    owned(fd, "running an iterator")
}

/// Attaches a program to a control group by a link.
pub(crate) fn attach_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    kind: u32,
) -> Result<OwnedFd> {
    // SAFETY: no options are passed; both descriptors are open.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            cgroup.as_raw_fd(),
            kind,
            std::ptr::null(),
        )
    };
    owned(fd, "attaching a program to a control group")
}

/// Opens a tracepoint by its number, on every CPU and for every process: what a program on it is
/// attached to.
pub(crate) fn open_tracepoint(id: u64) -> Result<OwnedFd> {
    let attributes = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_TRACEPOINT,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: id,
        ..Default::default()
    };
    // SAFETY: the attributes are alive and as long as they say; the rest are numbers. It is said to
    // be of CPU 0, and programs on it run on all.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            -1,
            0,
            -1,
            libbpf_sys::PERF_FLAG_FD_CLOEXEC,
        )
    };
    match RawFd::try_from(fd) {
        Ok(fd @ 0..) => owned(fd, "opening a tracepoint"),
        _ => Err(Error::last_os("opening a tracepoint")),
    }
}

/// Opens an attached program's link by its id.
pub(crate) fn link_by_id(id: u32) -> Result<OwnedFd> {
    // SAFETY: takes a number only.
    owned(
        unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) },
        "opening a link",
    )
}

/// Opens a program by its id.
pub(crate) fn program_by_id(id: u32) -> Result<OwnedFd> {
    // SAFETY: takes a number only.
    owned(
        unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) },
        "opening a program",
    )
}

/// Reads the kernel's description of a BPF object into a plain struct of libbpf-sys.
fn info<T: Copy>(fd: BorrowedFd<'_>, zeroed: T, action: &'static str) -> Result<T> {
    let mut value = zeroed;
    let mut length = u32::try_from(size_of::<T>()).expect("a small struct");
    // SAFETY: `value` is `length` bytes that the kernel may fill; T is one of the plain info
    // structs, valid for every bit pattern.
    let error = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            fd.as_raw_fd(),
            (&raw mut value).cast::<c_void>(),
            &raw mut length,
        )
    };
    if error < 0 {
        return Err(Error::from_errno(action, i64::from(error)));
    }
    Ok(value)
}

/// Id of a link, and of the program it attaches.
pub(crate) fn link_ids(fd: BorrowedFd<'_>) -> Result<(u32, u32)> {
    let info = info(fd, libbpf_sys::bpf_link_info::default(), "reading a link")?;
    Ok((info.id, info.prog_id))
}

/// The kernel's figures of a program: id, runs and nanoseconds (while statistics are on), and runs
/// that were skipped because the program was active on that CPU.
pub(crate) fn program_info(fd: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_prog_info> {
    info(
        fd,
        libbpf_sys::bpf_prog_info::default(),
        "reading a program",
    )
}

/// How many instructions the kernel's verifier looked at to load each of these programs.
pub(crate) fn verified<N: Into<String>, F: AsFd>(
    programs: impl Iterator<Item = (N, F)>,
) -> Result<Vec<(String, u32)>> {
    programs
        .map(|(name, program)| {
            let info = program_info(program.as_fd())?;
            Ok((name.into(), info.verified_insns))
        })
        .collect()
}

/// What steps from one id of a kind of BPF object to the next.
type NextId = unsafe extern "C" fn(u32, *mut u32) -> i32;

fn ids(next_id: NextId) -> impl Iterator<Item = u32> {
    let mut last = 0;
    std::iter::from_fn(move || {
        let mut next = 0;
        // SAFETY: one of libbpf's functions below; `next` is a number that it may write.
        let error = unsafe { next_id(last, &raw mut next) };
        (error == 0).then(|| {
            last = next;
            next
        })
    })
}

/// Ids of all maps of the machine, in ascending order. None is opened: that would do harm to a
/// table of programs that is just being torn down.
pub fn map_ids() -> impl Iterator<Item = u32> {
    ids(libbpf_sys::bpf_map_get_next_id)
}

/// Ids of all programs of the machine, in ascending order.
pub(crate) fn program_ids() -> impl Iterator<Item = u32> {
    ids(libbpf_sys::bpf_prog_get_next_id)
}

/// Name of a program; None when it is gone.
pub(crate) fn program_name(id: u32) -> Option<String> {
    let program = program_by_id(id).ok()?;
    let info = program_info(program.as_fd()).ok()?;
    let bytes = info.name.iter().map(|letter| letter.cast_unsigned());
    let name: Vec<u8> = bytes.take_while(|letter| *letter != 0).collect();
    Some(String::from_utf8_lossy(&name).into_owned())
}

/// Runs a BPF system call program on `context`, which it may read and write. Its return value.
pub(crate) fn run(program: BorrowedFd<'_>, context: &mut [u8]) -> Result<i32> {
    let size = u32::try_from(context.len()).expect("a small context");
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        // For system call programs the kernel writes the context back to where it read it from.
        ctx_in: context.as_mut_ptr().cast_const().cast(),
        ctx_size_in: size,
        ..Default::default()
    };
    // SAFETY: the options name `context`, which is alive, writable and `size` bytes long.
    let error =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if error < 0 {
        return Err(Error::from_errno("running a program", i64::from(error)));
    }
    Ok(options.retval.cast_signed())
}

/// Turns the kernel's statistics of BPF run times on, until the descriptor is closed.
pub fn enable_statistics() -> Result<OwnedFd> {
    // SAFETY: takes a number only.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    owned(fd, "turning BPF statistics on")
}

/// Waits until every program run that is under way on any CPU has ended.
pub(crate) fn wait_for_readers() -> Result<()> {
    // SAFETY: membarrier takes numbers only.
    let error = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if error < 0 {
        return Err(Error::last_os("waiting for running programs"));
    }
    Ok(())
}

/// Now, ns of CLOCK_MONOTONIC: the clock of every time in the contract.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec that the call may write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Waits until `fd` is readable. False: the time ran out. A signal counts as a spurious wake-up.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout_ns: Option<u64>) -> Result<bool> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let time = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one pollfd, and a timespec that is alive or null.
    let ready = unsafe { libc::ppoll(&raw mut poll, 1, time, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted {
            return Ok(true);
        }
        return Err(Error::from_io("waiting for events", error));
    }
    Ok(ready > 0)
}

/// Opens a process as a descriptor.
pub fn pidfd(pid: u32) -> Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(Error::last_os("opening a process"));
    }
    owned(
        RawFd::try_from(fd).expect("a descriptor"),
        "opening a process",
    )
}

/// A copy of descriptor `fd` of another process.
pub fn descriptor_of(process: BorrowedFd<'_>, fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    if copy < 0 {
        return Err(Error::last_os("copying a descriptor of another process"));
    }
    owned(
        RawFd::try_from(copy).expect("a descriptor"),
        "copying a descriptor",
    )
}

/// prctl with the four arguments of a fast call.
pub(crate) fn fast_prctl(call: u64, a: u64, b: u64, c: u64) -> i32 {
    // SAFETY: the kernel takes this option as unknown (or as ours); the arguments are numbers to
    // it.
    unsafe { libc::prctl(ecalls_abi::downcall::PRCTL, call, a, b, c) }
}

/// Whether the caller is root in every respect that matters here (effective user 0).
pub fn is_root() -> bool {
    // SAFETY: takes and changes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// Whether the caller may load and attach the core's programs: root, or CAP_BPF and CAP_PERFMON.
pub fn may_host() -> bool {
    const WANTED: u64 = 1 << CAP_BPF | 1 << CAP_PERFMON;
    const CAP_PERFMON: u64 = 38;
    const CAP_BPF: u64 = 39;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    effective.map_or_else(is_root, |effective| effective & WANTED == WANTED)
}

/// Id of a map.
pub(crate) fn map_id(fd: BorrowedFd<'_>) -> Result<u32> {
    Ok(info(fd, libbpf_sys::bpf_map_info::default(), "reading a map")?.id)
}

/// setsockopt with a fast call as its option (bpf/event/downcall_setsockopt.bpf.c).
pub(crate) fn fast_setsockopt(socket: RawFd, call: [u64; 4]) -> i32 {
    // SAFETY: the option's value is `call`, alive and 32 bytes long.
    unsafe { libc::setsockopt(socket, 0x4543, 0x4543, call.as_ptr().cast::<c_void>(), 32) }
}

/// Whether a socket listens for connections; also false when it is no socket.
pub(crate) fn is_listener(socket: BorrowedFd<'_>) -> bool {
    let mut listens: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("4 bytes");
    // SAFETY: `listens` is `length` bytes that the call may write.
    let error = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            (&raw mut listens).cast::<c_void>(),
            &raw mut length,
        )
    };
    error == 0 && listens != 0
}
