//! `ecalls ecode test`: runs the tests that texts contain.

use std::path::PathBuf;

use ::ecode::Checked;
use ::ecode::source::Source;
use ::ecode::tree::Test;
use ::ecode::trial::{Unmet, run_test};
use serde::Serialize;

use super::text::{self, EnvironmentArgs};
use super::trial::{On, Trial};
use crate::exit::{Code, Failure, Outcome};
use crate::output::Output;

/// Run the tests that texts contain
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The texts; - reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Where to run the tests
    #[arg(long, value_enum, default_value_t = On::User)]
    on: On,
    /// Print one JSON object per test
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
A test sets the event, runs the program, and says what it expects:

  test \"a large packet goes on\" {
      input.bytes = 2000;
      run;
      expect result == 1;
      expect fault == 0;
  }

Each test starts with an event whose fields are 0, without sinks, and with initial values of static
variables. It can also set event.pid, attr(\"load\"), sinks[0].load, age(sinks[0]) and now(). An
expectation can name result, fault, dropped, requests, accepted, rejected, input, output and static
variables; `expect signal(40, 1);` checks that the program requested this signal.

The exit code is 1 if a test fails, and 2 if a program has errors.";

#[derive(Debug, Serialize)]
struct Row<'a> {
    file: &'a str,
    test: &'a str,
    passed: bool,
    unmet: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut output = Output::new(args.json);
    let (mut tests, mut failed) = (0, 0);
    for file in &args.files {
        let source = text::read(file)?;
        let checked = text::check_source(&source, &args.environment)?;
        for test in &checked.tree.tests {
            let unmet = try_out(args.on, &source, &checked, test)?;
            tests += 1;
            failed += usize::from(!unmet.is_empty());
            show(&mut output, &source, test, &unmet)?;
        }
    }
    if !args.json {
        output.line(format_args!("{} passed, {failed} failed", tests - failed))?;
    }
    output.flush()?;
    match failed {
        0 => Ok(()),
        _ => Err(Failure::new(
            Code::Failed,
            format!("{failed} of {tests} tests failed"),
        )),
    }
}

/// Runs one test with a program of its own.
fn try_out(on: On, source: &Source, checked: &Checked, test: &Test) -> Result<Vec<Unmet>, Failure> {
    let mut trial = Trial::new(on, source, checked)?;
    let fuel = checked.program.fuel;
    run_test(&checked.tree, &checked.program, test, |setting| {
        trial.set(setting, fuel);
        trial.run()?;
        Ok(trial.left(checked))
    })
}

fn show(output: &mut Output, source: &Source, test: &Test, unmet: &[Unmet]) -> Outcome {
    let tell = |unmet: &Unmet| {
        let text = source.text_of(unmet.span);
        let fault = unmet.fault.map_or(String::new(), |fault| {
            let place = unmet.fault_place.map(|byte| source.at(byte));
            let place = place.map_or(String::new(), |place| format!(" at {place}"));
            format!(" (the run before it failed{place}: {})", fault.name())
        });
        let what = if unmet.request {
            "was not requested"
        } else {
            "does not hold"
        };
        let found = unmet.found.as_ref().map_or(String::new(), |(span, value)| {
            format!(": {} is {value}", source.text_of(*span))
        });
        let place = source.at(unmet.span.start);
        format!("{place}: {text} {what}{found}{fault}")
    };
    let row = Row {
        file: &source.name,
        test: &test.name,
        passed: unmet.is_empty(),
        unmet: unmet.iter().map(tell).collect(),
    };
    if output.is_json() {
        return output.object(&row);
    }
    let verdict = if row.passed { "ok    " } else { "FAILED" };
    output.line(format_args!("{verdict}  {}", test.name))?;
    for unmet in &row.unmet {
        output.line(format_args!("        {unmet}"))?;
    }
    Ok(())
}
