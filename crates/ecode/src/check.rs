//! From the parser's output to a checked tree: looks names up, finds types, writes conversions out,
//! folds constants, and reports all errors in one run.
//!
//! The way of a text: declarations first (`declare`), then the functions, the body and the tests
//! (`statement`, with `expression` and what it needs: `condition`, `place`, `assign`,
//! `call`, `builtin`, `text`, `variable`, `initialise`), then what only the whole shows (`whole`:
//! recursion, what nobody uses; `sign`: numbers that may be negative).
//! An error is reported once, where it is found; the function then returns `None` (or
//! `Operand::Error`, [`Type::Error`]). A caller that gets this reports nothing and passes it on. A
//! name without a declaration is reported once.
//! name that is declared nowhere is told once.
//!
//! What goes into what it contains, by its own calls, is never inlined: their frames would become
//! one large one for each level of nesting, and [`limits::NESTING`] levels must fit a small stack.
//!
//! Time and memory are bounded by the text's length: nothing here looks at anything twice, hints
//! are searched for the diagnostics that are shown only, and names are cut in messages.

mod assign;
mod builtin;
mod call;
mod condition;
mod constant;
mod conversion;
mod declare;
mod expression;
mod initialise;
mod place;
pub(crate) mod range;
mod scope;
mod service;
mod sign;
mod statement;
mod test_block;
#[cfg(test)]
mod tests;
mod text;
mod variable;
mod verify;
mod whole;

use std::collections::{HashMap, HashSet};

use crate::ast::Unit;
use crate::diagnostic::{Diagnostic, Severity, cut};
use crate::environment::Environment;
use crate::limits;
use crate::source::Span;
use crate::tree::{Expression, FunctionId, Place, Statement, Tree, Variable, VariableId};
use crate::types::Type;
use scope::{Budget, Scopes};

/// Checks a text. The tree is `None` if an error is among the findings, which come in the order of
/// the text, or if the parser could not read some of it.
pub fn check(unit: &Unit, environment: &Environment) -> (Option<Tree>, Vec<Diagnostic>) {
    let mut checker = Checker::new(environment);
    checker.input_format();
    checker.items(unit);
    checker.functions(unit);
    checker.body(unit);
    checker.tests(unit);
    checker.whole();
    checker.warn_of_mixed_signs();
    checker.service_wanted(unit);
    checker.finish()
}

/// Names of the functions of the language: what documents and editors are to know.
pub fn builtins() -> impl Iterator<Item = &'static str> {
    builtin::names()
}

/// The state of the checks.
struct Checker<'a> {
    environment: &'a Environment,
    tree: Tree,
    /// Data about each of the tree's variables that only the checks need.
    facts: Vec<Facts>,
    scopes: Scopes,
    /// Structs by name; `None`: declared wrongly.
    structs: HashMap<String, Option<usize>>,
    /// How deep each of the tree's structs is nested.
    struct_depths: Vec<u32>,
    enums: HashSet<String>,
    signatures: Vec<Signature>,
    /// The context of the code that is checked now.
    context: Context,
    calls: Vec<Call>,
    diagnostics: Vec<Diagnostic>,
    /// Warnings of unused names. They are reported only if there is no error, which may be the
    /// reason.
    unused: Vec<Diagnostic>,
    errors: usize,
    /// Whether something could not even be read.
    unread: bool,
    /// Names that were reported as unknown.
    unknown: HashSet<String>,
    /// Bytes of all statics and constant tables.
    state_bytes: u32,
    /// What the body begins with: constants of the whole text that have to be computed.
    prelude: Vec<Statement>,
    /// How often a static or a constant table has this name.
    state_names: HashMap<String, u32>,
    budget: Budget,
    /// Comparisons of which only the whole text says whether they matter.
    mixed: Vec<sign::Mixed>,
}

/// Data about a variable that only the checks need.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// Why it cannot be written, if it cannot.
    fixed: Option<Fixed>,
    read: bool,
    written: bool,
    /// Whether it is worth a word if nobody uses it.
    watched: bool,
    /// Whether only the body knows it, though it is declared outside of it.
    of_body: bool,
}

/// Why a variable cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fixed {
    Const,
    Input,
    Sink,
    /// `result`, `fault`, and all others where a test only looks.
    Test,
}

/// A function that can be called.
#[derive(Clone, Debug)]
struct Signature {
    name: String,
    span: Span,
    result: Type,
    parameters: Vec<Type>,
    called: bool,
}

