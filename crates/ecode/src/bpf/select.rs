//! From steps to instructions.
//!
//! Three things are done for the verifier's sake:
//!
//! - **Loops begin with a [`Inst::MayGoto`]**: the verifier walks a loop again until it arrives at
//!   its head in a state that it has seen. If it knows nothing of the numbers that the loop
//!   changes, that is the second time. So a constant that a loop changes later is *hidden* when it
//!   is written: the program adds it to a value of the frame that is always 0.
//! - **Each computed offset is compared with the largest one** right before its use. The kernel
//!   removes a comparison whose result its verifier can prove.
//! - **In a program with many paths, numbers are hidden wherever paths join**
//!   ([`Select::careful`]): a constant that only one of the paths writes, and a number that was
//!   compared and is used again. Otherwise the verifier distinguishes all combinations and walks
//!   each of them: it refused 40 such `if`s in a row after 3.2 s; with hidden numbers it takes 1.2
//!   ms.
//!
//! Numbers are hidden wherever it might matter. An analysis that determined where the verifier can
//! predict anything from a number took 190 lines, and 330 for ranges, and made both programs and
//! verification worse: over the texts of tests/ecode and examples 47,356
//! instructions walked against 35,705, over those made to be hard 45,542 against 31,608 (6.18).

use super::fault::Faults;
use super::flat::{Flat, Item, Point, Step};
use super::machine::{Code, Inst, Kind, Label, Line, Test, V, Value};
use super::near::{AllNear, Near};
use super::{Map, Options};
use crate::frame::at;
use crate::ir::{Address, Fault, Op, Operand, Operator, Program, Region, Register};
use crate::source::Span;

/// With more walks per step than this, numbers are hidden.
const WALKS_PER_STEP: u64 = 6;
/// In programs with fewer walks than this, no numbers are hidden where paths join.
const WALKS_ALWAYS: u64 = 400;

/// The state of the selection.
#[derive(Debug)]
pub(super) struct Select<'a> {
    pub(super) code: Code,
    program: &'a Program,
    options: &'a Options,
    /// See the head of this file.
    pub(super) careful: bool,
    /// Where the next instructions come from, and how many loops are around them.
    pub(super) span: Span,
    pub(super) depth: u8,
    /// The label of each point; they are the first labels of the program.
    labels: Vec<Label>,
    pub(super) faults: Faults,
    /// Where the run ends, and where it ends if the frame could not be looked up.
    pub(super) end: Label,
    nothing: Label,
    pub(super) frame: V,
    event: Option<V>,
    state: Option<V>,
    attributes: Option<V>,
    sinks: Option<V>,
    fuel: Option<V>,
    near: AllNear,
    /// By point: its step (0: none). By register: the last step that reads it.
    behind: Vec<usize>,
    last_read: Vec<usize>,
    /// The innermost loop around each step, and around the writes of each register.
    loop_of: Vec<Option<Point>>,
    written_in: Vec<Option<Point>>,
    /// By register: how many steps write it, and whether one of them is in a loop.
    writes: Vec<u32>,
    in_loop: Vec<bool>,
    /// The current step.
    at: usize,
}

/// Selection gives up at so many lines per permitted instruction: no later phase would remove
/// enough of them.
const LINES_PER_INSTRUCTION: usize = 2;

