//! Quotas of control groups (cpu.max): groups within groups, limits that change, threads that are
//! killed and moved while they wait, and a crowd that waits.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ecalls::now_ns;

use super::harness::{
    self,
    stage::{WATCHDOG, start},
};
use super::{CGROUPS, Group, HOG, wait_long};

/// Parts of one CPU that groups had in two seconds.
fn shares(groups: &[&Group]) -> Vec<f64> {
    let usage = || {
        groups
            .iter()
            .map(|group| group.usage_us())
            .collect::<Vec<_>>()
    };
    let (before, begin) = (usage(), now_ns());
    thread::sleep(Duration::from_secs(2));
    let (after, elapsed_us) = (usage(), (now_ns() - begin) / 1000);
    let had = after.iter().zip(before).map(|(now, then)| now - then);
    had.map(|us| us as f64 / elapsed_us as f64).collect()
}

#[test]
fn a_control_group_has_no_more_than_its_quota_nor_than_that_of_the_group_above() {
    let Some(stage) = start() else { return };
    let root = Path::new(CGROUPS);
    let Some(outer) = Group::new(root, "ecalls-outer", 100) else {
        return stage.end();
    };
    let lower = Group::new(&outer.0, "lower", 100).expect("a group");
    let upper = Group::new(&outer.0, "upper", 100).expect("a group");
    let other = Group::new(root, "ecalls-other", 100).expect("a group");
    outer.limit("40000 100000");
    lower.limit("5000 50000");
    let mut hogs = lower.run_hogs(2);
    hogs.extend(upper.run_hogs(2));
    hogs.extend(other.run_hogs(1));
    let within = |part: f64, right: f64| (right * 0.85..right * 1.1).contains(&part);
    let parts = shares(&[&outer, &lower, &upper, &other]);
    println!("of 40 % above and 10 % below: {parts:.3?}");
    for (part, right) in parts.iter().zip([0.4, 0.1, 0.3, 0.6]) {
        assert!(within(*part, right), "{part}, not {right}: {parts:?}");
    }
    assert!(stage.counts().parked > 10);
    // Limits change at once.
    lower.limit("max");
    outer.limit("20000 100000");
    let parts = shares(&[&outer, &other]);
    println!("of 20 % above: {parts:.3?}");
    for (part, right) in parts.iter().zip([0.2, 0.8]) {
        assert!(within(*part, right), "{part}, not {right}: {parts:?}");
    }
    // Threads that wait for nearly a second are killed, and moved to a group that may run.
    outer.limit("1000 1000000");
    thread::sleep(Duration::from_millis(100));
    let moved = hogs[3].id();
    fs::write(other.0.join("cgroup.procs"), moved.to_string()).expect("moved");
    let parts = shares(&[&outer, &other]);
    println!("of 0.1 % above: {parts:.3?}");
    assert!(parts[0] < 0.02 && parts[1] > 0.9, "{parts:?}");
    for mut hog in hogs.drain(..) {
        hog.kill(harness::PATIENCE);
    }
    // And with the scheduler, which ends while they wait.
    outer.limit("10000 100000");
    let waiting = upper.run_hogs(2);
    let stage = stage.restart(Duration::from_millis(50));
    thread::sleep(Duration::from_millis(100));
    assert!(stage.total().parked > 0, "a limit from before it began");
    drop(waiting);
    drop((lower, upper));
    drop((outer, other));
    stage.end();
}

/// More than a CPU looks at in one decision (QUOTA_LOOKS).
const PARKED: usize = 600;

#[test]
fn a_quota_is_kept_behind_a_crowd_that_waits_for_another_one() {
    let Some(stage) = start() else { return };
    let root = Path::new(CGROUPS);
    let Some(crowd) = Group::new(root, "ecalls-crowd", 100) else {
        return stage.end();
    };
    let one = Group::new(root, "ecalls-one", 100).expect("a group");
    let other = Group::new(root, "ecalls-other", 100).expect("a group");
    // They wait for a line until all are there.
    let folder = std::env::temp_dir().join(format!("ecalls-crowd-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    let gate = folder.join("gate");
    let waits = format!("(exec 2>&-; read line <{}; {HOG}) &", gate.display());
    let script = format!(
        "mkfifo {} && exec taskset -c 0 sh -c 'for i in $(seq {PARKED}); do {waits} done; wait'",
        gate.display()
    );
    let hogs = crowd.run(&script);
    wait_long("they wait", || crowd.closed_errors() == PARKED);
    crowd.limit("1000 1000000");
    one.limit("30000 100000");
    drop(fs::OpenOptions::new().write(true).open(&gate));
    let mut others = one.run_hogs(1);
    others.extend(other.run_hogs(1));
    let parts = shares(&[&crowd, &one, &other]);
    println!("of 0.1 %, 30 % and the rest: {parts:.3?}");
    // Each of them has a turn of 0.2 ms in a third of the watchdog's time, 6 % in all.
    assert!(parts[0] < 0.1, "{parts:?}");
    assert!((0.25..0.33).contains(&parts[1]), "{parts:?}");
    // So many looks cost little.
    assert!(parts[2] > 0.5, "{parts:?}");
    // None of them waits for so long that the kernel ends the scheduler.
    thread::sleep(WATCHDOG * 3 / 2);
    assert_eq!(stage.scheduler.ended(), None);
    drop((hogs, others));
    drop((crowd, one, other));
    fs::remove_dir_all(folder).expect("the folder is ours");
    stage.end();
}