/// The context of the code that is checked now.
#[derive(Clone, Debug, Default)]
struct Context {
    /// `None`: the body.
    function: Option<FunctionId>,
    /// The type that `return` gives.
    result: Type,
    /// The loops and switches around, the innermost last.
    jumps: Vec<Jump>,
    /// How often something was met that may leave a loop from within.
    exits: u32,
    /// Levels of nesting around.
    levels: u32,
    /// Loops around.
    loops: u32,
    /// In a test's `expect`: looks only.
    looks_only: bool,
    /// An `expect` may name a request now, which is not made.
    request_named: bool,
    /// In `sizeof`: only the type matters.
    silent: bool,
    /// Outside of functions and body.
    outermost: bool,
}

/// A loop or a switch.
#[derive(Clone, Copy, Debug, Default)]
struct Jump {
    is_loop: bool,
    /// Whether a `break` leaves it, a `continue` goes on with it.
    broken: bool,
    continued: bool,
}

/// A call of a local function.
#[derive(Clone, Copy, Debug)]
struct Call {
    from: Option<FunctionId>,
    to: FunctionId,
    span: Span,
}

/// The result of an expression before it is known how it is used.
enum Operand {
    /// A scalar, or nothing (void).
    Value(Expression),
    /// A place, which can be read and perhaps written.
    Place(Place),
    /// A text of the program.
    Text(Vec<u8>, Span),
    /// An error, which has been reported.
    Error,
}

impl<'a> Checker<'a> {
    fn new(environment: &'a Environment) -> Checker<'a> {
        Checker {
            environment,
            tree: Tree {
                fuel: limits::FUEL,
                constants_used: vec![false; environment.constants.len()],
                ..Tree::default()
            },
            facts: Vec::new(),
            scopes: Scopes::default(),
            structs: HashMap::new(),
            struct_depths: Vec::new(),
            enums: HashSet::new(),
            signatures: Vec::new(),
            context: Context::default(),
            calls: Vec::new(),
            diagnostics: Vec::new(),
            unused: Vec::new(),
            errors: 0,
            unread: false,
            unknown: HashSet::new(),
            state_bytes: 0,
            prelude: Vec::new(),
            state_names: HashMap::new(),
            budget: Budget::default(),
            mixed: Vec::new(),
        }
    }

    fn finish(mut self) -> (Option<Tree>, Vec<Diagnostic>) {
        if self.errors == 0 && !self.unread {
            self.diagnostics.append(&mut self.unused);
        }
        self.diagnostics.sort_by_key(|d| (d.span.start, d.span.end));
        self.diagnostics
            .dedup_by(|b, a| a.span == b.span && a.message == b.message);
        let whole = self.errors == 0 && !self.unread;
        let tree = whole.then_some(self.tree);
        debug_assert_eq!(tree.as_ref().map_or(Ok(()), verify::verify), Ok(()));
        (tree, self.diagnostics)
    }

    /// Tells an error.
    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.tell(Diagnostic::error(span, message));
    }

    /// Reports an error, and what to do.
    fn error_hint(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.tell(Diagnostic::error(span, message).hint(hint));
    }

    /// Tells a warning.
    fn warn(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        if !self.context.silent {
            self.tell(Diagnostic::warning(span, message).hint(hint));
        }
    }

    /// Adds a warning of an unused name.
    fn unused(&mut self, span: Span, message: impl Into<String>) {
        self.unused.push(Diagnostic::warning(span, message));
    }

    fn tell(&mut self, diagnostic: Diagnostic) {
        if diagnostic.severity == Severity::Error {
            self.errors += 1;
        }
        self.diagnostics.push(diagnostic);
    }

    /// Whether a search for a hint is worth it: later findings are not shown.
    fn hints(&self) -> bool {
        self.errors < limits::DIAGNOSTICS
    }

    /// The type as it is written, cut if it is long.
    fn type_name(&self, ty: &Type) -> String {
        cut(&self.tree.structs.name(ty))
    }

    /// One level deeper. `false`: it is too deep; this has been reported, and nothing may follow.
    fn enter(&mut self, span: Span) -> bool {
        if self.context.levels >= limits::NESTING {
            let most = limits::NESTING;
            self.error_hint(
                span,
                format!("more than {most} operators and blocks in each other (NESTING)"),
                "compute parts of it into variables of their own first",
            );
            return false;
        }
        self.context.levels += 1;
        true
    }

    /// One level up.
    fn leave(&mut self) {
        self.context.levels -= 1;
    }

    /// A new variable of the tree.
    fn add_variable(&mut self, variable: Variable, facts: Facts) -> VariableId {
        let id = VariableId(self.tree.variables.len() as u32);
        self.tree.variables.push(variable);
        self.facts.push(facts);
        id
    }

    fn variable(&self, id: VariableId) -> &Variable {
        &self.tree.variables[id.0 as usize]
    }

    fn facts(&mut self, id: VariableId) -> &mut Facts {
        &mut self.facts[id.0 as usize]
    }
}
