//! Ends: clients and the daemon killed at any moment, the daemon's parts killed one by one, and the
//! daemon short of descriptors. Clients see one clear error and come back without a restart;
//! nothing outlives anybody.

use std::process::Command;
use std::time::{Duration, Instant};

use ecalls::timer::Timer;
use ecalls::{Ecalls, Error, Raise};
use rustix::process::{Pid, Signal, kill_process};

use crate::actor::{Actor, Roles, Stage, start};
use crate::daemon::{self, await_end_of_core};
use crate::messages::Random;
use crate::raw::Raw;
use crate::running::{PATIENCE, program, wait_until};
use crate::scene::{KernelLog, Scene, clear, is_emulated, new_user};
use crate::tests;

tests! {
    clients_killed_at_any_moment_leave_nothing
    daemon_killed_at_any_moment_leaves_nothing_and_its_clients_come_back
    daemon_that_loses_its_door_ends_and_its_clients_come_back
    daemon_is_ended_by_its_own_signal_and_not_by_those_to_its_parts
    daemon_short_of_descriptors_refuses_and_goes_on
    daemon_makes_no_system_call_beyond_its_lists
}

pub(crate) const ROLES: Roles = &[
    ("busy", be_busy),
    ("survivor", survive),
    ("greedy", be_greedy),
    ("needy", need_everything),
];

/// How often a client is killed.
const KILLS: u32 = 100;

/// How often the daemon is; with `ECALLS_NIGHTLY` oftener.
const DAEMON_KILLS: u32 = 20;
const DAEMON_KILLS_NIGHTLY: u32 = 200;

/// A client lives at most so long, ms: long enough for all that it does, short enough to be killed
/// in the middle of it.
const CLIENT_MS: u64 = 60;

/// A daemon that is killed while it serves lives at most so long, ms, from its first answer on.
const SERVING_MS: u64 = 200;

/// In an emulated machine everything takes longer.
fn kills() -> u32 {
    if is_emulated() { KILLS / 10 } else { KILLS }
}

fn daemon_kills() -> u32 {
    let nightly = std::env::var_os("ECALLS_NIGHTLY").is_some();
    if nightly {
        DAEMON_KILLS_NIGHTLY
    } else {
        DAEMON_KILLS
    }
}

fn clients_killed_at_any_moment_leave_nothing() {
    let scene = Scene::begin();
    let mut random = Random(23);
    // Few users, so that one user's things are ended and made at the same time.
    let users = [(); 4].map(|()| new_user());
    let mut living: Vec<Actor> = Vec::new();
    for round in 0..kills() {
        living.push(start("busy", users[(round % 4) as usize], &[]));
        if living.len() >= 3 {
            std::thread::sleep(Duration::from_millis(random.below(CLIENT_MS)));
            let which = random.below(living.len() as u64) as usize;
            living.swap_remove(which).kill();
        }
    }
    living.into_iter().for_each(Actor::kill);
    scene.end();
}

fn daemon_killed_at_any_moment_leaves_nothing_and_its_clients_come_back() {
    clear();
    let log = KernelLog::begin();
    let before = ecalls_kernel::residue();
    let mut random = Random(29);
    let begin = Instant::now();
    let mut daemon = daemon::start("");
    let starting_ms = u64::try_from(begin.elapsed().as_millis()).expect("a short time") + 1;
    let mut survivors = [(); 3].map(|()| start("survivor", new_user(), &[]));
    for survivor in &mut survivors {
        survivor.expect("receives");
    }
    for round in 0..daemon_kills() {
        if round % 10 != 0 {
            // With the rounds below, half of them are killed while they serve, half before.
            let (mut young, life_ms) = if round % 2 == 0 {
                (daemon::start(""), SERVING_MS)
            } else {
                (daemon::start_without_waiting(), starting_ms)
            };
            std::thread::sleep(Duration::from_millis(random.below(life_ms)));
            young.kill();
            continue;
        }
        // Now and then the clients see one again.
        std::thread::sleep(Duration::from_millis(random.below(SERVING_MS)));
        daemon.kill();
        daemon = daemon::start("");
        for survivor in &mut survivors {
            let line = survivor.ask("report");
            assert!(!line.ends_with(" 0"), "a client has not come back: {line}");
        }
        if round + 10 < daemon_kills() {
            daemon.kill();
        }
    }
    for survivor in &mut survivors {
        let line = survivor.ask("report");
        let (came_back, received) = line.split_once(' ').expect("two numbers");
        assert!(
            came_back.parse::<u32>().expect("a number") >= 2,
            "came back {came_back} times"
        );
        assert!(received.parse::<u64>().expect("a number") > 0);
    }
    survivors.into_iter().for_each(Actor::end);
    daemon.stop();
    await_end_of_core(&before);
    log.check();
}

