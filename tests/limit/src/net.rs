//! Network namespaces: each is that of a process that sleeps, and ends with it.

use std::fs::{File, read_link, write};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

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

    /// Two of them with a cable between, whose ends are `eth` with the addresses 10.9.0.1 and .2,
    /// and fd09::1 and ::2 (which an interface that is set down keeps).
    /// `None`: this kernel has no cables (veth).
    ///
    /// # Panics
    /// Without root.
    pub fn pair() -> Option<(Net, Net)> {
        let (one, other) = (Net::start(), Net::start());
        let cable = format!("link add eth type veth peer name eth netns {}", other.id());
        if !one.accepts(&cable) {
            eprintln!("skipped: this kernel has no veth");
            return None;
        }
        for (net, number) in [(&one, 1), (&other, 2)] {
            net.ip(&format!("addr add 10.9.0.{number}/24 dev eth"));
            net.within(|| write("/proc/sys/net/ipv6/conf/eth/keep_addr_on_down", "1"))
                .expect("root may");
            net.ip(&format!("addr add fd09::{number}/64 dev eth nodad"));
            net.ip("link set eth up");
        }
        Some((one, other))
    }

    /// Moves the calling thread into it, and what the thread starts from now on.
    ///
    /// # Panics
    /// Without root.
    pub fn enter(&self) {
        let file = File::open(format!("/proc/{}/ns/net", self.id())).expect("it lives");
        let moved = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network));
        moved.expect("root may");
    }

    /// Runs `work` on a thread in it.
    ///
    /// # Panics
    /// As `work` does.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                work()
            });
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
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
