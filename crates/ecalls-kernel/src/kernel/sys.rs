//! System calls for which libbpf-rs has no safe function, each as one small safe function.

use std::ffi::{CStr, c_void};
use std::io::Read;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, geteuid, pidfd_getfd, pidfd_open};
use rustix::rand::GetRandomFlags;
use rustix::thread::{CapabilitySet, MembarrierCommand, capabilities, membarrier};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};

/// Takes ownership of a descriptor that the kernel has just returned.
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

/// Runs an iterator; its output can be read once from the returned descriptor.
pub(crate) fn iterator(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    let link = attach(program, libbpf_sys::BPF_TRACE_ITER)?;
    // SAFETY: the link's descriptor is open.
    let fd = unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) };
    owned(fd, "running an iterator")
}

/// Attaches a program to what the descriptor `to` is of, by a link.
pub(crate) fn attach_to(
    program: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    kind: u32,
    action: &'static str,
) -> Result<OwnedFd> {
    let (program, to) = (program.as_raw_fd(), to.as_raw_fd());
    // SAFETY: no options are passed; both descriptors are open.
    let fd = unsafe { libbpf_sys::bpf_link_create(program, to, kind, std::ptr::null()) };
    owned(fd, action)
}

/// Attaches a program to a control group by a link.
pub(crate) fn attach_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    kind: u32,
) -> Result<OwnedFd> {
    let action = "attaching a program to a control group";
    attach_to(program, cgroup, kind, action)
}

/// A number that nobody can guess, never 0.
pub(crate) fn secret() -> Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| Error::from_io("choosing a key", error.into()))?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}

/// Sets an option of a socket.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &[u8],
) -> std::io::Result<()> {
    let bytes = libc::socklen_t::try_from(value.len()).expect("a small option");
    // SAFETY: `value` is alive and as long as said.
    let error = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            bytes,
        )
    };
    if error == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

/// Attaches a program to an interface of this network namespace, by a link. `kind`: to what it
/// receives or sends.
pub(crate) fn attach_interface(
    program: BorrowedFd<'_>,
    index: u32,
    kind: libbpf_sys::bpf_attach_type,
) -> Result<OwnedFd> {
    let action = "attaching a program to an interface";
    let index = i32::try_from(index).map_err(|_| Error::from_io(action, Errno::NODEV.into()))?;
    // SAFETY: no options are passed; the program's descriptor is open.
    let fd =
        unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), index, kind, std::ptr::null()) };
    owned(fd, action)
}

/// The programs of that kind on an interface, at most 64: ids of each and of its link.
pub(crate) fn interface_links(
    index: u32,
    kind: libbpf_sys::bpf_attach_type,
) -> Result<Vec<(u32, u32)>> {
    const MOST: usize = 64;
    let action = "reading the programs of an interface";
    let target = i32::try_from(index).map_err(|_| Error::from_io(action, Errno::NODEV.into()))?;
    let (mut programs, mut links) = ([0; MOST], [0; MOST]);
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = MOST as u32;
    // SAFETY: the options name two arrays that are alive, and how many numbers each has room for.
    let error = unsafe { libbpf_sys::bpf_prog_query_opts(target, kind, &raw mut options) };
    if error < 0 {
        return Err(Error::from_errno(action, i64::from(error)));
    }
    let used = programs.into_iter().zip(links);
    Ok(used.take_while(|(program, _)| *program != 0).collect())
}

/// Opens a tracepoint by its number, on every CPU and for every process, so that a program can be
/// attached to it.
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
    // structs, valid for every bit pattern. An array that it names is alive, and as long as said.
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

/// Number of the interface on which a link has its program; `None`: the interface is gone.
pub(crate) fn link_interface(fd: BorrowedFd<'_>) -> Result<Option<u32>> {
    let info = info(fd, libbpf_sys::bpf_link_info::default(), "reading a link")?;
    // SAFETY: numbers, which are valid for every bit pattern; of a link of another kind they mean
    // something else.
    let index = unsafe { info.__bindgen_anon_1.tcx.ifindex };
    Ok(Some(index).filter(|index| *index != 0))
}

