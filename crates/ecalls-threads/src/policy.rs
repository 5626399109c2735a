//! The specialization layer (SA §3.2): which thread a virtual processor executes next.
//!
//! The runtime calls a policy from the scheduler of an activation that has a processor, and tells
//! it each thread that becomes ready, once. A thread that blocks is not told: it simply does not
//! come back until it can go on.

use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::biased::Biased;
use crate::spin::Spin;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::thread::Thread;

/// Why a thread is ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Why {
    /// A thread of the processor has created it.
    Created,
    /// A kernel thread outside of the runtime has created it.
    Started,
    /// It gave up its processor and could go on.
    Yielded,
    /// What it waited for has happened: a lock, a time, another thread's end.
    Woken,
    /// It comes back from blocking in the kernel (upcall `unblock`).
    Unblocked,
}

/// A thread that can run. A policy keeps it, and gives it back from `find_next_to_run`.
#[derive(Debug)]
pub struct Ready(pub(crate) Arc<Thread>);

impl Ready {
    /// The thread's number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The thread's priority; more is more important.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.0.priority.load(Ordering::Relaxed)
    }

    /// The thread's deadline (CLOCK_MONOTONIC, ns); `None`: it has none.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        let deadline_ns = self.0.deadline_ns.load(Ordering::Relaxed);
        (deadline_ns != 0).then_some(deadline_ns)
    }
}

/// The virtual processor whose scheduler runs. Only the runtime makes one, and one at a time for
/// each processor, so what a policy keeps for a processor has one user.
#[derive(Debug)]
pub struct Processor<'a> {
    index: usize,
    /// Differs between runtimes.
    runtime: usize,
    _one_at_a_time: PhantomData<&'a mut ()>,
}

impl Processor<'_> {
    pub(crate) fn new(index: usize, runtime: usize) -> Self {
        Self {
            index,
            runtime,
            _one_at_a_time: PhantomData,
        }
    }

    /// Its number, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }
}

