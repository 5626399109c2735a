//! Compiles the shim, and through it the policy in `bpf/lib/sched`, for the host, where undefined
//! behaviour traps; and kernel.bpf.c for the kernel, where a test repeats what the host did.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new("../..");
    for source in ["shim.c", "kernel.bpf.c"] {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed=BPF_CLANG");
    for folder in ["abi", "bpf/lib"] {
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
    }
    cc::Build::new()
        .file("shim.c")
        .include(root)
        .std("gnu11")
        .opt_level(2)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .flag("-fsanitize=undefined")
        .flag("-fsanitize-undefined-trap-on-error")
        .compile("policy");
    compile_for_bpf(root);
}

fn compile_for_bpf(root: &Path) {
    let object =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("kernel.o");
    let clang = env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        .arg("-Wno-unused-function")
        .arg(format!("-I{}", root.display()))
        .args(["-c", "kernel.bpf.c", "-o"])
        .arg(object)
        .status()
        .unwrap_or_else(|error| panic!("{clang} did not start: {error}"));
    assert!(status.success(), "{clang} could not compile for BPF");
}
