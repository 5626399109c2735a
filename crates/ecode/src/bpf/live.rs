//! The interval of the program in which each virtual register is live.
//!
//! Line i reads at position 2i and writes at 2i + 1. An interval extends from the first position at
//! which a register is live to the last, without holes. Liveness at the boundaries of blocks is
//! found by the usual backward data-flow analysis, only for registers that occur in more than one
//! block.

use std::ops::Range;

use super::machine::{Code, Inst, Label, V, Value};

/// Where a register is live.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub v: V,
    pub start: u32,
    pub end: u32,
    /// Its reads and writes, weighted by the depth of loops.
    pub weight: f32,
    /// Whether it is live across a call, which overwrites the registers 0 to 5.
    pub crosses: bool,
}

/// A basic block: lines that are entered only at the beginning and left only at the end.
#[derive(Debug)]
struct Block {
    first: usize,
    last: usize,
    next: [Option<usize>; 2],
}

/// A set of registers for each block: one bit per dense number, all sets in one list.
#[derive(Default)]
struct Sets {
    bits: Vec<u64>,
    /// Words of each set.
    words: usize,
}

impl Sets {
    fn new(blocks: usize, words: usize) -> Sets {
        Sets {
            bits: vec![0; blocks * words],
            words,
        }
    }

    fn range(&self, block: usize) -> Range<usize> {
        block * self.words..(block + 1) * self.words
    }

    fn of(&self, block: usize) -> &[u64] {
        self.bits.get(self.range(block)).unwrap_or_default()
    }

    fn of_mut(&mut self, block: usize) -> &mut [u64] {
        let range = self.range(block);
        self.bits.get_mut(range).unwrap_or_default()
    }
}

struct Blocks {
    blocks: Vec<Block>,
    /// Registers that occur in several blocks, by dense number; and the dense number of each
    /// register.
    shared: Vec<V>,
    dense: Vec<u32>,
    live_in: Sets,
    live_out: Sets,
}

const LOCAL: u32 = u32::MAX;

/// Finds all intervals, in the order of their beginnings. Registers that may be read before they
/// are written are set to 0 first.
pub(super) fn intervals(code: &mut Code) -> Vec<Interval> {
    let mut blocks = Blocks::of(code);
    blocks.solve(code);
    let unset = blocks.needed_at_start();
    if !unset.is_empty() {
        set_to_zero(code, &unset);
        blocks = Blocks::of(code);
        blocks.solve(code);
    }
    let mut intervals = spans(code, &blocks);
    mark_crossing(code, &mut intervals);
    intervals.sort_by_key(|interval| (interval.start, interval.end));
    intervals
}

fn set_to_zero(code: &mut Code, registers: &[V]) {
    // After the calls, so that no number is live across them.
    let call = code
        .lines
        .iter()
        .rposition(|line| matches!(line.inst, Inst::Lookup { .. }));
    let at = call.map_or(0, |call| call + 2).min(code.lines.len());
    let Some(like) = code.lines.first().copied() else {
        return;
    };
    let zeros = registers.iter().map(|to| {
        let (to, from) = (*to, Value::Immediate(0));
        super::machine::Line {
            inst: Inst::Move {
                to,
                from,
                narrow: false,
            },
            ..like
        }
    });
    let zeros: Vec<_> = zeros.collect();
    code.lines.splice(at..at, zeros);
}

impl Blocks {
    fn of(code: &Code) -> Blocks {
        let mut starts = vec![false; code.lines.len() + 1];
        let mut at_label = vec![0; code.labels as usize];
        for (at, line) in code.lines.iter().enumerate() {
            if let Inst::Label(Label(label)) = line.inst {
                starts[at] = true;
                at_label[label as usize] = at;
            }
            if line.inst.target().is_some() || line.inst.ends() {
                starts[at + 1] = true;
            }
        }
        let mut block_of = vec![0; code.lines.len() + 1];
        let mut blocks: Vec<Block> = Vec::new();
        for at in 0..code.lines.len() {
            if at == 0 || starts[at] {
                blocks.push(Block {
                    first: at,
                    last: at,
                    next: [None, None],
                });
            }
            let index = blocks.len() - 1;
            block_of[at] = index;
            blocks[index].last = at;
        }
        let count = blocks.len();
        for (index, block) in blocks.iter_mut().enumerate() {
            let last = &code.lines[block.last].inst;
            let falls = !last.ends() && index + 1 < count;
            let target = last
                .target()
                .map(|Label(label)| block_of[at_label[label as usize]]);
            block.next = [falls.then_some(index + 1), target];
        }
        let (shared, dense) = shared(code, &block_of);
        Blocks {
            blocks,
            shared,
            dense,
            live_in: Sets::default(),
            live_out: Sets::default(),
        }
    }

    fn solve(&mut self, code: &Code) {
        let words = self.shared.len().div_ceil(64);
        let mut all_read_first = Sets::new(self.blocks.len(), words);
        let mut all_written = Sets::new(self.blocks.len(), words);
        for (index, block) in self.blocks.iter().enumerate() {
            let read_first = all_read_first.of_mut(index);
            let written = all_written.of_mut(index);
            for line in &code.lines[block.first..=block.last] {
                for v in line.inst.read().into_iter().flatten() {
                    if let Some((word, bit)) = self.bit(v)
                        && written[word] & bit == 0
                    {
                        read_first[word] |= bit;
                    }
                }
                if let Some((word, bit)) = line.inst.written().and_then(|v| self.bit(v)) {
                    written[word] |= bit;
                }
            }
        }
        self.live_in = all_read_first;
        self.live_out = Sets::new(self.blocks.len(), words);
        let mut changed = true;
        while changed {
            changed = false;
            for index in (0..self.blocks.len()).rev() {
                for next in self.blocks[index].next.into_iter().flatten() {
                    changed |= self.flow(index, next, all_written.of(index));
                }
            }
        }
    }

