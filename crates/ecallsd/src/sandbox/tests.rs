//! The sandbox from within: each test restricts a thread of its own, which ends with the test.
//! Limits of the whole process (descriptors, core files) are tested with the running daemon.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::thread;

use super::*;

/// Runs `test` in a thread with these system calls; others fail.
fn with_calls(list: fn() -> syscalls::List, test: fn()) {
    let run = move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        syscalls::apply(&list(), Enforce::Deny).unwrap();
        test();
    };
    thread::spawn(run).join().unwrap();
}

fn is_denied<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[test]
fn the_door_opens_no_file_no_socket_and_no_program() {
    with_calls(syscalls::door, || {
        assert!(is_denied(File::open("/etc/passwd")));
        assert!(is_denied(UnixDatagram::unbound()));
        assert!(is_denied(TcpStream::connect("127.0.0.1:1")));
        assert!(is_denied(fs::remove_file("/nothing")));
        assert!(is_denied(std::process::Command::new("/bin/true").status()));
        assert!(set_dumpable_behavior(DumpableBehavior::Dumpable).is_err());
    });
}

#[test]
fn a_worker_of_the_compiler_starts_and_ends_nothing() {
    with_calls(syscalls::worker, || {
        assert!(is_denied(File::open("/etc/passwd")));
        assert!(is_denied(UnixDatagram::unbound()));
        assert!(is_denied(thread::Builder::new().spawn(|| ())));
        assert!(is_denied(std::process::Command::new("/bin/true").status()));
        assert!(rustix::process::test_kill_process(rustix::process::Pid::INIT).is_err());
    });
    with_calls(syscalls::keeper, || {
        assert!(is_denied(File::open("/etc/passwd")));
        assert!(is_denied(UnixDatagram::unbound()));
        assert!(is_denied(thread::Builder::new().spawn(|| ())));
        assert!(set_dumpable_behavior(DumpableBehavior::Dumpable).is_err());
    });
}

#[test]
fn the_broker_opens_files_but_no_network_and_no_program() {
    with_calls(syscalls::broker, || {
        assert!(File::open("/etc/passwd").is_ok());
        assert!(UnixDatagram::unbound().is_ok());
        assert!(is_denied(TcpStream::connect("127.0.0.1:1")));
        assert!(is_denied(TcpListener::bind("127.0.0.1:0")));
        assert!(is_denied(std::process::Command::new("/bin/true").status()));
    });
}

#[test]
fn threads_inherit_what_was_given_up() {
    with_calls(syscalls::door, || {
        let inner = thread::spawn(|| is_denied(File::open("/etc/passwd")));
        assert!(inner.join().unwrap());
    });
}

#[test]
fn only_the_named_files_can_be_read_and_written() {
    let folder = std::env::temp_dir().join(format!("ecallsd-sandbox-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let lock = folder.join("lock");
    fs::write(&lock, "1").unwrap();
    let place = folder.clone();
    let run = move || {
        let sandbox = Sandbox::broker(64, &lock, vec![], Path::new("/nowhere/ecallsd.toml"));
        let mut report = Report::default();
        rustix::thread::set_no_new_privs(true).unwrap();
        sandbox.restrict_files(&mut report).unwrap();
        if report.lacks.iter().any(|what| what.starts_with("Landlock")) {
            eprintln!("not tested: this kernel lacks {:?}", report.lacks);
            return;
        }
        assert!(fs::read("/etc/passwd").is_ok());
        assert!(fs::read(KERNEL_TYPES).is_ok() || !Path::new(KERNEL_TYPES).exists());
        assert!(File::options().read(true).write(true).open(&lock).is_ok());
        assert!(is_denied(fs::read("/etc/hostname")));
        assert!(is_denied(fs::read("/proc/self/status")));
        assert!(is_denied(fs::write(place.join("new"), "")));
        assert!(is_denied(fs::remove_file(&lock)));
        assert!(is_denied(File::create("/etc/passwd.ecallsd-test")));
    };
    thread::spawn(run).join().unwrap();
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn capabilities_that_are_not_kept_are_in_no_set() {
    let run = || {
        let wanted = [Capability::CAP_BPF, Capability::CAP_PERFMON];
        let before = caps::read(None, CapSet::Permitted).unwrap();
        keep_capabilities(&wanted).unwrap();
        for set in [CapSet::Effective, CapSet::Permitted] {
            let kept = caps::read(None, set).unwrap();
            assert!(kept.iter().all(|one| wanted.contains(one)), "{kept:?}");
            assert!(
                wanted
                    .iter()
                    .all(|one| kept.contains(one) == before.contains(one))
            );
        }
        for set in [CapSet::Inheritable, CapSet::Ambient] {
            assert!(caps::read(None, set).unwrap().is_empty());
        }
        keep_capabilities(&[]).unwrap();
        assert!(caps::read(None, CapSet::Permitted).unwrap().is_empty());
    };
    thread::spawn(run).join().unwrap();
}
