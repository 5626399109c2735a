//! Every operation on `fixed` against exact integers: the values of two numbers and of integers of
//! each type, what programs compute of them, and what wide integers say it is.
//!
//! A `fixed` counts millionths in 64 bits. Each result is the exact one, cut towards zero to a
//! millionth, modulo 2^64; x / 0 is 0 and x % 0 is x.

use std::fmt::Write as _;

use ecode::environment::Environment;
use ecode::source::Source;
use ecode::tree::{Storage, Tree};
use ecode::trial::Setting;

use crate::Dice;
use crate::differential::Way;
use crate::world::World;

const ONE: i128 = 1_000_000;

/// The type of what an operation works on.
type Bits = (u32, bool);

/// The integers beside the two numbers: name in the program, type, bits and sign.
const INTEGERS: [(&str, &str, Bits); 6] = [
    ("l", "s64", (64, true)),
    ("k", "u64", (64, false)),
    ("n", "s32", (32, true)),
    ("m", "u32", (32, false)),
    ("h", "s16", (16, true)),
    ("c", "u8", (8, false)),
];

const ARITHMETIC: [&str; 5] = ["+", "-", "*", "/", "%"];
const COMPARISON: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];

/// A number modulo 2^bits, in its type.
fn cut(value: i128, (bits, signed): Bits) -> i128 {
    let modulus = 1i128 << bits;
    let low = value.rem_euclid(modulus);
    if signed && low >= modulus / 2 {
        low - modulus
    } else {
        low
    }
}

/// A number as millionths, which wrap.
fn millionths(value: i128) -> i128 {
    cut(value, (64, true))
}

/// `a OP b` of millionths.
fn exact(operator: &str, a: i128, b: i128) -> i128 {
    match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b / ONE,
        "/" if b == 0 => 0,
        "/" => a * ONE / b,
        "%" if b == 0 => a,
        "%" => a % b,
        "<" => i128::from(a < b),
        "<=" => i128::from(a <= b),
        ">" => i128::from(a > b),
        ">=" => i128::from(a >= b),
        "==" => i128::from(a == b),
        "!=" => i128::from(a != b),
        other => panic!("no operator: {other}"),
    }
}

/// What is given: two numbers, and the second one's bits as integers.
#[derive(Clone, Copy, Debug)]
struct Given {
    a: i64,
    b: i64,
}

impl Given {
    fn integer(self, bits: Bits) -> i128 {
        cut(i128::from(self.b), bits)
    }
}

/// What a program computes, and what it is: an expression, or statements with an expression behind
/// them. Its value is a `fixed` or an integer (`ty`), and is compared by its bits.
struct Operation {
    ty: &'static str,
    statements: String,
    value: String,
    exact: Box<dyn Fn(Given) -> i128>,
}

impl Operation {
    /// Whether the checks fold it, if what it works on is constant.
    fn folds(&self) -> bool {
        let called = ["abs", "min", "max"];
        self.statements.is_empty() && !called.iter().any(|name| self.value.starts_with(name))
    }
}

fn operation(ty: &'static str, text: &str, exact: impl Fn(Given) -> i128 + 'static) -> Operation {
    let (statements, value) = text.rsplit_once("; ").unwrap_or(("", text));
    Operation {
        ty,
        statements: statements.to_owned(),
        value: value.to_owned(),
        exact: Box::new(exact),
    }
}

fn operations() -> Vec<Operation> {
    let mut all = vec![
        operation("fixed", "-a", |g| -i128::from(g.a)),
        operation("fixed", "+a", |g| i128::from(g.a)),
        operation("s64", "!a", |g| i128::from(g.a == 0)),
        operation("s64", "(bool)a", |g| i128::from(g.a != 0)),
        operation("fixed", "abs(a)", |g| i128::from(g.a).abs()),
        operation("fixed", "min(a, b)", |g| i128::from(g.a.min(g.b))),
        operation("fixed", "max(a, b)", |g| i128::from(g.a.max(g.b))),
        operation("fixed", "x = a; x++; x", |g| i128::from(g.a) + ONE),
        operation("fixed", "x = a; --x", |g| i128::from(g.a) - ONE),
        operation("fixed", "x = a; x++", |g| i128::from(g.a)),
        operation("fixed", "s = a; s++; s", |g| i128::from(g.a) + ONE),
        operation("fixed", "s = a; --s", |g| i128::from(g.a) - ONE),
    ];
    for operator in ARITHMETIC {
        let of = move |g: Given| exact(operator, g.a.into(), g.b.into());
        all.push(operation("fixed", &format!("a {operator} b"), of));
        all.push(operation(
            "fixed",
            &format!("x = a; x {operator}= b; x"),
            of,
        ));
        all.push(operation(
            "fixed",
            &format!("s = a; s {operator}= b; s"),
            of,
        ));
    }
    for operator in COMPARISON {
        all.push(operation("s64", &format!("a {operator} b"), move |g| {
            exact(operator, g.a.into(), g.b.into())
        }));
    }
    for integer in INTEGERS {
        with_integer(integer, &mut all);
    }
    all
}

