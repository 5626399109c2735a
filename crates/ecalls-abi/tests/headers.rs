//! The mirror and the headers say the same.
//!
//! The test writes one C file that asserts every size, offset and constant of
//! `layout`, lets the C compiler check it, and looks through the headers' text for
//! structs, fields and constants that the mirror does not have. Needs: `cc` (or `$CC`), which
//! linking Rust needs as well.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod layout;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ecalls_abi::DropReason;
use ecalls_abi::answer::ANSWER_NAME;
use ecalls_abi::guard::GUARD_NAME;
use ecalls_abi::message::SOCKET_PATH;

use layout::constants::CONSTANTS;
use layout::{STRUCTS, Struct};

fn abi_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../abi")
}

/// The text of every header, without its comments.
fn headers() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(abi_folder()).expect("abi/ is in the repository");
    let mut headers: Vec<(String, String)> = folder
        .map(|entry| entry.expect("abi/ is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "h"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a header is text");
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                without_comments(&text),
            )
        })
        .collect();
    headers.sort();
    headers
}

fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    code + rest
}

/// The C file: one assertion per fact of the mirror.
fn assertions() -> String {
    let mut c = String::from("#include <stddef.h>\n");
    for (header, _) in headers() {
        writeln!(c, "#include \"{header}\"").unwrap();
    }
    for Struct { name, size, fields } in STRUCTS.iter().copied() {
        writeln!(
            c,
            "_Static_assert(sizeof(struct {name}) == {size}, \"size of {name}\");"
        )
        .unwrap();
        let ends = fields
            .iter()
            .skip(1)
            .map(|field| field.offset)
            .chain([size]);
        for (field, end) in fields.iter().zip(ends) {
            let (field, offset) = (field.name, field.offset);
            let bytes = end - offset;
            writeln!(
                c,
                "_Static_assert(offsetof(struct {name}, {field}) == {offset}, \
                 \"offset of {name}.{field}\");\n\
                 _Static_assert(sizeof(((struct {name} *)0)->{field}) == {bytes}, \
                 \"size of {name}.{field}\");"
            )
            .unwrap();
        }
    }
    for (name, value) in constants() {
        writeln!(
            c,
            "_Static_assert((long long)(ECALLS_{name}) == {value}LL, \"value of {name}\");"
        )
        .unwrap();
    }
    c
}

fn constants() -> Vec<(String, i64)> {
    let reasons = DropReason::ALL.into_iter().map(|reason| {
        (
            format!("DROP_{}", reason.name().to_uppercase()),
            i64::try_from(reason.index()).unwrap(),
        )
    });
    CONSTANTS
        .iter()
        .map(|constant| (constant.name.to_owned(), constant.value))
        .chain(reasons)
        .collect()
}

#[test]
fn compiler_agrees_with_every_size_offset_and_value() {
    use std::io::Write;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut child = Command::new(compiler)
        .args(["-std=c11", "-fsyntax-only", "-x", "c", "-I"])
        .arg(abi_folder())
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a C compiler is installed");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(assertions().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn mirror_has_every_constant_of_the_headers() {
    let mirrored: BTreeSet<String> = constants().into_iter().map(|(name, _)| name).collect();
    let mut missing = Vec::new();
    for (header, text) in headers() {
        for line in text.lines() {
            let Some(definition) = line.strip_prefix("#define ECALLS_") else {
                continue;
            };
            let (name, value) = definition
                .split_once(char::is_whitespace)
                .unwrap_or((definition, ""));
            let is_guard = value.trim().is_empty();
            let is_macro = name.contains('(');
            let texts = [SOCKET_PATH, GUARD_NAME, ANSWER_NAME];
            let is_text = texts.iter().any(|text| value.trim() == format!("{text:?}"));
            if !is_guard && !is_macro && !is_text && !mirrored.contains(name) {
                missing.push(format!("{header}: {name}"));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn mirror_has_every_struct_and_field_of_the_headers() {
    let mut missing = Vec::new();
    for (header, text) in headers() {
        for definition in text.split("\nstruct ").skip(1) {
            let (name, rest) = definition
                .split_once(" {")
                .expect("only definitions start a line");
            let body = rest.split_once("\n};").expect("a struct ends").0;
            let found = STRUCTS.iter().find(|mirror| mirror.name == name);
            let names: Vec<&str> = body.split(';').filter_map(field_name).collect();
            let mirrored: Vec<&str> = found.map_or(vec![], |mirror| {
                mirror.fields.iter().map(|f| f.name).collect()
            });
            if names != mirrored {
                missing.push(format!(
                    "{header}: {name}: {names:?}, the mirror has {mirrored:?}"
                ));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// The name that the declaration `ecalls_u64 name[4 / 2]` declares.
fn field_name(declaration: &str) -> Option<&str> {
    declaration
        .split('[')
        .next()
        .unwrap_or(declaration)
        .split_whitespace()
        .last()
}
