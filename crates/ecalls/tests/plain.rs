//! The short ways of an event (bpf/event/walk.h, filter.h): where subscriptions only store, raise()
//! delivers by itself; where some have a filter in E-code before, one run of the dispatcher's
//! program does. What arrives and what is counted are the same on each way. Needs root.
//!
//! Most events are of the service `core`, raised by a kernel program as those of the kernel's
//! services are. Tests take turns: all subscribe to that service.

mod harness;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ecalls::socket::Interest;
use ecalls::{Channel, DropReason, Ecalls, Event, Handler, SlotUse, Subscription};
use ecalls_abi::service::{SERVICE_CORE, SERVICE_SOCKET, Service, SocketEvent, SubscriptionCount};
use ecalls_abi::zerocopy::{FromBytes, IntoBytes};
use ecalls_kernel::measure::{self, Measure};
use harness::{PATIENCE, assert_comes_to_rest, assert_subscription_adds_up, core, wait_until};
use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

const EVENTS: u32 = 100;
const ROUND: u64 = EVENTS as u64;
/// More filters than one run of the program calls: `ECALLS_SLOW_FILTERS`.
const FILTERS_MAX: usize = 24;

fn turn() -> Option<(Ecalls, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Some((core()?, turn))
}

/// Before Linux 6.15 the program that raises for the tests has the long way only
/// (bpf/event/pinned.h).
fn is_pinned() -> bool {
    ProgInfoIter::default().any(|info| info.name == "pinned")
}

/// How often the dispatcher's program runs meanwhile.
fn runs_in(work: impl FnOnce()) -> u64 {
    let runs = || -> u64 {
        let all = ProgInfoIter::default().filter(|info| info.name == "deliver");
        all.map(|info| info.run_cnt).sum()
    };
    let _counting = ecalls_kernel::enable_statistics().expect("root can");
    let before = runs();
    work();
    runs() - before
}

/// Raises events with the values from 0 on. Returns how often the dispatcher's program ran.
fn raise(ecalls: &Ecalls, measure: Measure) -> u64 {
    runs_in(|| {
        let done = measure::raise(ecalls.core().expect("hosted here"), &measure);
        assert_eq!(
            done.expect("a program that runs").done,
            u64::from(measure.n)
        );
    })
}

fn some() -> Measure {
    Measure::new(EVENTS)
}

/// A subscription that stores, behind a filter if there is a text.
fn subscribe(ecalls: &Ecalls, text: Option<&str>) -> (Subscription, Channel) {
    let channel = ecalls.channel().open().expect("a channel");
    (installed(ecalls, text, &channel), channel)
}

fn installed(ecalls: &Ecalls, text: Option<&str>, channel: &Channel) -> Subscription {
    let mut builder = ecalls.subscribe("core").expect("the service");
    if let Some(text) = text {
        builder = builder.ecode(text);
    }
    builder.memory(channel).install().expect("a subscription")
}

fn values(channel: &mut Channel) -> Vec<u64> {
    let events = std::iter::from_fn(|| channel.try_recv());
    events.map(|event: Event| event.data_word()).collect()
}

fn count(subscription: &Subscription) -> SubscriptionCount {
    let count = subscription.count().expect("its count");
    assert_subscription_adds_up(&count);
    count
}

#[test]
fn raise_itself_delivers_what_is_only_stored() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let (one, mut first) = subscribe(&ecalls, None);
    let (other, mut second) = subscribe(&ecalls, None);
    let runs = raise(&ecalls, some());
    assert!(
        runs < ROUND / 2 || is_pinned(),
        "the dispatcher ran {runs} times"
    );
    let all: Vec<u64> = (0..ROUND).collect();
    assert_eq!(
        (values(&mut first), values(&mut second)),
        (all.clone(), all)
    );
    for subscription in [one, other] {
        let count = count(&subscription);
        assert_eq!((count.offered, count.delivered), (ROUND, ROUND));
    }
    assert_comes_to_rest(&ecalls, SERVICE_CORE);
}

