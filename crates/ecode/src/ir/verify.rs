//! Checks the properties of a program of the IR on which execution in the kernel and in user space
//! relies without further checks. Lowering calls this in debug builds, the tests call it for every
//! program.
//!
//! - a register is written before it is read, on every path;
//! - labels are unique, and an exit leaves a surrounding block or loop;
//! - an address is in its region and aligned to the access's size, for all values of its register;
//!   only writable regions are written;
//! - widths, copies and the depth of loops are as [`crate::ir`] describes them.

use std::collections::HashMap;

use super::facts::{Branch, Facts, Mark};
use super::{Address, Instruction, Label, Op, Operand, Operator, Program, Region, Register};
use crate::frame::at;
use crate::limits;
use crate::range::Range;

/// Checks a program. An error is a bug of this crate, and names the instruction.
pub fn verify(program: &Program) -> Result<(), String> {
    let mut facts = Facts::new(program.registers);
    // Lowering may have used up its effort for the same proofs.
    facts.effort = usize::MAX;
    let mut verifier = Verifier {
        program,
        facts,
        written: vec![false; program.registers as usize],
        labels: HashMap::new(),
        around: Vec::new(),
        loops: 0,
        loops_most: 0,
        depth: 0,
    };
    verifier.sizes()?;
    verifier.list(&program.body)?;
    if verifier.loops_most > program.loop_depth {
        return Err(format!("{} loops in each other", verifier.loops_most));
    }
    Ok(())
}

/// The depth of nested blocks: a level of the text becomes up to three.
const DEPTH: u32 = 3 * limits::NESTING;

struct Verifier<'p> {
    program: &'p Program,
    facts: Facts,
    /// Registers that have been written on every path to here.
    written: Vec<bool>,
    /// All labels so far, with the facts that hold at every exit.
    labels: HashMap<Label, Option<Left>>,
    /// The surrounding blocks and loops, with the marks of their beginnings.
    around: Vec<(Label, Mark)>,
    loops: u32,
    loops_most: u32,
    depth: u32,
}

/// Ranges that hold wherever a block or loop is left.
struct Left {
    /// Registers that have been written.
    written: Vec<bool>,
    /// Ranges of the registers written inside.
    inside: Branch,
}

/// Whether the end of a list is reached.
type Reached = Result<bool, String>;

