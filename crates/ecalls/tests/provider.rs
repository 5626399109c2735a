//! Services added from object files: the example is compiled, added, raises its events, and ends
//! with its provider, however that ends; what cannot be added is refused with a reason. Needs root,
//! and the compiler of the kernel side.
//!
//! The provider that is killed is this test binary again, told by an environment variable.

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ecalls::{Ecalls, Error};
use ecalls_abi::channel::STATE_DEAD;
use ecalls_kernel::objects::COMPILER;
use harness::{PATIENCE, core, find, wait_until};
use limit::Running;

/// Set: this process is a provider of that object file.
const PROVIDE: &str = "ECALLS_TEST_PROVIDE";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles a source file as its author would. None, and the reason told, without a compiler.
fn compile(source: &Path, name: &str) -> Option<PathBuf> {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.bpf.o"));
    if !source.exists() {
        eprintln!("skipped: {} is not here", source.display());
        return None;
    }
    let (clang, libbpf) = COMPILER;
    if Command::new(clang).arg("--version").output().is_err() {
        eprintln!("skipped: there is no {clang}");
        return None;
    }
    let mut command = Command::new(clang);
    command
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        .arg(format!(
            "-D__TARGET_ARCH_{}",
            if cfg!(target_arch = "aarch64") {
                "arm64"
            } else {
                "x86"
            }
        ))
        .arg(format!("-I{}", root().display()))
        .arg(format!("-I{}", root().join("bpf").display()))
        .arg(format!("-I{libbpf}"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object);
    let output = limit::output(&mut command, PATIENCE);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} does not compile: {errors}");
    Some(object)
}

/// The object file of a source text.
fn compile_text(name: &str, text: &str) -> Option<Vec<u8>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if !folder.is_dir() {
        eprintln!("skipped: there is no build folder");
        return None;
    }
    let source = folder.join(format!("{name}.bpf.c"));
    std::fs::write(&source, text).expect("the build folder is writable");
    compile(&source, name).map(|object| std::fs::read(object).expect("just made"))
}

/// The example under a name of its own, as tests run beside each other.
fn example(name: &str) -> Option<PathBuf> {
    let path = root().join("examples/service/rename.bpf.c");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: {} is not here", path.display());
        return None;
    };
    let text = text.replace(
        "ECALLS_SERVICE(\"rename\"",
        &format!("ECALLS_SERVICE(\"{name}\""),
    );
    let text = text.replace(
        "BPF_PROG(rename",
        &format!("BPF_PROG({}", name.replace('-', "_")),
    );
    compile_text(name, &text)?;
    Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.bpf.o")))
}

/// A thread that is given this name.
fn rename_a_thread(name: &str) {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(|| ())
        .expect("a thread")
        .join()
        .expect("it ends");
}

/// Whether the kernel has a program of that name.
fn is_loaded(name: &str) -> bool {
    libbpf_rs::query::ProgInfoIter::default().any(|program| program.name == name)
}

/// Subscribes, gives a thread a name, and checks what is told of it.
fn assert_tells_renames(ecalls: &Ecalls, service: &str) {
    let mut channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe(service).expect("the service");
    let subscription = builder.memory(&channel).install().expect("a subscription");
    rename_a_thread("ecalls-renamed");
    let stat = ecalls.access().service_named(service).expect("it");
    let format = ecalls.format(stat.index).expect("its format");
    let event = find(&mut channel, "the new name", |event| {
        let fields: Vec<_> = format.read(event.data_bytes()).collect();
        let [(_, tid), _, (_, before), (_, after)] = &fields[..] else {
            panic!("four fields: {fields:?}");
        };
        assert!(!before.to_string().is_empty());
        after.to_string() == "ecalls-renamed" && tid.to_string() == event.tid.to_string()
    });
    assert_eq!((event.service, event.kind), (stat.index, 0));
    assert_eq!((event.pid, event.uid), (std::process::id(), 0));
    assert_eq!(ecalls.kind_name(stat.index, 0).expect("its name"), "rename");
    drop(subscription);
    harness::assert_comes_to_rest(ecalls, stat.index);
}

#[test]
fn added_service_raises_its_events_until_it_is_dropped() {
    let Some(ecalls) = core() else { return };
    let Some(object) = example("rename-drop") else {
        return;
    };
    let bytes = std::fs::read(object).expect("just made");
    for _ in 0..3 {
        let provider = ecalls.provide(&bytes).expect("a service");
        assert_eq!(provider.name(), "rename-drop");
        assert!(is_loaded("rename_drop"));
        assert_tells_renames(&ecalls, "rename-drop");
        let taken = ecalls.provide(&bytes).expect_err("its name is taken");
        assert!(taken.to_string().contains("no living service"), "{taken}");
        drop(provider);
        assert!(ecalls.subscribe("rename-drop").is_err(), "it is gone");
        wait_until("its program is gone", || !is_loaded("rename_drop"));
    }
}

/// Not a test: what a provider does.
#[test]
fn provide() {
    let Some(object) = std::env::var_os(PROVIDE) else {
        return;
    };
    let bytes = std::fs::read(object).expect("it was made");
    let ecalls = Ecalls::open().expect("a core");
    let _provider = ecalls.provide(&bytes).expect("a service");
    println!("\nready");
    let _ = std::io::stdin().lines().next();
}

