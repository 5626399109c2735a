//! Programs with mistakes as people make them, and worse: the texts of `tests/ecode` with tokens
//! removed, doubled, swapped and replaced by others. Whatever comes of it, the compiler ends
//! without a panic, what it accepts keeps the promises of the tree and of the IR (debug assertions
//! look), and what it refuses it refuses with an error inside the text.

use std::path::Path;

use ecode::diagnostic::Severity;
use ecode::environment::Environment;
use ecode::lexer;
use ecode::source::Source;
use ecode_judge::cases::surroundings;

const TEXTS: u32 = if cfg!(debug_assertions) { 6000 } else { 60_000 };

/// A generator of random numbers (xorshift64): the same ones each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most.max(1) as u64) as usize
    }
}

/// The tokens of all texts, a list for each.
fn texts() -> Vec<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ecode");
    let mut texts = Vec::new();
    for folder in ["accept", "reject"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("the folder of texts");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("a text").path()).collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(path).expect("a text");
            let source = Source::new("t", text);
            let tokens = lexer::lex(&source).0;
            let words = tokens
                .iter()
                .map(|token| source.text_of(token.span).to_owned());
            texts.push(words.filter(|word| !word.is_empty()).collect());
        }
    }
    texts
}

/// Names and words, numbers, texts, operators, all other signs.
fn class(word: &str) -> u8 {
    match word.as_bytes()[0] {
        first if first.is_ascii_digit() => 0,
        first if first.is_ascii_alphabetic() || first == b'_' => 1,
        b'"' | b'\'' => 2,
        b'(' | b')' | b'{' | b'}' | b'[' | b']' | b';' | b',' => 3,
        _ => 4,
    }
}

/// Another token, mostly one that can stand in the same place.
fn another(word: &str, all: &[Vec<String>], chance: &mut Chance) -> String {
    const TRIES: usize = 20;
    let mut other = String::new();
    for _ in 0..TRIES {
        let text = &all[chance.below(all.len())];
        other.clone_from(&text[chance.below(text.len())]);
        if class(&other) == class(word) {
            break;
        }
    }
    other
}

fn changed(text: &[String], all: &[Vec<String>], chance: &mut Chance) -> String {
    let mut words = text.to_vec();
    for _ in 0..=chance.below(2) {
        let at = chance.below(words.len());
        let other = another(&words[at], all, chance);
        match chance.below(10) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, words[at].clone()),
            2 => words.insert(at, other),
            3 => {
                let with = chance.below(words.len());
                words.swap(at, with);
            }
            _ => words[at] = other,
        }
        if words.is_empty() {
            words.push(";".into());
        }
    }
    words.join(" ")
}

#[test]
fn no_mistake_breaks_the_compiler() {
    let all = texts();
    let environments = [surroundings(), Environment::default()];
    let mut chance = Chance(0x0ec0_de00_0001);
    let mut accepted = 0;
    for _ in 0..TEXTS {
        let text = changed(&all[chance.below(all.len())], &all, &mut chance);
        let source = Source::new("t", text.as_str());
        let environment = &environments[chance.below(4) / 3];
        let Err(refused) = ecode::compile(&source, environment) else {
            accepted += 1;
            continue;
        };
        let errors = refused
            .all
            .iter()
            .filter(|one| one.severity == Severity::Error);
        assert!(errors.count() > 0, "{text}");
        for one in &refused.all {
            let inside = one.span.start <= one.span.end && one.span.end as usize <= text.len();
            assert!(inside && !one.message.is_empty(), "{one:?} in {text}");
        }
        assert!(!refused.render(&source).is_empty());
    }
    assert!(accepted > TEXTS / 30, "only {accepted} programs among them");
}