/// The operations of a `fixed` and an integer: the integer becomes a `fixed` first.
fn with_integer((name, ty, bits): (&str, &'static str, Bits), all: &mut Vec<Operation>) {
    let whole = move |g: Given| millionths(g.integer(bits) * ONE);
    for operator in ARITHMETIC {
        all.push(operation(
            "fixed",
            &format!("a {operator} {name}"),
            move |g| exact(operator, g.a.into(), whole(g)),
        ));
        all.push(operation(
            "fixed",
            &format!("{name} {operator} a"),
            move |g| exact(operator, whole(g), g.a.into()),
        ));
        let compound = format!("i{name} = {name}; i{name} {operator}= a; i{name}");
        all.push(operation(ty, &compound, move |g| {
            let result = millionths(exact(operator, whole(g), g.a.into()));
            cut(result / ONE, bits)
        }));
    }
    for operator in COMPARISON {
        all.push(operation(
            "s64",
            &format!("a {operator} {name}"),
            move |g| exact(operator, g.a.into(), whole(g)),
        ));
    }
    all.push(operation("s64", &format!("({ty})a"), move |g| {
        cut(i128::from(g.a) / ONE, bits)
    }));
    all.push(operation("fixed", &format!("(fixed){name}"), whole));
}

/// Numbers at which something happens: limits of types, of the formulas, and the units.
fn edges() -> Vec<i64> {
    let mut all = vec![0, i64::MAX, i64::MIN, i64::MIN + 1, 9_400_000_000_000_000];
    for power in [1, 7, 8, 20, 31, 32, 43, 44, 51, 52, 53, 54, 62] {
        all.extend([(1 << power) - 1, 1 << power, (1 << power) + 1]);
    }
    for decimal in [1, 999, 1000, 500_000, 999_999, 1_000_000, 1_000_001] {
        all.push(decimal);
        all.push(decimal * 3_000_000_007);
    }
    let negative: Vec<_> = all.iter().map(|edge| edge.wrapping_neg()).collect();
    all.extend(negative);
    all
}

/// Pairs in which half of the numbers are edges, the same for a seed.
fn pairs(dice: &mut Dice, count: usize) -> Vec<Given> {
    let edges = edges();
    let any = |dice: &mut Dice| match dice.below(2) {
        0 => *dice.pick(&edges),
        _ => (dice.any() as i64) >> dice.below(64),
    };
    let known = [(9_300, 9_400), (45_000, 60_000)];
    let known = known.map(|(a, b)| Given {
        a: a * 1_000_000_000_000,
        b: b * 1_000_000_000_000,
    });
    let chance = (0..count).map(|_| Given {
        a: any(dice),
        b: any(dice),
    });
    known.into_iter().chain(chance).collect()
}

/// What differs from the exact number. `bits`: what was computed.
fn difference(one: &Operation, g: Given, bits: i64) -> Option<String> {
    let exact = millionths((one.exact)(g));
    let Operation {
        statements, value, ..
    } = one;
    (i128::from(bits) != exact)
        .then(|| format!("{statements}; {value} with {g:?}: {bits}, not {exact}"))
}

fn fail_with(wrong: &[String]) {
    let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>();
    assert!(
        wrong.is_empty(),
        "{} results:\n{}",
        wrong.len(),
        shown.join("\n")
    );
}

/// A `fixed` as a text writes it.
fn literal(value: i64) -> String {
    if value == i64::MIN {
        return "(-9223372036854.775807 - 0.000001)".to_owned();
    }
    let sign = if value < 0 { "-" } else { "" };
    let magnitude = value.unsigned_abs();
    format!(
        "{sign}{}.{:06}",
        magnitude / 1_000_000,
        magnitude % 1_000_000
    )
}

/// Has the checks fold every operation on pairs of numbers that a seed decides. Gives how many
/// results were compared.
///
/// # Panics
/// With the results that differ.
pub fn compare_folded(seed: u64, count: usize) -> usize {
    let operations: Vec<_> = operations().into_iter().filter(Operation::folds).collect();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for g in pairs(&mut Dice::new(seed), count) {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "const fixed a = {}, b = {};",
            literal(g.a),
            literal(g.b)
        );
        for (name, ty, _) in INTEGERS {
            let _ = writeln!(text, "const {ty} {name} = ({ty}){:#x};", g.b);
        }
        for (one, at) in operations.iter().zip(0..) {
            let _ = writeln!(text, "static {} v{at} = {};", one.ty, one.value);
        }
        text += "return 1;";
        let tree = tree_of(text);
        for (one, at) in operations.iter().zip(0..) {
            compared += 1;
            wrong.extend(difference(one, g, first_value(&tree, &format!("v{at}"))));
        }
    }
    fail_with(&wrong);
    compared
}

