//! Events of every size on every path: ring, slots, queue, handlers, E-code, threads, upcalls.
//! What arrives is what was raised, what has no place is counted, and the papers' example of a
//! handler (ECalls-05 §3.3) runs on a service with data of its sizes. Needs root.

mod harness;

use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use ecalls::handler::{Bound, Compare};
use ecalls::{Channel, DropReason, Ecalls, Event, Flow, Handler, Raise, Service, SlotUse};
use ecalls_abi::downcall::{Generic, Op};
use ecalls_abi::event::TARGET_ALL;
use ecalls_abi::version::{DATA_INLINE, DATA_LARGE, DATA_MAX};
use ecode::compile;
use ecode::environment::Environment;
use ecode::run::{Machine, Memory};
use ecode::source::Source;
use harness::cgroup::Group;
use harness::{
    GETPPID, PATIENCE, assert_all_adds_up, assert_comes_to_rest, core, stage, wait_until,
};
use limit::Running;
use limit::calm::measured;
use rustix::io::Errno;

/// Around each step: the data of two cache lines, of the record, of each further entry.
const SIZES: [usize; 13] = [
    0, 1, 8, 40, 41, 168, 169, 416, 417, 1088, 1904, 2151, DATA_MAX,
];

/// The tests share each CPU's places for the data of queued events, so only one runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A service whose data have no format.
fn raw_service(ecalls: &Ecalls) -> (Service, String) {
    let (probe, name) = harness::own_service(ecalls);
    let name = format!("{name}-raw");
    drop(probe);
    let service = ecalls.register_service(&name, "", "").expect("a service");
    (service, name)
}

/// Nothing waits, all is counted, and each place for large data is free again.
fn assert_settles(ecalls: &Ecalls, service: u32) {
    assert_comes_to_rest(ecalls, service);
    let core = ecalls.core().expect("hosted here");
    wait_until("places are free", || {
        core.places_in_use().expect("their count") == 0
    });
}

/// Data of a size that no other has.
fn data(size: usize) -> Vec<u8> {
    (0..size)
        .map(|at| (at * 31 + at / 248 + size) as u8)
        .collect()
}

fn next(channel: &mut Channel) -> Event {
    channel
        .recv_timeout(PATIENCE)
        .expect("a living core")
        .expect("an event")
}

/// What arrives for each of [`SIZES`], raised as `raise` says.
fn assert_all_arrive(
    service: &Service,
    channel: &mut Channel,
    raise: impl for<'a> Fn(Raise<'a>) -> Raise<'a>,
) {
    for size in SIZES {
        let sent = data(size);
        service.raise(&raise(Raise::new(&sent))).expect("raised");
        let event = next(channel);
        assert_eq!((event.size as usize, event.data_bytes()), (size, &*sent));
    }
    assert_eq!(channel.try_recv(), None);
}

#[test]
fn event_of_every_size_arrives_whole_in_ring_and_slot() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = raw_service(&ecalls);
    let mut ring = ecalls.channel().ring(64).open().expect("a channel");
    let slots = ecalls.channel().slots(4, SlotUse::Free).data_max(DATA_MAX);
    let mut slots = slots.open().expect("a channel");
    let narrow = ecalls.channel().slots(64, SlotUse::Free);
    let narrow = narrow.open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let subscription = builder.memory(&ring).memory(&slots).memory(&narrow);
    let subscription = subscription.install().expect("a subscription");
    // More than once around the ring.
    for _ in 0..4 {
        for size in SIZES {
            let sent = data(size);
            service.raise(&Raise::new(&sent)).expect("raised");
            assert_eq!(next(&mut ring).data_bytes(), sent);
            assert_eq!(next(&mut slots).data_bytes(), sent);
        }
    }
    let large = SIZES.iter().filter(|size| **size > DATA_INLINE).count() as u64;
    assert_eq!(narrow.lost().dropped(DropReason::Size), 4 * large);
    let count = subscription.count().expect("its count");
    assert_eq!(count.partial, 4 * large);
    assert_eq!(ring.lost().dropped, [0; 15]);
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn data_that_does_not_fit_is_refused_with_the_limit() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, _) = raw_service(&ecalls);
    let sent = vec![1; DATA_LARGE + 1];
    let error = service.raise(&Raise::new(&sent)).expect_err("too large");
    assert!(error.to_string().contains("65536"), "{error}");
}

