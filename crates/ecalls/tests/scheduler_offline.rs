//! A CPU that goes offline under the scheduler, and comes back. Needs root and a kernel with
//! sched_ext, so it runs in the test machine; there in functional mode, for where processors take
//! turns of a fixed length one that goes has nothing left to do.

mod harness;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ecalls::coop::SlotMemory;
use ecalls::{Admission, Channel, now_ns};
use harness::stage::{Ends, MS, Stage, pin, spin, start, window};

/// Whether the kernel takes the threads back.
fn scheduler_ends() -> bool {
    let state = std::fs::read_to_string("/sys/kernel/sched_ext/state");
    state.expect("sched_ext").trim() != "enabled"
}

/// Whether the second CPU is there.
const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";

fn can_go_offline() -> bool {
    let can = std::path::Path::new(ONLINE).exists();
    if !can {
        eprintln!("skipped: there is no second CPU that can go offline");
    }
    can
}

/// Goes to the second CPU, and has a promised window there.
fn windowed_there(channel: &Channel) -> SlotMemory {
    to_second_cpu();
    let slot = channel.caller().coop_slot(0, 0).expect("a slot");
    let wish = window(10_000, 2_000, 0, 1);
    let answer = channel.caller().window(&slot, &wish).expect("an answer");
    assert_eq!(answer, Admission::Promised);
    slot
}

fn to_second_cpu() {
    let mut cpu = rustix::thread::CpuSet::new();
    cpu.set(1);
    rustix::thread::sched_setaffinity(None, &cpu).expect("CPU 1");
}

#[test]
fn threads_of_a_cpu_that_goes_offline_go_on_elsewhere() {
    let Some(mut stage) = start() else { return };
    if !can_go_offline() {
        return stage.end();
    }
    let channel = stage.channel();
    let stop = &AtomicBool::new(false);
    let windows = |stage: &Stage| stage.scheduler.counts().expect("counters")[0].windows;
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _slot = windowed_there(&channel);
            tell.send(()).expect("told");
            spin(stop)
        });
        scope.spawn(|| spin(stop));
        told.recv().expect("an answer");
        let mut before = windows(&stage);
        std::fs::write(ONLINE, "0").expect("offline");
        let begin = Instant::now();
        while begin.elapsed() < harness::PATIENCE {
            thread::sleep(Duration::from_millis(200));
            // Some kernels cannot do it, and want another one. Until the first one has ended, it
            // admits the thread where that is.
            if stage.scheduler.ended().is_some_and(|ended| ended.again) {
                stage = stage.restart(Duration::ZERO);
                before = 0;
            } else if windows(&stage) != before && !scheduler_ends() {
                break;
            }
        }
        std::fs::write(ONLINE, "1").expect("online");
        thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(windows(&stage), before + 1, "admitted where it went");
        stage.end();
    });
}

/// How often a CPU goes offline: in one of some ten times it has to do with others when it is
/// nearly gone.
const OFFLINE: usize = 40;

/// The second CPU goes offline while a window is served there, and comes back.
fn go_and_come(channel: &Channel, between: Duration) {
    let (tell, told) = mpsc::channel();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(stop);
        scope.spawn(|| {
            let _slot = windowed_there(channel);
            tell.send(()).expect("told");
            spin(stop)
        });
        told.recv().expect("a window");
        std::fs::write(ONLINE, "0").expect("offline");
        thread::sleep(between);
        std::fs::write(ONLINE, "1").expect("online");
    });
}

/// How long the calling thread waits until it runs, woken from the second CPU: the median, ns.
fn wait_when_woken_from_there() -> u64 {
    let (wake, woken) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            to_second_cpu();
            for _ in 0..40 {
                thread::sleep(Duration::from_millis(20));
                wake.send(now_ns()).expect("sent");
            }
        });
        let mut waits: Vec<u64> = woken.iter().map(|at| now_ns() - at).collect();
        waits.sort_unstable();
        waits[waits.len() / 2]
    })
}

#[test]
fn a_cpu_that_was_offline_still_preempts_for_whom_it_wakes() {
    let Some(stage) = start() else { return };
    if !can_go_offline() {
        return stage.end();
    }
    let (channel, stop) = (stage.channel(), &AtomicBool::new(false));
    let goes_on = thread::scope(|scope| {
        let _ends = Ends(stop);
        let hog = || {
            pin();
            spin(stop)
        };
        scope.spawn(hog);
        scope.spawn(hog);
        let waker = scope.spawn(|| {
            pin();
            let before = wait_when_woken_from_there();
            go_and_come(&channel, Duration::from_millis(500));
            if scheduler_ends() || stage.scheduler.ended().is_some() {
                return false;
            }
            for _ in 1..OFFLINE {
                go_and_come(&channel, Duration::ZERO);
            }
            let after = wait_when_woken_from_there();
            println!("woken from there: after {before} ns, later {after}");
            // When nobody is preempted it waits for the end of a slice, of 7 ms.
            assert!(after < 4 * before + MS, "{before} {after}");
            true
        });
        waker.join().expect("joined")
    });
    if goes_on {
        return stage.end();
    }
    eprintln!("skipped: this kernel ends a scheduler when a CPU goes offline");
    stage.restart(Duration::ZERO).end();
}
