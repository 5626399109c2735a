//! `abi/upload.h`: the file that contains a text in E-code: names, followed by the text.
//!
//! The receiver copies the file once, then [`parse`]s the copy. The seals prevent changes of the
//! file meanwhile.

use core::fmt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::downcall::ATTRIBUTES;
use crate::text;
use crate::version::NAME_MAX;

/// Version of the file.
pub const UPLOAD_VERSION: u32 = 1;
/// The most bytes of an uploaded text.
pub const UPLOAD_BYTES_MAX: usize = 16384;
/// Bytes of its name, including the final 0.
pub const UPLOAD_NAME_MAX: usize = 64;

/// `struct ecalls_upload`: the beginning of the file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Upload {
    /// [`UPLOAD_VERSION`].
    pub version: u32,
    /// Bytes of the text, which follows this struct.
    pub bytes: u32,
    /// Entries of `attribute` in use.
    pub attributes: u32,
    /// 0.
    pub pad: u32,
    /// The name with which messages about the text begin, as a C text.
    pub name: [u8; UPLOAD_NAME_MAX],
    /// Names of the channel's attributes, as C texts; those that are not in use are empty.
    pub attribute: [[u8; NAME_MAX]; ATTRIBUTES],
}

/// Bytes before the text.
pub const HEAD: usize = size_of::<Upload>();

/// Bytes of the largest file.
pub const FILE_MAX: usize = HEAD + UPLOAD_BYTES_MAX;

/// The reason why a file is not an upload, or a text does not fit into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Its size is not the size in its header, or is not allowed for a text.
    Size,
    /// It has another version.
    Version(u32),
    /// Its name, or that of an attribute, is too long or not a text, or an attribute that is not in
    /// use has one.
    Name,
    /// It has more attributes than a channel.
    Attributes,
    /// The text is not UTF-8.
    Text,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Size => f.write_str("a file of another size than it says"),
            Wrong::Version(version) => {
                write!(f, "an upload of version {version}, not {UPLOAD_VERSION}")
            }
            Wrong::Name => f.write_str("a name that is too long, no text, or not in use"),
            Wrong::Attributes => f.write_str("more attributes than a channel has"),
            Wrong::Text => f.write_str("a text that is not UTF-8"),
        }
    }
}

impl core::error::Error for Wrong {}

impl Upload {
    /// The beginning of the file for a text. A longer name of the text is cut.
    ///
    /// # Errors
    /// [`Wrong::Size`], [`Wrong::Name`] of an attribute, [`Wrong::Attributes`].
    pub fn new(name: &str, attributes: &[impl AsRef<str>], text: &str) -> Result<Upload, Wrong> {
        let mut upload = Upload::new_zeroed();
        upload.version = UPLOAD_VERSION;
        if text.len() > UPLOAD_BYTES_MAX {
            return Err(Wrong::Size);
        }
        upload.bytes = u32::try_from(text.len()).map_err(|_| Wrong::Size)?;
        let most = UPLOAD_NAME_MAX - 1;
        let end = name.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = end.take_while(|end| *end <= most).last().unwrap_or(0);
        text::write(&mut upload.name, &name[..end]).map_err(|_| Wrong::Name)?;
        for attribute in attributes {
            let at = usize::try_from(upload.attributes).map_err(|_| Wrong::Attributes)?;
            let place = upload.attribute.get_mut(at).ok_or(Wrong::Attributes)?;
            text::write(place, attribute.as_ref()).map_err(|_| Wrong::Name)?;
            upload.attributes += 1;
        }
        Ok(upload)
    }

    /// The text's name.
    pub fn name(&self) -> &str {
        text::read(&self.name)
    }

    /// Names of the channel's attributes.
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
        let count = usize::try_from(self.attributes).unwrap_or(usize::MAX);
        self.attribute
            .iter()
            .take(count)
            .map(|name| text::read(name))
    }
}

/// Whether a C text is valid: UTF-8, and followed only by 0.
fn is_text(bytes: &[u8]) -> bool {
    let Some(end) = bytes.iter().position(|byte| *byte == 0) else {
        return false;
    };
    core::str::from_utf8(&bytes[..end]).is_ok() && bytes[end..].iter().all(|byte| *byte == 0)
}

