//! `ecalls ecode dump`: the compiler's intermediate and final output for a text.

use clap::ArgGroup;

use super::text::{self, TextArgs};
use crate::exit::Outcome;
use crate::output;

/// Show the intermediate representation or the BPF program of a text
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
#[command(group(ArgGroup::new("phase").args(["ir", "bpf"]).required(true).multiple(true)))]
pub(crate) struct Args {
    #[command(flatten)]
    text: TextArgs,
    /// The intermediate representation
    #[arg(long)]
    ir: bool,
    /// The program for the kernel
    #[arg(long)]
    bpf: bool,
}

const HELP: &str = "\
The intermediate representation is interpreted in user space and translated to BPF for the kernel.";

pub(crate) fn run(args: &Args) -> Outcome {
    let (source, checked) = text::check(&args.text)?;
    let mut shown = String::new();
    if args.ir {
        shown += &checked.program.to_string();
    }
    if args.bpf {
        let object = text::object(&source, &checked)?;
        shown += &::ecode::bpf::disassemble(&object, Some(&source));
    }
    output::write_all(shown.as_bytes())
}
