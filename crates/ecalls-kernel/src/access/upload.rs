//! Texts in E-code that are sent to the daemon: sealed files in memory (abi/upload.h).
//!
//! The client writes such a file and seals it; from then on no process can change it. The daemon
//! checks the seals, copies the file once, and uses only its copy. Only files in the kernel's own
//! memory have seals, so reading such a file never blocks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ecalls_abi::message::MESSAGE_DESCRIPTORS;
use ecalls_abi::upload::{FILE_MAX, UPLOAD_BYTES_MAX, Upload, Wrong, parse};
use rustix::fs::{MemfdFlags, SealFlags};
use zerocopy::IntoBytes;

use crate::core::handler::Handler;
use crate::error::{Error, Result};

/// The seals that prevent any change of a file.
const SEALS: SealFlags = SealFlags::WRITE
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW);

/// A received text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The name with which messages about it begin.
    pub name: String,
    /// Names of the channel's attributes.
    pub attributes: Vec<String>,
    pub text: String,
}

fn os(action: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |errno| Error::from_io(action, errno.into())
}

/// The file of a handler's text.
///
/// # Errors
/// [`Error::LimitReached`] for a text that is too long for the daemon.
pub(crate) fn write(handler: &Handler) -> Result<OwnedFd> {
    let source = handler.source();
    let upload = Upload::new(&source.name, handler.attributes(), &source.text);
    let upload = upload.map_err(|wrong| match wrong {
        Wrong::Size => Error::LimitReached {
            which: "bytes of a text in E-code for the daemon",
            limit: UPLOAD_BYTES_MAX,
        },
        _ => Error::Invalid {
            what: "the name of an attribute",
            given: handler.attributes().join(", "),
            expected: "at most 32 names of at most 31 bytes",
        },
    })?;
    let action = "making a file for a text in E-code";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
    let file = rustix::fs::memfd_create(c"ecode", flags).map_err(os(action))?;
    let whole = [upload.as_bytes(), source.text.as_bytes()].concat();
    let mut rest = whole.as_slice();
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&file, rest));
        rest = rest.get(written.map_err(os(action))?..).unwrap_or_default();
    }
    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(os(action))?;
    Ok(file)
}

/// The files of some handlers, in order.
///
/// # Errors
/// Those of each, and [`Error::LimitReached`] for more than one message can carry.
pub(crate) fn write_all(handlers: &[(usize, Handler)]) -> Result<Vec<OwnedFd>> {
    if handlers.len() > MESSAGE_DESCRIPTORS {
        return Err(Error::LimitReached {
            which: "handlers in E-code of one subscription by the daemon",
            limit: MESSAGE_DESCRIPTORS,
        });
    }
    handlers.iter().map(|(_, handler)| write(handler)).collect()
}

/// Whether no process can change a file any more. Only files in memory have such seals.
pub fn is_sealed(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS))
}

/// Reads a file that another process wrote.
///
/// # Errors
/// [`Error::Invalid`] for a file that is not an upload, or may still be changed.
pub fn read(file: impl AsFd) -> Result<Text> {
    let invalid = |given: String| Error::Invalid {
        what: "the file of a text in E-code",
        given,
        expected: "as ecalls/upload.h describes: a sealed memfd with names and the text",
    };
    if !is_sealed(file.as_fd()) {
        return Err(invalid("not sealed".to_owned()));
    }
    // One byte more than the limit, to detect a longer file.
    let mut bytes = vec![0; FILE_MAX + 1];
    let mut size = 0;
    while let Some(rest) = bytes.get_mut(size..).filter(|rest| !rest.is_empty()) {
        let count = rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut *rest, size as u64));
        match count.map_err(os("reading a text in E-code"))? {
            0 => break,
            count => size += count,
        }
    }
    let (upload, text) = parse(&bytes[..size]).map_err(|wrong| invalid(wrong.to_string()))?;
    Ok(Text {
        name: upload.name().to_owned(),
        attributes: upload.attributes().map(str::to_owned).collect(),
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8], seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let file = rustix::fs::memfd_create(c"test", flags).expect("a file of memory");
        assert_eq!(rustix::io::write(&file, bytes), Ok(bytes.len()));
        rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
        file
    }

    fn whole(text: &str) -> Vec<u8> {
        let upload = Upload::new("filter.ec", &["load"], text).expect("small");
        [upload.as_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn a_sealed_file_is_read_and_stays_as_it_is() {
        let file = file(&whole("load > 5"), SEALS);
        assert!(rustix::io::write(&file, b"x").is_err());
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        let text = read(&file).expect("an upload");
        assert_eq!(
            (text.name.as_str(), text.text.as_str()),
            ("filter.ec", "load > 5")
        );
        assert_eq!(text.attributes, ["load"]);
    }

    #[test]
    fn a_text_that_was_only_checked_is_a_file_for_the_daemon() {
        let source = ::ecode::source::Source::new("filter.ec", "event.cpu == 0");
        let checked = ::ecode::check(&source, &::ecode::environment::Environment::default());
        let program = checked.expect("nothing is wrong").program;
        let handler = Handler::new(&program, None, source).expect("small");
        let text = read(write(&handler).expect("a file")).expect("an upload");
        assert_eq!(
            (text.name.as_str(), text.text.as_str()),
            ("filter.ec", "event.cpu == 0")
        );
    }

    #[test]
    fn a_file_that_can_be_changed_is_refused() {
        let open = [
            SealFlags::empty(),
            SealFlags::WRITE,
            SealFlags::SHRINK | SealFlags::GROW,
            SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW,
            SealFlags::WRITE | SealFlags::GROW,
            SealFlags::WRITE | SealFlags::SHRINK,
        ];
        for seals in open {
            let told = read(file(&whole("1"), seals)).expect_err("it can be changed");
            assert!(told.to_string().contains("not sealed"), "{seals:?}: {told}");
        }
        let (pipe, _write) = std::io::pipe().expect("a pipe");
        assert!(read(pipe).is_err());
        assert!(read(std::fs::File::open("/dev/zero").expect("it is there")).is_err());
    }

    #[test]
    fn files_of_another_size_are_refused() {
        let mut long = whole("1");
        long.resize(FILE_MAX * 4, b' ');
        for bytes in [
            &[][..],
            &[0; 100],
            &whole("12")[..whole("12").len() - 1],
            &long,
        ] {
            assert!(read(file(bytes, SEALS)).is_err(), "{} bytes", bytes.len());
        }
    }
}
