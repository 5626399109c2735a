//! `ecalls raise`: raises one event of an application service, from the command line.
//!
//! The command joins the core and never loads one, because without a core no application has
//! registered a service. Only the owner of a service and root may raise its events.

use std::time::Duration;

use ecalls::{Ecalls, Error, Format, Raise, Target};
use ecalls_abi::service::{SERVICE_USER, ServiceInfo};
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::output::Output;
use crate::{duration, process};

/// Raise an event of an application service
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Name of the service, see `ecalls services`
    service: String,
    /// Data, by the field names of the service's format; other fields are 0. Arrays: name=1,2,3
    #[arg(value_name = "FIELD=VALUE", value_parser = pair)]
    fields: Vec<(String, String)>,
    /// Kind of the event, by name or number
    #[arg(long)]
    kind: Option<String>,
    /// Target: a process id, `all` subscriptions, or `one` of them in turn
    #[arg(long, default_value = "all", value_name = "PID|all|one", value_parser = target)]
    target: Target,
    /// Discard the event, and count it as late, if it is not delivered within this time
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    deadline: Option<Duration>,
    /// Deliver the event only after this time
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    release: Option<Duration>,
    /// Priority, for channels whose slots are used by priority; 0 is the most urgent
    #[arg(long, default_value_t = 0, value_name = "N")]
    priority: u32,
    /// Type, for channels whose slots are used by type
    #[arg(long = "type", default_value_t = 0, value_name = "N")]
    slot_type: u32,
    /// Ask for event-aware CPU scheduling of the receiver
    #[arg(long)]
    cpu: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Example, in two terminals:
  ecalls service weather --format 's32 celsius; u32 wind' --kinds 'change storm'
  ecalls raise weather --kind storm celsius=-3 wind=90 --deadline 5ms

Keys with --json: service, kind, target, offered (number of subscriptions to which the event was
offered; 0 if there is none, or if the event waits for its release time), waits (whether it has a
release time).";

pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("data is given as field=value, for example celsius=21".to_owned()),
    }
}

fn target(text: &str) -> Result<Target, String> {
    match text {
        "all" => Ok(Target::All),
        "one" => Ok(Target::WakeOne),
        pid => match pid.parse::<i32>() {
            Ok(pid) if pid > 0 => Ok(Target::Process(pid as u32)),
            _ => Err("expected a process id, `all` or `one`".to_owned()),
        },
    }
}

#[derive(Debug, Serialize)]
struct Raised<'a> {
    service: &'a str,
    kind: &'a str,
    target: i32,
    offered: i64,
    waits: bool,
}

/// Raises the event and prints the number of subscriptions to which it was offered.
pub(crate) fn run(args: &Args) -> Outcome {
    if let Target::Process(pid) = args.target {
        process::check(pid)?;
    }
    let ecalls = Ecalls::join()?.ok_or_else(|| {
        Failure::new(
            Code::Unknown,
            format!(
                "no service {:?}: no core runs, so no application has registered one. Register \
                 it first: `ecalls service {} --format ...`",
                args.service, args.service
            ),
        )
    })?;
    let info = application_service(&ecalls, &args.service)?;
    let (kind, kind_name) = find_kind(&info, args.kind.as_deref())?;
    let format = Format::parse(info.format())?;
    let data = data(&format, &args.fields)?;
    let offered = ecalls.raise(&args.service, &event(args, kind, &data))?;
    print(args, &kind_name, offered)
}

fn event<'a>(args: &Args, kind: u32, data: &'a [u8]) -> Raise<'a> {
    let mut raise = Raise::new(data)
        .target(args.target)
        .kind(kind)
        .priority(args.priority)
        .slot_type(args.slot_type);
    if let Some(deadline) = args.deadline {
        raise = raise.deadline(deadline);
    }
    if let Some(release) = args.release {
        raise = raise.release(release);
    }
    if args.cpu { raise.cpu() } else { raise }
}

/// The event's data from the given fields; the error names the wrong field.
pub(crate) fn data(format: &Format, fields: &[(String, String)]) -> Result<Vec<u8>, Failure> {
    let pairs = || fields.iter().map(|(name, value)| (&**name, &**value));
    for (name, value) in pairs() {
        if let Err(Error::Invalid { expected, .. }) = format.write([(name, value)]) {
            return Err(Failure::usage(format_args!(
                "{name}={value}: expected {expected}"
            )));
        }
    }
    Ok(format.write(pairs())?)
}

/// The service, if applications may raise its events.
fn application_service(ecalls: &Ecalls, name: &str) -> Result<ServiceInfo, Failure> {
    let index = ecalls.access().find_service(name)?;
    if index < SERVICE_USER {
        let message = format!(
            "{name} is a built-in service, whose events only the kernel raises: `ecalls services` \
             shows which ones have an owner"
        );
        return Err(Failure::usage(message));
    }
    Ok(ecalls.access().service_stat(index)?.info)
}

/// Number and name of a kind that is given by name or number; 0 if none is given.
pub(crate) fn find_kind(info: &ServiceInfo, given: Option<&str>) -> Result<(u32, String), Failure> {
    let names: Vec<&str> = info.kinds().collect();
    let named = |kind: usize| {
        names
            .get(kind)
            .map_or(kind.to_string(), |name| (*name).to_owned())
    };
    let Some(given) = given else {
        return Ok((0, named(0)));
    };
    let by_name = names.iter().position(|name| *name == given);
    let by_number = || given.parse().ok().filter(|kind| *kind < 32);
    match by_name.or_else(by_number) {
        Some(kind) => Ok((u32::try_from(kind).unwrap_or(0), named(kind))),
        None => Err(Failure::from(Error::Unknown {
            what: "kind",
            name: given.to_owned(),
            hint: format!(
                "this service has {}; or a number, 0 to 31",
                names.join(", ")
            ),
        })),
    }
}

fn print(args: &Args, kind: &str, offered: i64) -> Outcome {
    let mut out = Output::new(args.json);
    let waits = args.release.is_some();
    if args.json {
        out.object(&Raised {
            service: &args.service,
            kind,
            target: args.target.raw().unwrap_or(0),
            offered,
            waits,
        })?;
    } else {
        let what = format!("raised {} {kind}", args.service);
        out.line(match offered {
            0 if waits => format!("{what}: the event waits for its release time"),
            0 => {
                format!("{what}: no subscription matched, so the event was dropped (no_subscriber)")
            }
            1 => format!("{what}: offered to 1 subscription"),
            n => format!("{what}: offered to {n} subscriptions"),
        })?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        assert_eq!(target("all"), Ok(Target::All));
        assert_eq!(target("one"), Ok(Target::WakeOne));
        assert_eq!(target("42"), Ok(Target::Process(42)));
        for text in ["", "0", "-1", "two", "4294967295"] {
            assert!(target(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_field_is_a_name_and_a_value() {
        assert_eq!(pair("a=1=2"), Ok(("a".to_owned(), "1=2".to_owned())));
        assert!(pair("a").is_err() && pair("=1").is_err());
    }

    #[test]
    fn kinds_are_found_by_name_and_by_number() {
        let mut info = ServiceInfo::default();
        ecalls_abi::text::write(&mut info.kinds, "low high").expect("short");
        let find = |given| find_kind(&info, given).map_err(|_| ());
        assert_eq!(find(None), Ok((0, "low".to_owned())));
        assert_eq!(find(Some("high")), Ok((1, "high".to_owned())));
        assert_eq!(find(Some("31")), Ok((31, "31".to_owned())));
        assert!(find(Some("32")).is_err() && find(Some("middle")).is_err());
    }
}
