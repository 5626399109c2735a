//! Short loops are unrolled: the body is copied once per round, and each copy is simplified by the
//! facts known there, until the end of a copy is not reachable. The counter of the rounds is a
//! constant in each copy, which removes its comparisons, indices and checks.
//!
//! In longer loops several rounds become one, which checks and counts once.
//!
//! The simplifier does it ([`Simplifier`]); this file decides how much may be unrolled, and makes a
//! copy. An attempt that exceeds its limit is undone, and the loop stays. All attempts together may
//! examine a limited number of instructions, so that nested loops do not take the compiler long.
//!
//! A register that is used in one round only becomes another register in each copy, which helps
//! later phases.

use super::simplify::{Simplifier, number_labels};
use crate::ir::counting::counting;
use crate::ir::{Instruction, Label, Op, Operand, Operator, Program, Register, Relation};

/// Instructions that one loop may become, before superfluous ones are removed.
const LOOP_MOST: usize = 320;
/// Instructions that all loops together may become.
const PROGRAM_MOST: usize = 1024;
/// Rounds of a loop that may be combined into one, and their instructions.
const TOGETHER_MOST: u64 = 8;
const GROUP_MOST: usize = 128;
/// Instructions that all attempts together may examine.
const WORK_MOST: usize = 8 * 1024;

/// The remaining effort for unrolling, and what is known of registers.
#[derive(Debug)]
pub(super) struct Unroll {
    program: usize,
    work: usize,
    /// The depth of nested attempts.
    depth: u32,
    labels: u32,
    /// The number of writes and reads of each register.
    uses: Vec<Uses>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Uses {
    writes: u32,
    reads: u32,
}

impl Unroll {
    /// The limits for this program.
    pub(super) fn new(program: &Program) -> Unroll {
        let mut unroll = Unroll {
            program: PROGRAM_MOST,
            work: WORK_MOST,
            depth: 0,
            labels: 0,
            uses: Vec::new(),
        };
        unroll.uses = uses(&program.body, program.registers as usize);
        for_each_label(&program.body, &mut |label| {
            unroll.labels = unroll.labels.max(label.0 + 1);
        });
        unroll
    }

    /// No loop is unrolled.
    pub(super) fn never(program: &Program) -> Unroll {
        Unroll {
            program: 0,
            work: 0,
            depth: 0,
            labels: 0,
            uses: uses(&program.body, program.registers as usize),
        }
    }

    /// Whether exactly one instruction writes a register.
    pub(super) fn is_written_once(&self, register: Register) -> bool {
        let uses = self.uses.get(register.0 as usize);
        uses.is_some_and(|uses| uses.writes == 1)
    }

    /// Whether only these instructions read a register.
    fn is_read_within(&self, register: Register, body: &[Instruction]) -> bool {
        let all = self.uses.get(register.0 as usize);
        let here = uses(body, self.uses.len());
        all.map(|all| all.reads) == here.get(register.0 as usize).map(|here| here.reads)
    }

    /// A new register.
    pub(super) fn register(&mut self) -> Register {
        self.uses.push(Uses {
            writes: u32::MAX,
            reads: u32::MAX,
        });
        Register(self.uses.len() as u32 - 1)
    }

    /// The number of registers so far.
    pub(super) fn registers(&self) -> u32 {
        self.uses.len() as u32
    }

    /// A copy of a body, with labels and registers of its own.
    fn copy(&mut self, body: &[Instruction]) -> Vec<Instruction> {
        let mut copy = body.to_vec();
        let here = uses(body, self.uses.len());
        let mut names = Vec::new();
        for (at, here) in here.into_iter().enumerate() {
            if here.writes == 1 && self.uses[at] == here {
                names.push((Register(at as u32), Register(self.uses.len() as u32)));
                self.uses.push(here);
            }
        }
        rename_registers(&mut copy, &names);
        number_labels(&mut copy, &mut self.labels, &mut Vec::new());
        copy
    }
}

impl Simplifier {
    /// The instructions of all rounds of a loop, if they are few. The facts are then those at the
    /// end of the last round; if there are too many rounds, the facts are unchanged.
    pub(super) fn rounds(&mut self, body: &[Instruction]) -> Option<Vec<Instruction>> {
        let size = count(body);
        if size > LOOP_MOST || self.unroll.program < size {
            return None;
        }
        let exits = self.exits.clone();
        let rounds = self.rounds_of.clone();
        let mark = self.facts.mark();
        let before = self.unroll.program;
        self.unroll.depth += 1;
        let done = self.try_rounds(body, size);
        self.unroll.depth -= 1;
        if done.is_none() {
            self.unroll.program = before;
            self.exits = exits;
            self.rounds_of = rounds;
            self.facts.end_branch(mark);
        }
        done
    }

    fn try_rounds(&mut self, body: &[Instruction], size: usize) -> Option<Vec<Instruction>> {
        let mut all = Vec::new();
        let mut total = 0;
        let most = LOOP_MOST.min(self.unroll.program);
        for round in 0.. {
            self.unroll.work = self.unroll.work.checked_sub(size)?;
            let copy = self.unroll.copy(body);
            self.facts.grow(self.unroll.registers());
            let (mut one, reached) = self.list(copy);
            total += count(&one);
            if total > most {
                return None;
            }
            all.append(&mut one);
            if !reached {
                break;
            }
            if round == 0 && !self.counts(body) {
                return None;
            }
        }
        self.unroll.program = self.unroll.program.saturating_sub(total);
        Some(all)
    }