#[test]
fn a_ring_and_a_slot_that_are_full_are_counted_on_the_short_ways() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    for text in [None, Some("return 1;")] {
        let ring = ecalls.channel().ring(64).open().expect("a ring");
        let slots = ecalls.channel().slots(64, SlotUse::Type);
        let slots = slots.open().expect("slots");
        let to_ring = installed(&ecalls, text, &ring);
        let to_slot = installed(&ecalls, text, &slots);
        raise(&ecalls, some());
        let (ringed, slotted) = (count(&to_ring), count(&to_slot));
        let full = ringed.dropped(DropReason::RingFull);
        assert!(full > 0 && full + ringed.delivered == ROUND, "{ringed:?}");
        assert_eq!(ring.lost().dropped(DropReason::RingFull), full);
        assert_eq!(slotted.dropped(DropReason::Replaced), ROUND - 1);
        assert_eq!(slotted.delivered, 1);
    }
    assert_comes_to_rest(&ecalls, SERVICE_CORE);
}

#[test]
fn readiness_that_was_not_taken_is_counted_and_not_told_again() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let slots = ecalls.channel().slots(64, SlotUse::Ready);
    let mut slots = slots.open().expect("slots");
    let builder = ecalls.subscribe("socket").expect("the service");
    let subscription = builder.memory(&slots).install().expect("a subscription");
    let (here, mut there) = UnixStream::pair().expect("sockets");
    let interest = Interest::default().slot_type(9);
    ecalls.watch_socket(&here, &interest).expect("registered");
    let untold = || {
        let stat = ecalls.access().service_stat(SERVICE_SOCKET);
        stat.expect("it").count.dropped[DropReason::Coalesced.index()]
    };
    let before = untold();
    let mut round = |rounds: u64| {
        for _ in 0..10 {
            there.write_all(b"x").expect("sent");
        }
        let mut ready = Vec::new();
        slots.take_ready(|slot| ready.push(slot));
        assert_eq!(ready, [9]);
        let count = count(&subscription);
        assert_eq!((count.offered, count.delivered), (10 * rounds, rounds));
        assert_eq!(count.dropped(DropReason::Coalesced), 9 * rounds);
        assert_eq!(slots.lost().dropped(DropReason::Coalesced), 9 * rounds);
    };
    round(1);
    round(2);
    assert_eq!(untold() - before, 18, "they were not even raised");
    // What another subscription wants is raised, and the put into the slot decides.
    let mut ring = ecalls.channel().open().expect("a ring");
    let builder = ecalls.subscribe("socket").expect("the service");
    let _other = builder.memory(&ring).install().expect("a subscription");
    round(3);
    assert_eq!(untold() - before, 18);
    assert_eq!(std::iter::from_fn(|| ring.try_recv()).count(), 10);
    assert_comes_to_rest(&ecalls, SERVICE_SOCKET);
}

/// A subscription that coalesces, to a ring.
fn coalescing(ecalls: &Ecalls, service: &str, text: Option<&str>) -> (Subscription, Channel) {
    let channel = ecalls.channel().open().expect("a ring");
    let mut builder = ecalls.subscribe(service).expect("the service").coalesce();
    if let Some(text) = text {
        builder = builder.ecode(text);
    }
    let subscription = builder.memory(&channel).install().expect("a subscription");
    (subscription, channel)
}

#[test]
fn what_a_ring_s_reader_has_not_read_stands_for_further_events() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    for text in [None, Some("return 1;"), Some("count(0); return 1;")] {
        let (each, mut all) = subscribe(&ecalls, None);
        let (subscription, mut ring) = coalescing(&ecalls, "core", text);
        for round in 1..=3 {
            raise(&ecalls, some());
            // Only this CPU raises, and reads afterwards.
            assert_eq!(values(&mut ring), [0], "{text:?}");
            assert_eq!(values(&mut all).len() as u64, ROUND);
            let count = count(&subscription);
            assert_eq!((count.offered, count.delivered), (ROUND * round, round));
            let coalesced = (ROUND - 1) * round;
            assert_eq!(count.dropped(DropReason::Coalesced), coalesced);
            assert_eq!(ring.lost().dropped(DropReason::Coalesced), coalesced);
        }
        drop(each);
    }
    assert_comes_to_rest(&ecalls, SERVICE_CORE);
}

