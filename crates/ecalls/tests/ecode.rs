//! Handlers written in E-code, in the kernel (ECalls-05 §3.3): they filter, remember, change what
//! the rest of their chain sees, ask for things, fail without losing an event, are replaced while
//! events arrive, and are gone with their subscription. Needs root.
//!
//! What is asked for (signals, counts, raises, later) is in ecode_effect.rs.

mod harness;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ecalls::downcall::Call;
use ecalls::handler::{Bound, Compare};
use ecalls::{Channel, DropReason, Ecalls, Error, Handler, Raise, Service, Subscription};
use harness::{PATIENCE, assert_all_adds_up, assert_comes_to_rest, core, own_service, wait_until};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Set: this process subscribes with a handler, and waits to be killed.
const VICTIM: &str = "ECALLS_TEST_VICTIM";

/// The tests look at all handlers in the kernel, so only one runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn raise(service: &Service, value: u64) -> i64 {
    let data = value.to_ne_bytes();
    service.raise(&Raise::new(&data)).expect("raised")
}

fn received(channel: &mut Channel) -> Vec<u64> {
    std::iter::from_fn(|| channel.try_recv())
        .map(|event| event.data_word())
        .collect()
}

/// A subscription with one handler and a channel behind it.
fn filtered(ecalls: &Ecalls, service: &str, text: &str) -> (Subscription, Channel) {
    let channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(service).expect("the service").ecode(text);
    let subscription = builder.memory(&channel).install().expect("a subscription");
    (subscription, channel)
}

/// Handlers in E-code that are in the kernel now.
fn handlers() -> usize {
    let all = ecalls_kernel::residue();
    all.iter().filter(|(_, name)| name == "ecode").count()
}

/// The same, when those of tests before have gone: the kernel frees them later.
fn handlers_at_rest() -> usize {
    let begin = Instant::now();
    while handlers() > 0 && begin.elapsed() < PATIENCE / 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    handlers()
}

#[test]
fn handler_lets_pass_what_it_says_is_true() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let (subscription, mut channel) = filtered(&ecalls, &name, "value > 5");
    for value in 0..10 {
        raise(&service, value);
    }
    assert_eq!(received(&mut channel), [6, 7, 8, 9]);
    let count = subscription.count().expect("its count");
    assert_eq!(
        (count.handlers, count.filtered, count.delivered),
        (10, 6, 4)
    );
    assert_eq!((count.failed, count.undone), (0, 0));
    assert_eq!(channel.lost().filtered, 6, "shown next to the data");
    let text = "event.kind == two && event.pid == event.pid && value % 2";
    let (_second, mut second) = filtered(&ecalls, &name, text);
    for value in 0..6u64 {
        let data = value.to_ne_bytes();
        let kind = if value < 3 { 2 } else { 1 };
        service
            .raise(&Raise::new(&data).kind(kind))
            .expect("raised");
    }
    assert_eq!(received(&mut second), [1]);
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn handler_remembers_from_event_to_event() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let text = "static u64 seen; static u64 ring[4]; ring[seen % 4] = value; seen++; \
                u64 sum = 0; for (int i = 0; i < 4; i++) sum += ring[i]; return sum >= 10;";
    let (_subscription, mut channel) = filtered(&ecalls, &name, text);
    let (_other, mut other) = filtered(&ecalls, &name, text);
    for value in [1, 2, 3, 4, 0, 1, 9] {
        raise(&service, value);
    }
    assert_eq!(
        received(&mut channel),
        [4, 9],
        "the last four are 10 or more"
    );
    assert_eq!(received(&mut other), [4, 9], "each has a memory of its own");
}

