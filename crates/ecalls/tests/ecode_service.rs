//! Services in E-code: a program on a tracepoint of the kernel raises events as often as it says,
//! with its output as their data and the task's own identity; its faults are counted; it is gone
//! with its provider, however that ends; a text that is wrong is refused with its places. Needs
//! root.
//!
//! The provider that is killed is this test binary again, told by an environment variable.

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ecalls::{Channel, Ecalls, Error, Subscription, Value};
use ecalls_abi::channel::STATE_DEAD;
use harness::{GETPPID, PATIENCE, assert_comes_to_rest, core, take_until_quiet, wait_until};
use limit::Running;

/// Set: this process is a provider.
const PROVIDE: &str = "ECALLS_TEST_PROVIDE_ECODE";

/// The tests look at all such programs in the kernel, so only one runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many programs of such services are in the kernel.
fn left() -> usize {
    let all = ecalls_kernel::residue();
    all.iter()
        .filter(|(_, name)| ["ecode_meet", "ecode_tell"].contains(&name.as_str()))
        .count()
}

fn listen(ecalls: &Ecalls, service: &str) -> (Subscription, Channel) {
    // On a busy machine this test may read an event after its deadline.
    let channel = ecalls.channel().ring(4096).keep_late().open();
    let channel = channel.expect("a channel");
    let builder = ecalls.subscribe(service).expect("the service");
    let subscription = builder.memory(&channel).install().expect("a subscription");
    (subscription, channel)
}

/// A program that ends at once, under a path that no other has.
struct Program(PathBuf);

impl Program {
    fn new(name: &str) -> Program {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let sleep = ["/bin/sleep", "/usr/bin/sleep"];
        let sleep = sleep.into_iter().find(|path| Path::new(path).exists());
        let sleep = sleep.expect("every machine has it");
        std::os::unix::fs::symlink(sleep, &path).expect("a temporary folder");
        Program(path)
    }

    /// Runs it so many times. The ids that it had.
    fn run(&self, times: u32) -> Vec<u32> {
        let run = |_| {
            let mut child = Command::new(&self.0).arg("0").spawn().expect("it starts");
            assert!(child.wait().expect("it ends").success());
            child.id()
        };
        (0..times).map(run).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A service that tells of programs whose path begins so.
fn text(name: &str, path: &Path) -> String {
    format!(
        "service \"{name}\" on tracepoint \"sched:sched_process_exec\" {{\n\
         \x20   kind started;\n    deadline 5000000;\n}}\n\
         struct output {{ char file[64]; s32 pid; u32 number; }};\n\
         static u32 number;\n\
         if (!prefix(filename, \"{}\")) return 0;\n\
         output.file = filename;\n\
         output.pid = pid;\n\
         output.number = ++number;\n\
         return 1;\n",
        path.display()
    )
}

/// What an event tells, by name.
fn field(ecalls: &Ecalls, event: &ecalls::Event, name: &str) -> Value {
    let format = ecalls.format(event.service).expect("its format");
    let found = format
        .read(event.data_bytes())
        .find(|(known, _)| known.name == name);
    found.expect("the field").1
}

#[test]
fn each_program_that_starts_is_told_with_what_the_text_makes_of_it() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let program = Program::new("ecalls-started");
    let text = text("test-started", &program.0);
    let provider = ecalls
        .provide_ecode("started.ec", &text)
        .expect("a service");
    assert_eq!(provider.name(), "test-started");
    let index = provider.index();
    assert_eq!(ecalls.kind_name(index, 0).expect("its name"), "started");
    let (subscription, mut channel) = listen(&ecalls, "test-started");
    let pids = program.run(20);
    let other = Program::new("other-ecalls-started");
    other.run(1);
    let mut told = Vec::new();
    take_until_quiet(&mut channel, |event| {
        assert_eq!((event.service, event.kind, event.uid), (index, 0, 0));
        assert!(event.deadline_ns > event.raise_ns);
        let file = field(&ecalls, event, "file").to_string();
        assert_eq!(file, program.0.display().to_string());
        assert_eq!(
            field(&ecalls, event, "pid").to_string(),
            event.pid.to_string()
        );
        let number = field(&ecalls, event, "number").to_string();
        assert_eq!(number, (told.len() + 1).to_string(), "its state is kept");
        told.push(event.pid);
    });
    assert_eq!(told, pids);
    assert_eq!(subscription.count().expect("it").delivered, 20);
    drop(subscription);
    let count = ecalls.access().service_stat(index).expect("it").count;
    assert_eq!((count.raised, count.failed), (20, 0));
    assert_comes_to_rest(&ecalls, index);
    // While nobody subscribes, nothing runs.
    program.run(3);
    let now = ecalls.access().service_stat(index).expect("it").count;
    assert_eq!(now.raised, 20);
    drop(provider);
    assert!(ecalls.subscribe("test-started").is_err(), "it is gone");
    wait_until("its programs are gone", || left() == 0);
}

#[test]
fn example_tells_what_it_says() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ecode/started.ec");
    let Ok(text) = std::fs::read_to_string(&file) else {
        eprintln!("skipped: {} is not here", file.display());
        return;
    };
    let text = text.replace("service \"started\"", "service \"test-example\"");
    let program = Program::new("ecalls-example");
    let provider = ecalls.provide_ecode("started.ec", &text);
    let provider = provider.expect("a service");
    let (_subscription, mut channel) = listen(&ecalls, "test-example");
    let pids = program.run(3);
    let mut told = Vec::new();
    take_until_quiet(&mut channel, |event| {
        let tell = |name| field(&ecalls, event, name).to_string();
        if tell("file") == program.0.display().to_string() {
            told.push((tell("pid"), tell("uid"), tell("times")));
        }
    });
    let expected = (1..).zip(pids);
    let expected = expected.map(|(times, pid)| (pid.to_string(), "0".into(), times.to_string()));
    assert_eq!(told, expected.collect::<Vec<_>>());
    drop(provider);
}

