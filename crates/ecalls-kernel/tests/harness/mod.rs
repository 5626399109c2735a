//! What the tests of protection share: a core of this process, events raised as any user, and
//! subscriptions in any user's name.

#![allow(dead_code, reason = "each test uses a part")]

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ecalls_abi::handler::HANDLER_COUNT;
use ecalls_abi::service::{SERVICE_CORE, ServiceCount, SubscriptionCount};
use ecalls_abi::subscription::{ACTION_HANDLER, Action};
use ecalls_kernel::core::Core;
use ecalls_kernel::measure::{self, Measure};
use ecalls_kernel::owner::Owner;
use ecalls_kernel::subscription::{HostedSubscription, Request};
use zerocopy::FromZeros;

/// How long anything that should happen may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One test at a time uses the core.
static TURN: Mutex<()> = Mutex::new(());

/// A core, and its turn.
pub(crate) struct Stage {
    pub(crate) core: Arc<Core>,
    _turn: MutexGuard<'static, ()>,
}

/// None, with a word about it, unless tests may load programs into this kernel.
pub(crate) fn stage() -> Option<Stage> {
    if std::env::var_os("ECALLS_TEST_ROOT").is_none() || !ecalls_kernel::is_root() {
        eprintln!("skipped: needs root and ECALLS_TEST_ROOT=1");
        return None;
    }
    let turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let core = Arc::new(Core::open().expect("root can open the core"));
    // The programs that raise are loaded at their first use, which needs the rights of root.
    measure::raise(&core, &Measure::new(0)).expect("no round of a program that runs");
    Some(Stage { core, _turn: turn })
}

/// Runs `work` on a thread whose user is `uid`.
pub(crate) fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: takes numbers only; the call itself, unlike the C library's function, changes
            // this thread alone.
            let error = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
            assert_eq!(error, 0, "root becomes anybody");
            work()
        });
        thread.join().expect("the thread's work")
    })
}

impl Stage {
    /// This process as a process of user `uid`, limited by row `user`.
    pub(crate) fn owner(&self, uid: u32, user: u32) -> Owner {
        let owner = Owner::current(&self.core).expect("this process lives");
        Owner { uid, user, ..owner }
    }

    /// A subscription to the service `core` that counts its events.
    pub(crate) fn subscribe(&self, owner: &Owner, scope: u32) -> HostedSubscription {
        self.try_subscribe(owner, scope).expect("room for it")
    }

    pub(crate) fn try_subscribe(
        &self,
        owner: &Owner,
        scope: u32,
    ) -> ecalls_kernel::Result<HostedSubscription> {
        let request = Request {
            scope,
            ..request(vec![handler(HANDLER_COUNT)])
        };
        HostedSubscription::install(Arc::clone(&self.core), owner, &request)
    }

    /// Raises `n` events of the service `core` as user `uid`.
    pub(crate) fn raise_as(&self, uid: u32, n: u32) -> Measure {
        self.raise_this_as(uid, &Measure::new(n))
    }

    pub(crate) fn raise_this_as(&self, uid: u32, what: &Measure) -> Measure {
        as_user(uid, || {
            measure::raise(&self.core, what).expect("a program that runs")
        })
    }

    pub(crate) fn count(&self, subscription: &HostedSubscription) -> SubscriptionCount {
        let index = subscription.id().index();
        let count = self.core.subscription_count(index).expect("its row");
        assert_identity(&count);
        count
    }

    /// Waits until a subscription was offered so many events and all is settled.
    pub(crate) fn wait_for(&self, subscription: &HostedSubscription, offered: u64) {
        let index = subscription.id().index();
        wait_until("the events have come", || {
            let count = self.core.subscription_count(index).expect("its row");
            let ends = count.delivered + count.filtered + count.late;
            ends + count.dropped.iter().sum::<u64>() >= offered
        });
    }

    pub(crate) fn service(&self) -> ServiceCount {
        self.core.service_stat(SERVICE_CORE).expect("it").count
    }
}

/// Waits until `done`, at most [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What `Stage::subscribe` asks for: everything of the service `core`.
pub(crate) fn request(actions: Vec<Action>) -> Request {
    Request {
        service: SERVICE_CORE,
        receiver: std::process::id(),
        kinds: 0,
        pid: 0,
        deadline_ns: 0,
        channel: None,
        coalesce: false,
        scope: ecalls_abi::subscription::SCOPE_ALL,
        actions,
    }
}

/// The action of a kernel handler.
pub(crate) fn handler(number: u32) -> Action {
    let mut action = Action::new_zeroed();
    action.kind = ACTION_HANDLER;
    action.handler = number;
    action
}

/// offered = delivered + filtered + late + sum(dropped)
pub(crate) fn assert_identity(count: &SubscriptionCount) {
    let ends = count.delivered + count.filtered + count.late;
    assert_eq!(
        count.offered,
        ends + count.dropped.iter().sum::<u64>(),
        "{count:?}"
    );
}

/// raised = dispatched + late + sum(dropped), of what happened between two readings.
pub(crate) fn assert_service_identity(before: &ServiceCount, after: &ServiceCount) {
    let ends =
        |count: &ServiceCount| count.dispatched + count.late + count.dropped.iter().sum::<u64>();
    assert_eq!(
        after.raised - before.raised,
        ends(after) - ends(before),
        "{after:?}"
    );
}
