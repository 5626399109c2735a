//! Servers that others wrote, and the one of this crate, bare and with `libecalls_io.so` loaded
//! before the C library (`ecalls run --io`): curl, ab, wrk and h2load must get the same from both.
//! Beside the clients there are idle connections, so that what the servers poll is worth a set of
//! the library's. `make nightly` takes all modes, more requests, and a browser.
//!
//! - [`client`]: the clients;
//! - [`site`]: the servers.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

#[path = "web/client.rs"]
mod client;
#[path = "servers/site.rs"]
mod site;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use client::{browse, is_night, number, run};
use site::{BIG, Kind, Site};

const IDLE: usize = 40;
/// wrk's connections pause for so long, ms: as fast as it can, it would take all of the machine.
const DELAY: &str = "function delay() return 20 end\n";

/// What the clients are to do.
struct Effort {
    requests: &'static str,
    clients: &'static str,
    wrk: &'static [&'static str],
}

const SHORT: Effort = Effort {
    requests: "1000",
    clients: "32",
    wrk: &["-t1", "-c32", "-d1s", "-s", "delay.lua"],
};
const NIGHT: Effort = Effort {
    requests: "20000",
    clients: "200",
    wrk: &["-t1", "-c200", "-d3s"],
};

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/ecalls-io");
    LIBRARY.get_or_init(|| limit::library::build(package, "libecalls_io.so"))
}

/// What came of the clients' requests; times and rates are left out.
#[derive(Debug, PartialEq)]
struct Seen {
    /// Status and length, a line each.
    pages: Option<String>,
    bodies: Vec<u64>,
    /// By ab with and without open connections: complete, failed, the length of a page.
    ab: Vec<[u64; 3]>,
    h2load: Option<Vec<String>>,
    wrk_errors: Option<bool>,
}

/// A file, one of many packets, none, a part of one, and the head of one.
const PAGES: &[&[&str]] = &[
    &["/"],
    &["/big"],
    &["/missing"],
    &["-r", "1000-1999", "/big"],
    &["-I", "/"],
];