#[test]
fn chain_that_coalesces_stores_once_and_at_its_end() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let sample = || ecalls.subscribe("core").expect("the service").coalesce();
    let two = Handler::Sample { one_in: 2 };
    let mut ring = ecalls.channel().open().expect("a ring");
    let builder = sample().handler(&two).memory(&ring);
    let subscription = builder.install().expect("a subscription");
    raise(&ecalls, some());
    assert_eq!(values(&mut ring), [0]);
    let count = count(&subscription);
    assert_eq!((count.filtered, count.delivered), (ROUND / 2, 1));
    assert_eq!(count.dropped(DropReason::Coalesced), ROUND / 2 - 1);
    let slots = |slot_use| ecalls.channel().slots(64, slot_use).open().expect("slots");
    sample()
        .memory(&slots(SlotUse::Ready))
        .install()
        .expect("they do so anyway");
    let refused = [
        sample().memory(&slots(SlotUse::Type)),
        sample().memory(&ring).memory(&ring),
        sample().memory(&ring).handler(&two),
    ];
    for builder in refused {
        let error = builder.install().expect_err("refused");
        assert!(error.to_string().contains("coalesces"), "{error}");
    }
    drop(subscription);
    assert_comes_to_rest(&ecalls, SERVICE_CORE);
}

#[test]
fn event_of_a_socket_that_was_not_read_stands_for_further_ones() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let mut arrivals = Arrivals::watched_by(&ecalls);
    for text in [None, Some("bytes > 0"), Some("event.time > 0")] {
        for others in 0..2 {
            let (subscription, mut ring) = coalescing(&ecalls, "socket", text);
            let others: Vec<_> = (0..others).map(|_| to_ring(&ecalls, None)).collect();
            for round in 1..=3 {
                arrivals.some(10);
                assert_eq!(taken(&mut ring).len(), 1, "{text:?}");
                let count = count(&subscription);
                assert_eq!((count.offered, count.delivered), (10 * round, round));
                assert_eq!(count.dropped(DropReason::Coalesced), 9 * round);
                assert_eq!(ring.lost().dropped(DropReason::Coalesced), 9 * round);
            }
            drop(others);
        }
    }
    assert_comes_to_rest(&ecalls, SERVICE_SOCKET);
}

/// A socket at which bytes arrive one by one, and are read after each five: 1 to 5 wait, 1 to 5,
/// ... (Many that are not read arrive together in the end.)
struct Arrivals {
    here: TcpStream,
    there: TcpStream,
}

impl Arrivals {
    fn watched_by(ecalls: &Ecalls) -> Arrivals {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        let there = TcpStream::connect(address).expect("a connection");
        there.set_nodelay(true).expect("an option");
        let (here, _) = listener.accept().expect("the connection");
        let interest = Interest::default().slot_type(9);
        ecalls.watch_socket(&here, &interest).expect("registered");
        Arrivals { here, there }
    }

    /// So many arrive. Returns how often the dispatcher's program ran.
    fn some(&mut self, bytes: usize) -> u64 {
        runs_in(|| {
            for some in vec![b'x'; bytes].chunks_mut(5) {
                for byte in &*some {
                    self.there.write_all(&[*byte]).expect("sent");
                }
                self.here.read_exact(some).expect("read");
            }
        })
    }
}

fn to_ring(ecalls: &Ecalls, text: Option<&str>) -> (Subscription, Channel) {
    to_ring_within(ecalls, text, None)
}

fn to_ring_within(
    ecalls: &Ecalls,
    text: Option<&str>,
    deadline: Option<Duration>,
) -> (Subscription, Channel) {
    let channel = ecalls.channel().open().expect("a ring");
    let mut builder = ecalls.subscribe("socket").expect("the service");
    if let Some(deadline) = deadline {
        builder = builder.deadline(deadline);
    }
    if let Some(text) = text {
        builder = builder.ecode(text);
    }
    let subscription = builder.memory(&channel).install().expect("a subscription");
    (subscription, channel)
}

fn taken(channel: &mut Channel) -> Vec<Event> {
    std::iter::from_fn(|| channel.try_recv()).collect()
}