    /// The body of a loop that combines several rounds into one, for a loop that counts to a known
    /// number.
    pub(super) fn several(
        &mut self,
        label: Label,
        body: &[Instruction],
    ) -> Option<Vec<Instruction>> {
        let counting = counting(label, body, &|operand| self.facts.range(operand))?;
        let [question, rest @ .., step] = body else {
            return None;
        };
        let (register, by) = (counting.register, counting.by);
        let first = counting.first.only()?;
        let plain = counting.is_exact
            && step.op.writes() == Some(register)
            && self.unroll.is_read_within(register, body)
            && !has_loop(body);
        let times = (2..=TOGETHER_MOST).rev().find(|times| {
            counting.rounds.is_multiple_of(*times) && count(body) * *times as usize <= GROUP_MOST
        });
        let times = times.filter(|times| plain && *times < counting.rounds)? as i64;
        let work = count(body) * times as usize;
        self.unroll.work = self.unroll.work.checked_sub(work)?;
        self.unroll.program = self.unroll.program.checked_sub(work)?;
        let rounds = i64::try_from(counting.rounds).ok()?;
        let last = by.checked_mul(rounds - times)?.checked_add(first)?;
        by.checked_mul(times)?;
        let counter = Operand::Register(register);
        let at = |op, like: &Instruction| Instruction {
            op,
            span: like.span,
        };
        let (a, b) = match by {
            0.. => (Operand::Constant(last), counter),
            _ => (counter, Operand::Constant(last)),
        };
        let leave = Op::If {
            relation: Relation::LessSigned,
            a,
            b,
            then: vec![at(Op::Exit(label), question)],
            otherwise: Vec::new(),
        };
        let mut all = vec![at(leave, question)];
        let plus = |to, rounds| Op::Binary {
            to,
            operator: Operator::Add,
            a: counter,
            b: Operand::Constant(by * rounds),
        };
        for round in 0..times {
            let mut copy = self.unroll.copy(rest);
            if round > 0 {
                let here = self.unroll.register();
                rename(&mut copy, register, here);
                all.push(at(plus(here, round), step));
            }
            all.append(&mut copy);
        }
        all.push(at(plus(register, times), step));
        self.facts.grow(self.unroll.registers());
        Some(all)
    }

    /// Whether a register that the body writes has a known value after a round, so that unrolling
    /// may reach the end of the loop.
    fn counts(&self, body: &[Instruction]) -> bool {
        body.iter().any(|instruction| {
            let known = |register| {
                self.facts
                    .range(Operand::Register(register))
                    .only()
                    .is_some()
            };
            instruction.op.writes().is_some_and(known)
                || instruction.op.bodies().any(|inner| self.counts(inner))
        })
    }
}

/// The number of instructions, including nested ones.
pub(super) fn count(body: &[Instruction]) -> usize {
    let inner = |instruction: &Instruction| instruction.op.bodies().map(count).sum::<usize>();
    body.iter().map(|instruction| 1 + inner(instruction)).sum()
}

fn has_loop(body: &[Instruction]) -> bool {
    body.iter()
        .any(|one| matches!(one.op, Op::Loop { .. }) || one.op.bodies().any(has_loop))
}

fn uses(body: &[Instruction], registers: usize) -> Vec<Uses> {
    let mut uses = vec![Uses::default(); registers];
    add_uses(body, &mut uses);
    uses
}

fn add_uses(body: &[Instruction], uses: &mut [Uses]) {
    for Instruction { op, .. } in body {
        for register in op.reads() {
            uses[register.0 as usize].reads += 1;
        }
        if let Some(to) = op.writes() {
            uses[to.0 as usize].writes += 1;
        }
        op.bodies().for_each(|inner| add_uses(inner, uses));
    }
}

/// Renames registers; `names` is sorted by the former register.
fn rename_registers(body: &mut [Instruction], names: &[(Register, Register)]) {
    let renamed = |register: Register| {
        let at = names.binary_search_by_key(&register, |(old, _)| *old);
        at.map_or(register, |at| names[at].1)
    };
    for Instruction { op, .. } in body {
        op.reads_mut(&mut |operand| {
            if let Operand::Register(register) = operand {
                *register = renamed(*register);
            }
        });
        if let Some(to) = op.target() {
            *to = renamed(*to);
        }
        op.bodies_mut(&mut |inner| rename_registers(inner, names));
    }
}

/// Renames a register.
pub(super) fn rename(body: &mut [Instruction], register: Register, other: Register) {
    rename_registers(body, &[(register, other)]);
}

fn for_each_label(body: &[Instruction], see: &mut dyn FnMut(Label)) {
    for Instruction { op, .. } in body {
        if let Op::Block { label, .. } | Op::Loop { label, .. } = op {
            see(*label);
        }
        op.bodies().for_each(|inner| for_each_label(inner, see));
    }
}