#[test]
fn event_of_every_size_waits_whole_for_its_release() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = raw_service(&ecalls);
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let _held = builder.memory(&channel).install().expect("a subscription");
    assert_all_arrive(&service, &mut channel, |raise| {
        raise.release(Duration::from_millis(2))
    });
    // All at once.
    for size in SIZES {
        let sent = data(size);
        let raise = Raise::new(&sent).release(Duration::from_millis(30));
        service.raise(&raise).expect("raised");
    }
    let mut all = SIZES.map(|_| next(&mut channel));
    all.sort_by_key(|event| event.size);
    for (event, size) in all.iter().zip(SIZES) {
        assert_eq!(event.data_bytes(), data(size));
    }
    assert_settles(&ecalls, service.index());
}

/// More large events than a CPU has places for wait: those beyond are dropped and counted, and the
/// places are free again afterwards.
#[test]
fn large_events_without_a_place_are_counted_and_places_come_back() {
    measured(Duration::from_millis(20), || {
        let Some(ecalls) = core() else { return };
        let _alone = alone();
        let (service, name) = raw_service(&ecalls);
        let mut channel = ecalls.channel().ring(8192).open().expect("a channel");
        let builder = ecalls.subscribe(&name).expect("the service");
        let held = builder.memory(&channel).install().expect("a subscription");
        let sent = data(DATA_MAX);
        for _ in 0..3 {
            let before = held.count().expect("its count");
            let raises = 400;
            let mut refused = 0;
            for _ in 0..raises {
                let raise = Raise::new(&sent).release(Duration::from_millis(200));
                refused += u64::from(service.raise(&raise).is_err());
            }
            let mut arrived = 0;
            while arrived < raises - refused {
                assert_eq!(next(&mut channel).data_bytes(), sent);
                arrived += 1;
            }
            assert_settles(&ecalls, service.index());
            let count = held.count().expect("its count");
            let dropped = count.dropped(DropReason::Size) - before.dropped(DropReason::Size);
            assert_eq!(dropped, refused);
            assert!((96..=400 - 96).contains(&refused), "{refused} of {raises}");
        }
        assert_eq!(
            channel.lost().dropped(DropReason::Size),
            held.count().expect("it").dropped[13]
        );
    });
}

/// Once a CPU has no place left, an event displaces the one with the latest deadline, if that is
/// later than its own; what has no deadline displaces nothing.
#[test]
fn earlier_large_event_gets_the_place_of_the_latest() {
    measured(Duration::from_millis(300), || {
        let Some(ecalls) = core() else { return };
        let _alone = alone();
        stage::pin();
        let (service, name) = raw_service(&ecalls);
        let mut channel = ecalls.channel().ring(8192).open().expect("a channel");
        let builder = ecalls.subscribe(&name).expect("the service");
        let held = builder.memory(&channel).install().expect("a subscription");
        let (late, early) = (data(DATA_MAX), data(DATA_MAX - 1));
        let raise = |sent: &[u8], deadline: Option<u64>| {
            let raise = Raise::new(sent).release(Duration::from_secs(2));
            match deadline {
                Some(seconds) => service.raise(&raise.deadline(Duration::from_secs(seconds))),
                None => service.raise(&raise),
            }
            .is_ok()
        };
        let full = (0..400).take_while(|_| raise(&late, Some(90))).count();
        assert!(
            !raise(&late, None) && !raise(&late, Some(90)),
            "no place is left"
        );
        let displacing = 9;
        assert!((0..displacing).all(|_| raise(&early, Some(60))));
        assert!(!raise(&late, Some(95)), "it would be the latest");
        let arrived: Vec<Event> = (0..full).map(|_| next(&mut channel)).collect();
        let first = arrived.iter().filter(|event| event.data_bytes() == early);
        assert_eq!(first.count(), displacing);
        assert_settles(&ecalls, service.index());
        // The one after the last, those that were refused, and those that were displaced.
        let dropped = held.count().expect("its count").dropped(DropReason::Size);
        assert_eq!(dropped, 1 + 3 + displacing as u64);
        assert_eq!(channel.lost().dropped(DropReason::Size), dropped);
    });
}

