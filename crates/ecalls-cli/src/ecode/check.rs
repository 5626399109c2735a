//! `ecalls ecode check`: whether a text can be compiled, and what its program costs at most.

use serde::Serialize;

use super::text::{self, TextArgs};
use crate::exit::Outcome;
use crate::output::{Output, Table};

/// Check a text, and say what its program costs at most
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
All errors are told at once, each with its line and what to do; the exit code is then 2, as in
`ecalls watch`. Needs no privileges and no kernel.

ITERATIONS (--json: fuel) are those of all loops in one run together, loops in loops included, at
most. \"cut at 4096\" (may_run_out): how many there are is only known in the run; \"cut at 4096 of
10100\" (wanted): they may be so many. A run that would make more than 4096 ends there as a fault,
and the chain goes on without it. `fuel N;` in the text sets another N.

Examples:
  ecalls ecode check filter.ec
  ecalls ecode check --service socket filter.ec
  echo 'bytes > 1000' | ecalls ecode check --service socket -";

/// What is printed.
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
    let (source, compiled) = text::compile(&args.text)?;
    let object = text::object(&source, &compiled)?;
    let costs = Costs {
        file: &source.name,
        instructions: object.instructions.len(),
        fuel: compiled.cost.fuel,
        may_run_out: compiled.cost.may_run_out,
        wanted: compiled.cost.fuel_wanted,
        stack_bytes: object.stack,
        state_bytes: compiled.cost.state,
        input_bytes: compiled.program.input,
        output_bytes: compiled.program.output,
        tests: compiled.tree.tests.len(),
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