#[test]
fn event_of_a_socket_is_the_same_on_the_short_way_and_on_the_long_one() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let mut arrivals = Arrivals::watched_by(&ecalls);
    let texts = [None, Some("bytes > 0"), Some("event.time > 0")];
    let mut seen = Vec::new();
    for text in texts {
        for others in 0..2 {
            let (subscription, mut ring) = to_ring(&ecalls, text);
            let others: Vec<_> = (0..others).map(|_| to_ring(&ecalls, None)).collect();
            let from_ns = ecalls::now_ns();
            arrivals.some(3);
            let events = taken(&mut ring);
            let ids: HashSet<u64> = events.iter().map(|event| event.id).collect();
            assert_eq!(ids.len(), 3, "{text:?}: {events:?}");
            for event in &events {
                assert!((from_ns..=ecalls::now_ns()).contains(&event.raise_ns));
                assert_eq!(event.subscription, subscription.id().raw());
            }
            seen.push(events.iter().map(without_identity).collect::<Vec<_>>());
            assert_eq!(count(&subscription).delivered, 3);
            drop(others);
        }
    }
    let bytes: Vec<u32> = seen[0].iter().map(|(_, data)| data.bytes).collect();
    assert_eq!(bytes, [1, 2, 3]);
    assert!(seen.iter().all(|events| *events == seen[0]), "{seen:?}");
    assert_comes_to_rest(&ecalls, SERVICE_SOCKET);
}

/// Until when the socket service's deliveries are traced, changed first if `set` says to what.
fn traced(set: Option<u32>) -> u32 {
    let all = MapInfoIter::default().filter(|info| info.name == "services");
    let newest = all.map(|info| info.id).max().expect("this core's");
    let map = MapHandle::from_map_id(newest).expect("root can");
    let key = SERVICE_SOCKET.to_ne_bytes();
    let row = map.lookup(&key, MapFlags::ANY).expect("its row");
    let mut row = Service::read_from_bytes(&row.expect("its row")).expect("the abi's");
    if let Some(until) = set {
        row.traced = until;
        map.update(&key, row.as_bytes(), MapFlags::ANY)
            .expect("written");
    }
    row.traced
}

#[test]
fn time_of_a_trace_that_is_over_is_removed_by_the_next_event() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let mut arrivals = Arrivals::watched_by(&ecalls);
    let (subscription, mut ring) = to_ring(&ecalls, None);
    let now = u32::try_from(ecalls::now_ns() >> 30).expect("no machine runs so long");
    traced(Some(now));
    assert_eq!(arrivals.some(1), 0);
    assert_eq!(traced(None), 0, "its reader was killed");
    let goes_on = now + 600;
    traced(Some(goes_on));
    assert_eq!(arrivals.some(1), 1, "the dispatcher reports it");
    assert_eq!(traced(None), goes_on);
    traced(Some(0));
    assert_eq!(arrivals.some(1), 0);
    assert_eq!(taken(&mut ring).len(), 3);
    assert_eq!(count(&subscription).delivered, 3);
    assert_comes_to_rest(&ecalls, SERVICE_SOCKET);
}

/// The record without what differs from one raise to the next, and the data.
fn without_identity(event: &Event) -> (ecalls_abi::Event, SocketEvent) {
    let record = ecalls_abi::Event {
        id: 0,
        sequence: 0,
        raise_ns: 0,
        cpu: 0,
        subscription: 0,
        ..**event
    };
    (record, event.data_as().expect("a socket event"))
}

#[test]
fn filter_that_only_decides_runs_without_the_dispatcher() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let mut arrivals = Arrivals::watched_by(&ecalls);
    let (subscription, mut ring) = to_ring(&ecalls, Some("bytes % 5 == 0"));
    assert_eq!(arrivals.some(100), 0);
    let counts = count(&subscription);
    assert_eq!((counts.offered, counts.handlers), (100, 100));
    assert_eq!((counts.delivered, counts.filtered), (20, 80));
    assert_eq!(ring.lost().filtered, 80);
    let bytes = |event: Event| event.data_as::<SocketEvent>().expect("one").bytes;
    let passed: Vec<u32> = taken(&mut ring).into_iter().map(bytes).collect();
    assert_eq!(passed, [5; 20]);
    // Another text takes its place, and keeps its state; one that needs the time, too.
    let replace = |text: &str| subscription.replace_ecode(text).expect("a text");
    replace("static long n; return ++n % 2 == 0;");
    assert_eq!(arrivals.some(10), 0);
    assert_eq!(taken(&mut ring).len(), 5);
    replace("static long n; return event.time && ++n % 2 == 0;");
    assert_eq!(arrivals.some(11), 11);
    replace("static long n; return n;");
    assert_eq!(arrivals.some(1), 0);
    assert_eq!(taken(&mut ring).len(), 5 + 1);
    // A fault loses no event.
    let failed = count(&subscription).failed;
    replace("static long few[4]; return few[bytes + 4];");
    assert_eq!(arrivals.some(10), 0);
    assert_eq!(taken(&mut ring).len(), 10);
    assert_eq!(count(&subscription).failed - failed, 10);
    assert_eq!(subscription.faults().expect("read").len(), 1);
    replace("drop(3); return 1;");
    assert_eq!(arrivals.some(10), 0);
    assert_eq!(taken(&mut ring).len(), 0);
    assert_comes_to_rest(&ecalls, SERVICE_SOCKET);
}

