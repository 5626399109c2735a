//! From the IR to a function of the code generator: what is kept while a program is translated, and
//! the plain instructions. Control is in `flow`, memory in `access`, numbers in `compute`.
//!
//! The function is `u64 run(u8 *memory)`. The upper half of what it returns is the number of the
//! place where it failed (`Translated::places`), from 1 on, or 0; the lower half is the fuel that
//! is left. The result goes into the frame.

mod access;
mod bounds;
mod compute;
mod flow;
mod rounds;

use std::collections::HashMap;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{
    AbiParam, Block, Function, InstBuilder, Signature, UserFuncName, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use ecode::ir::{Instruction, Label, Op, Operand, Program, Region, Register};
use ecode::run::Layout;
use ecode::source::Span;
use ecode::tree::Fault;

use self::bounds::Bounds;
use crate::error::Error;
use crate::limits;

/// A function, and the faults and places that the numbers it returns mean.
pub(crate) struct Translated {
    pub(crate) function: Function,
    pub(crate) places: Vec<(Fault, Span)>,
}

/// See the head of this file.
struct Translator<'f> {
    builder: FunctionBuilder<'f>,
    layout: Layout,
    /// The memory's beginning.
    memory: Value,
    /// The registers of the IR.
    registers: Vec<Variable>,
    /// Fuel that is left.
    fuel: Variable,
    /// Whether the fuel is said to suffice.
    never_lacks_fuel: bool,
    /// Rounds without fuel that are left.
    rounds: Variable,
    /// Where the code goes on after each surrounding block or loop.
    exits: HashMap<Label, Block>,
    /// Where a run ends; its parameter is the upper half of what the function returns.
    end: Block,
    bounds: Bounds,
    places: Vec<(Fault, Span)>,
    /// Where the next instructions come from.
    span: Span,
}

/// Whether the next instruction is reached.
type GoesOn = Result<bool, Error>;

/// Translates a program.
pub(crate) fn translate(program: &Program) -> Result<Translated, Error> {
    if count(&program.body) > limits::INSTRUCTIONS {
        return Err(Error::LimitReached {
            which: "instructions",
            most: limits::INSTRUCTIONS,
        });
    }
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.push(AbiParam::new(I64));
    signature.returns.push(AbiParam::new(I64));
    let mut function = Function::with_name_signature(UserFuncName::default(), signature);
    let mut context = FunctionBuilderContext::new();
    let builder = FunctionBuilder::new(&mut function, &mut context);
    let mut translator = Translator::new(builder, program);
    if translator.list(&program.body)? {
        translator.leave(0);
    }
    let places = translator.finish();
    Ok(Translated { function, places })
}

fn count(body: &[Instruction]) -> usize {
    let inside = |one: &Instruction| one.op.bodies().map(count).sum::<usize>();
    body.iter().map(|one| 1 + inside(one)).sum()
}

impl<'f> Translator<'f> {
    fn new(mut builder: FunctionBuilder<'f>, program: &Program) -> Translator<'f> {
        let (entry, end) = (builder.create_block(), builder.create_block());
        builder.append_block_params_for_function_params(entry);
        builder.append_block_param(end, I64);
        builder.switch_to_block(entry);
        builder.seal_block(entry);
        let registers = (0..program.registers).map(|_| builder.declare_var(I64));
        let registers = registers.collect();
        let [fuel, rounds] = [i64::from(program.fuel), limits::ROUNDS_WITHOUT_FUEL].map(|number| {
            let variable = builder.declare_var(I64);
            let value = builder.ins().iconst(I64, number);
            builder.def_var(variable, value);
            variable
        });
        Translator {
            memory: builder.block_params(entry)[0],
            builder,
            layout: Layout::new(program),
            registers,
            fuel,
            never_lacks_fuel: program.never_lacks_fuel(),
            rounds,
            exits: HashMap::new(),
            end,
            bounds: Bounds::default(),
            places: Vec::new(),
            span: Span::default(),
        }
    }

    /// The end of the function, to which all runs come.
    fn finish(mut self) -> Vec<(Fault, Span)> {
        self.builder.seal_block(self.end);
        self.builder.switch_to_block(self.end);
        let place = self.builder.block_params(self.end)[0];
        let fuel = self.builder.use_var(self.fuel);
        let fuel = self.builder.ins().ireduce(I32, fuel);
        let fuel = self.builder.ins().uextend(I64, fuel);
        let both = self.builder.ins().bor(place, fuel);
        self.builder.ins().return_(&[both]);
        self.builder.finalize();
        self.places
    }

    fn list(&mut self, body: &[Instruction]) -> GoesOn {
        for instruction in body {
            self.span = instruction.span;
            if !self.instruction(&instruction.op)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of a fault at this place of the text.
    fn place(&mut self, fault: Fault) -> i64 {
        self.places.push((fault, self.span));
        self.places.len() as i64
    }

    fn number(&mut self, number: i64) -> Value {
        self.builder.ins().iconst(I64, number)
    }

    fn register(&mut self, register: Register) -> Result<Value, Error> {
        Ok(self.builder.use_var(self.variable(register)?))
    }

    fn value(&mut self, operand: Operand) -> Result<Value, Error> {
        match operand {
            Operand::Register(register) => self.register(register),
            Operand::Constant(number) => Ok(self.number(number)),
        }
    }

    fn set(&mut self, register: Register, value: Value) -> Result<(), Error> {
        let variable = self.variable(register)?;
        self.builder.def_var(variable, value);
        self.bounds.forget(register);
        Ok(())
    }

    fn variable(&self, register: Register) -> Result<Variable, Error> {
        let variable = self.registers.get(register.0 as usize).copied();
        variable.ok_or(Error::Malformed("it uses a register that it has not"))
    }

    fn instruction(&mut self, op: &Op) -> GoesOn {
        match op {
            Op::If {
                relation,
                a,
                b,
                then,
                otherwise,
            } => return self.choice((*relation, *a, *b), then, otherwise),
            Op::Block { label, body } => return self.block(*label, body),
            Op::Loop { label, body } => return self.repeat(*label, body),
            Op::Exit(label) => {
                let exit = self.exit(*label)?;
                self.builder.ins().jump(exit, &[]);
                return Ok(false);
            }
            Op::Return(value) => {
                let value = self.value(*value)?;
                self.put_result(value);
                self.leave(0);
                return Ok(false);
            }
            Op::Fail(fault) => {
                let place = self.place(*fault);
                self.leave(place);
                return Ok(false);
            }
            Op::Burn(units) => self.burn(*units),
            Op::Bound { index, count } => {
                let index = self.register(*index)?;
                let is_outside = self.is_at_least(index, i64::from(*count));
                self.fail_if(is_outside, Fault::Index);
            }
            Op::Effect {
                kind,
                number,
                values,
            } => self.effect(*kind, *number, *values)?,
            _ => match self.computed(op)? {
                Some((to, value)) => self.set(to, value)?,
                None => self.access(op)?,
            },
        }
        Ok(true)
    }

    /// Ends the run at a place, or without a fault (0).
    fn leave(&mut self, place: i64) {
        let place = self.number(place << 32);
        self.builder.ins().jump(self.end, &[place.into()]);
    }

    /// Where the frame begins in the memory.
    fn frame(&self) -> i32 {
        self.layout.section(Region::Frame).start as i32
    }
}
