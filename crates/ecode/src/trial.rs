//! Runs the tests in a text: sets the event, the attributes and the sinks as each says, has the
//! caller run the program (in user space or in the kernel), and compares the results with the
//! expectations.
//!
//! Settings and expectations are expressions of the language. So each becomes a small program that
//! runs in user space: for a setting, a program whose output is the input of the run; for an
//! expectation, a program in which the results of the run are constants and whose result is the
//! answer; for a request that must have been made, a program that makes it.

mod left;
mod setting;

use crate::ir::{Program, StateEntry};
use crate::lower::lower;
use crate::run::{Machine, Memory};
use crate::source::Span;
use crate::tree::{
    Expression, ExpressionKind, Fault, Outcome, Statement, Storage, Test, TestStep, Tree,
    VariableId,
};
use crate::types::{Int, Type};
pub use left::Left;
pub use setting::{Setting, Sink};

/// The expectation that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub span: Span,
    /// For a comparison: its left side, and the integer value of that.
    pub found: Option<(Span, String)>,
    /// Whether it is a request that the run did not make.
    pub request: bool,
    /// The fault of the run before it, which often explains the failure.
    pub fault: Option<Fault>,
    /// The byte of the text where the fault occurred, if it is known.
    pub fault_place: Option<u32>,
}

/// Runs one test; `run` runs the program once, with the state that its last run in this test left.
/// An error of `run` ends the test.
pub fn run_test<E>(
    tree: &Tree,
    program: &Program,
    test: &Test,
    mut run: impl FnMut(&Setting) -> Result<Left, E>,
) -> Result<Vec<Unmet>, E> {
    let mut setting = Setting::new(tree, program);
    let mut inputs = Vec::new();
    let mut left = Left::default();
    let mut unmet = Vec::new();
    for step in &test.steps {
        let mut found = None;
        let (span, holds) = match step {
            TestStep::Input(set) => {
                inputs.push(set.clone());
                continue;
            }
            TestStep::Event(field, value) => {
                setting.set_event(*field, *value);
                continue;
            }
            TestStep::Attribute(number, value) => {
                setting.set_attribute(*number, *value);
                continue;
            }
            TestStep::Now(now) => {
                setting.now_ns = *now as u64;
                continue;
            }
            TestStep::Sink(number, field, value) => {
                setting.set_sink(*number, *field, *value);
                continue;
            }
            TestStep::Run(_) => {
                let data = input(tree, &inputs);
                setting.data()[..data.len()].copy_from_slice(&data);
                left = run(&setting)?;
                continue;
            }
            TestStep::Expect {
                condition,
                outcomes,
            } => {
                let look = Look::new(tree, program, (&setting, &left));
                let holds = look.holds(condition, outcomes);
                if !holds {
                    found = look.found(condition, outcomes);
                }
                (condition.span, holds)
            }
            TestStep::Requested { request, outcomes } => {
                let look = Look::new(tree, program, (&setting, &left));
                (request.span, look.requested(request, outcomes))
            }
        };
        if !holds {
            unmet.push(Unmet {
                span,
                found,
                request: matches!(step, TestStep::Requested { .. }),
                fault: left.fault,
                fault_place: left.fault_place,
            });
        }
    }
    Ok(unmet)
}

/// The input after these settings.
fn input(tree: &Tree, settings: &[Expression]) -> Vec<u8> {
    let Some(input) = tree.input else {
        return Vec::new();
    };
    let mut little = little(tree);
    little.variables[input.0 as usize].storage = Storage::Output;
    if let Some(output) = tree.output {
        little.variables[output.0 as usize].storage = Storage::Local;
    }
    little.input = None;
    little.output = Some(input);
    little.body = settings.iter().cloned().map(Statement::Evaluate).collect();
    let size = tree.structs.size(&tree.variables[input.0 as usize].ty);
    let size = size.unwrap_or_default() as usize;
    let mut bytes =
        evaluate(&little, None).map_or_else(Vec::new, |memory| memory.output().to_vec());
    bytes.resize(size, 0);
    bytes
}

/// The data with which an expectation is evaluated.
struct Look<'a> {
    tree: &'a Tree,
    entries: &'a [StateEntry],
    setting: &'a Setting,
    left: &'a Left,
}

