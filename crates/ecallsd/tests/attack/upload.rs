//! E-code from ordinary users: texts that become programs in the kernel. Filters that work, are
//! replaced and end with their client; and texts, files and handlers that try to take more than
//! they may have: the daemon's time, the machine's, others' rights, or the compiler itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ecalls::downcall::Call;
use ecalls::{Channel, Ecalls, Error, Raise, Service, Subscription};
use ecalls_abi::ecode::HANDLER_ECODE;
use ecalls_abi::message::{
    Answer, QUOTA_BYTES, QUOTA_COMPILE, QUOTA_HANDLER, QUOTA_RAISED, QUOTA_UPLOADS, REFUSED_ECODE,
    REFUSED_INVALID, Refused, ReplaceHandler, Request, Subscribe,
};
use ecalls_abi::subscription::ACTION_HANDLER;
use ecalls_abi::upload::{FILE_MAX, Upload};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, Signal, kill_process};
use zerocopy::IntoBytes;

use crate::actor::{Roles, Stage, start};
use crate::daemon::SMALL;
use crate::raw::{Raw, tell};
use crate::running::{PATIENCE, wait_until};
use crate::scene::{Scene, daemon_processes, is_emulated, new_user, user};
use crate::tests;
use crate::upload_life::handlers_at_rest;

tests! {
    uploaded_filters_work_and_are_replaced_while_events_arrive
    handlers_of_a_killed_client_are_gone_with_it
    texts_beyond_a_cap_are_refused_with_the_reason
    files_that_are_no_sealed_text_are_refused
    text_that_is_being_changed_is_never_compiled
    flood_of_uploads_is_refused_and_leaves_others_alone
    slow_texts_take_their_own_users_time
    killed_compilers_cost_one_text_each
    daemon_without_its_compiler_does_all_the_rest
    handlers_that_never_end_leave_others_alone
    what_handlers_raise_counts_for_their_user
    handlers_get_nothing_that_is_not_their_subscriptions
}

pub(crate) const ROLES: Roles = &[
    ("filters", filter),
    ("filters on", filter_on),
    ("too much", too_much),
    ("no text", no_text),
    ("changes its text", change),
    ("uploads", upload),
    ("uploads slowly", upload_slowly),
    ("uploads on", upload_on),
    ("loops", run_loops),
    ("handler raises", raise_by_handler),
    ("wants more", want_more),
];

/// How long a flood lasts.
const TIME: Duration = Duration::from_millis(1000);

/// Refused texts of each attacker that are a flood.
const REFUSALS: u64 = 60;

const SEALS: SealFlags = SealFlags::WRITE
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW);

// --- what the roles share ---

pub(crate) fn service(ecalls: &Ecalls, what: &str) -> (Service, String) {
    let name = format!("{what}-{}", std::process::id());
    let service = ecalls.register_service(&name, "u64 value", "one two");
    (service.expect("a service"), name)
}

pub(crate) fn raise(service: &Service, value: u64) -> bool {
    let data = value.to_ne_bytes();
    service.raise(&Raise::new(&data)).is_ok()
}

pub(crate) fn filtered(
    ecalls: &Ecalls,
    service: &str,
    text: &str,
) -> Result<(Subscription, Channel), Error> {
    let channel = ecalls.channel().ring(1024).open()?;
    let builder = ecalls
        .subscribe(service)?
        .attributes(&["least"])
        .ecode(text);
    Ok((builder.memory(&channel).install()?, channel))
}

pub(crate) fn received(channel: &mut Channel) -> Vec<u64> {
    std::iter::from_fn(|| channel.try_recv())
        .map(|event| event.data_word())
        .collect()
}

/// A file with these bytes and seals.
fn file(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
    let file = rustix::fs::memfd_create(c"text", flags).expect("a file of memory");
    assert_eq!(rustix::io::write(&file, bytes), Ok(bytes.len()));
    rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
    file
}

pub(crate) fn text_file(text: &str) -> OwnedFd {
    let upload = Upload::new("attack.ec", &["least"], text).expect("a small text");
    file(&[upload.as_bytes(), text.as_bytes()].concat(), SEALS)
}

