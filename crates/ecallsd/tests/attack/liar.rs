//! A worker of the compiler that was taken over by the text that it read, against the running
//! daemon. The daemon of these tests is this binary: it runs `ecallsd`, but its compiler's worker
//! does what the first line of a text says ([`LIES`]), with all that a worker is confined by. Other
//! texts it compiles.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use ecalls::Ecalls;
use ecalls_abi::message::QUOTA_COMPILE;
use ecalls_kernel::handler::Parts;
use ecallsd::compiler::job::{ANSWER_MAX, Answer, JOB_MAX, Job, Made};
use ecallsd::compiler::{answer, cap, compile};
use ecallsd::sandbox::Enforce;
use ecode::bpf::{Map, MapUse, Object};
use ecode::ir::State;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::actor::{Roles, Stage, start};
use crate::daemon::{self, Residue, await_end_of_core};
use crate::running::{Daemon, PATIENCE};
use crate::scene::{KernelLog, check_accounts, clear, new_user, user};
use crate::tests;
use crate::upload::{filtered, raise, received, service};

tests! {
    lies_of_a_worker_are_refused_and_the_next_text_is_compiled
    worker_that_waits_is_ended_and_meets_no_other_text
    workers_that_are_slow_are_shared_by_users_in_turn
    lying_worker_gets_no_more_than_the_right_of_the_subscription
}

pub(crate) const ROLES: Roles = &[
    ("is lied to", be_lied_to),
    ("waits", wait),
    ("waits in turn", wait_in_turn),
    ("raises another's", raise_anothers),
];

/// The argument by which this binary is the daemon.
const STAND_IN: &str = "stand-in";

/// The beginning of a text whose worker lies.
const MARK: &str = "// lie: ";

// --- the daemon and its worker ---

#[derive(Debug, Parser)]
struct StandIn {
    #[command(flatten)]
    args: ecallsd::Args,
}

/// Is the daemon, or a part of it, if the arguments say so.
pub(crate) fn stand_in() -> Option<ExitCode> {
    let mut arguments = std::env::args();
    let program = arguments.next()?;
    if arguments.next()? != STAND_IN {
        return None;
    }
    let rest: Vec<String> = arguments.collect();
    let result = match rest.iter().any(|argument| argument == "--compiler") {
        true => ecallsd::keep_compiler(Enforce::Kill, lie),
        false => {
            let rest = std::iter::once(program).chain(rest);
            ecallsd::run(&StandIn::parse_from(rest).args, &[STAND_IN])
        }
    };
    if let Err(error) = &result {
        eprintln!("ecallsd: {error}");
    }
    Some(ExitCode::from(u8::from(result.is_err())))
}

/// The behaviour of a worker.
type Lie = fn(&Job, &OwnedFd) -> u8;

/// Lies, by name, and what who uploaded the text is told.
const LIES: &[(&str, Lie, &str)] = &[
    ("garbage", tell_garbage, "gave no answer"),
    ("nothing", |_, _| 0, "gave no answer"),
    ("half", tell_half, "its compiler ended"),
    ("too long", tell_too_much, "gave no answer"),
    ("another's", answer_another, "gave no answer"),
    ("twice", answer_twice, "gave no answer"),
    ("spins", spin, "longer than 250 ms"),
    ("memory", take_memory, "its compiler ended"),
    ("kills", kill_keeper, "its compiler ended"),
    ("helper", call_helper, FOREIGN),
    ("context", keep_context, FOREIGN),
    ("address", store_address, FOREIGN),
    ("map", read_attributes, FOREIGN),
    (
        "output",
        |job, jobs| tell(job, jobs, large_output()),
        FOREIGN,
    ),
    (
        "state",
        |job, jobs| tell(job, jobs, large_state()),
        "keeps at most 8192",
    ),
    (
        "program",
        |job, jobs| tell(job, jobs, long_program()),
        "at most 2048",
    ),
    (
        "fuel",
        |job, jobs| tell(job, jobs, long_run()),
        "hint: begin with `fuel ",
    ),
];

