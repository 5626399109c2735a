//! What a user may use of the core, at the limit, below and above it: offers, handler time, raises,
//! timers and places in queues; and that nothing stays counted when nothing waits. Needs root.

#![allow(
    unsafe_code,
    reason = "threads of other users, and a mapping of a channel"
)]

mod harness;

use std::mem::offset_of;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ecalls_abi::channel::DropReason;
use ecalls_abi::downcall::{
    DOWN_CAPACITY, DOWN_ELEMENT_BYTES, DOWN_ELEMENTS, DOWN_FRAMES, DRAIN_MAX, Down, Downcall, Op,
    PRCTL,
};
use ecalls_abi::ecode::HANDLER_ECODE;
use ecalls_abi::event::TARGET_ALL;
use ecalls_abi::handler::{HANDLER_COPY_USER, HANDLER_COUNT};
use ecalls_abi::service::{SERVICE_SOCKET, SERVICE_TIMER, SocketInterest};
use ecalls_abi::subscription::{ACTION_MEMORY, ACTION_THREAD, Action, SCOPE_ALL};
use ecalls_kernel::access;
use ecalls_kernel::channel::{HostedChannel, Shape};
use ecalls_kernel::handler::Handler;
use ecalls_kernel::measure::Measure;
use ecalls_kernel::raise::{self, Raise};
use ecalls_kernel::service::{self, HostedService};
use ecalls_kernel::subscription::{HostedSubscription, Request};
use ecalls_kernel::user::Limits;
use ecode::compile;
use ecode::environment::Environment;
use ecode::source::Source;
use harness::{Stage, assert_service_identity, handler, request, stage, wait_until};
use limit::calm::measured;
use zerocopy::FromZeros;

const ANNA: u32 = 61_001;
const ROW: u32 = 200;
const QUOTA: DropReason = DropReason::Quota;
const EDQUOT: i64 = -122;

/// Gives Anna a fresh row with these limits.
fn limit(stage: &Stage, limits: &Limits) {
    stage.core.free_user(ROW).expect("a row");
    stage.core.set_user(ROW, ANNA, limits).expect("a row");
}

fn queued(stage: &Stage) -> u32 {
    stage.core.user(ROW).expect("a row").queued
}

#[test]
fn offers_beyond_the_rate_are_dropped_for_that_user_only() {
    measured(Duration::from_millis(300), || {
        let Some(stage) = stage() else { return };
        limit(
            &stage,
            &Limits {
                up_per_s: 1,
                up_burst: 10,
                ..Limits::default()
            },
        );
        let anna = stage.subscribe(&stage.owner(ANNA, ROW), SCOPE_ALL);
        let root = stage.subscribe(&stage.owner(0, 0), SCOPE_ALL);
        for (more, delivered, refused) in [(9, 9, 0), (1, 10, 0), (1, 10, 1), (20, 10, 21)] {
            stage.raise_as(0, more);
            let count = stage.count(&anna);
            assert_eq!(
                (count.delivered, count.dropped(QUOTA)),
                (delivered, refused)
            );
        }
        assert_eq!(stage.count(&root).delivered, 31);
        let user = stage.core.user(ROW).expect("it");
        assert_eq!((user.offered, user.up_throttled), (31, 21));
        stage
            .core
            .set_user(ROW, ANNA, &Limits::default())
            .expect("no limits");
        stage.raise_as(0, 5);
        assert_eq!(stage.count(&anna).delivered, 15, "a limit of 0 is none");
    });
}

/// An event that arrives at the socket.
fn arrive(socket: &UdpSocket) {
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = socket.local_addr().expect("an address");
    sender.send_to(&[1], to).expect("a datagram");
    socket.recv(&mut [0; 8]).expect("the datagram");
}

