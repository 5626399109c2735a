//! The command line, and the start of the daemon in this order:
//!
//! 1. the configuration is read, so that an error in it changes nothing;
//! 2. the socket is opened, which detects another daemon before anything is loaded;
//! 3. the core is loaded, unless another program hosts one, but its parts only if they need
//!    privileges that are given up: a client's first need of them loads the others;
//! 4. the door is started: this program again, with the socket and one end of the relay as its
//!    standard input and output, and without privileges;
//! 5. the compiler is started in the same way, with its two sockets to the broker;
//! 6. the sandbox is closed; only then threads are started and clients are served.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use caps::CapSet;
use ecalls_abi::message::MESSAGE_DESCRIPTORS;
use ecalls_kernel::core::Core;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::{error, warn};

use crate::broker::{Asked, Broker, Parts};
use crate::compiler::job::Job;
use crate::compiler::{self, Compiler, Ends};
use crate::config::{self, Config, Names, Who};
use crate::relay::Relay;
use crate::sandbox::{self, Enforce, Sandbox};
use crate::{door, listen, log, metrics};

/// Descriptors of the door: two per connection, and a few per message.
const DOOR_DESCRIPTORS: u64 = 32768;

/// Descriptors of the core, and a few more.
const CORE_DESCRIPTORS: u64 = 2048;

/// The signals that the broker listens to: the first two end the daemon, at the third one it reads
/// its configuration again.
const SIGNALS: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

/// The longest time that another process of the daemon may take to end.
const PART_TIME: Duration = Duration::from_secs(2);

/// Arguments of `ecallsd` and `ecalls daemon`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Configuration file; by default /etc/ecalls/ecallsd.toml, if there is one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration, print it with all defaults or the error in it, and exit
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "config")]
    check_config: Option<Option<PathBuf>>,
    /// Internal: the reaction to a system call that the daemon does not use
    #[arg(long, hide = true, value_enum, default_value_t)]
    seccomp: Enforce,
    /// Internal: run as the door
    #[arg(long, hide = true)]
    door: bool,
    /// Internal: run as the compiler
    #[arg(long, hide = true, conflicts_with = "door")]
    compiler: bool,
}

/// The reason for which the daemon ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration has a mistake.
    #[error("{0}")]
    Config(#[from] config::Error),
    /// The socket cannot be opened.
    #[error("listening on {}: {source}{}", path.display(), hint(source))]
    Listen { path: PathBuf, source: io::Error },
    /// The core cannot be loaded.
    #[error("{0}")]
    Core(#[from] ecalls_kernel::Error),
    /// Other programs have a core, which the daemon needs for itself.
    #[error(
        "{}. It is another daemon, or a program that was started while no daemon ran and so has a \
         core of its own. Stop who has it (`fuser -v {}` names them), and start the daemon before \
         such programs: then they reach it",
        holder(*pid),
        path.display()
    )]
    Taken {
        /// The process that loaded the core.
        pid: u32,
        /// The file that they have open.
        path: PathBuf,
    },
    /// The sandbox cannot be closed.
    #[error("{0}")]
    Sandbox(#[from] sandbox::Error),
    /// The door has ended.
    #[error("the door has ended ({0}): its clients cannot be heard any more")]
    Door(String),
    /// A system call failed.
    #[error("{action}: {source}")]
    Os {
        action: &'static str,
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": another daemon serves there (systemctl stop ecallsd)",
        io::ErrorKind::AlreadyExists => ": something that is no socket is there",
        _ => "",
    }
}

/// Who has the core, as far as the daemon's user may see it.
fn holder(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    let name = name.map_or_else(|_| String::new(), |name| format!(" ({})", name.trim_end()));
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match process.map(test_kill_process) {
        None | Some(Err(Errno::SRCH)) => {
            format!("the core of process {pid}, which has ended, is used by others that joined it")
        }
        Some(_) => format!("process {pid} hosts the core{name}"),
    }
}

impl Error {
    /// The exit code as in `ecalls --help`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_) => 2,
            Error::Core(ecalls_kernel::Error::Denied { .. }) => 3,
            Error::Core(
                ecalls_kernel::Error::Unsupported { .. } | ecalls_kernel::Error::Refused { .. },
            ) => 4,
            _ => 1,
        }
    }

    fn os(action: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Os { action, source }
    }
}

