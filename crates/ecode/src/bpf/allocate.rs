//! Gives each virtual register one of the kernel's: linear scan over the intervals, in the order of
//! their beginnings (Poletto and Sarkar 1999).
//!
//! An interval prefers the register from which it is copied or computed, so that the copy can be
//! removed. When no register is free, the interval that is worth least is kept in memory: its reads
//! and writes become intervals of one instruction, and the scan begins again. Of these,
//!
//! - constants, and the address of the state, are loaded again;
//! - addresses are on the stack, where the verifier tracks them;
//! - numbers are in the frame after the locals, where the verifier does not track them (and
//!   speculation cannot take a number on the stack for an address).

use super::live::{Interval, intervals};
use super::machine::{Code, Inst, Kind, Line, V, Value};
use crate::frame::at;
use crate::limits::{BPF_STACK_BYTES, REGION_BYTES};

/// The first register that a call preserves.
const SAVED: u8 = 6;
/// The number of registers: 0 to 9.
const REGISTERS: u8 = 10;
/// Bytes of the stack in use for the key of a lookup.
const KEY_BYTES: u32 = 8;
/// Bytes that the kernel itself puts on the stack of a program with loops.
const LOOP_BYTES: u32 = 16;

/// The result of the allocation.
#[derive(Debug, Default)]
pub(super) struct Allocation {
    /// By virtual register.
    pub registers: Vec<u8>,
    /// Bytes of the stack in use.
    pub stack: u32,
}

/// The error of a program with more live values than there is memory for.
#[derive(Debug)]
pub(super) struct TooMany;

/// Allocates; `locals`: bytes of the locals in use.
pub(super) fn allocate(code: &mut Code, locals: u32) -> Result<Allocation, TooMany> {
    let mut memory = Spills {
        next: at::LOCALS + locals.next_multiple_of(8),
        stack: KEY_BYTES,
    };
    // Each round moves at least one more interval to memory, usually many.
    loop {
        let intervals = intervals(code);
        let mut scan = Scan::new(code);
        for interval in &intervals {
            scan.place(*interval);
        }
        if scan.spilled.is_empty() {
            let loops = code
                .lines
                .iter()
                .any(|line| matches!(line.inst, Inst::MayGoto(_)));
            let stack = memory.stack + if loops { LOOP_BYTES } else { 0 };
            return Ok(Allocation {
                registers: scan.registers,
                stack,
            });
        }
        let spilled = std::mem::take(&mut scan.spilled);
        if spilled.iter().any(|v| code.kinds[v.at()] == Kind::Scratch) {
            return Err(TooMany);
        }
        memory.spill(code, &spilled)?;
    }
}

struct Scan<'a> {
    registers: Vec<u8>,
    /// The interval that has each register now.
    owners: [Option<Interval>; REGISTERS as usize],
    spilled: Vec<V>,
    hints: Vec<[Option<V>; 3]>,
    kinds: &'a [Kind],
}

impl<'a> Scan<'a> {
    fn new(code: &'a Code) -> Scan<'a> {
        let mut hints = vec![[None; 3]; code.kinds.len()];
        let mut hint = |v: V, other: V| {
            if let Some(free) = hints[v.at()].iter_mut().find(|hint| hint.is_none()) {
                *free = Some(other);
            }
        };
        for line in &code.lines {
            match line.inst {
                Inst::Move {
                    to,
                    from: Value::Register(from),
                    ..
                }
                | Inst::Negate { to, a: from, .. }
                | Inst::Atomic {
                    old: Some(to),
                    value: from,
                    ..
                } => {
                    hint(to, from);
                    hint(from, to);
                }
                Inst::Alu {
                    to, a, b, operator, ..
                } if to != a => {
                    hint(to, a);
                    hint(a, to);
                    if let (Value::Register(b), true) = (b, operator.commutes()) {
                        hint(to, b);
                    }
                }
                _ => {}
            }
        }
        Scan {
            registers: vec![u8::MAX; code.kinds.len()],
            owners: [None; REGISTERS as usize],
            spilled: Vec::new(),
            hints,
            kinds: &code.kinds,
        }
    }

    fn place(&mut self, interval: Interval) {
        for owner in &mut self.owners {
            if owner.is_some_and(|owner| owner.end < interval.start) {
                *owner = None;
            }
        }
        let first = if interval.crosses { SAVED } else { 0 };
        let free = |scan: &Self, register: u8| {
            register >= first
                && scan
                    .owners
                    .get(usize::from(register))
                    .is_some_and(Option::is_none)
        };
        let hints = self.hints[interval.v.at()];
        let hinted = hints.iter().flatten().map(|v| self.registers[v.at()]);
        let hinted = hinted.into_iter().find(|register| free(self, *register));
        // Long intervals take the registers last that short ones can use.
        let register = hinted.or_else(|| (first..REGISTERS).find(|r| free(self, *r)));
        if let Some(register) = register {
            return self.give(register, interval);
        }
        self.make_room(interval, first);
    }

    fn give(&mut self, register: u8, interval: Interval) {
        self.owners[usize::from(register)] = Some(interval);
        self.registers[interval.v.at()] = register;
    }

    /// The cost per instruction of keeping an interval in memory.
    fn worth(&self, interval: &Interval) -> f32 {
        if self.kinds[interval.v.at()] == Kind::Scratch {
            return f32::INFINITY;
        }
        interval.weight / (interval.end - interval.start + 1) as f32
    }

    fn make_room(&mut self, interval: Interval, first: u8) {
        let owners = self.owners.iter().enumerate().skip(usize::from(first));
        let owners = owners.filter_map(|(at, owner)| owner.map(|owner| (at, owner)));
        let least = owners.min_by(|(_, a), (_, b)| self.worth(a).total_cmp(&self.worth(b)));
        match least {
            Some((at, owner)) if self.worth(&owner) < self.worth(&interval) => {
                self.spilled.push(owner.v);
                self.give(at as u8, interval);
            }
            _ => self.spilled.push(interval.v),
        }
    }
}

/// Registers that are kept in memory.
struct Spills {
    /// The next free byte of the frame.
    next: u32,
    /// Bytes of the stack in use.
    stack: u32,
}

/// How the value of a register is restored.
#[derive(Clone, Copy)]
enum Home {
    Again(Inst),
    Frame(i16),
    Stack(i16),
}

impl Spills {
    fn spill(&mut self, code: &mut Code, spilled: &[V]) -> Result<(), TooMany> {
        let mut homes: Vec<Option<Home>> = vec![None; code.kinds.len()];
        let mut writes: Vec<(u32, Inst)> = vec![(0, Inst::Exit); code.kinds.len()];
        for line in &code.lines {
            if let Some(v) = line.inst.written() {
                writes[v.at()] = (writes[v.at()].0 + 1, line.inst);
            }
        }
        for v in spilled {
            homes[v.at()] = Some(self.home(code.kinds[v.at()], writes[v.at()])?);
        }
        let lines = std::mem::take(&mut code.lines);
        for line in lines {
            rewrite(code, line, &homes);
        }
        Ok(())
    }