/// A subscription to `service` with one handler in E-code.
fn to_service(service: u32) -> Request {
    let mut body = Subscribe {
        service,
        actions: 1,
        ..Subscribe::default()
    };
    body.action[0].kind = ACTION_HANDLER;
    body.action[0].handler = HANDLER_ECODE;
    Request::Subscribe(body)
}

/// The daemon's answer to a text.
fn ask(raw: &mut Raw, request: &Request, file: &OwnedFd) -> Result<u64, Box<Refused>> {
    match raw.ask(request, &[file.as_fd()]).expect("an answer").0 {
        Answer::Done(done) => Ok(done.value),
        Answer::Refused(refused) => Err(Box::new(refused)),
        other => panic!("{}", other.name()),
    }
}

/// Handlers in E-code that are in the kernel now.
pub(crate) fn handlers() -> usize {
    let all = ecalls_kernel::residue();
    all.iter().filter(|(_, name)| name == "ecode").count()
}

// --- filters ---

fn uploaded_filters_work_and_are_replaced_while_events_arrive() {
    let before = handlers_at_rest();
    let scene = Scene::begin();
    let uid = new_user();
    let mut client = start("filters", uid, &[]);
    client.expect("installed");
    assert_eq!(handlers(), before + 3);
    let bytes = || user(uid).expect("it is connected").used[QUOTA_BYTES];
    let before_one = bytes();
    client.say("one more");
    client.expect("one more");
    assert_eq!(bytes(), before_one + (128 << 10), "charged");
    client.say("one less");
    client.expect("one less");
    assert_eq!(bytes(), before_one, "given back");
    client.say("go on");
    client.expect("done");
    client.end();
    scene.end();
    wait_until("no handler stays", || handlers() == before);
}

fn filter(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (own, name) = service(&ecalls, "filters");
    let text =
        "static u64 seen; seen++; count(3); return value % 2 == 0 && value >= attr(\"least\");";
    let (subscription, mut channel) = filtered(&ecalls, &name, text).expect("a filter");
    // A chain: the second meets what the first one puts out.
    let behind = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let chain = builder
        .ecode("struct output { u64 half; }; output.half = value / 2;")
        .ecode_named("second.ec", "half % 2 == 0")
        .memory(&behind)
        .install()
        .expect("a chain");
    stage.say("installed");
    // Other tests say "go on" at once.
    if stage.hear().as_deref() == Some("one more") {
        add_and_remove(stage, &ecalls, &name);
    }
    for value in 0..10 {
        assert!(raise(&own, value));
    }
    assert_eq!(received(&mut channel), [0, 2, 4, 6, 8]);
    channel
        .caller()
        .fast(Call::Set {
            attribute: 0,
            value: 4,
        })
        .expect("an attribute");
    for value in 0..10 {
        assert!(raise(&own, value));
    }
    assert_eq!(received(&mut channel), [4, 6, 8]);
    let wrong = subscription.replace_ecode("valeu").expect_err("wrong");
    assert!(
        wrong.to_string().contains("did you mean 'value'?"),
        "{wrong}"
    );
    subscription.replace_ecode("1").expect("another filter");
    replace_under_load(&subscription, &own, &mut channel);
    let count = chain.count().expect("its count");
    let dropped: u64 = count.dropped.iter().sum();
    assert_eq!(count.offered, count.delivered + count.filtered + dropped);
    assert!(count.filtered >= count.offered / 3, "{count:?}");
    assert_eq!(count.failed, 0);
    stage.say("done");
}

/// Another handler, whose subscription needs no other memory.
fn add_and_remove(stage: &mut Stage, ecalls: &Ecalls, name: &str) {
    let builder = ecalls.subscribe(name).expect("the service");
    let one = builder.ecode("1").install().expect("a handler");
    stage.say("one more");
    stage.hear();
    drop(one);
    stage.say("one less");
    stage.hear();
}