impl<'a> Look<'a> {
    fn new(tree: &'a Tree, program: &'a Program, between: (&'a Setting, &'a Left)) -> Look<'a> {
        Look {
            tree,
            entries: &program.state.entries,
            setting: between.0,
            left: between.1,
        }
    }

    /// Whether a condition holds for the results of the run.
    fn holds(&self, condition: &Expression, outcomes: &[(Outcome, VariableId)]) -> bool {
        self.number(condition, outcomes)
            .is_some_and(|value| value != 0)
    }

    /// The value of the left side of a comparison of integers. `None`: it is no such comparison, or
    /// the left side is constant.
    fn found(
        &self,
        condition: &Expression,
        outcomes: &[(Outcome, VariableId)],
    ) -> Option<(Span, String)> {
        let ExpressionKind::Compare(_, left, _) = &condition.kind else {
            return None;
        };
        let Type::Int(int) = left.ty else {
            return None;
        };
        if matches!(left.kind, ExpressionKind::Constant(_)) {
            return None;
        }
        let value = self.number(left, outcomes)?;
        let shown = match int.signed {
            true => value.to_string(),
            false => value.cast_unsigned().to_string(),
        };
        Some((left.span, shown))
    }

    /// The value of an expression over the results of the run. `None`: it fails.
    fn number(&self, expression: &Expression, outcomes: &[(Outcome, VariableId)]) -> Option<i64> {
        let answer = Statement::Return(Some(Expression {
            kind: ExpressionKind::Convert(Box::new(expression.clone())),
            ty: Type::Int(Int::LONG),
            span: expression.span,
        }));
        self.ask(answer, outcomes).map(|memory| memory.result())
    }

    /// Whether the run made this request.
    fn requested(&self, request: &Expression, outcomes: &[(Outcome, VariableId)]) -> bool {
        let made = self.ask(Statement::Evaluate(request.clone()), outcomes);
        made.is_some_and(|made| {
            let dropped = made.drop_reason();
            (dropped.is_none() || dropped == self.left.dropped)
                && made
                    .effects()
                    .all(|effect| self.left.effects.contains(&effect))
        })
    }

    /// Executes a statement over the results of the run.
    fn ask(&self, statement: Statement, outcomes: &[(Outcome, VariableId)]) -> Option<Memory> {
        let mut little = little(self.tree);
        for variable in &mut little.variables {
            match &mut variable.storage {
                Storage::Static(bytes) => {
                    let is_it = |entry: &&StateEntry| entry.name == variable.name;
                    if let Some(entry) = self.entries.iter().find(is_it) {
                        let from = entry.offset as usize..(entry.offset + entry.bytes) as usize;
                        *bytes = self.left.state.get(from).unwrap_or_default().to_vec();
                    }
                }
                Storage::Output => variable.storage = Storage::Static(self.left.output.clone()),
                Storage::Constant(_) | Storage::Local | Storage::Input => {}
            }
        }
        little.output = None;
        for (outcome, id) in outcomes {
            little.body.push(Statement::Declare(*id));
            little.body.push(self.assign(*id, self.outcome(*outcome)));
        }
        little.body.push(statement);
        evaluate(&little, Some(self.setting))
    }

    fn outcome(&self, outcome: Outcome) -> i64 {
        let left = self.left;
        match outcome {
            Outcome::Result => left.result,
            Outcome::Fault => left.fault.map_or(0, |fault| i64::from(fault as u32)),
            Outcome::Accepted => left.accepted as i64,
            Outcome::Rejected => left.rejected as i64,
            Outcome::Dropped => i64::from(left.dropped.is_some()),
            Outcome::Requests => left.effects.len() as i64,
        }
    }

    fn assign(&self, to: VariableId, value: i64) -> Statement {
        let variable = &self.tree.variables[to.0 as usize];
        let place = crate::tree::Place {
            variable: to,
            offset: 0,
            indices: Vec::new(),
            ty: variable.ty.clone(),
            span: variable.span,
        };
        let expression = |kind| Expression {
            kind,
            ty: variable.ty.clone(),
            span: variable.span,
        };
        let value = expression(ExpressionKind::Constant(value));
        Statement::Evaluate(expression(ExpressionKind::Assign(place, Box::new(value))))
    }
}

/// A program with the same variables and an empty body.
fn little(tree: &Tree) -> Tree {
    Tree {
        structs: tree.structs.clone(),
        variables: tree.variables.clone(),
        functions: tree.functions.clone(),
        input: tree.input,
        output: tree.output,
        fuel: tree.fuel,
        ..Tree::default()
    }
}

/// The results of a small program; `None` if it fails.
fn evaluate(tree: &Tree, setting: Option<&Setting>) -> Option<Memory> {
    let program: Program = lower(tree).ok()?;
    let mut memory = Memory::new(&program);
    if let Some(setting) = setting {
        setting.put_into(&mut memory);
    }
    Machine::new(&program).run(&mut memory).ok()?;
    Some(memory)
}
