//! `ecalls answer hold`: cells for replies, lent to a program of a user without privileges.
//!
//! It needs neither a core nor the daemon. What it lends is memory (abi/answer.h); where, how much
//! and by which text is answered is what this command was told.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ecalls::{AnswerHolder, AnswerPlan};
use ecallsd::config::{Names, Who};

use crate::ecode::text;
use crate::exit::{Code, Failure, Outcome};
use crate::output::note;
use crate::stop::Stop;

/// Let a program without privileges answer at a UDP port by the kernel
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The text in E-code that says the cell of a request, UP or DROP
    file: PathBuf,
    /// The interface on which requests arrive
    #[arg(long, value_name = "NAME")]
    interface: String,
    /// The service's address and port; 0.0.0.0 is any of this host, [::] also any of IPv6
    #[arg(long, value_name = "ADDRESS:PORT")]
    at: SocketAddr,
    /// The user whose program may have it, by name or number
    #[arg(long, value_name = "USER")]
    user: String,
    /// Number of cells
    #[arg(long, value_name = "N", default_value_t = 1024)]
    cells: u32,
    /// The first bytes of a reply that are its request's, e.g. its number
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    echo: usize,
    /// The most replies in a second
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    per_second: u64,
}

/// How often it looks whether the interface is there.
const LOOK: Duration = Duration::from_secs(1);

const HELP: &str = "\
It answers as long as this command runs and a program has the cells; `ecalls answer list` shows how
much. The program asks for them by ecalls_answers_borrow(3), or ecalls::Answers::borrow_at, in the
same network namespace; one program at a time. It gets the memory of the cells, into which it writes
replies, and the text: no program of its own comes into the kernel, and the interface, the port, the
rate and the length of replies are not its to choose. When it has ended, all cells are emptied.

From boot on: `systemctl enable --now ecalls-answer@NAME`. Its text is /etc/ecalls/answer/NAME.ec,
and a line OPTIONS=... in /etc/ecalls/answer/NAME.conf has the options. It ends with an error if the
interface is removed, and the unit tries until there is one again.

A text is one as in doc/answers.md, for example, of a service with one request:
  length == 4 ? 0 : UP";

/// Lends until it is told to end.
pub(crate) fn run(args: &Args) -> Outcome {
    let stop = Stop::on_signals()?;
    let source = text::read(&args.file)?;
    let who = args
        .user
        .parse()
        .map_or_else(|_| Who::Name(args.user.clone()), Who::Number);
    let user = Names::of_system().user(&who).ok_or_else(|| {
        let message = format!("there is no user {:?} on this machine", args.user);
        Failure::new(Code::Unknown, message)
    })?;
    let plan = AnswerPlan {
        interface: &args.interface,
        at: args.at,
        cells: args.cells,
        echo: args.echo,
        per_second: args.per_second,
    };
    let holder = AnswerHolder::start(&plan, &source.text, user)?;
    note(format_args!(
        "ecalls: a program of user {} may answer at {} until this command ends",
        args.user, args.at
    ));
    while !stop.sleep(LOOK) {
        if holder.has_ended() {
            let message = format!("the interface {} is gone", args.interface);
            return Err(Failure::new(Code::Failed, message));
        }
    }
    Ok(())
}
