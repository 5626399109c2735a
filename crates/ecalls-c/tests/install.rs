//! `make install-library` gives a C programmer what pkg-config promises, shared and static, and
//! `make uninstall` takes exactly that away again.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// How long a compiler or `make` may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a command and returns what it wrote.
fn output(command: &mut Command) -> String {
    let output = limit::output(command, LIMIT);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn make(target: &str, prefix: &Path) {
    let library = limit::library::build(env!("CARGO_MANIFEST_DIR"), "libecalls.so");
    let folder = library.parent().expect("a folder").display();
    output(
        Command::new("make")
            .arg(target)
            .arg(format!("PREFIX={}", prefix.display()))
            .arg(format!("BUILD={folder}"))
            .current_dir(root()),
    );
}

fn package(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let flags = output(
        Command::new("pkg-config")
            .args(arguments)
            .arg("ecalls")
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
    );
    flags.split_whitespace().map(str::to_owned).collect()
}

fn files_below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.insert(path);
        }
    }
}

/// What a program links with: by its name, or as a file.
fn is_linked_with_the_shared_library(program: &Path) -> bool {
    output(Command::new("readelf").arg("-d").arg(program)).contains("[libecalls.so.0]")
}

/// The example of a service compiles with nothing but the installed headers, as it says.
fn assert_service_compiles(prefix: &Path) {
    let (clang, _) = ecalls_kernel::objects::COMPILER;
    let object = prefix.join("rename.bpf.o");
    output(
        Command::new(clang)
            .args([
                "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
            ])
            .arg("-D__TARGET_ARCH_x86")
            .arg(format!("-I{}", prefix.join("include/ecalls/bpf").display()))
            .arg("-c")
            .arg(root().join("examples/service/rename.bpf.c"))
            .arg("-o")
            .arg(&object),
    );
    std::fs::remove_file(&object).expect("ours");
}

#[test]
fn installed_library_is_found_used_and_removed_without_a_trace() {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
    let _ = std::fs::remove_dir_all(&prefix);
    // Something of others, which must stay.
    std::fs::create_dir_all(prefix.join("include")).expect("a folder");
    std::fs::write(prefix.join("include/other.h"), "").expect("a file");
    make("install-library", &prefix);
    make("install-service", &prefix);
    make("install-manual", &prefix);

    let source = root().join("crates/ecalls-c/tests/c/arguments.c");
    let shared = prefix.join("shared");
    output(
        Command::new("cc")
            .arg(&source)
            .args(package(&prefix, &["--cflags", "--libs"]))
            .arg("-o")
            .arg(&shared),
    );
    assert!(is_linked_with_the_shared_library(&shared));
    output(Command::new(&shared).env("LD_LIBRARY_PATH", prefix.join("lib")));

    let alone = prefix.join("static");
    let libraries = package(&prefix, &["--static", "--libs"]);
    output(
        Command::new("cc")
            .arg(&source)
            .args(package(&prefix, &["--cflags"]))
            .args(libraries.iter().map(|flag| match flag.as_str() {
                "-lecalls" => "-l:libecalls.a",
                other => other,
            }))
            .arg("-o")
            .arg(&alone),
    );
    assert!(!is_linked_with_the_shared_library(&alone));
    output(&mut Command::new(&alone));

    assert_service_compiles(&prefix);
    std::fs::remove_file(&shared).expect("ours");
    std::fs::remove_file(&alone).expect("ours");
    make("uninstall", &prefix);
    let mut left = BTreeSet::new();
    files_below(&prefix, &mut left);
    assert_eq!(left, BTreeSet::from([prefix.join("include/other.h")]));
    assert!(!prefix.join("include/ecalls").exists());
}