#[test]
fn own_deadline_of_a_subscription_counts_from_the_raise_on_the_short_way() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let mut arrivals = Arrivals::watched_by(&ecalls);
    for text in [None, Some("bytes > 0")] {
        let (subscription, mut ring) = to_ring_within(&ecalls, text, Some(PATIENCE));
        assert_eq!(arrivals.some(10), 0, "{text:?}");
        let events = taken(&mut ring);
        assert_eq!(events.len(), 10);
        for event in events {
            let deadline_ns = event.raise_ns + PATIENCE.as_nanos() as u64;
            assert_eq!(event.deadline_ns, deadline_ns, "{text:?}");
        }
        assert_eq!(count(&subscription).delivered, 10);
    }
    // One that is refused has no time of its raise, until it is recorded.
    let (subscription, _ring) = to_ring_within(&ecalls, Some("bytes > 100"), Some(PATIENCE));
    let id = subscription.id().raw();
    let mut recorded = None;
    wait_until("a refusal is recorded", || {
        arrivals.some(1);
        let mut fates = ecalls
            .access()
            .fates(0, 100)
            .expect("the records")
            .into_iter();
        recorded = fates.find(|fate| fate.subscription == id);
        recorded.is_some()
    });
    let fate = recorded.expect("found");
    assert_eq!(fate.deadline_ns, fate.raise_ns + PATIENCE.as_nanos() as u64);
    assert_comes_to_rest(&ecalls, SERVICE_SOCKET);
}

#[test]
fn several_subscriptions_to_a_socket_share_an_event_without_the_dispatcher() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let mut arrivals = Arrivals::watched_by(&ecalls);
    let (refusing, mut none) = to_ring(&ecalls, Some("drop(3); return 1;"));
    let (each, mut all) = to_ring(&ecalls, None);
    let (filter, mut some) = to_ring_within(&ecalls, Some("bytes % 5 == 0"), Some(PATIENCE));
    let (failing, mut rest) = to_ring(&ecalls, Some("static long few[4]; return few[bytes + 4];"));
    assert_eq!(arrivals.some(100), 0);
    let (all, some) = (taken(&mut all), taken(&mut some));
    let identities = |events: &[Event]| -> Vec<(u64, u64)> {
        let identity = |event: &Event| (event.id, event.raise_ns);
        events.iter().map(identity).collect()
    };
    let fifth: Vec<Event> = all.iter().skip(4).step_by(5).cloned().collect();
    assert_eq!(all.len(), 100);
    assert_eq!(identities(&fifth), identities(&some));
    assert_eq!(identities(&all), identities(&taken(&mut rest)));
    assert!(all.iter().all(|event| event.deadline_ns == 0));
    let deadline_ns = PATIENCE.as_nanos() as u64;
    assert!(
        some.iter()
            .all(|event| event.deadline_ns == event.raise_ns + deadline_ns)
    );
    assert!(taken(&mut none).is_empty());
    assert_eq!(none.lost().filtered, 100);
    let outcome = |subscription: &Subscription| {
        let count = count(subscription);
        (count.offered, count.delivered, count.filtered)
    };
    assert_eq!(outcome(&refusing), (100, 0, 100));
    assert_eq!(outcome(&each), (100, 100, 0));
    assert_eq!(outcome(&filter), (100, 20, 80));
    assert_eq!(outcome(&failing), (100, 100, 0));
    assert_eq!(count(&failing).failed, 100);
    // One that needs the time is called by the dispatcher's program, and by itself.
    let (timely, mut timed) = to_ring(&ecalls, Some("event.time && bytes % 5 == 0"));
    assert_eq!(arrivals.some(10), 10);
    assert_eq!(taken(&mut timed).len(), 2);
    assert_eq!(outcome(&timely), (10, 2, 8));
    assert_eq!(outcome(&filter), (110, 22, 88));
    assert_comes_to_rest(&ecalls, SERVICE_SOCKET);
}