/// The program of the socket service offers an event by itself where several want it: a user's rate
/// and handler time hold there, too.
#[test]
fn several_to_a_socket_are_offered_what_each_user_s_rate_permits() {
    measured(Duration::from_millis(300), || {
        let Some(stage) = stage() else { return };
        let few = Limits {
            up_per_s: 1,
            up_burst: 10,
            handler_ns_per_s: 500_000_000,
            ..Limits::default()
        };
        limit(&stage, &few);
        let (core, shape) = (&stage.core, Shape::default());
        let (root, anna) = (stage.owner(0, 0), stage.owner(ANNA, ROW));
        let open = |owner| HostedChannel::open(Arc::clone(core), owner, &shape).expect("a channel");
        let source = Source::new("test.ec", "return 1;");
        let compiled = compile(&source, &Environment::default()).expect("it compiles");
        let filter = Handler::new(&compiled.program, Some(compiled.object), source);
        let filter = (0, filter.expect("a handler"));
        let subscribe = |owner, channel: &HostedChannel, filters: &[(usize, Handler)]| {
            let mut memory = Action::new_zeroed();
            memory.kind = ACTION_MEMORY;
            memory.channel = channel.id().raw();
            let mut actions = vec![handler(HANDLER_ECODE); filters.len()];
            actions.push(memory);
            let wanted = Request {
                service: SERVICE_SOCKET,
                channel: Some(channel.id()),
                ..request(actions)
            };
            HostedSubscription::install_with(Arc::clone(core), owner, &wanted, filters)
                .expect("a subscription")
        };
        let (roots, annas) = (open(&root), open(&anna));
        let filter = [filter];
        let both = [
            subscribe(&root, &roots, &[]),
            subscribe(&root, &roots, &filter),
        ];
        let limited = [
            subscribe(&anna, &annas, &[]),
            subscribe(&anna, &annas, &filter),
        ];
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let interest = SocketInterest {
            target: TARGET_ALL,
            kinds: 1,
            pid: std::process::id(),
            ..SocketInterest::default()
        };
        ecalls_kernel::socket::register(core, socket.as_fd(), &interest).expect("a socket");
        for _ in 0..20 {
            arrive(&socket);
        }
        let counts = |subscription| {
            let count = stage.count(subscription);
            (count.offered, count.delivered, count.dropped(QUOTA))
        };
        assert_eq!(both.each_ref().map(counts), [(20, 20, 0); 2]);
        assert_eq!(limited.each_ref().map(counts), [(20, 5, 15); 2]);
        let user = stage.core.user(ROW).expect("it");
        assert_eq!((user.offered, user.up_throttled), (40, 30));
        assert!(user.handler_ns > 0, "its filter's time is counted");
    });
}

#[test]
fn handlers_do_not_run_beyond_their_budget() {
    measured(Duration::from_millis(4), || {
        let Some(stage) = stage() else { return };
        limit(
            &stage,
            &Limits {
                handler_ns_per_s: 1,
                ..Limits::default()
            },
        );
        let anna = stage.subscribe(&stage.owner(ANNA, ROW), SCOPE_ALL);
        stage.raise_as(0, 10);
        let count = stage.count(&anna);
        assert_eq!(
            (count.handlers, count.delivered, count.dropped(QUOTA)),
            (1, 1, 9)
        );
        let user = stage.core.user(ROW).expect("it");
        assert_eq!(user.handler_throttled, 9);
        assert!(user.handler_ns > 0);
        let plenty = Limits {
            handler_ns_per_s: 500_000_000,
            ..Limits::default()
        };
        stage.core.set_user(ROW, ANNA, &plenty).expect("a row");
        stage.raise_as(0, 10);
        assert_eq!(stage.count(&anna).delivered, 11);
    });
}

/// A channel of Anna's in this process.
struct Channel {
    hosted: HostedChannel,
    down: *mut AtomicU64,
}

const DOWN_BYTES: usize = DOWN_ELEMENT_BYTES * DOWN_ELEMENTS;