#[test]
fn calls_are_counted_as_often_as_they_are_made() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let text = format!(
        "service \"test-calls\" on tracepoint \"raw_syscalls:sys_enter\";\n\
         struct output {{ u64 number; s64 call; u64 first; }};\n\
         static u64 number;\n\
         if (event.pid != {} || id != {GETPPID}) return 0;\n\
         output.number = number++;\n\
         output.call = id;\n\
         output.first = args[0];\n\
         return 1;\n",
        std::process::id()
    );
    let provider = ecalls.provide_ecode("calls.ec", &text).expect("a service");
    // On a busy machine this test may read an event after its deadline.
    let channel = ecalls.channel().ring(4096).keep_late().open();
    let channel = channel.expect("a channel");
    let subscription = ecalls
        .subscribe("test-calls")
        .expect("the service")
        .ecode("number % 2 == 0")
        .memory(&channel)
        .install()
        .expect("a subscription");
    for _ in 0..1000 {
        let _ = std::os::unix::process::parent_id();
    }
    let mut channel = channel;
    let mut told = Vec::new();
    take_until_quiet(&mut channel, |event| told.push(event.data_word()));
    let expected: Vec<u64> = (0..1000).filter(|n| n % 2 == 0).collect();
    assert_eq!(told, expected);
    let count = subscription.count().expect("it");
    assert_eq!(
        (count.offered, count.filtered, count.delivered),
        (1000, 500, 500)
    );
    assert_eq!(provider.skipped().expect("its programs"), 0);
    drop(subscription);
    assert_comes_to_rest(&ecalls, provider.index());
}

#[test]
fn fault_raises_nothing_and_is_counted() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let program = Program::new("ecalls-fault");
    let text = format!(
        "service \"test-fault\" on tracepoint \"sched:sched_process_exec\";\n\
         static u32 table[4];\n\
         if (!prefix(filename, \"{}\")) return 0;\n\
         return table[pid];\n",
        program.0.display()
    );
    let provider = ecalls.provide_ecode("fault.ec", &text).expect("a service");
    let (_subscription, _channel) = listen(&ecalls, "test-fault");
    program.run(5);
    let count = ecalls
        .access()
        .service_stat(provider.index())
        .expect("it")
        .count;
    assert_eq!((count.raised, count.failed), (0, 5));
}

#[test]
fn tracepoint_that_delivery_itself_meets_comes_to_rest() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    // To tell of it wakes the reader, which is told, too.
    let text = "service \"test-wakes\" on tracepoint \"sched:sched_waking\";\n1";
    let provider = ecalls.provide_ecode("wakes.ec", text).expect("a service");
    let (subscription, mut channel) = listen(&ecalls, "test-wakes");
    for _ in 0..200 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        while channel.try_recv().is_some() {}
    }
    let count = subscription.count().expect("it");
    assert!(count.delivered >= 100, "{count:?}");
    drop(subscription);
    assert_comes_to_rest(&ecalls, provider.index());
}

#[test]
fn name_is_one_living_service_s() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let text = "service \"test-twice\" on tracepoint \"sched:sched_process_exit\";\n1";
    let provider = ecalls.provide_ecode("a.ec", text).expect("a service");
    let taken = ecalls
        .provide_ecode("b.ec", text)
        .expect_err("its name is taken");
    assert!(taken.to_string().contains("no living service"), "{taken}");
    drop(provider);
    ecalls
        .provide_ecode("b.ec", text)
        .expect("it is free again");
}

