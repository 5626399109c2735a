//! The reference interpreter: a tree, executed as the head of `tree.rs` says, one node after the
//! other. It is slow and plain on purpose. Numbers are mathematical (128 bits) and cut to their
//! type after each operation; every variable, a scalar too, is a row of bytes.
//!
//! It shares nothing with lowering but the tree and the layout of structs.

mod builtin;
mod expression;
mod number;

use std::collections::HashMap;

use ecode::tree::{Expression, FunctionId, Place, Statement, Storage, Tree, VariableId};

use crate::world::{Effect, Outcome, World};
use ecode::tree::Fault;

/// Executes a tree, event after event; the statics stay.
#[derive(Debug)]
pub struct Judge<'t> {
    tree: &'t Tree,
    statics: HashMap<VariableId, Vec<u8>>,
    /// Bytes of the input that the program reaches.
    reach: u32,
}

/// Why a run, or a part of it, does not go on with the next thing.
enum Stop {
    Fault(Fault),
    /// The run is over: its result.
    End(i64),
}

/// How a statement ended.
#[derive(PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
    Return(Option<i128>),
}

/// What can go wrong in between.
type Ended<T> = Result<T, Stop>;

/// One run.
struct Run<'r> {
    tree: &'r Tree,
    world: &'r World,
    /// The sinks that exist, a bit each.
    present: u64,
    statics: &'r mut HashMap<VariableId, Vec<u8>>,
    /// Locals of the functions that are being executed.
    locals: Vec<HashMap<VariableId, Vec<u8>>>,
    output: Vec<u8>,
    fuel: u32,
    effects: Vec<Effect>,
    drop: Option<u8>,
    accepted: u64,
    rejected: u64,
    random: u64,
}

