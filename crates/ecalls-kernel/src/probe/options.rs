//! The options with which the kernel was built, if the kernel or its package has a list of them.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

/// A configuration is a few hundred KiB; nothing larger is read.
const BYTES_MAX: usize = 4 << 20;

/// The options as text, and the file where they were found.
#[derive(Debug, Default)]
pub(super) struct Options {
    text: String,
    source: String,
}

impl Options {
    /// The options of the running kernel, of version `release`; `None` if there is no such file.
    pub(super) fn read(release: &str) -> Option<Options> {
        let places = [
            "/proc/config.gz".to_owned(),
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
        ];
        places.into_iter().find_map(|path| {
            let text = unpacked(&path).filter(|text| text.contains("CONFIG_"))?;
            Some(Options { text, source: path })
        })
    }

    #[cfg(test)]
    pub(super) fn from_text(text: &str) -> Options {
        Options {
            text: text.to_owned(),
            source: "a test".to_owned(),
        }
    }

    /// Value of the option (without its prefix CONFIG_), "n" if it is off or unknown to the
    /// kernel.
    pub(super) fn value(&self, name: &str) -> &str {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='))
            .find(|(option, _)| *option == name)
            .map_or("n", |(_, value)| value.trim_matches('"'))
    }

    /// The option and its value as evidence.
    pub(super) fn evidence(&self, name: &str) -> String {
        format!("CONFIG_{name}={} ({})", self.value(name), self.source)
    }
}

// Functions of zlib, which libbpf needs for the same purpose and links.
unsafe extern "C" {
    fn gzopen(path: *const c_char, mode: *const c_char) -> *mut c_void;
    fn gzread(file: *mut c_void, buffer: *mut c_void, bytes: c_uint) -> c_int;
    fn gzclose(file: *mut c_void) -> c_int;
}

/// The text of a file, compressed or not.
fn unpacked(path: &str) -> Option<String> {
    let path = CString::new(path).ok()?;
    // SAFETY: two strings that end with 0.
    let file = unsafe { gzopen(path.as_ptr(), c"r".as_ptr()) };
    if file.is_null() {
        return None;
    }
    let mut text = Vec::new();
    let mut piece = [0u8; 1 << 14];
    while text.len() < BYTES_MAX {
        // SAFETY: `file` is open, `piece` has room for 2^14 bytes.
        let read = unsafe { gzread(file, piece.as_mut_ptr().cast(), 1 << 14) };
        match usize::try_from(read) {
            Ok(count) if count > 0 => text.extend_from_slice(&piece[..count]),
            _ => break,
        }
    }
    // SAFETY: `file` is open and not used again.
    unsafe { gzclose(file) };
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_its_value_and_is_off_when_it_is_not_set_or_not_there() {
        let options =
            Options::from_text("CONFIG_BPF=y\n# CONFIG_KPROBES is not set\nCONFIG_LSM=\"a,b\"\n");
        assert_eq!(options.value("BPF"), "y");
        assert_eq!(options.value("KPROBES"), "n");
        assert_eq!(options.value("BP"), "n");
        assert_eq!(options.value("LSM"), "a,b");
    }

    #[test]
    fn a_file_that_is_not_there_gives_nothing() {
        assert!(unpacked("/nonexistent/config.gz").is_none());
        assert!(unpacked("with\0zero").is_none());
    }
}
