//! The program as one list with jumps: blocks, loops and `if` become labels and branches. On the
//! way, pairs of instructions are combined (a comparison and the `if` on its result, an index and
//! its check), and the number of paths through the program is estimated.

use crate::ir;
use crate::ir::{Fault, Instruction, Op, Operand, Program, Register, Relation};
use crate::source::Span;

/// A point in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Point(pub u32);

#[derive(Clone, Debug)]
pub(super) enum Step<'p> {
    /// An instruction that is neither control flow nor [`Op::Bound`].
    Do(&'p Op),
    /// `to = from`; the run ends unless `from` is less than `count`.
    Bound {
        to: Register,
        from: Register,
        count: u32,
    },
    /// Jumps to a point if the relation holds (with `unless`: if it does not hold).
    Branch {
        relation: Relation,
        a: Operand,
        b: Operand,
        unless: bool,
        to: Point,
        /// Whether both paths may join again.
        meets: bool,
    },
    Jump(Point),
    Point(Point),
    /// The head of a loop: a point that is reached again from below.
    Head(Point),
    Return(Operand),
    Fail(Fault),
}

/// A step with its part of the text and the number of loops around it.
#[derive(Clone, Debug)]
pub(super) struct Item<'p> {
    pub step: Step<'p>,
    pub span: Span,
    pub depth: u8,
}

#[derive(Debug, Default)]
pub(super) struct Flat<'p> {
    pub items: Vec<Item<'p>>,
    /// Places in use.
    pub points: u32,
    /// The faults to which a step can lead, and the point where each is recorded.
    pub faults: Vec<(Fault, Point)>,
    /// The number of steps on all paths through the program together: so many does a verifier walk
    /// that distinguishes all numbers.
    pub walks: u64,
    /// Paths that lead to the current step.
    ways: u64,
    /// The surrounding blocks and loops, outermost first: the point after each, and the number of
    /// paths that lead there.
    around: Vec<(ir::Label, Point, u64)>,
    /// Reads of each register.
    reads: Vec<u32>,
}

/// The estimate of paths stops here.
const WAYS: u64 = 1 << 30;

/// Flattens a program.
pub(super) fn flatten(program: &Program) -> Flat<'_> {
    let mut flat = Flat {
        ways: 1,
        ..Flat::default()
    };
    flat.reads = vec![0; program.registers as usize];
    count_reads(&program.body, &mut flat.reads);
    flat.list(&program.body, 0);
    flat
}

fn count_reads(list: &[Instruction], reads: &mut [u32]) {
    for Instruction { op, .. } in list {
        for register in op.reads() {
            if let Some(count) = reads.get_mut(register.0 as usize) {
                *count += 1;
            }
        }
        op.bodies().for_each(|inner| count_reads(inner, reads));
    }
}

impl Step<'_> {
    /// Calls `see` with every register that the step reads.
    pub(super) fn each_read(&self, see: &mut impl FnMut(Register)) {
        match self {
            Step::Do(op) => op.reads().for_each(see),
            Step::Bound { from, .. } => see(*from),
            Step::Branch { a, b, .. } => {
                [a, b]
                    .into_iter()
                    .filter_map(|one| one.register())
                    .for_each(see);
            }
            Step::Return(value) => value.register().into_iter().for_each(see),
            Step::Jump(_) | Step::Point(_) | Step::Head(_) | Step::Fail(_) => {}
        }
    }

    /// The register that the step writes.
    pub(super) fn written(&self) -> Option<Register> {
        match self {
            Step::Bound { to, from, .. } => (to != from).then_some(*to),
            Step::Do(op) => op.writes(),
            _ => None,
        }
    }
}

impl<'p> Flat<'p> {
    fn push(&mut self, step: Step<'p>, span: Span, depth: u8) {
        self.walks = self.walks.saturating_add(self.ways);
        self.items.push(Item { step, span, depth });
    }

    fn point(&mut self) -> Point {
        self.points += 1;
        Point(self.points - 1)
    }

    /// The point where a fault is recorded.
    pub(super) fn fault(&mut self, fault: Fault) -> Point {
        if let Some((_, point)) = self.faults.iter().find(|(known, _)| *known == fault) {
            return *point;
        }
        let point = self.point();
        self.faults.push((fault, point));
        point
    }

    fn list(&mut self, list: &'p [Instruction], depth: u8) {
        let mut rest = list;
        while let [first, ..] = rest {
            let taken = self.pair(rest, depth).unwrap_or_else(|| {
                self.one(first, depth);
                1
            });
            rest = &rest[taken..];
        }
    }

    /// Combines the first instructions of a list, if they form a pair. Returns how many it
    /// combined.
    fn pair(&mut self, list: &'p [Instruction], depth: u8) -> Option<usize> {
        let [first, second, ..] = list else {
            return None;
        };
        match (&first.op, &second.op) {
            (
                Op::Set {
                    to,
                    from: Operand::Register(from),
                },
                Op::Bound { index, count },
            ) if to == index => {
                let (to, from, count) = (*to, *from, *count);
                self.push(Step::Bound { to, from, count }, second.span, depth);
                Some(2)
            }
            (
                Op::Compare { to, relation, a, b },
                Op::If {
                    relation: asks,
                    a: asked,
                    b: Operand::Constant(0),
                    then,
                    otherwise,
                },
            ) if *asked == Operand::Register(*to)
                && matches!(asks, Relation::Equal | Relation::NotEqual)
                && self.reads.get(to.0 as usize) == Some(&1) =>
            {
                let (holds, not) = match asks {
                    Relation::NotEqual => (then, otherwise),
                    _ => (otherwise, then),
                };
                self.choice((*relation, *a, *b), holds, not, second.span, depth);
                Some(2)
            }
            _ => None,
        }
    }