/// Every event passes one of two filters that replace each other.
fn replace_under_load(subscription: &Subscription, own: &Service, channel: &mut Channel) {
    let stop = AtomicBool::new(false);
    let raised = std::thread::scope(|scope| {
        let raiser = scope.spawn(|| {
            let mut raised = 0u64;
            while !stop.load(Ordering::Relaxed) {
                raised += u64::from(raise(own, raised));
                std::thread::sleep(Duration::from_micros(200));
            }
            raised
        });
        for number in 0..12u64 {
            let text = format!("static u64 seen; seen++; return value >= 0 || {number};");
            when_allowed(|| subscription.replace_ecode(&text)).expect("replaced");
        }
        stop.store(true, Ordering::Relaxed);
        raiser.join().expect("no panic")
    });
    let mut got = Vec::new();
    let mut all_are_there = || {
        got.append(&mut received(channel));
        got.dedup();
        let lost = channel.lost();
        let lost = lost.dropped.iter().sum::<u64>() + lost.late;
        got.len() as u64 + lost >= raised
    };
    wait_until("each event has come or is lost", &mut all_are_there);
    std::thread::sleep(Duration::from_millis(50));
    assert!(all_are_there());
    let lost = channel.lost();
    let lost = lost.dropped.iter().sum::<u64>() + lost.late;
    assert_eq!(got.len() as u64 + lost, raised, "each event once");
    assert!(raised > 20, "{raised}");
}

/// Asks again while the user has used up what it may.
fn when_allowed<T>(ask: impl Fn() -> ecalls::Result<T>) -> ecalls::Result<T> {
    loop {
        match ask() {
            Err(Error::Quota { .. }) => std::thread::sleep(Duration::from_millis(50)),
            answer => return answer,
        }
    }
}

fn handlers_of_a_killed_client_are_gone_with_it() {
    let before = handlers_at_rest();
    let scene = Scene::begin();
    let uid = new_user();
    for round in 0..5 {
        let mut clients = [(); 3].map(|()| start("filters on", uid, &[]));
        clients
            .iter_mut()
            .for_each(|client| client.expect("installed"));
        std::thread::sleep(Duration::from_millis(round * 7));
        clients.into_iter().for_each(crate::actor::Actor::kill);
    }
    wait_until("no handler stays", || handlers() == before);
    wait_until("nothing is charged", || {
        user(uid).is_some_and(|view| view.used[QUOTA_BYTES] == 0)
    });
    scene.end();
}

/// Replaces its filter as fast as it may, and raises, until it is killed.
fn filter_on(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (own, name) = service(&ecalls, "on");
    let text = "static u64 seen[64]; seen[value % 64]++; return 1;";
    // The killed clients may have used up their user's quota.
    let (subscription, _channel) =
        when_allowed(|| filtered(&ecalls, &name, text)).expect("a filter");
    stage.say("installed");
    for value in 0.. {
        raise(&own, value);
        // Beyond the rate it is refused.
        let _ = subscription.replace_ecode(text);
    }
}

// --- caps ---

fn texts_beyond_a_cap_are_refused_with_the_reason() {
    Scene::begin().attack("too much", &[]);
}