fn tree_of(text: String) -> Tree {
    let source = Source::new("fixed", text);
    let (unit, told) = ecode::parser::parse(&source);
    assert!(told.is_empty(), "{told:?}");
    let (tree, told) = ecode::check::check(&unit, &Environment::default());
    tree.unwrap_or_else(|| panic!("{:?}\n{}", told.first(), source.text))
}

/// The first value of a static of 64 bits.
fn first_value(tree: &Tree, name: &str) -> i64 {
    let variable = tree.variables.iter().find(|one| one.name == name);
    match &variable.expect("it is declared").storage {
        Storage::Static(bytes) => word(bytes, 0),
        other => panic!("{name}: {other:?}"),
    }
}

fn word(bytes: &[u8], at: usize) -> i64 {
    let bytes = bytes[at * 8..at * 8 + 8].try_into().expect("8 bytes");
    i64::from_le_bytes(bytes)
}

/// Has programs compute every operation in every way on pairs of numbers that a seed decides. Gives
/// how many results were compared.
///
/// # Panics
/// With the results that differ.
pub fn compare_running(seed: u64, count: usize, ways: &[&dyn Way]) -> usize {
    /// So that each program is far from its limits.
    const OPERATIONS_OF_A_PROGRAM: usize = 30;
    let mut wrong = Vec::new();
    let mut compared = 0;
    for operations in operations().chunks(OPERATIONS_OF_A_PROGRAM) {
        let compiled = program(operations);
        for way in ways {
            let mut loaded = way.load(&compiled.program).expect("a small program");
            for g in pairs(&mut Dice::new(seed), count) {
                let mut setting = Setting::new(&compiled.tree, &compiled.program);
                let data = [g.a, g.b, g.b].map(i64::to_le_bytes).concat();
                setting.data()[..data.len()].copy_from_slice(&data);
                let output = loaded.run(&World::from(&setting)).output;
                for (one, at) in operations.iter().zip(0..) {
                    compared += 1;
                    let what = difference(one, g, word(&output, at));
                    wrong.extend(what.map(|what| format!("{}: {what}", way.name())));
                }
            }
        }
    }
    fail_with(&wrong);
    compared
}

/// A program that leaves each operation's value in a word of its output.
fn program(operations: &[Operation]) -> ecode::Compiled {
    let mut text = String::from("struct input { fixed a, b; s64 bits; };\nstruct output {");
    for (one, at) in operations.iter().zip(0..) {
        let ty = if one.ty == "fixed" { "fixed" } else { "s64" };
        let _ = writeln!(text, "{ty} v{at};");
    }
    text += "};\nstatic fixed s;\n{ fixed x; \n";
    for (name, ty, _) in INTEGERS {
        let _ = writeln!(text, "{ty} {name} = bits, i{name};");
    }
    for (one, at) in operations.iter().zip(0..) {
        let _ = writeln!(text, "{};\noutput.v{at} = {};", one.statements, one.value);
    }
    text += "}";
    let compiled = ecode::compile(&Source::new("fixed", text.clone()), &Environment::default());
    compiled.unwrap_or_else(|refused| panic!("{refused}\n{text}"))
}
