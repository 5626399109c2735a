//! What programs rely on, without a kernel side: any kernel, any user.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ecalls_threads::park::{park, unpark};
use ecalls_threads::{
    Condvar, Error, Interest, KernelSide, Mutex, Ranked, Runtime, Semaphore, blocking, current,
    sleep, spawn, wait_ready, wait_ready_for, yield_now,
};

#[test]
fn threads_return_their_results_and_their_panics() {
    let (sum, panic) = Runtime::builder()
        .processors(2)
        .run(|| {
            let threads: Vec<_> = (0..100_u64).map(|i| spawn(move || i)).collect();
            let sum: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
            let panic = spawn(|| panic!("expected")).join().unwrap_err();
            (sum, *panic.downcast_ref::<&str>().unwrap())
        })
        .unwrap();
    assert_eq!((sum, panic), (4950, "expected"));
}

#[test]
fn a_processor_runs_others_while_one_blocks() {
    let stats = Runtime::builder().processors(1).start().unwrap();
    let crowd = Arc::new(Crowd::default());
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let crowd = Arc::clone(&crowd);
            let wait = move || crowd.with(|| std::thread::sleep(Duration::from_millis(200)));
            stats.spawn(|| blocking(wait)).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(crowd.most() > 1, "{stats:?}");
}

/// How many do something at the same time. A busy machine has fewer of them, and never only one
/// unless each waits for the one before it.
#[derive(Default)]
struct Crowd {
    now: AtomicU64,
    most: AtomicU64,
}

impl Crowd {
    fn with(&self, act: impl FnOnce()) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        act();
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

/// Programs rely on it, since kernel threads do so: the first one sets up what the second one uses.
#[test]
fn threads_that_are_created_outside_begin_in_that_order() {
    let runtime = Runtime::builder().processors(1).start().unwrap();
    let (began, may_end) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (tells, waits) = (Arc::clone(&began), Arc::clone(&may_end));
    let first = runtime
        .spawn(move || {
            tells.store(true, Ordering::SeqCst);
            while !waits.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        })
        .unwrap();
    while !began.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..10)
        .map(|i| {
            let order = Arc::clone(&order);
            runtime.spawn(move || order.lock().push(i)).unwrap()
        })
        .collect();
    may_end.store(true, Ordering::SeqCst);
    first.join().unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*order.lock(), (0..10).collect::<Vec<_>>());
}

