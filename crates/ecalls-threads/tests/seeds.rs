//! Everything at once, by seeds. What each thread does is made of the seed, which is printed, so
//! `ECALLS_SEED=N` does the same again.
//!
//! When threads come back from the kernel is the kernel's: with blocks and time, or on several
//! processors, a seed repeats what the threads do, but not their order. Without these the policy
//! alone decides, and a seed repeats the whole run; the second test shows that. Orders that only
//! several processors have are those of tests/model.rs, which explores them all.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use ecalls_threads::{
    Builder, Condvar, KernelSide, Mutex, Ranked, Runtime, Semaphore, blocking, current, sleep,
    spawn, yield_now,
};

const THREADS: u64 = 60;
const STEPS: u64 = 40;

/// The seeds of a test: five, or with `ECALLS_NIGHTLY` 200, from `ECALLS_SEED` on.
fn seeds() -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("ECALLS_SEED").unwrap_or(0);
    let count = if std::env::var_os("ECALLS_NIGHTLY").is_some() {
        200
    } else {
        5
    };
    (first..first + count).inspect(|seed| println!("ECALLS_SEED={seed}"))
}

/// The random numbers of a thread.
struct Random(u64);

impl Random {
    fn of(seed: u64, thread: u64) -> Self {
        Self(
            (seed << 16)
                .wrapping_add(thread)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                | 1,
        )
    }

    /// Below 2^`bits`.
    fn next(&mut self, bits: u32) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.0 >> (64 - bits)
    }
}

/// All of it at once: yields, blocks, sleeps, locks, and threads that create threads.
#[test]
fn everything_at_once_ends() {
    for seed in seeds() {
        let body = move || {
            let lock = Arc::new(Mutex::new(0_u64));
            let threads = (0..THREADS).map(|thread| {
                let (mut random, lock) = (Random::of(seed, thread), Arc::clone(&lock));
                spawn(move || (0..STEPS).for_each(|_| step(&mut random, &lock)))
            });
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .filter_map(|one| one.join().ok())
                .count()
        };
        let done = Runtime::builder().processors(2).run(body);
        assert_eq!(done.expect("a runtime"), THREADS as usize);
    }
}

fn step(random: &mut Random, lock: &Arc<Mutex<u64>>) {
    match random.next(4) {
        0..=3 => yield_now(),
        4..=6 => {
            let us = random.next(6);
            blocking(|| std::thread::sleep(Duration::from_micros(us)));
        }
        7..=8 => sleep(Duration::from_micros(random.next(8))),
        9..=12 => *lock.lock() += 1,
        13 => blocking(|| ()),
        _ => {
            let lock = Arc::clone(lock);
            spawn(move || *lock.lock() += 1).join().expect("no panic");
        }
    }
}

/// What threads of one processor use together, and the order in which they did something.
struct World {
    lock: Mutex<u64>,
    changed: Condvar,
    permits: Semaphore,
    order: StdMutex<Vec<(u64, u64)>>,
}

impl World {
    fn note(&self, thread: u64, step: u64) {
        self.order.lock().expect("no panic").push((thread, step));
    }

    fn step(self: &Arc<Self>, thread: u64, step: u64, random: &mut Random) {
        match random.next(3) {
            0 => yield_now(),
            1 => {
                let mut guard = self.lock.lock();
                if random.next(1) == 0 {
                    yield_now();
                }
                *guard += 1;
                self.changed.notify_one();
            }
            2 => {
                let guard = self.lock.lock();
                // The one who waits last is woken by those that have ended.
                if *guard % 2 == 1 {
                    drop(self.changed.wait(guard));
                }
            }
            3 => {
                self.permits.acquire();
                yield_now();
                self.permits.release();
            }
            4 => {
                if let Some(current) = current() {
                    current.set_priority(u32::try_from(random.next(3)).unwrap_or(0));
                }
            }
            _ => {
                let world = Arc::clone(self);
                spawn(move || world.note(thread, step))
                    .join()
                    .expect("no panic");
            }
        }
        self.note(thread, step);
    }
}

/// The order of a seed's run on one processor.
fn order(seed: u64, builder: Builder) -> Vec<(u64, u64)> {
    let run = builder
        .processors(1)
        .kernel(KernelSide::Never)
        .run(move || {
            let world = Arc::new(World {
                lock: Mutex::new(0),
                changed: Condvar::new(),
                permits: Semaphore::new(2),
                order: StdMutex::new(Vec::new()),
            });
            let threads = (0..THREADS).map(|thread| {
                let (mut random, world) = (Random::of(seed, thread), Arc::clone(&world));
                spawn(move || (0..STEPS).for_each(|step| world.step(thread, step, &mut random)))
            });
            let threads: Vec<_> = threads.collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                world.changed.notify_all();
                yield_now();
            }
            std::mem::take(&mut *world.order.lock().expect("no panic"))
        });
    run.expect("a runtime")
}

#[test]
fn on_one_processor_a_seed_repeats_its_run() {
    let mut former = Vec::new();
    for seed in seeds() {
        for make in [Runtime::builder, || {
            Runtime::builder().policy(Ranked::default())
        }] {
            let first = order(seed, make());
            assert!(first.len() >= usize::try_from(THREADS * STEPS).unwrap_or(0));
            assert!(first == order(seed, make()), "seed {seed}");
            assert!(first != former, "seed {seed} differs from others");
            former = first;
        }
    }
}