#[test]
fn full_ring_on_the_short_way_drops_and_counts() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let mut arrivals = Arrivals::watched_by(&ecalls);
    for text in [None, Some("bytes > 0")] {
        let mut ring = ecalls.channel().ring(64).open().expect("a ring");
        let mut builder = ecalls.subscribe("socket").expect("the service");
        if let Some(text) = text {
            builder = builder.ecode(text);
        }
        let subscription = builder.memory(&ring).install().expect("a subscription");
        arrivals.some(100);
        assert_eq!(taken(&mut ring).len(), 64);
        let counts = count(&subscription);
        assert_eq!((counts.offered, counts.delivered), (100, 64), "{counts:?}");
        assert_eq!(counts.dropped(DropReason::RingFull), 36);
        assert_eq!(ring.lost().dropped(DropReason::RingFull), 36);
        arrivals.some(1);
        assert_eq!(taken(&mut ring).len(), 1);
    }
    assert_comes_to_rest(&ecalls, SERVICE_SOCKET);
}

#[test]
fn reader_that_lets_events_gather_is_woken_once_for_a_batch() {
    const BATCH: u32 = 8;
    const NEVER: Duration = Duration::from_secs(600);
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let raise_some = |n: u32, deadline_ns: u64| {
        let core = ecalls.core().expect("hosted here");
        let batch = Measure {
            deadline_ns,
            ..Measure::new(n)
        };
        measure::raise(core, &batch).expect("raised");
    };
    let channel = ecalls.channel().ring(64).wake_bounds(BATCH, NEVER);
    let mut channel = channel.open().expect("a ring");
    let subscription = installed(&ecalls, None, &channel);
    let (told, tells) = std::sync::mpsc::channel();
    let (tell_tid, tid) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero();
            tell_tid.send(tid).expect("the test listens");
            while let Ok(Some(event)) = channel.recv_timeout(NEVER) {
                if told.send(event.deadline_ns).is_err() {
                    break;
                }
            }
        });
        let task = format!("/proc/self/task/{}", tid.recv().expect("its number"));
        let taken = || tells.recv_timeout(PATIENCE).expect("an event");
        let asleep = || {
            wait_until("the reader sleeps", || limit::sleeps(&task) == Some(true));
            let quiet = tells.recv_timeout(Duration::from_millis(100));
            assert!(quiet.is_err(), "the events of a batch gather");
        };
        let wakes = || count(&subscription).wakes;
        // It sleeps for the first event, then for the batch.
        asleep();
        raise_some(1, 0);
        asleep();
        let first = wakes();
        assert!(first <= 1, "{first}");
        for _ in 2..BATCH {
            raise_some(1, 0);
        }
        asleep();
        assert_eq!(wakes(), first, "nobody is woken within a batch");
        raise_some(1, 0);
        (0..BATCH).for_each(|_| assert_eq!(taken(), 0));
        // More are expected: the first event of the next batch wakes nobody.
        asleep();
        let before = wakes();
        for _ in 1..BATCH {
            raise_some(1, 0);
        }
        asleep();
        assert_eq!(wakes(), before);
        // One with a deadline within the delay does.
        let minute_ns = u64::try_from(NEVER.as_nanos()).expect("a time") / 10;
        raise_some(1, minute_ns);
        let deadlines: Vec<u64> = (0..BATCH).map(|_| taken()).collect();
        assert_eq!(deadlines.iter().filter(|ns| **ns > 0).count(), 1);
        assert_eq!(wakes(), before + 1);
        asleep();
        raise_some(1, minute_ns);
        assert!(taken() > 0);
        drop(tells);
        raise_some(1, minute_ns);
    });
    assert_comes_to_rest(&ecalls, SERVICE_CORE);
}

