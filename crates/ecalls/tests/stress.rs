//! Stress: processes that raise at full speed with random deadlines, release times, targets, kinds
//! and sizes, by every way there is; subscribers of every mechanism, some killed at random moments;
//! and in the end every event is accounted for, whoever stayed has got each of his once, and no
//! wake-up was lost. Needs root.
//!
//! It lasts 12 seconds and a few to start and to end. `ECALLS_STRESS_SECONDS` says another time,
//! `ECALLS_STRESS_SEED` another sequence. The processes are this binary again, told by an
//! environment variable what to do.

mod harness;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ecalls::downcall::{Call, Caller};
use ecalls::signal::SignalQueue;
use ecalls::{
    Channel, Ecalls, Error, Flow, Handler, Raise, Result, SlotUse, Subscription,
    SubscriptionBuilder,
};
use ecalls_abi::event::Target;
use ecalls_abi::version::DATA_MAX;
use harness::{
    PATIENCE, assert_service_adds_up, assert_subscription_adds_up, core, own_service, wait_until,
};
use libtest_mimic::{Arguments, Trial};
use limit::Running;
use limit::calm::Standstill;

/// What a child does: "raise", "trickle" or "subscribe".
const ROLE: &str = "ECALLS_TEST_ROLE";
/// Its seed, and the names of the services, with blanks between.
const SEED: &str = "ECALLS_TEST_SEED";
const NAMES: &str = "ECALLS_TEST_NAMES";

const RAISERS: u64 = 3;
/// Sizes of events' data, most of them small. Each byte of them is [`DATA`].
const SIZES: [usize; 16] = [
    0, 8, 8, 8, 40, 40, 48, 48, 168, 168, 169, 1088, DATA_MAX, DATA_MAX, 6000, 65536,
];
const DATA: u8 = 0x5a;
const SIGNAL: i32 = 40;

/// How long a reader waits at most. If there is an event then, a wake-up was lost.
const LONG: Duration = Duration::from_secs(2);

/// A fixed sequence of numbers (xorshift): a failure can be repeated, as far as timing allows.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    let text = std::env::var(variable);
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

fn start(role: &str, seed: u64, names: &[String]) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .env(ROLE, role)
        .env(SEED, seed.to_string())
        .env(NAMES, names.join(" "))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Running::start(&mut command)
}

/// Waits until a child says that it is at work.
fn wait_ready(running: &mut Running) {
    running.lines().find("ready", PATIENCE);
}

fn play(role: &str) {
    let mut random = Random(number(SEED, 1));
    let names = std::env::var(NAMES).expect("names");
    let names: Vec<&str> = names.split(' ').collect();
    let ecalls = Ecalls::join().expect("a core").expect("its parent's core");
    match role {
        "raise" => raise_for_ever(&ecalls, &names, &mut random),
        "trickle" => loop {
            let pause = Duration::from_micros(random.below(600));
            std::thread::sleep(pause);
            raise_one(&ecalls, names[0], &Raise::new(&[1; 8]));
        },
        "subscribe" => subscribe_and_die(&ecalls, &names, &mut random).expect("a core"),
        other => panic!("{other}?"),
    }
}

/// A full queue refuses, and that is counted.
fn raise_one(ecalls: &Ecalls, name: &str, raise: &Raise<'_>) {
    match ecalls.raise(name, raise) {
        Ok(_) => {}
        Err(Error::Os { source, .. }) if source.raw_os_error() == Some(libc::ENOSPC) => {}
        Err(error) => panic!("{error}"),
    }
}

