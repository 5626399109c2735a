//! The fuzzer's targets with each input of the corpus, as it is and changed at random. A failure
//! tells its seed, which `ECALLS_SEED` repeats, and leaves its input in target/fuzz.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs};

use ecode_judge::Dice;
use fuzz::{TARGETS, Target};

/// Changed inputs of each target.
const INPUTS: u64 = 4_000;
const BYTES_MAX: usize = 4096;
/// Changes of one input, at most.
const CHANGES_MAX: u64 = 6;

#[test]
fn no_input_breaks_what_reads_it() {
    let seed = env::var("ECALLS_SEED").map_or_else(|_| now(), |text| number(&text));
    for target in TARGETS {
        run(target, seed);
    }
}

/// Runs a target, and says on which input it failed.
fn run((name, target): Target, seed: u64) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name} has no corpus");
    let mut dice = Dice::new(seed);
    let changed = (0..INPUTS).map(|_| change(&corpus, &mut dice));
    for input in corpus.iter().cloned().chain(changed) {
        if let Err(panic) = catch_unwind(|| target(&input)) {
            let kept = repository().join("target/fuzz");
            let kept = kept.join(format!("{name}-{seed}"));
            let _ = fs::create_dir_all(kept.parent().expect("a folder"));
            let _ = fs::write(&kept, &input);
            eprintln!("ECALLS_SEED={seed}: {name} fails on {}", kept.display());
            std::panic::resume_unwind(panic);
        }
    }
}

/// What a target starts from. Those of E-code: our programs.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folders = if name.starts_with("ecode_") {
        [
            "tests/ecode/accept",
            "tests/ecode/reject",
            "tests/ecode/run",
            "examples/ecode",
        ]
        .to_vec()
    } else {
        vec![]
    };
    let own = format!("tests/fuzz/corpus/{name}");
    let mut paths: Vec<PathBuf> = folders
        .into_iter()
        .chain([own.as_str()])
        .filter_map(|folder| fs::read_dir(repository().join(folder)).ok())
        .flat_map(|entries| entries.map(|entry| entry.expect("a folder's entry").path()))
        .collect();
    paths.sort(); // so that a seed makes the same inputs everywhere
    let read = paths.iter().map(|path| fs::read(path).expect("a file"));
    read.collect()
}

/// An input with some of its bytes changed, left out, repeated, or taken from another.
fn change(corpus: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = dice.pick(corpus).clone();
    for _ in 0..=dice.below(CHANGES_MAX) {
        let at = dice.below(input.len() as u64 + 1) as usize;
        let to = at + dice.below((input.len() - at).min(16) as u64 + 1) as usize;
        match dice.below(8) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = dice.byte(),
            2 if at < input.len() => input[at] = input[at].wrapping_add(dice.byte()),
            3 => drop(input.drain(at..to)),
            4 => input.truncate(at),
            5 => drop(input.splice(at..to, dice.number().to_ne_bytes())),
            6 => drop(input.splice(at..to, dice.number().to_string().bytes())),
            _ => {
                let other = dice.pick(corpus);
                let from = dice.below(other.len() as u64 + 1) as usize;
                let until = from + dice.below((other.len() - from) as u64 + 1) as usize;
                input.splice(at..to, other[from..until].iter().copied());
            }
        }
    }
    input.truncate(BYTES_MAX);
    input
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

fn number(text: &str) -> u64 {
    text.parse().expect("ECALLS_SEED is a number")
}
