//! The life of a core: several programs share one, it survives its loader, and whoever is killed at
//! any moment leaves nothing behind. Needs root, and that nobody else uses a core meanwhile.
//!
//! The programs are this test binary again, told by an environment variable to be a host.

mod harness;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ecalls::downcall::Call;
use ecalls::timer::Timer;
use ecalls::{Ecalls, Flow, Handler, Raise};
use harness::{PATIENCE, assert_all_adds_up, core_of_this_test, may_load, wait_until};
use limit::Running;
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

/// Set: this process is a host. "busy": it uses everything until it is killed; "quiet": it holds a
/// core until its standard input ends; "parts": the same, with parts of the core that are loaded
/// when they are first needed; "completed": it gives up its privileges after it has loaded them.
const ROLE: &str = "ECALLS_TEST_ROLE";

/// How long to wait for other programs to leave the core.
const OTHERS: Duration = Duration::from_secs(120);

/// How often a host is killed; with `ECALLS_NIGHTLY` oftener.
const KILLS: u32 = 30;
const KILLS_NIGHTLY: u32 = 300;

/// Every other host is killed while it loads the core, and the others after at most so long, from
/// when they have it.
const USING_MS: u32 = 200;

/// Starts this binary as a host; the test `host` below is what it does.
fn start(role: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args(["--exact", "host", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Running::start(&mut command)
}

/// Not a test: what a host does.
#[test]
fn host() {
    match std::env::var(ROLE).as_deref() {
        Ok("busy") => be_busy().expect("a core"),
        Ok("quiet") => {
            let _ecalls = Ecalls::open().expect("a core");
            println!("\nready");
            let _ = std::io::stdin().lines().next();
        }
        Ok("completed") => {
            let ecalls = Ecalls::open().expect("a core");
            let channel = ecalls.channel().open().expect("a channel");
            ecalls.complete().expect("all parts");
            let nobody = Uid::from_raw(65534);
            set_thread_res_uid(nobody, nobody, nobody).expect("root may");
            let answer = channel.caller().fast(Call::GetPid);
            assert_eq!(answer.expect("a call"), i64::from(std::process::id()));
            println!("\nready");
            // The library's lock file is root's.
            std::process::exit(0);
        }
        Ok("parts") => {
            let ecalls = Ecalls::open().expect("a core");
            handled_in_a_thread(&ecalls);
            println!("\nready");
            let _ = std::io::stdin().lines().next();
        }
        _ => {}
    }
}

/// Has an event handled in a thread of the kernel: the handlers and the threads are parts.
fn handled_in_a_thread(ecalls: &Ecalls) {
    let mut channel = ecalls.channel().open().expect("a channel");
    let (service, name) = harness::own_service(ecalls);
    let subscription = ecalls
        .subscribe(&name)
        .expect("it")
        .thread(&Handler::Count { end: false })
        .memory(&channel)
        .install()
        .expect("one");
    service.raise(&Raise::new(&[7; 8])).expect("raised");
    let event = channel.recv_timeout(PATIENCE).expect("a living core");
    assert!(event.is_some(), "the threads run");
    drop(subscription);
}

fn be_busy() -> ecalls::Result<()> {
    let ecalls = Ecalls::open()?;
    println!("\nready");
    let name = format!("busy-{}", std::process::id());
    loop {
        let mut channel = ecalls
            .channel()
            .defer_delay(Duration::from_millis(1))
            .open()?;
        let service = ecalls.register_service(&name, "u64 value", "")?;
        let _all = ecalls
            .subscribe(&name)?
            .thread(&Handler::Count { end: false })
            .user(|_| Flow::Continue)
            .memory(&channel)
            .install()?;
        let _task = ecalls.subscribe("task")?.memory(&channel).install()?;
        let _sched = ecalls.subscribe("sched")?.memory(&channel).install()?;
        let _timers = ecalls.subscribe("timer")?.memory(&channel).install()?;
        let _timer = Timer::every(channel.caller(), Duration::from_micros(200))?;
        for value in 0..200u64 {
            service.raise(&Raise::new(&value.to_ne_bytes()).release(Duration::from_millis(1)))?;
            channel.caller().defer(Call::Set {
                attribute: 0,
                value,
            })?;
            while channel.try_recv().is_some() {}
        }
    }
}

/// Waits until nobody else uses a core; what is in the kernel then, from before this test.
fn alone() -> Vec<(u32, String)> {
    let start = Instant::now();
    while Ecalls::join().expect("root may look").is_some() {
        assert!(start.elapsed() < OTHERS, "another program uses a core");
        std::thread::sleep(Duration::from_millis(20));
    }
    // One that has just ended takes a moment to be gone.
    std::thread::sleep(Duration::from_millis(500));
    ecalls_kernel::residue()
}

/// What is in the kernel and was not before.
fn left(before: &[(u32, String)]) -> Vec<(u32, String)> {
    let mut now = ecalls_kernel::residue();
    now.retain(|one| !before.contains(one));
    now
}

/// One test, for the others' cores would be in its way.
#[test]
fn core_is_shared_survives_its_loader_and_leaves_nothing() {
    if std::env::var_os(ROLE).is_some() || !may_load() {
        return;
    }
    let before = alone();
    core_is_gone_with_its_last_user(&before);
    core_survives_the_program_that_loaded_it(&before);
    parts_are_shared_and_loaded_anew_after_their_holders(&before);
    completed_core_is_used_without_privileges(&before);
    killed_hosts_leave_nothing(&before);
}

fn completed_core_is_used_without_privileges(before: &[(u32, String)]) {
    let mut host = start("completed");
    host.lines().find("ready", PATIENCE);
    host.kill(PATIENCE);
    wait_until("the core is gone", || left(before).is_empty());
}

fn core_is_gone_with_its_last_user(before: &[(u32, String)]) {
    let ecalls = core_of_this_test().expect("root");
    assert!(ecalls.core().expect("hosted here").loaded_here());
    assert!(!left(before).is_empty(), "it is there");
    drop(ecalls);
    wait_until("the core is gone", || left(before).is_empty());
}

fn core_survives_the_program_that_loaded_it(before: &[(u32, String)]) {
    let mut loader = start("quiet");
    loader.lines().find("ready", PATIENCE);
    let ecalls = core_of_this_test().expect("root");
    assert!(!ecalls.core().expect("hosted here").loaded_here(), "joined");
    assert_eq!(
        ecalls
            .core()
            .expect("hosted here")
            .host()
            .expect("its record")
            .pid,
        loader.id()
    );
    loader.kill(PATIENCE);
    let mut channel = ecalls.channel().open().expect("a channel");
    let (service, name) = harness::own_service(&ecalls);
    let _subscription = ecalls
        .subscribe(&name)
        .expect("it")
        .memory(&channel)
        .install()
        .expect("one");
    let later = Raise::new(&[5; 8]).release(Duration::from_millis(5));
    service.raise(&later).expect("raised");
    let event = channel.recv_timeout(PATIENCE).expect("a living core");
    assert!(event.is_some(), "timers and delivery live on");
    assert_eq!(
        channel.caller().fast(Call::GetPid).expect("a call"),
        i64::from(std::process::id())
    );
    assert_all_adds_up(&ecalls, service.index());
    drop((service, channel));
    drop((_subscription, ecalls));
    wait_until("the core is gone", || left(before).is_empty());
}

/// Several programs want a part at the same time, and all of them are killed: the core lives on
/// here, and what they have set up in its maps works with the part that is loaded next.
fn parts_are_shared_and_loaded_anew_after_their_holders(before: &[(u32, String)]) {
    let ecalls = core_of_this_test().expect("root");
    let programs = || {
        let programs = ecalls_kernel::residue();
        programs
            .iter()
            .filter(|(_, name)| name == "thread_setup")
            .count()
    };
    for _ in 0..3 {
        let mut hosts = [start("parts"), start("parts"), start("parts")];
        for host in &mut hosts {
            host.lines().find("ready", PATIENCE);
        }
        wait_until("one of them has loaded it", || programs() == 1);
        for host in &mut hosts {
            host.kill(PATIENCE);
        }
        wait_until("their part's pump is gone", || {
            let programs = ecalls_kernel::residue();
            programs.iter().all(|(_, name)| name != "pump_setup")
        });
    }
    handled_in_a_thread(&ecalls);
    drop(ecalls);
    wait_until("the core is gone", || left(before).is_empty());
}

fn killed_hosts_leave_nothing(before: &[(u32, String)]) {
    let nightly = std::env::var_os("ECALLS_NIGHTLY").is_some();
    let kills = if nightly { KILLS_NIGHTLY } else { KILLS };
    let mut loading_ms = 1;
    // A fixed sequence: a failure can be repeated.
    let mut seed = 0x2545_f491_u32;
    for round in 0..kills {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        let begin = Instant::now();
        let mut child = start("busy");
        let life_ms = if round % 2 == 0 {
            child.lines().find("ready", PATIENCE);
            loading_ms = u32::try_from(begin.elapsed().as_millis()).expect("a short time") + 1;
            seed % USING_MS
        } else {
            seed % loading_ms
        };
        let life = Duration::from_millis(u64::from(life_ms));
        std::thread::sleep(life);
        let early = child.ended();
        assert!(
            early.is_none(),
            "round {round}: it ended by itself: {early:?}"
        );
        child.kill(PATIENCE);
        let mut start = Instant::now();
        while !left(before).is_empty() {
            // Who lives now is not the host that was killed: another program's core is no residue.
            if Ecalls::join().is_ok_and(|core| core.is_some()) {
                start = Instant::now();
            }
            let left = ecalls_kernel::residue();
            assert!(
                start.elapsed() < PATIENCE,
                "round {round}, after {life:?}: {left:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
