//! The data of events by field name, as the service's format says ([`data_format`]).

use std::fmt;

pub use ::ecode::data_format::Kind;
use ::ecode::data_format::{self, FIELD, FormatField};

use crate::{Error, Result};

/// The largest number of fields of a format: more than fit into an event's data.
const FIELDS_MAX: usize = 168;

/// The integer that represents the decimal number 1.
const FIXED_ONE: u64 = 1_000_000;

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// Bytes of one element.
    pub size: usize,
    /// Elements; 1 unless it is an array.
    pub count: usize,
    /// Offset into the data, bytes.
    pub offset: usize,
}

impl Field {
    /// Whether the field only fills a gap.
    pub fn is_padding(&self) -> bool {
        self.name.starts_with("pad")
    }
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Unsigned integer.
    Unsigned(u64),
    /// Signed integer.
    Signed(i64),
    /// Decimal number, in millionths.
    Fixed(i64),
    /// Text.
    Text(String),
    /// Array of integers.
    List(Vec<Value>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Signed(value) => write!(f, "{value}"),
            Value::Fixed(millionths) => write_fixed(f, *millionths),
            Value::Text(text) => write!(f, "{text}"),
            Value::List(values) => {
                for (at, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if at == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

/// `-1.25`
fn write_fixed(f: &mut fmt::Formatter<'_>, millionths: i64) -> fmt::Result {
    let sign = if millionths < 0 { "-" } else { "" };
    let (whole, rest) = (
        millionths.unsigned_abs() / FIXED_ONE,
        millionths.unsigned_abs() % FIXED_ONE,
    );
    write!(f, "{sign}{whole}")?;
    if rest == 0 {
        return Ok(());
    }
    write!(f, ".{}", format!("{rest:06}").trim_end_matches('0'))
}

/// The fields of a service's data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// In order.
    pub fields: Vec<Field>,
}

impl Format {
    /// Parses a format's text.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the field that is wrong.
    pub fn parse(text: &str) -> Result<Format> {
        let mut fields = Vec::new();
        let mut offset = 0usize;
        for part in data_format::fields(text) {
            let field = FormatField::parse(part).ok_or_else(|| invalid(part, FIELD))?;
            let size = usize::from(field.size);
            let field = Field {
                name: field.name,
                kind: field.kind,
                size,
                count: field.count.unwrap_or(1) as usize,
                offset: offset.next_multiple_of(size),
            };
            offset = field.offset + field.size * field.count;
            if offset > ecalls_abi::version::DATA_MAX || fields.len() >= FIELDS_MAX {
                return Err(invalid(part, "fields of at most 2152 bytes in total"));
            }
            fields.push(field);
        }
        Ok(Format { fields })
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Bytes of data with all fields.
    pub fn size(&self) -> usize {
        self.fields
            .last()
            .map_or(0, |field| field.offset + field.size * field.count)
    }

    /// Reads an event's data: the fields that it has, in order.
    pub fn read<'a>(&'a self, data: &'a [u8]) -> impl Iterator<Item = (&'a Field, Value)> {
        self.fields
            .iter()
            .filter_map(|field| Some((field, read_field(field, data)?)))
    }

    /// Writes fields given as `name=value` into data; fields not named are 0.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a field that does not exist, [`Error::Invalid`] for a value that does
    /// not fit.
    pub fn write<'a>(
        &self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<u8>> {
        let mut data = vec![0; self.size()];
        for (name, value) in pairs {
            let field = self.field(name).ok_or_else(|| Error::Unknown {
                what: "field",
                name: name.to_owned(),
                hint: format!(
                    "there are {}",
                    self.fields
                        .iter()
                        .map(|f| f.name.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            })?;
            write_field(field, value, &mut data)?;
        }
        Ok(data)
    }
}

fn read_field(field: &Field, data: &[u8]) -> Option<Value> {
    let bytes = data.get(field.offset..field.offset + field.size * field.count)?;
    if field.kind == Kind::Text {
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        return Some(Value::Text(
            String::from_utf8_lossy(&bytes[..end]).into_owned(),
        ));
    }
    let mut values = bytes.chunks(field.size).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let value = u64::from_le_bytes(word);
        match field.kind {
            Kind::Signed => {
                let unused = 64 - 8 * u32::try_from(chunk.len()).unwrap_or(8);
                Value::Signed(value.wrapping_shl(unused).cast_signed() >> unused)
            }
            Kind::Fixed => Value::Fixed(value.cast_signed()),
            Kind::Unsigned | Kind::Text => Value::Unsigned(value),
        }
    });
    if field.count == 1 {
        values.next()
    } else {
        Some(Value::List(values.collect()))
    }
}

/// `-1.25`, in millionths.
fn parse_fixed(text: &str) -> Option<i128> {
    const DECIMALS: usize = 6;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > DECIMALS {
        return None;
    }
    let whole: i128 = whole.parse().ok()?;
    let rest: i128 = format!("{decimals:0<DECIMALS$}").parse().ok()?;
    let value = whole
        .checked_mul(i128::from(FIXED_ONE))?
        .checked_add(rest)?;
    Some(if negative { -value } else { value })
}

fn write_field(field: &Field, value: &str, data: &mut [u8]) -> Result<()> {
    let place = &mut data[field.offset..field.offset + field.size * field.count];
    if field.kind == Kind::Text {
        let bytes = value.as_bytes();
        let target = place
            .get_mut(..bytes.len())
            .ok_or_else(|| invalid(value, "text that fits into the field"))?;
        target.copy_from_slice(bytes);
        return Ok(());
    }
    let parts: Vec<&str> = value.split(',').collect();
    if parts.len() > field.count {
        return Err(invalid(value, "no more values than the field has elements"));
    }
    for (part, place) in parts.iter().zip(place.chunks_mut(field.size)) {
        let bits = 8 * u32::try_from(field.size).unwrap_or(8);
        let number = match field.kind {
            Kind::Fixed => parse_fixed(part.trim()),
            _ => part.trim().parse::<i128>().ok(),
        };
        let expected = match field.kind {
            Kind::Fixed => "a number with at most six decimals",
            _ => "a whole number",
        };
        let number = number.ok_or_else(|| invalid(part, expected))?;
        let fits = match field.kind {
            Kind::Signed | Kind::Fixed => {
                (-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&number)
            }
            Kind::Unsigned | Kind::Text => (0..1i128 << bits).contains(&number),
        };
        if !fits {
            return Err(invalid(part, "a number that fits into the field"));
        }
        place.copy_from_slice(&number.to_le_bytes()[..field.size]);
    }
    Ok(())
}

fn invalid(given: &str, expected: &'static str) -> Error {
    Error::Invalid {
        what: "a format or field",
        given: format!("{given:?}"),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_c_puts_them() {
        let format = Format::parse("u8 a; u32 b; char c[3]; u16 d[2]; s64 e").expect("a format");
        let offsets: Vec<_> = format.fields.iter().map(|field| field.offset).collect();
        assert_eq!(offsets, [0, 4, 8, 12, 16]);
        assert_eq!(format.size(), 24);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let format = Format::parse("u8 a; s16 b; char c[8]; u32 d[2]").expect("a format");
        let pairs = [
            ("b", "-300"),
            ("c", "hello"),
            ("d", "1,4000000000"),
            ("a", "255"),
        ];
        let data = format.write(pairs).expect("values that fit");
        let read: Vec<_> = format
            .read(&data)
            .map(|(_, value)| value.to_string())
            .collect();
        assert_eq!(read, ["255", "-300", "hello", "1,4000000000"]);
    }

    #[test]
    fn decimal_numbers_are_written_as_such() {
        let format = Format::parse("u8 a; fixed b[2]").expect("a format");
        let data = format.write([("b", "-0.25,1234567")]).expect("numbers");
        let read: Vec<_> = format.read(&data).map(|(_, value)| value).collect();
        let list = vec![Value::Fixed(-250_000), Value::Fixed(1_234_567_000_000)];
        assert_eq!(read, [Value::Unsigned(0), Value::List(list)]);
        assert_eq!(read[1].to_string(), "-0.25,1234567");
        for wrong in ["1.2345678", "1.", ".5", "1e3", "--1", "99999999999999"] {
            assert!(format.write([("b", wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn data_that_ends_early_has_fewer_fields() {
        let format = Format::parse("u64 a; u64 b").expect("a format");
        assert_eq!(format.read(&[1; 12]).count(), 1);
    }

    #[test]
    fn wrong_formats_and_values_are_refused_with_the_field() {
        for text in [
            "u7 a",
            "u64",
            "u64 1a",
            "char c[0]",
            "char c[2153]",
            "u64 a[3",
            "u64 a[270]",
        ] {
            assert!(Format::parse(text).is_err(), "{text}");
        }
        let format = Format::parse("u8 a; char c[2]").expect("a format");
        for pair in [
            ("a", "256"),
            ("a", "-1"),
            ("a", "x"),
            ("c", "abc"),
            ("b", "1"),
            ("a", "1,2"),
        ] {
            assert!(format.write([pair]).is_err(), "{pair:?}");
        }
    }
}