impl Channel {
    fn open(stage: &Stage) -> Channel {
        // The calls below are made without the library, which would load it with the first one.
        stage.core.fast_call().expect("a fast call");
        let owner = stage.owner(ANNA, ROW);
        let hosted = HostedChannel::open(Arc::clone(&stage.core), &owner, &Shape::default());
        let hosted = hosted.expect("a channel");
        let fd = hosted.fds().down.as_raw_fd();
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let down = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                DOWN_BYTES,
                both,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        assert_ne!(down, libc::MAP_FAILED);
        Channel {
            hosted,
            down: down.cast(),
        }
    }

    /// A fast call with its result.
    fn call(&self, op: Op, [a, b, c]: [u64; 3]) -> i64 {
        let id = self.hosted.id().raw();
        let op = u16::try_from(op.raw()).expect("small");
        let word = ecalls_abi::downcall::call(id, 0, op);
        // SAFETY: the arguments are numbers to the kernel.
        unsafe { libc::prctl(PRCTL, word, a, b, c) };
        let at = DOWN_FRAMES * DOWN_ELEMENT_BYTES + offset_of!(Downcall, result);
        self.word(at).load(Ordering::SeqCst).cast_signed()
    }

    /// The word at that byte of the segment.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < DOWN_BYTES && at.is_multiple_of(8));
        // SAFETY: within the mapping and aligned; only seen as an atomic word.
        unsafe { &*self.down.wrapping_add(at / 8) }
    }

    fn timer(&self, number: u64, expiry_ns: u64, period_ns: u64) -> i64 {
        self.call(Op::Timer, [number, expiry_ns, period_ns])
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made above; nobody refers to it any more.
        unsafe { libc::munmap(self.down.cast(), DOWN_BYTES) };
    }
}

/// An application service of Anna's with a subscription of root's.
fn service(stage: &Stage, name: &str) -> (HostedService, HostedSubscription) {
    let info = service::describe(name, "u64 value", "").expect("a name");
    let owner = stage.owner(ANNA, ROW);
    let hosted = HostedService::register(Arc::clone(&stage.core), &owner, &info);
    let hosted = hosted.expect("a free row");
    let wanted = Request {
        service: hosted.index(),
        ..request(vec![handler(HANDLER_COUNT)])
    };
    let subscription =
        HostedSubscription::install(Arc::clone(&stage.core), &stage.owner(0, 0), &wanted);
    (hosted, subscription.expect("one"))
}

fn raise_by_name(stage: &Stage, name: &str, release_us: u64) -> ecalls_kernel::Result<i64> {
    let mut raise = Raise::new(&[1; 8]);
    if release_us != 0 {
        raise = raise.release(Duration::from_micros(release_us));
    }
    raise::raise_by_name(&*access::of_core(Arc::clone(&stage.core)), name, &raise)
}