/// Two CPUs count at the same time, as fast as they can: no count is lost, so a limit holds.
#[test]
fn limit_holds_where_two_cpus_count() {
    const EACH: u64 = 30_000;
    const LIMIT: u64 = EACH;
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let text = format!("static u32 events; return ++events <= {LIMIT};");
    let (subscription, _channel) = filtered(&ecalls, &name, &text);
    let begin = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let (service, begin) = (&service, &begin);
            scope.spawn(move || {
                let mut set = CpuSet::new();
                set.set(cpu);
                sched_setaffinity(None, &set).expect("two CPUs");
                begin.wait();
                for value in 0..EACH {
                    raise(service, value);
                }
            });
        }
    });
    let count = subscription.count().expect("its count");
    assert_eq!(count.handlers, 2 * EACH, "{count:?}");
    // Whoever counts beside another may see one more than its own.
    let passed = count.handlers - count.filtered;
    assert!((LIMIT - 1..=LIMIT).contains(&passed), "{count:?}");
}

#[test]
fn output_is_what_the_rest_of_this_chain_sees() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let mut before = ecalls.channel().open().expect("a channel");
    let mut behind = ecalls.channel().open().expect("a channel");
    let mut other = ecalls.channel().open().expect("a channel");
    let changed = ecalls.subscribe(&name).expect("the service");
    let text = "struct output { u64 value; u64 twice; u32 kind; }; \
                output.value = value + 100; output.twice = value * 2; output.kind = event.kind;";
    let changed = changed
        .memory(&before)
        .ecode(text)
        .ecode("value % 2 == 1 && twice == 2 * (value - 100)")
        .handler(&Handler::Threshold {
            field: "twice".into(),
            compare: Compare::GreaterEqual,
            bound: Bound::Value(0),
        })
        .memory(&behind)
        .install()
        .expect("a subscription");
    let same = ecalls.subscribe(&name).expect("the service").memory(&other);
    let _same = same.install().expect("a subscription");
    for value in 1..=3u64 {
        let data = value.to_ne_bytes();
        service.raise(&Raise::new(&data).kind(2)).expect("raised");
    }
    assert_eq!(received(&mut before), [1, 2, 3]);
    let events: Vec<_> = std::iter::from_fn(|| behind.try_recv()).collect();
    let seen: Vec<_> = events
        .iter()
        .map(|e| (e.size, e.data[0], e.data[1]))
        .collect();
    assert_eq!(
        seen,
        [(24, 101, 2), (24, 103, 6)],
        "the next handler saw 101, 102, 103"
    );
    assert!(events.iter().all(|event| event.data[2] == 2));
    assert_eq!(
        changed.format(),
        "u64 value; u64 twice; u32 kind; u8 pad[4]",
        "what is behind the handler with an output"
    );
    let other_output = changed.replace_ecode("struct output { u64 value; }; output.value = 1;");
    let told = other_output.expect_err("another output").to_string();
    assert!(told.contains("it is `u64 value; u64 twice;"), "{told}");
    let untouched: Vec<_> = std::iter::from_fn(|| other.try_recv()).collect();
    let seen: Vec<_> = untouched
        .iter()
        .map(|e| (e.size, e.data[0], e.data[1]))
        .collect();
    assert_eq!(seen, [(8, 1, 0), (8, 2, 0), (8, 3, 0)]);
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn output_has_the_size_of_its_fields() {
    let Some(ecalls) = core() else { return };
    let (service, name) = own_service(&ecalls);
    let mut behind = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let builder = builder.ecode("struct output { u32 a, b, c; }; output.a = output.c = value;");
    let _it = builder.memory(&behind).install().expect("a subscription");
    service.raise(&Raise::new(&[7; 8])).expect("raised");
    let event = behind.recv_timeout(PATIENCE).expect("a living core");
    let event = event.expect("an event");
    assert_eq!((event.size, &event.data[..2]), (12, &[0x0707_0707; 2][..]));
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn failed_handler_is_counted_and_loses_no_event() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let cases = [
        (
            "u32 list[4]; list[value] = 1; return 0;",
            7,
            "1:19: warning: a run failed here: index outside its array",
        ),
        (
            "fuel 100; while (value) { } return 0;",
            7,
            "1:11: warning: a run failed here: more iterations than allowed",
        ),
        (
            "for (int i = 0; i < 20; i++) count(1); return 0;",
            7,
            "1:30: warning: a run failed here: more requests than allowed",
        ),
    ];
    for (text, value, why) in cases {
        let (subscription, mut channel) = filtered(&ecalls, &name, text);
        raise(&service, value);
        assert_eq!(received(&mut channel), [value], "{text}");
        let count = subscription.count().expect("its count");
        assert_eq!(
            (count.handlers, count.failed, count.delivered),
            (1, 1, 1),
            "{text}"
        );
        assert_eq!(
            channel.histogram(),
            [0; 64],
            "nothing of it is done: {text}"
        );
        let faults = subscription.faults().expect("its row");
        assert!(
            faults.len() == 1 && faults[0].starts_with(&format!("ecode:{why}")),
            "{faults:?}"
        );
        subscription.replace_ecode("value > 1").expect("replaced");
        assert!(subscription.faults().expect("its row").is_empty());
    }
    let (subscription, mut channel) = filtered(&ecalls, &name, "value == 0");
    service.raise(&Raise::new(&[1, 2, 3])).expect("raised");
    assert!(
        channel.try_recv().is_some(),
        "an event with too little data"
    );
    assert_eq!(subscription.count().expect("its count").failed, 1);
    let faults = subscription.faults().expect("its row");
    let why = "ecode: a run failed: the event has less data than the program reads";
    assert_eq!(faults, [why]);
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn handler_stands_in_its_chain_among_the_other_actions() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let mut first = ecalls.channel().open().expect("a channel");
    let mut last = ecalls.channel().open().expect("a channel");
    let subscription = ecalls
        .subscribe(&name)
        .expect("the service")
        .handler(&Handler::Sample { one_in: 2 })
        .ecode("static u64 n; return ++n != 2;")
        .memory(&first)
        .ecode("value >= 6")
        .memory(&last)
        .install()
        .expect("a subscription");
    for value in 0..10 {
        raise(&service, value);
    }
    assert_eq!(
        received(&mut first),
        [0, 4, 6, 8],
        "one in two, without the second"
    );
    assert_eq!(received(&mut last), [6, 8]);
    let count = subscription.count().expect("its count");
    assert_eq!(
        (count.delivered, count.filtered),
        (4, 6),
        "0 and 4 were delivered once"
    );
    assert_eq!(count.handlers, 10 + 5 + 4);
    assert_all_adds_up(&ecalls, service.index());
}

