//! `ecalls ecode check`: whether a text compiles, and upper bounds of its program's cost. The
//! program for the kernel is always made: only so are its limits checked, which `ecalls watch`
//! would report too, and it takes a fifth of the whole time.

use ::ecode::Cost;
use serde::Serialize;

use super::text::{self, TextArgs};
use crate::exit::Outcome;
use crate::output::{Output, Table};

/// Check a text and show upper bounds of its cost
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    text: TextArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
The command reports all errors, each with its line and a hint; the exit code is then 2, as in
`ecalls watch`. It needs neither privileges nor support in the kernel.

ITERATIONS (--json: fuel) is the largest number of loop iterations of one run, nested loops
included. \"cut at 4096\" (may_run_out): the number is known only at run time; \"cut at 4096 of
10100\" (wanted): it can reach the second number. A run with more than 4096 iterations ends with a
fault, and the chain continues without its result. `fuel N;` in the program sets another limit.

Examples:
  ecalls ecode check filter.ec
  ecalls ecode check --service socket filter.ec
  echo 'bytes > 1000' | ecalls ecode check --service socket -";

/// The row that is printed.
#[derive(Debug, Serialize)]
struct Costs<'a> {
    file: &'a str,
    instructions: usize,
    fuel: u32,
    may_run_out: bool,
    wanted: Option<u64>,
    stack_bytes: u32,
    state_bytes: u32,
    input_bytes: u32,
    output_bytes: u32,
    tests: usize,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (source, checked) = text::check(&args.text)?;
    let object = text::object(&source, &checked)?;
    let cost = Cost::of(&checked.program, &object);
    let costs = Costs {
        file: &source.name,
        instructions: object.instructions.len(),
        fuel: cost.fuel,
        may_run_out: cost.may_run_out,
        wanted: cost.fuel_wanted,
        stack_bytes: object.stack,
        state_bytes: cost.state,
        input_bytes: checked.program.input,
        output_bytes: checked.program.output,
        tests: checked.tree.tests.len(),
    };
    let mut output = Output::new(args.json);
    if args.json {
        output.object(&costs)?;
        return output.flush();
    }
    let mut table = Table::new(&["FILE", ">INSTRUCTIONS", ">ITERATIONS", ">STACK", ">STATE"]);
    table.row([
        source.name.clone(),
        costs.instructions.to_string(),
        match costs.may_run_out {
            true => match costs.wanted {
                Some(wanted) => format!("cut at {} of {wanted}", costs.fuel),
                None => format!("cut at {}", costs.fuel),
            },
            false => costs.fuel.to_string(),
        },
        format!("{} B", costs.stack_bytes),
        format!("{} B", costs.state_bytes),
    ]);
    output.table(&table)?;
    output.flush()
}