#[test]
fn threads_upcalls_and_deferred_chains_pass_all_data_on() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = raw_service(&ecalls);
    let sample = Handler::Sample { one_in: 1 };
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let threaded = builder.thread(&sample).memory(&channel);
    let threaded = threaded.install().expect("a subscription");
    assert_all_arrive(&service, &mut channel, |raise| raise);
    drop(threaded);
    let (tell, told) = mpsc::channel();
    let builder = ecalls
        .subscribe(&name)
        .expect("the service")
        .user(move |event| {
            tell.send(event.data_bytes().to_vec()).expect("a listener");
            Flow::Continue
        });
    let upcall = builder.memory(&channel).install().expect("a subscription");
    for size in SIZES {
        let sent = data(size);
        service.raise(&Raise::new(&sent)).expect("raised");
        assert_eq!(told.recv_timeout(PATIENCE).expect("an upcall"), sent);
        assert_eq!(next(&mut channel).data_bytes(), sent);
    }
    drop(upcall);
    let builder = ecalls.subscribe(&name).expect("the service");
    let deferred = builder.ecode("defer(1000); return 1;").memory(&channel);
    let _deferred = deferred.install().expect("a subscription");
    assert_all_arrive(&service, &mut channel, |raise| raise);
    assert_settles(&ecalls, service.index());
}

#[test]
fn kernel_handlers_read_the_last_byte_and_ecode_replaces_all() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let name = format!("test-size-{}", std::process::id());
    let format = "u64 first[268]; u32 last; u8 more[4]";
    let service = ecalls
        .register_service(&name, format, "")
        .expect("a service");
    let mut channel = ecalls.channel().open().expect("a channel");
    let above = Handler::Threshold {
        field: "last".to_owned(),
        compare: Compare::Greater,
        bound: Bound::Value(7),
    };
    let builder = ecalls.subscribe(&name).expect("the service");
    let text = "struct output { u32 got; u64 first[268]; }; output.got = last + more[3]; \
                for (int i = 0; i < 268; i++) output.first[i] = first[267 - i]; return 1;";
    let builder = builder.handler(&above).ecode(text).memory(&channel);
    let _first = builder.install().expect("a subscription");
    let mut plain = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let _second = builder.memory(&plain).install().expect("a subscription");
    for last in [7u32, 9] {
        let mut sent: Vec<u8> = (0u64..268).flat_map(u64::to_ne_bytes).collect();
        sent.extend(last.to_ne_bytes());
        sent.extend([0, 0, 0, 200]);
        assert_eq!(sent.len(), DATA_MAX);
        service.raise(&Raise::new(&sent)).expect("raised");
        assert_eq!(next(&mut plain).data_bytes(), sent, "as it was raised");
    }
    let event = next(&mut channel);
    let words: Vec<u64> = event
        .data_bytes()
        .chunks(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
        .collect();
    assert_eq!(words[0], 209);
    assert!(words[1..].iter().copied().eq((0..268).rev()));
    assert_eq!(channel.try_recv(), None);
    assert_all_adds_up(&ecalls, service.index());
}