#[test]
fn a_filter_decides_for_its_own_subscription_in_one_run() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let (some_pass, mut passed) = subscribe(&ecalls, Some("return value % 10 == 3;"));
    let (all_pass, mut all) = subscribe(&ecalls, None);
    let (none_pass, mut none) = subscribe(&ecalls, Some("drop(7);"));
    let runs = raise(&ecalls, some());
    assert!(
        (ROUND..2 * ROUND).contains(&runs) || is_pinned(),
        "the dispatcher's program ran {runs} times"
    );
    let third: Vec<u64> = (0..ROUND).filter(|value| value % 10 == 3).collect();
    assert_eq!(values(&mut passed), third);
    assert_eq!(values(&mut all).len() as u64, ROUND);
    assert_eq!(values(&mut none), []);
    let counts = [some_pass, all_pass, none_pass].map(|one| count(&one));
    let filtered = counts.map(|count| (count.offered, count.delivered, count.filtered));
    assert_eq!(filtered, [(100, 10, 90), (100, 100, 0), (100, 0, 100)]);
    assert_eq!(counts[0].handlers, ROUND);
    assert_eq!((passed.lost().filtered, none.lost().filtered), (90, 100));
    assert_comes_to_rest(&ecalls, SERVICE_CORE);
}

#[test]
fn output_of_a_filter_is_seen_by_its_subscription_alone_and_a_fault_lets_pass() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let text = "struct output { u64 twice; u64 more; }; output.twice = value * 2; output.more = 5;";
    let (_changes, mut changed) = subscribe(&ecalls, Some(text));
    let (fails, mut failed) = subscribe(&ecalls, Some("long a[4]; a[value % 8] = 1; return 0;"));
    let (_plain, mut plain) = subscribe(&ecalls, None);
    raise(&ecalls, some());
    let first = changed.try_recv().expect("an event");
    assert_eq!((first.data[0], first.data[1], first.size), (0, 5, 16));
    assert_eq!(values(&mut changed).last(), Some(&198));
    let all: Vec<u64> = (0..ROUND).collect();
    assert_eq!(values(&mut plain), all);
    let outside: Vec<u64> = (0..ROUND).filter(|value| value % 8 > 3).collect();
    assert_eq!(values(&mut failed), outside);
    let count = count(&fails);
    assert_eq!((count.failed, count.filtered), (48, 52));
    assert_comes_to_rest(&ecalls, SERVICE_CORE);
}

#[test]
fn a_filter_that_defers_goes_on_later() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let text = "if (value == 2) defer(1000); return 1;";
    let (subscription, mut channel) = subscribe(&ecalls, Some(text));
    raise(&ecalls, Measure::new(4));
    let next = || channel.recv_timeout(PATIENCE).expect("a living core");
    let mut next = next;
    let mut found: Vec<u64> = (0..4).map(|_| next().expect("four").data_word()).collect();
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2, 3]);
    assert_comes_to_rest(&ecalls, SERVICE_CORE);
    let count = count(&subscription);
    assert_eq!((count.offered, count.delivered), (4, 4));
}

#[test]
fn many_filters_and_other_chains_take_the_long_way_with_the_same_outcome() {
    let Some((ecalls, _turn)) = turn() else {
        return;
    };
    let text = "return value % 2;";
    let mut many: Vec<_> = (0..=FILTERS_MAX)
        .map(|_| subscribe(&ecalls, Some(text)))
        .collect();
    raise(&ecalls, some());
    for (subscription, channel) in &mut many {
        assert_eq!(values(channel).len() as u64, ROUND / 2);
        assert_eq!(count(subscription).filtered, ROUND / 2);
    }
    many.truncate(1);
    let channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe("core").expect("the service");
    let two = builder.memory(&channel).memory(&channel).install();
    let _two = two.expect("a subscription with two actions");
    raise(&ecalls, some());
    assert_eq!(count(&many[0].0).filtered, ROUND);
    assert_eq!(values(&mut many[0].1).len() as u64, ROUND / 2);
    assert_comes_to_rest(&ecalls, SERVICE_CORE);
}
