//! `ecalls ecode repl`: expressions and statements, one line after another. Declarations stay, and
//! statics keep what each line leaves in them; each line runs on an event of zeros.

use std::io::{BufRead, IsTerminal, Write};

use ::ecode::Compiled;
use ::ecode::ir::State;
use ::ecode::source::Source;
use ::ecode::trial::{Left, Setting};
use serde_json::Value;

use super::run::describe;
use super::text::PlaceArgs;
use super::trial::{On, Trial};
use crate::exit::{Failure, Outcome};
use crate::output::{Output, note};

/// Try the language out, line by line
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
}

const HELP: &str = "\
A line is an expression, whose value is shown; statements, of which is shown what they left; or a
declaration, which stays, as do the values of static variables:

  > int square(int x) { return x * x; }
  > square(12) % 100
  44
  > static int n = 5;
  > n += 2;
  result: 1
  state: {\"n\":7}

Ends with the end of its input.";

/// Bytes of one line.
const LINE_BYTES: u64 = ::ecode::limits::TEXT_BYTES as u64;

pub(crate) fn run(args: &Args) -> Outcome {
    let environment = args.place.environment()?;
    let input = std::io::stdin();
    let asks = input.is_terminal();
    let mut declared = String::new();
    let mut line = String::new();
    let mut former = State::default();
    loop {
        if asks {
            print!("> ");
            std::io::stdout().flush()?;
        }
        line.clear();
        let mut limited = std::io::Read::take(input.lock(), LINE_BYTES);
        if limited.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        let mut source = Source::new("line", format!("{declared}{line}"));
        let only_declares = ::ecode::parser::parse(&source).0.body.is_none();
        if only_declares {
            // There has to be something that runs: nothing.
            source = Source::new("line", format!("{}{{}}", source.text));
        }
        match ::ecode::compile(&source, &environment) {
            Ok(_) if only_declares => declared += &line,
            Ok(compiled) => {
                let state = compiled.program.state.clone();
                let left = try_out(&source, compiled, &former)?;
                former = State {
                    bytes: left.state,
                    entries: state.entries,
                };
            }
            Err(diagnostics) => note(diagnostics.render(&source).trim_end()),
        }
    }
}

/// Runs a line, which goes on with the statics that the line before left, and shows what it leaves.
fn try_out(source: &Source, mut compiled: Compiled, former: &State) -> Result<Left, Failure> {
    compiled.program.state.bytes = compiled.program.state.carry(former, &former.bytes);
    let mut trial = Trial::new(On::User, source, &compiled)?;
    let setting = Setting::new(&compiled.tree, &compiled.program);
    trial.set(&setting, compiled.program.fuel);
    trial.run()?;
    let left = trial.left(&compiled);
    let mut shown = describe(source, &compiled, &left);
    // Statics only if the line has changed one.
    let before = Left {
        state: compiled.program.state.bytes.clone(),
        ..left.clone()
    };
    let before = describe(source, &compiled, &before);
    shown.retain(|pair| pair.0 != "state" || !before.contains(pair));
    show(&shown)?;
    Ok(left)
}

fn show(left: &[(&'static str, Value)]) -> Outcome {
    let mut output = Output::new(false);
    let plain = ["result", "fault", "fuel_used"];
    let said = |name: &str, value: &Value| !value.is_null() && name != "fuel_used";
    if left
        .iter()
        .all(|(name, value)| plain.contains(name) && (*name != "fault" || value.is_null()))
    {
        output.line(&left[0].1)?;
    } else {
        for (name, value) in left.iter().filter(|(name, value)| said(name, value)) {
            output.line(format_args!("{name}: {value}"))?;
        }
    }
    output.flush()
}
