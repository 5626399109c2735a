//! `ecalls ecode run`: runs a program on a given event, in user space or in the kernel.

use std::num::NonZeroU64;

use ::ecode::Checked;
use ::ecode::diagnostic::render_fault;
use ::ecode::frame::effect;
use ::ecode::run::Effect;
use ::ecode::source::Source;
use ::ecode::tree::Storage;
use ::ecode::trial::{Left, Setting};
use clap::ValueEnum as _;
use serde_json::{Map, Value, json};

use super::given::{self, Names};
use super::text::{self, TextArgs};
use super::trial::{On, Trial};
use super::value;
use crate::exit::{Failure, Outcome};
use crate::output::{Output, note};

/// Run a text on an event given as JSON
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    text: TextArgs,
    /// The event as JSON: either its input, or an object with the keys input, event, now, random,
    /// attributes and sinks
    #[arg(long, value_name = "JSON", default_value = "{}")]
    event: String,
    /// Where to run it
    #[arg(long, value_enum, default_value_t = On::User)]
    on: On,
    /// Repeat the run, with the state kept, and print the time of one run and how it was made
    #[arg(long, value_name = "N", default_value_t = NonZeroU64::MIN)]
    repeat: NonZeroU64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Values that are not given are 0. A result of 0 ends the chain of actions; with any other result the
chain continues. After a fault (an index outside its array, more iterations than allowed) the chain
continues as if the action were not there.

Examples:
  ecalls ecode run --service socket filter.ec --event '{\"bytes\": 2000}'
  ecalls ecode run load.ec --attributes limit \\
      --event '{\"input\": {\"load\": 0.75}, \"attributes\": {\"limit\": 1}}'
  ecalls ecode run filter.ec --on kernel --repeat 1000 --json

With --repeat 1000 or more, `user` takes machine code, in builds with the feature `native` and where
the process may make it, otherwise the interpreter; the line \"by\" says which.";

pub(crate) fn run(args: &Args) -> Outcome {
    let (source, checked) = text::check(&args.text)?;
    let given: Value = serde_json::from_str(&args.event)
        .map_err(|error| Failure::usage(format!("--event is not valid JSON: {error}")))?;
    let environment = &args.text.environment;
    let names = Names {
        attributes: &environment.attributes,
        sinks: environment.sinks.as_deref().unwrap_or_default(),
    };
    let mut setting = Setting::new(&checked.tree, &checked.program);
    given::take(&mut setting, &checked, &names, &given)
        .map_err(|error| Failure::usage(format!("--event: {error}")))?;
    let runs = args.repeat.get();
    let (mut trial, by) = Trial::of_runs(args.on, runs, &source, &checked)?;
    trial.set(&setting, checked.program.fuel);
    trial.run()?;
    let mut shown = Vec::new();
    if runs > 1 {
        let ns = trial.time(&setting, checked.program.fuel, runs - 1)?;
        shown.push(("ns_per_run", json!(ns)));
        shown.push((
            "by",
            json!(by.to_possible_value().map(|by| by.get_name().to_owned())),
        ));
    }
    let left = trial.left(&checked);
    shown.splice(0..0, describe(&source, &checked, &left));
    let mut output = Output::new(args.json);
    if let (false, Some(fault)) = (args.json, left.fault) {
        note(render_fault(&source, fault, left.fault_place));
    }
    if args.json {
        let object: Map<_, _> = shown
            .into_iter()
            .map(|(name, v)| (name.to_owned(), v))
            .collect();
        output.object(&object)?;
    } else {
        for (name, value) in &shown {
            output.line(format_args!("{name}: {value}"))?;
        }
    }
    output.flush()
}

/// The results of a run, by name.
pub(crate) fn describe(
    source: &Source,
    checked: &Checked,
    left: &Left,
) -> Vec<(&'static str, Value)> {
    let tree = &checked.tree;
    let fault = left.fault.map_or(Value::Null, |fault| json!(fault.name()));
    let mut shown = vec![("result", json!(left.result)), ("fault", fault)];
    if let Some(byte) = left.fault_place {
        shown.push(("fault_at", json!(source.at(byte))));
    }
    if let Some(reason) = left.dropped {
        shown.push(("dropped", json!(reason)));
    }
    if let Some(output) = tree.output {
        let ty = &tree.variables[output.0 as usize].ty;
        let bytes = tree.structs.size(ty).unwrap_or(0) as usize;
        let output = value::read(&tree.structs, ty, &left.output[..bytes]);
        shown.push(("output", output));
    }
    let state = state(checked, left);
    if !state.is_empty() {
        shown.push(("state", Value::Object(state)));
    }
    if !left.effects.is_empty() {
        let effects = left.effects.iter().map(effect).collect();
        shown.push(("effects", Value::Array(effects)));
    }
    if left.accepted | left.rejected != 0 {
        shown.push(("accepted", bits(left.accepted)));
        shown.push(("rejected", bits(left.rejected)));
    }
    shown.push(("fuel_used", json!(checked.program.fuel - left.fuel)));
    shown
}

/// The static variables that the text declares; hidden ones, such as those of `once()`, are not
/// among them.
fn state(checked: &Checked, left: &Left) -> Map<String, Value> {
    let tree = &checked.tree;
    let mut shown = Map::new();
    for entry in &checked.program.state.entries {
        let variable = tree.variables.iter().find(|variable| {
            variable.name == entry.name
                && !entry.name.contains("()")
                && matches!(variable.storage, Storage::Static(_))
        });
        let (Some(variable), false) = (variable, entry.constant) else {
            continue;
        };
        let bytes = &left.state[entry.offset as usize..][..entry.bytes as usize];
        let value = value::read(&tree.structs, &variable.ty, bytes);
        shown.insert(entry.name.clone(), value);
    }
    shown
}

fn effect(effect: &Effect) -> Value {
    let [first, ..] = effect.values;
    match effect.kind {
        effect::SIGNAL => json!({"signal": effect.number, "value": first}),
        effect::RAISE => {
            let values = effect.values.map(|value| value as i64);
            json!({"raise": effect.number, "values": values})
        }
        effect::DEFER => json!({"defer_us": first}),
        effect::COUNT => json!({"count": effect.number, "by": first}),
        _ => json!({"histogram": first}),
    }
}

/// The numbers of the bits that are set.
fn bits(mask: u64) -> Value {
    Value::Array(
        (0..64)
            .filter(|at| mask >> at & 1 == 1)
            .map(Value::from)
            .collect(),
    )
}