const FOREIGN: &str = "is none that it can make";

/// Lies that no refusal follows.
const OTHERS: &[(&str, Lie)] = &[
    ("goes on", go_on),
    ("slow", be_slow),
    ("raises", raise_number),
];

fn lie(job: &Job, jobs: &OwnedFd) -> u8 {
    let name = job
        .text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(MARK));
    let name = name.map(|name| name.split(',').next().unwrap_or(name));
    let lies = LIES.iter().map(|(name, lie, _)| (name, lie));
    let mut lies = lies.chain(OTHERS.iter().map(|(name, lie)| (name, lie)));
    match lies.find(|(known, _)| Some(**known) == name) {
        Some((_, lie)) => lie(job, jobs),
        None => compile(job, jobs),
    }
}

fn say(jobs: &OwnedFd, bytes: &[u8]) -> u8 {
    u8::from(send(jobs, bytes, SendFlags::NOSIGNAL).is_err())
}

/// Tells a program that nobody compiled.
fn tell(job: &Job, jobs: &OwnedFd, made: Made) -> u8 {
    say(jobs, &of_hand(job.serial, made))
}

fn of_hand(serial: u32, made: Made) -> Vec<u8> {
    let cpu_us = 0;
    let result = Ok(Box::new(made));
    Answer {
        serial,
        cpu_us,
        result,
    }
    .to_bytes()
}

fn word(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    u64::from(code)
        | u64::from(to) << 8
        | u64::from(from) << 12
        | u64::from(offset.cast_unsigned()) << 16
        | u64::from(constant.cast_unsigned()) << 32
}

/// The lookup of a map, whose value is in r6, then `middle`, and the end.
fn program(map: Map, middle: &[u64]) -> Made {
    let behind = i16::try_from(middle.len() + 1).expect("few");
    let mut instructions = vec![
        word(0x62, 10, 0, -4, 0),
        word(0x18, 1, 1, 0, 0),
        0,
        word(0xbf, 2, 10, 0, 0),
        word(0x07, 2, 0, 0, -4),
        word(0x85, 0, 0, 0, 1),
        word(0x15, 0, 0, behind, 0),
        word(0xbf, 6, 0, 0, 0),
    ];
    instructions.extend(middle);
    instructions.extend([word(0xb7, 0, 0, 0, 0), word(0x95, 0, 0, 0, 0)]);
    let instruction = 1;
    let object = Object {
        instructions,
        maps: vec![MapUse { instruction, map }],
        ..Object::default()
    };
    let fuel = 1;
    Made {
        parts: Parts {
            object,
            fuel,
            ..Parts::default()
        },
        output: String::new(),
    }
}

/// A filter that lets nothing pass: `frame.result = 0`.
fn nothing_passes() -> Made {
    program(Map::Frame, &[word(0x7a, 6, 0, 16, 0)])
}

fn call_helper(job: &Job, jobs: &OwnedFd) -> u8 {
    // bpf_get_current_pid_tgid()
    tell(job, jobs, program(Map::Frame, &[word(0x85, 0, 0, 0, 14)]))
}

fn keep_context(job: &Job, jobs: &OwnedFd) -> u8 {
    let mut made = nothing_passes();
    made.parts
        .object
        .instructions
        .insert(0, word(0xbf, 7, 1, 0, 0));
    made.parts.object.maps[0].instruction = 2;
    tell(job, jobs, made)
}

fn store_address(job: &Job, jobs: &OwnedFd) -> u8 {
    tell(job, jobs, program(Map::Frame, &[word(0x7b, 6, 6, 16, 0)]))
}

/// Without a channel.
fn read_attributes(job: &Job, jobs: &OwnedFd) -> u8 {
    tell(job, jobs, program(Map::Attributes, &[]))
}

fn large_output() -> Made {
    let mut made = nothing_passes();
    made.parts.output_bytes = 4096;
    made
}

