//! The tests that stand in a text: sets the event as each says, has the program run by whoever
//! calls (in user space or in the kernel), and looks whether what it left is as expected.
//!
//! What a test sets, and what it expects, are expressions of the language itself. So they are made
//! into little programs and run in user space: for a setting, one whose output is the input; for an
//! expectation, one in which what the run left is constant and whose result is the answer.

use crate::ir::{Program, StateEntry};
use crate::lower::lower;
use crate::run::{Machine, Memory};
use crate::source::Span;
use crate::tree::{
    EventField, Expression, ExpressionKind, Fault, Statement, Storage, Test, TestStep, Tree,
    VariableId,
};
use crate::types::{Int, Type};

/// What a run is to find; all else is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The event's data, all of the declared input.
    pub input: Vec<u8>,
    /// Fields of the event.
    pub event: Vec<(EventField, i64)>,
    /// Attributes of the channel.
    pub attributes: Vec<(u32, i64)>,
}

/// What a run left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// What it returned; 1 if it did not.
    pub result: i64,
    /// Why it failed.
    pub fault: Option<Fault>,
    /// The output.
    pub output: Vec<u8>,
    /// The state.
    pub state: Vec<u8>,
}

/// What does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The expectation.
    pub span: Span,
    /// The run before it ended so. (It often explains why.)
    pub fault: Option<Fault>,
}

/// Runs one test; `run` runs the program once, with the state that its last run in this test left.
/// What `run` cannot do ends the test.
pub fn run_test<E>(
    tree: &Tree,
    entries: &[StateEntry],
    test: &Test,
    mut run: impl FnMut(&Given) -> Result<Left, E>,
) -> Result<Vec<Unmet>, E> {
    let mut given = Given::default();
    let mut settings = Vec::new();
    let mut left = Left::default();
    let mut unmet = Vec::new();
    for step in &test.steps {
        match step {
            TestStep::Input(setting) => settings.push(setting.clone()),
            TestStep::Event(field, value) => given.event.push((*field, *value)),
            TestStep::Attribute(number, value) => given.attributes.push((*number, *value)),
            TestStep::Run(_) => {
                given.input = input(tree, &settings);
                left = run(&given)?;
            }
            TestStep::Expect {
                condition,
                result,
                fault,
            } => {
                let looked = Look {
                    tree,
                    entries,
                    given: &given,
                    left: &left,
                };
                if !looked.holds(condition, *result, *fault) {
                    unmet.push(Unmet {
                        span: condition.span,
                        fault: left.fault,
                    });
                }
            }
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
    let mut bytes = evaluate(&little, &[]).map_or_else(Vec::new, |(_, output)| output);
    bytes.resize(size, 0);
    bytes
}

/// What an expectation is evaluated with.
struct Look<'a> {
    tree: &'a Tree,
    entries: &'a [StateEntry],
    given: &'a Given,
    left: &'a Left,
}

impl Look<'_> {
    fn holds(&self, condition: &Expression, result: VariableId, fault: VariableId) -> bool {
        let mut little = little(self.tree);
        let mut kept = self.entries.iter();
        for variable in &mut little.variables {
            match &mut variable.storage {
                Storage::Static(bytes) => {
                    if let Some(entry) = kept.next() {
                        let from = entry.offset as usize..(entry.offset + entry.bytes) as usize;
                        *bytes = self.left.state.get(from).unwrap_or_default().to_vec();
                    }
                }
                Storage::Constant(_) => {
                    kept.next();
                }
                Storage::Output => variable.storage = Storage::Static(self.left.output.clone()),
                Storage::Local | Storage::Input => {}
            }
        }
        little.output = None;
        let number = self.left.fault.map_or(0, |fault| i64::from(fault as u32));
        let long = Type::Int(Int::LONG);
        little.body = vec![
            Statement::Declare(result),
            Statement::Declare(fault),
            self.assign(result, self.left.result),
            self.assign(fault, number),
            Statement::Return(Some(Expression {
                kind: ExpressionKind::Convert(Box::new(condition.clone())),
                ty: long,
                span: condition.span,
            })),
        ];
        evaluate(&little, &self.given.input).is_some_and(|(result, _)| result != 0)
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

/// The same variables, and nothing that runs yet.
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

/// Result and output of a little program; `None` if it fails.
fn evaluate(tree: &Tree, input: &[u8]) -> Option<(i64, Vec<u8>)> {
    let program: Program = lower(tree).ok()?;
    let mut memory = Memory::new(&program);
    memory.set_input(input);
    let result = Machine::new(&program).run(&mut memory).ok()?;
    Some((result, memory.output().to_vec()))
}
