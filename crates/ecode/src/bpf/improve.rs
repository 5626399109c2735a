//! Makes the code shorter: straightens jumps, removes instructions that are never reached (the
//! verifier refuses them), and computes results where they are wanted. Instructions whose results
//! are not read were removed from the IR (`lower::prune`); what selection adds to these
//! is not worth another pass.
//!
//! Values are followed only between two labels, where each line is reached from the line above.

use super::machine::{Code, Inst, Kind, Label, Line, V, Value};
use crate::ir::Operator;

/// The number of lines in which the origin of a value is searched.
const FAR: usize = 24;
const NEAR: usize = 4;

pub(super) fn improve(code: &mut Code) {
    jumps(code);
    compute_in_place(code);
}

/// The number of writes and reads of each register, and whether all are between two labels.
struct Uses {
    writes: Vec<u32>,
    reads: Vec<u32>,
    /// The run of lines without a label in which the register occurs, or [`MANY`].
    run: Vec<u32>,
}

const MANY: u32 = u32::MAX;
const NONE: u32 = u32::MAX - 1;

impl Uses {
    fn of(code: &Code) -> Uses {
        let count = code.kinds.len();
        let mut uses = Uses {
            writes: vec![0; count],
            reads: vec![0; count],
            run: vec![NONE; count],
        };
        let mut run = 0;
        for line in &code.lines {
            if matches!(line.inst, Inst::Label(_)) {
                run += 1;
            }
            for v in line.inst.read().into_iter().flatten() {
                uses.reads[v.at()] += 1;
                uses.seen(v, run);
            }
            if let Some(v) = line.inst.written() {
                uses.writes[v.at()] += 1;
                uses.seen(v, run);
            }
        }
        uses
    }

    fn seen(&mut self, v: V, run: u32) {
        let known = &mut self.run[v.at()];
        *known = if *known == NONE || *known == run {
            run
        } else {
            MANY
        };
    }

    /// Whether the register is written once, and read only in the same run.
    fn is_local(&self, v: V) -> bool {
        self.writes[v.at()] == 1 && self.run[v.at()] != MANY
    }
}

/// `t = a + b; x = f(t)` becomes `x = a + b; x = f(x)`, and if f is a copy, that is all.
fn compute_in_place(code: &mut Code) {
    let uses = Uses::of(code);
    for at in (0..code.lines.len()).rev() {
        let Some((x, t)) = moved(&code.lines[at].inst) else {
            continue;
        };
        let is_number = code.kinds[t.at()] == Kind::Number;
        if x == t || !is_number || !uses.is_local(t) || uses.reads[t.at()] != 1 {
            continue;
        }
        let far = match code.kinds[x.at()] {
            Kind::Number => FAR,
            // These are live for a few instructions only.
            Kind::Scratch | Kind::Address => NEAR,
        };
        let Some(origin) = origin(&code.lines[..at], far, x, t) else {
            continue;
        };
        let mut first = code.lines[origin].inst;
        first.rename_written(x);
        if writes_too_early(&first) {
            continue;
        }
        code.lines[origin].inst = first;
        code.lines[at]
            .inst
            .rename_read(|v| if v == t { x } else { v });
        if let Inst::Move { narrow: true, .. } = code.lines[at].inst
            && make_narrow(&mut code.lines[origin].inst)
        {
            let from = Value::Register(x);
            code.lines[at].inst = Inst::Move {
                to: x,
                from,
                narrow: false,
            };
        }
    }
}

/// Whether the result is written to the register of the right operand before that is read.
fn writes_too_early(inst: &Inst) -> bool {
    match *inst {
        Inst::Alu {
            operator, to, a, b, ..
        } => !operator.commutes() && b == Value::Register(to) && a != to,
        _ => false,
    }
}

/// The register that an instruction writes and the left operand from which it computes, if the
/// kernel's instruction would compute in place.
fn moved(inst: &Inst) -> Option<(V, V)> {
    match *inst {
        Inst::Move {
            to,
            from: Value::Register(from),
            ..
        }
        | Inst::SignExtend { to, from, .. }
        | Inst::Negate { to, a: from, .. } => Some((to, from)),
        Inst::Alu { to, a, b, .. } if b != Value::Register(to) && b != Value::Register(a) => {
            Some((to, a))
        }
        _ => None,
    }
}

/// The line that writes `t`, if no later line reads or writes `x`.
fn origin(lines: &[Line], far: usize, x: V, t: V) -> Option<usize> {
    for back in (lines.len().saturating_sub(far)..lines.len()).rev() {
        let inst = &lines[back].inst;
        if inst.written() == Some(t) {
            return inst.is_pure().then_some(back);
        }
        let concerns = inst.written() == Some(x) || inst.read().contains(&Some(x));
        if concerns || inst.target().is_some() || inst.ends() || matches!(inst, Inst::Label(_)) {
            return None;
        }
    }
    None
}