fn large_state() -> Made {
    let mut made = nothing_passes();
    let bytes = vec![0; cap::STATE_BYTES + 8];
    made.parts.object.state_bytes = u32::try_from(bytes.len()).expect("a few thousand");
    made.parts.state = State {
        bytes,
        ..State::default()
    };
    made
}

fn long_program() -> Made {
    program(Map::Frame, &vec![word(0xb7, 3, 0, 0, 0); cap::INSTRUCTIONS])
}

fn long_run() -> Made {
    let mut made = nothing_passes();
    made.parts.fuel = u32::MAX;
    made
}

fn tell_garbage(_: &Job, jobs: &OwnedFd) -> u8 {
    say(jobs, &[0xa5; 999])
}

fn tell_half(job: &Job, jobs: &OwnedFd) -> u8 {
    let whole = of_hand(job.serial, nothing_passes());
    say(jobs, &whole[..whole.len() / 2]);
    1
}

/// An answer, and more behind it than the broker reads.
fn tell_too_much(job: &Job, jobs: &OwnedFd) -> u8 {
    let mut made = nothing_passes();
    let empty = of_hand(job.serial, made.clone()).len();
    // Cut where the broker stops, it would be an answer.
    let room = ANSWER_MAX - empty;
    made.parts.state.bytes = vec![0; room];
    let mut long = of_hand(job.serial, made);
    long.extend([0; 64]);
    say(jobs, &long)
}

fn answer_another(job: &Job, jobs: &OwnedFd) -> u8 {
    say(jobs, &of_hand(job.serial.wrapping_add(1), nothing_passes()))
}

/// Its own text's answer, what looks like the end of all, and that of the next text.
fn answer_twice(job: &Job, jobs: &OwnedFd) -> u8 {
    say(jobs, &of_hand(job.serial, nothing_passes()));
    say(jobs, &[]);
    answer_another(job, jobs)
}

fn spin(_: &Job, _: &OwnedFd) -> u8 {
    loop {
        std::hint::spin_loop();
    }
}

/// Twice as much as it may; if it gets that, it does what it should.
fn take_memory(job: &Job, jobs: &OwnedFd) -> u8 {
    let bytes = usize::try_from(2 * cap::MEMORY).expect("a size");
    match Vec::<u8>::new().try_reserve_exact(bytes) {
        Ok(()) => compile(job, jobs),
        Err(_) => 1,
    }
}

/// Kills the process that was started before it; if that is possible, there is no next worker.
fn kill_keeper(job: &Job, jobs: &OwnedFd) -> u8 {
    let own = rustix::process::getpid().as_raw_pid();
    for pid in (own - 200..own).rev() {
        // SAFETY: takes numbers. As a worker, this process may end nobody but itself.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, 0) };
    }
    compile(job, jobs)
}

