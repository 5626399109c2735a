//! Errors that the daemon returns to its client: the same error on both sides.
//!
//! The library's errors have texts with a static lifetime, so a received text is stored forever,
//! once. The daemon has about 200 of them, together 10 KB; `KEPT_MAX` bounds what another program
//! in its place can make a client store to 128 KiB. That is cheaper than owned texts in [`Error`],
//! which would concern each place where an error is made or matched, also in programs that use the
//! library.

use std::collections::HashSet;
use std::io;
use std::sync::Mutex;

use ecalls_abi::ABI_VERSION;
use ecalls_abi::message::{
    REFUSED_CLOSED, REFUSED_DENIED, REFUSED_ECODE, REFUSED_INVALID, REFUSED_LIMIT, REFUSED_OS,
    REFUSED_QUOTA, REFUSED_UNKNOWN, REFUSED_UNSUPPORTED, REFUSED_VERSION, Refused,
};

use crate::error::Error;

/// The most different texts that are stored; further ones are replaced by a general text.
const KEPT_MAX: usize = 512;

/// With REFUSED_UNSUPPORTED: the kernel has the needed feature, and refused a program.
const BY_KERNEL: &str = "refused";

/// The error that a refusal represents.
pub fn to_error(refused: &Refused) -> Error {
    let subject = || kept(refused.subject());
    let text = || kept(refused.text());
    let limit = usize::try_from(refused.number).unwrap_or(usize::MAX);
    match refused.error {
        REFUSED_UNSUPPORTED if refused.given() == BY_KERNEL => Error::Refused {
            what: subject(),
            why: refused.text().to_owned(),
        },
        REFUSED_UNSUPPORTED => Error::Unsupported {
            feature: subject(),
            since: text(),
        },
        REFUSED_DENIED => Error::Denied {
            action: subject(),
            privilege: text(),
        },
        REFUSED_LIMIT => Error::LimitReached {
            which: subject(),
            limit,
        },
        REFUSED_QUOTA => Error::Quota {
            which: subject(),
            limit: refused.number,
        },
        REFUSED_UNKNOWN => Error::Unknown {
            what: subject(),
            name: refused.given().to_owned(),
            hint: refused.text().to_owned(),
        },
        REFUSED_INVALID => Error::Invalid {
            what: subject(),
            given: refused.given().to_owned(),
            expected: text(),
        },
        REFUSED_CLOSED => Error::Closed(subject()),
        REFUSED_ECODE => Error::Ecode(match refused.text() {
            "" => "the daemon refuses the text in E-code, and does not say why".to_owned(),
            text => text.to_owned(),
        }),
        REFUSED_VERSION => Error::Version {
            theirs: u32::try_from(refused.number).unwrap_or(0),
            ours: ABI_VERSION,
            pid: 0,
        },
        _ => {
            let source = match i32::try_from(refused.number) {
                Ok(code) if code > 0 => io::Error::from_raw_os_error(code),
                _ => io::Error::other(refused.text().to_owned()),
            };
            Error::from_io(subject(), source)
        }
    }
}

/// The refusal that represents this error for a client.
pub fn from_error(error: &Error) -> Refused {
    let whole = error.to_string();
    match error {
        Error::Unsupported { feature, since } => {
            Refused::new(REFUSED_UNSUPPORTED, 0, feature, "", since)
        }
        Error::Refused { what, why } => Refused::new(REFUSED_UNSUPPORTED, 0, what, BY_KERNEL, why),
        Error::Denied { action, privilege } => {
            Refused::new(REFUSED_DENIED, 0, action, "", privilege)
        }
        Error::LimitReached { which, limit } => {
            Refused::new(REFUSED_LIMIT, *limit as u64, which, "", "")
        }
        Error::Quota { which, limit } => Refused::new(REFUSED_QUOTA, *limit, which, "", ""),
        Error::Unknown { what, name, hint } => Refused::new(REFUSED_UNKNOWN, 0, what, name, hint),
        Error::Invalid {
            what,
            given,
            expected,
        } => Refused::new(REFUSED_INVALID, 0, what, given, expected),
        Error::Closed(what) => Refused::new(REFUSED_CLOSED, 0, what, "", ""),
        Error::Ecode(text) => Refused::new(REFUSED_ECODE, 0, "a text in E-code", "", text),
        Error::Version { theirs, .. } => {
            Refused::new(REFUSED_VERSION, u64::from(*theirs), "", "", &whole)
        }
        Error::Os { action, source } => {
            let code = source
                .raw_os_error()
                .and_then(|code| u64::try_from(code).ok());
            Refused::new(
                REFUSED_OS,
                code.unwrap_or(0),
                action,
                "",
                &source.to_string(),
            )
        }
        _ => Refused::new(REFUSED_OS, 0, "asking the daemon", "", &whole),
    }
}

/// The same text with a static lifetime.
fn kept(text: &str) -> &'static str {
    static KEPT: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut kept = KEPT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    if let Some(text) = kept.get(text) {
        return text;
    }
    if kept.len() >= KEPT_MAX {
        return "the daemon's reason";
    }
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    kept.insert(text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_same_on_both_sides() {
        let errors = [
            Error::Unsupported {
                feature: "f",
                since: "s",
            },
            Error::Refused {
                what: "w",
                why: "y".to_owned(),
            },
            Error::Denied {
                action: "a",
                privilege: "p",
            },
            Error::LimitReached {
                which: "w",
                limit: 3,
            },
            Error::Quota {
                which: "q",
                limit: 4,
            },
            Error::Unknown {
                what: "service",
                name: "n".to_owned(),
                hint: "h".to_owned(),
            },
            Error::Invalid {
                what: "w",
                given: "g".to_owned(),
                expected: "e",
            },
            Error::Closed("the receiver"),
            Error::Ecode("filter.ec:1:1: error: what is this".to_owned()),
            Error::Version {
                theirs: 9,
                ours: ABI_VERSION,
                pid: 0,
            },
            Error::from_io("doing", io::Error::from_raw_os_error(libc::EBUSY)),
        ];
        for error in errors {
            let there = to_error(&from_error(&error));
            assert_eq!(there.to_string(), error.to_string());
        }
    }

    #[test]
    fn a_refusal_without_a_text_is_an_error_with_one() {
        for kind in 0..=REFUSED_ECODE + 1 {
            let error = to_error(&Refused::new(kind, 0, "", "", ""));
            assert!(!error.to_string().is_empty(), "{kind}");
        }
    }

    #[test]
    fn texts_are_kept_once() {
        let first = kept("a text that is only here");
        let other: String = "a text that is only here".chars().collect();
        let second = kept(&other);
        assert!(std::ptr::eq(first, second));
    }
}