fn too_much(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "much");
    let long = format!("/*{}*/ 1", " ".repeat(60 << 10));
    let deep = format!("value == {}1{}", "(".repeat(40), ")".repeat(40));
    let steps = "for (int i = 0; i < 9; i++) x = x * 31 + (x >> 7) + i; ".repeat(150);
    let many = format!("u64 x = value; {steps} return x;");
    for (text, reason) in [
        (
            long.as_str(),
            "bytes of a text in E-code for the daemon (at most 16384)",
        ),
        (&deep, "at most 32 brackets in each other"),
        (
            "static long t[1500]; t[value % 1500]++; return 1;",
            "keeps at most 8192",
        ),
        (
            "fuel 1000000; u64 s = 0; for (u64 i = 0; i < value; i++) s += i; return s;",
            "hint: begin with `fuel ",
        ),
        (
            &many,
            "the program has more than 2048 instructions for the kernel",
        ),
    ] {
        let told = filtered(&ecalls, &name, text)
            .expect_err(reason)
            .to_string();
        assert!(told.contains(reason), "{told}");
    }
    let mut builder = ecalls.subscribe(&name).expect("the service");
    for _ in 0..5 {
        builder = builder.ecode("1");
    }
    let told = builder.install().expect_err("too many").to_string();
    assert!(
        told.contains("handlers in E-code of one subscription"),
        "{told}"
    );
    // The library would refuse this: the largest text, in which every word is wrong.
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let index = number_of(&ecalls, &name);
    let begin = Instant::now();
    for word in ["(", "x+", "if(1)", "a;", "\u{0}", "{", "-", "1?2:"] {
        let text = word.repeat(16_000 / word.len());
        let refused = ask(&mut raw, &to_service(index), &text_file(&text));
        assert_eq!(refused.map_err(|no| no.error), Err(REFUSED_ECODE), "{word}");
    }
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    stage.done();
}

fn number_of(ecalls: &Ecalls, name: &str) -> u32 {
    let services = ecalls.services().expect("the daemon").into_iter();
    let mut named = services.filter(|one| one.info.name() == name);
    named.next().expect("it is there").index
}

// --- files ---

fn files_that_are_no_sealed_text_are_refused() {
    Scene::begin().attack("no text", &[]);
}

fn no_text(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "files");
    let request = to_service(number_of(&ecalls, &name));
    let text = "1";
    let upload = Upload::new("attack.ec", &["least"], text).expect("a small text");
    let whole = [upload.as_bytes(), text.as_bytes()].concat();
    // A file that may change, or is not in memory, is refused, and the connection ends.
    let (pipe, _pipe) = io::pipe().expect("a pipe");
    let zero = std::fs::File::open("/dev/zero").expect("it is there");
    let future = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW;
    for (what, fd) in [
        ("no seals", file(&whole, SealFlags::empty())),
        (
            "writable",
            file(&whole, SealFlags::SHRINK | SealFlags::GROW),
        ),
        ("mapped writable", file(&whole, future)),
        (
            "it grows",
            file(&whole, SealFlags::WRITE | SealFlags::SHRINK),
        ),
        ("a pipe", pipe.into()),
        ("a device", zero.into()),
    ] {
        let (raw, ..) = Raw::open().expect("the daemon");
        raw.send(request.packet(5).as_bytes(), &[fd.as_fd()])
            .expect("sent");
        let (_, (answer, _)) = raw.receive().expect("an answer").expect("a word");
        let Answer::Refused(refused) = answer else {
            panic!("{what}: {}", answer.name())
        };
        assert_eq!(refused.error, REFUSED_INVALID, "{what}");
        assert!(raw.is_ended(), "{what}");
    }
    send_no_uploads(&request, &upload, &whole);
    // More or fewer texts than handlers.
    let good = file(&whole, SEALS);
    for count in [0, 2, 4] {
        let (raw, ..) = Raw::open().expect("the daemon");
        let fds = vec![good.as_fd(); count];
        raw.send(request.packet(5).as_bytes(), &fds).expect("sent");
        assert!(raw.is_ended(), "{count} texts for one handler");
    }
    stage.done();
}

/// Sealed, and no uploads: refused.
fn send_no_uploads(request: &Request, upload: &Upload, whole: &[u8]) {
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let mut lies = *upload;
    lies.bytes = u32::MAX;
    let mut names = *upload;
    names.attributes = 1000;
    for bytes in [
        &[][..],
        &whole[..whole.len() - 1],
        &[whole, b" "].concat(),
        lies.as_bytes(),
        names.as_bytes(),
        &vec![0xff; FILE_MAX * 8],
    ] {
        let refused = ask(&mut raw, request, &file(bytes, SEALS));
        assert_eq!(
            refused.map_err(|no| no.error),
            Err(REFUSED_INVALID),
            "{}",
            bytes.len()
        );
    }
    // A hole of a terabyte costs no memory, and is no text either.
    let hole = file(&[], SealFlags::empty());
    rustix::fs::ftruncate(&hole, 1 << 40).expect("a hole");
    rustix::fs::fcntl_add_seals(&hole, SEALS).expect("seals");
    assert!(ask(&mut raw, request, &hole).is_err());
    let good = file(whole, SEALS);
    let other = Request::ReplaceHandler(ReplaceHandler {
        subscription: 12345,
        action: 0,
    });
    let told = tell(&ask(&mut raw, &other, &good).expect_err("it has none"));
    assert!(told.contains("is gone"), "{told}");
}