/// Which thread runs next.
pub trait Policy: Debug + Send + Sync + 'static {
    /// `thread` can run, and this processor's scheduler heard of it.
    fn ready(&self, at: &mut Processor<'_>, thread: Ready, why: Why);

    /// The thread that `at` executes next; `None`: none is ready.
    fn find_next_to_run(&self, at: &mut Processor<'_>) -> Option<Ready>;

    /// `thread` yields: `ready`, and then `find_next_to_run`, for policies that do both at once.
    fn yielded(&self, at: &mut Processor<'_>, thread: Ready) -> Option<Ready> {
        self.ready(at, thread, Why::Yielded);
        self.find_next_to_run(at)
    }

    /// The same after `find_next_to_run` has found none, among the threads of other processors.
    fn take_from_others(&self, _: &mut Processor<'_>) -> Option<Ready> {
        None
    }

    /// Whether `ready`, `yielded` and `find_next_to_run` use no thread-local storage, and so
    /// allocate nothing, once a thread is where another processor could find it. Then a thread that
    /// yields to one of its own processor saves a change of storage.
    fn keeps_off_storage(&self) -> bool {
        false
    }

    /// Whether `find_next_to_run` would find one for that processor. Anybody may call it at any
    /// time, so the answer may be outdated; but once a thread is `ready`, it is true until some
    /// processor has found the thread.
    fn waits(&self, processor: usize) -> bool;
}

/// The default: each processor has a queue; a thread that becomes ready is its last, except that a
/// thread that was just created is the next, since what its creator has written is in the cache.
/// Those that were created outside of the runtime begin in that order, as kernel threads do.
/// A processor without threads takes half of another one's.
#[derive(Debug)]
pub struct RoundRobin {
    queues: Box<[Queue]>,
    /// The runtime that uses it; 0: none yet.
    runtime: AtomicUsize,
}

#[derive(Debug)]
#[repr(align(128))]
struct Queue {
    threads: Biased<Threads>,
    /// Number of threads in it, for others.
    length: AtomicU32,
}

#[derive(Debug, Default)]
struct Threads {
    next: Option<Ready>,
    queue: VecDeque<Ready>,
    /// How often in a row `next` came before the queue.
    jumped: u32,
}

/// Created threads go before waiting ones at most so often in a row.
const JUMPS_MAX: u32 = 32;

impl Threads {
    fn push(&mut self, thread: Ready, why: Why) {
        if why != Why::Created {
            self.queue.push_back(thread);
        } else if let Some(before) = self.next.replace(thread) {
            self.queue.push_back(before);
        }
    }

    fn pop(&mut self) -> Option<Ready> {
        let may_jump = self.jumped < JUMPS_MAX || self.queue.is_empty();
        if may_jump && let Some(next) = self.next.take() {
            self.jumped += 1;
            return Some(next);
        }
        self.jumped = 0;
        self.queue.pop_front()
    }

    fn length(&self) -> u32 {
        let next = usize::from(self.next.is_some());
        u32::try_from(self.queue.len() + next).unwrap_or(u32::MAX)
    }
}

impl RoundRobin {
    /// For so many processors.
    #[must_use]
    pub fn new(processors: usize) -> Self {
        let queue = |_| Queue {
            threads: Biased::new(Threads::default()),
            length: AtomicU32::new(0),
        };
        Self {
            queues: (0..processors).map(queue).collect(),
            runtime: AtomicUsize::new(0),
        }
    }

    fn own<R>(&self, at: &mut Processor<'_>, use_it: impl FnOnce(&mut Threads) -> R) -> R {
        self.use_own(at, |threads, length| {
            let result = use_it(threads);
            length.store(threads.length(), Ordering::Relaxed);
            result
        })
    }

    /// The same for a use that leaves as many threads there as it has found.
    #[inline]
    fn use_own<R>(
        &self,
        at: &mut Processor<'_>,
        use_it: impl FnOnce(&mut Threads, &AtomicU32) -> R,
    ) -> R {
        let queue = &self.queues[at.index()];
        if self.runtime.load(Ordering::Relaxed) != at.runtime {
            let first = self
                .runtime
                .compare_exchange(0, at.runtime, Ordering::Relaxed, Ordering::Relaxed)
                .unwrap_or_else(|other| other);
            assert!(
                first == 0 || first == at.runtime,
                "one RoundRobin serves one runtime"
            );
        }
        // SAFETY: `at` is the only one of its processor (see `Processor`) in the only runtime, and
        // its activations follow each other by words that synchronize (processor.rs).
        unsafe { queue.threads.own(|threads| use_it(threads, &queue.length)) }
    }
}

impl Policy for RoundRobin {
    fn ready(&self, at: &mut Processor<'_>, thread: Ready, why: Why) {
        self.own(at, |threads| threads.push(thread, why));
    }

    fn find_next_to_run(&self, at: &mut Processor<'_>) -> Option<Ready> {
        self.own(at, Threads::pop)
    }

    fn yielded(&self, at: &mut Processor<'_>, thread: Ready) -> Option<Ready> {
        self.use_own(at, |threads, _| {
            if threads.next.is_some() {
                threads.queue.push_back(thread);
                return threads.pop();
            }
            // As many as before wait then.
            threads.jumped = 0;
            let Some(first) = threads.queue.pop_front() else {
                return Some(thread);
            };
            threads.queue.push_back(thread);
            Some(first)
        })
    }

    /// Half of the threads of the next processor that has any.
    fn take_from_others(&self, at: &mut Processor<'_>) -> Option<Ready> {
        let count = self.queues.len();
        for from in (1..count).map(|step| (at.index() + step) % count) {
            let queue = &self.queues[from];
            if queue.length.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let taken = queue.threads.visit(|threads| {
                let half = threads.queue.len().div_ceil(2);
                let mut taken: VecDeque<_> = threads.queue.drain(..half).collect();
                if taken.is_empty() {
                    taken.extend(threads.next.take());
                }
                queue.length.store(threads.length(), Ordering::Relaxed);
                taken
            });
            let Some(mut taken) = taken else { continue };
            let first = taken.pop_front();
            if first.is_some() {
                self.own(at, |threads| threads.queue.append(&mut taken));
                return first;
            }
        }
        None
    }

    fn keeps_off_storage(&self) -> bool {
        true
    }

    fn waits(&self, processor: usize) -> bool {
        let queue = &self.queues[processor];
        queue.length.load(Ordering::Relaxed) > 0
    }
}

/// The most important first: by earliest deadline, those without one by priority; of equal ones the
/// one that has waited longest. One list for all processors.
#[derive(Debug, Default)]
pub struct Ranked {
    threads: Spin<BinaryHeap<Rank>>,
    count: AtomicU64,
    arrivals: AtomicU64,
}

#[derive(Debug)]
struct Rank {
    /// Earliest deadline first, then the highest priority, then the first to come.
    order: (u64, std::cmp::Reverse<u32>, u64),
    thread: Ready,
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    /// The heap's greatest is the one to run.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.order.cmp(&self.order)
    }
}

impl Policy for Ranked {
    fn ready(&self, _: &mut Processor<'_>, thread: Ready, _: Why) {
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed);
        let deadline_ns = thread.deadline_ns().unwrap_or(u64::MAX);
        let order = (deadline_ns, std::cmp::Reverse(thread.priority()), arrival);
        self.threads.lock().push(Rank { order, thread });
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn find_next_to_run(&self, _: &mut Processor<'_>) -> Option<Ready> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let found = self.threads.lock().pop()?;
        self.count.fetch_sub(1, Ordering::SeqCst);
        Some(found.thread)
    }

    fn waits(&self, _: usize) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }
}