/// Whatever was raised before it, in the same places of queue, frame and ring.
#[test]
fn what_an_event_does_not_bring_is_zero() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let name = format!("test-zero-{}", std::process::id());
    let service = ecalls
        .register_service(&name, "u8 first", "")
        .expect("a service");
    let mut channel = ecalls.channel().open().expect("a channel");
    // Fills its output once, and then leaves it as it is.
    let text = "struct output { u64 unset[30]; }; \
                if (first == 255) for (int i = 0; i < 30; i++) output.unset[i] = -1; return 1;";
    let builder = ecalls.subscribe(&name).expect("the service");
    let builder = builder.ecode(text).memory(&channel);
    let reads = builder.install().expect("a subscription");
    let mut plain = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let _stores = builder.memory(&plain).install().expect("a subscription");
    for release in [Duration::ZERO, Duration::from_millis(1)] {
        for size in SIZES {
            let mut raise = |sent: &[u8]| {
                let raise = Raise::new(sent).release(release);
                service.raise(&raise).expect("raised");
                (next(&mut channel), next(&mut plain))
            };
            let (read, _) = raise(&[0xff; DATA_MAX]);
            assert_eq!(read.data_bytes(), [0xff; 240]);
            let (read, stored) = raise(&vec![0; size]);
            // A text that reads what an event does not have fails, and the event passes.
            let expected: &[u8] = if size == 0 { &[] } else { &[0; 240] };
            assert_eq!(read.data_bytes(), expected, "{size} bytes, {release:?}");
            assert_eq!(stored.data, [0; DATA_INLINE / 8], "{size} bytes");
        }
    }
    assert_eq!(reads.count().expect("its count").failed, 2);
    assert_settles(&ecalls, service.index());
}

/// From one application's memory to others' rings: copied once, whole for each of them, and of a
/// handler's choice as every event is.
#[test]
fn large_event_arrives_whole_in_every_ring() {
    const LARGE: [usize; 6] = [DATA_MAX + 1, 2400, 2401, 4096, 40_000, DATA_LARGE];
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = raw_service(&ecalls);
    let rings = [512, 1024].map(|capacity| ecalls.channel().ring(capacity).open());
    let mut rings = rings.map(|ring| ring.expect("a channel"));
    let small = ecalls.channel().ring(64).open().expect("a channel");
    let slots = ecalls.channel().slots(4, SlotUse::Free).data_max(DATA_MAX);
    let mut slots = slots.open().expect("a channel");
    let subscribe = || ecalls.subscribe(&name).expect("the service");
    let text = "struct input { u8 first[2152]; }; return first[0] != 9;";
    let builder = subscribe().ecode(text).memory(&rings[0]).memory(&slots);
    let first = builder.install().expect("a subscription");
    let builder = subscribe().memory(&rings[1]).memory(&small);
    let second = builder.install().expect("a subscription");
    for _ in 0..5 {
        for size in LARGE {
            let mut sent = data(size);
            sent[0] = 1;
            assert_eq!(service.raise(&Raise::new(&sent)).expect("raised"), 2);
            for ring in &mut rings {
                let event = next(ring);
                assert_eq!(event.size as usize, size);
                assert!(event.data_bytes() == sent, "{size} bytes arrive whole");
            }
            sent[0] = 9;
            service.raise(&Raise::new(&sent)).expect("raised");
            assert!(next(&mut rings[1]).data_bytes() == sent);
            assert_eq!(rings[0].try_recv(), None);
        }
    }
    assert_eq!(slots.try_recv(), None, "slots hold up to 2152 bytes");
    assert_eq!(slots.lost().dropped(DropReason::Size), 30);
    let full = small.lost();
    // Its 64 entries hold some of the first ones, and never the largest.
    assert_eq!(full.dropped(DropReason::Size), 5 * 2 * 2);
    let count = first.count().expect("its count");
    assert_eq!((count.filtered, count.delivered), (30, 30));
    assert_eq!(second.count().expect("its count").delivered, 60);
    // A chain that has to wait has no place for such an event.
    drop((first, second));
    let builder = subscribe().thread(&Handler::Sample { one_in: 1 });
    let third = builder.memory(&rings[0]).install().expect("a subscription");
    service.raise(&Raise::new(&data(4096))).expect("raised");
    assert_eq!(
        third.count().expect("its count").dropped(DropReason::Size),
        1
    );
    let release = Raise::new(&[0; 4096]).release(Duration::from_millis(1));
    let error = service.raise(&release).expect_err("it has to wait");
    assert!(error.to_string().contains("2152"), "{error}");
    assert_settles(&ecalls, service.index());
}

