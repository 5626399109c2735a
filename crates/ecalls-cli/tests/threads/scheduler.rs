//! Threads with the kernel side go on while the scheduler beneath them is started, stopped, ended
//! by the kernel and killed. Needs sched_ext, so it runs in the test machine; nothing here depends
//! on how fast that is.

use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread as kernel_thread;
use std::time::{Duration, Instant};

use ecalls_kernel::scheduler;
use ecalls_threads::{
    JoinHandle, KernelSide, Mutex, Runtime, Semaphore, scheduling_point, sleep, yield_now,
};
use limit::Running;

/// In which each thread must go on: a switch between schedulers takes a second.
const PATIENCE: Duration = Duration::from_secs(120);
/// Steps of each thread under each scheduler.
const STEPS: u64 = 20;

/// What the threads have done.
struct Work {
    /// Steps of each.
    steps: Vec<AtomicU64>,
    /// Steps of all, which they count one after the other.
    sum: Mutex<u64>,
    end: AtomicBool,
}

impl Work {
    fn step(&self, thread: usize) {
        self.steps[thread].fetch_add(1, Ordering::Relaxed);
        *self.sum.lock() += 1;
    }

    fn has_ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    fn all(&self) -> Vec<u64> {
        let steps = self.steps.iter();
        steps.map(|steps| steps.load(Ordering::Relaxed)).collect()
    }

    /// Waits until each thread has gone on.
    fn goes_on(&self, when: &str, runtime: &Runtime) {
        let (before, start) = (self.all(), Instant::now());
        loop {
            let now = self.all();
            if now
                .iter()
                .zip(&before)
                .all(|(now, before)| now - before >= STEPS)
            {
                return;
            }
            let waited = start.elapsed();
            assert!(
                waited < PATIENCE,
                "{when}: {before:?}, {now:?}, {runtime:?}"
            );
            kernel_thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Two that compute, two that block in the kernel, two that sleep, two that wake each other, and
/// two that block until the other one has written.
fn start_threads(runtime: &Runtime, work: &Arc<Work>) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    let mut start = |mut step: Box<dyn FnMut() -> bool + Send>| {
        let (work, number) = (Arc::clone(work), threads.len());
        let body = move || {
            while step() {
                work.step(number);
            }
        };
        threads.push(runtime.spawn(body).expect("a thread"));
    };
    let goes_on = || {
        let work = Arc::clone(work);
        move || !work.has_ended()
    };
    for _ in 0..2 {
        let go_on = goes_on();
        start(Box::new(move || {
            (0..20_000).for_each(|i| assert!(std::hint::black_box(i) >= 0));
            yield_now();
            go_on()
        }));
        let go_on = goes_on();
        start(Box::new(move || {
            kernel_thread::sleep(Duration::from_micros(200));
            scheduling_point();
            go_on()
        }));
        let go_on = goes_on();
        start(Box::new(move || {
            sleep(Duration::from_micros(200));
            go_on()
        }));
    }
    let (ping, pong) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (go_on, mine, other) = (goes_on(), Arc::clone(&pong), Arc::clone(&ping));
    start(Box::new(move || {
        other.release();
        mine.acquire();
        let goes_on = go_on();
        if !goes_on {
            // The other one may wait once more.
            other.release();
        }
        goes_on
    }));
    let go_on = goes_on();
    start(Box::new(move || {
        ping.acquire();
        pong.release();
        go_on()
    }));
    let (here, there) = UnixStream::pair().expect("a pair of sockets");
    for mut socket in [here, there] {
        let go_on = goes_on();
        start(Box::new(move || {
            // The other one may have ended.
            let written = socket.write_all(b"!");
            let read = socket.read_exact(&mut [0]);
            scheduling_point();
            written.is_ok() && read.is_ok() && go_on()
        }));
    }
    threads
}

/// The scheduler, held by the command.
fn start() -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecalls"));
    command.args(["sched", "start"]).stderr(Stdio::piped());
    let mut holder = Running::start(&mut command);
    holder.complaints().find("the scheduler runs", PATIENCE);
    assert!(running().is_some_and(|name| scheduler::is_ours(&name)));
    holder
}

fn running() -> Option<String> {
    scheduler::state().and_then(|state| state.running)
}

/// Waits until the kernel's own scheduler has all threads.
fn wait_for_the_kernels() {
    let start = Instant::now();
    while running().is_some() {
        assert!(start.elapsed() < PATIENCE, "{:?}", scheduler::state());
        kernel_thread::sleep(Duration::from_millis(5));
    }
}

/// By its command, by SysRq-S, and by the death of its holder.
fn end(how: &str, mut holder: Running) {
    match how {
        "stopped" => {
            let mut stop = Command::new(env!("CARGO_BIN_EXE_ecalls"));
            let ended = limit::ended(stop.args(["sched", "stop"]), PATIENCE);
            assert_eq!(ended.code, 0, "{ended:?}");
            assert!(holder.wait(PATIENCE).success());
        }
        "ejected" => {
            limit::eject_scheduler();
            assert!(!holder.wait(PATIENCE).success());
        }
        _ => drop(holder.kill(PATIENCE)),
    }
    wait_for_the_kernels();
}

#[test]
fn threads_go_on_while_the_scheduler_is_replaced_and_ejected() {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() || scheduler::state().is_none() {
        eprintln!("skipped: needs root, ECALLS_TEST_ROOT=1 and sched_ext, as tools/vm/suite has");
        return;
    }
    let builder = Runtime::builder().processors(2);
    let runtime = builder.kernel(KernelSide::Required).start();
    // One that is dropped waits for its threads, which a failure leaves behind.
    let runtime = ManuallyDrop::new(runtime.expect("the kernel side"));
    let work = Arc::new(Work {
        steps: (0..10).map(|_| AtomicU64::new(0)).collect(),
        sum: Mutex::new(0),
        end: AtomicBool::new(false),
    });
    let threads = start_threads(&runtime, &work);
    work.goes_on("under the kernel's scheduler", &runtime);
    for how in ["stopped", "ejected", "killed"] {
        let holder = start();
        work.goes_on(&format!("under ours before it was {how}"), &runtime);
        end(how, holder);
        work.goes_on(&format!("after it was {how}"), &runtime);
    }
    // At once, too.
    end("ejected", start());
    work.goes_on("in the end", &runtime);
    work.end.store(true, Ordering::Relaxed);
    let start = Instant::now();
    while !threads.iter().all(JoinHandle::is_finished) {
        assert!(start.elapsed() < PATIENCE, "{runtime:?}, {:?}", work.all());
        kernel_thread::sleep(Duration::from_millis(5));
    }
    let ended = threads.into_iter().map(JoinHandle::join);
    assert!(ended.into_iter().all(|ended| ended.is_ok()));
    let stats = runtime.stats();
    assert_eq!(
        *work.sum.lock(),
        work.all().iter().sum::<u64>(),
        "{stats:?}"
    );
    // Each sleep in the kernel was told, but those amid a scheduling point or without a spare.
    let slept = work.all()[1] + work.all()[4];
    assert!(stats.told + stats.untold >= slept, "{slept} of {stats:?}");
    assert!(stats.told > stats.untold, "{stats:?}");
    assert!((stats.threads, stats.refused) == (0, 0), "{stats:?}");
    drop(ManuallyDrop::into_inner(runtime));
}