fn text_that_is_being_changed_is_never_compiled() {
    Scene::begin().attack("changes its text", &[]);
}

/// A file that a thread goes on changing cannot be sealed; unsealed it is not read.
fn change(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "changing");
    let request = to_service(number_of(&ecalls, &name));
    let upload = Upload::new("attack.ec", &["least"], "1").expect("a small text");
    let bytes = [upload.as_bytes(), b"1"].concat();
    let changing = file(&bytes, SealFlags::empty());
    let pages = crate::raw::Pages::map(&changing, 4096, 0, true).expect("mapped");
    let sealed = rustix::fs::fcntl_add_seals(&changing, SEALS);
    assert!(
        sealed.is_err(),
        "the kernel does not seal what is mapped writable"
    );
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for word in pages.words() {
                    word.fetch_xor(1, Ordering::Relaxed);
                }
            }
        });
        for _ in 0..20 {
            let (raw, ..) = Raw::open().expect("the daemon");
            let fds = [changing.as_fd()];
            raw.send(request.packet(5).as_bytes(), &fds).expect("sent");
            assert!(raw.is_ended());
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Once sealed, nobody opens it for writing either.
    let good = text_file("1");
    assert!(crate::raw::Pages::map(&good, 4096, 0, true).is_err());
    let (mut raw, ..) = Raw::open().expect("the daemon");
    assert!(ask(&mut raw, &request, &good).is_ok());
    stage.done();
}

// --- floods ---

fn flood_of_uploads_is_refused_and_leaves_others_alone() {
    let scene = Scene::begin();
    let uid = new_user();
    let begin = Instant::now();
    let mut attackers = [(); 2].map(|()| start("uploads", uid, &[]));
    // Another user's texts are compiled in between.
    let mut other = start("filters", new_user(), &[]);
    other.expect("installed");
    other.say("go on");
    let mut sum = 0;
    for attacker in &mut attackers {
        let line = attacker.hear();
        sum += line.parse::<u64>().expect("how many were taken");
    }
    let seconds = begin.elapsed().as_secs() + 2;
    other.expect("done");
    other.end();
    let view = user(uid).expect("it is connected");
    let refused = view.used[QUOTA_UPLOADS] + view.used[QUOTA_COMPILE];
    eprintln!("  {sum} texts were taken, {refused} refused");
    assert!(refused >= 2 * REFUSALS, "{view:?}");
    assert!(sum <= 64 + 20 * seconds, "{sum} in {seconds} s");
    attackers.into_iter().for_each(crate::actor::Actor::end);
    scene.end();
}

fn upload(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "flood");
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let request = to_service(number_of(&ecalls, &name));
    let file = text_file("value > 3");
    let (begin, mut taken, mut refused) = (Instant::now(), 0u64, 0);
    // A busy machine takes longer for as many texts.
    while begin.elapsed() < TIME || (refused < REFUSALS && begin.elapsed() < PATIENCE / 2) {
        let Ok(id) = ask(&mut raw, &request, &file) else {
            refused += 1;
            continue;
        };
        taken += 1;
        let number = u32::try_from(id).expect("an id");
        let end = Request::Unsubscribe(ecalls_abi::message::Number { number, pad: 0 });
        raw.value(&end).expect("it is there");
    }
    stage.say(taken);
    stage.hear();
}