/// Not a test: what a provider does.
#[test]
fn provide() {
    let Some(text) = std::env::var_os(PROVIDE) else {
        return;
    };
    let ecalls = Ecalls::open().expect("a core");
    let text = text.into_string().expect("a text");
    let _provider = ecalls.provide_ecode("killed.ec", &text).expect("a service");
    println!("\nready");
    let _ = std::io::stdin().lines().next();
}

#[test]
fn killed_provider_leaves_nothing() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    let path = Program::new("ecalls-killed");
    let text = text("test-killed", &path.0);
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args(["--exact", "provide", "--nocapture"])
        .env(PROVIDE, &text)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut provider = Running::start(&mut command);
    provider.lines().find("ready", PATIENCE);
    let (_subscription, mut channel) = listen(&ecalls, "test-killed");
    path.run(2);
    let mut events = 0;
    take_until_quiet(&mut channel, |_| events += 1);
    assert_eq!(events, 2);
    let index = ecalls
        .access()
        .service_named("test-killed")
        .expect("it")
        .index;
    provider.kill(PATIENCE);
    wait_until("its programs are gone", || left() == 0);
    wait_until("the service is dead", || {
        let core = ecalls.core().expect("the host");
        core.service_state(index).expect("its row") == STATE_DEAD
    });
    path.run(2);
    take_until_quiet(&mut channel, |_| events += 1);
    assert_eq!(events, 2);
    assert_comes_to_rest(&ecalls, index);
}

/// Texts that are no service, and all that is told of them.
const REFUSED: &[(&str, &str)] = &[
    (
        "service \"a\" on tracepoint \"sched:sched_proces_exec\";\n1",
        "t.ec:1:27: error: there is no tracepoint 'sched:sched_proces_exec'\n\
         \x20   service \"a\" on tracepoint \"sched:sched_proces_exec\";\n\
         \x20                             ^^^^^^^^^^^^^^^^^^^^^^^^^\n\
         \x20   hint: did you mean 'sched:sched_process_exec'?",
    ),
    (
        "service \"a\" on tracepoint \"sched_process_exec\";\n1",
        "t.ec:1:27: error: there is no tracepoint 'sched_process_exec'\n\
         \x20   service \"a\" on tracepoint \"sched_process_exec\";\n\
         \x20                             ^^^^^^^^^^^^^^^^^^^^\n\
         \x20   hint: did you mean 'sched:sched_process_exec'?",
    ),
    (
        "service \"a\" on tracepoint \"../../etc:passwd\";\n1",
        "t.ec:1:27: error: there is no tracepoint '../../etc:passwd'\n\
         \x20   service \"a\" on tracepoint \"../../etc:passwd\";\n\
         \x20                             ^^^^^^^^^^^^^^^^^^\n\
         \x20   hint: it is CATEGORY:NAME, as in 'sched:sched_process_exec'; \
         /sys/kernel/tracing/events lists them",
    ),
    (
        "service \"a\" on tracepoint \"sched:sched_process_exec\";\nold_pd == 1",
        "t.ec:2:1: error: 'old_pd' is not declared\n    old_pd == 1\n    ^^^^^^\n    \
         hint: did you mean 'old_pid'?",
    ),
    (
        "pid == 1",
        "t.ec:1:1: error: 'pid' is not declared\n    pid == 1\n    ^^^\n    \
         hint: did you mean event.pid?",
    ),
    (
        "event.pid == 1",
        "t.ec:1:1: error: the text does not say which service it is\n    event.pid == 1\n    \
         ^^^^^^^^^^^^^^\n    hint: begin with: service \"NAME\" on tracepoint \"CATEGORY:NAME\";",
    ),
    (
        "service \"a\" on tracepoint \"sched:sched_process_exec\";\nsignal(40, pid);",
        "t.ec:2:1: error: not allowed here: the event has no receiver yet; programs of its \
         subscriptions send signals\n    signal(40, pid);\n    ^^^^^^^^^^^^^^^",
    ),
];

#[test]
fn text_that_is_wrong_is_refused_with_its_places() {
    let Some(ecalls) = core() else { return };
    let _alone = alone();
    for (text, expected) in REFUSED {
        let error = ecalls.provide_ecode("t.ec", text).expect_err(text);
        assert!(matches!(error, Error::Ecode(_)), "{error}");
        assert_eq!(error.to_string(), *expected, "{text}");
    }
    assert!(ecalls.subscribe("a").is_err());
    wait_until("nothing is left", || left() == 0);
}