/// Makes an instruction extend its result by zeros from 32 bits; false if it cannot.
fn make_narrow(inst: &mut Inst) -> bool {
    match inst {
        Inst::Alu { narrow: true, .. }
        | Inst::Move { narrow: true, .. }
        | Inst::Negate { narrow: true, .. }
        | Inst::Load {
            signed: false,
            bits: ..=32,
            ..
        } => true,
        Inst::Move { narrow, .. } | Inst::Negate { narrow, .. } => {
            *narrow = true;
            true
        }
        Inst::Alu {
            operator,
            b,
            narrow,
            ..
        } => {
            let shift = *operator == Operator::ShiftLeft && matches!(b, Value::Immediate(..=31));
            *narrow |= operator.is_modular() || shift;
            *narrow
        }
        _ => false,
    }
}

// --- jumps ---

/// Straightens jumps and removes unreachable instructions.
fn jumps(code: &mut Code) {
    thread(code);
    turn_around(code);
    remove_unreached(code);
    remove_idle(code);
}

/// The line of each label.
fn positions(code: &Code) -> Vec<usize> {
    let mut positions = vec![0; code.labels as usize];
    for (at, line) in code.lines.iter().enumerate() {
        if let Inst::Label(label) = line.inst
            && let Some(position) = positions.get_mut(label.0 as usize)
        {
            *position = at;
        }
    }
    positions
}

/// The first instruction at or behind a line that is not a label.
fn first_from(code: &Code, at: usize) -> Option<&Inst> {
    let mut insts = code.lines.iter().skip(at).map(|line| &line.inst);
    insts.find(|inst| !matches!(inst, Inst::Label(_)))
}

/// Lets jumps to jumps go where those go, and jumps to the end be the end.
fn thread(code: &mut Code) {
    let positions = positions(code);
    let follow = |code: &Code, mut label: Label| {
        // Jumps may go in circles.
        for _ in 0..8 {
            match first_from(code, positions[label.0 as usize]) {
                Some(Inst::Jump(next)) => label = *next,
                _ => break,
            }
        }
        label
    };
    for at in 0..code.lines.len() {
        let mut inst = code.lines[at].inst;
        if let Inst::Jump(to) | Inst::Branch { to, .. } | Inst::MayGoto(to) = &mut inst {
            *to = follow(code, *to);
        }
        if let Inst::Jump(to) = inst
            && first_from(code, positions[to.0 as usize]) == Some(&Inst::Exit)
        {
            inst = Inst::Exit;
        }
        code.lines[at].inst = inst;
    }
}

/// `if a goto x; goto y; x:` becomes `if !a goto y; x:`.
fn turn_around(code: &mut Code) {
    for at in 0..code.lines.len().saturating_sub(2) {
        let (first, second) = (code.lines[at].inst, code.lines[at + 1].inst);
        let Inst::Branch { test, a, b, to } = first else {
            continue;
        };
        let Inst::Jump(other) = second else {
            continue;
        };
        let test = test.opposite();
        let rest = code.lines[at + 2..].iter().map(|line| line.inst);
        let mut labels = rest.take_while(|inst| matches!(inst, Inst::Label(_)));
        if labels.any(|inst| inst == Inst::Label(to)) {
            code.lines[at].inst = Inst::Branch {
                test,
                a,
                b,
                to: other,
            };
            // A jump to the next line, to be removed.
            code.lines[at + 1].inst = Inst::Jump(to);
        }
    }
}

fn remove_unreached(code: &mut Code) {
    let positions = positions(code);
    let mut reached = vec![false; code.lines.len()];
    let mut open = vec![0];
    while let Some(mut at) = open.pop() {
        while at < reached.len() && !reached[at] {
            reached[at] = true;
            let inst = &code.lines[at].inst;
            if let Some(target) = inst.target() {
                open.push(positions[target.0 as usize]);
            }
            if inst.ends() {
                break;
            }
            at += 1;
        }
    }
    let mut reached = reached.into_iter();
    code.lines.retain(|_| reached.next().unwrap_or_default());
}

/// Takes out jumps to the next line and labels that nothing jumps to.
fn remove_idle(code: &mut Code) {
    for at in 0..code.lines.len() {
        let Some(target) = code.lines[at].inst.target() else {
            continue;
        };
        let rest = code.lines[at + 1..].iter().map(|line| line.inst);
        let mut labels = rest.take_while(|inst| matches!(inst, Inst::Label(_)));
        let next = labels.any(|inst| inst == Inst::Label(target));
        if next && !matches!(code.lines[at].inst, Inst::MayGoto(_)) {
            code.lines[at].inst = Inst::Label(Label(u32::MAX));
        }
    }
    let mut wanted = vec![false; code.labels as usize];
    for line in &code.lines {
        if let Some(target) = line.inst.target() {
            wanted[target.0 as usize] = true;
        }
    }
    code.lines.retain(|line| match line.inst {
        Inst::Label(label) => wanted.get(label.0 as usize).copied().unwrap_or_default(),
        _ => true,
    });
}
