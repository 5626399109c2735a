//! C programs against the library as C programmers get it: compiled with warnings as errors, linked
//! with libecalls.so and with libecalls.a, and run.
//!
//! Those that need a core in the kernel run as root with `ECALLS_TEST_ROOT=1`, and otherwise say
//! that they do not.

#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// How long a compiler, or one of the programs, may take.
const LIMIT: Duration = Duration::from_secs(120);

/// What a program that is linked with libecalls.a needs besides.
const STATIC_LIBRARIES: [&str; 5] = ["-lelf", "-lz", "-lpthread", "-ldl", "-lm"];

#[derive(Clone, Copy)]
enum Linking {
    Shared,
    Static,
}

/// The folder with libecalls.so and libecalls.a.
fn library_folder() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let package = env!("CARGO_MANIFEST_DIR");
    let library = LIBRARY.get_or_init(|| limit::library::build(package, "libecalls.so"));
    library.parent().expect("a folder")
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder where programs find the library by the name they ask for; `make install` makes the
/// same link.
fn soname_folder() -> &'static Path {
    static LINKED: OnceLock<()> = OnceLock::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    LINKED.get_or_init(|| {
        let soname = folder.join("libecalls.so.0");
        let _ = std::fs::remove_file(&soname);
        std::os::unix::fs::symlink(library_folder().join("libecalls.so"), &soname).expect("a link");
    });
    folder
}

fn compile(source: &Path, linking: Linking) -> PathBuf {
    compile_with(source, linking, &[])
}

fn compile_with(source: &Path, linking: Linking, flags: &[&str]) -> PathBuf {
    let name = source.file_stem().expect("a file").to_string_lossy();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let include = crate_folder().join("../../include");
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=gnu11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
    ]);
    compiler.arg(include).arg(source);
    let program = match linking {
        Linking::Shared => {
            compiler.arg("-L").arg(library_folder()).arg("-lecalls");
            folder.join(format!("{name}-shared"))
        }
        Linking::Static => {
            compiler
                .arg(library_folder().join("libecalls.a"))
                .args(STATIC_LIBRARIES);
            folder.join(format!("{name}-static"))
        }
    };
    compiler.args(flags).arg("-o").arg(&program);
    let output = limit::output(&mut compiler, LIMIT);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", source.display());
    program
}

fn run(name: &str, linking: Linking) {
    run_with(name, linking, &[]);
}

fn example(name: &str) -> PathBuf {
    crate_folder().join("../../examples").join(name)
}

/// The same, compiled with further flags.
fn run_with(name: &str, linking: Linking, flags: &[&str]) {
    let source = crate_folder().join("tests/c").join(name);
    start(&compile_with(&source, linking, flags), &[]);
}

