//! Which sockets may be ready: the process's half of `abi/ready.h`, and a model of the kernel
//! side's ([`hint`]).
//!
//! | bit | set by | when | cleared |
//! |---|---|---|---|
//! | `fd_list` | process | it wants hints ([`Ready::want`]) | by [`Ready::unwant`] |
//! | `fd_active` | kernel side | the socket has become ready | by the process, before it reads |
//! | `fd_active` | process | with `fd_list`: it may have been ready before | the same |
//! | `flag` | who has set `fd_active`, if `fd_list` is set | after it | before `fd_active` |
//!
//! The kernel side first makes the socket ready, then exchanges `fd_active`. The process exchanges
//! it for 0 and then reads the socket until that would block. So either the process finds what
//! came, or the kernel side finds 0 and sets the bit again.
//!
//! A bit in `fd_active` whose descriptor is not wanted gets no `flag`, and may be lost with its
//! word. That is harmless, since who wants the descriptor again is hinted then.
//!
//! Sleep: the process stores 1 in `sleeping`, then looks at `flag`; the kernel side sets `flag`,
//! then looks at `sleeping`. Both have a full barrier between, so one sees the other. The kernel
//! side that exchanges the 1 for 0 wakes. A hint that is coalesced came after one that does so.

use core::mem::offset_of;

use ecalls_abi::ready::{READY_FLAGS, READY_WORDS, Readiness};

use crate::sync::{AtomicU64, Ordering, fence};
use crate::words::Words;

const SLEEPING: usize = offset_of!(Readiness, sleeping) / 8;
const WORD: usize = offset_of!(Readiness, word) / 8;

/// Descriptors are below this.
pub const DESCRIPTORS: u32 = READY_WORDS * 64;

/// The map of one thread.
#[derive(Clone, Debug)]
pub struct Ready<W> {
    words: W,
    /// Words of flags that have been used.
    flags: usize,
}

fn at(words: &[AtomicU64], index: usize) -> Option<&AtomicU64> {
    words.get(index)
}

/// The words `fd_active` and `fd_list` of the descriptors from `group` * 64 on.
fn pair(words: &[AtomicU64], group: usize) -> Option<(&AtomicU64, &AtomicU64)> {
    let index = WORD + 2 * group;
    Some((at(words, index)?, at(words, index + 1)?))
}

/// Kernel side: the socket of that descriptor may be ready. True: wake the process.
pub fn hint(words: &[AtomicU64], descriptor: u32) -> bool {
    let (group, bit) = (descriptor as usize / 64, 1 << (descriptor % 64));
    let Some((active, list)) = pair(words, group) else {
        return false;
    };
    if active.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
        return false;
    }
    if list.load(Ordering::Relaxed) & bit == 0 {
        return false;
    }
    raise_flag(words, group);
    let sleeping = &words[SLEEPING];
    sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::SeqCst) != 0
}

fn raise_flag(words: &[AtomicU64], group: usize) {
    if let Some(flag) = at(words, group / 64) {
        flag.fetch_or(1 << (group % 64), Ordering::SeqCst);
        // In the kernel the exchange is a full barrier.
        fence(Ordering::SeqCst);
    }
}

impl<W: Words> Ready<W> {
    /// A map in that memory.
    pub fn new(words: W) -> Ready<W> {
        Ready { words, flags: 0 }
    }

    /// The descriptor's hints are wanted, and it is hinted once: it may be ready already. False:
    /// its number is too large.
    pub fn want(&mut self, descriptor: u32) -> bool {
        let (group, bit) = (descriptor as usize / 64, 1 << (descriptor % 64));
        let Some((active, list)) = pair(self.words.words(), group) else {
            return false;
        };
        list.fetch_or(bit, Ordering::SeqCst);
        active.fetch_or(bit, Ordering::SeqCst);
        raise_flag(self.words.words(), group);
        self.flags = self.flags.max(group / 64 + 1);
        true
    }