#[test]
fn raises_beyond_the_rate_are_refused_by_every_way() {
    let Some(stage) = stage() else { return };
    limit(
        &stage,
        &Limits {
            raise_per_s: 1,
            raise_burst: 6,
            ..Limits::default()
        },
    );
    let (hosted, subscription) = service(&stage, "quota-raise");
    let channel = Channel::open(&stage);
    let call = || channel.call(Op::Raise, [u64::from(hosted.index()), u64::MAX, 7]);
    let before = stage.core.service_stat(hosted.index()).expect("it").count;
    for _ in 0..3 {
        assert_eq!(call(), 1);
        assert_eq!(
            raise_by_name(&stage, "quota-raise", 0).expect("within the rate"),
            1
        );
    }
    assert_eq!(call(), EDQUOT);
    let refused = raise_by_name(&stage, "quota-raise", 0).expect_err("beyond the rate");
    assert!(
        matches!(refused, ecalls_kernel::Error::Quota { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("stat --by uid"), "{refused}");
    assert_eq!(stage.count(&subscription).offered, 6);
    let after = stage.core.service_stat(hosted.index()).expect("it").count;
    assert_eq!((after.raised, after.dropped(QUOTA)), (8, 2));
    assert_service_identity(&before, &after);
    let user = stage.core.user(ROW).expect("it");
    assert_eq!((user.raised, user.raise_throttled), (8, 2));
}

/// 2152 bytes take 9 entries, and 64 KiB 265.
#[test]
fn large_events_use_up_a_rate_as_often_as_they_have_entries() {
    let Some(stage) = stage() else { return };
    limit(
        &stage,
        &Limits {
            raise_per_s: 1,
            raise_burst: 18,
            ..Limits::default()
        },
    );
    let (_hosted, subscription) = service(&stage, "quota-size");
    let access = access::of_core(Arc::clone(&stage.core));
    let raise = |size| raise::raise_by_name(&*access, "quota-size", &Raise::new(&vec![1; size]));
    assert_eq!(raise(2152).expect("within the rate"), 1);
    assert_eq!(raise(2152).expect("within the rate"), 1);
    for size in [2152, 8, 65536] {
        let refused = raise(size).expect_err("beyond the rate");
        let told = refused.to_string();
        assert!(told.contains("stat --by uid"), "{told}");
    }
    assert_eq!(stage.count(&subscription).offered, 2);
}

#[test]
fn list_of_deferred_calls_without_end_is_handled_in_bounded_batches() {
    let Some(stage) = stage() else { return };
    let channel = Channel::open(&stage);
    let back = channel.word(offset_of!(Down, back));
    let done = || {
        let of = |at| channel.word(at).load(Ordering::SeqCst);
        of(offset_of!(Down, handled)) + of(offset_of!(Down, refused))
    };
    for batch in 1..=5 {
        // As many as there is room for, again and again.
        let front = channel.word(offset_of!(Down, front)).load(Ordering::SeqCst);
        back.store(front + DOWN_CAPACITY as u64, Ordering::SeqCst);
        channel.call(Op::Nop, [0; 3]);
        assert_eq!(done(), batch * DRAIN_MAX as u64);
    }
    // More than there can be are none.
    back.store(1 << 60, Ordering::SeqCst);
    channel.call(Op::Nop, [0; 3]);
    assert_eq!(done(), 5 * DRAIN_MAX as u64 + 1);
}

#[test]
fn timers_are_limited_and_given_back() {
    let Some(stage) = stage() else { return };
    limit(
        &stage,
        &Limits {
            timers_max: 3,
            ..Limits::default()
        },
    );
    let far = ecalls_kernel::now_ns() + 3_600_000_000_000;
    let channel = Channel::open(&stage);
    for number in 100..103 {
        assert_eq!(channel.timer(number, far, 0), 0);
    }
    assert_eq!(channel.timer(103, far, 0), EDQUOT);
    assert_eq!(
        channel.timer(102, far + 1, 0),
        0,
        "one that is its own already"
    );
    assert_eq!(channel.timer(102, 0, 0), 0, "cancelled");
    assert_eq!(channel.timer(103, far, 0), 0);
    let user = stage.core.user(ROW).expect("it");
    assert_eq!((user.timers, user.timers_throttled), (3, 1));
    drop(channel);
    // What the former channel had is found to be nobody's when it is needed.
    let channel = Channel::open(&stage);
    for number in 200..203 {
        assert_eq!(channel.timer(number, far, 0), 0);
    }
    assert_eq!(channel.timer(203, far, 0), EDQUOT);
    for number in 200..203 {
        assert_eq!(channel.timer(number, 0, 0), 0);
    }
    assert_eq!(stage.core.user(ROW).expect("it").timers, 0);
}

/// Times whose sums would wrap. The kernel takes what it gets for a time long ago, so such a timer
/// would expire again and again, and its CPU do nothing else; here none of them is ever due.
#[test]
fn timer_beyond_the_end_of_time_is_refused() {
    const EINVAL: i64 = -22;
    let Some(stage) = stage() else { return };
    let channel = Channel::open(&stage);
    let most = 1 << 62;
    let far = ecalls_kernel::now_ns() + 3_600_000_000_000;
    assert_eq!(channel.timer(300, most + 1, 0), EINVAL);
    assert_eq!(channel.timer(300, far, most + 1), EINVAL);
    assert_eq!(channel.timer(300, far, u64::MAX), EINVAL);
    assert_eq!(channel.timer(300, most, most), 0);
    assert_eq!(channel.timer(300, 0, u64::MAX), 0, "cancelled");
}

/// What users raise, however many they are, leaves room in each queue for what the kernel's own
/// services raise.
#[test]
fn users_do_not_fill_a_queue() {
    measured(Duration::from_millis(50), || {
        let Some(stage) = stage() else { return };
        limit(&stage, &Limits::default());
        let (hosted, _annas) = service(&stage, "quota-fill");
        let roots = stage.subscribe(&stage.owner(0, 0), SCOPE_ALL);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stay_on_this_cpu();
                let room = (0..1100)
                    .take_while(|_| raise_by_name(&stage, "quota-fill", 500_000).is_ok())
                    .count();
                assert_eq!(room, 768);
                let held = Measure {
                    release_ns: 300_000_000,
                    ..Measure::new(200)
                };
                assert_eq!(stage.raise_this_as(0, &held).done, 200);
            });
        });
        stage.wait_for(&roots, 200);
        assert_eq!(stage.count(&roots).delivered, 200);
        let count = || stage.core.service_stat(hosted.index()).expect("it").count;
        wait_until("all have left the queue", || {
            (queued(&stage), count().dispatched) == (0, 768)
        });
    });
}