fn curl(site: &Site) -> (Option<String>, Vec<u64>) {
    let (folder, mut arguments, mut files) = (site.folder(), Vec::new(), Vec::new());
    for (number, page) in PAGES.iter().enumerate() {
        let file = folder.join(format!("page{number}"));
        let (path, options) = page.split_last().expect("a path");
        let shown = "%{http_code} %{size_download} %{num_connects}\n";
        let words = ["--next", "-sS", "-w", shown, "-o"].map(str::to_owned);
        arguments.extend(words.into_iter().skip(usize::from(number == 0)));
        arguments.push(file.display().to_string());
        arguments.extend(options.iter().map(ToString::to_string));
        arguments.push(site.url(path));
        files.push(file);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let pages = run("curl", &arguments);
    let bodies = files.iter().enumerate().map(|(number, file)| {
        let mut body = std::fs::read(file).unwrap_or_default();
        if PAGES[number].contains(&"-I") {
            // When the file was written, and when the reply was.
            let text = String::from_utf8_lossy(&body).to_lowercase();
            let own = ["date:", "last-modified:", "etag:"];
            let lines = text.lines();
            let lines = lines.filter(|line| !own.iter().any(|name| line.starts_with(name)));
            body = lines.collect::<String>().into_bytes();
        }
        let mut hash = DefaultHasher::new();
        body.hash(&mut hash);
        hash.finish()
    });
    (pages, bodies.collect())
}

fn ab(site: &Site, effort: &Effort) -> Vec<[u64; 3]> {
    let url = site.url("/");
    let options = [&["-q"][..], &["-q", "-k"]];
    let texts = options.iter().filter_map(|options| {
        let count = ["-n", effort.requests, "-c", effort.clients, &url];
        run("ab", &[options, &count[..]].concat())
    });
    let numbers = texts.map(|text| {
        assert!(!text.contains("Non-2xx"), "{text}");
        let labels = ["Complete requests:", "Failed requests:", "Document Length:"];
        labels.map(|label| number(&text, label))
    });
    numbers.collect()
}

/// The lines without times.
fn h2load(site: &Site, effort: &Effort) -> Option<Vec<String>> {
    let (count, clients) = (effort.requests, effort.clients);
    let arguments = [
        "--h1",
        "-n",
        count,
        "-c",
        clients,
        "-m",
        "1",
        &site.url("/"),
    ];
    let text = run("h2load", &arguments)?;
    let lines = text.lines().filter(|line| {
        let starts = ["requests: ", "status codes: "];
        starts.iter().any(|start| line.starts_with(start))
    });
    Some(lines.map(str::to_owned).collect())
}

fn wrk(site: &Site, effort: &Effort) -> Option<bool> {
    let script = site.folder().join("delay.lua");
    std::fs::write(&script, DELAY).expect("a file");
    let (script, url) = (script.display().to_string(), site.url("/"));
    let words = effort.wrk.iter().copied();
    let words = words.map(|word| if word == "delay.lua" { &script } else { word });
    let arguments: Vec<&str> = words.chain([&*url]).collect();
    let text = run("wrk", &arguments)?;
    assert!(
        text.contains("requests in") && !text.contains(" 0 requests in"),
        "{text}"
    );
    Some(text.contains("Socket errors") || text.contains("Non-2xx"))
}

/// All clients at a server with the library or without; `None`: the server is not installed.
fn seen(kind: &Kind, library: Option<&Path>, effort: &Effort) -> Option<Seen> {
    let site = Site::start(kind, library)?;
    let connect = |_| TcpStream::connect(site.address).expect("it listens");
    let idle: Vec<TcpStream> = (0..IDLE).map(connect).collect();
    let (pages, bodies) = curl(&site);
    let seen = Seen {
        pages,
        bodies,
        ab: ab(&site, effort),
        h2load: h2load(&site, effort),
        wrk_errors: wrk(&site, effort),
    };
    drop(idle);
    if is_night() {
        browse(kind.name, &site.folder(), &site.url(""));
    }
    if let Some(library) = library {
        assert!(site.has_loaded(library), "{}: not loaded", kind.name);
    }
    if kind.polls {
        let sets = usize::from(library.is_some());
        assert_eq!(site.epoll_sets(), sets, "{}: sets of epoll", kind.name);
    }
    Some(seen)
}

/// Both at once: mostly they wait.
fn compare(kind: &Kind) {
    if !kind.is_short && !is_night() {
        return;
    }
    let effort = if is_night() { &NIGHT } else { &SHORT };
    let library = library();
    let (bare, ours) = std::thread::scope(|scope| {
        let bare = scope.spawn(|| seen(kind, None, effort));
        let ours = seen(kind, Some(library), effort);
        (bare.join().expect("what was seen"), ours)
    });
    let Some(bare) = bare else {
        eprintln!(
            "not tested: {} is not installed (tools/setup test)",
            kind.name
        );
        return;
    };
    assert_eq!(ours.as_ref(), Some(&bare), "{}: left with it", kind.name);
    if let Some(pages) = &bare.pages {
        let lines: Vec<&str> = pages.lines().collect();
        assert_eq!(lines.len(), PAGES.len(), "{}: {pages}", kind.name);
        assert!(lines[0].starts_with("200 13 "), "{}: {pages}", kind.name);
        assert!(
            lines[1].starts_with(&format!("200 {BIG} ")),
            "{}: {pages}",
            kind.name
        );
        assert!(lines[2].starts_with("404 "), "{}: {pages}", kind.name);
    }
    for [complete, failed, length] in &bare.ab {
        let wanted = (effort.requests.to_owned(), 0, 13);
        assert_eq!(
            (complete.to_string(), *failed, *length),
            wanted,
            "{}",
            kind.name
        );
    }
    if let Some(lines) = &bare.h2load {
        let told = lines.join("\n");
        let wanted = format!("{} succeeded, 0 failed, 0 errored", effort.requests);
        assert!(told.contains(&wanted), "{}: {told}", kind.name);
    }
    assert_ne!(bare.wrk_errors, Some(true), "{}", kind.name);
    println!("{}: {bare:?}", kind.name);
}

fn compare_all(server: &str) {
    let kinds = site::KINDS.iter().filter(|kind| kind.server == server);
    kinds.for_each(compare);
}

#[test]
fn lighttpd_serves_the_same() {
    compare_all("lighttpd");
}

#[test]
fn nginx_serves_the_same() {
    compare_all("nginx");
}

#[test]
fn haproxy_passes_on_the_same() {
    compare_all("haproxy");
}

#[test]
fn server_of_the_examples_serves_the_same() {
    compare_all(site::OURS);
}
