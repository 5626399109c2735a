//! Random programs, as texts: well typed, with every feature of the language, each statement on a
//! line of its own (so that [`crate::differential`] can take lines out). A seed gives one program.
//!
//! Most indices are kept inside their arrays, most loops end and most requests fit, because a
//! program that fails at once shows nothing; some do not. Sizes stay below the compiler's limits,
//! if not always below those on loops and expanded functions: such programs are passed over.

mod expression;
mod scope;
mod statement;

use ecode::environment::Environment;

use crate::dice::Dice;
use ecode::limits;
use scope::{Function, Kind, Shape, Struct, Variable};

/// Types of whole numbers, by the ways in which they are written.
const INTEGERS: [&str; 12] = [
    "char",
    "unsigned char",
    "short",
    "u16",
    "int",
    "int",
    "unsigned",
    "s32",
    "long",
    "u64",
    "unsigned long",
    "enum colour",
];

/// How often a function is called, about.
const CALLS: u64 = 4;
/// How often a statement in loops is to be done at most, about.
const ROUNDS: u64 = 500;

/// The surroundings of every program here.
pub fn environment() -> Environment {
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
    Environment {
        input: None,
        kinds: names(&["OPENED", "CLOSED"]),
        attributes: names(&["load", "queue", "rate"]),
        sinks: Some(names(&["load", "cost"])),
        services: vec![("timer".into(), 3), ("socket".into(), 7)],
        constants: vec![("NUM_RESOURCES".into(), 16), ("LARGE".into(), 1 << 40)],
        denied: Vec::new(),
        ..Environment::default()
    }
}

/// A program.
pub fn program(seed: u64) -> String {
    let mut author = Author::new(seed);
    author.declarations();
    for _ in 0..author.dice.below(4) {
        author.function();
    }
    author.body();
    author.text
}

/// Who writes a program.
struct Author {
    dice: Dice,
    text: String,
    indent: usize,
    /// Variables in scope, the innermost last.
    scopes: Vec<Vec<Variable>>,
    structs: Vec<Struct>,
    functions: Vec<Function>,
    /// Names given so far.
    names: u32,
    /// Statements, calls and memories of `once` that may still be written.
    statements_left: u32,
    calls_left: u32,
    onces_left: u32,
    /// Loops around, and how many there may be.
    loops: u32,
    loops_most: u32,
    /// How often what is written now is done, about, and how many requests that leaves.
    rounds: u64,
    requests_left: u64,
    /// Whether `break` leaves something that is no loop.
    in_switch: bool,
    /// What `return` gives here: of the body a number, of a void function nothing.
    returns: Option<Kind>,
    in_body: bool,
    /// The sink's variable.
    sink: Option<String>,
}

impl Author {
    fn new(seed: u64) -> Author {
        Author {
            dice: Dice::new(seed),
            text: String::new(),
            indent: 0,
            scopes: vec![Vec::new()],
            structs: Vec::new(),
            functions: Vec::new(),
            names: 0,
            statements_left: 0,
            calls_left: 0,
            onces_left: 2,
            loops: 0,
            loops_most: 0,
            rounds: 1,
            requests_left: limits::EFFECTS.into(),
            in_switch: false,
            returns: None,
            in_body: false,
            sink: None,
        }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(&"    ".repeat(self.indent));
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn name(&mut self, of: &str) -> String {
        self.names += 1;
        format!("{of}{}", self.names)
    }

    fn declarations(&mut self) {
        match self.dice.below(8) {
            0 => {
                let fuel = 20 + self.dice.below(2000);
                self.line(&format!("fuel {fuel};"));
            }
            1..=4 => self.line("fuel 60000;"),
            _ => {}
        }
        self.line("enum colour { RED, GREEN = 5, BLUE = -3 };");
        for _ in 0..1 + self.dice.below(2) {
            let name = self.name("st");
            self.declare_struct(&name, 4);
        }
        let input = self.declare_struct("input", 6);
        let output = self.declare_struct("output", 5);
        self.add("input", Shape::Struct(input), false);
        self.add("output", Shape::Struct(output), true);
        for _ in 0..self.dice.below(5) {
            self.declare_variable("static ", 3);
        }
        for _ in 0..self.dice.below(2) {
            let (name, ty) = (self.name("t"), self.int_name());
            let count = 2 + self.dice.below(6);
            let values: Vec<String> = (0..count).map(|_| self.literal()).collect();
            let values = values.join(", ");
            self.line(&format!("const {ty} {name}[{count}] = {{ {values} }};"));
            self.add(&name, Shape::Array(Box::new(Shape::Int(ty)), count), false);
        }
    }

    fn declare_struct(&mut self, name: &str, most: u64) -> usize {
        self.line(&format!("struct {name} {{"));
        let mut fields = Vec::new();
        for _ in 0..1 + self.dice.below(most) {
            let field = self.name("f");
            let shape = self.shape(2);
            let declared = shape.declared(&field, &self.structs);
            self.line(&format!("    {declared};"));
            fields.push((field, shape));
        }
        self.line("};");
        self.structs.push(Struct {
            name: name.to_owned(),
            fields,
        });
        self.structs.len() - 1
    }

    /// A static or a local, with an initialiser or without.
    fn declare_variable(&mut self, prefix: &str, depth: u32) {
        let is_static = !prefix.is_empty();
        let name = self.name(if is_static { "g" } else { "v" });
        let shape = self.shape(depth.min(2));
        let declared = shape.declared(&name, &self.structs);
        let initialiser = match self.dice.below(3) {
            0 => String::new(),
            _ => format!(" = {}", self.initialiser(&shape, is_static)),
        };
        self.line(&format!("{prefix}{declared}{initialiser};"));
        self.add(&name, shape, true);
    }

    fn initialiser(&mut self, shape: &Shape, constant: bool) -> String {
        match shape {
            Shape::Text(count) => format!("\"{}\"", self.letters(*count)),
            Shape::Array(of, count) => {
                let given = 1 + self.dice.below(*count);
                let of = of.clone();
                let all: Vec<_> = (0..given)
                    .map(|_| self.initialiser(&of, constant))
                    .collect();
                if self.dice.one_in(4) {
                    let last = count - 1;
                    return format!("{{ [{last}] = {} }}", all[0]);
                }
                format!("{{ {} }}", all.join(", "))
            }
            Shape::Struct(at) => {
                let fields = self.structs[*at].fields.clone();
                let count = 1 + self.dice.below(fields.len() as u64) as usize;
                let named = self.dice.one_in(2);
                let mut all = Vec::new();
                for (field, shape) in &fields[..count] {
                    let value = self.initialiser(shape, constant);
                    all.push(if named {
                        format!(".{field} = {value}")
                    } else {
                        value
                    });
                }
                format!("{{ {} }}", all.join(", "))
            }
            Shape::Fixed if constant => self.fixed_literal(),
            Shape::Fixed => self.fixed(2),
            Shape::Bool if constant => self.dice.below(2).to_string(),
            Shape::Int(_) if constant => self.literal(),
            Shape::Bool | Shape::Int(_) => self.int(2),
        }
    }

    /// At most `count` letters, of which there are few.
    fn letters(&mut self, count: u64) -> String {
        let length = self.dice.below(count + 1);
        (0..length)
            .map(|_| char::from(b'a' + self.dice.below(3) as u8))
            .collect()
    }

    fn shape(&mut self, depth: u32) -> Shape {
        match self.dice.below(if depth == 0 { 8 } else { 13 }) {
            0..=5 => Shape::Int(self.int_name()),
            6 => Shape::Bool,
            7 => Shape::Fixed,
            8 => Shape::Text(1 + self.dice.below(20)),
            9 | 10 => {
                let of = self.shape(depth - 1);
                match of {
                    // An array of texts has two dimensions, as has one of arrays: both are fine.
                    Shape::Text(_) => of,
                    of => Shape::Array(Box::new(of), 1 + self.dice.below(6)),
                }
            }
            _ => {
                // `input` and `output` are variables' own.
                let usable = self
                    .structs
                    .iter()
                    .filter(|one| one.name.starts_with("st"))
                    .count();
                match usable {
                    0 => Shape::Bool,
                    _ => Shape::Struct(self.dice.below(usable as u64) as usize),
                }
            }
        }
    }

    fn int_name(&mut self) -> &'static str {
        INTEGERS[self.dice.below(INTEGERS.len() as u64) as usize]
    }