/// Keeps the calling thread, and those that it starts, on one CPU.
fn stay_on_this_cpu() {
    // SAFETY: takes nothing.
    let cpu = unsafe { libc::sched_getcpu() }.unsigned_abs() as usize;
    let mut set = [0u64; 16];
    set[cpu / 64] = 1 << (cpu % 64);
    // SAFETY: a set of bits that the call reads, as many bytes as it is told; 0 is this thread.
    let error = unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) };
    assert_eq!(error, 0);
}

#[test]
fn timer_of_a_user_that_raises_too_much_is_put_off() {
    measured(Duration::from_millis(10), || {
        let Some(stage) = stage() else { return };
        limit(
            &stage,
            &Limits {
                raise_per_s: 1,
                raise_burst: 2,
                ..Limits::default()
            },
        );
        let channel = Channel::open(&stage);
        let wanted = Request {
            service: SERVICE_TIMER,
            ..request(vec![handler(HANDLER_COUNT)])
        };
        let subscription =
            HostedSubscription::install(Arc::clone(&stage.core), &stage.owner(0, 0), &wanted);
        let subscription = subscription.expect("one");
        let before = stage.core.service_stat(SERVICE_TIMER).expect("it").count;
        assert_eq!(
            channel.timer(7, ecalls_kernel::now_ns() + 1_000_000, 100_000),
            0
        );
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(channel.timer(7, 0, 0), 0);
        let count = stage.count(&subscription);
        assert_eq!(count.delivered, 2);
        let after = stage.core.service_stat(SERVICE_TIMER).expect("it").count;
        assert_service_identity(&before, &after);
        let dropped = after.dropped(QUOTA) - before.dropped(QUOTA);
        assert!((1..=31).contains(&dropped), "each 10 ms: {dropped}");
    });
}