/// More handlers than one run of the dispatcher calls: the same raise goes on with the others.
#[test]
fn large_event_arrives_whole_behind_many_handlers() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = raw_service(&ecalls);
    let ring = || ecalls.channel().ring(512).open().expect("a channel");
    let mut rings: Vec<Channel> = (0..60).map(|_| ring()).collect();
    let subscribe = |channel| {
        let builder = ecalls.subscribe(&name).expect("the service");
        let builder = builder.handler(&Handler::Sample { one_in: 1 });
        builder.memory(channel).install().expect("a subscription")
    };
    let _held: Vec<_> = rings.iter().map(subscribe).collect();
    for size in [DATA_MAX, DATA_MAX + 1, 65536] {
        let sent = data(size);
        assert_eq!(service.raise(&Raise::new(&sent)).expect("raised"), 60);
        for ring in &mut rings {
            assert!(next(ring).data_bytes() == sent, "{size} bytes arrive whole");
        }
    }
    assert_settles(&ecalls, service.index());
}

/// A reader that stops while large events come loses those that do not fit, by count, and reads all
/// others whole.
#[test]
fn reader_that_stops_amid_large_events_loses_none_uncounted() {
    const ROUNDS: usize = 15;
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = raw_service(&ecalls);
    let mut ring = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let subscription = builder.memory(&ring).install().expect("a subscription");
    let (mut read, mut raised) = (0, 0);
    for round in 0..ROUNDS {
        for at in 0..7 {
            let sent = data(DATA_LARGE - round * 7 - at);
            service.raise(&Raise::new(&sent)).expect("raised");
            raised += 1;
        }
        while let Some(event) = ring.try_recv() {
            assert!(event.data_bytes() == data(event.size as usize));
            read += 1;
        }
    }
    let count = subscription.count().expect("its count");
    let lost = ring.lost().dropped(DropReason::RingFull);
    assert_eq!(
        (read + lost, count.offered, count.delivered),
        (raised, raised, read)
    );
    assert_eq!(
        read,
        3 * ROUNDS as u64,
        "three of them fit into 1024 entries"
    );
    assert_all_adds_up(&ecalls, service.index());
}

/// A process whose group has the memory of three of its rings, and the events that it reads.
const EVENTS: usize = 40;

/// Not a test: what that process does. It takes all memory for channels, and reads large events.
#[test]
fn child() {
    let Ok(name) = std::env::var("ECALLS_TEST_NAME") else {
        return;
    };
    std::io::stdin().lines().next();
    let ecalls = Ecalls::join().expect("a core").expect("its parent's core");
    let mut channels = Vec::new();
    let error = loop {
        match ecalls.channel().ring(65536).open() {
            Ok(channel) => channels.push(channel),
            Err(error) => break error,
        }
    };
    let builder = ecalls.subscribe(&name).expect("the service");
    let _subscription = builder.memory(&channels[0]).install().expect("one");
    println!("\nrefused: {error}");
    for _ in 0..EVENTS {
        let event = next(&mut channels[0]);
        assert!(event.data_bytes() == data(event.size as usize));
    }
    println!("\nread");
}

