//! The cost per event of a handler in E-code and in C (tests/ecode/compare): the number of BPF
//! instructions that it executes, and its time, in the kernel and in user space.
//!
//! The instructions are those that were loaded; `may_goto` and a map lookup count as one each.
//! Times in the kernel are its own statistics of runs by BPF_PROG_TEST_RUN, which adds some 20 ns
//! to each.

mod data;

use std::time::Instant;

use ecalls_kernel::ecode::{Trial, TrialMemory};
use ecalls_kernel::enable_statistics;
use ecalls_kernel::handwritten::{Content, Handwritten};
use ecode::Compiled;
use ecode::bpf::Map;
use ecode::environment::Environment;
use ecode::frame::at;
use ecode::limits;
use ecode::run::Machine;
use ecode::source::Source;
use ecode_judge::interpret::{Run, Stopped};

use super::super::Bench;
use super::super::timing::{Effort, MEAN, Value};
use crate::exit::{Code, Failure};

/// Runs of a batch.
const ROUNDS: u32 = 2000;

/// Every row.
pub(crate) const ROWS: &[&str] = &[
    "user_call",
    "kernel_call",
    "executed_paper",
    "executed_paper_clang",
    "static_paper",
    "static_paper_clang",
    "kernel_call_paper",
    "kernel_call_paper_clang",
    "user_call_paper",
    "executed_filter",
    "executed_filter_clang",
    "static_filter",
    "static_filter_clang",
    "kernel_call_filter",
    "kernel_call_filter_clang",
    "user_call_filter",
    "executed_array",
    "executed_array_clang",
    "static_array",
    "static_array_clang",
    "kernel_call_array",
    "kernel_call_array_clang",
    "user_call_array",
    "executed_long_array",
    "executed_long_array_clang",
    "static_long_array",
    "static_long_array_clang",
    "kernel_call_long_array",
    "kernel_call_long_array_clang",
    "user_call_long_array",
    "executed_counter",
    "executed_counter_clang",
    "static_counter",
    "static_counter_clang",
    "kernel_call_counter",
    "kernel_call_counter_clang",
    "user_call_counter",
];

/// A handler that exists in both languages.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// The event's data.
    pub(super) data: fn() -> Vec<u8>,
    rows: Rows,
}

/// The names of its rows: for ours, and for clang's output from C.
struct Rows {
    executed: [&'static str; 2],
    there: [&'static str; 2],
    kernel: [&'static str; 2],
    user: &'static str,
}

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "paper",
        text: include_str!("../../../../../tests/ecode/compare/paper.ec"),
        data: data::paper,
        rows: Rows {
            executed: ["executed_paper", "executed_paper_clang"],
            there: ["static_paper", "static_paper_clang"],
            kernel: ["kernel_call_paper", "kernel_call_paper_clang"],
            user: "user_call_paper",
        },
    },
    Program {
        name: "filter",
        text: include_str!("../../../../../tests/ecode/compare/filter.ec"),
        data: data::filter,
        rows: Rows {
            executed: ["executed_filter", "executed_filter_clang"],
            there: ["static_filter", "static_filter_clang"],
            kernel: ["kernel_call_filter", "kernel_call_filter_clang"],
            user: "user_call_filter",
        },
    },
    Program {
        name: "array",
        text: include_str!("../../../../../tests/ecode/compare/array.ec"),
        data: data::array,
        rows: Rows {
            executed: ["executed_array", "executed_array_clang"],
            there: ["static_array", "static_array_clang"],
            kernel: ["kernel_call_array", "kernel_call_array_clang"],
            user: "user_call_array",
        },
    },
    Program {
        name: "long_array",
        text: include_str!("../../../../../tests/ecode/compare/long_array.ec"),
        data: data::long_array,
        rows: Rows {
            executed: ["executed_long_array", "executed_long_array_clang"],
            there: ["static_long_array", "static_long_array_clang"],
            kernel: ["kernel_call_long_array", "kernel_call_long_array_clang"],
            user: "user_call_long_array",
        },
    },
    Program {
        name: "counter",
        text: include_str!("../../../../../tests/ecode/compare/counter.ec"),
        data: data::counter,
        rows: Rows {
            executed: ["executed_counter", "executed_counter_clang"],
            there: ["static_counter", "static_counter_clang"],
            kernel: ["kernel_call_counter", "kernel_call_counter_clang"],
            user: "user_call_counter",
        },
    },
];

/// The handler that stands for the cost in general.
const TYPICAL: &str = "filter";

/// Measures all rows.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let handwritten = Handwritten::load()?;
    let mut all = Vec::new();
    for program in PROGRAMS {
        let measured = one(bench, &handwritten, program)?;
        if program.name == TYPICAL {
            let rows = [
                (program.rows.user, "user_call"),
                (program.rows.kernel[0], "kernel_call"),
            ];
            for (of, row) in rows {
                let typical = measured.iter().find(|value| value.row == of);
                all.extend(typical.map(|value| Value {
                    row,
                    ..value.clone()
                }));
            }
        }
        all.extend(measured);
    }
    Ok(all)
}

