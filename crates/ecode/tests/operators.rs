//! Every operator of C on every pair of integer types, against the answers of a C compiler: the
//! same expressions go through `gcc` and through E-code, and value, size and sign must be the same:
//! once as constants, which the checks fold, once computed by a program that runs.
//!
//! Where C leaves the result open (x / 0, shifts by the width and more, the least number / -1) the
//! C text says what E-code defines; signed overflow wraps there by `-fwrapv`.

use std::fmt::Write as _;
use std::process::Command;

use ecode::environment::Environment;
use ecode::run::{Machine, Memory};
use ecode::source::Source;
use ecode::tree::{Storage, Tree};
use ecode::{check, parser};

/// A type with its edges, as bits.
struct Kind {
    name: &'static str,
    c: &'static str,
    bits: u32,
    signed: bool,
}

static KINDS: [Kind; 10] = [
    kind("bool", "_Bool", 1, false),
    kind("char", "signed char", 8, true),
    kind("u8", "unsigned char", 8, false),
    kind("s16", "short", 16, true),
    kind("u16", "unsigned short", 16, false),
    kind("int", "int", 32, true),
    kind("u32", "unsigned int", 32, false),
    kind("s64", "long long", 64, true),
    kind("u64", "unsigned long long", 64, false),
    kind("long", "long", 64, true),
];

const fn kind(name: &'static str, c: &'static str, bits: u32, signed: bool) -> Kind {
    Kind {
        name,
        c,
        bits,
        signed,
    }
}

const BINARY: [&str; 18] = [
    "+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "<", "<=", ">", ">=", "==", "!=", "&&",
    "||",
];
const UNARY: [&str; 4] = ["+", "-", "~", "!"];

impl Kind {
    /// Values at which something happens, as bits.
    fn edges(&self) -> Vec<u64> {
        let all = u64::MAX >> (64 - self.bits);
        if self.bits == 1 {
            return vec![0, 1];
        }
        vec![0, 1, 5, all, all / 2, all / 2 + 1]
    }

    /// A constant that both languages read alike.
    fn constant(&self, name: &str, value: u64) -> String {
        format!("({name}){value:#x}")
    }

    /// The number that these bits are.
    fn number(&self, value: u64) -> i128 {
        let half = 1i128 << (self.bits - 1);
        let value = i128::from(value);
        if self.signed && value >= half {
            value - 2 * half
        } else {
            value
        }
    }
}

/// An expression in both languages.
struct Case {
    ecode: String,
    c: String,
}

/// Every operator between two numbers with each pair of edges of each pair of types.
fn for_each(mut visit: impl FnMut(&'static str, (&'static Kind, u64), (&'static Kind, u64))) {
    for a in &KINDS {
        for b in &KINDS {
            for operator in BINARY {
                for x in a.edges() {
                    for y in b.edges() {
                        visit(operator, (a, x), (b, y));
                    }
                }
            }
        }
    }
}

fn binary_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for_each(|operator, a, b| cases.push(binary_case(operator, a, b)));
    cases
}

fn binary_case(operator: &str, (a, x): (&Kind, u64), (b, y): (&Kind, u64)) -> Case {
    let (left, right) = (a.constant(a.name, x), b.constant(b.name, y));
    let (c_left, c_right) = (a.constant(a.c, x), b.constant(b.c, y));
    // What C does not define, with the type that C gives it.
    let as_defined = |value: &str| format!("1 ? {value} : (1 ? {c_left} : {c_right})");
    let width = a.bits.max(b.bits).max(32);
    let minus_one = b.signed && b.number(y) == -1;
    let overflow = a.signed && minus_one && a.number(x) == -(1i128 << (width - 1));
    let c = match operator {
        "/" if y == 0 => as_defined("0"),
        "%" if y == 0 => as_defined(&c_left),
        "/" if overflow => as_defined(&c_left),
        "%" if overflow => as_defined("0"),
        "<<" | ">>" => format!("{c_left} {operator} ({c_right} & (sizeof(+{c_left}) * 8 - 1))"),
        _ => format!("{c_left} {operator} {c_right}"),
    };
    Case {
        ecode: format!("{left} {operator} {right}"),
        c,
    }
}

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

/// Value, size and sign of an expression. Comparisons give a `bool` here and an `int` in C: both
/// are promoted before they are looked at.
fn questions(expression: &str) -> [String; 3] {
    [
        format!("(unsigned long)({expression})"),
        format!("sizeof(+({expression}))"),
        format!("({expression}) * 0 - 1 < 0"),
    ]
}

