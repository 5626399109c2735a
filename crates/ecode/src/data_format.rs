//! The format of an event's data, as a service publishes it: the fields of a C struct as text, such
//! as `u64 cookie; u16 port; char comm[16]`. The fields follow one another, each at a multiple of
//! its size. E-code takes its `struct input` from a format and describes its `struct output` by
//! one; the library reads and writes values by the names in it.

use crate::limits::ARRAY_ELEMENTS;
use crate::tree::Tree;
use crate::types::{Int, Structs, Type};

/// The type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned integer.
    Unsigned,
    /// Signed integer.
    Signed,
    /// Decimal number: a signed count of millionths.
    Fixed,
    /// Text in a fixed-size array, ended by 0.
    Text,
}

/// A field of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatField {
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// Bytes of one element.
    pub size: u8,
    /// Elements, if it is an array.
    pub count: Option<u32>,
}

/// The largest number of fields of a format: more than fit into an event's data.
const FORMAT_FIELDS: usize = 1024;
/// The syntax of a field, for messages.
pub const FIELD: &str = "`type name` or `type name[n]` with u8..u64, s8..s64, fixed or char";

impl FormatField {
    /// Parses one field. `None`: it does not have the form [`FIELD`].
    pub fn parse(part: &str) -> Option<FormatField> {
        let (kind, rest) = part.split_once(' ')?;
        let (kind, size) = match kind {
            "u8" => (Kind::Unsigned, 1),
            "u16" => (Kind::Unsigned, 2),
            "u32" => (Kind::Unsigned, 4),
            "u64" => (Kind::Unsigned, 8),
            "s8" => (Kind::Signed, 1),
            "s16" => (Kind::Signed, 2),
            "s32" => (Kind::Signed, 4),
            "s64" => (Kind::Signed, 8),
            "fixed" => (Kind::Fixed, 8),
            "char" => (Kind::Text, 1),
            _ => return None,
        };
        let rest = rest.trim();
        let (name, count) = match rest.split_once('[') {
            None => (rest, None),
            Some((name, bracket)) => {
                let count = bracket.strip_suffix(']')?.parse().ok()?;
                let fits = (1..=ARRAY_ELEMENTS).contains(&count);
                (name, Some(fits.then_some(count)?))
            }
        };
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        (letters && begins).then(|| FormatField {
            name: name.to_owned(),
            kind,
            size,
            count,
        })
    }

    /// The field's type in E-code.
    pub fn ty(&self) -> Type {
        let element = match self.kind {
            Kind::Fixed => Type::Fixed,
            kind => Type::Int(Int::new(8 * self.size, kind != Kind::Unsigned)),
        };
        match self.count {
            None => element,
            Some(count) => Type::Array(Box::new(element), count),
        }
    }
}

/// The fields of a format, each as text.
pub fn fields(format: &str) -> impl Iterator<Item = &str> {
    let parts = format.split(';').map(str::trim);
    parts.filter(|part| !part.is_empty())
}

/// Parses the format of an input. Padding fields (`pad...`) may have the same name.
///
/// # Errors
/// The part that is wrong, for a message.
pub fn parse_format(text: &str) -> Result<Vec<FormatField>, String> {
    let mut all: Vec<FormatField> = Vec::new();
    for part in fields(text).take(FORMAT_FIELDS) {
        let field = FormatField::parse(part).ok_or_else(|| format!("'{part}' is no {FIELD}"))?;
        let twice = all.iter().any(|former| former.name == field.name);
        if twice && !field.name.starts_with("pad") {
            return Err(format!("there is a second field '{}'", field.name));
        }
        all.push(field);
    }
    if all.is_empty() {
        return Err("it has no fields".into());
    }
    Ok(all)
}

/// Bytes of the data that a format describes. `None`: it is none, or describes nothing.
pub fn bytes(text: &str) -> Option<u32> {
    parse_format(text)
        .ok()?
        .iter()
        .try_fold(0u32, |end, field| {
            let size = u32::from(field.size);
            let bytes = size.checked_mul(field.count.unwrap_or(1))?;
            end.checked_next_multiple_of(size)?.checked_add(bytes)
        })
}

/// Whether two formats describe the same data: texts may differ in spaces and in a last semicolon.
pub fn is_same(one: &str, other: &str) -> bool {
    let parse = |text: &str| {
        fields(text)
            .map(FormatField::parse)
            .collect::<Option<Vec<_>>>()
    };
    parse(one).is_some_and(|fields| Some(fields) == parse(other))
}

/// The format of a text's `output`, which becomes the data of its events. A format has no structs
/// and no arrays of arrays: `load` of `cpu[1]` becomes `cpu_1_load`. `None` without an output, or
/// when that has more than `most` bytes.
pub fn output_format(tree: &Tree, most: u32) -> Option<String> {
    let ty = &tree.variables.get(tree.output?.0 as usize)?.ty;
    let mut writer = FormatWriter {
        structs: &tree.structs,
        fields: Vec::new(),
        end: 0,
    };
    let bytes = tree.structs.size(ty).filter(|bytes| *bytes <= most)?;
    writer.value(ty, "", 0);
    writer.pad(bytes);
    let parts: Vec<_> = writer.fields.into_iter().map(|(part, _)| part).collect();
    Some(parts.join("; "))
}

