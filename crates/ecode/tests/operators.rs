//! Every operator of C on every pair of integer types, against the answers of a C compiler: the
//! same expressions go through `gcc` and through E-code, and value, size and sign must be the same:
//! once as constants, which the checks fold, once computed by a program that runs
//! ([`ecode_judge::operators`]).

use std::fmt::Write as _;

use ecode::environment::Environment;
use ecode::source::Source;
use ecode::tree::{Storage, Tree};
use ecode::{check, parser};
use ecode_judge::differential::User;
use ecode_judge::operators::{Case, KINDS, answers_of_c, binary_cases, compare_running, questions};

const UNARY: [&str; 4] = ["+", "-", "~", "!"];

fn unary_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for a in &KINDS {
        for x in a.edges() {
            let (from, c_from) = (a.constant(a.name, x), a.constant(a.c, x));
            for operator in UNARY {
                cases.push(Case {
                    ecode: format!("{operator}{from}"),
                    c: format!("{operator}{c_from}"),
                });
            }
            for to in &KINDS {
                cases.push(Case {
                    ecode: format!("({}){from}", to.name),
                    c: format!("({}){c_from}", to.c),
                });
                // The type in which two meet.
                cases.push(Case {
                    ecode: format!("{from} ? {from} : ({})1", to.name),
                    c: format!("{c_from} ? {c_from} : ({})1", to.c),
                });
            }
        }
    }
    cases
}

fn literal_cases() -> Vec<Case> {
    const NUMBERS: [&str; 16] = [
        "0",
        "2147483647",
        "2147483648",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "0x7fffffff",
        "0x80000000",
        "0xffffffff",
        "0x100000000",
        "0x7fffffffffffffff",
        "0x8000000000000000",
        "0xffffffffffffffff",
        "017777777777",
        "020000000000",
        "0b101",
    ];
    let same = |text: String| Case {
        ecode: text.clone(),
        c: text,
    };
    let suffixes = ["", "u", "l", "ul", "ll", "ull", "U", "LL"];
    let numbers = NUMBERS
        .iter()
        .flat_map(|number| suffixes.map(|end| format!("{number}{end}")));
    let others = [
        "'a'",
        "'\\n'",
        "'\\0'",
        "'\\xff'",
        "'\\''",
        "-2147483648",
        "sizeof(int)",
    ];
    let others = others.iter().map(|text| (*text).to_owned());
    numbers.chain(others).map(same).collect()
}

fn tree_of(text: &str) -> Tree {
    let source = Source::new("operators", text);
    let (unit, told) = parser::parse(&source);
    assert!(told.is_empty(), "{told:?}");
    let (tree, told) = check::check(&unit, &Environment::default());
    tree.unwrap_or_else(|| panic!("{:?}\n{text}", told.first()))
}

/// The constants of E-code, folded.
fn answers_folded(cases: &[Case]) -> Vec<u64> {
    const CASES_OF_A_TEXT: usize = 150;
    let mut answers = Vec::new();
    for cases in cases.chunks(CASES_OF_A_TEXT) {
        let mut text = String::from("static u64 all[] = {");
        for case in cases {
            for question in questions(&case.ecode) {
                let _ = write!(text, "{question},");
            }
        }
        text += "}; return all[0];";
        let tree = tree_of(&text);
        let Storage::Static(bytes) = &tree.variables[0].storage else {
            panic!("a static");
        };
        let words = bytes
            .chunks_exact(8)
            .map(|word| word.try_into().expect("8 bytes"));
        answers.extend(words.map(u64::from_le_bytes));
    }
    answers
}

fn compare(name: &str, cases: &[Case]) {
    let Some(expected) = answers_of_c(name, cases) else {
        eprintln!("skipped: there is no gcc on this machine");
        return;
    };
    let folded = answers_folded(cases);
    assert_eq!(folded.len(), expected.len());
    let pairs = folded
        .chunks_exact(3)
        .zip(expected.chunks_exact(3))
        .zip(cases);
    let wrong: Vec<_> = pairs
        .filter(|((ours, c), _)| ours != c)
        .map(|((ours, c), case)| format!("{}: {ours:?}, C says {c:?}", case.ecode))
        .collect();
    let shown = wrong
        .iter()
        .take(20)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{shown}",
        wrong.len(),
        cases.len()
    );
}

#[test]
fn operators_between_two_numbers_give_what_c_gives() {
    compare("binary", &binary_cases());
}

#[test]
fn operators_before_one_number_and_casts_give_what_c_gives() {
    compare("unary", &unary_cases());
}

#[test]
fn literals_have_the_types_of_c() {
    compare("literal", &literal_cases());
}

#[test]
fn operators_give_what_c_gives_when_they_run() {
    match compare_running(&[&User]) {
        Some(compared) => println!("{compared} results"),
        None => eprintln!("skipped: there is no gcc on this machine"),
    }
}
