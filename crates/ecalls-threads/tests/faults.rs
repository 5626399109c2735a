//! Whatever happens to a process amid blocks ends in a state that its user can name, and nothing
//! stays behind: page faults, SIGSTOP, ptrace, exec, SIGKILL, and limits of kernel threads.
//!
//! Each happens to a process of its own, which is this binary with the test `child` alone, without
//! the kernel side and, as root, with it.

#![allow(unsafe_code, reason = "userfaultfd, ptrace, and ids of BPF objects")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ecalls_threads::{KernelSide, Runtime, blocking, yield_now};
use limit::{Lines, Running};

/// So long a busy machine may take. What is killed runs once more to end, on the CPU to which it is
/// bound: 3 s were seen where that had other work.
const LIMIT: Duration = Duration::from_secs(60);
/// Threads of a child that block in a call which never ends, and others that block again and again.
const BLOCKED: usize = 64;
const ROUNDERS: usize = 16;
/// Kills at random instants.
const KILLS: u64 = 20;

fn is_root() -> bool {
    std::env::var_os("ECALLS_TEST_ROOT").is_some()
}

/// Does it without the kernel side, and with it if that is possible.
fn both(mut each: impl FnMut(KernelSide)) {
    each(KernelSide::Never);
    if is_root() {
        each(KernelSide::Required);
    }
}

// --- the process to which it happens ---

const WHAT: &str = "ECALLS_TEST_FAULT";
const KERNEL: &str = "ECALLS_TEST_FAULT_KERNEL";

fn start(what: &str, kernel: KernelSide) -> (Running, Lines) {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--ignored", "--exact", "--nocapture", "child"]);
    command.env(WHAT, what).env_remove(KERNEL);
    if kernel == KernelSide::Required {
        command.env(KERNEL, "1");
    }
    let mut running = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let lines = running.lines();
    (running, lines)
}

#[test]
#[ignore = "it is the process to which the other tests do things"]
fn child() {
    let kernel = if std::env::var_os(KERNEL).is_some() {
        KernelSide::Required
    } else {
        KernelSide::Never
    };
    match std::env::var(WHAT).as_deref() {
        Ok("blocks") => block_for_ever(kernel, || ()),
        Ok("exec") => block_for_ever(kernel, || {
            blocking(|| std::io::stdin().read_exact(&mut [0])).expect("a byte");
            let mut shell = Command::new("sh");
            let error = shell.args(["-c", "echo replaced; read line"]).exec();
            panic!("exec: {error}");
        }),
        Ok("limit") => reach_the_limit(kernel),
        _ => (),
    }
}

fn start_runtime(kernel: KernelSide) -> Runtime {
    let builder = Runtime::builder().processors(1).kernel(kernel);
    builder.start().expect("a runtime")
}

/// Threads that block, of which some come back, which it says. One does something else.
fn block_for_ever(kernel: KernelSide, other: impl FnOnce() + Send + 'static) {
    let runtime = start_runtime(kernel);
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let rounds = Arc::new(AtomicU64::new(0));
    for _ in 0..BLOCKED {
        let mut reader = reader.try_clone().expect("a descriptor");
        let read = move || blocking(|| reader.read_exact(&mut [0]));
        runtime.spawn(read).expect("a thread");
    }
    for _ in 0..ROUNDERS {
        let rounds = Arc::clone(&rounds);
        let round = move || loop {
            blocking(|| std::thread::sleep(Duration::from_millis(2)));
            rounds.fetch_add(1, Ordering::Relaxed);
        };
        runtime.spawn(round).expect("a thread");
    }
    runtime.spawn(other).expect("a thread");
    loop {
        std::thread::sleep(Duration::from_millis(5));
        println!("rounds {}", rounds.load(Ordering::Relaxed));
    }
}

/// Reads until threads have blocked and come back so often that each has, probably.
fn go_on(lines: &mut Lines) {
    let mut first = None;
    let start = Instant::now();
    loop {
        let line = lines.find("rounds ", LIMIT);
        let number = line.rsplit(' ').next().expect("a number");
        let now: u64 = number.parse().expect("a number");
        if now > *first.get_or_insert(now) + 2 * ROUNDERS as u64 {
            return;
        }
        assert!(start.elapsed() < LIMIT, "threads stand still: {line}");
    }
}

