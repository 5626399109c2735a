//! `ecalls doctor`: the features of this kernel and the mechanisms chosen by them.
//!
//! Any user can run it. All knowledge is in [`ecalls_kernel::probe`]; this file only prints. For a
//! missing feature it prints what does not work without it, and what would provide it.

use ecalls_kernel::probe::{self, Choice, Feature, State};
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, Table, wrap};

/// Show the features of this kernel, the mechanisms in use, and what missing features prevent
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Explain the features that are present, too
    #[arg(long)]
    all: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Any user can run this command. Some features cannot be tested without privileges; they are shown as
unknown, with the reason. The command changes nothing and leaves nothing loaded.

The exit code is 4 if the core cannot be loaded on this kernel; the output names what is missing.

Keys with --json; `what` gives the type of an object:
  kernel   release, machine
  feature  name, purpose, state (present, absent, unknown), reason (if unknown), since, without,
           evidence, required (the core cannot be loaded without it)
  choice   purpose, mechanism, why, alternatives";

/// Columns that explanations are wrapped to.
const WIDTH: usize = 98;

#[derive(Debug, Serialize)]
struct KernelRow {
    what: &'static str,
    release: String,
    machine: &'static str,
}

#[derive(Debug, Serialize)]
struct FeatureRow<'a> {
    what: &'static str,
    name: &'a str,
    purpose: &'a str,
    state: &'static str,
    reason: Option<&'a str>,
    since: &'a str,
    without: &'a str,
    evidence: &'a str,
    required: bool,
}

#[derive(Debug, Serialize)]
struct ChoiceRow<'a> {
    what: &'static str,
    purpose: &'a str,
    mechanism: &'a str,
    why: &'a str,
    alternatives: &'a str,
}

/// Prints the kernel, its features, and the choices.
pub(crate) fn run(args: &Args) -> Outcome {
    let features = probe::features();
    let choices = probe::choices(&features);
    let mut out = Output::new(args.json);
    if args.json {
        print_objects(&mut out, &features, &choices)?;
    } else {
        let release = release();
        out.line(format_args!(
            "Linux {release}, {}\n",
            std::env::consts::ARCH
        ))?;
        print_features(&mut out, &features, args.all)?;
        print_choices(&mut out, &choices)?;
    }
    out.flush()?;
    verdict(&features)
}

/// The feature that stands for the caller's privileges: the kernel does not lack it.
const PRIVILEGES: &str = "privileges";

/// Fails when the kernel lacks a feature that the core requires.
fn verdict(features: &[Feature]) -> Outcome {
    let missing = features.iter().find(|feature| {
        feature.required && feature.state == State::Absent && feature.name != PRIVILEGES
    });
    match missing {
        None => Ok(()),
        Some(feature) => Err(Failure::new(
            Code::Unsupported,
            format!(
                "this kernel cannot host the core: {} is missing (needs {})",
                feature.name, feature.since
            ),
        )),
    }
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or("(unknown release)".to_owned(), |text| {
            text.trim().to_owned()
        })
}

fn print_objects(out: &mut Output, features: &[Feature], choices: &[Choice]) -> Outcome {
    out.object(&KernelRow {
        what: "kernel",
        release: release(),
        machine: std::env::consts::ARCH,
    })?;
    for feature in features {
        out.object(&FeatureRow {
            what: "feature",
            name: feature.name,
            purpose: feature.purpose,
            state: state_name(&feature.state),
            reason: match &feature.state {
                State::Unknown(why) => Some(why),
                State::Present | State::Absent => None,
            },
            since: feature.since,
            without: feature.without,
            evidence: &feature.evidence,
            required: feature.required,
        })?;
    }
    choices.iter().try_for_each(|choice| {
        out.object(&ChoiceRow {
            what: "choice",
            purpose: choice.purpose,
            mechanism: choice.mechanism,
            why: &choice.why,
            alternatives: choice.alternatives,
        })
    })
}

fn state_name(state: &State) -> &'static str {
    match state {
        State::Present => "present",
        State::Absent => "absent",
        State::Unknown(_) => "unknown",
    }
}

/// Prints a table of all features, with an explanation of each missing one.
fn print_features(out: &mut Output, features: &[Feature], all: bool) -> Outcome {
    let mut table = Table::new(&["STATE", "FEATURE", "WHAT FOR"]);
    for feature in features {
        table.row([
            state_name(&feature.state).to_owned(),
            feature.name.to_owned(),
            feature.purpose.to_owned(),
        ]);
        if feature.state == State::Present && !all {
            continue;
        }
        let mut explain = |label: &str, text: &str| {
            for line in wrap(label, text, WIDTH - 4) {
                table.note(line);
            }
        };
        if let State::Unknown(why) = feature.state {
            explain("unknown:  ", why);
        }
        explain("without:  ", feature.without);
        explain("needs:    ", feature.since);
        explain("seen:     ", &feature.evidence);
    }
    out.table(&table)
}

fn print_choices(out: &mut Output, choices: &[Choice]) -> Outcome {
    for choice in choices {
        out.line("")?;
        let label = format!("{}: ", choice.purpose);
        for line in wrap(&label, choice.mechanism, WIDTH) {
            out.line(line)?;
        }
        for (label, text) in [
            ("    why:   ", choice.why.as_str()),
            ("    else:  ", choice.alternatives),
        ] {
            for line in wrap(label, text, WIDTH) {
                out.line(line)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_required_feature_that_is_absent_fails() {
        let feature = |state, required| Feature {
            name: "magic",
            purpose: "",
            state,
            since: "Linux 9.9",
            without: "",
            evidence: String::new(),
            required,
        };
        assert!(verdict(&[feature(State::Absent, false)]).is_ok());
        assert!(verdict(&[feature(State::Unknown("no"), true)]).is_ok());
        let privileges = Feature {
            name: PRIVILEGES,
            ..feature(State::Absent, true)
        };
        assert!(verdict(&[privileges]).is_ok());
        let failure = verdict(&[feature(State::Absent, true)]).expect_err("it is required");
        let Failure::Message(code, message) = failure else {
            panic!("a message");
        };
        assert_eq!(code, Code::Unsupported);
        assert!(message.contains("magic") && message.contains("Linux 9.9"));
    }
}
