//! With the kernel side: threads that block in whatever they like. Needs root, and no core.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ecalls_threads::{
    KernelSide, Mutex, Runtime, Semaphore, scheduling_point, sleep, spawn, yield_now,
};

/// A runtime with the kernel side; `None`: this test cannot run here, and says why.
fn runtime(processors: usize) -> Option<Runtime> {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        println!("not run: it needs root, and ECALLS_TEST_ROOT=1");
        return None;
    }
    let builder = Runtime::builder().processors(processors);
    Some(
        builder
            .kernel(KernelSide::Required)
            .start()
            .expect("the kernel side"),
    )
}

#[test]
fn any_system_call_that_blocks_gives_up_the_processor() {
    let Some(runtime) = runtime(1) else { return };
    let (mut reader, mut writer) = UnixStream::pair().unwrap();
    let reads = runtime
        .spawn(move || {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            scheduling_point();
            byte[0]
        })
        .unwrap();
    // If the reader had the only processor, nobody would write.
    let writes = runtime
        .spawn(move || {
            sleep(Duration::from_millis(20));
            writer.write_all(&[7]).unwrap();
        })
        .unwrap();
    writes.join().unwrap();
    assert_eq!(reads.join().unwrap(), 7);
    assert!(runtime.stats().told > 0, "{runtime:?}");
}

/// SA §3.1: the number of running activations does not exceed the processors.
#[test]
fn one_thread_at_a_time_runs_between_scheduling_points() {
    let Some(runtime) = runtime(1) else { return };
    let (inside, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
            runtime
                .spawn(move || {
                    for _ in 0..100 {
                        std::thread::sleep(Duration::from_micros(200));
                        scheduling_point();
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        (0..2000).for_each(|_| std::hint::spin_loop());
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                })
                .unwrap()
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let stats = runtime.stats();
    // The kernel may stop a thread while it is inside, for another process, or because it blocks in
    // a page fault: then, and only then, a second one is inside at the same time.
    let stopped = most.load(Ordering::SeqCst) - 1;
    assert!(stopped <= 1, "{stopped} more than the processor; {stats:?}");
    assert!(stats.told > 800, "{stats:?}");
}

#[test]
fn threads_that_all_block_come_back_when_they_can() {
    let Some(runtime) = runtime(2) else { return };
    let start = Instant::now();
    let threads: Vec<_> = (0..100)
        .map(|_| {
            runtime
                .spawn(|| {
                    std::thread::sleep(Duration::from_millis(300));
                    scheduling_point();
                })
                .unwrap()
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    // A processor whose threads block one after the other would take 15 s.
    assert!(start.elapsed() < Duration::from_secs(10), "{runtime:?}");
}

#[test]
fn at_the_limit_a_block_blocks_its_processor_and_is_counted() {
    if runtime(1).is_none() {
        return;
    }
    let builder = Runtime::builder().processors(1).activations_max(3);
    let runtime = builder.kernel(KernelSide::Required).start().unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            runtime
                .spawn(|| {
                    std::thread::sleep(Duration::from_millis(10));
                    scheduling_point();
                })
                .unwrap()
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let stats = runtime.stats();
    assert!(stats.activations <= 3 && stats.untold > 0, "{stats:?}");
}

/// Blocks, yields, locks and sleeps at once, on several processors, while threads outside wake
/// some.
#[test]
fn everything_at_once_ends() {
    let Some(runtime) = runtime(2) else { return };
    let lock = Arc::new(Mutex::new(0_u64));
    let outside = Arc::new(Semaphore::new(0));
    let end = Arc::new(AtomicBool::new(false));
    let releaser = {
        let (outside, end) = (Arc::clone(&outside), Arc::clone(&end));
        std::thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                outside.release();
                std::thread::sleep(Duration::from_micros(50));
            }
        })
    };
    let threads: Vec<_> = (1..=60_u64)
        .map(|seed| {
            let (lock, outside) = (Arc::clone(&lock), Arc::clone(&outside));
            runtime
                .spawn(move || {
                    let mut random = seed;
                    for _ in 0..60 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
                        match random >> 60 {
                            0..=2 => yield_now(),
                            3..=6 => std::thread::sleep(Duration::from_micros(random >> 54 & 63)),
                            7 => sleep(Duration::from_micros(random >> 50 & 255)),
                            8..=10 => outside.acquire(),
                            11..=13 => *lock.lock() += 1,
                            _ => {
                                let lock = Arc::clone(&lock);
                                spawn(move || *lock.lock() += 1).join().unwrap();
                            }
                        }
                    }
                })
                .unwrap()
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    end.store(true, Ordering::SeqCst);
    releaser.join().unwrap();
}

/// The processor's holder neither sees that nor lets a spare look before it blocks.
#[test]
fn a_thread_created_from_outside_runs_once_the_only_one_blocks() {
    let Some(runtime) = runtime(1) else { return };
    for _ in 0..20 {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let steps = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&steps);
        let blocks = runtime.spawn(move || {
            seen.store(1, Ordering::SeqCst);
            while seen.load(Ordering::SeqCst) == 1 {}
            reader.read_exact(&mut [0]).unwrap();
            scheduling_point();
        });
        while steps.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let other = runtime.spawn(move || writer.write_all(&[1]).unwrap());
        steps.store(2, Ordering::SeqCst);
        other.unwrap().join().unwrap();
        blocks.unwrap().join().unwrap();
    }
}