/// Checks a file, and returns its beginning and the text.
///
/// # Errors
/// [`Wrong`]
pub fn parse(file: &[u8]) -> Result<(Upload, &str), Wrong> {
    let (upload, rest) = Upload::read_from_prefix(file).map_err(|_| Wrong::Size)?;
    if upload.version != UPLOAD_VERSION {
        return Err(Wrong::Version(upload.version));
    }
    if usize::try_from(upload.bytes) != Ok(rest.len()) || rest.len() > UPLOAD_BYTES_MAX {
        return Err(Wrong::Size);
    }
    let used = usize::try_from(upload.attributes).unwrap_or(usize::MAX);
    let Some((_, unused)) = upload.attribute.split_at_checked(used) else {
        return Err(Wrong::Attributes);
    };
    let is_unused = unused.as_flattened().iter().all(|byte| *byte == 0);
    let are_texts = is_text(&upload.name) && upload.attribute.iter().all(|name| is_text(name));
    if upload.pad != 0 || !is_unused || !are_texts {
        return Err(Wrong::Name);
    }
    let text = core::str::from_utf8(rest).map_err(|_| Wrong::Text)?;
    Ok((upload, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "load > 5";
    const NONE: &[&str] = &[];

    fn file(upload: &Upload) -> ([u8; HEAD + TEXT.len()], usize) {
        let mut bytes = [0; HEAD + TEXT.len()];
        bytes[..HEAD].copy_from_slice(upload.as_bytes());
        bytes[HEAD..].copy_from_slice(TEXT.as_bytes());
        (bytes, HEAD + TEXT.len())
    }

    fn upload() -> Upload {
        Upload::new("filter.ec", &["load", "size"], TEXT).expect("small")
    }

    #[test]
    fn what_is_uploaded_is_understood() {
        let (bytes, _) = file(&upload());
        let (parsed, text) = parse(&bytes).expect("our own");
        assert_eq!((parsed.name(), text), ("filter.ec", TEXT));
        assert!(parsed.attributes().eq(["load", "size"]));
    }

    #[test]
    fn every_cut_and_every_growth_is_refused() {
        let (bytes, size) = file(&upload());
        for end in 0..size {
            assert_eq!(parse(&bytes[..end]), Err(Wrong::Size), "{end}");
        }
        let mut longer = [b' '; HEAD + TEXT.len() + 1];
        longer[..size].copy_from_slice(&bytes);
        assert_eq!(parse(&longer), Err(Wrong::Size));
    }

    #[test]
    fn a_text_beyond_the_longest_is_refused_whatever_its_head_says() {
        let whole = |bytes: usize| {
            let mut file = [b' '; FILE_MAX + 1];
            let mut upload = upload();
            upload.bytes = u32::try_from(bytes).expect("small");
            file[..HEAD].copy_from_slice(upload.as_bytes());
            parse(&file[..HEAD + bytes]).map(|(_, text)| text.len())
        };
        assert_eq!(whole(UPLOAD_BYTES_MAX), Ok(UPLOAD_BYTES_MAX));
        assert_eq!(whole(UPLOAD_BYTES_MAX + 1), Err(Wrong::Size));
    }

    #[test]
    fn numbers_and_names_that_lie_are_refused() {
        let lie = |change: fn(&mut Upload), expected| {
            let mut upload = upload();
            change(&mut upload);
            assert_eq!(parse(&file(&upload).0).map(|_| ()), Err(expected));
        };
        lie(|upload| upload.version = 9, Wrong::Version(9));
        lie(|upload| upload.bytes = u32::MAX, Wrong::Size);
        lie(|upload| upload.attributes = 33, Wrong::Attributes);
        lie(|upload| upload.attributes = u32::MAX, Wrong::Attributes);
        lie(|upload| upload.pad = 1, Wrong::Name);
        lie(|upload| upload.name = [b'a'; UPLOAD_NAME_MAX], Wrong::Name);
        lie(|upload| upload.name[0] = 0xff, Wrong::Name);
        lie(|upload| upload.name[63] = 7, Wrong::Name);
        lie(|upload| upload.attribute[2][0] = b'x', Wrong::Name);
    }

    #[test]
    fn long_names_of_a_text_are_cut_and_others_refused() {
        let long = "\u{e9}".repeat(60);
        let upload = Upload::new(&long, NONE, TEXT).expect("cut");
        assert_eq!(upload.name(), "\u{e9}".repeat(31));
        assert_eq!(Upload::new("", &[long.as_str()], TEXT), Err(Wrong::Name));
        assert_eq!(Upload::new("", &["a"; 33], TEXT), Err(Wrong::Attributes));
        let text = core::str::from_utf8(&[b' '; UPLOAD_BYTES_MAX + 1]).expect("blanks");
        assert_eq!(Upload::new("", NONE, text), Err(Wrong::Size));
    }
}