/// The kernel's figures of a program: id, runs and nanoseconds (while statistics are enabled), and
/// runs that were skipped because the program was active on that CPU.
pub(crate) fn program_info(fd: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_prog_info> {
    info(
        fd,
        libbpf_sys::bpf_prog_info::default(),
        "reading a program",
    )
}

/// Ids of the maps that a program uses, at most 64.
pub(crate) fn program_maps(program: BorrowedFd<'_>) -> Result<Vec<u32>> {
    const MOST: usize = 64;
    let mut ids = vec![0u32; MOST];
    let wanted = libbpf_sys::bpf_prog_info {
        nr_map_ids: MOST as u32,
        map_ids: ids.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    let info = info(program, wanted, "reading a program")?;
    ids.truncate(info.nr_map_ids as usize);
    Ok(ids)
}

/// The number of instructions that the verifier processed to load each of these programs.
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

/// The function that returns the next id of a kind of BPF object.
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

/// Ids of all maps of the machine, in ascending order. No map is opened: that would be harmful for
/// a table of programs that is being torn down.
pub fn map_ids() -> impl Iterator<Item = u32> {
    ids(libbpf_sys::bpf_map_get_next_id)
}

/// Bytes of a map's name, with its end.
const NAME_BYTES: usize = 16;

/// Ids and names of all maps of the machine, by the program of bpf/event/map_list.bpf.c. No map is
/// opened.
pub(crate) fn list_maps(program: BorrowedFd<'_>) -> Result<Vec<(u32, String)>> {
    let mut bytes = Vec::new();
    std::fs::File::from(iterator(program)?)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::from_io("listing the machine's BPF maps", error))?;
    let (entries, _) = bytes.as_chunks::<{ 4 + NAME_BYTES }>();
    let entry = |entry: &[u8; 4 + NAME_BYTES]| {
        let (id, name) = entry.split_first_chunk().expect("four bytes and a name");
        let name = name.split(|byte| *byte == 0).next().unwrap_or(name);
        let name = String::from_utf8_lossy(name).into_owned();
        (u32::from_ne_bytes(*id), name)
    };
    Ok(entries.iter().map(entry).collect())
}

/// Ids of all programs of the machine, in ascending order.
pub(crate) fn program_ids() -> impl Iterator<Item = u32> {
    ids(libbpf_sys::bpf_prog_get_next_id)
}

/// Name of a program; `None` if the program is gone.
pub(crate) fn program_name(id: u32) -> Option<String> {
    let program = program_by_id(id).ok()?;
    let info = program_info(program.as_fd()).ok()?;
    let bytes = info.name.iter().flat_map(|letter| letter.to_ne_bytes());
    let name: Vec<u8> = bytes.take_while(|letter| *letter != 0).collect();
    Some(String::from_utf8_lossy(&name).into_owned())
}

/// Loads a system call program once more, from the instructions of one that was loaded.
pub(crate) fn load_again(name: &CStr, instructions: &[libbpf_sys::bpf_insn]) -> Result<OwnedFd> {
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        prog_flags: libbpf_sys::BPF_F_SLEEPABLE,
        ..Default::default()
    };
    // SAFETY: the texts, the instructions and the options are alive until the call returns.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SYSCALL,
            name.as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    owned(fd, "loading a program once more")
}

/// Runs a BPF system call program on `context`, which it may read and write, and returns its
/// result.
pub(crate) fn run(program: BorrowedFd<'_>, context: &mut [u8]) -> Result<i32> {
    let size = u32::try_from(context.len()).expect("a small context");
    let place = match size {
        0 => std::ptr::null(), // the kernel refuses another one
        _ => context.as_mut_ptr().cast_const().cast(),
    };
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        // For system call programs the kernel writes the context back to where it was read.
        ctx_in: place,
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

/// Runs a program of the receive path with a packet, as if it had arrived on this network
/// namespace's loopback interface, and returns its result. The kernel keeps soft interrupts of this
/// CPU off meanwhile.
pub(crate) fn run_with_packet(program: BorrowedFd<'_>, packet: &[u8]) -> Result<i32> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: packet.as_ptr().cast(),
        data_size_in: u32::try_from(packet.len()).expect("a small packet"),
        ..Default::default()
    };
    // SAFETY: the options name `packet`, which is alive and as long as said; nothing is written.
    let error =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if error < 0 {
        return Err(Error::from_errno("raising a frame", i64::from(error)));
    }
    Ok(options.retval.cast_signed())
}

