//! What a number is used for that the verifier can learn from. It tells two states apart by a
//! number only where it has predicted something from it: the outcome of a comparison, or that a
//! distance is small enough. A sum that is returned, stored or counted on needs no hiding, and
//! what is compared once has nothing to tell the verifier the second time.
//!
//! Over the whole program, from uses back to what they were computed from.

use super::facts::{Facts, Range, written};
use super::flat::{Flat, Step, operands};
use crate::ir::{Address, Op, Operand, Register};

/// Of one register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Feeds {
    /// Comparisons, checks and distances that its value goes into: the first two, by number.
    sites: [Option<u32>; 2],
    /// One of them shows the verifier the number itself even where numbers are hidden.
    open: bool,
}

/// What is asked about operands of comparisons.
struct Asks<'a> {
    facts: &'a Facts,
    loaded: Vec<bool>,
}

/// By number of register.
#[derive(Debug)]
pub(super) struct AllFeeds(Vec<Feeds>);

impl AllFeeds {
    /// Finds them out.
    pub(super) fn of(flat: &Flat<'_>, facts: &Facts, registers: u32) -> AllFeeds {
        let mut feeds = AllFeeds(vec![Feeds::default(); registers as usize]);
        let asks = Asks {
            facts,
            loaded: loaded(flat, registers),
        };
        for (item, at) in flat.items.iter().zip(0..) {
            feeds.sites(&item.step, at, &asks);
            if item.depth > 0 {
                // In a loop, each is met again.
                feeds.sites(&item.step, u32::MAX - at, &asks);
            }
        }
        while feeds.round(flat) {}
        feeds
    }

    /// Whether the verifier may predict anything from a register.
    pub(super) fn any(&self, register: Register) -> bool {
        self.of_register(register).sites[0].is_some()
    }

    /// The same where what is compared is hidden.
    pub(super) fn open(&self, register: Register) -> bool {
        self.of_register(register).open
    }

    /// Whether it may predict something from what it has learned before.
    pub(super) fn twice(&self, operand: Operand) -> bool {
        match operand {
            Operand::Register(register) => self.of_register(register).sites[1].is_some(),
            Operand::Constant(_) => false,
        }
    }

    fn of_register(&self, register: Register) -> Feeds {
        self.0.get(register.0 as usize).copied().unwrap_or_default()
    }

    fn add(&mut self, register: Register, other: Feeds) -> bool {
        let Some(feeds) = self.0.get_mut(register.0 as usize) else {
            return false;
        };
        let before = *feeds;
        feeds.open |= other.open;
        for site in other.sites.into_iter().flatten() {
            if !feeds.sites.contains(&Some(site))
                && let Some(free) = feeds.sites.iter_mut().find(|site| site.is_none())
            {
                *free = Some(site);
            }
        }
        *feeds != before
    }

    /// What this step itself asks.
    fn sites(&mut self, step: &Step<'_>, at: u32, asks: &Asks<'_>) {
        let mut site = |operand: Operand, open| {
            if let Operand::Register(register) = operand {
                let sites = [Some(at), None];
                self.add(register, Feeds { sites, open });
            }
        };
        match step {
            Step::Bound { from, .. } => site(Operand::Register(*from), true),
            Step::Branch { a, b, meets, .. } if asks.tells(*a, *b) => {
                site(*a, !meets);
                site(*b, !meets);
            }
            Step::Do(op) => match op {
                Op::Compare { a, b, .. } if asks.tells(*a, *b) => {
                    site(*a, false);
                    site(*b, false);
                }
                Op::NextBit { mask, after, .. } => {
                    site(*mask, true);
                    site(*after, true);
                }
                op => {
                    for_each_distance(op, &mut |register| site(Operand::Register(register), true));
                }
            },
            _ => {}
        }
    }

    fn round(&mut self, flat: &Flat<'_>) -> bool {
        let mut changed = false;
        for item in flat.items.iter().rev() {
            let feeds = match (&item.step, written(&item.step)) {
                (_, None) | (Step::Do(Op::Compare { .. } | Op::Load { .. }), _) => continue,
                (_, Some(to)) => self.of_register(to),
            };
            if feeds == Feeds::default() {
                continue;
            }
            match &item.step {
                Step::Bound { from, .. } => changed |= self.add(*from, feeds),
                Step::Do(op) => operands(op, &mut |from| changed |= self.add(from, feeds)),
                _ => {}
            }
        }
        changed
    }
}

/// Registers that nothing but loads write: numbers of which the verifier knows only how many bits
/// they have.
fn loaded(flat: &Flat<'_>, registers: u32) -> Vec<bool> {
    let mut loaded = vec![true; registers as usize];
    for item in &flat.items {
        if let Some(to) = written(&item.step)
            && !matches!(item.step, Step::Do(Op::Load { .. }))
            && let Some(loaded) = loaded.get_mut(to.0 as usize)
        {
            *loaded = false;
        }
    }
    loaded
}

impl Asks<'_> {
    /// Whether the outcome of a comparison says much about an operand: not that of two numbers
    /// which may both be almost anything.
    fn tells(&self, a: Operand, b: Operand) -> bool {
        !self.is_wide(a) || !self.is_wide(b)
    }

    fn is_wide(&self, operand: Operand) -> bool {
        let Operand::Register(register) = operand else {
            return false;
        };
        let Range { low, high } = self.facts.range(operand);
        let is_wide = high.checked_sub(low).is_none_or(|size| size >= 1 << 31);
        is_wide && self.loaded.get(register.0 as usize) == Some(&true)
    }
}

fn for_each_distance(op: &Op, see: &mut dyn FnMut(Register)) {
    let mut address = |address: &Address| {
        if let Some(index) = address.index {
            see(index.register);
        }
    };
    match op {
        Op::Load { from, .. } => address(from),
        Op::Store { to, .. } | Op::Atomic { to, .. } | Op::Zero { to, .. } => address(to),
        Op::Copy { to, from, .. } => {
            address(to);
            address(from);
        }
        _ => {}
    }
}