struct FormatWriter<'a> {
    structs: &'a Structs,
    /// The field, `u32 port`, and its name.
    fields: Vec<(String, String)>,
    /// Bytes so far.
    end: u32,
}

impl FormatWriter<'_> {
    /// A value at this offset. The recursion is as deep as types are nested.
    fn value(&mut self, ty: &Type, name: &str, offset: u32) {
        match ty {
            Type::Struct(at) => {
                let fields = self.structs.all.get(*at).map(|one| one.fields.as_slice());
                for field in fields.unwrap_or_default() {
                    self.value(&field.ty, &joined(name, &field.name), offset + field.offset);
                }
            }
            Type::Array(of, count) if matches!(**of, Type::Struct(_) | Type::Array(..)) => {
                let size = self.structs.size(of).unwrap_or(0);
                for at in 0..*count {
                    self.value(of, &joined(name, &at.to_string()), offset + at * size);
                }
            }
            Type::Array(of, count) => self.field(of, name, offset, Some(*count)),
            _ => self.field(ty, name, offset, None),
        }
    }

    fn field(&mut self, ty: &Type, name: &str, offset: u32, count: Option<u32>) {
        let Some(bytes) = self.structs.size(ty).filter(|bytes| *bytes > 0) else {
            return;
        };
        let mut name = name.to_owned();
        while self.fields.iter().any(|(_, other)| *other == name) {
            name.push('_');
        }
        // A format cannot express this offset without padding.
        if self.end.next_multiple_of(bytes) != offset {
            self.pad(offset);
        }
        let text = count.map_or(String::new(), |count| format!("[{count}]"));
        let part = format!("{} {name}{text}", format_type(ty, count));
        self.fields.push((part, name));
        self.end = offset + bytes * count.unwrap_or(1);
    }

    /// Fills a gap.
    fn pad(&mut self, until: u32) {
        if until > self.end {
            let part = format!("u8 pad[{}]", until - self.end);
            self.fields.push((part, String::new()));
            self.end = until;
        }
    }
}

fn joined(name: &str, part: &str) -> String {
    if name.is_empty() {
        part.to_owned()
    } else {
        format!("{name}_{part}")
    }
}

fn format_type(ty: &Type, count: Option<u32>) -> String {
    match ty {
        Type::Fixed => "fixed".to_owned(),
        Type::Int(int) if *int == Int::CHAR && count.is_some() => "char".to_owned(),
        Type::Int(int) => format!("{}{}", if int.signed { 's' } else { 'u' }, int.bits),
        _ => "u8".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    #[test]
    fn a_format_is_the_fields_of_a_struct() {
        let fields = parse_format("u64 cookie; u16 port; char comm[16]; s8 a;").expect("a format");
        let types: Vec<_> = fields.iter().map(|f| (f.name.as_str(), f.ty())).collect();
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

    #[test]
    fn bytes_of_a_format_are_those_to_the_end_of_its_last_field() {
        for (text, expected) in [
            ("u8 a", Some(1)),
            ("u8 a; u64 b", Some(16)),
            ("u64 b; u8 a;", Some(9)),
            ("u8 a; char name[16]; u16 c", Some(20)),
            ("", None),
            ("u7 a", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn formats_with_the_same_fields_are_the_same() {
        assert!(is_same("u8 a; u64 b", " u8  a;u64 b; "));
        assert!(is_same("", ""));
        assert!(!is_same("u8 a; u64 b", "u8 a; u64 c"));
        assert!(!is_same("u64 a", "u32 a; u32 b"));
        assert!(!is_same("u7 a", "u7 a"));
    }

    /// The output of a text, as its format says it.
    fn output_of(text: &str) -> Option<String> {
        let source = crate::source::Source::new("test", text);
        let compiled = crate::compile(&source, &Environment::default()).expect("a program");
        output_format(&compiled.tree, 168)
    }

    #[test]
    fn an_output_lies_where_its_format_says() {
        let texts = [
            ("", None),
            (
                "struct output { unsigned int pid; fixed load; char comm[16]; bool big; };",
                Some("u32 pid; fixed load; char comm[16]; u8 big; u8 pad[7]"),
            ),
            (
                "struct output { unsigned short a[3]; signed char b; };",
                Some("u16 a[3]; s8 b; u8 pad[1]"),
            ),
            ("struct output { long much[22]; };", None),
        ];
        for (text, expected) in &texts {
            let text = format!("{text} return 1;");
            assert_eq!(output_of(&text).as_deref(), *expected, "{text}");
        }
        let nested = "struct load { char x; long load; };
            struct cpu { char name; struct load of[2]; };
            struct output { char of_0_x; char a; struct cpu cpu; int m[2][2]; };
            return 1;";
        let format = output_of(nested).expect("a format");
        assert_eq!(
            format,
            "s8 of_0_x; s8 a; u8 pad[6]; s8 cpu_name; u8 pad[7]; s8 cpu_of_0_x; \
             s64 cpu_of_0_load; s8 cpu_of_1_x; s64 cpu_of_1_load; s32 m_0[2]; s32 m_1[2]"
        );
        let fields = parse_format(&format).expect("a format that is one");
        let fields: Vec<_> = fields
            .into_iter()
            .map(|f| (f.name.clone(), f.ty()))
            .collect();
        let laid = Structs::default().lay_out("again", &fields);
        assert_eq!(laid.map(|laid| laid.size), Some(64));
    }
}