fn one(bench: &Bench, handwritten: &Handwritten, program: &Program) -> Result<Vec<Value>, Failure> {
    let rows = &program.rows;
    let source = Source::new(program.name, program.text);
    let compiled = ecode::compile(&source, &Environment::default())
        .map_err(|all| Failure::new(Code::Failed, all.render(&source)))?;
    let data = (program.data)();
    let event = event(&data);
    let instructions = handwritten.instructions(program.name)?;
    let ours = executed(&compiled, &event)?;
    let theirs = executed_by_hand(handwritten, &instructions, &event)?;
    let kernel = in_kernel(bench, &compiled, &event)?;
    let by_hand = if handwritten.is_refused(program.name) {
        Value::missing(
            rows.kernel[1],
            "the kernel's verifier refuses it: too many ways",
        )
    } else {
        let ns = by_hand(bench, handwritten, program, &event)?;
        Value::ns(rows.kernel[1], ns, MEAN, "the same, in C by clang -O2")
    };
    let machine = Machine::new(&compiled.program);
    let user = in_user_space(bench.effort, machine, &compiled.program, &data)?;
    let (there, loaded) = (compiled.object.instructions.len(), instructions.len());
    Ok(vec![
        count(rows.executed[0], ours, "executed for an event"),
        count(rows.executed[1], theirs, "the same, in C by clang -O2"),
        count(rows.there[0], there as u64, "in the program"),
        count(rows.there[1], loaded as u64, "the same, in C by clang -O2"),
        Value::ns(rows.kernel[0], kernel, MEAN, "a call in the kernel"),
        by_hand,
        Value::ns(rows.user, user, MEAN, "a call in user space"),
    ])
}

fn count(row: &'static str, value: u64, what: &'static str) -> Value {
    Value {
        row,
        value: value as f64,
        unit: "instructions",
        statistic: "count",
        what,
        percentiles_us: None,
        cpu: None,
        open: None,
        calls: None,
        refused: None,
        p99_ms: None,
    }
}

/// An event with this data.
fn event(data: &[u8]) -> Vec<u8> {
    let mut event = vec![0; at::EVENT_DATA as usize];
    let size = at::EVENT_SIZE as usize;
    event[size..size + 4].copy_from_slice(&(data.len() as u32).to_le_bytes());
    event.extend(data);
    event
}

/// A frame, prepared for a run.
fn frame(fuel: u32) -> Vec<u8> {
    let mut frame = vec![0; at::BYTES as usize];
    frame[at::RESULT as usize] = 1;
    let place = at::FUEL as usize;
    frame[place..place + 4].copy_from_slice(&fuel.to_le_bytes());
    frame
}

fn executed(compiled: &Compiled, event: &[u8]) -> Result<u64, Failure> {
    let mut memories = [const { Vec::new() }; 5];
    memories[Map::Frame as usize] = frame(compiled.program.fuel);
    memories[Map::Event as usize] = event.to_vec();
    memories[Map::State as usize] = compiled.program.state.bytes.clone();
    let mut run = Run::new(&mut memories);
    run.execute_object(&compiled.object).map_err(stopped)?;
    Ok(run.executed)
}

fn executed_by_hand(
    handwritten: &Handwritten,
    instructions: &[u64],
    event: &[u8],
) -> Result<u64, Failure> {
    let mut memories = [frame(0), event.to_vec(), vec![0; 4096]];
    let mut run = Run::new(&mut memories);
    let map = |_: usize, descriptor: i32| {
        Some(match handwritten.content(descriptor)? {
            Content::Frame => 0,
            Content::Event => 1,
            Content::State => 2,
        })
    };
    run.execute(instructions, &map).map_err(stopped)?;
    Ok(run.executed)
}

fn stopped(stopped: Stopped) -> Failure {
    Failure::new(Code::Failed, format!("counting instructions: {stopped:?}"))
}

/// Time of a run in the kernel, ns.
fn in_kernel(bench: &Bench, compiled: &Compiled, event: &[u8]) -> Result<f64, Failure> {
    let trial = Trial::load(&compiled.object)?
        .map_err(|refusal| Failure::new(Code::Failed, refusal.reason))?;
    let mut memory = TrialMemory {
        frame: frame(compiled.program.fuel),
        event: event.to_vec(),
        state: compiled.program.state.bytes.clone(),
        attributes: vec![0; limits::ATTRIBUTES as usize * 8],
        sinks: vec![0; at::SINK_TABLE_BYTES as usize],
    };
    // The fuel decreases from run to run. These programs do not check it, because the compiler
    // knows that a run needs less than the limit.
    trial.run(&mut memory)?;
    let _counting = enable_statistics()?;
    let rounds = bench.effort.rounds(ROUNDS);
    bench.effort.best(|| {
        let before = trial.counted()?;
        for _ in 0..rounds {
            trial.run_again()?;
        }
        Ok(mean(before, trial.counted()?))
    })
}

/// The same for clang's output.
fn by_hand(
    bench: &Bench,
    handwritten: &Handwritten,
    program: &Program,
    event: &[u8],
) -> Result<f64, Failure> {
    handwritten.set_event(event)?;
    let _counting = enable_statistics()?;
    let rounds = bench.effort.rounds(ROUNDS);
    bench.effort.best(|| {
        let before = handwritten.counted(program.name)?;
        for _ in 0..rounds {
            handwritten.run(program.name)?;
        }
        Ok(mean(before, handwritten.counted(program.name)?))
    })
}

/// Time of a run in ns, from the numbers of runs and ns before and after.
fn mean(before: (u64, u64), after: (u64, u64)) -> f64 {
    (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64
}

/// Time of a run in user space in ns, with the time of writing the data.
pub(super) fn in_user_space(
    effort: Effort,
    mut machine: Machine,
    program: &ecode::ir::Program,
    data: &[u8],
) -> Result<f64, Failure> {
    let mut memory = ecode::run::Memory::new(program);
    let rounds = effort.rounds(10 * ROUNDS);
    effort.best(|| {
        let begin = Instant::now();
        for _ in 0..rounds {
            memory.set_input(std::hint::black_box(data));
            let _ = std::hint::black_box(machine.run(&mut memory));
        }
        Ok(begin.elapsed().as_nanos() as f64 / f64::from(rounds))
    })
}