// --- what a process has in the kernel ---

/// The commands of bpf(2) by which the ids of links, programs and maps are listed.
const KINDS: [(&str, i64); 3] = [("prog_id:", 11), ("map_id:", 12), ("link_id:", 31)];

/// The BPF objects that a process has: their kind, and id.
fn objects(pid: u32) -> BTreeSet<(i64, u32)> {
    let mut objects = BTreeSet::new();
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
        return objects;
    };
    for entry in entries.flatten() {
        // It may be closed by now.
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        for line in text.lines() {
            let kind = KINDS.iter().find(|(name, _)| line.starts_with(name));
            if let (Some((name, list)), true) = (kind, is_root()) {
                let id = line.trim_start_matches(name).trim();
                objects.insert((*list, id.parse().expect("an id")));
            }
        }
    }
    objects
}

/// Whether the object is in the kernel. It is not opened: that would keep it.
fn is_there(list: i64, id: u32) -> bool {
    // `start_id`, `next_id`, `open_flags` of `union bpf_attr`.
    let mut attr = [id - 1, 0, 0];
    let size = size_of_val(&attr);
    // SAFETY: the attributes are as long as it is told.
    let result = unsafe { libc::syscall(libc::SYS_bpf, list, attr.as_mut_ptr(), size) };
    result == 0 && attr[1] == id
}

