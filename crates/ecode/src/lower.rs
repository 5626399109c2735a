//! From the tree to the IR: one function remains, scalars live in registers, arrays and structs at
//! fixed places of a region. [`lower`] also simplifies the result. It fails only if a limit is
//! exceeded; the error names the place in the text.
//!
//! A `Lowering` walks the tree once and appends to `code`, the list of instructions of the block
//! that it is in; `Lowering::collect` collects the instructions of an inner block. Each part of the
//! language has its file:
//!
//! | file | what |
//! |---|---|
//! | `statement` | statements, loops, `switch`, functions expanded where they are called |
//! | `expression` | values, assignments, updates |
//! | `arithmetic` | operators and conversions on C's types and on `fixed` |
//! | `condition` | conditions as jumps, without a value of 0 or 1 in between |
//! | `place` | where variables lie, bounds of indices |
//! | `aggregate` | whole arrays and structs, by words |
//! | `text` | strings, by words |
//! | `builtin`, `sink` | built-in functions |
//! | `fold` | operators whose operands are constants |
//! | `simplify`, `prune` | simplification of the finished program |
//! | `common`, `unroll`, `fuel` | code common to two branches, unrolled loops, counting of fuel |
//!
//! Values are [`Operand`]s. An operand that is the register of a variable changes with the
//! variable, so code that keeps an operand while it evaluates more of the text passes it through
//! `Lowering::hold`.

mod aggregate;
mod arithmetic;
mod builtin;
mod common;
mod condition;
mod expression;
mod fold;
mod fuel;
mod place;
mod prune;
mod simplify;
mod sink;
mod statement;
mod text;
mod unroll;

use std::mem;

use crate::diagnostic::Diagnostic;
use crate::ir::verify::verify;
use crate::ir::{Instruction, Label, Op, Operand, Operator, Program, Register, Relation, State};
use crate::limits;
use crate::source::Span;
use crate::tree::{Expression, ExpressionKind, Storage, Tree};
use place::Home;

/// Lowers a tree. An error names the limit that was passed.
pub fn lower(tree: &Tree) -> Result<Program, Diagnostic> {
    let mut program = plain(tree)?;
    simplify::simplify(&mut program);
    debug_assert_eq!(verify(&program), Ok(()), "{program}");
    Ok(program)
}

/// The same without any simplification, for comparisons in tests.
pub fn plain(tree: &Tree) -> Result<Program, Diagnostic> {
    let mut lowering = Lowering::new(tree);
    lowering.statics()?;
    lowering.statements(&tree.body)?;
    lowering.emit(Op::Return(lowering.unsaid()));
    lowering.finish()
}

/// The result of lowering, or the limit that was exceeded.
type Lowered<T> = Result<T, Diagnostic>;

/// See the head of this file.
#[derive(Debug)]
struct Lowering<'t> {
    tree: &'t Tree,
    /// Instructions of the block that is being filled.
    code: Vec<Instruction>,
    /// Instructions in all blocks.
    count: usize,
    /// The source of the next instructions.
    span: Span,
    /// Registers and labels in use.
    registers: u32,
    labels: u32,
    /// The current depth of nested expressions and statements.
    nesting: u32,
    /// The number of surrounding loops, and the maximum so far.
    loops: u32,
    loops_most: u32,
    /// Where each variable is now.
    homes: Vec<Home>,
    /// Bytes of [`crate::ir::Region::Locals`] in use here, and the maximum so far.
    locals: u32,
    locals_most: u32,
    /// The end of the part of the input that the program reads.
    input: u32,
    state: State,
    /// Whether a sink may be accepted so far.
    accepts: bool,
    /// The blocks that `break` and `continue` leave.
    on_break: Option<Label>,
    on_continue: Option<Label>,
    /// The block that `return` leaves, and the register for its value; `None`: the whole run.
    on_return: Option<(Label, Register)>,
}

impl<'t> Lowering<'t> {
    fn new(tree: &'t Tree) -> Lowering<'t> {
        Lowering {
            tree,
            code: Vec::new(),
            count: 0,
            span: Span::default(),
            registers: 0,
            labels: 0,
            nesting: 0,
            loops: 0,
            loops_most: 0,
            homes: vec![Home::None; tree.variables.len()],
            locals: 0,
            locals_most: 0,
            input: 0,
            state: State::default(),
            accepts: false,
            on_break: None,
            on_continue: None,
            on_return: None,
        }
    }

    fn finish(mut self) -> Lowered<Program> {
        self.check_count()?;
        let output = match self.tree.output {
            Some(variable) => self.size_of(&self.tree.variables[variable.0 as usize].ty),
            None => 0,
        };
        self.state
            .bytes
            .resize(self.state.bytes.len().next_multiple_of(8), 0);
        Ok(Program {
            body: self.code,
            registers: self.registers,
            locals: self.locals_most,
            input: self.input,
            output,
            state: self.state,
            fuel: self.tree.fuel,
            fuel_most: None,
            fuel_wanted: None,
            loop_depth: self.loops_most,
            accepts: self.accepts,
        })
    }

    /// An error at the source of the next instructions.
    fn limit(&self, message: String, hint: &str) -> Diagnostic {
        Diagnostic::error(self.span, message).hint(hint)
    }

    fn check_count(&self) -> Lowered<()> {
        if self.count <= limits::INSTRUCTIONS {
            return Ok(());
        }
        let most = limits::INSTRUCTIONS;
        let message = format!("the program has more than {most} instructions from here on");
        Err(self.limit(
            message,
            "a function is expanded at each call: call the large ones from fewer places",
        ))
    }

    /// Goes one level deeper for `inside`. Between two of these checks only a limited number of
    /// instructions is made, so that the limit is not passed by far.
    fn nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Lowered<T>) -> Lowered<T> {
        self.check_count()?;
        if self.nesting >= limits::NESTING {
            let most = limits::NESTING;
            let message =
                format!("more than {most} levels in each other, called functions included");
            return Err(self.limit(message, "take a part of it out, into a variable"));
        }
        self.nesting += 1;
        let done = inside(self);
        self.nesting -= 1;
        done
    }