/// Enables the kernel's statistics of BPF run times until the descriptor is closed.
pub fn enable_statistics() -> Result<OwnedFd> {
    // SAFETY: takes a number only.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    owned(fd, "turning BPF statistics on")
}

/// Waits until every current program run on any CPU has ended.
pub(crate) fn wait_for_readers() -> Result<()> {
    membarrier(MembarrierCommand::Global)
        .map_err(|errno| Error::from_io("waiting for running programs", errno.into()))
}

/// The current time, ns of CLOCK_MONOTONIC: the clock of every time in the contract.
pub fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// The processor time of this thread, also in the kernel, ns.
pub fn thread_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Waits until `fd` is readable. False: the time is over. A signal counts as a spurious wake-up.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout_ns: Option<u64>) -> Result<bool> {
    let time = timeout_ns.map(|ns| Timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    });
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], time.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(errno) => Err(Error::from_io("waiting for events", errno.into())),
    }
}

/// Opens a process as a descriptor.
pub fn pidfd(pid: u32) -> Result<OwnedFd> {
    let action = "opening a process";
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::from_io(action, Errno::INVAL.into()))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| Error::from_io(action, errno.into()))
}

/// A copy of descriptor `fd` of another process.
pub fn descriptor_of(process: BorrowedFd<'_>, fd: RawFd) -> Result<OwnedFd> {
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty())
        .map_err(|errno| Error::from_io("copying a descriptor of another process", errno.into()))
}

/// prctl with the four arguments of a fast call.
pub(crate) fn fast_prctl(call: u64, a: u64, b: u64, c: u64) -> i32 {
    // SAFETY: the kernel takes this option as unknown (or as ours); the arguments are numbers to
    // it.
    unsafe { libc::prctl(ecalls_abi::downcall::PRCTL, call, a, b, c) }
}

/// Whether the caller has root's effective user id, 0.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Whether the caller may load and attach the core's programs: root, or CAP_BPF and CAP_PERFMON.
pub fn may_host() -> bool {
    let wanted = CapabilitySet::BPF | CapabilitySet::PERFMON;
    capabilities(None).map_or_else(|_| is_root(), |sets| sets.effective.contains(wanted))
}

pub(crate) fn map_id(fd: BorrowedFd<'_>) -> Result<u32> {
    Ok(info(fd, libbpf_sys::bpf_map_info::default(), "reading a map")?.id)
}

/// Reads a row of an array. `value` has as many bytes as a row has on all CPUs together.
pub(crate) fn read_row(map: BorrowedFd<'_>, index: u32, value: &mut [u8]) -> Result<()> {
    // SAFETY: the key is alive, and `value` as long as the kernel writes (the caller's promise).
    let error = unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const index).cast(),
            value.as_mut_ptr().cast(),
        )
    };
    match error {
        0 => Ok(()),
        error => Err(Error::from_errno("reading a table", i64::from(error))),
    }
}

/// setsockopt with a fast call as its option (bpf/event/downcall_setsockopt.bpf.c).
pub(crate) fn fast_setsockopt(socket: RawFd, call: [u64; 4]) -> i32 {
    // SAFETY: the option's value is `call`, alive and 32 bytes long.
    unsafe { libc::setsockopt(socket, 0x4543, 0x4543, call.as_ptr().cast::<c_void>(), 32) }
}

/// Whether a socket listens for connections; false also if `socket` is not a socket.
pub(crate) fn is_listener(socket: BorrowedFd<'_>) -> bool {
    socket_acceptconn(socket).unwrap_or(false)
}
