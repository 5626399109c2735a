//! Hosts as network namespaces: each is that of a process that sleeps, and ends with it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Outcome;

/// A process, which is killed when this is dropped.
pub(crate) struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace.
pub(crate) struct Net(Started);

impl Net {
    fn new() -> Outcome<Net> {
        let mut unshare = Command::new("unshare");
        let child = unshare.args(["--net", "sleep", "3600"]).spawn()?;
        let net = Net(Started(child));
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        while of(&net.pid().to_string()) == of("self") {
            std::thread::sleep(Duration::from_millis(5));
        }
        net.ip("link set lo up")?;
        Ok(net)
    }

    /// One with a bridge, which has this address.
    pub(crate) fn switch(address: &str) -> Outcome<Net> {
        let net = Net::new()?;
        net.ip("link add bridge type bridge")?;
        net.ip("link set bridge up")?;
        net.ip(&format!("addr add {address}/24 dev bridge"))?;
        Ok(net)
    }

    /// A host that is connected to the bridge of this one.
    pub(crate) fn host(&self, number: u8, address: &str) -> Outcome<Net> {
        let (net, port) = (Net::new()?, format!("port{number}"));
        let pid = net.pid();
        self.ip(&format!(
            "link add {port} type veth peer name eth netns {pid}"
        ))?;
        self.ip(&format!("link set {port} master bridge up"))?;
        net.ip(&format!("addr add {address}/24 dev eth"))?;
        net.ip("link set eth up")?;
        Ok(net)
    }

    fn pid(&self) -> u32 {
        self.0.0.id()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid()));
        command.arg(program);
        command
    }

    fn ip(&self, arguments: &str) -> Outcome<()> {
        match self
            .command("ip")
            .args(arguments.split(' '))
            .status()?
            .success()
        {
            true => Ok(()),
            false => Err(format!("ip {arguments} failed").into()),
        }
    }

    fn own(&self, arguments: &[&str]) -> Outcome<Command> {
        let own = std::env::current_exe()?;
        let mut command = self.command(&own.to_string_lossy());
        command.args(arguments).stdout(Stdio::piped());
        Ok(command)
    }

    /// Starts this program here with a core of its own, and waits until it has said something.
    pub(crate) fn start_own(&self, arguments: &[&str], number: u8) -> Outcome<Started> {
        let mut command = self.own(arguments)?;
        command.env("ECALLS_INSTANCE", format!("cluster-web-{number}"));
        let mut started = Started(command.spawn()?);
        let out = started.0.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        match BufReader::new(out).read_line(&mut line)? {
            0 => Err(format!("{arguments:?} has ended").into()),
            _ => Ok(started),
        }
    }

    /// Runs this program here; what it has said.
    pub(crate) fn run_own(&self, arguments: &[&str]) -> Outcome<String> {
        let output = self.own(arguments)?.output()?;
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }
}