    fn one(&mut self, instruction: &'p Instruction, depth: u8) {
        let span = instruction.span;
        match &instruction.op {
            Op::Bound { index, count } => {
                let (to, from, count) = (*index, *index, *count);
                self.push(Step::Bound { to, from, count }, span, depth);
            }
            Op::If {
                relation,
                a,
                b,
                then,
                otherwise,
            } => {
                self.choice((*relation, *a, *b), then, otherwise, span, depth);
            }
            Op::Block { label, body } => {
                let end = self.point();
                self.around.push((*label, end, 0));
                self.list(body, depth);
                self.arrive(span, depth);
            }
            Op::Loop { label, body } => self.repeat(*label, body, span, depth),
            Op::Exit(label) => {
                let to = self.leave(*label);
                self.push(Step::Jump(to), span, depth);
                self.ways = 0;
            }
            Op::Return(value) => {
                self.push(Step::Return(*value), span, depth);
                self.ways = 0;
            }
            Op::Fail(fault) => {
                self.push(Step::Fail(*fault), span, depth);
                self.ways = 0;
            }
            op => self.push(Step::Do(op), span, depth),
        }
    }

    /// A loop that begins with its condition checks the condition again at its end, so it jumps
    /// once in each round instead of twice.
    fn repeat(&mut self, label: ir::Label, body: &'p [Instruction], span: Span, depth: u8) {
        let (head, end) = (self.point(), self.point());
        self.around.push((label, end, 0));
        let question = body.split_first().and_then(|(first, rest)| {
            let (relation, a, b) = leaves(&first.op, label)?;
            Some((relation, a, b, first.span, rest))
        });
        let Some((relation, a, b, asked, rest)) = question else {
            self.push(Step::Head(head), span, depth + 1);
            self.list(body, depth + 1);
            self.push(Step::Jump(head), span, depth + 1);
            self.ways = 0;
            return self.arrive(span, depth);
        };
        let branch = |unless, to| Step::Branch {
            relation,
            a,
            b,
            unless,
            to,
            meets: true,
        };
        let to = self.leave(label);
        self.push(branch(false, to), asked, depth);
        self.push(Step::Head(head), span, depth + 1);
        self.list(rest, depth + 1);
        self.push(branch(true, head), asked, depth + 1);
        self.arrive(span, depth);
    }

    /// The point after a block or loop, for an exit on the current paths.
    fn leave(&mut self, label: ir::Label) -> Point {
        let ways = self.ways;
        let mut around = self.around.iter_mut().rev();
        if let Some((_, point, known)) = around.find(|(known, ..)| *known == label) {
            *known = (*known + ways).min(WAYS);
            return *point;
        }
        // Lowering makes no such exit. It would end the run.
        self.fault(Fault::Index)
    }

    /// Ends the innermost block or loop.
    fn arrive(&mut self, span: Span, depth: u8) {
        if let Some((_, end, ways)) = self.around.pop() {
            self.ways = (self.ways + ways).min(WAYS);
            self.push(Step::Point(end), span, depth);
        }
    }

    fn choice(
        &mut self,
        (relation, a, b): (Relation, Operand, Operand),
        then: &'p [Instruction],
        otherwise: &'p [Instruction],
        span: Span,
        depth: u8,
    ) {
        let meets = !ends(then) && !ends(otherwise);
        let branch = |flat: &mut Self, unless, to| {
            let step = Step::Branch {
                relation,
                a,
                b,
                unless,
                to,
                meets,
            };
            flat.push(step, span, depth);
        };
        let direct = match (then, otherwise) {
            ([], []) => return,
            ([one], []) => self.direct(one).map(|to| (to, false)),
            ([], [one]) => self.direct(one).map(|to| (to, true)),
            _ => None,
        };
        if let Some((to, unless)) = direct {
            return branch(self, unless, to);
        }
        let end = self.point();
        // The shorter branch is the one that is jumped over.
        if then.is_empty() {
            branch(self, false, end);
            let over = self.ways;
            self.list(otherwise, depth);
            self.ways = (self.ways + over).min(WAYS);
        } else if otherwise.is_empty() {
            branch(self, true, end);
            let over = self.ways;
            self.list(then, depth);
            self.ways = (self.ways + over).min(WAYS);
        } else {
            let other = self.point();
            branch(self, true, other);
            let before = self.ways;
            self.list(then, depth);
            let after = self.ways;
            if !ends(then) {
                self.push(Step::Jump(end), span, depth);
            }
            self.push(Step::Point(other), span, depth);
            self.ways = before;
            self.list(otherwise, depth);
            self.ways = (self.ways + after).min(WAYS);
        }
        self.push(Step::Point(end), span, depth);
    }

    /// The target of an instruction that only jumps.
    fn direct(&mut self, instruction: &Instruction) -> Option<Point> {
        match instruction.op {
            Op::Exit(label) => Some(self.leave(label)),
            Op::Fail(fault) => Some(self.fault(fault)),
            _ => None,
        }
    }
}

/// The condition of an instruction that only leaves a loop.
fn leaves(op: &Op, label: ir::Label) -> Option<(Relation, Operand, Operand)> {
    let Op::If {
        relation,
        a,
        b,
        then,
        otherwise,
    } = op
    else {
        return None;
    };
    let only = [Instruction {
        op: Op::Exit(label),
        span: then.first()?.span,
    }];
    (otherwise.is_empty() && **then == only).then_some((*relation, *a, *b))
}

/// Whether the run ends in these instructions.
fn ends(list: &[Instruction]) -> bool {
    match list.last().map(|last| &last.op) {
        Some(Op::Return(_) | Op::Fail(_)) => true,
        Some(Op::If {
            then, otherwise, ..
        }) => ends(then) && ends(otherwise),
        _ => false,
    }
}