#[test]
fn killed_provider_leaves_nothing() {
    let Some(ecalls) = core() else { return };
    let Some(object) = example("rename-kill") else {
        return;
    };
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args(["--exact", "provide", "--nocapture"])
        .env(PROVIDE, &object)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut provider = Running::start(&mut command);
    provider.lines().find("ready", PATIENCE);
    assert_tells_renames(&ecalls, "rename-kill");
    let index = ecalls
        .access()
        .service_named("rename-kill")
        .expect("it")
        .index;
    let channel = ecalls.channel().open().expect("a channel");
    let builder = ecalls.subscribe("rename-kill").expect("the service");
    let _subscription = builder.memory(&channel).install().expect("a subscription");
    provider.kill(PATIENCE);
    wait_until("its program is gone", || !is_loaded("rename_kill"));
    wait_until("the service is dead", || {
        let core = ecalls.core().expect("the host");
        core.service_state(index).expect("its row") == STATE_DEAD
    });
    assert!(ecalls.subscribe("rename-kill").is_err(), "it is gone");
    harness::assert_comes_to_rest(&ecalls, index);
    // Who adds it again has the same service, and the subscription that stayed.
    let bytes = std::fs::read(&object).expect("it was made");
    let provider = ecalls.provide(&bytes).expect("a service");
    assert_eq!(provider.index(), index);
    assert_tells_renames(&ecalls, "rename-kill");
}

/// What is refused, and with which words.
const REFUSED: &[(&str, &str, &[&str])] = &[
    (
        "bare",
        "#include \"kernel.h\"\n\
         SEC(\"tp_btf/task_rename\") int refused_bare(void *ctx) { return 0; }\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";",
        &["describes none", "ECALLS_SERVICE"],
    ),
    (
        "version",
        "#include \"ecalls/service.bpf.h\"\n\
         #undef ECALLS_ABI_VERSION\n\
         #define ECALLS_ABI_VERSION 999u\n\
         ECALLS_SERVICE(\"refused-version\", \"u64 a\", \"a\");\n\
         SEC(\"tp_btf/task_rename\") int refused_version(void *ctx) { return 0; }",
        &["999", "compile it again"],
    ),
    (
        "layout",
        "#define nesting nested_levels\n\
         #include \"ecalls/service.bpf.h\"\n\
         ECALLS_SERVICE(\"refused-layout\", \"u64 a\", \"a\");\n\
         SEC(\"tp_btf/task_rename\") int refused_layout(void *ctx) {\n\
         u64 a = 1; return ecalls_raise(0, &a, sizeof(a)); }",
        &["struct current", "compile it again"],
    ),
    (
        "kind",
        "#include \"ecalls/service.bpf.h\"\n\
         ECALLS_SERVICE(\"refused-kind\", \"u64 a\", \"a\");\n\
         SEC(\"kprobe/do_exit\") int refused_kind(void *ctx) { return 0; }",
        &["refused_kind", "tp_btf/"],
    ),
    (
        "nothing",
        "#include \"ecalls/service.bpf.h\"\n\
         ECALLS_SERVICE(\"refused-nothing\", \"u64 a\", \"a\");",
        &["no programs"],
    ),
    (
        "verifier",
        "#include \"ecalls/service.bpf.h\"\n\
         ECALLS_SERVICE(\"refused-verifier\", \"u64 a\", \"a\");\n\
         SEC(\"tp_btf/task_rename\") int refused_verif(u64 *ctx) { return *(int *)ctx[1000]; }",
        &["refused by the kernel", "verifier", "ECALLS_LIBBPF_LOG=1"],
    ),
    (
        "hook",
        "#include \"ecalls/service.bpf.h\"\n\
         ECALLS_SERVICE(\"refused-hook\", \"u64 a\", \"a\");\n\
         SEC(\"tp_btf/no_such_tracepoint\") int refused_hook(void *ctx) { return 0; }",
        &["refused by the kernel", "that there is"],
    ),
    (
        "taken",
        "#include \"ecalls/service.bpf.h\"\n\
         ECALLS_SERVICE(\"timer\", \"u64 a\", \"a\");\n\
         SEC(\"tp_btf/task_rename\") int refused_taken(void *ctx) { return 0; }",
        &["no living service"],
    ),
];

#[test]
fn file_that_cannot_be_added_is_refused_with_a_reason_and_leaves_nothing() {
    let Some(ecalls) = core() else { return };
    for (name, text, words) in REFUSED {
        let Some(bytes) = compile_text(&format!("refused-{name}"), text) else {
            return;
        };
        let error = ecalls.provide(&bytes).expect_err(name);
        assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
        let told = error.to_string();
        for word in *words {
            assert!(
                told.contains(word),
                "{name}: {word:?} is missing in: {told}"
            );
        }
        assert!(
            ecalls.subscribe(&format!("refused-{name}")).is_err(),
            "{name}"
        );
    }
    let error = ecalls.provide(b"no object file").expect_err("no file");
    assert!(error.to_string().contains("ECALLS_SERVICE"), "{error}");
}