/// Waits until none of them is in the kernel any more.
fn await_end(objects: &BTreeSet<(i64, u32)>) {
    let start = Instant::now();
    for (list, id) in objects {
        while is_there(*list, *id) {
            assert!(start.elapsed() < LIMIT, "{id} stays (bpf command {list})");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

// --- tests ---

fn kill(running: &mut Running) {
    let pid = running.id();
    running.kill(LIMIT);
    assert!(!std::fs::exists(format!("/proc/{pid}")).expect("/proc"));
}

#[test]
fn a_killed_process_with_blocked_threads_leaves_nothing() {
    both(|kernel| {
        let (mut running, mut lines) = start("blocks", kernel);
        go_on(&mut lines);
        let had = objects(running.id());
        assert_eq!(had.is_empty(), kernel == KernelSide::Never, "{had:?}");
        assert!(had.iter().all(|(list, id)| is_there(*list, *id)), "{had:?}");
        kill(&mut running);
        await_end(&had);
    });
}

#[test]
fn a_kill_at_any_instant_leaves_nothing() {
    both(|kernel| {
        let mut had = BTreeSet::new();
        let mut random = u64::from(std::process::id());
        for _ in 0..KILLS {
            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            let (mut running, _lines) = start("blocks", kernel);
            std::thread::sleep(Duration::from_micros((random >> 33) % 60_000));
            had.append(&mut objects(running.id()));
            kill(&mut running);
        }
        await_end(&had);
    });
}

fn signal(running: &Running, signal: i32) {
    // SAFETY: a child of ours, which has not been waited for.
    assert_eq!(unsafe { libc::kill(running.id().cast_signed(), signal) }, 0);
}

#[test]
fn a_stopped_process_goes_on_where_it_was() {
    both(|kernel| {
        let (mut running, mut lines) = start("blocks", kernel);
        for _ in 0..5 {
            go_on(&mut lines);
            signal(&running, libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(20));
            signal(&running, libc::SIGCONT);
        }
        go_on(&mut lines);
        kill(&mut running);
    });
}

/// Stops all threads of a process as a debugger does, and lets them go on.
fn trace(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let names = tasks.flatten().map(|task| task.file_name());
    let tids: Vec<i32> = names
        .map(|name| name.to_str().expect("a tid").parse().expect("a tid"))
        .collect();
    let ask = |request: u32, tid: i32| {
        // SAFETY: no request of these writes here.
        let result = unsafe { libc::ptrace(request, tid, 0_usize, 0_usize) };
        assert_eq!(
            result,
            0,
            "{request:#x} {tid}: {}",
            std::io::Error::last_os_error()
        );
    };
    for tid in &tids {
        ask(libc::PTRACE_SEIZE, *tid);
        ask(libc::PTRACE_INTERRUPT, *tid);
    }
    for tid in &tids {
        let mut status = 0;
        // SAFETY: the variable is ours.
        let waited = unsafe { libc::waitpid(*tid, &raw mut status, libc::__WALL) };
        assert!(waited == *tid && libc::WIFSTOPPED(status), "{status:#x}");
    }
    tids.iter().for_each(|tid| ask(libc::PTRACE_DETACH, *tid));
    tids.len()
}

#[test]
fn a_debugger_comes_and_goes_amid_blocks() {
    both(|kernel| {
        let (mut running, mut lines) = start("blocks", kernel);
        for _ in 0..5 {
            go_on(&mut lines);
            assert!(trace(running.id()) > BLOCKED);
        }
        go_on(&mut lines);
        kill(&mut running);
    });
}

#[test]
fn after_exec_nothing_of_the_runtime_is_left() {
    both(|kernel| {
        let (mut running, mut lines) = start("exec", kernel);
        go_on(&mut lines);
        let had = objects(running.id());
        assert_eq!(had.is_empty(), kernel == KernelSide::Never, "{had:?}");
        let mut input = running.input().expect("a pipe");
        input.write_all(b"\n").expect("it reads");
        lines.find("replaced", LIMIT);
        assert_eq!(objects(running.id()), BTreeSet::new());
        await_end(&had);
        drop(input);
        running.wait(LIMIT);
    });
}

// --- page faults ---

/// Memory whose pages somebody must serve by userfaultfd(2).
struct Slow {
    fd: i32,
    page: usize,
}

const PAGE: usize = 4096;

impl Slow {
    /// `None`: this kernel has none.
    fn new() -> Option<Slow> {
        let ioctl = |fd, request, argument: *mut u64| {
            // SAFETY: the arguments below are as long as each request has them.
            let result = unsafe { libc::ioctl(fd, request, argument) };
            assert_eq!(
                result,
                0,
                "{request:#x}: {}",
                std::io::Error::last_os_error()
            );
        };
        const USER_MODE_ONLY: i32 = 1;
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: makes a descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // UFFDIO_API: the version.
        ioctl(fd, 0xc018_aa3f, [0xaa_u64, 0, 0].as_mut_ptr());
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, kind, -1, 0) };
        let page = page.expose_provenance();
        // UFFDIO_REGISTER: start, bytes, missing pages.
        ioctl(
            fd,
            0xc020_aa00,
            [page as u64, PAGE as u64, 1, 0].as_mut_ptr(),
        );
        Some(Slow { fd, page })
    }

    fn touch(&self) -> u8 {
        // SAFETY: a byte of the mapping, which stays.
        unsafe { std::ptr::with_exposed_provenance::<u8>(self.page).read_volatile() }
    }

    /// Whether a thread has touched it, and waits.
    fn is_touched(&self) -> bool {
        let mut message = [0_u8; 32];
        // SAFETY: the message is as long as the kernel's.
        unsafe { libc::read(self.fd, message.as_mut_ptr().cast(), message.len()) > 0 }
    }

    /// The page is there, full of zeros.
    fn serve(&self) {
        let mut zeros = [self.page as u64, PAGE as u64, 0, 0];
        // UFFDIO_ZEROPAGE. The page may be there already.
        // SAFETY: the argument is as long as it must be.
        unsafe { libc::ioctl(self.fd, 0xc020_aa04, zeros.as_mut_ptr()) };
    }
}

#[test]
fn a_page_fault_gives_up_the_processor() {
    if !is_root() {
        println!("not run: it needs root, and ECALLS_TEST_ROOT=1");
        return;
    }
    let Some(slow) = Slow::new().map(Arc::new) else {
        println!("not run: this kernel has no userfaultfd");
        return;
    };
    let runtime = start_runtime(KernelSide::Required);
    let touches = Arc::clone(&slow);
    let touched = runtime.spawn(move || touches.touch()).expect("a thread");
    // If the fault held the only processor, this thread would never get it.
    let serves = Arc::clone(&slow);
    let served = runtime
        .spawn(move || {
            let start = Instant::now();
            while !serves.is_touched() && start.elapsed() < LIMIT {
                yield_now();
            }
            let before = Instant::now();
            while before.elapsed() < Duration::from_millis(20) {
                yield_now();
            }
            serves.serve();
        })
        .expect("a thread");
    let start = Instant::now();
    while runtime.stats().threads > 0 && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(2));
    }
    let left = runtime.stats().threads;
    slow.serve();
    assert_eq!(touched.join().expect("no panic"), 0);
    served.join().expect("no panic");
    assert_eq!(left, 0, "it stood still: {runtime:?}");
    assert!(runtime.stats().told > 0, "{runtime:?}");
}