fn slow_texts_take_their_own_users_time() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attacker = start("uploads slowly", uid, &[]);
    attacker.expect("begun");
    let begin = Instant::now();
    let mut other = start("filters", new_user(), &[]);
    other.expect("installed");
    let waited = begin.elapsed();
    eprintln!("  another user's first filters took {waited:?}");
    assert!(
        waited < Duration::from_secs(5) + scene.slack() || is_emulated(),
        "{waited:?}"
    );
    other.say("go on");
    other.expect("done");
    other.end();
    attacker.expect("done");
    let view = user(uid).expect("it is connected");
    assert!(view.used[QUOTA_COMPILE] > 0, "{view:?}");
    attacker.end();
    scene.end();
}

/// The dearest texts it can think of, until its time is used up.
fn upload_slowly(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "slow");
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let request = to_service(number_of(&ecalls, &name));
    let calls = "x = f(x); ".repeat(400);
    let text =
        format!("u64 f(u64 x) {{ return x * 3 + (x >> 5) % 7; }} u64 x = value; {calls} return x;");
    let dear = text_file(&text);
    stage.say("begun");
    let begin = Instant::now();
    loop {
        if let Err(refused) = ask(&mut raw, &request, &dear) {
            let told = tell(&refused);
            if told.contains("time for E-code uploads") {
                break;
            }
        }
        assert!(begin.elapsed() < PATIENCE, "its time is never used up");
    }
    stage.done();
}

// --- the compiler itself ---

fn killed_compilers_cost_one_text_each() {
    let scene = Scene::begin();
    let mut client = start("uploads on", new_user(), &[]);
    client.expect("begun");
    let mut killed = 0;
    let begin = Instant::now();
    while begin.elapsed() < TIME || killed <= 3 && begin.elapsed() < PATIENCE {
        // Broker, door, keeper, and whoever the keeper has started.
        for worker in daemon_processes().into_iter().skip(3) {
            let worker = Pid::from_raw(worker.cast_signed()).expect("a process");
            killed += usize::from(kill_process(worker, Signal::KILL).is_ok());
        }
        std::thread::sleep(Duration::from_millis(60));
    }
    client.say("stop");
    eprintln!("  {killed} killed; the client: {}", client.hear());
    assert!(killed > 3, "{killed}");
    client.expect("done");
    client.end();
    scene.end();
}

