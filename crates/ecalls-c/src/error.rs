//! Errors in C: a code for programs, a text for people.
//!
//! Every function runs inside [`guard`], which turns an error or a panic into a negative code and
//! stores the text for the calling thread. Each code stands for an action that a caller can take:
//!
//! | error of the Rust library | code |
//! |---|---|
//! | Denied | -EPERM |
//! | Unsupported | -ENOSYS |
//! | Unknown | -ENOENT |
//! | Invalid, null, no UTF-8 | -EINVAL |
//! | LimitReached | -ENOSPC |
//! | Quota | -EDQUOT |
//! | Closed, DaemonGone | -ESHUTDOWN |
//! | Version, OtherBuild, Hosted | -EPROTO |
//! | Load | -ENOEXEC |
//! | Os | the system's errno, else -EIO |
//! | a panic | -ENOTRECOVERABLE |
//!
//! Expected results (-EAGAIN, -ETIMEDOUT) have a code and no text, so they cost a polling loop
//! nothing.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ecalls::Error;

/// An error as it is reported to C.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Negative errno.
    code: c_int,
    text: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

thread_local! {
    /// Text of the last failure.
    static LAST: RefCell<CString> = RefCell::default();
    /// Text of the last code whose meaning comes from the system.
    static SYSTEM: RefCell<CString> = RefCell::default();
}

impl Failure {
    /// A failure with the positive errno `number`.
    pub(crate) fn new(number: c_int, text: impl Into<String>) -> Failure {
        Failure {
            code: -number,
            text: text.into(),
        }
    }

    /// The failure of an invalid argument.
    pub(crate) fn invalid(text: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, text)
    }

    /// The same failure with its place.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Failure {
        Failure {
            text: format!("{place}: {}", self.text),
            ..self
        }
    }

    /// The system refused `action`.
    pub(crate) fn system(action: &str, error: &std::io::Error) -> Failure {
        Failure::new(number_of(error), format!("{action}: {error}"))
    }

    fn of_panic(payload: &(dyn Any + Send)) -> Failure {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Failure::new(libc::ENOTRECOVERABLE, format!("a bug in libecalls: {text}"))
    }

    /// Stores the text for `ecalls_last_error` and returns the code.
    // Its own function: a user-level thread may have changed its kernel thread before, and with it
    // the address of `LAST`.
    #[inline(never)]
    fn report(self) -> c_int {
        // A thread that is ending has no such storage any more, and cannot ask for the text.
        let _ = LAST.try_with(|last| *last.borrow_mut() = c_text(self.text));
        self.code
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let number = match &error {
            Error::Denied { .. } => libc::EPERM,
            Error::Unsupported { .. } | Error::Refused { .. } => libc::ENOSYS,
            Error::Unknown { .. } => libc::ENOENT,
            Error::Invalid { .. } => libc::EINVAL,
            Error::LimitReached { .. } => libc::ENOSPC,
            Error::Closed(_) | Error::DaemonGone => libc::ESHUTDOWN,
            Error::Quota { .. } => libc::EDQUOT,
            Error::Version { .. } | Error::OtherBuild { .. } | Error::Hosted { .. } => libc::EPROTO,
            Error::Load { .. } => libc::ENOEXEC,
            Error::Ecode(_) => libc::EINVAL,
            Error::Os { source, .. } => number_of(source),
            _ => libc::EIO,
        };
        Failure::new(number, error.to_string())
    }
}

/// The errno of a system error. libbpf's errors have only a kind.
pub(crate) fn number_of(error: &std::io::Error) -> c_int {
    use std::io::ErrorKind;
    error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::PermissionDenied => libc::EPERM,
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::InvalidInput => libc::EINVAL,
        _ => libc::EIO,
    })
}

fn c_text(mut text: String) -> CString {
    text.retain(|c| c != '\0');
    CString::new(text).unwrap_or_default()
}

/// Runs a function's body and turns errors and panics into codes.
pub(crate) fn guard(body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => failure.report(),
        Err(payload) => Failure::of_panic(&*payload).report(),
    }
}

/// The meaning of a code to which this library gives one of its own.
fn meaning(number: c_int) -> Option<&'static CStr> {
    Some(match number {
        0 => c"no error",
        libc::EPERM => c"not allowed: run as root, or start the daemon (ecallsd)",
        libc::ENOSYS => c"this kernel lacks something that is needed",
        libc::ENOENT => c"there is no service, field or handler of that name",
        libc::EINVAL => c"an argument has no meaning",
        libc::ENOSPC => c"a limit is reached",
        libc::EDQUOT => c"this user has, or does, as much as the daemon lets it",
        libc::ESHUTDOWN => c"the process, channel, service, core or daemon is gone",
        libc::EPROTO => c"a core of another version or build runs",
        libc::ENOEXEC => c"the kernel refused one of the core's programs",
        libc::EAGAIN => c"no event waits",
        libc::ETIMEDOUT => c"the time ran out",
        libc::E2BIG => c"the options ask for more than this version of the library knows",
        libc::ENOTRECOVERABLE => c"a bug in libecalls",
        _ => return None,
    })
}

/// Returns the meaning of a code, given as a function returned it (negative) or positive. Never
/// NULL. A text of this library is valid forever; the system's text for other codes until the
/// thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_strerror(code: c_int) -> *const c_char {
    let number = code.checked_abs().unwrap_or(0);
    if let Some(text) = meaning(number) {
        return text.as_ptr();
    }
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let kept = SYSTEM.try_with(|system| {
        *system.borrow_mut() = c_text(text);
        system.borrow().as_ptr()
    });
    kept.unwrap_or(c"an error of the system".as_ptr())
}

/// Returns the text of the calling thread's last failed call: what is wrong, and what is expected.
/// Never NULL; empty before the first failure. Valid until the thread's next failed call. Success,
/// -EAGAIN and -ETIMEDOUT do not change it.
#[unsafe(no_mangle)]
pub extern "C" fn ecalls_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the function returns a text that ends with 0.
        let text = unsafe { CStr::from_ptr(ecalls_last_error()) };
        text.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn panic_becomes_a_code_and_a_text() {
        let code = guard(|| panic!("three {}", "is two"));
        assert_eq!(code, -libc::ENOTRECOVERABLE);
        assert_eq!(last(), "a bug in libecalls: three is two");
    }

    #[test]
    fn error_keeps_its_whole_text() {
        let code = guard(|| Err(Error::Closed("the channel").into()));
        assert_eq!(code, -libc::ESHUTDOWN);
        assert_eq!(last(), "the channel is gone");
        assert_eq!(guard(|| Ok(-libc::EAGAIN)), -libc::EAGAIN);
        assert_eq!(last(), "the channel is gone");
    }

    #[test]
    fn each_thread_has_its_own_text() {
        guard(|| Err(Failure::invalid("mine")));
        let theirs = std::thread::spawn(last).join().expect("no panic");
        assert_eq!((last().as_str(), theirs.as_str()), ("mine", ""));
    }

    #[test]
    fn zero_bytes_do_not_cut_a_text() {
        guard(|| Err(Failure::invalid("a\0b")));
        assert_eq!(last(), "ab");
    }

    #[test]
    fn every_code_has_a_meaning() {
        for code in [
            0,
            -libc::EPERM,
            libc::EPERM,
            -libc::EBADF,
            c_int::MIN,
            123_456,
        ] {
            // SAFETY: the function returns a text that ends with 0.
            let text = unsafe { CStr::from_ptr(ecalls_strerror(code)) };
            assert!(!text.is_empty(), "{code}");
        }
    }
}