#[test]
fn handler_in_a_kernel_thread_decides_about_the_rest_there() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let mut channel = ecalls.channel().open().expect("a channel");
    let subscription = ecalls
        .subscribe(&name)
        .expect("the service")
        .ecode_thread(
            "struct output { u64 value; }; output.value = value * 10; return value % 2 == 0;",
        )
        .ecode("value != 40")
        .memory(&channel)
        .install()
        .expect("a subscription");
    for value in 1..=8 {
        raise(&service, value);
    }
    let done = || {
        let count = subscription.count().expect("its count");
        count.delivered + count.filtered == 8
    };
    wait_until("all went through a thread", done);
    let mut values = received(&mut channel);
    values.sort_unstable();
    assert_eq!(values, [20, 60, 80]);
    assert_eq!(subscription.count().expect("its count").threads, 8);
    assert_comes_to_rest(&ecalls, service.index());
}

#[test]
fn attributes_are_those_of_the_channel_by_name() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let mut channel = ecalls.channel().open().expect("a channel");
    let _subscription = ecalls
        .subscribe(&name)
        .expect("the service")
        .attributes(&["load", "limit"])
        .ecode("value >= attr(\"limit\")")
        .memory(&channel)
        .install()
        .expect("a subscription");
    for limit in [3, 8] {
        let call = Call::Set {
            attribute: 1,
            value: limit,
        };
        channel.caller().fast(call).expect("a call");
        for value in 0..10 {
            raise(&service, value);
        }
    }
    assert_eq!(received(&mut channel), [3, 4, 5, 6, 7, 8, 9, 8, 9]);
}