/// Runs the daemon until a signal ends it, or executes what the arguments request. `command`: the
/// arguments by which this program is the daemon.
///
/// # Errors
/// The reason for which the daemon ends.
pub fn run(args: &Args, command: &[&str]) -> Result<(), Error> {
    if let Some(file) = &args.check_config {
        let (config, _) = load(file.as_ref())?;
        print!("{}", config.to_toml());
        return Ok(());
    }
    if args.door {
        return be_the_door(args);
    }
    if args.compiler {
        return keep_compiler(args.seccomp, compiler::compile);
    }
    let (config, config_path) = load(args.config.as_ref())?;
    let log = log::start(config.log.level);
    let names = Names::of_system();
    let listener = listen::listen(&config.socket, &names).map_err(|source| Error::Listen {
        path: config.socket.path.0.clone(),
        source,
    })?;
    let path = listener.path.clone();
    let result = host(args, command, config, config_path, log, listener.fd, &names);
    if let Some(path) = path {
        // If it cannot be removed, the next daemon removes it.
        let _ = fs::remove_file(path);
    }
    result
}

/// A file that is named explicitly must exist.
fn load(file: Option<&PathBuf>) -> Result<(Config, PathBuf), config::Error> {
    match file {
        Some(path) => Ok((Config::load(path, true)?, path.clone())),
        None => {
            let path = PathBuf::from(config::DEFAULT_PATH);
            Ok((Config::load(&path, false)?, path))
        }
    }
}

fn host(
    args: &Args,
    command: &[&str],
    config: Config,
    config_path: PathBuf,
    log: log::Handle,
    listener: OwnedFd,
    names: &Names,
) -> Result<(), Error> {
    if let Some(missing) = sandbox::missing_capability().map_err(Error::os("asking"))? {
        return Err(Error::Core(ecalls_kernel::Error::Denied {
            action: "hosting the core",
            privilege: missing,
        }));
    }
    let (wake, asked) = listen_to_signals().map_err(Error::os("listening to signals"))?;
    let core = Arc::new(open_core()?);
    let counters = metrics::Listener::open(&config.metrics.listen)
        .map_err(Error::os("listening for readers of the counters"))?;
    let (ours, theirs) = Relay::pair().map_err(Error::os("making the relay"))?;
    let (stdin, stdout) = (theirs.into_descriptor(), listener);
    let mut door = start(args, command, "--door", (stdin, stdout), names)
        .map_err(Error::os("starting the door"))?;
    let (compiler, Ends { jobs, control }) =
        Compiler::pair().map_err(Error::os("making the ways to the compiler"))?;
    let mut keeper = start(args, command, "--compiler", (jobs, control), names)
        .map_err(Error::os("starting the compiler"))?;
    enter_sandbox(args, &config, &config_path)?;
    let parts = Parts {
        core,
        relay: ours,
        compiler,
        wake,
        asked,
        config,
        config_path,
        log,
    };
    let mut broker = Broker::new(parts).map_err(Error::os("starting to serve"))?;
    if let Some(counters) = counters {
        let shared = broker.shared();
        counters
            .serve(move || shared.figures().to_text())
            .map_err(Error::os("starting a thread"))?;
    }
    let served = broker.serve();
    // Both processes end when the other ends of their sockets are closed.
    drop(broker);
    let status = wait_for(&mut door);
    wait_for(&mut keeper);
    match served {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Error::Door(status)),
        Err(source) => Err(Error::Os {
            action: "serving",
            source,
        }),
        Ok(()) => Ok(()),
    }
}

fn open_core() -> Result<Core, Error> {
    Core::open_for_daemon().map_err(|error| match error {
        ecalls_kernel::Error::Hosted { pid } => match ecalls_kernel::lock_path() {
            Ok(path) => Error::Taken {
                pid,
                path: path.to_owned(),
            },
            Err(error) => Error::Core(error),
        },
        other => Error::Core(other),
    })
}

fn enter_sandbox(args: &Args, config: &Config, config_path: &Path) -> Result<(), Error> {
    // The kernel applies the same limit to descriptors in transit to clients.
    let on_their_way = config.machine.connections.get() * MESSAGE_DESCRIPTORS as u64;
    let descriptors = config.machine.descriptors.get() + CORE_DESCRIPTORS + on_their_way;
    let folder = |path: &Path| path.parent().map(Path::to_owned);
    let mut sockets: Vec<PathBuf> = folder(&config.socket.path.0).into_iter().collect();
    if let config::Endpoint::Unix(path) = &config.metrics.listen {
        sockets.extend(folder(path));
    }
    let mut sandbox = Sandbox::broker(
        descriptors,
        ecalls_kernel::lock_path()?,
        sockets,
        config_path,
    );
    sandbox.enforce = args.seccomp;
    for lack in sandbox.enter()?.lacks {
        warn!("this kernel lacks {lack}: the daemon is less confined than it could be");
    }
    Ok(())
}

