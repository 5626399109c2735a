//! The IR as text: every instruction with all its fields. With the source, the line of the text
//! precedes its instructions.
//!
//! ```text
//! ; registers 4, locals 0, input 8, output 0, fuel 4096, loops 0
//! ; 1: bytes > 1000
//! r0 = load u32 input[4]
//! if 1000 < r0 {
//!   return 1
//! }
//! ```
//!
//! Operators on numbers with sign end in `s`: `/s`, `<s`; the others are without sign, or the same
//! for both.

use std::fmt::{self, Write};

use super::{Address, Instruction, Op, Operand, Operator, Program, Region, Relation};
use crate::frame::effect;
use crate::source::Source;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self, None))
    }
}

/// The program as text.
pub fn print(program: &Program, source: Option<&Source>) -> String {
    let mut printer = Printer {
        text: String::new(),
        source,
        line: 0,
    };
    // Writing to a string does not fail.
    let _ = printer.head(program);
    let _ = printer.list(&program.body, 0);
    printer.text
}

struct Printer<'s> {
    text: String,
    source: Option<&'s Source>,
    /// The last printed line of the text.
    line: u32,
}

impl Printer<'_> {
    fn head(&mut self, program: &Program) -> fmt::Result {
        let Program {
            registers,
            locals,
            input,
            output,
            fuel,
            loop_depth,
            ..
        } = program;
        writeln!(
            self.text,
            "; registers {registers}, locals {locals}, input {input}, output {output}, \
             fuel {fuel}, loops {loop_depth}"
        )?;
        for entry in &program.state.entries {
            let kind = if entry.constant { "table" } else { "static" };
            let (offset, bytes, ty, name) = (entry.offset, entry.bytes, &entry.ty, &entry.name);
            writeln!(
                self.text,
                "; state[{offset}]: {kind} {ty} {name}, {bytes} bytes"
            )?;
        }
        Ok(())
    }

    fn list(&mut self, body: &[Instruction], depth: usize) -> fmt::Result {
        for instruction in body {
            self.line(instruction, depth)?;
            write!(self.text, "{:1$}", "", depth * 2)?;
            match &instruction.op {
                Op::If {
                    relation,
                    a,
                    b,
                    then,
                    otherwise,
                } => {
                    writeln!(self.text, "if {a} {relation} {b} {{")?;
                    self.list(then, depth + 1)?;
                    if !otherwise.is_empty() {
                        writeln!(self.text, "{:1$}}} else {{", "", depth * 2)?;
                        self.list(otherwise, depth + 1)?;
                    }
                }
                Op::Block { label, body } => {
                    writeln!(self.text, "block b{} {{", label.0)?;
                    self.list(body, depth + 1)?;
                }
                Op::Loop { label, body } => {
                    writeln!(self.text, "loop b{} {{", label.0)?;
                    self.list(body, depth + 1)?;
                }
                plain => {
                    writeln!(self.text, "{plain}")?;
                    continue;
                }
            }
            writeln!(self.text, "{:1$}}}", "", depth * 2)?;
        }
        Ok(())
    }

    fn line(&mut self, instruction: &Instruction, depth: usize) -> fmt::Result {
        let Some(source) = self.source else {
            return Ok(());
        };
        let line = source.position(instruction.span.start).line;
        if line == self.line {
            return Ok(());
        }
        self.line = line;
        let text = source.line(line).trim();
        writeln!(self.text, "{:1$}; {line}: {text}", "", depth * 2)
    }
}

impl fmt::Display for Op {
    /// The instruction on one line; for one that contains others, only its head.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Set { to, from } => write!(f, "{to:?} = {from}"),
            Op::Binary { to, operator, a, b } => write!(f, "{to:?} = {a} {operator} {b}"),
            Op::Compare { to, relation, a, b } => write!(f, "{to:?} = {a} {relation} {b}"),
            Op::Extend {
                to,
                from,
                bits,
                signed,
            } => {
                write!(f, "{to:?} = {} {from}", width(*bits, *signed))
            }
            Op::Bound { index, count } => write!(f, "bound {index:?} < {count}"),
            Op::Load {
                to,
                from,
                bits,
                signed,
            } => {
                write!(f, "{to:?} = load {} {from}", width(*bits, *signed))
            }
            Op::Store { to, value, bits } => {
                write!(f, "store {} {to} = {value}", width(*bits, false))
            }
            Op::Atomic {
                old,
                to,
                operator,
                value,
                bits,
            } => {
                if let Some(old) = old {
                    write!(f, "{old:?} = ")?;
                }
                write!(f, "atomic {} {to} {operator}= {value}", width(*bits, false))
            }
            Op::Copy {
                to,
                from,
                bytes,
                align,
            } => {
                write!(f, "copy {to} = {from}, {bytes} bytes by {align}")
            }
            Op::Zero { to, bytes, align } => write!(f, "zero {to}, {bytes} bytes by {align}"),
            Op::If { relation, a, b, .. } => write!(f, "if {a} {relation} {b}"),
            Op::Block { label, .. } => write!(f, "block b{}", label.0),
            Op::Loop { label, .. } => write!(f, "loop b{}", label.0),
            Op::Exit(label) => write!(f, "exit b{}", label.0),
            Op::Burn(units) => write!(f, "burn {units}"),
            Op::NextBit { to, mask, after } => {
                write!(f, "{to:?} = next bit of {mask} after {after}")
            }
            Op::Effect {
                kind,
                number,
                values: [a, b, c],
            } => {
                write!(f, "effect {} {number}: {a}, {b}, {c}", effect_name(*kind))
            }
            Op::Return(value) => write!(f, "return {value}"),
            Op::Fail(fault) => write!(f, "fail {}", format!("{fault:?}").to_lowercase()),
        }
    }
}

fn width(bits: u8, signed: bool) -> String {
    format!("{}{bits}", if signed { 's' } else { 'u' })
}

fn effect_name(kind: u32) -> &'static str {
    match kind {
        effect::SIGNAL => "signal",
        effect::RAISE => "raise",
        effect::DEFER => "defer",
        effect::COUNT => "count",
        effect::HISTOGRAM => "histogram",
        _ => "?",
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Register(register) => write!(f, "{register:?}"),
            Operand::Constant(value) => write!(f, "{value}"),
        }
    }
}

impl fmt::Display for Address {
    /// `locals[8 + r2 <= 120]`: r2 is at most 120.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let region = match self.region {
            Region::Event => "event",
            Region::Input => "input",
            Region::Frame => "frame",
            Region::Output => "output",
            Region::Locals => "locals",
            Region::State => "state",
            Region::Attributes => "attributes",
            Region::Sinks => "sinks",
        };
        match self.index {
            None => write!(f, "{region}[{}]", self.offset),
            Some(index) => {
                let (register, largest) = (index.register, index.largest);
                write!(f, "{region}[{} + {register:?} <= {largest}]", self.offset)
            }
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::DivideSigned => "/s",
            Operator::Remainder => "%",
            Operator::RemainderSigned => "%s",
            Operator::And => "&",
            Operator::Or => "|",
            Operator::Xor => "^",
            Operator::ShiftLeft => "<<",
            Operator::ShiftRight => ">>",
            Operator::ShiftRightSigned => ">>s",
        })
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Relation::Equal => "==",
            Relation::NotEqual => "!=",
            Relation::Less => "<",
            Relation::LessEqual => "<=",
            Relation::LessSigned => "<s",
            Relation::LessEqualSigned => "<=s",
        })
    }
}
