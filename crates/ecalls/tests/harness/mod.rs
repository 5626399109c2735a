//! What the tests on the kernel share: whether they may run, a service of their own, and the
//! accounting identities, which are checked after each.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod cgroup;
pub(crate) mod stage;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ecalls::{Channel, Ecalls, Event, Service};
use ecalls_abi::service::{ServiceCount, SubscriptionCount};
use ecalls_kernel::builtin;

/// How long anything that should happen may take on a busy machine, or on an emulated one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long to wait for something that should not happen.
pub(crate) const QUIET: Duration = Duration::from_millis(60);

/// The number of getppid(2).
pub(crate) const GETPPID: i64 = if cfg!(target_arch = "aarch64") {
    173
} else {
    110
};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Whether tests may load programs into this kernel: `ECALLS_TEST_ROOT` is set. Says so if not.
pub(crate) fn may_load() -> bool {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return false;
    }
    let root = ecalls_kernel::is_root();
    assert!(root, "ECALLS_TEST_ROOT is set, but this is not root");
    true
}

/// The core, or None where the test may not run. The first one stays until the process ends: to
/// load one anew for each test costs seconds on an emulated machine.
pub(crate) fn core() -> Option<Ecalls> {
    static FIRST: OnceLock<Ecalls> = OnceLock::new();
    let core = core_of_this_test()?;
    FIRST.get_or_init(|| core.clone());
    Some(core)
}

/// The same, which ends with the last handle.
pub(crate) fn core_of_this_test() -> Option<Ecalls> {
    may_load().then(|| Ecalls::host().expect("root can open the core on a supported kernel"))
}

/// A service with a name that no other test has, whose data is one number.
pub(crate) fn own_service(ecalls: &Ecalls) -> (Service, String) {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("test-{}-{number}", std::process::id());
    let service = ecalls
        .register_service(&name, "u64 value", "zero one two")
        .expect("a service");
    (service, name)
}

/// Waits until `done`, at most [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Reads until an event satisfies `wanted`.
pub(crate) fn find(
    channel: &mut Channel,
    what: &str,
    mut wanted: impl FnMut(&Event) -> bool,
) -> Event {
    let mut found = None;
    wait_until(what, || {
        found = channel
            .recv_timeout(Duration::from_millis(100))
            .expect("a living core")
            .filter(|event| wanted(event));
        found.is_some()
    });
    found.expect("found")
}

/// Takes what comes until nothing has come for a while; not for ever, though something may always
/// come: others raise, too. All that was raised before it began is taken, however busy the machine
/// is.
pub(crate) fn take_until_quiet(channel: &mut Channel, mut take: impl FnMut(&Event)) {
    let end_ns = ecalls::now_ns() + u64::try_from(10 * QUIET.as_nanos()).expect("a short time");
    while let Some(event) = channel.recv_timeout(QUIET).expect("a living core") {
        take(&event);
        if event.raise_ns > end_ns {
            break;
        }
    }
}

/// Waits until nothing of a service is under way, and checks its accounting.
pub(crate) fn assert_comes_to_rest(ecalls: &Ecalls, service: u32) {
    wait_until("nothing is under way", || {
        let count = ecalls.access().service_stat(service).expect("it").count;
        count.raised == count.dispatched + count.late + count.dropped.iter().sum::<u64>()
    });
    assert_all_adds_up(ecalls, service);
}

/// A service's threshold or period; back to what it usually is when it is dropped.
pub(crate) struct Parameter<'a>(&'a Ecalls, u32);

impl Parameter<'_> {
    pub(crate) fn set(ecalls: &Ecalls, service: u32, value: Duration) -> Parameter<'_> {
        let value_ns = u64::try_from(value.as_nanos()).expect("a short time");
        let core = ecalls.access();
        core.set_parameter(service, value_ns).expect("a parameter");
        Parameter(ecalls, service)
    }
}

impl Drop for Parameter<'_> {
    fn drop(&mut self) {
        let usual = builtin::parameter(self.1).expect("a parameter").default_ns;
        let _ = self.0.access().set_parameter(self.1, usual);
    }
}

/// raised = dispatched + late + dropped.
pub(crate) fn assert_service_adds_up(count: &ServiceCount) {
    let sum = count.dispatched + count.late + count.dropped.iter().sum::<u64>();
    assert_eq!(
        count.raised, sum,
        "raised = dispatched + late + dropped: {count:?}"
    );
}

/// offered = delivered + filtered + late + dropped.
pub(crate) fn assert_subscription_adds_up(count: &SubscriptionCount) {
    let sum = count.delivered + count.filtered + count.late + count.dropped.iter().sum::<u64>();
    assert_eq!(
        count.offered, sum,
        "offered = delivered + filtered + late + dropped: {count:?}"
    );
}

/// Both identities for one service and all its subscriptions.
pub(crate) fn assert_all_adds_up(ecalls: &Ecalls, service: u32) {
    assert_service_adds_up(
        &ecalls
            .core()
            .expect("hosted here")
            .service_stat(service)
            .expect("the service")
            .count,
    );
    for stat in ecalls
        .core()
        .expect("hosted here")
        .subscriptions()
        .expect("the subscriptions")
    {
        if stat.row.service == service {
            assert_subscription_adds_up(&stat.count);
        }
    }
}
