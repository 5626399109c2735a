//! The service `disk` on a file of this machine's own disk, past the page cache (O_DIRECT). Needs
//! root, and a build folder that is on a block device.

mod harness;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ecalls::{Channel, Ecalls, Event, Subscription};
use ecalls_abi::service::{DISK_READ, DISK_WRITE, DiskEvent, SERVICE_DISK};
use harness::{PATIENCE, Parameter, core, find};
use limit::Running;

/// The threshold is one for all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const NOBODY: u32 = 65534;

/// What is read and written at once; the memory for it must be aligned.
const BLOCK: usize = 64 * 1024;
const ALIGNMENT: usize = 4096;

/// A file past the page cache, removed in the end.
struct Direct {
    file: File,
    path: PathBuf,
    disk: (u32, u32),
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// None, and the reason told, where there is no disk.
fn direct(name: &str) -> Option<Direct> {
    // The test machine has no build folder.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let folder = if folder.is_dir() {
        folder
    } else {
        std::env::temp_dir()
    };
    let path = folder.join(format!("{name}-{}", std::process::id()));
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path);
    let file = match file {
        Ok(file) => file,
        Err(error) => {
            eprintln!(
                "skipped: no file past the page cache in {}: {error}",
                folder.display()
            );
            return None;
        }
    };
    let device = file.metadata().expect("a file").st_dev();
    let numbers = (libc::major(device), libc::minor(device));
    let node = PathBuf::from(format!("/sys/dev/block/{}:{}", numbers.0, numbers.1));
    let Ok(node) = node.canonicalize() else {
        eprintln!("skipped: {} is not on a block device", folder.display());
        let _ = std::fs::remove_file(&path);
        return None;
    };
    let disk = if node.join("partition").exists() {
        let text = std::fs::read_to_string(node.join("../dev")).expect("its disk");
        let (major, minor) = text.trim().split_once(':').expect("two numbers");
        (major.parse().expect("one"), minor.parse().expect("one"))
    } else {
        numbers
    };
    Some(Direct { file, path, disk })
}

/// The part of `memory` that a device may write to.
fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let offset = memory.as_ptr().align_offset(ALIGNMENT);
    &mut memory[offset..offset + BLOCK]
}

fn watch(ecalls: &Ecalls, pid: u32) -> (Channel, Subscription) {
    let channel = ecalls.channel().ring(16384).open().expect("a channel");
    let builder = ecalls.subscribe("disk").expect("the service").pid(pid);
    let subscription = builder.memory(&channel).install().expect("a subscription");
    (channel, subscription)
}

fn data(event: &Event) -> DiskEvent {
    event.data_as().expect("a disk event")
}

#[test]
fn request_is_told_with_its_operation_its_size_its_disk_and_its_times() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let _threshold = Parameter::set(&ecalls, SERVICE_DISK, Duration::ZERO);
    let own = std::process::id();
    let (mut channel, subscription) = watch(&ecalls, own);
    let Some(mut direct) = direct("disk-times") else {
        return;
    };
    let mut memory = vec![7; BLOCK + ALIGNMENT];
    let start = Instant::now();
    direct
        .file
        .write_all(aligned(&mut memory))
        .expect("written");
    let write_time = start.elapsed();
    direct.file.rewind().expect("a file");
    direct.file.read_exact(aligned(&mut memory)).expect("read");
    for (kind, name) in [(DISK_WRITE, "the write"), (DISK_READ, "the read")] {
        let mut bytes = 0;
        let mut sector = None;
        // The file may lie in several pieces; its directory is read and written, too.
        let event = find(&mut channel, name, |event| {
            let told = data(event);
            assert_eq!((event.pid, event.uid), (own, 0));
            assert_eq!((told.major, told.minor), direct.disk, "{told:?}");
            assert_eq!(told.status, 0);
            assert!(told.latency_ns >= told.device_ns && told.device_ns > 0);
            if event.kind == kind && sector.is_none_or(|at| at == told.sector) {
                sector = Some(told.sector + u64::from(told.bytes) / 512);
                bytes += told.bytes as usize;
            }
            bytes >= BLOCK
        });
        let told = data(&event);
        assert!(told.bytes as usize <= BLOCK && told.bytes.is_multiple_of(512));
        assert!(!told.disk().is_empty() && !told.comm().is_empty());
        if kind == DISK_WRITE {
            let latency = Duration::from_nanos(told.latency_ns);
            assert!(latency <= write_time, "{latency:?} in {write_time:?}");
        }
    }
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_DISK);
}

#[test]
fn request_below_the_threshold_raises_nothing() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let _threshold = Parameter::set(&ecalls, SERVICE_DISK, Duration::from_secs(60));
    let (mut channel, subscription) = watch(&ecalls, std::process::id());
    let Some(mut direct) = direct("disk-fast") else {
        return;
    };
    let mut memory = vec![7; BLOCK + ALIGNMENT];
    direct
        .file
        .write_all(aligned(&mut memory))
        .expect("written");
    let event = channel.recv_timeout(harness::QUIET).expect("a living core");
    assert!(event.is_none(), "{event:?}");
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_DISK);
}

#[test]
fn request_is_in_the_name_of_the_process_that_made_it() {
    let Some(ecalls) = core() else { return };
    let _one = ONE_AT_A_TIME.lock();
    let _threshold = Parameter::set(&ecalls, SERVICE_DISK, Duration::ZERO);
    let (mut channel, subscription) = watch(&ecalls, 0);
    let Some(direct) = direct("disk-other") else {
        return;
    };
    let mut command = Command::new("dd");
    command
        .args([
            "if=/dev/zero",
            "oflag=direct",
            "bs=64k",
            "count=1",
            "status=none",
        ])
        .stdout(Stdio::from(direct.file.try_clone().expect("a file")))
        .uid(NOBODY);
    let mut child = Running::start(&mut command);
    let pid = child.id();
    assert!(child.wait(PATIENCE).success());
    let event = find(&mut channel, "its write", |event| {
        event.pid == pid && event.kind == DISK_WRITE && data(event).bytes as usize == BLOCK
    });
    assert_eq!(event.uid, NOBODY);
    assert_eq!(data(&event).comm(), "dd");
    drop(subscription);
    harness::assert_comes_to_rest(&ecalls, SERVICE_DISK);
}