/// Makes instructions of steps.
pub(super) fn select(
    program: &Program,
    mut flat: Flat<'_>,
    options: &Options,
) -> Result<Code, Span> {
    for fault in [Fault::Index, Fault::Fuel, Fault::Input, Fault::Effects] {
        flat.fault(fault);
    }
    let mut code = Code::default();
    for _ in 0..program.registers {
        code.register();
    }
    let labels: Vec<Label> = (0..flat.points).map(|_| code.label()).collect();
    let of_point = |(fault, point): &(Fault, Point)| (*fault, labels[point.0 as usize]);
    let faults = Faults::new(flat.faults.iter().map(of_point));
    let steps = flat.items.len() as u64;
    let mut select = Select {
        faults,
        end: code.label(),
        nothing: code.label(),
        frame: code.add(Kind::Scratch),
        code,
        program,
        options,
        careful: flat.walks > WALKS_ALWAYS.max(steps * WALKS_PER_STEP),
        span: flat.items.first().map(|item| item.span).unwrap_or_default(),
        depth: 0,
        labels,
        event: None,
        state: None,
        attributes: None,
        sinks: None,
        fuel: None,
        near: AllNear::new(&flat),
        behind: vec![0; flat.points as usize],
        last_read: vec![0; program.registers as usize],
        loop_of: Vec::with_capacity(flat.items.len()),
        written_in: vec![None; program.registers as usize],
        at: 0,
        writes: vec![0; program.registers as usize],
        in_loop: vec![false; program.registers as usize],
    };
    select.look_ahead(&flat);
    select.begin(&flat);
    for (at, item) in flat.items.iter().enumerate() {
        if select.code.lines.len() > LINES_PER_INSTRUCTION * options.instructions_most() {
            return Err(item.span);
        }
        if let Step::Head(head) = item.step {
            select.hide_for_loop(&flat.items[..at], &flat.items[at..], head);
        }
        select.at = at;
        select.near.enter(at, &item.step);
        select.step(item);
        if let Some(register) = item.step.written() {
            select.near.written(register);
        }
    }
    select.finish();
    Ok(select.code)
}

