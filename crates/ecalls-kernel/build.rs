//! Compiles bpf/**/*.bpf.c with clang, one object file each, into OUT_DIR; and what E-code and the
//! path of events are compared with, tests/ecode/compare and tests/baseline.
//!
//! The headers come from abi/, bpf/ and libbpf (which libbpf-sys builds and installs). The compiler
//! is `$BPF_CLANG`, else the newest of clang-21 .. clang-17, else clang.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, thread};

const HEADERS: [&str; 4] = ["abi", "bpf", "bpf/lib", "bpf/lib/sched"];
const SOURCES: [&str; 11] = [
    "bpf/answer",
    "bpf/ecode",
    "bpf/event",
    "bpf/guard",
    "bpf/net",
    "bpf/ready",
    "bpf/service",
    "bpf/sched",
    "bpf/threads",
    "tests/ecode/compare",
    "tests/baseline",
];

fn main() {
    // asked for now, not when this was compiled: the clone may have been moved since
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let root = &Path::new(&package).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    for folder in HEADERS.iter().chain(&SOURCES) {
        println!("cargo:rerun-if-changed={}", root.join(folder).display());
    }
    let clang = clang();
    // Tests compile, too.
    println!("cargo:rustc-env=ECALLS_BPF_CLANG={clang}");
    println!("cargo:rustc-env=ECALLS_BPF_INCLUDE={libbpf}");
    let found = SOURCES.map(|folder| sources(&root.join(folder)));
    // Each takes a second or two of one processor.
    let jobs = env::var("NUM_JOBS").map_or(1, |jobs| jobs.parse().unwrap_or(1));
    let rest = Mutex::new(found.into_iter().flatten());
    let next = || rest.lock().expect("another has failed").next();
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(source) = next() {
                    compile(&clang, root, &libbpf, &source, &out);
                }
            });
        }
    });
}

/// The compiler's name, or an explanation of what to install.
fn clang() -> String {
    if let Ok(named) = env::var("BPF_CLANG") {
        return named;
    }
    (17..=21)
        .rev()
        .map(|version| format!("clang-{version}"))
        .chain(["clang".to_owned()])
        .find(|name| Command::new(name).arg("--version").output().is_ok())
        .expect("no clang found: install clang-19 (or run tools/setup build), or set BPF_CLANG")
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    found.sort();
    for path in &found {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    found
}

fn compile(clang: &str, root: &Path, libbpf: &str, source: &Path, out: &Path) {
    let name = source.file_name().expect("a file").to_string_lossy();
    let object = out.join(name.replace(".bpf.c", ".bpf.o"));
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "-D__TARGET_ARCH_arm64",
        _ => "-D__TARGET_ARCH_x86",
    };
    let status = Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", arch,
        ])
        .arg(format!("-I{}", root.display()))
        .arg(format!("-I{}", root.join("bpf").display()))
        .arg(format!("-I{libbpf}"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status()
        .unwrap_or_else(|error| panic!("{clang} did not start: {error}"));
    assert!(
        status.success(),
        "{clang} could not compile {}",
        source.display()
    );
}
