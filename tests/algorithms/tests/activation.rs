//! Both sides of a virtual processor in one simulation: what the kernel side does when an
//! activation blocks (bpf/lib/activation.h), and the words of the runtime (processor.rs of
//! ecalls-threads), from the sources that run elsewhere. Activations take their steps in a random
//! order; after each step the rules of SA §3.1 and §4.2 must hold.

#![allow(
    unsafe_code,
    reason = "the words of the runtime lie in the memory of the C side, and its list has pointers"
)]

#[path = "../../../crates/ecalls-threads/src/processor.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod processor;

mod sync {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
}

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::Arc;

use algorithms::full;
use ecalls_abi::activation::{ACTIVATIONS_MAX, Activation, Activations, PROCESSORS_MAX, Processor};
use processor::{Linked, Unblocked, Words};
use proptest::prelude::*;
use sync::{AtomicPtr, Ordering};

/// Aligned as a page is.
#[repr(C, align(64))]
struct Aligned(UnsafeCell<Activations>);

/// The shared page.
struct Page(Box<Aligned>);

impl Page {
    fn new() -> Self {
        let (processor, activation) = (
            Processor {
                active: 0,
                spares: 0,
                told: 0,
                untold: 0,
                pad: [0; 5],
            },
            Activation {
                lock: 0,
                processor: 0,
            },
        );
        Self(Box::new(Aligned(UnsafeCell::new(Activations {
            processor: [processor; PROCESSORS_MAX as usize],
            activation: [activation; ACTIVATIONS_MAX as usize],
        }))))
    }

    fn cell(&self) -> &UnsafeCell<Activations> {
        &self.0.0
    }

    /// A processor's words, as the runtime uses them.
    fn words(&self, processor: usize) -> &Words {
        assert!(processor < PROCESSORS_MAX as usize);
        let first = std::ptr::from_ref(&*self.0).cast::<Words>();
        // SAFETY: the processors come first, and each is of atomics of the same size (page.rs).
        unsafe { &*first.wrapping_add(processor) }
    }

    fn set(&self, number: usize, activation: Activation) {
        // SAFETY: there is one thread, and no reference to the activations.
        unsafe { (*self.cell().get()).activation[number] = activation };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits for its processor.
    Spare,
    /// It has it: the lock is set.
    Schedules,
    /// Its thread runs.
    Runs,
    /// Its thread has blocked; whether the processor was taken from it.
    Blocked { told: bool },
    /// The same in the scheduler, by a page fault.
    Faults,
    /// Its thread came back, and has not reached a scheduling point.
    Returned { told: bool },
}

#[derive(Debug)]
struct One {
    state: State,
    processor: usize,
}

/// A thread that came back.
struct Thread(AtomicPtr<Thread>);

impl Linked for Thread {
    fn next(&self) -> &AtomicPtr<Self> {
        &self.0
    }
}

struct Machine {
    page: Page,
    /// By number; 0 is nobody.
    all: Vec<One>,
    unblocked: Vec<Unblocked<Thread>>,
    /// Threads that are ready.
    ready: usize,
    /// Blocks of a thread whose activation had the processor.
    blocks: u64,
    /// Steps for which threads may still block.
    blocks_left: u32,
}

impl Machine {
    /// As many threads as activations, none of which runs.
    fn new(processors: usize, activations: usize, blocks_left: u32) -> Self {
        let page = Page::new();
        let spare = |number: usize| One {
            state: State::Spare,
            processor: number % processors,
        };
        let all: Vec<_> = (0..=activations).map(spare).collect();
        for (number, one) in all.iter().enumerate().skip(1) {
            page.words(one.processor)
                .spares
                .fetch_add(1, Ordering::SeqCst);
            page.set(
                number,
                Activation {
                    lock: 1,
                    processor: one.processor as u32,
                },
            );
        }
        Self {
            page,
            unblocked: (0..processors).map(|_| Unblocked::new()).collect(),
            ready: activations,
            all,
            blocks: 0,
            blocks_left,
        }
    }

    fn lock(&self, number: usize, lock: u32) {
        let processor = self.all[number].processor as u32;
        self.page.set(number, Activation { lock, processor });
    }

    /// The kernel side sees that it blocks; the answer must be the one that the rules demand.
    fn block(&mut self, number: usize, is_locked: bool) -> bool {
        let words = self.page.words(self.all[number].processor);
        let has_it = words.active() == number as u32;
        let may = has_it && !is_locked && words.spares.load(Ordering::SeqCst) > 0;
        let told = full().activation_block(self.page.cell(), number as u32);
        assert_eq!(told, may, "activation {number}");
        self.blocks += u64::from(has_it);
        told
    }