    fn function(&mut self) {
        let name = self.name("fun");
        let kinds = [Kind::Int, Kind::Int, Kind::Fixed];
        let result = match self.dice.below(4) {
            0 => None,
            _ => Some(*self.dice.pick(&kinds)),
        };
        let parameters: Vec<Kind> = (0..self.dice.below(4))
            .map(|_| *self.dice.pick(&kinds))
            .collect();
        self.scopes.push(Vec::new());
        let mut declared = Vec::new();
        for kind in &parameters {
            let parameter = self.name("p");
            let shape = match kind {
                Kind::Int => Shape::Int(self.int_name()),
                Kind::Fixed => Shape::Fixed,
            };
            declared.push(shape.declared(&parameter, &self.structs));
            self.add(&parameter, shape, true);
        }
        let ty = match result {
            None => "void",
            Some(Kind::Int) => self.int_name(),
            Some(Kind::Fixed) => "fixed",
        };
        self.line(&format!("{ty} {name}({}) {{", declared.join(", ")));
        (self.returns, self.in_body) = (result, false);
        (self.statements_left, self.calls_left, self.loops_most) = (8, 1, 1);
        self.rounds = CALLS;
        self.block_lines(3);
        if result.is_some() {
            self.return_line();
        }
        self.line("}");
        self.scopes.pop();
        self.functions.push(Function {
            name,
            parameters,
            result,
        });
    }

    fn body(&mut self) {
        self.line("{");
        self.scopes.push(Vec::new());
        (self.returns, self.in_body) = (Some(Kind::Int), true);
        (self.statements_left, self.calls_left, self.loops_most) = (25, 8, 3);
        self.rounds = 1;
        while self.statements_left > 0 {
            self.block_lines(4);
        }
        if self.dice.one_in(2) {
            self.return_line();
        }
        self.scopes.pop();
        self.line("}");
    }

    fn add(&mut self, name: &str, shape: Shape, writable: bool) {
        let variable = Variable {
            name: name.to_owned(),
            shape,
            writable,
        };
        self.scopes.last_mut().expect("a scope").push(variable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecode::source::Source;

    #[test]
    fn every_program_is_well_typed() {
        for seed in 0..2000 {
            let source = Source::new("random.ec", program(seed));
            let (unit, mut told) = ecode::parser::parse(&source);
            let (tree, more) = ecode::check::check(&unit, &environment());
            told.extend(more);
            told.retain(|one| one.severity == ecode::diagnostic::Severity::Error);
            let all = ecode::diagnostic::Diagnostics {
                all: told,
                left_out: 0,
            };
            let shown = all.render(&source);
            assert!(
                all.all.is_empty() && tree.is_some(),
                "{seed}: {shown}\n{}",
                source.text
            );
        }
    }
}