// --- limits ---

/// Becomes an ordinary user's thread, for whom limits count, and keeps what loads the kernel side.
fn become_ordinary() {
    // SAFETY: asks.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    const NOBODY_ELSE: usize = 54_321;
    const CAPABILITIES: u32 = 1 << (38 - 32) | 1 << (39 - 32); // CAP_PERFMON, CAP_BPF
    let header = [0x2008_0522_u32, 0];
    let sets = [0, 0, 0, CAPABILITIES, CAPABILITIES, 0];
    let (header, sets) = (header.as_ptr().addr(), sets.as_ptr().addr());
    let user = NOBODY_ELSE;
    // The system calls, which are for this thread alone and those that it creates.
    for (number, arguments) in [
        (
            libc::SYS_prctl,
            [libc::PR_SET_KEEPCAPS as usize, 1, 0, 0, 0],
        ),
        (libc::SYS_setresuid, [user, user, user, 0, 0]),
        (libc::SYS_capset, [header, sets, 0, 0, 0]),
    ] {
        let [a, b, c, d, e] = arguments;
        // SAFETY: the structures are as capset(2) has them; the others take numbers.
        let result = unsafe { libc::syscall(number, a, b, c, d, e) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

fn set_limit(soft: libc::rlim_t) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is ours.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) };
    limit.rlim_cur = soft.min(limit.rlim_max);
    // SAFETY: as above.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) };
    assert_eq!((got, set), (0, 0));
}

/// As many threads block as `BLOCKED`, first at a limit of kernel threads, then without.
fn reach_the_limit(kernel: KernelSide) {
    become_ordinary();
    let runtime = start_runtime(kernel);
    set_limit(1);
    let sleep = || blocking(|| std::thread::sleep(Duration::from_millis(2)));
    let sleepers: Vec<_> = (0..BLOCKED)
        .map(|_| runtime.spawn(sleep).expect("a thread"))
        .collect();
    sleepers
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
    let at_limit = runtime.stats();
    assert!(
        at_limit.refused > 0 && at_limit.activations == 2,
        "{at_limit:?}"
    );
    set_limit(libc::rlim_t::MAX);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let readers = (0..BLOCKED).map(|_| {
        let mut reader = reader.try_clone().expect("a descriptor");
        let read = move || blocking(|| reader.read_exact(&mut [0]).expect("a byte"));
        runtime.spawn(read).expect("a thread")
    });
    let readers: Vec<_> = readers.collect();
    let start = Instant::now();
    while runtime.stats().activations < BLOCKED as u64 {
        assert!(start.elapsed() < LIMIT, "it does not go on: {runtime:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    writer.write_all(&[0; BLOCKED]).expect("a pipe");
    readers
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
    println!("went on");
}

#[test]
fn a_limit_of_kernel_threads_is_counted_and_once_raised_they_come() {
    both(|kernel| {
        let (mut running, mut lines) = start("limit", kernel);
        lines.find("went on", LIMIT);
        assert!(running.wait(LIMIT).success());
    });
}