fn raise_for_ever(ecalls: &Ecalls, names: &[&str], random: &mut Random) {
    let shape = ecalls.channel().defer_delay(Duration::from_micros(200));
    let channel = shape.open().expect("a channel");
    let indices: Vec<u32> = names
        .iter()
        .map(|name| {
            ecalls
                .core()
                .expect("hosted here")
                .find_service(name)
                .expect("it")
        })
        .collect();
    println!("ready");
    let data = vec![DATA; 65536];
    loop {
        let at = usize::try_from(random.below(names.len() as u64)).expect("small");
        let size = SIZES[usize::try_from(random.below(SIZES.len() as u64)).expect("small")];
        let kind = u32::try_from(random.below(3)).expect("small");
        let mut raise = Raise::new(&data[..size])
            .kind(kind)
            .slot_type(u32::try_from(random.below(70)).expect("small"))
            .priority(u32::try_from(random.below(70)).expect("small"));
        raise = match random.below(8) {
            0 => raise.wake_one(),
            1 => raise.target(Target::Process(std::process::id())),
            2 => raise.target(Target::Process(std::os::unix::process::parent_id())),
            _ => raise,
        };
        raise = match random.below(4) {
            0 => raise.deadline(Duration::from_micros(1)),
            1 => raise.deadline(Duration::from_micros(20 + random.below(2000))),
            _ => raise,
        };
        if size <= DATA_MAX && random.below(8) == 0 {
            raise = raise.release(Duration::from_micros(random.below(3000)));
        }
        raise_one(ecalls, names[at], &raise);
        if random.below(3000) == 0 {
            fill_queue(ecalls, names[at], random);
        }
        if random.below(8) == 0 {
            call(channel.caller(), indices[at], kind, random);
        }
    }
}

/// More events that are held than a CPU's queue holds: those with the latest deadlines are dropped.
fn fill_queue(ecalls: &Ecalls, name: &str, random: &mut Random) {
    let data = random.next().to_ne_bytes();
    for _ in 0..1500 {
        let raise = Raise::new(&data).release(Duration::from_millis(200));
        let deadline = Duration::from_micros(1 + random.below(300_000));
        let raise = match random.below(3) {
            0 => raise,
            _ => raise.deadline(deadline),
        };
        raise_one(ecalls, name, &raise);
    }
}

/// The same by a fast and by a deferred call.
fn call(caller: &Caller, service: u32, kind: u32, random: &mut Random) {
    let call = Call::Raise {
        service,
        kind,
        target: -1,
        data: random.next(),
    };
    if random.below(2) == 0 {
        caller.fast(call).expect("a living core");
    } else {
        caller.defer(call).expect("a living core");
    }
}

/// A subscription that uses some mechanisms, in some order.
fn chain(
    builder: SubscriptionBuilder,
    channel: &Channel,
    random: &mut Random,
) -> Result<Subscription> {
    let count = Handler::Count { end: false };
    let sample = Handler::Sample { one_in: 3 };
    match random.below(6) {
        0 => builder.memory(channel).install(),
        1 => builder.user(|_| Flow::Continue).memory(channel).install(),
        2 => builder.thread(&count).memory(channel).install(),
        3 => builder
            .signal(SIGNAL.unsigned_abs())
            .memory(channel)
            .install(),
        4 => builder
            .handler(&sample)
            .signal(SIGNAL.unsigned_abs())
            .install(),
        _ => builder
            .handler(&count)
            .handler(&sample)
            .thread(&count)
            .install(),
    }
}

fn subscribe_and_die(ecalls: &Ecalls, names: &[&str], random: &mut Random) -> Result<()> {
    let queue = SignalQueue::new(&[SIGNAL])?;
    loop {
        let mut channel = match random.below(3) {
            0 => ecalls.channel().ring(64).open()?,
            1 => ecalls.channel().slots(64, SlotUse::Type).open()?,
            _ => ecalls.channel().slots(64, SlotUse::Free).open()?,
        };
        let mut subscriptions = Vec::new();
        for name in names {
            subscriptions.push(chain(ecalls.subscribe(name)?, &channel, random)?);
        }
        for _ in 0..random.below(50) {
            while queue.take()?.is_some() {}
            channel.recv_timeout(Duration::from_millis(1))?;
        }
    }
}

/// What one reader saw.
#[derive(Default)]
struct Seen {
    /// Events.
    count: u64,
    /// Events that it had seen before.
    twice: u64,
    /// Large events with other data than they were raised with.
    torn: u64,
    /// Waits that only their end ended, although there was an event for long: how long each took,
    /// how long ago its event was raised, and the event.
    overslept: Vec<(Duration, Duration, ecalls::Event)>,
}

