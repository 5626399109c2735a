//! From bytes to a request, or to the status that says what is wrong with it. httparse knows the
//! syntax; here are the rules about fields that decide where a request ends and who else may have
//! seen it (RFC 9112), and the limits.

/// Bytes of a request's head.
pub(crate) const HEAD_MAX: usize = 8192;
/// Fields of a head.
const FIELDS_MAX: usize = 64;
/// Bytes of a request's body, which no page wants, and which are skipped.
const BODY_MAX: u64 = 64 * 1024;

/// An answer other than a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    BadRequest,
    Forbidden,
    NotFound,
    Method,
    Timeout,
    LengthRequired,
    TooLarge,
    HeadTooLarge,
    Internal,
    Unavailable,
    Version,
}

impl Status {
    /// As in the status line.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::Method => "405 Method Not Allowed",
            Status::Timeout => "408 Request Timeout",
            Status::LengthRequired => "411 Length Required",
            Status::TooLarge => "413 Content Too Large",
            Status::HeadTooLarge => "431 Request Header Fields Too Large",
            Status::Internal => "500 Internal Server Error",
            Status::Unavailable => "503 Service Unavailable",
            Status::Version => "505 HTTP Version Not Supported",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// Path and query, as the client wrote them.
    pub(crate) target: &'a str,
    /// HEAD: the answer has no body.
    pub(crate) wants_head_only: bool,
    /// Neither GET nor HEAD.
    pub(crate) is_other_method: bool,
    /// The connection stays open.
    pub(crate) keeps: bool,
    /// HTTP/1.0, where it must be told that it does.
    pub(crate) is_old: bool,
    /// Bytes of the head, and of the body after it.
    pub(crate) head: usize,
    pub(crate) body: u64,
}

/// The first request in `bytes`; `None`: it is not complete yet.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Request<'_>>, Status> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= HEAD_MAX => head,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Status::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(Status::Version),
        Err(_) => return Err(Status::BadRequest),
    };
    let is_old = parsed.version == Some(0);
    let mut said = Fields::default();
    for field in parsed.headers.iter() {
        said.take(field)?;
    }
    if !is_old && said.hosts != 1 {
        return Err(Status::BadRequest);
    }
    if said.is_coded {
        // Who passed it on may have seen another end than we would.
        return Err(match said.length {
            Some(_) => Status::BadRequest,
            None => Status::LengthRequired,
        });
    }
    let body = said.length.unwrap_or(0);
    if body > BODY_MAX {
        return Err(Status::TooLarge);
    }
    let method = parsed.method.unwrap_or_default();
    Ok(Some(Request {
        target: parsed.path.unwrap_or_default(),
        wants_head_only: method == "HEAD",
        is_other_method: !["GET", "HEAD"].contains(&method),
        keeps: if is_old { said.keeps } else { !said.closes },
        is_old,
        head,
        body,
    }))
}

/// What the fields of a head say, as far as it matters.
#[derive(Default)]
struct Fields {
    hosts: u32,
    length: Option<u64>,
    is_coded: bool,
    keeps: bool,
    closes: bool,
}

impl Fields {
    fn take(&mut self, field: &httparse::Header<'_>) -> Result<(), Status> {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("host") {
            self.hosts += 1;
        } else if is("transfer-encoding") {
            self.is_coded = true;
        } else if is("content-length") {
            let length = length(field.value).ok_or(Status::BadRequest)?;
            if self.length.is_some_and(|other| other != length) {
                return Err(Status::BadRequest);
            }
            self.length = Some(length);
        } else if is("connection") {
            for word in field.value.split(|byte| *byte == b',') {
                let word = word.trim_ascii();
                self.closes |= word.eq_ignore_ascii_case(b"close");
                self.keeps |= word.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }
}

/// Digits only: neither a sign nor a list. One that is too long for a number is too large.
fn length(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Status {
        parse(text.as_bytes()).expect_err(text)
    }

    #[test]
    fn a_request_is_complete_with_its_empty_line() {
        let text = b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\nGET /next";
        for end in 0..text.len() - 10 {
            assert_eq!(parse(&text[..end]), Ok(None), "{end}");
        }
        let request = parse(text).expect("right").expect("complete");
        assert_eq!(
            (request.target, request.head, request.body),
            ("/a?b", 30, 0)
        );
        assert!(request.keeps && !request.wants_head_only && !request.is_other_method);
    }

    #[test]
    fn where_a_body_ends_is_never_guessed() {
        let with = |fields: &str| format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
        for fields in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: +1",
            "Content-Length: 1, 1",
            "Content-Length:",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Content-Length : 1",
        ] {
            assert_eq!(refused(&with(fields)), Status::BadRequest, "{fields}");
        }
        let chunked = with("Transfer-Encoding: chunked");
        assert_eq!(refused(&chunked), Status::LengthRequired);
        for length in ["65537", "99999999999999999999999"] {
            let text = with(&format!("Content-Length: {length}"));
            assert_eq!(refused(&text), Status::TooLarge, "{length}");
        }
        let text = with("Content-Length: 3\r\nContent-Length: 3");
        assert_eq!(
            parse(text.as_bytes())
                .expect("right")
                .expect("complete")
                .body,
            3
        );
    }

    #[test]
    fn limits_and_versions_have_statuses_of_their_own() {
        assert_eq!(
            refused("GET / HTTP/1.1\r\n\r\n"),
            Status::BadRequest,
            "no host"
        );
        assert_eq!(
            refused("GET / HTTP/2.0\r\nHost: x\r\n\r\n"),
            Status::Version
        );
        assert_eq!(refused("\0\0\0\0"), Status::BadRequest);
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_MAX));
        assert_eq!(refused(&long), Status::HeadTooLarge);
        let fields = "A: b\r\n".repeat(FIELDS_MAX + 1);
        let many = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(refused(&many), Status::HeadTooLarge);
    }

    #[test]
    fn an_old_connection_stays_open_only_if_the_client_says_so() {
        let keeps = |text: &str| {
            parse(text.as_bytes())
                .expect("right")
                .expect("complete")
                .keeps
        };
        assert!(!keeps("GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
        assert!(!keeps(
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: x, close\r\n\r\n"
        ));
    }
}