/// Memory that a process has not got is refused by a word, and no event is lost for want of it.
#[test]
fn process_without_memory_reads_its_large_events_whole() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let limited = |mut group: Group| group.limit_memory(64 << 20, false).then_some(group);
    let Some(group) = Group::new().and_then(limited) else {
        return;
    };
    let (service, name) = raw_service(&ecalls);
    let mut ring = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let subscription = builder.memory(&ring).install().expect("a subscription");
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "child", "--nocapture"]);
    command.env("ECALLS_TEST_NAME", &name);
    let mut child = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    group.adopt(child.id());
    let mut output = child.lines();
    drop(child.input());
    assert!(output.find("refused", PATIENCE).contains("memory"));
    for at in 0..EVENTS {
        let sent = data(DATA_LARGE - at);
        assert_eq!(service.raise(&Raise::new(&sent)).expect("raised"), 2);
        assert!(next(&mut ring).data_bytes() == sent);
    }
    output.find("read", PATIENCE);
    let count = subscription.count().expect("its count");
    assert_eq!(count.delivered, EVENTS as u64);
    assert_settles(&ecalls, service.index());
}

/// An address from which so many bytes are readable, and none behind them: at the end of the stack,
/// which ends with the program's name.
fn readable(bytes: u64) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own");
    let stack = maps.lines().find(|line| line.ends_with("[stack]"));
    let range = stack.and_then(|line| line.split([' ', '-']).nth(1));
    u64::from_str_radix(range.expect("its end"), 16).expect("an address") - bytes
}

/// Data that are not in memory when they are copied: the raise fails if that is known before
/// anything is delivered, else the reader passes over the event, and finds the next ones.
#[test]
fn data_that_cannot_be_read_are_counted_and_leave_no_hole() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = raw_service(&ecalls);
    let mut ring = ecalls.channel().ring(64).open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let subscription = builder.memory(&ring).install().expect("a subscription");
    let raise = |size: usize, rest: u64| {
        let mut call = Generic::new(&name, Op::Raise).expect("a name");
        call.target = TARGET_ALL;
        call.size = u32::try_from(size).expect("small");
        call.rest = rest;
        ecalls.access().generic(&mut call).expect("a call")
    };
    let efault = -i64::from(Errno::FAULT.raw_os_error());
    for round in 1..=20 {
        assert_eq!(raise(2000, 0x1000), efault);
        assert_eq!(raise(2000, readable(1000)), efault);
        assert_eq!(raise(8000, readable(1000)), efault);
        assert_eq!(raise(8000, readable(3000)), 1);
        assert_eq!(ring.try_recv(), None, "round {round}");
        let count = subscription.count().expect("its count");
        assert_eq!(count.dropped(DropReason::Size), round);
        assert_eq!((count.offered, count.delivered), (2 * round - 1, round - 1));
        let sent = data(3000);
        service.raise(&Raise::new(&sent)).expect("raised");
        assert_eq!(next(&mut ring).data_bytes(), sent);
    }
    assert_eq!(ring.lost().dropped(DropReason::Size), 20);
    assert_settles(&ecalls, service.index());
}

/// The example of ECalls-05 §3.3, in the paper's words.
const PAPER: &str = include_str!("../../../tests/ecode/compare/paper.ec");
const RESOURCES: usize = 16;
const ATTRIBUTES: usize = 8;

/// What a monitor tells of one resource.
#[derive(Clone, Copy, Default)]
struct Metric {
    attributes: i32,
    attribute: [i32; ATTRIBUTES],
    threshold: [i32; ATTRIBUTES],
}

impl Metric {
    /// The times of one field of /proc/PID/stat and its followers, which count for ever.
    fn of_process(stat: &str) -> Option<Metric> {
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut metric = Metric::default();
        let values = fields
            .split(' ')
            .skip(7)
            .filter_map(|field| field.parse::<i64>().ok());
        for (attribute, value) in metric.attribute.iter_mut().zip(values) {
            *attribute = (value & 0x7fff_ffff) as i32;
            metric.attributes += 1;
        }
        Some(metric)
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        let words = [self.attributes].into_iter();
        let words = words.chain(self.attribute).chain(self.threshold);
        words.flat_map(i32::to_ne_bytes)
    }

    fn exceeded(&self) -> impl Iterator<Item = i32> {
        let pairs = self.attribute.into_iter().zip(self.threshold);
        let used = self.attributes as usize;
        pairs
            .enumerate()
            .map(move |(at, (attribute, threshold))| i32::from(at < used && attribute > threshold))
    }
}