/// Reads until `stop` is set and nothing more comes.
fn read(mut channel: Channel, stop: &AtomicBool) -> (Seen, Channel) {
    let mut seen = Seen::default();
    let mut ids: Vec<Vec<u64>> = Vec::new();
    loop {
        let start = Instant::now();
        let event = channel.recv_timeout(LONG).expect("a living core");
        let Some(event) = event else {
            if stop.load(Ordering::Relaxed) {
                return (seen, channel);
            }
            continue;
        };
        let waited = Duration::from_nanos(ecalls::now_ns().saturating_sub(event.raise_ns));
        if start.elapsed() >= LONG && waited > LONG * 2 / 3 {
            seen.overslept
                .push((start.elapsed(), waited, event.clone()));
        }
        seen.count += 1;
        let data = event.data_bytes();
        seen.torn += u64::from(data.len() > 8 && data.iter().any(|byte| *byte != DATA));
        let cpu = usize::try_from(event.id >> 48).expect("a CPU");
        let at = usize::try_from(event.id << 16 >> 16).expect("a count");
        ids.resize_with(ids.len().max(cpu + 1), Vec::new);
        let words = ids[cpu].len().max(at / 64 + 1);
        ids[cpu].resize(words, 0);
        seen.twice += ids[cpu][at / 64] >> (at % 64) & 1;
        ids[cpu][at / 64] |= 1 << (at % 64);
    }
}

/// Those that stay: their mechanisms, and what becomes of each.
struct Staying {
    /// Read to the end.
    rings: Vec<(Subscription, Channel)>,
    /// Only counted.
    others: Vec<(Subscription, Option<Channel>)>,
    handled: std::sync::Arc<AtomicU64>,
    user: Subscription,
}

fn stay(ecalls: &Ecalls, names: &[String]) -> Result<Staying> {
    let to = |at: usize| ecalls.subscribe(&names[at]);
    let ring = |size| ecalls.channel().ring(size).keep_late().open();
    let slots = |slot_use| ecalls.channel().slots(64, slot_use).open();
    let mut rings = Vec::new();
    for (at, size) in [(0, 65536), (0, 64), (1, 1024), (2, 4096), (3, 1024)] {
        let channel = ring(size)?;
        rings.push((to(at)?.memory(&channel).install()?, channel));
    }
    let threaded = ring(4096)?;
    let thread = to(1)?.thread(&Handler::Count { end: false });
    rings.push((thread.memory(&threaded).install()?, threaded));
    let mut others = Vec::new();
    for slot_use in [SlotUse::Free, SlotUse::Priority, SlotUse::Type] {
        let channel = slots(slot_use)?;
        others.push((to(1)?.memory(&channel).install()?, Some(channel)));
    }
    let hasty = to(0)?.deadline(Duration::from_micros(30));
    let channel = ring(64)?;
    others.push((hasty.memory(&channel).install()?, Some(channel)));
    let limit = Handler::Limit {
        per_second: 1000,
        burst: 10,
    };
    let signal = SIGNAL.unsigned_abs();
    let limited = to(2)?.handler(&limit).signal(signal);
    others.push((limited.install()?, None));
    others.push((to(2)?.signal(signal).install()?, None));
    let handled = std::sync::Arc::new(AtomicU64::new(0));
    let count = std::sync::Arc::clone(&handled);
    let handler = move |_: &ecalls::Event| {
        count.fetch_add(1, Ordering::Relaxed);
        Flow::Stop
    };
    Ok(Staying {
        rings,
        others,
        user: to(3)?.user(handler).install()?,
        handled,
    })
}

/// Subscribers that are killed and come again, until the time is up.
fn kill_subscribers(names: &[String], random: &mut Random, end: Instant) -> u64 {
    let mut kills = 0;
    let mut living = Vec::new();
    while Instant::now() < end {
        living.push(start("subscribe", random.next(), names));
        std::thread::sleep(Duration::from_millis(random.below(250)));
        if living.len() > 2 {
            let victim = random.below(living.len() as u64);
            drop(living.swap_remove(usize::try_from(victim).expect("small")));
            kills += 1;
        }
    }
    kills
}

