//! What a program may name besides its own things: where it is to run decides that, and says it
//! here. Nothing else about the surroundings reaches the compiler.

use crate::limits::ARRAY_ELEMENTS;
use crate::tree::Builtin;
use crate::types::{Int, Type};

/// Where a program is to run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The event's data: the service's format, `u64 cookie; u16 port; char comm[16]`. `None`: the
    /// text declares its own `struct input`, or has none.
    pub input: Option<String>,
    /// Names of the service's kinds in order: constants, compared with `event.kind`.
    pub kinds: Vec<String>,
    /// Names of the channel's attributes, in order of their numbers.
    pub attributes: Vec<String>,
    /// Names of the sinks' attributes; `None`: there are no sinks here.
    pub sinks: Option<Vec<String>>,
    /// Services that may be raised: name and index.
    pub services: Vec<(String, u32)>,
    /// Constants (`NUM_RESOURCES`), of type `int` or, if too large, `long`.
    pub constants: Vec<(String, i64)>,
    /// What the subscription has no right to.
    pub denied: Vec<Denied>,
}

/// A request that the subscription may not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Which (numbers in it do not matter).
    pub builtin: Builtin,
    /// Why, for the message: "signals need ...".
    pub reason: &'static str,
}

/// A field of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatField {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// Fields of a format at most: more than fit into an event's data.
const FORMAT_FIELDS: usize = 1024;

/// Reads a format: `type name` or `type name[n]` with u8..u64, s8..s64 or char, separated by `;`.
/// Fields that only fill a gap (`pad...`) may have the same name.
///
/// # Errors
/// Which part is wrong, for a message.
pub fn parse_format(text: &str) -> Result<Vec<FormatField>, String> {
    let mut fields: Vec<FormatField> = Vec::new();
    let parts = text
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    for part in parts.take(FORMAT_FIELDS) {
        let field = parse_field(part).ok_or_else(|| {
            format!("'{part}' is no `type name` or `type name[n]` with u8..u64, s8..s64 or char")
        })?;
        let twice = fields.iter().any(|former| former.name == field.name);
        if twice && !field.name.starts_with("pad") {
            return Err(format!("there is a second field '{}'", field.name));
        }
        fields.push(field);
    }
    if fields.is_empty() {
        return Err("it has no fields".into());
    }
    Ok(fields)
}

fn parse_field(part: &str) -> Option<FormatField> {
    let (kind, rest) = part.split_once(' ')?;
    let element = Type::Int(match kind {
        "u8" => Int::new(8, false),
        "u16" => Int::new(16, false),
        "u32" => Int::UNSIGNED,
        "u64" => Int::UNSIGNED_LONG,
        "s8" | "char" => Int::CHAR,
        "s16" => Int::new(16, true),
        "s32" => Int::INT,
        "s64" => Int::LONG,
        _ => return None,
    });
    let rest = rest.trim();
    let (name, ty) = match rest.split_once('[') {
        None => (rest, element),
        Some((name, bracket)) => {
            let count = bracket.strip_suffix(']')?.parse().ok()?;
            let fits = (1..=ARRAY_ELEMENTS).contains(&count);
            (name, fits.then(|| Type::Array(Box::new(element), count))?)
        }
    };
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (letters && begins).then(|| FormatField {
        name: name.to_owned(),
        ty,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_the_fields_of_a_struct() {
        let fields = parse_format("u64 cookie; u16 port; char comm[16]; s8 a;").expect("a format");
        let types: Vec<_> = fields
            .iter()
            .map(|f| (f.name.as_str(), f.ty.clone()))
            .collect();
        let text = Type::Array(Box::new(Type::Int(Int::CHAR)), 16);
        let expected = [
            ("cookie", Type::Int(Int::UNSIGNED_LONG)),
            ("port", Type::Int(Int::new(16, false))),
            ("comm", text),
            ("a", Type::Int(Int::CHAR)),
        ];
        assert_eq!(types, expected);
    }

    #[test]
    fn wrong_formats_are_refused_with_the_part_that_is_wrong() {
        let wrong = [
            "",
            "u7 a",
            "u64",
            "u64 1a",
            "char c[0]",
            "char c[99999]",
            "u64 a[3",
            "u8 a; u8 a",
        ];
        for text in wrong {
            assert!(parse_format(text).is_err(), "{text}");
        }
        assert!(parse_format("u8 pad[3]; u8 pad").is_ok());
    }
}
