//! The command `ecalls-relay`.

#![forbid(unsafe_code)]

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use ecalls_relay::config::{Config, DEFAULT_PATH};
use ecalls_relay::relay::{End, Relay};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};

const HELP: &str = "\
Usage: ecalls-relay [OPTIONS]

Finds the hosts of a cluster that have the same channels open (ecalls-relay(8)).

Options:
      --config FILE    Configuration [default: /etc/ecalls/relay.toml]
      --check-config   Print the configuration in effect, or its first error
      --version        Print the version
      --help           Print this help";

/// Status of a command that was used wrongly.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, message)) => {
            eprintln!("ecalls-relay: {message}");
            ExitCode::from(status)
        }
    }
}

type Failure = (u8, String);

fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Failure> {
    let (mut path, mut check) = (None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--config" => {
                let given = arguments.next();
                path = Some(given.ok_or((USAGE, "--config needs a file".to_owned()))?);
            }
            "--check-config" => check = true,
            "--version" => {
                println!("ecalls-relay {}", env!("CARGO_PKG_VERSION"));
                return Ok(());
            }
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(());
            }
            other => return Err((USAGE, format!("unknown argument {other:?}; see --help"))),
        }
    }
    let failed = |error: &dyn std::fmt::Display| (1, error.to_string());
    let may_miss = path.is_none();
    let path = PathBuf::from(path.unwrap_or_else(|| DEFAULT_PATH.to_owned()));
    let config = Config::read(&path, may_miss).map_err(|error| failed(&error))?;
    if check {
        print!(
            "{}",
            toml::to_string(&config).map_err(|error| failed(&error))?
        );
        return Ok(());
    }
    serve(config).map_err(|error| failed(&*error))
}

fn serve(config: Config) -> Result<(), Box<dyn std::error::Error>> {
    let (mut stop, sender) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    let path = config.socket.path.display().to_string();
    let mut relay = Relay::start(config)?;
    eprintln!("ecalls-relay: {} serves programs at {path}", relay.id());
    if let Some(name) = relay.wants_interface() {
        let which = match name {
            "" => "no interface is up with an IPv4 address".to_owned(),
            _ => format!("the lane's interface {name} is not up with an IPv4 address"),
        };
        eprintln!(
            "ecalls-relay: {which}, so no other host is found by multicast; the relay begins anew \
             once it is"
        );
    }
    tell(&[NotifyState::Ready]);
    let mut last = String::new();
    let end = relay.serve(&mut stop, |status| {
        if status != last {
            tell(&[NotifyState::Status(status)]);
            status.clone_into(&mut last);
        }
    })?;
    if end == End::Anew {
        drop(relay);
        eprintln!("ecalls-relay: an interface is up now, so the relay begins anew");
        let program = std::env::current_exe()?;
        let failed = Command::new(&program)
            .args(std::env::args_os().skip(1))
            .exec();
        let program = program.display();
        return Err(format!("executing {program}: {failed}; start the relay again").into());
    }
    tell(&[NotifyState::Stopping]);
    Ok(())
}

/// To the service manager, if one started the relay.
fn tell(states: &[NotifyState<'_>]) {
    // If it does not read, the relay serves nevertheless.
    let _ = sd_notify::notify(states);
}