/// A pipe that becomes readable at a signal, and the requests of the signals.
fn listen_to_signals() -> io::Result<(OwnedFd, Asked)> {
    let asked = Asked::default();
    let (wake, write) = std::os::unix::net::UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    for signal in SIGNALS {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&asked.stop))?;
    }
    signal_hook::flag::register(SIGHUP, Arc::clone(&asked.reload))?;
    Ok((wake.into(), asked))
}

/// Starts this program again as another process of the daemon, with its standard input and output.
fn start(
    args: &Args,
    command: &[&str],
    part: &str,
    (stdin, stdout): (OwnedFd, OwnedFd),
    names: &Names,
) -> io::Result<Child> {
    // An executed program would inherit our ambient capabilities.
    caps::clear(None, CapSet::Ambient).map_err(io::Error::other)?;
    let mut child = Command::new("/proc/self/exe");
    child
        .arg0("ecallsd")
        .args(command)
        .arg(part)
        .arg("--seccomp")
        .arg(args.seccomp.name())
        .env_clear()
        // Otherwise the C library opens a file to count the CPUs when threads contend for memory.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .current_dir("/");
    if let Ok(stream) = std::env::var("JOURNAL_STREAM") {
        child.env("JOURNAL_STREAM", stream);
    }
    // Without such a user the process stays root's, and has no capability either way: as `nobody`
    // it would share its user with strangers, who could kill it.
    let ecalls = Who::Name("ecalls".to_owned());
    if ecalls_kernel::is_root()
        && let (Some(user), Some(group)) = (names.user(&ecalls), names.group(&ecalls))
    {
        child.uid(user);
        child.gid(group);
    }
    child.spawn()
}

/// A terminal or systemd sends a signal to all processes of the daemon. The broker ends the others:
/// one that ended before the broker has seen its own signal would be a failure.
fn leave_signals_to_broker() -> Result<(), Error> {
    for signal in SIGNALS {
        ecalls_kernel::signal::ignore(signal)?;
    }
    Ok(())
}

fn be_the_door(args: &Args) -> Result<(), Error> {
    leave_signals_to_broker()?;
    log::start(config::Level::Warn);
    let copy = |result: io::Result<OwnedFd>| result.map_err(Error::os("taking the door's place"));
    let relay = Relay::of_descriptor(copy(io::stdin().as_fd().try_clone_to_owned())?);
    let listener = copy(io::stdout().as_fd().try_clone_to_owned())?;
    // The name in the list of processes.
    let _ = rustix::thread::set_name(c"ecallsd-door");
    let mut sandbox = Sandbox::door(DOOR_DESCRIPTORS);
    sandbox.enforce = args.seccomp;
    sandbox.enter()?;
    // The error is printed here; the process that waits for the door sees only its status.
    door::serve(relay, &listener).map_err(|source| {
        error!("the door: {source}");
        Error::Os {
            action: "accepting clients",
            source,
        }
    })
}

/// Runs the compiler's keeper; see [`compiler::serve`].
pub fn keep_compiler(enforce: Enforce, work: impl Fn(&Job, &OwnedFd) -> u8) -> Result<(), Error> {
    leave_signals_to_broker()?;
    log::start(config::Level::Warn);
    let copy = |result: io::Result<OwnedFd>| result.map_err(Error::os("taking its place"));
    let ends = Ends {
        jobs: copy(io::stdin().as_fd().try_clone_to_owned())?,
        control: copy(io::stdout().as_fd().try_clone_to_owned())?,
    };
    let _ = rustix::thread::set_name(c"ecallsd-compile");
    compiler::prepare();
    let mut sandbox = Sandbox::keeper();
    sandbox.enforce = enforce;
    sandbox.enter()?;
    compiler::serve(&ends, enforce, work).map_err(|source| {
        error!("the compiler: {source}");
        Error::Os {
            action: "compiling",
            source,
        }
    })
}

/// Waits for another process of the daemon for a limited time. Returns how it ended.
fn wait_for(part: &mut Child) -> String {
    let until = Instant::now() + PART_TIME;
    while Instant::now() < until {
        match part.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return error.to_string(),
        }
    }
    "it does not end".to_owned()
}
