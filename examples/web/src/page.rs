//! From a request to a page: a file below the folder, or one that costs processor time.
//!
//! The kernel resolves names, with the folder as the root that nothing leads out of: no `..`, no
//! symbolic link, whatever somebody changes meanwhile.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use percent_encoding::percent_decode_str;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::request::{Request, Status};

/// A file of at most this size goes into memory, so that head and body leave with one call.
const SMALL: u64 = 16 * 1024;
/// The longest a page may compute: nobody else is served meanwhile.
const CPU_US_MAX: u64 = 1_000_000;
/// Seconds after which a client that got 503 may try again.
const RETRY_S: u32 = 1;

/// What is served.
#[derive(Debug)]
pub(crate) struct Site {
    folder: OwnedFd,
    /// The field Date, and the second that it stands for.
    date: RefCell<(u64, String)>,
}

/// What is sent from a file after the head.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) file: File,
    pub(crate) left: u64,
}

/// A head to be written, but for what all have in common.
struct Head<'a> {
    status: &'a str,
    kind: &'a str,
    length: u64,
    extra: &'a str,
}

/// How the connection goes on after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Closes,
    Keeps,
    /// And says so, to a client of HTTP/1.0.
    KeepsOld,
}

impl Site {
    pub(crate) fn open(folder: &Path) -> io::Result<Site> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Site {
            folder: openat2(CWD, folder, flags, Mode::empty(), ResolveFlags::empty())
                .or_else(|_| open(folder, flags, Mode::empty()))?,
            date: RefCell::default(),
        })
    }

    /// Appends an answer to `output`, but for what must be sent from a file.
    pub(crate) fn answer(
        &self,
        request: &Request<'_>,
        then: Then,
        output: &mut Vec<u8>,
    ) -> Option<Body> {
        let page = match request.is_other_method {
            true => Err(Status::Method),
            false => self.page(request.target),
        };
        match page {
            Ok(Page::Text(text)) => {
                self.head(output, then, &Head::of("text/plain", text.len() as u64));
                if !request.wants_head_only {
                    output.extend_from_slice(text.as_bytes());
                }
                None
            }
            Ok(Page::File { file, size, kind }) => {
                let start = output.len();
                self.head(output, then, &Head::of(kind, size));
                if request.wants_head_only {
                    return None;
                }
                if size > SMALL {
                    return Some(Body { file, left: size });
                }
                let head_end = output.len();
                let read = file.take(size).read_to_end(output);
                if read.is_err() || (output.len() - head_end) as u64 != size {
                    // It fails, or has become shorter: the head is not true.
                    output.truncate(start);
                    self.refuse(Status::Internal, then, true, output);
                }
                None
            }
            Err(status) => {
                self.refuse(status, then, !request.wants_head_only, output);
                None
            }
        }
    }

    /// Appends an answer that is no page.
    pub(crate) fn refuse(&self, status: Status, then: Then, has_body: bool, output: &mut Vec<u8>) {
        let text = status.text();
        let retry = format!("Retry-After: {RETRY_S}\r\n");
        let head = Head {
            status: text,
            extra: match status {
                Status::Method => "Allow: GET, HEAD\r\n",
                Status::Unavailable => &retry,
                _ => "",
            },
            ..Head::of("text/plain", text.len() as u64 + 1)
        };
        self.head(output, then, &head);
        if has_body {
            output.extend_from_slice(text.as_bytes());
            output.push(b'\n');
        }
    }

    fn page(&self, target: &str) -> Result<Page, Status> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path == "/cpu" {
            let us = query.strip_prefix("us=").and_then(|us| us.parse().ok());
            let us = us
                .filter(|us| *us <= CPU_US_MAX)
                .ok_or(Status::BadRequest)?;
            compute(Duration::from_micros(us));
            return Ok(Page::Text(format!("{us} us\n")));
        }
        self.file(path)
    }

    fn file(&self, path: &str) -> Result<Page, Status> {
        // The form for proxies, which every server must understand.
        let path = match path.strip_prefix("http://") {
            Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
            None => path,
        };
        let path = path.strip_prefix('/').ok_or(Status::BadRequest)?;
        let mut name: Vec<u8> = percent_decode_str(path).collect();
        if name.is_empty() || name.ends_with(b"/") {
            name.extend_from_slice(b"index.html");
        }
        // A FIFO must not make us wait until somebody writes.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let opened = openat2(&self.folder, &name[..], flags, Mode::empty(), inside);
        let file = File::from(opened.map_err(|error| match error {
            Errno::ACCESS | Errno::PERM => Status::Forbidden,
            Errno::INVAL => Status::BadRequest,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Status::Unavailable,
            Errno::IO | Errno::NOSYS => Status::Internal,
            _ => Status::NotFound,
        })?);
        let found = file.metadata().map_err(|_| Status::Internal)?;
        if !found.is_file() {
            return Err(Status::NotFound);
        }
        Ok(Page::File {
            file,
            size: found.len(),
            kind: kind(&name),
        })
    }

    fn head(&self, output: &mut Vec<u8>, then: Then, head: &Head<'_>) {
        let connection = match then {
            Then::Closes => "Connection: close\r\n",
            Then::Keeps => "",
            Then::KeepsOld => "Connection: keep-alive\r\n",
        };
        let mut date = self.date.borrow_mut();
        let now = SystemTime::now();
        let second = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        if date.0 != second.as_secs() {
            *date = (second.as_secs(), httpdate::fmt_http_date(now));
        }
        let Head {
            status,
            kind,
            length,
            extra,
        } = head;
        // Memory does not fail.
        let _ = write!(
            output,
            "HTTP/1.1 {status}\r\nServer: ecalls-web\r\nDate: {}\r\nContent-Type: {kind}\r\n\
             Content-Length: {length}\r\n{extra}{connection}\r\n",
            date.1
        );
    }
}