/// 16 resources with 8 attributes each: the first processes of this machine, with thresholds that
/// some of their figures exceed.
fn resources(round: i32) -> Vec<Metric> {
    let all = std::fs::read_dir("/proc").expect("the processes");
    let stats =
        all.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let mut metrics: Vec<_> = stats.filter_map(|stat| Metric::of_process(&stat)).collect();
    metrics.resize(RESOURCES, Metric::default());
    for (at, metric) in metrics.iter_mut().enumerate() {
        metric.attributes = (metric.attributes).min(8 - at as i32 % 3);
        metric.threshold = metric
            .attribute
            .map(|value| value + (at as i32 + round) % 3 - 1);
    }
    metrics
}

/// The same text in user space: what `output` is for an input.
fn user_space(text: &str) -> impl FnMut(&[u8]) -> Vec<u8> {
    let source = Source::new("paper", text);
    let compiled = compile(&source, &Environment::default()).expect("the example");
    let mut machine = Machine::new(&compiled.program);
    let mut memory = Memory::new(&compiled.program);
    move |input| {
        memory.set_input(input);
        machine.run(&mut memory).expect("no fault");
        memory.output().to_vec()
    }
}

#[test]
fn example_of_the_paper_runs_at_its_sizes_in_kernel_and_user_space_alike() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = raw_service(&ecalls);
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let subscription = builder.ecode(PAPER).memory(&channel);
    let subscription = subscription.install().expect("the example");
    let mut user = user_space(PAPER);
    let mut exceeded = 0;
    for round in 0..20 {
        let metrics = resources(round);
        let sent: Vec<u8> = metrics.iter().flat_map(Metric::bytes).collect();
        assert_eq!(sent.len(), 1088);
        service.raise(&Raise::new(&sent)).expect("raised");
        let event = next(&mut channel);
        let expected: Vec<i32> = metrics.iter().flat_map(Metric::exceeded).collect();
        let bytes: Vec<u8> = expected
            .iter()
            .copied()
            .flat_map(i32::to_ne_bytes)
            .collect();
        assert_eq!(event.data_bytes().len(), 512);
        assert_eq!(event.data_bytes(), bytes);
        assert_eq!(user(&sent), bytes);
        exceeded += expected.iter().sum::<i32>();
    }
    assert!(exceeded > 0, "the thresholds decide something");
    let count = subscription.count().expect("its count");
    assert_eq!((count.handlers, count.failed), (20, 0));
    assert_all_adds_up(&ecalls, service.index());
}

/// A service of the kernel's, in E-code: an event for each getppid(2) of this process.
fn kernel_service(ecalls: &Ecalls, name: &str, body: &str) -> ecalls::Provider {
    let text = format!(
        "service \"{name}\" on tracepoint \"raw_syscalls:sys_enter\";\n\
         {}\n",
        body.replace(
            "ONLY",
            &format!(
                "if (event.pid != {} || id != {GETPPID}) return 0;",
                std::process::id()
            )
        )
    );
    ecalls.provide_ecode(name, &text).expect("a service")
}