/// Ends the threads that look at the flag when it is dropped, also by a panic: a scope waits for
/// its threads.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether no event waits anywhere.
fn is_quiet(ecalls: &Ecalls) -> bool {
    let queues = ecalls
        .core()
        .expect("hosted here")
        .queues()
        .expect("the queues");
    queues
        .iter()
        .all(|queue| queue.ready == 0 && queue.held == 0)
}

fn assert_everything_adds_up(ecalls: &Ecalls, services: &[ecalls::Service]) -> u64 {
    let mut raised = 0;
    for service in services {
        let stat = ecalls
            .core()
            .expect("hosted here")
            .service_stat(service.index())
            .expect("it");
        assert_service_adds_up(&stat.count);
        raised += stat.count.raised;
    }
    for stat in ecalls
        .core()
        .expect("hosted here")
        .subscriptions()
        .expect("them")
    {
        if services.iter().any(|one| one.index() == stat.row.service) {
            assert_subscription_adds_up(&stat.count);
        }
    }
    raised
}

fn everything_adds_up(ecalls: &Ecalls) {
    let seconds = number("ECALLS_STRESS_SECONDS", 12);
    let mut random = Random(number("ECALLS_STRESS_SEED", 0x2545_f491_4f6c_dd1d));
    let (services, names): (Vec<_>, Vec<_>) = (0..4).map(|_| own_service(ecalls)).unzip();
    let staying = stay(ecalls, &names).expect("subscriptions");
    let signals = SignalQueue::new(&[SIGNAL]).expect("a queue of signals");
    let (busy, quiet) = names.split_at(3);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end_of_threads = Stop(&stop);
        let readers: Vec<_> = staying
            .rings
            .into_iter()
            .map(|(subscription, channel)| {
                let stop = &stop;
                (subscription, scope.spawn(move || read(channel, stop)))
            })
            .collect();
        let taker = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                signals.wait(Some(20_000_000)).expect("signals");
            }
        });
        let standstill = Standstill::begin(|| ());
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut raisers: Vec<_> = (0..RAISERS)
            .map(|_| start("raise", random.next(), busy))
            .collect();
        raisers.iter_mut().for_each(wait_ready);
        raisers.push(start("trickle", random.next(), quiet));
        let kills = kill_subscribers(busy, &mut random, end);
        drop(raisers);
        wait_until("no event waits", || is_quiet(ecalls));
        drop(end_of_threads);
        taker.join().expect("it ends");
        let stood_still = standstill.longest();
        for (subscription, reader) in readers {
            let (mut seen, _channel) = reader.join().expect("it ends");
            seen.overslept
                .retain(|(_, waited, _)| *waited > LONG * 2 / 3 + stood_still);
            let count = subscription.count().expect("its count");
            assert_eq!(seen.count, count.delivered, "every one arrives: {count:?}");
            assert_eq!((seen.twice, seen.torn), (0, 0), "once, and whole");
            assert!(
                seen.overslept.is_empty(),
                "a wake-up each: {:?}; the machine stood still for {stood_still:?} at most",
                seen.overslept
            );
        }
        let raised = assert_everything_adds_up(ecalls, &services);
        let places = ecalls.core().expect("hosted here").places_in_use();
        assert_eq!(places.expect("their count"), 0, "of large events");
        let core = if ecalls.core().expect("hosted here").loaded_here() {
            "own"
        } else {
            "shared"
        };
        eprintln!(
            "{raised} events raised, {kills} subscribers killed, {core} core; \
             the machine stood still for {stood_still:?} at most"
        );
        let delivered = || staying.user.count().expect("its count").delivered;
        let handled = || staying.handled.load(Ordering::Relaxed);
        wait_until("every upcall comes", || handled() == delivered());
        drop(staying.others);
    });
}

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return play(&role);
    }
    // Before any other thread, which inherits it.
    ecalls::signal::block(&[SIGNAL]).expect("a signal");
    let test = || {
        if let Some(ecalls) = core() {
            everything_adds_up(&ecalls);
        }
        Ok(())
    };
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let name = "everything_adds_up_although_subscribers_are_killed";
    libtest_mimic::run(&arguments, vec![Trial::test(name, test)]).exit();
}