    fn emit(&mut self, op: Op) {
        let span = self.span;
        self.count += 1;
        self.code.push(Instruction { op, span });
    }

    /// The instructions that `inside` emits, as a list of its own.
    fn collect(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Lowered<()>,
    ) -> Lowered<Vec<Instruction>> {
        let outer = mem::take(&mut self.code);
        let done = inside(self);
        let inner = mem::replace(&mut self.code, outer);
        done.map(|()| inner)
    }

    /// A block that `inside` can leave by its label.
    fn block(&mut self, inside: impl FnOnce(&mut Self, Label) -> Lowered<()>) -> Lowered<()> {
        let (label, span) = (self.label(), self.span);
        let body = self.collect(|this| inside(this, label))?;
        self.span = span;
        self.emit(Op::Block { label, body });
        Ok(())
    }

    /// A loop that `inside` can leave by its label.
    fn repeat(&mut self, inside: impl FnOnce(&mut Self, Label) -> Lowered<()>) -> Lowered<()> {
        if self.loops >= limits::LOOP_DEPTH {
            let most = limits::LOOP_DEPTH;
            let message =
                format!("more than {most} loops in each other, called functions included");
            return Err(self.limit(message, "comparing two strings counts as a loop"));
        }
        self.loops += 1;
        self.loops_most = self.loops_most.max(self.loops);
        let (label, span) = (self.label(), self.span);
        let body = self.collect(|this| inside(this, label))?;
        self.loops -= 1;
        self.span = span;
        self.emit(Op::Loop { label, body });
        Ok(())
    }

    /// `if a RELATION b { inside }`
    fn when(
        &mut self,
        relation: Relation,
        a: Operand,
        b: Operand,
        inside: impl FnOnce(&mut Self) -> Lowered<()>,
    ) -> Lowered<()> {
        let span = self.span;
        let then = self.collect(inside)?;
        self.span = span;
        let otherwise = Vec::new();
        self.emit(Op::If {
            relation,
            a,
            b,
            then,
            otherwise,
        });
        Ok(())
    }

    /// Leaves `to` if the relation holds.
    fn exit_if(&mut self, relation: Relation, a: Operand, b: Operand, to: Label) {
        let span = self.span;
        let then = vec![Instruction {
            op: Op::Exit(to),
            span,
        }];
        self.count += 1;
        let otherwise = Vec::new();
        self.emit(Op::If {
            relation,
            a,
            b,
            then,
            otherwise,
        });
    }

    fn register(&mut self) -> Register {
        self.registers += 1;
        Register(self.registers - 1)
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    fn set(&mut self, to: Register, from: Operand) {
        self.emit(Op::Set { to, from });
    }

    /// A new register with this value.
    fn copy(&mut self, from: Operand) -> Register {
        let to = self.register();
        self.set(to, from);
        to
    }

    /// `a OP b`, computed at once if both operands are constants.
    fn binary(&mut self, operator: Operator, a: Operand, b: Operand) -> Operand {
        if let Some(known) = fold::binary(operator, a, b) {
            return known;
        }
        let to = self.register();
        self.emit(Op::Binary { to, operator, a, b });
        Operand::Register(to)
    }

    /// `a RELATION b ? 1 : 0`
    fn compare(&mut self, relation: Relation, a: Operand, b: Operand) -> Operand {
        if let Some(known) = fold::relation(relation, a, b) {
            return Operand::Constant(i64::from(known));
        }
        let to = self.register();
        self.emit(Op::Compare { to, relation, a, b });
        Operand::Register(to)
    }

    /// An operand that keeps its value while `later` is evaluated.
    fn hold(&mut self, operand: Operand, later: &Expression) -> Operand {
        let changes = |e: &Expression| {
            matches!(
                e.kind,
                ExpressionKind::Assign(..) | ExpressionKind::Update { .. }
            )
        };
        if matches!(operand, Operand::Register(_)) && later.contains(&changes) {
            return Operand::Register(self.copy(operand));
        }
        operand
    }

    /// Whether the variable is kept from run to run.
    fn is_static(&self, variable: crate::tree::VariableId) -> bool {
        let storage = &self.tree.variables[variable.0 as usize].storage;
        matches!(storage, Storage::Static(_))
    }
}