/// Uploads at the rate it may; each text is taken, or refused with a word why.
fn upload_on(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "on");
    stage.say("begun");
    let stop = AtomicBool::new(false);
    let (taken, refused) = std::thread::scope(|scope| {
        let uploads = scope.spawn(|| {
            let (mut taken, mut refused) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                match filtered(&ecalls, &name, "value > 3") {
                    Ok(_) => taken += 1,
                    Err(Error::Ecode(told)) if told.contains("was killed") => refused += 1,
                    Err(Error::Quota { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            (taken, refused)
        });
        stage.hear();
        stop.store(true, Ordering::Relaxed);
        uploads.join().expect("no panic")
    });
    stage.say(format_args!("{taken} taken, {refused} refused"));
    std::thread::sleep(Duration::from_secs(4)); // what the refused ones cost is paid by then
    when_allowed(|| filtered(&ecalls, &name, "value > 3")).expect("the next compiler");
    stage.done();
}

fn daemon_without_its_compiler_does_all_the_rest() {
    let scene = Scene::begin();
    let keeper = daemon_processes()[2];
    kill_process(
        Pid::from_raw(keeper.cast_signed()).expect("a process"),
        Signal::KILL,
    )
    .expect("the daemon's");
    let ecalls = Ecalls::open_within(PATIENCE).expect("the daemon");
    let told = wait_for_refusal(&ecalls);
    assert!(told.contains("compiler for E-code"), "{told}");
    assert!(ecalls.services().is_ok());
    drop(ecalls);
    scene.end();
    // The next scene has a daemon of its own, with a compiler.
    crate::scene::clear();
}

fn wait_for_refusal(ecalls: &Ecalls) -> String {
    let (_own, name) = service(ecalls, "without");
    let begin = Instant::now();
    loop {
        match filtered(ecalls, &name, "1") {
            Err(error) => return error.to_string(),
            Ok(_) => assert!(begin.elapsed() < PATIENCE, "it still compiles"),
        }
    }
}

// --- handlers ---

fn handlers_that_never_end_leave_others_alone() {
    let scene = Scene::begin();
    let uid = new_user();
    let mut attackers = [(); 2].map(|()| start("loops", uid, &[]));
    for attacker in &mut attackers {
        attacker.expect("done");
    }
    let view = user(uid).expect("it is connected");
    assert!(
        view.used[QUOTA_HANDLER] > 0,
        "its time was used up: {view:?}"
    );
    attackers.into_iter().for_each(crate::actor::Actor::end);
    scene.end();
}

/// A handler that takes as long as it may, for as many events as it may raise.
fn run_loops(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (own, name) = service(&ecalls, "loops");
    let text = "fuel 30000; u64 x = value; while (1) { x = x * 31 + hash(x) % 7; } return x;";
    let (subscription, _channel) = filtered(&ecalls, &name, text).expect("a filter");
    let begin = Instant::now();
    for value in 0.. {
        raise(&own, value);
        if begin.elapsed() > TIME {
            break;
        }
    }
    let count = subscription.count().expect("its count");
    assert!(count.failed > 0, "out of fuel: {count:?}");
    stage.done();
}

fn what_handlers_raise_counts_for_their_user() {
    let scene = Scene::begin();
    // It may raise 1000 events in a second.
    let uid = SMALL.end - 1;
    let mut attacker = start("handler raises", uid, &[]);
    attacker.expect("done");
    let view = user(uid).expect("it is connected");
    assert!(view.used[QUOTA_RAISED] > 0, "{view:?}");
    attacker.end();
    scene.end();
}

/// Each event becomes three, of another service of its own.
fn raise_by_handler(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (own, name) = service(&ecalls, "first");
    let (_other, other) = service(&ecalls, "other");
    let one = format!("raise(\"{other}\", value); ");
    let text = format!("{} return 1;", one.repeat(3));
    let (subscription, _channel) = filtered(&ecalls, &name, &text).expect("a handler");
    for value in 0..100 {
        raise(&own, value);
        std::thread::sleep(Duration::from_millis(1));
    }
    let count = subscription.count().expect("its count");
    assert!(count.undone > 0, "{count:?}");
    stage.done();
}

fn handlers_get_nothing_that_is_not_their_subscriptions() {
    let scene = Scene::begin();
    let mut owner = start("filters", new_user(), &[]);
    owner.expect("installed");
    let others = format!("filters-{}", owner.pid());
    let mut attacker = scene.attacker("wants more", &[&others]);
    attacker.expect("done");
    attacker.end();
    owner.say("go on");
    owner.expect("done");
    owner.end();
    scene.end();
}

/// Past the library, which would not let these texts go: another's service, counters and attributes
/// without a channel, a channel of nobody, its own service once more, another's handler.
fn want_more(stage: &mut Stage) {
    let others = stage.argument(0).to_owned();
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "wants");
    let (mut raw, ..) = Raw::open().expect("the daemon");
    let request = to_service(number_of(&ecalls, &name));
    for text in [
        format!("raise(\"{others}\", 1); return 1;"),
        format!("raise(\"{name}\", 1); return 1;"),
        "raise(\"timer\", 1); return 1;".to_owned(),
        "count(1); return 1;".to_owned(),
        "histogram(value); return 1;".to_owned(),
        "attr(\"least\") > 0".to_owned(),
        "for (s in sinks) accept(s); return 1;".to_owned(),
    ] {
        let refused = ask(&mut raw, &request, &text_file(&text)).map_err(|no| no.error);
        assert_eq!(refused, Err(REFUSED_ECODE), "{text}");
    }
    for subscription in 0..64 {
        let replace = Request::ReplaceHandler(ReplaceHandler {
            subscription: 1 << 16 | subscription,
            action: 0,
        });
        let refused = ask(&mut raw, &replace, &text_file("1"));
        assert!(refused.is_err(), "subscription {subscription}");
    }
    stage.done();
}
