//! Two CPUs that run a program on the same state, switched at every instruction: what the state
//! promises holds however they meet.

use ecode::Compiled;
use ecode::bpf::{Map, Object};
use ecode::environment::Environment;
use ecode::frame::at;
use ecode::limits;
use ecode::source::Source;
use ecode_judge::interpret::Run;

const SECOND_NS: u64 = 1_000_000_000;

fn compiled(text: &str) -> Compiled {
    let source = Source::new("text", text);
    let compiled = ecode::compile(&source, &Environment::default());
    compiled.unwrap_or_else(|all| panic!("{}", all.render(&source)))
}

/// The memories of one CPU, at an event of this time.
fn memories(compiled: &Compiled, time_ns: u64, state: &[u8]) -> Vec<Vec<u8>> {
    let mut memories = vec![Vec::new(); 5];
    let mut frame = vec![0; at::BYTES as usize];
    frame[at::FUEL as usize..][..4].copy_from_slice(&compiled.program.fuel.to_le_bytes());
    let mut event = vec![0; limits::REGION_BYTES as usize];
    event[at::EVENT_TIME as usize..][..8].copy_from_slice(&time_ns.to_le_bytes());
    memories[Map::Frame as usize] = frame;
    memories[Map::Event as usize] = event;
    memories[Map::State as usize] = state.to_vec();
    memories
}

fn result(memories: &[Vec<u8>]) -> u64 {
    let bytes = &memories[Map::Frame as usize][at::RESULT as usize..];
    u64::from_le_bytes(*bytes.first_chunk().expect("a result"))
}

/// One run, alone.
fn alone(compiled: &Compiled, time_ns: u64, state: &mut Vec<u8>) -> u64 {
    let mut memories = memories(compiled, time_ns, state);
    let mut run = Run::new(&mut memories);
    run.execute_object(&compiled.object).expect("a run");
    state.clone_from(&memories[Map::State as usize]);
    result(&memories)
}

/// Two runs at once: the first makes `first` instructions, then the other one `second`, then both
/// go on to their ends. The results, and whether each switch was before the end of its run.
fn together(
    compiled: &Compiled,
    time_ns: u64,
    state: &mut Vec<u8>,
    (first, second): (u64, u64),
) -> ([u64; 2], [bool; 2]) {
    let object: &Object = &compiled.object;
    let mut of_one = memories(compiled, time_ns, state);
    let mut of_other = memories(compiled, time_ns, &[]);
    let (mut one, mut other) = (Run::new(&mut of_one), Run::new(&mut of_other));
    let swap = |one: &mut Run<'_>, other: &mut Run<'_>| {
        let at = Map::State as usize;
        std::mem::swap(&mut one.memories[at], &mut other.memories[at]);
    };
    let one_ended = one.advance_object(object, first).expect("a run").is_some();
    swap(&mut one, &mut other);
    let other_ended = other.advance_object(object, second).expect("a run");
    let other_ended = other_ended.is_some();
    swap(&mut one, &mut other);
    if !one_ended {
        one.advance_object(object, u64::MAX).expect("a run");
    }
    swap(&mut one, &mut other);
    if !other_ended {
        other.advance_object(object, u64::MAX).expect("a run");
    }
    state.clone_from(&of_other[Map::State as usize]);
    let results = [result(&of_one), result(&of_other)];
    (results, [!one_ended, !other_ended])
}

/// Calls `look` for each way in which two runs can be switched, until neither switch is within one.
fn each_way(mut look: impl FnMut((u64, u64)) -> [bool; 2]) {
    for first in 0.. {
        let mut within = [false; 2];
        for second in 0.. {
            within = look((first, second));
            if !within[1] {
                break;
            }
        }
        if !within[0] {
            assert!(first > 5, "no way was seen");
            return;
        }
    }
}

#[test]
fn an_update_gives_each_cpu_another_number() {
    let operations = [
        ("static u32 n = 6; return n++;", [6, 7], 8),
        ("static u64 n = 6; return ++n;", [7, 8], 8),
        ("static s32 n = -1; return n--;", [-2, -1], -3),
        ("static long n = 6; return n += 5;", [11, 16], 16),
        ("static u64 n = 6; return n -= 2;", [2, 4], 2),
        ("static fixed n = 1.5; return ++n * 2;", [5, 7], 3_500_000),
    ];
    for (text, expected, after) in operations {
        let compiled = compiled(text);
        each_way(|way| {
            let mut state = compiled.program.state.bytes.clone();
            let (results, within) = together(&compiled, 0, &mut state, way);
            let mut results = results.map(u64::cast_signed);
            results.sort_unstable();
            assert_eq!(results, expected, "{text} {way:?}");
            let mut word = [0; 8];
            let bytes = match text.contains("32") {
                true => 4,
                false => 8,
            };
            word[..bytes].copy_from_slice(&state[..bytes]);
            let mask = u64::MAX >> (64 - bytes * 8);
            assert_eq!(u64::from_le_bytes(word), i64::cast_unsigned(after) & mask);
            within
        });
    }
}

#[test]
fn a_new_second_that_two_cpus_meet_begins_once() {
    const EVENTS: u64 = 3;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ecode/limit.ec");
    let compiled = compiled(&std::fs::read_to_string(path).expect("the recipe"));
    for used in 0..=EVENTS + 1 {
        each_way(|way| {
            let mut state = compiled.program.state.bytes.clone();
            let mut passed = 0;
            for _ in 0..used {
                passed += alone(&compiled, 7 * SECOND_NS, &mut state);
            }
            assert_eq!(passed, used.min(EVENTS));
            let (results, within) = together(&compiled, 8 * SECOND_NS, &mut state, way);
            passed += results.iter().sum::<u64>();
            // Whoever did not begin the new turn counts in the former one, or in it.
            for _ in 0..2 * EVENTS {
                passed += alone(&compiled, 8 * SECOND_NS + 1, &mut state);
            }
            let least = used.min(EVENTS) + EVENTS;
            let most = (used.min(EVENTS) + 1).min(EVENTS) + EVENTS;
            assert!((least..=most).contains(&passed), "{used} {way:?} {passed}");
            within
        });
    }
}
