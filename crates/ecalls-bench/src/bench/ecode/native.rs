//! A call in user space, as machine code of ours and of clang's: the programs of
//! tests/ecode/compare and `native.c` there, which clang compiles for this measurement. Both copy
//! the event's data first, as whoever runs a filter does, and set their output to 0.
//!
//! `native_compile_N` is the time in which the machine code is made from the IR, after a pause in
//! which the processor sleeps and its caches go cold. (`compile_N` of [`super::start`] is the way
//! before it.)

use std::fs;
use std::hint::black_box;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ecode::environment::Environment;
use ecode::source::Source;

use super::super::Bench;
use super::super::timing::{Effort, MEAN, Value};
use super::cost::{PROGRAMS, Program, in_user_space};
use crate::exit::{Code, Failure};

/// Runs of a batch of clang's.
const ROUNDS: u32 = 40_000;
/// How often code is made.
const COMPILATIONS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

const SOURCE: &str = include_str!("../../../../../tests/ecode/compare/native.c");
const COMPILERS: [&str; 3] = ["clang-19", "clang-20", "clang"];

/// Of each program: ours, clang's, and making ours.
const NAMES: [[&str; 3]; 5] = [
    [
        "native_call_paper",
        "native_call_paper_clang",
        "native_compile_paper",
    ],
    [
        "native_call_filter",
        "native_call_filter_clang",
        "native_compile_filter",
    ],
    [
        "native_call_array",
        "native_call_array_clang",
        "native_compile_array",
    ],
    [
        "native_call_long_array",
        "native_call_long_array_clang",
        "native_compile_long_array",
    ],
    [
        "native_call_counter",
        "native_call_counter_clang",
        "native_compile_counter",
    ],
];

/// Every row.
pub(crate) const ROWS: &[&str] = NAMES.as_flattened();

/// Measures all rows.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Value>, Failure> {
    let clang = Clang::build()?;
    let mut all = Vec::new();
    for (rows, program) in NAMES.into_iter().zip(PROGRAMS) {
        let data = (program.data)();
        all.extend(ours(bench.effort, rows, program, &data)?);
        all.push(match &clang {
            Some(clang) => {
                let ns = clang.call(bench.effort, program.name, &data)?;
                Value::ns(rows[1], ns, MEAN, "the same, in C by clang -O2")
            }
            None => Value::missing(rows[1], "there is no clang"),
        });
    }
    Ok(all)
}

fn ours(
    effort: Effort,
    rows: [&'static str; 3],
    program: &Program,
    data: &[u8],
) -> Result<[Value; 2], Failure> {
    let source = Source::new(program.name, program.text);
    let checked = ecode::check(&source, &Environment::default())
        .map_err(|all| Failure::new(Code::Failed, all.render(&source)))?;
    let Ok(machine) = ecode_native::compile(&checked.program) else {
        let why = "this build or machine makes no machine code";
        return Ok([rows[0], rows[2]].map(|row| Value::missing(row, why)));
    };
    let ns = in_user_space(effort, machine, &checked.program, data)?;
    let mut times_us = Vec::new();
    for _ in 0..effort.rounds(COMPILATIONS) {
        thread::sleep(PAUSE);
        let begin = Instant::now();
        let made = black_box(ecode_native::compile(&checked.program));
        times_us.push(begin.elapsed().as_nanos() as f64 / 1e3);
        drop(made);
    }
    times_us.sort_by(f64::total_cmp);
    Ok([
        Value::ns(rows[0], ns, MEAN, "a call in user space, as machine code"),
        Value::percentiles(rows[2], &times_us, "that code, made from the IR"),
    ])
}

/// The programs in C, compiled in a folder of their own.
struct Clang(PathBuf);

fn failed(error: std::io::Error) -> Failure {
    Failure::new(Code::Failed, format!("the programs in C: {error}"))
}

impl Clang {
    /// `None`: there is no compiler.
    fn build() -> Result<Option<Clang>, Failure> {
        let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
        let Some(compiler) = COMPILERS.iter().find(|name| is_there(name)) else {
            return Ok(None);
        };
        let name = format!("ecalls-bench-native-{}", std::process::id());
        let clang = Clang(std::env::temp_dir().join(name));
        fs::create_dir_all(&clang.0).map_err(failed)?;
        let source = clang.0.join("native.c");
        fs::write(&source, SOURCE).map_err(failed)?;
        let mut command = Command::new(compiler);
        command
            .args(["-O2", "-o"])
            .args([&clang.program(), &source]);
        let built = command.output().map_err(failed)?;
        if !built.status.success() {
            let why = String::from_utf8_lossy(&built.stderr).into_owned();
            return Err(Failure::new(Code::Failed, why));
        }
        Ok(Some(clang))
    }

    fn program(&self) -> PathBuf {
        self.0.join("native")
    }

    /// Time of a run in ns.
    fn call(&self, effort: Effort, name: &str, data: &[u8]) -> Result<f64, Failure> {
        let rounds = effort.rounds(ROUNDS).to_string();
        effort.best(|| {
            let mut child = Command::new(self.program())
                .args([name, &rounds])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(failed)?;
            if let Some(mut input) = child.stdin.take() {
                input.write_all(data).map_err(failed)?;
            }
            let output = child.wait_with_output().map_err(failed)?;
            let said = String::from_utf8_lossy(&output.stdout);
            said.trim().parse().map_err(|_| {
                let status = output.status;
                Failure::new(Code::Failed, format!("{name} in C: {status}, {said:?}"))
            })
        })
    }
}

impl Drop for Clang {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
