//! Every operator of C on every pair of integer types: what a C compiler answers, and what programs
//! answer that compute it.
//!
//! Where C leaves the result open (x / 0, shifts by the width and more, the least number / -1) the
//! C text says what E-code defines; signed overflow wraps there by `-fwrapv`.

use std::fmt::Write as _;
use std::process::Command;

use ecode::Compiled;
use ecode::environment::Environment;
use ecode::source::Source;
use ecode::trial::Setting;

use crate::differential::Way;
use crate::world::World;

/// A type with its edges, as bits.
#[derive(Debug)]
pub struct Kind {
    /// Its name in E-code.
    pub name: &'static str,
    /// Its name in C.
    pub c: &'static str,
    bits: u32,
    signed: bool,
}

/// The types.
pub static KINDS: [Kind; 10] = [
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

impl Kind {
    /// Values at which something happens, as bits.
    pub fn edges(&self) -> Vec<u64> {
        let all = u64::MAX >> (64 - self.bits);
        if self.bits == 1 {
            return vec![0, 1];
        }
        vec![0, 1, 5, all, all / 2, all / 2 + 1]
    }

    /// A constant that both languages read alike.
    pub fn constant(&self, name: &str, value: u64) -> String {
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
#[derive(Debug)]
pub struct Case {
    pub ecode: String,
    pub c: String,
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

/// The same as expressions.
pub fn binary_cases() -> Vec<Case> {
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

/// Value, size and sign of an expression. Comparisons give a `bool` here and an `int` in C: both
/// are promoted before they are looked at.
pub fn questions(expression: &str) -> [String; 3] {
    [
        format!("(unsigned long)({expression})"),
        format!("sizeof(+({expression}))"),
        format!("({expression}) * 0 - 1 < 0"),
    ]
}

/// The answers of the C compiler. `None`: there is none on this machine.
pub fn answers_of_c(name: &str, cases: &[Case]) -> Option<Vec<u64>> {
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

/// Operators with which a variable can be changed: the first of [`BINARY`].
const ASSIGNING: usize = 10;

/// The bytes of an input `struct { A a; B b; }`.
fn input((a, x): (&Kind, u64), (b, y): (&Kind, u64)) -> Vec<u8> {
    let bytes = |kind: &Kind| (kind.bits as usize).div_ceil(8);
    let mut input = x.to_le_bytes()[..bytes(a)].to_vec();
    input.resize(bytes(a).next_multiple_of(bytes(b)), 0);
    input.extend(&y.to_le_bytes()[..bytes(b)]);
    input
}

/// A program that computes `a OP b` with each operator, and `c OP= b` for c = a where there is one.
fn program(a: &Kind, b: &Kind) -> Compiled {
    let (first, second, count) = (a.name, b.name, BINARY.len());
    let mut text = format!(
        "struct input {{ {first} a; {second} b; }};
         struct output {{ u64 value[{count}]; u64 changed[{count}]; }};
         {first} c;\n"
    );
    for (operator, at) in BINARY.iter().zip(0..) {
        let _ = writeln!(text, "output.value[{at}] = (u64)(a {operator} b); c = a;");
        if at < ASSIGNING {
            let _ = writeln!(text, "c {operator}= b;");
        }
        let _ = writeln!(text, "output.changed[{at}] = (u64)c;");
    }
    let compiled = ecode::compile(&Source::new("operators", text), &Environment::default());
    compiled.unwrap_or_else(|refused| panic!("{refused}"))
}

/// What C answers to each operator on each pair of edges: the value, and the variable that it
/// changed.
fn expected() -> Option<Vec<(u64, u64)>> {
    let (mut values, mut changed) = (Vec::new(), Vec::new());
    for_each(|operator, (a, x), (b, y)| {
        let case = binary_case(operator, (a, x), (b, y));
        let assigns = BINARY[..ASSIGNING].contains(&operator);
        let c = if assigns {
            format!("({}) ({})", a.c, case.c)
        } else {
            a.constant(a.c, x)
        };
        values.push(case);
        changed.push(Case {
            ecode: String::new(),
            c,
        });
    });
    let values = answers_of_c("run", &values)?;
    let changed = answers_of_c("changed", &changed)?;
    let first = |answers: Vec<u64>| answers.into_iter().step_by(3);
    Some(first(values).zip(first(changed)).collect())
}

/// Has programs compute every operator on every pair of types and of edges. Gives how many results
/// were compared; `None`: there is no C compiler on this machine.
///
/// # Panics
/// With the results that differ.
pub fn compare_running(ways: &[&dyn Way]) -> Option<usize> {
    let expected = expected()?;
    let mut wrong = Vec::new();
    let mut left = expected.as_slice();
    for (a, b) in KINDS.iter().flat_map(|a| KINDS.iter().map(move |b| (a, b))) {
        let count = BINARY.len() * a.edges().len() * b.edges().len();
        let (these, others) = left.split_at(count);
        left = others;
        for way in ways {
            compare_pair((a, b), *way, these, &mut wrong);
        }
    }
    let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>();
    assert!(
        wrong.is_empty(),
        "{} results:\n{}",
        wrong.len(),
        shown.join("\n")
    );
    Some(expected.len() * 2 * ways.len())
}

/// One pair of types. `expected`: each operator on all pairs of edges, then the next one.
fn compare_pair(
    (a, b): (&Kind, &Kind),
    way: &dyn Way,
    expected: &[(u64, u64)],
    wrong: &mut Vec<String>,
) {
    let compiled = program(a, b);
    let mut loaded = way.load(&compiled.program).expect("a small program");
    let edges = b.edges();
    let pairs = a.edges().into_iter();
    let pairs = pairs.flat_map(|x| edges.iter().map(move |y| (x, *y)));
    let count = expected.len() / BINARY.len();
    for ((x, y), at) in pairs.zip(0..) {
        let mut setting = Setting::new(&compiled.tree, &compiled.program);
        let data = input((a, x), (b, y));
        setting.data()[..data.len()].copy_from_slice(&data);
        let output = loaded.run(&World::from(&setting)).output;
        let word = |at: usize| {
            let bytes = output[at * 8..at * 8 + 8].try_into().expect("8 bytes");
            u64::from_le_bytes(bytes)
        };
        for (operator, number) in BINARY.iter().zip(0..) {
            let ours = (word(number), word(BINARY.len() + number));
            let c = expected[number * count + at];
            if ours != c {
                let (way, a, b) = (way.name(), a.name, b.name);
                wrong.push(format!(
                    "{way}: {a} {operator} {b}, {x:#x}, {y:#x}: {ours:x?}, C says {c:x?}"
                ));
            }
        }
    }
}