    /// Its hints are not wanted for now.
    pub fn unwant(&mut self, descriptor: u32) {
        let (group, bit) = (descriptor as usize / 64, 1 << (descriptor % 64));
        if let Some((_, list)) = pair(self.words.words(), group) {
            list.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Whether there is a hint: a load for each 4096 descriptors in use.
    pub fn is_ready(&self) -> bool {
        let mut flags = self.words.words().iter().take(self.flags);
        flags.any(|flag| flag.load(Ordering::Acquire) != 0)
    }

    /// Takes all hints: calls `f` with each descriptor that may be ready. Returns their number.
    pub fn take(&mut self, mut f: impl FnMut(u32)) -> usize {
        let words = self.words.words();
        let mut taken = 0;
        for at in 0..self.flags.min(READY_FLAGS as usize) {
            if words[at].load(Ordering::Relaxed) == 0 {
                continue;
            }
            for group in bits(words[at].swap(0, Ordering::SeqCst)) {
                let group = at * 64 + group as usize;
                let Some((active, list)) = pair(words, group) else {
                    continue;
                };
                let wanted = active.swap(0, Ordering::SeqCst) & list.load(Ordering::Relaxed);
                for bit in bits(wanted) {
                    f(group as u32 * 64 + bit); // below DESCRIPTORS
                    taken += 1;
                }
            }
        }
        taken
    }

    /// Announces sleep. False: there is a hint, stay awake.
    pub fn may_sleep(&self) -> bool {
        if let Some(sleeping) = at(self.words.words(), SLEEPING) {
            sleeping.store(1, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if self.is_ready() {
            self.end_sleep();
            return false;
        }
        true
    }

    /// Ends a sleep. True: a wake-up is in the descriptor, or will be at any moment.
    pub fn end_sleep(&self) -> bool {
        let sleeping = at(self.words.words(), SLEEPING);
        sleeping.is_some_and(|sleeping| sleeping.swap(0, Ordering::SeqCst) == 0)
    }
}

/// The numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::words::zeroed;

    fn taken<W: Words>(ready: &mut Ready<W>) -> Vec<u32> {
        let mut taken = Vec::new();
        ready.take(|descriptor| taken.push(descriptor));
        taken
    }

    #[test]
    fn descriptors_are_hinted_once_when_wanted_and_once_for_each_arrival_that_was_taken() {
        let words = zeroed(size_of::<Readiness>() / 8);
        let mut ready = Ready::new(&words);
        for descriptor in [0, 63, 64, 5000, DESCRIPTORS - 1] {
            assert!(ready.want(descriptor));
            assert_eq!(taken(&mut ready), [descriptor]);
            hint(&words, descriptor);
            hint(&words, descriptor);
            assert_eq!(taken(&mut ready), [descriptor]);
            assert!(!ready.is_ready());
        }
        assert!(!ready.want(DESCRIPTORS));
    }

    #[test]
    fn interest_changes_without_the_kernel() {
        let words = zeroed(size_of::<Readiness>() / 8);
        let mut ready = Ready::new(&words);
        ready.want(7);
        ready.unwant(7);
        assert_eq!(taken(&mut ready), []);
        assert!(ready.may_sleep());
        assert!(!hint(&words, 7), "who does not want it is not woken");
        ready.want(7);
        assert_eq!(taken(&mut ready), [7]);
    }

    #[test]
    fn one_hint_wakes_a_sleeper() {
        let words = zeroed(size_of::<Readiness>() / 8);
        let mut ready = Ready::new(&words);
        ready.want(1);
        ready.want(2);
        assert!(!ready.may_sleep());
        taken(&mut ready);
        assert!(ready.may_sleep());
        assert!(hint(&words, 1) && !hint(&words, 2));
        assert!(ready.end_sleep());
    }

    #[test]
    fn garbage_names_no_descriptor_that_was_not_wanted() {
        let words = zeroed(size_of::<Readiness>() / 8);
        let mut ready = Ready::new(&words);
        ready.want(5000);
        for word in &words[..SLEEPING] {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        for group in 0..READY_WORDS as usize {
            words[WORD + 2 * group].store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(taken(&mut ready), [5000]);
        assert!(taken(&mut Ready::new(zeroed(3))).is_empty());
    }
}