/// What a program writes, which has to succeed.
fn start(program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("LD_LIBRARY_PATH", soname_folder());
    let output = limit::output(&mut command, LIMIT);
    let errors = String::from_utf8_lossy(&output.stderr);
    let name = program.display();
    assert!(
        output.status.success(),
        "{name}: {}\n{errors}",
        output.status
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Whether tests may use the machine's kernel. Says so if not.
fn may_use_the_kernel(test: &str) -> bool {
    let allowed = std::env::var_os("ECALLS_TEST_ROOT").is_some();
    if !allowed {
        eprintln!("skipped: {test} needs root and ECALLS_TEST_ROOT=1");
    }
    allowed
}

#[test]
fn arguments_without_meaning_are_refused() {
    run("arguments.c", Linking::Shared);
    run("arguments.c", Linking::Static);
}

#[test]
fn loop_runs_timers_first_and_what_is_cancelled_never() {
    run("loop.c", Linking::Shared);
    run("loop.c", Linking::Static);
}

#[test]
fn loop_watches_descriptors_threads_and_another_loop() {
    run("sources.c", Linking::Shared);
    run("sources.c", Linking::Static);
}

#[test]
fn sockets_are_hinted_in_memory() {
    if may_use_the_kernel("ready.c") {
        run("ready.c", Linking::Shared);
        run("ready.c", Linking::Static);
    }
}

#[test]
fn datagrams_are_answered_for_a_program() {
    if may_use_the_kernel("answer.c") {
        run("answer.c", Linking::Shared);
        run("answer.c", Linking::Static);
    }
}

#[test]
fn example_of_a_health_check_answers_also_while_it_is_stopped() {
    let program = compile(&example("health.c"), Linking::Shared);
    if !may_use_the_kernel("health.c") {
        return;
    }
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it is bound");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.connect(address).expect("an address");
    client.set_read_timeout(Some(LIMIT)).expect("a socket");
    let mut command = Command::new(&program);
    command.args(["lo", &address.port().to_string()]);
    command.env("LD_LIBRARY_PATH", soname_folder());
    let mut health = limit::Running::start(command.stdout(Stdio::piped()));
    let first = health.lines().next(LIMIT).expect("its first turn");
    assert_eq!(first, "turn 1: 0 answered");
    let ask = || {
        let mut reply = [0; 64];
        client.send(b"healthy?").expect("sent");
        let bytes = client.recv(&mut reply).expect("a reply");
        String::from_utf8_lossy(&reply[..bytes]).into_owned()
    };
    let first = ask();
    assert!(first.starts_with("turn "), "{first:?}");
    let stop = |signal: &str| {
        let mut kill = Command::new("kill");
        kill.args([signal, &health.id().to_string()]);
        assert!(limit::output(&mut kill, LIMIT).status.success());
    };
    stop("-STOP");
    assert_eq!(ask(), ask());
    stop("-CONT");
}

#[test]
fn threads_block_and_lock_without_their_processor() {
    run("thread.c", Linking::Shared);
    run("thread.c", Linking::Static);
}

#[test]
fn threads_end_when_they_are_cancelled_and_nothing_is_lost() {
    run("cancel.c", Linking::Shared);
    run("cancel.c", Linking::Static);
}

#[test]
fn example_of_threads_reads_files_in_a_runtime_of_its_own() {
    let program = compile(&example("threads.c"), Linking::Shared);
    let file = crate_folder().join("Cargo.toml");
    let bytes = 8 * std::fs::metadata(&file).expect("a file").len();
    let said = start(&program, &[file.to_str().expect("UTF-8"); 8]);
    assert!(said.starts_with(&format!("{bytes} bytes; ")), "{said}");
    if cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
        start_where_all_threads_are_user_level_threads(&program);
    }
}

/// A runtime within another one is refused, and does not stand still.
fn start_where_all_threads_are_user_level_threads(program: &Path) {
    let package = crate_folder().join("../ecalls-pthread");
    let library = limit::library::build(package.to_str().expect("UTF-8"), "libecalls_pthread.so");
    let mut command = Command::new(program);
    command
        .env("LD_LIBRARY_PATH", soname_folder())
        .env("LD_PRELOAD", library);
    let output = limit::output(&mut command, LIMIT);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("ecalls run --threads"), "{errors}");
}