#[test]
fn replaced_handler_goes_on_with_its_variables() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let text = "static u64 seen; static u32 kind = 5; struct output { u64 value; }; seen++; \
                output.value = seen;";
    let (subscription, mut channel) = filtered(&ecalls, &name, text);
    raise(&service, 0);
    raise(&service, 0);
    // The same variables, other code; then further ones, and one of another type.
    let same = text.replace("= seen;", "= seen + 100;");
    subscription.replace_ecode(&same).expect("replaced");
    raise(&service, 0);
    let other = "static u64 more = 7; static u64 seen; static u64 kind = 9; \
                 struct output { u64 value; u64 more; }; seen++; \
                 output.value = seen + kind * 10; output.more = more;";
    subscription.replace_ecode(other).expect("replaced");
    raise(&service, 0);
    let wrong = subscription.replace_ecode("output.value = seem;");
    assert!(matches!(wrong, Err(Error::Ecode(_))), "{wrong:?}");
    raise(&service, 0);
    assert_eq!(received(&mut channel), [1, 2, 103, 94, 95]);
    let none = subscription.replace_ecode_at(1, "second", "1");
    assert!(matches!(none, Err(Error::Closed(_))), "{none:?}");
}

#[test]
fn replacement_under_load_takes_no_event_away() {
    const REPLACEMENTS: u64 = 300;
    const LONG: Duration = Duration::from_secs(10);
    /// Events that may wait in the ring.
    const AHEAD: u64 = 10_000;
    const FAR: u64 = 1 << 40;
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let mut channel = ecalls.channel().ring(65536).open().expect("a channel");
    let plain = "static u64 seen; seen++; return 1;".to_owned();
    let far = format!(
        "struct output {{ u64 value; u64 far; }}; static u64 seen; seen++; \
         output.value = value + {FAR}; output.far = {FAR};"
    );
    let builder = ecalls.subscribe(&name).expect("the service").ecode(&plain);
    let subscription = builder.memory(&channel).install().expect("a subscription");
    let ended = Arc::new(AtomicBool::new(false));
    let taken = Arc::new(AtomicU64::new(0));
    let raiser = {
        let (ended, taken) = (Arc::clone(&ended), Arc::clone(&taken));
        std::thread::spawn(move || {
            let mut raised = 0;
            while !ended.load(Ordering::Relaxed) {
                if raised - taken.load(Ordering::Relaxed) < AHEAD {
                    raise(&service, raised);
                    raised += 1;
                } else {
                    std::thread::yield_now();
                }
            }
            (service, raised)
        })
    };
    let mut next = 0;
    let mut met = [0u64; 2];
    let begin = Instant::now();
    for turn in 0..REPLACEMENTS {
        let text = if turn % 2 == 0 { &far } else { &plain };
        subscription.replace_ecode(text).expect("replaced");
        take(&mut channel, AHEAD, &mut next, &mut met, FAR);
        taken.store(next, Ordering::Relaxed);
        if turn > 10 && begin.elapsed() > LONG {
            break; // an emulated machine
        }
    }
    ended.store(true, Ordering::Relaxed);
    let (service, raised) = raiser.join().expect("the raiser");
    let count = || subscription.count().expect("its count");
    wait_until("all are delivered", || count().delivered == raised);
    take(&mut channel, u64::MAX, &mut next, &mut met, FAR);
    assert_eq!(next, raised, "each arrived once");
    assert!(met.iter().all(|met| *met > 0), "both handlers ran: {met:?}");
    assert_eq!((count().handlers, count().failed), (raised, 0));
    assert_eq!(count().dropped(DropReason::NoHandler), 0);
    assert_comes_to_rest(&ecalls, service.index());
}

/// Takes what has arrived, at most `most`; each event must be whole as one of the two handlers
/// leaves it.
fn take(channel: &mut Channel, most: u64, next: &mut u64, met: &mut [u64; 2], far: u64) {
    for _ in 0..most {
        let Some(event) = channel.try_recv() else {
            break;
        };
        let is_far = event.data[0] >= far;
        let expected = if is_far {
            (16, far + *next, far)
        } else {
            (8, *next, 0)
        };
        assert_eq!((event.size, event.data[0], event.data[1]), expected);
        met[usize::from(is_far)] += 1;
        *next += 1;
    }
}