    fn home(&mut self, kind: Kind, writes: (u32, Inst)) -> Result<Home, TooMany> {
        if let (1, inst) = writes
            && is_constant(&inst)
        {
            return Ok(Home::Again(inst));
        }
        if kind == Kind::Address {
            self.stack += 8;
            if self.stack + LOOP_BYTES > BPF_STACK_BYTES {
                return Err(TooMany);
            }
            return Ok(Home::Stack(-(self.stack as i16)));
        }
        let offset = self.next;
        self.next += 8;
        if self.next > at::LOCALS + 2 * REGION_BYTES {
            return Err(TooMany);
        }
        Ok(Home::Frame(offset as i16))
    }
}

/// Rewrites a line: values that it reads are loaded before it, values that it writes stored after
/// it.
fn rewrite(code: &mut Code, mut line: Line, homes: &[Option<Home>]) {
    let home = |v: V| homes.get(v.at()).copied().flatten();
    let frame = code.frame.unwrap_or(V(0));
    let mut renamed: [Option<(V, V)>; 2] = [None; 2];
    for v in line.inst.read().into_iter().flatten() {
        let (Some(home), false) = (home(v), renamed.iter().flatten().any(|(of, _)| *of == v))
        else {
            continue;
        };
        let to = code.add(Kind::Scratch);
        code.lines.push(Line {
            inst: fetch(home, to, frame),
            ..line
        });
        if let Some(free) = renamed.iter_mut().find(|renamed| renamed.is_none()) {
            *free = Some((v, to));
        }
    }
    line.inst.rename_read(|v| {
        renamed
            .iter()
            .flatten()
            .find(|(of, _)| *of == v)
            .map_or(v, |(_, to)| *to)
    });
    let Some(home) = line.inst.written().and_then(home) else {
        code.lines.push(line);
        return;
    };
    let from = code.add(Kind::Scratch);
    if let Some(inst) = keep(home, from, frame) {
        line.inst.rename_written(from);
        code.lines.push(line);
        code.lines.push(Line { inst, ..line });
    }
}

fn is_constant(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Wide { .. }
            | Inst::Direct { .. }
            | Inst::Move {
                from: Value::Immediate(_),
                ..
            }
    )
}

fn fetch(home: Home, to: V, frame: V) -> Inst {
    match home {
        Home::Again(mut inst) => {
            inst.rename_written(to);
            inst
        }
        Home::Frame(offset) => Inst::Load {
            to,
            base: frame,
            offset,
            bits: 64,
            signed: false,
        },
        Home::Stack(offset) => Inst::Fill { to, offset },
    }
}

fn keep(home: Home, from: V, frame: V) -> Option<Inst> {
    let value = Value::Register(from);
    match home {
        Home::Frame(offset) => Some(Inst::Store {
            base: frame,
            offset,
            value,
            bits: 64,
        }),
        Home::Stack(offset) => Some(Inst::Keep {
            value: from,
            offset,
        }),
        // The value is computed again at each read.
        Home::Again(_) => None,
    }
}