fn daemon_that_loses_its_door_ends_and_its_clients_come_back() {
    clear();
    let before = ecalls_kernel::residue();
    let mut daemon = daemon::start("");
    let mut survivor = start("survivor", new_user(), &[]);
    survivor.expect("receives");
    kill_process(daemon.door(), Signal::KILL).expect("it lives");
    // It ends, and its supervisor starts another one.
    wait_until("the daemon has noticed", || !daemon.is_alive());
    daemon = daemon::start("");
    wait_until("the client receives again", || {
        survivor
            .ask("report")
            .split_once(' ')
            .is_some_and(|(came_back, _)| came_back != "0")
    });
    survivor.end();
    daemon.stop();
    await_end_of_core(&before);
}

/// systemd and a terminal send the signal to all of them, in no order.
fn daemon_is_ended_by_its_own_signal_and_not_by_those_to_its_parts() {
    clear();
    let before = ecalls_kernel::residue();
    let mut daemon = daemon::start("");
    let mut parts = Vec::new();
    wait_until("door, compiler and its worker have started", || {
        parts = daemon.processes().split_off(1);
        parts.len() == 3
    });
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        for pid in &parts {
            let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
            kill_process(pid, signal).expect("it lives");
        }
    }
    Ecalls::open_within(PATIENCE).expect("the daemon serves");
    assert_eq!(daemon.processes().split_off(1), parts);
    daemon.stop();
    await_end_of_core(&before);
}

fn daemon_short_of_descriptors_refuses_and_goes_on() {
    clear();
    let log = KernelLog::begin();
    let before = ecalls_kernel::residue();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -n 420; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_ecallsd"),
    ]);
    let mut daemon = daemon::start_by(command, "");
    let mut survivor = start("survivor", new_user(), &[]);
    survivor.expect("receives");
    let mut greedy: Vec<_> = (0..4).map(|_| start("greedy", new_user(), &[])).collect();
    let mut had = 0;
    for one in &mut greedy {
        let line = one.hear();
        let (number, reason) = line.split_once(' ').expect("how many, and why no more");
        had += number.parse::<u32>().expect("a number");
        // Its own count says so, or the kernel, whichever is first.
        let said = ["descriptors of the daemon", "open files"];
        assert!(said.iter().any(|said| reason.contains(said)), "{line}");
    }
    assert!(daemon.is_alive(), "{}", daemon.log());
    assert!(had > 0, "nobody got anything");
    // Earlier clients are not disturbed.
    assert!(
        survivor.ask("report").starts_with("0 "),
        "it lost its connection"
    );
    greedy.into_iter().for_each(Actor::end);
    // There is room again.
    wait_until("a new client finds room", || Ecalls::open().is_ok());
    crate::scene::check_accounts();
    survivor.end();
    daemon.stop();
    await_end_of_core(&before);
    log.check();
}

/// Parts of the core that the daemon loads when a client needs them, and a program of each.
const NEEDED: &[(&str, &str)] = &[
    ("handler", "handler_count"),
    ("thread", "pump_run"),
    ("signal", "signal_verdict"),
    ("signal_task", "signal_wait"),
    ("socket", "socket_ready"),
    ("timer", "timer_setup"),
    ("task", "task_exit"),
    ("sched", "sched_switched"),
    ("downcall_switch", "downcall_switch"),
    ("net", "net_state"),
    ("disk", "disk_issue"),
    ("memory", "memory_victim"),
    ("cgroup", "sample_start"),
    ("effect", "effects"),
];

/// Calls that are not in the lists are made and written to the kernel's log. Done by the suite's
/// liveliest roles.
fn daemon_makes_no_system_call_beyond_its_lists() {
    clear();
    let before = ecalls_kernel::residue();
    let mut command = program();
    command.args(["--seccomp", "log"]);
    let mut daemon = daemon::start_by(command, "");
    let pids = daemon.processes();
    let since = audited(&pids).len();
    let roles: [(&str, &[&str]); 7] = [
        ("runtime", &[]),
        ("random messages", &["3"]),
        ("descriptors", &[]),
        ("in flight", &[]),
        ("malformed", &[]),
        ("busy", &["20"]),
        ("connects", &[]),
    ];
    let mut needy = start("needy", 0, &[]);
    needy.hear();
    let loaded = ecalls_kernel::residue();
    for (part, program) in NEEDED {
        let is_there = loaded.iter().any(|(_, name)| name == program);
        let is_new = part.starts_with("signal") && !ecalls_kernel::probe::sends_signals();
        assert!(is_there || is_new, "{part} was not loaded for a client");
    }
    needy.end();
    for (role, arguments) in roles {
        let mut actor = start(role, new_user(), arguments);
        if role == "runtime" {
            assert_eq!(actor.ask("told"), "told");
        } else {
            actor.hear();
        }
        actor.end();
    }
    crate::scene::users();
    daemon.stop();
    let beyond = audited(&pids);
    assert_eq!(beyond.len(), since, "{:#?}", beyond.get(since..));
    await_end_of_core(&before);
}

