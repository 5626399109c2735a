//! Hosts as network namespaces: each is that of a process that sleeps, and ends with it. All of
//! them end with this program, however that happens.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{INSTANCE, Outcome};

/// How long the kernel may take for a namespace on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command that is killed when the thread that started it ends.
fn until_we_end(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// A process, which is killed when this is dropped, and the instance of its core.
pub(crate) struct Started(Child, Option<String>);

impl Started {
    /// Starts a command whose core is this instance.
    pub(crate) fn of(command: &mut Command, instance: String) -> Outcome<Started> {
        command.env("ECALLS_INSTANCE", &instance);
        Ok(Started(command.spawn()?, Some(instance)))
    }

    /// Waits until it has said a line.
    pub(crate) fn says(&mut self) -> Outcome<String> {
        let out = self.0.stdout.take().ok_or("it had said something")?;
        let mut line = String::new();
        match BufReader::new(out).read_line(&mut line)? {
            0 => Err("a host has ended".into()),
            _ => Ok(line),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if let Some(instance) = &self.1 {
            let _ = std::fs::remove_file(format!("/run/ecalls@{instance}.lock"));
            let _ = std::fs::remove_dir_all(format!("/run/ecalls-relay@{instance}"));
        }
    }
}

/// A network namespace.
pub(crate) struct Net(Started);

impl Net {
    /// One without any link.
    pub(crate) fn new() -> Outcome<Net> {
        let mut unshare = until_we_end("unshare");
        let child = unshare.args(["--net", "sleep", "3600"]).spawn()?;
        let net = Net(Started(child, None));
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let begin = Instant::now();
        while of(&net.pid().to_string()) == of("self") {
            if begin.elapsed() > PATIENCE {
                return Err("there is no network namespace: who makes one needs root".into());
            }
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

    /// The process that it ends with.
    pub(crate) fn pid(&self) -> u32 {
        self.0.0.id()
    }

    /// A command in it, which ends with this program.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = until_we_end("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid()));
        command.arg(program);
        command
    }

    /// Runs `ip` in it.
    pub(crate) fn ip(&self, arguments: &str) -> Outcome<()> {
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

    /// This program in it.
    pub(crate) fn own(&self, arguments: &[&str]) -> Outcome<Command> {
        let own = std::env::current_exe()?;
        let mut command = self.command(&own.to_string_lossy());
        command.args(arguments).stdout(Stdio::piped());
        Ok(command)
    }

    /// Starts this program here with a core of its own, and waits until it has said something.
    pub(crate) fn start_own(&self, arguments: &[&str], number: u8) -> Outcome<Started> {
        let mut command = self.own(arguments)?;
        let instance = format!("{INSTANCE}-{number}");
        let mut started = Started::of(&mut command, instance)?;
        started.says()?;
        Ok(started)
    }

    /// Runs this program here; what it has said.
    pub(crate) fn run_own(&self, arguments: &[&str]) -> Outcome<String> {
        let output = self.own(arguments)?.output()?;
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }
}
