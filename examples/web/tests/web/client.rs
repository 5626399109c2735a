//! Programs that others wrote, as clients: what they print, and a page that only a browser loads
//! whole.

use std::path::Path;
use std::process::Command;

/// What a program prints; `None`: it is not installed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        eprintln!("not tested: {program} is not installed (tools/setup test)");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{errors}"
    );
    Some(text)
}

/// The number after `label`.
pub(crate) fn number(text: &str, label: &str) -> u64 {
    let after = text
        .split(label)
        .nth(1)
        .unwrap_or_else(|| panic!("{label}: {text}"));
    let digits: String = after
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or_else(|_| panic!("{label}: {text}"))
}

/// A page of what a browser loads apart: a style, a script, and pictures over several connections.
const PAGE: &str =
    "<!doctype html><link rel=stylesheet href=page.css><script src=page.js></script>";
const STYLE: &str = "body { font-size: 33px }";
const SCRIPT: &str = "window.onload = () => { \
    const loaded = [...document.images].filter(one => one.naturalWidth == 7); \
    document.body.title = `${loaded.length} of ${getComputedStyle(document.body).fontSize}`; }";
const PICTURE: &str = "<svg xmlns='http://www.w3.org/2000/svg' width='7' height='7'/>";
const PICTURES: usize = 24;

/// Loads such a page of that folder, whose server is at `site`, with all that belongs to it.
pub(crate) fn browse(what: &str, folder: &Path, site: &str) {
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("a file");
    };
    let pictures: String = (0..PICTURES)
        .map(|number| format!("<img src=picture{number}.svg>"))
        .collect();
    file("page.html", &format!("{PAGE}{pictures}"));
    file("page.css", STYLE);
    file("page.js", SCRIPT);
    (0..PICTURES).for_each(|number| file(&format!("picture{number}.svg"), PICTURE));
    let profile = format!("--user-data-dir={}/profile", folder.display());
    let url = format!("{site}/page.html");
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        &profile,
        "--dump-dom",
        &url,
    ];
    if let Some(text) = run("chromium", &arguments) {
        let wanted = format!("title=\"{PICTURES} of 33px\"");
        assert!(text.contains(&wanted), "{what}: {text}");
    }
}

/// Whether it is time for what takes long.
pub(crate) fn is_night() -> bool {
    std::env::var_os("ECALLS_NIGHTLY").is_some()
}
