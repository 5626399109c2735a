//! Every function of the header has a manual page, or a link to the page of its group. That page
//! names it and declares it as the header does.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Blanks of any kind and number as one.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The functions of the header: name and declaration in one line.
fn declarations() -> Vec<(String, String)> {
    let of = |path: String| {
        let header = read(path);
        let (_, functions) = header.split_once("extern \"C\" {").expect("functions");
        let (functions, _) = functions.split_once("}  // extern").expect("their end");
        functions.to_owned()
    };
    let functions = ["", "-net-channel", "-loop", "-threads"]
        .map(|part| of(format!("include/ecalls{part}.h")))
        .concat();
    let mut code = String::new();
    let mut rest = functions.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    let declarations = code.split_inclusive(';').filter_map(|text| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let text = in_one_line(&lines.collect::<Vec<_>>().join(" "));
        let (before, _) = text.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        Some((name.to_owned(), text.clone()))
    });
    declarations.collect()
}

/// The words of a synopsis without its fonts: `.BI "int f(" x ");"` is `int f(x);`.
fn synopsis(page: &str) -> String {
    let (_, from) = page.split_once(".SH SYNOPSIS").expect("a synopsis");
    let (section, _) = from.split_once("\n.SH ").expect("a section behind it");
    let lines = section.lines().map(|line| {
        if let Some(plain) = line.strip_prefix(".B ") {
            return plain.to_owned();
        }
        let Some(arguments) = line.strip_prefix(".BI ") else {
            return String::new();
        };
        let parts = arguments.split('"').enumerate();
        // Between quotes all counts; outside, blanks only separate.
        parts
            .map(|(at, part)| if at % 2 == 1 { part } else { part.trim() })
            .collect()
    });
    in_one_line(&lines.collect::<Vec<String>>().join("\n"))
}

#[test]
fn every_function_has_a_manual_page_that_declares_it() {
    let declarations = declarations();
    assert!(declarations.len() > 30, "{declarations:?}");
    for (name, declaration) in declarations {
        let mut page = read(format!("doc/man/{name}.3"));
        if let Some(target) = page.strip_prefix(".so man3/") {
            page = read(Path::new("doc/man").join(target.trim()));
        }
        let (_, from) = page.split_once(".SH NAME").expect("a name");
        let (names, _) = from.split_once(" \\- ").expect("what it is");
        let listed = names.split(',').any(|listed| listed.trim() == name);
        assert!(listed, "{name} is not among the names of its page");
        let declared = synopsis(&page);
        assert!(declared.contains(&declaration), "{declaration}\n{declared}");
    }
}

#[test]
fn every_link_leads_to_a_page() {
    for entry in std::fs::read_dir(root().join("doc/man")).expect("doc/man") {
        let name = entry.expect("an entry").file_name();
        let text = read(Path::new("doc/man").join(&name));
        if let Some(target) = text.strip_prefix(".so man3/") {
            let page = read(Path::new("doc/man").join(target.trim()));
            assert!(page.contains(".SH NAME"), "{name:?} leads to {target}");
        }
    }
}