    /// One step of an activation; `choice` decides between several.
    fn step(&mut self, number: usize, choice: u8) {
        let processor = self.all[number].processor;
        let me = number as u32;
        let may_block = self.blocks_left > 0 && choice % 2 == 1;
        let words = self.page.words(processor);
        let state = match self.all[number].state {
            State::Spare => {
                let has_work = self.ready > 0 || self.unblocked.iter().any(|list| !list.is_empty());
                match has_work && words.take_as_spare(me) {
                    true => State::Schedules,
                    false => State::Spare,
                }
            }
            State::Schedules if may_block && choice % 4 == 1 => {
                self.blocks_left -= 1;
                self.block(number, true);
                State::Faults
            }
            State::Faults => State::Schedules,
            State::Schedules => self.schedule(number),
            State::Runs if may_block => {
                self.blocks_left -= 1;
                let told = self.block(number, false);
                State::Blocked { told }
            }
            State::Runs => {
                self.lock(number, 1);
                assert_eq!(words.active(), me, "who runs has the processor");
                // The thread yields, or has ended.
                if self.blocks_left > 0 {
                    self.ready += 1;
                }
                State::Schedules
            }
            State::Blocked { told } => State::Returned { told },
            State::Returned { told } if may_block => {
                self.blocks_left -= 1;
                let told = self.block(number, false) || told;
                State::Blocked { told }
            }
            State::Returned { .. } => {
                self.lock(number, 1);
                if words.active() == me || words.take(me) {
                    self.lock(number, 0);
                    State::Runs
                } else {
                    words.add_spare();
                    let thread = Arc::new(Thread(AtomicPtr::new(null_mut())));
                    self.unblocked[processor].push(thread);
                    State::Spare
                }
            }
        };
        self.all[number].state = state;
    }

    fn schedule(&mut self, number: usize) -> State {
        let processor = self.all[number].processor;
        for list in &self.unblocked {
            list.take_all(|_| self.ready += 1);
        }
        if self.ready == 0 {
            self.page.words(processor).retire();
            return State::Spare;
        }
        self.ready -= 1;
        self.lock(number, 0);
        State::Runs
    }

    /// Whether an activation has its processor, as far as it knows itself.
    fn has(&self, number: usize) -> bool {
        match self.all[number].state {
            State::Schedules | State::Runs | State::Faults => true,
            State::Blocked { told } | State::Returned { told } => !told,
            State::Spare => false,
        }
    }

    fn check(&self) {
        let mut counted = 0;
        for processor in 0..self.unblocked.len() {
            let here = |number: &usize| self.all[*number].processor == processor;
            let all: Vec<usize> = (1..self.all.len()).filter(here).collect();
            let holders: Vec<u32> = all
                .iter()
                .filter(|number| self.has(**number))
                .map(|number| *number as u32)
                .collect();
            let words = self.page.words(processor);
            let active: Vec<u32> = Some(words.active())
                .into_iter()
                .filter(|one| *one != 0)
                .collect();
            assert_eq!(
                holders, active,
                "one activation has processor {processor}: {:?}",
                self.all
            );
            let is_spare = |number: &&usize| self.all[**number].state == State::Spare;
            let spares = all.iter().filter(is_spare).count();
            assert_eq!(words.spares.load(Ordering::SeqCst) as usize, spares);
            let (told, untold) = words.counts();
            counted += told + untold;
        }
        assert_eq!(counted, self.blocks, "each block is told or untold");
    }

    /// Nothing blocks any more: everything that waits gets its turn, and ends.
    fn drain(&mut self) {
        self.blocks_left = 0;
        for _ in 0..20 * self.all.len() {
            for number in 1..self.all.len() {
                self.step(number, 0);
                self.check();
            }
        }
        let all_wait = self.all.iter().skip(1).all(|one| one.state == State::Spare);
        assert!(
            all_wait && self.ready == 0,
            "{:?} {:?}",
            self.all,
            self.ready
        );
    }
}

proptest! {
    #[test]
    fn each_processor_has_one_activation_and_nobody_is_lost(
        processors in 1..4_usize,
        more in 1..5_usize,
        steps in prop::collection::vec((any::<u8>(), any::<u8>()), 1..600),
    ) {
        let activations = processors * (1 + more);
        let mut machine = Machine::new(processors, activations, u32::MAX);
        for (which, choice) in steps {
            machine.step(1 + usize::from(which) % activations, choice);
            machine.check();
        }
        machine.drain();
    }

    /// What a process writes is only its own word: any number is used within the page.
    #[test]
    fn any_words_change_nothing_but_one_processor(
        number in any::<u32>(),
        processor in any::<u32>(),
        lock in prop_oneof![Just(0), any::<u32>()],
        other in prop_oneof![Just(None), any::<u32>().prop_map(Some)],
        spares in prop_oneof![Just(0), any::<u32>()],
    ) {
        let active = other.unwrap_or(number);
        let page = Page::new();
        let index = (processor % PROCESSORS_MAX) as usize;
        page.set((number % ACTIVATIONS_MAX) as usize, Activation { lock, processor });
        let words = page.words(index);
        words.active.store(active, Ordering::SeqCst);
        words.spares.store(spares, Ordering::SeqCst);
        let told = full().activation_block(page.cell(), number);
        prop_assert_eq!(told, active == number && lock == 0 && spares > 0);
        prop_assert_eq!(words.active(), if told { 0 } else { active });
        let counts = (u64::from(told), u64::from(active == number && !told));
        prop_assert_eq!(words.counts(), counts);
        for other in (0..PROCESSORS_MAX as usize).filter(|other| *other != index) {
            let words = page.words(other);
            prop_assert_eq!((words.active(), words.counts()), (0, (0, 0)));
        }
    }
}