#[test]
fn odd_text_runs_and_what_is_odd_is_told() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (_service, name) = own_service(&ecalls);
    let builder = ecalls.subscribe(&name).expect("the service");
    let builder = builder.ecode_named("first.ec", "u32 odd;\nreturn value > 1;");
    let builder = builder.ecode_named("second.ec", "return value > 2;");
    let subscription = builder.install().expect("installed");
    let told = subscription.warnings();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("first.ec:1:5: warning: "), "{told:?}");
    assert!(told[0].contains("'odd' is never used"), "{told:?}");
    subscription.replace_ecode("value > 1").expect("replaced");
    assert!(subscription.warnings().is_empty());
}

#[test]
fn wrong_text_is_refused_with_its_place_and_a_hint() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (_service, name) = own_service(&ecalls);
    let before = handlers_at_rest();
    let refused = |text: &str| {
        let builder = ecalls.subscribe(&name).expect("the service");
        match builder.ecode_named("file.ec", text).install() {
            Err(Error::Ecode(told)) => told,
            other => panic!("{text}: {other:?}"),
        }
    };
    let told = refused("return 1 +\n  valu;");
    assert!(told.starts_with("file.ec:2:3: error: "), "{told}");
    assert!(told.contains("^^^^") && told.contains("'value'"), "{told}");
    let told = refused("count(1); return value > 1;");
    assert!(told.contains("memory(...)"), "it has no channel: {told}");
    let told = refused("attr(\"load\") > 1");
    assert!(told.contains("load"), "{told}");
    let told = refused("raise(\"nobody\");");
    assert!(told.contains("nobody"), "{told}");
    let told = refused("struct output { u64 list[270]; }; output.list[0] = 1;");
    assert!(told.starts_with("file.ec:1:8: error: "), "{told}");
    assert!(told.contains("at most 2152 bytes"), "{told}");
    assert_eq!(handlers(), before);
}

#[test]
fn handler_is_gone_with_its_subscription() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (service, name) = own_service(&ecalls);
    let before = handlers_at_rest();
    let (subscription, _channel) = filtered(&ecalls, &name, "static u64 n; return ++n;");
    assert_eq!(handlers(), before + 1);
    subscription
        .replace_ecode("static u64 n; return --n;")
        .expect("replaced");
    raise(&service, 1);
    assert_eq!(
        handlers(),
        before + 2,
        "the former one, until the next takes its place"
    );
    drop(subscription);
    wait_until("both are gone", || handlers() == before);
}

#[test]
fn handler_of_a_killed_process_is_gone_when_the_next_one_subscribes() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let (_service, name) = own_service(&ecalls);
    let before = handlers_at_rest();
    let mut victim = Victim::start(&name);
    wait_until("its handler is there", || handlers() > before);
    victim.0.kill().expect("killed");
    victim.0.wait().expect("it ends");
    let (subscription, _channel) = filtered(&ecalls, &name, "1");
    drop(subscription);
    wait_until("it is gone", || handlers() == before);
}

struct Victim(Child);

impl Victim {
    fn start(service: &str) -> Victim {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "victim", "--nocapture"])
            .env(VICTIM, service)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let ready = |line: std::io::Result<String>| line.is_ok_and(|line| line.contains("ready"));
        assert!(lines.any(ready), "it has subscribed");
        Victim(child)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: what a victim does.
#[test]
fn victim() {
    let Ok(service) = std::env::var(VICTIM) else {
        return;
    };
    let ecalls = Ecalls::host().expect("the core");
    let (_subscription, _channel) = filtered(&ecalls, &service, "static u64 n; return ++n;");
    println!("\nready");
    let _ = std::io::stdin().lines().next();
    std::thread::sleep(Duration::from_secs(60));
}