/// Each expiry is an interrupt, at the cost of whoever runs there: setting a timer and each further
/// expiry of one that has a period count, whatever its user may raise.
#[test]
fn timers_expire_as_often_as_their_user_may_let_them() {
    measured(Duration::from_millis(4), || {
        let Some(stage) = stage() else { return };
        let limits = Limits {
            timer_per_s: 100,
            timer_burst: 5,
            ..Limits::default()
        };
        limit(&stage, &limits);
        let far = ecalls_kernel::now_ns() + 3_600_000_000_000;
        let channel = Channel::open(&stage);
        for _ in 0..5 {
            assert_eq!(channel.timer(400, far, 0), 0);
        }
        assert_eq!(channel.timer(400, far, 0), EDQUOT);
        assert_eq!(stage.core.user(ROW).expect("it").timer_throttled, 1);
        limit(&stage, &limits);
        let wanted = Request {
            service: SERVICE_TIMER,
            ..request(vec![handler(HANDLER_COUNT)])
        };
        let root = stage.owner(0, 0);
        let subscription = HostedSubscription::install(Arc::clone(&stage.core), &root, &wanted);
        let subscription = subscription.expect("one");
        let before = stage.core.service_stat(SERVICE_TIMER).expect("it").count;
        let soon = ecalls_kernel::now_ns() + 1_000_000;
        assert_eq!(channel.timer(400, soon, 50_000), 0);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(channel.timer(400, 0, 0), 0);
        let after = stage.core.service_stat(SERVICE_TIMER).expect("it").count;
        assert_service_identity(&before, &after);
        // 5 at once and one each 10 ms; tried again each 10 ms.
        let delivered = stage.count(&subscription).delivered;
        assert!((5..=40).contains(&delivered), "{delivered}");
        let dropped = after.dropped(QUOTA) - before.dropped(QUOTA);
        assert!((1..=35).contains(&dropped), "{dropped}");
    });
}

#[test]
fn so_many_events_may_wait_and_no_more() {
    measured(Duration::from_millis(50), || {
        let Some(stage) = stage() else { return };
        limit(
            &stage,
            &Limits {
                queued_max: 4,
                ..Limits::default()
            },
        );
        let (hosted, subscription) = service(&stage, "quota-queue");
        let later = || raise_by_name(&stage, "quota-queue", 200_000);
        for waiting in 1..=4 {
            assert_eq!(later().expect("room"), 1);
            assert_eq!(queued(&stage), waiting);
        }
        later().expect_err("enough waits");
        assert_eq!(raise_by_name(&stage, "quota-queue", 0).expect("at once"), 1);
        stage.wait_for(&subscription, 5);
        assert_eq!(queued(&stage), 0);
        assert_eq!(later().expect("room again"), 1);
        stage.wait_for(&subscription, 6);
        let user = stage.core.user(ROW).expect("it");
        assert_eq!((user.queued, user.queue_throttled), (0, 1));
        let count = stage.core.service_stat(hosted.index()).expect("it").count;
        assert_eq!((count.raised, count.dropped(QUOTA)), (7, 1));
    });
}

#[test]
fn queued_count_is_0_after_every_way_out_of_a_queue() {
    let Some(stage) = stage() else { return };
    limit(
        &stage,
        &Limits {
            queued_max: 5000,
            ..Limits::default()
        },
    );
    let (hosted, subscription) = service(&stage, "quota-ways");
    let thread = {
        let mut copy = handler(HANDLER_COPY_USER);
        copy.kind = ACTION_THREAD;
        let wanted = Request {
            service: hosted.index(),
            ..request(vec![copy])
        };
        let owner = stage.owner(ANNA, ROW);
        HostedSubscription::install(Arc::clone(&stage.core), &owner, &wanted).expect("one")
    };
    let before = stage.core.service_stat(hosted.index()).expect("it").count;
    // Held, evicted by their own kind and by the core's, late, and chains that end with their
    // subscription.
    std::thread::scope(|scope| {
        for seed in 0..3u64 {
            let stage = &stage;
            scope.spawn(move || {
                for i in 0..3000u64 {
                    let _ = raise_by_name(stage, "quota-ways", (i * (seed + 7)) % 5 * 4_000);
                }
            });
        }
        stage.raise_this_as(
            0,
            &Measure {
                release_ns: 20_000_000,
                ..Measure::new(5000)
            },
        );
    });
    std::thread::sleep(Duration::from_millis(50));
    drop(thread);
    wait_until("nothing waits", || queued(&stage) == 0);
    std::thread::sleep(Duration::from_millis(200));
    let after = stage.core.service_stat(hosted.index()).expect("it").count;
    assert_service_identity(&before, &after);
    stage.count(&subscription);
    assert_eq!(queued(&stage), 0, "{after:?}");
}