impl<'t> Judge<'t> {
    /// A judge over this program, whose statics are new.
    pub fn new(tree: &'t Tree) -> Judge<'t> {
        let mut statics = HashMap::new();
        for (variable, at) in tree.variables.iter().zip(0..) {
            if let Storage::Static(bytes) | Storage::Constant(bytes) = &variable.storage {
                let mut bytes = bytes.clone();
                bytes.resize(tree.structs.size(&variable.ty).expect("a size") as usize, 0);
                statics.insert(VariableId(at), bytes);
            }
        }
        Judge {
            tree,
            statics,
            reach: Reach::of(tree),
        }
    }

    /// Bytes of the input that the program reaches.
    pub fn reach(&self) -> u32 {
        self.reach
    }

    /// Runs it once.
    pub fn run(&mut self, world: &World) -> Outcome {
        let output = self.tree.output.map_or(0, |id| {
            let ty = &self.tree.variables[id.0 as usize].ty;
            self.tree.structs.size(ty).expect("a size")
        });
        let mut run = Run {
            tree: self.tree,
            world,
            present: world.present(),
            statics: &mut self.statics,
            locals: vec![HashMap::new()],
            output: vec![0; output as usize],
            fuel: self.tree.fuel,
            effects: Vec::new(),
            drop: None,
            accepted: 0,
            rejected: 0,
            random: world.random,
        };
        let ended = if (world.data.len() as u32) < self.reach {
            run.output.clear();
            Err(Stop::Fault(Fault::Input))
        } else {
            run.statements(&self.tree.body)
        };
        let (result, fault) = match ended {
            Ok(Flow::Return(Some(value))) => (value as i64, None),
            Ok(_) => (1, None),
            Err(Stop::End(result)) => (result, None),
            Err(Stop::Fault(fault)) => (1, Some(fault)),
        };
        let Run {
            output,
            fuel,
            effects,
            drop,
            accepted,
            rejected,
            random,
            ..
        } = run;
        let statics = self.named_statics();
        Outcome {
            result,
            fault,
            fuel,
            output,
            statics,
            effects,
            drop,
            accepted,
            rejected,
            random,
        }
    }

    fn named_statics(&self) -> Vec<(String, Vec<u8>)> {
        let named = |(id, bytes): (&VariableId, &Vec<u8>)| {
            let variable = &self.tree.variables[id.0 as usize];
            let is_static = matches!(variable.storage, Storage::Static(_));
            is_static.then(|| (variable.name.clone(), bytes.clone()))
        };
        let mut all: Vec<_> = self.statics.iter().filter_map(named).collect();
        all.sort();
        all
    }
}

impl Run<'_> {
    fn statements(&mut self, all: &[Statement]) -> Ended<Flow> {
        for statement in all {
            match self.statement(statement)? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &Statement) -> Ended<Flow> {
        match statement {
            Statement::Declare(id) => {
                self.declare(*id, 0);
                Ok(Flow::Next)
            }
            Statement::Evaluate(e) => self.value(e).map(|_| Flow::Next),
            Statement::Block(body) => self.statements(body),
            Statement::If(condition, then, otherwise) => {
                let chosen = if self.value(condition)? != 0 {
                    then
                } else {
                    otherwise
                };
                self.statements(chosen)
            }
            Statement::Loop {
                condition,
                next,
                body,
                after,
                ..
            } => self.repeat(condition.as_ref(), next.as_ref(), body, *after),
            Statement::Switch { value, groups } => self.switch(value, groups),
            Statement::Break => Ok(Flow::Break),
            Statement::Continue => Ok(Flow::Continue),
            Statement::Return(None) => Ok(Flow::Return(None)),
            Statement::Return(Some(e)) => Ok(Flow::Return(Some(self.value(e)?))),
        }
    }

    /// A local begins with this value.
    fn declare(&mut self, id: VariableId, value: i128) {
        let ty = &self.tree.variables[id.0 as usize].ty;
        let mut bytes = vec![0; self.tree.structs.size(ty).expect("a size") as usize];
        if value != 0 {
            let count = bytes.len();
            bytes.copy_from_slice(&value.to_le_bytes()[..count]);
        }
        self.locals
            .last_mut()
            .expect("a function")
            .insert(id, bytes);
    }

    fn repeat(
        &mut self,
        condition: Option<&Expression>,
        next: Option<&Expression>,
        body: &[Statement],
        after: bool,
    ) -> Ended<Flow> {
        let mut first = true;
        loop {
            if let Some(condition) = condition
                && !(after && first)
                && self.value(condition)? == 0
            {
                return Ok(Flow::Next);
            }
            first = false;
            self.burn()?;
            match self.statements(body)? {
                Flow::Next | Flow::Continue => {}
                Flow::Break => return Ok(Flow::Next),
                Flow::Return(value) => return Ok(Flow::Return(value)),
            }
            if let Some(next) = next {
                self.value(next)?;
            }
        }
    }

    fn burn(&mut self) -> Ended<()> {
        self.fuel = self.fuel.checked_sub(1).ok_or(Stop::Fault(Fault::Fuel))?;
        Ok(())
    }

    fn switch(
        &mut self,
        value: &Expression,
        groups: &[(Vec<Option<i64>>, Vec<Statement>)],
    ) -> Ended<Flow> {
        let found = self.value(value)? as i64;
        let group_with = |label| {
            groups
                .iter()
                .position(|(labels, _)| labels.contains(&label))
        };
        let Some(begin) = group_with(Some(found)).or_else(|| group_with(None)) else {
            return Ok(Flow::Next);
        };
        for (_, body) in &groups[begin..] {
            match self.statements(body)? {
                Flow::Next => {}
                Flow::Break => return Ok(Flow::Next),
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn call(&mut self, id: FunctionId, arguments: &[Expression]) -> Ended<i128> {
        let function = &self.tree.functions[id.0 as usize];
        let mut values = Vec::new();
        for argument in arguments {
            values.push(self.value(argument)?);
        }
        self.locals.push(HashMap::new());
        for (parameter, value) in function.parameters.iter().zip(values) {
            self.declare(*parameter, value);
        }
        let flow = self.statements(&function.body);
        self.locals.pop();
        match flow? {
            Flow::Return(Some(value)) => Ok(value),
            _ => Ok(0),
        }
    }

    /// Finds a place: its variable and the bytes in it.
    fn find(&mut self, place: &Place) -> Ended<(VariableId, usize)> {
        let mut offset = place.offset as usize;
        for index in &place.indices {
            let value = self.value(&index.value)?;
            if !(0..i128::from(index.count)).contains(&value) {
                return Err(Stop::Fault(Fault::Index));
            }
            offset += value as usize * index.stride as usize;
        }
        Ok((place.variable, offset))
    }

    /// The bytes of a variable.
    fn bytes(&mut self, id: VariableId) -> &mut Vec<u8> {
        match self.tree.variables[id.0 as usize].storage {
            Storage::Local => self
                .locals
                .last_mut()
                .and_then(|locals| locals.get_mut(&id))
                .expect("declared"),
            Storage::Static(_) | Storage::Constant(_) => {
                self.statics.get_mut(&id).expect("a static")
            }
            Storage::Output => &mut self.output,
            Storage::Input => unreachable!("the input is only read"),
        }
    }

    fn read_bytes(&mut self, (id, at): (VariableId, usize), count: usize) -> Vec<u8> {
        match self.tree.variables[id.0 as usize].storage {
            Storage::Input => self.world.data[at..at + count].to_vec(),
            _ => self.bytes(id)[at..at + count].to_vec(),
        }
    }

    fn write_bytes(&mut self, (id, at): (VariableId, usize), bytes: &[u8]) {
        self.bytes(id)[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Looks for the furthest byte of the input that a program can reach.
struct Reach<'t> {
    tree: &'t Tree,
    seen: Vec<bool>,
    furthest: u32,
}

impl<'t> Reach<'t> {
    fn of(tree: &'t Tree) -> u32 {
        let mut reach = Reach {
            tree,
            seen: vec![false; tree.functions.len()],
            furthest: 0,
        };
        reach.statements(&tree.body);
        reach.furthest
    }

    fn statements(&mut self, all: &'t [Statement]) {
        for statement in all {
            statement.expressions(&mut |e| self.expression(e));
            statement.bodies(&mut |body| self.statements(body));
        }
    }

    fn expression(&mut self, e: &'t Expression) {
        e.places(&mut |place| self.place(place));
        e.children(&mut |child| self.expression(child));
        if let ecode::tree::ExpressionKind::Call(id, _) = &e.kind {
            let at = id.0 as usize;
            if !std::mem::replace(&mut self.seen[at], true) {
                self.statements(&self.tree.functions[at].body);
            }
        }
    }

    fn place(&mut self, place: &Place) {
        if self.tree.variables[place.variable.0 as usize].storage != Storage::Input {
            return;
        }
        let size = self.tree.structs.size(&place.ty).expect("a size");
        let last = place
            .indices
            .iter()
            .map(|index| (index.count - 1) * index.stride);
        self.furthest = self.furthest.max(place.offset + last.sum::<u32>() + size);
    }
}
