//! A scene: the victim in peace, an attack, and what must hold after each attack, whatever it was.
//!
//! - The victim has lost nothing, and its events took about as long as in peace.
//! - What each user's subscriptions were offered is accounted for, of the attackers too.
//! - The kernel has complained about nothing.
//! - The daemon uses what it used before.
//!
//! One daemon serves all scenes, so that what an attack leaves behind hurts the next one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ecalls::Ecalls;
use ecalls_abi::message::{QUOTA_QUEUED, QUOTA_TIMERS, UserView};
use limit::Running;
use limit::calm::Standstill;

use crate::actor::{Actor, start};
use crate::daemon::{self, Residue, Usage, await_end_of_core};
use crate::running::{Daemon, PATIENCE, wait_until};
use crate::victim::{Seen, Victim};

/// How long the victim is watched in peace.
const PEACE: Duration = Duration::from_millis(160);

/// Under attack an event may take so many times as long as in peace,
const SLOWER: u64 = 4;

/// and so much longer, us: in the middle little, for that shows what each event pays;
const SLACK_US: u64 = 100;

/// at the 99th percentile more, and as long as the machine stood still.
const SLACK_P99_US: u64 = 20_000;

/// Of fewer events the 99th percentile is one event.
const ENOUGH: u64 = 1000;

/// Tolerated growth of the daemon's memory, KiB: its allocator keeps memory of the clients of a
/// moment, who are the more, the busier the machine is.
const MEMORY_SLACK: u64 = 8192;

/// The daemon, and what was of cores in the kernel before it.
static DAEMON: Mutex<Option<(Daemon, Residue)>> = Mutex::new(None);

/// Users of the attackers; each attacker is a new one unless a test wants otherwise.
static NEXT_USER: AtomicU32 = AtomicU32::new(61_000);

/// A user that nobody was before.
pub(crate) fn new_user() -> u32 {
    NEXT_USER.fetch_add(1, Ordering::SeqCst)
}

fn shared() -> MutexGuard<'static, Option<(Daemon, Residue)>> {
    DAEMON.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the daemon that the scenes shared: for tests that start their own.
pub(crate) fn clear() {
    if let Some((mut daemon, before)) = shared().take() {
        daemon.stop();
        await_end_of_core(&before);
    }
}

/// The end of all scenes.
pub(crate) fn finish() {
    clear();
    let _ = std::fs::remove_dir_all(daemon::folder());
}

/// The position in the kernel's log: its last line so far.
#[derive(Debug)]
pub(crate) struct KernelLog(Option<String>);

impl KernelLog {
    /// From now on.
    pub(crate) fn begin() -> KernelLog {
        KernelLog(lines().pop())
    }

    /// Asserts that the kernel has logged no complaint since.
    pub(crate) fn check(&self) {
        let lines = lines();
        // Each line begins with its time. The kernel forgets its oldest ones.
        let last = self.0.as_ref();
        let last = last.and_then(|last| lines.iter().rposition(|line| line == last));
        let new = lines[last.map_or(0, |at| at + 1)..].join("\n");
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let root = crates.and_then(Path::parent).expect("the repository");
        let judge = root.join("tools/kernel-log");
        let log = daemon::folder().join("kernel-log");
        std::fs::write(&log, new).expect("our file");
        let log = std::fs::File::open(&log).expect("our file");
        let mut judge = Command::new(judge);
        let judge = Running::start(judge.stdin(log).stdout(Stdio::piped()));
        let output = judge.output(PATIENCE);
        let found = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "the kernel complains:\n{found}");
    }
}