    /// A register that is live at the beginning of `next` is live at the end of the block, and at
    /// the block's beginning unless the block writes it.
    fn flow(&mut self, block: usize, next: usize, written: &[u64]) -> bool {
        let needed = self.live_in.range(next);
        let here = self.live_in.range(block);
        let mut changed = false;
        let words = needed.zip(here).zip(written);
        for (((from, to), written), live_out) in words.zip(self.live_out.of_mut(block)) {
            let new = self.live_in.bits[from] & !*live_out;
            *live_out |= new;
            self.live_in.bits[to] |= new & !written;
            changed |= new != 0;
        }
        changed
    }

    fn bit(&self, v: V) -> Option<(usize, u64)> {
        let dense = self.dense[v.at()];
        (dense != LOCAL).then(|| (dense as usize / 64, 1 << (dense % 64)))
    }

    fn needed_at_start(&self) -> Vec<V> {
        members(self.live_in.of(0), &self.shared).collect()
    }
}

fn members<'a>(set: &'a [u64], shared: &'a [V]) -> impl Iterator<Item = V> + 'a {
    set.iter().enumerate().flat_map(move |(at, word)| {
        let mut rest = *word;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let bit = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            shared.get(at * 64 + bit).copied()
        })
    })
}

/// Registers that occur in several blocks, or are read in one before they are written.
fn shared(code: &Code, block_of: &[usize]) -> (Vec<V>, Vec<u32>) {
    let mut home = vec![usize::MAX; code.kinds.len()];
    let mut is_shared = vec![false; code.kinds.len()];
    for (at, line) in code.lines.iter().enumerate() {
        let block = block_of[at];
        for v in line.inst.read().into_iter().flatten() {
            // A read as first occurrence: the register was not written before.
            is_shared[v.at()] |= home[v.at()] != block;
        }
        if let Some(v) = line.inst.written() {
            let known = &mut home[v.at()];
            is_shared[v.at()] |= *known != usize::MAX && *known != block;
            *known = block;
        }
    }
    let mut dense = vec![LOCAL; is_shared.len()];
    let mut shared = Vec::new();
    for (at, _) in is_shared.iter().enumerate().filter(|(_, shared)| **shared) {
        dense[at] = shared.len() as u32;
        shared.push(V(at as u32));
    }
    (shared, dense)
}

fn spans(code: &Code, blocks: &Blocks) -> Vec<Interval> {
    let empty = (u32::MAX, 0, 0.0);
    let mut spans = vec![empty; code.kinds.len()];
    let mut extend = |v: V, from: u32, to: u32, weight: f32| {
        let span = &mut spans[v.at()];
        *span = (span.0.min(from), span.1.max(to), span.2 + weight);
    };
    for (at, line) in code.lines.iter().enumerate() {
        let weight = 8_f32.powi(i32::from(line.depth.min(6)));
        let position = at as u32 * 2;
        for v in line.inst.read().into_iter().flatten() {
            extend(v, position, position, weight);
        }
        // The kernel's instruction writes the result's register before it reads the right operand.
        if let Inst::Alu {
            operator,
            b: Value::Register(b),
            to,
            a,
            ..
        } = line.inst
            && !operator.commutes()
            && to != a
            && b != a
        {
            extend(b, position, position + 1, 0.0);
        }
        // The value is copied to the register of the result before the address is read.
        if let Inst::Atomic {
            base, old: Some(_), ..
        } = line.inst
        {
            extend(base, position, position + 1, 0.0);
        }
        if let Some(v) = line.inst.written() {
            extend(v, position + 1, position + 1, weight);
        }
    }
    for (index, block) in blocks.blocks.iter().enumerate() {
        let (first, last) = (block.first as u32 * 2, block.last as u32 * 2 + 1);
        for v in members(blocks.live_in.of(index), &blocks.shared) {
            extend(v, first, first, 0.0);
        }
        for v in members(blocks.live_out.of(index), &blocks.shared) {
            extend(v, last, last, 0.0);
        }
    }
    let all = spans
        .iter()
        .enumerate()
        .filter(|(_, span)| span.0 <= span.1);
    all.map(|(at, (start, end, weight))| Interval {
        v: V(at as u32),
        start: *start,
        end: *end,
        weight: *weight,
        crosses: false,
    })
    .collect()
}

fn mark_crossing(code: &Code, intervals: &mut [Interval]) {
    let calls = code.lines.iter().enumerate();
    let calls = calls.filter(|(_, line)| matches!(line.inst, Inst::Lookup { .. }));
    let calls: Vec<u32> = calls.map(|(at, _)| at as u32 * 2).collect();
    for interval in intervals {
        let first = calls.partition_point(|call| *call < interval.start);
        interval.crosses = calls.get(first).is_some_and(|call| call + 1 < interval.end);
    }
}
