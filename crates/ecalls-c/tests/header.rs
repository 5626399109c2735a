//! The headers in `include/` are what cbindgen makes of the source, and each compiles alone in C
//! and C++.
//!
//! With `ECALLS_UPDATE=1` they are written instead of compared.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A header, its configuration, and the modules that it has of this crate.
type Header = (&'static str, &'static str, &'static [&'static str]);

/// The first one has the modules that no other has.
const HEADERS: [Header; 4] = [
    ("ecalls.h", "cbindgen.toml", &[]),
    (
        "ecalls-net-channel.h",
        "cbindgen-net-channel.toml",
        &["net_channel", "publisher"],
    ),
    (
        "ecalls-loop.h",
        "cbindgen-loop.toml",
        &["event_loop", "event_source", "coop", "window"],
    ),
    (
        "ecalls-threads.h",
        "cbindgen-threads.toml",
        &["runtime", "thread", "cancel", "key", "lock"],
    ),
];

/// The public modules, in the order of lib.rs, which is that of the headers.
fn all_modules() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("crates/ecalls-c/src/lib.rs")).expect("lib.rs");
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod "));
    names
        .map(|name| name.trim_end_matches(';').to_owned())
        .collect()
}

fn generate((_, configuration, modules): Header) -> String {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_folder.join(configuration))
        .unwrap_or_else(|error| panic!("{configuration}: {error}"));
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in all_modules() {
        let is_in = |modules: &[&str]| modules.contains(&name.as_str());
        let of_none = || !HEADERS.iter().any(|(.., modules)| is_in(modules));
        if is_in(modules) || modules.is_empty() && of_none() {
            builder = builder.with_src(crate_folder.join(format!("src/{name}.rs")));
        }
    }
    let bindings = builder.generate().expect("bindings");
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
    for header in HEADERS {
        let generated = generate(header);
        let (header, ..) = header;
        let path = root().join("include").join(header);
        if std::env::var_os("ECALLS_UPDATE").is_some() {
            std::fs::write(&path, &generated).expect("include/ is writable");
        }
        let checked_in = std::fs::read_to_string(&path).expect("a header");
        assert!(
            checked_in == generated,
            "include/{header} is older than the source: \
             ECALLS_UPDATE=1 cargo test -p ecalls-c --test header"
        );
    }
}

#[test]
fn header_compiles_alone_in_c_and_in_cpp() {
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    let languages = [("gcc", "-std=c11", "c"), ("g++", "-std=c++17", "c++")];
    for ((compiler, standard, language), (header, ..)) in languages
        .into_iter()
        .flat_map(|one| HEADERS.map(|header| (one, header)))
    {
        let source = format!("{}/alone.{language}", env!("CARGO_TARGET_TMPDIR"));
        // Twice: the second time it must add nothing.
        let text = format!("#include \"{header}\"\n").repeat(2);
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
