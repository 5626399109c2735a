//! Network namespaces: each is that of a process that sleeps, and ends with it.

use std::fs::read_link;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{LOOK_AGAIN, Running, ended};

/// How long a command about a namespace may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A network namespace, whose loopback interface is up.
#[derive(Debug)]
pub struct Net(Running);

impl Net {
    /// Starts a new one.
    ///
    /// # Panics
    /// Without root.
    pub fn start() -> Net {
        let mut sleeping = Command::new("unshare");
        let net = Net(Running::start(sleeping.args(["--net", "sleep", "600"])));
        let of = |pid: &str| read_link(format!("/proc/{pid}/ns/net")).ok();
        let (own, pid) = (of("self"), net.id().to_string());
        let begin = Instant::now();
        // `unshare` makes it, and becomes the process that sleeps.
        while of(&pid).is_none_or(|theirs| Some(theirs) == own) {
            assert!(begin.elapsed() < PATIENCE, "there is no namespace");
            std::thread::sleep(LOOK_AGAIN);
        }
        net.ip("link set lo up");
        net
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// A command in it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.id()));
        command.arg(program);
        command
    }

    /// Runs `ip` in it, and returns what that prints.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, arguments: &str) -> String {
        let mut command = self.command("ip");
        let ended = ended(command.args(arguments.split(' ')), PATIENCE);
        assert_eq!(ended.code, 0, "ip {arguments}: {ended:?}");
        ended.out
    }

    /// Whether `ip` accepts these arguments: what the kernel lacks, it refuses.
    pub fn accepts(&self, arguments: &str) -> bool {
        let mut command = self.command("ip");
        ended(command.args(arguments.split(' ')), PATIENCE).code == 0
    }
}