/// The answers of the C compiler. `None`: there is none on this machine.
fn answers_of_c(name: &str, cases: &[Case]) -> Option<Vec<u64>> {
    let mut text = String::from("#include <stdio.h>\nstatic const unsigned long all[] = {\n");
    for case in cases {
        for question in questions(&case.c) {
            let _ = writeln!(text, "{question},");
        }
    }
    text += "};\nint main(void) {\n\
             for (unsigned long i = 0; i < sizeof all / 8; i++) printf(\"%lu\\n\", all[i]);\n}\n";
    let folder = std::env::temp_dir().join(format!("ecode-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, program) = (folder.join("all.c"), folder.join("all"));
    std::fs::write(&source, text).expect("a file");
    let compiler = Command::new("gcc")
        .args(["-std=gnu11", "-O0", "-w", "-fwrapv", "-o"])
        .args([&program, &source])
        .status();
    let answers = compiler.ok().map(|status| {
        assert!(status.success(), "gcc refuses {}", source.display());
        let output = Command::new(&program).output().expect("the program runs");
        let lines = String::from_utf8(output.stdout).expect("numbers");
        lines
            .lines()
            .map(|line| line.parse().expect("a number"))
            .collect()
    });
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    answers
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

/// The bytes of an input `struct { A a; B b; }`.
fn input((a, x): (&Kind, u64), (b, y): (&Kind, u64)) -> Vec<u8> {
    let bytes = |kind: &Kind| (kind.bits as usize).div_ceil(8);
    let mut input = x.to_le_bytes()[..bytes(a)].to_vec();
    input.resize(bytes(a).next_multiple_of(bytes(b)), 0);
    input.extend(&y.to_le_bytes()[..bytes(b)]);
    input.resize(16, 0);
    input
}

/// A program that computes `a OP b` and, where there is one, `c OP= b` for c = a.
fn program(operator: &str, a: &Kind, b: &Kind) -> (Machine, Memory) {
    let assigns = ASSIGNING.contains(&operator);
    let change = if assigns {
        format!("c {operator}= b;")
    } else {
        String::new()
    };
    let text = format!(
        "struct input {{ {} a; {} b; }}; struct output {{ u64 value; u64 changed; }};
         {} c = a; {change} output.value = (u64)(a {operator} b); output.changed = (u64)c;",
        a.name, b.name, a.name
    );
    let compiled = ecode::compile(&Source::new("run", text), &Environment::default());
    let compiled = compiled.unwrap_or_else(|refused| panic!("{refused}"));
    (
        Machine::new(&compiled.program),
        Memory::new(&compiled.program),
    )
}

const ASSIGNING: [&str; 10] = ["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"];

#[test]
fn operators_give_what_c_gives_when_they_run() {
    let cases = binary_cases();
    let mut changed = Vec::new();
    let mut at = cases.iter();
    for_each(|operator, (a, x), _| {
        let c = &at.next().expect("a case for each").c;
        let assigns = ASSIGNING.contains(&operator);
        let c = if assigns {
            format!("({}) ({c})", a.c)
        } else {
            a.constant(a.c, x)
        };
        changed.push(Case {
            ecode: String::new(),
            c,
        });
    });
    let answers = [
        answers_of_c("run", &cases),
        answers_of_c("changed", &changed),
    ];
    let [Some(values), Some(changed)] = answers else {
        eprintln!("skipped: there is no gcc on this machine");
        return;
    };
    let mut expected = values.chunks_exact(3).zip(changed.chunks_exact(3));
    let mut wrong = Vec::new();
    let mut loaded: Option<(String, (Machine, Memory))> = None;
    for_each(|operator, (a, x), (b, y)| {
        let name = format!("{} {operator} {}", a.name, b.name);
        if loaded.as_ref().is_none_or(|(former, _)| *former != name) {
            loaded = Some((name.clone(), program(operator, a, b)));
        }
        let (_, (machine, memory)) = loaded.as_mut().expect("just loaded");
        memory.set_input(&input((a, x), (b, y)));
        machine.run(memory).expect("nothing that can fail");
        let word = |at: usize| memory.output()[at..at + 8].try_into().expect("8 bytes");
        let ours = (u64::from_le_bytes(word(0)), u64::from_le_bytes(word(8)));
        let (value, changed) = expected.next().expect("an answer for each");
        if ours != (value[0], changed[0]) {
            wrong.push(format!(
                "{name}, {x:#x}, {y:#x}: {ours:x?}, C says {value:x?} {changed:x?}"
            ));
        }
    });
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