impl Select<'_> {
    pub(super) fn emit(&mut self, inst: Inst) {
        self.code.lines.push(Line {
            inst,
            span: self.span,
            depth: self.depth,
        });
    }

    pub(super) fn label(&mut self) -> Label {
        self.code.label()
    }

    fn point(&self, point: Point) -> Label {
        self.labels
            .get(point.0 as usize)
            .copied()
            .unwrap_or(self.end)
    }

    /// Determines where each register is read last, and in which loops.
    fn look_ahead(&mut self, flat: &Flat<'_>) {
        let mut around: Vec<Point> = Vec::new();
        for (at, item) in flat.items.iter().enumerate() {
            if let Step::Head(head) = item.step {
                around.push(head);
            }
            self.loop_of.push(around.last().copied());
            if let Some(to) = item.step.written() {
                self.writes[to.0 as usize] += 1;
                self.in_loop[to.0 as usize] |= item.depth > 0;
                self.written_in[to.0 as usize] = around.last().copied();
            }
            if let Step::Jump(to) | Step::Branch { to, .. } = item.step
                && around.last() == Some(&to)
            {
                around.pop();
            }
            if let Step::Point(point) = item.step {
                let label = self.point(point);
                self.behind[label.0 as usize] = at;
            }
            item.step.each_read(&mut |register| {
                self.last_read[register.0 as usize] = at;
            });
        }
    }

    // --- beginning and end ---

    /// Looks up the memories, checks the length of the event's data, and clears the output.
    fn begin(&mut self, flat: &Flat<'_>) {
        let mut used = [false; 8];
        let mut burns = false;
        for item in &flat.items {
            if let Step::Do(op) = &item.step {
                op.addresses()
                    .for_each(|address| used[address.region as usize] = true);
                burns |= matches!(op, Op::Burn(_));
            }
        }
        self.code.frame = Some(self.frame);
        let frame = self.frame;
        self.emit(Inst::Lookup {
            to: frame,
            map: Map::Frame,
            key: None,
        });
        self.branch(Test::Equal, frame, Value::Immediate(0), self.nothing);
        let uses = |region: Region| used[region as usize];
        if uses(Region::Event) || uses(Region::Input) || self.program.input > 0 {
            self.event = Some(self.find(Map::Event, None));
        }
        if uses(Region::Sinks) {
            self.sinks = Some(self.find(Map::Sinks, None));
        }
        if uses(Region::Attributes) {
            let key = self.code.register();
            self.load(key, frame, at::CHANNEL, 32);
            self.attributes = Some(self.find(Map::Attributes, Some(key)));
        }
        if uses(Region::State) {
            let to = self.code.add(Kind::Address);
            self.emit(Inst::Direct {
                to,
                map: Map::State,
            });
            self.state = Some(to);
        }
        if let (Some(event), true) = (self.event, self.program.input > 0) {
            let size = self.code.register();
            self.load(size, event, at::EVENT_SIZE, 32);
            let needed = Value::Immediate(self.program.input as i32);
            self.branch(Test::Less, size, needed, self.fault(Fault::Input));
        }
        if self.program.output > 0 {
            let bytes = self.program.output.next_multiple_of(8);
            self.zero_from(frame, at::OUTPUT, bytes);
        }
        if burns {
            let fuel = self.code.register();
            // With the fault behind it, which is 0: 64 bits of which the verifier knows nothing.
            self.load(fuel, frame, at::FUEL, 64);
            self.fuel = Some(fuel);
        }
    }

    fn find(&mut self, map: Map, key: Option<V>) -> V {
        let to = self.code.add(Kind::Address);
        self.emit(Inst::Lookup { to, map, key });
        self.branch(Test::Equal, to, Value::Immediate(0), self.nothing);
        to
    }

    /// The end of the program, to which every end of a run jumps.
    fn finish(&mut self) {
        self.depth = 0;
        let end = self.end;
        self.emit(Inst::Label(end));
        if let Some(fuel) = self.fuel {
            self.store(self.frame, at::FUEL, Value::Register(fuel), 32);
        }
        let nothing = self.nothing;
        self.emit(Inst::Label(nothing));
        self.emit(Inst::Exit);
        self.note_faults(end, nothing);
    }

    // --- operands ---

    /// A register of the IR.
    pub(super) fn named(register: Register) -> V {
        V(register.0)
    }

    /// An operand in the form that an instruction takes.
    pub(super) fn value(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::Register(register) => Value::Register(Self::named(register)),
            Operand::Constant(value) => self.constant(value),
        }
    }

    /// An operand of an instruction that uses only its lower 32 bits.
    pub(super) fn half(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::Register(_) => self.value(operand),
            Operand::Constant(value) => self.constant(i64::from(value as i32)),
        }
    }

    /// A constant in the form that an instruction takes.
    pub(super) fn constant(&mut self, value: i64) -> Value {
        match i32::try_from(value) {
            Ok(value) if !self.options.conceals(value) => Value::Immediate(value),
            _ => {
                let to = self.code.register();
                self.set_constant(to, value);
                Value::Register(to)
            }
        }
    }

    /// The operand in a register.
    pub(super) fn register(&mut self, operand: Operand) -> V {
        match self.value(operand) {
            Value::Register(v) => v,
            Value::Immediate(value) => {
                let to = self.code.register();
                self.emit(Inst::Move {
                    to,
                    from: Value::Immediate(value),
                    narrow: false,
                });
                to
            }
        }
    }

    fn set_constant(&mut self, to: V, value: i64) {
        match i32::try_from(value) {
            Ok(small) if !self.options.conceals(small) => {
                self.emit(Inst::Move {
                    to,
                    from: Value::Immediate(small),
                    narrow: false,
                });
            }
            _ => match self.options.mask(self.code.lines.len()) {
                // The author of a text must not be able to choose bytes of the kernel's machine
                // code.
                Some(mask) => {
                    let other = self.code.register();
                    self.emit(Inst::Wide {
                        to: other,
                        value: mask,
                    });
                    self.emit(Inst::Wide {
                        to,
                        value: value ^ mask,
                    });
                    self.alu(Operator::Xor, to, to, Value::Register(other), false);
                }
                None => self.emit(Inst::Wide { to, value }),
            },
        }
    }

    pub(super) fn alu(&mut self, operator: Operator, to: V, a: V, b: Value, narrow: bool) {
        self.emit(Inst::Alu {
            operator,
            to,
            a,
            b,
            narrow,
        });
    }

    pub(super) fn branch(&mut self, test: Test, a: V, b: Value, to: Label) {
        self.emit(Inst::Branch { test, a, b, to });
    }

    pub(super) fn load(&mut self, to: V, base: V, offset: u32, bits: u8) {
        let offset = offset as i16;
        self.emit(Inst::Load {
            to,
            base,
            offset,
            bits,
            signed: false,
        });
    }

    pub(super) fn store(&mut self, base: V, offset: u32, value: Value, bits: u8) {
        let offset = offset as i16;
        self.emit(Inst::Store {
            base,
            offset,
            value,
            bits,
        });
    }

    /// `to = to + 0`, after which the verifier knows nothing about the number.
    pub(super) fn hide(&mut self, to: V) {
        let zero = self.code.register();
        self.load(zero, self.frame, at::ZERO, 64);
        self.alu(Operator::Add, to, to, Value::Register(zero), false);
    }

    /// `to = from`, about which the verifier knows nothing.
    pub(super) fn set_hidden(&mut self, to: V, from: Value) {
        if from == Value::Register(to) {
            return self.hide(to);
        }
        self.load(to, self.frame, at::ZERO, 64);
        if from != Value::Immediate(0) {
            self.alu(Operator::Add, to, to, from, false);
        }
    }

    /// Whether paths join that write different numbers to this register.
    pub(super) fn is_merged(&self, register: Register) -> bool {
        let at = register.0 as usize;
        self.writes[at] > 1 && (self.in_loop[at] || self.careful)
    }

    /// Whether the operand is not read any more from this point on, which lies ahead.
    pub(super) fn is_done(&self, operand: Operand, from: Label) -> bool {
        let Operand::Register(register) = operand else {
            return true;
        };
        // A register with one write, in the same loop, is written again before it is read again.
        self.writes[register.0 as usize] == 1
            && self.written_in[register.0 as usize] == self.loop_of[self.at]
            && self
                .behind
                .get(from.0 as usize)
                .is_some_and(|point| self.last_read[register.0 as usize] < *point)
    }

    // --- steps ---

    fn step(&mut self, item: &Item<'_>) {
        (self.span, self.depth) = (item.span, item.depth);
        match &item.step {
            Step::Do(op) => {
                self.operation(op);
                self.hide_result(op);
            }
            Step::Bound { to, from, count } => self.bound(*to, *from, *count),
            Step::Branch {
                relation,
                a,
                b,
                unless,
                to,
                meets,
            } => {
                let to = self.point(*to);
                self.compare_and_branch(*relation, (*a, *b), *unless, to, *meets);
            }
            Step::Jump(to) => {
                let to = self.point(*to);
                self.emit(Inst::Jump(to));
            }
            Step::Point(point) => {
                let label = self.point(*point);
                self.emit(Inst::Label(label));
            }
            Step::Head(point) => {
                let (head, enough) = (self.point(*point), self.fault_here(Fault::Fuel));
                self.emit(Inst::Label(head));
                self.emit(Inst::MayGoto(enough));
            }
            Step::Return(value) => {
                let value = self.value(*value);
                self.store(self.frame, at::RESULT, value, 64);
                let end = self.end;
                self.emit(Inst::Jump(end));
            }
            Step::Fail(fault) => {
                let to = self.fault_here(*fault);
                self.emit(Inst::Jump(to));
            }
        }
    }

    fn hide_result(&mut self, op: &Op) {
        if let Some(to) = op.writes()
            && self.careful
            && self.is_merged(to)
            && is_one_of_few(op)
        {
            self.hide(Self::named(to));
        }
    }

    /// Before a loop: hides the registers that the loop changes, unless they are hidden already. So
    /// the verifier has seen the state in which it arrives at the loop's head the second time.
    fn hide_for_loop(&mut self, before: &[Item<'_>], from: &[Item<'_>], head: Point) {
        let end = from.iter().rposition(
            |item| matches!(item.step, Step::Jump(to) | Step::Branch { to, .. } if to == head),
        );
        let inside = &from[..end.unwrap_or(from.len())];
        let mut changed: Vec<Register> = inside
            .iter()
            .filter_map(|item| item.step.written())
            .collect();
        changed.sort_unstable();
        changed.dedup();
        for register in &changed {
            self.near.written(*register);
        }
        changed.retain(|register| self.writes[register.0 as usize] > 1);
        let known = |item: &&Item<'_>| match &item.step {
            Step::Do(
                Op::Set {
                    from: Operand::Constant(_),
                    ..
                }
                | Op::Load { bits: 64, .. },
            ) => false,
            step => step.written().is_some(),
        };
        let mut known: Vec<Register> = before
            .iter()
            .filter(known)
            .filter_map(|item| item.step.written())
            .collect();
        known.sort_unstable();
        for register in changed
            .into_iter()
            .filter(|v| known.binary_search(v).is_ok())
        {
            self.hide(Self::named(register));
        }
    }

    fn operation(&mut self, op: &Op) {
        match op {
            Op::Set { to, from } => self.set(*to, *from),
            Op::Binary { to, operator, a, b } => self.binary(*to, *operator, *a, *b),
            Op::Compare { to, relation, a, b } => self.compare(*to, *relation, *a, *b),
            Op::Extend {
                to,
                from,
                bits,
                signed,
            } => self.extend(*to, *from, *bits, *signed),
            Op::Load { .. }
            | Op::Store { .. }
            | Op::Atomic { .. }
            | Op::Copy { .. }
            | Op::Zero { .. } => self.memory(op),
            Op::Burn(units) => self.burn(*units),
            Op::NextBit { to, mask, after } => self.next_bit(Self::named(*to), *mask, *after),
            Op::Effect {
                kind,
                number,
                values,
            } => self.effect(*kind, *number, values),
            // The flat list has other steps for these.
            Op::Bound { .. }
            | Op::If { .. }
            | Op::Block { .. }
            | Op::Loop { .. }
            | Op::Exit(_)
            | Op::Return(_)
            | Op::Fail(_) => {}
        }
    }

    fn memory(&mut self, op: &Op) {
        match op {
            Op::Load {
                to,
                from,
                bits,
                signed,
            } => {
                let (base, offset) = self.address(from);
                let (to, bits, signed) = (Self::named(*to), *bits, *signed && *bits < 64);
                self.emit(Inst::Load {
                    to,
                    base,
                    offset,
                    bits,
                    signed,
                });
            }
            Op::Store { to, value, bits } => {
                let (base, offset) = self.address(to);
                let value = if *bits < 64 {
                    self.half(*value)
                } else {
                    self.value(*value)
                };
                self.emit(Inst::Store {
                    base,
                    offset,
                    value,
                    bits: *bits,
                });
            }
            Op::Atomic {
                old,
                to,
                operator,
                value,
                bits,
            } => {
                let (base, offset) = self.aligned(to, u32::from(*bits / 8));
                let value = self.register(*value);
                self.emit(Inst::Atomic {
                    old: old.map(Self::named),
                    base,
                    offset,
                    operator: *operator,
                    value,
                    bits: *bits,
                });
            }
            Op::Copy {
                to, from, bytes, ..
            } => {
                let (to, to_offset) = self.address(to);
                let (from, from_offset) = self.address(from);
                self.copy((to, to_offset), (from, from_offset), *bytes);
            }
            Op::Zero { to, bytes, .. } => {
                let (base, offset) = self.address(to);
                self.zero_from(base, offset as u32, *bytes);
            }
            _ => {}
        }
    }

    pub(super) fn set(&mut self, to: Register, from: Operand) {
        let target = Self::named(to);
        if let Operand::Constant(value) = from
            && self.is_merged(to)
        {
            let from = self.constant(value);
            return self.set_hidden(target, from);
        }
        match from {
            Operand::Constant(value) => self.set_constant(target, value),
            Operand::Register(from) => {
                let from = Value::Register(Self::named(from));
                self.emit(Inst::Move {
                    to: target,
                    from,
                    narrow: false,
                });
            }
        }
    }

    fn bound(&mut self, to: Register, from: Register, count: u32) {
        let fault = self.fault_here(Fault::Index);
        match i32::try_from(count) {
            Ok(count) => {
                let count = self.constant(i64::from(count));
                self.branch(Test::GreaterEqual, Self::named(from), count, fault);
            }
            // No array is that large.
            Err(_) => self.emit(Inst::Jump(fault)),
        }
        if to != from {
            self.emit(Inst::Move {
                to: Self::named(to),
                from: Value::Register(Self::named(from)),
                narrow: false,
            });
        }
    }

    /// Base and offset of a place in memory.
    fn address(&mut self, address: &Address) -> (V, i16) {
        self.aligned(address, 1)
    }

    /// Base and offset of a place in memory, where the verifier can see that a computed offset is a
    /// multiple of `unit`, as it requires for atomic operations.
    fn aligned(&mut self, address: &Address, unit: u32) -> (V, i16) {
        let (base, offset) = self.region(address.region);
        let offset = (offset + address.offset) as i16;
        let Some(index) = address.index else {
            return (base, offset);
        };
        let near = Near {
            register: index.register,
            largest: index.largest,
            unit,
            base,
        };
        if let Some(place) = self.near.find(&near) {
            return (place, offset);
        }
        let keeps = self.near.may_keep();
        let kind = if keeps { Kind::Address } else { Kind::Scratch };
        let place = self.code.add(kind);
        if keeps {
            self.near.keep(near, place);
        }
        let from = Value::Register(Self::named(index.register));
        self.emit(Inst::Move {
            to: place,
            from,
            narrow: true,
        });
        let largest = self.constant(i64::from(index.largest));
        self.branch(Test::Greater, place, largest, self.fault(Fault::Index));
        let mut mask = !(unit - 1);
        if self.options.secret.is_some() {
            // Speculative accesses stay within the same map, too.
            let zeros = index.largest.leading_zeros();
            mask &= u32::MAX.checked_shr(zeros).unwrap_or(0);
        }
        if mask != u32::MAX {
            self.alu(
                Operator::And,
                place,
                place,
                Value::Immediate(mask as i32),
                true,
            );
        }
        self.alu(Operator::Add, place, place, Value::Register(base), false);
        (place, offset)
    }

    fn region(&self, region: Region) -> (V, u32) {
        let frame = self.frame;
        let or_frame = |v: Option<V>| v.unwrap_or(frame);
        match region {
            Region::Frame => (frame, 0),
            Region::Output => (frame, at::OUTPUT),
            Region::Locals => (frame, at::LOCALS),
            Region::Event => (or_frame(self.event), 0),
            Region::Input => (or_frame(self.event), at::EVENT_DATA),
            Region::State => (or_frame(self.state), 0),
            Region::Attributes => (or_frame(self.attributes), 0),
            Region::Sinks => (or_frame(self.sinks), 0),
        }
    }

    fn burn(&mut self, units: u32) {
        let Some(fuel) = self.fuel else { return };
        let Ok(units) = i32::try_from(units) else {
            let empty = self.fault_here(Fault::Fuel);
            return self.emit(Inst::Jump(empty));
        };
        if !self.program.never_lacks_fuel() {
            let empty = self.fault_here(Fault::Fuel);
            self.branch(Test::Less, fuel, Value::Immediate(units), empty);
        }
        self.alu(Operator::Add, fuel, fuel, Value::Immediate(-units), false);
    }
}

/// Whether there are so few possible results that the verifier could distinguish them.
fn is_one_of_few(op: &Op) -> bool {
    match op {
        Op::Compare { .. } | Op::NextBit { .. } => true,
        Op::Load { bits, .. } | Op::Extend { bits, .. } => *bits < 32,
        Op::Binary { operator, b, .. } => {
            *operator == Operator::And && matches!(b, Operand::Constant(_))
        }
        _ => false,
    }
}