/// The compiler's flags for another library; `None`: it is not installed.
fn flags_of(library: &str, package: &str) -> Option<Vec<String>> {
    let mut question = Command::new("pkg-config");
    let output = limit::output(question.args(["--cflags", "--libs", library]), LIMIT);
    if !output.status.success() {
        // CI has it (tools/setup).
        assert!(std::env::var_os("CI").is_none(), "{library} is missing");
        eprintln!("skipped: needs the headers of {library} ({package})");
        return None;
    }
    let flags = String::from_utf8_lossy(&output.stdout);
    Some(flags.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn loop_runs_within_that_of_glib() {
    if let Some(flags) = flags_of("glib-2.0", "libglib2.0-dev") {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        run_with("glib.c", Linking::Shared, &flags);
    }
}

#[test]
fn sockets_are_hinted_within_the_loop_of_libevent() {
    let Some(flags) = flags_of("libevent", "libevent-dev") else {
        return;
    };
    if may_use_the_kernel("libevent.c") {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        run_with("libevent.c", Linking::Shared, &flags);
    }
}

#[test]
fn without_privileges_the_core_is_denied() {
    run("denied.c", Linking::Static);
}

#[test]
fn bad_options_are_refused_by_a_core() {
    if may_use_the_kernel("bad_options_are_refused_by_a_core") {
        run("options.c", Linking::Shared);
    }
}

#[test]
fn event_makes_its_round_trip() {
    if may_use_the_kernel("event_makes_its_round_trip") {
        run("round_trip.c", Linking::Shared);
        run("round_trip.c", Linking::Static);
    }
}

#[test]
fn event_of_every_size_arrives_whole_and_limits_are_told() {
    if may_use_the_kernel("event_of_every_size_arrives_whole_and_limits_are_told") {
        run("size.c", Linking::Shared);
    }
}

#[test]
fn events_go_to_a_channel_among_hosts() {
    if !may_use_the_kernel("events_go_to_a_channel_among_hosts") {
        return;
    }
    let ecalls = ecalls::Ecalls::host().expect("root can open the core");
    let open = |name| ecalls_channel::Channel::open(&ecalls, name, "u64 number", "", "lo");
    let _channel = open("c-remote").expect("a channel");
    for (linking, events) in [(Linking::Shared, 3), (Linking::Static, 6)] {
        run("remote.c", linking);
        let (channels, ..) = ecalls_channel::source::channels(&ecalls).expect("its counts");
        let channel = channels.iter().find(|one| one.name == "c-remote");
        let out = channel.expect("it is open").out;
        assert_eq!((out.events, out.none), (events, events), "it has no sink");
    }
}

#[test]
fn events_go_to_other_hosts_and_come_from_them() {
    if may_use_the_kernel("events_go_to_other_hosts_and_come_from_them") {
        run("net_channel.c", Linking::Shared);
        run("net_channel.c", Linking::Static);
    }
}

#[test]
fn example_of_hosts_tells_its_load_and_hears_itself() {
    let program = compile(&example("hosts.c"), Linking::Shared);
    if !may_use_the_kernel("example_of_hosts_tells_its_load_and_hears_itself") {
        return;
    }
    let program = program.to_str().expect("UTF-8");
    let in_a_network = ["-n", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
    let of_two_hosts = [program, "lo", "2", "127.0.0.2", "127.0.0.3"];
    let arguments = [&in_a_network[..], &of_two_hosts].concat();
    let said = start(Path::new("unshare"), &arguments);
    for line in ["1: told 2 hosts", "2: told 2 hosts"] {
        assert!(said.contains(line), "{said}");
    }
    for kind in ["state", "work"] {
        let of_kind = format!("hosts {kind} pid=");
        assert_eq!(said.matches(&of_kind).count(), 2, "{said}");
    }
}

#[test]
fn window_is_answered_by_a_scheduler_alone() {
    // Also for the test machine, which has one.
    let source = crate_folder().join("tests/c/window.c");
    let program = compile(&source, Linking::Static);
    if may_use_the_kernel("window_is_answered_by_a_scheduler_alone") {
        start(&program, &[]);
    }
}

#[test]
fn example_compiles() {
    compile(&example("hello.c"), Linking::Shared);
}

#[test]
fn player_shows_or_drops_each_frame_without_a_scheduler() {
    for linking in [Linking::Shared, Linking::Static] {
        let said = start(&compile(&example("frames.c"), linking), &["1", "20", "5"]);
        assert!(said.contains("timing: plain"), "{said}");
        let words: Vec<&str> = said.split_whitespace().collect();
        let before = |word: &str| -> u64 {
            let at = words
                .iter()
                .position(|known| known.trim_end_matches(',') == word);
            words[at.expect(word) - 1].parse().expect("a number")
        };
        assert_eq!(before("shown") + before("dropped"), 20, "{said}");
    }
}

#[test]
fn library_exports_exactly_the_functions_of_the_header() {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only"]);
    let output = limit::output(nm.arg(library_folder().join("libecalls.so")), LIMIT);
    let listed = String::from_utf8(output.stdout).expect("names");
    let mut exported: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    exported.sort_unstable();
    let header = ["", "-net-channel", "-loop", "-threads"].map(|part| {
        let path = crate_folder().join(format!("../../include/ecalls{part}.h"));
        std::fs::read_to_string(path).expect("a header")
    });
    let header = header.concat();
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("ecalls_"))
        .collect();
    declared.sort_unstable();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(exported, declared);
}
