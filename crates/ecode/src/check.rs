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
//!
//! Functions that recurse into the parts of a node are never inlined into each other: one large
//! stack frame per level of nesting would result, and [`limits::NESTING`] levels must fit a small
//! stack.
//!
//! Time and memory are bounded by the text's length: each node is checked once, hints are searched
//! only for the diagnostics that are shown, and names in messages are truncated.

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

/// Names of the built-in functions, for documents and editors.
pub fn builtins() -> impl Iterator<Item = &'static str> {
    builtin::names()
}

/// The state of the checks.
struct Checker<'a> {
    environment: &'a Environment,
    tree: Tree,
    /// Data about each of the tree's variables that only the checks need.
    details: Vec<Details>,
    scopes: Scopes,
    /// Structs by name; `None`: its declaration has an error.
    structs: HashMap<String, Option<usize>>,
    /// How deep each of the tree's structs is nested.
    struct_depths: Vec<u32>,
    enums: HashSet<String>,
    signatures: Vec<Signature>,
    /// The context of the code that is checked now.
    context: Context,
    calls: Vec<Call>,
    diagnostics: Vec<Diagnostic>,
    /// Warnings of unused names, which are reported only if there is no error: an error may be the
    /// reason why a name seems unused.
    unused: Vec<Diagnostic>,
    errors: usize,
    /// Whether the parser could not read some of the text.
    unread: bool,
    /// Names that were reported as unknown.
    unknown: HashSet<String>,
    /// Bytes of all statics and constant tables.
    state_bytes: u32,
    /// Statements at the beginning of the body that compute constants of the whole text.
    prelude: Vec<Statement>,
    /// The number of statics and constant tables with this name.
    state_names: HashMap<String, u32>,
    budget: Budget,
    /// Comparisons of mixed sign; whether they deserve a warning depends on the whole text.
    mixed: Vec<sign::Mixed>,
}

/// Data about a variable that only the checks need.
#[derive(Clone, Debug, Default)]
struct Details {
    /// The reason why it cannot be written, if there is one.
    fixed: Option<Fixed>,
    read: bool,
    written: bool,
    /// Whether there is a warning if it is not used.
    watched: bool,
    /// Whether only the body can use it, though it is declared outside of the body.
    of_body: bool,
}

/// Why a variable cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fixed {
    Const,
    Input,
    Sink,
    /// `result`, `fault`, and every variable in an expectation of a test.
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
    /// The surrounding loops and switches, the innermost last.
    jumps: Vec<Jump>,
    /// The number of statements so far that may leave a loop from within.
    exits: u32,
    /// The current depth of nesting.
    levels: u32,
    /// The number of surrounding loops.
    loops: u32,
    /// In a test's `expect`, where nothing may be changed.
    looks_only: bool,
    /// An `expect` may name a request here, which is not carried out.
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
    /// Whether a `break` leaves it, and whether a `continue` continues it.
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

/// The result of an expression before its use is known.
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
                unsaid: environment.unsaid,
                fuel: limits::FUEL,
                constants_used: vec![false; environment.constants.len()],
                ..Tree::default()
            },
            details: Vec::new(),
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

    /// Reports an error.
    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.tell(Diagnostic::error(span, message));
    }

    /// Reports an error, and what to do.
    fn error_hint(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.tell(Diagnostic::error(span, message).hint(hint));
    }

    /// Reports a warning.
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

    /// Whether to search for hints: findings beyond the limit are not shown.
    fn hints(&self) -> bool {
        self.errors < limits::DIAGNOSTICS
    }

    /// The type as it is written, truncated if it is long.
    fn type_name(&self, ty: &Type) -> String {
        cut(&self.tree.structs.name(ty))
    }

    /// Enters a level of nesting. `false`: it is too deep, which has been reported; the caller
    /// stops.
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

    /// Leaves a level of nesting.
    fn leave(&mut self) {
        self.context.levels -= 1;
    }

    /// A new variable of the tree.
    fn add_variable(&mut self, variable: Variable, details: Details) -> VariableId {
        let id = VariableId(self.tree.variables.len() as u32);
        self.tree.variables.push(variable);
        self.details.push(details);
        id
    }

    fn variable(&self, id: VariableId) -> &Variable {
        &self.tree.variables[id.0 as usize]
    }

    fn details(&mut self, id: VariableId) -> &mut Details {
        &mut self.details[id.0 as usize]
    }
}