impl Verifier<'_> {
    fn sizes(&self) -> Result<(), String> {
        let program = self.program;
        let state = program.state.bytes.len() as u64;
        let fits = program.locals <= limits::REGION_BYTES
            && program.input <= limits::REGION_BYTES
            && program.output <= limits::REGION_BYTES
            && program.loop_depth <= limits::LOOP_DEPTH
            && state <= u64::from(limits::STATE_BYTES)
            && state.is_multiple_of(8);
        if fits {
            Ok(())
        } else {
            Err("a region is larger than its limit".into())
        }
    }

    fn list(&mut self, body: &[Instruction]) -> Reached {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("nested too deep".into());
        }
        let mut reached = true;
        for instruction in body {
            if !reached {
                return Err(format!("not reached: {}", instruction.op));
            }
            reached = self
                .instruction(&instruction.op)
                .map_err(|error| format!("{}: {error}", instruction.op))?;
        }
        self.depth -= 1;
        Ok(reached)
    }

    fn instruction(&mut self, op: &Op) -> Reached {
        self.reads(op)?;
        match op {
            Op::If {
                then, otherwise, ..
            } => return self.branches(op, then, otherwise),
            Op::Block { label, body } => return self.block(*label, body),
            Op::Loop { label, body } => return self.repeat(*label, body),
            Op::Exit(label) => {
                self.exit(*label)?;
                return Ok(false);
            }
            Op::Return(_) | Op::Fail(_) => return Ok(false),
            Op::Load { from, bits, .. } => self.access(*from, u32::from(*bits) / 8, 1, false)?,
            Op::Store { to, bits, .. } => self.access(*to, u32::from(*bits) / 8, 1, true)?,
            Op::Atomic {
                to, operator, bits, ..
            } => {
                let known = [Operator::Add, Operator::And, Operator::Or, Operator::Xor];
                if *bits < 32 || !known.contains(operator) || to.region != Region::State {
                    return Err("no such atomic access".into());
                }
                self.access(*to, u32::from(*bits) / 8, 1, true)?;
            }
            Op::Copy {
                to,
                from,
                bytes,
                align,
            } => {
                self.many(*from, *bytes, *align, false)?;
                self.many(*to, *bytes, *align, true)?;
            }
            Op::Zero { to, bytes, align } => self.many(*to, *bytes, *align, true)?,
            Op::Extend { bits, .. } if ![8, 16, 32].contains(bits) => {
                return Err("no such width".into());
            }
            Op::Set { .. }
            | Op::Binary { .. }
            | Op::Compare { .. }
            | Op::Extend { .. }
            | Op::Bound { .. }
            | Op::Burn(_)
            | Op::NextBit { .. }
            | Op::Effect { .. } => {}
        }
        self.facts.apply(op);
        if let Some(to) = op.writes() {
            *self.register(to)? = true;
        }
        Ok(true)
    }

    fn register(&mut self, register: Register) -> Result<&mut bool, String> {
        let slot = self.written.get_mut(register.0 as usize);
        slot.ok_or_else(|| format!("there is no {register:?}"))
    }

    fn reads(&mut self, op: &Op) -> Result<(), String> {
        for register in op.reads() {
            if !*self.register(register)? {
                return Err(format!("{register:?} is read before it is written"));
            }
        }
        Ok(())
    }

    fn branches(&mut self, op: &Op, then: &[Instruction], otherwise: &[Instruction]) -> Reached {
        let Op::If { relation, a, b, .. } = op else {
            return Ok(true);
        };
        let before = self.written.clone();
        let mark = self.facts.mark();
        self.facts.assume(*relation, *a, *b);
        let then_reached = self.list(then)?;
        let then_facts = self.facts.end_branch(mark);
        let after_then = std::mem::replace(&mut self.written, before);
        let (opposite, swapped) = relation.opposite();
        let (c, d) = if swapped { (*b, *a) } else { (*a, *b) };
        let mark = self.facts.mark();
        self.facts.assume(opposite, c, d);
        let reached = self.list(otherwise)?;
        match (then_reached, reached) {
            (false, _) => {}
            (true, false) => {
                self.facts.end_branch(mark);
                self.facts.assume(*relation, *a, *b);
                self.facts.take(&then_facts);
                self.written = after_then;
            }
            (true, true) => {
                let facts = self.facts.end_branch(mark);
                self.facts.join(&then_facts, &facts);
                both(&mut self.written, &after_then);
            }
        }
        Ok(then_reached || reached)
    }

    fn enter(&mut self, label: Label) -> Result<(), String> {
        if self.labels.insert(label, None).is_some() {
            return Err(format!("b{} is there twice", label.0));
        }
        self.around.push((label, self.facts.mark()));
        Ok(())
    }

    fn exit(&mut self, label: Label) -> Result<(), String> {
        let Some((_, mark)) = self.around.iter().rfind(|(around, _)| *around == label) else {
            return Err(format!("b{} is not around it", label.0));
        };
        let here = Left {
            written: self.written.clone(),
            inside: self.facts.since(*mark),
        };
        match self.labels.get_mut(&label) {
            Some(Some(left)) => left.or(&here),
            Some(none) => *none = Some(here),
            None => {}
        }
        Ok(())
    }

    /// After a block or loop: the facts that hold at every exit, and at its end if that is reached.
    /// The range of a register before the block counts only if an exit leaves the register
    /// unchanged, since lowering derived no more before it removed superfluous writes.
    fn leave(&mut self, label: Label, reached: bool) -> Reached {
        if reached {
            self.exit(label)?;
        }
        if let Some((_, mark)) = self.around.pop() {
            self.facts.end_block(mark);
        }
        let Some(left) = self.labels.insert(label, None).flatten() else {
            return Ok(false);
        };
        self.facts.narrow_all(&left.inside);
        self.written = left.written;
        Ok(true)
    }

    fn block(&mut self, label: Label, body: &[Instruction]) -> Reached {
        self.enter(label)?;
        let reached = self.list(body)?;
        self.leave(label, reached)
    }

    fn repeat(&mut self, label: Label, body: &[Instruction]) -> Reached {
        self.loops += 1;
        self.loops_most = self.loops_most.max(self.loops);
        self.facts.enter_loop(label, body);
        self.enter(label)?;
        self.list(body)?;
        self.loops -= 1;
        self.leave(label, false)
    }

    fn many(&self, at: Address, bytes: u32, align: u8, write: bool) -> Result<(), String> {
        let align = u32::from(align);
        let known = [1, 2, 4, 8].contains(&align);
        if !known || !bytes.is_multiple_of(align) || bytes > limits::REGION_BYTES {
            return Err("no such copy".into());
        }
        self.access(at, align, bytes / align, write)
    }

    fn access(&self, at: Address, size: u32, times: u32, write: bool) -> Result<(), String> {
        let program = self.program;
        let (bytes, writable) = match at.region {
            Region::Event => (at::EVENT_DATA, false),
            Region::Input => (program.input, false),
            Region::Frame => (at::EFFECT, is_written_in_frame(at.offset)),
            Region::Output => (program.output.next_multiple_of(8), true),
            Region::Locals => (program.locals, true),
            Region::State => (program.state.bytes.len() as u32, true),
            Region::Attributes => (limits::ATTRIBUTES * 8, false),
            Region::Sinks => (at::SINK_TABLE_BYTES, false),
        };
        let mut end = u64::from(at.offset) + u64::from(size) * u64::from(times);
        if let Some(index) = at.index {
            let claimed = Range {
                low: 0,
                high: i64::from(index.largest),
            };
            if !claimed.holds(self.facts.range(Operand::Register(index.register))) {
                return Err(format!("{:?} is not known to be so small", index.register));
            }
            end += u64::from(index.largest);
        }
        if ![1, 2, 4, 8].contains(&size) || !at.offset.is_multiple_of(size) {
            return Err("not at a multiple of its size".into());
        }
        if end > u64::from(bytes) {
            return Err(format!("reaches {end} of {bytes} bytes"));
        }
        if write && !writable {
            return Err("is not to be written".into());
        }
        Ok(())
    }
}

impl Left {
    /// Ranges that hold on both paths.
    fn or(&mut self, other: &Left) {
        both(&mut self.written, &other.written);
        self.inside.or(&other.inside);
    }
}

fn is_written_in_frame(offset: u32) -> bool {
    [at::RANDOM, at::DROP, at::ACCEPTED, at::REJECTED].contains(&offset)
}

fn both(all: &mut [bool], other: &[bool]) {
    for (one, other) in all.iter_mut().zip(other) {
        *one &= *other;
    }
}
