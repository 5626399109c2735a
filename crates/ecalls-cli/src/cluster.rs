//! `ecalls cluster`: what the hosts of a cluster have to give, and who gets it.

mod serve;
mod top;
mod using;

use ecalls::Ecalls;
use ecalls_cluster::message::CHANNEL;

use crate::exit::{Code, Failure, Outcome};

/// Find and use resources of other hosts
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Example, as root, on each host of a cluster whose relays run:
  ecalls cluster serve --cluster lab --offer job=4 &
and on any of them:
  ecalls cluster top
  ecalls cluster allocate job 1 --best 3 --wait

Each host has a manager, which tells the others how busy its host is, and gives away what it has.
There is no host on which the others depend. See ecalls-cluster(7).";

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(serve::Args),
    Top(top::Args),
    Discover(using::DiscoverArgs),
    Allocate(using::AllocateArgs),
    Release(using::ReleaseArgs),
}

/// Which channel.
#[derive(Debug, clap::Args)]
struct ChannelArgs {
    /// Name of the channel of the managers
    #[arg(long = "channel", default_value = CHANNEL, value_name = "NAME")]
    name: String,
}

impl ChannelArgs {
    /// The core in which the manager of this host has it open.
    fn joined(&self) -> Result<Ecalls, Failure> {
        Ecalls::join()?.ok_or_else(|| {
            let name = &self.name;
            let hint = "`ecalls cluster serve` opens it";
            Failure::new(
                Code::Unknown,
                format!("no channel {name:?} is open on this host: {hint}"),
            )
        })
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Serve(args) => serve::run(args),
        Command::Top(args) => top::run(args),
        Command::Discover(args) => using::discover(args),
        Command::Allocate(args) => using::allocate(args),
        Command::Release(args) => using::release(args),
    }
}