/// Answers, says in the keeper's place that it has ended, takes the broker's word that it shall
/// end, and answers whatever else comes.
fn go_on(job: &Job, jobs: &OwnedFd) -> u8 {
    say(jobs, &of_hand(job.serial, nothing_passes()));
    let others: Vec<RawFd> = (0..32)
        .filter(|fd| *fd != jobs.as_raw_fd() && *fd != 0)
        .collect();
    // SAFETY: a number that is no descriptor is an error of the call.
    let others = others
        .into_iter()
        .map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
    let others: Vec<_> = others.collect();
    for other in &others {
        let _ = send(other, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    loop {
        let mut bytes = vec![0; JOB_MAX];
        if let Ok((count, _)) = recv(jobs, &mut bytes[..], RecvFlags::DONTWAIT)
            && let Some(job) = Job::of_bytes(&bytes[..count])
        {
            say(jobs, &of_hand(job.serial, nothing_passes()));
        }
        for other in &others {
            let _ = recv(other, &mut bytes[..1], RecvFlags::DONTWAIT);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// It also reports that it took no time.
fn be_slow(job: &Job, jobs: &OwnedFd) -> u8 {
    std::thread::sleep(Duration::from_millis(300));
    tell(job, jobs, nothing_passes())
}

/// Every `raise` is of the service whose number the first line tells.
fn raise_number(job: &Job, jobs: &OwnedFd) -> u8 {
    let line = job.text.lines().next().unwrap_or_default();
    let number = line
        .rsplit(',')
        .next()
        .and_then(|number| number.parse().ok());
    let mut lied = job.clone();
    for (_, index) in &mut lied.services {
        *index = number.unwrap_or(0);
    }
    say(jobs, &answer(&lied).to_bytes())
}

// --- the tests ---

/// A daemon whose worker lies, and what was in the kernel before.
struct Liar(Daemon, Residue, KernelLog);

impl Liar {
    fn start(further: &str) -> Liar {
        clear();
        let (before, log) = (ecalls_kernel::residue(), KernelLog::begin());
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.arg(STAND_IN);
        Liar(daemon::start_by(command, further), before, log)
    }

    fn end(mut self) -> String {
        check_accounts();
        assert!(self.0.is_alive(), "{}", self.0.log());
        let told = self.0.stop();
        await_end_of_core(&self.1);
        self.2.check();
        told
    }
}

fn text(lie: &str) -> String {
    format!("{MARK}{lie}\nvalue > 3")
}

/// A text is compiled to what it says.
fn is_compiled(ecalls: &Ecalls) {
    let (own, name) = service(ecalls, "honest");
    let (_subscription, mut channel) = filtered(ecalls, &name, "value > 3").expect("a filter");
    for value in 0..6 {
        assert!(raise(&own, value));
    }
    assert_eq!(received(&mut channel), [4, 5]);
}

fn lies_of_a_worker_are_refused_and_the_next_text_is_compiled() {
    let metrics = daemon::metrics();
    let further = format!("[limits]\nupload_time = \"4000ms/s\"\n{metrics}");
    let liar = Liar::start(&further);
    let mut client = start("is lied to", new_user(), &[]);
    client.expect("done");
    client.end();
    let counters = daemon::counters();
    let refused = format!("ecalls_daemon_refused_total {}\n", LIES.len());
    assert!(counters.contains(&refused), "{counters}");
    let log = liar.end();
    assert!(log.contains(FOREIGN), "{log}");
}

fn be_lied_to(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "lies");
    for (lie, _, expected) in LIES {
        // Without a channel, for which there are no attributes.
        let builder = ecalls.subscribe(&name).expect("the service");
        let told = builder
            .ecode(&text(lie))
            .install()
            .expect_err(lie)
            .to_string();
        assert!(told.contains(expected), "{lie}: {told}");
        is_compiled(&ecalls);
    }
    stage.done();
}

fn worker_that_waits_is_ended_and_meets_no_other_text() {
    let liar = Liar::start("");
    let uid = new_user();
    let mut waiting = start("waits", uid, &[]);
    waiting.expect("begun");
    // Meanwhile, and behind it: of another user.
    let ecalls = Ecalls::open_within(PATIENCE).expect("the daemon");
    is_compiled(&ecalls);
    drop(ecalls);
    waiting.expect("done");
    let view = user(uid).expect("it is connected");
    assert!(view.used[QUOTA_COMPILE] > 0, "it has paid: {view:?}");
    waiting.end();
    let log = liar.end();
    assert!(log.contains("not compiled within 5 s"), "{log}");
}

fn wait(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "waits");
    let text = text("goes on");
    let told = std::thread::scope(|scope| {
        let uploads = scope.spawn(|| filtered(&ecalls, &name, &text).map(|_| ()));
        std::thread::sleep(Duration::from_millis(100));
        stage.say("begun");
        uploads.join().expect("no panic")
    });
    let told = told.expect_err("it was ended").to_string();
    assert!(told.contains("not compiled within 5 s"), "{told}");
    // The worker has not reported its time; the time counts nevertheless.
    let told = filtered(&ecalls, &name, "1")
        .expect_err("too soon")
        .to_string();
    assert!(told.contains("time for E-code uploads"), "{told}");
    stage.done();
}

/// Texts that wait on many connections of one user: the other user's one is not behind them all.
const TEXTS: usize = 5;

fn workers_that_are_slow_are_shared_by_users_in_turn() {
    let liar = Liar::start("");
    let uid = new_user();
    let mut slow = [(); TEXTS].map(|()| start("waits in turn", uid, &["slow"]));
    let mut other = start("waits in turn", new_user(), &["none"]);
    for one in slow.iter_mut().chain([&mut other]) {
        one.expect("connected");
    }
    slow.iter_mut().for_each(|one| one.say("upload"));
    std::thread::sleep(Duration::from_millis(100));
    other.say("upload");
    let times = |line: String| -> [u64; 2] {
        let numbers = line.split(' ').map(|one| one.parse().expect("a time"));
        numbers.collect::<Vec<_>>().try_into().expect("two times")
    };
    let waits = times(other.hear());
    let before = slow.iter_mut().map(|one| times(one.hear())[1]);
    let before = before
        .filter(|then| (waits[0]..waits[1]).contains(then))
        .count();
    // The one that was being compiled, and one in turn; one more on a machine that is busy.
    assert!(before <= 3, "{before} of {TEXTS} were before it");
    // The time that a worker reports is not the only one that counts.
    let told = slow[0].ask("once more");
    assert!(told.contains("time for E-code uploads"), "{told}");
    slow.into_iter()
        .chain([other])
        .for_each(crate::actor::Actor::end);
    liar.end();
}

fn wait_in_turn(stage: &mut Stage) {
    let lie = text(stage.argument(0));
    let ecalls = Ecalls::open().expect("the daemon");
    let (_own, name) = service(&ecalls, "turns");
    stage.say("connected");
    stage.hear();
    // Without a channel: opening one has turns of its own.
    let install = |text: &str| ecalls.subscribe(&name)?.ecode(text).install();
    let begin_ns = ecalls_kernel::now_ns();
    let first = install(&lie).expect("a filter");
    stage.say(format_args!("{begin_ns} {}", ecalls_kernel::now_ns()));
    if stage.hear().is_some() {
        let again = install("1").map(|_| "compiled".to_owned());
        stage.say(again.unwrap_or_else(|error| error.to_string()));
        stage.hear();
    }
    drop(first);
}

fn lying_worker_gets_no_more_than_the_right_of_the_subscription() {
    let liar = Liar::start("");
    let ecalls = Ecalls::open_within(PATIENCE).expect("the daemon");
    let (_own, name) = service(&ecalls, "others");
    let mut channel = ecalls.channel().ring(64).open().expect("a channel");
    let builder = ecalls.subscribe(&name).expect("the service");
    let _subscription = builder.memory(&channel).install().expect("a subscription");
    let services = ecalls.services().expect("the daemon").into_iter();
    let mut named = services.filter(|one| one.info.name() == name);
    let index = named.next().expect("it is there").index;
    let mut attacker = start("raises another's", new_user(), &[&index.to_string()]);
    attacker.expect("done");
    attacker.end();
    assert_eq!(received(&mut channel), [], "another's handler raised this");
    drop((channel, ecalls));
    liar.end();
}

fn raise_anothers(stage: &mut Stage) {
    let ecalls = Ecalls::open().expect("the daemon");
    let (own, name) = service(&ecalls, "raises");
    let (_second, second) = service(&ecalls, "second");
    let number = stage.argument(0);
    let text = format!("{MARK}raises,{number}\nraise(\"{second}\", value); return 1;");
    let (subscription, mut channel) = filtered(&ecalls, &name, &text).expect("its forms are right");
    for value in 0..3 {
        assert!(raise(&own, value));
    }
    assert_eq!(received(&mut channel), [0, 1, 2]);
    let count = subscription.count().expect("its count");
    assert_eq!(count.undone, 3, "{count:?}");
    stage.done();
}