fn lines() -> Vec<String> {
    let output = limit::output(&mut Command::new("dmesg"), PATIENCE);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

/// A scene that has begun.
#[derive(Debug)]
pub(crate) struct Scene {
    victim: Victim,
    peace: Seen,
    usage: Usage,
    log: KernelLog,
    standstill: Standstill,
}

impl Scene {
    /// The victim in peace.
    pub(crate) fn begin() -> Scene {
        let log = KernelLog::begin();
        let mut shared = shared();
        if shared.as_mut().is_none_or(|(daemon, _)| !daemon.is_alive()) {
            *shared = None;
            let before = ecalls_kernel::residue();
            let new = daemon::start("");
            // What is loaded and allocated once is there then.
            let mut first = Victim::start(new_user());
            first.report();
            first.end();
            let mut needy = start("needy", 0, &[]);
            needy.hear();
            needy.end();
            let mut runtime = start("runtime", new_user(), &[]);
            assert_eq!(runtime.ask("told"), "told");
            runtime.end();
            *shared = Some((new, before));
        }
        let usage = at_rest(&shared.as_ref().expect("started").0);
        drop(shared);
        let mut victim = Victim::start(new_user());
        let standstill = stand_still();
        std::thread::sleep(PEACE / 4);
        victim.report();
        let begin = Instant::now();
        // A machine that stands still lets the victim do nothing.
        let peace = loop {
            std::thread::sleep(PEACE);
            let peace = victim.report();
            if peace.raised > 50 {
                break peace;
            }
            assert!(begin.elapsed() < PATIENCE, "{peace:?}");
        };
        assert_eq!(
            (peace.missing, peace.lost, peace.refused),
            (0, 0, 0),
            "{peace:?}"
        );
        Scene {
            victim,
            peace,
            usage,
            log,
            standstill,
        }
    }

    /// Starts an attacker of a new user.
    pub(crate) fn attacker(&self, role: &str, arguments: &[&str]) -> Actor {
        start(role, new_user(), arguments)
    }

    /// Runs an attack of one role that says "done" when it is through.
    pub(crate) fn attack(self, role: &str, arguments: &[&str]) {
        let mut attacker = self.attacker(role, arguments);
        attacker.expect("done");
        attacker.end();
        self.end();
    }

    /// The longest time for which the machine stood still since it began, us.
    fn stood_still_us(&self) -> u64 {
        u64::try_from(self.standstill.longest().as_micros()).expect("a short time")
    }

    /// How much longer what several processes do one after the other may take than on a machine
    /// that does not stand still.
    pub(crate) fn slack(&self) -> Duration {
        4 * self.standstill.longest()
    }

    /// The victim's measurements under attack so far.
    pub(crate) fn check_victim(&mut self) -> Seen {
        let seen = self.victim.report();
        let peace = &self.peace;
        eprintln!("  in peace {peace:?}\n  attacked {seen:?}");
        assert_eq!(
            (seen.missing, seen.lost, seen.refused),
            (0, 0, 0),
            "{seen:?}"
        );
        let stood_us = self.stood_still_us();
        let most_p99 = peace.p99 * SLOWER + SLACK_P99_US + stood_us;
        let is_slow = seen.p50 > peace.p50 * SLOWER + SLACK_US
            || seen.raised >= ENOUGH && seen.p99 > most_p99;
        assert!(
            !is_slow || is_emulated(),
            "in peace {peace:?}\nunder attack {seen:?}\nthe machine stood still for {stood_us} us"
        );
        seen
    }

    /// The attackers have gone: what must hold.
    pub(crate) fn end(mut self) {
        self.check_victim();
        check_accounts();
        self.victim.end();
        let mut shared = shared();
        let (daemon, _) = shared.as_mut().expect("it was there");
        assert!(daemon.is_alive(), "the daemon has ended\n{}", daemon.log());
        check_usage(daemon, &self.usage);
        self.log.check();
    }
}

/// Whether this is a machine whose times mean nothing (tools/vm).
pub(crate) fn is_emulated() -> bool {
    std::env::var_os("ECALLS_TEST_EMULATED").is_some()
}

/// The resources that the daemon uses without any connection.
fn at_rest(daemon: &Daemon) -> Usage {
    // Timers of channels that have ended are swept when their user wants another one.
    let is_gone = |user: &UserView| {
        let mut used = user.used.iter().enumerate().take(QUOTA_QUEUED);
        user.uid == 0 || used.all(|(which, used)| *used == 0 || which == QUOTA_TIMERS)
    };
    wait_until("everybody has gone", || users().iter().all(is_gone));
    let mut usage = daemon::usage(daemon);
    wait_until("what the daemon uses stays the same", || {
        std::thread::sleep(Duration::from_millis(20));
        let before = std::mem::replace(&mut usage, daemon::usage(daemon));
        usage == before
    });
    usage
}

/// The daemon uses what it used before, soon.
fn check_usage(daemon: &Daemon, before: &Usage) {
    let start = Instant::now();
    loop {
        let now = daemon::usage(daemon);
        let no_more = now.descriptors <= before.descriptors && now.threads <= before.threads;
        if no_more && now.memory <= before.memory + MEMORY_SLACK {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "before {before:?}\nnow {now:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The daemon's processes: broker, door, keeper of the compiler, and its worker.
pub(crate) fn daemon_processes() -> Vec<u32> {
    let shared = shared();
    let (daemon, _) = shared.as_ref().expect("it was started");
    daemon.processes()
}

/// All users as root sees them.
pub(crate) fn users() -> Vec<UserView> {
    let root = Ecalls::open_within(PATIENCE).expect("the daemon");
    root.access().users().expect("an answer").expect("a daemon")
}

/// The resources of one user, as root sees them.
pub(crate) fn user(uid: u32) -> Option<UserView> {
    users().into_iter().find(|user| user.uid == uid)
}

/// From now on, for whoever is as urgent as the victim.
fn stand_still() -> Standstill {
    let tid = || rustix::thread::gettid().as_raw_nonzero().get();
    Standstill::begin(move || crate::raw::make_urgent(tid().cast_unsigned()))
}

/// Of every user: offered = delivered + filtered + late + dropped. Soon, for some may be under way.
pub(crate) fn check_accounts() {
    let start = Instant::now();
    loop {
        let wrong: Vec<_> = users().into_iter().filter(|user| !adds_up(user)).collect();
        if wrong.is_empty() {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "does not add up: {wrong:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn adds_up(user: &UserView) -> bool {
    let count = &user.count;
    let sum = count.delivered + count.filtered + count.late + count.dropped.iter().sum::<u64>();
    count.offered == sum
}
