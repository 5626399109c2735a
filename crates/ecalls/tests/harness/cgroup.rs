//! Control groups for tests: made where the machine has its hierarchies, with what runs in them
//! ended and the directories removed in the end, also when a test fails.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use limit::Running;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A group of version 2, and the same in version 1 for its memory where that is how the machine is
/// set up.
pub(crate) struct Group {
    path: PathBuf,
    memory: Option<PathBuf>,
    name: String,
    children: Vec<Running>,
}

/// Where a hierarchy is mounted: of version 2, or of version 1 with that controller.
fn mounted(controller: Option<&str>) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let found = mounts.lines().find(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        match controller {
            None => fields[2] == "cgroup2",
            Some(name) => fields[2] == "cgroup" && fields[3].split(',').any(|each| each == name),
        }
    })?;
    found.split(' ').nth(1).map(PathBuf::from)
}

impl Group {
    /// A new group; None, and the reason told, where there can be none.
    pub(crate) fn new() -> Option<Group> {
        let Some(root) = mounted(None) else {
            eprintln!("skipped: no control groups of version 2 are mounted");
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ecalls-test-{}-{number}", std::process::id());
        let path = root.join(&name);
        fs::create_dir(&path).expect("root can make a group");
        Some(Group {
            path,
            memory: None,
            name,
            children: Vec::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its number, as events have it, and that of the group it is in.
    pub(crate) fn ids(&self) -> (u64, u64) {
        let id = |path: &Path| fs::metadata(path).expect("a directory").ino();
        (id(&self.path), id(&self.path.join("..")))
    }

    /// Gives the group to a user.
    pub(crate) fn give_to(&self, uid: u32) {
        chown(&self.path, Some(uid), None).expect("root can give it away");
    }

    /// Limits its memory; false, and the reason told, where that cannot be. `high`: so that what
    /// runs in it is slowed down, and not killed (version 2 only).
    pub(crate) fn limit_memory(&mut self, bytes: u64, high: bool) -> bool {
        let root = self.path.parent().expect("the root");
        let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        let file = if high { "memory.high" } else { "memory.max" };
        if fs::write(self.path.join(file), bytes.to_string()).is_ok() {
            return true;
        }
        let Some(version1) = mounted(Some("memory")) else {
            eprintln!("skipped: control groups cannot limit memory here");
            return false;
        };
        let memory = version1.join(&self.name);
        fs::create_dir(&memory).expect("root can make a group");
        let limit = fs::write(memory.join("memory.limit_in_bytes"), bytes.to_string());
        self.memory = Some(memory);
        limit.expect("a limit");
        true
    }

    /// Whether its memory is limited by version 2.
    pub(crate) fn is_unified(&self) -> bool {
        self.memory.is_none()
    }

    /// Takes in a process that runs. What it has is charged elsewhere; what it takes, here.
    pub(crate) fn adopt(&self, pid: u32) {
        for path in [Some(&self.path), self.memory.as_ref()]
            .into_iter()
            .flatten()
        {
            fs::write(path.join("cgroup.procs"), pid.to_string()).expect("moved into the group");
        }
    }

    /// Starts a shell command in the group. Returns its process.
    pub(crate) fn run(&mut self, script: &str, change: impl FnOnce(&mut Command)) -> u32 {
        // It begins when it is in the group.
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("read go; {script}")])
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        change(&mut command);
        let mut child = Running::start(&mut command);
        let pid = child.id();
        self.adopt(pid);
        drop(child.input());
        self.children.push(child);
        pid
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What the commands have started, too.
        for path in [Some(&self.path), self.memory.as_ref()]
            .into_iter()
            .flatten()
        {
            for _ in 0..200 {
                let inside = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
                for pid in inside.lines().filter_map(|line| line.parse::<i32>().ok()) {
                    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
                for child in &mut self.children {
                    let _ = child.ended();
                }
                if fs::remove_dir(path).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Whether the kernel measures pressure; says so if not.
pub(crate) fn measures_pressure() -> bool {
    let measures = fs::read("/proc/pressure/memory").is_ok();
    if !measures {
        eprintln!("skipped: this kernel measures no pressure (psi=1 switches it on)");
    }
    measures
}