/// Lines of the kernel's log about system calls of these processes.
fn audited(pids: &[u32]) -> Vec<String> {
    let output = limit::output(&mut Command::new("dmesg"), PATIENCE);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let of_them = |line: &&str| {
        pids.iter()
            .any(|pid| line.contains(&format!(" pid={pid} ")))
    };
    let lines = text.lines().filter(|line| line.contains("type=1326"));
    lines.filter(of_them).map(str::to_owned).collect()
}

/// Makes and ends one of everything, again and again; so many times if told.
fn be_busy(stage: &mut Stage) {
    let rounds = stage.number(0);
    let mut round = 0;
    while rounds == 0 || round < rounds {
        round += 1;
        match use_everything(round) {
            Ok(()) | Err(Error::Quota { .. } | Error::LimitReached { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    stage.done();
}

/// Needs every part of the core that a client can need.
fn need_everything(stage: &mut Stage) {
    ecalls_kernel::signal::ignore(40).expect("a signal's number");
    let need = || -> ecalls::Result<Vec<ecalls::Subscription>> {
        let ecalls = Ecalls::open()?;
        let channel = ecalls.channel().ring(64).defer_switch().open()?;
        let sample = ecalls::Handler::Sample { one_in: 1 };
        let timer = ecalls.subscribe("timer")?.handler(&sample).thread(&sample);
        let mut all = vec![
            timer.memory(&channel).install()?,
            ecalls.subscribe("task")?.signal(40).install()?,
            ecalls
                .subscribe("task")?
                .ecode("count(0); return 1;")
                .memory(&channel)
                .install()?,
        ];
        for service in ["socket", "sched", "net", "disk", "memory", "cpu"] {
            all.push(ecalls.subscribe(service)?.memory(&channel).install()?);
        }
        Ok(all)
    };
    let all = need().unwrap_or_else(|error| panic!("{error}"));
    stage.say(all.len());
    stage.hear();
}

fn use_everything(round: u64) -> ecalls::Result<()> {
    let ecalls = Ecalls::open()?;
    let name = format!("busy-{}-{round}", std::process::id());
    let service = ecalls.register_service(&name, "u64 value", "one")?;
    let mut channel = ecalls.channel().ring(64).defer_switch().open()?;
    let one = ecalls.subscribe(&name)?.memory(&channel).install()?;
    let two = ecalls.subscribe("timer")?.memory(&channel).install()?;
    let three = ecalls.subscribe("task")?.memory(&channel).install()?;
    let timer = Timer::every(channel.caller(), Duration::from_micros(200))?;
    for _ in 0..20 {
        service.raise(&Raise::new(&[1; 8]).release(Duration::from_micros(300)))?;
        channel.recv_timeout(Duration::from_millis(1))?;
    }
    drop((one, timer, two, service, three));
    Ok(())
}

/// Receives its own events, and opens again whenever the daemon has gone: with no other error.
fn survive(stage: &mut Stage) {
    let shared = std::sync::Arc::new(std::sync::Mutex::new((0u32, 0u64)));
    let counts = std::sync::Arc::clone(&shared);
    std::thread::spawn(move || {
        loop {
            match receive_until_it_ends(&counts) {
                Err(Error::DaemonGone) => counts.lock().expect("no panic").0 += 1,
                Err(error) => {
                    eprintln!("a survivor's error: {error:?}");
                    std::process::exit(3);
                }
                Ok(()) => {}
            }
        }
    });
    while shared.lock().expect("no panic").1 == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    stage.say("receives");
    while stage.hear().is_some() {
        // Of this daemon, too.
        let before = shared.lock().expect("no panic").1;
        let since = Instant::now();
        while shared.lock().expect("no panic").1 == before && since.elapsed().as_secs() < 15 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (came_back, received) = *shared.lock().expect("no panic");
        stage.say(format_args!("{came_back} {}", received - before));
    }
}

fn receive_until_it_ends(counts: &std::sync::Mutex<(u32, u64)>) -> ecalls::Result<()> {
    let ecalls = Ecalls::open_within(Duration::from_secs(20))?;
    let mut channel = ecalls.channel().ring(64).open()?;
    let _subscription = ecalls.subscribe("timer")?.memory(&channel).install()?;
    let _timer = Timer::every(channel.caller(), Duration::from_millis(5))?;
    loop {
        ecalls.check()?;
        if channel.recv_timeout(Duration::from_millis(100))?.is_some() {
            counts.lock().expect("no panic").1 += 1;
        }
    }
}

/// Takes connections and channels until it gets no more.
fn be_greedy(stage: &mut Stage) {
    let mut held = Vec::new();
    let reason = loop {
        let mut raw = match Raw::open() {
            Ok((raw, ..)) => raw,
            Err(error) => break error.to_string(),
        };
        match raw.open_channel(&crate::raw::ring(64)) {
            Ok(channel) => held.push((raw, channel)),
            Err(refused) => break crate::raw::tell(&refused),
        }
    };
    stage.say(format_args!("{} {reason}", held.len()));
    stage.hear();
}