enum Page {
    Text(String),
    File {
        file: File,
        size: u64,
        kind: &'static str,
    },
}

impl<'a> Head<'a> {
    fn of(kind: &'a str, length: u64) -> Head<'a> {
        Head {
            status: "200 OK",
            kind,
            length,
            extra: "",
        }
    }
}

/// The media type, by the end of a name.
fn kind(name: &[u8]) -> &'static str {
    const KINDS: &[(&[u8], &str)] = &[
        (b".html", "text/html; charset=utf-8"),
        (b".txt", "text/plain; charset=utf-8"),
        (b".css", "text/css"),
        (b".js", "text/javascript"),
        (b".json", "application/json"),
        (b".svg", "image/svg+xml"),
        (b".png", "image/png"),
        (b".jpg", "image/jpeg"),
    ];
    let found = KINDS.iter().find(|(end, _)| name.ends_with(end));
    found.map_or("application/octet-stream", |(_, kind)| kind)
}

/// Takes so much of the processor's time: being preempted does not count. Asking for that time is a
/// system call, so it is done as seldom as is exact: each part takes half of what is left.
fn compute(time: Duration) {
    /// The first part, and the least: some microseconds.
    const PART: u64 = 5000;
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let (begin, mut number, mut part, mut done) = (now(), 1u64, PART, 0);
    loop {
        for _ in 0..part {
            number = std::hint::black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
        }
        done += part;
        let taken = now() - begin;
        if taken >= time {
            return;
        }
        let rate = done as f64 / taken.as_secs_f64();
        part = ((rate * (time - taken).as_secs_f64() / 2.0) as u64).max(PART);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(test: &str) -> (Site, std::path::PathBuf) {
        let folder = std::env::temp_dir().join(format!("web-{test}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("site/below")).expect("a folder");
        std::fs::write(folder.join("secret"), "secret").expect("a file");
        std::fs::write(folder.join("site/a b.txt"), "page").expect("a file");
        std::os::unix::fs::symlink("../secret", folder.join("site/link")).expect("a link");
        (Site::open(&folder.join("site")).expect("a folder"), folder)
    }

    #[test]
    fn nothing_leads_out_of_the_folder() {
        let (site, folder) = site("beneath");
        for path in [
            "/../secret",
            "/%2e%2e/secret",
            "/below/../../secret",
            "/..%2fsecret",
            "//etc/passwd",
            "/link",
            "/below",
            "/",
        ] {
            assert_eq!(site.page(path).err(), Some(Status::NotFound), "{path}");
        }
        assert_eq!(site.page("/a%00b").err(), Some(Status::BadRequest));
        assert_eq!(site.page("secret").err(), Some(Status::BadRequest));
        for path in [
            "/a%20b.txt",
            "/below/../a b.txt?x",
            "http://host:1/a%20b.txt",
        ] {
            assert!(site.page(path).is_ok(), "{path}");
        }
        std::fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn a_page_that_computes_takes_its_time_and_no_more_than_is_allowed() {
        let (site, folder) = site("cpu");
        let before = clock_gettime(ClockId::ThreadCPUTime);
        assert!(site.page("/cpu?us=3000").is_ok());
        let after = clock_gettime(ClockId::ThreadCPUTime);
        assert!(
            Duration::try_from(after - before)
                .expect("positive")
                .as_micros()
                >= 3000
        );
        for query in ["", "us=", "us=-1", "us=1000001", "us=1e3"] {
            let page = site.page(&format!("/cpu?{query}"));
            assert_eq!(page.err(), Some(Status::BadRequest), "{query}");
        }
        std::fs::remove_dir_all(folder).expect("it is ours");
    }
}
