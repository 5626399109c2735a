//! Fixed-size C texts: names and formats of the headers' type `char name[...]`.
//!
//! A text ends at its first 0 byte, or at the end of the array if there is none. Reading never
//! fails, because a name that is not UTF-8 must still be shown to an operator: the text is the
//! valid part before the first bad byte. Writing fails instead of truncating.

use core::fmt;

/// A text did not fit: it is too long for its array (the final 0 included) or contains a 0 byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Bytes that the array can hold, its final 0 excluded.
    pub bytes_max: usize,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "text is longer than {} bytes or contains a zero byte",
            self.bytes_max
        )
    }
}

impl core::error::Error for TextError {}

/// The text in `bytes`, up to its first 0 byte or its first byte that is not UTF-8.
pub fn read(bytes: &[u8]) -> &str {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    let bytes = &bytes[..end];
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
    }
}

/// Writes `text` into `bytes` and fills the rest with 0.
///
/// # Errors
/// [`TextError`] if `text` with a final 0 does not fit or contains a 0; `bytes` is then unchanged.
pub fn write(bytes: &mut [u8], text: &str) -> Result<(), TextError> {
    if text.len() >= bytes.len() || text.contains('\0') {
        return Err(TextError {
            bytes_max: bytes.len().saturating_sub(1),
        });
    }
    let (start, rest) = bytes.split_at_mut(text.len());
    start.copy_from_slice(text.as_bytes());
    rest.fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_its_first_zero_byte() {
        assert_eq!(read(b"socket\0\0garbage"), "socket");
        assert_eq!(read(b"full"), "full");
        assert_eq!(read(b""), "");
    }

    #[test]
    fn text_that_is_not_utf8_is_shown_as_far_as_it_is_valid() {
        assert_eq!(read(b"ab\xff\xffcd\0"), "ab");
    }

    #[test]
    fn text_that_does_not_fit_is_refused_and_changes_nothing() {
        let mut bytes = *b"old\0";
        assert_eq!(write(&mut bytes, "four"), Err(TextError { bytes_max: 3 }));
        assert_eq!(write(&mut bytes, "a\0b"), Err(TextError { bytes_max: 3 }));
        assert_eq!(&bytes, b"old\0");
        assert_eq!(write(&mut bytes, "ab"), Ok(()));
        assert_eq!(&bytes, b"ab\0\0");
        assert_eq!(write(&mut [], ""), Err(TextError { bytes_max: 0 }));
    }
}
