//! `ecalls ecode repl`: evaluates expressions and statements line by line. Declarations are kept,
//! and static variables keep their values from line to line; each line runs on an event of zeros.

use std::io::{BufRead, IsTerminal, Read, Write};

use ::ecode::Checked;
use ::ecode::diagnostic::{Diagnostic, Diagnostics};
use ::ecode::ir::State;
use ::ecode::lexer::{TokenKind, lex};
use ::ecode::source::Source;
use ::ecode::trial::{Left, Setting};
use serde_json::Value;

use super::run::describe;
use super::text::EnvironmentArgs;
use super::trial::{On, Trial};
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Output, note};

/// Evaluate E-code interactively, line by line
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    environment: EnvironmentArgs,
}

const HELP: &str = "\
A line is an expression, whose value is printed; statements, after which the state is printed; or a
declaration. Declarations and the values of static variables are kept:

  > int square(int x) { return x * x; }
  > square(12) % 100
  44
  > static int n = 5;
  > n += 2;
  result: 1
  state: {\"n\":7}

An open bracket continues the input on the next line; an empty line ends it. The command ends at the
end of its input.";

/// Bytes of one line.
const LINE_BYTES: u64 = ::ecode::limits::TEXT_BYTES as u64;

pub(crate) fn run(args: &Args) -> Outcome {
    let environment = args.environment.environment()?;
    let mut declared = String::new();
    let mut former = State::default();
    while let Some(line) = read()? {
        let Ok(line) = String::from_utf8(line) else {
            note("line: this is not UTF-8 text");
            continue;
        };
        if line.trim().is_empty() {
            continue;
        }
        let mut source = Source::new("line", format!("{declared}{line}"));
        let only_declares = ::ecode::parser::parse(&source).0.body.is_none();
        if only_declares {
            // A program needs a body: an empty block.
            source = Source::new("line", format!("{}{{}}", source.text));
        }
        match ::ecode::check(&source, &environment) {
            Ok(_) if only_declares => declared += &line,
            Ok(checked) => {
                let state = checked.program.state.clone();
                let left = try_out(&source, checked, &former)?;
                former = State {
                    bytes: left.state,
                    entries: state.entries,
                };
            }
            Err(diagnostics) => tell(diagnostics, &source, declared.len()),
        }
    }
    Ok(())
}

/// Prints the diagnostics of a line that begins at byte `begin`; those of earlier lines were
/// already printed.
fn tell(mut diagnostics: Diagnostics, source: &Source, begin: usize) {
    let is_new = |one: &Diagnostic| one.span.start as usize >= begin;
    if diagnostics.all.iter().any(is_new) {
        diagnostics.all.retain(is_new);
    }
    note(diagnostics.render(source).trim_end());
}

/// Reads the next line, and further lines until all of its brackets are closed or a line is empty.
/// `None`: the input has ended.
fn read() -> Result<Option<Vec<u8>>, Failure> {
    let mut text = Vec::new();
    loop {
        if std::io::stdin().is_terminal() {
            print!("{}", if text.is_empty() { "> " } else { ". " });
            std::io::stdout().flush()?;
        }
        let begin = text.len();
        let mut limited = std::io::stdin().lock().take(LINE_BYTES);
        limited
            .read_until(b'\n', &mut text)
            .map_err(|error| Failure::new(Code::Failed, format!("reading a line: {error}")))?;
        let line = text[begin..].trim_ascii();
        if text.is_empty() {
            return Ok(None);
        }
        if line.is_empty() || text.len() as u64 > LINE_BYTES || !is_open(&text) {
            return Ok(Some(text));
        }
    }
}

/// Whether an opening bracket has no closing one yet.
fn is_open(text: &[u8]) -> bool {
    let source = Source::new("line", String::from_utf8_lossy(text));
    let (tokens, _) = lex(&source);
    let open = tokens.iter().map(|token| match token.kind {
        TokenKind::Symbol("(" | "[" | "{") => 1,
        TokenKind::Symbol(")" | "]" | "}") => -1,
        _ => 0,
    });
    open.sum::<i32>() > 0
}

/// Runs a line with the static variables that the previous line left, and prints its results.
fn try_out(source: &Source, mut checked: Checked, former: &State) -> Result<Left, Failure> {
    checked.program.state.bytes = checked.program.state.carry(former, &former.bytes);
    let mut trial = Trial::new(On::User, source, &checked)?;
    let setting = Setting::new(&checked.tree, &checked.program);
    trial.set(&setting, checked.program.fuel);
    trial.run()?;
    let left = trial.left(&checked);
    let mut shown = describe(source, &checked, &left);
    // The state is printed only if the line changed a static variable.
    let before = Left {
        state: checked.program.state.bytes.clone(),
        ..left.clone()
    };
    let before = describe(source, &checked, &before);
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