/// Whatever it does in a call, and without a processor: what it waits for is waited for there.
#[test]
fn a_thread_in_a_call_stays_in_its_kernel_thread() {
    Runtime::builder()
        .processors(1)
        .run(|| {
            let (mutex, turns) = (Arc::new(Mutex::new(())), Arc::new(AtomicU64::new(0)));
            let ends = Arc::new(AtomicBool::new(false));
            let (counted, told) = (Arc::clone(&turns), Arc::clone(&ends));
            let other = spawn(move || {
                while !told.load(Ordering::Relaxed) {
                    counted.fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
            });
            let held = mutex.lock();
            let waits = Arc::clone(&mutex);
            let thread = spawn(move || {
                blocking(|| {
                    let mut tids = vec![rustix::thread::gettid()];
                    drop(waits.lock());
                    tids.push(rustix::thread::gettid());
                    sleep(Duration::from_millis(1));
                    tids.push(rustix::thread::gettid());
                    yield_now();
                    spawn(|| ()).join().expect("no panic");
                    tids.push(rustix::thread::gettid());
                    tids.dedup();
                    assert_eq!(tids.len(), 1);
                });
            });
            sleep(Duration::from_millis(5));
            let before = turns.load(Ordering::Relaxed);
            sleep(Duration::from_millis(5));
            assert!(turns.load(Ordering::Relaxed) > before);
            drop(held);
            thread.join().expect("no panic");
            ends.store(true, Ordering::Relaxed);
            other.join().expect("no panic");
        })
        .unwrap();
}

#[test]
fn threads_sleep_side_by_side() {
    let (start, crowd) = (Instant::now(), Arc::new(Crowd::default()));
    let asleep = Arc::clone(&crowd);
    Runtime::builder()
        .processors(2)
        .run(move || {
            let threads: Vec<_> = (0..1000_u64)
                .map(|i| {
                    let asleep = Arc::clone(&asleep);
                    spawn(move || asleep.with(|| sleep(Duration::from_millis(50 + i % 50))))
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
        })
        .unwrap();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(99), "{took:?}");
    assert!(crowd.most() > 10, "{} at once", crowd.most());
}

#[test]
fn a_mutex_excludes_and_every_waiter_gets_it() {
    let total = Runtime::builder()
        .processors(2)
        .run(|| {
            let count = Arc::new(Mutex::new(0_u64));
            let threads: Vec<_> = (0..50)
                .map(|_| {
                    let count = Arc::clone(&count);
                    spawn(move || {
                        for _ in 0..200 {
                            let mut held = count.lock();
                            let seen = *held;
                            yield_now();
                            *held = seen + 1;
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            *count.lock()
        })
        .unwrap();
    assert_eq!(total, 10_000);
}

#[test]
fn a_condition_wakes_and_times_out() {
    Runtime::builder()
        .processors(2)
        .run(|| {
            let pair = Arc::new((Mutex::new(false), Condvar::new()));
            let (lock, condvar) = &*pair;
            let (guard, in_time) = condvar.wait_for(lock.lock(), Duration::from_millis(10));
            assert!(!in_time && !*guard);
            drop(guard);
            let waker = Arc::clone(&pair);
            let thread = spawn(move || {
                sleep(Duration::from_millis(5));
                *waker.0.lock() = true;
                waker.1.notify_all();
            });
            let mut guard = lock.lock();
            while !*guard {
                guard = condvar.wait(guard);
            }
            thread.join().unwrap();
        })
        .unwrap();
}

#[test]
fn a_semaphore_limits_and_times_out() {
    Runtime::builder()
        .processors(2)
        .run(|| {
            let semaphore = Arc::new(Semaphore::new(3));
            let (inside, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let threads: Vec<_> = (0..40)
                .map(|_| {
                    let (semaphore, inside, most) = (
                        Arc::clone(&semaphore),
                        Arc::clone(&inside),
                        Arc::clone(&most),
                    );
                    spawn(move || {
                        for _ in 0..20 {
                            semaphore.acquire();
                            most.fetch_max(
                                inside.fetch_add(1, Ordering::SeqCst) + 1,
                                Ordering::SeqCst,
                            );
                            yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            semaphore.release();
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert!(most.load(Ordering::SeqCst) <= 3);
            assert_eq!(semaphore.permits(), 3);
            for _ in 0..3 {
                semaphore.acquire();
            }
            assert!(!semaphore.acquire_for(Duration::from_millis(5)));
        })
        .unwrap();
}

#[test]
fn threads_wait_for_descriptors_without_an_activation_each() {
    // The kernel side would tell other blocks, too, e.g. in page faults.
    let builder = Runtime::builder().processors(1);
    let runtime = builder.kernel(KernelSide::Never).start().unwrap();
    let mut writers = Vec::new();
    let timed_out = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..200_u8)
        .map(|number| {
            let (mut reader, writer) = UnixStream::pair().unwrap();
            writers.push(writer);
            let timed_out = Arc::clone(&timed_out);
            let thread = runtime.spawn(move || {
                // Two threads wait for the same descriptor.
                let other = reader.try_clone().unwrap();
                let writes = spawn(move || wait_ready(&other, Interest::Write));
                let is_ready = wait_ready_for(&reader, Interest::Read, Duration::from_millis(1));
                assert!(!is_ready.unwrap(), "nobody has written");
                timed_out.fetch_add(1, Ordering::SeqCst);
                writes.join().unwrap().unwrap();
                wait_ready(&reader, Interest::Read).unwrap();
                let mut byte = [0];
                reader.read_exact(&mut byte).unwrap();
                assert_eq!(byte[0], number);
            });
            thread.unwrap()
        })
        .collect();
    // All of them wait.
    let start = Instant::now();
    while timed_out.load(Ordering::SeqCst) < 200 {
        assert!(start.elapsed() < Duration::from_secs(60), "{runtime:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    for (mut writer, number) in writers.into_iter().zip(0..) {
        writer.write_all(&[number]).unwrap();
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(runtime.stats().activations < 10, "{runtime:?}");
}

#[test]
fn a_descriptor_is_waited_for_beside_threads_that_compute() {
    for processors in [1, 2] {
        let runtime = Runtime::builder().processors(processors).start().unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let computing: Vec<_> = (0..3)
            .map(|_| {
                let end = Arc::clone(&end);
                let compute = move || {
                    while !end.load(Ordering::SeqCst) {
                        yield_now();
                    }
                };
                runtime.spawn(compute).unwrap()
            })
            .collect();
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let thread = runtime
            .spawn(move || wait_ready(&reader, Interest::Read))
            .unwrap();
        std::thread::sleep(Duration::from_millis(5));
        writer.write_all(&[1]).unwrap();
        thread.join().unwrap().unwrap();
        end.store(true, Ordering::SeqCst);
        computing
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let ready = Runtime::builder().run(move || wait_ready(&file, Interest::Read));
    ready.unwrap().expect("a file is always ready");
}

/// Whoever sleeps for all threads learns of an earlier time, whatever a thread waits in.
#[test]
fn a_short_wait_is_short_beside_a_long_sleep() {
    Runtime::builder()
        .processors(1)
        .run(|| {
            let sleeper = spawn(|| sleep(Duration::from_secs(2)));
            yield_now();
            // The processor idles once, and the sleeper's time is kept.
            sleep(Duration::from_millis(20));
            let start = Instant::now();
            assert!(!Semaphore::new(0).acquire_for(Duration::from_millis(20)));
            let lock = Mutex::new(());
            let (_, in_time) = Condvar::new().wait_for(lock.lock(), Duration::from_millis(20));
            assert!(!in_time);
            let took = start.elapsed();
            assert!(!sleeper.is_finished(), "they were as long: {took:?}");
            sleeper.join().unwrap();
        })
        .unwrap();
}

#[test]
fn kernel_threads_outside_wait_for_threads() {
    let runtime = Runtime::builder().processors(1).start().unwrap();
    let semaphore = Arc::new(Semaphore::new(0));
    let inside = Arc::clone(&semaphore);
    let thread = runtime
        .spawn(move || {
            assert!(current().is_some());
            inside.acquire();
            sleep(Duration::from_millis(5));
            7
        })
        .unwrap();
    assert!(current().is_none() && !thread.is_finished());
    semaphore.release();
    assert_eq!(thread.join().unwrap(), 7);
}

#[test]
fn the_most_important_thread_runs_first() {
    let order = Runtime::builder()
        .processors(1)
        .policy(Ranked::default())
        .run(|| {
            let order = Arc::new(Mutex::new(Vec::new()));
            let gate = Arc::new(Semaphore::new(0));
            let threads: Vec<_> = [3, 1, 4, 1, 5]
                .map(|priority| {
                    let (order, gate) = (Arc::clone(&order), Arc::clone(&gate));
                    spawn(move || {
                        current().unwrap().set_priority(priority);
                        gate.acquire();
                        order.lock().push(priority);
                    })
                })
                .into_iter()
                .collect();
            yield_now();
            (0..5).for_each(|_| gate.release());
            threads.into_iter().for_each(|t| t.join().unwrap());
            order.lock().clone()
        })
        .unwrap();
    assert_eq!(order, [5, 4, 3, 1, 1]);
}

#[test]
fn a_wrong_parameter_is_named() {
    let error = Runtime::builder().processors(0).start().unwrap_err();
    assert!(
        matches!(
            error,
            Error::Invalid {
                what: "processors",
                ..
            }
        ),
        "{error}"
    );
}

/// What is called in `blocking` can wait in the runtime itself, and go on in another activation.
#[test]
fn a_call_that_may_block_may_wait_in_the_runtime() {
    let done = Runtime::builder().processors(2).run(|| {
        let threads = (0..20).map(|_| {
            spawn(|| (0..20).for_each(|_| blocking(|| sleep(Duration::from_micros(300)))))
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().is_ok())
            .collect::<Vec<_>>()
    });
    assert_eq!(done.expect("it ends"), [true; 20]);
}

/// A lock of one word and nothing else.
#[test]
fn a_lock_without_a_list_parks_by_its_address() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let lock = || {
        while WORD.swap(1, Ordering::SeqCst) != 0 {
            park(WORD.as_ptr().addr(), None, || {
                WORD.load(Ordering::SeqCst) == 0
            });
        }
    };
    let unlock = || {
        WORD.swap(0, Ordering::SeqCst);
        unpark(WORD.as_ptr().addr(), 1);
    };
    static SUM: AtomicU32 = AtomicU32::new(0);
    let runtime = Runtime::builder().processors(2).start().expect("a runtime");
    let body = move || {
        for _ in 0..100 {
            lock();
            let before = SUM.load(Ordering::Relaxed);
            yield_now();
            SUM.store(before + 1, Ordering::Relaxed);
            unlock();
        }
    };
    let threads: Vec<_> = (0..20)
        .map(|_| runtime.spawn(body).expect("a thread"))
        .collect();
    // A kernel thread takes part.
    body();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(SUM.load(Ordering::Relaxed), 2_100);
    let until_ns = Some(1);
    assert!(
        !park(WORD.as_ptr().addr(), until_ns, || false),
        "the time has come"
    );
}

/// A backtrace that went on in the scheduler's stack would read what another thread changes.
#[test]
fn a_backtrace_ends_where_the_thread_began() {
    let frames = Runtime::builder().processors(1).run(|| {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        // A panic unwinds no further, either.
        let panicked = std::panic::catch_unwind(|| std::panic::panic_any(1_u8));
        assert!(panicked.is_err());
        trace
    });
    let frames = frames.expect("it ends");
    assert!(frames.contains("a_backtrace_ends"), "{frames}");
    assert!(!frames.contains("activation::Activation"), "{frames}");
}

/// Whatever a thread's activation has in its registers, a kernel thread that it creates inherits.
#[test]
fn a_kernel_thread_that_a_thread_creates_is_outside_of_the_runtime() {
    for own_storage in [true, false] {
        let builder = Runtime::builder().processors(1).own_storage(own_storage);
        let ran = builder.run(|| {
            let mutex = Arc::new(Mutex::new(0));
            let inner = Arc::clone(&mutex);
            let created = std::thread::spawn(move || {
                let is_outside = current().is_none();
                for _ in 0..100 {
                    *inner.lock() += 1;
                    yield_now();
                    sleep(Duration::from_micros(10));
                }
                is_outside
            });
            for _ in 0..100 {
                *mutex.lock() += 1;
                yield_now();
            }
            let is_outside = blocking(|| created.join()).expect("no panic");
            (is_outside, *mutex.lock())
        });
        assert_eq!(ran.expect("it ends"), (true, 200));
    }
}
