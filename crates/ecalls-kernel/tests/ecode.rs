//! E-code in the kernel: what the back end makes of the IR is accepted by the verifier and does
//! what the IR says. Needs root (ECALLS_TEST_ROOT=1), but no core.

#[path = "ecode/judge.rs"]
mod judge;
#[path = "ecode/random.rs"]
mod random;

use ecalls_kernel::ecode::{Memory, Trial};
use ecode::bpf::{self, Options};
use ecode::frame::at;
use ecode::ir::Program;
use ecode::limits;
use random::Random;

/// False, with a word about it, unless tests may load programs into this kernel.
fn may_load() -> bool {
    let may = std::env::var_os("ECALLS_TEST_ROOT").is_some() && ecalls_kernel::is_root();
    if !may {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
    }
    may
}

/// Memory with something in it everywhere.
fn memory(program: &Program, random: &mut Random) -> Memory {
    let mut fill = |bytes: u32| -> Vec<u8> {
        let words = (0..bytes.div_ceil(8)).flat_map(|_| match random.below(2) {
            0 => random.edge().to_le_bytes(),
            _ => random.next().to_le_bytes(),
        });
        words.take(bytes as usize).collect()
    };
    let mut memory = Memory {
        frame: fill(at::BYTES),
        event: fill(at::EVENT_DATA + program.input),
        state: program.state.bytes.clone(),
        attributes: fill(limits::ATTRIBUTES * 8),
        sinks: fill(at::SINK_TABLE_BYTES),
    };
    memory.frame[at::RESULT as usize..at::EFFECT as usize].fill(0);
    memory.frame[at::RESULT as usize] = 1;
    memory.frame[random::FUEL..random::FUEL + 4].copy_from_slice(&program.fuel.to_le_bytes());
    memory.event[80..84].copy_from_slice(&program.input.to_le_bytes());
    memory
}

/// What of the memory a program must leave the same as the judge: not the scratch behind the
/// locals.
fn visible(memory: &mut Memory, program: &Program) {
    memory
        .frame
        .truncate((at::LOCALS + program.locals) as usize);
}

/// Runs a program in the kernel and before the judge.
fn compare(program: &Program, options: &Options, random: &mut Random, what: &str) {
    let object =
        bpf::emit_with(program, options).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let trial = Trial::load(&object).expect("memory");
    let trial = trial.unwrap_or_else(|refusal| {
        let text = bpf::disassemble(&object, None);
        let log: Vec<&str> = refusal.log.lines().rev().take(30).collect();
        panic!(
            "{what}: {}\n{text}\n{log:#?}\n{:#?}",
            refusal.reason, program.body
        );
    });
    for _ in 0..3 {
        let mut here = memory(program, random);
        let mut there = here.clone();
        judge::run(program, &mut here);
        trial.run(&mut there).expect("a run");
        visible(&mut here, program);
        visible(&mut there, program);
        if here != there {
            let text = bpf::disassemble(&object, None);
            let differ = |a: &[u8], b: &[u8]| (0..a.len()).find(|at| a[*at] != b[*at]);
            let (frame, state) = (
                differ(&here.frame, &there.frame),
                differ(&here.state, &there.state),
            );
            panic!(
                "{what}: frame {frame:?} state {state:?}\n{text}\n{:#?}",
                program.body
            );
        }
    }
}

#[test]
fn random_programs_do_what_the_ir_says() {
    if !may_load() {
        return;
    }
    let count: u64 = std::env::var("ECODE_RANDOM").map_or(300, |n| n.parse().expect("a number"));
    let first: u64 = std::env::var("ECODE_FIRST").map_or(1, |n| n.parse().expect("a number"));
    for seed in first..=count {
        let mut random = Random(ecode::frame::hash(seed));
        let size = [5, 20, 60, 150][random.below(4)];
        let program = random::program(&mut random, size);
        let secret = (seed % 3 == 0).then(|| ecode::frame::hash(seed));
        compare(
            &program,
            &Options { secret },
            &mut random,
            &format!("seed {seed}"),
        );
    }
}
