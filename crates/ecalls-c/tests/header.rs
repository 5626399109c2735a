//! `include/ecalls.h` is what cbindgen makes of the source, and it compiles alone in C and C++.
//!
//! With `ECALLS_UPDATE=1` the header is written instead of compared.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn generate() -> String {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_folder.join("cbindgen.toml"))
        .expect("cbindgen.toml is well-formed");
    let bindings = cbindgen::generate_with_config(crate_folder, config).expect("bindings");
    let mut text = Vec::new();
    bindings.write(&mut text);
    in_blocks(&String::from_utf8(text).expect("a header is UTF-8"))
}

/// Comments and indentation as in abi/*.h: one line or a block, and tabs.
fn in_blocks(text: &str) -> String {
    let mut blocks = String::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        let indent = "\t".repeat((line.len() - code.len()) / 8);
        let rest = " ".repeat((line.len() - code.len()) % 8);
        let Some(words) = code.strip_prefix("//") else {
            blocks += &format!("{indent}{rest}{code}\n");
            continue;
        };
        comment.push(words.trim_end());
        if lines
            .peek()
            .is_some_and(|next| next.trim_start().starts_with("//"))
        {
            continue;
        }
        if let [words] = comment[..] {
            blocks += &format!("{indent}/*{words} */\n");
        } else {
            let body: String = comment
                .iter()
                .map(|words| format!("{indent} *{words}\n"))
                .collect();
            blocks += &format!("{indent}/*\n{body}{indent} */\n");
        }
        comment.clear();
    }
    blocks
}

#[test]
fn header_is_what_the_source_says() {
    let path = root().join("include/ecalls.h");
    let generated = generate();
    if std::env::var_os("ECALLS_UPDATE").is_some() {
        std::fs::write(&path, &generated).expect("include/ is writable");
    }
    let checked_in = std::fs::read_to_string(&path).expect("include/ecalls.h");
    assert!(
        checked_in == generated,
        "include/ecalls.h is older than the source: \
         ECALLS_UPDATE=1 cargo test -p ecalls-c --test header"
    );
}

#[test]
fn header_compiles_alone_in_c_and_in_cpp() {
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    for (compiler, standard, language) in [("gcc", "-std=c11", "c"), ("g++", "-std=c++17", "c++")] {
        let source = format!("{}/alone.{language}", env!("CARGO_TARGET_TMPDIR"));
        // Twice: the second time it must add nothing.
        let text = "#include \"ecalls.h\"\n#include \"ecalls.h\"\n";
        std::fs::write(&source, text).expect("the build's folder is writable");
        let output = Command::new(compiler)
            .args(warnings)
            .args([standard, "-x", language, "-I"])
            .arg(root().join("include"))
            .arg(&source)
            .output()
            .expect("a C compiler is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler}: {errors}");
    }
}