/// Events that are only stored are delivered by raise() itself, others by the dispatcher.
#[test]
fn event_of_a_kernel_service_arrives_whole_whoever_delivers_it() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    for words in [21usize, 22, 52, 53, 83, 84, DATA_MAX / 8] {
        let name = format!("test-words-{words}");
        let body = format!(
            "struct output {{ u64 word[{words}]; }};\nstatic u64 call;\nONLY\n\
             for (int i = 0; i < {words}; i++) output.word[i] = call * 1000 + i;\n\
             call++;\nreturn 1;"
        );
        let provider = kernel_service(&ecalls, &name, &body);
        let mut ring = ecalls.channel().ring(64).open().expect("a channel");
        let slots = ecalls.channel().slots(4, SlotUse::Free).data_max(DATA_MAX);
        let mut slots = slots.open().expect("a channel");
        let subscribe = || ecalls.subscribe(&name).expect("the service");
        let held = [&ring, &slots].map(|channel| subscribe().memory(channel).install());
        let held = held.map(|one| one.expect("a subscription"));
        let mut calls = 0u64;
        let mut call = |channels: &mut [&mut Channel]| {
            let _ = std::os::unix::process::parent_id();
            let expected: Vec<u8> = (0..words as u64)
                .flat_map(|at| (calls * 1000 + at).to_ne_bytes())
                .collect();
            for channel in channels {
                assert!(next(channel).data_bytes() == expected, "{words} words");
            }
            calls += 1;
        };
        for _ in 0..20 {
            call(&mut [&mut ring, &mut slots]);
        }
        let mut chained = ecalls.channel().open().expect("a channel");
        let builder = subscribe().handler(&Handler::Sample { one_in: 1 });
        let chain = builder.memory(&chained).install().expect("a subscription");
        for _ in 0..20 {
            call(&mut [&mut ring, &mut slots, &mut chained]);
        }
        let delivered = held
            .iter()
            .chain([&chain])
            .map(|one| one.count().expect("it").delivered);
        assert!(delivered.eq([40, 40, 20]));
        drop((held, chain));
        assert_settles(&ecalls, provider.index());
    }
}

/// The paper's example for a service of the kernel's, whose format is made of plain arrays.
const FLAT: &str = "struct input { s32 word[272]; };
    struct verdict { int exceeded[8]; };
    struct output { struct verdict resource[16]; };
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < input.word[i * 17]; j++)
            output.resource[i].exceeded[j] =
                input.word[i * 17 + 1 + j] > input.word[i * 17 + 9 + j];
    return 1;";

#[test]
fn example_of_the_paper_handles_events_of_a_kernel_service() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let name = "test-metrics";
    // 17 words of a resource: how many attributes, 8 of them, 8 thresholds.
    let body = "struct output { int word[272]; };\nstatic int call;\nONLY\n\
                for (int i = 0; i < 16; i++) {\n\
                    output.word[i * 17] = 8 - (i + call) % 3;\n\
                    for (int j = 1; j < 9; j++) {\n\
                        output.word[i * 17 + j] = (i * 13 + j * 7 + call * 5) % 32;\n\
                        output.word[i * 17 + j + 8] = 16;\n\
                    }\n\
                }\n\
                call++;\nreturn 1;";
    let provider = kernel_service(&ecalls, name, body);
    let mut input = ecalls.channel().open().expect("a channel");
    let mut output = ecalls.channel().open().expect("a channel");
    let subscribe = || ecalls.subscribe(name).expect("the service");
    let builder = subscribe().memory(&input);
    let _input = builder.install().expect("a subscription");
    let builder = subscribe().ecode(FLAT).memory(&output);
    let handled = builder.install().expect("the example");
    let mut user = user_space(FLAT);
    let mut exceeded = 0;
    for call in 0..20 {
        let _ = std::os::unix::process::parent_id();
        let (metrics, verdicts) = (next(&mut input), next(&mut output));
        let words: Vec<i32> = metrics
            .data_bytes()
            .chunks(4)
            .map(|word| i32::from_ne_bytes(word.try_into().expect("4 bytes")))
            .collect();
        assert_eq!((words.len(), words[0]), (16 * 17, 8 - call % 3));
        assert_eq!(words[17 + 1], (13 + 7 + call * 5) % 32, "of resource 1");
        assert_eq!(verdicts.data_bytes().len(), 512);
        assert!(user(metrics.data_bytes()) == verdicts.data_bytes());
        exceeded += verdicts
            .data_bytes()
            .iter()
            .filter(|byte| **byte == 1)
            .count();
    }
    assert!(exceeded > 0, "the thresholds decide something");
    let count = handled.count().expect("its count");
    assert_eq!((count.handlers, count.failed), (20, 0));
    assert_all_adds_up(&ecalls, provider.index());
}
